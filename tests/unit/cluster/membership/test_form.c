/* Candidates of a new beginning: neither processes that have left nor dead ones count. */
#include "membership_world.h"

#define WORKERS 3
#define SEEDS   40

/* Three tasks that have begun, on so many hosts; nobody writes down deaths. */
static void open_world(uint64_t seed, unsigned hosts)
{
    membership_world_open(seed, WORKERS);
    world.pump.is_launcherless = true;
    world.pump.is_unready = true;
    world.pump.has_ops = false;
    membership_world_start_tasks(WORKERS, hosts);
}

static void all_leave(struct pump *pump)
{
    for (unsigned i = 0; i < WORKERS; i++)
        pump_leave_undone(pump, i);
}

/* Two of the next job are there; the third comes late. All three begin together. */
static void assert_they_begin_together(unsigned late_host)
{
    struct pump *pump = &world.pump;
    unsigned late;

    pump_run(pump, PUMP_S(4));
    assert_int_equal(pump->key_view->member_count, 0);
    late = pump_start(pump, 2, late_host);
    membership_world_assert_settles();

    assert_true(pump_is_member(pump, late));
    assert_int_equal(pump->key_view->member_count, WORKERS);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pump->key_view->members[i].from_step, 0);
    membership_world_close();
}

static void who_has_left_is_not_counted_by_those_who_wait(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(seed, WORKERS);
        pump_start(&world.pump, 0, 0);
        pump_start(&world.pump, 1, 1);
        pump_run(&world.pump, PUMP_S(1));
        all_leave(&world.pump);
        assert_they_begin_together(2);
    }
}

/* The leaver that makes the empty view tells it to the joiners, whom the registry's news reach later. */
static void a_view_that_is_only_told_does_not_begin_anything(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(seed, WORKERS);
        for (unsigned task = 0; task < 2; task++)
            pump_start(&world.pump, task, task);
        pump_run(&world.pump, PUMP_S(1));
        world.pump.nodes[WORKERS].is_watch_late = world.pump.nodes[WORKERS + 1].is_watch_late =
            true;
        all_leave(&world.pump);
        pump_run(&world.pump, PUMP_S(3));
        assert_int_equal(world.pump.key_view->member_count, 0);
        world.pump.nodes[WORKERS].is_watch_late = world.pump.nodes[WORKERS + 1].is_watch_late =
            false;
        assert_they_begin_together(2);
    }
}

static void who_has_left_is_not_counted_by_those_who_come_at_any_time(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(seed, WORKERS);
        all_leave(&world.pump);
        pump_run(&world.pump, PUMP_MS(seed));
        pump_start(&world.pump, 0, 0);
        pump_start(&world.pump, 1, 1);
        assert_they_begin_together(2);
    }
}

/* Its own leave is the last change, and its record must be gone with it. */
static void a_leader_that_is_the_last_leaves_no_record(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(seed, WORKERS);
        pump_leave_undone(&world.pump, 1);
        pump_leave_undone(&world.pump, 2);
        pump_run(&world.pump, PUMP_S(2));
        assert_int_equal(world.pump.key_view->member_count, 1);
        pump_start(&world.pump, 1, 1);
        pump_start(&world.pump, 2, 2);
        pump_start(&world.pump, 0, 0);
        pump_leave_undone(&world.pump, 0);
        pump_run(&world.pump, PUMP_S(4));

        assert_true(world.pump.nodes[0].is_left);
        membership_world_assert_settles();
        for (unsigned node = WORKERS; node < 2 * WORKERS; node++)
            assert_true(pump_is_member(&world.pump, node));
        membership_world_close();
    }
}

/* Its record lives as long as its lease: the system knows better. */
static void who_was_killed_on_this_host_is_not_counted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(seed, 1);
        pump_kill(&world.pump, 2);
        membership_world_assert_settles();
        pump_leave_undone(&world.pump, 0);
        pump_leave_undone(&world.pump, 1);
        pump_run(&world.pump, PUMP_S(1));
        pump_start(&world.pump, 0, 0);
        pump_start(&world.pump, 1, 0);
        assert_they_begin_together(0);
    }
}

