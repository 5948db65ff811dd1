/* /healthz of a job whose checkpoints fail: a warning first, and a failure of its own when they go on failing. */
#include "tools/run/report/health.c"

#include "test_env.h"

bool run_activity_is_stuck(const struct run *run, char *why, size_t why_bytes)
{
    (void)run;
    (void)why;
    (void)why_bytes;
    return false;
}

uint32_t run_task_count(const struct run *run, enum run_task_state state)
{
    (void)run;
    (void)state;
    return 0;
}

bool run_preemption_waits(const struct run *run, char *ret_text, size_t bytes)
{
    (void)run;
    snprintf(ret_text, bytes, "worker:1 (computing, after step 57)");
    return true;
}

static void a_job_that_stops_names_who_is_waited_for(void **state)
{
    struct run run = {.state = RUN_STATE_LEAVING};
    struct muster_error error = {.text = ""};

    (void)state;
    assert_int_equal(run_health_check(&run, &error), MUSTER_UNAVAILABLE);
    assert_string_equal(error.text, "the job is preempted: its members stop, and wait for worker:1 "
                                    "(computing, after step 57)");
}

#define A20  "aaaaaaaaaaaaaaaaaaaa"
#define A100 A20 A20 A20 A20 A20

static void checkpoints_that_go_on_failing_are_told_more_and_more_plainly(void **state)
{
    static const struct {
        uint64_t failures, failed_step, step;
        const char *failure;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {0, 0, 0, "", MUSTER_OK, ""},
        {0, 20, 30, "rank 1: a member died", MUSTER_OK, ""}, /* that is over */
        {1, 40, 30, "rank 1: a member died", MUSTER_OK,
         "the checkpoint of step 40 failed; the last whole one is of step 30; rank 1: a member "
         "died"},
        {2, 50, 30, "rank 0: no space", MUSTER_OK,
         "the checkpoint of step 50 failed, 2 in a row; the last whole one is of step 30; rank 0: "
         "no "
         "space"},
        {3, 60, 30, "rank 0: no space", MUSTER_UNAVAILABLE,
         "the checkpoint of step 60 failed, 3 in a row; the last whole one is of step 30; rank 0: "
         "no "
         "space"},
        {1, 40, 30, "rank 1: " A100 " and the end", MUSTER_OK,
         "the checkpoint of step 40 failed; the last whole one is of step 30; rank 1: " A100
         " and the end"},
        {9, 90, 0, "", MUSTER_UNAVAILABLE,
         "the checkpoint of step 90 failed, 9 in a row; none is whole yet; the log of the workers "
         "has "
         "the reason"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run run = {.checkpoints_failed_since = rows[i].failures,
                          .checkpoint_failed_step = rows[i].failed_step,
                          .checkpoint_step = rows[i].step};
        struct muster_error error = {.text = ""};

        snprintf(run.checkpoint_failure, sizeof(run.checkpoint_failure), "%s", rows[i].failure);
        assert_int_equal(run_health_check_checkpoints(&run, &error), rows[i].rc);
        assert_string_equal(error.text, rows[i].text);
        assert_int_equal(run_health_check(&run, &error), MUSTER_OK); /* the job gets on */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_that_stops_names_who_is_waited_for),
        cmocka_unit_test(checkpoints_that_go_on_failing_are_told_more_and_more_plainly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
