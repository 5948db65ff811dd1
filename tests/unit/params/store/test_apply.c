/* Pushes and pulls on a region: each row of a run is applied once and in its order, whatever the
 * length of the run and the width of its rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>

#include "params/store/init.h"

#define MIB      ((size_t)1 << 20)
#define RUN_MAX  300u
#define SEQUENCE 5u

/* A region of one shard, so that a push is one run. */
struct apply_stand {
    struct region_stand region;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t keys[RUN_MAX];
    float values[RUN_MAX];
};

static void apply_stand_open(struct apply_stand *stand, enum muster_params_optimizer optimizer)
{
    struct muster_params_schema schema = {
        .name = "t", .row_elements = 1, .wire_dtype = MUSTER_F32, .optimizer = optimizer};

    region_stand_open(&stand->region, 16 * MIB, 1);
    stand->table = region_table(&stand->region, &schema);
    stand->source = region_source(&stand->region, 1);
    for (uint32_t i = 0; i < RUN_MAX; i++) {
        stand->keys[i] = 1000 + i;
        stand->values[i] = (float)(i + 1);
    }
}

static struct muster_params_applied push_rows(struct apply_stand *stand, uint64_t sequence,
                                              uint32_t count)
{
    const struct muster_params_run run = {.rows = (uint16_t)count};
    const struct muster_params_update update = {.table = stand->table,
                                                .source = stand->source,
                                                .sequence = sequence,
                                                .clock = 77,
                                                .run_count = 1,
                                                .runs = &run,
                                                .keys = stand->keys,
                                                .values = stand->values};

    return muster_params_update_apply(&stand->region.region, &update);
}

static float value_of(const struct apply_stand *stand, uint64_t key)
{
    float value = -1;

    muster_params_rows_read(&stand->region.region, stand->table, &key, 1, &value);
    return value;
}

/* --- Batches of 64 --- */

static const uint32_t lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, RUN_MAX};
#define LENGTHS (sizeof(lengths) / sizeof(lengths[0]))

static void a_run_of_any_length_is_applied_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTHS; i++) {
        struct apply_stand stand;
        struct muster_params_applied applied;

        apply_stand_open(&stand, MUSTER_PARAMS_ADD);
        applied = push_rows(&stand, SEQUENCE, lengths[i]);
        assert_int_equal(applied.duplicate_runs, 0);
        assert_int_equal(applied.refused, 0);
        for (uint32_t j = 0; j < RUN_MAX; j++)
            assert_true(value_of(&stand, stand.keys[j]) == (j < lengths[i] ? stand.values[j] : 0));
        assert_int_equal(stand.table->row_count, lengths[i]);
        assert_int_equal(stand.source->positions[0], (uint64_t)(SEQUENCE + 1) << 16);
        region_stand_close(&stand.region);
    }
}

static void equal_keys_of_a_run_are_applied_in_their_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTHS; i++) {
        struct apply_stand sum, last;

        apply_stand_open(&sum, MUSTER_PARAMS_ADD);
        apply_stand_open(&last, MUSTER_PARAMS_ASSIGN);
        for (uint32_t j = 0; j < RUN_MAX; j++)
            sum.keys[j] = last.keys[j] = 1000 + j % 2;
        (void)push_rows(&sum, 1, lengths[i]);
        (void)push_rows(&last, 1, lengths[i]);

        assert_int_equal(sum.table->row_count, lengths[i] > 1 ? 2 : 1);
        assert_true(value_of(&sum, 1000) + value_of(&sum, 1001) ==
                    (float)(lengths[i] * (lengths[i] + 1) / 2));
        assert_true(value_of(&last, 1000 + (lengths[i] - 1) % 2) == (float)lengths[i]);
        if (lengths[i] > 1)
            assert_true(value_of(&last, 1000 + lengths[i] % 2) == (float)(lengths[i] - 1));
        region_stand_close(&sum.region);
        region_stand_close(&last.region);
    }
}

