/* Plans as lists of steps. Each algorithm is one function that puts the steps of one member for one
 * chunk into a list; whoever runs a list knows no algorithm. A send in one
 * member's list must have its receive in the peer's, with the same range and message number; tests
 * play all lists against each other. */
#include "collective/plan/steps.h"

#include <muster/base.h>

#define LINE_BYTES 64u

/* Numbers of messages between two members within one chunk. In halving two members meet once on the
 * way down and once on the way up, under different numbers, so a number never passes twice. */
enum {
    MESSAGE_IN,      /* direct, ring, blocks, two_level: an input or a sum on its way in */
    MESSAGE_OUT,     /* the final value */
    MESSAGE_FOLD_IN, /* halving: of a member beyond the power of two */
    MESSAGE_HALVE,
    MESSAGE_DOUBLE,
    MESSAGE_FOLD_OUT,
};

struct range {
    uint64_t first, count;
};

/* The list while it grows. */
struct builder {
    const struct muster_plan *plan;
    const struct muster_topology *topology;
    struct muster_step *steps;
    uint32_t count, count_max;
    bool has_sum; /* what has been made so far of this range stands in the work memory */
};

static void put_step(struct builder *builder, enum muster_step_kind kind, struct range range,
                     uint32_t peer, unsigned message)
{
    if (range.count == 0) /* on both sides alike, see steps.h */
        return;
    MUSTER_ASSERT(builder->count < builder->count_max);
    builder->steps[builder->count++] = (struct muster_step){
        .first = range.first,
        .count = range.count,
        .peer = peer,
        .kind = (uint8_t)kind,
        .message = (uint8_t)message,
        .is_from_input = !builder->has_sum,
    };
}

/* A member that has reduced nothing (it is alone) still has to put its input into the result. */
static void put_finish(struct builder *builder, struct range range)
{
    if (!builder->has_sum)
        put_step(builder, MUSTER_STEP_KEEP, range, 0, 0);
    builder->has_sum = true;
    put_step(builder, MUSTER_STEP_FINISH, range, 0, 0);
}

/* Block b of `parts` of the range; the blocks begin at cache lines and differ by one at most. */
static struct range block_of(const struct builder *builder, struct range range, uint32_t b,
                             uint32_t parts)
{
    size_t bytes = builder->plan->element_bytes;
    uint64_t line = bytes < LINE_BYTES ? LINE_BYTES / bytes : 1;
    uint64_t lines = (range.count + line - 1) / line;
    uint64_t begin = lines * b / parts * line, end = lines * (b + 1) / parts * line;

    begin = begin < range.count ? begin : range.count;
    end = end < range.count ? end : range.count;
    return (struct range){range.first + begin, end - begin};
}

/* Blocks [b, b_end). */
static struct range blocks_of(const struct builder *builder, struct range range, uint32_t b,
                              uint32_t b_end, uint32_t parts)
{
    struct range first = block_of(builder, range, b, parts);
    struct range last = block_of(builder, range, b_end - 1, parts);

    first.count = last.first + last.count - first.first;
    return first;
}

/* --- Direct --- */

static void make_direct(struct builder *builder, struct range whole)
{
    const struct muster_plan *plan = builder->plan;
    bool is_broadcast = plan->kind == MUSTER_OP_BROADCAST;

    if (is_broadcast && plan->index != plan->root) {
        put_step(builder, MUSTER_STEP_RECEIVE, whole, plan->root, MESSAGE_OUT);
        return;
    }
    /* Everybody begins with the member after it, so that they do not all send to one at a time. */
    for (uint32_t k = 1; k < plan->n; k++)
        put_step(builder, MUSTER_STEP_SEND, whole, (plan->index + k) % plan->n,
                 is_broadcast ? MESSAGE_OUT : MESSAGE_IN);
    if (is_broadcast)
        return;
    for (uint32_t i = 0; i < plan->n; i++)
        if (i != plan->index)
            put_step(builder, MUSTER_STEP_HOLD, whole, i, MESSAGE_IN);
    if (plan->n > 1)
        put_step(builder, MUSTER_STEP_REDUCE_HELD, whole, 0, 0);
    builder->has_sum = plan->n > 1;
    put_finish(builder, whole);
}

