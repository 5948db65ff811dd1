/* From a key to its row: open addressing with linear probing. While there is memory, one that is half full
 * gets a larger one, whose memory is prepared a segment at a time, before the smaller one is five eighths
 * full, and which is then filled from that a few slots at a time; meanwhile both are searched. */
#ifndef MUSTER_PARAMS_INDEX_H
#define MUSTER_PARAMS_INDEX_H

#include "params/store/table.h"

#define MUSTER_PARAMS_INDEX_BITS_FIRST 17u
#define MUSTER_PARAMS_INDEX_GROWING    2u
#define MUSTER_PARAMS_INDEX_PREPARING  4u /* neither searched nor filled yet */

static inline uint32_t muster_params_index_tag(uint64_t hash)
{
    return (uint32_t)(hash >> 20);
}

static inline struct muster_params_row *
muster_params_row_of(const struct muster_params_region *region, uint64_t slot)
{
    return muster_params_at(region, (uint64_t)(uint32_t)slot * MUSTER_PARAMS_GRANULE_BYTES);
}

static inline const uint64_t *muster_params_index_slot(const struct muster_params_region *region,
                                                       const struct muster_params_index *index,
                                                       uint64_t hash)
{
    const uint64_t *slots = muster_params_at(region, index->offset);

    return &slots[hash & ((UINT64_C(1) << index->bits) - 1)];
}

static inline struct muster_params_row *
muster_params_index_probe(const struct muster_params_region *region,
                          const struct muster_params_index *index, uint64_t hash, uint64_t key)
{
    const uint64_t *slots = muster_params_at(region, index->offset);
    uint64_t mask = (UINT64_C(1) << index->bits) - 1;
    uint64_t tag = (uint64_t)muster_params_index_tag(hash);

    for (uint64_t i = hash & mask; slots[i] != 0; i = (i + 1) & mask) {
        struct muster_params_row *row;

        if (slots[i] >> 32 != (tag & UINT32_MAX) || slots[i] == MUSTER_PARAMS_SLOT_REMOVED)
            continue;
        row = muster_params_row_of(region, slots[i]);
        if (row->key == key)
            return row;
    }
    return NULL;
}

/** The index that new rows go to. */
static inline const struct muster_params_index *
muster_params_index_newest(const struct muster_params_store_table *table)
{
    uint32_t state = table->index_state;

    return &table->index[(state & 1) ^ (state >> 1 & 1)];
}

/** NULL: no row has this key. */
static inline struct muster_params_row *
muster_params_index_find(const struct muster_params_region *region,
                         const struct muster_params_store_table *table, uint64_t hash, uint64_t key)
{
    struct muster_params_row *row =
        muster_params_index_probe(region, muster_params_index_newest(table), hash, key);

    if (row == NULL && (table->index_state & MUSTER_PARAMS_INDEX_GROWING) != 0)
        row = muster_params_index_probe(region, &table->index[table->index_state & 1], hash, key);
    return row;
}

/** Idempotent: the newest index leads to the row. There must be a free slot. */
void muster_params_index_insert(struct muster_params_region *region,
                                struct muster_params_store_table *table,
                                const struct muster_params_row *row);
/**
 * No search finds the row any more. region->head->intent is the one of its removal, and tells an
 * interrupted call where to go on.
 */
void muster_params_index_remove(struct muster_params_region *region,
                                struct muster_params_store_table *table,
                                const struct muster_params_row *row);
/** Whether one more row may go in. Begins a larger index when this one is half full; RESOURCE_EXHAUSTED
 * when there is no memory for one and this one is seven eighths full. */
MUSTER_MUST_CHECK enum muster_rc muster_params_index_reserve(struct muster_params_region *region,
                                                             struct muster_params_store_table *table);
/** Prepare up to `segments` segments of the larger index, if there is one that lacks some; with the last one
 * it begins to be filled. */
void muster_params_index_prepare(struct muster_params_region *region,
                                 struct muster_params_store_table *table, uint32_t segments);
/** Move up to `slots` slots to the larger index, if there is one. */
void muster_params_index_step(struct muster_params_region *region,
                              struct muster_params_store_table *table, uint32_t slots);

void muster_params_grow_complete(struct muster_params_region *region,
                                 const struct muster_params_intent *intent);
void muster_params_grown_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent);

#endif
