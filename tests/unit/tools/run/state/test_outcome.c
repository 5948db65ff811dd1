/* The result of a run from the results of its workers. */
#include "tools/run/state/outcome.c"

#include "test_env.h"

#include <stdio.h>

enum { TASKS = 3 };

static struct run run;
static struct run_task tasks[TASKS + 1]; /* what stands behind the last one is not the run's */

static int set_up(void **state)
{
    (void)state;
    memset(tasks, 0, sizeof(tasks));
    run = (struct run){.tasks = tasks, .task_count = TASKS};
    tasks[TASKS].took_part = tasks[TASKS].uses_muster = tasks[TASKS].has_result = true;
    return 0;
}

static void put_result(uint32_t task, uint64_t steps, const char *digest)
{
    tasks[task].has_result = tasks[task].took_part = tasks[task].uses_muster = true;
    tasks[task].steps = steps;
    snprintf(tasks[task].digest, sizeof(tasks[task].digest), "%s", digest);
}

static void a_run_is_idle_when_its_workers_use_muster_and_commit_nothing(void **state)
{
    static const struct {
        const char *name;
        bool uses_muster[TASKS], took_part[TASKS];
        uint32_t count;
        bool is_idle;
    } rows[] = {
        {"other programs", {false}, {false}, 0, false},
        {"nobody has committed", {true, true, true}, {false}, 0, true},
        {"one has reported", {false, true, false}, {false}, 0, true},
        {"one has committed", {true, true, true}, {false, false, true}, 1, false},
        {"all have", {true, true, true}, {true, true, true}, 3, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].name);
        for (uint32_t t = 0; t < TASKS; t++) {
            tasks[t].uses_muster = rows[i].uses_muster[t];
            tasks[t].took_part = rows[i].took_part[t];
        }
        assert_int_equal(run_outcome_took_part(&run), rows[i].count);
        assert_int_equal(run_outcome_has_begun(&run), rows[i].count > 0);
        assert_int_equal(run_outcome_is_idle(&run), rows[i].is_idle);
    }
}

static void weights_are_compared_after_the_last_step(void **state)
{
    static const struct {
        const char *name;
        const char *digests[TASKS];
        uint64_t steps[TASKS];
        bool is_different_elsewhere;
        uint32_t results;
        bool is_identical, is_different;
    } rows[] = {
        {"the same", {"a", "a", "a"}, {5, 5, 5}, false, 3, true, false},
        {"one has others", {"a", "a", "b"}, {5, 5, 5}, false, 3, false, true},
        {"one has left before", {"a", "b", "a"}, {5, 4, 5}, false, 2, true, false},
        {"another machine has others", {"a", "a", "a"}, {5, 5, 5}, true, 3, false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct run_outcome outcome;

        print_message("%s\n", rows[i].name);
        for (uint32_t t = 0; t < TASKS; t++)
            put_result(t, rows[i].steps[t], rows[i].digests[t]);
        run.is_different_elsewhere = rows[i].is_different_elsewhere;
        run_outcome_gather(&run, &outcome);
        assert_int_equal(outcome.steps, 5);
        assert_int_equal(outcome.results, rows[i].results);
        assert_int_equal(outcome.is_identical, rows[i].is_identical);
        assert_int_equal(outcome.is_different, rows[i].is_different);
        assert_ptr_equal(outcome.values, &tasks[0].results);
    }
}

static void without_a_result_the_steps_are_those_that_were_committed(void **state)
{
    struct run_outcome outcome;

    (void)state;
    run.progress.step = 3;
    tasks[1].step = 4;
    run.steps_undone = 2;

    run_outcome_gather(&run, &outcome);

    assert_int_equal(outcome.steps, 4);
    assert_int_equal(outcome.steps_lost, 2);
    assert_int_equal(outcome.results, 0);
    assert_false(outcome.is_identical);
    assert_false(outcome.is_different);
}

static void two_deaths_without_a_report_are_of_other_programs(void **state)
{
    (void)state;
    tasks[0].restarts = 1;
    assert_false(run_outcome_is_foreign(&run));
    tasks[2].state = RUN_TASK_FAILED;
    assert_true(run_outcome_is_foreign(&run));
    run.is_misuse = true;
    assert_false(run_outcome_is_foreign(&run));
    run.is_misuse = false;
    run.settings.is_gang = true;
    assert_false(run_outcome_is_foreign(&run));
    run.settings.is_gang = false;
    tasks[1].uses_muster = true;
    assert_false(run_outcome_is_foreign(&run));
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_run_is_idle_when_its_workers_use_muster_and_commit_nothing),
        CASE(weights_are_compared_after_the_last_step),
        CASE(without_a_result_the_steps_are_those_that_were_committed),
        CASE(two_deaths_without_a_report_are_of_other_programs),
    };

    return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
