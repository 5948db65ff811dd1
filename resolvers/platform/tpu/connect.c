/* Connect to a TPU (TPUClusterResolver.connect): find the cluster, list the devices of all workers,
 * count the cores. On success the caller gets the open resolver; after a failure it is closed
 * before `done`. */
#include <muster/tpu.h>

#include "resolvers/platform/tpu/worker_status.h"

enum connect_state {
    CONNECT_RESOLVING,
    CONNECT_ASKING,  /* the workers */
    CONNECT_CLOSING, /* the resolver, after a failure */
    CONNECT_DONE,
};

struct connecting {
    struct muster_tpu_connect *connect;
    struct muster_env *env;
    muster_tpu_connect_fn *done;
    enum connect_state state;
    enum muster_rc rc;
    struct muster_resolver *resolver;
    struct muster_resolve resolve;
    struct muster_cluster_spec *cluster_spec;
    struct muster_worker_status status;
    size_t worker_count;
    bool is_cancelled;
};

/* Every change of state goes through here, so that the table holds. */
static void connecting_move(struct connecting *connecting, enum connect_state to)
{
    static const unsigned allowed[] = {
        [CONNECT_RESOLVING] = 1u << CONNECT_ASKING | 1u << CONNECT_CLOSING | 1u << CONNECT_DONE,
        [CONNECT_ASKING] = 1u << CONNECT_CLOSING | 1u << CONNECT_DONE,
        [CONNECT_CLOSING] = 1u << CONNECT_DONE,
        [CONNECT_DONE] = 0,
    };

    MUSTER_ASSERT((allowed[connecting->state] & 1u << to) != 0);
    connecting->state = to;
}

/* The end. */

static void connecting_finish(struct connecting *connecting)
{
    struct muster_tpu_connect *connect = connecting->connect;
    muster_tpu_connect_fn *done = connecting->done;
    enum muster_rc rc = connecting->rc;

    connecting_move(connecting, CONNECT_DONE);
    connect->impl = NULL;
    muster_mem_free(connecting->env->mem, connecting);
    done(connect, rc);
}

static void connecting_succeed(struct connecting *connecting)
{
    connecting->resolver->data = NULL;
    connecting->connect->resolver = connecting->resolver;
    connecting->connect->cluster_spec = connecting->cluster_spec;
    connecting_finish(connecting);
}

static void on_resolver_closed(struct muster_resolver *resolver)
{
    connecting_finish(resolver->data);
}

static void connecting_fail(struct connecting *connecting, enum muster_rc rc)
{
    connecting->rc = rc;
    connecting->connect->error.rc = rc;
    muster_cluster_spec_unref(connecting->cluster_spec);
    connecting_move(connecting, CONNECT_CLOSING);
    muster_resolver_close(connecting->resolver, on_resolver_closed);
}

/* The count. */

static enum muster_rc count_cores(struct connecting *connecting, const char *const *names,
                                  size_t count)
{
    struct muster_tpu_connect *connect = connecting->connect;
    struct muster_tpu_system system;
    enum muster_rc rc =
        muster_tpu_system_init(&system, connecting->env->mem, names, count, &connect->error);

    if (rc != MUSTER_OK)
        return rc;
    if (system.num_hosts < connecting->worker_count) {
        rc = muster_error_set(
            &connect->error, MUSTER_FAILED_PRECONDITION,
            "TPU %.80s: %u of its %zu workers show TPU cores; restart those that "
            "show none, or create the TPU anew",
            muster_tpu_client_name(muster_tpu_resolver_client(connecting->resolver)),
            system.num_hosts, connecting->worker_count);
        muster_tpu_system_fini(&system);
        return rc;
    }
    connect->system = system;
    return MUSTER_OK;
}

static void connecting_end(struct connecting *connecting, enum muster_rc rc)
{
    if (rc == MUSTER_OK)
        connecting_succeed(connecting);
    else
        connecting_fail(connecting, rc);
}

/* The workers. */

static void on_status(struct muster_worker_status *status, enum muster_rc rc)
{
    struct connecting *connecting = status->data;

    if (rc != MUSTER_OK)
        connecting->connect->error = status->error;
    else
        rc = count_cores(connecting, (const char *const *)status->devices, status->device_count);
    muster_worker_status_fini(status);
    connecting_end(connecting, rc);
}