static void the_longest_run_is_applied_whole(void **state)
{
    enum { ROWS = UINT16_MAX };
    static uint64_t keys[ROWS];
    static float values[ROWS];
    const struct muster_params_run run = {.rows = ROWS};
    struct muster_params_update update = {.sequence = MUSTER_PARAMS_SEQUENCE_MAX,
                                          .run_count = 1,
                                          .runs = &run,
                                          .keys = keys,
                                          .values = values};
    struct apply_stand stand;

    (void)state;
    apply_stand_open(&stand, MUSTER_PARAMS_ADD);
    update.table = stand.table;
    update.source = stand.source;
    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i;
        values[i] = 1;
    }
    assert_int_equal(muster_params_update_apply(&stand.region.region, &update).refused, 0);

    assert_int_equal(stand.table->row_count, ROWS);
    assert_int_equal(stand.source->positions[0], (MUSTER_PARAMS_SEQUENCE_MAX + 1) << 16);
    assert_int_equal(muster_params_update_apply(&stand.region.region, &update).duplicate_runs, 1);
    region_stand_close(&stand.region);
}

/* --- Once --- */

static void a_run_that_comes_again_changes_nothing(void **state)
{
    struct apply_stand stand;
    struct muster_params_digest before, after;

    (void)state;
    apply_stand_open(&stand, MUSTER_PARAMS_ADD);
    (void)push_rows(&stand, SEQUENCE, 100);
    before = muster_params_table_digest(&stand.region.region, stand.table);
    for (uint64_t sequence = 1; sequence <= SEQUENCE; sequence++) {
        struct muster_params_applied applied = push_rows(&stand, sequence, RUN_MAX);

        assert_int_equal(applied.duplicate_runs, 1);
        assert_int_equal(applied.duplicate_rows, RUN_MAX);
        assert_int_equal(applied.refused, 0);
    }
    after = muster_params_table_digest(&stand.region.region, stand.table);

    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(stand.table->row_count, 100);
    assert_int_equal(stand.source->positions[0], (uint64_t)(SEQUENCE + 1) << 16);
    assert_int_equal(push_rows(&stand, SEQUENCE + 1, 100).duplicate_runs, 0);
    assert_true(value_of(&stand, 1000) == 2);
    region_stand_close(&stand.region);
}

/* The position is stored as a death would have left it. */
static void a_run_that_was_cut_short_goes_on_behind_its_applied_rows(void **state)
{
    static const uint32_t applied_rows[] = {1, 63, 64, 65, 128, RUN_MAX - 1};

    (void)state;
    for (size_t i = 0; i < sizeof(applied_rows) / sizeof(applied_rows[0]); i++) {
        struct apply_stand stand;

        apply_stand_open(&stand, MUSTER_PARAMS_ADD);
        stand.source->positions[0] = (uint64_t)SEQUENCE << 16 | applied_rows[i];
        assert_int_equal(push_rows(&stand, SEQUENCE, RUN_MAX).duplicate_runs, 0);
        for (uint32_t j = 0; j < RUN_MAX; j++)
            assert_true(value_of(&stand, stand.keys[j]) ==
                        (j < applied_rows[i] ? 0 : stand.values[j]));
        assert_int_equal(stand.table->row_count, RUN_MAX - applied_rows[i]);
        assert_int_equal(stand.source->positions[0], (uint64_t)(SEQUENCE + 1) << 16);
        region_stand_close(&stand.region);
    }
}

/* Rows of an earlier sequence say nothing about this one. */
static void the_rows_of_another_sequence_are_not_skipped(void **state)
{
    struct apply_stand stand;

    (void)state;
    apply_stand_open(&stand, MUSTER_PARAMS_ADD);
    stand.source->positions[0] = (uint64_t)SEQUENCE << 16 | 10;
    (void)push_rows(&stand, SEQUENCE + 1, 20);

    assert_true(value_of(&stand, stand.keys[0]) == 1);
    assert_int_equal(stand.table->row_count, 20);
    region_stand_close(&stand.region);
}

static void sources_and_shards_have_positions_of_their_own(void **state)
{
    static const uint64_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const float ones[] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct region_stand stand;
    struct muster_params_schema schema = {.name = "t", .row_elements = 1};
    struct muster_params_store_table *table;
    struct muster_params_source *left, *right;
    uint32_t duplicates = 0;
    float found[8];

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    table = region_table(&stand, &schema);
    left = region_source(&stand, 1);
    right = region_source(&stand, 2);
    region_push(&stand, table, left, 9, keys, ones, 8, &duplicates);
    region_push(&stand, table, right, 9, keys, ones, 8, &duplicates);
    assert_int_equal(duplicates, 0);
    left->positions[2] = 0;
    region_push(&stand, table, left, 9, keys, ones, 8, &duplicates);

    assert_int_equal(duplicates, 3); /* of all shards but for 2 */
    muster_params_rows_read(&stand.region, table, keys, 8, found);
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t hash = muster_params_hash(table->seed, keys[i]);

        assert_true(found[i] == (muster_params_shard_of(hash, 4) == 2 ? 3 : 2));
    }
    region_stand_close(&stand);
}

