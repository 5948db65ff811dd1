/* A peer link outlives its connection: what has arrived is told, what has not is sent again. Both
 * sides count the bytes of headers and payloads of a session; frames of channel LINK are not
 * counted, because they belong to one connection. */
#include "net/link/peer_link_internal.h"

/* Every frame that goes the other way tells how much has arrived. Where none goes, a frame of its
 * own tells it after so many frames, after MUSTER_LINK_UNTOLD_BYTES, or after so long: the sender
 * keeps memory until then. */
#define TELL_FRAMES     256u
#define TELL_NS         (20 * MUSTER_NS_PER_MS)
#define TELL_CONTROL_NS (500 * MUSTER_NS_PER_MS) /* heartbeats say it sooner */

static struct muster_frame *first_of(const struct muster_list *list)
{
    return muster_list_is_empty(list) ? NULL
                                      : MUSTER_CONTAINER_OF(list->next, struct muster_frame, node);
}

static void on_told(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_peer_link *link = write->data;
    struct muster_error error;

    link->is_ack_queued = false;
    if (rc == MUSTER_OK) {
        muster_peer_link_note_received(link); /* what has come meanwhile waits to be told too */
        return;
    }
    muster_peer_link_lost_error(link, "the connection was lost", &error);
    muster_peer_link_lose(link, &error);
}

static void submit_link_frame(struct muster_peer_link *link, enum muster_link_frame type,
                              uint16_t flags, uint64_t offset, muster_stream_write_fn *done)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_LINK,
                                         .type = (uint8_t)type,
                                         .flags = flags,
                                         .offset = offset,
                                         .descriptor = link->session,
                                         .received = link->received};
    enum muster_rc rc;

    MUSTER_ASSERT(link->stream != NULL && !link->is_ack_queued);
    muster_frame_header_pack(&header, link->ack);
    link->ack_iov.iov_base = link->ack;
    link->ack_iov.iov_len = sizeof(link->ack);
    link->ack_write.data = link;
    rc = muster_stream_submit(&link->ack_write, link->stream, &link->ack_iov, 1, done);
    MUSTER_ASSERT(rc == MUSTER_OK);
    link->is_ack_queued = rc == MUSTER_OK;
    link->received_told = link->received;
    link->untold_frames = 0;
}

void muster_peer_link_on_ack_due(struct muster_timer *timer)
{
    struct muster_peer_link *link = timer->data;

    if (link->state == MUSTER_LINK_READY && !link->is_ack_queued &&
        link->received != link->received_told)
        submit_link_frame(link, MUSTER_LINK_FRAME_RECEIVED, 0, 0, on_told);
}

void muster_peer_link_note_received(struct muster_peer_link *link)
{
    uint64_t delay_ns = link->self.purpose == MUSTER_LINK_CONTROL ? TELL_CONTROL_NS : TELL_NS;

    MUSTER_ASSERT(link->received >= link->received_told);
    if (link->received == link->received_told || link->is_ack_queued)
        return;
    if (link->received - link->received_told >= MUSTER_LINK_UNTOLD_BYTES ||
        ++link->untold_frames >= TELL_FRAMES)
        submit_link_frame(link, MUSTER_LINK_FRAME_RECEIVED, 0, 0, on_told);
    else if (!muster_timer_is_started(&link->ack_timer))
        muster_timer_start(&link->ack_timer, link->env->loop,
                           muster_loop_after_ns(link->env->loop, delay_ns));
}

bool muster_peer_link_hear_received(struct muster_peer_link *link, uint64_t received)
{
    struct muster_frame *frame;
    struct muster_error error;

    if (received <= link->acked)
        return true;
    if (received > link->submitted) {
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "the peer says that it has more than was sent");
        muster_peer_link_fail(link, &error);
        return false;
    }
    link->acked = received;
    /* Not MUSTER_LIST_EACH: a frame's owner may close the link, which empties the list. */
    while ((frame = first_of(&link->unacked)) != NULL && frame->end <= received)
        muster_frame_finish(frame, MUSTER_OK);
    return true;
}

uint64_t muster_peer_link_unacked_bytes(const struct muster_peer_link *link)
{
    /* Without copies a frame is acknowledged before it counts as written. */
    return link->session == 0 || link->written < link->acked ? 0 : link->written - link->acked;
}

