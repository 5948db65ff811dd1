/* A seat's memory as a whole: its head, its segments, and the record of a change that is under
 * way. */
#include "params/store/region.h"

#include <stdatomic.h>
#include <string.h>

static uint64_t head_bytes(uint64_t segment_count)
{
    return sizeof(struct muster_params_region_head) +
           segment_count * sizeof(struct muster_params_segment);
}

static uint32_t head_segments(uint64_t segment_count)
{
    return (uint32_t)((head_bytes(segment_count) + MUSTER_PARAMS_SEGMENT_BYTES - 1) /
                      MUSTER_PARAMS_SEGMENT_BYTES);
}

enum muster_rc muster_params_region_check(size_t bytes,
                                          const struct muster_params_region_options *options,
                                          struct muster_error *ret_error)
{
    uint32_t shards = options->shard_count;

    if (bytes < MUSTER_PARAMS_REGION_BYTES_MIN || bytes > MUSTER_PARAMS_REGION_BYTES_MAX ||
        bytes % MUSTER_PARAMS_SEGMENT_BYTES != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the memory of a seat must be 16 MiB to 64 GiB and a multiple of "
                                "2 MiB, got %zu bytes",
                                bytes);
    if (shards == 0 || shards > MUSTER_PARAMS_SHARD_COUNT_MAX || (shards & (shards - 1)) != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "shards must be a power of two from 1 to 4096, got %u", shards);
    if (options->memory_max > 0 && options->memory_max < MUSTER_PARAMS_REGION_BYTES_MIN)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "memory_max must be at least 16 MiB, got %llu bytes",
                                (unsigned long long)options->memory_max);
    return MUSTER_OK;
}

static void handle_init(struct muster_params_region *region, void *memory, size_t bytes,
                        const struct muster_params_region_options *options)
{
    uint64_t limit =
        options->memory_max > 0 && options->memory_max < bytes ? options->memory_max : bytes;

    MUSTER_ASSERT((uintptr_t)memory % MUSTER_PARAMS_GRANULE_BYTES == 0);
    memset(region, 0, sizeof(*region));
    region->memory = memory;
    region->head = memory;
    region->segments_max = limit / MUSTER_PARAMS_SEGMENT_BYTES;
}

enum muster_rc muster_params_region_init(struct muster_params_region *region, void *memory,
                                         size_t bytes,
                                         const struct muster_params_region_options *options,
                                         struct muster_error *ret_error)
{
    enum muster_rc rc = muster_params_region_check(bytes, options, ret_error);
    struct muster_params_region_head *head = memory;
    uint32_t meta;

    if (rc != MUSTER_OK)
        return rc;
    handle_init(region, memory, bytes, options);
    head->version = MUSTER_PARAMS_REGION_VERSION;
    head->shard_count = options->shard_count;
    head->bytes = bytes;
    head->segment_count = bytes / MUSTER_PARAMS_SEGMENT_BYTES;
    meta = head_segments(head->segment_count);
    head->segments[0].kind = MUSTER_PARAMS_SEGMENT_META;
    head->segments[0].run = meta;
    for (uint32_t i = 1; i < meta; i++)
        head->segments[i].kind = MUSTER_PARAMS_SEGMENT_MORE;
    head->segment_end = meta;
    head->undo.position_before = UINT64_MAX;
    region->segments_used = meta;
    MUSTER_PARAMS_STORE(&head->magic, MUSTER_PARAMS_REGION_MAGIC);
    return MUSTER_OK;
}

static enum muster_rc head_check(const struct muster_params_region_head *head, size_t bytes,
                                 const struct muster_params_region_options *options,
                                 struct muster_error *ret_error)
{
    if (head->magic == 0)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND, "the memory of the seat is fresh");
    if (head->magic != MUSTER_PARAMS_REGION_MAGIC)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the memory is not that of a seat of parameters");
    if (head->version != MUSTER_PARAMS_REGION_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "the memory of the seat must be of version %u, got version %u; "
                                "start a fresh seat",
                                MUSTER_PARAMS_REGION_VERSION, head->version);
    if (head->bytes != bytes || head->shard_count != options->shard_count ||
        head->segment_count != bytes / MUSTER_PARAMS_SEGMENT_BYTES ||
        head->segment_end > head->segment_count || head->table_count > MUSTER_PARAMS_TABLES_MAX)
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "the memory of the seat has %llu bytes and %u shards, expected %zu and %u",
            (unsigned long long)head->bytes, head->shard_count, bytes, options->shard_count);
    return MUSTER_OK;
}

enum muster_rc muster_params_region_attach(struct muster_params_region *region, void *memory,
                                           size_t bytes,
                                           const struct muster_params_region_options *options,
                                           struct muster_error *ret_error)
{
    enum muster_rc rc = muster_params_region_check(bytes, options, ret_error);

