/* The task of this process, and the number of tasks: a resolver knows, the one that is named or the one that
 * fits the environment. */
#include "training/place.h"

#include <stdio.h>
#include <string.h>

#include <muster/http.h>
#include <muster/resolver.h>

#include "training/place_role.h"

/* Platforms with an API may be slow while they create the machines of a cluster. */
#define RESOLVE_TIMEOUT_NS (60 * MUSTER_NS_PER_S)
#define REMEDY_BYTES       220

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

/* The tasks that train together. */
static uint32_t count_training_tasks(const struct muster_cluster_spec *spec)
{
    const char *name;
    uint32_t count = 0;

    for (size_t i = 0; (name = muster_strategy_role_training_job(i)) != NULL; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(spec, name);

        if (job != NULL)
            count += (uint32_t)job->task_count;
    }
    return count;
}

uint32_t muster_replica_place_count(struct muster_resolver *resolver,
                                    const struct muster_cluster_spec *spec)
{
    bool is_known = false;
    uint32_t size = 0;

    if (muster_resolver_world_size(resolver, &is_known, &size, NULL) != MUSTER_OK)
        return 0;
    return is_known ? size : count_training_tasks(spec);
}

/* The number of ranks is told, and no jobs: those that train are numbered by rank. */
static void set_role_by_rank(struct muster_replica_place *place, int64_t rank, uint32_t size)
{
    place->expected_count = size;
    place->id_in_cluster = (uint32_t)rank;
    place->is_chief = rank == 0;
}

static bool is_training_job(const char *task_type)
{
    return strcmp(task_type, "evaluator") != 0 && strcmp(task_type, "ps") != 0;
}

/* Where the number of tasks is known, their addresses need not be. An evaluator need not be listed. */
static enum muster_rc find_role(struct muster_resolver *resolver,
                                const struct muster_strategy_role *role,
                                struct muster_replica_place *place, struct muster_error *ret_error)
{
    struct muster_error error = {0};
    const char *address;
    bool is_known = false;
    uint32_t size = 0;
    enum muster_rc rc = muster_resolver_world_size(resolver, &is_known, &size, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (is_known && is_training_job(role->task_type)) {
        set_role_by_rank(place, role->task_id, size);
        return MUSTER_OK;
    }
    if (strcmp(role->task_type, "evaluator") != 0)
        rc = muster_cluster_spec_task_address(role->cluster, role->task_type, role->task_id,
                                              &address, &error);
    if (rc == MUSTER_OK)
        rc = muster_replica_place_set_role(place, resolver->env->mem, role, &error);
    if (rc == MUSTER_OK)
        return MUSTER_OK;
    return muster_error_set(ret_error, rc,
                            "this process is task %s:%lld (%s), but %s; correct what the "
                            "resolver '%s' reads",
                            role->task_type, (long long)role->task_id,
                            muster_resolver_source(resolver, MUSTER_FACT_TASK_ID), error.text,
                            muster_resolver_name(resolver));
}

static enum muster_rc tell_no_task(const struct muster_resolver *resolver, const char *uri,
                                   const struct muster_cluster_spec *spec,
                                   struct muster_error *ret_error)
{
    bool is_tf_config = strcmp(muster_resolver_name(resolver), "tf_config") == 0;
    char remedy[REMEDY_BYTES];

