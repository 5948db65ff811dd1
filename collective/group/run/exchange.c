/* Exchanges: each member sends each other its part, in pieces, straight from and into the caller's
 * memory. */
#include "collective/group/group_internal.h"

#include <assert.h>
#include <string.h>

/* Pieces on their way to one member, beyond the last that it is known to have. */
#define WINDOW 4u
/* The receiver says how far it is after so many pieces. */
#define NEWS_PIECES (WINDOW / 2)

/* --- Who sends what to whom --- */

static uint64_t part_bytes(const struct muster_run *run)
{
    return run->call.part_count * run->plan.element_bytes;
}

/* Only addresses: where nothing is sent or received there may be no memory. */
static uint8_t *at(const void *base, uint64_t offset)
{
    return (uint8_t *)((uintptr_t)base + offset);
}

static void send_part(struct muster_run *run, uint32_t to, uint64_t offset, uint64_t bytes)
{
    run->peers[to].send_at = at(run->call.input, offset);
    run->peers[to].send_bytes = bytes;
}

static void receive_part(struct muster_run *run, uint32_t from, uint64_t offset, uint64_t bytes)
{
    run->peers[from].receive_at = at(run->call.output, offset);
    run->peers[from].receive_bytes = bytes;
}

static void share_uneven(struct muster_run *run)
{
    const uint64_t *input = run->call.offsets, *output = run->call.offsets + run->plan.n + 1;
    size_t bytes = run->plan.element_bytes;

    for (uint32_t i = 0; i < run->plan.n; i++) {
        send_part(run, i, input[i] * bytes, (input[i + 1] - input[i]) * bytes);
        receive_part(run, i, output[i] * bytes, (output[i + 1] - output[i]) * bytes);
    }
}

static void share_along_route(struct muster_run *run)
{
    uint64_t bytes = run->call.count * run->plan.element_bytes;

    if (run->call.route.to != MUSTER_RANK_NONE)
        send_part(run, run->call.route.to, 0, bytes);
    if (run->call.route.from != MUSTER_RANK_NONE)
        receive_part(run, run->call.route.from, 0, bytes);
}

static void share(struct muster_run *run)
{
    uint64_t part = part_bytes(run);
    uint32_t self = run->plan.index, root = run->plan.root;

    switch (run->plan.kind) {
    case MUSTER_OP_GATHER:
        send_part(run, root, 0, part);
        for (uint32_t i = 0; i < run->plan.n && self == root; i++)
            receive_part(run, i, i * part, part);
        break;
    case MUSTER_OP_SCATTER:
        receive_part(run, root, 0, part);
        for (uint32_t i = 0; i < run->plan.n && self == root; i++)
            send_part(run, i, i * part, part);
        break;
    case MUSTER_OP_ALL_TO_ALL:
        for (uint32_t i = 0; i < run->plan.n; i++) {
            send_part(run, i, i * part, part);
            receive_part(run, i, i * part, part);
        }
        break;
    case MUSTER_OP_ALL_TO_ALL_UNEVEN:
        share_uneven(run);
        break;
    case MUSTER_OP_PERMUTE:
        share_along_route(run);
        break;
    default:
        assert(false);
    }
}

/* What one says about the other's part is checked by both. */
static bool is_checked(const struct muster_run *run)
{
    return run->plan.kind == MUSTER_OP_ALL_TO_ALL_UNEVEN || run->plan.kind == MUSTER_OP_PERMUTE;
}

/* --- Sending --- */

static uint64_t piece_bytes(const struct muster_run *run)
{
    return run->plan.chunk_elements * run->plan.element_bytes;
}

static uint64_t piece_count(const struct muster_run *run, uint64_t bytes)
{
    return (bytes + piece_bytes(run) - 1) / piece_bytes(run);
}

static uint32_t length_of(const struct muster_run *run, uint64_t bytes, uint64_t piece)
{
    uint64_t left = bytes - piece * piece_bytes(run);

    return (uint32_t)(left < piece_bytes(run) ? left : piece_bytes(run));
}

static void send_frame(struct muster_run *run, enum muster_frame_type type, uint32_t participant,
                       uint32_t piece, uint64_t bytes, const void *payload, uint32_t payload_bytes)
{
    struct muster_group *group = run->group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = (uint8_t)type,
        .payload_bytes = payload_bytes,
        .epoch = group->view->epoch,
        .op = run->id,
        .chunk = piece,
        .offset = bytes / run->plan.element_bytes,
        .descriptor = run->descriptor,
    };

    run->result.sent_bytes += payload_bytes;
    muster_wire_send(group->wire, muster_op_participant_rank(group, &run->id, participant),
                     &header, payload, NULL);
}

static void pump(struct muster_run *run, uint32_t participant)
{
    struct muster_exchange_peer *peer = &run->peers[participant];
    uint64_t count = piece_count(run, peer->send_bytes);

    while (peer->sent < count && peer->sent < peer->allowed) {
        uint32_t piece = peer->sent++;

        send_frame(run, MUSTER_FRAME_PIECE, participant, piece, peer->send_bytes,
                   peer->send_at + piece * piece_bytes(run),
                   length_of(run, peer->send_bytes, piece));
    }
}

