/* A peer link: connect or accept, the queue of frames, recall, close. */
#include "net/link/peer_link_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "net/tls/stream.h"

#define QUEUED_COPY_BYTES_MAX (64u << 20) /* with those that the peer has not confirmed */
#define DATA_BUFFER_BYTES     (4u << 20)
#define USER_TIMEOUT_MS       20000u

/* A frame that the link owns: a copy of the caller's, or the rest of a recalled one. */
struct owned_frame {
    struct muster_frame frame;
    struct muster_mem *mem;
    uint8_t bytes[];
};

void muster_frame_finish(struct muster_frame *frame, enum muster_rc rc)
{
    muster_list_remove(&frame->node);
    frame->link = NULL;
    frame->done(frame, rc);
}

void muster_peer_link_recall_writes(struct muster_peer_link *link)
{
    if (link->is_hello_queued)
        muster_stream_submit_recall(&link->hello_write, link->stream);
    if (link->is_ack_queued)
        muster_stream_submit_recall(&link->ack_write, link->stream);
    link->is_hello_queued = link->is_ack_queued = false;
    for (struct muster_list *node = link->frames.next; node != &link->frames; node = node->next) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        if (frame->write.data != NULL)
            muster_stream_submit_recall(&frame->write, link->stream);
        frame->write.data = NULL;
    }
}

/* The stream forgets every write first: callbacks may close the link. */
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
    if (link->is_connecting)
        muster_dial_cancel(&link->dial);
    if (link->stream == NULL)
        return;
    if (link->is_reading)
        muster_stream_receive_recall(&link->read, link->stream);
    link->is_reading = false;
    muster_stream_close(link->stream, NULL);
    link->stream = NULL;
}

void muster_peer_link_fail(struct muster_peer_link *link, const struct muster_error *error)
{
    if (link->state >= MUSTER_LINK_DOWN)
        return;
    link->error = *error;
    link->state = MUSTER_LINK_DOWN;
    end_all_frames(link, MUSTER_UNAVAILABLE);
    if (link->state == MUSTER_LINK_CLOSED)
        return;
    muster_peer_link_drop_stream(link);
    link->events->on_down(link, &link->error);
}

/* --- Sending --- */

static void on_written(struct muster_stream_write *write, enum muster_rc rc)
{
    struct muster_frame *frame = write->data;
    struct muster_peer_link *link = frame->link;
    struct muster_error error;

    write->data = NULL;
    if (rc != MUSTER_OK) {
        muster_peer_link_lost_error(link, "the connection was lost", &error);
        muster_peer_link_lose(link, &error);
        return;
    }
    link->queued_bytes -= muster_frame_bytes(frame);
    link->written = frame->end;
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

    if (frame->end == 0)
        frame->end = link->submitted += muster_frame_bytes(frame);
    frame->write.data = frame;
    rc = muster_stream_submit(&frame->write, link->stream, frame->iov,
                              frame->iov[1].iov_len > 0 ? 2 : 1, on_written);
    assert(rc == MUSTER_OK);
    (void)rc;
}

/* The frame, or the head of the list, behind which this one goes. */
static struct muster_list *place_of(struct muster_peer_link *link, const struct muster_frame *frame)
{
    struct muster_list *node = link->frames.prev;

    while (node != &link->frames) {
        const struct muster_frame *other = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        if (other->priority >= frame->priority || other->header.channel == 0 ||
            other->header.channel == MUSTER_FRAME_STRIPE || muster_peer_link_has_begun(link, other))
            break;
        node = node->prev;
    }
    return node;
}

/* Those behind it have not begun: the stream gives them back and gets them again. */
static void submit_before(struct muster_peer_link *link, struct muster_frame *frame)
{
    struct muster_list *node;

    for (node = link->frames.prev; node != &frame->node; node = node->prev) {
        struct muster_frame *other = MUSTER_CONTAINER_OF(node, struct muster_frame, node);
        size_t sent = muster_stream_submit_recall(&other->write, link->stream);

        assert(sent == 0);
        (void)sent;
    }
    for (node = &frame->node; node != &link->frames; node = node->next)
        muster_peer_link_submit(link, MUSTER_CONTAINER_OF(node, struct muster_frame, node));
    muster_peer_link_renumber(link);
}

