/* Several membership machines in a small world: each case is one story; the last runs random ones.
 */
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "membership_pump.h"

struct world {
    struct muster_mem_limited mem;
    struct pump pump;
};

static void open_world(struct world *world, uint64_t seed, uint32_t expected)
{
    muster_mem_limited_init(&world->mem, muster_mem_system(), 0);
    pump_open(&world->pump, &world->mem.mem, seed);
    world->pump.expected_count = expected;
}

static void close_world(struct world *world)
{
    if (world->pump.failure[0] != '\0')
        print_error("%s\n", world->pump.failure);
    assert_string_equal(world->pump.failure, "");
    pump_close(&world->pump);
    assert_int_equal(muster_mem_limited_fini(&world->mem), 0);
}

/* `count` tasks on `hosts` hosts, up to the first common view. */
static void start_tasks(struct world *world, uint32_t count, unsigned hosts)
{
    for (uint32_t task = 0; task < count; task++)
        pump_start(&world->pump, task, task % hosts);
    assert_true(pump_run_until(&world->pump, pump_is_settled, PUMP_S(5)));
}

static void assert_settles(struct world *world)
{
    assert_true(pump_run_until(&world->pump, pump_is_settled, PUMP_S(20)));
}

static void first_view_waits_for_every_task(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 1, 3);
    pump_start(&world.pump, 0, 0);
    pump_start(&world.pump, 2, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_int_equal(pump_epoch(&world.pump), 0);

    pump_start(&world.pump, 1, 0);
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 1);
    assert_int_equal(world.pump.key_view->members[1].task_index, 1);
    close_world(&world);
}

static void first_view_goes_on_with_min_members_after_the_timeout(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 2, 4);
    world.pump.min_members = 2;
    pump_start(&world.pump, 0, 0);
    pump_run(&world.pump, PUMP_S(12));
    assert_int_equal(pump_epoch(&world.pump), 0);

    pump_start(&world.pump, 3, 0);
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 2);
    close_world(&world);
}

static void a_killed_member_is_left_out_at_once(void **state)
{
    struct world world;
    uint64_t before;

    (void)state;
    open_world(&world, 3, 4);
    start_tasks(&world, 4, 1);
    before = world.pump.now_ns;

    pump_kill(&world.pump, 2);
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_false(pump_is_member(&world.pump, 2));
    assert_true(world.pump.now_ns - before < PUMP_MS(60));
    assert_non_null(strstr(world.pump.key_view->reason, "worker:2 lost"));
    close_world(&world);
}

static void several_deaths_end_in_one_view_of_the_living(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 4, 5);
    start_tasks(&world, 5, 2);

    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 3);
    pump_kill(&world.pump, 4);
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 2);
    close_world(&world);
}

static void the_next_rank_leads_when_the_leader_dies_before_its_swap(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 5, 4);
    start_tasks(&world, 4, 1);

    world.pump.nodes[0].stops_before_cas = true;
    pump_kill(&world.pump, 3);
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 2);
    assert_false(world.pump.nodes[0].is_alive);
    close_world(&world);
}

static void the_committed_view_stands_when_the_leader_dies_after_its_swap(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 6, 4);
    start_tasks(&world, 4, 1);

    world.pump.nodes[0].stops_after_cas = true;
    pump_kill(&world.pump, 3);
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 3);
    assert_true(
        muster_view_find(world.pump.epochs[2], &world.pump.nodes[0].member.incarnation, NULL));
    assert_int_equal(world.pump.key_view->member_count, 2);
    close_world(&world);
}

static void of_rival_leaders_the_swap_picks_one(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 7, 4);
    start_tasks(&world, 4, 4);

    /* Worker 0 and 1 lose each other: both think that it is their turn to lead. */
    pump_block(&world.pump, 0, 1, true);
    pump_reset_link(&world.pump, 0, 1);
    pump_run(&world.pump, PUMP_S(2));
    pump_block(&world.pump, 0, 1, false);
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 4);
    close_world(&world);
}

static void a_false_suspicion_costs_an_epoch_and_no_member(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 8, 3);
    start_tasks(&world, 3, 1);

    pump_suspect(&world.pump, 2, 1);
    pump_run(&world.pump, PUMP_MS(500));
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_int_equal(world.pump.key_view->member_count, 3);
    close_world(&world);
}

