/* The gRPC server: its options and defaults, its listeners, the services that are added, and its
 * orderly end. Streams go on to server_tls.c, server_visit.c or server_connection.c; server_core.c
 * knows when the last part has ended. */
#include <string.h>

#include "net/grpc/server/rpc_server_internal.h"
#include "net/tls/tls_internal.h"

/* Message size and keepalive are gRPC's own defaults; the others bound what a hostile or broken
 * client may cost, far above what a cluster of trainers needs. */
#define MESSAGE_MAX_BYTES           (4u << 20)
#define SEND_QUEUE_MAX_BYTES        (64u << 20)
#define POOL_KEPT_MAX_BYTES         (16u << 20)
#define STREAMS_MAX                 1000
#define CONNECTIONS_MAX             10000
#define KEEPALIVE_INTERVAL_NS       (7200 * MUSTER_NS_PER_S)
#define KEEPALIVE_TIMEOUT_NS        (20 * MUSTER_NS_PER_S)
#define PING_INTERVAL_MIN_NS        (5 * MUSTER_NS_PER_S)
#define HANDSHAKE_TIMEOUT_NS        (10 * MUSTER_NS_PER_S)
#define STALL_TIMEOUT_NS            (60 * MUSTER_NS_PER_S)
#define READER_TIMEOUT_NS           (600 * MUSTER_NS_PER_S)
#define MEMORY_MAX_BYTES            ((size_t)1 << 30)
#define CONNECTION_MEMORY_MAX_BYTES ((size_t)256 << 20)

/* One address that the server listens on; a server may have several. */
struct rpc_listener {
    struct muster_list node;
    struct muster_rpc_server *server;
    struct muster_listener *listener;
};

static void server_free(struct muster_rpc_server *server)
{
    struct muster_list *node;

    MUSTER_ASSERT(muster_list_is_empty(&server->connections) && server->connection_count == 0);
    MUSTER_ASSERT(server->memory_bytes == 0); /* each call has given back what was counted for it */
    while ((node = muster_list_pop(&server->free_rpcs)) != NULL)
        muster_rpc_free(MUSTER_CONTAINER_OF(node, struct muster_rpc, node));
    /* The table points into the memory of the parts, so it goes before them. */
    muster_rpc_method_table_fini(&server->methods);
    while ((node = muster_list_pop(&server->parts)) != NULL) {
        struct muster_rpc_part *part = MUSTER_CONTAINER_OF(node, struct muster_rpc_part, node);

        part->on_closed(part);
    }
    muster_timer_stop(&server->close_timer);
    muster_timer_stop(&server->sweep_timer);
    muster_task_cancel(&server->relief_task);
    muster_timer_stop(&server->unsent_timer);
    muster_rpc_inflation_fini(&server->inflation);
    muster_task_cancel(&server->closed_task);
    muster_mem_pool_fini(&server->pool);
    muster_tls_close(server->options.tls);
    muster_mem_free(server->env->mem, server);
}

static void on_closed_task(struct muster_task *task)
{
    struct muster_rpc_server *server = task->data;

    MUSTER_ASSERT(server->is_closing);
    if (server->closed != NULL)
        server->closed(server);
    server_free(server);
}

/* The calls that did not end in time are lost with their connections. */
static void on_close_deadline(struct muster_timer *timer)
{
    struct muster_rpc_server *server = timer->data;

    MUSTER_LIST_EACH_SAFE(&server->connections, connection, struct muster_rpc_connection, node)
        muster_rpc_connection_close(connection);
}

/* A quarter of the memory, but at least as much as one call may queue, or a single answer could
 * never be sent. */
static size_t unsent_default(const struct muster_rpc_server_options *options)
{
    size_t bytes = options->memory_max_bytes / 4;

    return bytes > options->send_queue_max_bytes ? bytes : options->send_queue_max_bytes;
}

#define DEFAULT_TO(field, value)                                                                   \
    do {                                                                                           \
        if (options->field == 0)                                                                   \
            options->field = (value);                                                              \
    } while (0)

