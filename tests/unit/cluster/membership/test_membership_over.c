/* Has the job ended, or does it begin anew? What a process learns that comes back when nobody is
 * left to ask. */
#include "membership_world.h"

#include <string.h>

#define WORKERS 3

/* Three tasks on three hosts that have committed step 100. */
static void open_world(void)
{
    membership_world_open(1, WORKERS);
    world.pump.has_ops = false; /* steps are committed by hand */
    membership_world_start_tasks(WORKERS, WORKERS);
    for (unsigned i = 0; i < WORKERS; i++)
        pump_commit(&world.pump, i, 100);
}

/* The tasks come back, as their launcher starts them again. Returns the first. */
static unsigned come_back(uint32_t first_task, uint32_t count)
{
    unsigned first = world.pump.node_count;

    world.pump.is_return = true;
    for (uint32_t i = 0; i < count; i++)
        pump_start(&world.pump, first_task + i, first_task + i);
    pump_run(&world.pump, PUMP_S(70));
    return first;
}

static void assert_told_over(unsigned node)
{
    assert_true(world.pump.nodes[node].is_failed);
    assert_int_equal(world.pump.nodes[node].error.rc, MUSTER_OUT_OF_RANGE);
}

static void assert_began_anew(unsigned node, uint64_t epoch)
{
    assert_false(world.pump.nodes[node].is_failed);
    assert_true(pump_is_member(&world.pump, node));
    assert_true(pump_epoch(&world.pump) > epoch);
    assert_int_equal(world.pump.key_view->members[0].from_step, 0);
    assert_false(world.pump.key_view->is_done);
}

static void a_job_that_one_has_finished_is_over_when_the_others_are_killed(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    assert_int_equal(world.pump.key_view->member_count, 2);
    assert_int_equal(world.pump.key_view->done_step, 100);
    assert_int_equal(world.pump.key_view->done_calls, 3);
    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 2);
    late = come_back(1, 2);

    assert_told_over(late);
    assert_told_over(late + 1);
    assert_int_equal(world.pump.key_view->member_count, 2);
}

static void it_is_over_although_a_member_had_not_committed_the_last_step(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    pump_commit(&world.pump, 0, 101);
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 2);
    late = come_back(1, 2);

    assert_told_over(late);
}

static void a_job_that_went_on_after_an_early_leave_begins_anew(void **state)
{
    unsigned late;
    uint64_t epoch;

    (void)state;
    open_world();
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_commit(&world.pump, 2, 101);
    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 2);
    epoch = pump_epoch(&world.pump);
    late = come_back(1, 2);

    assert_began_anew(late, epoch);
}

static void nobody_says_over_before_the_launchers_have_told_how_far_the_dead_had_come(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_kill(&world.pump, 1);
    pump_crash_silently(&world.pump, 2);
    late = come_back(1, 1);
    assert_false(world.pump.nodes[late].is_failed);

    pump_confirm(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(1));
    assert_told_over(late);
}

/* The operating system is faster than the launcher: that it is dead does not say how far it was. */
static void a_death_seen_before_its_record_does_not_say_over(void **state)
{
    unsigned late;
    uint64_t epoch;

    (void)state;
    open_world();
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_kill(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(1));
    world.pump.is_return = true;
    late = pump_start(&world.pump, 1, 2);
    for (int i = 0; i < 1000 && !world.pump.links[2][late].is_up; i++)
        pump_run(&world.pump, PUMP_MS(1));
    pump_run(&world.pump, PUMP_MS(1));
    assert_false(pump_is_member(&world.pump, late));
    pump_commit(&world.pump, 2, 101);
    pump_kill(&world.pump, 2);
    epoch = pump_epoch(&world.pump);
    pump_run(&world.pump, PUMP_S(70));

    assert_began_anew(late, epoch);
}

static void a_process_that_ended_with_success_counts_as_one_that_left(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    for (unsigned i = 0; i < WORKERS; i++)
        pump_crash_silently(&world.pump, i);
    strcpy(world.pump.nodes[0].record, "exit 0 at step 100, done");
    for (unsigned i = 0; i < WORKERS; i++)
        pump_confirm(&world.pump, i);
    late = come_back(1, 1);

    assert_told_over(late);
}

/* Task 1 has come back and has no state yet when the others go, in the step behind the last one, without a word whether
 * their work is done. Their launcher then records how they ended; NULL: nothing. Returns task 1's next life. */
static unsigned lose_state_to_leavers(const char *first_record, const char *second_record)
{
    unsigned joiner;

    open_world();
    world.pump.nodes[0].begun_step = world.pump.nodes[2].begun_step = 101;
    world.pump.is_catch_up_held = true;
    pump_kill(&world.pump, 1);
    world.pump.is_return = true;
    joiner = pump_start(&world.pump, 1, 1);
    pump_run(&world.pump, PUMP_S(1));
    assert_true(pump_is_member(&world.pump, joiner));
    pump_leave_undone(&world.pump, 0);
    pump_leave_undone(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(1));
    assert_true(world.pump.key_view->is_state_lost && world.pump.nodes[joiner].is_failed);

    pump_kill(&world.pump, joiner);
    if (first_record != NULL)
        strcpy(world.pump.nodes[0].record, first_record);
    if (second_record != NULL)
        strcpy(world.pump.nodes[2].record, second_record);
    if (first_record != NULL)
        pump_confirm(&world.pump, 0);
    if (second_record != NULL)
        pump_confirm(&world.pump, 2);
    return come_back(1, 1);
}

