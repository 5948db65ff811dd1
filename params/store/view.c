/* Reading rows beside their writer. A row is verified by its version; that no row has a key is
 * verified by the index, which must be the same before and after the search. */
#include "params/store/view.h"

#include <stdatomic.h>
#include <string.h>

#include "params/store/index.h"
#include "params/store/init.h"

#define BATCH            64u
#define CACHE_LINE_BYTES 64u
#define ROW_TRIES        4096u  /* some 100 microseconds: the longest change of a row takes 20 */
#define INDEX_TRIES      16u    /* an index doubles when as many rows have come as it had */
#define PROBES_MAX       65536u /* far beyond the longest run of an index that is 7/8 full */
#define INDEX_BITS_MAX   32u

/* The index at one moment: what a search needs, with its bounds checked. */
struct sight {
    uint64_t removal_count;
    uint32_t state;
    uint32_t count;
    struct {
        const uint64_t *slots;
        uint32_t bits;
    } index[2]; /* in the order in which they are searched */
};

static const struct muster_params_region_head *head_of(const struct muster_params_view *view)
{
    return (const struct muster_params_region_head *)(const void *)view->memory;
}

enum muster_rc muster_params_view_init(struct muster_params_view *view, const void *memory,
                                       size_t bytes, const struct muster_incarnation *id)
{
    const struct muster_params_region_head *head = memory;

    MUSTER_ASSERT((uintptr_t)memory % MUSTER_PARAMS_GRANULE_BYTES == 0);
    if (bytes < MUSTER_PARAMS_REGION_BYTES_MIN || bytes % MUSTER_PARAMS_SEGMENT_BYTES != 0 ||
        __atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != MUSTER_PARAMS_REGION_MAGIC ||
        head->version != MUSTER_PARAMS_REGION_VERSION || head->bytes != bytes ||
        !muster_incarnation_is_equal(&head->id, id))
        return MUSTER_UNAVAILABLE;
    *view = (struct muster_params_view){.memory = memory, .bytes = bytes};
    return MUSTER_OK;
}

static bool fixed_is_sound(const struct muster_params_store_table *fixed, uint32_t row_elements)
{
    uint64_t bytes = sizeof(struct muster_params_row) + (uint64_t)row_elements * sizeof(float);

    return fixed->row_elements == row_elements && fixed->row_stride >= bytes &&
           fixed->row_stride <= MUSTER_PARAMS_STRIDE_MAX && fixed->init < MUSTER_PARAMS_INIT_COUNT;
}

enum muster_rc muster_params_view_table_init(struct muster_params_view_table *table,
                                             const struct muster_params_view *view, uint32_t number,
                                             uint64_t descriptor, uint32_t row_elements)
{
    const struct muster_params_region_head *head = head_of(view);
    struct muster_params_store_table fixed;

    /* Written by the server after the table (release); pairs with this load. */
    if (number >= MUSTER_PARAMS_TABLES_MAX ||
        number >= __atomic_load_n(&head->table_count, __ATOMIC_ACQUIRE))
        return MUSTER_UNAVAILABLE;
    memcpy(&fixed, &head->tables[number], sizeof(fixed));
    if (fixed.descriptor != descriptor || !fixed_is_sound(&fixed, row_elements))
        return MUSTER_UNAVAILABLE;
    table->fixed = fixed;
    table->number = number;
    return MUSTER_OK;
}

/* --- The index --- */

/* index_state is written by the server after the indexes that it names (release) and before it gives
 * one back; readers load it before they look at them (acquire) and again after their search. The bits
 * of each of the two rise with every growth, so that an index that was replaced twice is noticed. */
static uint32_t state_load(const struct muster_params_store_table *shared)
{
    return __atomic_load_n(&shared->index_state, __ATOMIC_ACQUIRE);
}

static bool index_add(const struct muster_params_view *view,
                      const struct muster_params_index *shared, struct sight *sight)
{
    uint64_t offset = __atomic_load_n(&shared->offset, __ATOMIC_RELAXED);
    uint32_t bits = __atomic_load_n(&shared->bits, __ATOMIC_RELAXED);

    if (bits < MUSTER_PARAMS_INDEX_BITS_FIRST || bits > INDEX_BITS_MAX ||
        offset % sizeof(uint64_t) != 0 || offset > view->bytes ||
        sizeof(uint64_t) << bits > view->bytes - offset)
        return false;
    sight->index[sight->count].slots = (const uint64_t *)(const void *)(view->memory + offset);
    sight->index[sight->count++].bits = bits;
    return true;
}

