/* Exchanges: each member sends each other its part, in pieces, straight from and into the caller's
 * memory. START tells a sender that the receiver's memory is ready and how far it is, so pieces of a large part never
 * wait in the library. */
#include "collective/group/run/executor.h"
#include "collective/wire/buffer_pool.h"

#include <muster/base.h>

#include <string.h>

/* Pieces on their way to one member, beyond the last that it is known to have. */
#define WINDOW 4u
/* The receiver says how far it is after so many pieces: half a window, so that the sender need not wait for news. */
#define NEWS_PIECES (WINDOW / 2)

/* State of the exchange with one participant, in pieces of the plan's chunks. */
struct exchange_peer {
    const uint8_t *send_at;
    uint8_t *receive_at;
    uint64_t send_bytes, receive_bytes;
    uint32_t sent, allowed; /* pieces: the next to send; how far it may go */
    uint32_t received;      /* all pieces below have arrived … */
    uint32_t beyond;        /* … and these beyond: bit i = piece received + i */
    bool has_started;       /* its START has come */
    bool is_awaited;        /* something is still to come from it */
};

struct exchange_run {
    uint32_t awaited_count;       /* participants from which something is awaited */
    struct exchange_peer peers[]; /* by participant */
};

/* --- Parts that members send each other --- */

static struct exchange_peer *peer_of(const struct muster_run *run, uint32_t participant)
{
    struct exchange_run *exchange = run->executor;

    return &exchange->peers[participant];
}

static uint64_t part_bytes(const struct muster_run *run)
{
    return run->call.part_count * run->plan.element_bytes;
}

/* Only addresses: where nothing is sent or received there may be no memory. */
static uint8_t *address_at(const void *base, uint64_t offset)
{
    return (uint8_t *)((uintptr_t)base + offset);
}

static void send_part(struct muster_run *run, uint32_t to, uint64_t offset, uint64_t bytes)
{
    peer_of(run, to)->send_at = address_at(run->call.input, offset);
    peer_of(run, to)->send_bytes = bytes;
}

static void receive_part(struct muster_run *run, uint32_t from, uint64_t offset, uint64_t bytes)
{
    peer_of(run, from)->receive_at = address_at(run->call.output, offset);
    peer_of(run, from)->receive_bytes = bytes;
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

static void share_parts(struct muster_run *run)
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
        MUSTER_ASSERT(false);
    }
}

/* Counts are the caller's: both sides know the length of a part and compare it, also when it is 0. */
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

/* `bytes` is the part that the sender means: the receiver compares it with what it expects. */
static void send_frame(struct muster_run *run, enum muster_frame_type type, uint32_t participant,
                       uint32_t piece, uint64_t bytes, const void *payload, uint32_t payload_bytes)
{
    const struct muster_run_frame frame = {
        .type = type,
        .participant = participant,
        .chunk = piece,
        .offset = bytes / run->plan.element_bytes,
        .payload = payload,
        .bytes = payload_bytes,
    };

    muster_run_send_frame(run, &frame);
}

static void send_pieces(struct muster_run *run, uint32_t participant)
{
    struct exchange_peer *peer = peer_of(run, participant);
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
    const struct exchange_peer *peer = peer_of(run, participant);

    send_frame(run, MUSTER_FRAME_START, participant, peer->received, peer->receive_bytes, NULL, 0);
}

/* Little goes at once: the others keep it until they have started. */
static uint32_t first_allowed(const struct muster_run *run, const struct exchange_peer *peer)
{
    return peer->send_bytes <= muster_run_direct_max_bytes(run) ? WINDOW : 0;
}

static void copy_own(struct muster_run *run)
{
    const struct exchange_peer *own = peer_of(run, run->plan.index);

    MUSTER_ASSERT(own->send_bytes == own->receive_bytes);
    if (own->receive_bytes > 0 && own->receive_at != own->send_at)
        memcpy(own->receive_at, own->send_at, own->receive_bytes);
}

static enum muster_run_outcome outcome_of(const struct muster_run *run)
{
    const struct exchange_run *exchange = run->executor;
    bool is_whole = run->state == MUSTER_RUN_ACTIVE && exchange->awaited_count == 0 &&
                    !muster_run_awaits_root(run);

    return is_whole ? MUSTER_RUN_HAS_RESULT : MUSTER_RUN_GOES_ON;
}

static enum muster_run_outcome exchange_start(struct muster_run *run)
{
    struct exchange_run *exchange = run->executor;
    uint32_t n = run->plan.n;

    MUSTER_ASSERT(exchange->awaited_count == 0);
    share_parts(run);
    copy_own(run);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t participant = (run->plan.index + i) % n;
        struct exchange_peer *peer = peer_of(run, participant);

        peer->allowed = first_allowed(run, peer);
        peer->is_awaited = peer->receive_bytes > 0 || is_checked(run);
        exchange->awaited_count += peer->is_awaited;
        /* The one before hears in any case, so that different calls are found out somewhere. */
        if (peer->is_awaited || i == n - 1)
            say_started(run, participant);
    }
    for (uint32_t i = 1; i < n; i++)
        send_pieces(run, (run->plan.index + i) % n);
    return outcome_of(run);
}

/* Counts the participant off when nothing is awaited from it any more. A checked one must have said its count, too. */
static enum muster_run_outcome hear_if_whole(struct muster_run *run, uint32_t participant)
{
    struct exchange_run *exchange = run->executor;
    struct exchange_peer *peer = peer_of(run, participant);
    bool has_all = peer->received == piece_count(run, peer->receive_bytes);

