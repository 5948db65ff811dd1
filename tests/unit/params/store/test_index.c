/* The index of a table while it grows, and when it cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>

#define MIB   ((size_t)1 << 20)
#define BATCH 1000u

static struct muster_params_store_table *counters_open(struct region_stand *stand)
{
    const struct muster_params_schema schema = {.name = "counters",
                                                .row_elements = 1,
                                                .wire_dtype = MUSTER_F32,
                                                .optimizer = MUSTER_PARAMS_ADD};

    return region_table(stand, &schema);
}

/* Distinct, and spread over all 64 bits. */
static uint64_t key_of(uint64_t i)
{
    return muster_params_hash(UINT64_C(0x5eed), i);
}

/* Returns the keys that were refused. */
static uint32_t push_keys(struct region_stand *stand, struct muster_params_store_table *table,
                          struct muster_params_source *source, uint64_t sequence, uint64_t from,
                          uint32_t count)
{
    uint64_t keys[BATCH];
    float ones[BATCH];

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = key_of(from + i);
        ones[i] = 1;
    }
    return region_push(stand, table, source, sequence, keys, ones, count, NULL);
}

static const struct muster_params_row *find_row(const struct region_stand *stand,
                                            const struct muster_params_store_table *table,
                                            uint64_t i)
{
    return muster_params_index_find(&stand->region, table,
                                    muster_params_hash(table->seed, key_of(i)), key_of(i));
}

/* --- Growth --- */

#define KEYS 325000u

/* The model is an array: how often the key of each number was pushed. */
static void check_model(const struct region_stand *stand,
                        const struct muster_params_store_table *table, const uint16_t *model,
                        uint64_t from, uint64_t step)
{
    for (uint64_t i = from; i < KEYS; i += step) {
        const struct muster_params_row *row = find_row(stand, table, i);

        if ((row != NULL) != (model[i] > 0) ||
            (row != NULL && (row->key != key_of(i) || !(row->values[0] == (float)model[i]))))
            fail_msg("key %llu, pushed %u times", (unsigned long long)i, model[i]);
    }
}

static void a_growing_index_agrees_with_a_model(void **state)
{
    static uint16_t model[KEYS];
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t sequence = 1;

    (void)state;
    region_stand_open(&stand, 64 * MIB, 4);
    table = counters_open(&stand);
    source = region_source(&stand, 1);
    for (uint64_t from = 0; from < KEYS; from += BATCH, sequence += 2) {
        uint64_t again = key_of(from) % (from + 1) / BATCH * BATCH; /* keys that are known */

        assert_int_equal(push_keys(&stand, table, source, sequence, from, BATCH), 0);
        assert_int_equal(push_keys(&stand, table, source, sequence + 1, again, BATCH), 0);
        for (uint64_t i = 0; i < BATCH; i++) {
            model[from + i]++;
            model[again + i]++;
        }
        check_model(&stand, table, model, from % 997, 997);
        assert_true(table->row_count <=
                    (UINT64_C(5) << (muster_params_index_newest(table)->bits - 3)));
        if (from % 100000 == 0)
            region_stand_recover(&stand);
    }

    for (; (table->index_state & MUSTER_PARAMS_INDEX_GROWING) != 0; model[0]++)
        assert_int_equal(push_keys(&stand, table, source, sequence++, 0, 1), 0);
    assert_int_equal(table->row_count, KEYS);
    assert_int_equal(muster_params_index_newest(table)->bits, 20); /* 524,288 rows is half of it */
    check_model(&stand, table, model, 0, 1);
    assert_null(find_row(&stand, table, KEYS));
    /* The head, the first index, five of rows, four of the index, one of sources. */
    assert_int_equal(muster_params_region_bytes_used(&stand.region), 12 * 2 * MIB);
    assert_int_equal(stand.region.segments_freed, 3); /* indexes of 18 and 19 bits */
    region_stand_close(&stand);
}

struct commits {
    size_t bytes;
    unsigned count;
};

static void on_commit(void *data, void *memory, size_t bytes)
{
    struct commits *commits = data;

    (void)memory;
    commits->bytes += bytes;
    commits->count++;
}

