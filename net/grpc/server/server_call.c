/* A call as the server sees it: from its headers through its messages to its one on_end. */
#include <assert.h>
#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/grpc/message.h"
#include "net/grpc/server/rpc_server_internal.h"

#define FREE_RPCS_MAX     256
#define MESSAGE_BYTES_MAX 4096 /* grpc-message, percent-encoded; the rest of it is left out */

static const bool moves[4][4] = {
    [MUSTER_RPC_STARTING] = {[MUSTER_RPC_OPEN] = true, [MUSTER_RPC_ENDED] = true},
    [MUSTER_RPC_OPEN] = {[MUSTER_RPC_FINISHED] = true, [MUSTER_RPC_ENDED] = true},
    [MUSTER_RPC_FINISHED] = {[MUSTER_RPC_ENDED] = true},
};

static void rpc_move(struct muster_rpc *rpc, enum muster_rpc_state state)
{
    bool is_allowed = moves[rpc->state][state];

    assert(is_allowed);
    (void)is_allowed;
    rpc->state = state;
}

static void on_expire(struct muster_timer *timer);

static void rpc_reset(struct muster_rpc *rpc)
{
    muster_h2_stream_init(&rpc->stream, rpc, 0);
    rpc->stream.holding = &rpc->connection->unsent;
    muster_rpc_inbox_reset(&rpc->inbox);
    muster_grpc_parser_reset(&rpc->parser);
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
    rpc->doom = MUSTER_RPC_DEADLINE;
    rpc->received_bytes = 0;
    rpc->awaited = MUSTER_RPC_AWAITS_NOTHING;
    rpc->accounted_bytes = 0;
    rpc->has_message = false;
    rpc->held = (struct muster_bytes){NULL, 0};
    rpc->status = MUSTER_OK;
    rpc->interception.started = 0;
    rpc->tally.series = NULL;
}

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

void muster_rpc_free(struct muster_rpc *rpc)
{
    muster_rpc_inbox_reset(&rpc->inbox);
    muster_grpc_parser_fini(&rpc->parser);
    muster_grpc_metadata_fini(&rpc->metadata);
    muster_grpc_metadata_fini(&rpc->initial);
    muster_grpc_metadata_fini(&rpc->trailing);
    muster_mem_free(rpc->parser.mem, rpc);
}

void muster_rpc_release(struct muster_rpc *rpc)
{
    struct muster_rpc_server *server = rpc->connection->server;

    if (!muster_rpc_inbox_release(&rpc->inbox))
        return;
    muster_rpc_unaccount(rpc);
    muster_timer_stop(&rpc->timer);
    muster_h2_stream_fini(&rpc->stream);
    muster_mem_free(&server->pool.mem, rpc->path);
    if (server->free_rpc_count >= FREE_RPCS_MAX) {
        muster_rpc_free(rpc);
        return;
    }
    muster_rpc_inbox_reset(&rpc->inbox);
    muster_grpc_parser_reset(&rpc->parser);
    server->free_rpc_count++;
    muster_list_prepend(&server->free_rpcs, &rpc->node);
}

static struct muster_loop *loop_of(const struct muster_rpc *rpc)
{
    return rpc->connection->server->env->loop;
}

static void end(struct muster_rpc *rpc, enum muster_rc rc)
{
    muster_timer_stop(&rpc->timer);
    rpc_move(rpc, MUSTER_RPC_ENDED);
    muster_rpc_uncount(rpc);
    muster_rpc_tally_end(&rpc->tally, rc == MUSTER_OK ? rpc->status : rc, loop_of(rpc));
    muster_interception_end(&rpc->interception, rc == MUSTER_OK ? rpc->status : rc, "",
                            muster_grpc_metadata_view(&rpc->trailing));
    if (rpc->method != NULL && rpc->method->on_end != NULL)
        rpc->method->on_end(rpc, rc);
}

static void store_message(struct muster_rpc *rpc, const char *message)
{
    char text[MESSAGE_BYTES_MAX];
    size_t bytes = muster_grpc_message_encode(message, text, sizeof(text));

    if (muster_grpc_metadata_add_wire(&rpc->trailing, "grpc-message", 12, text, bytes) != MUSTER_OK)
        MUSTER_LOG(rpc->connection->server->env, WARN, "rpc_status_text_dropped", "reason",
                   "no memory");
}

static void send_status(struct muster_rpc *rpc, enum muster_rc status, const char *message)
{
    rpc->status = status;
    if (message != NULL && message[0] != '\0')
        store_message(rpc, message);
    if (!rpc->are_headers_sent)
        muster_rpc_respond_trailers_only(rpc);
    else
        muster_h2_stream_end(&rpc->stream);
}

