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
    if (table->wire_dtype != MUSTER_F32 || params->map == NULL || params->map->copies_wanted > 1)
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
