/* Clocks: pulls wait for the slowest source, and see what it has pushed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "assertion_count.h"
#include "params_stand.h"

#include <string.h>

#define SHARDS  8u
#define SOURCES 2u
#define KEY     5u

static const struct muster_params_schema counters = {.name = "counters",
                                                     .row_elements = 1,
                                                     .wire_dtype = MUSTER_F32,
                                                     .optimizer = MUSTER_PARAMS_ADD};

struct call {
    struct muster_params_op op;
    bool is_done;
    enum muster_rc rc;
    uint64_t key;
    float value;
};

struct worker {
    struct muster_params *params;
    struct muster_params_table *table;
    bool is_done;
    enum muster_rc rc;
};

struct scene {
    struct params_stand stand;
    struct worker workers[SOURCES];
};

static void on_call(struct muster_params_op *op, enum muster_rc rc)
{
    struct call *call = op->data;

    call->is_done = true;
    call->rc = rc;
}

static void on_worker(struct muster_params *params, enum muster_rc rc)
{
    struct worker *worker = muster_params_data(params);

    worker->is_done = true;
    worker->rc = rc;
}

static void worker_open(struct scene *scene, struct worker *worker, uint32_t clock_sources)
{
    struct muster_params_options options = {.server = scene->stand.address,
                                            .job = "test",
                                            .clock_sources = clock_sources,
                                            .connect_deadline_ns =
                                                params_stand_deadline(&scene->stand),
                                            .data = worker};
    struct muster_error error;

    *worker = (struct worker){.is_done = false};
    assert_int_equal(muster_params_open(&scene->stand.test.env, &options, on_worker,
                                        &worker->params, &error),
                     MUSTER_OK);
    test_env_run_until(&scene->stand.test.env, test_env_is_true, &worker->is_done);
    assert_int_equal(worker->rc, MUSTER_OK);
    worker->table = params_stand_table(&scene->stand, worker->params, &counters);
}

static void scene_open(struct scene *scene, uint32_t workers)
{
    memset(scene, 0, sizeof(*scene));
    params_stand_open(&scene->stand, SHARDS);
    for (uint32_t i = 0; i < workers; i++)
        worker_open(scene, &scene->workers[i], SOURCES);
}

static void scene_close(struct scene *scene)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        struct worker *worker = &scene->workers[i];

        if (worker->params == NULL)
            continue;
        worker->is_done = false;
        muster_params_close(worker->params, params_stand_deadline(&scene->stand), on_worker);
        test_env_run_until(&scene->stand.test.env, test_env_is_true, &worker->is_done);
    }
    params_stand_close(&scene->stand);
}

static void call_await(struct scene *scene, struct call *call)
{
    test_env_run_until(&scene->stand.test.env, test_env_is_true, &call->is_done);
}

static void row_push(struct scene *scene, struct worker *worker)
{
    uint64_t key = KEY;
    float one = 1;
    struct muster_error error;

    assert_int_equal(params_stand_push(&scene->stand, worker->table, &key, &one, 1, &error),
                     MUSTER_OK);
}

static void clock_tick(struct scene *scene, struct worker *worker, uint64_t clock)
{
    struct call call = {.op = {.data = &call}};

    assert_int_equal(muster_params_tick_start(&call.op, worker->params, clock,
                                              params_stand_deadline(&scene->stand), on_call),
                     MUSTER_OK);
    call_await(scene, &call);
    assert_int_equal(call.rc, MUSTER_OK);
}

static void pull_start(struct scene *scene, struct worker *worker, struct call *call,
                       uint64_t min_clock, uint64_t deadline_ns)
{
    const struct muster_params_rows rows = {&call->key, &call->value, 1};

    *call = (struct call){.op = {.data = call}, .key = KEY, .value = -1};
    assert_int_equal(muster_params_pull_after_start(&call->op, worker->table, &rows, min_clock,
                                                    deadline_ns, on_call),
                     MUSTER_OK);
    (void)scene;
}

/* Until the server has answered something that was sent after the pull. */
static void server_pass(struct scene *scene, struct worker *worker)
{
    uint64_t key = KEY + 1;
    float value;
    struct muster_error error;

    assert_int_equal(params_stand_pull(&scene->stand, worker->table, &key, &value, 1, &error),
                     MUSTER_OK);
}

static void a_pull_waits_for_the_slowest_and_sees_its_pushes(void **state)
{
    struct scene scene;
    struct call pull;

    (void)state;
    scene_open(&scene, SOURCES);
    row_push(&scene, &scene.workers[0]);
    clock_tick(&scene, &scene.workers[0], 1);
    pull_start(&scene, &scene.workers[0], &pull, 1, params_stand_deadline(&scene.stand));
    server_pass(&scene, &scene.workers[0]);
    assert_false(pull.is_done);

    row_push(&scene, &scene.workers[1]);
    clock_tick(&scene, &scene.workers[1], 1);

    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    assert_true(pull.value == 2);
    scene_close(&scene);
}