static void a_paused_member_of_this_host_is_waited_for(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 9, 3);
    start_tasks(&world, 3, 1);

    pump_pause(&world.pump, 1, PUMP_S(4));
    pump_run(&world.pump, PUMP_S(4));
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 1);
    close_world(&world);
}

static void the_excluded_but_alive_comes_back_in_the_same_process(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 10, 3);
    start_tasks(&world, 3, 3);

    pump_pause(&world.pump, 2, PUMP_S(9));
    pump_run(&world.pump, PUMP_S(8));
    assert_false(pump_is_member(&world.pump, 2));
    pump_run(&world.pump, PUMP_S(1));
    assert_settles(&world);

    assert_true(world.pump.nodes[2].is_excluded_once);
    assert_true(pump_is_member(&world.pump, 2));
    assert_true(world.pump.key_view->members[2].from_step > 0);
    close_world(&world);
}

static void a_restarted_task_joins_and_takes_its_rank_again(void **state)
{
    struct world world;
    unsigned again;
    uint32_t rank;

    (void)state;
    open_world(&world, 11, 3);
    start_tasks(&world, 3, 1);
    pump_kill(&world.pump, 1);
    assert_settles(&world);

    again = pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_MS(10));
    assert_settles(&world);

    assert_true(
        muster_view_find(world.pump.key_view, &world.pump.nodes[again].member.incarnation, &rank));
    assert_int_equal(rank, 1);
    assert_true(world.pump.key_view->members[1].from_step > 0);
    close_world(&world);
}

/* It would not be admitted while it complains. */
static void a_joiner_that_still_connects_does_not_say_that_it_hears_nobody(void **state)
{
    struct world world;

    (void)state;
    for (uint64_t seed = 112; seed < 132; seed++) { /* whose link is there first differs */
        open_world(&world, seed, 4);
        start_tasks(&world, 4, 1);
        pump_kill(&world.pump, 2);
        assert_settles(&world);

        pump_start(&world.pump, 2, 0);
        pump_run(&world.pump, PUMP_MS(10));
        assert_settles(&world);

        assert_int_equal(world.pump.key_view->member_count, 4);
        assert_int_equal(world.pump.silences_told, 0);
        close_world(&world);
    }
}

/* Nor is the job interrupted for it. */
static void a_second_process_of_a_task_waits_while_the_first_lives(void **state)
{
    struct world world;
    unsigned twin;

    (void)state;
    open_world(&world, 111, 3);
    start_tasks(&world, 3, 1);

    twin = pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_S(5));
    assert_int_equal(pump_epoch(&world.pump), 1);
    for (unsigned i = 0; i < 3; i++)
        assert_false(world.pump.nodes[i].is_frozen);
    pump_kill(&world.pump, 1);
    assert_settles(&world);

    assert_true(pump_is_member(&world.pump, twin));
    close_world(&world);
}

/* Three members of which task 1 has died, and its next life; the leader's group is at work. */
static unsigned open_world_with_joiner(struct world *world, uint64_t seed)
{
    unsigned again;

    open_world(world, seed, 3);
    start_tasks(world, 3, 1);
    pump_kill(&world->pump, 1);
    assert_settles(world);
    muster_membership_set_work(world->pump.nodes[0].machine, true, 7);
    again = pump_start(&world->pump, 1, 0);
    pump_run(&world->pump, PUMP_MS(400));
    assert_int_equal(pump_epoch(&world->pump), 2);
    return again;
}

static void a_joiner_waits_for_the_end_of_the_operation_under_way(void **state)
{
    struct world world;
    unsigned again;

    (void)state;
    again = open_world_with_joiner(&world, 41);

    assert_true(muster_membership_is_holding(world.pump.nodes[0].machine));
    muster_membership_set_work(world.pump.nodes[0].machine, true, 8);
    pump_run(&world.pump, PUMP_MS(150));

    assert_true(pump_is_member(&world.pump, again));
    assert_false(muster_membership_is_holding(world.pump.nodes[0].machine));
    close_world(&world);
}