/* A segment of rows, and one of the larger index, which has four at last. */
static void a_new_row_never_waits_for_more_than_two_segments(void **state)
{
    struct commits commits = {.bytes = 0};
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    size_t bytes_max = 0;

    (void)state;
    region_stand_open(&stand, 64 * MIB, 4);
    table = counters_open(&stand);
    source = region_source(&stand, 1);
    stand.region.commit = on_commit;
    stand.region.commit_data = &commits;
    for (uint64_t i = 0; i < KEYS; i++) {
        size_t before = commits.bytes;

        assert_int_equal(push_keys(&stand, table, source, i + 1, i, 1), 0);
        if (commits.bytes - before > bytes_max)
            bytes_max = commits.bytes - before;
    }

    assert_int_equal(muster_params_index_newest(table)->bits, 20);
    assert_in_range(bytes_max, 2 * MIB, 4 * MIB);
    assert_true(commits.count >= 1 + 2 + 4); /* of indexes of 18, 19 and 20 bits */
    region_stand_close(&stand);
}

static void on_claimed(void *data, void *memory, size_t bytes)
{
    struct commits *claims = data;

    (void)memory;
    claims->bytes += bytes;
    claims->count++;
}

static const struct {
    const char *name;
    uint64_t expected;
    size_t memory;         /* that may be used */
    uint32_t bits, claims; /* at the end; larger indexes */
} expectations[] = {
    {"nothing", 0, 64 * MIB, 20, 3},
    {"all rows", KEYS, 64 * MIB, 20, 1},
    {"more than there is a place for at once", UINT64_MAX, 64 * MIB, 20, 1},
    {"half of them", KEYS / 2, 64 * MIB, 20, 2},
    {"all rows, which do not find the memory at first", KEYS, 14 * MIB, 20, 2},
};

/* A doubling moves all slots, and the server of a copy knows how many rows come. */
static void an_index_grows_to_the_rows_that_are_expected(void **state)
{
    (void)state;
    for (size_t row = 0; row < sizeof(expectations) / sizeof(expectations[0]); row++) {
        struct commits claims = {.bytes = 0};
        struct region_stand stand;
        struct muster_params_store_table *table;
        struct muster_params_source *source;

        region_stand_open(&stand, 64 * MIB, 4);
        table = counters_open(&stand);
        source = region_source(&stand, 1);
        stand.region.claimed = on_claimed;
        stand.region.commit_data = &claims;
        stand.region.rows_expected = expectations[row].expected;
        stand.region.segments_max = expectations[row].memory / (2 * MIB);
        for (uint64_t i = 0; i < KEYS; i += BATCH) {
            if (claims.count > 0)
                stand.region.segments_max = stand.region.head->segment_count;
            assert_int_equal(push_keys(&stand, table, source, i / BATCH + 1, i, BATCH), 0);
        }

        if (claims.count != expectations[row].claims ||
            muster_params_index_newest(table)->bits != expectations[row].bits)
            fail_msg("%s: %u claims, %u bits", expectations[row].name, claims.count,
                     muster_params_index_newest(table)->bits);
        for (uint64_t i = 0; i < KEYS; i += 7)
            if (find_row(&stand, table, i) == NULL)
                fail_msg("%s: key %llu is lost", expectations[row].name, (unsigned long long)i);
        region_stand_close(&stand);
    }
}

/* The index of 2^19 slots is begun with 2^17 rows, and has two segments. */
static void an_index_goes_into_memory_that_was_in_use(void **state)
{
    const uint64_t begun = UINT64_C(1) << 17;
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t made = 0, sequence = 1;
    uint32_t first, run;

    (void)state;
    region_stand_open(&stand, 32 * MIB, 1);
    table = counters_open(&stand);
    source = region_source(&stand, 1);
    first = muster_params_segment_find(&stand.region, 1);
    run = (uint32_t)stand.region.head->segment_count - first;
    muster_params_segment_take(&stand.region, first, run, MUSTER_PARAMS_SEGMENT_ROWS, 0);
    memset(stand.memory + first * 2 * MIB, 0xee, run * 2 * MIB);
    muster_params_segment_free(&stand.region, first, run);
    for (; table->index_state == 0 || made < begun; made += 16)
        assert_int_equal(push_keys(&stand, table, source, sequence++, made, 16), 0);
    while ((table->index_state & MUSTER_PARAMS_INDEX_PREPARING) == 0 ||
           table->index[~table->index_state & 1].moved == 0)
        assert_int_equal(push_keys(&stand, table, source, sequence++, made++, 1), 0);

    for (unsigned process = 0; process < 2; process++) {
        assert_null(find_row(&stand, table, made));
        assert_non_null(find_row(&stand, table, made - 1));
        region_stand_recover(&stand);
    }
    while ((table->index_state & MUSTER_PARAMS_INDEX_PREPARING) != 0)
        assert_int_equal(push_keys(&stand, table, source, sequence++, made++, 1), 0);
    assert_int_equal(muster_params_index_newest(table)->bits, 19);
    for (uint64_t i = 0; i < made; i++)
        if (find_row(&stand, table, i) == NULL)
            fail_msg("key %llu is lost", (unsigned long long)i);
    assert_null(find_row(&stand, table, made));
    region_stand_close(&stand);
}