static void options_default(struct muster_rpc_server_options *options)
{
    DEFAULT_TO(receive_message_max_bytes, MESSAGE_MAX_BYTES);
    DEFAULT_TO(send_queue_max_bytes, SEND_QUEUE_MAX_BYTES);
    DEFAULT_TO(concurrent_streams_max, STREAMS_MAX);
    DEFAULT_TO(connections_max, CONNECTIONS_MAX);
    DEFAULT_TO(keepalive_interval_ns, KEEPALIVE_INTERVAL_NS);
    DEFAULT_TO(keepalive_timeout_ns, KEEPALIVE_TIMEOUT_NS);
    DEFAULT_TO(ping_interval_min_ns, PING_INTERVAL_MIN_NS);
    DEFAULT_TO(idle_ping_interval_min_ns, options->ping_interval_min_ns);
    DEFAULT_TO(handshake_timeout_ns, HANDSHAKE_TIMEOUT_NS);
    DEFAULT_TO(stall_timeout_ns, STALL_TIMEOUT_NS);
    DEFAULT_TO(reader_timeout_ns, READER_TIMEOUT_NS);
    DEFAULT_TO(memory_max_bytes, MEMORY_MAX_BYTES);
    DEFAULT_TO(connection_memory_max_bytes, CONNECTION_MEMORY_MAX_BYTES);
    DEFAULT_TO(unsent_max_bytes, unsent_default(options));
}

enum muster_rc muster_rpc_server_open(struct muster_env *env,
                                      const struct muster_rpc_server_options *options,
                                      struct muster_rpc_server **ret_server)
{
    struct muster_rpc_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    enum muster_rc rc;

    if (server == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    server->env = env;
    muster_mem_pool_init(&server->pool, env->mem, POOL_KEPT_MAX_BYTES);
    if (options != NULL)
        server->options = *options;
    options_default(&server->options);
    /* The chain copies the pointers; the interceptors themselves are borrowed. */
    rc = muster_interceptor_chain_init(&server->interceptors, server->options.interceptors,
                                       server->options.interceptor_count, NULL);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, server);
        return rc;
    }
    if (server->options.tls != NULL)
        (void)muster_tls_share(server->options.tls);
    server->methods.mem = env->mem;
    server->metrics = env->rpc_metrics;
    server->counters = &server->own_counters;
    server->unsent.gauge = &server->counters->unsent_bytes;
    muster_list_init(&server->listeners);
    muster_list_init(&server->connections);
    muster_rpc_server_guests_init(server);
    muster_list_init(&server->free_rpcs);
    muster_list_init(&server->parts);
    muster_list_init(&server->pages);
    muster_list_init(&server->visits);
    muster_list_init(&server->closing_visits);
    muster_rpc_server_watch_init(server);
    muster_rpc_server_memory_init(server);
    muster_rpc_server_unsent_init(server);
    muster_rpc_inflation_init(&server->inflation, env->loop);
    muster_timer_init(&server->close_timer, on_close_deadline, server);
    muster_task_init(&server->closed_task, on_closed_task, server);
    *ret_server = server;
    return MUSTER_OK;
}

enum muster_rc muster_rpc_server_add(struct muster_rpc_server *server,
                                     const struct muster_rpc_method *methods, size_t count,
                                     void *service)
{
    enum muster_rc rc = muster_rpc_method_table_add(&server->methods, methods, count, service);

    for (size_t i = 0; rc == MUSTER_OK && i < count && server->metrics != NULL; i++)
        muster_rpc_method_table_count(
            &server->methods, methods[i].path,
            muster_rpc_metrics_series(server->metrics, MUSTER_RPC_SERVER, methods[i].path, ""));
    return rc;
}

void muster_rpc_server_set_fallback(struct muster_rpc_server *server,
                                    const struct muster_rpc_method *method, void *service)
{
    server->fallback = (struct muster_rpc_method_slot){
        .method = method, .service = service, .open_count = &server->fallback_open_count};
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    struct rpc_listener *rpc_listener = listener->data;

    if (muster_rpc_server_attach(rpc_listener->server, stream) != MUSTER_OK)
        MUSTER_LOG(rpc_listener->server->env, WARN, "rpc_connection_refused");
}

