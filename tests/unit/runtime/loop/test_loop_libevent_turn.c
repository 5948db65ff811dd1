/* The calls to the kernel and to libevent that a turn of the real loop makes, in order: the clock,
 * the timer's descriptor, the poll and the scheduler are played. */
#include "runtime/loop/loop_libevent_internal.h"
#include "test_env.h"

#include <dlfcn.h>
#include <sched.h>
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

/* The notes: "a70" the timer is set, 70 us from the start ("a-": off), "L" a look at the
 * descriptors, "S" a sleep, "y" a yield, "u" the count of switches, "z" and "w" the pollers are
 * told of a sleep and its end. */
static struct {
    bool is_on;
    struct libevent_loop *loop;
    char told[256];
    uint64_t now_ns, armed_ns;
    uint64_t step_ns;  /* a look at the clock takes so long */
    uint64_t yield_ns; /* a yield */
    uint64_t sleep_ns; /* an event ends a sleep then; 0: the timer does */
    unsigned moves_at; /* the look from now on that finds something; 0: none */
    bool asks_time;    /* what it finds */
    uint64_t moved_ns; /* the loop's time there */
    long switch_count; /* of the thread, and so many more at each yield */
    long switches;
    bool is_usage_unknown;
} machine;

static void note_call(const char *what)
{
    assert_true(strlen(machine.told) + strlen(what) < sizeof(machine.told));
    strcat(machine.told, what);
}

static void check_told(const char *expected)
{
    char told[sizeof(machine.told)];

    (void)strcpy(told, machine.told);
    machine.told[0] = '\0';
    assert_string_equal(told, expected);
}

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    if (!machine.is_on || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, ret_now);
    machine.now_ns += machine.step_ns;
    ret_now->tv_sec = (time_t)(machine.now_ns / MUSTER_NS_PER_S);
    ret_now->tv_nsec = (long)(machine.now_ns % MUSTER_NS_PER_S);
    return 0;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *spec, struct itimerspec *ret_old)
{
    char text[32] = "a-";

    if (!machine.is_on)
        return (int)syscall(SYS_timerfd_settime, fd, flags, spec, ret_old);
    assert_int_equal(fd, machine.loop->tick_fd);
    assert_int_equal(flags, TFD_TIMER_ABSTIME);
    assert_int_equal(spec->it_interval.tv_sec | spec->it_interval.tv_nsec, 0);
    machine.armed_ns =
        (uint64_t)spec->it_value.tv_sec * MUSTER_NS_PER_S + (uint64_t)spec->it_value.tv_nsec;
    if (machine.armed_ns != 0)
        snprintf(text, sizeof(text), "a%g", (double)(machine.armed_ns - START_NS) / 1000);
    note_call(text);
    return 0;
}

