/* A peer link outlives its connection: what has arrived is told, what has not is sent again. */
#include "net/link/peer_link_internal.h"

#include <assert.h>

/* Said with every frame that goes the other way; by itself after so many, or after so long. */
#define TELL_FRAMES     256u
#define TELL_NS         (20 * MUSTER_NS_PER_MS)
#define TELL_CONTROL_NS (500 * MUSTER_NS_PER_MS) /* heartbeats say it sooner */
#define ANSWER_NS       MUSTER_NS_PER_S

size_t muster_frame_bytes(const struct muster_frame *frame)
{
    return frame->iov[0].iov_len + frame->iov[1].iov_len;
}

static struct muster_frame *first_of(const struct muster_list *list)
{
    return muster_list_is_empty(list) ? NULL
                                      : MUSTER_CONTAINER_OF(list->next, struct muster_frame, node);
}

/* --- What has arrived --- */

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

    muster_frame_header_pack(&header, link->ack);
    link->ack_iov.iov_base = link->ack;
    link->ack_iov.iov_len = sizeof(link->ack);
    link->ack_write.data = link;
    rc = muster_stream_submit(&link->ack_write, link->stream, &link->ack_iov, 1, done);
    assert(rc == MUSTER_OK);
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
    while ((frame = first_of(&link->unacked)) != NULL && frame->end <= received)
        muster_frame_finish(frame, MUSTER_OK);
    return true;
}

uint64_t muster_peer_link_unacked_bytes(const struct muster_peer_link *link)
{
    /* Without copies a frame is acknowledged before it counts as written. */
    return link->session == 0 || link->written < link->acked ? 0 : link->written - link->acked;
}

bool muster_peer_link_has_begun(const struct muster_peer_link *link,
                                const struct muster_frame *frame)
{
    return frame->write.bytes_done > 0 || frame->end <= link->begun_end;
}

/* Offset behind all that has begun to leave. */
static uint64_t begun_through(const struct muster_peer_link *link)
{
    uint64_t end = link->begun_end > link->written ? link->begun_end : link->written;

    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        const struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

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
    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        if (!muster_peer_link_has_begun(link, frame))
            frame->end = link->submitted += muster_frame_bytes(frame);
    }
}

/* --- The connection is lost --- */

/* The rest of a frame that was taken back: nobody needs it on another connection. */
static void drop_rests(struct muster_peer_link *link)
{
    struct muster_list *node = link->frames.next;

    if (link->void_end < link->begun_end)
        link->void_end = link->begun_end;
    while (node != &link->frames) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        node = node->next;
        if (frame->header.channel != 0)
            continue;
        link->queued_bytes -= muster_frame_bytes(frame);
        muster_frame_finish(frame, MUSTER_CANCELLED);
    }
}

/* What has not begun to leave has no offset yet. */
static void forget_offsets(struct muster_peer_link *link)
{
    drop_rests(link);
    link->submitted = begun_through(link);
    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        if (!muster_peer_link_has_begun(link, frame))
            frame->end = 0;
    }
}

static void take_back_unacked(struct muster_peer_link *link)
{
    struct muster_list *node;

    while ((node = link->unacked.prev) != &link->unacked) {
        muster_list_remove(node);
        muster_list_prepend(&link->frames, node);
        link->queued_bytes +=
            muster_frame_bytes(MUSTER_CONTAINER_OF(node, struct muster_frame, node));
    }
}

static void recall_read(struct muster_peer_link *link)
{
    uint32_t bytes;

    if (!link->is_reading || !link->is_reading_payload)
        return;
    bytes = (uint32_t)muster_stream_receive_recall(&link->read, link->stream);
    link->payload_done += bytes;
    link->received += bytes;
    link->is_reading = false;
}

static void forget_connection(struct muster_peer_link *link)
{
    if (link->stream != NULL) {
        muster_peer_link_recall_writes(link);
        recall_read(link);
    }
    take_back_unacked(link);
    if (link->state == MUSTER_LINK_READY)
        forget_offsets(link);
    muster_peer_link_drop_stream(link);
    link->inbox_begin = link->inbox_end = 0; /* not taken in: it comes again */
    link->turn_bytes = 0;
    link->state = MUSTER_LINK_BROKEN;
}

void muster_peer_link_lose(struct muster_peer_link *link, const struct muster_error *error)
{
    if (link->state >= MUSTER_LINK_BROKEN)
        return;
    if ((!link->is_met && !link->is_opener) || link->session == 0 ||
        link->events->on_broken == NULL) {
        muster_peer_link_fail(link, error);
        return;
    }
    forget_connection(link);
    link->events->on_broken(link, error);
}

void muster_peer_link_break(struct muster_peer_link *link, const struct muster_error *why)
{
    if (link->state == MUSTER_LINK_READY && link->session != 0)
        muster_peer_link_lose(link, why);
}

/* --- Going on --- */

/* Of a frame that has arrived in part only the rest is sent. */
static void skip(struct muster_peer_link *link, struct muster_frame *frame, size_t bytes)
{
    link->queued_bytes -= bytes;
    for (size_t i = 0; i < 2; i++) {
        size_t step = bytes < frame->iov[i].iov_len ? bytes : frame->iov[i].iov_len;

        frame->iov[i].iov_base = (uint8_t *)frame->iov[i].iov_base + step;
        frame->iov[i].iov_len -= step;
        bytes -= step;
    }
}

/* Where the peer, who has so much, goes on: what was taken back it does without. */
static uint64_t start_for(const struct muster_peer_link *link, uint64_t received)
{
    return received > link->void_end ? received : link->void_end;
}

