/* Clocks: pulls wait for the slowest source, and see what it has pushed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_calls.h"
#include "params_stand.h"
#include "scene_case.h"

#include <string.h>

#define SHARDS  8u
#define SOURCES 2u
#define KEY     5u

struct worker {
    struct muster_params *params; /* NULL: it has not come yet */
    struct muster_params_table *table;
};

struct scene {
    struct params_stand stand;
    struct worker workers[SOURCES];
};

static void worker_open(struct scene *scene, uint32_t worker, uint32_t clock_sources)
{
    struct worker *opened = &scene->workers[worker];

    opened->params = params_stand_source(&scene->stand, NULL, clock_sources);
    opened->table = params_stand_table(&scene->stand, opened->params, &params_counters);
}

/* A server, and worker 0 of SOURCES. */
static void scene_open(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    worker_open(scene, 0, SOURCES);
}

static void scene_close(struct scene *scene)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        if (scene->workers[i].params != NULL)
            assert_int_equal(params_stand_leave(&scene->stand, scene->workers[i].params),
                             MUSTER_OK);
    }
    params_stand_close(&scene->stand);
}

SCENE_CASES(struct scene, scene_open, scene_close)

static void row_push(struct scene *scene, uint32_t worker)
{
    float one = 1;

    assert_int_equal(params_stand_push(&scene->stand, scene->workers[worker].table,
                                       &(uint64_t){KEY}, &one, 1, NULL),
                     MUSTER_OK);
}

static void clock_tick(struct scene *scene, uint32_t worker, uint64_t clock)
{
    struct params_call call = {.op = {.data = &call}};

    assert_int_equal(muster_params_tick_start(&call.op, scene->workers[worker].params, clock,
                                              params_stand_deadline(&scene->stand), params_on_call),
                     MUSTER_OK);
    assert_int_equal(params_call_await(&scene->stand.test.env, &call), MUSTER_OK);
}

/* Worker 0 pulls the row once all sources are at min_clock. */
static void pull_start(struct scene *scene, struct params_call *call, uint64_t min_clock,
                       uint64_t deadline_ns)
{
    const struct muster_params_rows rows = params_call_init(call, KEY);

    assert_int_equal(muster_params_pull_after_start(&call->op, scene->workers[0].table, &rows,
                                                    min_clock, deadline_ns, params_on_call),
                     MUSTER_OK);
}

/* The same, which waits: the server has answered something that was sent after the pull. */
static void pull_start_waiting(struct scene *scene, struct params_call *call, uint64_t min_clock)
{
    float value;

    pull_start(scene, call, min_clock, params_stand_deadline(&scene->stand));
    assert_int_equal(params_stand_pull(&scene->stand, scene->workers[0].table, &(uint64_t){KEY + 1},
                                       &value, 1, NULL),
                     MUSTER_OK);
    assert_false(call->is_done);
}

/* It ends at its deadline and says why. The first deadline that leaves the server the time to say it
 * decides: a busy machine needs a long one. */
static void pull_in_vain(struct scene *scene, struct params_call *call, uint64_t min_clock,
                         const char *why)
{
    struct muster_env *env = &scene->stand.test.env;
    uint64_t within_ns = 50 * MUSTER_NS_PER_MS;

    do {
        pull_start(scene, call, min_clock, muster_loop_after_ns(env->loop, within_ns));
        assert_int_equal(params_call_await(env, call), MUSTER_DEADLINE_EXCEEDED);
        within_ns *= 4;
    } while (strstr(call->op.error.text, why) == NULL && within_ns < 60 * MUSTER_NS_PER_S);
    assert_non_null(strstr(call->op.error.text, why));
}

static void pull_await(struct scene *scene, struct params_call *call)
{
    assert_int_equal(params_call_await(&scene->stand.test.env, call), MUSTER_OK);
}

static void a_pull_waits_for_the_slowest_and_sees_its_pushes(void **state)
{
    struct scene *scene = *state;
    struct params_call pull;

    worker_open(scene, 1, SOURCES);
    row_push(scene, 0);
    clock_tick(scene, 0, 1);
    pull_start_waiting(scene, &pull, 1);

    row_push(scene, 1);
    clock_tick(scene, 1, 1);

    pull_await(scene, &pull);
    assert_true(pull.value == 2);
}

static void a_bound_lets_a_source_run_ahead(void **state)
{
    struct scene *scene = *state;
    struct params_call pull;

    worker_open(scene, 1, SOURCES);
    clock_tick(scene, 1, 1);
    for (uint64_t clock = 1; clock <= 3; clock++)
        clock_tick(scene, 0, clock);

    pull_start(scene, &pull, 3 - 2, params_stand_deadline(&scene->stand));
    pull_await(scene, &pull);
    pull_start_waiting(scene, &pull, 3 - 1);

    clock_tick(scene, 1, 2);
    pull_await(scene, &pull);
}

