/* Loops that look at memory: what ends a turn, when they sleep, when they let others run. */
#include "test_env.h"

#include <event2/event.h>
#include <unistd.h>

#include <muster/poller.h>

#include "runtime/loop_poll.h"

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

static struct muster_loop *loop_of(void **state)
{
    return ((struct test_env *)*state)->env.loop;
}

/* A slot that moves at a chosen look, and what the loop has told of its sleep. */
struct slot {
    struct muster_poller poller;
    unsigned look_count;
    unsigned moves_at; /* 0: never */
    unsigned asleep_count, awake_count;
    bool moves_when_told; /* the writer comes between the announcement and the sleep */
    bool stops_itself;
};

static bool look(struct muster_poller *poller)
{
    struct slot *slot = poller->data;

    slot->look_count++;
    if (slot->moves_at == 0 || slot->look_count < slot->moves_at)
        return false;
    slot->moves_at = 0;
    if (slot->stops_itself)
        muster_poller_stop(poller);
    return true;
}

static void told(struct muster_poller *poller, bool is_asleep)
{
    struct slot *slot = poller->data;

    if (is_asleep)
        slot->asleep_count++;
    else
        slot->awake_count++;
    if (is_asleep && slot->moves_when_told)
        slot->moves_at = slot->look_count + 1;
}

static void slot_start(struct slot *slot, struct muster_loop *loop)
{
    slot->poller = (struct muster_poller){.data = slot, .on_poll = look, .on_sleep = told};
    muster_poller_start(&slot->poller, loop);
}

static void a_move_ends_the_turn(void **state)
{
    struct slot slot = {.moves_at = 5};

    slot_start(&slot, loop_of(state));
    while (slot.moves_at != 0)
        muster_loop_turn(loop_of(state), UINT64_MAX);

    assert_int_equal(slot.look_count, 5);
    muster_poller_stop(&slot.poller);
    assert_false(muster_poller_is_started(&slot.poller));
}

static void a_stopped_poller_is_not_looked_at(void **state)
{
    struct slot slot = {.moves_at = 0};

    slot_start(&slot, loop_of(state));
    muster_poller_start(&slot.poller, loop_of(state)); /* no-op */
    muster_poller_stop(&slot.poller);
    muster_poller_stop(&slot.poller);
    muster_loop_turn(loop_of(state), 0);

    assert_int_equal(slot.look_count, 0);
}

static void a_poller_may_stop_itself_when_it_moves(void **state)
{
    struct slot first = {.moves_at = 1, .stops_itself = true}, second = {.moves_at = 1};

    slot_start(&first, loop_of(state));
    slot_start(&second, loop_of(state));
    muster_loop_turn(loop_of(state), UINT64_MAX);
    muster_loop_turn(loop_of(state), UINT64_MAX);

    assert_false(muster_poller_is_started(&first.poller));
    assert_int_equal(first.look_count, 1);
    assert_int_equal(second.moves_at, 0);
    muster_poller_stop(&second.poller);
}

static void a_busy_poller_does_not_starve_another(void **state)
{
    struct slot busy = {.moves_at = 1}, other = {.moves_at = 0};

    slot_start(&busy, loop_of(state));
    slot_start(&other, loop_of(state));
    for (unsigned i = 0; i < 10; i++) {
        busy.moves_at = 1;
        muster_loop_turn(loop_of(state), UINT64_MAX);
    }

    assert_true(other.look_count >= 9);
    muster_poller_stop(&busy.poller);
    muster_poller_stop(&other.poller);
}

static void a_quiet_loop_sleeps_and_looks_again(void **state)
{
    struct slot slot = {.moves_at = 0};

    slot_start(&slot, loop_of(state));
    while (slot.asleep_count < 3)
        muster_loop_turn(loop_of(state), UINT64_MAX);

    assert_int_equal(slot.awake_count, slot.asleep_count);
    assert_true(slot.look_count > 3);
    muster_poller_stop(&slot.poller);
}