static void queue_frame(struct muster_peer_link *link, struct muster_frame *frame,
                        muster_frame_done_fn *done)
{
    frame->done = done;
    frame->link = link;
    frame->write.data = NULL;
    frame->end = 0;
    muster_list_prepend(place_of(link, frame), &frame->node);
    link->queued_bytes += muster_frame_bytes(frame);
    if (link->state == MUSTER_LINK_READY && frame->node.next == &link->frames)
        muster_peer_link_submit(link, frame);
    else if (link->state == MUSTER_LINK_READY)
        submit_before(link, frame);
}

enum muster_rc muster_peer_link_send(struct muster_frame *frame, struct muster_peer_link *link,
                                     muster_frame_done_fn *done)
{
    if (link->state >= MUSTER_LINK_DOWN)
        return MUSTER_FAILED_PRECONDITION;
    assert(frame->header.payload_bytes <= MUSTER_FRAME_PAYLOAD_MAX);
    frame->header.received = link->received_told = link->received;
    link->untold_frames = 0;
    muster_frame_header_pack(&frame->header, frame->packed);
    frame->iov[0].iov_base = frame->packed;
    frame->iov[0].iov_len = sizeof(frame->packed);
    memcpy(&frame->iov[1].iov_base, &frame->payload, sizeof(frame->payload));
    frame->iov[1].iov_len = frame->header.payload_bytes;
    queue_frame(link, frame, done);
    return MUSTER_OK;
}

static void on_owned_done(struct muster_frame *frame, enum muster_rc rc)
{
    struct owned_frame *owned = frame->data;

    (void)rc;
    muster_mem_free(owned->mem, owned);
}

static struct owned_frame *owned_frame_new(struct muster_peer_link *link, size_t bytes)
{
    struct owned_frame *owned = muster_mem_alloc(link->env->mem, sizeof(*owned) + bytes);

    if (owned == NULL)
        return NULL;
    memset(owned, 0, sizeof(*owned));
    owned->mem = link->env->mem;
    owned->frame.data = owned;
    return owned;
}

enum muster_rc muster_peer_link_send_copy(struct muster_peer_link *link,
                                          const struct muster_frame_header *header,
                                          const void *payload)
{
    struct owned_frame *owned;
    enum muster_rc rc;

    if (link->queued_bytes + muster_peer_link_unacked_bytes(link) + header->payload_bytes >
        QUEUED_COPY_BYTES_MAX)
        return MUSTER_RESOURCE_EXHAUSTED;
    owned = owned_frame_new(link, header->payload_bytes);
    if (owned == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    owned->frame.header = *header;
    owned->frame.payload = owned->bytes;
    if (header->payload_bytes > 0)
        memcpy(owned->bytes, payload, header->payload_bytes);
    rc = muster_peer_link_send(&owned->frame, link, on_owned_done);
    if (rc != MUSTER_OK)
        muster_mem_free(owned->mem, owned);
    return rc;
}

/* What is left of a partly sent frame goes out first, from our own memory. */
static bool send_rest(struct muster_peer_link *link, const struct muster_frame *frame, size_t sent,
                      struct muster_list *before)
{
    size_t left = muster_frame_bytes(frame) - sent;
    struct owned_frame *owned = owned_frame_new(link, left);
    uint8_t *at;

    if (owned == NULL)
        return false;
    at = owned->bytes;
    for (size_t i = 0; i < 2; i++) {
        size_t skip = sent < frame->iov[i].iov_len ? sent : frame->iov[i].iov_len;
        size_t bytes = frame->iov[i].iov_len - skip;

        if (bytes > 0)
            memcpy(at, (const uint8_t *)frame->iov[i].iov_base + skip, bytes);
        at += bytes;
        sent -= skip;
    }
    owned->frame.iov[0].iov_base = owned->bytes;
    owned->frame.iov[0].iov_len = left;
    owned->frame.done = on_owned_done;
    owned->frame.link = link;
    owned->frame.end = frame->end;
    muster_list_append(before, &owned->frame.node);
    link->queued_bytes += left;
    muster_peer_link_submit(link, &owned->frame);
    return true;
}

/* Returns false when the rest could not be kept: then the byte stream is torn. */
static bool recall_frame(struct muster_peer_link *link, struct muster_frame *frame)
{
    struct muster_list *after = frame->node.next;
    bool is_whole = true;

    if (link->is_met && link->state != MUSTER_LINK_READY && frame->end > link->void_end)
        link->void_end = frame->end; /* nobody knows how much of it the peer has */
    muster_list_remove(&frame->node);
    link->queued_bytes -= muster_frame_bytes(frame);
    frame->link = NULL;
    if (frame->write.data != NULL) {
        size_t sent = muster_stream_submit_recall(&frame->write, link->stream);

        frame->write.data = NULL;
        if (sent > 0)
            link->begun_end = frame->end;
        if (sent == muster_frame_bytes(frame) && frame->end > link->void_end)
            link->void_end = frame->end;
        if (sent > 0 && sent < muster_frame_bytes(frame))
            is_whole = send_rest(link, frame, sent, after);
    }
    return is_whole;
}

/* They are out, but nobody can send them again. */
static void recall_unacked(struct muster_peer_link *link, const struct muster_frame_match *match)
{
    struct muster_list *node = link->unacked.next;

    while (node != &link->unacked) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        node = node->next;
        if (!muster_frame_is_match(match, &frame->header))
            continue;
        if (frame->end > link->void_end)
            link->void_end = frame->end;
        muster_list_remove(&frame->node);
        frame->link = NULL;
    }
}

