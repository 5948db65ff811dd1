/* The real loop: turn order, timers, tasks, descriptors, wake, embedding. */
#include "test_env.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <event2/event.h>

#include "runtime/loop/loop_libevent.h"

static char order[16];

static void note_call(char what)
{
    size_t length = strlen(order);

    assert_true(length + 1 < sizeof(order));
    order[length] = what;
    order[length + 1] = '\0';
}

static void note_timer(struct muster_timer *timer)
{
    note_call(*(const char *)timer->data);
}

static void note_task(struct muster_task *task)
{
    note_call(*(const char *)task->data);
}

static void set_true(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

static int set_up(void **state)
{
    static struct test_env test;

    order[0] = '\0';
    test_env_open(&test);
    *state = &test;
    return 0;
}

static struct muster_loop *loop_of(void **state)
{
    return ((struct test_env *)*state)->env.loop;
}

static struct muster_timer first_started, second_started, first_due;

/* Inside a turn the time stands still: no delay of this process can move a due time into the past.
 */
static void start_three_timers(struct muster_task *task)
{
    struct muster_loop *loop = task->data;
    uint64_t now_ns = muster_loop_now_ns(loop);

    muster_timer_start(&first_started, loop, now_ns + 2000);
    muster_timer_start(&second_started, loop, now_ns + 2000);
    muster_timer_start(&first_due, loop, now_ns + 1000);
}

static void timers_fire_by_due_time_then_start_order(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_task task;

    muster_timer_init(&first_due, note_timer, (char[]){"a"});
    muster_timer_init(&first_started, note_timer, (char[]){"b"});
    muster_timer_init(&second_started, note_timer, (char[]){"c"});
    muster_task_init(&task, start_three_timers, loop);
    muster_task_post(&task, loop);
    while (strlen(order) < 3)
        muster_loop_turn(loop, MUSTER_NS_PER_S);

    assert_string_equal(order, "abc");
    assert_false(muster_timer_is_started(&first_due));
}

static struct muster_task second;

static void post_second(struct muster_task *task)
{
    note_call('1');
    muster_task_post(&second, task->data);
}

static void a_task_posted_in_a_turn_waits_for_the_next(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_task first;

    muster_task_init(&first, post_second, loop);
    muster_task_init(&second, note_task, (char[]){"2"});
    muster_task_post(&first, loop);

    muster_loop_turn(loop, 0);
    assert_string_equal(order, "1");
    muster_loop_turn(loop, UINT64_MAX); /* does not sleep: a task waits */
    assert_string_equal(order, "12");
}

static void start_again(struct muster_timer *timer)
{
    note_call('t');
    muster_timer_start(timer, timer->data, 0);
}

static void a_timer_started_in_the_past_waits_for_the_next_turn(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_timer timer;

    muster_timer_init(&timer, start_again, loop);
    muster_timer_start(&timer, loop, 0);

    muster_loop_turn(loop, 0);
    assert_string_equal(order, "t");
    muster_loop_turn(loop, UINT64_MAX);
    assert_string_equal(order, "tt");
    muster_timer_stop(&timer);
}

static void timers_run_before_tasks(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_timer timer;
    struct muster_task task;

    muster_timer_init(&timer, note_timer, (char[]){"t"});
    muster_task_init(&task, note_task, (char[]){"k"});
    muster_task_post(&task, loop);
    muster_timer_start(&timer, loop, 0);
    muster_loop_turn(loop, 0);

    assert_string_equal(order, "tk");
}

static void a_stopped_timer_and_a_cancelled_task_do_not_run(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_timer timer;
    struct muster_task task;

    muster_timer_init(&timer, note_timer, (char[]){"t"});
    muster_task_init(&task, note_task, (char[]){"k"});
    muster_timer_start(&timer, loop, 0);
    muster_task_post(&task, loop);
    muster_timer_stop(&timer);
    muster_timer_stop(&timer);
    muster_task_cancel(&task);
    muster_task_cancel(&task);
    test_env_turn(*state, 2);

    assert_string_equal(order, "");
}

static void the_clock_stands_still_within_a_turn_and_moves_after_the_poll(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_timer timer;
    bool is_done = false;
    uint64_t due_ns = muster_loop_after_ns(loop, 3 * MUSTER_NS_PER_MS);

    muster_timer_init(&timer, set_true, &is_done);
    muster_timer_start(&timer, loop, due_ns);
    test_env_run_until(*state, test_env_is_true, &is_done);

    assert_true(muster_loop_now_ns(loop) >= due_ns);
    assert_int_equal(muster_loop_after_ns(loop, UINT64_MAX), UINT64_MAX);
}

struct reader {
    struct muster_fd_watch watch;
    bool is_ready;
    unsigned ready;
    uint64_t now_ns;
};

static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    struct reader *reader = watch->data;

    reader->is_ready = true;
    reader->ready = ready;
    reader->now_ns = muster_loop_now_ns(watch->loop);
    muster_fd_watch_close(watch);
}

