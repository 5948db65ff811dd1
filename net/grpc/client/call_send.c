/* The sending half of a client's call: messages, their compression, the end. Messages wait in the
 * body of the stream, also before there is a connection; net/grpc/message.c makes them. */
#include "net/grpc/client/channel_internal.h"
#include "net/grpc/message.h"

/* A caller that never looks at on_writable is stopped here. A single message may be larger, so the
 * bound holds only when something waits already. */
#define QUEUED_BYTES_MAX (256u << 20)

/* OK means that sending goes on. With *ret_call NULL the message is dropped with OK: done is on its
 * way and says why, and the caller need not tell this race from others. */
static enum muster_rc send_check(struct muster_call *user, size_t bytes,
                                 struct muster_grpc_call **ret_call)
{
    struct muster_grpc_call *call = user->impl;

    if (call == NULL || call->stream.body.is_ended)
        return MUSTER_FAILED_PRECONDITION;
    if (bytes > call->request_max_bytes ||
        (call->stream.body.bytes > 0 && call->stream.body.bytes + bytes > QUEUED_BYTES_MAX))
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_call = call->state >= MUSTER_GRPC_CALL_DECIDED ? NULL : call;
    return MUSTER_OK;
}

/* queued_bytes is what was queued before this message: the growth is its size on the wire, after
 * compression. */
static enum muster_rc count_sent(struct muster_grpc_call *call, const struct iovec *pieces,
                                 size_t count, size_t queued_bytes, enum muster_rc rc)
{
    size_t wire_bytes = call->stream.body.bytes - queued_bytes - MUSTER_GRPC_PREFIX_BYTES;

    if (rc != MUSTER_OK)
        return rc;
    call->tally.sent_bytes += wire_bytes;
    call->channel->counters->messages_sent++;
    muster_interception_send(&call->interception, pieces, count, wire_bytes);
    return MUSTER_OK;
}

enum muster_rc muster_call_send(struct muster_call *user, const void *message, size_t bytes)
{
    struct muster_grpc_call *call = NULL;
    const struct iovec whole = {(void *)(uintptr_t)message, bytes};
    enum muster_rc rc = send_check(user, bytes, &call);
    size_t queued_bytes;

    if (rc != MUSTER_OK || call == NULL)
        return rc;
    queued_bytes = call->stream.body.bytes;
    rc = muster_rpc_message_send(&call->stream, &call->channel->pool.mem, message, bytes,
                                 call->is_compressing);
    return count_sent(call, &whole, 1, queued_bytes, rc);
}

enum muster_rc muster_call_send_loan(struct muster_call *user, struct muster_loan *loan,
                                     const struct iovec *pieces, size_t count,
                                     muster_loan_fn *released)
{
    struct muster_grpc_call *call = NULL;
    enum muster_rc rc = send_check(user, muster_rpc_message_bytes(pieces, count), &call);
    size_t queued_bytes;

    if (rc != MUSTER_OK)
        return rc;
    if (call == NULL) {
        call = user->impl;
        /* The promise of a loan is that released runs exactly once, also for a message that is
         * dropped. */
        muster_rpc_message_return(loan, call->channel->env, released);
        return MUSTER_OK;
    }
    queued_bytes = call->stream.body.bytes;
    rc = muster_rpc_message_lend(&call->stream, call->channel->env, loan, pieces, count,
                                 call->is_compressing, released);
    return count_sent(call, pieces, count, queued_bytes, rc);
}

void muster_call_set_compressing(struct muster_call *user, bool is_compressing)
{
    struct muster_grpc_call *call = user->impl;

    if (call != NULL)
        call->is_compressing = is_compressing && call->compression != MUSTER_COMPRESSION_NONE;
}

enum muster_compression muster_call_compression(const struct muster_call *user)
{
    const struct muster_grpc_call *call = user->impl;

    return call != NULL && call->parser.takes_gzip ? MUSTER_COMPRESSION_GZIP
                                                   : MUSTER_COMPRESSION_NONE;
}

bool muster_call_is_compressed(const struct muster_call *user)
{
    const struct muster_grpc_call *call = user->impl;

    return call != NULL && call->parser.is_compressed;
}

void muster_call_half_close(struct muster_call *user)
{
    struct muster_grpc_call *call = user->impl;

    if (call != NULL)
        muster_h2_stream_end(&call->stream);
}

size_t muster_call_queued_bytes(const struct muster_call *user)
{
    const struct muster_grpc_call *call = user->impl;

    return call != NULL ? call->stream.body.bytes : 0;
}
