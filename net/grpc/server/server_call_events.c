/* The events of a call's stream: its headers, through the checks, the limits and the interceptors
 * to the service, and its close. server_connection.c passes the events on. */
#include "net/grpc/metadata.h"
#include "net/grpc/server/rpc_server_internal.h"
#include "net/h2/h2_code.h"

/* One timer serves the deadline and all the reasons that end a call from the loop. */
static void on_expire(struct muster_timer *timer)
{
    static const struct {
        enum muster_rc rc;
        const char *text;
    } abort_statuses[] = {
        [MUSTER_RPC_DEADLINE] = {MUSTER_DEADLINE_EXCEEDED, "deadline exceeded"},
        [MUSTER_RPC_OVERFLOWING] = {MUSTER_RESOURCE_EXHAUSTED, "send queue limit exceeded"},
        [MUSTER_RPC_HEAVY] = {MUSTER_RESOURCE_EXHAUSTED,
                              "the connection's calls hold more memory than they may"},
        [MUSTER_RPC_STALLED] = {MUSTER_DEADLINE_EXCEEDED, "the request comes too slowly"},
        [MUSTER_RPC_UNSENT] = {MUSTER_RESOURCE_EXHAUSTED, MUSTER_RPC_UNSENT_TEXT},
    };
    struct muster_rpc *rpc = timer->data;

    if (rpc->state >= MUSTER_RPC_FINISHED) { /* the client does not take the rest */
        muster_h2_stream_reset(&rpc->stream, MUSTER_H2_CANCEL);
        return;
    }
    muster_rpc_abort(rpc, abort_statuses[rpc->abort_reason].rc,
                     abort_statuses[rpc->abort_reason].text);
    muster_grpc_parser_reset(&rpc->parser); /* its stream may take a while to close */
    muster_rpc_account(rpc);
}

/* Its inbox and its parser hold nothing: muster_rpc_release has emptied them, or they are new. */
static void rpc_reset(struct muster_rpc *rpc)
{
    muster_h2_stream_init(&rpc->stream, rpc, 0);
    rpc->stream.holding = &rpc->connection->unsent;
    muster_grpc_metadata_reset(&rpc->metadata);
    muster_grpc_metadata_reset(&rpc->initial);
    muster_grpc_metadata_reset(&rpc->trailing);
    rpc->method = NULL;
    rpc->open_count = NULL;
    rpc->service = NULL;
    rpc->path = NULL;
    rpc->data = NULL;
    rpc->state = MUSTER_RPC_STARTING;
    rpc->deadline_ns = UINT64_MAX;
    rpc->is_post = rpc->is_get = rpc->is_head = false;
    rpc->is_root = rpc->is_grpc = rpc->is_page = false;
    rpc->page = NULL;
    rpc->has_bad_timeout = rpc->has_unknown_encoding = rpc->has_unknown_codec = false;
    rpc->is_gzip_welcome = false;
    rpc->has_compression = rpc->is_compressing = false;
    rpc->metadata_rc = MUSTER_OK;
    rpc->are_headers_sent = false;
    rpc->abort_reason = MUSTER_RPC_DEADLINE;
    rpc->received_bytes = 0;
    rpc->awaited = MUSTER_RPC_AWAITS_NOTHING;
    rpc->accounted_bytes = 0;
    rpc->has_message = false;
    rpc->held = (struct muster_bytes){NULL, 0};
    rpc->status = MUSTER_OK;
    rpc->interception.started = 0;
    rpc->tally.series = NULL;
}

/* The session begins a stream: its headers follow. A record that is used again keeps its buffers.
 */
struct muster_rpc *muster_rpc_new(struct muster_rpc_connection *connection)
{
    struct muster_rpc_server *server = connection->server;
    struct muster_mem *mem = &server->pool.mem;
    struct muster_list *node = muster_list_pop(&server->free_rpcs);
    struct muster_rpc *rpc;

    if (node != NULL) {
        rpc = MUSTER_CONTAINER_OF(node, struct muster_rpc, node);
        server->free_rpc_count--;
    } else {
        rpc = muster_mem_alloc_zero(mem, 1, sizeof(*rpc));
        if (rpc == NULL)
            return NULL;
        muster_list_init(&rpc->node);
        muster_timer_init(&rpc->timer, on_expire, rpc);
        muster_grpc_parser_init(&rpc->parser, mem, server->options.receive_message_max_bytes);
        rpc->parser.on_place = muster_rpc_on_place;
        rpc->parser.owner = rpc;
        muster_rpc_inbox_init(&rpc->inbox, &muster_rpc_inbox_events, rpc, server->env->loop,
                              &server->inflation, &rpc->stream, &rpc->parser);
        muster_grpc_metadata_init(&rpc->metadata, mem);
        muster_grpc_metadata_init(&rpc->initial, mem);
        muster_grpc_metadata_init(&rpc->trailing, mem);
    }
    rpc->connection = connection;
    rpc_reset(rpc);
    server->counters->streams_started++;
    return rpc;
}

/* A request that is not gRPC gets HTTP's status. After that come the malformed, the unknown and
 * the excessive: the client hears first of the fault that makes the others meaningless. */
