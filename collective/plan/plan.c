/* Plans as values, computed from (kind, n, index, count, parameters) alone. Every member computes
 * its own and never sends it, so nothing here may depend on anything that differs between members:
 * no clock, no floating point, no state. */
#include "collective/plan/plan.h"

#include <muster/base.h>

#include "net/link/peer_link.h"

#define LINE_BYTES 64u /* two members never write one cache line */
/* Partial sums on their way, of all owners together: bounds staging at 32 chunks per operation and
 * member. */
#define WINDOW_CHUNKS_ALL 32u
#define WINDOW_MIN        2u
/* Two keep both directions busy; what is in flight beyond some 1 MiB only falls out of the cache.
 */
#define WINDOW_MAX 4u
/* Limits for the chunks that are worked on at the same time, in plans of steps: a tree is deep. */
#define WINDOW_TREE  24u
#define WINDOW_STEPS 4u
/* A chunk leaves as one message when it is folded in. */
#define STEPS_CHUNK_BYTES_MAX ((uint64_t)MUSTER_FRAME_PAYLOAD_MAX)

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static uint64_t clamp_value(uint64_t value, uint64_t low, uint64_t high)
{
    if (value < low)
        return low;
    return value > high ? high : value;
}

uint32_t muster_plan_chunk_bytes(const struct muster_plan_parameters *parameters)
{
    uint64_t bytes =
        parameters->chunk_bytes > 0 ? parameters->chunk_bytes : MUSTER_CHUNK_BYTES_DEFAULT;

    bytes = clamp_value(bytes, LINE_BYTES, MUSTER_CHUNK_BYTES_MAX);
    return (uint32_t)(bytes - bytes % LINE_BYTES);
}

uint32_t muster_plan_direct_max_bytes(const struct muster_plan_parameters *parameters)
{
    uint64_t bytes = parameters->direct_max_bytes > 0 ? parameters->direct_max_bytes
                                                      : MUSTER_DIRECT_MAX_BYTES_DEFAULT;

    return (uint32_t)clamp_value(bytes, 1, MUSTER_DIRECT_MAX_BYTES_MAX);
}

/* Equal parts. */
static bool has_parts(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_ALL_GATHER || kind == MUSTER_OP_REDUCE_SCATTER;
}

static bool is_scatter(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_REDUCE_SCATTER || kind == MUSTER_OP_REDUCE_SCATTER_UNEVEN;
}

/* One block, of the root's. */
static bool has_one_block(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_BROADCAST || kind == MUSTER_OP_REDUCE;
}

bool muster_plan_is_exchange(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_GATHER || kind == MUSTER_OP_SCATTER || kind == MUSTER_OP_ALL_TO_ALL ||
           kind == MUSTER_OP_ALL_TO_ALL_UNEVEN || kind == MUSTER_OP_PERMUTE;
}

/* The owner is the first member that has the final value of a block. */
static uint32_t owner_of(const struct muster_plan *plan, uint32_t block)
{
    return has_one_block(plan->kind) ? plan->root : block;
}

/* One chunk, the whole vector: it is small, and each piece would cost a message of its own. */
static void make_direct(struct muster_plan *plan)
{
    plan->block_count = 1;
    plan->block_elements = plan->count;
    plan->chunk_elements = plan->count;
    plan->chunks_per_block = 1;
    plan->chunk_count = 1;
    plan->window = 1;
    plan->is_next_asked = false;
}

/* Blocks of an all_reduce begin at cache lines; those of the others are the parts that the caller
 * sees. */
static uint64_t block_elements(const struct muster_plan *plan)
{
    uint64_t line = plan->element_bytes < LINE_BYTES ? LINE_BYTES / plan->element_bytes : 1;
    uint64_t longest = 0;

    for (uint32_t i = 0; plan->offsets != NULL && i < plan->n; i++)
        if (plan->offsets[i + 1] - plan->offsets[i] > longest)
            longest = plan->offsets[i + 1] - plan->offsets[i];
    if (plan->offsets != NULL)
        return longest;
    if (has_one_block(plan->kind))
        return plan->count;
    if (has_parts(plan->kind))
        return plan->count / plan->n;
    return divide_up(divide_up(plan->count, line), plan->n) * line;
}

/* At least `pieces` chunks per block, so that adding overlaps with sending, but none below 64 KiB
 * for the calls' sake; all alike, because a short one at the end costs as many hops as a long one.
 */
