/* Plans as values, computed from (kind, n, index, count, parameters) alone. */
#include "collective/plan.h"

#include <assert.h>

#define LINE_BYTES 64u
/* Partial sums on their way, of all owners together: bounds staging at 32 chunks per operation and
 * member. */
#define WINDOW_CHUNKS_ALL 32u
#define WINDOW_MIN        2u
/* Two keep both directions busy; what is in flight beyond some 1 MiB only falls out of the cache. */
#define WINDOW_MAX 4u

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
    if (value < low)
        return low;
    return value > high ? high : value;
}

struct muster_plan_parameters muster_plan_parameters_clamp(
    const struct muster_plan_parameters *parameters)
{
    struct muster_plan_parameters result = *parameters;

    if (result.chunk_bytes == 0)
        result.chunk_bytes = MUSTER_CHUNK_BYTES_DEFAULT;
    if (result.direct_max_bytes == 0)
        result.direct_max_bytes = MUSTER_DIRECT_MAX_BYTES_DEFAULT;
    result.chunk_bytes = (uint32_t)clamp(result.chunk_bytes, LINE_BYTES, MUSTER_CHUNK_BYTES_MAX);
    result.chunk_bytes -= result.chunk_bytes % LINE_BYTES;
    result.direct_max_bytes =
        (uint32_t)clamp(result.direct_max_bytes, 1, MUSTER_DIRECT_MAX_BYTES_MAX);
    return result;
}

static bool has_parts(enum muster_op_kind kind)
{
    return kind == MUSTER_OP_ALL_GATHER || kind == MUSTER_OP_REDUCE_SCATTER;
}

static void make_direct(struct muster_plan *plan)
{
    plan->algorithm = MUSTER_ALGORITHM_DIRECT;
    plan->block_count = 1;
    plan->block_elements = plan->count;
    plan->chunk_elements = plan->count;
    plan->chunks_per_block = 1;
    plan->chunk_count = 1;
    plan->is_next_asked = false;
}

/* Blocks of an all_reduce begin at cache lines; those of the others are the parts that the caller
 * sees. */
static uint64_t block_elements(const struct muster_plan *plan)
{
    uint64_t line = LINE_BYTES / plan->element_bytes;

    if (plan->kind == MUSTER_OP_BROADCAST)
        return plan->count;
    if (has_parts(plan->kind))
        return plan->count / plan->n;
    return divide_up(divide_up(plan->count, line), plan->n) * line;
}

/* At least two chunks per block, so that adding overlaps with sending, but none below 64 KiB for
 * the calls' sake; all alike, because a short one at the end costs as many hops as a long one. A
 * broadcast does not look at n: a member that joins in later must come to the same chunks. */
static uint64_t chunk_elements(const struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    uint64_t pieces = plan->kind == MUSTER_OP_BROADCAST ? 8 : 2;
    uint64_t block_bytes = plan->block_elements * plan->element_bytes;
    uint64_t pieces_max = divide_up(block_bytes, chunk_bytes_max);
    uint64_t bytes = divide_up(block_bytes, pieces_max > pieces ? pieces_max : pieces);
    uint64_t low =
        chunk_bytes_max < MUSTER_CHUNK_BYTES_MIN ? chunk_bytes_max : MUSTER_CHUNK_BYTES_MIN;

    bytes = clamp(divide_up(bytes, LINE_BYTES) * LINE_BYTES, low, chunk_bytes_max);
    return bytes / plan->element_bytes;
}

static void make_ring(struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    plan->algorithm = MUSTER_ALGORITHM_RING;
    plan->block_elements = block_elements(plan);
    plan->block_count = plan->kind == MUSTER_OP_BROADCAST ? 1 : plan->n;
    plan->chunk_elements = chunk_elements(plan, chunk_bytes_max);
    plan->chunks_per_block = (uint32_t)divide_up(plan->block_elements, plan->chunk_elements);
    plan->chunk_count = plan->chunks_per_block * plan->block_count;
    plan->start_block = plan->prev;
    plan->window = (uint32_t)clamp(WINDOW_CHUNKS_ALL / (plan->n - 1), WINDOW_MIN, WINDOW_MAX);
    plan->is_next_asked = !plan->has_reduction;
}

