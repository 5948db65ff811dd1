/* A process is killed after each single instruction of its work on a region, and its successor
 * after each instruction of the recovery: nothing is lost, nothing is applied twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "kill_stand.h"

#include <string.h>

#include "params/store/turnover.h"

#define REGION_BYTES MUSTER_PARAMS_REGION_BYTES_MIN
#define SHARDS       2u

/* --- Pushes --- */

/* Two sources, rows that are new, known, and pushed to twice in one frame. */
static void push_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("items", 5, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_store_table *table = region_table(stand, &schema);
    static const uint64_t keys[] = {11, 12, 13, 11};
    float values[4 * 5];

    for (uint32_t i = 0; i < 4 * 5; i++)
        values[i] = (float)i + 1;
    for (uint8_t number = 0; number < 2; number++) {
        struct muster_params_source *source = region_source(stand, number);

        region_push(stand, table, source, 1, keys, values, 4, NULL);
        region_push(stand, table, source, 2, keys + 1, values, 2, NULL);
    }
    /* Both sources are at the same position now, and push to different rows in turn. */
    for (uint64_t i = 0; i < 4; i++)
        region_push(stand, table, region_source(stand, i % 2), 3 + i / 2, keys + i % 2, values, 1,
                    NULL);
}

static void a_push_is_whole_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    counts = kill_everywhere(&stand, push_work);
    assert_true(counts.states > 300);
    assert_true(counts.recoveries > 0);
    assert_true(counts.recovery_states > counts.recoveries);
    region_stand_close(&stand);
}

/* --- Tables, sources, pages --- */

static void tables_work(struct region_stand *stand)
{
    struct muster_params_schema items = region_schema("items", 5, MUSTER_PARAMS_ADAM);
    struct muster_params_schema counters = region_schema("counters", 1, MUSTER_PARAMS_ADD);

    assert_int_equal(muster_params_table_number(&stand->region, region_table(stand, &items)), 0);
    assert_int_equal(muster_params_table_number(&stand->region, region_table(stand, &counters)), 1);
}

static void a_table_is_made_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    counts = kill_everywhere(&stand, tables_work);
    assert_true(counts.states > 20); /* clang merges stores: 27 */
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

#define MANY_SHARDS 4096u /* 63 sources lie in a segment */

static void sources_work(struct region_stand *stand)
{
    (void)region_source(stand, 1);
    assert_int_equal(region_source(stand, 2)->positions[MANY_SHARDS - 1], 0);
}

/* The second source needs another segment. */
static void a_source_gets_its_slot_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, MANY_SHARDS);
    for (uint8_t number = 100; number < 162; number++)
        (void)region_source(&stand, number);
    assert_int_equal(stand.region.head->source_segment_count, 1);
    counts = kill_everywhere(&stand, sources_work);
    assert_int_equal(stand.region.head->source_segment_count, 2);
    assert_true(counts.states > 20);
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

/* A source goes, and the next one gets its slot. */
static void forget_work(struct region_stand *stand)
{
    const struct muster_incarnation gone = {{1, 1}};
    const uint8_t shards[] = {0xff};
    uint64_t slot;

    if (muster_params_source_find(&stand->region, &gone, &slot) != NULL) {
        muster_params_source_forget(&stand->region, slot, shards);
        muster_params_source_free(&stand->region, slot);
    }
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        assert_int_equal(region_source(stand, 2)->positions[shard], 0);
}

/* The newest change is the first push of the source that goes: recovery must not take its position, which is 0
 * again, for that of a push that was under way. */