    return muster_error_set(
        ret_error, MUSTER_INVALID_ARGUMENT,
        "the resolver '%s' does not say which task this process is; %sname it, %s",
        muster_resolver_name(resolver), is_tf_config ? "set TF_CONFIG.task, or " : "",
        muster_resolver_task_remedy(uri, spec, sizeof(remedy), remedy));
}

/* Launchers tell the address of rank 0's rendezvous, which is not where a member listens. */
static bool tells_members_address(const struct muster_resolver *resolver)
{
    return strcmp(muster_resolver_name(resolver), "torchrun") != 0 &&
           strcmp(muster_resolver_name(resolver), "jax") != 0;
}

static void read_address(const struct muster_resolver *resolver,
                         const struct muster_cluster_spec *spec, struct muster_replica_place *place)
{
    const char *own = NULL, *name;
    uint32_t count = 0;

    if (!tells_members_address(resolver) ||
        muster_cluster_spec_task_address(spec, place->task_type, place->task_index, &own, NULL) !=
            MUSTER_OK ||
        own == NULL || strlen(own) >= sizeof(place->address))
        return;
    snprintf(place->address, sizeof(place->address), "%s", own);
    for (size_t i = 0; (name = muster_strategy_role_training_job(i)) != NULL; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(spec, name);

        for (size_t task = 0; job != NULL && task < job->task_count; task++)
            count += job->tasks[task].address != NULL && strcmp(job->tasks[task].address, own) == 0;
    }
    place->is_sole = count == 1;
}

static enum muster_rc place_in_spec(struct muster_resolver *resolver, const char *uri,
                                    const struct muster_cluster_spec *spec,
                                    struct muster_replica_place *place,
                                    struct muster_error *ret_error)
{
    struct muster_strategy_role role = {.cluster = spec};
    struct muster_mem *mem = resolver->env->mem;
    char *task_type = NULL;
    bool has_task_id = false;
    enum muster_rc rc = muster_resolver_task_type(resolver, &task_type, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_resolver_task_id(resolver, &has_task_id, &role.task_id, ret_error);
    if (rc == MUSTER_OK && (task_type == NULL || !has_task_id))
        rc = tell_no_task(resolver, uri, spec, ret_error);
    role.task_type = task_type;
    if (rc == MUSTER_OK)
        rc = find_role(resolver, &role, place, ret_error);
    if (rc == MUSTER_OK) {
        snprintf(place->task_type, sizeof(place->task_type), "%s", task_type);
        place->task_index = (uint32_t)role.task_id;
        read_address(resolver, spec, place);
    }
    muster_mem_free(mem, task_type);
    return rc;
}

void muster_replica_place_be_alone(struct muster_replica_place *ret_place)
{
    *ret_place = (struct muster_replica_place){.task_type = "worker",
                                               .expected_count = 1,
                                               .is_alone = true,
                                               .is_local = true,
                                               .is_chief = true};
}

/* TensorFlow's local mode: TF_CONFIG is there, and describes no cluster. */
static bool is_local(const struct muster_resolver *resolver, const struct muster_cluster_spec *spec)
{
    return strcmp(muster_resolver_name(resolver), "tf_config") == 0 &&
           muster_cluster_spec_is_empty(spec);
}

static enum muster_rc ask_place(struct muster_resolver *resolver, const char *uri,
                                bool may_be_alone, struct muster_replica_place *place,
                                struct muster_error *ret_error)
{
    struct muster_cluster_spec *spec = NULL;
    enum muster_rc rc = ask_cluster(resolver->env, resolver, &spec, ret_error);

    if (rc == MUSTER_OK && may_be_alone && is_local(resolver, spec))
        muster_replica_place_be_alone(place);
    else if (rc == MUSTER_OK)
        rc = place_in_spec(resolver, uri, spec, place, ret_error);
    muster_cluster_spec_unref(spec);
    return rc;
}

enum muster_rc muster_replica_place_ask(struct muster_resolver *resolver, bool may_be_alone,
                                        struct muster_replica_place *ret_place,
                                        struct muster_error *ret_error)
{
    struct muster_replica_place place = {.expected_count = 0};
    char uri[40]; /* shows how it is named; its options are the program's */
    enum muster_rc rc;

    snprintf(uri, sizeof(uri), "%s:", muster_resolver_name(resolver));
    rc = ask_place(resolver, uri, may_be_alone, &place, ret_error);
    if (rc == MUSTER_OK)
        *ret_place = place;
    return rc;
}

static enum muster_rc find_by_resolver(struct muster_env *env, const char *uri, bool may_be_alone,
                                       struct muster_replica_place *place,
                                       struct muster_error *ret_error)
{
    struct muster_resolver *resolver = NULL;
    bool is_closed = false;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_resolver_open(env, uri, NULL, &resolver, &error);

