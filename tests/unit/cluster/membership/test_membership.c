/* Several membership machines in a small world: each case is one story. */
#include "membership_pump_internal.h"
#include "membership_world.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"

static void first_view_waits_for_every_task(void **state)
{
    (void)state;
    membership_world_open(1, 3);
    pump_start(&world.pump, 0, 0);
    pump_start(&world.pump, 2, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_int_equal(pump_epoch(&world.pump), 0);

    pump_start(&world.pump, 1, 0);
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 1);
    assert_int_equal(world.pump.key_view->members[1].task_index, 1);
}

static void first_view_goes_on_with_min_members_after_the_timeout(void **state)
{
    (void)state;
    membership_world_open(2, 4);
    world.pump.min_members = 2;
    pump_start(&world.pump, 0, 0);
    pump_run(&world.pump, PUMP_S(12));
    assert_int_equal(pump_epoch(&world.pump), 0);

    pump_start(&world.pump, 3, 0);
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void a_job_of_two_machines_does_not_begin_on_one(void **state)
{
    (void)state;
    membership_world_open(2, 4);
    world.pump.min_members_start = 2;
    pump_start(&world.pump, 0, 0);
    pump_run(&world.pump, PUMP_S(60));
    assert_int_equal(pump_epoch(&world.pump), 0);

    pump_start(&world.pump, 3, 0);
    membership_world_assert_settles();
    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void a_killed_member_is_left_out_at_once(void **state)
{
    uint64_t before;

    (void)state;
    membership_world_begin(3, 4, 1);
    before = world.pump.now_ns;

    pump_kill(&world.pump, 2);
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_false(pump_is_member(&world.pump, 2));
    assert_true(world.pump.now_ns - before < PUMP_MS(60));
    assert_non_null(strstr(world.pump.key_view->reason, "worker:2 lost"));
}

static void several_deaths_end_in_one_view_of_the_living(void **state)
{
    (void)state;
    membership_world_begin(4, 5, 2);

    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 3);
    pump_kill(&world.pump, 4);
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void the_next_rank_leads_when_the_leader_dies_before_its_swap(void **state)
{
    (void)state;
    membership_world_begin(5, 4, 1);

    world.pump.nodes[0].stops_before_cas = true;
    pump_kill(&world.pump, 3);
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 2);
    assert_false(world.pump.nodes[0].is_alive);
}

static void the_committed_view_stands_when_the_leader_dies_after_its_swap(void **state)
{
    (void)state;
    membership_world_begin(6, 4, 1);

    world.pump.nodes[0].stops_after_cas = true;
    pump_kill(&world.pump, 3);
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 3);
    assert_true(
        muster_view_find(world.pump.epochs[2], &world.pump.nodes[0].member.incarnation, NULL));
    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void of_rival_leaders_the_swap_picks_one(void **state)
{
    (void)state;
    membership_world_begin(7, 4, 4);

    /* Worker 0 and 1 lose each other: both think that it is their turn to lead. */
    pump_block(&world.pump, 0, 1, true);
    pump_reset_link(&world.pump, 0, 1);
    pump_run(&world.pump, PUMP_S(2));
    pump_block(&world.pump, 0, 1, false);
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 4);
}

static void a_false_suspicion_costs_an_epoch_and_no_member(void **state)
{
    static const struct {
        const char *name;
        unsigned members, by, accused;
    } rows[] = {
        {"a member of another", 3, 2, 1},
        {"the leader of a member", 3, 0, 2},
        {"a member of the leader", 3, 1, 0},
        {"one of two of the leader", 2, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        membership_world_begin(8, rows[i].members, 1);

        pump_suspect(&world.pump, rows[i].by, rows[i].accused);
        pump_run(&world.pump, PUMP_MS(500));
        membership_world_assert_settles();

        if (pump_epoch(&world.pump) != 2 || world.pump.key_view->member_count != rows[i].members)
            fail_msg("%s: epoch %d", rows[i].name, (int)pump_epoch(&world.pump));
        membership_world_close();
    }
}

static void a_paused_member_of_this_host_is_waited_for(void **state)
{
    (void)state;
    membership_world_begin(9, 3, 1);

    pump_pause(&world.pump, 1, PUMP_S(4));
    pump_run(&world.pump, PUMP_S(4));
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 1);
}

static void the_excluded_but_alive_comes_back_in_the_same_process(void **state)
{
    (void)state;
    membership_world_begin(10, 3, 3);

    pump_pause(&world.pump, 2, PUMP_S(9));
    pump_run(&world.pump, PUMP_S(8));
    assert_false(pump_is_member(&world.pump, 2));
    pump_run(&world.pump, PUMP_S(1));
    membership_world_assert_settles();

    assert_true(world.pump.nodes[2].is_excluded_once);
    assert_true(pump_is_member(&world.pump, 2));
    assert_true(world.pump.key_view->members[2].from_step > 0);
}

