/* Rows that come and go: when a key gets its row, which row makes room, and what followers do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "region_stand.h"

#include <string.h>

#include "params/store/count.h"
#include "params/store/turnover.h"

#define MIB      ((size_t)1 << 20)
#define KEYS_MAX 200u
#define NONE     UINT64_MAX /* no source ticks */

struct scene {
    struct region_stand stand;
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    struct muster_params_turned turned[4 * KEYS_MAX];
    struct muster_params_turnover turnover; /* of the newest push */
    uint64_t sequence;
    uint32_t absent; /* rows of the newest push that there are not */
};

/* Rows begin at 0, and each push adds 1. */
static void scene_open(struct scene *scene, const struct muster_params_schema *turning)
{
    struct muster_params_schema schema = *turning;

    memset(scene, 0, sizeof(*scene));
    schema.name = "rows";
    schema.row_elements = schema.row_elements != 0 ? schema.row_elements : 1;
    schema.wire_dtype = MUSTER_F32;
    schema.optimizer = MUSTER_PARAMS_ADD;
    region_stand_open(&scene->stand, 16 * MIB, 1);
    scene->table = region_table(&scene->stand, &schema);
    scene->source = region_source(&scene->stand, 1);
    scene->turnover.turned = scene->turned;
    scene->turnover.low_clock = NONE;
}

static void push_as(struct scene *scene, uint64_t sequence, uint32_t clock, const uint64_t *keys,
                    uint32_t count)
{
    static float ones[KEYS_MAX * 2];
    static float wide[16384];
    const struct muster_params_run run = {.shard = 0, .rows = (uint16_t)count};
    const bool is_wide = scene->table->row_elements > 2;
    const struct muster_params_update update = {.table = scene->table,
                                                .source = scene->source,
                                                .sequence = sequence,
                                                .clock = clock,
                                                .run_count = 1,
                                                .runs = &run,
                                                .keys = keys,
                                                .values = is_wide ? wide : ones};

    assert_true(count <= (is_wide ? 1 : KEYS_MAX));
    for (uint32_t i = 0; i < KEYS_MAX * 2; i++)
        ones[i] = 1;
    for (uint32_t i = 0; i < 16384; i++)
        wide[i] = 1;
    muster_params_turnover_decide(&scene->stand.region, &update, &scene->turnover);
    assert_true(scene->turnover.count <= muster_params_turned_max(count, 1));
    scene->absent = muster_params_update_apply(&scene->stand.region, &update).refused;
}

static void push_keys(struct scene *scene, uint32_t clock, const uint64_t *keys, uint32_t count)
{
    push_as(scene, ++scene->sequence, clock, keys, count);
}

static void push_key(struct scene *scene, uint32_t clock, uint64_t key)
{
    push_keys(scene, clock, &key, 1);
}

static const struct muster_params_row *row_of(const struct scene *scene, uint64_t key)
{
    return muster_params_index_find(&scene->stand.region, scene->table,
                                    muster_params_hash(scene->table->seed, key), key);
}

/* --- Admission --- */

static void a_key_gets_its_row_with_the_push_that_admits_it(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.admit_after = 3});
    for (uint64_t i = 0; i < 2; i++) {
        push_key(&scene, 0, 7);
        assert_null(row_of(&scene, 7));
        assert_int_equal(scene.absent, 1);
        assert_int_equal(scene.turnover.refused, 0);
    }
    push_as(&scene, scene.sequence, 0, (const uint64_t[]){7}, 1); /* comes again: does not count */
    assert_null(row_of(&scene, 7));
    push_key(&scene, 0, 7);
    assert_non_null(row_of(&scene, 7));
    assert_true(row_of(&scene, 7)->values[0] == 1); /* of the third alone */
    push_key(&scene, 0, 8);
    assert_null(row_of(&scene, 8));
    region_stand_close(&scene.stand);
}