/* It has not heard of the end of its job, and its record lives on. */
static void who_sleeps_through_the_end_of_its_job_is_not_counted(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct pump *pump = &world.pump;

        open_world(seed, WORKERS);
        pump_pause(pump, 2, PUMP_S(10));
        pump_run(pump, PUMP_S(3));
        pump_leave_undone(pump, 0);
        pump_leave_undone(pump, 1);
        pump_run(pump, PUMP_S(1));
        pump_start(pump, 0, 0);
        pump_start(pump, 1, 1);
        pump_run(pump, PUMP_S(4));
        assert_int_equal(pump->key_view->member_count, 0);
        membership_world_assert_settles();

        assert_true(pump_is_member(pump, 2));
        assert_int_equal(pump->key_view->member_count, WORKERS);
        membership_world_close();
    }
}

/* Between the end of its record and the view without it. */
static void a_leaver_that_is_killed_on_its_way_is_lost_like_any_other(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        open_world(seed, 1);
        pump_leave_undone(&world.pump, 2);
        pump_run(&world.pump, seed * 100 * MUSTER_NS_PER_US);
        pump_kill(&world.pump, 2);
        membership_world_assert_settles();
        assert_int_equal(world.pump.key_view->member_count, 2);
        membership_world_close();
    }
}

/* The change waits for the registry, and so does the leave: it says so only when its record is gone. */
static void a_leave_without_the_registry_goes_on_when_it_is_back(void **state)
{
    (void)state;
    open_world(1, WORKERS);
    pump_registry(&world.pump, false);
    pump_leave_undone(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(5));
    assert_false(world.pump.nodes[0].is_left);

    pump_registry(&world.pump, true);
    pump_run(&world.pump, PUMP_S(2));
    membership_world_assert_settles();
    assert_true(world.pump.nodes[0].is_left);
    assert_false(world.pump.nodes[0].is_registered);
    assert_int_equal(world.pump.key_view->member_count, 2);
}

/* The first in rank order is slow, so another one makes the view. */
static void what_the_first_in_rank_order_asks_for_holds_whoever_begins(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct pump *pump = &world.pump;

        membership_world_open(seed, WORKERS);
        pump->asked.bytes_per_pack = 1000;
        pump_start(pump, 0, 0);
        pump->asked.bytes_per_pack = 0;
        pump_start(pump, 1, 1);
        pump_run(pump, PUMP_MS(500));
        pump_pause(pump, 0, PUMP_MS(800));
        pump->asked.bytes_per_pack = 2000;
        pump_start(pump, 2, 2);
        pump_run(pump, PUMP_MS(700));

        assert_non_null(pump->key_view);
        assert_int_equal(pump->key_view->epoch, 1);
        assert_int_equal(pump->key_view->communication.bytes_per_pack, 1000);
        membership_world_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_left_is_not_counted_by_those_who_wait),
        cmocka_unit_test(a_view_that_is_only_told_does_not_begin_anything),
        cmocka_unit_test(who_has_left_is_not_counted_by_those_who_come_at_any_time),
        cmocka_unit_test(a_leader_that_is_the_last_leaves_no_record),
        cmocka_unit_test(who_was_killed_on_this_host_is_not_counted),
        cmocka_unit_test(who_sleeps_through_the_end_of_its_job_is_not_counted),
        cmocka_unit_test(a_leaver_that_is_killed_on_its_way_is_lost_like_any_other),
        MEMBERSHIP_CASE(a_leave_without_the_registry_goes_on_when_it_is_back),
        cmocka_unit_test(what_the_first_in_rank_order_asks_for_holds_whoever_begins),
    };

    return cmocka_run_group_tests_name("membership_form", tests, NULL, NULL);
}
