/* The end of a preempted job, on a node that the case plays. */
#include <stdio.h>
#include <string.h>

#include <muster/strategy_preemption.h>

#include "played_node.h"

/* A view of all three members in which the job stops behind this step. */
static void stop_behind(uint64_t epoch, uint32_t members, uint64_t step)
{
    const struct muster_view fields = {
        .is_stopping = true, .stop_step = step, .reason = "preempted (SIGTERM)"};

    played_enter();
    played_view(epoch, members, 0, 0, 0, &fields);
    played_leave();
}

static void begin_goes_on_up_to_the_step_and_then_says_so_again_and_again(void **state)
{
    struct muster_strategy *strategy;
    uint64_t step = 0;

    played_open();
    *state = strategy = played_strategy();
    played_begin(strategy);
    assert_false(muster_strategy_is_preempted(strategy));

    stop_behind(2, 7, 2);
    assert_true(muster_strategy_is_preempted(strategy));
    played_commit(strategy);
    played_begin(strategy);
    played_commit(strategy);

    for (int i = 0; i < 2; i++)
        played_expect_error(strategy, muster_strategy_begin(strategy, &step, NULL),
                            MUSTER_CANCELLED,
                            "preempted: stopped after step 2; nothing is saved: no checkpoint "
                            "directory is set");
    assert_int_equal(played_count_told("preempted"), 1);
}

static void who_stops_leaves_as_one_whose_work_is_not_done(void **state)
{
    struct muster_strategy *strategy;
    uint64_t step = 0;

    (void)state;
    played_open();
    strategy = played_strategy();
    played_begin(strategy);
    played_commit(strategy);
    stop_behind(2, 7, 1);
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_CANCELLED);

    played_close_strategy(strategy);

    assert_int_equal(played_count_lines("leave within"), 1);
    assert_int_equal(played_count_lines("leave done"), 0);
    assert_int_equal(played_count_told("result"), 0);
}

static void fail_outside(void)
{
    played_fail(MUSTER_CANCELLED, "the job is preempted");
}

static void a_process_outside_a_job_that_stops_is_preempted_as_well(void **state)
{
    struct muster_strategy *strategy;

    played_open();
    *state = strategy = played_strategy();
    played.on_state = fail_outside;

    assert_int_equal(played_try_begin(strategy), MUSTER_CANCELLED);
    assert_true(muster_strategy_is_preempted(strategy));
    assert_int_equal(played_count_told("preempted"), 1);
}

static void members_that_have_stopped_are_no_loss_of_a_fixed_size(void **state)
{
    struct muster_strategy *strategy;

    played_open();
    *state = strategy = played_strategy();
    strategy->is_fixed_size = true;
    played_begin(strategy);

    stop_behind(2, 7, 1);
    stop_behind(3, 3, 1);

    assert_int_equal(strategy->state, MUSTER_STRATEGY_STEP);
    played_commit(strategy);
    assert_int_equal(played_try_begin(strategy), MUSTER_CANCELLED);
}

static void a_program_may_say_so_itself(void **state)
{
    struct muster_strategy *strategy;

    played_open();
    *state = strategy = played_strategy();
    played_begin_unnoted(strategy);

    assert_int_equal(muster_strategy_preempt(strategy, "the battery is low"), MUSTER_OK);

    played_expect("preempt the battery is low\n");
}

#define CASE(name) cmocka_unit_test_teardown(name, played_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(begin_goes_on_up_to_the_step_and_then_says_so_again_and_again),
        cmocka_unit_test(who_stops_leaves_as_one_whose_work_is_not_done),
        CASE(a_process_outside_a_job_that_stops_is_preempted_as_well),
        CASE(members_that_have_stopped_are_no_loss_of_a_fixed_size),
        CASE(a_program_may_say_so_itself),
    };

    return cmocka_run_group_tests_name("strategy_preempt_played", tests, NULL, NULL);
}