static void reader_open(struct reader *reader, struct muster_loop *loop, int fd, unsigned wanted)
{
    *reader = (struct reader){
        .watch = {.data = reader, .on_ready = on_ready, .fd = fd, .wanted = wanted},
    };
    assert_int_equal(muster_fd_watch_open(&reader->watch, loop), MUSTER_OK);
}

static void a_readable_descriptor_is_told_and_may_close_its_watch(void **state)
{
    struct reader reader;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    reader_open(&reader, loop_of(state), pair[0], MUSTER_FD_READ);
    test_env_turn(*state, 2);
    assert_false(reader.is_ready);

    assert_int_equal(write(pair[1], "x", 1), 1);
    test_env_run_until(*state, test_env_is_true, &reader.is_ready);

    assert_int_equal(reader.ready, MUSTER_FD_READ);
    close(pair[0]);
    close(pair[1]);
}

static void an_updated_watch_tells_only_what_is_wanted(void **state)
{
    struct reader reader;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    reader_open(&reader, loop_of(state), pair[0], 0);
    test_env_turn(*state, 3);
    assert_false(reader.is_ready);

    muster_fd_watch_update(&reader.watch, MUSTER_FD_WRITE);
    test_env_run_until(*state, test_env_is_true, &reader.is_ready);

    assert_int_equal(reader.ready, MUSTER_FD_WRITE);
    close(pair[0]);
    close(pair[1]);
}

static void closing_the_peer_does_not_kill_with_sigpipe(void **state)
{
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    close(pair[1]);

    assert_int_equal(write(pair[0], "x", 1), -1);
    close(pair[0]);
}

static void on_wake(struct muster_wake *wake)
{
    *(bool *)muster_wake_data(wake) = true;
}

static void *signal_it(void *data)
{
    muster_wake_signal(data);
    return NULL;
}

static void a_wake_from_another_thread_ends_the_poll(void **state)
{
    struct muster_wake *wake = NULL;
    bool is_woken = false;
    pthread_t thread;

    assert_int_equal(muster_wake_open(((struct test_env *)*state)->env.mem, loop_of(state), on_wake,
                                      &is_woken, &wake),
                     MUSTER_OK);
    assert_int_equal(pthread_create(&thread, NULL, signal_it, wake), 0);
    test_env_run_until(*state, test_env_is_true, &is_woken);
    pthread_join(thread, NULL);

    muster_wake_close(wake);
}

static void a_wake_signalled_before_the_turn_is_not_lost(void **state)
{
    struct muster_wake *wake = NULL;
    bool is_woken = false;

    assert_int_equal(muster_wake_open(((struct test_env *)*state)->env.mem, loop_of(state), on_wake,
                                      &is_woken, &wake),
                     MUSTER_OK);
    muster_wake_signal(wake);
    muster_wake_signal(wake);
    muster_loop_turn(loop_of(state), UINT64_MAX);

    assert_true(is_woken);
    is_woken = false;
    muster_loop_turn(loop_of(state), 0); /* signals coalesce */
    assert_false(is_woken);
    muster_wake_close(wake);
}

static void stop_loop(struct muster_timer *timer)
{
    note_call('s');
    muster_loop_stop(timer->data);
}

static void run_returns_after_stop(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_timer timer;

    muster_timer_init(&timer, stop_loop, loop);
    muster_timer_start(&timer, loop, 0);
    muster_loop_run(loop);
    assert_string_equal(order, "s");

    muster_loop_stop(loop); /* before run: not forgotten */
    muster_loop_run(loop);
}

static void a_joined_loop_works_inside_the_callers_base(void **state)
{
    struct muster_mem *mem = ((struct test_env *)*state)->env.mem;
    struct event_base *base = event_base_new();
    struct muster_loop *loop = NULL;
    struct muster_timer timer;
    struct muster_task task;
    struct reader reader;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(muster_loop_open(mem, base, &loop), MUSTER_OK);
    muster_timer_init(&timer, note_timer, (char[]){"t"});
    muster_timer_start(&timer, loop, muster_loop_after_ns(loop, MUSTER_NS_PER_MS));
    muster_task_init(&task, note_task, (char[]){"k"});
    muster_task_post(&task, loop);
    reader_open(&reader, loop, pair[0], MUSTER_FD_READ);
    assert_int_equal(write(pair[1], "x", 1), 1);
    while (strlen(order) < 2 || !reader.is_ready)
        assert_int_equal(event_base_loop(base, EVLOOP_ONCE), 0);

    assert_string_equal(order, "kt");
    muster_loop_close(loop);
    event_base_free(base);
    close(pair[0]);
    close(pair[1]);
}