static void a_joiner_does_not_wait_for_ever(void **state)
{
    struct world world;
    unsigned again;

    (void)state;
    again = open_world_with_joiner(&world, 42);

    pump_run(&world.pump, PUMP_S(1));

    assert_true(pump_is_member(&world.pump, again));
    close_world(&world);
}

static void a_death_lets_the_waiting_joiner_in(void **state)
{
    struct world world;
    unsigned again;

    (void)state;
    again = open_world_with_joiner(&world, 43);

    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_MS(60));

    assert_true(pump_is_member(&world.pump, again));
    assert_int_equal(pump_epoch(&world.pump), 3);
    close_world(&world);
}

static void joins_and_losses_fit_into_one_change(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    open_world(&world, 12, 3);
    start_tasks(&world, 3, 3);
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(100));
    joiner = pump_start(&world.pump, 3, 0);
    pump_kill(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(1));

    pump_registry(&world.pump, true);
    assert_settles(&world);

    assert_true(pump_is_member(&world.pump, joiner));
    assert_true(pump_epoch(&world.pump) <= 3);
    close_world(&world);
}

static void a_leaver_goes_without_a_retry(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 13, 3);
    start_tasks(&world, 3, 1);

    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_settles(&world);

    assert_true(world.pump.nodes[0].is_left);
    assert_false(world.pump.nodes[0].is_failed);
    assert_int_equal(world.pump.key_view->member_count, 2);
    close_world(&world);
}

static void when_all_leave_the_last_view_is_empty(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 14, 3);
    start_tasks(&world, 3, 1);

    for (unsigned i = 0; i < 3; i++)
        pump_leave(&world.pump, i);
    pump_run(&world.pump, PUMP_S(3));

    assert_int_equal(pump_alive_count(&world.pump), 0);
    assert_int_equal(world.pump.key_view->member_count, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_true(world.pump.nodes[i].is_left);
    close_world(&world);
}

static void an_observer_learns_that_the_job_has_ended(void **state)
{
    struct world world;
    unsigned late;

    (void)state;
    open_world(&world, 15, 2);
    start_tasks(&world, 2, 1);
    pump_leave(&world.pump, 0);
    late = pump_start(&world.pump, 5, 0);
    pump_leave(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(3));

    assert_true(world.pump.nodes[late].is_failed || pump_is_member(&world.pump, late));
    if (world.pump.nodes[late].is_failed)
        assert_non_null(strstr(world.pump.nodes[late].error.text, "ended"));
    close_world(&world);
}

static void who_comes_back_when_all_have_left_does_not_begin_anew(void **state)
{
    struct world world;
    unsigned late;

    (void)state;
    open_world(&world, 15, 2);
    start_tasks(&world, 2, 1);
    pump_leave(&world.pump, 0);
    pump_leave(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(3));
    world.pump.is_return = true;
    late = pump_start(&world.pump, 1, 0);
    pump_run(&world.pump, PUMP_S(20));

    assert_true(world.pump.nodes[late].is_failed);
    assert_int_equal(world.pump.nodes[late].error.rc, MUSTER_OUT_OF_RANGE);
    assert_int_equal(world.pump.key_view->member_count, 0);
    close_world(&world);
}

static void when_all_are_dead_joiners_begin_anew_only_after_confirmation(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 16, 2);
    start_tasks(&world, 2, 2);
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
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_int_equal(world.pump.key_view->members[0].from_step, 0);
    close_world(&world);
}

static void force_new_begins_anew_when_leases_are_over(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 17, 2);
    start_tasks(&world, 2, 2);
    pump_crash_silently(&world.pump, 0);
    pump_crash_silently(&world.pump, 1);
    world.pump.is_force_new = true;
    pump_start(&world.pump, 0, 3);
    pump_start(&world.pump, 1, 3);
    pump_run(&world.pump, PUMP_S(5));
    assert_int_equal(pump_epoch(&world.pump), 1);

    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 2);
    close_world(&world);
}

