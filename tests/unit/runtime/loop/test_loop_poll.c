/* Loops that look at memory: what ends a turn, when they sleep, when they let others run. */
#include "test_env.h"
#include "uninstrumented.h"

#include <dlfcn.h>
#include <event2/event.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include <muster/loop.h>

#include "runtime/loop/loop_poll.h"

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

static bool slot_look(struct muster_poller *poller)
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

static void slot_told(struct muster_poller *poller, bool is_asleep)
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
    slot->poller = (struct muster_poller){
        .data = slot, .on_poll = slot_look, .on_sleep = slot_told};
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

static void mark_done(struct muster_task *task)
{
    *(bool *)task->data = true;
}

static void tasks_and_timers_run_beside_a_busy_poller(void **state)
{
    struct slot slot = {.moves_at = 1};
    bool is_run = false;
    struct muster_task task;

    slot_start(&slot, loop_of(state));
    muster_task_init(&task, mark_done, &is_run);
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

/* --- The policy, on a played clock and played processors --- */

static struct {
    bool is_played;
    int bound, online; /* processors; -1: not known */
    uint64_t now_ns, step_ns, yield_ns;
    unsigned clock_count, yield_count;
} machine;

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *ret_set)
{
    assert_int_equal(pid, 0);
    memset(ret_set, 0, size);
    for (int i = 0; i < machine.bound; i++)
        CPU_SET((size_t)i, ret_set);
    return machine.bound < 0 ? -1 : 0;
}

UNINSTRUMENTED long sysconf(int name)
{
    long (*real)(int) = (long (*)(int))(uintptr_t)dlsym(RTLD_NEXT, "sysconf");

    return name == _SC_NPROCESSORS_ONLN && machine.is_played ? machine.online : real(name);
}

int sched_yield(void)
{
    machine.yield_count++;
    machine.now_ns += machine.yield_ns;
    return 0;
}

static uint64_t read_clock(void)
{
    machine.clock_count++;
    return machine.now_ns += machine.step_ns;
}

/* A clock that advances by 100 ns when it is read, and four processors. */
static void poll_open(struct muster_loop_poll *poll, struct slot *slot)
{
    memset(&machine, 0, sizeof(machine));
    machine.is_played = true;
    machine.bound = machine.online = 4;
    machine.now_ns = MUSTER_NS_PER_S;
    machine.step_ns = 100;
    muster_loop_poll_init(poll);
    muster_loop_poll_moved(poll, machine.now_ns);
    poll->descriptors_due_ns = UINT64_MAX;
    slot->poller = (struct muster_poller){.data = slot, .on_poll = slot_look};
    muster_list_append(&poll->pollers, &slot->poller.node);
}

static void a_crowd_is_more_members_than_processors(void **state)
{
    static const struct {
        int bound, online;
        uint32_t crowd;
        bool is_crowd;
    } rows[] = {
        {4, 8, 4, false},
        {4, 8, 5, true},
        {1, 8, 8, false}, /* the others are bound to others */
        {1, 8, 9, true},
        {2, 8, 3, true},
        {-1, 8, 8, false},
        {-1, 8, 9, true},
        {-1, 1, 2, true},
        {-1, 0, UINT32_MAX, false}, /* not known: nobody is too many */
        {-1, -1, UINT32_MAX, false},
    };
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        poll_open(&poll, &slot);
        assert_false(muster_loop_poll_is_crowd(&poll));
        machine.bound = rows[i].bound;
        machine.online = rows[i].online;
        muster_loop_poll_set_crowd(&poll, rows[i].crowd);
        assert_int_equal(muster_loop_poll_is_crowd(&poll), rows[i].is_crowd);
        machine.bound = machine.online = 1; /* they are counted when the crowd changes */
        muster_loop_poll_set_crowd(&poll, rows[i].crowd);
        assert_int_equal(muster_loop_poll_is_crowd(&poll), rows[i].is_crowd);
        muster_loop_poll_set_crowd(&poll, 3);
        assert_true(muster_loop_poll_is_crowd(&poll));
        machine.is_played = false;
    }
}

static void in_a_crowd_others_run_after_two_looks(void **state)
{
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 11};
    uint64_t now_ns;

    (void)state;
    poll_open(&poll, &slot);
    machine.yield_ns = MUSTER_NS_PER_US * 4; /* late, but known of */
    muster_loop_poll_set_crowd(&poll, 1000000);
    now_ns = machine.now_ns;

    assert_true(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
    assert_int_equal(machine.yield_count, 5);
    assert_int_equal(machine.clock_count, 5);
    assert_int_equal(now_ns, machine.now_ns);
    assert_int_equal(poll.crowded_until_ns, 0);
}

