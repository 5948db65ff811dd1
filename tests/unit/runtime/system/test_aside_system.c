/* Work beside the loop: the loop goes on, and hears of its end once. */
#include "test_env.h"
#include "thread_refusal.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/system/aside_system.h"

struct work {
    atomic_bool may_end; /* the work waits for it */
    atomic_bool is_begun;
    pid_t thread;
    int niceness;
    bool has_limit_blocked;
    enum muster_rc answer, told;
    unsigned done_count;
    bool is_done;
};

/* A file beyond its limit is an error then. */
static bool is_limit_blocked(void)
{
    sigset_t signals;

    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &signals), 0);
    return sigismember(&signals, SIGXFSZ) == 1;
}

static enum muster_rc work_do(void *data)
{
    struct work *work = data;

    work->thread = gettid();
    work->niceness = getpriority(PRIO_PROCESS, 0);
    work->has_limit_blocked = is_limit_blocked();
    atomic_store(&work->is_begun, true);
    while (!atomic_load(&work->may_end))
        (void)sched_yield();
    return work->answer;
}

static void on_done(void *data, enum muster_rc rc)
{
    struct work *work = data;

    work->told = rc;
    work->done_count++;
    work->is_done = true;
}

static struct muster_aside *aside_open(struct test_env *test)
{
    struct muster_aside *aside = NULL;

    test_env_open(test);
    test_threads_left = UINT32_MAX;
    assert_int_equal(muster_aside_open(&test->env, &aside), MUSTER_OK);
    return aside;
}

static void work_finish(struct test_env *test, struct work *work)
{
    atomic_store(&work->may_end, true);
    test_env_run_until(&test->env, test_env_is_true, &work->is_done);
}

static void the_loop_goes_on_and_hears_of_the_end_once(void **state)
{
    struct work work = {.answer = MUSTER_DATA_LOSS};
    struct test_env test;
    struct muster_aside *aside = aside_open(&test);

    (void)state;
    muster_aside_start(aside, work_do, on_done, &work);
    while (!atomic_load(&work.is_begun))
        (void)sched_yield();
    test_env_turn(&test.env, 5);
    assert_int_equal(work.done_count, 0);

    work_finish(&test, &work);

    test_env_turn(&test.env, 5);
    assert_int_equal(work.done_count, 1);
    assert_int_equal(work.told, MUSTER_DATA_LOSS);
    assert_int_not_equal(work.thread, gettid());
    muster_aside_close(aside);
    test_env_close(&test);
}

static void one_piece_follows_another(void **state)
{
    struct test_env test;
    struct muster_aside *aside = aside_open(&test);

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct work work = {.answer = (enum muster_rc)i};

        muster_aside_start(aside, work_do, on_done, &work);
        work_finish(&test, &work);

        assert_int_equal(work.told, i);
    }
    muster_aside_close(aside);
    test_env_close(&test);
}

/* Once where the program has the usual priority, once where it has a lower one than such threads. */
static void its_thread_lets_the_program_go_first_unless_it_is_waited_for(void **state)
{
    static const struct {
        int program;
        bool keeps;
        int expected;
    } rows[] = {{0, false, 10}, {0, true, 0}, {15, false, 15}, {15, true, 15}};
    int own = getpriority(PRIO_PROCESS, 0);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct work work = {.may_end = true};
        struct test_env test;
        struct muster_aside *aside = aside_open(&test);
        int program = own > rows[i].program ? own : rows[i].program;
        int expected = program > rows[i].expected ? program : rows[i].expected;

        assert_int_equal(setpriority(PRIO_PROCESS, 0, program), 0);
        if (rows[i].keeps)
            muster_aside_keep_priority(aside);

        muster_aside_start(aside, work_do, on_done, &work);
        work_finish(&test, &work);

        if (work.niceness != expected)
            fail_msg("row %zu: the thread has %d", i, work.niceness);
        assert_int_equal(getpriority(PRIO_PROCESS, 0), program);
        assert_true(work.has_limit_blocked);
        muster_aside_close(aside);
        test_env_close(&test);
    }
    (void)setpriority(PRIO_PROCESS, 0, own); /* only root may */
}

/* The work is done in start, and its end is told by the loop all the same. */
static void without_a_thread_the_work_is_done_at_once(void **state)
{
    struct work work = {.may_end = true, .answer = MUSTER_ABORTED};
    struct test_env test;
    struct muster_aside *aside = aside_open(&test);

    (void)state;
    test_threads_left = 0;

    muster_aside_start(aside, work_do, on_done, &work);

    assert_int_equal(work.thread, gettid());
    assert_int_equal(work.done_count, 0);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), work.niceness);
    assert_true(work.has_limit_blocked);
    assert_false(is_limit_blocked());
    work_finish(&test, &work);
    assert_int_equal(work.told, MUSTER_ABORTED);
    muster_aside_close(aside);
    test_env_close(&test);
}

static void *end_allow(void *data)
{
    struct work *work = data;

    while (!atomic_load(&work->is_begun))
        (void)sched_yield();
    atomic_store(&work->may_end, true);
    return NULL;
}

static void close_waits_for_the_work_and_nothing_is_told(void **state)
{
    struct work work = {.answer = MUSTER_OK};
    struct test_env test;
    struct muster_aside *aside = aside_open(&test);
    pthread_t other;

    (void)state;
    muster_aside_start(aside, work_do, on_done, &work);
    assert_int_equal(pthread_create(&other, NULL, end_allow, &work), 0);

    muster_aside_close(aside);

    assert_true(atomic_load(&work.may_end));
    assert_int_equal(pthread_join(other, NULL), 0);
    test_env_turn(&test.env, 5);
    assert_int_equal(work.done_count, 0);
    muster_aside_close(NULL);
    test_env_close(&test);
}

static void a_lack_of_memory_is_told(void **state)
{
    struct muster_aside *aside = NULL;
    struct test_env test;

    (void)state;
    test_env_open(&test);
    for (uint64_t i = 1; i <= 2; i++) {
        test.mem.fail_at = i;
        assert_int_equal(muster_aside_open(&test.env, &aside), MUSTER_RESOURCE_EXHAUSTED);
    }
    test.mem.fail_at = 0;
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_goes_on_and_hears_of_the_end_once),
        cmocka_unit_test(one_piece_follows_another),
        cmocka_unit_test(without_a_thread_the_work_is_done_at_once),
        cmocka_unit_test(close_waits_for_the_work_and_nothing_is_told),
        cmocka_unit_test(a_lack_of_memory_is_told),
        cmocka_unit_test(its_thread_lets_the_program_go_first_unless_it_is_waited_for),
    };

    return cmocka_run_group_tests_name("runtime.system.aside_system", tests, NULL, NULL);
}
