/* Copies of other servers' rows. They are no pushes: no position advances with them, so a death amid
 * the copy of a shard leaves a shard that nobody uses, and that is copied again from its begin. */
#include "params/store/load.h"

#include <stdatomic.h>
#include <string.h>

#include "params/store/count.h"
#include "params/store/freeze.h"
#include "params/store/row.h"

static void row_write(const struct muster_params_store_table *table, struct muster_params_row *row,
                      uint32_t clock, const float *values)
{
    uint32_t version = row->version | 1; /* it is odd where a death has interrupted this */

    __atomic_store_n(&row->version, version, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release); /* pairs with the reader's fence before its copy */
    memcpy(row->values, values,
           (table->row_elements + table->state_elements) * sizeof(row->values[0]));
    row->clock = clock;
    __atomic_store_n(&row->version, version + 1, __ATOMIC_RELEASE);
}

/* The position that the undo slot names comes back to what it was: recovery would take that for a push that
 * a death has interrupted. */
void muster_params_shard_forget(struct muster_params_region *region, uint32_t shard)
{
    MUSTER_PARAMS_STORE(&region->head->undo.position_before, UINT64_MAX);
    for (uint32_t i = 0; i < region->head->table_count; i++)
        muster_params_rows_remove(region, &region->head->tables[i], shard);
    MUSTER_PARAMS_STORE(&region->head->removals[shard], 0);
    region->head->lacking[shard / 8] &= (uint8_t) ~(1u << shard % 8);
    for (uint64_t slot = 0; slot < region->head->source_count; slot++)
        MUSTER_PARAMS_STORE(&muster_params_source_at(region, slot)->positions[shard], 0);
}

/* The shard is at least as old here as any of its counts. */
static void shard_age(struct muster_params_region *region,
                      const struct muster_params_store_table *table, uint32_t number,
                      const float *values)
{
    struct muster_params_shard *shard = muster_params_shard_at(region, table, number);
    uint32_t count = muster_params_values_count(table, values);

    if (muster_params_count_distance(count, shard->age) < 0)
        MUSTER_PARAMS_STORE(&shard->age, count >> 16);
}

void muster_params_row_load_ahead(const struct muster_params_region *region,
                                  const struct muster_params_store_table *table, uint64_t key)
{
    uint64_t hash = muster_params_hash(table->seed, key);

    __builtin_prefetch(muster_params_index_slot(region, muster_params_index_newest(table), hash));
    if ((table->index_state & MUSTER_PARAMS_INDEX_GROWING) != 0)
        __builtin_prefetch(
            muster_params_index_slot(region, &table->index[table->index_state & 1], hash));
}

enum muster_rc muster_params_row_load(struct muster_params_region *region,
                                      struct muster_params_store_table *table, uint64_t key,
                                      uint32_t clock, const float *values)
{
    uint64_t hash = muster_params_hash(table->seed, key);
    uint32_t shard = muster_params_shard_of(hash, region->head->shard_count);
    struct muster_params_row *row = NULL;
    enum muster_rc rc = muster_params_row_make(region, table, key, hash, &row);

    if (rc != MUSTER_OK)
        return rc;
    muster_params_row_keep(region, table, shard, row, false);
    if (muster_params_table_counts(table))
        shard_age(region, table, shard, values);
    row_write(table, row, clock, values);
    return MUSTER_OK;
}

void muster_params_shard_lacks(struct muster_params_region *region, uint32_t shard)
{
    region->head->lacking[shard / 8] |= (uint8_t)(1u << shard % 8);
}

void muster_params_removals_load(struct muster_params_region *region, uint32_t shard,
                                 uint32_t removals)
{
    MUSTER_PARAMS_STORE(&region->head->removals[shard], removals);
}

void muster_params_position_load(struct muster_params_source *source, uint32_t shard,
                                 uint64_t position)
{
    MUSTER_PARAMS_STORE(&source->positions[shard], position);
}