void muster_peer_link_break(struct muster_peer_link *link, const struct muster_error *why)
{
    if (link->state == MUSTER_LINK_READY && link->session != 0)
        muster_peer_link_lose(link, why);
}

/* A frame that has arrived in part goes on with its rest, as the peer has its header already. */
static void frame_skip(struct muster_peer_link *link, struct muster_frame *frame, size_t bytes)
{
    link->queued_bytes -= bytes;
    for (size_t i = 0; i < 2; i++) {
        size_t step = bytes < frame->iov[i].iov_len ? bytes : frame->iov[i].iov_len;

        frame->iov[i].iov_base = (uint8_t *)frame->iov[i].iov_base + step;
        frame->iov[i].iov_len -= step;
        bytes -= step;
    }
}

/* The offset to go on at: what was recalled cannot be sent again, so both sides skip it. */
static uint64_t resume_sequence(const struct muster_peer_link *link, uint64_t received)
{
    return received > link->void_end ? received : link->void_end;
}

/* All frames that the peer lacks before the resume sequence must have been recalled. Without a
 * session nothing is kept that has left, though a peer may ask for session 0. */
bool muster_peer_link_can_resume(const struct muster_peer_link *link, uint64_t received)
{
    if (link->session == 0 || received < link->acked || received > link->submitted)
        return false;
    MUSTER_LIST_EACH(&link->frames, frame, struct muster_frame, node) {
        if (frame->end > received && frame->end - muster_frame_bytes(frame) < link->void_end)
            return false;
    }
    return true;
}

/* The peer goes on at `start`. Where that is beyond what has arrived, it has recalled frames, and
 * one that has arrived in part will not come to its end. */
static void receive_from(struct muster_peer_link *link, uint64_t start)
{
    bool has_place = link->receive == MUSTER_RECEIVE_PAYLOAD && link->payload != NULL;

    if (start <= link->received)
        return;
    link->received = start;
    link->receive = MUSTER_RECEIVE_HEADER;
    link->payload = NULL;
    if (has_place && link->events->on_abandoned != NULL)
        link->events->on_abandoned(link);
}

/* Frames get their offsets anew: those that the peer has end here, the first that it lacks may have
 * arrived in part. The owner hears of it last, because it may close the link. */
static void link_resume(struct muster_peer_link *link, uint64_t peer_received)
{
    uint64_t received = resume_sequence(link, peer_received);
    struct muster_frame *frame;
    bool was_met = link->is_met;

    MUSTER_ASSERT(link->state == MUSTER_LINK_ANSWER);
    link->acked = peer_received; /* it has not heard yet that it shall skip */
    link->written = link->begun_end = received;
    while ((frame = first_of(&link->frames)) != NULL && frame->end != 0 && frame->end <= received) {
        link->queued_bytes -= muster_frame_bytes(frame);
        muster_frame_finish(frame, MUSTER_OK);
    }
    if (link->state != MUSTER_LINK_ANSWER)
        return; /* a frame's owner has closed the link */
    if (frame != NULL && frame->end != 0)
        frame_skip(link, frame, (size_t)(received - (frame->end - muster_frame_bytes(frame))));
    link->submitted = received;
    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);
        frame->end = 0;
        muster_peer_link_submit(link, frame);
    }
    muster_peer_link_move(link, MUSTER_LINK_READY);
    link->is_met = true;
    muster_timer_stop(&link->timer);
    muster_task_post(&link->task, link->env->loop);
    if (!was_met)
        link->events->on_ready(link);
    else if (link->events->on_resumed != NULL)
        link->events->on_resumed(link);
}

void muster_peer_link_answer_resume(struct muster_peer_link *link, uint64_t received)
{
    submit_link_frame(link, MUSTER_LINK_FRAME_ANSWER, MUSTER_LINK_IS_KNOWN,
                      resume_sequence(link, received), on_told);
}

/* Ready tells the healer that the peer knows the session; nothing else is sent over a probe. */
static void hear_probe_answer(struct muster_peer_link *link)
{
    muster_timer_stop(&link->timer);
    muster_peer_link_move(link, MUSTER_LINK_READY);
    link->events->on_ready(link);
}