static void it_is_over_when_those_who_left_a_joiner_without_the_state_ended_with_success(
    void **state)
{
    static const struct {
        const char *first, *second;
        bool is_over;
    } rows[] = {
        {"exit 0 at step 100 in view 2, done", "exit 0 at step 100 in view 2, done", true},
        {"exit 0 at step 100 in view 2, done", "SIGKILL at step 100 in view 2", true},
        {"exit 0 at step 100 in view 2, done", "SIGKILL at step 101 in view 2", false},
        {"exit 0 at step 90 in view 2, done", NULL, false}, /* the others went on */
        {"SIGKILL at step 100 in view 2", "exit 1 at step 100 in view 2", false},
        {"exit 0 at step 100, done", "exit 0 at step 100 in view 0, done",
         false}, /* of another job */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned late = lose_state_to_leavers(rows[i].first, rows[i].second);

        if (rows[i].is_over)
            assert_told_over(late);
        else if (world.pump.nodes[late].is_failed)
            fail_msg("row %zu: %s", i, world.pump.nodes[late].error.text);
        if (i + 1 < sizeof(rows) / sizeof(rows[0]))
            membership_world_close();
    }
}

/* As above, and nobody was joining. */
static void it_is_over_when_all_who_left_ended_with_success(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    pump_kill(&world.pump, 1);
    pump_run(&world.pump, PUMP_S(1));
    pump_leave_undone(&world.pump, 0);
    pump_leave_undone(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(3));
    assert_true(world.pump.key_view->member_count == 0 && !world.pump.key_view->is_done);
    strcpy(world.pump.nodes[0].record, "exit 0 at step 100 in view 2, done");
    strcpy(world.pump.nodes[2].record, "exit 0 at step 100 in view 2, done");
    pump_confirm(&world.pump, 0);
    pump_confirm(&world.pump, 2);
    late = come_back(1, 1);

    assert_told_over(late);
}

static void a_job_that_all_have_left_in_failure_begins_anew(void **state)
{
    unsigned late;
    uint64_t epoch;

    (void)state;
    open_world();
    for (unsigned i = 0; i < WORKERS; i++)
        pump_leave_undone(&world.pump, i);
    pump_run(&world.pump, PUMP_S(3));
    assert_int_equal(world.pump.key_view->member_count, 0);
    epoch = pump_epoch(&world.pump);
    late = come_back(0, WORKERS);

    assert_began_anew(late, epoch);
}

static void a_first_life_begins_anew_whatever_others_have_done(void **state)
{
    uint64_t epoch;

    (void)state;
    open_world();
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(1));
    epoch = pump_epoch(&world.pump);
    for (uint32_t task = 0; task < WORKERS; task++)
        pump_start(&world.pump, task, task);
    pump_run(&world.pump, PUMP_S(5));

    assert_began_anew(WORKERS, epoch);
}

static void an_observer_that_saw_members_is_told_like_one_that_comes_back(void **state)
{
    unsigned late;

    (void)state;
    open_world();
    pump_leave(&world.pump, 0);
    pump_run(&world.pump, PUMP_S(1));
    pump_pause(&world.pump, 1, PUMP_S(2)); /* so that nobody admits it */
    pump_pause(&world.pump, 2, PUMP_S(2));
    late = pump_start(&world.pump, 0, 7);
    pump_run(&world.pump, PUMP_S(1));
    pump_kill(&world.pump, 1);
    pump_kill(&world.pump, 2);
    pump_run(&world.pump, PUMP_S(3));

    assert_told_over(late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEMBERSHIP_CASE(a_job_that_one_has_finished_is_over_when_the_others_are_killed),
        MEMBERSHIP_CASE(it_is_over_although_a_member_had_not_committed_the_last_step),
        MEMBERSHIP_CASE(a_job_that_went_on_after_an_early_leave_begins_anew),
        MEMBERSHIP_CASE(nobody_says_over_before_the_launchers_have_told_how_far_the_dead_had_come),
        MEMBERSHIP_CASE(a_death_seen_before_its_record_does_not_say_over),
        MEMBERSHIP_CASE(a_process_that_ended_with_success_counts_as_one_that_left),
        MEMBERSHIP_CASE(
            it_is_over_when_those_who_left_a_joiner_without_the_state_ended_with_success),
        MEMBERSHIP_CASE(it_is_over_when_all_who_left_ended_with_success),
        MEMBERSHIP_CASE(a_job_that_all_have_left_in_failure_begins_anew),
        MEMBERSHIP_CASE(a_first_life_begins_anew_whatever_others_have_done),
        MEMBERSHIP_CASE(an_observer_that_saw_members_is_told_like_one_that_comes_back),
    };

    return cmocka_run_group_tests_name("membership_over", tests, NULL, NULL);
}