static void below_min_members_the_survivors_wait_for_a_return(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 18, 3);
    world.pump.min_members = 3;
    start_tasks(&world, 3, 1);
    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(2));
    assert_int_equal(pump_epoch(&world.pump), 1);
    assert_int_equal(pump_state(&world.pump, 0), MUSTER_MEMBERSHIP_WAITING);

    pump_start(&world.pump, 2, 0);
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 2);
    assert_false(world.pump.key_view->is_below_min);
    close_world(&world);
}

static void below_min_members_for_too_long_operations_are_aborted(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 19, 3);
    world.pump.min_members = 3;
    start_tasks(&world, 3, 1);
    pump_run(&world.pump, PUMP_S(1));

    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(9));
    assert_settles(&world);

    assert_true(world.pump.key_view->is_below_min);
    assert_int_equal(world.pump.verdicts_retry, 0);
    close_world(&world);
}

static void training_goes_on_while_the_registry_is_away(void **state)
{
    struct world world;
    uint64_t before;

    (void)state;
    open_world(&world, 20, 3);
    start_tasks(&world, 3, 1);
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
    close_world(&world);
}

static void a_death_during_a_registry_outage_is_settled_after_it(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 21, 3);
    start_tasks(&world, 3, 1);
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(100));
    pump_kill(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(5));
    assert_int_equal(pump_epoch(&world.pump), 1);

    pump_registry(&world.pump, true);
    assert_settles(&world);

    assert_int_equal(pump_epoch(&world.pump), 2);
    close_world(&world);
}

static void a_leader_cut_off_from_the_registry_is_overtaken(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 22, 3);
    start_tasks(&world, 3, 1);
    pump_kill(&world.pump, 2);
    pump_run(&world.pump, 100 * MUSTER_NS_PER_US);
    world.pump.nodes[0].sees_registry = false; /* it does not know yet */
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 2);
    close_world(&world);
}

static void a_lost_answer_is_read_from_the_key(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct world world;

        open_world(&world, seed, 3);
        start_tasks(&world, 3, 1);
        world.pump.lose_answer_percent = 70;
        pump_kill(&world.pump, (unsigned)(seed % 3));
        assert_settles(&world);
        close_world(&world);
    }
}

static void an_abort_that_one_proposes_all_get(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 24, 3);
    start_tasks(&world, 3, 1);
    pump_run(&world.pump, PUMP_MS(100));
    for (unsigned i = 0; i < 20 && world.pump.verdicts_abort < 2; i++) {
        pump_propose_abort(&world.pump, 1);
        pump_run(&world.pump, PUMP_MS(40));
    }

    assert_true(world.pump.verdicts_abort >= 2);
    assert_settles(&world);
    assert_int_equal(world.pump.key_view->member_count, 3);
    close_world(&world);
}

static void who_gets_no_verdict_leaves_the_epoch_and_comes_back(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 25, 3);
    start_tasks(&world, 3, 1);
    pump_run(&world.pump, PUMP_MS(100));

    pump_expire(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(2));
    assert_settles(&world);

    assert_true(world.pump.nodes[1].is_excluded_once);
    assert_true(pump_is_member(&world.pump, 1));
    close_world(&world);
}

static void where_all_get_no_verdict_one_stays_and_the_others_come_back(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 26, 3);
    start_tasks(&world, 3, 1);
    pump_run(&world.pump, PUMP_MS(100));
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(100));
    for (unsigned i = 0; i < 3; i++)
        pump_expire(&world.pump, i);
    pump_run(&world.pump, PUMP_S(1));

    pump_registry(&world.pump, true);
    pump_run(&world.pump, PUMP_S(1));
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 3);
    assert_int_equal(world.pump.nodes[0].is_excluded_once + world.pump.nodes[1].is_excluded_once +
                         world.pump.nodes[2].is_excluded_once,
                     2);
    close_world(&world);
}

/* --- joiners without the state --- */

/* Task 0 has the state; task 1 has been killed and has joined again, and gets nothing. Returns the
 * joiner. */
static unsigned start_holder_and_joiner(struct world *world, uint64_t seed)
{
    unsigned joiner;

    open_world(world, seed, 2);
    start_tasks(world, 2, 2);
    pump_run(&world->pump, PUMP_MS(100));
    world->pump.is_catch_up_held = true;
    pump_kill(&world->pump, 1);
    joiner = pump_start(&world->pump, 1, 1);
    assert_settles(world);
    return joiner;
}