static void a_loop_in_the_background_sleeps_at_once(void **state)
{
    struct slot slot = {.moves_at = 0};

    slot_start(&slot, loop_of(state));
    muster_loop_set_background(loop_of(state), true);
    muster_loop_turn(loop_of(state), UINT64_MAX);
    muster_loop_set_background(loop_of(state), false);

    assert_int_equal(slot.asleep_count, 1);
    assert_true(slot.look_count <= 3);
    muster_poller_stop(&slot.poller);
}

static void what_comes_before_the_sleep_is_seen(void **state)
{
    struct slot slot = {.moves_when_told = true};
    unsigned looks;

    slot_start(&slot, loop_of(state));
    muster_loop_set_background(loop_of(state), true);
    looks = slot.look_count;
    muster_loop_turn(loop_of(state), UINT64_MAX);
    muster_loop_set_background(loop_of(state), false);

    assert_int_equal(slot.look_count, looks + 2); /* in the turn, and after the announcement */
    assert_int_equal(slot.awake_count, 1);
    muster_poller_stop(&slot.poller);
}

static void on_readable(struct muster_fd_watch *watch, unsigned ready)
{
    char byte;

    assert_true((ready & MUSTER_FD_READ) != 0);
    assert_int_equal(read(watch->fd, &byte, 1), 1);
    *(bool *)watch->data = true;
}

static void descriptors_are_seen_beside_a_busy_poller(void **state)
{
    struct slot slot = {.moves_at = 0};
    bool is_read = false;
    struct muster_fd_watch watch = {
        .data = &is_read, .on_ready = on_readable, .wanted = MUSTER_FD_READ};
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    watch.fd = ends[0];
    assert_int_equal(muster_fd_watch_open(&watch, loop_of(state)), MUSTER_OK);
    slot_start(&slot, loop_of(state));
    assert_int_equal(write(ends[1], "x", 1), 1);
    for (uint64_t i = 0; i < 10000000 && !is_read; i++) {
        slot.moves_at = 1; /* moves at every look */
        muster_loop_turn(loop_of(state), UINT64_MAX);
    }

    assert_true(is_read);
    muster_poller_stop(&slot.poller);
    muster_fd_watch_close(&watch);
    close(ends[0]);
    close(ends[1]);
}

static void mark(struct muster_task *task)
{
    *(bool *)task->data = true;
}

static void tasks_and_timers_run_beside_a_busy_poller(void **state)
{
    struct slot slot = {.moves_at = 1};
    bool is_run = false;
    struct muster_task task;

    slot_start(&slot, loop_of(state));
    muster_task_init(&task, mark, &is_run);
    muster_task_post(&task, loop_of(state));
    muster_loop_turn(loop_of(state), UINT64_MAX);

    assert_true(is_run);
    muster_poller_stop(&slot.poller);
}

static void a_joined_loop_looks_from_its_tick(void **state)
{
    struct test_env *test = *state;
    struct event_base *base = event_base_new();
    struct slot slot = {.moves_at = 3};
    struct muster_loop *loop = NULL;

    assert_int_equal(muster_loop_open(test->env.mem, base, &loop), MUSTER_OK);
    slot_start(&slot, loop);
    while (slot.moves_at != 0)
        event_base_loop(base, EVLOOP_ONCE);

    assert_int_equal(slot.look_count, 3);
    muster_poller_stop(&slot.poller);
    muster_loop_close(loop);
    event_base_free(base);
}

static void whose_loop_is_turned_elsewhere_learns_when(void **state)
{
    struct slot slot = {.moves_at = 0};

    assert_int_equal(muster_loop_next_due_ns(loop_of(state)), UINT64_MAX);
    slot_start(&slot, loop_of(state));
    assert_true(muster_loop_next_due_ns(loop_of(state)) < UINT64_MAX);
    muster_poller_stop(&slot.poller);
}

/* --- The policy, on a clock that advances by 100 ns when it is read --- */

static uint64_t clock_value;
static unsigned clock_count;

static uint64_t read_clock(void)
{
    clock_count++;
    return clock_value += 100;
}

