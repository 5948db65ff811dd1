/* The three passes of a push: index, rows, values. Each asks for the memory of the next, so that
 * the misses of a batch overlap. */
#include "params/store/apply.h"

#include <stdatomic.h>
#include <string.h>

#include "params/store/count.h"
#include "params/store/freeze.h"
#include "params/store/init.h"
#include "params/store/row.h"

#define BATCH                64u
#define INDEX_SLOTS_PER_PUSH 64u
#define CACHE_LINE_BYTES     64u

/* Rows of an update that are applied together, whatever their runs. */
struct batch {
    uint32_t count;
    bool is_prepared;           /* the table has row_prepare */
    uint32_t rows_at[BATCH];    /* places in the update */
    uint64_t *positions[BATCH]; /* of the source, for the row's shard */
    uint64_t after[BATCH];      /* the position after the row */
    uint64_t hashes[BATCH];
    struct muster_params_row *rows[BATCH]; /* NULL: none */
};

static void row_prefetch(const struct muster_params_store_table *table,
                         const struct muster_params_row *row)
{
    const uint8_t *at = (const uint8_t *)row;

    for (uint32_t i = 0; i < table->row_stride && i < 8 * CACHE_LINE_BYTES; i += CACHE_LINE_BYTES)
        __builtin_prefetch(at + i, 1);
    __builtin_prefetch(at + table->row_stride - 1, 1);
}

/* --- Pushes --- */

static struct muster_params_undo *undo_of(struct muster_params_region *region)
{
    return &region->head->undo;
}

/* Sums of a clock begin anew, and counts of pushes rise. */
static void row_prepare(struct muster_params_region *region,
                        const struct muster_params_update *update, struct muster_params_row *row,
                        const uint64_t *position)
{
    const struct muster_params_store_table *table = update->table;

    if (table->optimizer == MUSTER_PARAMS_CLOCK_SUM &&
        (row->clock != MUSTER_PARAMS_ROW_UNPUSHED ? row->clock : 0) != update->clock)
        memset(row->values, 0, table->row_elements * sizeof(row->values[0]));
    if (muster_params_table_counts(table))
        muster_params_row_count_push(
            table, row,
            muster_params_shard_at(region, table, (uint32_t)(position - update->source->positions))
                ->age);
}

static bool rows_are_prepared(const struct muster_params_store_table *table)
{
    return table->optimizer == MUSTER_PARAMS_CLOCK_SUM || muster_params_table_counts(table);
}

/* The order of these stores is the whole of crash safety; recovery reads them in
 * muster_params_undo_restore.
 *
 * While the old row is copied, the slot still names the row before it, whose position has advanced
 * since: recovery leaves it alone. From then on until the version is odd the slot names a row that
 * has not changed: to restore it does nothing. After that the position decides. */
static void row_apply(struct muster_params_region *region,
                      const struct muster_params_update *update, muster_params_apply_fn *apply,
                      struct muster_params_row *row, const float *values, uint64_t *position,
                      const struct batch *batch, uint64_t position_after)
{
    struct muster_params_store_table *table = update->table;
    struct muster_params_undo *undo = undo_of(region);
    uint32_t bytes = table->row_stride;

    if (region->freeze != NULL)
        muster_params_freeze_keep(region, table,
                                  (uint32_t)(position - update->source->positions), row, false);
    memcpy(undo->old, row, bytes);
    undo->bytes = bytes;
    undo->row_at = muster_params_offset(region, row);
    MUSTER_PARAMS_STORE(&undo->position_before, *position);
    MUSTER_PARAMS_STORE(&undo->position_at, muster_params_offset(region, position));
    __atomic_store_n(&row->version, row->version + 1, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release); /* pairs with the reader's fence before its copy */
    if (batch->is_prepared)
        row_prepare(region, update, row, position);
    apply(table, row->values, row->values + table->row_elements, values);
    row->clock = update->clock;
    __atomic_store_n(&row->version, row->version + 1, __ATOMIC_RELEASE);
    MUSTER_PARAMS_STORE(position, position_after);
}