static uint64_t chunk_elements(const struct muster_plan *plan, uint64_t chunk_bytes_max,
                               uint64_t pieces)
{
    uint64_t block_bytes = plan->block_elements * plan->element_bytes;
    uint64_t pieces_max = divide_up(block_bytes, chunk_bytes_max);
    uint64_t bytes = divide_up(block_bytes, pieces_max > pieces ? pieces_max : pieces);
    uint64_t low =
        chunk_bytes_max < MUSTER_CHUNK_BYTES_MIN ? chunk_bytes_max : MUSTER_CHUNK_BYTES_MIN;

    bytes = clamp_value(divide_up(bytes, LINE_BYTES) * LINE_BYTES, low, chunk_bytes_max);
    return bytes > plan->element_bytes ? bytes / plan->element_bytes : 1;
}

static void divide_blocks(struct muster_plan *plan, uint64_t chunk_bytes_max, uint64_t pieces)
{
    plan->chunk_elements = chunk_elements(plan, chunk_bytes_max, pieces);
    plan->chunks_per_block = (uint32_t)divide_up(plan->block_elements, plan->chunk_elements);
    plan->chunk_count = plan->chunks_per_block * plan->block_count;
}

/* A broadcast does not look at n, nor at the algorithm: a member that joins in later must come to
 * the same chunks. */
static uint64_t pieces_of(const struct muster_plan *plan)
{
    return has_one_block(plan->kind) ? 8 : 2;
}

static void make_ring(struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    plan->block_elements = block_elements(plan);
    plan->block_count = has_one_block(plan->kind) ? 1 : plan->n;
    divide_blocks(plan, chunk_bytes_max, pieces_of(plan));
    plan->start_block = plan->prev;
    plan->window = (uint32_t)clamp_value(WINDOW_CHUNKS_ALL / (plan->n - 1), WINDOW_MIN, WINDOW_MAX);
    plan->is_next_asked = !plan->has_reduction;
    if (plan->kind != MUSTER_OP_REDUCE)
        return;
    /* A reduce has one block and one chain, which begins after the root and ends there. Only the
     * member after the root starts sums, so it alone has to fill the whole chain. */
    plan->start_block = plan->prev == plan->root ? 0 : UINT32_MAX;
    plan->window = (uint32_t)clamp_value(2 * plan->n, WINDOW_MAX, WINDOW_CHUNKS_ALL);
}

/* Pieces, not chunks: each pair of members counts its own. */
static void make_exchange(struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    plan->chunk_elements = chunk_bytes_max / plan->element_bytes;
    plan->chunks_per_block = 1;
}

/* Do not split a payload slightly larger than one chunk: two halves would double the message
 * count. */
static uint64_t steps_chunk_bytes(const struct muster_plan *plan, uint64_t bytes_max, bool is_cut)
{
    uint64_t bytes = plan->block_elements * plan->element_bytes;

    bytes_max = clamp_value(bytes_max, 1, STEPS_CHUNK_BYTES_MAX);
    if (is_cut && bytes > bytes_max && bytes <= bytes_max + bytes_max / 8)
        bytes_max =
            clamp_value(divide_up(bytes, LINE_BYTES) * LINE_BYTES, 1, STEPS_CHUNK_BYTES_MAX);
    return bytes_max;
}

/* Each chunk of an all_reduce or a reduce goes through all members: it is cut into messages by the
 * steps. */
static void make_steps(struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    bool is_tree = plan->algorithm == MUSTER_ALGORITHM_DOUBLE_TREE;
    bool is_one = plan->kind == MUSTER_OP_ALL_REDUCE || has_one_block(plan->kind);
    uint64_t messages = is_tree || !is_one || plan->kind == MUSTER_OP_BROADCAST ? 1 : plan->n;

    plan->block_elements = is_one ? plan->count : block_elements(plan);
    plan->block_count = is_one ? 1 : plan->n;
    divide_blocks(plan, steps_chunk_bytes(plan, messages * chunk_bytes_max, messages > 1),
                  messages > 1 ? 1 : pieces_of(plan));
    plan->window = is_tree ? WINDOW_TREE : WINDOW_STEPS;
}

struct muster_plan muster_plan_make(const struct muster_plan_input *input)
{
    uint32_t chunk_bytes = muster_plan_chunk_bytes(&input->parameters);
    struct muster_plan plan = {
        .kind = input->kind,
        .n = input->n,
        .index = input->index,
        .root = input->root,
        .next = (input->index + 1) % input->n,
        .prev = (input->index + input->n - 1) % input->n,
        .count = input->count,
        .offsets = muster_plan_is_exchange(input->kind) ? NULL : input->offsets,
        .element_bytes = input->element_bytes,
        .has_reduction = input->kind == MUSTER_OP_ALL_REDUCE || is_scatter(input->kind) ||
                         input->kind == MUSTER_OP_REDUCE,
    };