static void a_share_of_all_keys_gets_rows_and_the_same_ones_each_time(void **state)
{
    uint64_t admitted[2] = {0, 0};
    uint32_t counts[2] = {0, 0};

    (void)state;
    for (uint32_t run = 0; run < 2; run++) {
        struct scene scene;

        scene_open(&scene, &(struct muster_params_schema){.admit_share = 16384});
        for (uint32_t times = 0; times < 3; times++) {
            for (uint64_t key = 0; key < 1000; key++)
                push_key(&scene, 0, run == 0 ? key : 999 - key);
        }
        for (uint64_t key = 0; key < 1000; key++) {
            if (row_of(&scene, key) == NULL)
                continue;
            assert_true(row_of(&scene, key)->values[0] == 3);
            counts[run]++;
            admitted[run] = admitted[run] * 31 + key;
        }
        region_stand_close(&scene.stand);
    }
    assert_in_range(counts[0], 200, 300);
    assert_true(counts[0] == counts[1] && admitted[0] == admitted[1]);
}

/* Each push that is not admitted halves one count in turn: as many as there are counts halve all. */
static void counts_of_keys_fade_with_pushes_to_others(void **state)
{
    struct scene scene;
    uint64_t keys[KEYS_MAX];

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.admit_after = 1000});
    for (uint64_t i = 0; i < 998; i++)
        push_key(&scene, 0, 7);
    for (uint64_t key = 1000; key < 1000 + MUSTER_PARAMS_FILTER_CELLS; key += KEYS_MAX) {
        for (uint64_t i = 0; i < KEYS_MAX; i++)
            keys[i] = key + i;
        push_keys(&scene, 0, keys, KEYS_MAX);
    }
    for (uint64_t i = 0; i < 400; i++)
        push_key(&scene, 0, 7);
    assert_null(row_of(&scene, 7));
    for (uint64_t i = 0; i < 200; i++)
        push_key(&scene, 0, 7);
    assert_non_null(row_of(&scene, 7));
    region_stand_close(&scene.stand);
}

/* --- Eviction --- */

/* A few rows are looked at for each one that goes: the oldest of all may lie behind them. */
static void the_row_that_goes_is_the_oldest_of_a_sample(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 40});
    for (uint64_t key = 0; key < 40; key++)
        push_key(&scene, key == 3 ? 4 : key == 39 ? 1 : 5, key);
    push_key(&scene, 6, 100);

    assert_int_equal(scene.turnover.evicted, 1);
    assert_null(row_of(&scene, 3));
    assert_non_null(row_of(&scene, 39));
    region_stand_close(&scene.stand);
}

static void a_new_row_takes_the_place_of_the_one_not_pushed_to_for_longest(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 10});
    for (uint64_t key = 0; key < 10; key++)
        push_key(&scene, UINT32_MAX - 4 + (uint32_t)key, key); /* clocks go round at key 5 */
    push_key(&scene, 8, 0);
    push_key(&scene, 9, 100);

    assert_int_equal(scene.turnover.evicted, 1);
    assert_null(row_of(&scene, 1));
    assert_non_null(row_of(&scene, 0));
    assert_non_null(row_of(&scene, 100));
    assert_int_equal(scene.table->row_count, 10);
    push_key(&scene, 10, 1);
    assert_true(row_of(&scene, 1)->values[0] == 1); /* from its initial value */
    region_stand_close(&scene.stand);
}

static void rows_of_one_push_do_not_evict_each_other(void **state)
{
    static const uint64_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 4});
    push_keys(&scene, 1, keys, 4);
    push_keys(&scene, 2, keys, 10);

    assert_int_equal(scene.absent, 0);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(row_of(&scene, keys[i])->values[0] == (i < 4 ? 2 : 1));
    for (uint64_t key = 100; key < 106; key++)
        push_key(&scene, 3, key);
    assert_int_equal(scene.table->row_count, 4);
    region_stand_close(&scene.stand);
}

static void new_rows_evict_old_ones_when_the_memory_is_full(void **state)
{
    static const struct {
        uint64_t rows_max;
        uint32_t refused;
    } rows[] = {{UINT64_MAX, 0}, {0, 12}};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        uint32_t refused = 0, evicted = 0;
        struct scene scene;

        scene_open(&scene, &(struct muster_params_schema){.row_elements = 16384,
                                                          .ttl_clocks = 1000,
                                                          .rows_max = rows[i].rows_max});
        /* Five segments of 2 MiB; pages of 512 KiB with seven rows each. */
        for (uint64_t key = 0; key < 5 * 4 * 7 + 12; key++) {
            push_key(&scene, (uint32_t)key, key);
            refused += scene.turnover.refused;
            evicted += scene.turnover.evicted;
        }
        assert_int_equal(refused, rows[i].refused);
        assert_int_equal(evicted, 12 - rows[i].refused);
        assert_int_equal(scene.table->row_count, 5 * 4 * 7);
        region_stand_close(&scene.stand);
    }
}