static void when_all_who_have_the_state_are_dead_the_others_are_told(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(&world, 31);
    pump_kill(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));

    assert_true(world.pump.key_view->is_state_lost);
    assert_true(world.pump.nodes[joiner].is_failed);
    close_world(&world);
}

static void after_the_state_is_lost_the_job_begins_anew(void **state)
{
    struct world world;

    (void)state;
    (void)start_holder_and_joiner(&world, 32);
    world.pump.is_return = true;
    pump_kill(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_start(&world.pump, 0, 0);
    pump_start(&world.pump, 1, 1);
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 2);
    assert_int_equal(world.pump.key_view->members[0].from_step, 0);
    assert_false(world.pump.key_view->is_state_lost);
    close_world(&world);
}

static void suspicion_alone_never_gives_up_the_state(void **state)
{
    struct world world;
    unsigned joiner;
    uint64_t epoch;

    (void)state;
    joiner = start_holder_and_joiner(&world, 33);
    epoch = pump_epoch(&world.pump);
    pump_crash_silently(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(60));
    assert_int_equal(pump_epoch(&world.pump), epoch);
    assert_false(world.pump.nodes[joiner].is_failed);

    pump_confirm(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_true(world.pump.nodes[joiner].is_failed);
    close_world(&world);
}

static void force_new_gives_up_the_state_when_leases_are_over(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(&world, 34);
    pump_kill(&world.pump, joiner);
    world.pump.is_force_new = true;
    joiner = pump_start(&world.pump, 1, 1);
    assert_settles(&world);
    pump_crash_silently(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(60));

    assert_true(world.pump.nodes[joiner].is_failed);
    close_world(&world);
}

static void a_holder_cut_off_from_the_joiner_goes_on_without_it(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(&world, 35);
    pump_block(&world.pump, 0, joiner, true);
    pump_run(&world.pump, PUMP_S(10));

    assert_true(pump_is_member(&world.pump, 0));
    assert_false(pump_is_member(&world.pump, joiner));
    pump_block(&world.pump, 0, joiner, false);
    world.pump.is_catch_up_held = false;
    assert_settles(&world);
    close_world(&world);
}

static void the_job_is_over_when_the_last_that_has_the_state_leaves(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(&world, 36);
    pump_expire(&world.pump, 0); /* no operation holds it back */
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));

    assert_int_equal(world.pump.key_view->member_count, 0);
    assert_int_equal(world.pump.nodes[joiner].error.rc, MUSTER_OUT_OF_RANGE);
    close_world(&world);
}

static void who_resigns_without_the_state_is_never_the_one_that_stays(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(&world, 37);
    pump_registry(&world.pump, false);
    pump_run(&world.pump, PUMP_MS(200));
    pump_expire(&world.pump, joiner);
    pump_expire(&world.pump, 0);
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_MS(200));
    pump_registry(&world.pump, true);
    pump_run(&world.pump, PUMP_S(2));

    assert_int_equal(world.pump.key_view->member_count, 0);
    assert_int_equal(world.pump.nodes[joiner].error.rc, MUSTER_OUT_OF_RANGE);
    close_world(&world);
}

/* --- two that do not reach each other --- */

static void part(struct world *world, unsigned a, unsigned b)
{
    pump_block(&world->pump, a, b, true);
    pump_reset_link(&world->pump, a, b);
}

static void of_two_that_never_reach_each_other_one_is_left_out(void **state)
{
    struct world world;
    uint64_t epoch;

    (void)state;
    open_world(&world, 41, 3);
    start_tasks(&world, 3, 3);
    part(&world, 1, 2);
    pump_run(&world.pump, PUMP_S(20));
    assert_true(pump_is_member(&world.pump, 1));
    assert_false(pump_is_member(&world.pump, 2));
    epoch = pump_epoch(&world.pump);
    pump_run(&world.pump, PUMP_S(60));
    assert_int_equal(pump_epoch(&world.pump), epoch);

    pump_block(&world.pump, 1, 2, false);
    assert_settles(&world);
    assert_int_equal(world.pump.key_view->member_count, 3);
    close_world(&world);
}

