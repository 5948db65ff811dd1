/* The events of a call's stream: headers, the end of the response, a reset. Each may end the
 * attempt, and call_retry.c decides whether the call ends with it. transport.c passes the events
 * on; they come from the loop, so done may run inside them. */
#include <stdio.h>

#include "net/grpc/client/channel_internal.h"
#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

/* The server, or the way to it, has ended the attempt: the call ends too, unless it is repeated. */
static void call_conclude(struct muster_grpc_call *call, enum muster_rc rc, const char *text)
{
    if (muster_grpc_call_repeat(call, rc, text))
        call->has_answer = false; /* of another attempt */
    else
        muster_grpc_call_finish(call, rc, text);
}

static bool is_informational(const struct muster_grpc_call *call)
{
    return call->http_status >= 100 && call->http_status < 200;
}

/* The reason why a response is not one of gRPC; NULL when it is. */
static const char *describe_refusal(const struct muster_grpc_call *call)
{
    if (call->http_status != 200)
        return "server answered with an HTTP error";
    return call->is_grpc ? NULL : "server answered without gRPC's content-type";
}

static void conclude_refused(struct muster_grpc_call *call, const char *text)
{
    char whole[96];

    (void)snprintf(whole, sizeof(whole), "%s (status %d)", text, call->http_status);
    call_conclude(call, muster_rc_from_http_status(call->http_status), whole);
}

void muster_grpc_call_on_headers(struct muster_grpc_call *call, bool is_end)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    /* 1xx responses precede the real one (RFC 9110 15.2) and mean nothing to gRPC. */
    if (is_informational(call)) {
        muster_grpc_metadata_reset(&call->initial);
        return;
    }
    if (call->metadata_rc != MUSTER_OK) {
        call_conclude(call,
                      call->metadata_rc == MUSTER_RESOURCE_EXHAUSTED ? MUSTER_RESOURCE_EXHAUSTED
                                                                     : MUSTER_INTERNAL,
                      "malformed metadata in the response");
        return;
    }
    if (call->has_headers)
        return; /* trailers; on_end follows */
    call->has_headers = true;
    call->transport->has_served = true;
    if (is_end) { /* Trailers-Only: there was no initial metadata */
        struct muster_grpc_metadata swap = call->initial;

        call->initial = call->trailing;
        call->trailing = swap;
        return;
    }
    /* gRPC A6: headers are shown to the user, so another attempt could contradict them. The kept
     * copy of the request is not needed any more. */
    call->is_committed = true;
    muster_h2_body_commit(&call->stream.body);
    call->has_status = false; /* it belongs into trailers */
    if (describe_refusal(call) != NULL)
        conclude_refused(call, describe_refusal(call));
    else if (call->on_headers != NULL) {
        call->call->initial_metadata = muster_grpc_metadata_view(&call->initial);
        call->on_headers(call->call);
    }
}

void muster_grpc_call_refuse(struct muster_grpc_call *call, enum muster_grpc_parsed parsed)
{
    char text[MUSTER_GRPC_EXPLANATION_BYTES];
    enum muster_rc rc = muster_grpc_parser_explain(&call->parser, parsed, text);

    if (parsed == MUSTER_GRPC_BAD_FLAG && call->has_unknown_encoding)
        (void)snprintf(text, sizeof(text), "response has an unknown grpc-encoding");
    call_conclude(call, rc, text);
}

void muster_grpc_call_on_end(struct muster_grpc_call *call)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    call->has_peer_ended = true;
    call->has_answer = call->has_status;
    /* The order of the checks matters: an error that the server has named wins over a message that
     * was cut off by it, and that over an OK that cannot be true. */
    if (call->has_status && call->status != MUSTER_OK)
        call_conclude(call, call->status, NULL);
    else if (!muster_grpc_parser_is_empty(&call->parser))
        call_conclude(call, MUSTER_INTERNAL, "message is cut off");
    else if (call->has_status)
        call_conclude(call, MUSTER_OK, NULL);
    else if (describe_refusal(call) != NULL)
        conclude_refused(call, describe_refusal(call));
    else
        call_conclude(call, MUSTER_UNKNOWN, "response without grpc-status");
}

void muster_grpc_call_on_over_limit(struct muster_grpc_call *call)
{
    if (call->state != MUSTER_GRPC_CALL_ACTIVE)
        return;
    call->has_peer_ended = true; /* the session resets it */
    call_conclude(call, MUSTER_RESOURCE_EXHAUSTED, "response headers are too large");
}

void muster_grpc_call_on_drained(struct muster_grpc_call *call)
{
    if (call->state == MUSTER_GRPC_CALL_ACTIVE && call->on_writable != NULL)
        call->on_writable(call->call);
}

/* The connection was lost; or the server cancelled at the deadline that both sides know, which is
 * told as the deadline; or nothing was sent; or the server's code is translated (PROTOCOL-HTTP2.md,
 * "Errors"). */
static void conclude_reset(struct muster_grpc_call *call, const struct muster_error *error,
                           uint32_t code)
{
    char text[96];

    if (code == MUSTER_H2_LOST) {
        call_conclude(call, MUSTER_UNAVAILABLE, error->text);
    } else if (code == MUSTER_H2_CANCEL &&
               call->deadline_ns <= muster_loop_now_ns(call->channel->env->loop)) {
        muster_grpc_call_finish(call, MUSTER_DEADLINE_EXCEEDED, "deadline exceeded");
    } else if (!call->stream.is_sent) {
        call_conclude(call, MUSTER_UNAVAILABLE,
                      "the request was not sent: the connection has no memory, or is ending");
    } else {
        (void)snprintf(text, sizeof(text), "server reset the stream (code %u)", code);
        call_conclude(call, muster_rc_from_h2_code(code), text);
    }
}

void muster_grpc_call_on_close(struct muster_grpc_call *call, uint32_t code)
{
    const struct muster_error *error = muster_h2_session_error(call->stream.session);
    struct muster_rpc_counters *counters = call->channel->counters;

    MUSTER_ASSERT(call->is_streaming && call->transport->call_count > 0);
    *(code == MUSTER_H2_NO_ERROR ? &counters->streams_succeeded : &counters->streams_failed) += 1;
    call->is_streaming = false;
    call->stream.session = NULL;
    call->transport->call_count--;
    call->transport = NULL;
    /* An active call whose end waits in the inbox ends with its last message. REFUSED_STREAM
     * promises that the server has not acted (RFC 9113 8.7), so the call may go again without a
     * policy. */
    if (call->state == MUSTER_GRPC_CALL_PAUSED)
        muster_grpc_call_resume(call);
    else if (call->state == MUSTER_GRPC_CALL_DONE && !call->is_delivering)
        muster_grpc_call_release(call);
    else if (call->state == MUSTER_GRPC_CALL_ACTIVE &&
             !muster_rpc_inbox_is_holding_end(&call->inbox) &&
             (code != MUSTER_H2_REFUSED_STREAM || !muster_grpc_call_resend(call)))
        conclude_reset(call, error, code);
}
