/* The three passes of a push: index, rows, values. Each asks for the memory of the next, so that
 * the misses of a batch overlap. */
#include "params/store/apply.h"

#include <stdatomic.h>
#include <string.h>

#include "params/store/init.h"
#include "params/store/row.h"

#define BATCH               64u
#define INDEX_SLOTS_PER_RUN 64u
#define CACHE_LINE_BYTES    64u

struct batch {
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

static void batch_hash(const struct muster_params_region *region,
                       const struct muster_params_store_table *table, const uint64_t *keys,
                       uint32_t count, struct batch *ret_batch)
{
    const struct muster_params_index *index = muster_params_index_newest(table);

    for (uint32_t i = 0; i < count; i++) {
        ret_batch->hashes[i] = muster_params_hash(table->seed, keys[i]);
        __builtin_prefetch(muster_params_index_slot(region, index, ret_batch->hashes[i]));
    }
}

/* --- Pushes --- */

static struct muster_params_undo *undo_of(struct muster_params_region *region)
{
    return &region->head->undo;
}

/* The order of these stores is the whole of crash safety; recovery reads them in
 * muster_params_undo_restore.
 *
 * While the old row is copied, the slot still names the row before it, whose position has advanced
 * since: recovery leaves it alone. From then on until the version is odd the slot names a row that
 * has not changed: to restore it does nothing. After that the position decides. */
static void row_apply(struct muster_params_region *region, const struct muster_params_run *run,
                      muster_params_apply_fn *apply, struct muster_params_row *row,
                      const float *values, uint64_t *position, uint64_t position_after)
{
    struct muster_params_store_table *table = run->table;
    struct muster_params_undo *undo = undo_of(region);
    uint32_t bytes = table->row_stride;

    memcpy(undo->old, row, bytes);
    undo->bytes = bytes;
    undo->row_at = muster_params_offset(region, row);
    MUSTER_PARAMS_STORE(&undo->position_before, *position);
    MUSTER_PARAMS_STORE(&undo->position_at, muster_params_offset(region, position));
    __atomic_store_n(&row->version, row->version + 1, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release); /* pairs with the reader's fence before its copy */
    apply(table, row->values, row->values + table->row_elements, values);
    row->clock = run->clock;
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
        uint32_t version = ((const struct muster_params_row *)(const void *)undo->old)->version;

        row = muster_params_at(region, undo->row_at);
        __atomic_store_n(&row->version, version + 1, __ATOMIC_RELAXED);
        atomic_thread_fence(memory_order_release);
        memcpy(row->values, ((const struct muster_params_row *)(const void *)undo->old)->values,
               undo->bytes - sizeof(*row));
        row->clock = ((const struct muster_params_row *)(const void *)undo->old)->clock;
        __atomic_store_n(&row->version, version + 2, __ATOMIC_RELEASE);
    }
    MUSTER_PARAMS_STORE(&undo->position_before, UINT64_MAX);
}

/* The position advances also over a row that is refused: it has its answer. */
static uint32_t batch_apply(struct muster_params_region *region,
                            const struct muster_params_run *run, uint32_t from, uint32_t count,
                            struct batch *batch)
{
    const struct muster_params_optimizers *optimizers = muster_params_optimizers_best();
    muster_params_apply_fn *apply = optimizers->apply[run->table->optimizer];
    uint64_t *position = &run->source->positions[run->shard];
    uint32_t refused = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t done = from + i + 1;
        uint64_t after = done == run->count ? (run->sequence + 1) << 16 : run->sequence << 16 | done;

        if (batch->rows[i] == NULL) {
            refused++;
            MUSTER_PARAMS_STORE(position, after);
            continue;
        }
        row_apply(region, run, apply, batch->rows[i],
                  run->values + (size_t)(from + i) * run->table->row_elements, position, after);
    }
    return refused;
}

static void batch_make_rows(struct muster_params_region *region,
                            const struct muster_params_run *run, const uint64_t *keys,
                            uint32_t count, struct batch *batch)
{
    for (uint32_t i = 0; i < count; i++) {
        struct muster_params_row *row =
            muster_params_index_find(region, run->table, batch->hashes[i], keys[i]);

        if (row == NULL && muster_params_row_make(region, run->table, keys[i], batch->hashes[i],
                                                  &row) != MUSTER_OK)
            row = NULL;
        batch->rows[i] = row;
        if (row != NULL)
            row_prefetch(run->table, row);
    }
}

struct muster_params_applied muster_params_run_apply(struct muster_params_region *region,
                                                     const struct muster_params_run *run)
{
    struct muster_params_applied applied = {.is_duplicate = false};
    uint64_t position = run->source->positions[run->shard];
    uint32_t from = position >> 16 == run->sequence ? (uint32_t)(position & UINT16_MAX) : 0;
    struct batch batch;

    MUSTER_ASSERT(run->count > 0 && run->count <= MUSTER_PARAMS_RUN_ROWS_MAX);
    MUSTER_ASSERT(run->sequence <= MUSTER_PARAMS_SEQUENCE_MAX &&
                  run->shard < region->head->shard_count);
    if (position >> 16 > run->sequence)
        return (struct muster_params_applied){.is_duplicate = true};
    muster_params_index_step(region, run->table, INDEX_SLOTS_PER_RUN);
    while (from < run->count) {
        uint32_t count = run->count - from < BATCH ? run->count - from : BATCH;

        batch_hash(region, run->table, run->keys + from, count, &batch);
        batch_make_rows(region, run, run->keys + from, count, &batch);
        applied.refused += batch_apply(region, run, from, count, &batch);
        from += count;
    }
    return applied;
}

/* --- Pulls --- */

void muster_params_rows_read(const struct muster_params_region *region,
                             const struct muster_params_store_table *table, const uint64_t *keys,
                             uint32_t count, float *ret_values)
{
    size_t row_bytes = table->row_elements * sizeof(float);
    struct batch batch;

    for (uint32_t from = 0; from < count; from += BATCH) {
        uint32_t some = count - from < BATCH ? count - from : BATCH;
        float *values = ret_values + (size_t)from * table->row_elements;

        batch_hash(region, table, keys + from, some, &batch);
        for (uint32_t i = 0; i < some; i++) {
            batch.rows[i] =
                muster_params_index_find(region, table, batch.hashes[i], keys[from + i]);
            if (batch.rows[i] != NULL)
                row_prefetch(table, batch.rows[i]);
        }
        for (uint32_t i = 0; i < some; i++, values += table->row_elements) {
            if (batch.rows[i] != NULL)
                memcpy(values, batch.rows[i]->values, row_bytes);
            else
                muster_params_init_values(table, keys[from + i], values);
        }
    }
}