    MUSTER_ASSERT(input->index < input->n && input->root < input->n && input->element_bytes > 0);
    plan.algorithm = muster_plan_choose(input);
    if (plan.algorithm == MUSTER_ALGORITHM_EXCHANGE)
        make_exchange(&plan, chunk_bytes);
    else if (plan.algorithm == MUSTER_ALGORITHM_DIRECT)
        make_direct(&plan);
    else if (plan.algorithm == MUSTER_ALGORITHM_RING)
        make_ring(&plan, chunk_bytes);
    else
        make_steps(&plan, chunk_bytes);
    return plan;
}

/* Members from `from` onwards to `to` in the direction of the ring. */
static uint32_t ring_distance(const struct muster_plan *plan, uint32_t from, uint32_t to)
{
    return (to + plan->n - from) % plan->n;
}

/* The partial sum of a block begins at the member after its owner and goes round the ring to the
 * owner, so that the owner's is the last input. All blocks are on their way at once, each from
 * another member (Patarasuk & Yuan 2009). */
static enum muster_reduce_step reduce_step(const struct muster_plan *plan, uint32_t block)
{
    uint32_t owner = owner_of(plan, block);
    uint32_t position = ring_distance(plan, (owner + 1) % plan->n, plan->index);

    if (!plan->has_reduction)
        return MUSTER_REDUCE_NONE;
    if (position == 0)
        return MUSTER_REDUCE_START;
    return position == plan->n - 1 ? MUSTER_REDUCE_FINISH : MUSTER_REDUCE_PASS;
}

/* Final values go round from the owner. Where only the owner wants them, the next member, which
 * began the sum, still has to learn that the chunk is done: its window moves on by that. */
static enum muster_gather_step gather_step(const struct muster_plan *plan, uint32_t block)
{
    uint32_t position = ring_distance(plan, owner_of(plan, block), plan->index);

    if (is_scatter(plan->kind) || plan->kind == MUSTER_OP_REDUCE) {
        if (position == 0)
            return MUSTER_GATHER_ALONE;
        return position == 1 ? MUSTER_GATHER_HEAR : MUSTER_GATHER_NONE;
    }
    if (position == 0)
        return MUSTER_GATHER_SOURCE;
    return position == plan->n - 1 ? MUSTER_GATHER_LAST : MUSTER_GATHER_PASS;
}

uint64_t muster_plan_block_first(const struct muster_plan *plan, uint32_t block)
{
    uint64_t first;

    if (plan->algorithm == MUSTER_ALGORITHM_DIRECT)
        return block == 0 ? 0 : plan->count;
    if (plan->offsets != NULL)
        return plan->offsets[block];
    first = block * plan->block_elements;
    /* Rounding to cache lines may leave nothing for the last blocks: they are empty, at the end. */
    return first < plan->count ? first : plan->count;
}

struct muster_plan_chunk muster_plan_chunk(const struct muster_plan *plan, uint32_t c)
{
    struct muster_plan_chunk chunk = {.block = c / plan->chunks_per_block};
    uint64_t block_end = muster_plan_block_first(plan, chunk.block + 1);
    uint64_t end;

    /* All blocks have as many chunks as the longest, so the last ones of a shorter block are empty.
     */
    MUSTER_ASSERT(c < plan->chunk_count);
    chunk.first = muster_plan_block_first(plan, chunk.block) +
                  (c % plan->chunks_per_block) * plan->chunk_elements;
    if (chunk.first > block_end)
        chunk.first = block_end;
    end = chunk.first + plan->chunk_elements;
    chunk.count = (end < block_end ? end : block_end) - chunk.first;
    if (plan->algorithm != MUSTER_ALGORITHM_RING)
        return chunk;
    chunk.reduce = reduce_step(plan, chunk.block);
    chunk.gather = gather_step(plan, chunk.block);
    return chunk;
}

bool muster_plan_is_wanted(const struct muster_plan *plan, uint32_t c)
{
    if (plan->kind == MUSTER_OP_REDUCE)
        return plan->index == plan->root;
    return plan->algorithm == MUSTER_ALGORITHM_DIRECT || plan->algorithm == MUSTER_ALGORITHM_FLAT ||
           !is_scatter(plan->kind) || c / plan->chunks_per_block == plan->index;
}

uint32_t muster_plan_wanted_count(const struct muster_plan *plan)
{
    if (plan->kind == MUSTER_OP_REDUCE && plan->index != plan->root)
        return 0;
    if (plan->algorithm != MUSTER_ALGORITHM_DIRECT && is_scatter(plan->kind))
        return plan->chunks_per_block;
    return plan->chunk_count;
}