/* --- Eviction by the counts of pushes --- */

static void keys_push_often(struct scene *scene, uint32_t clock, uint64_t key, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        push_key(scene, clock, key);
}

static void a_new_row_takes_the_place_of_the_one_with_the_fewest_pushes(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 10,
                                                      .evict_by = MUSTER_PARAMS_EVICT_LFU});
    for (uint64_t key = 0; key < 10; key++)
        keys_push_often(&scene, key == 6 ? 9 : 1, key, key == 6 ? 2 : 3 + (uint32_t)key);
    push_key(&scene, 10, 100);
    assert_null(row_of(&scene, 6)); /* though its clock is the newest */
    assert_int_equal(scene.turnover.evicted, 1);

    keys_push_often(&scene, 10, 100, 2); /* as often as key 0, later */
    push_key(&scene, 10, 101);
    assert_null(row_of(&scene, 0));
    assert_non_null(row_of(&scene, 100));
    assert_true(row_of(&scene, 100)->values[0] == 3);
    region_stand_close(&scene.stand);
}

/* A row that was pushed to 200 times is as rare as those of four pushes after six halvings, of 16 evictions each. */
static void counts_of_rows_fade_with_evictions(void **state)
{
    uint32_t evicted = 0;
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 16,
                                                      .evict_by = MUSTER_PARAMS_EVICT_LFU});
    keys_push_often(&scene, 5, 0, 200);
    for (uint64_t key = 1; row_of(&scene, 0) != NULL; key++) {
        push_key(&scene, 5, key);
        evicted += scene.turnover.evicted;
        keys_push_often(&scene, 5, key, 3);
        assert_true(key < 1000);
    }
    assert_in_range(evicted, 5 * 16, 8 * 16);
    assert_int_equal(scene.table->row_count, 16);
    region_stand_close(&scene.stand);
}

static void a_count_stops_at_its_limit_and_is_halved_by_age(void **state)
{
    static const struct {
        uint32_t count, age, pushes;
    } rows[] = {
        {7, 0, 7},
        {UINT16_MAX, 0, UINT16_MAX},
        {3u << 16 | 9, 3, 9},
        {3u << 16 | 9, 4, 4},
        {3u << 16 | UINT16_MAX, 18, 1},
        {3u << 16 | UINT16_MAX, 19, 0},
        {UINT32_MAX, 0, UINT16_MAX / 2}, /* ages go round */
        {5u << 16 | 9, 4, 9},            /* the shard is younger: it was restored */
    };
    struct scene scene;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_params_count_at(rows[i].count, rows[i].age), rows[i].pushes);
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 10,
                                                      .evict_by = MUSTER_PARAMS_EVICT_LFU});
    keys_push_often(&scene, 1, 7, UINT16_MAX + 5);
    assert_int_equal(muster_params_row_count(scene.table, row_of(&scene, 7)), UINT16_MAX);
    region_stand_close(&scene.stand);
}

static void counts_are_not_in_the_digest(void **state)
{
    struct muster_params_digest before, after;
    struct muster_params_row *row;
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 10,
                                                      .evict_by = MUSTER_PARAMS_EVICT_LFU});
    push_key(&scene, 1, 7);
    before = muster_params_table_digest(&scene.stand.region, scene.table);
    row = muster_params_index_find(&scene.stand.region, scene.table,
                                   muster_params_hash(scene.table->seed, 7), 7);
    muster_params_row_count_push(scene.table, row, 3);
    after = muster_params_table_digest(&scene.stand.region, scene.table);

    assert_memory_equal(&before, &after, sizeof(before));
    region_stand_close(&scene.stand);
}

/* --- Age --- */