static void a_pair_apart_for_a_moment_costs_no_member(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 42, 3);
    start_tasks(&world, 3, 3);
    part(&world, 1, 2);
    pump_run(&world.pump, PUMP_S(5));
    pump_block(&world.pump, 1, 2, false);
    assert_settles(&world);

    assert_int_equal(world.pump.key_view->member_count, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_false(world.pump.nodes[i].is_excluded_once);
    close_world(&world);
}

static void who_does_not_reach_several_is_the_one_left_out(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 43, 4);
    start_tasks(&world, 4, 4);
    part(&world, 1, 2);
    part(&world, 1, 3);
    pump_run(&world.pump, PUMP_S(30));

    assert_false(pump_is_member(&world.pump, 1));
    assert_int_equal(world.pump.key_view->member_count, 3);
    close_world(&world);
}

static void on_one_host_nobody_is_left_out_for_a_lost_link(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 44, 4);
    start_tasks(&world, 4, 2); /* 1 and 3 share a host */
    part(&world, 1, 3);
    pump_run(&world.pump, PUMP_S(60));

    assert_int_equal(world.pump.key_view->member_count, 4);
    assert_false(world.pump.nodes[3].is_excluded_once);
    close_world(&world);
}

static void min_members_are_not_given_up_for_a_lost_link(void **state)
{
    struct world world;

    (void)state;
    open_world(&world, 45, 3);
    world.pump.min_members = 3;
    start_tasks(&world, 3, 3);
    part(&world, 1, 2);
    pump_run(&world.pump, PUMP_S(60));

    assert_int_equal(world.pump.key_view->member_count, 3);
    close_world(&world);
}

static void a_joiner_that_does_not_reach_a_member_waits_outside(void **state)
{
    struct world world;
    unsigned joiner;
    uint64_t epoch;

    (void)state;
    open_world(&world, 46, 3);
    start_tasks(&world, 3, 3);
    pump_kill(&world.pump, 2);
    assert_settles(&world);
    epoch = pump_epoch(&world.pump);
    joiner = pump_start(&world.pump, 2, 2);
    pump_block(&world.pump, 1, joiner, true);
    pump_run(&world.pump, PUMP_S(20));
    assert_int_equal(pump_epoch(&world.pump), epoch);

    pump_block(&world.pump, 1, joiner, false);
    assert_settles(&world);
    assert_true(pump_is_member(&world.pump, joiner));
    close_world(&world);
}

static void a_joiner_that_does_not_reach_a_dead_member_replaces_it(void **state)
{
    struct world world;
    unsigned joiner;

    (void)state;
    open_world(&world, 47, 2);
    world.pump.min_members = 2;
    start_tasks(&world, 2, 2);
    pump_crash_silently(&world.pump, 1); /* only silence tells */
    joiner = pump_start(&world.pump, 2, 2);
    pump_run(&world.pump, PUMP_S(20));

    assert_true(pump_is_member(&world.pump, joiner));
    assert_false(world.pump.key_view->is_below_min);
    close_world(&world);
}

/* --- random stories --- */

static unsigned random_alive(struct pump *pump)
{
    unsigned pick = (unsigned)pump_random(pump, pump->node_count);

    for (unsigned i = 0; i < pump->node_count; i++, pick++)
        if (pump->nodes[pick % pump->node_count].is_alive)
            return pick % pump->node_count;
    return 0;
}

static void restart_missing(struct pump *pump, uint32_t tasks, unsigned hosts, uint64_t chance)
{
    for (uint32_t task = 0; task < tasks && pump->node_count < PUMP_NODES_MAX; task++) {
        bool is_there = false;

        for (unsigned i = 0; i < pump->node_count; i++)
            if (pump->nodes[i].member.task_index == task && pump->nodes[i].is_alive)
                is_there = true;
        if (!is_there && pump_random(pump, chance) == 0)
            pump_start(pump, task, task % hosts);
    }
}