/* What the peer lacks before that start must all have been taken back. */
static bool can_go_on(const struct muster_peer_link *link, uint64_t received)
{
    if (received < link->acked || received > link->submitted)
        return false;
    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        const struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        if (frame->end > received && frame->end - muster_frame_bytes(frame) < link->void_end)
            return false;
    }
    return true;
}

/* The peer goes on at `start`: a frame that has arrived in part will not come to its end. */
static void skip_to(struct muster_peer_link *link, uint64_t start)
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

static void go_on(struct muster_peer_link *link, uint64_t peer_received)
{
    uint64_t received = start_for(link, peer_received);
    struct muster_frame *frame;
    bool was_met = link->is_met;

    link->acked = peer_received; /* it has not heard yet that it shall skip */
    link->written = link->begun_end = received;
    while ((frame = first_of(&link->frames)) != NULL && frame->end != 0 && frame->end <= received) {
        link->queued_bytes -= muster_frame_bytes(frame);
        muster_frame_finish(frame, MUSTER_OK);
    }
    if (frame != NULL && frame->end != 0)
        skip(link, frame, (size_t)(received - (frame->end - muster_frame_bytes(frame))));
    link->submitted = received;
    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);
        frame->end = 0;
        muster_peer_link_submit(link, frame);
    }
    link->state = MUSTER_LINK_READY;
    link->is_met = true;
    muster_timer_stop(&link->timer);
    muster_task_post(&link->task, link->env->loop);
    if (!was_met)
        link->events->on_ready(link);
    else if (link->events->on_resumed != NULL)
        link->events->on_resumed(link);
}

static void hear_probe_answer(struct muster_peer_link *link)
{
    muster_timer_stop(&link->timer);
    link->state = MUSTER_LINK_READY;
    link->events->on_ready(link);
}

void muster_peer_link_hear_answer(struct muster_peer_link *link,
                                  const struct muster_frame_header *answer)
{
    struct muster_error error = {.rc = MUSTER_OK};
    bool is_probe = link->self.intent == MUSTER_LINK_PROBE;

    if (answer->channel != MUSTER_FRAME_LINK || answer->type != MUSTER_LINK_FRAME_ANSWER)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION, "the peer does not answer");
    else if (answer->flags == MUSTER_LINK_IS_LACKING)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION, "what is lacking here was taken back");
    else if (answer->flags != MUSTER_LINK_IS_KNOWN || answer->descriptor != link->session)
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "the peer does not know the connection any more");
    else if (!is_probe && !can_go_on(link, answer->received))
        muster_error_set(&error, MUSTER_FAILED_PRECONDITION,
                         "what is lacking there was taken back");
    else if (!link->is_opener && start_for(link, answer->received) != answer->received)
        muster_error_set(&error, MUSTER_UNAVAILABLE, "frames were taken back meanwhile");
    if (error.rc != MUSTER_OK) {
        muster_peer_link_lose(link, &error);
        return;
    }
    if (is_probe) {
        hear_probe_answer(link);
        return;
    }
    skip_to(link, answer->offset);
    if (link->is_opener)
        submit_link_frame(link, MUSTER_LINK_FRAME_ANSWER, MUSTER_LINK_IS_KNOWN,
                          start_for(link, answer->received), on_told);
    go_on(link, answer->received);
}

enum muster_rc muster_peer_link_reopen(struct muster_peer_link *link,
                                       const struct muster_address *address, uint64_t deadline_ns)
{
    if (link->state != MUSTER_LINK_BROKEN || !link->is_opener || link->is_connecting)
        return MUSTER_FAILED_PRECONDITION;
    link->self.intent = MUSTER_LINK_RESUME;
    link->self.received = link->received;
    link->self.connection = ++link->connection;
    return muster_peer_link_connect(link, address, deadline_ns);
}

/* `with` has no frames and no open request: its hello is out, the peer's has just been read, and
 * nothing follows that before the answer. */
enum muster_rc muster_peer_link_take_over(struct muster_peer_link *link,
                                          struct muster_peer_link *with)
{
    uint64_t received = with->peer.received;

    assert(with->state == MUSTER_LINK_READY && muster_list_is_empty(&with->frames));
    assert(!with->is_hello_queued);
    if (!muster_peer_link_is_met(link) || link->is_opener || link->session != with->peer.session ||
        !can_go_on(link, received))
        return MUSTER_FAILED_PRECONDITION;
    if (link->state != MUSTER_LINK_BROKEN)
        forget_connection(link);
    if (with->is_reading)
        muster_stream_receive_recall(&with->read, with->stream);
    with->is_reading = false;
    link->connection = with->peer.connection;
    link->stream = with->stream;
    with->stream = NULL;
    muster_peer_link_close(with);
    link->state = MUSTER_LINK_ANSWER; /* of the opener, who says where it goes on */
    submit_link_frame(link, MUSTER_LINK_FRAME_ANSWER, MUSTER_LINK_IS_KNOWN,
                      start_for(link, received), on_told);
    muster_timer_start(&link->timer, link->env->loop,
                       muster_loop_after_ns(link->env->loop, ANSWER_NS));
    muster_peer_link_receive(link);
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_begin_late(struct muster_peer_link *link)
{
    if (link->peer.received != 0)
        return MUSTER_FAILED_PRECONDITION;
    link->session = link->peer.session;
    link->connection = link->peer.connection;
    submit_link_frame(link, MUSTER_LINK_FRAME_ANSWER, MUSTER_LINK_IS_KNOWN, 0, on_told);
    return MUSTER_OK;
}

/* --- Answers that end a connection --- */

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
    take_back_unacked(link);
    drop_rests(link);
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