void muster_rpc_abort(struct muster_rpc *rpc, enum muster_rc status, const char *message)
{
    bool is_known = rpc->state != MUSTER_RPC_STARTING;

    if (rpc->state == MUSTER_RPC_ENDED)
        return;
    muster_h2_body_discard(&rpc->stream.body);
    if (rpc->state != MUSTER_RPC_FINISHED)
        send_status(rpc, status, message);
    if (is_known) {
        end(rpc, status);
        return;
    }
    rpc_move(rpc, MUSTER_RPC_ENDED);
    muster_rpc_tally_end(&rpc->tally, status, loop_of(rpc));
}

void muster_rpc_doom(struct muster_rpc *rpc, enum muster_rpc_doom doom)
{
    rpc->doom = doom;
    muster_timer_start(&rpc->timer, rpc->connection->server->env->loop, 0);
}

static void on_expire(struct muster_timer *timer)
{
    static const struct {
        enum muster_rc rc;
        const char *text;
    } dooms[] = {
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
    muster_rpc_abort(rpc, dooms[rpc->doom].rc, dooms[rpc->doom].text);
    muster_grpc_parser_reset(&rpc->parser); /* its stream may take a while to close */
    muster_rpc_account(rpc);
}

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
    muster_rpc_tally_start(&rpc->tally, rpc->tally.series, loop_of(rpc));
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

/* Whether all interceptors let the call through. */
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
    rpc_move(rpc, MUSTER_RPC_OPEN);
    rpc->connection->has_called = true;
    muster_rpc_count(rpc);
    muster_rpc_account(rpc);
    if (rpc->deadline_ns != UINT64_MAX)
        muster_timer_start(&rpc->timer, rpc->connection->server->env->loop, rpc->deadline_ns);
    if (rpc->method->on_start != NULL)
        rpc->method->on_start(rpc);
}

void muster_rpc_on_over_limit(struct muster_rpc *rpc)
{
    if (rpc->state == MUSTER_RPC_OPEN || rpc->state == MUSTER_RPC_FINISHED)
        end(rpc, MUSTER_RESOURCE_EXHAUSTED);
    else if (rpc->state == MUSTER_RPC_STARTING)
        rpc_move(rpc, MUSTER_RPC_ENDED);
}

void muster_rpc_on_trailers(struct muster_rpc *rpc)
{
    muster_rpc_submit_trailers(rpc);
}

void muster_rpc_on_drained(struct muster_rpc *rpc)
{
    if (rpc->state == MUSTER_RPC_OPEN && rpc->method->on_writable != NULL)
        rpc->method->on_writable(rpc);
}

static enum muster_rc end_rc(const struct muster_rpc *rpc, uint32_t code)
{
    if (rpc->state == MUSTER_RPC_FINISHED && code == MUSTER_H2_NO_ERROR)
        return MUSTER_OK;
    if (code == MUSTER_H2_LOST)
        return MUSTER_UNAVAILABLE;
    if (rpc->deadline_ns <= muster_loop_now_ns(loop_of(rpc)))
        return MUSTER_DEADLINE_EXCEEDED;
    return MUSTER_CANCELLED;
}

void muster_rpc_on_close(struct muster_rpc *rpc, uint32_t code)
{
    struct muster_rpc_counters *counters = rpc->connection->server->counters;

    *(code == MUSTER_H2_NO_ERROR ? &counters->streams_succeeded : &counters->streams_failed) += 1;
    if (rpc->state == MUSTER_RPC_OPEN || rpc->state == MUSTER_RPC_FINISHED)
        end(rpc, end_rc(rpc, code));
    muster_rpc_release(rpc);
}

/* What services call. */

static enum muster_rc send_check(struct muster_rpc *rpc, size_t bytes)
{
    struct muster_rpc_server *server = rpc->connection->server;

    if (rpc->state != MUSTER_RPC_OPEN || rpc->doom != MUSTER_RPC_DEADLINE)
        return MUSTER_FAILED_PRECONDITION;
    if (bytes > UINT32_MAX ||
        rpc->stream.body.bytes + bytes > server->options.send_queue_max_bytes ||
        !muster_rpc_is_affordable(rpc, bytes))
        muster_rpc_doom(rpc, MUSTER_RPC_OVERFLOWING); /* on_end never runs inside a send */
    else if (!muster_rpc_may_queue(rpc, bytes))
        muster_rpc_doom(rpc, MUSTER_RPC_UNSENT);
    else
        return MUSTER_OK;
    return MUSTER_RESOURCE_EXHAUSTED;
}

