/* The record of a death: what it says while the process is taken down, and when it has been reaped. */
#include "run/task/collect.c"

#include "test_env.h"

static struct {
    struct test_env test;
    struct run run;
    struct run_task task;
    struct run_task_output output;
    struct run_last_step place;
    bool has_place;
    bool reports_result; /* among what is read at the end */
    char how[128];
    bool is_known;
    unsigned written, ended;
} bench;

/* --- what collect.c calls --- */

void run_registry_confirm_death(struct run *run, const struct run_task *task, const char *how,
                                bool is_known)
{
    (void)run;
    (void)task;
    snprintf(bench.how, sizeof(bench.how), "%s", how);
    bench.is_known = is_known;
    bench.written++;
}

void run_stream_drain(struct run_stream *stream)
{
    if (stream == &bench.output.report && bench.reports_result)
        bench.task.has_result = true;
}

bool run_places_read(const struct run_task *task, struct run_last_step *ret_step)
{
    (void)task;
    *ret_step = bench.place;
    return bench.has_place;
}

int run_keeper_wait_status(const struct run_task *task, bool *ret_is_known)
{
    (void)task;
    *ret_is_known = false;
    return 0;
}

bool run_outcome_is_silent(const struct run_task *task)
{
    (void)task;
    return false;
}

bool run_restart_is_fruitless(bool has_committed, uint64_t life_ns)
{
    (void)life_ns;
    return !has_committed;
}

void run_guard_remove(const struct run *run, pid_t group)
{
    (void)run;
    (void)group;
}

void run_dying_end(const struct run_task *task)
{
    (void)task;
    bench.ended++;
}

/* --- */

static int set_up(void **state)
{
    (void)state;
    memset(&bench, 0, sizeof(bench));
    test_env_open(&bench.test);
    bench.run.env = &bench.test.env;
    bench.run.epoch_last = 3;
    bench.task.run = &bench.run;
    bench.task.output = &bench.output;
    bench.output.report.watch.fd = -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_env_close(&bench.test);
    return 0;
}

static void a_dying_worker_is_told_with_the_step_that_its_place_shows(void **state)
{
    static const struct {
        uint64_t reported, committed;
        const char *how;
    } rows[] = {
        {0, 0, "process ended"},
        {4, 0, "process ended at step 4 in view 3"},
        {4, 6, "process ended at step 6 in view 3"},
        {7, 6, "process ended at step 7 in view 3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bench.task.step = rows[i].reported;
        bench.place.committed_step = rows[i].committed;
        run_task_note_dying(&bench.task);
        assert_string_equal(bench.how, rows[i].how);
        assert_false(bench.is_known);
        assert_int_equal(bench.task.step, rows[i].reported); /* that is told when it is reaped */
    }
}

/* The death is counted from then, unless the worker itself has said when it dies. */
static void the_first_word_of_a_death_is_its_time(void **state)
{
    (void)state;
    run_task_note_dying(&bench.task);
    assert_true(bench.task.dying_ns > 0 &&
                bench.task.dying_ns <= muster_loop_clock_ns(bench.test.env.loop));
    bench.task.dying_ns = 5;
    run_task_note_dying(&bench.task);
    assert_int_equal(bench.task.dying_ns, 5);
    run_task_collect(&bench.task);
    assert_int_equal(bench.task.died_ns, 5);
}

static void one_whose_exit_code_counts_is_not_told_before_it_is_reaped(void **state)
{
    bool *const facts[] = {&bench.task.is_preempted, &bench.task.is_abandoned,
                           &bench.task.has_result};

    (void)state;
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        *facts[i] = true;
        run_task_note_dying(&bench.task);
        *facts[i] = false;
    }
    bench.reports_result = true; /* its last report had not been read */
    run_task_note_dying(&bench.task);
    assert_int_equal(bench.written, 0);
}

static void one_that_is_reaped_is_told_by_its_end(void **state)
{
    static const struct {
        int code, signal;
        bool has_result;
        uint64_t step;
        const char *how;
    } rows[] = {
        {0, SIGKILL, false, 0, "SIGKILL"},
        {0, SIGKILL, true, 8, "SIGKILL at step 8 in view 3"},
        {3, 0, true, 8, "exit 3 at step 8 in view 3"},
        {0, 0, false, 8, "exit 0 at step 8 in view 3"},
        {0, 0, true, 8, "exit 0 at step 8 in view 3, done"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            setpgid(0, 0);
            if (rows[i].signal != 0)
                raise(rows[i].signal);
            _exit(rows[i].code);
        }
        assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){.si_pid = 0}, WEXITED | WNOWAIT), 0);
        bench.task.pid = pid;
        bench.task.has_result = rows[i].has_result;
        bench.task.step = rows[i].step;
        run_task_collect(&bench.task);
        assert_string_equal(bench.how, rows[i].how);
        assert_true(bench.is_known);
    }
    assert_int_equal(bench.ended, sizeof(rows) / sizeof(rows[0])); /* nobody waits for it longer */
}

#define COLLECT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        COLLECT_TEST(a_dying_worker_is_told_with_the_step_that_its_place_shows),
        COLLECT_TEST(the_first_word_of_a_death_is_its_time),
        COLLECT_TEST(one_whose_exit_code_counts_is_not_told_before_it_is_reaped),
        COLLECT_TEST(one_that_is_reaped_is_told_by_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
