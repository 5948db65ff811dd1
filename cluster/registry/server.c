/* The embedded registry from above: opening and closing it, its services and its streams. A node or
 * 'muster registry' opens it on a store that it owns; the services live in *_service.c, and
 * commit.c decides when their answers leave. It runs on one loop and takes no locks. */
#include "cluster/registry/server_internal.h"

#include <stdio.h>
#include <string.h>

#include "cluster/service/standard_service.h"

/* The largest request and room for what surrounds it, as etcd gives its grpc server
 * (grpcOverheadBytes). */
#define RECEIVE_BYTES_MAX (MUSTER_MVCC_REQUEST_BYTES_MAX + ((size_t)512 << 10))
/* The interval of etcd (--experimental-watch-progress-notify-interval). */
#define PROGRESS_INTERVAL_NS (600 * MUSTER_NS_PER_S)
/* The records of an answer and the message that is packed from them are in memory together. */
#define ANSWER_ARENA_BYTES_MAX (2 * MUSTER_MVCC_ANSWER_BYTES_MAX)

/* Leases. */

static void on_expire(struct muster_leases *leases, int64_t id)
{
    struct muster_registry_server *server = leases->data;

    MUSTER_LOG(server->env, DEBUG, "registry_lease_expired", "lease", id);
    /* A failure was logged where it was decided; the lease asks again. */
    if (muster_registry_server_revoke(server, id) != MUSTER_OK)
        return;
}

static bool has_lease(void *data, int64_t lease)
{
    const struct muster_registry_server *server = data;

    return muster_leases_has(&server->leases, lease);
}

/* Opening. */

static enum muster_rc store_failed(struct muster_registry_server *server, enum muster_rc rc,
                                   struct muster_error *ret_error)
{
    return muster_error_set(ret_error, rc, "registry store: %s",
                            muster_registry_store_error(server->store));
}

/* Take an identity for good, and one more term. Both are saved with the first commit, which is at
 * once. */
static enum muster_rc take_identity(struct muster_registry_server *server)
{
    struct muster_registry_meta *meta = &server->mvcc.meta;

    /* The lowest bit is set, because 0 means that the store is new. Ids stay below 2^63 for clients
     * that print them as signed. */
    if (meta->cluster_id == 0)
        meta->cluster_id = (muster_rng_next(server->env->rng) >> 1) | 1;
    if (meta->member_id == 0)
        meta->member_id = (muster_rng_next(server->env->rng) >> 1) | 1;
    meta->term++;
    server->mvcc.is_meta_stale = true;
    return muster_mvcc_commit(&server->mvcc);
}

static enum muster_rc add_services(struct muster_registry_server *server)
{
    static enum muster_rc (*const adders[])(struct muster_registry_server *) = {
        muster_registry_kv_add,       muster_registry_lease_add,   muster_registry_watch_add,
        muster_registry_snapshot_add, muster_registry_cluster_add, muster_registry_hash_add,
        muster_registry_lock_add,     muster_registry_election_add};