/* Written by the server (release) before and after it removes a row, and odd in between. */
static uint64_t removal_count_load(const struct muster_params_store_table *shared)
{
    return __atomic_load_n(&shared->removal_count, __ATOMIC_ACQUIRE);
}

static bool sight_take(const struct muster_params_view *view,
                       const struct muster_params_store_table *shared, struct sight *ret_sight)
{
    uint64_t removal_count = removal_count_load(shared);
    uint32_t state = state_load(shared);

    *ret_sight = (struct sight){.removal_count = removal_count, .state = state};
    if (state > (MUSTER_PARAMS_INDEX_PREPARING | 1))
        return false;
    if ((state & MUSTER_PARAMS_INDEX_GROWING) != 0 &&
        !index_add(view, &shared->index[~state & 1], ret_sight))
        return false;
    return index_add(view, &shared->index[state & 1], ret_sight);
}

static bool sight_is_still(const struct muster_params_view *view,
                           const struct muster_params_store_table *shared,
                           const struct sight *sight)
{
    struct sight now;

    atomic_thread_fence(
        memory_order_acquire); /* the search is over; pairs with the server's stores */
    if (!sight_take(view, shared, &now) || now.state != sight->state)
        return false;
    for (uint32_t i = 0; i < now.count; i++) {
        if (now.index[i].slots != sight->index[i].slots ||
            now.index[i].bits != sight->index[i].bits)
            return false;
    }
    return true;
}

/* False: the memory is damaged, or is not an index any more. */
static bool index_search(const struct muster_params_view *view,
                         const struct muster_params_view_table *table, const struct sight *sight,
                         uint32_t which, uint64_t hash, uint64_t key,
                         const struct muster_params_row **ret_row)
{
    const uint64_t *slots = sight->index[which].slots;
    uint64_t mask = (UINT64_C(1) << sight->index[which].bits) - 1;
    uint32_t tag = muster_params_index_tag(hash);

    for (uint32_t probes = 0; probes < PROBES_MAX; probes++) {
        /* Written whole by the server after the row (release). */
        uint64_t slot = __atomic_load_n(&slots[(hash + probes) & mask], __ATOMIC_ACQUIRE);
        uint64_t offset = (slot & UINT32_MAX) * MUSTER_PARAMS_GRANULE_BYTES;
        const struct muster_params_row *row;

        if (slot == 0)
            return true;
        if (slot >> 32 != tag || slot == MUSTER_PARAMS_SLOT_REMOVED)
            continue;
        if (offset > view->bytes - table->fixed.row_stride)
            return false;
        row = (const struct muster_params_row *)(const void *)(view->memory + offset);
        if (__atomic_load_n(&row->key, __ATOMIC_RELAXED) == key) {
            *ret_row = row;
            return true;
        }
    }
    return false;
}

static bool batch_search(const struct muster_params_view *view,
                         const struct muster_params_view_table *table, const struct sight *sight,
                         const uint64_t *keys, uint32_t count,
                         const struct muster_params_row *ret_rows[BATCH])
{
    uint64_t hashes[BATCH], mask = (UINT64_C(1) << sight->index[0].bits) - 1;
    size_t row_bytes = sizeof(struct muster_params_row) + table->fixed.row_elements * sizeof(float);

    for (uint32_t i = 0; i < count; i++) {
        hashes[i] = muster_params_hash(table->fixed.seed, keys[i]);
        __builtin_prefetch(&sight->index[0].slots[hashes[i] & mask]);
    }
    for (uint32_t i = 0; i < count; i++) {
        ret_rows[i] = NULL;
        for (uint32_t which = 0; which < sight->count && ret_rows[i] == NULL; which++) {
            if (!index_search(view, table, sight, which, hashes[i], keys[i], &ret_rows[i]))
                return false;
        }
        for (size_t at = 0; ret_rows[i] != NULL && at < row_bytes && at < 8 * CACHE_LINE_BYTES;
             at += CACHE_LINE_BYTES)
            __builtin_prefetch((const uint8_t *)ret_rows[i] + at);
    }
    return true;
}