static void the_descriptor_of_the_loop_tells_when_a_turn_is_needed(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct pollfd poll_fd = {.fd = muster_loop_fd(loop), .events = POLLIN};
    struct reader early, late;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(poll_fd.fd >= 0);
    reader_open(&early, loop, pair[0], MUSTER_FD_READ);
    reader_open(&late, loop, pair[0], MUSTER_FD_READ);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);

    assert_int_equal(write(pair[1], "x", 1), 1);
    assert_int_equal(poll(&poll_fd, 1, 60000), 1);
    muster_loop_turn(loop, 0);

    assert_true(early.is_ready && late.is_ready);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    close(pair[0]);
    close(pair[1]);
}

/* Descriptors that a program would get. */
static unsigned count_inherited(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);

        count += flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    return count;
}

static void no_descriptor_of_a_loop_is_left_to_programs(void **state)
{
    struct muster_mem *mem = ((struct test_env *)*state)->env.mem;
    struct muster_loop *loop = NULL;
    struct muster_wake *early = NULL, *late = NULL;
    unsigned count = count_inherited();
    bool is_awake;

    assert_int_equal(muster_loop_open(mem, NULL, &loop), MUSTER_OK);
    assert_int_equal(muster_wake_open(mem, loop, on_wake, &is_awake, &early), MUSTER_OK);
    assert_true(muster_loop_fd(loop) >= 0);
    assert_int_equal(muster_wake_open(mem, loop, on_wake, &is_awake, &late), MUSTER_OK);
    assert_int_equal(count_inherited(), count);
    muster_wake_close(early);
    muster_wake_close(late);
    muster_loop_close(loop);
}

static uint64_t foreign_now_ns;

static void a_loop_that_expects_something_looks_instead_of_sleeping(void **state)
{
    struct muster_loop *loop = loop_of(state);
    bool has_slept = false;
    struct muster_timer timer;

    muster_timer_init(&timer, set_true, &has_slept);
    muster_timer_start(&timer, loop, muster_loop_after_ns(loop, MUSTER_NS_PER_S));
    (void)muster_loop_event_base(loop); /* for the sake of foreign events it looks once only */
    muster_loop_stay_awake(loop, 60 * MUSTER_NS_PER_S);
    muster_loop_stay_awake(loop, 1); /* the latest counts */

    muster_loop_turn(loop, UINT64_MAX); /* asleep it would return when the timer is due … */
    muster_loop_turn(loop, 0);          /* … and this turn would run it */
    assert_false(has_slept);
    muster_timer_stop(&timer);
}

static void who_looks_waits_no_shorter_and_no_longer(void **state)
{
    struct muster_loop *loop = loop_of(state);
    bool is_due = false;
    struct muster_timer timer;
    uint64_t begin_ns;

    muster_timer_init(&timer, set_true, &is_due);
    muster_timer_start(&timer, loop, muster_loop_after_ns(loop, 5 * MUSTER_NS_PER_MS));
    muster_loop_stay_awake(loop, 60 * MUSTER_NS_PER_S);
    muster_loop_turn(loop, UINT64_MAX); /* until the timer is due … */
    muster_loop_turn(loop, 0);          /* … which this turn sees */
    assert_true(is_due);

    begin_ns = muster_loop_now_ns(loop);
    muster_loop_turn(loop, MUSTER_NS_PER_MS);
    muster_loop_turn(loop, MUSTER_NS_PER_MS); /* the first may leave the poll to the second */
    assert_true(muster_loop_now_ns(loop) - begin_ns >= MUSTER_NS_PER_MS);
}

static void a_descriptor_is_told_to_who_looks(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct reader reader;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    reader_open(&reader, loop, pair[0], MUSTER_FD_READ);
    assert_int_equal(write(pair[1], "x", 1), 1);
    muster_loop_stay_awake(loop, UINT64_MAX);

    muster_loop_turn(loop, UINT64_MAX);
    assert_true(reader.is_ready);
    close(pair[0]);
    close(pair[1]);
}

/* A timer of the system makes the descriptor readable: the loop does not know how long it waits. */
static void a_descriptor_sees_the_time_after_the_wait(void **state)
{
    static const uint64_t awake_ns[] = {0, 60 * MUSTER_NS_PER_S}; /* it sleeps, or it looks */
    struct muster_loop *loop = loop_of(state);

    for (size_t i = 0; i < sizeof(awake_ns) / sizeof(awake_ns[0]); i++) {
        const struct itimerspec delay = {.it_value = {.tv_nsec = 3 * 1000 * 1000}};
        struct reader reader;
        int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        uint64_t start_ns;

        assert_true(fd >= 0);
        reader_open(&reader, loop, fd, MUSTER_FD_READ);
        muster_loop_stay_awake(loop, awake_ns[i]);
        muster_loop_turn(loop, 0);
        start_ns = muster_loop_clock_ns(loop);
        assert_int_equal(timerfd_settime(fd, 0, &delay, NULL), 0);
        while (!reader.is_ready)
            muster_loop_turn(loop, UINT64_MAX);

        assert_true(reader.now_ns >= start_ns + 3 * MUSTER_NS_PER_MS);
        close(fd);
    }
}