static bool is_acceptable(struct muster_rpc *rpc)
{
    enum muster_rpc_refusal refusal = muster_rpc_headers_judge(rpc);
    struct muster_error error;

    if (refusal == MUSTER_RPC_PAGE) { /* sent at the request's end, as other servers do */
        rpc->is_page = true;
        return false;
    }
    if (refusal != MUSTER_RPC_ACCEPTED) {
        muster_rpc_refuse(rpc, refusal);
        return false;
    }
    muster_rpc_tally_start(&rpc->tally, rpc->tally.series, muster_rpc_loop(rpc));
    if (rpc->has_bad_timeout)
        muster_rpc_abort(rpc, MUSTER_INTERNAL, "malformed grpc-timeout");
    else if (rpc->metadata_rc == MUSTER_RESOURCE_EXHAUSTED)
        muster_rpc_abort(rpc, MUSTER_RESOURCE_EXHAUSTED, "too much metadata");
    else if (rpc->metadata_rc != MUSTER_OK)
        muster_rpc_abort(rpc, MUSTER_INTERNAL, "malformed metadata");
    else if (rpc->method == NULL)
        muster_rpc_abort(rpc, MUSTER_UNIMPLEMENTED, "unknown method");
    else if (rpc->has_unknown_codec)
        muster_rpc_abort(rpc, MUSTER_UNIMPLEMENTED,
                         "unknown content-type: messages here are application/grpc+proto");
    else if (rpc->has_unknown_encoding)
        muster_rpc_abort(rpc, MUSTER_UNIMPLEMENTED, "unknown grpc-encoding");
    else if (muster_rpc_admit(rpc, &error) != MUSTER_OK)
        muster_rpc_abort(rpc, error.rc, error.text);
    else
        return true;
    return false;
}

/* Interceptors see the call before the service does, and may refuse it: all of them must agree. */
static bool is_let_through(struct muster_rpc *rpc)
{
    struct muster_rpc_server *server = rpc->connection->server;
    const struct muster_intercepted call = {
        .env = server->env,
        .method = muster_rpc_path(rpc),
        .metadata = muster_grpc_metadata_view(&rpc->metadata),
        .deadline_ns = rpc->deadline_ns,
        .rpc = rpc,
        .added = &rpc->initial,
    };
    struct muster_error error;
    enum muster_rc rc;

    if (server->interceptors.count == 0)
        return true;
    rc = muster_interception_start(&rpc->interception, &server->interceptors, &call, &error);
    if (rc != MUSTER_OK)
        muster_rpc_abort(rpc, rc, error.text);
    return rc == MUSTER_OK;
}

void muster_rpc_on_headers(struct muster_rpc *rpc)
{
    if (rpc->state != MUSTER_RPC_STARTING || rpc->is_page || !is_acceptable(rpc) ||
        !is_let_through(rpc))
        return;
    muster_rpc_move(rpc, MUSTER_RPC_OPEN);
    /* A connection with a real call is the last that has to make room for others. */
    rpc->connection->has_called = true;
    muster_rpc_count(rpc);
    muster_rpc_account(rpc);
    if (rpc->deadline_ns != UINT64_MAX)
        muster_timer_start(&rpc->timer, rpc->connection->server->env->loop, rpc->deadline_ns);
    if (rpc->method->on_start != NULL)
        rpc->method->on_start(rpc);
}

/* The session has reset the stream, so nothing can be told to the client. */
void muster_rpc_on_over_limit(struct muster_rpc *rpc)
{
    if (rpc->state == MUSTER_RPC_OPEN || rpc->state == MUSTER_RPC_FINISHED)
        muster_rpc_end(rpc, MUSTER_RESOURCE_EXHAUSTED);
    else if (rpc->state == MUSTER_RPC_STARTING)
        muster_rpc_move(rpc, MUSTER_RPC_ENDED);
}

void muster_rpc_on_trailers(struct muster_rpc *rpc)
{
    muster_rpc_submit_trailers(rpc);
}

/* The queue is empty: a service that sends much goes on. */
void muster_rpc_on_drained(struct muster_rpc *rpc)
{
    if (rpc->state == MUSTER_RPC_OPEN && rpc->method->on_writable != NULL)
        rpc->method->on_writable(rpc);
}

/* A stream that the client resets at its deadline is told as the deadline, whichever side's clock
 * was first. */
static enum muster_rc end_rc(const struct muster_rpc *rpc, uint32_t code)
{
    if (rpc->state == MUSTER_RPC_FINISHED && code == MUSTER_H2_NO_ERROR)
        return MUSTER_OK;
    if (code == MUSTER_H2_LOST)
        return MUSTER_UNAVAILABLE;
    if (rpc->deadline_ns <= muster_loop_now_ns(muster_rpc_loop(rpc)))
        return MUSTER_DEADLINE_EXCEEDED;
    return MUSTER_CANCELLED;
}

void muster_rpc_on_close(struct muster_rpc *rpc, uint32_t code)
{
    struct muster_rpc_counters *counters = rpc->connection->server->counters;

    *(code == MUSTER_H2_NO_ERROR ? &counters->streams_succeeded : &counters->streams_failed) += 1;
    if (rpc->state == MUSTER_RPC_OPEN || rpc->state == MUSTER_RPC_FINISHED)
        muster_rpc_end(rpc, end_rc(rpc, code));
    /* The stream is done with the record in every state. */
    muster_rpc_release(rpc);
}