static void a_restarted_task_joins_and_takes_its_rank_again(void **state)
{
    unsigned again;
    uint32_t rank;

    (void)state;
    membership_world_begin(11, 3, 1);
    pump_kill(&world.pump, 1);
    membership_world_assert_settles();

    again = pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_MS(10));
    membership_world_assert_settles();

    assert_true(
        muster_view_find(world.pump.key_view, &world.pump.nodes[again].member.incarnation, &rank));
    assert_int_equal(rank, 1);
    assert_true(world.pump.key_view->members[1].from_step > 0);
}

/* It would not be admitted while it complains. */
static void a_joiner_that_still_connects_does_not_say_that_it_hears_nobody(void **state)
{
    (void)state;
    for (uint64_t seed = 112; seed < 132; seed++) { /* whose link is there first differs */
        membership_world_begin(seed, 4, 1);
        pump_kill(&world.pump, 2);
        membership_world_assert_settles();

        pump_start(&world.pump, 2, 0);
        pump_run(&world.pump, PUMP_MS(10));
        membership_world_assert_settles();

        assert_int_equal(world.pump.key_view->member_count, 4);
        assert_int_equal(world.pump.silences_told, 0);
        membership_world_close();
    }
}

/* Nor is the job interrupted for it. */
static void a_second_process_of_a_task_waits_while_the_first_lives(void **state)
{
    (void)state;
    for (uint32_t task = 0; task < 3; task++) {
        unsigned twin;

        membership_world_begin(111, 3, 1);

        twin = pump_start(&world.pump, task, 0);
        pump_run(&world.pump, PUMP_S(5));
        assert_int_equal(pump_epoch(&world.pump), 1);
        for (unsigned i = 0; i < 3; i++)
            assert_false(world.pump.nodes[i].is_frozen);
        pump_kill(&world.pump, task);
        membership_world_assert_settles();

        assert_true(pump_is_member(&world.pump, twin));
        membership_world_close();
    }
}

/* The leader's view of it. */
static void set_work(struct muster_membership_work work)
{
    muster_membership_set_work(world.pump.nodes[0].machine, work);
}

/* Three members of which task 1 has died, and its next life; the leader's group is at work. */
static unsigned open_world_with_joiner(uint64_t seed)
{
    unsigned again;

    membership_world_begin(seed, 3, 1);
    pump_kill(&world.pump, 1);
    membership_world_assert_settles();
    set_work((struct muster_membership_work){.is_busy = true, .ended_count = 7});
    again = pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_MS(400));
    assert_int_equal(pump_epoch(&world.pump), 2);
    return again;
}

static void a_joiner_waits_for_the_end_of_the_operation_under_way(void **state)
{
    unsigned again;

    (void)state;
    again = open_world_with_joiner(41);

    assert_true(muster_membership_is_holding(world.pump.nodes[0].machine));
    set_work((struct muster_membership_work){.is_busy = true, .ended_count = 8});
    pump_run(&world.pump, PUMP_MS(150));

    assert_true(pump_is_member(&world.pump, again));
    assert_false(muster_membership_is_holding(world.pump.nodes[0].machine));
}

/* Three members, task 1 has just died; what the leader does ends by itself. */
static void open_world_with_work(uint64_t seed)
{
    const struct muster_membership_work work = {
        .is_busy = true, .is_finishing = true, .ended_count = 7};

    membership_world_begin(seed, 3, 1);
    set_work(work);
    pump_kill(&world.pump, 1);
    for (unsigned i = 0; i < 5000 && !muster_membership_is_holding(world.pump.nodes[0].machine);
         i++)
        pump_run(&world.pump, PUMP_MS(1));
    assert_true(muster_membership_is_holding(world.pump.nodes[0].machine));
    pump_run(&world.pump, PUMP_MS(10));
    assert_false(world.pump.nodes[0].is_frozen);
    assert_int_equal(pump_epoch(&world.pump), 1);
}

static void a_change_waits_for_work_that_ends_by_itself(void **state)
{
    (void)state;
    open_world_with_work(43);

    set_work(
        (struct muster_membership_work){.is_busy = true, .is_finishing = true, .ended_count = 8});
    pump_step_kind(&world.pump.nodes[0], MUSTER_EVENT_TICK);

    assert_true(world.pump.nodes[0].is_frozen || pump_epoch(&world.pump) == 2);
    membership_world_assert_settles();
    assert_false(muster_membership_is_holding(world.pump.nodes[0].machine));
}