/* The first message takes the headers with it. queued_bytes: what was queued before it. */
static enum muster_rc sent(struct muster_rpc *rpc, const struct iovec *pieces, size_t count,
                           size_t queued_bytes, enum muster_rc rc)
{
    size_t wire_bytes;

    if (rc != MUSTER_OK)
        return rc;
    wire_bytes = rpc->stream.body.bytes - queued_bytes - MUSTER_GRPC_PREFIX_BYTES;
    rpc->tally.sent_bytes += wire_bytes;
    rpc->connection->server->counters->messages_sent++;
    muster_interception_send(&rpc->interception, pieces, count, wire_bytes);
    if (!rpc->are_headers_sent)
        muster_rpc_respond(rpc);
    muster_rpc_account(rpc);
    return MUSTER_OK;
}

enum muster_rc muster_rpc_send(struct muster_rpc *rpc, const void *message, size_t bytes)
{
    const struct iovec whole = {(void *)(uintptr_t)message, bytes};
    size_t queued_bytes = rpc->stream.body.bytes;
    enum muster_rc rc = send_check(rpc, bytes);

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_rpc_message_send(&rpc->stream, &rpc->connection->server->pool.mem, message, bytes,
                                 rpc->is_compressing);
    return sent(rpc, &whole, 1, queued_bytes, rc);
}

enum muster_rc muster_rpc_send_loan(struct muster_rpc *rpc, struct muster_loan *loan,
                                    const struct iovec *pieces, size_t count,
                                    muster_loan_fn *released)
{
    size_t queued_bytes = rpc->stream.body.bytes;
    enum muster_rc rc = send_check(rpc, muster_rpc_message_bytes(pieces, count));

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_rpc_message_lend(&rpc->stream, rpc->connection->server->env, loan, pieces, count,
                                 rpc->is_compressing, released);
    return sent(rpc, pieces, count, queued_bytes, rc);
}

void muster_rpc_finish(struct muster_rpc *rpc, enum muster_rc rc, const char *message)
{
    if (rpc->state != MUSTER_RPC_OPEN || rpc->doom != MUSTER_RPC_DEADLINE)
        return;
    rpc_move(rpc, MUSTER_RPC_FINISHED);
    send_status(rpc, rc, message);
}

/* Metadata that gRPC does not allow is a mistake of the service: it is left out and logged. */
static void store_user(struct muster_rpc *rpc, struct muster_grpc_metadata *store,
                       const struct muster_metadata *metadata)
{
    struct muster_error error;

    if (muster_grpc_metadata_add_user(store, metadata, &error) != MUSTER_OK)
        MUSTER_LOG(rpc->connection->server->env, WARN, "rpc_metadata_refused", "method",
                   rpc->method->path, "reason", error.text);
}

void muster_rpc_send_headers(struct muster_rpc *rpc, struct muster_metadata metadata)
{
    if (rpc->state != MUSTER_RPC_OPEN || rpc->are_headers_sent)
        return;
    store_user(rpc, &rpc->initial, &metadata);
    muster_rpc_respond(rpc);
}

void muster_rpc_set_compression(struct muster_rpc *rpc, enum muster_compression compression)
{
    if (rpc->are_headers_sent)
        return;
    rpc->has_compression = compression == MUSTER_COMPRESSION_GZIP && rpc->is_gzip_welcome;
    rpc->is_compressing = rpc->has_compression;
}

void muster_rpc_set_compressing(struct muster_rpc *rpc, bool is_compressing)
{
    rpc->is_compressing = is_compressing && rpc->has_compression;
}

void muster_rpc_set_trailers(struct muster_rpc *rpc, struct muster_metadata metadata)
{
    if (rpc->state != MUSTER_RPC_OPEN)
        return;
    muster_grpc_metadata_reset(&rpc->trailing);
    store_user(rpc, &rpc->trailing, &metadata);
}

size_t muster_rpc_queued_bytes(const struct muster_rpc *rpc)
{
    return rpc->stream.body.bytes;
}

void *muster_rpc_service(const struct muster_rpc *rpc)
{
    return rpc->service;
}

const char *muster_rpc_path(const struct muster_rpc *rpc)
{
    return rpc->path != NULL ? rpc->path : rpc->method->path;
}

void muster_rpc_set_data(struct muster_rpc *rpc, void *data)
{
    rpc->data = data;
}

void *muster_rpc_data(const struct muster_rpc *rpc)
{
    return rpc->data;
}

struct muster_env *muster_rpc_env(const struct muster_rpc *rpc)
{
    return rpc->connection->server->env;
}

struct muster_metadata muster_rpc_metadata(const struct muster_rpc *rpc)
{
    return muster_grpc_metadata_view(&rpc->metadata);
}

const struct muster_address *muster_rpc_peer(const struct muster_rpc *rpc)
{
    return muster_stream_peer(muster_h2_session_stream(rpc->connection->session.h2));
}

const struct muster_identity *muster_rpc_identity(const struct muster_rpc *rpc)
{
    return rpc->connection->identity;
}

uint64_t muster_rpc_deadline_ns(const struct muster_rpc *rpc)
{
    return rpc->deadline_ns;
}
