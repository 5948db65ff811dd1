/* Preemption as the membership sees it: all members stop behind one step, nobody joins a job that stops, and the next
 * beginning is not stopped by a request of before. */
#include "membership_world.h"

#include <string.h>

#define WORKERS 3

static void open_world(void)
{
    membership_world_begin(1, WORKERS, WORKERS);
    pump_run(&world.pump, PUMP_MS(300));
}

static bool is_stopping(struct pump *pump)
{
    return pump->key_view->is_stopping;
}

static void stop_job(void)
{
    pump_preempt(&world.pump, pump_epoch(&world.pump));
    assert_true(pump_run_until(&world.pump, is_stopping, PUMP_S(2)));
}

static bool have_all_stopped(struct pump *pump)
{
    for (unsigned i = 0; i < WORKERS; i++)
        if (pump->nodes[i].is_alive &&
            (pump->nodes[i].committed_step != pump->key_view->stop_step ||
             pump->nodes[i].op_count > 1))
            return false;
    return true;
}

static void all_members_stop_behind_the_step_that_the_view_names(void **state)
{
    (void)state;
    open_world();
    stop_job();
    assert_true(pump_run_until(&world.pump, have_all_stopped, PUMP_S(5)));
    pump_run(&world.pump, PUMP_S(1));

    assert_true(have_all_stopped(&world.pump));
    assert_true(world.pump.key_view->stop_step > 0);
    assert_int_equal(world.pump.key_view->member_count, WORKERS);
    assert_non_null(strstr(world.pump.key_view->reason, "preempted (SIGTERM)"));
}

static void a_request_is_taken_up_once(void **state)
{
    uint64_t epoch;

    (void)state;
    open_world();
    stop_job();
    epoch = pump_epoch(&world.pump);
    pump_preempt(&world.pump, epoch);
    pump_run(&world.pump, PUMP_S(2));

    assert_int_equal(pump_epoch(&world.pump), epoch);
}

static void the_next_leader_takes_it_up_when_the_first_one_dies(void **state)
{
    (void)state;
    open_world();
    world.pump.nodes[0].stops_before_cas = true;
    stop_job();

    assert_false(world.pump.nodes[0].is_alive);
    assert_int_equal(world.pump.key_view->member_count, WORKERS - 1);
}

static void a_death_does_not_move_the_step(void **state)
{
    uint64_t step;

    (void)state;
    open_world();
    stop_job();
    step = world.pump.key_view->stop_step;
    pump_kill(&world.pump, 1);
    assert_true(pump_run_until(&world.pump, pump_is_settled, PUMP_S(5)));
    pump_run(&world.pump, PUMP_S(1));

    assert_true(world.pump.key_view->is_stopping);
    assert_int_equal(world.pump.key_view->stop_step, step);
    assert_true(have_all_stopped(&world.pump));
}

static void fewer_than_min_members_stop_without_waiting(void **state)
{
    (void)state;
    membership_world_open(1, WORKERS);
    world.pump.min_members = WORKERS;
    membership_world_start_tasks(WORKERS, WORKERS);
    stop_job();
    pump_kill(&world.pump, 1);

    assert_true(pump_run_until(&world.pump, pump_is_settled, PUMP_S(2)));
    assert_false(world.pump.key_view->is_below_min);
}

static void who_starts_while_members_stop_is_told_so(void **state)
{
    unsigned late;
    uint64_t epoch;

    (void)state;
    open_world();
    stop_job();
    epoch = pump_epoch(&world.pump);
    late = pump_start(&world.pump, 7, 7);
    pump_run(&world.pump, PUMP_S(1));

    assert_true(world.pump.nodes[late].is_failed);
    assert_int_equal(world.pump.nodes[late].error.rc, MUSTER_CANCELLED);
    assert_int_equal(pump_epoch(&world.pump), epoch);
}