static void with_a_processor_each_it_looks_on(void **state)
{
    static const struct {
        unsigned moves_at, clocks;
    } rows[] = {{1, 0}, {128, 0}, {129, 1}, {257, 2}};
    struct muster_loop_poll poll;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct slot slot = {.moves_at = rows[i].moves_at};
        uint64_t now_ns;

        poll_open(&poll, &slot);
        muster_loop_poll_set_crowd(&poll, 4);
        now_ns = machine.now_ns;
        assert_true(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
        assert_int_equal(slot.look_count, rows[i].moves_at);
        assert_int_equal(machine.clock_count, rows[i].clocks);
        assert_int_equal(machine.yield_count, 0);
        assert_int_equal(now_ns, MUSTER_NS_PER_S + rows[i].clocks * 100);
    }
}

/* After 50 us without a move it sees whether another wants the processor: 1 us for each look. */
static void a_calm_loop_lets_others_run_after_a_while(void **state)
{
    static const struct {
        uint64_t yield_ns;
        unsigned yields, looks;
        bool is_crowded;
    } rows[] = {
        {0, 49, 100 * 128, false},                               /* nobody */
        {2 * MUSTER_NS_PER_US, 17, 68 * 128, false},             /* back after 3 us */
        {2 * MUSTER_NS_PER_US + 1, 17, 52 * 128 + 16 * 2, true}, /* later: somebody has run */
    };
    struct muster_loop_poll poll;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct slot slot = {.moves_at = 0};
        uint64_t now_ns, start_ns;

        poll_open(&poll, &slot);
        machine.step_ns = MUSTER_NS_PER_US;
        machine.yield_ns = rows[i].yield_ns;
        now_ns = start_ns = machine.now_ns;
        assert_false(
            muster_loop_poll_spin(&poll, start_ns + 100 * MUSTER_NS_PER_US, read_clock, &now_ns));
        assert_int_equal(machine.yield_count, rows[i].yields);
        assert_int_equal(slot.look_count, rows[i].looks);
        assert_true(now_ns >= start_ns + 100 * MUSTER_NS_PER_US);
        assert_int_equal(poll.crowded_until_ns > 0, rows[i].is_crowded);
    }
}

static void who_has_come_back_late_is_crowded_for_a_while(void **state)
{
    static const unsigned clocks[] = {1, 0}; /* until then: a yield after two looks */
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};
    uint64_t now_ns;

    (void)state;
    poll_open(&poll, &slot);
    machine.yield_ns = 4 * MUSTER_NS_PER_US;
    poll.moved_ns = 0; /* long ago */
    poll.eager_ns = UINT64_MAX / 2;
    now_ns = machine.now_ns;
    assert_false(muster_loop_poll_spin(&poll, now_ns + 1, read_clock, &now_ns));
    assert_int_equal(poll.crowded_until_ns, now_ns + 10 * MUSTER_NS_PER_MS);

    poll.moved_ns = UINT64_MAX / 2; /* not calm */
    for (size_t i = 0; i < 2; i++) {
        slot.look_count = machine.yield_count = 0;
        slot.moves_at = 5;
        now_ns = poll.crowded_until_ns - (i == 0);
        machine.now_ns = now_ns - machine.yield_ns;
        machine.step_ns = 0;
        assert_true(muster_loop_poll_spin(&poll, UINT64_MAX, read_clock, &now_ns));
        assert_int_equal(machine.yield_count > 0, clocks[i]);
    }
}

static void looking_ends_for_descriptors_for_the_caller_and_for_sleep(void **state)
{
    static const struct {
        uint64_t until_ns, descriptors_due_ns, eager_ns;
    } rows[] = {
        {1000, 5000, 9000},
        {5000, 1000, 9000},
        {9000, 5000, 1000},
    };
    struct muster_loop_poll poll;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct slot slot = {.moves_at = 0};
        uint64_t now_ns, start_ns;

        poll_open(&poll, &slot);
        now_ns = start_ns = machine.now_ns;
        poll.descriptors_due_ns = start_ns + rows[i].descriptors_due_ns;
        poll.eager_ns = rows[i].eager_ns;
        assert_false(
            muster_loop_poll_spin(&poll, start_ns + rows[i].until_ns, read_clock, &now_ns));
        assert_int_equal(now_ns, start_ns + 1000); /* to the nanosecond */
    }
}

