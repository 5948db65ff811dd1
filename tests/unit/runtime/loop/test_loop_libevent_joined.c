/* The real loop and its base: opening, joining the caller's, what the base is asked for, what fails. */
#include "runtime/loop/loop_libevent_internal.h"
#include "test_env.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#define START_NS (1000 * MUSTER_NS_PER_S)
#define US       MUSTER_NS_PER_US

static struct {
    const char *failing; /* the call that fails; NULL: none */
    int base_flag;
    bool is_clock_played;
    uint64_t now_ns;
    int64_t delay_us; /* of the tick; -1: off, -2: untouched */
    unsigned arm_count;
} kernel;

/* Not one that libevent makes of its own. */
static bool is_of_libevent(const void *return_at)
{
    Dl_info caller;

    return dladdr(return_at, &caller) != 0 && strstr(caller.dli_fname, "/libevent") != NULL;
}

#define call_fails(name) (!is_of_libevent(__builtin_return_address(0)) && call_is_failing(name))

static bool call_is_failing(const char *name)
{
    if (kernel.failing == NULL || strcmp(kernel.failing, name) != 0)
        return false;
    kernel.failing = NULL;
    errno = EMFILE;
    return true;
}

#define REAL(type, name, parameters)                                                               \
    ((type(*) parameters)(uintptr_t)dlsym(RTLD_NEXT, #name)) /* libevent's */

struct event_config *event_config_new(void)
{
    return call_fails("event_config_new") ? NULL
                                          : REAL(struct event_config *, event_config_new, (void))();
}

int event_config_set_flag(struct event_config *config, int flag)
{
    kernel.base_flag = flag;
    return call_fails("event_config_set_flag")
               ? -1
               : REAL(int, event_config_set_flag, (struct event_config *, int))(config, flag);
}

struct event_base *event_base_new_with_config(const struct event_config *config)
{
    return call_fails("event_base_new_with_config")
               ? NULL
               : REAL(struct event_base *, event_base_new_with_config,
                      (const struct event_config *))(config);
}

int timerfd_create(int clock, int flags)
{
    assert_int_equal(clock, CLOCK_MONOTONIC);
    assert_int_equal(flags, TFD_NONBLOCK | TFD_CLOEXEC);
    return call_fails("timerfd_create") ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

int event_assign(struct event *event, struct event_base *base, evutil_socket_t fd, short events,
                 event_callback_fn callback, void *data)
{
    return call_fails("event_assign")
               ? -1
               : REAL(int, event_assign,
                      (struct event *, struct event_base *, evutil_socket_t, short,
                       event_callback_fn, void *))(event, base, fd, events, callback, data);
}

int event_add(struct event *event, const struct timeval *delay)
{
    if (call_fails("event_add"))
        return -1;
    if (delay != NULL) {
        kernel.delay_us = (int64_t)delay->tv_sec * 1000000 + delay->tv_usec;
        kernel.arm_count++;
    }
    return REAL(int, event_add, (struct event *, const struct timeval *))(event, delay);
}

int event_del(struct event *event)
{
    kernel.delay_us = -1;
    return REAL(int, event_del, (struct event *))(event);
}

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    if (!kernel.is_clock_played || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, ret_now);
    ret_now->tv_sec = (time_t)(kernel.now_ns / MUSTER_NS_PER_S);
    ret_now->tv_nsec = (long)(kernel.now_ns % MUSTER_NS_PER_S);
    return 0;
}

static struct test_env test;

static int set_up(void **state)
{
    (void)state;
    memset(&kernel, 0, sizeof(kernel));
    kernel.now_ns = START_NS;
    test_env_open(&test);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kernel.is_clock_played = false;
    test_env_close(&test);
    return 0;
}

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

static void a_loop_that_cannot_be_opened_leaves_nothing(void **state)
{
    static const char *const rows[] = {"event_config_new",
                                       "event_config_set_flag",
                                       "event_base_new_with_config",
                                       "timerfd_create",
                                       "event_assign",
                                       "event_add",
                                       "memory"};
    struct event_base *base = event_base_new();
    size_t blocks = test.mem.block_count;
    int next = next_descriptor();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_joined = strcmp(rows[i], "event_assign") == 0;
        struct muster_loop *loop = NULL;

        for (unsigned joined = 0; joined <= is_joined; joined++) {
            kernel.failing = rows[i];
            test.mem.fail_at = strcmp(rows[i], "memory") == 0;
            assert_int_equal(muster_loop_open(test.env.mem, joined != 0 ? base : NULL, &loop),
                             MUSTER_RESOURCE_EXHAUSTED);
            assert_true(kernel.failing == NULL || test.mem.fail_at == 0);
            kernel.failing = NULL;
            test.mem.fail_at = 0;
            assert_null(loop);
            assert_int_equal(test.mem.block_count, blocks);
            assert_int_equal(next_descriptor(), next);
        }
    }
    muster_loop_close(NULL);
    event_base_free(base); /* it was not freed with the loop */
}

static void a_loop_opens_its_base_without_locks_and_ignores_sigpipe(void **state)
{
    struct sigaction action;
    struct muster_loop *loop = NULL;
    int next = next_descriptor();

    (void)state;
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(muster_loop_open(test.env.mem, NULL, &loop), MUSTER_OK);
    assert_int_equal(kernel.base_flag, EVENT_BASE_FLAG_NOLOCK);
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_IGN);
    assert_int_equal(muster_loop_next_due_ns(loop), UINT64_MAX);
    assert_true(muster_loop_fd(loop) >= 0);
    muster_loop_close(loop);
    assert_int_equal(next_descriptor(), next);
}