static void a_row_expires_by_the_clock_of_the_slowest_source(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.ttl_clocks = 5});
    push_key(&scene, 10, 1);
    push_key(&scene, 11, 2);
    push_key(&scene, 40, 3); /* no source ticks */
    assert_int_equal(scene.turnover.expired, 0);

    scene.turnover.low_clock = 15;
    push_key(&scene, 40, 3);
    assert_int_equal(scene.turnover.expired, 0);
    scene.turnover.low_clock = 16;
    push_key(&scene, 40, 3);
    assert_int_equal(scene.turnover.expired, 1);
    assert_null(row_of(&scene, 1));
    assert_non_null(row_of(&scene, 2));
    assert_non_null(row_of(&scene, 3)); /* ahead of the slowest */

    scene.turnover.low_clock = 100;
    push_key(&scene, 100, 2); /* the push that would remove it goes to it */
    assert_true(row_of(&scene, 2)->values[0] == 2);
    region_stand_close(&scene.stand);
}

/* --- Followers --- */

#define PUSHES 60u

struct pushed {
    uint64_t key;
    struct muster_params_turned turned[6]; /* of one row */
    uint32_t count;
};

static void push_follow(struct scene *follower, uint64_t sequence, const struct pushed *pushed)
{
    static const float one = 1;

    for (uint32_t i = 0; i < pushed->count; i++)
        assert_true(muster_params_turnover_follow(&follower->stand.region, follower->table,
                                                  follower->source, sequence, &pushed->turned[i]));
    region_push(&follower->stand, follower->table, follower->source, sequence, &pushed->key, &one,
                1, NULL);
}

static void push_count(struct scene *copy, uint64_t sequence, uint64_t key)
{
    const struct muster_params_run run = {.shard = 0, .rows = 1};
    const struct muster_params_update update = {.table = copy->table,
                                                .source = copy->source,
                                                .sequence = sequence,
                                                .run_count = 1,
                                                .runs = &run,
                                                .keys = &key};

    muster_params_turnover_count(&copy->stand.region, &update);
}

/* From time to time all pushes come again, as over a new link. */
static void check_followers(const struct muster_params_schema *schema)
{
    static struct pushed pushed[PUSHES];
    struct scene primary, follower;

    scene_open(&primary, schema);
    scene_open(&follower, schema);
    for (uint64_t i = 0; i < PUSHES; i++) {
        pushed[i].key = i * i % 23;
        push_key(&primary, (uint32_t)i, pushed[i].key);
        pushed[i].count = primary.turnover.count;
        memcpy(pushed[i].turned, primary.turned, sizeof(pushed[i].turned));
        for (uint64_t j = i % 10 == 9 ? 0 : i; j <= i; j++)
            push_follow(&follower, j + 1, &pushed[j]);

        for (uint64_t key = 0; key < 23; key++) {
            const struct muster_params_row *have = row_of(&follower, key);
            const struct muster_params_row *want = row_of(&primary, key);

            assert_true((have == NULL) == (want == NULL));
            assert_true(want == NULL ||
                        memcmp(have->values, want->values, schema->evict_by == MUSTER_PARAMS_EVICT_LFU
                                                               ? 2 * sizeof(float)
                                                               : sizeof(float)) == 0);
        }
    }
    assert_int_equal(muster_params_shard_at(&primary.stand.region, primary.table, 0)->age,
                     muster_params_shard_at(&follower.stand.region, follower.table, 0)->age);
    region_stand_close(&follower.stand);
    region_stand_close(&primary.stand);
}

/* The copy counts what its primary has counted, and admits the key with the push with which the primary would have. */
static void a_copy_that_takes_over_goes_on_counting(void **state)
{
    const struct pushed pushed = {.key = 7};
    struct scene copy;

    (void)state;
    scene_open(&copy, &(struct muster_params_schema){.admit_after = 3});
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        push_count(&copy, sequence, pushed.key);
        push_follow(&copy, sequence, &pushed);
        push_count(&copy, sequence, pushed.key); /* comes again: does not count */
    }
    copy.sequence = 2;
    push_key(&copy, 0, 8);
    assert_null(row_of(&copy, 8));
    push_key(&copy, 0, 7);
    assert_non_null(row_of(&copy, 7));
    region_stand_close(&copy.stand);
}

static void followers_do_the_same_and_what_comes_again_does_nothing(void **state)
{
    (void)state;
    check_followers(&(struct muster_params_schema){.rows_max = 5});
    check_followers(
        &(struct muster_params_schema){.rows_max = 5, .evict_by = MUSTER_PARAMS_EVICT_LFU});
}

