/* Rows lie in pages; each page holds rows of one shard of one table, so that a shard can be
 * visited, moved and saved without looking at others. */
#include "params/store/row.h"

#include <stdatomic.h>
#include <string.h>

#include <muster/hash.h>

#include "params/store/freeze.h"
#include "params/store/init.h"

static struct muster_params_page *page_at(const struct muster_params_region *region, uint32_t page)
{
    return &region->head->segments[page / MUSTER_PARAMS_SEGMENT_PAGES]
                .pages[page % MUSTER_PARAMS_SEGMENT_PAGES];
}

static struct muster_params_row *row_at(const struct muster_params_region *region,
                                        const struct muster_params_store_table *table,
                                        uint32_t page, uint32_t i)
{
    uint64_t segment = page / MUSTER_PARAMS_SEGMENT_PAGES;
    uint64_t offset = segment * MUSTER_PARAMS_SEGMENT_BYTES +
                      (uint64_t)(page % MUSTER_PARAMS_SEGMENT_PAGES) * table->page_bytes;

    return muster_params_at(region, offset + (uint64_t)i * table->row_stride);
}

/* --- A segment of pages for a table --- */

void muster_params_segment_complete(struct muster_params_region *region,
                                    const struct muster_params_intent *intent)
{
    muster_params_segment_take(region, intent->segment, 1, MUSTER_PARAMS_SEGMENT_ROWS,
                               intent->table);
    MUSTER_PARAMS_STORE(&region->head->tables[intent->table].row_segment, intent->segment);
}

static enum muster_rc segment_add(struct muster_params_region *region,
                                  const struct muster_params_store_table *table)
{
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_SEGMENT,
                                          .table = muster_params_table_number(region, table),
                                          .segment = muster_params_segment_find(region, 1)};

    if (intent.segment == 0)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_params_intent_begin(region, &intent);
    muster_params_segment_complete(region, &region->head->intent);
    muster_params_intent_end(region);
    return MUSTER_OK;
}

/* --- A page for a shard --- */

/* Linked before the shard's last page is replaced: an interrupted call links it again. */
void muster_params_page_complete(struct muster_params_region *region,
                                 const struct muster_params_intent *intent)
{
    const struct muster_params_store_table *table = &region->head->tables[intent->table];
    struct muster_params_shard *shard = muster_params_shard_at(region, table, intent->shard);
    struct muster_params_page *page = page_at(region, intent->page);
    struct muster_params_segment *segment =
        &region->head->segments[intent->page / MUSTER_PARAMS_SEGMENT_PAGES];

    *page = (struct muster_params_page){.shard = (uint16_t)intent->shard};
    if (shard->first_page == 0 || shard->first_page == intent->page)
        MUSTER_PARAMS_STORE(&shard->first_page, intent->page);
    else if (shard->last_page != intent->page)
        MUSTER_PARAMS_STORE(&page_at(region, shard->last_page)->next, intent->page);
    MUSTER_PARAMS_STORE(&shard->last_page, intent->page);
    MUSTER_PARAMS_STORE(&segment->page_count,
                        (uint32_t)(intent->page % MUSTER_PARAMS_SEGMENT_PAGES + 1));
}

static enum muster_rc page_add(struct muster_params_region *region,
                               const struct muster_params_store_table *table, uint32_t shard)
{
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_PAGE,
                                          .table = muster_params_table_number(region, table),
                                          .shard = shard};
    const struct muster_params_segment *segment = &region->head->segments[table->row_segment];
    enum muster_rc rc = MUSTER_OK;

    if (table->row_segment == 0 ||
        segment->page_count == MUSTER_PARAMS_SEGMENT_BYTES / table->page_bytes) {
        rc = segment_add(region, table);
        segment = &region->head->segments[table->row_segment];
    }
    if (rc != MUSTER_OK)
        return rc;
    intent.page =
        (uint32_t)(table->row_segment * MUSTER_PARAMS_SEGMENT_PAGES + segment->page_count);
    muster_params_intent_begin(region, &intent);
    muster_params_page_complete(region, &region->head->intent);
    muster_params_intent_end(region);
    return MUSTER_OK;
}

