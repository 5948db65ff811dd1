/* The index of a table: insertion and growth. Every store leaves it right for a search: a slot is
 * stored whole, a larger index is filled before the smaller one is given back. */
#include "params/store/index.h"

#include <stdatomic.h>

/* Four slots per new row would be enough to fill the larger index before it is half full. */
#define STEP_PER_ROW 8u
/* The row of a slot that is moved lies anywhere: it is prefetched so many slots before. */
#define STEP_AHEAD (4 * STEP_PER_ROW)
/* New rows pay, piece by piece, for clearing the larger index: it has at most so many bits more than the old one. */
#define GROW_BITS_MAX 3u

static uint64_t slots_of(const struct muster_params_index *index)
{
    return UINT64_C(1) << index->bits;
}

static uint64_t slot_of_row(const struct muster_params_region *region,
                            const struct muster_params_row *row, uint64_t hash)
{
    uint64_t address = muster_params_offset(region, row) / MUSTER_PARAMS_GRANULE_BYTES;

    MUSTER_ASSERT(address <= UINT32_MAX);
    return (uint64_t)muster_params_index_tag(hash) << 32 | address;
}

void muster_params_index_insert(struct muster_params_region *region,
                                struct muster_params_store_table *table,
                                const struct muster_params_row *row)
{
    const struct muster_params_index *index = muster_params_index_newest(table);
    uint64_t *slots = muster_params_at(region, index->offset);
    uint64_t hash = muster_params_hash(table->seed, row->key), mask = slots_of(index) - 1;
    uint64_t slot = slot_of_row(region, row, hash), i = hash & mask;

    while (slots[i] != 0 && slots[i] != slot)
        i = (i + 1) & mask;
    MUSTER_PARAMS_STORE(&slots[i], slot);
}

/* --- Removal --- */

#define NOWHERE UINT64_MAX

/* Where the index has the slot, or NOWHERE. */
static uint64_t slot_find(const struct muster_params_region *region,
                          const struct muster_params_index *index, uint64_t hash, uint64_t slot)
{
    const uint64_t *slots = muster_params_at(region, index->offset);
    uint64_t mask = slots_of(index) - 1;

    for (uint64_t i = hash & mask; slots[i] != 0; i = (i + 1) & mask) {
        if (slots[i] == slot)
            return i;
    }
    return NOWHERE;
}

/* The first slot after the hole that a search would not find any more if the hole were free: its row
 * belongs at the hole or before it (Knuth, The Art of Computer Programming 3, 6.4, algorithm R). */
static uint64_t slot_follower(const struct muster_params_region *region,
                              const struct muster_params_store_table *table,
                              const struct muster_params_index *index, uint64_t hole)
{
    const uint64_t *slots = muster_params_at(region, index->offset);
    uint64_t mask = slots_of(index) - 1;

    for (uint64_t i = (hole + 1) & mask; slots[i] != 0; i = (i + 1) & mask) {
        uint64_t key = muster_params_row_of(region, slots[i])->key;
        uint64_t home = muster_params_hash(table->seed, key) & mask;

        if (((i - home) & mask) >= ((i - hole) & mask))
            return i;
    }
    return NOWHERE;
}

/* The intent knows the hole, so that an interrupted call neither looks for the removed slot, which may
 * have been overwritten, nor leaves the copy of another one behind. */
static void hole_close(struct muster_params_region *region,
                       const struct muster_params_store_table *table,
                       const struct muster_params_index *index)
{
    uint64_t *slots = muster_params_at(region, index->offset);
    uint64_t *hole = &region->head->intent.count;

    for (;;) {
        uint64_t next = slot_follower(region, table, index, *hole);

        MUSTER_PARAMS_STORE(&slots[*hole], next == NOWHERE ? 0 : slots[next]);
        if (next == NOWHERE)
            return;
        MUSTER_PARAMS_STORE(hole, next);
    }
}

void muster_params_index_remove(struct muster_params_region *region,
                                struct muster_params_store_table *table,
                                const struct muster_params_row *row)
{
    const struct muster_params_index *newest = muster_params_index_newest(table);
    uint64_t hash = muster_params_hash(table->seed, row->key);
    uint64_t slot = slot_of_row(region, row, hash);
    struct muster_params_intent *intent = &region->head->intent;

    if ((table->index_state & MUSTER_PARAMS_INDEX_GROWING) != 0) {
        const struct muster_params_index *old = &table->index[table->index_state & 1];
        uint64_t *slots = muster_params_at(region, old->offset), at;

        /* Slots of the smaller index stay where they are: those after `moved` are still to be moved. */
        at = slot_find(region, old, hash, slot);
        if (at != NOWHERE)
            MUSTER_PARAMS_STORE(&slots[at], MUSTER_PARAMS_SLOT_REMOVED);
    }
    if (intent->count == NOWHERE)
        MUSTER_PARAMS_STORE(&intent->count, slot_find(region, newest, hash, slot));
    if (intent->count != NOWHERE)
        hole_close(region, table, newest);
}

/* --- Growth --- */

static uint32_t run_of(uint32_t bits)
{
    uint64_t bytes = sizeof(uint64_t) << bits;

    return (uint32_t)((bytes + MUSTER_PARAMS_SEGMENT_BYTES - 1) / MUSTER_PARAMS_SEGMENT_BYTES);
}

void muster_params_grow_complete(struct muster_params_region *region,
                                 const struct muster_params_intent *intent)
{
    struct muster_params_store_table *table = &region->head->tables[intent->table];
    struct muster_params_index *index = &table->index[~table->index_state & 1];

    muster_params_segment_claim(region, intent->segment, intent->run, intent->table);
    index->offset = (uint64_t)intent->segment * MUSTER_PARAMS_SEGMENT_BYTES;
    index->bits = (uint32_t)intent->count;
    index->moved = 0;
    MUSTER_PARAMS_STORE(&table->index_state, table->index_state | MUSTER_PARAMS_INDEX_PREPARING);
}

