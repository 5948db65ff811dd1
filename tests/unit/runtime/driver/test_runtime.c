/* The keeper and the program: who drives, who runs callbacks, what a wait does. */
#include "torture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <muster/loop.h>
#include <muster/runtime.h>

#define GUARD_S 60

/* Runs every 0.1 ms, whoever drives. */
struct ticker {
    struct muster_timer timer;
    struct muster_loop *loop;
    pthread_t program;
    atomic_uint keeper_count;  /* fired on the keeper's thread */
    atomic_uint program_count; /* fired on the program's */
    struct muster_runtime *runtime;
    struct muster_task task; /* posted to the program at each tick */
    unsigned task_count;
    bool is_task_elsewhere;
};

static void on_tick(struct muster_timer *timer)
{
    struct ticker *ticker = timer->data;

    if (pthread_equal(pthread_self(), ticker->program))
        atomic_fetch_add(&ticker->program_count, 1);
    else
        atomic_fetch_add(&ticker->keeper_count, 1);
    muster_runtime_post_program(ticker->runtime, &ticker->task);
    muster_timer_start(timer, ticker->loop, muster_loop_after_ns(ticker->loop, 100000));
}

static void on_program_task(struct muster_task *task)
{
    struct ticker *ticker = task->data;

    ticker->task_count++;
    if (!pthread_equal(pthread_self(), ticker->program))
        ticker->is_task_elsewhere = true;
}

static struct muster_runtime *open_runtime(void **state)
{
    struct muster_runtime_options options = {.env = test_env_of(state), .tick_ns = 100000};
    struct muster_runtime *runtime = NULL;

    assert_int_equal(muster_runtime_open(&options, &runtime), MUSTER_OK);
    return runtime;
}

static void ticker_start(struct ticker *ticker, struct muster_runtime *runtime)
{
    *ticker = (struct ticker){
        .loop = muster_runtime_env(runtime)->loop,
        .program = pthread_self(),
        .runtime = runtime,
    };
    muster_timer_init(&ticker->timer, on_tick, ticker);
    muster_task_init(&ticker->task, on_program_task, ticker);
    muster_runtime_enter(runtime);
    muster_timer_start(&ticker->timer, ticker->loop, 0);
    muster_runtime_leave(runtime);
}

static void ticker_stop(struct ticker *ticker)
{
    muster_runtime_enter(ticker->runtime);
    muster_timer_stop(&ticker->timer);
    muster_task_cancel(&ticker->task);
    muster_runtime_leave(ticker->runtime);
}

/* Compute until the counter has reached `count`. */
static void compute_until(atomic_uint *counter, unsigned count)
{
    time_t start = time(NULL);

    while (atomic_load(counter) < count) {
        if (time(NULL) - start > GUARD_S)
            fail_msg("the counter stays at %u", atomic_load(counter));
    }
}

static void timers_fire_while_the_program_computes(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct ticker ticker;

    ticker_start(&ticker, runtime);
    compute_until(&ticker.keeper_count, 20);
    ticker_stop(&ticker);

    muster_runtime_close(runtime);
}

static void program_tasks_run_only_on_the_programs_thread(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct ticker ticker;
    unsigned before;

    ticker_start(&ticker, runtime);
    compute_until(&ticker.keeper_count, 5);
    muster_runtime_enter(runtime);
    before = ticker.task_count;
    muster_runtime_leave(runtime);
    assert_true(before > 0);
    compute_until(&ticker.keeper_count, atomic_load(&ticker.keeper_count) + 5);
    muster_runtime_enter(runtime);
    assert_true(ticker.task_count > before);
    muster_runtime_leave(runtime);
    ticker_stop(&ticker);

    assert_false(ticker.is_task_elsewhere);
    muster_runtime_close(runtime);
}

static void the_seat_changes_hands_ten_thousand_times(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct ticker ticker;
    uint64_t sum = 0;

    ticker_start(&ticker, runtime);
    for (unsigned i = 0; i < 10000; i++) {
        muster_runtime_enter(runtime);
        sum += ticker.timer.due_ns != 0; /* loop state: a data race if two drive */
        muster_runtime_enter(runtime);
        muster_runtime_leave(runtime);
        muster_runtime_leave(runtime);
        if (i % 500 == 0) /* away for long enough that the keeper takes over */
            compute_until(&ticker.keeper_count, atomic_load(&ticker.keeper_count) + 1);
    }
    ticker_stop(&ticker);

    assert_int_equal(sum, 10000);
    assert_true(atomic_load(&ticker.keeper_count) >= 20);
    muster_runtime_close(runtime);
}

static void timers_fire_while_the_program_hogs_the_seat_in_short_visits(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct ticker ticker;
    time_t start = time(NULL);

    ticker_start(&ticker, runtime);
    while (atomic_load(&ticker.program_count) < 5) {
        muster_runtime_enter(runtime);
        muster_runtime_leave(runtime);
        if (time(NULL) - start > GUARD_S)
            fail_msg("no timer fired");
    }
    ticker_stop(&ticker);

    muster_runtime_close(runtime);
}