/* --- A row --- */

void muster_params_row_complete(struct muster_params_region *region,
                                const struct muster_params_intent *intent)
{
    struct muster_params_store_table *table = &region->head->tables[intent->table];
    struct muster_params_shard *shard = muster_params_shard_at(region, table, intent->shard);
    struct muster_params_row *row = row_at(region, table, intent->page, (uint32_t)intent->count);

    muster_params_row_keep(region, table, intent->shard, row, true);
    row->key = intent->key;
    row->version = 0;
    row->clock = MUSTER_PARAMS_ROW_UNPUSHED;
    muster_params_init_values(table, intent->key, row->values);
    memset(row->values + table->row_elements, 0, table->state_elements * sizeof(float));
    MUSTER_PARAMS_STORE(&page_at(region, intent->page)->used, (uint16_t)(intent->count + 1));
    MUSTER_PARAMS_STORE(&shard->row_count, intent->total);
    MUSTER_PARAMS_STORE(&table->row_count, intent->table_rows);
    muster_params_index_insert(region, table, row);
}

/* --- A row that was another key's --- */

static struct muster_params_row *row_at_address(const struct muster_params_region *region,
                                                uint32_t address)
{
    return muster_params_at(region, (uint64_t)address * MUSTER_PARAMS_GRANULE_BYTES);
}

/* Readers that found the row under its old key see it change; an interrupted call makes its version odd
 * again before it writes what it had written. */
void muster_params_reuse_complete(struct muster_params_region *region,
                                  const struct muster_params_intent *intent)
{
    struct muster_params_store_table *table = &region->head->tables[intent->table];
    struct muster_params_shard *shard = muster_params_shard_at(region, table, intent->shard);
    struct muster_params_row *row = row_at_address(region, intent->page);
    uint32_t version = row->version | 1;

    muster_params_row_keep(region, table, intent->shard, row, true);
    __atomic_store_n(&row->version, version, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release); /* pairs with the reader's fence before its copy */
    MUSTER_PARAMS_STORE(&shard->free_row, (uint32_t)intent->count);
    row->key = intent->key;
    row->clock = MUSTER_PARAMS_ROW_UNPUSHED;
    muster_params_init_values(table, intent->key, row->values);
    memset(row->values + table->row_elements, 0, table->state_elements * sizeof(float));
    __atomic_store_n(&row->version, version + 1, __ATOMIC_RELEASE);
    MUSTER_PARAMS_STORE(&shard->row_count, intent->total);
    MUSTER_PARAMS_STORE(&table->row_count, intent->table_rows);
    muster_params_index_insert(region, table, row);
}

static struct muster_params_row *row_reuse(struct muster_params_region *region,
                                           struct muster_params_store_table *table, uint64_t key,
                                           uint32_t shard_number)
{
    const struct muster_params_shard *shard = muster_params_shard_at(region, table, shard_number);
    struct muster_params_row *row = row_at_address(region, shard->free_row);
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_REUSE,
                                          .table = muster_params_table_number(region, table),
                                          .shard = shard_number,
                                          .page = shard->free_row,
                                          .key = key,
                                          .count = row->clock,
                                          .total = shard->row_count + 1,
                                          .table_rows = table->row_count + 1};

    MUSTER_ASSERT(row->version % 2 != 0);
    muster_params_intent_begin(region, &intent);
    muster_params_reuse_complete(region, &region->head->intent);
    muster_params_intent_end(region);
    return row;
}