    if (rc == MUSTER_OK)
        rc = head_check(memory, bytes, options, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    handle_init(region, memory, bytes, options);
    for (uint32_t i = 0; i < region->head->segment_end; i++) {
        bool is_free = region->head->segments[i].kind == MUSTER_PARAMS_SEGMENT_FREE;

        region->segments_used += !is_free;
        region->segments_freed += is_free;
    }
    return MUSTER_OK;
}

uint64_t muster_params_region_bytes_used(const struct muster_params_region *region)
{
    return region->segments_used * MUSTER_PARAMS_SEGMENT_BYTES;
}

uint64_t muster_params_region_bytes_max(const struct muster_params_region *region)
{
    return region->segments_max * MUSTER_PARAMS_SEGMENT_BYTES;
}

/* --- Segments --- */

static bool run_is_free(const struct muster_params_region *region, uint32_t first, uint32_t run)
{
    for (uint32_t i = first; i < first + run; i++) {
        if (region->head->segments[i].kind != MUSTER_PARAMS_SEGMENT_FREE)
            return false;
    }
    return true;
}

/* Memory that was never used is taken first: it needs no clearing. */
uint32_t muster_params_segment_find(const struct muster_params_region *region, uint32_t run)
{
    const struct muster_params_region_head *head = region->head;

    MUSTER_ASSERT(run > 0);
    if (region->segments_used + run > region->segments_max)
        return 0;
    if (run <= head->segment_count - head->segment_end)
        return head->segment_end;
    for (uint32_t i = 1; region->segments_freed >= run && i + run <= head->segment_end; i++) {
        if (run_is_free(region, i, run))
            return i;
    }
    return 0;
}

static void segment_clear(struct muster_params_region *region, uint32_t segment, uint32_t run,
                          bool is_used)
{
    uint8_t *memory = muster_params_at(region, (uint64_t)segment * MUSTER_PARAMS_SEGMENT_BYTES);

    if (region->commit != NULL)
        region->commit(region->commit_data, memory, run * MUSTER_PARAMS_SEGMENT_BYTES);
    if (is_used)
        memset(memory, 0, run * MUSTER_PARAMS_SEGMENT_BYTES);
}

/* The bounds of used memory rise last: an interrupted call finds the segments still fresh. */
static void segment_mark(struct muster_params_region *region, uint32_t segment, uint32_t run,
                         enum muster_params_segment_kind kind, uint32_t table, bool is_clear)
{
    struct muster_params_region_head *head = region->head;

    for (uint32_t i = segment; i < segment + run; i++) {
        struct muster_params_segment *one = &head->segments[i];

        bool is_fresh = i >= head->segment_end;
        bool is_free = one->kind == MUSTER_PARAMS_SEGMENT_FREE;

        region->segments_used += is_fresh || is_free;
        region->segments_freed -= !is_fresh && is_free;
        memset(one, 0, sizeof(*one));
        one->table = table;
        one->run = i == segment ? run : 0;
        one->page_count = !is_clear && !is_fresh;
        MUSTER_PARAMS_STORE(&one->kind,
                            i == segment ? (uint32_t)kind : (uint32_t)MUSTER_PARAMS_SEGMENT_MORE);
    }
    if (segment + run > head->segment_end)
        MUSTER_PARAMS_STORE(&head->segment_end, segment + run);
}

void muster_params_segment_take(struct muster_params_region *region, uint32_t segment, uint32_t run,
                                enum muster_params_segment_kind kind, uint32_t table)
{
    MUSTER_ASSERT(segment > 0 && segment + run <= region->head->segment_count);
    segment_clear(region, segment, run, segment < region->head->segment_end);
    segment_mark(region, segment, run, kind, table, true);
}

void muster_params_segment_claim(struct muster_params_region *region, uint32_t segment, uint32_t run,
                                 uint32_t table)
{
    MUSTER_ASSERT(segment > 0 && segment + run <= region->head->segment_count);
    segment_mark(region, segment, run, MUSTER_PARAMS_SEGMENT_INDEX, table, false);
    if (region->claimed != NULL)
        region->claimed(region->commit_data,
                        muster_params_at(region, (uint64_t)segment * MUSTER_PARAMS_SEGMENT_BYTES),
                        run * MUSTER_PARAMS_SEGMENT_BYTES);
}

void muster_params_segment_prepare(struct muster_params_region *region, uint32_t segment)
{
    segment_clear(region, segment, 1, region->head->segments[segment].page_count != 0);
}

void muster_params_segment_free(struct muster_params_region *region, uint32_t segment, uint32_t run)
{
    for (uint32_t i = segment; i < segment + run; i++) {
        struct muster_params_segment *one = &region->head->segments[i];

        region->segments_used -= one->kind != MUSTER_PARAMS_SEGMENT_FREE;
        region->segments_freed += one->kind != MUSTER_PARAMS_SEGMENT_FREE;
        MUSTER_PARAMS_STORE(&one->kind, (uint32_t)MUSTER_PARAMS_SEGMENT_FREE);
    }
}

/* --- The change that is under way --- */

void muster_params_intent_begin(struct muster_params_region *region,
                                const struct muster_params_intent *intent)
{
    struct muster_params_intent *stored = &region->head->intent;
    struct muster_params_intent rest = *intent;

    MUSTER_ASSERT(stored->kind == MUSTER_PARAMS_INTENT_NONE);
    rest.kind = MUSTER_PARAMS_INTENT_NONE;
    *stored = rest;
    MUSTER_PARAMS_STORE(&stored->kind, intent->kind);
}

void muster_params_intent_end(struct muster_params_region *region)
{
    MUSTER_ASSERT(region->head->intent.kind != MUSTER_PARAMS_INTENT_NONE);
    MUSTER_PARAMS_STORE(&region->head->intent.kind, (uint32_t)MUSTER_PARAMS_INTENT_NONE);
}