static void a_source_goes_wherever_the_process_is_killed(void **state)
{
    struct muster_params_schema schema = region_schema("items", 4, MUSTER_PARAMS_ADD);
    static const uint64_t keys[] = {5, 6};
    static const float values[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct muster_incarnation stays = {{1, 3}};
    struct muster_params_store_table *table;
    struct region_stand stand;
    struct kill_counts counts;
    uint64_t slot;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    table = region_table(&stand, &schema);
    region_push(&stand, table, region_source(&stand, 3), 1, keys, values, 2, NULL);
    region_push(&stand, table, region_source(&stand, 1), 1, keys, values, 1, NULL);
    counts = kill_everywhere(&stand, forget_work);
    assert_true(counts.states > 20);
    assert_true(counts.recoveries > 0);
    assert_int_equal(stand.region.head->source_count, 2);
    assert_int_equal(muster_params_source_live(&stand.region), 2);
    assert_non_null(muster_params_source_find(&stand.region, &stays, &slot));
    region_stand_close(&stand);
}

#define WIDE 1020u /* four rows in a page */

/* The n-th keys of a shard. */
static void wide_push(struct region_stand *stand, uint32_t shard, uint32_t from, uint32_t count)
{
    struct muster_params_schema schema = {.name = "wide",
                                          .row_elements = WIDE,
                                          .wire_dtype = MUSTER_F32,
                                          .optimizer = MUSTER_PARAMS_ADD};
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 1);
    static float values[WIDE] = {1, 2, 3};
    uint32_t found = 0;

    for (uint64_t key = 1; found < from + count; key++) {
        if (muster_params_shard_of(muster_params_hash(table->seed, key), SHARDS) != shard)
            continue;
        if (found >= from)
            region_push(stand, table, source, 1 + found, &key, values, 1, NULL);
        found++;
    }
}

static void pages_work(struct region_stand *stand)
{
    wide_push(stand, 0, 4, 1);
    wide_push(stand, 1, 0, 1);
}

/* The page of shard 0 is full: its next row takes the last page of the segment. The first row of
 * shard 1 needs a segment. */
static void a_shard_gets_pages_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;
    uint32_t segment;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    wide_push(&stand, 0, 0, 4);
    segment = stand.region.head->tables[0].row_segment;
    assert_int_equal(stand.region.head->segments[segment].page_count, 1);
    stand.region.head->segments[segment].page_count = MUSTER_PARAMS_SEGMENT_PAGES - 1;
    counts = kill_everywhere(&stand, pages_work);
    assert_true(counts.states > 60);
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

/* --- Indexes --- */

#define FULL ((1u << 16) - 2) /* rows that the first index takes before a larger one is begun */

static void fill_table(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("counters", 1, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 9);
    uint64_t keys[64];
    float ones[64];

    for (uint32_t i = 0; i < 64; i++)
        ones[i] = 1;
    for (uint64_t from = 0; from < FULL; from += 64) {
        uint32_t count = FULL - from < 64 ? (uint32_t)(FULL - from) : 64;

        for (uint32_t i = 0; i < count; i++)
            keys[i] = from + i;
        region_push(stand, table, source, from / 64 + 1, keys, ones, count, NULL);
    }
}

/* Begins a larger index, and moves some slots to it. */
static void grow_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("counters", 1, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 1);
    static const uint64_t keys[] = {1000001, 1000002, 1000003, 5};
    static const float values[] = {1, 2, 3, 4};

    region_push(stand, table, source, 1, keys, values, 4, NULL);
}

static void an_index_grows_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    fill_table(&stand);
    counts = kill_everywhere(&stand, grow_work);
    assert_true(counts.states > 80);
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

/* Pushes to rows that are known move the last slots, and end the growth. */
static void grown_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("counters", 1, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 1);
    static const uint64_t keys[] = {1, 2, 3, 4};
    static const float values[] = {1, 2, 3, 4};

    for (uint64_t i = 0; i < 2; i++)
        region_push(stand, table, source, i + 1, keys, values, 4, NULL);
    assert_int_equal(table->index_state & MUSTER_PARAMS_INDEX_GROWING, 0);
}

/* A larger index of `bits`, in segments behind all others. */
static void index_claim(struct region_stand *stand, struct muster_params_store_table *table,
                        uint32_t bits, uint32_t run)
{
    const struct muster_params_intent intent = {
        .kind = MUSTER_PARAMS_INTENT_GROW,
        .table = muster_params_table_number(&stand->region, table),
        .segment = muster_params_segment_find(&stand->region, run),
        .run = run,
        .count = bits};

    muster_params_intent_begin(&stand->region, &intent);
    muster_params_grow_complete(&stand->region, &stand->region.head->intent);
    muster_params_intent_end(&stand->region);
}

static void index_grow(struct region_stand *stand, struct muster_params_store_table *table,
                       uint32_t bits, uint32_t run)
{
    index_claim(stand, table, bits, run);
    muster_params_index_prepare(&stand->region, table, UINT32_MAX);
}

