/* Tables by round whose late pushes are carried: they count in the next round that their source completes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_sources.h"

#include <stdlib.h>
#include <string.h>

#include "params/server/state/round_internal.h"
#include "params/store/row.h"

#define SHARDS 8u

static const struct muster_params_schema sums = {.name = "sums",
                                                 .row_elements = 1,
                                                 .wire_dtype = MUSTER_F32,
                                                 .optimizer = MUSTER_PARAMS_ADD,
                                                 .is_by_round = true};

static void value_push(struct params_sources *scene, uint32_t source, uint64_t key, float value)
{
    struct muster_error error;

    if (params_stand_push(&scene->stand, scene->tables[source], &key, &value, 1, &error) !=
        MUSTER_OK)
        fail_msg("%s", error.text);
}

static float value_pull(struct params_sources *scene, uint32_t source, uint64_t key, uint64_t clock)
{
    struct muster_error error;
    float value;

    if (params_stand_pull_after(&scene->stand, scene->tables[source], &key, &value, 1, clock,
                                params_stand_deadline(&scene->stand), &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return value;
}

/* Two of three are enough. All have begun. */
static void carried_open(struct params_sources *scene, struct muster_params_schema *schema)
{
    *schema = sums;
    schema->round_quorum = 2;
    schema->is_round_carried = true;
    params_sources_open(scene, SHARDS, 3, schema);
    for (uint32_t i = 0; i < 3; i++)
        params_sources_tick(scene, i, 1, 1);
}

/* Two sources push to the key and complete the round. */
static void round_pass(struct params_sources *scene, uint64_t round, uint32_t one, uint32_t other)
{
    value_push(scene, one, 7, 1);
    value_push(scene, other, 7, 1);
    params_sources_tick(scene, one, round + 1, 1);
    params_sources_tick(scene, other, round + 1, 1);
}

static void a_late_push_counts_in_the_next_round_that_its_source_completes(void **state)
{
    struct muster_params_schema schema;
    struct params_sources scene;

    (void)state;
    carried_open(&scene, &schema);
    value_push(&scene, 2, 7, 100);
    round_pass(&scene, 1, 0, 1);
    assert_true(value_pull(&scene, 2, 7, 2) == 2);

    value_push(&scene, 2, 7, 10); /* late */
    params_sources_tick(&scene, 2, muster_params_table_round(scene.tables[2]), 1);
    round_pass(&scene, 2, 0, 2);
    assert_true(value_pull(&scene, 2, 7, 3) == 2 + 1 + 111);

    round_pass(&scene, 3, 0, 1); /* nothing of it counts again */
    assert_true(value_pull(&scene, 0, 7, 4) == 2 + 1 + 111 + 2);
    round_pass(&scene, 4, 0, 2);
    assert_true(value_pull(&scene, 0, 7, 5) == 2 + 1 + 111 + 2 + 2);
    params_sources_close(&scene);
}

/* A mean has the weights of those alone that have completed the round. */
static void a_source_whose_pushes_go_on_has_no_weight_in_the_round(void **state)
{
    struct muster_params_schema schema = sums;
    struct params_sources scene;

    (void)state;
    schema.round_quorum = 2;
    schema.is_round_carried = schema.is_round_mean = true;
    params_sources_open(&scene, SHARDS, 3, &schema);
    params_sources_tick(&scene, 2, 0, 1);
    for (uint32_t i = 0; i < 3; i++)
        value_push(&scene, i, 7, i == 2 ? 100 : 4);
    params_sources_tick(&scene, 0, 1, 1);
    params_sources_tick(&scene, 1, 1, 3);
    assert_true(value_pull(&scene, 0, 7, 1) == 4);
    value_push(&scene, 0, 7, 2);
    params_sources_tick(&scene, 0, 2, 1);
    params_sources_tick(&scene, 2, 2, 1);
    assert_true(value_pull(&scene, 0, 7, 2) == 4 + (2 + 100) / 2);
    params_sources_close(&scene);
}

/* All push in each round, and two complete it; the server dies behind every n-th step. */
static struct muster_params_digest carried_run(uint32_t kill_every)
{
    struct muster_params_schema schema;
    struct muster_params_digest digest;
    struct params_sources scene;
    uint32_t steps = 0;