static struct muster_params_row *row_add(struct muster_params_region *region,
                                         struct muster_params_store_table *table, uint64_t key,
                                         uint32_t shard_number)
{
    const struct muster_params_shard *shard = muster_params_shard_at(region, table, shard_number);
    struct muster_params_intent intent = {.kind = MUSTER_PARAMS_INTENT_ROW,
                                          .table = muster_params_table_number(region, table),
                                          .shard = shard_number,
                                          .page = shard->last_page,
                                          .key = key,
                                          .count = page_at(region, shard->last_page)->used,
                                          .total = shard->row_count + 1,
                                          .table_rows = table->row_count + 1};

    muster_params_intent_begin(region, &intent);
    muster_params_row_complete(region, &region->head->intent);
    muster_params_intent_end(region);
    return row_at(region, table, intent.page, (uint32_t)intent.count);
}

enum muster_rc muster_params_row_make(struct muster_params_region *region,
                                      struct muster_params_store_table *table, uint64_t key,
                                      uint64_t hash, struct muster_params_row **ret_row)
{
    uint32_t shard_number = muster_params_shard_of(hash, region->head->shard_count);
    const struct muster_params_shard *shard = muster_params_shard_at(region, table, shard_number);
    struct muster_params_row *row = muster_params_index_find(region, table, hash, key);
    enum muster_rc rc = MUSTER_OK;

    if (row == NULL)
        rc = muster_params_index_reserve(region, table);
    if (row == NULL && rc == MUSTER_OK && shard->free_row != 0)
        row = row_reuse(region, table, key, shard_number);
    if (row == NULL && rc == MUSTER_OK &&
        (shard->last_page == 0 || page_at(region, shard->last_page)->used == table->rows_per_page))
        rc = page_add(region, table, shard_number);
    if (rc != MUSTER_OK)
        return rc;
    *ret_row = row != NULL ? row : row_add(region, table, key, shard_number);
    return MUSTER_OK;
}

/* Bytes of the larger index that is not there yet, and that these rows would have it begun. */
static uint64_t index_bytes(const struct muster_params_store_table *table, uint64_t rows)
{
    bool is_growing = table->index_state > 1;
    uint32_t bits = table->index[(table->index_state & 1) ^ is_growing].bits;
    uint64_t slots = UINT64_C(1) << bits, bytes = 0;

    for (; rows >= slots / 2; slots *= 2)
        bytes += 2 * slots * sizeof(uint64_t);
    return bytes;
}

/* Only memory that was never used counts, for it lies together. */
bool muster_params_rows_may_lack(const struct muster_params_region *region,
                                 const struct muster_params_store_table *table, uint32_t row_count,
                                 uint32_t shard_count)
{
    const struct muster_params_region_head *head = region->head;
    uint64_t pages = row_count / table->rows_per_page + (uint64_t)shard_count + 1;
    uint64_t bytes = pages * table->page_bytes + index_bytes(table, table->row_count + row_count);
    uint64_t segments = bytes / MUSTER_PARAMS_SEGMENT_BYTES + 3; /* begun ones, of rows and two indexes */

    return region->segments_used + segments > region->segments_max ||
           head->segment_end + segments > head->segment_count;
}

/* --- Removal --- */

/* The row takes leave of mapped readers first: those that have found it wait, or search again. */
void muster_params_remove_complete(struct muster_params_region *region,
                                   const struct muster_params_intent *intent)
{
    struct muster_params_store_table *table = &region->head->tables[intent->table];
    struct muster_params_shard *shard = muster_params_shard_at(region, table, intent->shard);
    struct muster_params_row *row = row_at_address(region, intent->page);
    uint64_t count = table->removal_count | 1;

    muster_params_row_keep(region, table, intent->shard, row, false);
    MUSTER_PARAMS_STORE(&table->removal_count, count);
    MUSTER_PARAMS_STORE(&row->version, row->version | 1);
    muster_params_index_remove(region, table, row);
    MUSTER_PARAMS_STORE(&shard->row_count, intent->total);
    MUSTER_PARAMS_STORE(&table->row_count, intent->table_rows);
    MUSTER_PARAMS_STORE(&region->head->removals[intent->shard], intent->run);
    if (shard->free_row != intent->page) {
        row->clock = shard->free_row;
        MUSTER_PARAMS_STORE(&shard->free_row, intent->page);
    }
    MUSTER_PARAMS_STORE(&table->removal_count, count + 1);
}