/* No intent is needed: nothing leads to a segment that is prepared, and an interrupted one is prepared again, all
 * of them where only the last store is missing. */
void muster_params_index_prepare(struct muster_params_region *region,
                                 struct muster_params_store_table *table, uint32_t segments)
{
    struct muster_params_index *larger = &table->index[~table->index_state & 1];
    uint32_t first = (uint32_t)(larger->offset / MUSTER_PARAMS_SEGMENT_BYTES);

    if ((table->index_state & MUSTER_PARAMS_INDEX_PREPARING) == 0)
        return;
    for (; segments > 0 && larger->moved < run_of(larger->bits); segments--) {
        muster_params_segment_prepare(region, first + larger->moved);
        MUSTER_PARAMS_STORE(&larger->moved, larger->moved + 1);
    }
    if (larger->moved < run_of(larger->bits))
        return;
    MUSTER_PARAMS_STORE(&larger->moved, 0);
    MUSTER_PARAMS_STORE(&table->index_state,
                        (table->index_state & 1) | MUSTER_PARAMS_INDEX_GROWING);
}

/* Twice as large, or as large as the rows that are expected would make it by and by: each doubling moves all slots. */
static uint32_t bits_next(const struct muster_params_region *region, uint32_t bits)
{
    uint32_t next = bits + 1;

    while (next < bits + GROW_BITS_MAX && region->rows_expected >= UINT64_C(1) << next >> 1)
        next++;
    return next;
}

static void index_grow(struct muster_params_region *region, struct muster_params_store_table *table)
{
    uint32_t bits = table->index[table->index_state & 1].bits, next = bits_next(region, bits);
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_GROW,
                                          .table = muster_params_table_number(region, table)};

    for (; next > bits && intent.segment == 0; next--) {
        intent.count = next;
        intent.run = run_of(next);
        intent.segment = muster_params_segment_find(region, intent.run);
    }
    if (intent.segment == 0)
        return;
    muster_params_intent_begin(region, &intent);
    muster_params_grow_complete(region, &region->head->intent);
    muster_params_intent_end(region);
}

/* One segment with each of as many rows, evenly, as take the smaller index from a half to five eighths; all that
 * are left when the row would else be refused. */
static void index_prepare_next(struct muster_params_region *region,
                               struct muster_params_store_table *table)
{
    const struct muster_params_index *larger = &table->index[~table->index_state & 1];
    uint64_t slots = slots_of(muster_params_index_newest(table)), run = run_of(larger->bits);
    uint64_t due = (table->row_count - slots / 2) * run / (slots / 8) + 1;

    if (table->row_count >= slots / 8 * 7)
        muster_params_index_prepare(region, table, UINT32_MAX);
    else if (larger->moved < due)
        muster_params_index_prepare(region, table, 1);
}

enum muster_rc muster_params_index_reserve(struct muster_params_region *region,
                                           struct muster_params_store_table *table)
{
    uint64_t slots;

    muster_params_index_step(region, table, STEP_PER_ROW);
    slots = slots_of(muster_params_index_newest(table));
    if (table->row_count < slots / 2)
        return MUSTER_OK;
    if (table->index_state <= 1)
        index_grow(region, table);
    if ((table->index_state & MUSTER_PARAMS_INDEX_PREPARING) != 0)
        index_prepare_next(region, table);
    slots = slots_of(muster_params_index_newest(table));
    return table->row_count < slots / 8 * 7 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;
}

/* The first index shares its segment with the heads of the shards, and stays. */
void muster_params_grown_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent)
{
    struct muster_params_store_table *table = &region->head->tables[intent->table];

    MUSTER_PARAMS_STORE(&table->index_state, (uint32_t)intent->count);
    if (intent->run > 0)
        muster_params_segment_free(region, intent->segment, intent->run);
}

static void index_finish(struct muster_params_region *region, struct muster_params_store_table *table)
{
    const struct muster_params_index *old = &table->index[table->index_state & 1];
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_GROWN,
                                          .table = muster_params_table_number(region, table),
                                          .count = (table->index_state & 1) ^ 1};

    if (old->bits > MUSTER_PARAMS_INDEX_BITS_FIRST) {
        intent.segment = (uint32_t)(old->offset / MUSTER_PARAMS_SEGMENT_BYTES);
        intent.run = run_of(old->bits);
    }
    muster_params_intent_begin(region, &intent);
    muster_params_grown_complete(region, &region->head->intent);
    muster_params_intent_end(region);
}

void muster_params_index_step(struct muster_params_region *region,
                              struct muster_params_store_table *table, uint32_t slots)
{
    struct muster_params_index *old = &table->index[table->index_state & 1];
    struct muster_params_index *newest = &table->index[~table->index_state & 1];
    const uint64_t *from = muster_params_at(region, old->offset);

    if ((table->index_state & MUSTER_PARAMS_INDEX_GROWING) == 0)
        return;
    for (; slots > 0 && newest->moved < slots_of(old); slots--) {
        uint64_t slot = from[newest->moved];

        __builtin_prefetch(
            muster_params_row_of(region, from[(newest->moved + STEP_AHEAD) & (slots_of(old) - 1)]));
        if (slot != 0 && slot != MUSTER_PARAMS_SLOT_REMOVED)
            muster_params_index_insert(region, table, muster_params_row_of(region, slot));
        MUSTER_PARAMS_STORE(&newest->moved, newest->moved + 1);
    }
    if (newest->moved == slots_of(old))
        index_finish(region, table);
}
