/* Calls whose messages are protobuf-c's structs: the functions that generated client code calls, on
 * top of muster/channel.h. A message is unpacked when it comes; the user sees it inside the
 * callback only. */
#include <muster/stub.h>

#include <stdio.h>

#include "net/grpc/client/channel_internal.h"

static void on_message(struct muster_call *call, struct muster_bytes bytes)
{
    struct muster_stub_call *stub = MUSTER_CONTAINER_OF(call, struct muster_stub_call, call);
    struct muster_error error, named;
    void *message = NULL;

    if (!stub->method->is_response_stream && stub->response != NULL) {
        muster_grpc_call_decide(call->impl, MUSTER_UNIMPLEMENTED,
                                "more than one response of a method that has one");
        return;
    }
    if (muster_proto_unpack(stub->mem, stub->method->response, bytes.data, bytes.size, NULL,
                            &message, &error) != MUSTER_OK) {
        /* INVALID_ARGUMENT would say that the caller's request was wrong; a response that cannot be
         * read is the server's fault, which gRPC calls INTERNAL. */
        enum muster_rc rc = error.rc == MUSTER_INVALID_ARGUMENT ? MUSTER_INTERNAL : error.rc;

        (void)muster_error_set(&named, rc, "response of %s: %s", stub->method->path, error.text);
        muster_grpc_call_decide(call->impl, rc, named.text);
        return;
    }
    if (!stub->method->is_response_stream) {
        stub->response = message;
        return;
    }
    stub->on_message(stub, message);
    muster_proto_free(message);
}

static void on_done(struct muster_call *call, enum muster_rc rc)
{
    struct muster_stub_call *stub = MUSTER_CONTAINER_OF(call, struct muster_stub_call, call);
    void *response = stub->response;

    if (rc == MUSTER_OK && response == NULL && !stub->method->is_response_stream)
        rc = muster_error_set(&call->status, MUSTER_UNIMPLEMENTED, "%s ended OK without a response",
                              stub->method->path);
    /* stub may be started again inside done, so its fields are given up before. */
    stub->response = NULL;
    stub->done(stub, rc, rc == MUSTER_OK ? response : NULL);
    muster_proto_free(response);
}

enum muster_rc muster_stub_start(struct muster_stub_call *stub, struct muster_channel *channel,
                                 const struct muster_stub_method *method,
                                 const struct muster_call_options *options, const void *request)
{
    static const struct muster_call_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_call_options typed = *options;
    enum muster_rc rc;

    /* The method and on_message are the stub's; all other options are the user's. */
    typed.method = method->path;
    typed.on_message = on_message;
    rc = muster_call_start(&stub->call, channel, &typed, on_done);
    if (rc != MUSTER_OK)
        return rc;
    stub->method = method;
    stub->mem = channel->env->mem;
    stub->response = NULL;
    if (method->is_request_stream)
        return MUSTER_OK;
    rc = muster_stub_send(stub, request);
    if (rc != MUSTER_OK)
        muster_grpc_call_decide(stub->call.impl, rc, "request cannot be queued");
    else
        muster_call_half_close(&stub->call);
    return MUSTER_OK;
}

enum muster_rc muster_stub_send(struct muster_stub_call *stub, const void *message)
{
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = muster_proto_pack(stub->mem, message, &bytes, &size);

    if (rc == MUSTER_OK)
        rc = muster_call_send(&stub->call, bytes, size);
    muster_mem_free(stub->mem, bytes);
    return rc;
}
