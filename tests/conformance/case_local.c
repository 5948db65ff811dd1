/* Resolvers that need no network, opened with the arguments of a case. */
#include "cases.h"

#include <muster/platforms.h>

#include <stdlib.h>
#include <string.h>

static enum muster_rc read_accelerators(const json_t *map, struct muster_accelerators *accelerators)
{
    const char *kind;
    json_t *count;

    json_object_foreach((json_t *)(uintptr_t)map, kind, count)
    {
        size_t at = accelerators->kind_count;

        if (at == MUSTER_ACCELERATOR_KINDS_MAX || !json_is_integer(count) ||
            strlen(kind) >= MUSTER_ACCELERATOR_KIND_TEXT_BYTES)
            return MUSTER_INVALID_ARGUMENT;
        memcpy(accelerators->kinds[at].kind, kind, strlen(kind) + 1);
        accelerators->kinds[at].count = json_integer_value(count);
        accelerators->kind_count++;
    }
    return MUSTER_OK;
}

/* A value of the wrong type has no place in these options: it becomes NULL, which the resolver
 * refuses. */
static enum muster_rc read_static(struct case_run *run,
                                  struct muster_static_resolver_options *options,
                                  struct muster_error *ret_error)
{
    const json_t *cluster = case_argument(run->one, "cluster_spec");
    const json_t *master = case_argument(run->one, "master");
    enum muster_rc rc;

    options->master = master != NULL ? case_text(master) : "";
    if (case_argument(run->one, "environment") == NULL)
        options->common.environment = "";
    rc = read_accelerators(case_argument(run->one, "num_accelerators"), &options->accelerators);
    if (rc != MUSTER_OK || json_object_get(cluster, "not_a_cluster_spec") != NULL)
        return rc;
    return case_read_cluster(run, cluster, &options->cluster_spec, ret_error);
}

enum muster_rc case_open_simple(struct case_run *run, const struct muster_resolver_options *common,
                                struct muster_resolver **ret_resolver,
                                struct muster_error *ret_error)
{
    struct muster_static_resolver_options options = {.common = *common};
    enum muster_rc rc = read_static(run, &options, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_static_resolver_open(run->env, &options, ret_resolver, ret_error);
    muster_cluster_spec_unref(options.cluster_spec);
    return rc;
}

/* A member of any class, a union among them; it sees the devices of the case. A member that is not an
 * object becomes NULL, which the union refuses. */
static enum muster_rc open_member(struct case_run *run, const json_t *member,
                                  const struct muster_resolver_options *of_union,
                                  struct muster_resolver **ret_resolver,
                                  struct muster_error *ret_error)
{
    const char *kind = case_text(json_object_get(member, "resolver"));
    case_open_fn *open = kind != NULL ? case_resolver_find(kind) : NULL;
    struct case_run own = {
        .env = run->env, .one = member, .top = run->top != NULL ? run->top : run};
    struct muster_resolver_options common = {0};
    enum muster_rc rc;

    if (!json_is_object(member))
        return MUSTER_OK;
    if (open == NULL)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED, "member '%s': not built",
                                kind != NULL ? kind : "?");
    rc = case_read_common(&own, &common, ret_error);
    common.list_devices = of_union->list_devices;
    common.list_devices_data = of_union->list_devices_data;
    return rc == MUSTER_OK ? open(&own, &common, ret_resolver, ret_error) : rc;
}

enum muster_rc case_open_union(struct case_run *run, const struct muster_resolver_options *common,
                               struct muster_resolver **ret_resolver,
                               struct muster_error *ret_error)
{
    const json_t *given = case_argument(run->one, "resolvers");
    struct muster_resolver *members[MUSTER_UNION_MEMBERS_MAX] = {NULL};
    struct muster_union_resolver_options options = {.common = *common, .members = members};
    struct muster_error error = {0};
    enum muster_rc rc = MUSTER_OK;