#define SHARDS 64u

/* In 64 runs, so that batches end in the middle of runs. Some runs were applied before, and some in
 * part. */
static void a_push_of_many_runs_applies_what_is_not_applied_yet(void **state)
{
    static uint64_t keys[RUN_MAX];
    static float ones[RUN_MAX], found[RUN_MAX];
    struct region_stand stand;
    struct muster_params_schema schema = {.name = "t", .row_elements = 1};
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint32_t rows[SHARDS] = {0}, duplicates = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, SHARDS);
    table = region_table(&stand, &schema);
    source = region_source(&stand, 1);
    for (uint32_t i = 0; i < RUN_MAX; i++) {
        keys[i] = i;
        ones[i] = 1;
    }
    for (uint32_t shard = 0; shard < SHARDS; shard += 3)
        source->positions[shard] = (uint64_t)(SEQUENCE + 1) << 16;
    for (uint32_t shard = 1; shard < SHARDS; shard += 3)
        source->positions[shard] = (uint64_t)SEQUENCE << 16 | 1;
    assert_int_equal(region_push(&stand, table, source, SEQUENCE, keys, ones, RUN_MAX, &duplicates),
                     0);

    assert_int_equal(duplicates, 22);
    muster_params_rows_read(&stand.region, table, keys, RUN_MAX, found);
    for (uint32_t i = 0; i < RUN_MAX; i++) {
        uint32_t shard = muster_params_shard_of(muster_params_hash(table->seed, i), SHARDS);
        bool was_applied = shard % 3 == 0 || (shard % 3 == 1 && rows[shard] == 0);

        rows[shard]++;
        fail_if(!(found[i] == (was_applied ? 0 : 1)), "row %u of shard %u", i, shard);
    }
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        assert_true(rows[shard] > 0);
        assert_int_equal(source->positions[shard], (uint64_t)(SEQUENCE + 1) << 16);
    }
    region_stand_close(&stand);
}

/* --- Rows that are refused --- */

/* Every second key is new. */
static void refused_rows_are_counted_and_answered_for_good(void **state)
{
    struct apply_stand stand;
    struct muster_params_applied applied;
    struct muster_params_segment *segment;

    (void)state;
    apply_stand_open(&stand, MUSTER_PARAMS_ADD);
    (void)push_rows(&stand, 1, 150);
    for (uint32_t i = 1; i < RUN_MAX; i += 2)
        stand.keys[i] = 5000 + i;
    for (uint32_t i = 150; i < RUN_MAX; i += 2)
        stand.keys[i] = 1000 + i % 100;
    stand.region.region.segments_max = 0;
    segment = &stand.region.region.head->segments[stand.table->row_segment];
    segment->page_count = MUSTER_PARAMS_SEGMENT_PAGES; /* none is left */
    segment->pages[0].used = (uint16_t)stand.table->rows_per_page;
    applied = push_rows(&stand, 2, RUN_MAX);

    assert_int_equal(applied.refused, RUN_MAX / 2);
    assert_int_equal(stand.source->positions[0], (uint64_t)3 << 16);
    assert_int_equal(stand.table->row_count, 150);
    assert_true(value_of(&stand, 1148) == 149 * 2);
    assert_true(value_of(&stand, 1149) == 150);
    stand.region.region.segments_max = 8;
    applied = push_rows(&stand, 2, RUN_MAX);
    assert_int_equal(applied.duplicate_runs, 1);
    assert_int_equal(stand.table->row_count, 150);
    applied = push_rows(&stand, 3, RUN_MAX);
    assert_int_equal(applied.refused, 0);
    assert_int_equal(stand.table->row_count, 300);
    region_stand_close(&stand.region);
}