static void a_change_does_not_wait_long_for_work(void **state)
{
    (void)state;
    open_world_with_work(44);

    pump_run(&world.pump, PUMP_MS(15));

    assert_true(world.pump.nodes[0].is_frozen || pump_epoch(&world.pump) == 2);
    membership_world_assert_settles();
}

static void a_joiner_does_not_wait_for_ever(void **state)
{
    unsigned again;

    (void)state;
    again = open_world_with_joiner(42);

    pump_run(&world.pump, PUMP_S(1));

    assert_true(pump_is_member(&world.pump, again));
}

static void a_death_lets_the_waiting_joiner_in(void **state)
{
    unsigned again;

    (void)state;
    again = open_world_with_joiner(43);

    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_MS(60));

    assert_true(pump_is_member(&world.pump, again));
    assert_int_equal(pump_epoch(&world.pump), 3);
}

static void joins_and_losses_fit_into_one_change(void **state)
{
    unsigned joiner;

    (void)state;
    membership_world_begin(12, 3, 3);
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(100));
    joiner = pump_start(&world.pump, 3, 0);
    pump_kill(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(1));

    pump_registry(&world.pump, true);
    membership_world_assert_settles();

    assert_true(pump_is_member(&world.pump, joiner));
    assert_true(pump_epoch(&world.pump) <= 3);
}

static void a_leaver_goes_without_a_retry(void **state)
{
    (void)state;
    membership_world_begin(13, 3, 1);

    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    membership_world_assert_settles();

    assert_true(world.pump.nodes[0].is_left);
    assert_false(world.pump.nodes[0].is_failed);
    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void when_all_leave_the_last_view_is_empty(void **state)
{
    (void)state;
    membership_world_begin(14, 3, 1);

    for (unsigned i = 0; i < 3; i++)
        pump_leave(&world.pump, i);
    pump_run(&world.pump, PUMP_S(3));

    assert_int_equal(pump_alive_count(&world.pump), 0);
    assert_int_equal(world.pump.key_view->member_count, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_true(world.pump.nodes[i].is_left);
}

static void an_observer_learns_that_the_job_has_ended(void **state)
{
    unsigned late;

    (void)state;
    membership_world_begin(15, 2, 1);
    pump_leave(&world.pump, 0);
    late = pump_start(&world.pump, 5, 0);
    pump_leave(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(3));

    assert_true(world.pump.nodes[late].is_failed || pump_is_member(&world.pump, late));
    if (world.pump.nodes[late].is_failed)
        assert_non_null(strstr(world.pump.nodes[late].error.text, "ended"));
}

static void who_comes_back_when_all_have_left_does_not_begin_anew(void **state)
{
    unsigned late;

    (void)state;
    membership_world_begin(15, 2, 1);
    pump_leave(&world.pump, 0);
    pump_leave(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(3));
    world.pump.is_return = true;
    late = pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_S(20));

    assert_true(world.pump.nodes[late].is_failed);
    assert_int_equal(world.pump.nodes[late].error.rc, MUSTER_OUT_OF_RANGE);
    assert_int_equal(world.pump.key_view->member_count, 0);
}

static void when_all_are_dead_joiners_begin_anew_only_after_confirmation(void **state)
{
    (void)state;
    membership_world_begin(16, 2, 2);
    pump_crash_silently(&world.pump, 0);
    pump_crash_silently(&world.pump, 1);
    pump_start(&world.pump, 0, 3);
    pump_start(&world.pump, 1, 3);
    pump_run(&world.pump, PUMP_S(30));
    assert_int_equal(pump_epoch(&world.pump), 1); /* their leases are over: that proves nothing */

    pump_confirm(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_int_equal(pump_epoch(&world.pump), 1);
    pump_confirm(&world.pump, 1);
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_int_equal(world.pump.key_view->members[0].from_step, 0);
}

/* Nobody has written down who died: neither a launcher nor a guard was left. */
static void on_one_host_the_system_confirms_that_all_are_dead(void **state)
{
    (void)state;
    membership_world_begin(24, 2, 1);
    world.pump.is_launcherless = true;
    pump_crash_silently(&world.pump, 0);
    pump_crash_silently(&world.pump, 1);
    pump_start(&world.pump, 0, 0);
    pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_S(3));

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_int_equal(world.pump.key_view->members[0].from_step, 0);
}

static void force_new_begins_anew_when_leases_are_over(void **state)
{
    (void)state;
    membership_world_begin(17, 2, 2);
    pump_crash_silently(&world.pump, 0);
    pump_crash_silently(&world.pump, 1);
    world.pump.is_force_new = true;
    pump_start(&world.pump, 0, 3);
    pump_start(&world.pump, 1, 3);
    pump_run(&world.pump, PUMP_S(5));
    assert_int_equal(pump_epoch(&world.pump), 1);

    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 2);
}

