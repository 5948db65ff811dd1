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
        bool is_identical, is_different, is_stateless;
    } rows[] = {
        {"the same", {"a", "a", "a"}, {5, 5, 5}, false, 3, true, false, false},
        {"one has others", {"a", "a", "b"}, {5, 5, 5}, false, 3, false, true, false},
        {"one has left before", {"a", "b", "a"}, {5, 4, 5}, false, 2, true, false, false},
        {"another machine has others", {"a", "a", "a"}, {5, 5, 5}, true, 3, false, true, false},
        {"none has any", {"", "", ""}, {5, 5, 5}, false, 3, false, false, true},
        {"one has none", {"a", "", "a"}, {5, 5, 5}, false, 3, false, true, false},
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
        assert_int_equal(outcome.is_stateless, rows[i].is_stateless);
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

static void who_has_left_by_exit_is_done_only_behind_a_commit(void **state)
{
    enum { CLOSED, BEHIND_COMMIT, IN_STEP, SILENT, TOO_LATE };
    static const struct {
        const char *name;
        int ends[TASKS];
        uint64_t steps[TASKS];
        bool is_undone;
    } rows[] = {
        {"all have closed", {CLOSED, CLOSED, CLOSED}, {9, 9, 9}, false},
        {"one has left in a step, early", {CLOSED, IN_STEP, CLOSED}, {9, 4, 9}, false},
        {"one has left without a word", {CLOSED, SILENT, CLOSED}, {9, 4, 9}, false},
        {"all have left in a step", {IN_STEP, IN_STEP, IN_STEP}, {4, 4, 4}, true},
        {"all have left without a word", {SILENT, SILENT, SILENT}, {4, 4, 4}, true},
        {"all behind a commit", {BEHIND_COMMIT, BEHIND_COMMIT, BEHIND_COMMIT}, {9, 9, 9}, false},
        {"one behind the last commit", {BEHIND_COMMIT, SILENT, IN_STEP}, {9, 9, 8}, false},
        {"one behind a former commit", {BEHIND_COMMIT, IN_STEP, IN_STEP}, {3, 9, 9}, true},
        {"one closed early", {CLOSED, SILENT, SILENT}, {3, 9, 9}, true},
        {"one was too late", {TOO_LATE, SILENT, SILENT}, {9, 9, 9}, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].name);
        for (uint32_t t = 0; t < TASKS; t++) {
            tasks[t] = (struct run_task){.state = RUN_TASK_LEFT,
                                         .uses_muster = true,
                                         .step = rows[i].steps[t],
                                         .left_step = rows[i].steps[t],
                                         .is_unclosed = rows[i].ends[t] != CLOSED,
                                         .is_in_step = rows[i].ends[t] == IN_STEP,
                                         .is_silent = rows[i].ends[t] == SILENT,
                                         .is_too_late = rows[i].ends[t] == TOO_LATE};
            if (rows[i].ends[t] == CLOSED)
                put_result(t, rows[i].steps[t], "a");
        }
        assert_int_equal(run_outcome_is_undone(&run), rows[i].is_undone);
    }
}

static void the_end_of_rank_0_is_missing_if_it_died_behind_the_last_step(void **state)
{
    static const struct {
        const char *name;
        uint64_t results[TASKS], undone[TASKS]; /* 0: none */
        uint32_t rank_first;
        int unfinished; /* -1: nobody */
    } rows[] = {
        {"all have closed", {9, 9, 9}, {0, 0, 0}, 0, -1},
        {"rank 0 died behind the last step", {0, 9, 9}, {9, 0, 0}, 0, 0},
        {"rank 0 died in a former step", {0, 9, 9}, {8, 0, 0}, 0, -1},
        {"another rank died behind it", {9, 0, 9}, {0, 9, 0}, 0, -1},
        {"task 0 was away, and task 1 rank 0", {0, 0, 9}, {5, 9, 0}, 0, 1},
        {"nobody has closed", {0, 0, 0}, {9, 9, 9}, 0, -1},
        {"rank 0 is elsewhere", {0, 9, 9}, {9, 0, 0}, 3, -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct run_task *found;
        struct run_outcome outcome;

        print_message("%s\n", rows[i].name);
        run.settings.rank_first = rows[i].rank_first;
        for (uint32_t t = 0; t < TASKS; t++) {
            tasks[t] = (struct run_task){.undone_step = rows[i].undone[t], .step = 9};
            if (rows[i].results[t] > 0)
                put_result(t, rows[i].results[t], "a");
        }
        run_outcome_gather(&run, &outcome);
        found = run_outcome_find_unfinished(&run, &outcome);
        assert_int_equal(found != NULL ? found - tasks : -1, rows[i].unfinished);
    }
}

static void who_ends_without_a_word_is_silent(void **state)
{
    struct run_task *task = &tasks[0];

    (void)state;
    task->lives = task->activity.life = 2;
    strcpy(task->activity.state, "compute");
    task->has_committed = true;
    assert_true(run_outcome_is_silent(task));
    task->wait_status = 256;
    assert_false(run_outcome_is_silent(task));
    task->wait_status = 0;
    task->is_unclosed = true;
    assert_false(run_outcome_is_silent(task));
    task->is_unclosed = false;
    strcpy(task->activity.state, "close");
    assert_false(run_outcome_is_silent(task));
    strcpy(task->activity.state, "outside");
    task->lives = 3;
    assert_false(run_outcome_is_silent(task));
}

static void who_skips_an_operation_is_found(void **state)
{
    (void)state;
    assert_null(run_outcome_find_skipper(&run));
    tasks[TASKS].skipped_step = 5;
    assert_null(run_outcome_find_skipper(&run));
    tasks[2].skipped_step = 20;
    assert_ptr_equal(run_outcome_find_skipper(&run), &tasks[2]);
}

#define CASE(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_run_is_idle_when_its_workers_use_muster_and_commit_nothing),
        CASE(weights_are_compared_after_the_last_step),
        CASE(without_a_result_the_steps_are_those_that_were_committed),
        CASE(two_deaths_without_a_report_are_of_other_programs),
        CASE(who_has_left_by_exit_is_done_only_behind_a_commit),
        CASE(the_end_of_rank_0_is_missing_if_it_died_behind_the_last_step),
        CASE(who_ends_without_a_word_is_silent),
        CASE(who_skips_an_operation_is_found),
    };

    return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