    carried_open(&scene, &schema);
    for (uint64_t round = 1; round < 14; round++) {
        for (uint32_t step = 0; step < 6; step++) {
            uint32_t source = 2 - step % 3;

            if (step < 3)
                value_push(&scene, source, (round + source) % 3, (float)(round * (source + 1)) / 7);
            else if (source != round % 3)
                params_sources_tick(&scene, source, round + 1, 1 + source);
            if (kill_every > 0 && ++steps % kill_every == 0) {
                params_stand_kill(&scene.stand);
                params_stand_serve(&scene.stand);
            }
        }
        (void)value_pull(&scene, 0, 1, round + 1);
    }
    digest = muster_params_table_digest(
        scene.stand.server->region, muster_params_table_find(scene.stand.server->region, "sums"));
    params_sources_close(&scene);
    return digest;
}

static void deaths_do_not_change_what_late_pushes_count(void **state)
{
    struct muster_params_digest expected = carried_run(0);

    (void)state;
    for (uint32_t kill_every = 1; kill_every <= 5; kill_every++) {
        struct muster_params_digest digest = carried_run(kill_every);

        assert_memory_equal(&digest, &expected, sizeof(digest));
    }
}

/* --- Processes that begin again --- */

/* Servers may know of different rounds in which its dead process has counted. */
static void a_process_that_has_not_ticked_is_refused_and_goes_on_when_it_has(void **state)
{
    struct muster_params_schema schema;
    struct params_sources scene;
    struct muster_error error;
    float value = 5;
    uint64_t key = 7;

    (void)state;
    carried_open(&scene, &schema);
    round_pass(&scene, 1, 0, 1);
    params_sources_leave(&scene, 0);
    params_sources_join(&scene, 0);
    assert_int_equal(params_stand_push(&scene.stand, scene.tables[0], &key, &value, 1, &error),
                     MUSTER_OUT_OF_RANGE);
    assert_non_null(
        strstr(error.text, "has completed 2 steps, and pushes to table sums at clock 0"));

    params_sources_tick(&scene, 0, 2, 1);
    round_pass(&scene, 2, 0, 1);
    assert_true(value_pull(&scene, 0, 7, 3) == 2 + 2);
    params_sources_close(&scene);
}

/* --- Sources without end --- */

/* As another server has decided it: so many sources have counted, and this one is not among them. */
static struct muster_params_decision *decision_of(struct params_sources *scene, uint64_t round,
                                                  uint32_t count)
{
    struct muster_params_round_source *sources = calloc(count, sizeof(*sources));
    struct muster_params_round_origin *origins = calloc(count, sizeof(*origins));
    struct muster_params_decision *decision;

    for (uint32_t i = 0; i < count; i++)
        sources[i].id = (struct muster_incarnation){{(uint8_t)(i >> 8), (uint8_t)i}};
    decision = muster_params_decision_new(
        scene->stand.server,
        &(struct muster_params_round){
            .round = round, .source_count = count, .sources = sources, .origins = origins});
    free(sources);
    free(origins);
    assert_non_null(decision);
    return decision;
}

static void a_source_beyond_the_limit_is_refused_rather_than_counted_twice(void **state)
{
    struct muster_params_schema schema;
    struct muster_params_rounds *rounds;
    struct params_sources scene;
    struct muster_error error;
    float value = 1;
    uint64_t key = 7;

    (void)state;
    carried_open(&scene, &schema);
    rounds =
        MUSTER_CONTAINER_OF(scene.stand.server->rounds.next, struct muster_params_rounds, node);
    (void)muster_params_decision_learn(rounds,
                                       decision_of(&scene, 5, MUSTER_PARAMS_ROUND_SOURCES_MAX - 1));
    value_push(&scene, 2, 7, 1);
    (void)muster_params_decision_learn(rounds,
                                       decision_of(&scene, 6, MUSTER_PARAMS_ROUND_SOURCES_MAX));
    assert_int_equal(params_stand_push(&scene.stand, scene.tables[2], &key, &value, 1, &error),
                     MUSTER_OUT_OF_RANGE);
    assert_non_null(strstr(error.text, "table sums has had 1024 sources"));
    params_sources_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_push_counts_in_the_next_round_that_its_source_completes),
        cmocka_unit_test(a_source_whose_pushes_go_on_has_no_weight_in_the_round),
        cmocka_unit_test(deaths_do_not_change_what_late_pushes_count),
        cmocka_unit_test(a_process_that_has_not_ticked_is_refused_and_goes_on_when_it_has),
        cmocka_unit_test(a_source_beyond_the_limit_is_refused_rather_than_counted_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
