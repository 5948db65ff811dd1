/* The decision after the end of a worker. */
#include "tools/run/task/restart.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct run_restart_question usual = {
    .is_runnable = true,
    .restarts = 0,
    .restarts_max = 3,
    .others_left = 3,
    .members_min = 1,
};

static void a_death_restarts_the_worker_until_its_restarts_are_used(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    for (question.restarts = 0; question.restarts < 3; question.restarts++)
        assert_int_equal(run_restart_decide(&question), RUN_ACTION_RESTART);
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_GO_ON);
}

static void exit_code_0_is_a_leave_in_any_case(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.is_success = true;
    question.others_left = 0;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_LEAVE);
    question.is_gang = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_LEAVE);
}

static void a_refused_worker_is_not_started_again_and_the_others_go_on(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.is_refused = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_GO_ON);
    question.members_min = 4;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
    question = usual;
    question.is_refused = question.is_gang = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
}

static void wrong_arguments_of_all_workers_end_all_at_once(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.is_misuse = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_RESTART);
    question.is_misuse_of_all = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
    question.is_misuse_of_all = false;
    question.is_gang = true; /* a gang needs every one of them */
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
    question.is_success = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_LEAVE);
}

static void misuse_is_a_code_that_comes_early_and_without_a_report(void **state)
{
    static const int codes[] = {2, 64, 126, 127};
    (void)state;

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        assert_true(run_restart_is_misuse(codes[i], false, MUSTER_NS_PER_S));
    assert_false(run_restart_is_misuse(1, false, 0));
    assert_false(run_restart_is_misuse(137, false, 0));
    assert_false(run_restart_is_misuse(2, true, 0));
    assert_false(run_restart_is_misuse(2, false, 6 * MUSTER_NS_PER_S));
}

static void too_few_others_end_all(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.restarts = 3;
    question.members_min = 3;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_GO_ON);
    question.members_min = 4;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
    question.members_min = 1;
    question.others_left = 0;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
}

static void a_gang_restarts_as_a_whole_or_ends(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.is_gang = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_RESTART_ALL);
    question.restarts = 3;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
}

static void nothing_is_decided_while_all_end(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.is_stopping = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_NONE);
    question.is_success = true;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_NONE);
}

static void a_program_that_cannot_run_is_not_tried_again(void **state)
{
    struct run_restart_question question = usual;
    (void)state;

    question.is_runnable = false;
    assert_int_equal(run_restart_decide(&question), RUN_ACTION_END_ALL);
}

static void the_first_restart_is_immediate_and_a_crash_loop_slows_down(void **state)
{
    uint64_t before = 0;
    (void)state;

    assert_int_equal(run_restart_delay_ns(0), 0);
    assert_int_equal(run_restart_delay_ns(1), 0);
    for (uint64_t lives = 2; lives < 20; lives++) {
        uint64_t delay_ns = run_restart_delay_ns(lives);

        assert_true(delay_ns > before || delay_ns == 5 * MUSTER_NS_PER_S);
        before = delay_ns;
    }
    assert_int_equal(before, 5 * MUSTER_NS_PER_S);
}

static void the_members_get_time_to_settle_before_the_restart_but_not_more_than_it_takes(
    void **state)
{
    (void)state;

    assert_in_range(run_restart_delay_untold_ns(0), 1, MUSTER_NS_PER_S);
    assert_int_equal(run_restart_delay_untold_ns(0), run_restart_delay_untold_ns(1));
    assert_int_equal(run_restart_delay_untold_ns(20), run_restart_delay_ns(20));
}

static void a_life_with_a_committed_step_or_a_long_one_is_not_fruitless(void **state)
{
    (void)state;

    assert_true(run_restart_is_fruitless(false, MUSTER_NS_PER_S));
    assert_false(run_restart_is_fruitless(true, MUSTER_NS_PER_S));
    assert_false(run_restart_is_fruitless(false, 60 * MUSTER_NS_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_restarts_the_worker_until_its_restarts_are_used),
        cmocka_unit_test(exit_code_0_is_a_leave_in_any_case),
        cmocka_unit_test(a_refused_worker_is_not_started_again_and_the_others_go_on),
        cmocka_unit_test(wrong_arguments_of_all_workers_end_all_at_once),
        cmocka_unit_test(misuse_is_a_code_that_comes_early_and_without_a_report),
        cmocka_unit_test(too_few_others_end_all),
        cmocka_unit_test(a_gang_restarts_as_a_whole_or_ends),
        cmocka_unit_test(nothing_is_decided_while_all_end),
        cmocka_unit_test(a_program_that_cannot_run_is_not_tried_again),
        cmocka_unit_test(the_first_restart_is_immediate_and_a_crash_loop_slows_down),
        cmocka_unit_test(
            the_members_get_time_to_settle_before_the_restart_but_not_more_than_it_takes),
        cmocka_unit_test(a_life_with_a_committed_step_or_a_long_one_is_not_fruitless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