static bool has_ticked(void *data)
{
    struct ticker *ticker = data;

    return atomic_load(&ticker->program_count) >= 10;
}

static void a_wait_drives_the_loop_in_the_programs_thread(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct ticker ticker;

    ticker_start(&ticker, runtime);
    assert_int_equal(muster_runtime_wait(runtime, has_ticked, &ticker, UINT64_MAX), MUSTER_OK);
    assert_true(ticker.task_count >= 10);
    ticker_stop(&ticker);

    muster_runtime_close(runtime);
}

static bool is_never_done(void *data)
{
    (void)data;
    return false;
}

static void a_wait_ends_at_its_deadline(void **state)
{
    bool (*const conditions[])(void *) = {is_never_done, NULL};
    struct muster_runtime *runtime = open_runtime(state);
    struct muster_loop *loop = muster_runtime_env(runtime)->loop;

    muster_runtime_enter(runtime);
    for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++) {
        uint64_t deadline_ns = muster_loop_after_ns(loop, 3 * MUSTER_NS_PER_MS);

        assert_int_equal(muster_runtime_wait(runtime, conditions[i], NULL, deadline_ns),
                         MUSTER_DEADLINE_EXCEEDED);
        assert_true(muster_loop_now_ns(loop) >= deadline_ns);
    }
    muster_runtime_leave(runtime);

    muster_runtime_close(runtime);
}

/* After a long wait in the seat the keeper sleeps; leaving must wake it. */
static void the_keeper_comes_back_after_a_long_wait(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct muster_loop *loop = muster_runtime_env(runtime)->loop;
    struct ticker ticker;

    muster_runtime_enter(runtime);
    assert_int_equal(muster_runtime_wait(runtime, is_never_done, NULL,
                                         muster_loop_after_ns(loop, 5 * MUSTER_NS_PER_MS)),
                     MUSTER_DEADLINE_EXCEEDED);
    muster_runtime_leave(runtime);
    ticker_start(&ticker, runtime);
    compute_until(&ticker.keeper_count, 1);
    ticker_stop(&ticker);

    muster_runtime_close(runtime);
}

struct nested {
    struct muster_runtime *runtime;
    struct muster_task outer, inner;
    bool is_inner_done;
    bool is_outer_done;
};

static void run_inner(struct muster_task *task)
{
    ((struct nested *)task->data)->is_inner_done = true;
}

static void run_outer(struct muster_task *task)
{
    struct nested *nested = task->data;

    muster_runtime_post_program(nested->runtime, &nested->inner);
    assert_int_equal(
        muster_runtime_wait(nested->runtime, test_env_is_true, &nested->is_inner_done, UINT64_MAX),
        MUSTER_OK);
    nested->is_outer_done = true;
}

static void a_program_task_may_wait_for_another(void **state)
{
    struct nested nested = {.runtime = open_runtime(state)};

    muster_task_init(&nested.outer, run_outer, &nested);
    muster_task_init(&nested.inner, run_inner, &nested);
    muster_runtime_enter(nested.runtime);
    muster_runtime_post_program(nested.runtime, &nested.outer);
    assert_int_equal(
        muster_runtime_wait(nested.runtime, test_env_is_true, &nested.is_outer_done, UINT64_MAX),
        MUSTER_OK);
    muster_runtime_leave(nested.runtime);

    muster_runtime_close(nested.runtime);
}

static void run_counted(struct muster_task *task)
{
    unsigned *runs = task->data;

    ++*runs;
}

static bool has_run(void *data)
{
    return *(unsigned *)data > 0;
}

static void a_program_task_that_is_posted_twice_runs_once(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    unsigned runs[2] = {0, 0};
    struct muster_task tasks[2];

    for (size_t i = 0; i < 2; i++)
        muster_task_init(&tasks[i], run_counted, &runs[i]);
    muster_runtime_enter(runtime);
    muster_runtime_post_program(runtime, &tasks[0]);
    muster_runtime_post_program(runtime, &tasks[1]);
    muster_runtime_post_program(runtime, &tasks[0]);
    assert_int_equal(muster_runtime_wait(runtime, has_run, &runs[1], UINT64_MAX), MUSTER_OK);
    muster_runtime_leave(runtime);

    assert_int_equal(runs[0], 1);
    assert_int_equal(runs[1], 1);
    muster_runtime_close(runtime);
}

struct slot {
    atomic_uint value; /* written by another thread */
    unsigned seen;
    unsigned poll_count;
    bool is_done;
};

static bool look_around(struct muster_poller *poller)
{
    struct slot *slot = poller->data;
    unsigned value = atomic_load(&slot->value);

    slot->poll_count++;
    if (value == slot->seen)
        return false;
    slot->seen = value;
    slot->is_done = true;
    return true;
}

static void *write_slot(void *data)
{
    struct slot *slot = data;

    atomic_store(&slot->value, 1);
    return NULL;
}