int event_base_loop(struct event_base *base, int flags)
{
    bool is_sleep = flags == (EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY);
    uint64_t wake_ns = machine.armed_ns;

    if (!machine.is_on)
        return ((int (*)(struct event_base *, int))(uintptr_t)dlsym(RTLD_NEXT, "event_base_loop"))(
            base, flags);
    if (!is_sleep)
        assert_int_equal(flags, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    note_call(is_sleep ? "S" : "L");
    if (machine.moves_at > 0 && --machine.moves_at == 0) {
        machine.loop->has_moved = true;
        if (machine.asks_time)
            machine.moved_ns = muster_loop_now_ns(&machine.loop->loop);
    }
    if (!is_sleep)
        return 0;
    if (machine.sleep_ns != 0) {
        machine.now_ns += machine.sleep_ns;
    } else if (wake_ns != 0) { /* as on_tick */
        machine.now_ns = wake_ns > machine.now_ns ? wake_ns : machine.now_ns;
        machine.armed_ns = 0;
        machine.loop->tick_due_ns = UINT64_MAX;
        machine.loop->has_moved = true;
    }
    return 0;
}

int sched_yield(void)
{
    note_call("y");
    machine.now_ns += machine.yield_ns;
    machine.switch_count += machine.switches;
    return 0;
}

int getrusage(__rusage_who_t who, struct rusage *ret_usage)
{
    if (!machine.is_on)
        return (int)syscall(SYS_getrusage, who, ret_usage);
    assert_int_equal(who, RUSAGE_THREAD);
    note_call("u");
    ret_usage->ru_nivcsw = machine.switch_count;
    return machine.is_usage_unknown ? -1 : 0;
}

static struct test_env test;

static int set_up(void **state)
{
    (void)state;
    memset(&machine, 0, sizeof(machine));
    test_env_open(&test);
    machine.loop = ours_of(test.env.loop);
    machine.now_ns = START_NS;
    machine.is_on = true;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    machine.is_on = false;
    test_env_close(&test);
    return 0;
}

static void run_turn(uint64_t wait_ns, const char *expected)
{
    muster_loop_turn(test.env.loop, wait_ns);
    assert_false(machine.loop->is_in_turn);
    check_told(expected);
}

static void on_expire(struct muster_timer *timer)
{
    if (timer->data != NULL)
        ++*(unsigned *)timer->data;
}

static void on_run(struct muster_task *task)
{
    if (task->data != NULL) /* a timer to start */
        muster_timer_start(task->data, test.env.loop, 0);
}

static void a_turn_sleeps_until_the_first_thing_is_due(void **state)
{
    unsigned count = 0;
    struct muster_timer timer;

    (void)state;
    muster_timer_init(&timer, on_expire, &count);
    run_turn(0, "L");
    run_turn(5 * US, "a5S");
    assert_int_equal(machine.now_ns, START_NS + 5 * US);
    run_turn(UINT64_MAX, "S");

    muster_timer_start(&timer, test.env.loop, START_NS + 70 * US);
    run_turn(5 * US, "a10S");
    run_turn(UINT64_MAX, "a70S");
    run_turn(UINT64_MAX, ""); /* it has run, so the caller looks */
    assert_int_equal(count, 1);
    run_turn(UINT64_MAX, "S");

    muster_timer_start(&timer, test.env.loop, START_NS + 80 * US);
    machine.sleep_ns = US;
    run_turn(UINT64_MAX, "a80S");
    run_turn(UINT64_MAX, "S"); /* it is set */
    muster_timer_stop(&timer);
    run_turn(UINT64_MAX, "a-S");
    run_turn(0, "L");
}

static void who_has_work_leaves_the_poll_out_once(void **state)
{
    struct muster_timer timer;
    struct muster_task task;

    (void)state;
    muster_timer_init(&timer, on_expire, NULL);
    muster_task_init(&task, on_run, NULL);
    for (unsigned i = 0; i < 3; i++) {
        muster_task_post(&task, test.env.loop);
        run_turn(UINT64_MAX, "");
        muster_task_post(&task, test.env.loop);
        run_turn(UINT64_MAX, "L"); /* never twice in a row */
    }
    muster_task_post(&task, test.env.loop);
    run_turn(0, "L"); /* who does not wait has come to look */
    muster_task_post(&task, test.env.loop);
    run_turn(1, "");
    run_turn(UINT64_MAX, "S");

    task.data = &timer; /* something is due at once */
    muster_task_post(&task, test.env.loop);
    run_turn(UINT64_MAX, "L");
    run_turn(UINT64_MAX, "");
    muster_loop_stop(test.env.loop);
    run_turn(UINT64_MAX, "L");
    machine.loop->is_stopped = false;
}

static void who_expects_something_looks_instead_of_sleeping(void **state)
{
    (void)state;
    machine.yield_ns = US;
    muster_loop_stay_awake(test.env.loop, 3 * US);
    muster_loop_stay_awake(test.env.loop, 2 * US); /* the latest counts */
    run_turn(UINT64_MAX, "uyLyLyLS");
    run_turn(UINT64_MAX, "S");

    muster_loop_stay_awake(test.env.loop, 10 * US);
    run_turn(2 * US, "uyLyL"); /* no longer than it would sleep */
    machine.moves_at = 2;
    run_turn(UINT64_MAX, "uyLyL");
    muster_loop_set_background(test.env.loop, true);
    run_turn(2 * US, "a9S");
    muster_loop_set_background(test.env.loop, false);
    (void)muster_loop_event_base(test.env.loop); /* what is foreign is not seen */
    run_turn(UINT64_MAX, "uyL");
    run_turn(0, "L");
}

/* A deadline that is set there would begin in the past. */
static void what_comes_while_it_is_awake_finds_the_time_of_that_look(void **state)
{
    (void)state;
    machine.yield_ns = US;
    muster_loop_stay_awake(test.env.loop, 10 * US);
    machine.moves_at = 3;
    machine.asks_time = true;
    run_turn(UINT64_MAX, "uyLyLyL");

    assert_int_equal(machine.moved_ns, START_NS + 3 * US);
}

static void who_takes_the_processor_from_others_sleeps_for_a_while(void **state)
{
    /* Each time twice as long while it happens again and again, up to 10 ms. */
    static const unsigned parked_us[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    struct libevent_loop *loop = machine.loop;

    (void)state;
    machine.sleep_ns = US;
    machine.yield_ns = 2 * US + 1;
    muster_loop_stay_awake(test.env.loop, UINT64_MAX);
    for (size_t i = 0; i < sizeof(parked_us) / sizeof(parked_us[0]); i++) {
        machine.switches = 1;
        run_turn(UINT64_MAX, "uyuLS");
        assert_int_equal(loop->parked_until_ns + US - machine.now_ns, parked_us[i] * US);
        machine.now_ns = loop->parked_until_ns - 1;
        run_turn(UINT64_MAX, "S");
        machine.now_ns = loop->parked_until_ns;
        machine.switches = 0;
        run_turn(3 * US, "uyuLyuL"); /* back late, but nobody has run */
        machine.now_ns = loop->parked_until_ns + 2 * loop->parked_ns - machine.yield_ns - 1;
    }
    machine.now_ns += 1; /* not again, but anew */
    machine.switches = 1;
    run_turn(UINT64_MAX, "uyuLS");
    assert_int_equal(loop->parked_ns, 100 * US);
}

static void who_cannot_tell_whether_others_have_run_stays_awake(void **state)
{
    static const struct {
        uint64_t yield_ns;
        bool is_crowd, is_usage_unknown;
        const char *told;
    } rows[] = {
        {2 * US, false, false, "uyLyL"},      /* in time */
        {2 * US + 1, false, true, "uyuLyuL"}, /* no count */
        {2 * US + 1, true, false, "yLyL"},    /* known to be too many */
    };

    (void)state;
    machine.switches = 1;
    muster_loop_stay_awake(test.env.loop, UINT64_MAX);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        machine.yield_ns = rows[i].yield_ns;
        machine.is_usage_unknown = rows[i].is_usage_unknown;
        muster_loop_set_crowd(test.env.loop, rows[i].is_crowd ? UINT32_MAX : 0);
        run_turn(4 * US, rows[i].told);
    }
}

/* --- Memory that others write --- */

struct slot {
    struct muster_poller poller;
    unsigned look_count, moves_at; /* the look at which it moves; 0: never */
};

static bool look_once(struct muster_poller *poller)
{
    struct slot *slot = poller->data;

    return ++slot->look_count == slot->moves_at;
}

static void on_sleep(struct muster_poller *poller, bool is_asleep)
{
    (void)poller;
    note_call(is_asleep ? "z" : "w");
}

static void slot_start(struct slot *slot)
{
    *slot = (struct slot){.poller = {.data = slot, .on_poll = look_once, .on_sleep = on_sleep}};
    muster_poller_start(&slot->poller, test.env.loop);
}

/* The slot moves at the look from now on. */
static void slot_move(struct slot *slot, unsigned at)
{
    slot->look_count = 0;
    slot->moves_at = at;
}

#define TEN "yyyyyyyyyyL" /* others are let run instead of the clock being read */

/* A look at the clock, after 128 looks at memory, takes 1 us. Every 10 us the descriptors are looked at; after
 * 200 us, then less and less, it sleeps, for 200 us at most. */
static void memory_is_looked_at_until_looking_does_not_pay(void **state)
{
    struct libevent_loop *loop = machine.loop;
    struct slot slot;

    (void)state;
    machine.step_ns = US;
    slot_start(&slot);
    assert_int_equal(loop->poll.moved_ns, machine.now_ns);
    run_turn(UINT64_MAX,
             "LLLLLyyyyyL" TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "za402Sw");
    assert_int_equal(loop->poll.turn_ns, loop->now_ns);
    assert_int_equal(loop->poll.eager_ns, 100 * US);
    run_turn(UINT64_MAX, "za604Sw"); /* nothing has moved since */
    assert_int_equal(loop->poll.eager_ns, 50 * US);
    machine.now_ns += 60 * US; /* the caller has computed: something is expected */
    run_turn(20 * US, "LL");

    slot_move(&slot, 300); /* 1, 128, 128 and 43 */
    run_turn(UINT64_MAX, "L");
    assert_int_equal(loop->poll.moved_ns, machine.now_ns);
    assert_int_equal(loop->poll.eager_ns, 200 * US);
    assert_int_equal(slot.look_count, 300);
    muster_poller_stop(&slot.poller);
}

static void who_sleeps_says_so_and_looks_once_more(void **state)
{
    struct libevent_loop *loop = machine.loop;
    struct slot slot;

    (void)state;
    muster_loop_set_background(test.env.loop, true);
    slot_start(&slot);
    run_turn(UINT64_MAX, "za200Sw");
    assert_int_equal(slot.look_count, 3); /* in the turn, before the sleep and after it */
    assert_int_equal(loop->poll.descriptors_due_ns, machine.now_ns + 10 * US);
    run_turn(50 * US, "za250Sw"); /* no longer than the caller wants */

    loop->poll.moved_ns = 0;
    slot_move(&slot, 2); /* as it is told: it does not sleep */
    run_turn(UINT64_MAX, "zw");
    assert_int_equal(loop->poll.moved_ns, machine.now_ns);
    loop->poll.moved_ns = 0;
    slot_move(&slot, 3); /* while it sleeps */
    run_turn(UINT64_MAX, "za450Sw");
    assert_int_equal(loop->poll.moved_ns, machine.now_ns);
    loop->poll.moved_ns = 0;
    slot_move(&slot, 0);
    run_turn(UINT64_MAX, "za650Sw");
    assert_int_equal(loop->poll.moved_ns, 0);
    muster_poller_stop(&slot.poller);
}

static void what_moves_ends_the_turn_and_descriptors_are_not_forgotten(void **state)
{
    struct libevent_loop *loop = machine.loop;
    struct muster_task task;
    struct slot slot;

    (void)state;
    muster_task_init(&task, on_run, NULL);
    slot_start(&slot);
    slot_move(&slot, 1);
    run_turn(UINT64_MAX, "L"); /* for the first time */
    assert_int_equal(loop->poll.descriptors_due_ns, machine.now_ns + 10 * US);
    slot_move(&slot, 1);
    run_turn(UINT64_MAX, "");
    slot_move(&slot, 1);
    run_turn(0, "L"); /* who does not wait has come to look */
    machine.now_ns += 10 * US - 1;
    slot_move(&slot, 1);
    run_turn(UINT64_MAX, "");
    machine.now_ns += 1;
    slot_move(&slot, 1);
    run_turn(UINT64_MAX, "L");

    muster_task_post(&task, test.env.loop); /* work is a move, too */
    loop->poll.moved_ns = 0;
    run_turn(UINT64_MAX, "");
    assert_int_equal(loop->poll.moved_ns, machine.now_ns);
    assert_int_equal(loop->poll.turn_ns, machine.now_ns);
    muster_loop_stop(test.env.loop);
    run_turn(UINT64_MAX, "");
    loop->is_stopped = false;
    run_turn(0, "L");

    machine.step_ns = US;
    machine.moves_at = 2; /* a descriptor */
    run_turn(UINT64_MAX, "LL");
    assert_int_equal(loop->poll.moved_ns, machine.now_ns);
    (void)muster_loop_event_base(test.env.loop); /* what is foreign is not seen */
    run_turn(UINT64_MAX, "L");
    muster_poller_stop(&slot.poller);
}

static void a_turn_that_polls_ends_when_something_is_due(void **state)
{
    struct muster_timer timer;
    unsigned count = 0;
    struct slot slot;

    (void)state;
    machine.step_ns = US;
    slot_start(&slot);
    muster_timer_init(&timer, on_expire, &count);
    muster_timer_start(&timer, test.env.loop, START_NS + 35 * US);
    run_turn(UINT64_MAX, "LLL");
    assert_int_equal(machine.now_ns, START_NS + 35 * US);
    assert_int_equal(count, 0);
    run_turn(UINT64_MAX, "");
    assert_int_equal(count, 1);
    muster_poller_stop(&slot.poller);
}

static void on_close(struct muster_task *task)
{
    unsigned *left = task->data;

    if (--*left > 0)
        muster_task_post(task, test.env.loop);
}

static void closings_that_follow_each_other_get_their_turns_at_once(void **state)
{
    struct muster_task task;
    unsigned left = 8;

    (void)state;
    muster_task_init(&task, on_close, &left);
    muster_task_post(&task, test.env.loop);
    muster_loop_turn_closing(test.env.loop);
    assert_int_equal(left, 0);
    check_told("LLLLLLLL"); /* it looks at descriptors, and never sleeps */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_turn_sleeps_until_the_first_thing_is_due),
        CASE(who_has_work_leaves_the_poll_out_once),
        CASE(who_expects_something_looks_instead_of_sleeping),
        CASE(what_comes_while_it_is_awake_finds_the_time_of_that_look),
        CASE(who_takes_the_processor_from_others_sleeps_for_a_while),
        CASE(who_cannot_tell_whether_others_have_run_stays_awake),
        CASE(memory_is_looked_at_until_looking_does_not_pay),
        CASE(who_sleeps_says_so_and_looks_once_more),
        CASE(what_moves_ends_the_turn_and_descriptors_are_not_forgotten),
        CASE(a_turn_that_polls_ends_when_something_is_due),
        CASE(closings_that_follow_each_other_get_their_turns_at_once),
    };

    return cmocka_run_group_tests_name("loop_libevent_turn", tests, NULL, NULL);
}