static void each_push_advances_the_version_and_the_clock_of_its_row(void **state)
{
    struct apply_stand stand;
    const struct muster_params_row *row;

    (void)state;
    apply_stand_open(&stand, MUSTER_PARAMS_ADD);
    (void)push_rows(&stand, 1, 2);
    (void)push_rows(&stand, 2, 1);
    row = muster_params_index_find(&stand.region.region, stand.table,
                                   muster_params_hash(stand.table->seed, 1000), 1000);

    assert_int_equal(row->version, 4);
    assert_int_equal(row->clock, 77);
    region_stand_close(&stand.region);
}

/* --- Rows of every width --- */

static const uint32_t widths[] = {1,   2,   3,   4,   5,    7,    8,    9,     12,   15,  16,
                                  17,  24,  31,  32,  33,   63,   64,   65,    100,  127, 128,
                                  129, 255, 256, 257, 1000, 1024, 4095, 16383, 16384};

static void rows_of_every_width_are_pushed_and_pulled(void **state)
{
    enum { ROWS = 3 };
    static float values[ROWS * 16384], found[ROWS * 16384], initial[16384];
    static const uint64_t keys[ROWS] = {11, 12, 11}, pulled[ROWS] = {12, 13, 11};

    (void)state;
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
        struct region_stand stand;
        struct muster_params_schema schema = region_schema("t", widths[w], MUSTER_PARAMS_ADD);
        struct muster_params_store_table *table;
        uint32_t width = widths[w];

        region_stand_open(&stand, 16 * MIB, 2);
        table = region_table(&stand, &schema);
        for (uint32_t i = 0; i < ROWS * width; i++)
            values[i] = (float)(i % 1021) + 0.25f;
        region_push(&stand, table, region_source(&stand, 1), 1, keys, values, ROWS, NULL);
        memset(found, 0xff, sizeof(found));
        muster_params_rows_read(&stand.region, table, pulled, ROWS, found);

        muster_params_init_values(table, 12, initial);
        for (uint32_t i = 0; i < width; i++)
            fail_if(!(found[i] == initial[i] + values[width + i]), "width %u, %u", width, i);
        muster_params_init_values(table, 13, initial);
        assert_memory_equal(found + width, initial, width * sizeof(float));
        muster_params_init_values(table, 11, initial);
        for (uint32_t i = 0; i < width; i++)
            fail_if(!(found[2 * width + i] == initial[i] + values[i] + values[2 * width + i]),
                    "width %u, %u", width, i);
        assert_int_equal(table->row_count, 2); /* a pull makes none */
        if (width < 16384)
            assert_true(found[ROWS * width] != found[ROWS * width]); /* nothing behind the last */
        region_stand_close(&stand);
    }
}

static void a_pull_of_any_length_is_whole(void **state)
{
    struct apply_stand stand;
    float found[RUN_MAX];

    (void)state;
    apply_stand_open(&stand, MUSTER_PARAMS_ADD);
    (void)push_rows(&stand, 1, 200);
    for (size_t i = 0; i < LENGTHS; i++) {
        memset(found, 0xff, sizeof(found));
        muster_params_rows_read(&stand.region.region, stand.table, stand.keys, lengths[i], found);
        for (uint32_t j = 0; j < lengths[i]; j++)
            assert_true(found[j] == (j < 200 ? stand.values[j] : 0));
    }
    region_stand_close(&stand.region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_of_any_length_is_applied_whole),
        cmocka_unit_test(equal_keys_of_a_run_are_applied_in_their_order),
        cmocka_unit_test(the_longest_run_is_applied_whole),
        cmocka_unit_test(a_run_that_comes_again_changes_nothing),
        cmocka_unit_test(a_run_that_was_cut_short_goes_on_behind_its_applied_rows),
        cmocka_unit_test(the_rows_of_another_sequence_are_not_skipped),
        cmocka_unit_test(sources_and_shards_have_positions_of_their_own),
        cmocka_unit_test(a_push_of_many_runs_applies_what_is_not_applied_yet),
        cmocka_unit_test(refused_rows_are_counted_and_answered_for_good),
        cmocka_unit_test(each_push_advances_the_version_and_the_clock_of_its_row),
        cmocka_unit_test(rows_of_every_width_are_pushed_and_pulled),
        cmocka_unit_test(a_pull_of_any_length_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
