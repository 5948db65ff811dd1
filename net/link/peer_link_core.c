/* The base of a peer link's parts: its states, the frames that are on their way, and how a
 * connection is lost or the link ends. */
#include "net/link/peer_link_internal.h"

#define EVERY_END [MUSTER_LINK_DOWN] = true, [MUSTER_LINK_CLOSED] = true
static const bool moves[8][8] = {
    [MUSTER_LINK_CONNECTING] = {[MUSTER_LINK_CONNECTING] = true,
                                [MUSTER_LINK_HELLO] = true,
                                [MUSTER_LINK_BROKEN] = true,
                                EVERY_END},
    [MUSTER_LINK_HELLO] = {[MUSTER_LINK_PROOF] = true,
                           [MUSTER_LINK_ANSWER] = true,
                           [MUSTER_LINK_READY] = true,
                           [MUSTER_LINK_BROKEN] = true,
                           EVERY_END},
    [MUSTER_LINK_PROOF] = {[MUSTER_LINK_READY] = true, [MUSTER_LINK_BROKEN] = true, EVERY_END},
    [MUSTER_LINK_ANSWER] = {[MUSTER_LINK_READY] = true, [MUSTER_LINK_BROKEN] = true, EVERY_END},
    [MUSTER_LINK_READY] = {[MUSTER_LINK_BROKEN] = true, EVERY_END},
    [MUSTER_LINK_BROKEN] =
        {[MUSTER_LINK_CONNECTING] = true, [MUSTER_LINK_ANSWER] = true, EVERY_END},
    [MUSTER_LINK_DOWN] = {[MUSTER_LINK_CLOSED] = true},
};
#undef EVERY_END

/* CONNECTING repeats because it is also where every link begins, and BROKEN returns to it when its
 * opener connects again, or to ANSWER when the peer's new connection is taken over. */
void muster_peer_link_move(struct muster_peer_link *link, enum muster_link_state state)
{
    MUSTER_ASSERT(moves[link->state][state]);
    link->state = state;
}

size_t muster_frame_bytes(const struct muster_frame *frame)
{
    return frame->iov[0].iov_len + frame->iov[1].iov_len;
}

void muster_frame_finish(struct muster_frame *frame, enum muster_rc rc)
{
    MUSTER_ASSERT(frame->link != NULL);
    muster_list_remove(&frame->node);
    frame->link = NULL;
    frame->done(frame, rc); /* the frame may be freed in here, and the link closed */
}

void muster_peer_link_recall_writes(struct muster_peer_link *link)
{
    if (link->is_hello_queued)
        muster_stream_submit_recall(&link->hello_write, link->stream);
    if (link->is_ack_queued)
        muster_stream_submit_recall(&link->ack_write, link->stream);
    link->is_hello_queued = link->is_ack_queued = false;
    MUSTER_LIST_EACH(&link->frames, frame, struct muster_frame, node) {
        if (frame->write.data != NULL)
            muster_stream_submit_recall(&frame->write, link->stream);
        frame->write.data = NULL;
    }
}

/* The stream forgets every write first, because the frames' callbacks may close the link, and with
 * it the stream. */
static void end_all_frames(struct muster_peer_link *link, enum muster_rc rc)
{
    struct muster_list *lists[] = {&link->unacked, &link->frames};

    muster_peer_link_recall_writes(link);
    link->queued_bytes = 0;
    for (size_t i = 0; i < 2; i++)
        while (!muster_list_is_empty(lists[i]))
            muster_frame_finish(MUSTER_CONTAINER_OF(lists[i]->next, struct muster_frame, node), rc);
}

void muster_peer_link_drop_stream(struct muster_peer_link *link)
{
    muster_timer_stop(&link->timer);
    muster_timer_stop(&link->ack_timer);
    if (link->is_connecting && link->place != NULL && link->place->is_looking)
        muster_lookup_cancel(&link->place->lookup);
    else if (link->is_connecting)
        muster_dial_cancel(&link->dial);
    if (link->stream == NULL)
        return;
    if (link->reading != MUSTER_LINK_READ_NONE)
        muster_stream_receive_recall(&link->read, link->stream);
    link->reading = MUSTER_LINK_READ_NONE;
    muster_stream_close(link->stream, NULL);
    link->stream = NULL;
}

void muster_peer_link_fail(struct muster_peer_link *link, const struct muster_error *error)
{
    if (link->state >= MUSTER_LINK_DOWN)
        return;
    link->error = *error;
    muster_peer_link_move(link, MUSTER_LINK_DOWN);
    end_all_frames(link, MUSTER_UNAVAILABLE);
    if (link->state == MUSTER_LINK_CLOSED) /* a frame's owner has closed it */
        return;
    muster_peer_link_drop_stream(link);
    link->events->on_down(link, &link->error);
}

/* Once a byte of it has left its offset stands, because the peer counts the same bytes. The rest of
 * a recalled frame ends at begun_end: it has begun, though not with a write of its own. */
bool muster_peer_link_has_begun(const struct muster_peer_link *link,
                                const struct muster_frame *frame)
{
    return frame->write.bytes_done > 0 || frame->end <= link->begun_end;
}

/* The offset after all that has begun to leave. Frames that are wholly after it get new offsets
 * when one before them was taken back: the session counts the bytes that leave. */
static uint64_t begun_through(const struct muster_peer_link *link)
{
    uint64_t end = link->begun_end > link->written ? link->begun_end : link->written;

    MUSTER_LIST_EACH(&link->frames, frame, struct muster_frame, node) {
        if (frame->end > end && muster_peer_link_has_begun(link, frame))
            end = frame->end;
    }
    return end;
}