enum muster_rc muster_rpc_server_listen(struct muster_rpc_server *server,
                                        const struct muster_address *address,
                                        struct muster_address *ret_bound,
                                        struct muster_error *ret_error)
{
    struct rpc_listener *rpc_listener;
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    enum muster_rc rc;

    if (server->is_closing)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION, "server is closing");
    if (server->options.tls != NULL && !muster_tls_context_has_cert(server->options.tls->context))
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "a server under TLS needs a certificate: its credential has none "
                                "(set cert_file and key_file)");
    rpc_listener = muster_mem_alloc_zero(server->env->mem, 1, sizeof(*rpc_listener));
    if (rpc_listener == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    rpc_listener->server = server;
    rc = muster_listener_open(server->env->net, address, NULL, on_accept, rpc_listener,
                              &rpc_listener->listener, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(server->env->mem, rpc_listener);
        return rc;
    }
    muster_list_append(&server->listeners, &rpc_listener->node);
    muster_listener_hold(rpc_listener->listener, server->is_held);
    muster_rpc_server_name_counters(
        server, muster_address_format(muster_listener_address(rpc_listener->listener), text));
    if (ret_bound != NULL)
        *ret_bound = *muster_listener_address(rpc_listener->listener);
    return MUSTER_OK;
}

enum muster_rc muster_rpc_server_attach(struct muster_rpc_server *server,
                                        struct muster_stream *stream)
{
    if (server->options.tls != NULL && !server->is_closing)
        return muster_rpc_server_shake(server, stream); /* there is room, or not, when it is done */
    if (!muster_list_is_empty(&server->pages))
        return muster_rpc_server_visit(server, stream);
    return muster_rpc_server_attach_secured(server, stream);
}

void muster_rpc_server_hold(struct muster_rpc_server *server, bool is_held)
{
    MUSTER_ASSERT(!server->is_closing);
    server->is_held = is_held;
    MUSTER_LIST_EACH (&server->listeners, rpc_listener, struct rpc_listener, node)
        muster_listener_hold(rpc_listener->listener, is_held);
}

static void on_listener_closed(struct muster_listener *listener)
{
    struct rpc_listener *rpc_listener = listener->data;
    struct muster_rpc_server *server = rpc_listener->server;

    muster_list_remove(&rpc_listener->node);
    muster_mem_free(server->env->mem, rpc_listener);
    muster_rpc_server_check_closed(server);
}

void muster_rpc_server_close(struct muster_rpc_server *server, uint64_t deadline_ns,
                             muster_rpc_server_close_fn *closed)
{
    if (server->is_closing)
        return;
    server->is_closing = true;
    server->closed = closed;
    MUSTER_LIST_EACH_SAFE(&server->listeners, rpc_listener, struct rpc_listener, node)
        muster_listener_close(rpc_listener->listener, on_listener_closed);
    MUSTER_LIST_EACH(&server->parts, part, struct muster_rpc_part, node) {
        if (part->on_closing != NULL)
            part->on_closing(part);
    }
    /* Parts hear first that the end begins: health tells its watchers before their connections
     * drain. */
    muster_rpc_server_cancel_guests(server);
    muster_rpc_server_end_visits(server);
    MUSTER_LIST_EACH(&server->connections, connection, struct muster_rpc_connection, node)
        muster_rpc_connection_drain(connection);
    /* The open calls have until the deadline; once the clients have heard of the drain, no others
     * come. */
    muster_timer_start(&server->close_timer, server->env->loop, deadline_ns);
    muster_rpc_server_check_closed(server);
}

void muster_rpc_server_set_data(struct muster_rpc_server *server, void *data)
{
    server->data = data;
}

void *muster_rpc_server_data(const struct muster_rpc_server *server)
{
    return server->data;
}
