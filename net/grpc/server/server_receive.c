/* The receiving half of a server's call: the service gets messages as they come, or when it is
 * ready. net/grpc/inbox.c parses and holds; this file knows what a service expects of its method.
 */
#include "net/grpc/server/rpc_server_internal.h"

static void refuse_message(struct muster_rpc *rpc, enum muster_grpc_parsed parsed)
{
    char text[MUSTER_GRPC_EXPLANATION_BYTES];
    enum muster_rc rc = muster_grpc_parser_explain(&rpc->parser, parsed, text);

    muster_rpc_abort(rpc, rc, text);
}

/* A unary request waits for the end of the stream, so that one that is reset at once costs the
 * service no work (CVE-2023-44487, "rapid reset"). */
static void unary_message(struct muster_rpc *rpc, struct muster_bytes message, bool is_last)
{
    if (rpc->has_message) {
        muster_rpc_abort(rpc, MUSTER_UNIMPLEMENTED, "unary call with more than one message");
        return;
    }
    rpc->has_message = true;
    if (is_last) {
        rpc->method->on_message(rpc, message);
        return;
    }
    if (!muster_grpc_parser_hold(&rpc->parser, &message)) {
        refuse_message(rpc, MUSTER_GRPC_NO_MEMORY);
        return;
    }
    rpc->held = message;
    /* The inbox must not tell the end while the service pauses, for the message comes with it. */
    rpc->inbox.has_kept_message = true;
}

void *muster_rpc_on_place(void *owner, size_t bytes)
{
    struct muster_rpc *rpc = owner;

    return rpc->method->on_place != NULL ? rpc->method->on_place(rpc, bytes) : NULL;
}

static bool is_inbox_open(const struct muster_rpc_inbox *inbox)
{
    return ((const struct muster_rpc *)inbox->data)->state == MUSTER_RPC_OPEN;
}

static void on_inbox_message(struct muster_rpc_inbox *inbox, struct muster_bytes message,
                             bool is_last)
{
    struct muster_rpc *rpc = inbox->data;

    if (rpc->state != MUSTER_RPC_OPEN)
        return; /* on_place has finished the call */
    rpc->awaited = MUSTER_RPC_AWAITS_NOTHING;
    rpc->tally.received_bytes += rpc->parser.message_bytes;
    rpc->connection->server->counters->messages_received++;
    muster_interception_receive(&rpc->interception, message, rpc->parser.message_bytes);
    if (rpc->method->is_unary)
        unary_message(rpc, message, is_last);
    else
        rpc->method->on_message(rpc, message);
}

static void on_inbox_refused(struct muster_rpc_inbox *inbox, enum muster_grpc_parsed parsed)
{
    refuse_message(inbox->data, parsed);
}

static void on_inbox_end(struct muster_rpc_inbox *inbox)
{
    struct muster_rpc *rpc = inbox->data;

    if (!muster_grpc_parser_is_empty(&rpc->parser)) {
        muster_rpc_abort(rpc, MUSTER_INTERNAL, "message is cut off");
        return;
    }
    if (rpc->method->is_unary && !rpc->has_message) {
        muster_rpc_abort(rpc, MUSTER_UNIMPLEMENTED, "unary call without a message");
        return;
    }
    /* The message is handed over once: on_message may end the call. */
    if (rpc->held.data != NULL) {
        struct muster_bytes message = rpc->held;

        rpc->held.data = NULL;
        rpc->method->on_message(rpc, message);
    }
    if (rpc->state == MUSTER_RPC_OPEN && rpc->method->on_half_close != NULL)
        rpc->method->on_half_close(rpc);
}

static void on_inbox_change(struct muster_rpc_inbox *inbox)
{
    muster_rpc_account(inbox->data);
}

static void on_inbox_idle(struct muster_rpc_inbox *inbox)
{
    muster_rpc_release(inbox->data);
}

const struct muster_rpc_inbox_events muster_rpc_inbox_events = {
    .is_open = is_inbox_open,
    .on_message = on_inbox_message,
    .on_refused = on_inbox_refused,
    .on_end = on_inbox_end,
    .on_change = on_inbox_change,
    .on_idle = on_inbox_idle,
};

void muster_rpc_on_data(struct muster_rpc *rpc, struct muster_bytes bytes, bool is_last)
{
    rpc->received_bytes += bytes.size;
    muster_rpc_inbox_receive(&rpc->inbox, bytes, is_last);
    muster_rpc_account(rpc);
}

void muster_rpc_on_end(struct muster_rpc *rpc)
{
    if (!rpc->is_page)
        muster_rpc_inbox_end(&rpc->inbox);
    else if (rpc->state == MUSTER_RPC_STARTING) /* else it was aborted meanwhile */
        muster_rpc_refuse(rpc, MUSTER_RPC_PAGE);
}

void muster_rpc_pause(struct muster_rpc *rpc)
{
    muster_rpc_inbox_pause(&rpc->inbox);
}

void muster_rpc_resume(struct muster_rpc *rpc)
{
    muster_rpc_inbox_resume(&rpc->inbox);
}

enum muster_compression muster_rpc_compression(const struct muster_rpc *rpc)
{
    return rpc->parser.takes_gzip ? MUSTER_COMPRESSION_GZIP : MUSTER_COMPRESSION_NONE;
}

bool muster_rpc_is_compressed(const struct muster_rpc *rpc)
{
    return rpc->parser.is_compressed;
}