/* Frames that were taken back before a byte of them left have no place in the session. */
void muster_peer_link_renumber(struct muster_peer_link *link)
{
    if (link->state != MUSTER_LINK_READY)
        return;
    link->submitted = begun_through(link);
    MUSTER_LIST_EACH(&link->frames, frame, struct muster_frame, node) {
        if (!muster_peer_link_has_begun(link, frame))
            frame->end = link->submitted += muster_frame_bytes(frame);
    }
}

/* The rest of a frame that was taken back: nobody needs it on another connection. */
void muster_peer_link_drop_rests(struct muster_peer_link *link)
{
    if (link->void_end < link->begun_end)
        link->void_end = link->begun_end;
    MUSTER_LIST_EACH_SAFE(&link->frames, frame, struct muster_frame, node) {
        if (frame->header.channel != 0)
            continue;
        link->queued_bytes -= muster_frame_bytes(frame);
        muster_frame_finish(frame, MUSTER_CANCELLED);
    }
}

/* A frame that has not begun to leave has no offset in the session yet. */
static void forget_offsets(struct muster_peer_link *link)
{
    muster_peer_link_drop_rests(link);
    link->submitted = begun_through(link);
    MUSTER_LIST_EACH(&link->frames, frame, struct muster_frame, node) {
        if (!muster_peer_link_has_begun(link, frame))
            frame->end = 0;
    }
}

void muster_peer_link_take_back_unacked(struct muster_peer_link *link)
{
    struct muster_list *node;

    while ((node = link->unacked.prev) != &link->unacked) {
        muster_list_remove(node);
        muster_list_prepend(&link->frames, node);
        link->queued_bytes +=
            muster_frame_bytes(MUSTER_CONTAINER_OF(node, struct muster_frame, node));
    }
}

void muster_peer_link_recall_payload(struct muster_peer_link *link)
{
    uint32_t bytes;

    if (link->reading != MUSTER_LINK_READ_PAYLOAD)
        return;
    bytes = (uint32_t)muster_stream_receive_recall(&link->read, link->stream);
    link->payload_done += bytes;
    link->received += bytes;
    link->reading = MUSTER_LINK_READ_NONE;
}

void muster_peer_link_forget_connection(struct muster_peer_link *link)
{
    if (link->stream != NULL) {
        muster_peer_link_recall_writes(link);
        muster_peer_link_recall_payload(link); /* drop_stream ends reads into the inbox */
    }
    muster_peer_link_take_back_unacked(link);
    if (link->state == MUSTER_LINK_READY)
        forget_offsets(link);
    muster_peer_link_drop_stream(link);
    link->inbox_begin = link->inbox_end = 0; /* not taken in: it comes again */
    link->turn_bytes = 0;
    muster_peer_link_move(link, MUSTER_LINK_BROKEN);
}

void muster_peer_link_lose(struct muster_peer_link *link, const struct muster_error *error)
{
    if (link->state >= MUSTER_LINK_BROKEN)
        return;
    /* An acceptor that was never ready has nothing to resume; the opener's next connection is a new
     * link. */
    if ((!link->is_met && !link->is_opener) || link->session == 0 ||
        link->events->on_broken == NULL) {
        muster_peer_link_fail(link, error);
        return;
    }
    muster_peer_link_forget_connection(link);
    link->events->on_broken(link, error);
}

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_frame *frame = write->data;
    struct muster_peer_link *link = frame->link;
    struct muster_error error;

    MUSTER_ASSERT(link != NULL && link->queued_bytes >= muster_frame_bytes(frame));
    write->data = NULL;
    if (rc != MUSTER_OK) {
        muster_peer_link_lost_error(link, "the connection was lost", &error);
        muster_peer_link_lose(link, &error);
        return;
    }
    link->queued_bytes -= muster_frame_bytes(frame);
    link->written = frame->end;
    /* With zero-copy sends the peer may confirm a frame before the kernel gives its memory back.
     */
    if (link->session == 0 || frame->end <= link->acked) {
        muster_frame_finish(frame, MUSTER_OK);
        return;
    }
    muster_list_remove(&frame->node);
    muster_list_append(&link->unacked, &frame->node);
}

void muster_peer_link_submit(struct muster_peer_link *link, struct muster_frame *frame)
{
    enum muster_rc rc;

    MUSTER_ASSERT(link->stream != NULL);
    if (frame->end == 0)
        frame->end = link->submitted += muster_frame_bytes(frame);
    frame->write.data = frame;
    rc = muster_stream_submit(&frame->write, link->stream, frame->iov,
                              frame->iov[1].iov_len > 0 ? 2 : 1, on_written);
    MUSTER_ASSERT(rc == MUSTER_OK);
}

/* Memory goes in a later turn (on_task): close is allowed inside every event of the link, whose
 * caller still looks at its state. */
void muster_peer_link_close(struct muster_peer_link *link)
{
    if (link == NULL || link->state == MUSTER_LINK_CLOSED)
        return;
    muster_peer_link_move(link, MUSTER_LINK_CLOSED);
    end_all_frames(link, MUSTER_CANCELLED);
    muster_peer_link_drop_stream(link);
    muster_task_post(&link->task, link->env->loop);
}

void muster_peer_link_set_owner(struct muster_peer_link *link,
                                const struct muster_peer_link_events *events, void *data)
{
    link->events = events;
    link->data = data;
}

bool muster_peer_link_is_met(const struct muster_peer_link *link)
{
    return link->is_met && link->state < MUSTER_LINK_DOWN;
}

bool muster_frame_is_match(const struct muster_frame_match *match,
                           const struct muster_frame_header *header)
{
    return header->channel == MUSTER_FRAME_COLLECTIVE && header->epoch < match->epoch_end &&
           (match->op == NULL || muster_op_id_compare(match->op, &header->op) == 0);
}
