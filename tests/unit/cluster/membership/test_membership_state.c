/* Holders of the state, and the end of a job whose last copy is lost. */
#include "membership_world.h"

/* --- joiners without the state --- */

/* Task 0 has the state; task 1 has been killed and has joined again, and gets nothing. Returns the
 * joiner. */
static unsigned start_holder_and_joiner(uint64_t seed)
{
    unsigned joiner;

    membership_world_begin(seed, 2, 2);
    pump_run(&world.pump, PUMP_MS(100));
    world.pump.is_catch_up_held = true;
    pump_kill(&world.pump, 1);
    joiner = pump_start(&world.pump, 1, 1);
    membership_world_assert_settles();
    return joiner;
}

static void when_all_who_have_the_state_are_dead_the_others_are_told(void **state)
{
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(31);
    pump_kill(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));

    assert_true(world.pump.key_view->is_state_lost);
    assert_true(world.pump.nodes[joiner].is_failed);
}

static void after_the_state_is_lost_the_job_begins_anew(void **state)
{
    (void)state;
    (void)start_holder_and_joiner(32);
    world.pump.is_return = true;
    pump_kill(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_start(&world.pump, 0, 0);
    pump_start(&world.pump, 1, 1);
    membership_world_assert_settles();

    assert_int_equal(world.pump.key_view->member_count, 2);
    assert_int_equal(world.pump.key_view->members[0].from_step, 0);
    assert_false(world.pump.key_view->is_state_lost);
}

static void suspicion_alone_never_gives_up_the_state(void **state)
{
    unsigned joiner;
    uint64_t epoch;

    (void)state;
    joiner = start_holder_and_joiner(33);
    epoch = pump_epoch(&world.pump);
    pump_crash_silently(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(60));
    assert_int_equal(pump_epoch(&world.pump), epoch);
    assert_false(world.pump.nodes[joiner].is_failed);

    pump_confirm(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_true(world.pump.nodes[joiner].is_failed);
}

static void force_new_gives_up_the_state_when_leases_are_over(void **state)
{
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(34);
    pump_kill(&world.pump, joiner);
    world.pump.is_force_new = true;
    joiner = pump_start(&world.pump, 1, 1);
    membership_world_assert_settles();
    pump_crash_silently(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(60));

    assert_true(world.pump.nodes[joiner].is_failed);
}

static void a_holder_cut_off_from_the_joiner_goes_on_without_it(void **state)
{
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(35);
    pump_block(&world.pump, 0, joiner, true);
    pump_run(&world.pump, PUMP_S(10));

    assert_true(pump_is_member(&world.pump, 0));
    assert_false(pump_is_member(&world.pump, joiner));
    pump_block(&world.pump, 0, joiner, false);
    world.pump.is_catch_up_held = false;
    membership_world_assert_settles();
}

static void the_job_is_over_when_the_last_that_has_the_state_leaves(void **state)
{
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(36);
    pump_expire(&world.pump, 0); /* no operation holds it back */
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));

    assert_int_equal(world.pump.key_view->member_count, 0);
    assert_int_equal(world.pump.nodes[joiner].error.rc, MUSTER_OUT_OF_RANGE);
}

static void who_resigns_without_the_state_is_never_the_one_that_stays(void **state)
{
    unsigned joiner;

    (void)state;
    joiner = start_holder_and_joiner(37);
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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMBERSHIP_CASE(when_all_who_have_the_state_are_dead_the_others_are_told),
        MEMBERSHIP_CASE(after_the_state_is_lost_the_job_begins_anew),
        MEMBERSHIP_CASE(suspicion_alone_never_gives_up_the_state),
        MEMBERSHIP_CASE(force_new_gives_up_the_state_when_leases_are_over),
        MEMBERSHIP_CASE(a_holder_cut_off_from_the_joiner_goes_on_without_it),
        MEMBERSHIP_CASE(the_job_is_over_when_the_last_that_has_the_state_leaves),
        MEMBERSHIP_CASE(who_resigns_without_the_state_is_never_the_one_that_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