/* The index of 2^18 slots has a segment of its own, which is given back. */
static void an_index_is_replaced_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct kill_counts counts;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    grow_work(&stand);
    table = &stand.region.head->tables[0];
    index_grow(&stand, table, 18, 1);
    muster_params_index_step(&stand.region, table, UINT32_MAX);
    index_grow(&stand, table, 19, 2);
    muster_params_index_step(&stand.region, table, (1u << 18) - 20);
    assert_int_equal(table->index_state & MUSTER_PARAMS_INDEX_GROWING, MUSTER_PARAMS_INDEX_GROWING);
    counts = kill_everywhere(&stand, grown_work);
    assert_true(counts.states > 80);
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

/* The last segment of a larger index is prepared, and rows move there. */
static void prepare_work(struct region_stand *stand)
{
    struct muster_params_store_table *table = &stand->region.head->tables[0];

    muster_params_index_prepare(&stand->region, table, 1);
    muster_params_index_prepare(&stand->region, table, 1);
    grow_work(stand);
    muster_params_index_step(&stand->region, table, 64);
}

static void an_index_is_prepared_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;

    (void)state;
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    grow_work(&stand);
    index_claim(&stand, &stand.region.head->tables[0], 19, 2);
    counts = kill_everywhere(&stand, prepare_work);
    assert_true(counts.states > 60);
    assert_int_equal(stand.region.head->tables[0].index_state, MUSTER_PARAMS_INDEX_GROWING);
    region_stand_close(&stand);
}

/* --- Removals --- */

#define CROWD 6u

/* Keys whose slots lie side by side, so that a removal moves others: belonging there, before and
 * behind. Found beforehand, since the search takes many instructions. */
static struct {
    uint64_t keys[CROWD];
    uint64_t others[2]; /* of their shards, elsewhere in the index */
} crowd;

static void crowd_find(const char *table_name)
{
    static const uint64_t homes[CROWD] = {7000, 7000, 7001, 7000, 7002, 7005};
    uint64_t seed = muster_params_hash_seed(table_name), mask = (1u << 17) - 1, key = 1;

    for (uint32_t i = 0; i < CROWD; i++, key++) {
        while ((muster_params_hash(seed, key) & mask) != homes[i])
            key++;
        crowd.keys[i] = key;
    }
    for (uint32_t shard = 0; shard < SHARDS; shard++, key++) {
        while (muster_params_shard_of(muster_params_hash(seed, key), SHARDS) != shard)
            key++;
        crowd.others[shard] = key;
    }
}

/* Rows are removed from the midst and the end of the crowd, and their memory gets other keys. */
static void remove_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("items", 5, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 1);
    float values[CROWD * 5];

    for (uint32_t i = 0; i < CROWD * 5; i++)
        values[i] = (float)i + 1;
    region_push(stand, table, source, 1, crowd.keys, values, CROWD, NULL);
    (void)muster_params_row_remove(&stand->region, table, crowd.keys[0]);
    (void)muster_params_row_remove(&stand->region, table, crowd.keys[2]);
    (void)muster_params_row_remove(&stand->region, table, crowd.keys[5]);
    region_push(stand, table, source, 2, crowd.others, values, 2, NULL);
}

static void a_row_is_removed_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct kill_counts counts;

    (void)state;
    crowd_find("items");
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    counts = kill_everywhere(&stand, remove_work);
    assert_true(counts.states > 200);
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

/* Pushes to a table that keeps four rows; each has a clock of its own, so that it is clear which goes. */
static void evict_some(struct region_stand *stand, struct muster_params_schema *schema,
                       uint32_t pushes)
{
    struct muster_params_source *source = region_source(stand, 1);
    struct muster_params_turned turned[3 * 2 + 3];
    static const float values[2 * 5] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};

    for (uint32_t i = 0; i < pushes; i++) {
        const uint64_t keys[] = {2 * i, 2 * i + 1};
        const struct muster_params_run run = {.shard = 0, .rows = 2};
        struct muster_params_turnover turnover = {.low_clock = i < 4 ? UINT64_MAX : i,
                                                  .turned = turned};
        const struct muster_params_update update = {.table = region_table(stand, schema),
                                                    .source = source,
                                                    .sequence = 1 + i,
                                                    .clock = i,
                                                    .run_count = 1,
                                                    .runs = &run,
                                                    .keys = keys,
                                                    .values = values};

        muster_params_turnover_decide(&stand->region, &update, &turnover);
        (void)muster_params_update_apply(&stand->region, &update);
    }
}

