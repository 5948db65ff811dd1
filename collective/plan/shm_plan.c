/* Plans of operations through shared memory. They start from the plan for sockets and change what
 * it cuts: in shared memory a member reads its neighbours' inputs in place, so chunks are units of
 * work and not of sending. */
#include "collective/plan/plan.h"
#include "collective/plan/shm_limits.h"

#include <string.h>

#define LINE_BYTES 64u
/* The vector of a freeze has a bit for each chunk: 8 KiB for one operation at most. */
#define CHUNKS_MAX 65536u
/* Chunks of one block: summing the next overlaps with copying the last. */
#define PIECES_MIN 4u
/* Every chunk costs flags and a look at each peer, whatever its size, so there is a least size. The value is a
 * choice: no benchmark of the project compares it with others. */
#define CHUNK_BYTES_SMALL (8u << 10)

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool muster_plan_is_shm(const struct muster_plan *plan)
{
    return plan->algorithm == MUSTER_ALGORITHM_FLAT || plan->algorithm == MUSTER_ALGORITHM_HOST;
}

static uint64_t block_elements(const struct muster_plan *plan)
{
    uint64_t line = plan->element_bytes < LINE_BYTES ? LINE_BYTES / plan->element_bytes : 1;

    return divide_up(divide_up(plan->count, line), plan->n) * line;
}

static uint64_t chunk_elements(const struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    uint64_t block_bytes = plan->block_elements * plan->element_bytes;
    uint64_t bytes = divide_up(block_bytes, PIECES_MIN);

    if (bytes < CHUNK_BYTES_SMALL)
        bytes = CHUNK_BYTES_SMALL;
    bytes = min_u64(bytes, min_u64(chunk_bytes_max, MUSTER_SHM_CHUNK_BYTES));
    if (bytes < divide_up(block_bytes, CHUNKS_MAX / plan->n))
        bytes = divide_up(block_bytes, CHUNKS_MAX / plan->n);
    return divide_up(bytes, LINE_BYTES) * LINE_BYTES / plan->element_bytes;
}

static void make_chunks(struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    plan->algorithm = MUSTER_ALGORITHM_HOST;
    plan->block_elements = block_elements(plan);
    plan->block_count = plan->n;
    plan->chunk_elements = chunk_elements(plan, chunk_bytes_max);
    plan->chunks_per_block = (uint32_t)divide_up(plan->block_elements, plan->chunk_elements);
    plan->chunk_count = plan->chunks_per_block * plan->block_count;
}

/* Each takes its part: nobody has chunks for another. */
static void make_parts(struct muster_plan *plan, uint32_t chunk_bytes_max)
{
    plan->algorithm = MUSTER_ALGORITHM_HOST;
    plan->block_elements = plan->count;
    plan->block_count = plan->chunks_per_block = plan->chunk_count = 1;
    plan->chunk_elements = min_u64(chunk_bytes_max, MUSTER_SHM_PIECE_BYTES) / plan->element_bytes;
}

static void make_flat(struct muster_plan *plan)
{
    plan->algorithm = MUSTER_ALGORITHM_FLAT;
    plan->block_elements = plan->chunk_elements = plan->count;
    plan->block_count = plan->chunks_per_block = plan->chunk_count = 1;
}

/* Each member reads the inputs of all in a flat operation, so the bound falls with their number. */
static uint64_t flat_bytes_max(const struct muster_plan_input *input)
{
    uint64_t bytes = min_u64(MUSTER_SHM_FLAT_BYTES, MUSTER_SHM_FLAT_BYTES_ALL / input->n);
    uint64_t wanted = input->parameters.direct_max_bytes;

    return wanted == 0 ? bytes : min_u64(wanted, bytes);
}

struct muster_plan muster_shm_plan_make(const struct muster_plan_input *input)
{
    struct muster_plan plan = muster_plan_make(input);
    struct muster_plan_input by_sockets;

    /* A forced algorithm is one of the sockets' (also on one host), and a member alone copies. */
    if (input->n == 1 || plan.algorithm == input->parameters.forced)
        return plan;
    if (input->parameters.row_count > 0 && muster_plan_leaves_shm(input, &by_sockets))
        return muster_plan_make(&by_sockets);
    plan.is_next_asked = false;
    plan.offsets = NULL;
    plan.start_block = plan.window = 0;
    if (input->kind == MUSTER_OP_BARRIER ||
        input->count * input->element_bytes <= flat_bytes_max(input))
        make_flat(&plan);
    else if (input->kind != MUSTER_OP_ALL_REDUCE)
        make_parts(&plan, muster_plan_chunk_bytes(&input->parameters));
    else
        make_chunks(&plan, muster_plan_chunk_bytes(&input->parameters));
    return plan;
}