static void say_started(struct muster_run *run, uint32_t participant)
{
    const struct muster_exchange_peer *peer = &run->peers[participant];

    send_frame(run, MUSTER_FRAME_START, participant, peer->received, peer->receive_bytes, NULL, 0);
}

/* Little goes at once: the others keep it until they have started. */
static uint32_t first_allowed(const struct muster_run *run, const struct muster_exchange_peer *peer)
{
    return peer->send_bytes <= muster_plan_direct_max_bytes(&run->group->view->plan) ? WINDOW : 0;
}

static void copy_own(struct muster_run *run)
{
    const struct muster_exchange_peer *own = &run->peers[run->plan.index];

    assert(own->send_bytes == own->receive_bytes);
    if (own->receive_bytes > 0 && own->receive_at != own->send_at)
        memcpy(own->receive_at, own->send_at, own->receive_bytes);
}

static void complete_if_whole(struct muster_run *run)
{
    if (run->state == MUSTER_RUN_ACTIVE && run->peers_left == 0 && !muster_run_awaits_root(run))
        muster_run_complete(run);
}

void muster_exchange_start(struct muster_run *run)
{
    uint32_t n = run->plan.n;

    share(run);
    copy_own(run);
    run->peers_left = 0;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t participant = (run->plan.index + i) % n;
        struct muster_exchange_peer *peer = &run->peers[participant];

        peer->allowed = first_allowed(run, peer);
        peer->is_awaited = peer->receive_bytes > 0 || is_checked(run);
        run->peers_left += peer->is_awaited;
        /* the one before hears in any case: who means something else is found out somewhere */
        if (peer->is_awaited || i == n - 1)
            say_started(run, participant);
    }
    for (uint32_t i = 1; i < n; i++)
        pump(run, (run->plan.index + i) % n);
    complete_if_whole(run);
}

/* Is nothing awaited any more from it? */
static void hear_if_whole(struct muster_run *run, uint32_t participant)
{
    struct muster_exchange_peer *peer = &run->peers[participant];
    bool has_all = peer->received == piece_count(run, peer->receive_bytes);

    if (!peer->is_awaited || !has_all || (is_checked(run) && !peer->has_started))
        return;
    peer->is_awaited = false;
    run->peers_left--;
    complete_if_whole(run);
}

void muster_exchange_hear_start(struct muster_run *run, uint32_t participant,
                                const struct muster_frame_header *header)
{
    struct muster_exchange_peer *peer = &run->peers[participant];
    uint64_t sent = peer->send_bytes / run->plan.element_bytes;

    if (run->is_adopting || run->state > MUSTER_RUN_COMPLETE)
        return;
    if (header->offset != sent) {
        muster_run_dispute(run, participant, sent, header->offset, true);
        return;
    }
    peer->has_started = true;
    if (header->chunk <= peer->sent && header->chunk + WINDOW > peer->allowed)
        peer->allowed = header->chunk + WINDOW;
    pump(run, participant);
    hear_if_whole(run, participant);
}

/* --- Receiving --- */

static bool is_expected(const struct muster_run *run, const struct muster_exchange_peer *peer,
                        const struct muster_frame_header *header)
{
    uint32_t piece = header->chunk;

    return piece < piece_count(run, peer->receive_bytes) && piece >= peer->received &&
           piece - peer->received < WINDOW &&
           (peer->beyond >> (piece - peer->received) & 1u) == 0 &&
           header->payload_bytes == length_of(run, peer->receive_bytes, piece);
}

void *muster_exchange_receive(struct muster_run *run, uint32_t participant,
                              const struct muster_frame_header *header,
                              struct muster_receiving *receiving)
{
    struct muster_exchange_peer *peer;
    uint64_t expected;

    if (run->plan.algorithm != MUSTER_ALGORITHM_EXCHANGE || run->is_adopting ||
        run->state != MUSTER_RUN_ACTIVE)
        return NULL;
    peer = &run->peers[participant];
    expected = peer->receive_bytes / run->plan.element_bytes;
    if (header->offset != expected) {
        muster_run_dispute(run, participant, header->offset, expected, false);
        return NULL;
    }
    if (!is_expected(run, peer, header)) {
        muster_wire_refuse(run->group->wire,
                           muster_op_participant_rank(run->group, &run->id, participant),
                           "a piece came that nobody awaits");
        return NULL;
    }
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->run = run;
    receiving->type = header->type;
    receiving->chunk = header->chunk;
    return peer->receive_at + header->chunk * piece_bytes(run);
}

void muster_exchange_finish(struct muster_run *run, uint32_t participant,
                            const struct muster_receiving *receiving)
{
    struct muster_exchange_peer *peer = &run->peers[participant];
    uint64_t count = piece_count(run, peer->receive_bytes);
    uint32_t before = peer->received;

    peer->beyond |= 1u << (receiving->chunk - before);
    while ((peer->beyond & 1u) != 0) {
        peer->beyond >>= 1;
        peer->received++;
    }
    if (before / NEWS_PIECES != peer->received / NEWS_PIECES && peer->received < count)
        say_started(run, participant);
    hear_if_whole(run, participant);
}