    if (json_array_size(given) > MUSTER_UNION_MEMBERS_MAX)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED, "a union of more than %d members",
                                MUSTER_UNION_MEMBERS_MAX);
    for (size_t i = 0; i < json_array_size(given) && rc == MUSTER_OK; i++)
        rc = open_member(run, json_array_get(given, i), common, &members[options.member_count++],
                         &error);
    if (rc == MUSTER_OK)
        return muster_union_resolver_open(run->env, &options, ret_resolver, ret_error);
    /* The member that failed is NULL: the union refuses it and closes the others. */
    if (muster_union_resolver_open(run->env, &options, ret_resolver, NULL) != MUSTER_OK)
        *ret_error = error;
    return rc;
}

enum muster_rc case_open_sagemaker(struct case_run *run,
                                   const struct muster_resolver_options *common,
                                   struct muster_resolver **ret_resolver,
                                   struct muster_error *ret_error)
{
    struct muster_sagemaker_resolver_options options = {.common = *common};
    enum muster_rc rc =
        case_read_port(case_argument(run->one, "port"), 0, &options.port, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    return muster_sagemaker_resolver_open(run->env, &options, ret_resolver, ret_error);
}

enum muster_rc case_open_tf_config(struct case_run *run,
                                   const struct muster_resolver_options *common,
                                   struct muster_resolver **ret_resolver,
                                   struct muster_error *ret_error)
{
    return muster_tf_config_resolver_open(run->env, common, ret_resolver, ret_error);
}

#define CASE_PAIRS_MAX 64

/* {"worker": 4, "ps": 1}; texts belong to the case. */
static size_t read_jobs(const json_t *map, struct muster_slurm_job *jobs)
{
    size_t count = 0;
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        if (count < CASE_PAIRS_MAX)
            jobs[count++] = (struct muster_slurm_job){name, (uint32_t)json_integer_value(value)};
    }
    return count;
}

static void set_gpus(void *data, const char *devices)
{
    json_t *value = json_string(devices);

    case_set_variable(data, "CUDA_VISIBLE_DEVICES", value);
    json_decref(value);
}

static void read_gpus(struct case_run *run, struct muster_slurm_resolver_options *options)
{
    const json_t *per_node = case_argument(run->one, "gpus_per_node");
    const json_t *per_task = case_argument(run->one, "gpus_per_task");
    const json_t *auto_set = case_argument(run->one, "auto_set_gpu");

    options->has_gpus_per_node = json_is_integer(per_node);
    options->has_gpus_per_task = json_is_integer(per_task);
    options->gpus_per_node = (uint32_t)json_integer_value(per_node);
    options->gpus_per_task = (uint32_t)json_integer_value(per_task);
    if (auto_set == NULL || json_is_true(auto_set))
        options->set_gpus = set_gpus;
    options->gpu_data = run->top != NULL ? run->top : run;
}

enum muster_rc case_open_slurm(struct case_run *run, const struct muster_resolver_options *common,
                               struct muster_resolver **ret_resolver,
                               struct muster_error *ret_error)
{
    const json_t *tasks = case_argument(run->one, "tasks_per_node");
    struct muster_slurm_job jobs[CASE_PAIRS_MAX];
    struct muster_slurm_job counts[CASE_PAIRS_MAX];
    struct muster_slurm_node nodes[CASE_PAIRS_MAX];
    struct muster_slurm_resolver_options options = {
        .common = *common, .jobs = jobs, .nodes = nodes};
    enum muster_rc rc =
        case_read_port(case_argument(run->one, "port_base"), 0, &options.port_base, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    options.job_count = read_jobs(case_argument(run->one, "jobs"), jobs);
    options.node_count = read_jobs(tasks, counts);
    for (size_t i = 0; i < options.node_count; i++)
        nodes[i] = (struct muster_slurm_node){counts[i].name, counts[i].task_count};
    options.tasks_per_node = (uint32_t)json_integer_value(tasks);
    if (json_is_null(case_argument(run->one, "rpc_layer")))
        options.common.rpc_layer = "";
    read_gpus(run, &options);
    return muster_slurm_resolver_open(run->env, &options, ret_resolver, ret_error);
}