static void below_min_members_the_survivors_wait_for_a_return(void **state)
{
    (void)state;
    membership_world_open(18, 3);
    world.pump.min_members = 3;
    membership_world_start_tasks(3, 1);
    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(2));
    assert_int_equal(pump_epoch(&world.pump), 1);
    assert_int_equal(pump_state(&world.pump, 0), MUSTER_MEMBERSHIP_WAITING);

    pump_start(&world.pump, 2, 0);
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_false(world.pump.key_view->is_below_min);
}

static void below_min_members_for_too_long_operations_are_aborted(void **state)
{
    (void)state;
    membership_world_open(19, 3);
    world.pump.min_members = 3;
    membership_world_start_tasks(3, 1);
    pump_run(&world.pump, PUMP_S(1));

    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(9));
    membership_world_assert_settles();

    assert_true(world.pump.key_view->is_below_min);
    assert_int_equal(world.pump.verdicts_retry, 0);
}

static void training_goes_on_while_the_registry_is_away(void **state)
{
    uint64_t before;

    (void)state;
    membership_world_begin(20, 3, 1);
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_S(1));
    before = world.pump.nodes[0].deliveries;

    pump_run(&world.pump, PUMP_S(20));

    assert_true(world.pump.nodes[0].deliveries > before + 10);
    assert_int_equal(pump_epoch(&world.pump), 1);
    pump_registry(&world.pump, true);
    pump_run(&world.pump, PUMP_S(3));
    assert_int_equal(pump_epoch(&world.pump), 1);
    for (unsigned i = 0; i < 3; i++)
        assert_true(world.pump.nodes[i].is_registered);
}

static void a_death_during_a_registry_outage_is_settled_after_it(void **state)
{
    (void)state;
    membership_world_begin(21, 3, 1);
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(100));
    pump_kill(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(5));
    assert_int_equal(pump_epoch(&world.pump), 1);

    pump_registry(&world.pump, true);
    membership_world_assert_settles();

    assert_int_equal(pump_epoch(&world.pump), 2);
}

static void a_leader_cut_off_from_the_registry_is_overtaken(void **state)
{
    (void)state;
    membership_world_begin(22, 3, 1);
    pump_kill(&world.pump, 2);
    pump_run(&world.pump, 100 * MUSTER_NS_PER_US);
    world.pump.nodes[0].sees_registry = false; /* it does not know yet */
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void a_lost_answer_is_read_from_the_key(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        membership_world_begin(seed, 3, 1);
        world.pump.lose_answer_percent = 70;
        pump_kill(&world.pump, (unsigned)(seed % 3));
        membership_world_assert_settles();
        membership_world_close();
    }
}

static void an_abort_that_one_proposes_all_get(void **state)
{
    (void)state;
    membership_world_begin(24, 3, 1);
    pump_run(&world.pump, PUMP_MS(100));
    for (unsigned i = 0; i < 20 && world.pump.verdicts_abort < 2; i++) {
        pump_propose_abort(&world.pump, 1);
        pump_run(&world.pump, PUMP_MS(40));
    }

    assert_true(world.pump.verdicts_abort >= 2);
    membership_world_assert_settles();
    assert_int_equal(world.pump.key_view->member_count, 3);
}

static void who_gets_no_verdict_leaves_the_epoch_and_comes_back(void **state)
{
    (void)state;
    membership_world_begin(25, 3, 1);
    pump_run(&world.pump, PUMP_MS(100));

    pump_expire(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(2));
    membership_world_assert_settles();

    assert_true(world.pump.nodes[1].is_excluded_once);
    assert_true(pump_is_member(&world.pump, 1));
}

static void where_all_get_no_verdict_one_stays_and_the_others_come_back(void **state)
{
    (void)state;
    membership_world_begin(26, 3, 1);
    pump_run(&world.pump, PUMP_MS(100));
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(100));
    for (unsigned i = 0; i < 3; i++)
        pump_expire(&world.pump, i);
    pump_run(&world.pump, PUMP_S(1));

    pump_registry(&world.pump, true);
    pump_run(&world.pump, PUMP_S(1));
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 3);
    assert_int_equal(world.pump.nodes[0].is_excluded_once + world.pump.nodes[1].is_excluded_once +
                         world.pump.nodes[2].is_excluded_once,
                     2);
}

