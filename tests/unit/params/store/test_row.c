/* Rows in their pages: where they lie, in which order they are visited, and their digest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>

#include "params/store/init.h"

#define MIB ((size_t)1 << 20)

static struct muster_params_row *row_make(struct region_stand *stand,
                                          struct muster_params_store_table *table, uint64_t key)
{
    struct muster_params_row *row = NULL;

    if (muster_params_row_make(&stand->region, table, key, muster_params_hash(table->seed, key),
                               &row) != MUSTER_OK)
        fail_msg("no memory for row %llu", (unsigned long long)key);
    return row;
}

static uint32_t shard_of(const struct region_stand *stand,
                         const struct muster_params_store_table *table, uint64_t key)
{
    return muster_params_shard_of(muster_params_hash(table->seed, key),
                                  stand->region.head->shard_count);
}

/* --- Visits --- */

struct visits {
    const struct region_stand *stand;
    uint32_t shard;
    uint64_t next; /* the smallest key that may come */
    uint32_t count;
};

static void visit_row(void *data, const struct muster_params_store_table *table,
                      const struct muster_params_row *row)
{
    struct visits *visits = data;

    assert_true(row->key >= visits->next);
    assert_int_equal(shard_of(visits->stand, table, row->key), visits->shard);
    /* The values that check_rows_lie_apart has given it. */
    assert_true(row->values[0] == (float)row->key);
    assert_true(row->values[table->row_elements + table->state_elements - 1] == (float)row->key);
    visits->next = row->key + 1;
    visits->count++;
}

/* Every float of every row is set, so that rows that overlap are seen. */
static void check_rows_lie_apart(uint32_t elements, enum muster_params_optimizer optimizer,
                                 uint32_t count, size_t bytes)
{
    struct region_stand stand;
    struct muster_params_schema schema = region_schema("t", elements, optimizer);
    struct muster_params_store_table *table;
    uint32_t sum = 0;

    region_stand_open(&stand, bytes, 4);
    table = region_table(&stand, &schema);
    for (uint64_t key = 0; key < count; key++) {
        struct muster_params_row *row = row_make(&stand, table, key);

        assert_ptr_equal(row_make(&stand, table, key), row);
        for (uint32_t i = 0; i < elements + table->state_elements; i++)
            row->values[i] = (float)key;
    }
    for (uint32_t shard = 0; shard < 4; shard++) {
        struct visits visits = {.stand = &stand, .shard = shard};

        muster_params_rows_visit(&stand.region, table, shard, visit_row, &visits);
        assert_int_equal(visits.count,
                         muster_params_shard_at(&stand.region, table, shard)->row_count);
        sum += visits.count;
    }
    assert_int_equal(sum, count);
    assert_int_equal(table->row_count, count);
    region_stand_close(&stand);
}

