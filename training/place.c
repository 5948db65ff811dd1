/* Which task of how many is this process? The resolver knows (TF_CONFIG …), or torchrun's RANK and
 * WORLD_SIZE. */
#include "training/place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/resolver.h>

#define RESOLVE_TIMEOUT_NS (60 * MUSTER_NS_PER_S)

/* The jobs whose tasks train together (multi_worker_util: chief and workers; ps and evaluator stand
 * aside). */
static const char *const training_jobs[] = {"chief", "master", "worker"};

static enum muster_rc read_number(struct muster_env *env, const char *name, uint64_t *ret_value,
                                  struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, name);
    char *end = NULL;

    if (text == NULL)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "%s is not set: start this program with `muster run -n N -- PROGRAM`, or "
            "set TF_CONFIG, or RANK and WORLD_SIZE",
            name);
    errno = 0;
    *ret_value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || *ret_value > UINT32_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s=%s: expected a whole number", name, text);
    return MUSTER_OK;
}

static enum muster_rc find_by_rank(struct muster_env *env, struct muster_place *place,
                                   struct muster_error *ret_error)
{
    uint64_t rank, size;
    enum muster_rc rc = read_number(env, "RANK", &rank, ret_error);

    if (rc == MUSTER_OK)
        rc = read_number(env, "WORLD_SIZE", &size, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (rank >= size)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "RANK=%" PRIu64 " is outside WORLD_SIZE=%" PRIu64, rank, size);
    snprintf(place->task_type, sizeof(place->task_type), "worker");
    place->task_index = (uint32_t)rank;
    place->expected_count = (uint32_t)size;
    return MUSTER_OK;
}

struct answer {
    bool is_there;
    enum muster_rc rc;
};

static void on_resolved(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct answer *answer = resolve->data;

    answer->is_there = true;
    answer->rc = rc;
}

static void on_closed(struct muster_resolver *resolver)
{
    bool *is_closed = resolver->data;

    *is_closed = true;
}

/* At start nothing else runs on the loop yet, so it is turned right here. */
static enum muster_rc ask_cluster(struct muster_env *env, struct muster_resolver *resolver,
                                  struct muster_cluster_spec **ret_spec,
                                  struct muster_error *ret_error)
{
    struct answer answer = {.is_there = false};
    struct muster_resolve resolve = {
        .data = &answer,
        .what = MUSTER_RESOLVE_CLUSTER_SPEC,
        .deadline_ns = muster_loop_after_ns(env->loop, RESOLVE_TIMEOUT_NS),
    };
    enum muster_rc started = muster_resolve_start(&resolve, resolver, on_resolved);

    if (started != MUSTER_OK)
        return muster_error_set(ret_error, started, "cannot ask the resolver: %s",
                                muster_rc_text(started));
    while (!answer.is_there)
        muster_loop_turn(env->loop, UINT64_MAX);
    if (answer.rc == MUSTER_OK)
        *ret_spec = resolve.cluster_spec;
    else if (ret_error != NULL)
        *ret_error = resolve.error;
    return answer.rc;
}

static enum muster_rc place_in_spec(const struct muster_cluster_spec *spec, const char *task_type,
                                    bool has_task_id, int64_t task_id, struct muster_place *place,
                                    struct muster_error *ret_error)
{
    struct muster_error error;
    const char *address;
    enum muster_rc rc;

    if (task_type == NULL || !has_task_id)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "the resolver does not say which task this process is; TF_CONFIG needs "
            "\"task\": {\"type\": …, \"index\": …}");
    rc = muster_cluster_spec_task_address(spec, task_type, task_id, &address, &error);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc,
                                "this process is said to be task %s:%lld, but %s; correct "
                                "TF_CONFIG.task (or whatever the resolver reads)",
                                task_type, (long long)task_id, error.text);
    place->expected_count = 0;
    for (size_t i = 0; i < sizeof(training_jobs) / sizeof(training_jobs[0]); i++) {
        size_t count = 0;

        if (muster_cluster_spec_job(spec, training_jobs[i]) != NULL &&
            muster_cluster_spec_num_tasks(spec, training_jobs[i], &count, ret_error) == MUSTER_OK)
            place->expected_count += (uint32_t)count;
    }
    snprintf(place->task_type, sizeof(place->task_type), "%s", task_type);
    place->task_index = (uint32_t)task_id;
    return MUSTER_OK;
}

static enum muster_rc find_by_resolver(struct muster_env *env, const char *uri,
                                       struct muster_place *place, struct muster_error *ret_error)
{
    struct muster_resolver_options options = {.task_type = NULL};
    struct muster_resolver *resolver = NULL;
    struct muster_cluster_spec *spec = NULL;
    char *task_type = NULL;
    bool has_task_id = false, is_closed = false;
    int64_t task_id = 0;
    enum muster_rc rc = muster_resolver_open(env, uri, &options, &resolver, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    resolver->data = &is_closed;
    rc = ask_cluster(env, resolver, &spec, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_resolver_task_type(resolver, &task_type, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_resolver_task_id(resolver, &has_task_id, &task_id, ret_error);
    if (rc == MUSTER_OK)
        rc = place_in_spec(spec, task_type, has_task_id, task_id, place, ret_error);
    muster_mem_free(env->mem, task_type);
    muster_cluster_spec_unref(spec);
    muster_resolver_close(resolver, on_closed);
    while (!is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    return rc;
}

enum muster_rc muster_place_find(struct muster_env *env, const char *resolver,
                                 struct muster_place *ret_place, struct muster_error *ret_error)
{
    if (resolver != NULL)
        return find_by_resolver(env, resolver, ret_place, ret_error);
    if (muster_vars_get(env->vars, "TF_CONFIG") != NULL)
        return find_by_resolver(env, "tf_config:", ret_place, ret_error);
    return find_by_rank(env, ret_place, ret_error);
}