/* --- Ring --- */

static void make_ring(struct builder *builder, const struct muster_plan_chunk *chunk)
{
    const struct muster_plan *plan = builder->plan;
    struct range range = {chunk->first, chunk->count};

    if (chunk->reduce == MUSTER_REDUCE_PASS || chunk->reduce == MUSTER_REDUCE_FINISH) {
        put_step(builder, MUSTER_STEP_REDUCE, range, plan->prev, MESSAGE_IN);
        builder->has_sum = true;
    }
    if (chunk->reduce == MUSTER_REDUCE_START || chunk->reduce == MUSTER_REDUCE_PASS)
        put_step(builder, MUSTER_STEP_SEND, range, plan->next, MESSAGE_IN);
    if (chunk->reduce == MUSTER_REDUCE_FINISH)
        put_finish(builder, range);
    if (chunk->gather == MUSTER_GATHER_PASS || chunk->gather == MUSTER_GATHER_LAST) {
        put_step(builder, MUSTER_STEP_RECEIVE, range, plan->prev, MESSAGE_OUT);
        builder->has_sum = true;
    }
    if (chunk->gather == MUSTER_GATHER_SOURCE || chunk->gather == MUSTER_GATHER_PASS)
        put_step(builder, MUSTER_STEP_SEND, range, plan->next, MESSAGE_OUT);
}

/* --- Recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005) ---
 * The exchange needs a power of two. Members beyond it fold their input into a neighbour first, and
 * get the result from it at the end. */

/* The members among whom to halve: all, or the j-th of each host. */
struct ring {
    uint32_t n, position;
    bool is_across;
    uint32_t leader;
};

static uint32_t member_at(const struct builder *builder, const struct ring *ring, uint32_t position)
{
    const struct muster_topology *topology = builder->topology;

    return ring->is_across ? topology->members[topology->first[position] + ring->leader] : position;
}

static uint32_t power_below(uint32_t n)
{
    uint32_t power = 1;

    while (power <= n / 2)
        power *= 2;
    return power;
}

/* The core are the odd ones of the first 2 x extra, and all after those. */
static uint32_t core_position(uint32_t core_rank, uint32_t extra)
{
    return core_rank < extra ? 2 * core_rank + 1 : core_rank + extra;
}

/* The distance halves too: the first and largest exchange is with the member farthest off in the
 * core, and each one leaves half of the range, until block `self` is left. */
static void halve_ranges(struct builder *builder, const struct ring *ring, struct range whole,
                         uint32_t core, uint32_t self)
{
    uint32_t extra = ring->n - core, low = 0, high = core;

    for (uint32_t d = core / 2; d >= 1; d /= 2) {
        uint32_t peer = member_at(builder, ring, core_position(self ^ d, extra));
        bool is_upper = (self & d) != 0;
        struct range lower_half = blocks_of(builder, whole, low, low + d, core);
        struct range upper_half = blocks_of(builder, whole, low + d, high, core);

        put_step(builder, MUSTER_STEP_SEND, is_upper ? lower_half : upper_half, peer,
                 MESSAGE_HALVE);
        put_step(builder, MUSTER_STEP_REDUCE, is_upper ? upper_half : lower_half, peer,
                 MESSAGE_HALVE);
        builder->has_sum = true;
        low += is_upper ? d : 0;
        high -= is_upper ? 0 : d;
    }
}

/* The way back: ranges that are final double until they are the whole. */
static void double_ranges(struct builder *builder, const struct ring *ring, struct range whole,
                          uint32_t core, uint32_t self)
{
    uint32_t extra = ring->n - core;

    for (uint32_t d = 1; d < core; d *= 2) {
        uint32_t peer = member_at(builder, ring, core_position(self ^ d, extra));
        uint32_t low = self & ~(d - 1), other = low ^ d;

        put_step(builder, MUSTER_STEP_SEND, blocks_of(builder, whole, low, low + d, core), peer,
                 MESSAGE_DOUBLE);
        put_step(builder, MUSTER_STEP_RECEIVE, blocks_of(builder, whole, other, other + d, core),
                 peer, MESSAGE_DOUBLE);
    }
}

