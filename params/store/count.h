/* How often a row was pushed to, for tables that evict the rows with the fewest pushes.
 *
 * The count lies after the optimizer's state, so that the undo slot, copies and cuts have it. Its lower half is the
 * count, its upper half the age of the shard at which it was stored: rows that are not pushed to need no visit to be
 * halved. The digest of a row leaves it out. */
#ifndef MUSTER_PARAMS_COUNT_H
#define MUSTER_PARAMS_COUNT_H

#include <string.h>

#include "params/store/table.h"

/** The halves of a count, which is stored in the place of a float. */
static inline uint32_t muster_params_values_count(const struct muster_params_store_table *table,
                                                  const float *values)
{
    uint32_t count;

    memcpy(&count, values + table->row_elements + table->state_elements - 1, sizeof(count));
    return count;
}

static inline uint32_t muster_params_row_count(const struct muster_params_store_table *table,
                                               const struct muster_params_row *row)
{
    return muster_params_values_count(table, row->values);
}

/** How many ages of the shard have passed since; negative: the count was stored at a later one. */
static inline int16_t muster_params_count_distance(uint32_t count, uint32_t age)
{
    return (int16_t)(uint16_t)(age - (count >> 16));
}

/** Pushes, halved with each age that has passed since. */
static inline uint32_t muster_params_count_at(uint32_t count, uint32_t age)
{
    int16_t distance = muster_params_count_distance(count, age);

    return distance >= 16 ? 0 : (count & UINT16_MAX) >> (distance > 0 ? distance : 0);
}

/** A push to the row, at this age of its shard. */
static inline void muster_params_row_count_push(const struct muster_params_store_table *table,
                                                struct muster_params_row *row, uint32_t age)
{
    uint32_t count = muster_params_count_at(muster_params_row_count(table, row), age);

    count = (count < UINT16_MAX ? count + 1 : count) | age << 16;
    memcpy(row->values + table->row_elements + table->state_elements - 1, &count, sizeof(count));
}

#endif
