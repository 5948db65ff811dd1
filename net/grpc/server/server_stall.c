/* Clients that send a request or take an answer too slowly: each must move MOVE_MIN_BYTES within
 * its timeout. One sweep for all calls of the server, once per stall timeout, so a stalled call
 * ends one to two sweeps later (a slow reader after its own, longer timeout); a timer for each call
 * would cost more. */
#include "net/grpc/server/rpc_server_internal.h"

/* A byte now and then must not keep a call alive ("slow loris"): 16 KiB in the default minute is
 * less than any useful link carries. */
#define MOVE_MIN_BYTES (16u << 10)

/* The thing that the server awaits from the client. Time in which the service lets the client wait
 * is not the client's fault. */
static enum muster_rpc_awaited awaited_of(const struct muster_rpc *rpc)
{
    switch (rpc->state) {
    case MUSTER_RPC_STARTING:
        return MUSTER_RPC_AWAITS_HEADERS;
    case MUSTER_RPC_OPEN:
        if (muster_rpc_inbox_is_holding(&rpc->inbox)) /* the service lets it wait */
            return MUSTER_RPC_AWAITS_NOTHING;
        if (rpc->method->is_unary)
            return muster_rpc_inbox_has_ended(&rpc->inbox) ? MUSTER_RPC_AWAITS_NOTHING
                                                           : MUSTER_RPC_AWAITS_REQUEST;
        return muster_grpc_parser_is_empty(&rpc->parser) ? MUSTER_RPC_AWAITS_NOTHING
                                                         : MUSTER_RPC_AWAITS_REQUEST;
    case MUSTER_RPC_FINISHED:
        return rpc->stream.body.bytes > 0 ? MUSTER_RPC_AWAITS_READER : MUSTER_RPC_AWAITS_NOTHING;
    case MUSTER_RPC_ENDED:
        return MUSTER_RPC_AWAITS_END;
    }
    return MUSTER_RPC_AWAITS_NOTHING;
}

/* A number that grows by each byte of what is awaited; for answers the queue shrinks, hence the
 * difference. */
static uint64_t progress_of(const struct muster_rpc *rpc, enum muster_rpc_awaited kind)
{
    if (kind == MUSTER_RPC_AWAITS_REQUEST)
        return rpc->received_bytes;
    return kind == MUSTER_RPC_AWAITS_READER ? UINT64_MAX - rpc->stream.body.bytes : 0;
}

static uint64_t timeout_ns(const struct muster_rpc_server_options *options,
                           enum muster_rpc_awaited kind)
{
    return kind == MUSTER_RPC_AWAITS_READER ? options->reader_timeout_ns
                                            : options->stall_timeout_ns;
}

static bool is_stalled(const struct muster_rpc *rpc, uint64_t now_ns)
{
    return now_ns - rpc->awaited_since_ns >=
           timeout_ns(&rpc->connection->server->options, rpc->awaited);
}

static void watch_call(struct muster_rpc *rpc, uint64_t now_ns)
{
    enum muster_rpc_awaited kind = awaited_of(rpc);
    uint64_t moved_to = progress_of(rpc, kind);

    if (kind == MUSTER_RPC_AWAITS_NOTHING || kind != rpc->awaited ||
        moved_to - rpc->awaited_mark >= MOVE_MIN_BYTES) {
        rpc->awaited = kind;
        rpc->awaited_mark = moved_to;
        rpc->awaited_since_ns = now_ns;
    } else if (!is_stalled(rpc, now_ns)) {
        return;
    } else if (kind == MUSTER_RPC_AWAITS_HEADERS) { /* nothing else can come on this connection */
        muster_h2_session_terminate(rpc->connection->session.h2, MUSTER_H2_ENHANCE_YOUR_CALM,
                                    "slow_headers");
    } else {
        muster_rpc_abort_later(rpc, MUSTER_RPC_STALLED);
    }
}

static void watch_connection(struct muster_rpc_connection *connection)
{
    struct muster_h2_session *session = connection->session.h2;
    uint64_t write = muster_h2_session_write_mark(session);
    struct muster_h2_stream *stream = NULL;
    struct muster_error error;

    /* The same write has been under way for a whole sweep: nothing that is told to this client
     * would arrive. */
    if (write != 0 && write == connection->write_mark) {
        (void)muster_error_set(&error, MUSTER_UNAVAILABLE, "client does not read");
        muster_h2_session_fail(session, &error);
        return;
    }
    connection->write_mark = write;
    while ((stream = muster_h2_session_next_stream(session, stream)) != NULL)
        watch_call(stream->data, muster_loop_now_ns(connection->server->env->loop));
}

static void on_sweep(struct muster_timer *timer)
{
    struct muster_rpc_server *server = timer->data;

    MUSTER_LIST_EACH(&server->connections, connection, struct muster_rpc_connection, node)
        watch_connection(connection);
    if (!muster_list_is_empty(&server->connections))
        muster_rpc_server_watch(server);
}

void muster_rpc_server_watch_init(struct muster_rpc_server *server)
{
    muster_timer_init(&server->sweep_timer, on_sweep, server);
}

void muster_rpc_server_watch(struct muster_rpc_server *server)
{
    struct muster_loop *loop = server->env->loop;

    if (!muster_timer_is_started(&server->sweep_timer))
        muster_timer_start(&server->sweep_timer, loop,
                           muster_loop_after_ns(loop, server->options.stall_timeout_ns));
}