void muster_params_undo_restore(struct muster_params_region *region)
{
    struct muster_params_undo *undo = undo_of(region);
    struct muster_params_row *row;

    if (undo->position_before == UINT64_MAX)
        return;
    if (*(uint64_t *)muster_params_at(region, undo->position_at) == undo->position_before) {
        const struct muster_params_row *old = (const struct muster_params_row *)(const void *)undo->old;
        uint32_t version;

        /* The row may be whole already, with an even version that a reader has seen: the version goes
         * on from there, and never comes back with other values. */
        row = muster_params_at(region, undo->row_at);
        version = row->version | 1;
        __atomic_store_n(&row->version, version, __ATOMIC_RELAXED);
        atomic_thread_fence(memory_order_release);
        memcpy(row->values, old->values, undo->bytes - sizeof(*row));
        row->clock = old->clock;
        __atomic_store_n(&row->version, version + 1, __ATOMIC_RELEASE);
    }
    MUSTER_PARAMS_STORE(&undo->position_before, UINT64_MAX);
}

/* --- The rows of an update, over the ends of its runs --- */

struct walk {
    const struct muster_params_update *update;
    uint32_t run;       /* the next one */
    uint32_t row;       /* of the run that is being walked; == rows: none is */
    uint32_t rows;      /* of that run */
    uint32_t begin;     /* the place of its first row in the update */
    uint64_t *position; /* of its shard */
};

/* Rows that are applied are passed over; a run that is wholly applied is a duplicate. False: there
 * is no further run. */
static bool run_enter(struct walk *walk, struct muster_params_applied *applied)
{
    const struct muster_params_update *update = walk->update;
    const struct muster_params_run *run;

    if (walk->run == update->run_count)
        return false;
    run = &update->runs[walk->run++];
    walk->begin += walk->rows;
    walk->rows = run->rows;
    walk->position = &update->source->positions[muster_params_run_shard(run)];
    if (*walk->position >> 16 > update->sequence) {
        applied->duplicate_runs++;
        applied->duplicate_rows += walk->rows;
        walk->row = walk->rows;
    } else {
        walk->row = *walk->position >> 16 == update->sequence
                        ? (uint32_t)(*walk->position & UINT16_MAX)
                        : 0;
    }
    return true;
}

static void batch_fill(struct walk *walk, struct muster_params_applied *applied,
                       struct batch *batch)
{
    uint64_t sequence = walk->update->sequence;

    batch->count = 0;
    for (;;) {
        while (walk->row >= walk->rows) {
            if (!run_enter(walk, applied))
                return;
        }
        for (; walk->row < walk->rows; batch->count++) {
            if (batch->count == BATCH)
                return;
            batch->rows_at[batch->count] = walk->begin + walk->row++;
            batch->positions[batch->count] = walk->position;
            batch->after[batch->count] =
                walk->row == walk->rows ? (sequence + 1) << 16 : sequence << 16 | walk->row;
        }
    }
}

static void batch_hash(const struct muster_params_region *region,
                       const struct muster_params_update *update, struct batch *batch)
{
    const struct muster_params_index *index = muster_params_index_newest(update->table);

    for (uint32_t i = 0; i < batch->count; i++) {
        batch->hashes[i] = muster_params_hash(update->table->seed, update->keys[batch->rows_at[i]]);
        __builtin_prefetch(muster_params_index_slot(region, index, batch->hashes[i]));
    }
}

static void batch_make_rows(struct muster_params_region *region,
                            const struct muster_params_update *update, struct batch *batch)
{
    bool makes_rows = !update->makes_no_rows && !muster_params_table_turns(update->table);

    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t key = update->keys[batch->rows_at[i]];
        struct muster_params_row *row =
            muster_params_index_find(region, update->table, batch->hashes[i], key);

        if (row == NULL && makes_rows &&
            muster_params_row_make(region, update->table, key, batch->hashes[i], &row) != MUSTER_OK)
            row = NULL;
        batch->rows[i] = row;
        if (row != NULL)
            row_prefetch(update->table, row);
    }
}