static void make_halving(struct builder *builder, const struct ring *ring, struct range whole)
{
    uint32_t core = power_below(ring->n), extra = ring->n - core;
    uint32_t position = ring->position, self = position - extra;
    bool is_folded = position < 2 * extra;

    if (is_folded && position % 2 == 0) {
        uint32_t peer = member_at(builder, ring, position + 1);

        put_step(builder, MUSTER_STEP_SEND, whole, peer, MESSAGE_FOLD_IN);
        put_step(builder, MUSTER_STEP_RECEIVE, whole, peer, MESSAGE_FOLD_OUT);
        return;
    }
    if (is_folded) {
        self = position / 2;
        put_step(builder, MUSTER_STEP_REDUCE, whole, member_at(builder, ring, position - 1),
                 MESSAGE_FOLD_IN);
        builder->has_sum = true;
    }
    halve_ranges(builder, ring, whole, core, self);
    put_finish(builder, block_of(builder, whole, self, core));
    double_ranges(builder, ring, whole, core, self);
    if (is_folded)
        put_step(builder, MUSTER_STEP_SEND, whole, member_at(builder, ring, position - 1),
                 MESSAGE_FOLD_OUT);
}

/* --- Double binary tree (Sanders, Speck, Träff 2009) --- */

/* Label 0 is the root. The others form an in-order binary tree on 1 … p below it, whose odd labels
 * are leaves. In the second tree they are mirrored (p even) or shifted by one (p odd), so that who
 * is a leaf in the one passes on in the other, but for one leaf of both when p is odd. */
static uint32_t label_of(const struct muster_plan *plan, uint32_t index, uint32_t tree)
{
    uint32_t p = plan->n - 1, label = (index + plan->n - plan->root) % plan->n;

    if (tree == 0 || label == 0)
        return label;
    return p % 2 == 0 ? p + 1 - label : label % p + 1;
}

static uint32_t index_of(const struct muster_plan *plan, uint32_t label, uint32_t tree)
{
    uint32_t p = plan->n - 1;

    if (tree == 1 && label != 0)
        label = p % 2 == 0 ? p + 1 - label : (label + p - 2) % p + 1;
    return (label + plan->root) % plan->n;
}

static uint32_t low_bit(uint32_t label)
{
    return label & (~label + 1);
}

/* In an in-order tree the lowest set bit tells the height. Where the parent would be beyond the
 * last label, the tree is cut there, and the next ancestor takes its place. */
static uint32_t parent_of(const struct muster_plan *plan, uint32_t label)
{
    uint32_t bit = low_bit(label), up = (label ^ bit) | (bit << 1);

    return up < plan->n ? up : label ^ bit;
}

/* Returns how many; the root has one. */
static uint32_t children_of(const struct muster_plan *plan, uint32_t label, uint32_t children[2])
{
    uint32_t half = label == 0 ? power_below(plan->n - 1) : low_bit(label) / 2, count = 0;

    if (half > 0 && label > 0)
        children[count++] = label - half;
    while (half > 0 && label + half >= plan->n)
        half /= 2;
    if (half > 0)
        children[count++] = label + half;
    return count;
}

/* Chunk c goes through tree c mod 2: a member that passes on in one tree is a leaf in the other, so
 * both directions of everybody's link are busy. */