static void rows_of_every_size_lie_apart_and_are_visited_in_their_order(void **state)
{
    static const struct {
        uint32_t elements;
        enum muster_params_optimizer optimizer;
        uint32_t count; /* more than one page per shard, more than one segment */
        size_t bytes;
    } rows[] = {
        {1, MUSTER_PARAMS_ADD, 70000, 16 * MIB},   {4, MUSTER_PARAMS_ROW_ADAGRAD, 50000, 16 * MIB},
        {5, MUSTER_PARAMS_ADAM, 30000, 16 * MIB},  {100, MUSTER_PARAMS_MOMENTUM, 5000, 16 * MIB},
        {1023, MUSTER_PARAMS_SGD, 1000, 16 * MIB}, {16384, MUSTER_PARAMS_SGD, 60, 32 * MIB},
        {16384, MUSTER_PARAMS_ADAM, 30, 32 * MIB},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_rows_lie_apart(rows[i].elements, rows[i].optimizer, rows[i].count, rows[i].bytes);
}

/* Pages of one table only, even when tables make their rows in turn. */
static void a_page_has_rows_of_one_shard_of_one_table(void **state)
{
    struct region_stand stand;
    struct muster_params_schema schemas[] = {region_schema("a", 3, MUSTER_PARAMS_ADD),
                                             region_schema("b", 40, MUSTER_PARAMS_ADAM)};
    struct muster_params_store_table *tables[2];

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    for (uint32_t i = 0; i < 2; i++)
        tables[i] = region_table(&stand, &schemas[i]);
    for (uint64_t key = 0; key < 2000; key++)
        row_make(&stand, tables[key % 2], key);

    for (uint32_t s = 0; s < stand.region.head->segment_end; s++) {
        const struct muster_params_segment *segment = &stand.region.head->segments[s];

        if (segment->kind != MUSTER_PARAMS_SEGMENT_ROWS)
            continue;
        for (uint32_t p = 0; p < segment->page_count; p++) {
            const struct muster_params_store_table *table = tables[segment->table];
            uint64_t offset = s * MUSTER_PARAMS_SEGMENT_BYTES + p * (uint64_t)table->page_bytes;

            assert_true(segment->pages[p].used > 0);
            for (uint32_t i = 0; i < segment->pages[p].used; i++) {
                const struct muster_params_row *row =
                    muster_params_at(&stand.region, offset + i * (uint64_t)table->row_stride);

                assert_int_equal(row->key % 2, segment->table);
                assert_int_equal(shard_of(&stand, table, row->key), segment->pages[p].shard);
            }
        }
    }
    region_stand_close(&stand);
}

static void a_new_row_has_its_initial_values_and_no_state(void **state)
{
    struct region_stand stand;
    struct muster_params_schema schema = region_schema("t", 6, MUSTER_PARAMS_ADAM);
    struct muster_params_store_table *table;
    static const float zeroes[14];
    const struct muster_params_row *row;
    float values[6];

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    table = region_table(&stand, &schema);
    row = row_make(&stand, table, 77);
    muster_params_init_values(table, 77, values);

    assert_int_equal(table->state_elements, 14); /* two per element, and the count of steps */
    assert_memory_equal(row->values, values, sizeof(values));
    assert_memory_equal(row->values + 6, zeroes, sizeof(zeroes));
    assert_int_equal(row->version, 0);
    assert_int_equal(row->clock, MUSTER_PARAMS_ROW_UNPUSHED);
    region_stand_close(&stand);
}

static void a_row_without_memory_is_refused_and_a_known_one_is_not(void **state)
{
    struct region_stand stand;
    struct muster_params_schema schema = region_schema("t", 16384, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table;
    struct muster_params_row *row = NULL;
    uint64_t key = 0;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 1);
    table = region_table(&stand, &schema);
    while (muster_params_row_make(&stand.region, table, key, muster_params_hash(table->seed, key),
                                  &row) == MUSTER_OK)
        key++;

    /* Six segments of 2 MiB; pages of 512 KiB with seven rows each. */
    assert_int_equal(key, 6 * 4 * 7);
    assert_int_equal(table->row_count, key);
    assert_int_equal(row_make(&stand, table, 3)->key, 3);
    region_stand_recover(&stand);
    assert_int_equal(table->row_count, key);
    region_stand_close(&stand);
}

/* --- Removals --- */

#define MANY 90000u /* keys: the index grows when 65,536 of them have rows */

static void check_rows(const struct region_stand *stand,
                       const struct muster_params_store_table *table, const bool *has_row,
                       uint32_t count)
{
    assert_int_equal(table->row_count, count);
    for (uint64_t key = 0; key < MANY; key++) {
        const struct muster_params_row *row = muster_params_index_find(
            &stand->region, table, muster_params_hash(table->seed, key), key);

        fail_if((row != NULL) != has_row[key], "key %llu", (unsigned long long)key);
        fail_if(row != NULL && !(row->values[0] == (float)key), "values of key %llu",
                (unsigned long long)key);
    }
}

static void rows_come_and_go_in_any_order(void **state)
{
    struct muster_params_schema schema = region_schema("t", 1, MUSTER_PARAMS_ADD);
    static bool has_row[MANY];
    struct muster_params_store_table *table;
    uint64_t random = 1;
    struct region_stand stand;
    uint32_t count = 0;

    (void)state;
    memset(has_row, 0, sizeof(has_row));
    region_stand_open(&stand, 16 * MIB, 4);
    table = region_table(&stand, &schema);
    for (uint32_t i = 0; i < 6 * MANY; i++) {
        uint64_t key;
        bool is_removed;

        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        key = (random >> 33) % MANY;
        is_removed = (random >> 20) % 8 == 0;
        if (is_removed)
            assert_int_equal(muster_params_row_remove(&stand.region, table, key), has_row[key]);
        else
            row_make(&stand, table, key)->values[0] = (float)key;
        count += !is_removed;
        count -= has_row[key];
        has_row[key] = !is_removed;
        if (i % MANY == 0)
            check_rows(&stand, table, has_row, count);
    }
    check_rows(&stand, table, has_row, count);
    assert_int_equal(table->index[table->index_state & 1].bits, 18);
    region_stand_close(&stand);
}

static void count_row(void *data, const struct muster_params_store_table *table,
                      const struct muster_params_row *row)
{
    uint32_t *count = data;

    (void)table;
    (void)row;
    (*count)++;
}

static void a_removed_row_is_not_visited_and_its_memory_is_used_again(void **state)
{
    struct muster_params_schema schema = region_schema("t", 16384, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table;
    struct muster_params_row *row, *again;
    struct region_stand stand;
    uint32_t version, count = 0;
    uint64_t key = 0;
    static float values[16384];

    (void)state;
    region_stand_open(&stand, 16 * MIB, 1);
    table = region_table(&stand, &schema);
    while (muster_params_row_make(&stand.region, table, key, muster_params_hash(table->seed, key),
                                  &row) == MUSTER_OK)
        key++;
    row = row_make(&stand, table, 5);
    row->clock = 9;
    row->values[0] = 1000;
    version = row->version;
    assert_true(muster_params_row_remove(&stand.region, table, 5));
    assert_false(muster_params_row_remove(&stand.region, table, 5));
    muster_params_rows_visit(&stand.region, table, 0, count_row, &count);
    assert_int_equal(count, key - 1);
    region_stand_recover(&stand);

    again = row_make(&stand, table, key);

    assert_ptr_equal(again, row);
    assert_int_equal(again->key, key);
    assert_int_equal(again->clock, MUSTER_PARAMS_ROW_UNPUSHED);
    assert_true(again->version > version && again->version % 2 == 0);
    muster_params_init_values(table, key, values);
    assert_memory_equal(again->values, values, sizeof(values));
    region_stand_close(&stand);
}

/* --- Digests --- */

static struct muster_params_digest digest_of(struct region_stand *stand,
                                             struct muster_params_store_table *table)
{
    return muster_params_table_digest(&stand->region, table);
}

#define DIGEST_KEYS 500u

/* `step` is coprime to DIGEST_KEYS: another order of the same keys. */
static struct muster_params_digest digest_in_order(uint32_t shards, uint64_t step, uint32_t clock)
{
    struct region_stand stand;
    struct muster_params_schema schema = region_schema("t", 5, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_store_table *table;
    struct muster_params_digest digest;

    region_stand_open(&stand, 16 * MIB, shards);
    table = region_table(&stand, &schema);
    for (uint64_t i = 0; i < DIGEST_KEYS; i++) {
        struct muster_params_row *row = row_make(&stand, table, i * step % DIGEST_KEYS);

        row->version += 2 * clock;
        row->clock = clock;
    }
    digest = digest_of(&stand, table);
    region_stand_close(&stand);
    return digest;
}

static void a_digest_is_the_same_whatever_the_order_shards_versions_and_clocks(void **state)
{
    static const struct {
        const char *name;
        uint32_t shards;
        uint64_t step;
        uint32_t clock;
    } rows[] = {{"order", 1, 7, 0},
                {"shards", 64, 1, 0},
                {"versions and clocks", 1, 1, 9},
                {"all", 256, 21, 3}};
    struct muster_params_digest digest, plain = digest_in_order(1, 1, 0);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        digest = digest_in_order(rows[i].shards, rows[i].step, rows[i].clock);
        fail_if(memcmp(&digest, &plain, sizeof(digest)) != 0, "%s", rows[i].name);
    }
}

static void a_digest_tells_values_states_and_keys_apart(void **state)
{
    struct region_stand stand;
    struct muster_params_schema schema = region_schema("t", 5, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_store_table *table;
    struct muster_params_digest digests[5];
    struct muster_params_row *row, *other;
    float value;

    (void)state;
    region_stand_open(&stand, 16 * MIB, 4);
    table = region_table(&stand, &schema);
    row = row_make(&stand, table, 1);
    other = row_make(&stand, table, 2);
    digests[0] = digest_of(&stand, table);
    row->values[4] += 1; /* the last value */
    digests[1] = digest_of(&stand, table);
    row->values[9] += 1; /* the last of the state */
    digests[2] = digest_of(&stand, table);
    for (uint32_t i = 0; i < 10; i++) { /* two rows exchange all that they hold */
        value = row->values[i];
        row->values[i] = other->values[i];
        other->values[i] = value;
    }
    digests[3] = digest_of(&stand, table);
    row_make(&stand, table, 3);
    digests[4] = digest_of(&stand, table);

    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(digests[i].sums[0], digests[j].sums[0]);
            assert_int_not_equal(digests[i].sums[1], digests[j].sums[1]);
        }
        assert_int_not_equal(digests[i].sums[0], digests[i].sums[1]);
    }
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_every_size_lie_apart_and_are_visited_in_their_order),
        cmocka_unit_test(a_page_has_rows_of_one_shard_of_one_table),
        cmocka_unit_test(a_new_row_has_its_initial_values_and_no_state),
        cmocka_unit_test(a_row_without_memory_is_refused_and_a_known_one_is_not),
        cmocka_unit_test(rows_come_and_go_in_any_order),
        cmocka_unit_test(a_removed_row_is_not_visited_and_its_memory_is_used_again),
        cmocka_unit_test(a_digest_is_the_same_whatever_the_order_shards_versions_and_clocks),
        cmocka_unit_test(a_digest_tells_values_states_and_keys_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