/* 0 is a descriptor. */
static void a_process_without_standard_input_has_a_loop(void **state)
{
    int kept = dup(STDIN_FILENO), next;
    struct event_base *base = event_base_new();
    struct muster_loop *loop = NULL;

    (void)state;
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    next = next_descriptor();
    close(STDIN_FILENO);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(muster_loop_open(test.env.mem, NULL, &loop), MUSTER_OK);
        muster_loop_turn(loop, 1);
        muster_loop_close(loop);
        assert_int_equal(next_descriptor(), STDIN_FILENO);
    }
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    assert_true(next >= 0);
    event_base_free(base);
}

static void on_expire(struct muster_timer *timer)
{
    ++*(unsigned *)timer->data;
}

static void on_run(struct muster_task *task)
{
    ++*(unsigned *)task->data;
}

static void check_tick(int64_t delay_us, unsigned arm_count)
{
    assert_int_equal(kernel.delay_us, delay_us);
    assert_int_equal(kernel.arm_count, arm_count);
    kernel.delay_us = -2;
    kernel.arm_count = 0;
}

/* It is set when something comes first, in microseconds rounded up, and taken as it is when something goes. */
static void the_tick_of_a_joined_loop_is_early_enough(void **state)
{
    struct event_base *base = event_base_new();
    struct muster_loop *loop = NULL;
    struct muster_timer first, second;
    struct muster_task task;
    unsigned count = 0;

    (void)state;
    kernel.is_clock_played = true;
    assert_int_equal(muster_loop_open(test.env.mem, base, &loop), MUSTER_OK);
    muster_timer_init(&first, on_expire, &count);
    muster_timer_init(&second, on_expire, &count);
    muster_task_init(&task, on_run, &count);
    kernel.delay_us = -2;
    kernel.arm_count = 0;
    muster_timer_start(&first, loop, START_NS + 3 * MUSTER_NS_PER_S + 1);
    check_tick(3000001, 1);
    muster_timer_start(&second, loop, START_NS + 3 * MUSTER_NS_PER_S + 1); /* not earlier */
    check_tick(-2, 0);
    muster_timer_start(&second, loop, START_NS + 3 * MUSTER_NS_PER_S);
    check_tick(3000000, 1);
    muster_timer_start(&second, loop, START_NS + 999);
    check_tick(1, 1);
    muster_timer_start(&first, loop, START_NS);
    check_tick(0, 1);
    muster_timer_stop(&first);
    muster_timer_stop(&second);
    muster_task_post(&task, loop);
    check_tick(0, 1);
    muster_task_cancel(&task);
    check_tick(-2, 0);
    muster_loop_turn(loop, 0); /* the tick comes, and nothing is due */
    check_tick(-2, 0);
    muster_timer_start(&first, loop, START_NS + 7 * MUSTER_NS_PER_S);
    muster_timer_stop(&first);
    check_tick(7000000, 1);
    muster_loop_turn(loop, 0); /* the tick has not come, by libevent's own clock either */
    check_tick(-1, 0);
    assert_int_equal(count, 0);

    muster_timer_start(&first, loop, START_NS + 7 * US);
    check_tick(7, 1);
    kernel.now_ns += 10 * US;
    muster_timer_start(&second, loop, START_NS + 60 * US);
    muster_loop_turn(loop, 0);
    assert_int_equal(count, 1);
    check_tick(50, 1);
    muster_timer_stop(&second);
    muster_loop_close(loop);
    kernel.is_clock_played = false;
    event_base_free(base);
}