static void make_tree(struct builder *builder, uint32_t c, struct range range)
{
    const struct muster_plan *plan = builder->plan;
    uint32_t tree = c % 2, label = label_of(plan, plan->index, tree), children[2];
    uint32_t child_count = children_of(plan, label, children);
    uint32_t parent = label == 0 ? 0 : index_of(plan, parent_of(plan, label), tree);
    bool is_broadcast = plan->kind == MUSTER_OP_BROADCAST;
    bool is_reduce = plan->kind == MUSTER_OP_REDUCE;

    for (uint32_t i = 0; i < child_count; i++)
        children[i] = index_of(plan, children[i], tree);
    for (uint32_t i = 0; i < child_count && !is_broadcast; i++) {
        put_step(builder, MUSTER_STEP_REDUCE, range, children[i], MESSAGE_IN);
        builder->has_sum = true;
    }
    if (label == 0 && !is_broadcast)
        put_finish(builder, range);
    if (label != 0 && !is_broadcast)
        put_step(builder, MUSTER_STEP_SEND, range, parent, MESSAGE_IN);
    if (label != 0 && !is_reduce) {
        put_step(builder, MUSTER_STEP_RECEIVE, range, parent, MESSAGE_OUT);
        builder->has_sum = true;
    }
    for (uint32_t i = 0; i < child_count && !is_reduce; i++)
        put_step(builder, MUSTER_STEP_SEND, range, children[i], MESSAGE_OUT);
}

/* --- Blocks --- */

/* The inputs are held and reduced together, in the order of members: the sum does not depend on
 * which one comes first, and f16 is rounded once. */
static void hold_all(struct builder *builder, struct range range)
{
    for (uint32_t i = 0; i < builder->plan->n; i++)
        if (i != builder->plan->index)
            put_step(builder, MUSTER_STEP_HOLD, range, i, MESSAGE_IN);
    put_step(builder, MUSTER_STEP_REDUCE_HELD, range, 0, 0);
    builder->has_sum = true;
    put_finish(builder, range);
}

/* Participants that want the result. */
static bool is_taker(const struct muster_plan *plan, uint32_t index)
{
    return plan->kind != MUSTER_OP_REDUCE || index == plan->root;
}

static void make_blocks(struct builder *builder, struct range whole)
{
    const struct muster_plan *plan = builder->plan;
    struct range own = block_of(builder, whole, plan->index, plan->n);

    for (uint32_t k = 1; k < plan->n; k++) {
        uint32_t peer = (plan->index + k) % plan->n;

        put_step(builder, MUSTER_STEP_SEND, block_of(builder, whole, peer, plan->n), peer,
                 MESSAGE_IN);
    }
    hold_all(builder, own);
    for (uint32_t k = 1; k < plan->n; k++) {
        uint32_t peer = (plan->index + k) % plan->n;

        if (is_taker(plan, peer))
            put_step(builder, MUSTER_STEP_SEND, own, peer, MESSAGE_OUT);
    }
    for (uint32_t k = 1; k < plan->n && is_taker(plan, plan->index); k++) {
        uint32_t peer = (plan->index + plan->n - k) % plan->n;

        put_step(builder, MUSTER_STEP_RECEIVE, block_of(builder, whole, peer, plan->n), peer,
                 MESSAGE_OUT);
    }
}

/* The chunk lies in the part of `owner`, who alone wants it. */
static void make_scatter(struct builder *builder, struct range range, uint32_t owner)
{
    if (builder->plan->index == owner)
        hold_all(builder, range);
    else
        put_step(builder, MUSTER_STEP_SEND, range, owner, MESSAGE_IN);
}

static void make_gather(struct builder *builder, struct range range, uint32_t owner)
{
    const struct muster_plan *plan = builder->plan;

    if (plan->index != owner) {
        put_step(builder, MUSTER_STEP_RECEIVE, range, owner, MESSAGE_OUT);
        return;
    }
    for (uint32_t k = 1; k < plan->n; k++)
        put_step(builder, MUSTER_STEP_SEND, range, (plan->index + k) % plan->n, MESSAGE_OUT);
    put_step(builder, MUSTER_STEP_KEEP, range, 0, 0);
}

/* --- Two levels --- */

/* Leader j of each host is its j-th member; block j is reduced there, then among the leaders j. */
struct host {
    const uint32_t *members; /* of this host */
    uint32_t count, self, leaders;
};

/* Member self sends block j to leader j, beginning after itself, so that the leaders of a host are
 * not all sent to in the same order. */
static void send_in(struct builder *builder, const struct host *host, struct range whole)
{
    for (uint32_t k = 1; k <= host->count; k++) {
        uint32_t j = (host->self + k) % host->count;

        if (j < host->leaders && j != host->self)
            put_step(builder, MUSTER_STEP_SEND, block_of(builder, whole, j, host->leaders),
                     host->members[j], MESSAGE_IN);
    }
}

