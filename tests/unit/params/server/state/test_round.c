/* Tables by round: what sources push is applied once, when all that count have completed the round. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_sources.h"

#include <math.h>
#include <string.h>

#include "params/server/state/round_internal.h"
#include "params/store/row.h"

#define SHARDS 8u
#define ROWS   40u
#define ROUNDS 6u

static const struct muster_params_schema sums = {.name = "sums",
                                                 .row_elements = 2,
                                                 .wire_dtype = MUSTER_F32,
                                                 .optimizer = MUSTER_PARAMS_ADD,
                                                 .is_by_round = true};

static void scene_open(struct params_sources *scene, uint32_t sources)
{
    params_sources_open(scene, SHARDS, sources, &sums);
}

/* --- One row --- */

static enum muster_rc row_push(struct params_sources *scene, uint32_t source, uint64_t key,
                               float value, struct muster_error *ret_error)
{
    float values[2] = {value, 1};

    return params_stand_push(&scene->stand, scene->tables[source], &key, values, 1, ret_error);
}

static void value_push(struct params_sources *scene, uint32_t source, uint64_t key, float value)
{
    struct muster_error error;

    if (row_push(scene, source, key, value, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
}

static float value_pull(struct params_sources *scene, uint32_t source, uint64_t key, uint64_t clock)
{
    float values[2];
    struct muster_error error;

    if (params_stand_pull_after(&scene->stand, scene->tables[source], &key, values, 1, clock,
                                params_stand_deadline(&scene->stand), &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return values[0];
}

/* --- Cases --- */

static void what_is_pushed_shows_once_all_have_completed_the_round(void **state)
{
    struct params_sources scene;

    (void)state;
    scene_open(&scene, 2);
    value_push(&scene, 0, 7, 1);
    value_push(&scene, 0, 7, 2); /* the pushes of a source to a row add up */
    params_sources_tick(&scene, 0, 1, 1);
    value_push(&scene, 1, 7, 10);
    assert_true(value_pull(&scene, 0, 7, 0) == 0);

    params_sources_tick(&scene, 1, 1, 1);

    assert_true(value_pull(&scene, 0, 7, 1) == 13);
    assert_true(value_pull(&scene, 1, 7, 1) == 13);
    params_sources_close(&scene);
}

static void what_is_kept_of_one_round_does_not_count_in_the_next(void **state)
{
    struct params_sources scene;

    (void)state;
    scene_open(&scene, 1);
    value_push(&scene, 0, 7, 1);
    params_sources_tick(&scene, 0, 1, 1);
    params_sources_tick(&scene, 0, 2, 1);
    value_push(&scene, 0, 7, 5);
    params_sources_tick(&scene, 0, 3, 1);

    assert_true(value_pull(&scene, 0, 7, 3) == 6);
    assert_int_equal(muster_params_table_round(scene.tables[0]), 3);
    params_sources_close(&scene);
}

static void a_round_is_a_weighted_sum_or_a_mean(void **state)
{
    static const struct {
        bool is_mean;
        float sum;
    } rows[] = {{false, 2 * 3.0f + 4 * 0.5f}, {true, (2 * 3.0f + 4 * 0.5f) / 3.5f}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_params_schema schema = sums;
        struct params_sources scene;

        schema.is_round_mean = rows[i].is_mean;
        params_sources_open(&scene, SHARDS, 2, &schema);
        value_push(&scene, 0, 7, 2);
        value_push(&scene, 1, 7, 4);
        params_sources_tick(&scene, 0, 1, 3);
        params_sources_tick(&scene, 1, 1, 0.5);
        assert_true(value_pull(&scene, 0, 7, 1) == rows[i].sum);
        params_sources_close(&scene);
    }
}

/* A pull of a round that is not closed ends at its deadline and says why. The first deadline that
 * leaves the server the time to say it decides: a busy machine needs a long one. */
static void pull_late(struct params_sources *scene, uint64_t within_ns, const char *why)
{
    struct muster_loop *loop = scene->stand.test.env.loop;
    struct muster_error error;
    uint64_t key = 7;
    float values[2];

    do {
        assert_int_equal(params_stand_pull_after(&scene->stand, scene->tables[0], &key, values, 1,
                                                 1, muster_loop_after_ns(loop, within_ns), &error),
                         MUSTER_DEADLINE_EXCEEDED);
        within_ns *= 4;
    } while (strstr(error.text, why) == NULL && within_ns < 60 * MUSTER_NS_PER_S);
    if (strstr(error.text, why) == NULL)
        fail_msg("%s", error.text);
}

static void a_deadline_names_the_round_and_who_has_not_completed_it(void **state)
{
    struct params_sources scene;

    (void)state;
    scene_open(&scene, 2);
    params_sources_tick(&scene, 0, 1, 1);

    pull_late(&scene, 1500 * MUSTER_NS_PER_MS,
              "round 0 of table sums is not closed: 1 of 2 sources have completed it; source ");
    params_sources_close(&scene);
}

/* Tables take all memory that is left. */
static void memory_fill(struct params_sources *scene)
{
    struct muster_params_store_table *table;
    struct muster_error error;
    char name[MUSTER_PARAMS_NAME_BYTES];
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; rc == MUSTER_OK; i++) {
        const struct muster_params_schema schema = {.name = name,
                                                    .row_elements = 2,
                                                    .wire_dtype = MUSTER_F32,
                                                    .optimizer = MUSTER_PARAMS_ADD};

        snprintf(name, sizeof(name), "filler %u", i);
        rc = muster_params_table_open(scene->stand.server->region, &schema, &table, &error);
    }
    assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
}

static void a_deadline_says_that_there_is_no_memory_to_close_the_round(void **state)
{
    struct params_sources scene;

    (void)state;
    scene_open(&scene, 1);
    value_push(&scene, 0, 7, 1);
    memory_fill(&scene);
    params_sources_tick(&scene, 0, 1, 1);

    pull_late(&scene, 200 * MUSTER_NS_PER_MS,
              "round 0 of table sums is not closed: all sources have completed it, and the server "
              "has no memory to close it");
    params_sources_close(&scene);
}

static void nobody_waits_for_a_source_that_is_done(void **state)
{
    struct params_sources scene;

    (void)state;
    scene_open(&scene, 2);
    value_push(&scene, 0, 7, 1);
    value_push(&scene, 1, 7, 2);
    params_sources_tick(&scene, 1, 1, 1);
    params_sources_tick(&scene, 1, MUSTER_PARAMS_CLOCK_DONE,
                        1); /* what it has completed counts all the same */
    params_sources_tick(&scene, 0, 1, 1);
    assert_true(value_pull(&scene, 0, 7, 1) == 3);
    value_push(&scene, 0, 7, 1);
    params_sources_tick(&scene, 0, 2, 1);

    assert_true(value_pull(&scene, 0, 7, 2) == 4);
    params_sources_close(&scene);
}

static void a_late_source_is_refused_and_goes_on_at_the_open_round(void **state)
{
    struct muster_params_schema schema = sums;
    struct params_sources scene;
    struct muster_error error;

    (void)state;
    schema.round_quorum = 2;
    params_sources_open(&scene, SHARDS, 3, &schema);
    for (uint32_t i = 0; i < 3; i++)
        params_sources_tick(&scene, i, 1, 1); /* all have begun */
    value_push(&scene, 2, 7, 100);
    for (uint32_t i = 0; i < 2; i++) {
        value_push(&scene, i, 7, 1);
        params_sources_tick(&scene, i, 2, 1);
    }
    assert_true(value_pull(&scene, 2, 7, 2) == 2); /* what it has pushed has not counted */

    assert_int_equal(row_push(&scene, 2, 7, 1, &error), MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(error.text, "round 1 of table sums is closed; 2 is open"));
    params_sources_tick(&scene, 2, muster_params_table_round(scene.tables[2]), 1);
    for (uint32_t i = 0; i < 3; i++)
        value_push(&scene, i, 7, 1);
    for (uint32_t i = 0; i < 3; i++)
        params_sources_tick(&scene, i, 3, 1);
    assert_true(value_pull(&scene, 2, 7, 3) >= 4); /* two of them or three, as they came */
    params_sources_close(&scene);
}

static void a_grace_waits_for_those_that_come_behind_the_quorum(void **state)
{
    struct muster_params_schema schema = sums;
    struct params_sources scene;

    (void)state;
    schema.round_quorum = 1;
    schema.round_grace_ns = 30 * MUSTER_NS_PER_S;
    params_sources_open(&scene, SHARDS, 2, &schema);
    value_push(&scene, 0, 7, 1);
    params_sources_tick(&scene, 0, 1, 1);
    value_push(&scene, 1, 7, 2);
    params_sources_tick(&scene, 1, 1, 1); /* nobody is waited for any more */

    assert_true(value_pull(&scene, 0, 7, 1) == 3);
    params_sources_close(&scene);
}

/* --- Rounds of many rows --- */

static struct muster_params_digest table_digest(const struct params_sources *scene)
{
    const struct muster_params_region *region = scene->stand.server->region;

    return muster_params_table_digest(region, muster_params_table_find(region, "sums"));
}

#define MANY 30000u
#define SEEN 16u

struct reading {
    struct muster_params_op op;
    uint64_t keys[SEEN];
    float values[SEEN][2];
    bool is_under_way;
    uint32_t count;
};

static void on_read(struct muster_params_op *op, enum muster_rc rc)
{
    struct reading *reading = op->data;

    if (rc != MUSTER_OK)
        fail_msg("%s", op->error.text);
    for (uint32_t i = 1; i < SEEN; i++)
        assert_true(fabsf(reading->values[i][0] - reading->values[0][0]) < 0.5f);
    reading->is_under_way = false;
    reading->count++;
}

/* Rows that the round changes first, last, and between. */
static void rows_read(struct params_sources *scene, struct reading *reading)
{
    const struct muster_params_rows rows = {reading->keys, reading->values, SEEN};

    if (reading->is_under_way)
        return;
    reading->op.data = reading;
    for (uint32_t i = 0; i < SEEN; i++)
        reading->keys[i] = i * (MANY / SEEN);
    assert_int_equal(muster_params_pull_start(&reading->op, scene->tables[0], &rows,
                                              params_stand_deadline(&scene->stand), on_read),
                     MUSTER_OK);
    reading->is_under_way = true;
}

static void many_push(struct params_sources *scene, uint32_t source)
{
    static uint64_t keys[MANY];
    static float values[MANY][2];
    struct muster_error error;

    for (uint32_t i = 0; i < MANY; i++) {
        keys[i] = i;
        values[i][0] = values[i][1] = (float)(1 + source);
    }
    if (params_stand_push(&scene->stand, scene->tables[source], keys, values, MANY, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

static void on_ticked(struct muster_params_op *op, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    *(bool *)op->data = true;
}

static bool round_is_closing(const struct params_sources *scene)
{
    const struct muster_params_rounds *rounds =
        MUSTER_CONTAINER_OF(scene->stand.server->rounds.next, struct muster_params_rounds, node);

    return rounds->closing != NULL;
}

/* Rows are read meanwhile. Returns the turns in which the round was being closed; those after die_after are not
 * waited for. */
static uint32_t round_close(struct params_sources *scene, struct reading *reading,
                            uint32_t die_after)
{
    struct muster_params_op tick;
    bool is_ticked = false;
    uint32_t turns = 0;

    for (uint32_t source = 0; source < 2; source++)
        many_push(scene, source);
    params_sources_tick(scene, 0, 1, 1);
    tick.data = &is_ticked;
    assert_int_equal(muster_params_tick_start(&tick, scene->sources[1], 1,
                                              params_stand_deadline(&scene->stand), on_ticked),
                     MUSTER_OK);
    while (turns < die_after && (!is_ticked || turns == 0 || round_is_closing(scene))) {
        rows_read(scene, reading);
        muster_loop_turn(scene->stand.test.env.loop, UINT64_MAX);
        turns += round_is_closing(scene);
    }
    if (turns == die_after) {
        params_stand_kill(&scene->stand);
        params_stand_serve(&scene->stand);
    }
    while (!is_ticked || reading->is_under_way)
        muster_loop_turn(scene->stand.test.env.loop, UINT64_MAX);
    return turns;
}

static void a_large_round_is_closed_by_and_by_and_nobody_reads_a_part_of_it(void **state)
{
    struct reading reading = {.count = 0};
    struct params_sources scene;
    uint64_t key = MANY - 1;

    (void)state;
    scene_open(&scene, 2);
    assert_true(round_close(&scene, &reading, UINT32_MAX) >= 3);
    assert_true(reading.count > 0);

    value_push(&scene, 0, key, 100);
    params_sources_tick(&scene, 0, 2, 1);
    params_sources_tick(&scene, 1, 2, 1);
    assert_true(value_pull(&scene, 0, key, 2) == 103);
    assert_true(value_pull(&scene, 0, 0, 2) == 3);
    params_sources_close(&scene);
}

static void a_death_amid_the_end_of_a_round_changes_no_byte(void **state)
{
    struct muster_params_digest expected = {{0, 0}};

    (void)state;
    for (uint32_t die_after = 4; die_after > 0; die_after--) {
        struct reading reading = {.count = 0};
        struct muster_params_digest digest;
        struct params_sources scene;

        scene_open(&scene, 2);
        assert_true(round_close(&scene, &reading, die_after == 4 ? UINT32_MAX : die_after) >=
                    (die_after == 4 ? 4 : die_after));
        assert_true(value_pull(&scene, 0, MANY - 1, 1) == 3);
        digest = table_digest(&scene);
        if (die_after == 4)
            expected = digest;
        assert_memory_equal(&digest, &expected, sizeof(digest));
        params_sources_close(&scene);
    }
}

/* --- The same bytes --- */

static uint64_t number_mix(uint64_t value)
{
    value ^= value >> 31;
    value *= 0x9e3779b97f4a7c15u;
    return value ^ value >> 29;
}

static void part_push(struct params_sources *scene, uint32_t source, uint64_t round)
{
    uint64_t keys[ROWS];
    float values[ROWS][2];
    struct muster_error error;
    uint32_t count = 0;

    for (uint64_t key = 0; key < ROWS; key++) {
        uint64_t number = number_mix(key + 1000 * round + 77777 * source + 1);

        if (number % 3 == 0)
            continue;
        keys[count] = key;
        values[count][0] = (float)(number % 1000) / 7;
        values[count++][1] = 1.0f / (float)(number % 13 + 1);
    }
    if (params_stand_push(&scene->stand, scene->tables[source], keys, values, count, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

/* Sources come in another order with each order, and the server dies behind every n-th step. */
static struct muster_params_digest rounds_run(uint32_t order, uint32_t kill_every)
{
    struct muster_params_schema schema = sums;
    struct muster_params_digest digest;
    struct params_sources scene;
    uint32_t steps = 0;

    schema.optimizer = MUSTER_PARAMS_NESTEROV;
    schema.learning_rate = 0.1f;
    schema.is_round_mean = true;
    params_sources_open(&scene, SHARDS, PARAMS_SOURCES_MAX, &schema);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < 2 * PARAMS_SOURCES_MAX; i++) {
            uint32_t source = (i + order * (uint32_t)round) % PARAMS_SOURCES_MAX;

            if (i < PARAMS_SOURCES_MAX)
                part_push(&scene, source, round);
            else
                params_sources_tick(&scene, source, round + 1, 1 + source);
            if (kill_every > 0 && ++steps % kill_every == 0) {
                params_stand_kill(&scene.stand);
                params_stand_serve(&scene.stand);
            }
        }
        (void)value_pull(&scene, 0, 1, round + 1);
    }
    digest = table_digest(&scene);
    params_sources_close(&scene);
    return digest;
}

static void the_rows_depend_on_what_counted_alone(void **state)
{
    struct muster_params_digest expected = rounds_run(0, 0);

    (void)state;
    assert_int_not_equal(expected.sums[0], 0);
    for (uint32_t order = 1; order <= 2; order++) {
        for (uint32_t kill_every = 1; kill_every <= 4; kill_every++) {
            struct muster_params_digest digest = rounds_run(order, kill_every);

            assert_memory_equal(&digest, &expected, sizeof(digest));
        }
    }
}

#define SPREAD_MAX 2000u

/* Keys that differ in high bits alone, of two sources: a key that were listed twice would be summed twice. */
static void each_key_of_a_round_is_summed_once(void **state)
{
    static const uint32_t counts[] = {2, 30, SPREAD_MAX}; /* of which a shard has few, or many */

    (void)state;
    for (size_t row = 0; row < sizeof(counts) / sizeof(counts[0]); row++) {
        static uint64_t keys[SPREAD_MAX];
        static float values[SPREAD_MAX][2];
        struct params_sources scene;
        struct muster_error error;
        uint32_t count = counts[row];

        scene_open(&scene, 2);
        for (uint32_t source = 0; source < 2; source++) {
            for (uint32_t i = 0; i < count; i++) {
                keys[i] = (uint64_t)(source == 0 ? i + 1 : count - i) << 44;
                values[i][0] = values[i][1] = (float)(1 + source);
            }
            assert_int_equal(params_stand_push(&scene.stand, scene.tables[source], keys, values,
                                               count, &error),
                             MUSTER_OK);
        }
        params_sources_tick(&scene, 0, 1, 1);
        params_sources_tick(&scene, 1, 1, 1);

        assert_int_equal(params_stand_pull_after(&scene.stand, scene.tables[0], keys, values, count,
                                                 1, params_stand_deadline(&scene.stand), &error),
                         MUSTER_OK);
        for (uint32_t i = 0; i < count; i++)
            assert_true(values[i][0] == 3);
        params_sources_close(&scene);
    }
}

/* --- Refusals --- */

static void what_a_table_by_round_cannot_do_is_refused(void **state)
{
    static const struct {
        struct muster_params_schema schema;
        const char *words;
    } rows[] = {
        {{.name = "a", .row_elements = 1, .wire_dtype = MUSTER_F32, .is_round_mean = true},
         "need is_by_round"},
        {{.name = "a", .row_elements = 1, .wire_dtype = MUSTER_F32, .is_round_carried = true},
         "need is_by_round"},
        {{.name = "a", .row_elements = 1, .wire_dtype = MUSTER_F32, .round_quorum = 1},
         "need is_by_round"},
        {{.name = "a", .row_elements = 1, .wire_dtype = MUSTER_F32, .round_grace_ns = 1},
         "need is_by_round"},
        {{.name = "a234567890b234567890c234567890d234567890e234567",
          .row_elements = 1,
          .wire_dtype = MUSTER_F32,
          .is_by_round = true},
         "at most 46 bytes, got 47"},
        {{.name = "a",
          .row_elements = 1,
          .wire_dtype = MUSTER_F32,
          .is_by_round = true,
          .round_quorum = MUSTER_PARAMS_ROUND_SOURCES_MAX + 1},
         "round_quorum must be at most"},
    };
    struct muster_params_op op;
    struct params_sources scene;
    uint64_t key = 7;
    float values[2] = {1, 1};
    const struct muster_params_rows one = {&key, values, 1};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error;

        assert_int_equal(muster_params_schema_check(&rows[i].schema, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].words) == NULL)
            fail_msg("%s", error.text);
    }
    scene_open(&scene, 1);
    assert_int_equal(muster_params_push_pull_start(&op, scene.tables[0], &one, values,
                                                   params_stand_deadline(&scene.stand), NULL),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_params_tick_weighted_start(&op, scene.sources[0], 1, (double)NAN,
                                                       params_stand_deadline(&scene.stand), NULL),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_params_tick_weighted_start(&op, scene.sources[0], 1, -1,
                                                       params_stand_deadline(&scene.stand), NULL),
                     MUSTER_INVALID_ARGUMENT);
    params_sources_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_pushed_shows_once_all_have_completed_the_round),
        cmocka_unit_test(what_is_kept_of_one_round_does_not_count_in_the_next),
        cmocka_unit_test(a_round_is_a_weighted_sum_or_a_mean),
        cmocka_unit_test(a_deadline_names_the_round_and_who_has_not_completed_it),
        cmocka_unit_test(a_deadline_says_that_there_is_no_memory_to_close_the_round),
        cmocka_unit_test(nobody_waits_for_a_source_that_is_done),
        cmocka_unit_test(a_late_source_is_refused_and_goes_on_at_the_open_round),
        cmocka_unit_test(a_grace_waits_for_those_that_come_behind_the_quorum),
        cmocka_unit_test(a_large_round_is_closed_by_and_by_and_nobody_reads_a_part_of_it),
        cmocka_unit_test(a_death_amid_the_end_of_a_round_changes_no_byte),
        cmocka_unit_test(the_rows_depend_on_what_counted_alone),
        cmocka_unit_test(each_key_of_a_round_is_summed_once),
        cmocka_unit_test(what_a_table_by_round_cannot_do_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