void muster_peer_link_recall_matching(struct muster_peer_link *link,
                                      const struct muster_frame_match *match)
{
    struct muster_list *node = link->frames.next;

    recall_unacked(link, match);
    while (node != &link->frames) {
        struct muster_frame *frame = MUSTER_CONTAINER_OF(node, struct muster_frame, node);

        node = node->next;
        if (!muster_frame_is_match(match, &frame->header) || recall_frame(link, frame))
            continue;
        muster_error_set(&link->error, MUSTER_RESOURCE_EXHAUSTED,
                         "no memory for the rest of a frame");
        muster_task_post(&link->task, link->env->loop);
    }
    muster_peer_link_renumber(link);
}

void muster_peer_link_recall(struct muster_peer_link *link, uint64_t epoch)
{
    const struct muster_frame_match match = {.epoch_end = epoch};

    muster_peer_link_recall_matching(link, &match);
}

void muster_peer_link_recall_op(struct muster_peer_link *link, const struct muster_op_id *op,
                                uint8_t kept_type)
{
    const struct muster_frame_match match = {.epoch_end = UINT64_MAX, .op = op};

    muster_peer_link_recall_matching(link, &match);
    if (link->header.type != kept_type)
        muster_peer_link_discard_matching(link, &match);
}

/* --- Connecting --- */

static void on_connected(struct muster_dial *dial, enum muster_rc rc)
{
    struct muster_peer_link *link = dial->data;

    link->is_connecting = false;
    if (link->state == MUSTER_LINK_CLOSED) {
        if (rc == MUSTER_OK)
            muster_stream_close(dial->stream, NULL);
        muster_task_post(&link->task, link->env->loop);
        return;
    }
    if (link->state != MUSTER_LINK_CONNECTING) {
        if (rc == MUSTER_OK)
            muster_stream_close(dial->stream, NULL);
        return; /* DOWN, or an attempt to resume that was given up */
    }
    if (rc != MUSTER_OK) {
        muster_peer_link_lose(link, &dial->error);
        return;
    }
    link->stream = dial->stream;
    muster_peer_link_greet(link);
}

static void on_deadline(struct muster_timer *timer)
{
    struct muster_peer_link *link = timer->data;
    struct muster_error error;

    muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED, "the peer did not say hello in time");
    muster_peer_link_lose(link, &error);
}

/* --- Life --- */

static void on_task(struct muster_task *task)
{
    struct muster_peer_link *link = task->data;

    if (link->state == MUSTER_LINK_CLOSED) {
        if (!link->is_connecting)
            muster_mem_free(link->env->mem, link);
        return;
    }
    if (link->error.rc != MUSTER_OK && link->state != MUSTER_LINK_DOWN)
        muster_peer_link_fail(link, &link->error);
    else if (link->state == MUSTER_LINK_READY) {
        link->turn_bytes = 0;
        muster_peer_link_receive(link);
    }
}