static void query_workers(struct connecting *connecting)
{
    const char *job = muster_tpu_resolver_job_name(connecting->resolver);
    const char **addresses = NULL;
    size_t count = 0;
    enum muster_rc rc =
        muster_cluster_spec_job_tasks(connecting->cluster_spec, job, connecting->env->mem,
                                      &addresses, &count, &connecting->connect->error);

    if (rc == MUSTER_OK) {
        connecting->worker_count = count;
        connecting->status.data = connecting;
        rc = muster_worker_status_start(&connecting->status, connecting->env, addresses, count,
                                        connecting->connect->deadline_ns, on_status);
        if (rc != MUSTER_OK)
            (void)muster_error_set(&connecting->connect->error, rc,
                                   "cannot ask the workers of the TPU for their devices");
        muster_mem_free(connecting->env->mem, addresses);
    }
    if (rc != MUSTER_OK)
        connecting_fail(connecting, rc);
    else
        connecting_move(connecting, CONNECT_ASKING);
}

/* The cluster. */

static void on_cluster(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct connecting *connecting = resolve->data;
    struct muster_resolver *resolver = connecting->resolver;
    const char *const *names = NULL;
    size_t count = 0;

    if (rc != MUSTER_OK) {
        connecting->connect->error = resolve->error;
        connecting_fail(connecting, rc);
        return;
    }
    connecting->cluster_spec = resolve->cluster_spec;
    if (connecting->is_cancelled) { /* the cluster was known already */
        connecting_fail(connecting, muster_error_set(&connecting->connect->error, MUSTER_CANCELLED,
                                                     "cancelled"));
        return;
    }
    if (resolver->list_devices != NULL)
        resolver->list_devices(resolver->list_devices_data, &names, &count);
    else if (!muster_tpu_client_is_local(muster_tpu_resolver_client(resolver))) {
        query_workers(connecting);
        return;
    }
    connecting_end(connecting, count_cores(connecting, names, count));
}

static enum muster_rc connecting_start(struct connecting *connecting,
                                       const struct muster_tpu_resolver_options *options,
                                       struct muster_error *ret_error)
{
    enum muster_rc rc =
        muster_tpu_resolver_open(connecting->env, options, &connecting->resolver, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    connecting->resolver->data = connecting;
    connecting->resolve.data = connecting;
    connecting->resolve.what = MUSTER_RESOLVE_CLUSTER_SPEC;
    connecting->resolve.deadline_ns = connecting->connect->deadline_ns;
    rc = muster_resolve_start(&connecting->resolve, connecting->resolver, on_cluster);
    if (rc == MUSTER_INVALID_ARGUMENT)
        *ret_error = connecting->resolve.error;
    else if (rc != MUSTER_OK)
        (void)muster_error_set(ret_error, rc, "cannot ask for the workers of the TPU");
    if (rc != MUSTER_OK) {
        muster_resolver_close(connecting->resolver, NULL);
    }
    return rc;
}

enum muster_rc muster_tpu_connect_start(struct muster_tpu_connect *connect, struct muster_env *env,
                                        const struct muster_tpu_resolver_options *options,
                                        muster_tpu_connect_fn *done)
{
    struct connecting *connecting = muster_mem_alloc_zero(env->mem, 1, sizeof(*connecting));
    enum muster_rc rc;

    if (connecting == NULL)
        return muster_error_set(&connect->error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    connecting->connect = connect;
    connecting->env = env;
    connecting->done = done;
    rc = connecting_start(connecting, options, &connect->error);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, connecting);
        return rc;
    }
    connect->resolver = NULL;
    connect->cluster_spec = NULL;
    connect->system = (struct muster_tpu_system){.mem = NULL};
    connect->error = (struct muster_error){.rc = MUSTER_OK};
    connect->impl = connecting;
    return MUSTER_OK;
}

void muster_tpu_connect_cancel(struct muster_tpu_connect *connect)
{
    struct connecting *connecting = connect->impl;

    if (connecting == NULL)
        return;
    connecting->is_cancelled = true;
    if (connecting->state == CONNECT_RESOLVING)
        muster_resolve_cancel(&connecting->resolve);
    else if (connecting->state == CONNECT_ASKING)
        muster_worker_status_cancel(&connecting->status);
}
