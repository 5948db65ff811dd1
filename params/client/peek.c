/* Rows of servers of this host, read from their memory. */
#include "params/client/client_internal.h"

#include "params/wire/hash.h"

static struct muster_params_way *way_of(const struct muster_params_table *table, uint64_t key)
{
    const struct muster_params *params = table->params;

    if (params->only != NULL)
        return params->only;
    return muster_params_route(
        params, muster_params_shard_of(muster_params_hash(table->seed, key), params->shard_count));
}

static uint32_t rows_together(const struct muster_params_table *table,
                              const struct muster_params_rows *rows, uint32_t from)
{
    const struct muster_params_way *way = way_of(table, rows->keys[from]);
    uint32_t count = 1;

    if (table->params->only != NULL)
        return rows->count - from;
    while (from + count < rows->count && way_of(table, rows->keys[from + count]) == way)
        count++;
    return count;
}

static bool peek_is_allowed(const struct muster_params_table *table)
{
    const struct muster_params *params = table->params;

    return table->wire_dtype == MUSTER_F32 && params->map != NULL &&
           params->map->copies_wanted <= 1;
}

bool muster_params_range_peek(const struct muster_params_table *table, uint64_t offset,
                              uint64_t count, float *ret_values)
{
    const struct muster_params_range_frame range = {.offset = offset, .count = count};
    uint64_t block = muster_params_range_block(&table->tensor, offset);
    uint32_t blocks = muster_params_range_blocks(&table->tensor, &range);
    uint64_t keys[MUSTER_PARAMS_EXTENT_BLOCKS];

    if (!peek_is_allowed(table) || table->params->options.no_host_memory ||
        table->is_by_round || /* the memory may have a part of a round */
        offset % table->row_elements != 0 || count % table->row_elements != 0)
        return false;
    MUSTER_ASSERT(blocks <= MUSTER_PARAMS_EXTENT_BLOCKS);
    for (uint32_t i = 0; i < blocks; i++)
        keys[i] = muster_params_block_key(table->seed, block + i);
    return muster_params_sight_read(way_of(table, keys[0]), table, keys, blocks, ret_values) ==
           MUSTER_OK;
}

/* The memory of a primary also has pushes that its followers do not have yet. The loss of the primary
 * would undo them, so that nothing is peeked where the job keeps replicas. */
enum muster_rc muster_params_peek(struct muster_params_table *table,
                                  const struct muster_params_rows *rows)
{
    const struct muster_params *params = table->params;
    uint32_t count;

    if (rows->count == 0)
        return MUSTER_INVALID_ARGUMENT;
    if (params->is_closing || params->is_failed)
        return MUSTER_FAILED_PRECONDITION;
    if (!peek_is_allowed(table))
        return MUSTER_UNAVAILABLE;
    for (uint32_t from = 0; from < rows->count; from += count) {
        count = rows_together(table, rows, from);
        if (muster_params_sight_read(
                way_of(table, rows->keys[from]), table, rows->keys + from, count,
                (float *)rows->values + (size_t)from * table->row_elements) != MUSTER_OK)
            return MUSTER_UNAVAILABLE;
    }
    return MUSTER_OK;
}
