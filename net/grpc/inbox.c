/* Messages that have come on the stream of a call, until the application takes them. Both sides
 * embed one for each call and answer its events (client/call_receive.c, server/server_receive.c).
 * Bytes that wait for a pause or for inflation lie here unparsed, and are given back to the
 * stream's window only when they are taken: the peer cannot send more than the window. */
#include "net/grpc/inbox.h"

#include <string.h>

/* Smaller buffers would grow again with the next frame. */
#define CAPACITY_MIN 1024

static void drop_held(struct muster_rpc_inbox *inbox)
{
    muster_mem_free(inbox->parser->mem, inbox->held);
    inbox->held = NULL;
    inbox->held_at = inbox->held_bytes = inbox->held_capacity = 0;
}

/* The inflated message goes at once, unless the owner keeps it: it may be large, and the next one
 * may be long in coming. */
static void inbox_show(struct muster_rpc_inbox *inbox, struct muster_bytes message, bool is_last)
{
    inbox->events->on_message(inbox, message, is_last);
    if (inbox->parser->plain != NULL && !inbox->has_kept_message)
        muster_grpc_parser_drop_plain(inbox->parser);
}

/* Show what is complete in *bytes until the application pauses; the rest stays there. */
static void inbox_tell(struct muster_rpc_inbox *inbox, struct muster_bytes *bytes, bool is_last)
{
    struct muster_bytes message;

    while ((bytes->size > 0 || inbox->is_inflating) && !inbox->is_paused &&
           inbox->events->is_open(inbox)) {
        enum muster_grpc_parsed parsed = muster_grpc_parser_next(inbox->parser, bytes, &message);

        inbox->is_inflating = parsed == MUSTER_GRPC_LATER;
        if (parsed == MUSTER_GRPC_LATER)
            muster_rpc_inflation_await(inbox->inflation, &inbox->inflating);
        if (parsed == MUSTER_GRPC_LATER || parsed == MUSTER_GRPC_NEED_MORE)
            return;
        if (parsed == MUSTER_GRPC_MESSAGE)
            inbox_show(inbox, message, is_last && bytes->size == 0);
        else
            inbox->events->on_refused(inbox, parsed);
    }
}

/* The end must not overtake messages. It may overtake a pause when no message waits, since it asks
 * nothing of the application. */
static void tell_end(struct muster_rpc_inbox *inbox)
{
    bool is_waiting = inbox->held_bytes > 0 || inbox->is_inflating ||
                      (inbox->is_paused && inbox->has_kept_message);

    if (inbox->end != MUSTER_RPC_INBOX_ENDED || is_waiting || !inbox->events->is_open(inbox))
        return;
    inbox->end = MUSTER_RPC_INBOX_END_TOLD;
    inbox->events->on_end(inbox);
}

/* Each function that may tell the owner something begins with this and ends with inbox_leave. */
static void inbox_enter(struct muster_rpc_inbox *inbox)
{
    MUSTER_ASSERT(inbox->turn == MUSTER_RPC_INBOX_IDLE);
    inbox->turn = MUSTER_RPC_INBOX_TELLING;
}

/* The owner may free the inbox in on_idle. */
static void inbox_leave(struct muster_rpc_inbox *inbox)
{
    bool is_release_due = inbox->turn == MUSTER_RPC_INBOX_RELEASING;

    inbox->turn = MUSTER_RPC_INBOX_IDLE;
    if (is_release_due)
        inbox->events->on_idle(inbox);
}

/* Shows the bytes that wait until the application pauses, inflation has used its turn, or all are
 * shown. */
static void go_on(struct muster_rpc_inbox *inbox)
{
    struct muster_bytes bytes = {NULL, inbox->held_bytes};
    size_t taken;

    if (inbox->held != NULL)
        bytes.data = inbox->held + inbox->held_at;
    inbox_enter(inbox);
    inbox_tell(inbox, &bytes, inbox->end != MUSTER_RPC_INBOX_RECEIVING);
    /* The application has ended the call inside on_message: the rest is dropped, but its window is
     * still given back. */
    if (!inbox->events->is_open(inbox))
        bytes.size = 0;
    taken = inbox->held_bytes - bytes.size;
    inbox->held_at += taken;
    inbox->held_bytes = bytes.size;
    if (inbox->held_bytes == 0)
        drop_held(inbox);
    /* The stream's window opens by what was taken. */
    muster_h2_stream_consume(inbox->stream, taken);
    tell_end(inbox);
    inbox->events->on_change(inbox);
    inbox_leave(inbox);
}

static void on_resume(struct muster_task *task)
{
    go_on(task->data);
}

static void on_turn(struct muster_rpc_inflating *inflating)
{
    go_on(MUSTER_CONTAINER_OF(inflating, struct muster_rpc_inbox, inflating));
}