static void who_was_started_before_is_told_so_as_well(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    world.pump.is_unready = true; /* its program has not asked yet */
    late = pump_start(&world.pump, 7, 7);
    pump_run(&world.pump, PUMP_MS(500));
    stop_job();
    for (unsigned i = 0; i < WORKERS; i++)
        pump_leave_undone(&world.pump, i);
    pump_run(&world.pump, PUMP_S(70)); /* long enough to begin alone */

    assert_true(world.pump.nodes[late].is_failed);
    assert_int_equal(world.pump.nodes[late].error.rc, MUSTER_CANCELLED);
    assert_int_equal(world.pump.key_view->member_count, 0);
}

static unsigned stop_and_start(uint32_t count, bool is_return)
{
    unsigned first;

    open_world();
    stop_job();
    for (unsigned i = 0; i < WORKERS; i++)
        pump_leave_undone(&world.pump, i);
    pump_run(&world.pump, PUMP_S(2));
    assert_int_equal(world.pump.key_view->member_count, 0);
    first = world.pump.node_count;
    world.pump.is_return = is_return;
    for (uint32_t i = 0; i < count; i++)
        pump_start(&world.pump, i, i);
    pump_run(&world.pump, PUMP_S(70));
    return first;
}

static void a_worker_that_its_launcher_starts_again_does_not_begin_alone(void **state)
{
    unsigned late;

    (void)state;
    late = stop_and_start(1, true);

    assert_true(world.pump.nodes[late].is_failed);
    assert_int_equal(world.pump.nodes[late].error.rc, MUSTER_CANCELLED);
    assert_int_equal(world.pump.key_view->member_count, 0);
}

/* A process that reads the registry when all have left a job that stopped. Its own record is of `own`, the empty view
 * of `revision`. Returns the code by which it fails. */
static enum muster_rc read_late(struct muster_mem *mem, uint64_t own, uint64_t revision)
{
    struct muster_rng_seeded rng;
    struct muster_member self = {.incarnation = {.bytes = {1}}, .task_type = "worker"};
    const struct muster_member_record record = {.member = self};
    const struct muster_view fields = {
        .job = "job", .epoch = 4, .begin_epoch = 1, .is_stopping = true, .stop_step = 7};
    struct muster_membership_event events[] = {
        {.kind = MUSTER_EVENT_START},
        {.kind = MUSTER_EVENT_REGISTRY_UP},
        {.kind = MUSTER_EVENT_SNAPSHOT_BEGIN},
        {.kind = MUSTER_EVENT_MEMBER_PUT, .record = &record, .revision = own},
        {.kind = MUSTER_EVENT_VIEW_PUT, .revision = revision},
        {.kind = MUSTER_EVENT_SNAPSHOT_END}};
    struct muster_membership_actions actions;
    struct muster_membership *machine;
    enum muster_rc rc = MUSTER_OK;

    muster_rng_seeded_init(&rng, 1);
    assert_int_equal(muster_view_new(mem, &fields, &events[4].view), MUSTER_OK);
    assert_int_equal(
        muster_membership_new(
            &(struct muster_membership_options){
                .mem = mem, .rng = &rng.rng, .job = "job", .self = self, .expected_count = 2},
            &machine),
        MUSTER_OK);
    muster_membership_actions_init(&actions, mem);
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        assert_int_equal(muster_membership_step(machine, &events[i], 1, &actions), MUSTER_OK);
    for (size_t i = 0; i < actions.count; i++)
        if (actions.items[i].kind == MUSTER_ACTION_TELL_FAILED)
            rc = actions.items[i].error.rc;
    muster_membership_actions_fini(&actions);
    muster_membership_free(machine);
    muster_view_unref(events[4].view);
    return rc;
}

static void who_was_registered_before_the_last_had_left_does_not_begin_alone(void **state)
{
    (void)state;
    assert_int_equal(read_late(muster_mem_system(), 8, 9), MUSTER_CANCELLED);
    assert_int_equal(read_late(muster_mem_system(), 10, 9), MUSTER_OK);
}

