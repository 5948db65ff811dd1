/* The sending half of the TCP wire: frames, failpoints, recall. A frame is allocated once and then
 * reused, so a steady training step allocates nothing here. */
#include "collective/wire/wire_tcp_internal.h"

#include <muster/base.h>

#include "collective/view/progress.h"

#include <string.h>

/* --- Frames --- */

static void frame_release(struct wire_frame *out)
{
    muster_list_remove(&out->node);
    muster_buffer_unref(out->buffer);
    out->buffer = NULL;
    muster_list_prepend(&out->peer->wire->idle_frames, &out->node);
}

/* The outcome does not matter to the frame: a lost link is told by on_down or on_broken. */
static void on_frame_done(struct muster_frame *frame, enum muster_rc rc)
{
    (void)rc;
    frame_release(frame->data);
}

static struct wire_frame *frame_take(struct muster_wire *wire)
{
    struct muster_list *node = muster_list_pop(&wire->idle_frames);
    struct wire_frame *out;

    if (node != NULL)
        return MUSTER_CONTAINER_OF(node, struct wire_frame, node);
    out = muster_mem_alloc_zero(wire->env->mem, 1, sizeof(*out));
    if (out != NULL)
        muster_list_init(&out->node);
    return out;
}

void muster_wire_release_frames(struct muster_wire_peer *peer)
{
    while (!muster_list_is_empty(&peer->frames))
        frame_release(MUSTER_CONTAINER_OF(peer->frames.next, struct wire_frame, node));
}

/* --- Failpoint --- */

/* Only frames that carry a part of the result are points; NULL: the frame is none. */
static const char *phase_of(uint8_t type)
{
    switch (type) {
    case MUSTER_FRAME_REDUCE:
        return "reduce";
    case MUSTER_FRAME_GATHER:
        return "gather";
    case MUSTER_FRAME_STEP:
        return "step";
    case MUSTER_FRAME_INPUT:
        return "direct";
    case MUSTER_FRAME_CHUNK:
        return "repair";
    case MUSTER_FRAME_PIECE:
        return "exchange";
    case MUSTER_FRAME_MESSAGE:
        return "message";
    default:
        return NULL;
    }
}

/* From outside the process looks dead: no link, and nothing leaves any more. Peers are kept,
 * because callers further up still hold pointers to them. */
static void cut_wire(struct muster_wire *wire)
{
    wire->is_cut = true;
    MUSTER_LIST_EACH (&wire->peers, peer, struct muster_wire_peer, node) {
        muster_timer_stop(&peer->retry);
        muster_wire_drop_links(peer);
        muster_wire_release_frames(peer);
    }
}

bool muster_wire_pass_point(struct muster_wire *wire, const struct muster_frame_header *header,
                            bool is_send)
{
    struct muster_wire_point at = {.op = header->op,
                                   .chunk = header->chunk,
                                   .phase = phase_of(header->type),
                                   .is_send = is_send};

    if (wire->failpoint == NULL || at.phase == NULL)
        return true;
    if (wire->failpoint(wire->failpoint_data, &at))
        cut_wire(wire);
    return !wire->is_cut;
}

void muster_wire_set_failpoint(struct muster_wire *wire, muster_wire_point_fn *fn, void *data)
{
    wire->failpoint = fn;
    wire->failpoint_data = data;
}

/* After a large frame it goes on over the next stripe, or stays when there is no memory to say so.
 * Nothing overtakes a mark, so there are none where lanes have priorities. */
static void take_turn(struct muster_wire_peer *peer, const struct wire_frame *out)
{
    struct muster_peer_link *link = peer->stripes[peer->send_stripe].link;
    struct wire_frame *mark;

    if (peer->stripe_count == 1 || peer->wire->has_priorities ||
        out->frame.header.payload_bytes < peer->wire->stripe_bytes_min)
        return;
    mark = frame_take(peer->wire);
    if (mark == NULL)
        return;
    mark->peer = peer;
    mark->buffer = NULL;
    mark->frame = (struct muster_frame){.data = mark, .header.channel = MUSTER_FRAME_STRIPE};
    muster_list_append(&peer->marks, &mark->node);
    if (muster_peer_link_send(&mark->frame, link, on_frame_done) == MUSTER_OK)
        peer->send_stripe = (peer->send_stripe + 1) % peer->stripe_count;
    else
        frame_release(mark);
}