void muster_peer_link_hear_answer(struct muster_peer_link *link,
                                  const struct muster_frame_header *answer)
{
    struct muster_error error = {.rc = MUSTER_OK};
    bool is_probe = link->self.intent == MUSTER_LINK_PROBE;

    MUSTER_ASSERT(link->state == MUSTER_LINK_ANSWER);
    if (answer->channel != MUSTER_FRAME_LINK || answer->type != MUSTER_LINK_FRAME_ANSWER)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "the peer must answer first, got a frame of channel %u", answer->channel);
    else if (answer->flags == MUSTER_LINK_IS_LACKING)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "cannot resume: frames that this process still needs were recalled");
    else if (answer->flags != MUSTER_LINK_IS_KNOWN || answer->descriptor != link->session)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "the peer does not know the connection any more");
    else if (!is_probe &&
             (answer->offset < link->received || answer->offset >= MUSTER_LINK_OFFSET_END))
        muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                         "cannot resume: the peer must go on at byte %llu or later, got %llu",
                         (unsigned long long)link->received, (unsigned long long)answer->offset);
    else if (!is_probe && !muster_peer_link_can_resume(link, answer->received))
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "cannot resume: frames that the peer still needs were recalled");
    else if (!link->is_opener && resume_sequence(link, answer->received) != answer->received)
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "cannot resume: frames were recalled meanwhile");
    if (error.rc != MUSTER_OK) {
        muster_peer_link_lose(link, &error);
        return;
    }
    if (is_probe) {
        hear_probe_answer(link);
        return;
    }
    receive_from(link, answer->offset);
    if (link->is_opener)
        muster_peer_link_answer_resume(link, answer->received);
    link_resume(link, answer->received);
}

bool muster_peer_link_begin_late(struct muster_peer_link *link)
{
    MUSTER_ASSERT(link->state == MUSTER_LINK_READY && !link->is_opener);
    if (link->peer.received != 0)
        return false;
    link->session = link->peer.session;
    link->connection = link->peer.connection;
    submit_link_frame(link, MUSTER_LINK_FRAME_ANSWER, MUSTER_LINK_IS_KNOWN, 0, on_told);
    return true;
}

static void on_answered(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_peer_link *link = write->data;

    (void)rc;
    link->is_ack_queued = false;
    muster_peer_link_close(link);
}

static void *on_no_frame(struct muster_peer_link *link, const struct muster_frame_header *header)
{
    (void)link;
    (void)header;
    return NULL;
}

static void on_no_payload(struct muster_peer_link *link, const struct muster_frame_header *header,
                          void *buffer)
{
    (void)link;
    (void)header;
    (void)buffer;
}

static void on_unheard(struct muster_peer_link *link, const struct muster_error *error)
{
    (void)error;
    muster_peer_link_close(link);
}

void muster_peer_link_answer(struct muster_peer_link *link, enum muster_link_answer answer)
{
    static const struct muster_peer_link_events events = {
        .on_frame = on_no_frame, .on_payload = on_no_payload, .on_down = on_unheard};

    MUSTER_ASSERT(link->state == MUSTER_LINK_READY && !link->is_opener);
    muster_peer_link_set_owner(link, &events, NULL);
    link->session = link->peer.session;
    submit_link_frame(link, MUSTER_LINK_FRAME_ANSWER, (uint16_t)answer, 0, on_answered);
}

uint64_t muster_peer_link_session(const struct muster_peer_link *link)
{
    return link->session;
}

uint32_t muster_peer_link_connection(const struct muster_peer_link *link)
{
    return link->connection;
}

void muster_peer_link_yield(struct muster_peer_link *link)
{
    struct muster_list *node;

    if (link->stream != NULL)
        muster_peer_link_recall_writes(link);
    muster_peer_link_take_back_unacked(link);
    muster_peer_link_drop_rests(link);
    while ((node = link->frames.next) != &link->frames) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        if (frame->header.channel == MUSTER_FRAME_STRIPE) { /* its order is that of this link */
            muster_frame_finish(frame, MUSTER_CANCELLED);
            continue;
        }
        muster_list_remove(node);
        frame->link = NULL;
    }
    link->queued_bytes = 0;
}