/* --- The order of work --- */

static char told[32];

static void tell_timer(struct muster_timer *timer)
{
    strcat(told, timer->data);
}

static void tell_task(struct muster_task *task)
{
    strcat(told, task->data);
}

static void check_told(const char *expected)
{
    assert_string_equal(told, expected);
    told[0] = '\0';
}

struct mover {
    struct muster_poller poller;
    struct muster_task *task;
    unsigned left; /* it moves so many times */
};

static bool move_once(struct muster_poller *poller)
{
    struct mover *mover = poller->data;

    if (mover->left == 0)
        return false;
    mover->left--;
    muster_task_post(mover->task, test.env.loop);
    return true;
}

/* A move in memory is answered in the next turn before the clock is read and timers are run, but
 * never in two turns in a row. */
static void what_has_moved_is_answered_first_but_not_twice(void **state)
{
    struct muster_timer timer;
    struct muster_task task;
    struct mover mover = {.task = &task};

    (void)state;
    kernel.is_clock_played = true;
    mover.poller = (struct muster_poller){.data = &mover, .on_poll = move_once};
    muster_poller_start(&mover.poller, test.env.loop);
    muster_timer_init(&timer, tell_timer, (char[]){"t"});
    muster_task_init(&task, tell_task, (char[]){"k"});
    mover.left = 1;
    muster_timer_start(&timer, test.env.loop, START_NS + 1);
    muster_loop_turn(test.env.loop, 0);
    check_told("");
    kernel.now_ns += 2;
    muster_loop_turn(test.env.loop, 0);
    check_told("k");
    muster_loop_turn(test.env.loop, 0);
    check_told("t");

    mover.left = 4;
    muster_timer_start(&timer, test.env.loop, kernel.now_ns + 1);
    muster_loop_turn(test.env.loop, 0);
    kernel.now_ns += 2;
    check_told("");
    muster_loop_turn(test.env.loop, 0); /* it moves again */
    check_told("k");
    muster_loop_turn(test.env.loop, 0);
    check_told("tk");
    muster_loop_turn(test.env.loop, 0);
    check_told("k");
    muster_loop_turn(test.env.loop, 0);
    check_told("k");

    mover.left = 1; /* without an answer it is a turn like any other */
    muster_loop_turn(test.env.loop, 0);
    muster_task_cancel(&task);
    muster_timer_start(&timer, test.env.loop, kernel.now_ns);
    muster_loop_turn(test.env.loop, 0);
    check_told("t");
    muster_poller_stop(&mover.poller);
}

/* A loop that others turn must be looked at every so often for what it cannot tell. */
static void the_next_turn_is_due_for_what_is_not_seen(void **state)
{
    struct muster_task task;
    struct mover mover = {.task = &task};
    struct muster_timer timer;
    unsigned count = 0;

    (void)state;
    kernel.is_clock_played = true;
    mover.poller = (struct muster_poller){.data = &mover, .on_poll = move_once};
    muster_timer_init(&timer, on_expire, &count);
    assert_int_equal(muster_loop_next_due_ns(test.env.loop), UINT64_MAX);
    muster_poller_start(&mover.poller, test.env.loop);
    assert_int_equal(muster_loop_next_due_ns(test.env.loop), START_NS + 200 * US);
    (void)muster_loop_event_base(test.env.loop);
    assert_int_equal(muster_loop_next_due_ns(test.env.loop), START_NS + 200 * US);
    muster_poller_stop(&mover.poller);
    assert_int_equal(muster_loop_next_due_ns(test.env.loop), START_NS + 10 * MUSTER_NS_PER_MS);
    muster_timer_start(&timer, test.env.loop, START_NS + 10 * MUSTER_NS_PER_MS - 1);
    assert_int_equal(muster_loop_next_due_ns(test.env.loop), START_NS + 10 * MUSTER_NS_PER_MS - 1);
    muster_timer_start(&timer, test.env.loop, START_NS + 10 * MUSTER_NS_PER_MS + 1);
    assert_int_equal(muster_loop_next_due_ns(test.env.loop), START_NS + 10 * MUSTER_NS_PER_MS);
    muster_timer_stop(&timer);
}

