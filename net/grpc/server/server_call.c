/* A call as the server sees it: from its headers through its messages to its one on_end, and the
 * functions of muster/rpc.h for a service that has it. server_call_events.c and server_receive.c
 * drive it. An end that is decided inside a send (a full queue) comes by muster_rpc_abort_later,
 * because on_end never runs inside a send. */
#include <string.h>

#include "net/grpc/status.h"
#include "net/h2/h2_code.h"
#include "net/grpc/message.h"
#include "net/grpc/server/rpc_server_internal.h"

/* Records of finished calls are kept, buffers included, so a busy server allocates nothing for a
 * call. */
#define FREE_RPCS_MAX     256
#define MESSAGE_BYTES_MAX 4096 /* grpc-message, percent-encoded; the rest of it is left out */

void muster_rpc_free(struct muster_rpc *rpc)
{
    muster_rpc_inbox_reset(&rpc->inbox);
    muster_grpc_parser_fini(&rpc->parser);
    muster_grpc_metadata_fini(&rpc->metadata);
    muster_grpc_metadata_fini(&rpc->initial);
    muster_grpc_metadata_fini(&rpc->trailing);
    muster_mem_free(rpc->parser.mem, rpc);
}

/* The stream is gone. A call that is amid an event of its inbox comes here again when that is over.
 */
void muster_rpc_release(struct muster_rpc *rpc)
{
    struct muster_rpc_server *server = rpc->connection->server;

    MUSTER_ASSERT(rpc->state != MUSTER_RPC_OPEN && rpc->state != MUSTER_RPC_FINISHED);
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

/* The method's count is given back before on_end, in which the service may let in the next call. */
void muster_rpc_end(struct muster_rpc *rpc, enum muster_rc rc)
{
    muster_timer_stop(&rpc->timer);
    muster_rpc_move(rpc, MUSTER_RPC_ENDED);
    muster_rpc_uncount(rpc);
    muster_rpc_tally_end(&rpc->tally, rc == MUSTER_OK ? rpc->status : rc, muster_rpc_loop(rpc));
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

/* Queued answers are dropped, the status goes out at once. A call that the service has finished
 * already keeps its own status. */
void muster_rpc_abort(struct muster_rpc *rpc, enum muster_rc status, const char *message)
{
    bool is_known = rpc->state != MUSTER_RPC_STARTING;

    if (rpc->state == MUSTER_RPC_ENDED)
        return;
    muster_h2_body_discard(&rpc->stream.body);
    if (rpc->state != MUSTER_RPC_FINISHED)
        send_status(rpc, status, message);
    /* The service has never seen a call in STARTING, so it gets no on_end either. */
    if (is_known) {
        muster_rpc_end(rpc, status);
        return;
    }
    muster_rpc_move(rpc, MUSTER_RPC_ENDED);
    muster_rpc_tally_end(&rpc->tally, status, muster_rpc_loop(rpc));
}

/* DEADLINE is the reason of a call that nobody has decided to abort; any other says that its end is
 * due in the next turn. */
static enum muster_rc send_check(struct muster_rpc *rpc, size_t bytes)
{
    struct muster_rpc_server *server = rpc->connection->server;

    if (rpc->state != MUSTER_RPC_OPEN || rpc->abort_reason != MUSTER_RPC_DEADLINE)
        return MUSTER_FAILED_PRECONDITION;
    if (bytes > UINT32_MAX ||
        rpc->stream.body.bytes + bytes > server->options.send_queue_max_bytes ||
        !muster_rpc_is_affordable(rpc, bytes))
        muster_rpc_abort_later(rpc, MUSTER_RPC_OVERFLOWING); /* on_end never runs inside a send */
    else if (!muster_rpc_may_queue(rpc, bytes))
        muster_rpc_abort_later(rpc, MUSTER_RPC_UNSENT);
    else
        return MUSTER_OK;
    return MUSTER_RESOURCE_EXHAUSTED;
}

/* The first message takes the headers with it. queued_bytes: what was queued before it. */
static enum muster_rc count_sent(struct muster_rpc *rpc, const struct iovec *pieces, size_t count,
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
    return count_sent(rpc, &whole, 1, queued_bytes, rc);
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
    return count_sent(rpc, pieces, count, queued_bytes, rc);
}

void muster_rpc_finish(struct muster_rpc *rpc, enum muster_rc rc, const char *message)
{
    if (rpc->state != MUSTER_RPC_OPEN || rpc->abort_reason != MUSTER_RPC_DEADLINE)
        return;
    muster_rpc_move(rpc, MUSTER_RPC_FINISHED);
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