/* removals: so many more of the shard were decided by a primary. */
static bool row_remove(struct muster_params_region *region,
                       struct muster_params_store_table *table, uint64_t key, uint32_t removals)
{
    uint64_t hash = muster_params_hash(table->seed, key);
    uint32_t shard = muster_params_shard_of(hash, region->head->shard_count);
    const struct muster_params_row *row = muster_params_index_find(region, table, hash, key);
    struct muster_params_intent intent = {
        .kind = MUSTER_PARAMS_INTENT_REMOVE,
        .table = muster_params_table_number(region, table),
        .shard = shard,
        .key = key,
        .run = region->head->removals[shard] + removals,
        .count = UINT64_MAX,
        .total = muster_params_shard_at(region, table, shard)->row_count - 1,
        .table_rows = table->row_count - 1};

    if (row == NULL)
        return false;
    intent.page = (uint32_t)(muster_params_offset(region, row) / MUSTER_PARAMS_GRANULE_BYTES);
    muster_params_intent_begin(region, &intent);
    muster_params_remove_complete(region, &region->head->intent);
    muster_params_intent_end(region);
    return true;
}

bool muster_params_row_remove(struct muster_params_region *region,
                              struct muster_params_store_table *table, uint64_t key)
{
    return row_remove(region, table, key, 0);
}

bool muster_params_row_drop(struct muster_params_region *region,
                            struct muster_params_store_table *table, uint64_t key)
{
    return row_remove(region, table, key, 1);
}

/* A row may be under change without being free: a death has interrupted its copy (load.c). */
void muster_params_rows_remove(struct muster_params_region *region,
                               struct muster_params_store_table *table, uint32_t shard)
{
    uint32_t page = muster_params_shard_at(region, table, shard)->first_page;

    MUSTER_ASSERT(shard < region->head->shard_count);
    for (; page != 0; page = page_at(region, page)->next) {
        for (uint32_t i = 0; i < page_at(region, page)->used; i++) {
            const struct muster_params_row *row = row_at(region, table, page, i);
            uint64_t hash = muster_params_hash(table->seed, row->key);

            if (muster_params_index_find(region, table, hash, row->key) == row)
                (void)muster_params_row_remove(region, table, row->key);
        }
    }
}

/* --- All rows --- */

/* NULL: there are no more, or *left is 0. */
static const struct muster_params_row *row_next(const struct muster_params_region *region,
                                                const struct muster_params_store_table *table,
                                                uint32_t shard,
                                                struct muster_params_row_cursor *cursor,
                                                uint32_t *left)
{
    MUSTER_ASSERT(shard < region->head->shard_count);
    if (!cursor->is_begun)
        *cursor = (struct muster_params_row_cursor){
            .is_begun = true, .page = muster_params_shard_at(region, table, shard)->first_page};
    while (cursor->page != 0 && cursor->row == page_at(region, cursor->page)->used) {
        cursor->page = page_at(region, cursor->page)->next;
        cursor->row = 0;
    }
    if (cursor->page == 0 || *left == 0)
        return NULL;
    --*left;
    return row_at(region, table, cursor->page, cursor->row++);
}

bool muster_params_rows_step(const struct muster_params_region *region,
                             const struct muster_params_store_table *table, uint32_t shard,
                             struct muster_params_row_cursor *cursor, uint32_t *left,
                             muster_params_row_fn *fn, void *data)
{
    const struct muster_params_row *row;

    while ((row = row_next(region, table, shard, cursor, left)) != NULL) {
        if (row->version % 2 == 0) /* else it is free */
            fn(data, table, row);
    }
    return cursor->page != 0;
}