/* --- Rows --- */

enum copied {
    COPIED,
    STRAYED, /* the row is another key's now, or free: search again */
    STUCK,   /* it stays under change: its writer has died or sleeps */
};

static void processor_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The fences pair with those of row_apply (apply.c): where the version is even and the same before and
 * after the copy, no store of a change lies between them. A row gets another key only while its
 * version is odd. */
static enum copied row_copy(const struct muster_params_store_table *shared,
                            const struct sight *sight, const struct muster_params_row *row,
                            uint64_t key, size_t bytes, float *ret_values)
{
    for (uint32_t tries = 0; tries < ROW_TRIES; tries++) {
        uint32_t version = __atomic_load_n(&row->version, __ATOMIC_ACQUIRE);

        if ((version & 1) != 0) {
            if (removal_count_load(shared) != sight->removal_count)
                return STRAYED;
            processor_relax();
            continue;
        }
        memcpy(ret_values, row->values, bytes);
        atomic_thread_fence(memory_order_acquire);
        if (__atomic_load_n(&row->version, __ATOMIC_RELAXED) == version)
            return __atomic_load_n(&row->key, __ATOMIC_RELAXED) == key ? COPIED : STRAYED;
    }
    return STUCK;
}

static enum copied batch_copy(const struct muster_params_view_table *table,
                              const struct muster_params_store_table *shared,
                              const struct sight *sight, const uint64_t *keys, uint32_t count,
                              const struct muster_params_row *const rows[BATCH], float *ret_values)
{
    size_t elements = table->fixed.row_elements;
    enum copied copied = COPIED;

    for (uint32_t i = 0; i < count && copied == COPIED; i++, ret_values += elements) {
        if (rows[i] == NULL)
            muster_params_init_values(&table->fixed, keys[i], ret_values);
        else
            copied = row_copy(shared, sight, rows[i], keys[i], elements * sizeof(float),
                              ret_values);
    }
    return copied;
}

/* False: nothing of the search counts. */
static bool batch_find(const struct muster_params_view *view,
                       const struct muster_params_view_table *table,
                       const struct muster_params_store_table *shared, const uint64_t *keys,
                       uint32_t count, struct sight *ret_sight,
                       const struct muster_params_row *ret_rows[BATCH])
{
    bool lacks_some = false;

    if (!sight_take(view, shared, ret_sight) ||
        !batch_search(view, table, ret_sight, keys, count, ret_rows) ||
        !sight_is_still(view, shared, ret_sight))
        return false;
    for (uint32_t i = 0; i < count; i++)
        lacks_some = lacks_some || ret_rows[i] == NULL;
    /* A row that was found is verified by its version and key. One that was not may have been passed
     * while a removal moved its slot. */
    return !lacks_some || (ret_sight->removal_count % 2 == 0 &&
                           removal_count_load(shared) == ret_sight->removal_count);
}

static bool batch_read(const struct muster_params_view *view,
                       const struct muster_params_view_table *table, const uint64_t *keys,
                       uint32_t count, float *ret_values)
{
    const struct muster_params_store_table *shared = &head_of(view)->tables[table->number];
    const struct muster_params_row *rows[BATCH];
    struct sight sight;

    for (uint32_t tries = 0; tries < INDEX_TRIES; tries++, processor_relax()) {
        enum copied copied;

        if (!batch_find(view, table, shared, keys, count, &sight, rows))
            continue;
        copied = batch_copy(table, shared, &sight, keys, count, rows, ret_values);
        if (copied != STRAYED)
            return copied == COPIED;
    }
    return false;
}

enum muster_rc muster_params_view_read(const struct muster_params_view *view,
                                       const struct muster_params_view_table *table,
                                       const uint64_t *keys, uint32_t count, float *ret_values)
{
    for (uint32_t from = 0; from < count; from += BATCH) {
        uint32_t some = count - from < BATCH ? count - from : BATCH;

        if (!batch_read(view, table, keys + from, some,
                        ret_values + (size_t)from * table->fixed.row_elements))
            return MUSTER_UNAVAILABLE;
    }
    return MUSTER_OK;
}
