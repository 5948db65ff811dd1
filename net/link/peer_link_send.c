/* The sending half of a peer link: the queue of frames by priority, copies, and what is taken back.
 */
#include "net/link/peer_link_internal.h"

#include <string.h>

/* Copies are for small control messages: a peer that leaves so many unread is stuck, and
 * its sender must not use up memory for it. Those that the peer has not confirmed count as well. */
#define QUEUED_COPY_BYTES_MAX (64u << 20)

/* A frame that the link owns: a copy of the caller's, or the rest of a recalled one. */
struct owned_frame {
    struct muster_frame frame;
    struct muster_mem *mem;
    uint8_t bytes[];
};

/* The frame, or the head of the list, after which this one goes. Nothing overtakes a frame that
 * has begun to leave, the rest of a recalled one (channel 0), or a mark between stripes. */
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

/* Those after it have not begun: the stream gives them back and gets them again. */
static void submit_before(struct muster_peer_link *link, struct muster_frame *frame)
{
    struct muster_list *node;

    for (node = link->frames.prev; node != &frame->node; node = node->prev) {
        struct muster_frame *other = MUSTER_CONTAINER_OF(node, struct muster_frame, node);
        size_t sent = muster_stream_submit_recall(&other->write, link->stream);

        MUSTER_ASSERT(sent == 0);
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
    MUSTER_ASSERT(frame->header.payload_bytes <= MUSTER_FRAME_PAYLOAD_MAX);
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

/* The rest of a partly sent frame goes out first, from our own memory. */
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
    MUSTER_LIST_EACH_SAFE(&link->unacked, frame, struct muster_frame, node) {
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
    recall_unacked(link, match);
    MUSTER_LIST_EACH_SAFE(&link->frames, frame, struct muster_frame, node) {
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