static void a_wait_sees_shared_memory_through_its_poller(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct slot slot = {.seen = 0};
    struct muster_poller poller = {.data = &slot, .on_poll = look_around};
    pthread_t thread;

    muster_runtime_enter(runtime);
    muster_poller_start(&poller, muster_runtime_env(runtime)->loop);
    assert_int_equal(pthread_create(&thread, NULL, write_slot, &slot), 0);
    assert_int_equal(muster_runtime_wait(runtime, test_env_is_true, &slot.is_done, UINT64_MAX),
                     MUSTER_OK);
    pthread_join(thread, NULL);
    muster_poller_stop(&poller);
    muster_runtime_leave(runtime);

    assert_true(slot.poll_count > 0);
    muster_runtime_close(runtime);
}

static bool always_moves(struct muster_poller *poller)
{
    (void)poller;
    return true;
}

static void a_busy_poller_does_not_starve_the_timers(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    struct muster_poller poller = {.on_poll = always_moves};
    struct ticker ticker;

    ticker_start(&ticker, runtime);
    muster_runtime_enter(runtime);
    muster_poller_start(&poller, muster_runtime_env(runtime)->loop);
    assert_int_equal(muster_runtime_wait(runtime, has_ticked, &ticker, UINT64_MAX), MUSTER_OK);
    muster_poller_stop(&poller);
    muster_runtime_leave(runtime);
    ticker_stop(&ticker);

    muster_runtime_close(runtime);
}

static void run_open(struct torture *torture, const void *data)
{
    struct test_env *test = (struct test_env *)(uintptr_t)data;
    struct muster_runtime_options options = {.env = &test->env};
    struct muster_runtime *runtime = NULL;
    enum muster_rc rc;

    torture_arm_limited(torture, &test->mem);
    rc = muster_runtime_open(&options, &runtime);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    if (rc == MUSTER_OK)
        muster_runtime_close(runtime);
}

static void an_open_without_memory_leaks_nothing(void **state)
{
    struct muster_runtime_options options = {.env = NULL};
    struct muster_runtime *runtime = NULL;

    torture_run(&(struct torture_scenario){.name = "open", .run = run_open, .data = *state});
    assert_int_equal(muster_runtime_open(&options, &runtime), MUSTER_INVALID_ARGUMENT);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

struct intruder {
    struct muster_runtime *runtime;
    enum muster_rc rc;
    struct muster_error error;
};

static void *intrude_from_thread(void *data)
{
    struct intruder *intruder = data;

    intruder->rc = muster_runtime_enter_as(intruder->runtime, "theft", &intruder->error);
    muster_runtime_leave(intruder->runtime);
    return NULL;
}

static enum muster_rc intrude_elsewhere(struct intruder *intruder)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, intrude_from_thread, intruder), 0);
    pthread_join(thread, NULL);
    return intruder->rc;
}

static void one_thread_at_a_time_is_in(void **state)
{
    struct intruder intruder = {.runtime = open_runtime(state)};
    struct muster_error error;

    assert_int_equal(muster_runtime_enter_as(intruder.runtime, "work", &error), MUSTER_OK);
    assert_int_equal(intrude_elsewhere(&intruder), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(intruder.error.text, "theft by thread"));
    assert_non_null(strstr(intruder.error.text, "is in work"));
    muster_runtime_leave(intruder.runtime);
    assert_int_equal(intrude_elsewhere(&intruder), MUSTER_OK);

    muster_runtime_close(intruder.runtime);
}

static void a_fork_is_refused_and_closes_nothing(void **state)
{
    struct muster_runtime *runtime = open_runtime(state);
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        bool is_refused = muster_runtime_enter(runtime) == MUSTER_FAILED_PRECONDITION &&
                          muster_runtime_wait(runtime, test_env_is_true, NULL, UINT64_MAX) ==
                              MUSTER_FAILED_PRECONDITION;

        muster_runtime_leave(runtime);
        muster_runtime_close(runtime);
        _exit(is_refused ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(muster_runtime_enter(runtime), MUSTER_OK);
    muster_runtime_leave(runtime);

    muster_runtime_close(runtime);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(one_thread_at_a_time_is_in),
        CASE(a_fork_is_refused_and_closes_nothing),
        CASE(timers_fire_while_the_program_computes),
        CASE(program_tasks_run_only_on_the_programs_thread),
        CASE(the_seat_changes_hands_ten_thousand_times),
        CASE(timers_fire_while_the_program_hogs_the_seat_in_short_visits),
        CASE(a_wait_drives_the_loop_in_the_programs_thread),
        CASE(a_wait_ends_at_its_deadline),
        CASE(the_keeper_comes_back_after_a_long_wait),
        CASE(a_program_task_may_wait_for_another),
        CASE(a_program_task_that_is_posted_twice_runs_once),
        CASE(a_wait_sees_shared_memory_through_its_poller),
        CASE(a_busy_poller_does_not_starve_the_timers),
        CASE(an_open_without_memory_leaks_nothing),
    };

    return cmocka_run_group_tests_name("runtime", cases, NULL, NULL);
}