static void lead_host(struct builder *builder, const struct host *host, struct range block)
{
    const struct ring leaders = {.n = builder->topology->host_count,
                                 .position = builder->topology->host_of[builder->plan->index],
                                 .is_across = true,
                                 .leader = host->self};

    for (uint32_t i = 0; i < host->count; i++)
        if (i != host->self)
            put_step(builder, MUSTER_STEP_HOLD, block, host->members[i], MESSAGE_IN);
    if (host->count > 1) {
        put_step(builder, MUSTER_STEP_REDUCE_HELD, block, 0, 0);
        builder->has_sum = true;
    }
    make_halving(builder, &leaders, block);
    for (uint32_t k = 1; k < host->count; k++)
        put_step(builder, MUSTER_STEP_SEND, block, host->members[(host->self + k) % host->count],
                 MESSAGE_OUT);
}

static void make_two_level(struct builder *builder, struct range whole)
{
    const struct muster_topology *topology = builder->topology;
    uint32_t index = topology->host_of[builder->plan->index];
    struct host host = {.members = topology->members + topology->first[index],
                        .count = muster_topology_locals(topology, index),
                        .self = topology->local_of[builder->plan->index],
                        .leaders = topology->leader_count};

    MUSTER_ASSERT(topology->n == builder->plan->n);
    send_in(builder, &host, whole);
    if (host.self < host.leaders)
        lead_host(builder, &host, block_of(builder, whole, host.self, host.leaders));
    for (uint32_t j = 0; j < host.leaders; j++)
        if (j != host.self)
            put_step(builder, MUSTER_STEP_RECEIVE, block_of(builder, whole, j, host.leaders),
                     host.members[j], MESSAGE_OUT);
}

/* --- All of them --- */

uint32_t muster_steps_max(const struct muster_plan *plan)
{
    switch (plan->algorithm) {
    case MUSTER_ALGORITHM_RING:
    case MUSTER_ALGORITHM_DOUBLE_TREE:
        return 8;
    case MUSTER_ALGORITHM_HALVING:
        return 4 * 32 + 6; /* 32 rounds at most, two steps each way; folding and finishing */
    default:
        return 4 * plan->n + 4 * 32 + 10; /* and an input and a result of everybody */
    }
}

uint32_t muster_steps_make(const struct muster_plan *plan, const struct muster_topology *topology,
                           uint32_t c, struct muster_step *ret_steps)
{
    struct muster_plan_chunk chunk = muster_plan_chunk(plan, c);
    struct range range = {chunk.first, chunk.count};
    struct builder builder = {.plan = plan,
                              .topology = topology,
                              .steps = ret_steps,
                              .count_max = muster_steps_max(plan)};
    const struct ring all = {.n = plan->n, .position = plan->index};

    switch (plan->algorithm) {
    case MUSTER_ALGORITHM_RING:
        make_ring(&builder, &chunk);
        break;
    case MUSTER_ALGORITHM_HALVING:
        make_halving(&builder, &all, range);
        break;
    case MUSTER_ALGORITHM_DOUBLE_TREE:
        make_tree(&builder, c, range);
        break;
    case MUSTER_ALGORITHM_BLOCKS:
        if (plan->kind == MUSTER_OP_REDUCE_SCATTER || plan->kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN)
            make_scatter(&builder, range, chunk.block);
        else if (plan->kind == MUSTER_OP_ALL_GATHER || plan->kind == MUSTER_OP_ALL_GATHER_UNEVEN)
            make_gather(&builder, range, chunk.block);
        else
            make_blocks(&builder, range);
        break;
    case MUSTER_ALGORITHM_TWO_LEVEL:
        make_two_level(&builder, range);
        break;
    case MUSTER_ALGORITHM_DIRECT:
    case MUSTER_ALGORITHM_AUTO:
    case MUSTER_ALGORITHM_EXCHANGE:
    case MUSTER_ALGORITHM_FLAT:
    case MUSTER_ALGORITHM_HOST:
        make_direct(&builder, range);
        break;
    }
    return builder.count;
}