    for (size_t i = 0; i < sizeof(adders) / sizeof(adders[0]); i++) {
        enum muster_rc rc = adders[i](server);

        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

static enum muster_rc open_rpc(struct muster_registry_server *server,
                               struct muster_error *ret_error)
{
    const struct muster_authorization *authorization = server->options.authorization;
    const struct muster_interceptor *guard =
        authorization != NULL ? muster_authorization_interceptor(authorization) : NULL;
    const struct muster_rpc_server_options options = {.receive_message_max_bytes =
                                                          RECEIVE_BYTES_MAX,
                                                      .tls = server->options.tls,
                                                      .interceptors = &guard,
                                                      .interceptor_count = guard != NULL ? 1 : 0};
    struct muster_address wanted;
    enum muster_rc rc = MUSTER_OK;

    /* A server of the caller listens, is guarded and is closed by the caller. */
    if (server->options.rpc_server != NULL) {
        server->rpc_server = server->options.rpc_server;
        return add_services(server);
    }
    if (server->options.listen == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "listen of the options must be HOST:PORT, got none");
    rc = muster_address_parse_listen(server->options.listen, &wanted, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_rpc_server_open(server->env, &options, &server->rpc_server);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a registry");
    server->owns_rpc_server = true;
    rc = add_services(server);
    if (rc == MUSTER_OK)
        rc = muster_standard_service_add(server->rpc_server, MUSTER_STANDARD_REGISTRY);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a registry");
    muster_registry_pages_add(server);
    return muster_rpc_server_listen(server->rpc_server, &wanted, &server->address, ret_error);
}

/* The name and the address are shown in MemberList, from which clients learn endpoints. */
static void name_itself(struct muster_registry_server *server)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    (void)snprintf(server->name, sizeof(server->name), "%s",
                   server->options.name != NULL ? server->options.name : "muster");
    if (server->options.client_url != NULL)
        (void)snprintf(server->client_url, sizeof(server->client_url), "%s",
                       server->options.client_url);
    else if (server->owns_rpc_server)
        (void)snprintf(server->client_url, sizeof(server->client_url), "%s://%s",
                       server->options.tls != NULL ? "https" : "http",
                       muster_address_format(&server->address, text));
}

static void init_parts(struct muster_registry_server *server)
{
    struct muster_env *env = server->env;

    muster_list_init(&server->pending);
    muster_list_init(&server->compacting);
    muster_list_init(&server->streams);
    muster_registry_commit_init(server);
    muster_registry_hash_init(server);
    muster_registry_arena_init(&server->arena, env->mem, ANSWER_ARENA_BYTES_MAX);
    muster_registry_arena_init(&server->send_arena, env->mem, ANSWER_ARENA_BYTES_MAX);
    muster_metric_init(&server->commits_total, env->metrics, MUSTER_COUNTER,
                       "muster_registry_commits_total", "group commits of the registry", NULL);
    muster_metric_init(&server->answers_total, env->metrics, MUSTER_COUNTER,
                       "muster_registry_answers_total", "requests answered by the registry", NULL);
    muster_registry_status_init(server);
}

static void free_server(struct muster_registry_server *server)
{
    muster_task_cancel(&server->commit);
    muster_task_cancel(&server->compact);
    muster_task_cancel(&server->hash);
    muster_timer_stop(&server->idle);
    muster_watch_hub_fini(&server->hub);
    muster_leases_fini(&server->leases);
    muster_registry_arena_fini(&server->arena);
    muster_registry_arena_fini(&server->send_arena);
    muster_metric_fini(&server->commits_total);
    muster_metric_fini(&server->answers_total);
    muster_registry_status_fini(server);
    muster_mem_free(server->env->mem, server);
}

static void on_failed_rpc_closed(struct muster_rpc_server *rpc_server)
{
    free_server(muster_rpc_server_data(rpc_server));
}

/* Nothing listens yet; what exists is taken down, the rpc server a little later. */
static void abandon_server(struct muster_registry_server *server)
{
    if (!server->owns_rpc_server) {
        free_server(server);
        return;
    }
    muster_rpc_server_set_data(server->rpc_server, server);
    muster_rpc_server_close(server->rpc_server, muster_loop_now_ns(server->env->loop),
                            on_failed_rpc_closed);
}

enum muster_rc muster_registry_server_open(struct muster_env *env,
                                           struct muster_registry_store *store,
                                           const struct muster_registry_server_options *options,
                                           struct muster_registry_server **ret_server,
                                           struct muster_error *ret_error)
{
    static const struct muster_registry_server_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_registry_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    uint64_t progress_ns =
        options->progress_interval_ns != 0 ? options->progress_interval_ns : PROGRESS_INTERVAL_NS;
    enum muster_rc rc = MUSTER_OK;

    if (server == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a registry");
    server->env = env;
    server->store = store;
    server->options = *options;
    init_parts(server);
    rc = muster_mvcc_init(&server->mvcc, store, has_lease, server);
    if (rc == MUSTER_OK)
        rc = take_identity(server);
    /* The hub is set up even after an error, because abandon_server takes it down in any case. The
     * jitter keeps registries that start together from sending their notices together. */
    muster_watch_hub_init(&server->hub, env, &server->mvcc,
                          muster_rng_jitter(env->rng, progress_ns, 50));
    if (rc == MUSTER_OK)
        rc = muster_leases_init(&server->leases, env, store, on_expire, server);
    if (rc != MUSTER_OK)
        (void)store_failed(server, rc, ret_error);
    if (rc == MUSTER_OK)
        rc = open_rpc(server, ret_error);
    if (rc != MUSTER_OK) {
        abandon_server(server);
        return rc;
    }
    name_itself(server);
    muster_registry_server_measure(server);
    muster_registry_server_clean(server); /* rows that an earlier life had left */
    *ret_server = server;
    return MUSTER_OK;
}

const struct muster_address *muster_registry_server_address(
    const struct muster_registry_server *server)
{
    return server->owns_rpc_server ? &server->address : NULL;
}

void muster_registry_server_set_data(struct muster_registry_server *server, void *data)
{
    server->data = data;
}

void *muster_registry_server_data(const struct muster_registry_server *server)
{
    return server->data;
}

/* Closing. */

static void finish_close(struct muster_registry_server *server)
{
    muster_registry_server_close_fn *closed = server->closed;

    MUSTER_ASSERT(server->is_closing);
    muster_registry_store_rollback(server->store);
    if (closed != NULL)
        closed(server);
    free_server(server);
}

static void on_close_task(struct muster_task *task)
{
    finish_close(task->data);
}

static void on_rpc_closed(struct muster_rpc_server *rpc_server)
{
    finish_close(muster_rpc_server_data(rpc_server));
}

static void end_streams(struct muster_registry_server *server)
{
    struct muster_list round;
    struct muster_list *node = NULL;

    muster_list_take_all(&round, &server->streams);
    while ((node = muster_list_pop(&round)) != NULL) {
        struct muster_registry_stream *stream =
            MUSTER_CONTAINER_OF(node, struct muster_registry_stream, node);

        muster_rpc_finish(stream->rpc, MUSTER_UNAVAILABLE, MUSTER_REGISTRY_STOPPED);
    }
}

void muster_registry_server_close(struct muster_registry_server *server, uint64_t deadline_ns,
                                  muster_registry_server_close_fn *closed)
{
    struct muster_list *node = NULL;

    MUSTER_ASSERT(!server->is_closing);
    server->is_closing = true;
    server->closed = closed;
    /* Calls that wait for a compaction get their answers now; the rows are cleaned by the next life
     * of the registry. */
    while ((node = muster_list_pop(&server->compacting)) != NULL)
        muster_list_append(&server->pending, node);
    muster_task_cancel(&server->commit);
    muster_task_cancel(&server->compact);
    muster_task_cancel(&server->hash);
    /* The last commit comes before the streams end, so that watches see what it holds. */
    muster_registry_server_commit(server);
    muster_timer_stop(&server->idle);
    end_streams(server);
    if (!server->owns_rpc_server) {
        /* The callback of close must not fire inside close, so a task brings it when there is no
         * rpc server to wait for. */
        muster_task_init(&server->close, on_close_task, server);
        muster_task_post(&server->close, server->env->loop);
        return;
    }
    muster_rpc_server_set_data(server->rpc_server, server);
    muster_rpc_server_close(server->rpc_server, deadline_ns, on_rpc_closed);
}