static void *give_nothing(struct muster_mem *mem, void *ptr, size_t bytes)
{
    (void)mem;
    (void)ptr;
    (void)bytes;
    return NULL;
}

/* Each list has a place of its own for what it has no room for, and lets go of what stands there. */
static void machines_without_memory_share_nothing(void **state)
{
    static const struct muster_mem_ops ops = {.realloc = give_nothing};
    struct muster_mem mem = {.ops = &ops};
    struct muster_membership_actions lists[2];
    struct muster_membership *machines = calloc(2, sizeof(*machines));
    struct muster_membership_action *actions[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        muster_membership_actions_init(&lists[i], &mem);
        machines[i].actions = &lists[i];
        actions[i] = muster_membership_act(&machines[i], MUSTER_ACTION_TRACE);
        assert_int_equal(machines[i].rc, MUSTER_RESOURCE_EXHAUSTED);
        actions[i]->id = i + 1;
    }
    assert_ptr_not_equal(actions[0], actions[1]);
    assert_int_equal(actions[0]->id, 1);

    for (unsigned i = 0; i < 2; i++) {
        muster_membership_actions_clear(&lists[i]);
        assert_int_equal(actions[i]->id, 0);
    }
    free(machines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMBERSHIP_CASE(first_view_waits_for_every_task),
        MEMBERSHIP_CASE(first_view_goes_on_with_min_members_after_the_timeout),
        MEMBERSHIP_CASE(a_job_of_two_machines_does_not_begin_on_one),
        MEMBERSHIP_CASE(a_killed_member_is_left_out_at_once),
        MEMBERSHIP_CASE(several_deaths_end_in_one_view_of_the_living),
        MEMBERSHIP_CASE(the_next_rank_leads_when_the_leader_dies_before_its_swap),
        MEMBERSHIP_CASE(the_committed_view_stands_when_the_leader_dies_after_its_swap),
        MEMBERSHIP_CASE(of_rival_leaders_the_swap_picks_one),
        cmocka_unit_test(a_false_suspicion_costs_an_epoch_and_no_member),
        cmocka_unit_test(machines_without_memory_share_nothing),
        MEMBERSHIP_CASE(a_paused_member_of_this_host_is_waited_for),
        MEMBERSHIP_CASE(the_excluded_but_alive_comes_back_in_the_same_process),
        MEMBERSHIP_CASE(a_restarted_task_joins_and_takes_its_rank_again),
        cmocka_unit_test(a_joiner_that_still_connects_does_not_say_that_it_hears_nobody),
        cmocka_unit_test(a_second_process_of_a_task_waits_while_the_first_lives),
        MEMBERSHIP_CASE(a_joiner_waits_for_the_end_of_the_operation_under_way),
        MEMBERSHIP_CASE(a_change_waits_for_work_that_ends_by_itself),
        MEMBERSHIP_CASE(a_change_does_not_wait_long_for_work),
        MEMBERSHIP_CASE(a_joiner_does_not_wait_for_ever),
        MEMBERSHIP_CASE(a_death_lets_the_waiting_joiner_in),
        MEMBERSHIP_CASE(joins_and_losses_fit_into_one_change),
        MEMBERSHIP_CASE(a_leaver_goes_without_a_retry),
        MEMBERSHIP_CASE(when_all_leave_the_last_view_is_empty),
        MEMBERSHIP_CASE(an_observer_learns_that_the_job_has_ended),
        MEMBERSHIP_CASE(who_comes_back_when_all_have_left_does_not_begin_anew),
        MEMBERSHIP_CASE(when_all_are_dead_joiners_begin_anew_only_after_confirmation),
        MEMBERSHIP_CASE(on_one_host_the_system_confirms_that_all_are_dead),
        MEMBERSHIP_CASE(force_new_begins_anew_when_leases_are_over),
        MEMBERSHIP_CASE(below_min_members_the_survivors_wait_for_a_return),
        MEMBERSHIP_CASE(below_min_members_for_too_long_operations_are_aborted),
        MEMBERSHIP_CASE(training_goes_on_while_the_registry_is_away),
        MEMBERSHIP_CASE(a_death_during_a_registry_outage_is_settled_after_it),
        MEMBERSHIP_CASE(a_leader_cut_off_from_the_registry_is_overtaken),
        cmocka_unit_test(a_lost_answer_is_read_from_the_key),
        MEMBERSHIP_CASE(an_abort_that_one_proposes_all_get),
        MEMBERSHIP_CASE(who_gets_no_verdict_leaves_the_epoch_and_comes_back),
        MEMBERSHIP_CASE(where_all_get_no_verdict_one_stays_and_the_others_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