static void the_next_start_begins_anew_and_the_old_request_does_not_stop_it(void **state)
{
    unsigned first;

    (void)state;
    first = stop_and_start(WORKERS, false);

    for (unsigned i = first; i < first + WORKERS; i++)
        assert_true(pump_is_member(&world.pump, i));
    assert_false(world.pump.key_view->is_stopping);
    assert_true(world.pump.key_view->begin_epoch > 1);
    assert_true(world.pump.nodes[first].committed_step > 0);
}

/* --- random faults --- */

#define TASKS 4
#define SEEDS 40

static void inject_fault(struct pump *pump)
{
    unsigned a = (unsigned)pump_random(pump, TASKS), b = (unsigned)pump_random(pump, TASKS);

    if (!pump->nodes[a].is_alive || !pump->nodes[b].is_alive || a == b)
        return;
    switch (pump_random(pump, 6)) {
    case 0:
        if (pump_alive_count(pump) > 2)
            pump_kill(pump, a);
        return;
    case 1:
        pump_reset_link(pump, a, b);
        return;
    case 2:
        pump_registry(pump, !pump->is_registry_up);
        return;
    case 3:
        pump_pause(pump, a, PUMP_MS(pump_random(pump, 2000)));
        return;
    case 4:
        pump->nodes[a].stops_before_cas = pump_alive_count(pump) > 2;
        return;
    default:
        pump_propose_abort(pump, a);
        return;
    }
}

/* A member that was left out meanwhile is told so, and does not count. */
static bool have_all_members_stopped(struct pump *pump)
{
    for (unsigned i = 0; i < pump->node_count; i++) {
        const struct pump_node *node = &pump->nodes[i];

        if (node->is_alive && !node->is_failed &&
            (pump_state(pump, i) != MUSTER_MEMBERSHIP_STEADY || !pump->key_view->is_stopping ||
             node->committed_step != pump->key_view->stop_step))
            return false;
    }
    return true;
}

/* All views that say so name one step. */
static void assert_one_step(const struct pump *pump)
{
    for (size_t epoch = 1; epoch < 1024; epoch++)
        if (pump->epochs[epoch] != NULL && pump->epochs[epoch]->is_stopping)
            assert_int_equal(pump->epochs[epoch]->stop_step, pump->key_view->stop_step);
}

static void all_stop_behind_one_step_whatever_fails(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct pump *pump = &world.pump;

        membership_world_begin(seed, TASKS, 2);
        pump_run(pump, PUMP_MS(200 + pump_random(pump, 400)));
        for (unsigned round = 0; round < 30; round++) {
            if (round == 10 || !pump->key_view->is_stopping)
                pump_preempt(pump, pump_epoch(pump)); /* its writer repeats it */
            inject_fault(pump);
            pump_run(pump, PUMP_MS(pump_random(pump, 300)));
        }
        pump_registry(pump, true);
        assert_true(pump_run_until(pump, have_all_members_stopped, PUMP_S(40)));
        pump_run(pump, PUMP_S(5));
        assert_true(have_all_members_stopped(pump));
        assert_one_step(pump);
        membership_world_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMBERSHIP_CASE(all_members_stop_behind_the_step_that_the_view_names),
        MEMBERSHIP_CASE(a_request_is_taken_up_once),
        MEMBERSHIP_CASE(the_next_leader_takes_it_up_when_the_first_one_dies),
        MEMBERSHIP_CASE(a_death_does_not_move_the_step),
        MEMBERSHIP_CASE(fewer_than_min_members_stop_without_waiting),
        MEMBERSHIP_CASE(who_starts_while_members_stop_is_told_so),
        MEMBERSHIP_CASE(who_was_started_before_is_told_so_as_well),
        MEMBERSHIP_CASE(a_worker_that_its_launcher_starts_again_does_not_begin_alone),
        cmocka_unit_test(who_was_registered_before_the_last_had_left_does_not_begin_alone),
        cmocka_unit_test(all_stop_behind_one_step_whatever_fails),
        MEMBERSHIP_CASE(the_next_start_begins_anew_and_the_old_request_does_not_stop_it),
    };

    return cmocka_run_group_tests_name("membership_stop", tests, NULL, NULL);
}