static void sources_that_have_not_come_yet_are_waited_for(void **state)
{
    struct scene *scene = *state;
    struct params_call pull;

    clock_tick(scene, 0, 1);
    pull_start_waiting(scene, &pull, 1);

    worker_open(scene, 1, SOURCES);
    clock_tick(scene, 1, 1);

    pull_await(scene, &pull);
}

/* A server whose memory was lost is asked by a client that has not ticked there again. */
static void before_the_first_tick_no_clock_has_come(void **state)
{
    struct scene fresh;
    struct params_call pull;

    (void)state;
    memset(&fresh, 0, sizeof(fresh));
    params_stand_open(&fresh.stand, SHARDS);
    worker_open(&fresh, 0, 0);
    pull_in_vain(&fresh, &pull, 1, "no source has ticked yet; the call waits for clock 1");
    pull_start_waiting(&fresh, &pull, 1);

    worker_open(&fresh, 1, 1);
    clock_tick(&fresh, 1, 1);

    pull_await(&fresh, &pull);
    scene_close(&fresh);
}

static void a_deadline_names_the_slowest(void **state)
{
    struct scene *scene = *state;
    struct params_call pull;

    scene->workers[1].params = params_stand_source(&scene->stand, "slow-1", SOURCES);
    scene->workers[1].table =
        params_stand_table(&scene->stand, scene->workers[1].params, &params_counters);
    clock_tick(scene, 0, 4);
    clock_tick(scene, 1, 2);

    pull_in_vain(scene, &pull, 4, "source slow-1 (");

    assert_non_null(strstr(pull.op.error.text, ") is at clock 2 since "));
    assert_non_null(strstr(pull.op.error.text, "the call waits for clock 4"));
}

static void nobody_waits_for_a_source_that_is_done(void **state)
{
    struct scene *scene = *state;
    struct params_call pull;

    worker_open(scene, 1, SOURCES);
    clock_tick(scene, 0, 7);
    pull_start_waiting(scene, &pull, 7);

    clock_tick(scene, 1, MUSTER_PARAMS_CLOCK_DONE);

    pull_await(scene, &pull);
}

static void clocks_outlive_the_server(void **state)
{
    struct scene *scene = *state;
    struct params_call pull;

    worker_open(scene, 1, SOURCES);
    clock_tick(scene, 0, 3);
    clock_tick(scene, 1, 2);

    params_stand_kill(&scene->stand);
    params_stand_serve(&scene->stand);
    pull_start(scene, &pull, 2, params_stand_deadline(&scene->stand));
    pull_await(scene, &pull);
    pull_start_waiting(scene, &pull, 3);

    clock_tick(scene, 1, 3);
    pull_await(scene, &pull);
}

static void a_clock_that_falls_is_refused(void **state)
{
    struct scene *scene = *state;
    struct params_call call = {.op = {.data = &call}};

    worker_open(scene, 1, 0);
    clock_tick(scene, 0, 3);

    assert_int_equal(muster_params_tick_start(&call.op, scene->workers[0].params, 2,
                                              params_stand_deadline(&scene->stand), params_on_call),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_params_tick_start(&call.op, scene->workers[1].params, 1,
                                              params_stand_deadline(&scene->stand), params_on_call),
                     MUSTER_INVALID_ARGUMENT); /* it does not tick */
}

static void a_tick_comes_behind_an_answer_with_values(void **state)
{
    struct scene *scene = *state;
    struct params_call push = {.op = {.data = &push}}, tick = {.op = {.data = &tick}};
    const struct muster_params_rows rows = params_call_init(&push, KEY);
    uint64_t deadline_ns = params_stand_deadline(&scene->stand);

    assert_int_equal(muster_params_push_pull_start(&push.op, scene->workers[0].table, &rows,
                                                   rows.values, deadline_ns, params_on_call),
                     MUSTER_OK);
    assert_int_equal(muster_params_tick_start(&tick.op, scene->workers[0].params, 1, deadline_ns,
                                              params_on_call),
                     MUSTER_OK);

    assert_int_equal(params_call_await(&scene->stand.test.env, &tick), MUSTER_OK);
    assert_true(push.is_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_pull_waits_for_the_slowest_and_sees_its_pushes),
        CASE(a_bound_lets_a_source_run_ahead),
        CASE(sources_that_have_not_come_yet_are_waited_for),
        CASE(before_the_first_tick_no_clock_has_come),
        CASE(a_deadline_names_the_slowest),
        CASE(nobody_waits_for_a_source_that_is_done),
        CASE(clocks_outlive_the_server),
        CASE(a_clock_that_falls_is_refused),
        CASE(a_tick_comes_behind_an_answer_with_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