struct muster_plan muster_plan_make(const struct muster_plan_input *input)
{
    struct muster_plan_parameters parameters = muster_plan_parameters_clamp(&input->parameters);
    struct muster_plan plan = {
        .kind = input->kind,
        .n = input->n,
        .index = input->index,
        .root = input->root,
        .next = (input->index + 1) % input->n,
        .prev = (input->index + input->n - 1) % input->n,
        .count = input->count,
        .element_bytes = input->element_bytes,
        .has_reduction =
            input->kind == MUSTER_OP_ALL_REDUCE || input->kind == MUSTER_OP_REDUCE_SCATTER,
    };

    assert(input->index < input->n && input->root < input->n);
    if (input->n == 1 || input->kind == MUSTER_OP_BARRIER ||
        input->count * input->element_bytes <= parameters.direct_max_bytes)
        make_direct(&plan);
    else
        make_ring(&plan, parameters.chunk_bytes);
    return plan;
}

/* Members from `from` onwards to `to` in the direction of the ring. */
static uint32_t distance(const struct muster_plan *plan, uint32_t from, uint32_t to)
{
    return (to + plan->n - from) % plan->n;
}

static enum muster_reduce_step reduce_step(const struct muster_plan *plan, uint32_t block)
{
    uint32_t position = distance(plan, (block + 1) % plan->n, plan->index);

    if (!plan->has_reduction)
        return MUSTER_REDUCE_NONE;
    if (position == 0)
        return MUSTER_REDUCE_START;
    return position == plan->n - 1 ? MUSTER_REDUCE_FINISH : MUSTER_REDUCE_PASS;
}

static enum muster_gather_step gather_step(const struct muster_plan *plan, uint32_t block)
{
    uint32_t owner = plan->kind == MUSTER_OP_BROADCAST ? plan->root : block;
    uint32_t position = distance(plan, owner, plan->index);

    if (plan->kind == MUSTER_OP_REDUCE_SCATTER) {
        if (position == 0)
            return MUSTER_GATHER_ALONE;
        return position == 1 ? MUSTER_GATHER_HEAR : MUSTER_GATHER_NONE;
    }
    if (position == 0)
        return MUSTER_GATHER_SOURCE;
    return position == plan->n - 1 ? MUSTER_GATHER_LAST : MUSTER_GATHER_PASS;
}

struct muster_plan_chunk muster_plan_chunk(const struct muster_plan *plan, uint32_t c)
{
    struct muster_plan_chunk chunk = {.block = c / plan->chunks_per_block};
    uint64_t block_first = chunk.block * plan->block_elements;
    uint64_t block_end = block_first + plan->block_elements;
    uint64_t end;

    assert(c < plan->chunk_count);
    if (block_first > plan->count)
        block_first = plan->count;
    if (block_end > plan->count)
        block_end = plan->count;
    chunk.first = block_first + (c % plan->chunks_per_block) * plan->chunk_elements;
    if (chunk.first > block_end)
        chunk.first = block_end;
    end = chunk.first + plan->chunk_elements;
    chunk.count = (end < block_end ? end : block_end) - chunk.first;
    if (plan->algorithm == MUSTER_ALGORITHM_DIRECT)
        return chunk;
    chunk.reduce = reduce_step(plan, chunk.block);
    chunk.gather = gather_step(plan, chunk.block);
    return chunk;
}

bool muster_plan_is_wanted(const struct muster_plan *plan, uint32_t c)
{
    return plan->algorithm == MUSTER_ALGORITHM_DIRECT || plan->kind != MUSTER_OP_REDUCE_SCATTER ||
           c / plan->chunks_per_block == plan->index;
}

uint32_t muster_plan_wanted_count(const struct muster_plan *plan)
{
    if (plan->algorithm == MUSTER_ALGORITHM_RING && plan->kind == MUSTER_OP_REDUCE_SCATTER)
        return plan->chunks_per_block;
    return plan->chunk_count;
}