static enum muster_rc link_new(struct muster_env *env, const struct muster_peer_hello *hello,
                               const struct muster_peer_link_events *events, void *data,
                               struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = muster_mem_alloc_zero(env->mem, 1, sizeof(*link));

    if (link == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    link->env = env;
    link->events = events;
    link->data = data;
    link->self = *hello;
    link->self.version = MUSTER_PEER_VERSION;
    muster_list_init(&link->frames);
    muster_list_init(&link->unacked);
    muster_timer_init(&link->timer, on_deadline, link);
    muster_timer_init(&link->ack_timer, muster_peer_link_on_ack_due, link);
    muster_task_init(&link->task, on_task, link);
    *ret_link = link;
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_connect(struct muster_peer_link *link,
                                        const struct muster_address *address, uint64_t deadline_ns)
{
    struct muster_stream_options stream = {.user_timeout_ms = USER_TIMEOUT_MS};
    bool is_bare = link->self.keys != NULL && link->self.purpose != MUSTER_LINK_CONTROL;
    struct muster_address scoped = *address;
    const struct muster_dial_options options = {.tls = is_bare ? NULL : link->env->tls,
                                                .server_name = MUSTER_PEER_PROTOCOL,
                                                .protocols = MUSTER_PEER_PROTOCOL,
                                                .stream = &stream};
    enum muster_rc rc;

    if (is_bare && !muster_link_keys_has(link->self.keys, &link->self.target))
        return MUSTER_FAILED_PRECONDITION;
    link->is_bare = is_bare;
    if (link->self.purpose == MUSTER_LINK_DATA) {
        stream.send_buffer_bytes = DATA_BUFFER_BYTES;
        stream.receive_buffer_bytes = DATA_BUFFER_BYTES;
    }
    link->dial.data = link;
    if (link->self.scope_id != 0 && muster_address_is_link_local(address))
        scoped.scope_id =
            link->self.scope_id; /* the peer's number of the link means nothing here */
    rc = muster_dial_start(&link->dial, link->env->net, &scoped, &options, deadline_ns,
                           on_connected);
    if (rc != MUSTER_OK)
        return rc;
    link->state = MUSTER_LINK_CONNECTING;
    link->is_connecting = true;
    muster_timer_start(&link->timer, link->env->loop, deadline_ns);
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_open(struct muster_env *env, const struct muster_address *address,
                                     const struct muster_peer_hello *hello, uint64_t deadline_ns,
                                     const struct muster_peer_link_events *events, void *data,
                                     struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = NULL;
    enum muster_rc rc = link_new(env, hello, events, data, &link);

    if (rc != MUSTER_OK)
        return rc;
    link->is_opener = true;
    if (hello->intent == MUSTER_LINK_NEW && hello->session == 0 &&
        hello->purpose != MUSTER_LINK_STATE)
        link->self.session = muster_rng_next(env->rng) | 1;
    link->session = link->self.session;
    rc = muster_peer_link_connect(link, address, deadline_ns);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, link);
        return rc;
    }
    *ret_link = link;
    return MUSTER_OK;
}

enum muster_rc muster_peer_link_accept(struct muster_env *env, struct muster_stream *stream,
                                       const struct muster_peer_hello *hello, uint64_t deadline_ns,
                                       const struct muster_peer_link_events *events, void *data,
                                       struct muster_peer_link **ret_link)
{
    struct muster_peer_link *link = NULL;
    enum muster_rc rc = link_new(env, hello, events, data, &link);

    if (rc != MUSTER_OK) {
        muster_stream_close(stream, NULL);
        return rc;
    }
    link->self.purpose = MUSTER_LINK_AS_OPENED;
    link->stream = stream;
    link->is_bare = link->self.keys != NULL && !muster_tls_stream_is_one(stream);
    muster_timer_start(&link->timer, env->loop, deadline_ns);
    muster_peer_link_greet(link);
    *ret_link = link;
    return MUSTER_OK;
}

void muster_peer_link_close(struct muster_peer_link *link)
{
    if (link == NULL || link->state == MUSTER_LINK_CLOSED)
        return;
    link->state = MUSTER_LINK_CLOSED;
    end_all_frames(link, MUSTER_CANCELLED);
    muster_peer_link_drop_stream(link);
    muster_task_post(&link->task, link->env->loop);
}

void *muster_peer_link_data(const struct muster_peer_link *link)
{
    return link->data;
}

void muster_peer_link_set_owner(struct muster_peer_link *link,
                                const struct muster_peer_link_events *events, void *data)
{
    link->events = events;
    link->data = data;
}

const struct muster_peer_hello *muster_peer_link_hello(const struct muster_peer_link *link)
{
    return &link->peer;
}

bool muster_peer_link_is_ready(const struct muster_peer_link *link)
{
    return link->state == MUSTER_LINK_READY;
}

bool muster_peer_link_is_met(const struct muster_peer_link *link)
{
    return link->is_met && link->state < MUSTER_LINK_DOWN;
}

bool muster_peer_link_is_opener(const struct muster_peer_link *link)
{
    return link->is_opener;
}

size_t muster_peer_link_queued_bytes(const struct muster_peer_link *link)
{
    return link->queued_bytes;
}