static void a_bound_lets_a_source_run_ahead(void **state)
{
    struct scene scene;
    struct call pull;

    (void)state;
    scene_open(&scene, SOURCES);
    clock_tick(&scene, &scene.workers[1], 1);
    for (uint64_t clock = 1; clock <= 3; clock++)
        clock_tick(&scene, &scene.workers[0], clock);

    pull_start(&scene, &scene.workers[0], &pull, 3 - 2, params_stand_deadline(&scene.stand));
    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    pull_start(&scene, &scene.workers[0], &pull, 3 - 1, params_stand_deadline(&scene.stand));
    server_pass(&scene, &scene.workers[0]);
    assert_false(pull.is_done);

    clock_tick(&scene, &scene.workers[1], 2);
    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    scene_close(&scene);
}

static void sources_that_have_not_come_yet_are_waited_for(void **state)
{
    struct scene scene;
    struct call pull;

    (void)state;
    scene_open(&scene, 1);
    clock_tick(&scene, &scene.workers[0], 1);
    pull_start(&scene, &scene.workers[0], &pull, 1, params_stand_deadline(&scene.stand));
    server_pass(&scene, &scene.workers[0]);
    assert_false(pull.is_done);

    worker_open(&scene, &scene.workers[1], SOURCES);
    clock_tick(&scene, &scene.workers[1], 1);

    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    scene_close(&scene);
}

static void a_deadline_names_the_slowest(void **state)
{
    struct scene scene;
    struct call pull;

    (void)state;
    scene_open(&scene, SOURCES);
    clock_tick(&scene, &scene.workers[0], 4);
    clock_tick(&scene, &scene.workers[1], 2);

    pull_start(&scene, &scene.workers[0], &pull, 4,
               muster_loop_now_ns(scene.stand.test.env.loop) + 50 * MUSTER_NS_PER_MS);
    call_await(&scene, &pull);

    assert_int_equal(pull.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(pull.op.error.text, " is at clock 2 since "));
    assert_non_null(strstr(pull.op.error.text, "the pull is for clock 4"));
    scene_close(&scene);
}

static void nobody_waits_for_a_source_that_is_done(void **state)
{
    struct scene scene;
    struct call pull;

    (void)state;
    scene_open(&scene, SOURCES);
    clock_tick(&scene, &scene.workers[0], 7);
    pull_start(&scene, &scene.workers[0], &pull, 7, params_stand_deadline(&scene.stand));
    server_pass(&scene, &scene.workers[0]);
    assert_false(pull.is_done);

    clock_tick(&scene, &scene.workers[1], MUSTER_PARAMS_CLOCK_DONE);

    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    scene_close(&scene);
}

static void clocks_outlive_the_server(void **state)
{
    struct scene scene;
    struct call pull;

    (void)state;
    scene_open(&scene, SOURCES);
    clock_tick(&scene, &scene.workers[0], 3);
    clock_tick(&scene, &scene.workers[1], 2);

    params_stand_kill(&scene.stand);
    params_stand_serve(&scene.stand);
    pull_start(&scene, &scene.workers[0], &pull, 2, params_stand_deadline(&scene.stand));
    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    pull_start(&scene, &scene.workers[0], &pull, 3, params_stand_deadline(&scene.stand));
    server_pass(&scene, &scene.workers[0]);

    assert_false(pull.is_done);
    clock_tick(&scene, &scene.workers[1], 3);
    call_await(&scene, &pull);
    assert_int_equal(pull.rc, MUSTER_OK);
    scene_close(&scene);
}

static void a_clock_that_falls_is_refused(void **state)
{
    struct scene scene;
    struct call call = {.op = {.data = &call}};

    (void)state;
    scene_open(&scene, 1);
    worker_open(&scene, &scene.workers[1], 0);
    clock_tick(&scene, &scene.workers[0], 3);

    assert_int_equal(muster_params_tick_start(&call.op, scene.workers[0].params, 2,
                                              params_stand_deadline(&scene.stand), on_call),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_params_tick_start(&call.op, scene.workers[1].params, 1,
                                              params_stand_deadline(&scene.stand), on_call),
                     MUSTER_INVALID_ARGUMENT); /* it does not tick */
    scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pull_waits_for_the_slowest_and_sees_its_pushes),
        cmocka_unit_test(a_bound_lets_a_source_run_ahead),
        cmocka_unit_test(sources_that_have_not_come_yet_are_waited_for),
        cmocka_unit_test(a_deadline_names_the_slowest),
        cmocka_unit_test(nobody_waits_for_a_source_that_is_done),
        cmocka_unit_test(clocks_outlive_the_server),
        cmocka_unit_test(a_clock_that_falls_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