static void fault(struct pump *pump, uint32_t tasks, unsigned hosts, uint32_t kinds)
{
    unsigned a = random_alive(pump), b = random_alive(pump);
    uint32_t kind = (uint32_t)pump_random(pump, 15);

    if ((kinds >> kind & 1) == 0)
        return;
    switch (kind) {
    case 0:
    case 1:
        pump_kill(pump, a);
        return;
    case 2:
    case 3:
        restart_missing(pump, tasks, hosts, 2);
        return;
    case 4:
        pump_block(pump, a, b, true);
        return;
    case 5:
        pump_reset_link(pump, a, b);
        return;
    case 6:
        pump_registry(pump, pump_random(pump, 2) == 0);
        return;
    case 7:
        pump_pause(pump, a, PUMP_MS(pump_random(pump, 6000)));
        return;
    case 8:
        if (a != b)
            pump_suspect(pump, a, b);
        return;
    case 9:
        pump_propose_abort(pump, a);
        return;
    case 10:
        pump->nodes[a].stops_after_cas = true;
        return;
    case 11:
        pump->nodes[a].stops_before_cas = true;
        return;
    case 12:
        pump_see_registry(pump, a, pump_random(pump, 2) == 0);
        return;
    case 13:
        if (pump_random(pump, 3) == 0)
            pump_leave(pump, a);
        else
            pump_crash_silently(pump, a);
        return;
    case 14:
        pump_expire(pump, a);
        return;
    default:
        return;
    }
}

static void heal(struct pump *pump)
{
    pump->lose_answer_percent = 0;
    pump_registry(pump, true);
    for (unsigned a = 0; a < pump->node_count; a++) {
        pump->nodes[a].stops_after_cas = pump->nodes[a].stops_before_cas = false;
        pump_see_registry(pump, a, true);
        if (!pump->nodes[a].is_alive)
            pump_confirm(pump, a);
        for (unsigned b = 0; b < a; b++)
            pump_block(pump, a, b, false);
    }
}

static uint64_t deliveries(const struct pump *pump)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < pump->node_count; i++)
        sum += pump->nodes[i].deliveries;
    return sum;
}

static void random_story(uint64_t seed)
{
    struct world world;
    struct pump *pump = &world.pump;
    uint32_t tasks, kinds;
    unsigned hosts;
    uint64_t before;

    open_world(&world, seed, 1);
    tasks = 2 + (uint32_t)pump_random(pump, 4);
    hosts = 1 + (unsigned)pump_random(pump, tasks);
    kinds = (uint32_t)pump_random(pump, 1u << 15);
    pump->expected_count = tasks;
    pump->min_members = (uint32_t)pump_random(pump, 3);
    pump->lose_answer_percent = (uint32_t)pump_random(pump, 2) * 30;
    for (uint32_t task = 0; task < tasks; task++)
        pump_start(pump, task, task % hosts);
    for (unsigned i = 0; i < 25 && pump->failure[0] == '\0'; i++) {
        pump_run(pump, PUMP_MS(pump_random(pump, 600)));
        fault(pump, tasks, hosts, kinds);
    }
    heal(pump);
    restart_missing(pump, tasks, hosts, 1);
    pump_run(pump, PUMP_S(20)); /* who was leaving has left */
    restart_missing(pump, tasks, hosts, 1);
    if (!pump_run_until(pump, pump_is_settled, PUMP_S(60)) && pump_alive_count(pump) > 0)
        pump_fail(pump, "does not settle");
    before = deliveries(pump);
    pump_run(pump, PUMP_S(10));
    if (pump_alive_count(pump) > 0 && deliveries(pump) == before)
        pump_fail(pump, "settled, but nothing is delivered");
    if (pump->failure[0] != '\0')
        pump_print(pump);
    if (pump->failure[0] != '\0')
        print_error("MUSTER_SEEDS=%llu..%llu reproduces it\n", (unsigned long long)seed,
                    (unsigned long long)seed);
    close_world(&world);
}