static bool send_frame(struct muster_wire_peer *peer, struct wire_frame *out)
{
    struct muster_peer_link *link = peer->stripes[peer->send_stripe].link;

    if (muster_peer_link_send(&out->frame, link, on_frame_done) != MUSTER_OK)
        return false;
    take_turn(peer, out);
    return true;
}

/* A frame that cannot be sent is no error of its caller: the peer is lost, and the group hears of
 * that by on_link_down. Without memory the link is given up: a gap in its frames would go
 * unnoticed. */
void muster_wire_send(struct muster_wire *wire, uint32_t rank,
                      const struct muster_frame_header *header, const void *payload, void *buffer)
{
    struct muster_wire_peer *peer = muster_wire_member(wire, rank);
    struct wire_frame *out = NULL;

    if (!wire->is_cut && muster_wire_pass_point(wire, header, true) && !peer->is_broken)
        out = frame_take(wire);
    if (out == NULL) {
        muster_buffer_unref(buffer);
        if (!wire->is_cut && !peer->is_broken)
            muster_wire_refuse(wire, rank, "no memory for a frame");
        return;
    }
    muster_wire_expect(wire);
    out->peer = peer;
    out->buffer = buffer;
    out->frame.data = out;
    out->frame.header = *header;
    out->frame.payload = payload;
    out->frame.priority = wire->priorities[MUSTER_LANE_INDEX(header->op.lane) % MUSTER_LANES_MAX];
    muster_list_append(&peer->frames, &out->node);
    if (muster_wire_is_linked(peer) && !send_frame(peer, out))
        frame_release(out);
}

void muster_wire_set_priority(struct muster_wire *wire, uint32_t lane, uint8_t priority)
{
    MUSTER_ASSERT(lane < MUSTER_LANES_MAX);
    wire->priorities[lane] = priority;
    wire->has_priorities = false;
    for (uint32_t i = 0; i < MUSTER_LANES_MAX; i++)
        wire->has_priorities = wire->has_priorities || wire->priorities[i] != 0;
}

void muster_wire_recall(struct muster_wire *wire, uint64_t epoch)
{
    MUSTER_LIST_EACH (&wire->peers, peer, struct muster_wire_peer, node) {
        for (uint32_t i = 0; i < peer->stripe_count; i++) {
            struct muster_peer_link *link = peer->stripes[i].link;

            if (link == NULL)
                continue;
            muster_peer_link_recall(link, epoch);
            muster_peer_link_discard_receiving(link, epoch);
        }
        muster_wire_release_frames(peer);
    }
}

static void release_op(struct muster_wire_peer *peer, const struct muster_op_id *op)
{
    MUSTER_LIST_EACH_SAFE (&peer->frames, out, struct wire_frame, node) {
        if (muster_op_id_compare(&out->frame.header.op, op) == 0)
            frame_release(out);
    }
}

void muster_wire_recall_op(struct muster_wire *wire, const struct muster_op_id *op)
{
    MUSTER_LIST_EACH (&wire->peers, peer, struct muster_wire_peer, node) {
        for (uint32_t i = 0; i < peer->stripe_count; i++)
            if (peer->stripes[i].link != NULL)
                muster_peer_link_recall_op(peer->stripes[i].link, op, MUSTER_FRAME_MISMATCH);
        release_op(peer, op);
    }
}

/* Frames that have left stay in `frames` until the peer has said that it has them, so a peer with
 * links is asked for what has not left. */
static bool is_idle(const struct muster_wire_peer *peer)
{
    if (!muster_wire_is_linked(peer))
        return muster_list_is_empty(&peer->frames);
    for (uint32_t i = 0; i < peer->stripe_count; i++)
        if (muster_peer_link_queued_bytes(peer->stripes[i].link) > 0)
            return false;
    return true;
}

bool muster_wire_is_idle(const struct muster_wire *wire)
{
    for (struct muster_list *node = wire->peers.next; node != &wire->peers; node = node->next)
        if (!is_idle(MUSTER_CONTAINER_OF(node, struct muster_wire_peer, node)))
            return false;
    return true;
}

void muster_wire_send_pending(struct muster_wire_peer *peer)
{
    MUSTER_LIST_EACH (&peer->frames, out, struct wire_frame, node) {
        bool is_sent = send_frame(peer, out); /* links refuse frames only when they are down */

        MUSTER_ASSERT(is_sent);
        (void)is_sent;
    }
}
