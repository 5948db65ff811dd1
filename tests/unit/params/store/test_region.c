/* The memory of a seat: which sizes and contents are accepted, and how segments are found, taken,
 * given back and cleared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>
#include <sys/mman.h>

#define MIB           ((size_t)1 << 20)
#define GIB           ((size_t)1 << 30)
#define SEGMENT_BYTES MUSTER_PARAMS_SEGMENT_BYTES
#define SHARDS        8u

/* --- Sizes --- */

static void wrong_sizes_and_shards_are_refused_by_name(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
        struct muster_params_region_options options;
        const char *text;
    } rows[] = {
        {"too small", 14 * MIB, {.shard_count = 1}, "16 MiB to 64 GiB"},
        {"no bytes", 0, {.shard_count = 1}, "got 0 bytes"},
        {"too large", 64 * GIB + 2 * MIB, {.shard_count = 1}, "16 MiB to 64 GiB"},
        {"half a segment more", 17 * MIB, {.shard_count = 1}, "a multiple of 2 MiB, got 17825792"},
        {"no shards", 16 * MIB, {.shard_count = 0}, "from 1 to 4096, got 0"},
        {"three shards", 16 * MIB, {.shard_count = 3}, "a power of two from 1 to 4096, got 3"},
        {"too many shards", 16 * MIB, {.shard_count = 8192}, "got 8192"},
        {"a small limit",
         16 * MIB,
         {.shard_count = 1, .memory_max = 16 * MIB - 1},
         "memory_max must be at least 16 MiB, got 16777215 bytes"},
    };
    static _Alignas(16) uint8_t memory[16];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_region region;
        struct muster_error error = {.rc = MUSTER_OK};

        fail_if(muster_params_region_init(&region, memory, rows[i].bytes, &rows[i].options,
                                          &error) != MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i].text) == NULL,
                "%s: %s", rows[i].name, error.text);
        fail_if(muster_params_region_recover(&region, memory, rows[i].bytes, &rows[i].options,
                                             &error) != MUSTER_INVALID_ARGUMENT,
                "%s: %s", rows[i].name, error.text);
    }
}