    if (!peer->is_awaited || !has_all || (is_checked(run) && !peer->has_started))
        return MUSTER_RUN_GOES_ON;
    MUSTER_ASSERT(exchange->awaited_count > 0);
    peer->is_awaited = false;
    exchange->awaited_count--;
    return outcome_of(run);
}

static enum muster_run_outcome dispute_counts(struct muster_run *run, uint32_t participant,
                                              uint64_t sent, uint64_t expected, bool is_sent_here)
{
    return muster_run_set_dispute(run, participant, sent, expected, is_sent_here)
               ? MUSTER_RUN_DISPUTED
               : MUSTER_RUN_GOES_ON;
}

static enum muster_run_outcome exchange_hear_start(struct muster_run *run, uint32_t participant,
                                                   const struct muster_frame_header *header)
{
    struct exchange_peer *peer = peer_of(run, participant);
    uint64_t sent = peer->send_bytes / run->plan.element_bytes;

    if (muster_run_is_adopting(run) || run->state > MUSTER_RUN_COMPLETE)
        return MUSTER_RUN_GOES_ON;
    if (header->offset != sent)
        return dispute_counts(run, participant, sent, header->offset, true);
    peer->has_started = true;
    if (header->chunk <= peer->sent && header->chunk + WINDOW > peer->allowed)
        peer->allowed = header->chunk + WINDOW;
    send_pieces(run, participant);
    return hear_if_whole(run, participant);
}

/* --- Receiving --- */

static bool is_expected(const struct muster_run *run, const struct exchange_peer *peer,
                        const struct muster_frame_header *header)
{
    uint32_t piece = header->chunk;

    return piece < piece_count(run, peer->receive_bytes) && piece >= peer->received &&
           piece - peer->received < WINDOW &&
           (peer->beyond >> (piece - peer->received) & 1u) == 0 &&
           header->payload_bytes == length_of(run, peer->receive_bytes, piece);
}

static enum muster_run_outcome exchange_receive(struct muster_run *run, uint32_t participant,
                                                const struct muster_frame_header *header,
                                                struct muster_receiving *receiving,
                                                void **ret_place)
{
    struct exchange_peer *peer = peer_of(run, participant);
    uint64_t expected = peer->receive_bytes / run->plan.element_bytes;

    if (muster_run_is_adopting(run) || run->state != MUSTER_RUN_ACTIVE)
        return MUSTER_RUN_GOES_ON;
    if (header->offset != expected)
        return dispute_counts(run, participant, header->offset, expected, false);
    if (!is_expected(run, peer, header))
        return MUSTER_RUN_UNEXPECTED;
    receiving->mode = MUSTER_RECEIVE_DATA;
    receiving->chunk = header->chunk;
    *ret_place = peer->receive_at + header->chunk * piece_bytes(run);
    return MUSTER_RUN_GOES_ON;
}

static enum muster_run_outcome exchange_received(struct muster_run *run, uint32_t participant,
                                                 struct muster_receiving *receiving)
{
    struct exchange_peer *peer = peer_of(run, participant);
    uint64_t count = piece_count(run, peer->receive_bytes);
    uint32_t before = peer->received;

    MUSTER_ASSERT(receiving->chunk >= before && receiving->chunk - before < WINDOW);
    peer->beyond |= 1u << (receiving->chunk - before);
    while ((peer->beyond & 1u) != 0) {
        peer->beyond >>= 1;
        peer->received++;
    }
    if (before / NEWS_PIECES != peer->received / NEWS_PIECES && peer->received < count)
        say_started(run, participant);
    return hear_if_whole(run, participant);
}

static bool exchange_is_in_place(const struct muster_run *run)
{
    (void)run;
    return true;
}

static size_t exchange_state_bytes(const struct muster_plan *plan)
{
    return sizeof(struct exchange_run) + plan->n * sizeof(struct exchange_peer);
}

/* --- Cost --- */

static uint32_t exchange_cost(const struct muster_run *run)
{
    return run->call.count * run->plan.element_bytes > muster_run_direct_max_bytes(run)
               ? MUSTER_RING_COST
               : MUSTER_DIRECT_COST;
}

/* Straight from and into the caller's memory. What members share out unevenly, or by a route, is
 * the call's and not the plan's. */
static uint64_t exchange_sent_bytes(const struct muster_plan *plan)
{
    uint64_t part = plan->count / plan->n * plan->element_bytes;

    switch (plan->kind) {
    case MUSTER_OP_GATHER:
        return plan->index == plan->root ? 0 : part;
    case MUSTER_OP_SCATTER:
        return plan->index == plan->root ? (plan->n - 1) * part : 0;
    case MUSTER_OP_ALL_TO_ALL:
        return (plan->n - 1) * part;
    default:
        return 0;
    }
}

static struct muster_op_cost exchange_plan_cost(const struct muster_plan *plan,
                                                const struct muster_topology *topology)
{
    (void)topology;
    return (struct muster_op_cost){.sent_bytes = exchange_sent_bytes(plan)};
}

const struct muster_executor_ops muster_exchange_executor = {
    .name = "exchange",
    .frames = 1u << MUSTER_FRAME_PIECE,
    .cost = exchange_cost,
    .state_bytes = exchange_state_bytes,
    .plan_cost = exchange_plan_cost,
    .start = exchange_start,
    .receive = exchange_receive,
    .received = exchange_received,
    .hear_start = exchange_hear_start,
    .is_in_place = exchange_is_in_place,
};