void muster_rpc_inbox_init(struct muster_rpc_inbox *inbox,
                           const struct muster_rpc_inbox_events *events, void *data,
                           struct muster_loop *loop, struct muster_rpc_inflation *inflation,
                           struct muster_h2_stream *stream, struct muster_grpc_parser *parser)
{
    memset(inbox, 0, sizeof(*inbox));
    inbox->events = events;
    inbox->data = data;
    inbox->loop = loop;
    inbox->stream = stream;
    inbox->parser = parser;
    inbox->inflation = inflation;
    inbox->inflating.on_turn = on_turn;
    parser->inflate_left = &inflation->left;
    muster_list_init(&inbox->inflating.node);
    muster_task_init(&inbox->resume_task, on_resume, inbox);
}

void muster_rpc_inbox_reset(struct muster_rpc_inbox *inbox)
{
    muster_task_cancel(&inbox->resume_task);
    if (inbox->held != NULL)
        drop_held(inbox);
    muster_list_remove(&inbox->inflating.node);
    inbox->has_kept_message = inbox->is_inflating = false;
    inbox->is_paused = false;
    inbox->end = MUSTER_RPC_INBOX_RECEIVING;
    inbox->turn = MUSTER_RPC_INBOX_IDLE;
}

void muster_rpc_inbox_restart(struct muster_rpc_inbox *inbox)
{
    bool is_paused = inbox->is_paused;

    muster_rpc_inbox_reset(inbox);
    inbox->is_paused = is_paused;
}

bool muster_rpc_inbox_release(struct muster_rpc_inbox *inbox)
{
    if (inbox->turn == MUSTER_RPC_INBOX_IDLE)
        return true;
    inbox->turn = MUSTER_RPC_INBOX_RELEASING;
    return false;
}

/* Makes room after the held bytes; those that were taken already make way first. */
static bool inbox_reserve(struct muster_rpc_inbox *inbox, size_t more)
{
    size_t need = inbox->held_bytes + more;
    size_t capacity = inbox->held_capacity * 2;
    uint8_t *held;

    if (inbox->held_at > 0)
        memmove(inbox->held, inbox->held + inbox->held_at, inbox->held_bytes);
    inbox->held_at = 0;
    if (need <= inbox->held_capacity)
        return true;
    if (capacity < need)
        capacity = need;
    if (capacity < CAPACITY_MIN)
        capacity = CAPACITY_MIN;
    held = muster_mem_realloc(inbox->parser->mem, inbox->held, capacity);
    if (held == NULL)
        return false;
    inbox->held = held;
    inbox->held_capacity = capacity;
    return true;
}

static bool inbox_hold(struct muster_rpc_inbox *inbox, struct muster_bytes bytes)
{
    if (!inbox_reserve(inbox, bytes.size))
        return false;
    memcpy(inbox->held + inbox->held_bytes, bytes.data, bytes.size);
    inbox->held_bytes += bytes.size;
    return true;
}

void muster_rpc_inbox_receive(struct muster_rpc_inbox *inbox, struct muster_bytes bytes,
                              bool is_last)
{
    size_t count = bytes.size;

    inbox_enter(inbox);
    /* Bytes that wait come first; only without them may new ones be shown where they lie. */
    if (inbox->held_bytes == 0 && !inbox->is_inflating)
        inbox_tell(inbox, &bytes, is_last);
    if (bytes.size > 0 && inbox->events->is_open(inbox)) {
        if (inbox_hold(inbox, bytes))
            count -= bytes.size;
        else
            inbox->events->on_refused(inbox, MUSTER_GRPC_NO_MEMORY);
    }
    /* Held bytes stay charged to the stream's window. */
    muster_h2_stream_consume(inbox->stream, count);
    inbox_leave(inbox);
}

void muster_rpc_inbox_end(struct muster_rpc_inbox *inbox)
{
    inbox_enter(inbox);
    if (inbox->end == MUSTER_RPC_INBOX_RECEIVING)
        inbox->end = MUSTER_RPC_INBOX_ENDED;
    tell_end(inbox);
    inbox_leave(inbox);
}

bool muster_rpc_inbox_is_holding_end(const struct muster_rpc_inbox *inbox)
{
    return inbox->end == MUSTER_RPC_INBOX_ENDED;
}

bool muster_rpc_inbox_is_holding(const struct muster_rpc_inbox *inbox)
{
    return inbox->is_paused || inbox->held_bytes > 0 || inbox->is_inflating;
}

bool muster_rpc_inbox_has_ended(const struct muster_rpc_inbox *inbox)
{
    return inbox->end != MUSTER_RPC_INBOX_RECEIVING;
}

size_t muster_rpc_inbox_held_bytes(const struct muster_rpc_inbox *inbox)
{
    return inbox->held_capacity;
}

void muster_rpc_inbox_pause(struct muster_rpc_inbox *inbox)
{
    inbox->is_paused = true;
    muster_task_cancel(&inbox->resume_task);
}

/* A task shows the bytes: a message must not come inside resume, which the application may call
 * from on_message. */
void muster_rpc_inbox_resume(struct muster_rpc_inbox *inbox)
{
    if (!inbox->is_paused)
        return;
    inbox->is_paused = false;
    muster_task_post(&inbox->resume_task, inbox->loop);
}