static void poll_open(struct muster_loop_poll *poll, struct slot *slot)
{
    clock_value = MUSTER_NS_PER_S;
    clock_count = 0;
    muster_loop_poll_init(poll);
    muster_loop_poll_moved(poll, clock_value);
    poll->descriptors_due_ns = UINT64_MAX;
    slot->poller = (struct muster_poller){.data = slot, .on_poll = look};
    muster_list_append(&poll->pollers, &slot->poller.node);
}

static void in_a_crowd_others_run_after_two_looks(void **state)
{
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 11};
    uint64_t now_ns;

    (void)state;
    poll_open(&poll, &slot);
    muster_loop_poll_set_crowd(&poll, 1000000);
    now_ns = clock_value;

    assert_true(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
    assert_int_equal(clock_count, 5); /* a yield and the clock after each two looks */
}

static void with_a_processor_each_it_looks_on(void **state)
{
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 101};
    uint64_t now_ns;

    (void)state;
    poll_open(&poll, &slot);
    muster_loop_poll_set_crowd(&poll, 1);
    now_ns = clock_value;

    assert_true(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
    assert_int_equal(clock_count, 0);
}

static void looking_ends_for_descriptors_and_for_the_caller(void **state)
{
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};
    uint64_t now_ns;

    (void)state;
    poll_open(&poll, &slot);
    now_ns = clock_value;
    poll.descriptors_due_ns = clock_value + 1000;
    assert_false(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
    assert_true(now_ns >= poll.descriptors_due_ns && now_ns < poll.descriptors_due_ns + 200);
    poll.descriptors_due_ns = UINT64_MAX;
    assert_false(muster_loop_poll_spin(&poll, now_ns + 500, read_clock, &now_ns));
    assert_false(muster_loop_poll_is_tired(&poll, now_ns));
}

static void looking_in_vain_gets_shorter_until_something_moves(void **state)
{
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};
    uint64_t now_ns, start_ns;

    (void)state;
    poll_open(&poll, &slot);
    for (int i = 0; i < 10; i++)
        muster_loop_poll_slept(&poll);
    now_ns = start_ns = clock_value;
    assert_false(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
    assert_true(now_ns - start_ns <= MUSTER_LOOP_EAGER_MIN_NS);

    muster_loop_poll_moved(&poll, now_ns);
    assert_false(muster_loop_poll_is_tired(&poll, now_ns + MUSTER_LOOP_EAGER_NS - 1));
    assert_true(muster_loop_poll_is_tired(&poll, now_ns + MUSTER_LOOP_EAGER_NS));
}

static void who_comes_back_after_computing_is_not_tired(void **state)
{
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};

    (void)state;
    poll_open(&poll, &slot);
    poll.turn_ns = clock_value;
    clock_value += MUSTER_NS_PER_S;
    assert_true(muster_loop_poll_is_tired(&poll, clock_value));
    muster_loop_poll_begin(&poll, clock_value);
    assert_false(muster_loop_poll_is_tired(&poll, clock_value));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_move_ends_the_turn),
        CASE(a_stopped_poller_is_not_looked_at),
        CASE(a_poller_may_stop_itself_when_it_moves),
        CASE(a_busy_poller_does_not_starve_another),
        CASE(a_quiet_loop_sleeps_and_looks_again),
        CASE(a_loop_in_the_background_sleeps_at_once),
        CASE(what_comes_before_the_sleep_is_seen),
        CASE(descriptors_are_seen_beside_a_busy_poller),
        CASE(tasks_and_timers_run_beside_a_busy_poller),
        CASE(a_joined_loop_looks_from_its_tick),
        CASE(whose_loop_is_turned_elsewhere_learns_when),
        cmocka_unit_test(in_a_crowd_others_run_after_two_looks),
        cmocka_unit_test(with_a_processor_each_it_looks_on),
        cmocka_unit_test(looking_ends_for_descriptors_and_for_the_caller),
        cmocka_unit_test(looking_in_vain_gets_shorter_until_something_moves),
        cmocka_unit_test(who_comes_back_after_computing_is_not_tired),
    };

    return cmocka_run_group_tests_name("loop_poll", cases, NULL, NULL);
}
