/* Where the time of a member goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "training/activity.h"

static struct muster_member members[12];
static struct muster_view view = {.members = members};

static void make_view(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        snprintf(members[i].task_type, sizeof(members[i].task_type), "worker");
        members[i].task_index = i;
    }
    view.member_count = count;
}

static void call(struct muster_activity *activity, uint64_t start_ns, uint64_t met_ns,
                 uint32_t last_rank, uint64_t end_ns)
{
    const struct muster_op_result result = {
        .met_ns = met_ns, .last_rank = last_rank, .wire = "shm", .sent_bytes = 8};

    muster_activity_move(activity, MUSTER_ACTIVITY_COLLECTIVE, start_ns);
    muster_activity_count(activity, &result, &view);
    muster_activity_move(activity, MUSTER_ACTIVITY_COMPUTE, end_ns);
}

static void time_goes_to_the_state_that_it_was_spent_in(void **state)
{
    struct muster_activity activity;

    (void)state;
    make_view(2);
    muster_activity_init(&activity, 100);
    muster_activity_move(&activity, MUSTER_ACTIVITY_BEGIN, 150);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 170);
    call(&activity, 200, 260, 1, 270);
    muster_activity_move(&activity, MUSTER_ACTIVITY_OUTSIDE, 300);

    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_START, 333), 50);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_BEGIN, 333), 20);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_COMPUTE, 333), 60);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_COLLECTIVE, 333), 70);
    assert_int_equal(muster_activity_spent_ns(&activity, MUSTER_ACTIVITY_OUTSIDE, 333), 33);
    assert_int_equal(activity.waiting_ns, 60);
    assert_int_equal(activity.wait_count, 1);
    assert_string_equal(activity.waits[0].task, "worker:1");
    assert_int_equal(activity.sent_bytes[MUSTER_ACTIVITY_SHM], 8);
}

static void a_wait_is_counted_once_per_call(void **state)
{
    const struct muster_op_result late = {.met_ns = 50, .last_rank = 1};
    const struct muster_op_result later = {.met_ns = 90, .last_rank = 0};
    struct muster_activity activity;

    (void)state;
    make_view(2);
    muster_activity_init(&activity, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_BEGIN, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COLLECTIVE, 10);
    muster_activity_count(&activity, &late, &view);
    muster_activity_count(&activity, &later, &view);

    assert_int_equal(activity.waiting_ns, 40);
    assert_int_equal(activity.wait_count, 1);
    assert_string_equal(activity.waits[0].task, "worker:1");
}

static void who_was_there_before_is_not_waited_for(void **state)
{
    struct muster_activity activity;

    (void)state;
    make_view(2);
    muster_activity_init(&activity, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_BEGIN, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 0);
    call(&activity, 100, 0, 0, 120);
    call(&activity, 200, 150, 1, 220);

    assert_int_equal(activity.waiting_ns, 0);
    assert_int_equal(activity.wait_count, 0);
}

static void a_full_table_keeps_the_longest_wait(void **state)
{
    struct muster_activity activity;
    bool is_found = false;

    (void)state;
    make_view(12);
    muster_activity_init(&activity, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_BEGIN, 0);
    muster_activity_move(&activity, MUSTER_ACTIVITY_COMPUTE, 0);
    for (uint32_t i = 0; i < 120; i++) {
        uint64_t at_ns = 10000 * (i + 1), wait_ns = i % 12 == 11 ? 5000 : 10;

        call(&activity, at_ns, at_ns + wait_ns, i % 12, at_ns + 6000);
    }

    for (uint32_t i = 0; i < activity.wait_count; i++)
        is_found = is_found || (strcmp(activity.waits[i].task, "worker:11") == 0 &&
                                activity.waits[i].ns >= 50000);
    assert_true(is_found);
    assert_int_equal(activity.wait_count, MUSTER_ACTIVITY_WAITS_MAX);
}

static void only_a_program_in_a_step_calls_operations(void **state)
{
    (void)state;
    for (unsigned from = 0; from < MUSTER_ACTIVITY_STATES; from++)
        assert_int_equal(
            muster_activity_may_move((enum muster_activity_state)from, MUSTER_ACTIVITY_COLLECTIVE),
            from == MUSTER_ACTIVITY_COMPUTE);
    for (unsigned to = 0; to < MUSTER_ACTIVITY_STATES; to++)
        assert_false(
            muster_activity_may_move(MUSTER_ACTIVITY_CLOSE, (enum muster_activity_state)to));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_to_the_state_that_it_was_spent_in),
        cmocka_unit_test(a_wait_is_counted_once_per_call),
        cmocka_unit_test(who_was_there_before_is_not_waited_for),
        cmocka_unit_test(a_full_table_keeps_the_longest_wait),
        cmocka_unit_test(only_a_program_in_a_step_calls_operations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
