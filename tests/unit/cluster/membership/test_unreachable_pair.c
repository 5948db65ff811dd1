/* Members, and joiners, that do not reach each other: who is left out, who waits. */
#include "membership_world.h"

/* --- two that do not reach each other --- */

static void part_pair(unsigned a, unsigned b)
{
    pump_block(&world.pump, a, b, true);
    pump_reset_link(&world.pump, a, b);
}

static void of_two_that_never_reach_each_other_one_is_left_out(void **state)
{
    uint64_t epoch;

    (void)state;
    membership_world_begin(41, 3, 3);
    part_pair(1, 2);
    pump_run(&world.pump, PUMP_S(20));
    assert_true(pump_is_member(&world.pump, 1));
    assert_false(pump_is_member(&world.pump, 2));
    epoch = pump_epoch(&world.pump);
    pump_run(&world.pump, PUMP_S(60));
    assert_int_equal(pump_epoch(&world.pump), epoch);

    pump_block(&world.pump, 1, 2, false);
    membership_world_assert_settles();
    assert_int_equal(world.pump.key_view->member_count, 3);
}

static void a_pair_apart_for_a_moment_costs_no_member(void **state)
{
    (void)state;
    membership_world_begin(42, 3, 3);
    part_pair(1, 2);
    pump_run(&world.pump, PUMP_S(5));
    pump_block(&world.pump, 1, 2, false);
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 3);
    for (unsigned i = 0; i < 3; i++)
        assert_false(world.pump.nodes[i].is_excluded_once);
}

static void who_does_not_reach_several_is_the_one_left_out(void **state)
{
    (void)state;
    membership_world_begin(43, 4, 4);
    part_pair(1, 2);
    part_pair(1, 3);
    pump_run(&world.pump, PUMP_S(30));

    assert_false(pump_is_member(&world.pump, 1));
    assert_int_equal(world.pump.key_view->member_count, 3);
}

/* With two pairs the later rank is evicted first. */
static void of_two_pairs_the_last_is_left_out_first(void **state)
{
    (void)state;
    membership_world_begin(46, 5, 5);
    part_pair(1, 2);
    part_pair(3, 4);
    for (unsigned i = 0; i < 300 && pump_is_member(&world.pump, 4); i++)
        pump_run(&world.pump, PUMP_MS(100));

    assert_false(pump_is_member(&world.pump, 4));
    assert_true(pump_is_member(&world.pump, 2));
    assert_true(pump_is_member(&world.pump, 3));
}

static void on_one_host_nobody_is_left_out_for_a_lost_link(void **state)
{
    (void)state;
    membership_world_begin(44, 4, 2); /* 1 and 3 share a host */
    part_pair(1, 3);
    pump_run(&world.pump, PUMP_S(60));

    assert_int_equal(world.pump.key_view->member_count, 4);
    assert_false(world.pump.nodes[3].is_excluded_once);
}

static void min_members_are_not_given_up_for_a_lost_link(void **state)
{
    (void)state;
    membership_world_open(45, 3);
    world.pump.min_members = 3;
    membership_world_start_tasks(3, 3);
    part_pair(1, 2);
    pump_run(&world.pump, PUMP_S(60));

    assert_int_equal(world.pump.key_view->member_count, 3);
}

static void a_joiner_that_does_not_reach_a_member_waits_outside(void **state)
{
    unsigned joiner;
    uint64_t epoch;

    (void)state;
    membership_world_begin(46, 3, 3);
    pump_kill(&world.pump, 2);
    membership_world_assert_settles();
    epoch = pump_epoch(&world.pump);
    joiner = pump_start(&world.pump, 2, 2);
    pump_block(&world.pump, 1, joiner, true);
    pump_run(&world.pump, PUMP_S(20));
    assert_int_equal(pump_epoch(&world.pump), epoch);

    pump_block(&world.pump, 1, joiner, false);
    membership_world_assert_settles();
    assert_true(pump_is_member(&world.pump, joiner));
}

static void a_joiner_that_does_not_reach_a_dead_member_replaces_it(void **state)
{
    unsigned joiner;

    (void)state;
    membership_world_open(47, 2);
    world.pump.min_members = 2;
    membership_world_start_tasks(2, 2);
    pump_crash_silently(&world.pump, 1); /* only silence tells */
    joiner = pump_start(&world.pump, 2, 2);
    pump_run(&world.pump, PUMP_S(20));

    assert_true(pump_is_member(&world.pump, joiner));
    assert_false(world.pump.key_view->is_below_min);
}

static bool is_known_dead(struct pump *pump)
{
    return muster_membership_belief(pump->nodes[0].machine, &pump->nodes[2].member.incarnation,
                                    pump->now_ns) == MUSTER_BELIEF_DEAD;
}

/* Messages that a link loses with its connection are sent again, also those that only one host can send. */
static void a_death_is_told_again_when_the_link_that_took_it_is_lost(void **state)
{
    struct pump *pump = &world.pump;

    (void)state;
    membership_world_open(63, 3);
    pump->is_launcherless = true;
    pump_start(pump, 0, 0);
    pump_start(pump, 1, 1);
    pump_start(pump, 2, 1);
    membership_world_assert_settles();
    pump_registry(pump, false); /* the view stays as it is */
    pump_block(pump, 0, 1, true);
    pump_kill(pump, 2);
    pump_run(pump, PUMP_MS(200));
    assert_false(is_known_dead(pump));

    pump_reset_link(pump, 0, 1);
    pump_block(pump, 0, 1, false);
    assert_true(pump_run_until(pump, is_known_dead, PUMP_S(3)));
    pump_registry(pump, true);
    membership_world_assert_settles();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMBERSHIP_CASE(a_death_is_told_again_when_the_link_that_took_it_is_lost),
        MEMBERSHIP_CASE(of_two_that_never_reach_each_other_one_is_left_out),
        MEMBERSHIP_CASE(a_pair_apart_for_a_moment_costs_no_member),
        MEMBERSHIP_CASE(who_does_not_reach_several_is_the_one_left_out),
        MEMBERSHIP_CASE(of_two_pairs_the_last_is_left_out_first),
        MEMBERSHIP_CASE(on_one_host_nobody_is_left_out_for_a_lost_link),
        MEMBERSHIP_CASE(min_members_are_not_given_up_for_a_lost_link),
        MEMBERSHIP_CASE(a_joiner_that_does_not_reach_a_member_waits_outside),
        MEMBERSHIP_CASE(a_joiner_that_does_not_reach_a_dead_member_replaces_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
