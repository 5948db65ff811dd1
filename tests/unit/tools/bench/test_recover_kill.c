/* One kill of `muster bench recover`: what is noted of the operation that it fell into. */
#include "tools/bench/recover_crew.c"
#include "tools/bench/recover_kill.c"
#include "tools/bench/recover_worker.c"
#include "tools/bench/samples.c"

#include "test_env.h"

enum { TASKS = 3, VICTIM = 1, STEP = 7, KILLED_AT = 900 };
enum { NOBODY = 4 << 20 }; /* The kernel's bound of process ids (PID_MAX_LIMIT): none has this one. */

static struct recover run;

static int set_up(void **state)
{
    (void)state;
    run = (struct recover){.tasks = TASKS,
                           .shared = calloc(1, sizeof(*run.shared)),
                           .log = calloc(1, sizeof(*run.log))};
    return run.shared != NULL && run.log != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    free(run.shared);
    free(run.log);
    return 0;
}

/* Survivors have done it, with the parts of so many; the victim has only started it. */
static void put_step(uint32_t contributors, bool is_shm)
{
    for (uint32_t t = 0; t < TASKS; t++) {
        struct recover_record *record = &run.shared->tasks[t].records[STEP % RECOVER_RING];

        record->contributors = contributors;
        record->is_shm = is_shm;
        record->start_cpu_ns = 50;
        atomic_store(&record->start_ns, 100 + t);
        atomic_store(&record->done_ns, t != VICTIM ? 1000 + t : 0);
        atomic_store(&record->step, STEP);
        run.cpu_ns[t] = 50 + ISSUE_MAX_NS + 1;
    }
}

static void a_kill_notes_what_the_survivors_have(void **state)
{
    (void)state;
    put_step(TASKS, true);
    note_kill(&run, VICTIM, STEP, KILLED_AT);

    assert_int_equal(run.in_op, 1);
    assert_int_equal(run.log[0].duration_ns, 1002 - 102);
    assert_int_equal(run.log[0].stall_ns, 1002 - KILLED_AT);
    assert_true(run.log[0].is_adopted && run.log[0].is_issued && run.log[0].is_shm);
}

static void a_retry_over_tcp_is_noted_as_such(void **state)
{
    (void)state;
    put_step(TASKS - 1, false);
    note_kill(&run, VICTIM, STEP, KILLED_AT);

    assert_false(run.log[0].is_adopted || run.log[0].is_shm);
    assert_true(run.log[0].is_issued);
}

/* On a busy machine a worker may wait for its processor for longer than an operation takes. */
static void a_worker_that_has_hardly_worked_has_issued_nothing(void **state)
{
    for (uint32_t t = 0; t < TASKS; t++) {
        assert_int_equal(tear_down(state), 0);
        assert_int_equal(set_up(state), 0);
        put_step(TASKS, true);
        run.cpu_ns[t]--;
        note_kill(&run, VICTIM, STEP, KILLED_AT);
        assert_false(run.log[0].is_issued);
    }
}

static void processor_time_is_that_of_the_process(void **state)
{
    uint64_t before = recover_cpu_ns(0), now;

    (void)state;
    assert_true(before > 0);
    while ((now = recover_cpu_ns(getpid())) == before)
        ;
    assert_true(now > before);
    run.shared->tasks[0].pid = getpid();
    run.shared->tasks[1].pid = NOBODY;
    note_cpu_times(&run);
    assert_true(run.cpu_ns[0] >= now);
    assert_int_equal(run.cpu_ns[1], 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_kill_notes_what_the_survivors_have),
        CASE(a_retry_over_tcp_is_noted_as_such),
        CASE(a_worker_that_has_hardly_worked_has_issued_nothing),
        CASE(processor_time_is_that_of_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
