/* The common call: one message each way, on top of the public calls of a channel. The response is
 * copied when it comes, because it must last until done, and done must know that there is no second
 * one. */
#include <string.h>

#include "net/grpc/client/channel_internal.h"

static void on_message(struct muster_call *call, struct muster_bytes message)
{
    struct muster_unary *unary = call->data;
    struct muster_grpc_call *impl = call->impl;
    struct muster_h2_buffer *copy;

    /* gRPC's status for a server that answers a unary call twice, or not at all, is UNIMPLEMENTED.
     */
    if (unary->copy != NULL) {
        muster_grpc_call_decide(impl, MUSTER_UNIMPLEMENTED, "unary call with several responses");
        return;
    }
    copy = muster_h2_buffer_new(&impl->channel->pool.mem, message.size);
    if (copy == NULL) {
        muster_grpc_call_decide(impl, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    if (message.size > 0)
        memcpy(copy->bytes, message.data, message.size);
    unary->copy = copy;
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct muster_unary *unary = call->data;
    struct muster_h2_buffer *copy = unary->copy;

    unary->copy = NULL;
    unary->status = call->status;
    unary->response = (struct muster_bytes){NULL, 0};
    if (rc == MUSTER_OK && copy == NULL)
        rc = muster_error_set(&unary->status, MUSTER_UNIMPLEMENTED, "unary call without response");
    if (rc == MUSTER_OK)
        unary->response = (struct muster_bytes){copy->bytes, copy->size};
    unary->done(unary, rc);
    /* The response is borrowed until done returns; unary itself may be gone by now. */
    muster_h2_buffer_unref(copy);
}

enum muster_rc muster_unary_start(struct muster_unary *unary, struct muster_channel *channel,
                                  const char *method, const void *request, size_t bytes,
                                  uint64_t deadline_ns, muster_unary_done_fn *done)
{
    const struct muster_call_options options = {
        .method = method,
        .deadline_ns = deadline_ns,
        .on_message = on_message,
    };
    enum muster_rc rc = muster_call_start(&unary->call, channel, &options, on_done);

    if (rc != MUSTER_OK) {
        unary->status = unary->call.status;
        return rc;
    }
    unary->call.data = unary;
    unary->done = done;
    unary->copy = NULL;
    rc = muster_call_send(&unary->call, request, bytes);
    if (rc != MUSTER_OK) {
        muster_grpc_call_decide(unary->call.impl, rc, "request cannot be queued");
        return MUSTER_OK;
    }
    muster_call_half_close(&unary->call);
    return MUSTER_OK;
}

void muster_unary_cancel(struct muster_unary *unary)
{
    muster_call_cancel(&unary->call);
}