static void a_loop_in_the_background_sleeps_whatever_it_expects(void **state)
{
    struct muster_loop *loop = loop_of(state);
    bool has_slept = false;
    struct muster_timer timer;

    muster_timer_init(&timer, set_true, &has_slept);
    muster_timer_start(&timer, loop, muster_loop_after_ns(loop, 20 * MUSTER_NS_PER_MS));
    (void)muster_loop_event_base(loop);
    muster_loop_set_background(loop, true);
    muster_loop_stay_awake(loop, 60 * MUSTER_NS_PER_S);

    muster_loop_turn(loop, UINT64_MAX);
    muster_loop_turn(loop, 0);
    assert_true(has_slept);
}

static void on_foreign(evutil_socket_t fd, short events, void *data)
{
    struct muster_loop *loop = data;

    (void)fd;
    (void)events;
    foreign_now_ns = muster_loop_now_ns(loop);
    note_call('f');
}

static void a_foreign_event_sees_the_time_after_the_poll(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct timeval delay = {.tv_usec = 3000};
    uint64_t start_ns = muster_loop_now_ns(loop);
    struct event *foreign = evtimer_new(muster_loop_event_base(loop), on_foreign, loop);

    assert_true(muster_loop_next_due_ns(loop) <= start_ns + MUSTER_NS_PER_S);
    evtimer_add(foreign, &delay);
    while (strlen(order) == 0)
        muster_loop_turn(loop, UINT64_MAX);
    assert_true(foreign_now_ns >= start_ns + 3 * MUSTER_NS_PER_MS);

    event_free(foreign);
}

static void next_due_names_the_first_timer_or_now_for_tasks(void **state)
{
    struct muster_loop *loop = loop_of(state);
    struct muster_timer timer;
    struct muster_task task;
    uint64_t due_ns = muster_loop_after_ns(loop, MUSTER_NS_PER_S);

    assert_int_equal(muster_loop_next_due_ns(loop), UINT64_MAX);
    assert_int_equal(muster_loop_wait_ms(loop), -1);
    muster_timer_init(&timer, note_timer, (char[]){"t"});
    muster_timer_start(&timer, loop, due_ns);
    assert_int_equal(muster_loop_next_due_ns(loop), due_ns);
    assert_in_range(muster_loop_wait_ms(loop), 1, 1000);
    muster_task_init(&task, note_task, (char[]){"k"});
    muster_task_post(&task, loop);
    assert_int_equal(muster_loop_next_due_ns(loop), 0);
    assert_int_equal(muster_loop_wait_ms(loop), 0);

    muster_task_cancel(&task);
    muster_timer_stop(&timer);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(timers_fire_by_due_time_then_start_order),
        CASE(a_task_posted_in_a_turn_waits_for_the_next),
        CASE(a_timer_started_in_the_past_waits_for_the_next_turn),
        CASE(timers_run_before_tasks),
        CASE(a_stopped_timer_and_a_cancelled_task_do_not_run),
        CASE(the_clock_stands_still_within_a_turn_and_moves_after_the_poll),
        CASE(a_readable_descriptor_is_told_and_may_close_its_watch),
        CASE(an_updated_watch_tells_only_what_is_wanted),
        CASE(closing_the_peer_does_not_kill_with_sigpipe),
        CASE(a_wake_from_another_thread_ends_the_poll),
        CASE(a_wake_signalled_before_the_turn_is_not_lost),
        CASE(run_returns_after_stop),
        CASE(a_joined_loop_works_inside_the_callers_base),
        CASE(the_descriptor_of_the_loop_tells_when_a_turn_is_needed),
        CASE(no_descriptor_of_a_loop_is_left_to_programs),
        CASE(a_loop_that_expects_something_looks_instead_of_sleeping),
        CASE(who_looks_waits_no_shorter_and_no_longer),
        CASE(a_descriptor_is_told_to_who_looks),
        CASE(a_descriptor_sees_the_time_after_the_wait),
        CASE(a_loop_in_the_background_sleeps_whatever_it_expects),
        CASE(a_foreign_event_sees_the_time_after_the_poll),
        CASE(next_due_names_the_first_timer_or_now_for_tasks),
    };

    return cmocka_run_group_tests_name("loop_libevent", cases, NULL, NULL);
}
