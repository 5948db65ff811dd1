/* Ranges: the keys of a span now or at an older revision, filtered, sorted, cut. The scan reads the
 * newest state of each key without its value; values are read afterwards, and only those that are
 * answered or sorted by. */
#include "cluster/store/mvcc_internal.h"

#include <stdlib.h>
#include <string.h>

/* A growing array of records on its way through a scan. */
struct collection {
    struct muster_mvcc_run *run;
    const struct muster_mvcc_range *range; /* NULL: everything that lives */
    struct muster_registry_record *records;
    size_t count;
    size_t capacity;
    size_t wanted; /* stop keeping after so many; SIZE_MAX: keep all */
    int64_t total; /* keys in the span, before filters and limit */
    bool is_cut;
};

int muster_registry_bytes_compare(struct muster_bytes a, struct muster_bytes b)
{
    size_t shorter = a.size < b.size ? a.size : b.size;
    int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;

    if (order != 0)
        return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

static bool is_open_end(struct muster_bytes end)
{
    return end.size == 1 && *(const uint8_t *)end.data == 0;
}

bool muster_registry_span_has(const struct muster_registry_span *span, struct muster_bytes key)
{
    int order = muster_registry_bytes_compare(key, span->key);

    if (span->end.size == 0)
        return order == 0;
    return order >= 0 &&
           (is_open_end(span->end) || muster_registry_bytes_compare(key, span->end) < 0);
}

bool muster_registry_span_is_empty(const struct muster_registry_span *span)
{
    return span->end.size > 0 && !is_open_end(span->end) &&
           muster_registry_bytes_compare(span->end, span->key) <= 0;
}

static enum muster_rc keep_record(struct collection *all,
                                  const struct muster_registry_record *record)
{
    struct muster_registry_record *records = muster_registry_arena_reserve(
        all->run->arena, all->records, all->count, &all->capacity, sizeof(*records));
    struct muster_registry_record *slot = NULL;

    if (records == NULL)
        return muster_mvcc_no_memory(all->run);
    all->records = records;
    slot = &records[all->count];
    *slot = *record;
    if (!muster_registry_arena_copy(all->run->arena, record->key, &slot->key))
        return muster_mvcc_no_memory(all->run);
    all->count++;
    return MUSTER_OK;
}

static bool is_outside(int64_t value, int64_t min, int64_t max)
{
    return (min > 0 && value < min) || (max > 0 && value > max);
}

static bool passes_filters(const struct muster_mvcc_range *range,
                           const struct muster_registry_record *record)
{
    return !is_outside(record->mod_revision, range->min_mod_revision, range->max_mod_revision) &&
           !is_outside(record->create_revision, range->min_create_revision,
                       range->max_create_revision);
}

/* Walk a key's chain back to what it was at `revision`; version 0: it did not exist. */
static enum muster_rc step_back(struct muster_mvcc_run *run, int64_t revision,
                                struct muster_registry_record *record)
{
    struct muster_bytes key = record->key;

    while (record->mod_revision > revision) {
        enum muster_rc rc = MUSTER_NOT_FOUND;

        if (record->prev_seq != 0)
            rc = muster_registry_store_read(run->mvcc->store, record->prev_seq, record);
        /* The chain ends where the key was created or where compaction cut it; a range below the
         * compact revision was refused before, so either way the key did not exist. */
        if (rc == MUSTER_NOT_FOUND) {
            record->version = 0;
            break;
        }
        if (rc != MUSTER_OK)
            return muster_mvcc_break(run, rc);
    }
    record->key = key;
    return MUSTER_OK;
}

static enum muster_rc at_revision(struct collection *all, struct muster_registry_record *record)
{
    struct muster_bytes key = record->key;
    int64_t revision = all->range != NULL ? all->range->revision : 0;
    enum muster_rc rc = MUSTER_OK;

    if (revision <= 0 || record->mod_revision <= revision)
        return MUSTER_OK;
    /* The row of the newest state knows where the chain begins. */
    rc = muster_registry_store_read(all->run->mvcc->store, record->seq, record);
    if (rc != MUSTER_OK)
        return muster_mvcc_break(all->run, rc);
    record->key = key;
    return step_back(all->run, revision, record);
}

static enum muster_rc visit_record(void *data, const struct muster_registry_record *found)
{
    struct collection *all = data;
    struct muster_registry_record record = *found;
    enum muster_rc rc = at_revision(all, &record);

    if (rc != MUSTER_OK || record.version == 0)
        return rc;
    /* The count of the answer is that of all live keys in the span, whatever the filters and the
     * limit leave of them; etcd counts the same way. */
    all->total++;
    if (all->range != NULL && (all->range->is_count_only || !passes_filters(all->range, &record)))
        return MUSTER_OK;
    if (all->count == all->wanted) {
        all->is_cut = true;
        return MUSTER_OK;
    }
    return keep_record(all, &record);
}

static enum muster_rc scan_span(struct collection *all, const struct muster_registry_span *span)
{
    enum muster_rc rc =
        muster_registry_store_scan_keys(all->run->mvcc->store, span, visit_record, all);

    /* A visitor's failure has set the error already. */
    if (rc != MUSTER_OK && all->run->error->rc == MUSTER_OK)
        return muster_mvcc_break(all->run, rc);
    return rc;
}

enum muster_rc muster_mvcc_collect(struct muster_mvcc_run *run,
                                   const struct muster_registry_span *span,
                                   struct muster_registry_record **ret_records, size_t *ret_count)
{
    struct collection all = {.run = run, .wanted = SIZE_MAX};
    enum muster_rc rc = scan_span(&all, span);

    if (rc != MUSTER_OK)
        return rc;
    *ret_records = all.records;
    *ret_count = all.count;
    return MUSTER_OK;
}

enum muster_rc muster_mvcc_fetch(struct muster_mvcc_run *run, struct muster_registry_record *record)
{
    struct muster_bytes key = record->key;
    enum muster_rc rc = muster_registry_store_read(run->mvcc->store, record->seq, record);

    if (rc != MUSTER_OK)
        return muster_mvcc_break(run, rc == MUSTER_NOT_FOUND ? MUSTER_DATA_LOSS : rc);
    record->key = key;
    if (!muster_registry_arena_copy(run->arena, record->value, &record->value))
        return muster_mvcc_no_memory(run);
    return MUSTER_OK;
}

static enum muster_rc fetch_all(struct muster_mvcc_run *run, struct muster_registry_record *records,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum muster_rc rc = muster_mvcc_fetch(run, &records[i]);

        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

/* Sorting. */

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_by(enum muster_mvcc_target target, const struct muster_registry_record *a,
                      const struct muster_registry_record *b)
{
    switch (target) {
    case MUSTER_MVCC_BY_VERSION:
        return compare_numbers(a->version, b->version);
    case MUSTER_MVCC_BY_CREATE:
        return compare_numbers(a->create_revision, b->create_revision);
    case MUSTER_MVCC_BY_MOD:
        return compare_numbers(a->mod_revision, b->mod_revision);
    case MUSTER_MVCC_BY_VALUE:
        return muster_registry_bytes_compare(a->value, b->value);
    case MUSTER_MVCC_BY_KEY:
        break;
    }
    return muster_registry_bytes_compare(a->key, b->key);
}

static int compare_records(const void *left, const void *right, void *data)
{
    const struct muster_mvcc_range *range = data;
    const struct muster_registry_record *a = left;
    const struct muster_registry_record *b = right;
    int order = compare_by((enum muster_mvcc_target)range->target, a, b);

    if (range->order == MUSTER_MVCC_DESCEND)
        order = -order;
    /* Equal ones keep the order of their keys, so that answers do not depend on the sort's
     * implementation. */
    return order != 0 ? order : muster_registry_bytes_compare(a->key, b->key);
}

static bool needs_sort(const struct muster_mvcc_range *range)
{
    return range->target != MUSTER_MVCC_BY_KEY || range->order == MUSTER_MVCC_DESCEND;
}

/* Ranges. */

enum muster_rc muster_mvcc_range_check(struct muster_mvcc_run *run,
                                       const struct muster_mvcc_range *range)
{
    const struct muster_registry_meta *meta = &run->mvcc->meta;

    if (range->revision > meta->revision)
        return muster_mvcc_fail(run, MUSTER_OUT_OF_RANGE,
                                "etcdserver: mvcc: required revision is a future revision");
    if (range->revision > 0 && range->revision < meta->compact_revision)
        return muster_mvcc_fail(run, MUSTER_OUT_OF_RANGE,
                                "etcdserver: mvcc: required revision has been compacted");
    return MUSTER_OK;
}

enum muster_rc muster_mvcc_range_run(struct muster_mvcc_run *run,
                                     const struct muster_mvcc_range *range,
                                     struct muster_mvcc_result *ret_result)
{
    bool is_sorted = needs_sort(range);
    bool is_by_value = range->target == MUSTER_MVCC_BY_VALUE;
    size_t limit = range->limit > 0 ? (size_t)range->limit : SIZE_MAX;
    /* A scan delivers in ascending order of keys, so only a range with another order has to see all
     * keys before it can be cut. */
    struct collection all = {.run = run, .range = range, .wanted = is_sorted ? SIZE_MAX : limit};
    enum muster_rc rc = scan_span(&all, &range->span);

    if (rc == MUSTER_OK && is_by_value)
        rc = fetch_all(run, all.records, all.count);
    if (rc != MUSTER_OK)
        return rc;
    if (is_sorted && all.count > 1)
        qsort_r(all.records, all.count, sizeof(*all.records), compare_records,
                (void *)(uintptr_t)range);
    if (all.count > limit) {
        all.count = limit;
        all.is_cut = true;
    }
    if (!is_by_value && !range->is_keys_only)
        rc = fetch_all(run, all.records, all.count);
    if (rc != MUSTER_OK)
        return rc;
    /* A sort by value has read the values, which the client did not ask for. */
    for (size_t i = 0; range->is_keys_only && i < all.count; i++)
        all.records[i].value.size = 0;
    ret_result->is_more = all.is_cut;
    ret_result->count = all.total;
    ret_result->records = all.records;
    ret_result->record_count = all.count;
    return MUSTER_OK;
}