static void looking_in_vain_gets_shorter_until_something_moves(void **state)
{
    static const uint64_t eager_us[] = {200, 100, 50, 25, 25, 25};
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};

    (void)state;
    poll_open(&poll, &slot);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(eager_us) / sizeof(eager_us[0]); i++) {
            uint64_t end_ns = poll.moved_ns + eager_us[i] * MUSTER_NS_PER_US;

            assert_false(muster_loop_poll_is_tired(&poll, end_ns - 1));
            assert_true(muster_loop_poll_is_tired(&poll, end_ns));
            muster_loop_poll_slept(&poll);
        }
        muster_loop_poll_moved(&poll, 7 * MUSTER_NS_PER_S);
        assert_int_equal(poll.moved_ns, 7 * MUSTER_NS_PER_S);
    }
}

static void who_comes_back_after_computing_is_not_tired(void **state)
{
    static const struct {
        uint64_t away_ns;
        bool is_fresh;
    } rows[] = {{0, false},
                {50 * MUSTER_NS_PER_US, false},
                {50 * MUSTER_NS_PER_US + 1, true},
                {MUSTER_NS_PER_S, true}};
    struct muster_loop_poll poll;
    struct slot slot = {.moves_at = 0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        poll_open(&poll, &slot);
        poll.turn_ns = machine.now_ns + MUSTER_NS_PER_S;
        assert_true(muster_loop_poll_is_tired(&poll, poll.turn_ns + rows[i].away_ns));
        muster_loop_poll_begin(&poll, poll.turn_ns + rows[i].away_ns);
        assert_int_equal(muster_loop_poll_is_tired(&poll, poll.turn_ns + rows[i].away_ns),
                         !rows[i].is_fresh);
    }
}

/* The one that moved goes last; one that has stopped itself is in no list. */
static void pollers_take_turns(void **state)
{
    struct muster_loop loop = {.ops = NULL};
    struct slot slots[3] = {{.moves_at = 0}};
    struct muster_loop_poll poll;

    (void)state;
    poll_open(&poll, &slots[0]);
    muster_list_init(&poll.pollers);
    for (size_t i = 0; i < 3; i++) {
        slots[i].poller = (struct muster_poller){
            .data = &slots[i], .on_poll = slot_look, .loop = &loop};
        muster_list_append(&poll.pollers, &slots[i].poller.node);
    }
    assert_false(muster_loop_poll_once(&poll));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(slots[i].look_count, 1);
        slots[i].moves_at = 1; /* at every look */
    }
    slots[1].stops_itself = true;
    for (size_t i = 0; i < 4; i++) { /* 0, 1 which stops, 2, 0 */
        static const size_t moved[] = {0, 1, 2, 0};
        unsigned before = slots[moved[i]].look_count;

        slots[moved[i]].moves_at = 1;
        assert_true(muster_loop_poll_once(&poll));
        assert_int_equal(slots[moved[i]].look_count, before + 1);
    }
    assert_false(muster_poller_is_started(&slots[1].poller));
    assert_true(muster_list_is_empty(&slots[1].poller.node));
    assert_ptr_equal(poll.pollers.next, &slots[2].poller.node);
    assert_ptr_equal(poll.pollers.prev, &slots[0].poller.node);
}

static void a_sleep_is_told_to_those_who_listen(void **state)
{
    struct slot slots[2] = {{.moves_at = 0}};
    struct muster_loop_poll poll;

    (void)state;
    poll_open(&poll, &slots[0]); /* it does not */
    slots[1].poller = (struct muster_poller){
        .data = &slots[1], .on_poll = slot_look, .on_sleep = slot_told};
    muster_list_append(&poll.pollers, &slots[1].poller.node);
    muster_loop_poll_tell(&poll, true);
    assert_int_equal(slots[1].asleep_count, 1);
    assert_int_equal(slots[1].awake_count, 0);
    muster_loop_poll_tell(&poll, false);
    assert_int_equal(slots[1].asleep_count, 1);
    assert_int_equal(slots[1].awake_count, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

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
        cmocka_unit_test(a_crowd_is_more_members_than_processors),
        cmocka_unit_test(in_a_crowd_others_run_after_two_looks),
        cmocka_unit_test(with_a_processor_each_it_looks_on),
        cmocka_unit_test(a_calm_loop_lets_others_run_after_a_while),
        cmocka_unit_test(who_has_come_back_late_is_crowded_for_a_while),
        cmocka_unit_test(looking_ends_for_descriptors_for_the_caller_and_for_sleep),
        cmocka_unit_test(looking_in_vain_gets_shorter_until_something_moves),
        cmocka_unit_test(who_comes_back_after_computing_is_not_tired),
        cmocka_unit_test(pollers_take_turns),
        cmocka_unit_test(a_sleep_is_told_to_those_who_listen),
    };

    return cmocka_run_group_tests_name("loop_poll", cases, NULL, NULL);
}