static void evict_old_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("items", 5, MUSTER_PARAMS_MOMENTUM);

    schema.rows_max = 4;
    schema.ttl_clocks = 1;
    evict_some(stand, &schema, 6);
}

/* The sixteenth row that goes halves the counts. */
static void evict_rare_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("items", 5, MUSTER_PARAMS_MOMENTUM);
    struct muster_params_shard *shard;

    schema.rows_max = 4;
    schema.evict_by = MUSTER_PARAMS_EVICT_LFU;
    shard = muster_params_shard_at(&stand->region, region_table(stand, &schema), 0);
    if (shard->age == 0 && shard->evicted < 14)
        shard->evicted = 14;
    evict_some(stand, &schema, 4);
}

static void rows_come_and_go_wherever_the_process_is_killed(void **state)
{
    static const struct {
        kill_work_fn *work;
        uint32_t age; /* of the shard */
    } rows[] = {{evict_old_work, 0}, {evict_rare_work, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct region_stand stand;
        struct kill_counts counts;

        region_stand_open(&stand, REGION_BYTES, 1);
        counts = kill_everywhere(&stand, rows[i].work);
        assert_int_equal(stand.region.head->tables[0].row_count, 4);
        assert_int_equal(muster_params_shard_at(&stand.region, &stand.region.head->tables[0], 0)->age,
                         rows[i].age);
        assert_true(counts.states > 400);
        assert_true(counts.recoveries > 0);
        region_stand_close(&stand);
    }
}

/* The smaller index has all rows that are removed, the larger one the first of them. */
static void remove_growing_work(struct region_stand *stand)
{
    struct muster_params_schema schema = region_schema("counters", 1, MUSTER_PARAMS_ADD);
    struct muster_params_store_table *table = region_table(stand, &schema);
    struct muster_params_source *source = region_source(stand, 1);
    static const float values[] = {1, 2};

    for (uint32_t i = 0; i < CROWD; i += 2)
        (void)muster_params_row_remove(&stand->region, table, crowd.keys[i]);
    region_push(stand, table, source, 3, crowd.others, values, 2, NULL);
}

static void rows_are_removed_amid_growth_wherever_the_process_is_killed(void **state)
{
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    struct kill_counts counts;
    float ones[CROWD] = {1, 1, 1, 1, 1, 1};

    (void)state;
    crowd_find("counters");
    region_stand_open(&stand, REGION_BYTES, SHARDS);
    grow_work(&stand);
    table = &stand.region.head->tables[0];
    source = region_source(&stand, 1);
    region_push(&stand, table, source, 2, crowd.keys, ones, CROWD, NULL);
    index_grow(&stand, table, 18, 1);
    muster_params_index_step(&stand.region, table, 7002);
    assert_int_equal(table->index[1].moved, 7002);
    counts = kill_everywhere(&stand, remove_growing_work);
    assert_true(counts.states > 60);
    assert_true(counts.recoveries > 0);
    region_stand_close(&stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_is_whole_wherever_the_process_is_killed),
        cmocka_unit_test(a_table_is_made_wherever_the_process_is_killed),
        cmocka_unit_test(a_source_gets_its_slot_wherever_the_process_is_killed),
        cmocka_unit_test(a_source_goes_wherever_the_process_is_killed),
        cmocka_unit_test(a_shard_gets_pages_wherever_the_process_is_killed),
        cmocka_unit_test(an_index_grows_wherever_the_process_is_killed),
        cmocka_unit_test(an_index_is_prepared_wherever_the_process_is_killed),
        cmocka_unit_test(an_index_is_replaced_wherever_the_process_is_killed),
        cmocka_unit_test(a_row_is_removed_wherever_the_process_is_killed),
        cmocka_unit_test(rows_come_and_go_wherever_the_process_is_killed),
        cmocka_unit_test(rows_are_removed_amid_growth_wherever_the_process_is_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