static void a_joined_loop_looks_at_memory_at_each_tick(void **state)
{
    struct event_base *base = event_base_new();
    struct muster_loop *loop = NULL, *kept = test.env.loop;
    struct muster_task task;
    struct mover mover = {.task = &task};
    unsigned count = 0;

    (void)state;
    kernel.is_clock_played = true;
    assert_int_equal(muster_loop_open(test.env.mem, base, &loop), MUSTER_OK);
    test.env.loop = loop;
    muster_task_init(&task, on_run, &count);
    mover.poller = (struct muster_poller){.data = &mover, .on_poll = move_once};
    kernel.delay_us = -2;
    kernel.arm_count = 0;
    muster_poller_start(&mover.poller, loop);
    check_tick(0, 1); /* it has never looked */
    muster_loop_turn(loop, 0);
    check_tick(200, 1);
    mover.left = 1;
    kernel.now_ns += 200 * US;
    muster_loop_turn(loop, 0);
    assert_int_equal(mover.left, 0);
    assert_int_equal(count, 0);
    muster_loop_turn(loop, 0);
    assert_int_equal(count, 1);
    muster_poller_stop(&mover.poller);
    muster_loop_close(loop);
    test.env.loop = kept;
    kernel.is_clock_played = false;
    event_base_free(base);
}

/* A stranger turns the base of a loop that is not joined, for the sake of foreign events. */
static void a_base_that_others_turn_runs_what_is_due(void **state)
{
    struct event_base *base = muster_loop_event_base(test.env.loop);
    struct muster_timer timer;
    struct muster_task task;
    unsigned count = 0;

    (void)state;
    muster_timer_init(&timer, on_expire, &count);
    muster_task_init(&task, on_run, &count);
    muster_timer_start(&timer, test.env.loop,
                       muster_loop_after_ns(test.env.loop, 3600 * MUSTER_NS_PER_S));
    muster_task_post(&task, test.env.loop);
    muster_loop_libevent_arm(ours_of(test.env.loop), 0, 0); /* at once */
    while (count == 0)
        assert_int_equal(event_base_loop(base, EVLOOP_ONCE), 0);
    assert_int_equal(count, 1);
    assert_int_equal(ours_of(test.env.loop)->tick_due_ns, timer.due_ns);
    muster_timer_stop(&timer);
}

/* libevent ends the process (event_err) when it has an epoll and no pair for its signals. */
static void a_loop_without_descriptors_is_an_error_and_not_the_end_of_the_process(void **state)
{
    struct muster_loop *loop = NULL;
    enum muster_rc rc = MUSTER_UNKNOWN;
    struct rlimit before, low;
    rlim_t first, spare = 0;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    first = (rlim_t)dup(STDERR_FILENO);
    close((int)first);
    for (low = before; rc != MUSTER_OK; spare++) {
        low.rlim_cur = first + spare;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        rc = muster_loop_open(muster_mem_system(), NULL, &loop);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
    }
    assert_true(spare > 4); /* an epoll, a pair, a timer */

    muster_loop_close(loop);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_loop_that_cannot_be_opened_leaves_nothing),
        CASE(a_loop_opens_its_base_without_locks_and_ignores_sigpipe),
        CASE(a_process_without_standard_input_has_a_loop),
        CASE(the_tick_of_a_joined_loop_is_early_enough),
        CASE(what_has_moved_is_answered_first_but_not_twice),
        CASE(the_next_turn_is_due_for_what_is_not_seen),
        CASE(a_joined_loop_looks_at_memory_at_each_tick),
        CASE(a_base_that_others_turn_runs_what_is_due),
        CASE(a_loop_without_descriptors_is_an_error_and_not_the_end_of_the_process),
    };

    return cmocka_run_group_tests_name("loop_libevent_joined", tests, NULL, NULL);
}
