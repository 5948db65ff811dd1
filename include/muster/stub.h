/* Base of the stubs made by protoc-gen-muster: calls and methods whose messages are protobuf-c's
 * structs instead of bytes. docs/rpc.md shows how a service is written. */
#ifndef MUSTER_STUB_H
#define MUSTER_STUB_H

#include <muster/proto.h>
#include <muster/rpc.h>

MUSTER_BEGIN

/** One method. Static. */
struct muster_stub_method {
    const char *path; /* "/package.Service/Method" */
    const struct ProtobufCMessageDescriptor *request, *response;
    bool is_request_stream, is_response_stream;
};

/* Client. */

struct muster_stub_call;
typedef void muster_stub_message_fn(struct muster_stub_call *stub, const void *message);
/** response: of a method with one response, NULL unless rc is MUSTER_OK. Borrowed. */
typedef void muster_stub_done_fn(struct muster_stub_call *stub, enum muster_rc rc,
                                 const void *response);

/** A call under way; part of the caller's memory. `call` is for muster_call_cancel and the like;
 * in done it has status and metadata; its data is the user's call struct, so that on_headers and
 * on_writable of the options find that. */
struct muster_stub_call {
    struct muster_call call;
    /* private */
    const struct muster_stub_method *method;
    struct muster_mem *mem;
    void *response;
    muster_stub_message_fn *on_message;
    muster_stub_done_fn *done;
};

/**
 * Start a call; done and on_message are set by the generated code.
 *
 * In options, method and on_message are not read, and deadline_ns must be set. request is not read
 * when the method has a stream of requests, which then follow through muster_stub_send. A response
 * that cannot be read ends the call with INTERNAL.
 *
 * Owns:    borrows stub until done; request, options during the call.
 * Errors:  as muster_call_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_stub_start(
    struct muster_stub_call *stub, struct muster_channel *channel,
    const struct muster_stub_method *method, const struct muster_call_options *options,
    const void *request);
/** As muster_call_send; RESOURCE_EXHAUSTED also without memory for its wire form. Borrows message during
 * this function. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_stub_send(struct muster_stub_call *stub,
                                                             const void *message);

/* Server. */

/** Hands message, in its type, to the handler in `handlers`. */
typedef void muster_stub_show_fn(struct muster_rpc *rpc, const void *handlers, const void *message);

/** How one method is served. on_message NULL: not at all. */
struct muster_stub_handler {
    const struct muster_stub_method *method;
    muster_stub_show_fn *on_message;
    muster_rpc_event_fn *on_start, *on_half_close, *on_writable;
    muster_rpc_end_fn *on_end;
};

struct muster_stub_service {
    const struct muster_stub_handler *rows;
    size_t count;
    const void *handlers; /* for on_message */
    size_t handlers_bytes;
    void *data; /* what muster_rpc_service gives */
};

/**
 * Serve the methods that have an on_message. Copies all of service but data.
 *
 * A request that cannot be read ends its call with INTERNAL, one that exceeds a limit of
 * muster_proto_limits with RESOURCE_EXHAUSTED; the text names the method and says what is wrong.
 *
 * Errors:  ALREADY_EXISTS for a path that is taken, RESOURCE_EXHAUSTED; nothing is added then.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_stub_service_add(
    struct muster_rpc_server *server, const struct muster_stub_service *service);
/** Send message (borrowed during the call); if the method has one response, also finish with OK. A
 * failure has ended the call, so that it needs no answer: RESOURCE_EXHAUSTED, or FAILED_PRECONDITION
 * after finish. */
MUSTER_API enum muster_rc muster_stub_reply(struct muster_rpc *rpc,
                                            const struct muster_stub_method *method,
                                            const void *message);

MUSTER_END

#endif