static void the_smallest_and_the_largest_region_are_cut(void **state)
{
    static const struct {
        const char *name;
        size_t bytes;
        uint32_t shard_count;
    } rows[] = {{"smallest", 16 * MIB, 1}, {"largest", 64 * GIB, 4096}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_region_options options = {.shard_count = rows[i].shard_count};
        struct muster_params_region region, next;
        struct muster_error error;
        void *memory = mmap(NULL, rows[i].bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_true(memory != MAP_FAILED);
        fail_if(muster_params_region_init(&region, memory, rows[i].bytes, &options, &error) !=
                    MUSTER_OK,
                "%s: %s", rows[i].name, error.text);
        assert_int_equal(muster_params_region_bytes_max(&region), rows[i].bytes);
        fail_if(muster_params_region_recover(&next, memory, rows[i].bytes, &options, &error) !=
                    MUSTER_OK,
                "%s: %s", rows[i].name, error.text);
        assert_int_equal(next.segments_used, region.segments_used);
        /* The first segment that can be taken lies behind the whole head. */
        assert_true(muster_params_segment_find(&next, 1) * SEGMENT_BYTES >=
                    sizeof(*region.head) +
                        region.head->segment_count * sizeof(struct muster_params_segment));
        munmap(memory, rows[i].bytes);
    }
}

/* --- Contents --- */

static void foreign_store(struct muster_params_region_head *head)
{
    head->magic++;
}

static void fresh_store(struct muster_params_region_head *head)
{
    head->magic = 0;
}

static void version_store(struct muster_params_region_head *head)
{
    head->version++;
}

static void bytes_store(struct muster_params_region_head *head)
{
    head->bytes += SEGMENT_BYTES;
}

static void shards_store(struct muster_params_region_head *head)
{
    head->shard_count *= 2;
}

static void segments_store(struct muster_params_region_head *head)
{
    head->segment_count--;
}

static void end_store(struct muster_params_region_head *head)
{
    head->segment_end = (uint32_t)head->segment_count + 1;
}

static void tables_store(struct muster_params_region_head *head)
{
    head->table_count = MUSTER_PARAMS_TABLES_MAX + 1;
}

static void intent_store(struct muster_params_region_head *head)
{
    head->intent.kind = MUSTER_PARAMS_INTENT_COUNT;
}

static void memory_that_is_not_this_regions_is_refused(void **state)
{
    static const struct {
        const char *name;
        void (*store)(struct muster_params_region_head *head);
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"fresh", fresh_store, MUSTER_NOT_FOUND, "is fresh"},
        {"foreign", foreign_store, MUSTER_INVALID_ARGUMENT, "not that of a seat"},
        {"version", version_store, MUSTER_FAILED_PRECONDITION, "; start a fresh seat"},
        {"bytes", bytes_store, MUSTER_FAILED_PRECONDITION, "18874368 bytes and 8 shards"},
        {"shards", shards_store, MUSTER_FAILED_PRECONDITION,
         "16777216 bytes and 16 shards, expected 16777216 and 8"},
        {"segments", segments_store, MUSTER_FAILED_PRECONDITION, "16777216 bytes"},
        {"end", end_store, MUSTER_FAILED_PRECONDITION, "16777216 bytes"},
        {"tables", tables_store, MUSTER_FAILED_PRECONDITION, "16777216 bytes"},
        {"intent", intent_store, MUSTER_FAILED_PRECONDITION, "a change of unknown kind 12"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct region_stand stand;
        struct muster_params_region region;
        struct muster_error error = {.rc = MUSTER_OK};
        enum muster_rc rc;

        region_stand_open(&stand, 16 * MIB, SHARDS);
        rows[i].store(stand.region.head);
        rc = muster_params_region_recover(&region, stand.memory, stand.bytes, &stand.options,
                                          &error);
        fail_if(rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL, "%s: %s",
                rows[i].name, error.text);
        region_stand_close(&stand);
    }
}

/* --- Segments --- */

static void a_memory_limit_is_kept(void **state)
{
    struct region_stand stand;
    struct muster_error error;
    uint32_t taken = 0, segment;

    (void)state;
    region_stand_open(&stand, 32 * MIB, SHARDS);
    stand.options.memory_max = 18 * MIB + 5; /* less than one more segment */
    assert_int_equal(muster_params_region_attach(&stand.region, stand.memory, stand.bytes,
                                                 &stand.options, &error),
                     MUSTER_OK);
    assert_int_equal(muster_params_region_bytes_max(&stand.region), 18 * MIB);
    while ((segment = muster_params_segment_find(&stand.region, 1)) != 0) {
        muster_params_segment_take(&stand.region, segment, 1, MUSTER_PARAMS_SEGMENT_ROWS, 0);
        taken++;
        if (muster_params_region_bytes_used(&stand.region) == 16 * MIB)
            assert_int_equal(muster_params_segment_find(&stand.region, 2), 0);
    }

    assert_int_equal(taken, 8); /* one is the head's */
    assert_int_equal(muster_params_region_bytes_used(&stand.region), 18 * MIB);
    stand.options.memory_max = 64 * MIB; /* more than there is */
    region_stand_recover(&stand);
    assert_int_equal(muster_params_region_bytes_max(&stand.region), 32 * MIB);
    assert_int_equal(muster_params_region_bytes_used(&stand.region), 18 * MIB);
    region_stand_close(&stand);
}

static void fill_region(struct region_stand *stand)
{
    for (uint32_t segment; (segment = muster_params_segment_find(&stand->region, 1)) != 0;) {
        muster_params_segment_take(&stand->region, segment, 1, MUSTER_PARAMS_SEGMENT_ROWS, 3);
        memset(stand->memory + segment * SEGMENT_BYTES, 0xee, SEGMENT_BYTES);
    }
}

static void check_counts(const struct region_stand *stand, uint64_t used, uint64_t freed)
{
    struct muster_params_region next;
    struct muster_error error;

    assert_int_equal(stand->region.segments_used, used);
    assert_int_equal(stand->region.segments_freed, freed);
    assert_int_equal(
        muster_params_region_attach(&next, stand->memory, stand->bytes, &stand->options, &error),
        MUSTER_OK);
    assert_int_equal(next.segments_used, used);
    assert_int_equal(next.segments_freed, freed);
}

static void a_freed_run_is_found_and_cleared(void **state)
{
    static const uint8_t zeroes[SEGMENT_BYTES];
    struct region_stand stand;
    struct muster_params_segment *segments;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    segments = stand.region.head->segments;
    fill_region(&stand);
    check_counts(&stand, 8, 0);
    muster_params_segment_free(&stand.region, 2, 1);
    muster_params_segment_free(&stand.region, 5, 2);
    muster_params_segment_free(&stand.region, 5, 2); /* idempotent */
    check_counts(&stand, 5, 3);

    assert_int_equal(muster_params_segment_find(&stand.region, 1), 2);
    assert_int_equal(muster_params_segment_find(&stand.region, 2), 5);
    assert_int_equal(muster_params_segment_find(&stand.region, 3), 0);
    muster_params_segment_take(&stand.region, 5, 2, MUSTER_PARAMS_SEGMENT_INDEX, 7);
    check_counts(&stand, 7, 1);
    muster_params_segment_take(&stand.region, 5, 2, MUSTER_PARAMS_SEGMENT_INDEX, 7);
    check_counts(&stand, 7, 1);
    assert_int_equal(segments[5].kind, MUSTER_PARAMS_SEGMENT_INDEX);
    assert_int_equal(segments[5].run, 2);
    assert_int_equal(segments[5].table, 7);
    assert_int_equal(segments[6].kind, MUSTER_PARAMS_SEGMENT_MORE);
    assert_int_equal(segments[6].run, 0);
    assert_memory_equal(stand.memory + 5 * SEGMENT_BYTES, zeroes, SEGMENT_BYTES);
    assert_memory_equal(stand.memory + 6 * SEGMENT_BYTES, zeroes, SEGMENT_BYTES);
    assert_int_equal(stand.memory[7 * SEGMENT_BYTES], 0xee);
    assert_int_equal(stand.memory[5 * SEGMENT_BYTES - 1], 0xee);
    region_stand_close(&stand);
}

/* Freed segments at the very end are below segment_end, too. */
static void the_last_run_is_found_again(void **state)
{
    struct region_stand stand;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    fill_region(&stand);
    muster_params_segment_free(&stand.region, 6, 2);

    assert_int_equal(muster_params_segment_find(&stand.region, 2), 6);
    region_stand_close(&stand);
}

static void memory_that_was_never_used_is_taken_first(void **state)
{
    struct region_stand stand;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    muster_params_segment_take(&stand.region, 1, 2, MUSTER_PARAMS_SEGMENT_INDEX, 0);
    muster_params_segment_free(&stand.region, 1, 2);

    assert_int_equal(muster_params_segment_find(&stand.region, 1), 3);
    assert_int_equal(muster_params_segment_find(&stand.region, 5), 3); /* to the last one */
    assert_int_equal(muster_params_segment_find(&stand.region, 6), 0);
    region_stand_close(&stand);
}

struct commits {
    void *memory;
    size_t bytes;
    unsigned count;
    uint8_t first; /* of the memory at that time */
};

static void on_commit(void *data, void *memory, size_t bytes)
{
    struct commits *commits = data;

    *commits = (struct commits){memory, bytes, commits->count + 1, *(uint8_t *)memory};
}

static void memory_is_committed_before_it_is_cleared(void **state)
{
    struct region_stand stand;
    struct commits commits = {.count = 0};

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    fill_region(&stand);
    muster_params_segment_free(&stand.region, 3, 2);
    stand.region.commit = on_commit;
    stand.region.commit_data = &commits;
    muster_params_segment_take(&stand.region, 3, 2, MUSTER_PARAMS_SEGMENT_INDEX, 0);

    assert_int_equal(commits.count, 1);
    assert_ptr_equal(commits.memory, stand.memory + 3 * SEGMENT_BYTES);
    assert_int_equal(commits.bytes, 2 * SEGMENT_BYTES);
    assert_int_equal(commits.first, 0xee);
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_sizes_and_shards_are_refused_by_name),
        cmocka_unit_test(the_smallest_and_the_largest_region_are_cut),
        cmocka_unit_test(memory_that_is_not_this_regions_is_refused),
        cmocka_unit_test(a_memory_limit_is_kept),
        cmocka_unit_test(a_freed_run_is_found_and_cleared),
        cmocka_unit_test(the_last_run_is_found_again),
        cmocka_unit_test(memory_that_was_never_used_is_taken_first),
        cmocka_unit_test(memory_is_committed_before_it_is_cleared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
