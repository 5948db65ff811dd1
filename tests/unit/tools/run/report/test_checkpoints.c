/* Checkpoints are counted once, whoever tells of them first, and a job that begins anew counts from the first step. */
#include "tools/run/report/anew.c"
#include "tools/run/report/checkpoints.c"

#include "test_env.h"

#include <string.h>

static struct {
    struct test_env test;
    struct run run;
} scene;

/* --- The launcher's other parts */

void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
{
    (void)run;
    (void)level;
    (void)event;
    (void)fields;
    (void)count;
    (void)fmt;
}

uint64_t run_outcome_committed(const struct run *run)
{
    return run->progress.step;
}

static void on_changed(struct run *run)
{
    (void)run;
}

/* --- The scene */

static int set_up(void **state)
{
    static const struct run_control control = {.on_changed = on_changed};

    (void)state;
    test_env_open(&scene.test);
    scene.run = (struct run){.env = &scene.test.env, .control = &control};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_env_close(&scene.test);
    return 0;
}

static void be_told(const char *line)
{
    struct muster_json *report = NULL;

    assert_int_equal(muster_json_parse(line, strlen(line), &report, NULL), MUSTER_OK);
    run_checkpoints_on_report(&scene.run, report);
    muster_json_free(report);
}

static void assert_counts(uint64_t saved, uint64_t failed, uint64_t failed_since)
{
    assert_int_equal(scene.run.checkpoints_saved, saved);
    assert_int_equal(scene.run.checkpoints_failed, failed);
    assert_int_equal(scene.run.checkpoints_failed_since, failed_since);
}

static void the_first_word_on_a_step_counts(void **state)
{
    (void)state;
    be_told("{\"step\": 10, \"saved\": true, \"duration_ns\": 7}");
    be_told("{\"step\": 20, \"saved\": false, \"why\": \"rank 1: no space\"}");
    be_told("{\"step\": 10, \"saved\": true, \"duration_ns\": 9}");
    be_told("{\"step\": 20, \"saved\": false, \"why\": \"rank 1 failed\"}");

    assert_counts(1, 1, 1);
    assert_int_equal(scene.run.checkpoint_step, 10);
    assert_int_equal(scene.run.checkpoint_duration_ns, 7);
    assert_int_equal(scene.run.checkpoint_failed_step, 20);
    assert_string_equal(scene.run.checkpoint_failure, "rank 1: no space");
}

static void a_later_one_that_is_saved_ends_the_row_of_failures(void **state)
{
    (void)state;
    be_told("{\"step\": 20, \"saved\": false}");
    be_told("{\"step\": 30, \"saved\": false}");
    be_told("{\"step\": 10, \"saved\": true}");
    assert_counts(1, 2, 2);

    be_told("{\"step\": 40, \"saved\": true}");

    assert_counts(2, 2, 0);
}

static void a_job_that_begins_anew_has_no_failures_in_a_row(void **state)
{
    (void)state;
    be_told("{\"step\": 10, \"saved\": true}");
    be_told("{\"step\": 20, \"saved\": false, \"why\": \"rank 0: no space\"}");

    run_anew_on_view(&scene.run, 2, 1);

    assert_counts(1, 1, 0);
    assert_int_equal(scene.run.checkpoint_step, 0);
    assert_int_equal(scene.run.checkpoint_failed_step, 0);
    assert_string_equal(scene.run.checkpoint_failure, "");
    be_told("{\"step\": 10, \"saved\": false}");
    assert_counts(1, 2, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_word_on_a_step_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_later_one_that_is_saved_ends_the_row_of_failures, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_job_that_begins_anew_has_no_failures_in_a_row, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
