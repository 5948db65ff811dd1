/* --resolver: which machine of how many this is, and where the first one is. */
#include "run/options/options.h"

#include "common/command.h"
#include "resolve/ask.h"

#include <muster/address.h>
#include <muster/resolver.h>
#include <muster/strategy_role.h>

#include <stdio.h>
#include <string.h>

#define REMEDY_BYTES 220

/* The place among the tasks that train, ranked as members are: by job, then index; `machines` of
 * them. False: it is none of them. */
static bool find_rank(const struct muster_cluster_spec *spec, const char *type, int64_t id,
                      struct run_place *place)
{
    const char *name;
    bool is_found = false;

    for (size_t i = 0; (name = muster_strategy_role_training_job(i)) != NULL; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(spec, name);

        for (size_t k = 0; job != NULL && k < job->task_count; k++) {
            struct muster_endpoint first;

            if (place->machines == 0 &&
                muster_endpoint_parse(job->tasks[k].address, 0, &first, NULL) == MUSTER_OK) {
                snprintf(place->master_addr, sizeof(place->master_addr), "%s", first.host);
                place->master_port = first.port;
            }
            if (type != NULL && strcmp(type, job->name) == 0 && id == job->tasks[k].index) {
                place->rank = place->machines;
                snprintf(place->address, sizeof(place->address), "%s", job->tasks[k].address);
                is_found = true;
            }
            place->machines++;
        }
    }
    return is_found;
}

static enum muster_rc tell_no_task(const char *uri, const struct muster_cluster_spec *spec,
                                   const char *type, const int64_t *id,
                                   struct muster_error *ret_error)
{
    char remedy[REMEDY_BYTES], task[64] = "none";

    if (type != NULL)
        snprintf(task, sizeof(task), id != NULL ? "%.40s:%lld" : "%.40s", type,
                 (long long)(id != NULL ? *id : 0));
    if (spec->job_count == 0)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "--resolver '%.60s' found no cluster: set the variables that it "
                                "reads (docs/resolvers.md), or give --nnodes and --node-rank",
                                uri);
    return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                            "--resolver '%.60s': this machine must be one of the tasks that train, "
                            "got %s; name its task, %s",
                            uri, task,
                            muster_resolver_task_remedy(uri, spec, sizeof(remedy), remedy));
}

struct finding {
    const char *uri;
    struct run_place place;
};

static enum muster_rc read_place(void *data, struct muster_resolver *resolver,
                                 const struct muster_cluster_spec *spec,
                                 struct muster_error *ret_error)
{
    struct finding *finding = data;
    struct run_place *place = &finding->place;
    char *type = NULL;
    bool has_id = false;
    bool has_size = false;
    uint32_t size = 0;
    int64_t id = 0;
    enum muster_rc rc = muster_resolver_task_type(resolver, &type, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_resolver_task_id(resolver, &has_id, &id, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_resolver_world_size(resolver, &has_size, &size, ret_error);
    if (rc == MUSTER_OK && (!find_rank(spec, type, id, place) || !has_id) && !(has_size && has_id))
        rc = tell_no_task(finding->uri, spec, type, has_id ? &id : NULL, ret_error);
    if (rc == MUSTER_OK && has_size) {
        place->machines = size;
        place->rank = (uint32_t)id;
    }
    muster_mem_free(resolver->env->mem, type);
    return rc;
}

static bool find_place(const char *uri, struct run_place *ret_place, int *ret_exit)
{
    struct finding finding = {.uri = uri};
    struct muster_error error = {0};

    if (resolve_ask(uri, read_place, &finding, &error) != MUSTER_OK) {
        *ret_exit = command_fail("run", &error);
        return false;
    }
    *ret_place = finding.place;
    return true;
}

bool run_place_read(struct run_settings *settings, int *ret_exit)
{
    struct run_place *place = &settings->place;

    if (settings->resolver == NULL)
        return true;
    if (settings->nodes_text != NULL || settings->node_rank != RUN_NODE_RANK_UNSET) {
        *ret_exit = command_refuse(
            RUN_COMMAND,
            "--nnodes and --node-rank must not be given with --resolver %s, which gives both; "
            "leave out --nnodes and --node-rank",
            settings->resolver);
        return false;
    }
    if (!find_place(settings->resolver, place, ret_exit))
        return false;
    snprintf(settings->place_text, sizeof(settings->place_text), "%u", place->machines);
    settings->nodes_text = settings->place_text;
    settings->node_rank = place->rank;
    if (place->machines == 1 || place->master_addr[0] == '\0')
        return true;
    if (settings->master_addr == NULL)
        settings->master_addr = place->master_addr;
    if (settings->master_port == 0)
        settings->master_port = place->master_port;
    return true;
}