/* The position advances also over a row that is refused: it has its answer. */
static uint32_t batch_apply(struct muster_params_region *region,
                            const struct muster_params_update *update,
                            muster_params_apply_fn *apply, const struct batch *batch)
{
    uint32_t refused = 0;

    for (uint32_t i = 0; i < batch->count; i++) {
        const float *values =
            update->values + (size_t)batch->rows_at[i] * update->table->row_elements;

        if (batch->rows[i] != NULL) {
            row_apply(region, update, apply, batch->rows[i], values, batch->positions[i],
                      batch, batch->after[i]);
        } else {
            refused++;
            MUSTER_PARAMS_STORE(batch->positions[i], batch->after[i]);
        }
    }
    return refused;
}

/* Positions change also where no row does. */
static void runs_note(const struct muster_params_region *region,
                      const struct muster_params_update *update)
{
    for (uint32_t i = 0; i < update->run_count; i++)
        region->changed[muster_params_run_shard(&update->runs[i])] = 1;
}

struct muster_params_applied muster_params_update_apply(struct muster_params_region *region,
                                                        const struct muster_params_update *update)
{
    muster_params_apply_fn *apply =
        muster_params_optimizers_best()->apply[update->table->optimizer];
    struct muster_params_applied applied = {.refused = 0};
    struct walk walk = {.update = update};
    struct batch batch;

    batch.is_prepared = rows_are_prepared(update->table);
    MUSTER_ASSERT(update->sequence > 0 && update->sequence <= MUSTER_PARAMS_SEQUENCE_MAX);
    muster_params_index_step(region, update->table, INDEX_SLOTS_PER_PUSH);
    do {
        batch_fill(&walk, &applied, &batch);
        batch_hash(region, update, &batch);
        batch_make_rows(region, update, &batch);
        applied.refused += batch_apply(region, update, apply, &batch);
    } while (batch.count == BATCH);
    if (region->changed != NULL)
        runs_note(region, update);
    return applied;
}

/* --- Pulls --- */

static void pull_find(const struct muster_params_region *region,
                      const struct muster_params_store_table *table, const uint64_t *keys,
                      uint32_t count, struct muster_params_row *ret_rows[BATCH])
{
    const struct muster_params_index *index = muster_params_index_newest(table);
    uint64_t hashes[BATCH];

    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = muster_params_hash(table->seed, keys[i]);
        __builtin_prefetch(muster_params_index_slot(region, index, hashes[i]));
    }
    for (uint32_t i = 0; i < count; i++) {
        ret_rows[i] = muster_params_index_find(region, table, hashes[i], keys[i]);
        if (ret_rows[i] != NULL)
            row_prefetch(table, ret_rows[i]);
    }
}

void muster_params_rows_read(const struct muster_params_region *region,
                             const struct muster_params_store_table *table, const uint64_t *keys,
                             uint32_t count, float *ret_values)
{
    size_t row_bytes = table->row_elements * sizeof(float);
    struct muster_params_row *rows[BATCH];

    for (uint32_t from = 0; from < count; from += BATCH) {
        uint32_t some = count - from < BATCH ? count - from : BATCH;
        float *values = ret_values + (size_t)from * table->row_elements;

        pull_find(region, table, keys + from, some, rows);
        for (uint32_t i = 0; i < some; i++, values += table->row_elements) {
            if (rows[i] != NULL)
                memcpy(values, rows[i]->values, row_bytes);
            else
                muster_params_init_values(table, keys[from + i], values);
        }
    }
}

uint32_t muster_params_rows_missing(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table,
                                    const uint64_t *keys, uint32_t count)
{
    uint32_t missing = 0;

    for (uint32_t i = 0; i < count; i++)
        missing += muster_params_index_find(region, table,
                                            muster_params_hash(table->seed, keys[i]), keys[i]) == NULL;
    return missing;
}
