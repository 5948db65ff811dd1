/* Copies of other servers' rows. They are no pushes: no position advances with them, so a death amid
 * the copy of a shard leaves a shard that nobody uses, and that is copied again from its begin. */
#include "params/store/load.h"

#include <stdatomic.h>
#include <string.h>

#include "params/store/row.h"

void muster_params_shard_forget(struct muster_params_region *region, uint32_t shard)
{
    for (uint64_t slot = 0; slot < region->head->source_count; slot++)
        MUSTER_PARAMS_STORE(&muster_params_source_at(region, slot)->positions[shard], 0);
}

enum muster_rc muster_params_row_load(struct muster_params_region *region,
                                      struct muster_params_store_table *table, uint64_t key,
                                      uint32_t clock, const float *values)
{
    uint64_t hash = muster_params_hash(table->seed, key);
    struct muster_params_row *row = NULL;
    enum muster_rc rc = muster_params_row_make(region, table, key, hash, &row);

    if (rc != MUSTER_OK)
        return rc;
    __atomic_store_n(&row->version, row->version + 1, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release); /* pairs with the reader's fence before its copy */
    memcpy(row->values, values,
           (table->row_elements + table->state_elements) * sizeof(row->values[0]));
    row->clock = clock;
    __atomic_store_n(&row->version, row->version + 1, __ATOMIC_RELEASE);
    return MUSTER_OK;
}

void muster_params_position_load(struct muster_params_source *source, uint32_t shard,
                                 uint64_t position)
{
    MUSTER_PARAMS_STORE(&source->positions[shard], position);
}