/* --- A primary that dies before it has told its copies --- */

static void decide_key(struct scene *scene, uint64_t sequence, uint32_t clock, uint64_t key)
{
    const struct muster_params_run run = {.shard = 0, .rows = 1};
    const struct muster_params_update update = {.table = scene->table,
                                                .source = scene->source,
                                                .sequence = sequence,
                                                .clock = clock,
                                                .run_count = 1,
                                                .runs = &run,
                                                .keys = &key};

    muster_params_turnover_decide(&scene->stand.region, &update, &scene->turnover);
}

static void a_row_that_copies_may_not_know_is_told_again(void **state)
{
    struct scene scene;

    (void)state;
    scene_open(&scene, &(struct muster_params_schema){.rows_max = 10});
    for (uint32_t i = 0; i < 2; i++) { /* the second time by the next process */
        decide_key(&scene, 1, 0, 7);
        assert_int_equal(scene.turnover.count, 1);
        assert_int_equal(scene.turned[0].kind, MUSTER_PARAMS_TURNED_MADE);
        assert_true(scene.turned[0].key == 7);
    }
    push_key(&scene, 0, 7);
    push_key(&scene, 0, 7);
    assert_int_equal(scene.turnover.count, 0);
    assert_true(row_of(&scene, 7)->values[0] == 2);
    region_stand_close(&scene.stand);
}

static void a_copy_that_has_not_heard_of_a_removal_differs(void **state)
{
    static const struct pushed made[] = {
        {.key = 1, .turned = {{.key = 1, .kind = MUSTER_PARAMS_TURNED_MADE}}, .count = 1}};
    struct scene primary, copy;

    (void)state;
    scene_open(&primary, &(struct muster_params_schema){.rows_max = 1});
    scene_open(&copy, &(struct muster_params_schema){.rows_max = 1});
    push_key(&primary, 0, 1);
    push_follow(&copy, 1, &made[0]);
    assert_true(muster_params_positions_digest(&primary.stand.region, 0) ==
                muster_params_positions_digest(&copy.stand.region, 0));

    decide_key(&primary, 2, 1, 2); /* takes the place of 1 */
    assert_true(muster_params_positions_digest(&primary.stand.region, 0) !=
                muster_params_positions_digest(&copy.stand.region, 0));
    for (uint32_t i = 0; i < primary.turnover.count; i++)
        assert_true(muster_params_turnover_follow(&copy.stand.region, copy.table, copy.source, 2,
                                                  &primary.turned[i]));
    assert_true(muster_params_positions_digest(&primary.stand.region, 0) ==
                muster_params_positions_digest(&copy.stand.region, 0));
    region_stand_close(&copy.stand);
    region_stand_close(&primary.stand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_gets_its_row_with_the_push_that_admits_it),
        cmocka_unit_test(a_share_of_all_keys_gets_rows_and_the_same_ones_each_time),
        cmocka_unit_test(counts_of_keys_fade_with_pushes_to_others),
        cmocka_unit_test(the_row_that_goes_is_the_oldest_of_a_sample),
        cmocka_unit_test(a_new_row_takes_the_place_of_the_one_not_pushed_to_for_longest),
        cmocka_unit_test(rows_of_one_push_do_not_evict_each_other),
        cmocka_unit_test(new_rows_evict_old_ones_when_the_memory_is_full),
        cmocka_unit_test(a_new_row_takes_the_place_of_the_one_with_the_fewest_pushes),
        cmocka_unit_test(counts_of_rows_fade_with_evictions),
        cmocka_unit_test(a_count_stops_at_its_limit_and_is_halved_by_age),
        cmocka_unit_test(counts_are_not_in_the_digest),
        cmocka_unit_test(a_row_expires_by_the_clock_of_the_slowest_source),
        cmocka_unit_test(a_copy_that_takes_over_goes_on_counting),
        cmocka_unit_test(a_row_that_copies_may_not_know_is_told_again),
        cmocka_unit_test(a_copy_that_has_not_heard_of_a_removal_differs),
        cmocka_unit_test(followers_do_the_same_and_what_comes_again_does_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
