/* The history of a job: its curves, in bounded memory. */
#include <muster/env.h>

#include <stdlib.h>

static struct muster_mem *mem;
#define calloc(count, bytes) muster_mem_alloc_zero(mem, count, bytes)
#define free(block)          muster_mem_free(mem, block)
#include "tools/run/report/history.c"
#undef calloc
#undef free

#include "test_env.h"

const char *run_task_death(int wait_status, char *text, size_t bytes)
{
    snprintf(text, bytes, "ended by %d", wait_status);
    return text;
}

/* The launcher of one task, whose program reports one value. */
struct scene {
    struct test_env test;
    struct run run;
    struct run_task task;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    if (scene == NULL)
        return -1;
    test_env_open(&scene->test);
    mem = scene->test.env.mem;
    scene->run = (struct run){.env = &scene->test.env, .tasks = &scene->task, .task_count = 1};
    scene->task.run = &scene->run;
    snprintf(scene->task.name, sizeof(scene->task.name), "worker:0");
    scene->run.progress.values.count = 1;
    snprintf(scene->run.progress.values.at[0].name, sizeof(scene->run.progress.values.at[0].name),
             "loss");
    run_history_open(&scene->run);
    *state = scene;
    return 0;
}

/* Fails the case when something was not freed. */
static int tear_down(void **state)
{
    struct scene *scene = *state;

    run_history_close(&scene->run);
    assert_null(scene->run.history);
    run_history_close(&scene->run);
    test_env_close(&scene->test);
    free(scene);
    return 0;
}

static void put_sample(struct scene *scene, uint64_t step, double loss)
{
    scene->run.progress.step = step;
    scene->run.progress.values.at[0].value = loss;
    take_sample(scene->run.history);
}

/* The values of a curve as JSON. */
static void check_curve(const struct muster_json *curve, const char *expected)
{
    char *text = NULL;

    assert_non_null(curve);
    assert_int_equal(muster_json_format(curve, false, muster_mem_system(), &text), MUSTER_OK);
    assert_string_equal(text, expected);
    muster_mem_free(muster_mem_system(), text);
}

static void a_curve_has_all_samples(void **state)
{
    struct scene *scene = *state;
    struct muster_json *page = muster_json_object_new();
    const struct muster_json *curves;

    put_sample(scene, 1, 0.5);
    put_sample(scene, 2, (double)NAN);
    put_sample(scene, 4, 0.25);

    assert_true(run_history_add(&scene->run, page));

    curves = muster_json_member(page, "curves");
    check_curve(muster_json_member(curves, "step"), "[1,2,4]");
    check_curve(muster_json_member(muster_json_member(curves, "values"), "loss"),
                "[0.5,null,0.25]");
    muster_json_free(page);
}

static void a_full_curve_keeps_every_second_sample(void **state)
{
    struct scene *scene = *state;
    struct run_history *history = scene->run.history;

    for (uint64_t step = 1; step <= RUN_SAMPLES_MAX + 1; step++)
        put_sample(scene, step, 0);

    assert_int_equal(history->sample_count, RUN_SAMPLES_MAX / 2 + 1);
    for (size_t i = 0; i < RUN_SAMPLES_MAX / 2; i++)
        assert_int_equal(history->samples[i].step, 2 * (i + 1));
    assert_int_equal(history->samples[RUN_SAMPLES_MAX / 2].step, RUN_SAMPLES_MAX + 1);
    assert_int_equal(history->interval_ns, 2 * INTERVAL_NS);
}

static void a_life_is_a_bar_and_its_end_an_event(void **state)
{
    struct scene *scene = *state;
    struct muster_json *page = muster_json_object_new();
    const struct muster_json *bars, *event;

    run_history_on_start(&scene->task);
    scene->task.wait_status = 9;
    scene->task.step = 7;
    scene->task.begun_step = 8;
    run_history_on_death(&scene->task);
    run_history_on_start(&scene->task);
    scene->task.wait_status = 0;
    run_history_on_death(&scene->task);

    assert_true(run_history_add(&scene->run, page));

    bars = muster_json_member(muster_json_member(page, "lifelines"), "worker:0");
    assert_int_equal(muster_json_count(bars), 2);
    assert_string_equal(muster_json_text(muster_json_member(muster_json_at(bars, 0), "end")),
                        "ended by 9");
    assert_int_equal(muster_json_count(muster_json_member(page, "events")), 1);
    event = muster_json_at(muster_json_member(page, "events"), 0);
    assert_string_equal(muster_json_text(muster_json_member(event, "text")),
                        "worker:0 ended by 9 at step 8");
    muster_json_free(page);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_curve_has_all_samples),
        CASE(a_full_curve_keeps_every_second_sample),
        CASE(a_life_is_a_bar_and_its_end_an_event),
    };

    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