bool muster_params_frozen_rows_step(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table, uint32_t shard,
                                    struct muster_params_row_cursor *cursor, uint32_t *left,
                                    muster_params_row_fn *fn, void *data)
{
    const struct muster_params_row *row;

    if (region->freeze == NULL)
        return muster_params_rows_step(region, table, shard, cursor, left, fn, data);
    while ((row = row_next(region, table, shard, cursor, left)) != NULL) {
        row = muster_params_frozen_row(region, table, row);
        if (row != NULL && row->version % 2 == 0) /* else it was free */
            fn(data, table, row);
    }
    return cursor->page != 0;
}

void muster_params_rows_visit(const struct muster_params_region *region,
                              const struct muster_params_store_table *table, uint32_t shard,
                              muster_params_row_fn *fn, void *data)
{
    struct muster_params_row_cursor cursor = {.page = 0};
    uint32_t left;

    do {
        left = UINT32_MAX;
    } while (muster_params_rows_step(region, table, shard, &cursor, &left, fn, data));
}

void muster_params_frozen_rows_visit(const struct muster_params_region *region,
                                     const struct muster_params_store_table *table, uint32_t shard,
                                     muster_params_row_fn *fn, void *data)
{
    struct muster_params_row_cursor cursor = {.page = 0};
    uint32_t left;

    do {
        left = UINT32_MAX;
    } while (muster_params_frozen_rows_step(region, table, shard, &cursor, &left, fn, data));
}

uint64_t muster_params_shard_places(const struct muster_params_region *region,
                                    const struct muster_params_store_table *table, uint32_t shard)
{
    uint64_t count = 0;

    for (uint32_t page = muster_params_shard_at(region, table, shard)->first_page; page != 0;
         page = page_at(region, page)->next)
        count += page_at(region, page)->used;
    return count;
}

/* Any place of the shard's pages is a right one for the hand, so a death amid this harms nothing. */
const struct muster_params_row *muster_params_row_turn(
    struct muster_params_region *region, const struct muster_params_store_table *table,
    uint32_t shard_number)
{
    struct muster_params_shard *shard = muster_params_shard_at(region, table, shard_number);
    const struct muster_params_row *row;

    if (shard->first_page == 0)
        return NULL;
    if (shard->hand_page == 0)
        shard->hand_page = shard->first_page;
    if (shard->hand_row >= page_at(region, shard->hand_page)->used) {
        uint32_t next = page_at(region, shard->hand_page)->next;

        MUSTER_PARAMS_STORE(&shard->hand_row, 0);
        shard->hand_page = next != 0 ? next : shard->first_page;
    }
    if (page_at(region, shard->hand_page)->used == 0)
        return NULL;
    row = row_at(region, table, shard->hand_page, shard->hand_row++);
    return row->version % 2 == 0 ? row : NULL;
}

void muster_params_digest_add(struct muster_params_digest *digest,
                              const struct muster_params_store_table *table,
                              const struct muster_params_row *row)
{
    size_t counts = muster_params_table_counts(table);
    size_t bytes = (table->row_elements + table->state_elements - counts) * sizeof(float);

    for (uint64_t i = 0; i < 2; i++)
        digest->sums[i] +=
            muster_hash64(row->values, bytes, muster_params_hash(table->descriptor + i, row->key));
}

static void digest_visit(void *data, const struct muster_params_store_table *table,
                         const struct muster_params_row *row)
{
    muster_params_digest_add(data, table, row);
}

struct muster_params_digest muster_params_table_digest(
    const struct muster_params_region *region, const struct muster_params_store_table *table)
{
    struct muster_params_digest digest = {{0, 0}};

    for (uint32_t i = 0; i < region->head->shard_count; i++)
        muster_params_rows_visit(region, table, i, digest_visit, &digest);
    return digest;
}
