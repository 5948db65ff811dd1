/* Memory for the copies of a checkpoint. */
#include "training/strategy_copies.h"

#include <muster/strategy_checkpoint.h>

#include "training/checkpoint/shard.h"
#include "training/strategy_internal.h"

size_t muster_strategy_copies_bytes(const struct muster_strategy *strategy, uint64_t bytes_max)
{
    const struct muster_checkpoint_name any = {.step = 0};
    struct muster_checkpoint_shard_head head;
    uint64_t state_bytes = 0;

    for (size_t i = 0; i < strategy->tensor_count; i++) {
        const struct muster_tensor *tensor = &strategy->tensors[i].tensor;

        state_bytes += tensor->count * muster_dtype_bytes(tensor->dtype);
    }
    muster_checkpoint_shard_head_init(&head, &any, state_bytes, strategy->rank, strategy->size);
    return (size_t)(bytes_max != 0 && bytes_max < head.bytes ? bytes_max : head.bytes);
}

/* Room that is left of an earlier checkpoint is taken, also where it is larger. A single page needs no thread. */
enum muster_rc muster_strategy_copies_reserve(struct muster_strategy *strategy, size_t bytes)
{
    struct muster_huge_memory *memory = &strategy->saving.copies.memory;
    enum muster_rc rc;

    if (memory->capacity >= bytes)
        return MUSTER_OK;
    muster_huge_memory_close(memory);
    rc = muster_huge_memory_open(strategy->env->mem, bytes, memory);
    if (rc == MUSTER_OK && bytes >= MUSTER_HUGE_PAGE_BYTES)
        muster_huge_memory_take_start(memory);
    return rc;
}

size_t muster_strategy_copies_new_bytes(const struct muster_strategy *strategy, size_t bytes)
{
    size_t taken = muster_huge_memory_taken_bytes(&strategy->saving.copies.memory);

    return taken < bytes ? bytes - taken : 0;
}

static bool is_expected(const struct muster_strategy *strategy)
{
    const struct muster_strategy_schedule *schedule = &strategy->schedule;

    return strategy->saving.copies.is_expected ||
           (schedule->folder != NULL && (schedule->steps != 0 || schedule->every_ns != 0));
}

void muster_strategy_copies_prepare(struct muster_strategy *strategy)
{
    struct muster_strategy_copies *copies = &strategy->saving.copies;
    size_t bytes;

    if (!is_expected(strategy) || strategy->saving.state != MUSTER_SAVING_NONE)
        return;
    bytes = muster_strategy_copies_bytes(strategy, copies->bytes_max);
    if (copies->memory.capacity / 2 > bytes + MUSTER_HUGE_PAGE_BYTES)
        muster_huge_memory_close(&copies->memory); /* of fewer members */
    (void)!muster_strategy_copies_reserve(strategy, bytes);
}

enum muster_rc muster_strategy_checkpoint_prepare(struct muster_strategy *strategy,
                                                  uint64_t copy_bytes_max)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "checkpoint_prepare");

    if (rc != MUSTER_OK)
        return rc;
    strategy->saving.copies.is_expected = true;
    strategy->saving.copies.bytes_max = copy_bytes_max;
    muster_strategy_leave(strategy);
    return MUSTER_OK;
}

void muster_strategy_copies_fini(struct muster_strategy *strategy)
{
    MUSTER_ASSERT(strategy->saving.state == MUSTER_SAVING_NONE);
    muster_huge_memory_close(&strategy->saving.copies.memory);
}