static void random_stories_keep_every_rule(void **state)
{
    const char *range = getenv("MUSTER_SEEDS");
    unsigned long long first = 1, last = 40;

    (void)state;
    if (range != NULL)
        assert_int_equal(sscanf(range, "%llu..%llu", &first, &last), 2);
    for (uint64_t seed = first; seed <= last; seed++)
        random_story(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_view_waits_for_every_task),
        cmocka_unit_test(first_view_goes_on_with_min_members_after_the_timeout),
        cmocka_unit_test(a_killed_member_is_left_out_at_once),
        cmocka_unit_test(several_deaths_end_in_one_view_of_the_living),
        cmocka_unit_test(the_next_rank_leads_when_the_leader_dies_before_its_swap),
        cmocka_unit_test(the_committed_view_stands_when_the_leader_dies_after_its_swap),
        cmocka_unit_test(of_rival_leaders_the_swap_picks_one),
        cmocka_unit_test(a_false_suspicion_costs_an_epoch_and_no_member),
        cmocka_unit_test(a_paused_member_of_this_host_is_waited_for),
        cmocka_unit_test(the_excluded_but_alive_comes_back_in_the_same_process),
        cmocka_unit_test(a_restarted_task_joins_and_takes_its_rank_again),
        cmocka_unit_test(a_joiner_that_still_connects_does_not_say_that_it_hears_nobody),
        cmocka_unit_test(a_second_process_of_a_task_waits_while_the_first_lives),
        cmocka_unit_test(a_joiner_waits_for_the_end_of_the_operation_under_way),
        cmocka_unit_test(a_joiner_does_not_wait_for_ever),
        cmocka_unit_test(a_death_lets_the_waiting_joiner_in),
        cmocka_unit_test(joins_and_losses_fit_into_one_change),
        cmocka_unit_test(a_leaver_goes_without_a_retry),
        cmocka_unit_test(when_all_leave_the_last_view_is_empty),
        cmocka_unit_test(an_observer_learns_that_the_job_has_ended),
        cmocka_unit_test(who_comes_back_when_all_have_left_does_not_begin_anew),
        cmocka_unit_test(when_all_are_dead_joiners_begin_anew_only_after_confirmation),
        cmocka_unit_test(force_new_begins_anew_when_leases_are_over),
        cmocka_unit_test(below_min_members_the_survivors_wait_for_a_return),
        cmocka_unit_test(below_min_members_for_too_long_operations_are_aborted),
        cmocka_unit_test(training_goes_on_while_the_registry_is_away),
        cmocka_unit_test(a_death_during_a_registry_outage_is_settled_after_it),
        cmocka_unit_test(a_leader_cut_off_from_the_registry_is_overtaken),
        cmocka_unit_test(a_lost_answer_is_read_from_the_key),
        cmocka_unit_test(an_abort_that_one_proposes_all_get),
        cmocka_unit_test(who_gets_no_verdict_leaves_the_epoch_and_comes_back),
        cmocka_unit_test(where_all_get_no_verdict_one_stays_and_the_others_come_back),
        cmocka_unit_test(when_all_who_have_the_state_are_dead_the_others_are_told),
        cmocka_unit_test(after_the_state_is_lost_the_job_begins_anew),
        cmocka_unit_test(suspicion_alone_never_gives_up_the_state),
        cmocka_unit_test(force_new_gives_up_the_state_when_leases_are_over),
        cmocka_unit_test(a_holder_cut_off_from_the_joiner_goes_on_without_it),
        cmocka_unit_test(the_job_is_over_when_the_last_that_has_the_state_leaves),
        cmocka_unit_test(who_resigns_without_the_state_is_never_the_one_that_stays),
        cmocka_unit_test(of_two_that_never_reach_each_other_one_is_left_out),
        cmocka_unit_test(a_pair_apart_for_a_moment_costs_no_member),
        cmocka_unit_test(who_does_not_reach_several_is_the_one_left_out),
        cmocka_unit_test(on_one_host_nobody_is_left_out_for_a_lost_link),
        cmocka_unit_test(min_members_are_not_given_up_for_a_lost_link),
        cmocka_unit_test(a_joiner_that_does_not_reach_a_member_waits_outside),
        cmocka_unit_test(a_joiner_that_does_not_reach_a_dead_member_replaces_it),
        cmocka_unit_test(random_stories_keep_every_rule),
    };

    return cmocka_run_group_tests_name("membership", tests, NULL, NULL);
}