/* --- Without memory --- */

static void a_full_region_refuses_new_rows_and_goes_on_with_known_ones(void **state)
{
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t made = 0, sequence = 1, known;
    uint32_t refused = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    table = counters_open(&stand);
    source = region_source(&stand, 1);
    for (; refused < BATCH; made += BATCH) /* shards have room in their last pages for a while */
        refused = push_keys(&stand, table, source, sequence++, made, BATCH);
    known = table->row_count;

    assert_true(known > 131072 && known < made);
    assert_int_equal(stand.region.segments_used, 8);
    assert_int_equal(push_keys(&stand, table, source, sequence++, 0, BATCH), 0);
    assert_int_equal(table->row_count, known);
    assert_true(find_row(&stand, table, 7)->values[0] == 2);
    assert_null(find_row(&stand, table, made - 1));
    region_stand_close(&stand);
}

/* An index of 2^18 slots. There is always memory for rows, and none for the four MiB of a larger
 * index. */
static void an_index_that_cannot_grow_is_filled_to_seven_eighths(void **state)
{
    const uint64_t limit = (UINT64_C(1) << 18) / 8 * 7;
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t made = 0, sequence = 1;

    (void)state;
    region_stand_open(&stand, 64 * MIB, 1);
    table = counters_open(&stand);
    source = region_source(&stand, 1);
    for (; made < limit; made += BATCH) {
        uint32_t left = limit - made < BATCH ? (uint32_t)(limit - made) : BATCH;

        stand.region.segments_max = stand.region.segments_used + (made < limit / 2 ? 2 : 1);
        assert_int_equal(push_keys(&stand, table, source, sequence++, made, left), 0);
    }
    made = limit;
    assert_int_equal(table->row_count, limit);
    stand.region.segments_max = stand.region.segments_used + 1;

    assert_int_equal(push_keys(&stand, table, source, sequence++, made, 2), 2);
    assert_int_equal(table->row_count, limit);
    assert_int_equal(push_keys(&stand, table, source, sequence++, made - 1, 1), 0);
    assert_null(find_row(&stand, table, made));
    assert_int_equal(muster_params_index_newest(table)->bits, 18);

    stand.region.segments_max = stand.region.head->segment_count;
    assert_int_equal(push_keys(&stand, table, source, sequence++, made, 2), 0);
    assert_int_equal(muster_params_index_newest(table)->bits, 19);
    for (uint64_t i = 0; i < limit; i++)
        if (find_row(&stand, table, i) == NULL)
            fail_msg("key %llu is lost", (unsigned long long)i);
    region_stand_close(&stand);
}

/* The larger index is filled by new rows in time, and by pushes that make none. */
static void pushes_to_known_rows_fill_the_larger_index_too(void **state)
{
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t made = 0, sequence = 1, pushes = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 1);
    table = counters_open(&stand);
    source = region_source(&stand, 1);
    for (; (table->index_state & MUSTER_PARAMS_INDEX_GROWING) == 0; made += 16)
        assert_int_equal(push_keys(&stand, table, source, sequence++, made, 16), 0);
    for (; (table->index_state & MUSTER_PARAMS_INDEX_GROWING) != 0; pushes++)
        assert_int_equal(push_keys(&stand, table, source, sequence++, 0, 1), 0);

    assert_true(pushes > (1u << 17) / 64 - 16 && pushes <= (1u << 17) / 64);
    assert_int_equal(muster_params_index_newest(table)->bits, 18);
    for (uint64_t i = 0; i < made; i++)
        if (find_row(&stand, table, i) == NULL)
            fail_msg("key %llu is lost", (unsigned long long)i);
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_growing_index_agrees_with_a_model),
        cmocka_unit_test(a_new_row_never_waits_for_more_than_two_segments),
        cmocka_unit_test(an_index_grows_to_the_rows_that_are_expected),
        cmocka_unit_test(an_index_goes_into_memory_that_was_in_use),
        cmocka_unit_test(a_full_region_refuses_new_rows_and_goes_on_with_known_ones),
        cmocka_unit_test(an_index_that_cannot_grow_is_filled_to_seven_eighths),
        cmocka_unit_test(pushes_to_known_rows_fill_the_larger_index_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