    if (rc == MUSTER_NOT_FOUND && may_be_alone && strcmp(uri, "auto:") == 0) {
        muster_replica_place_be_alone(place); /* no platform has left a mark */
        return MUSTER_OK;
    }
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s", error.text);
    resolver->data = &is_closed;
    rc = ask_place(resolver, uri, may_be_alone, place, ret_error);
    muster_resolver_close(resolver, on_closed);
    while (!is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    return rc;
}

/* Waits for the end of the HTTP client that only this question needed. */
struct http_end {
    struct muster_http_tracer tracer; /* leads from the client to here */
    bool is_closed;
};

static void on_http_closed(struct muster_http *http)
{
    MUSTER_CONTAINER_OF(http->tracer, struct http_end, tracer)->is_closed = true;
}

static void ignore_exchange(struct muster_http_tracer *tracer,
                            const struct muster_http_exchange *exchange)
{
    (void)tracer;
    (void)exchange;
}

/* Platforms with an API need an HTTP client. */
static enum muster_rc find_with_http(struct muster_env *env, const char *uri, bool may_be_alone,
                                     struct muster_replica_place *place,
                                     struct muster_error *ret_error)
{
    struct http_end end = {.tracer = {.on_exchange = ignore_exchange}};
    enum muster_rc rc;

    if (env->http != NULL)
        return find_by_resolver(env, uri, may_be_alone, place, ret_error);
    rc = muster_http_curl_open(env, NULL, &env->http, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    env->http->tracer = &end.tracer;
    rc = find_by_resolver(env, uri, may_be_alone, place, ret_error);
    muster_http_close(env->http, on_http_closed);
    while (!end.is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    env->http = NULL;
    return rc;
}

/* A launcher numbers its workers by RANK; a TF_CONFIG that it has inherited names the machine, and
 * is the same for all workers there. */
static bool is_numbered_by_launcher(struct muster_vars *vars)
{
    return muster_vars_get(vars, "MUSTER_INCARNATION") != NULL &&
           muster_vars_get(vars, "RANK") != NULL && muster_vars_get(vars, "WORLD_SIZE") != NULL;
}

/* No resolver is named: the environment shows which one to ask. */
static enum muster_rc find_by_environment(struct muster_env *env, bool may_be_alone,
                                          struct muster_replica_place *place,
                                          struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (muster_vars_get(env->vars, "TF_CONFIG") != NULL && !is_numbered_by_launcher(env->vars))
        return find_by_resolver(env, "tf_config:", may_be_alone, place, ret_error);
    if (muster_vars_get(env->vars, "RANK") != NULL ||
        muster_vars_get(env->vars, "WORLD_SIZE") != NULL)
        return find_by_resolver(env, "torchrun:", false, place, ret_error);
    rc = find_with_http(env, "auto:", may_be_alone, place, ret_error);
    if (rc == MUSTER_NOT_FOUND && place->expected_count == 0)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "RANK is not set, nor anything else that describes a cluster: start this program with "
            "`muster run -n N -- PROGRAM`, or set TF_CONFIG, MUSTER_RESOLVER, or RANK and "
            "WORLD_SIZE");
    return rc;
}

enum muster_rc muster_replica_place_find(struct muster_env *env, const char *resolver,
                                         bool may_be_alone, struct muster_replica_place *ret_place,
                                         struct muster_error *ret_error)
{
    struct muster_replica_place place = {.expected_count = 0};
    const char *uri = resolver != NULL ? resolver : muster_vars_get(env->vars, "MUSTER_RESOLVER");
    enum muster_rc rc = uri != NULL ? find_with_http(env, uri, may_be_alone, &place, ret_error)
                                    : find_by_environment(env, may_be_alone, &place, ret_error);

    if (rc == MUSTER_OK)
        *ret_place = place;
    return rc;
}
