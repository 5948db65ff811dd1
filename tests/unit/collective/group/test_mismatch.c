/* Members that call different operations under one id, and members that mean different roots because
 * the ranks have changed between their calls. */
#include "tests/lib/group_ring.h"

#include <string.h>

#include "collective/group/shm/shm_internal.h"

#define TURNS_MAX 4000

/* One member's operation. */
struct seat {
    struct muster_op op;
    int32_t values[4];
    bool is_done;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct seat seats[4];

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    assert_false(seat->is_done);
    seat->is_done = true;
    seat->rc = rc;
}

static struct muster_tensor seat_init(uint32_t member, uint64_t count)
{
    struct seat *seat = &seats[member];

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    for (unsigned i = 0; i < 4; i++)
        seat->values[i] = (int32_t)(10 * member + i);
    return (struct muster_tensor){.data = seat->values, .count = count, .dtype = MUSTER_I32};
}

static void start_broadcast(uint32_t member, uint32_t root)
{
    struct muster_tensor tensor = seat_init(member, 4);

    assert_int_equal(muster_broadcast_start(&seats[member].op, ring.members[member].group, &tensor,
                                            root, on_done),
                     MUSTER_OK);
}

static void broadcast_from(uint32_t member, uint32_t root, uint64_t epoch)
{
    struct muster_tensor tensor = seat_init(member, 4);
    struct muster_root from = {.incarnation = ring.members[root].self.incarnation, .epoch = epoch};

    assert_int_equal(muster_broadcast_start_from(&seats[member].op, ring.members[member].group,
                                                 &tensor, &from, on_done),
                     MUSTER_OK);
}

static void all_reduce(uint32_t member, uint64_t count)
{
    struct muster_tensor tensor = seat_init(member, count);

    assert_int_equal(muster_all_reduce_start(&seats[member].op, ring.members[member].group, &tensor,
                                             MUSTER_SUM, on_done),
                     MUSTER_OK);
}

static bool has_member(unsigned mask, uint32_t member)
{
    return (mask & 1u << member) != 0;
}

static void run_until_done(unsigned mask)
{
    for (uint32_t member = 0; member < 4; member++)
        for (unsigned turns = 0; has_member(mask, member) && !seats[member].is_done; turns++) {
            muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
            if (turns > TURNS_MAX)
                fail_msg("member %u hangs", member);
        }
}

static void assert_ended(uint32_t member, enum muster_rc rc, const char *text)
{
    if (seats[member].rc != rc || strstr(seats[member].op.error.text, text) == NULL)
        fail_msg("member %u ended with %d: %s", member, (int)seats[member].rc,
                 seats[member].op.error.text);
}

/* The group goes on: nothing of what was is in the way. */
static void check_next(unsigned mask)
{
    int32_t sum = 0;

    for (uint32_t member = 0; member < 4; member++)
        if (has_member(mask, member)) {
            all_reduce(member, 1);
            sum += (int32_t)(10 * member);
        }
    run_until_done(mask);
    for (uint32_t member = 0; member < 4; member++)
        if (has_member(mask, member)) {
            assert_int_equal(seats[member].rc, MUSTER_OK);
            assert_int_equal(seats[member].values[0], sum);
        }
}

/* --- Roots --- */

/* Member 1 calls before the loss of member 0 is known, member 2 after: each means a rank of its view. */
static void broadcast_across_a_loss(uint32_t root_before, uint32_t root_after)
{
    group_ring_open(&ring, 3);
    group_ring_turn(&ring, 10);
    group_ring_freeze(&ring);
    start_broadcast(1, root_before);
    group_ring_kill(&ring, 0);
    group_ring_change(&ring, UINT32_MAX);
    start_broadcast(2, root_after);
}

/* Member 1 means itself, member 2 itself too: both were rank 1 when they called. */
static void roots_of_different_epochs_end_aborted_on_all_at_once(void **state)
{
    (void)state;
    broadcast_across_a_loss(1, 1);
    run_until_done(6);

    assert_ended(1, MUSTER_ABORTED, "ranks have changed: rank 1 (worker:2)");
    assert_ended(2, MUSTER_ABORTED, "ranks have changed: rank 0 (worker:1)");
    assert_non_null(strstr(seats[2].op.error.text, "in view 1, this rank"));
    assert_int_equal(ring.members[1].abort_count + ring.members[2].abort_count, 0);
    check_next(6);
}

/* Ranks shift, processes do not: both mean worker:1. */
static void the_same_root_by_the_ranks_of_different_epochs_is_no_difference(void **state)
{
    (void)state;
    broadcast_across_a_loss(1, 0);
    run_until_done(6);

    assert_int_equal(seats[1].rc, MUSTER_OK);
    assert_int_equal(seats[2].rc, MUSTER_OK);
    assert_int_equal(seats[2].values[3], 13);
}

/* The death is known to one member before it calls, to the other after. */
static void a_root_that_died_before_it_was_issued_ends_it_with_the_next_change(void **state)
{
    (void)state;
    broadcast_across_a_loss(0, 0);
    group_ring_turn(&ring, 20);
    assert_int_equal(ring.members[1].abort_count, 1);
    group_ring_change(&ring, UINT32_MAX);
    run_until_done(6);

    assert_ended(1, MUSTER_ABORTED, "the root is gone");
    assert_ended(2, MUSTER_ABORTED, "");
    check_next(6);
}

/* Members 1 and 2 differ and have ended it; 0, which means the same as 1, votes before it hears of it. */
static void who_has_ended_it_has_no_part_in_what_the_others_do(void **state)
{
    struct muster_progress progress;

    (void)state;
    group_ring_open(&ring, 3);
    group_ring_turn(&ring, 10);
    start_broadcast(0, 0);
    assert_int_equal(muster_group_freeze(ring.members[0].group, &progress), MUSTER_OK);
    muster_progress_fini(&progress);
    start_broadcast(1, 0);
    start_broadcast(2, 2);
    run_until_done(6);
    group_ring_kill(&ring, 2);
    group_ring_change(&ring, UINT32_MAX);
    run_until_done(1);

    assert_ended(0, MUSTER_ABORTED, "");
    assert_int_not_equal(seats[1].rc, MUSTER_OK);
    check_next(3);
}

/* It has come back as a joiner: it holds the state, but the step goes on without it. */
static void a_root_that_takes_no_part_in_the_step_is_gone(void **state)
{
    uint32_t joiner;

    (void)state;
    group_ring_open(&ring, 2);
    group_ring_turn(&ring, 10);
    muster_group_begin_step(ring.members[0].group, 1);
    muster_group_begin_step(ring.members[1].group, 1);
    joiner = group_ring_add(&ring);
    group_ring_change(&ring, joiner);
    assert_int_equal(ring.view->members[joiner].from_step, 2);
    broadcast_from(0, joiner, 1);
    broadcast_from(1, joiner, 1);
    group_ring_turn(&ring, 20);
    assert_int_equal(ring.members[0].abort_count, 1);
    group_ring_change(&ring, UINT32_MAX);
    run_until_done(3);

    assert_ended(0, MUSTER_ABORTED, "the root is gone");
    assert_ended(1, MUSTER_ABORTED, "the root is gone");
}

/* By the ranks of one epoch it is somebody's mistake. */
static void different_roots_of_one_epoch_are_an_error(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    start_broadcast(0, 0);
    start_broadcast(1, 1);
    run_until_done(3);

    assert_ended(0, MUSTER_INVALID_ARGUMENT,
                 "rank 1 (worker:1) has called broadcast(i32 x 4, root");
    assert_ended(1, MUSTER_INVALID_ARGUMENT,
                 "rank 0 (worker:0) has called broadcast(i32 x 4, root");
}

/* Member `to` hears what `from` has called, as from the wire, in no time. */
static void hear_description(uint32_t to, uint32_t from)
{
    const struct muster_run *run = seats[from].op.impl;
    struct muster_group *group = ring.members[to].group;
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_MISMATCH,
                                         .epoch = ring.view->epoch,
                                         .op = run->id,
                                         .descriptor = run->descriptor};
    char text[MUSTER_DESCRIPTION_TEXT_BYTES];
    void *buffer;

    muster_call_describe(&run->call, text, sizeof(text));
    header.payload_bytes = (uint32_t)strlen(text);
    buffer = muster_group_wire_client.on_frame(group, from, &header);
    memcpy(buffer, text, strlen(text));
    muster_group_wire_client.on_payload(group, from, &header, buffer);
}

/* Member 0 has heard what member 1 calls and has ended; the Freeze reaches member 1 before it hears
 * of member 0. Its broadcast is complete as it is the root, and must not count as the result. */
static void who_is_frozen_before_it_hears_of_the_difference_is_aborted(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    group_ring_turn(&ring, 10);
    all_reduce(0, 4);
    start_broadcast(1, 1);
    hear_description(0, 1);
    assert_null(seats[0].op.impl);
    group_ring_change(&ring, UINT32_MAX);
    run_until_done(3);

    assert_ended(0, MUSTER_INVALID_ARGUMENT,
                 "rank 1 (worker:1) has called broadcast(i32 x 4, root");
    assert_int_equal(seats[1].rc, MUSTER_ABORTED);
    check_next(3);
}

/* --- Through boards --- */

enum { LARGE = 300000 };
static int32_t *large[3]; /* mapped by the others */

static void start_large(uint32_t member)
{
    struct muster_tensor tensor = seat_init(member, 4);

    for (uint32_t i = 0; i < LARGE; i++)
        large[member][i] = (int32_t)(member + i % 7);
    tensor.data = large[member];
    tensor.count = LARGE;
    assert_int_equal(muster_all_reduce_start(&seats[member].op, ring.members[member].group, &tensor,
                                             MUSTER_SUM, on_done),
                     MUSTER_OK);
    (void)muster_shm_step(seats[member].op.impl); /* announces it */
}

/* Member `to` hears from `from` of another call than the one that is on its board. */
static void hear_lie(uint32_t to, uint32_t from)
{
    struct muster_run *run = seats[from].op.impl;

    run->descriptor ^= 1;
    hear_description(to, from);
    run->descriptor ^= 1;
}

static void open_boards(void)
{
    group_ring_has_boards = true;
    group_ring_open(&ring, 3);
    group_ring_has_boards = false;
    group_ring_turn(&ring, 50);
    for (uint32_t member = 0; member < 3; member++) {
        void *memory = NULL;

        assert_int_equal(
            muster_board_share_new(ring.members[member].board, LARGE * sizeof(int32_t), &memory),
            MUSTER_OK);
        large[member] = memory;
    }
    group_ring_turn(&ring, 50);
}

static void close_boards(void)
{
    for (uint32_t member = 0; member < 3; member++)
        muster_board_share_free(ring.members[member].board, large[member]);
    group_ring_close(&ring);
}

/* All have announced the same: whatever a member says besides, the others may be summing already. */
static void who_is_refuted_by_its_own_board_ends_nothing(void **state)
{
    (void)state;
    open_boards();
    for (uint32_t member = 0; member < 3; member++)
        start_large(member);
    assert_string_equal(muster_group_wire(ring.members[0].group), "shm");
    hear_lie(0, 2);
    assert_false(seats[0].is_done);
    assert_non_null(seats[0].op.impl);
    run_until_done(7);

    for (uint32_t member = 0; member < 3; member++) {
        assert_int_equal(seats[member].rc, MUSTER_OK);
        for (uint32_t i = 0; i < LARGE; i++)
            assert_int_equal(large[member][i], 3 + 3 * (int32_t)(i % 7));
    }
    check_next(7);
    close_boards();
}

/* Before that it ends, as over TCP; nobody goes on without this member, whose input is as it was. */
static void a_report_before_all_have_announced_it_ends_it(void **state)
{
    (void)state;
    open_boards();
    start_large(0);
    start_large(1);
    hear_lie(0, 1);
    assert_null(seats[0].op.impl);
    start_large(2);
    group_ring_turn(&ring, 50);
    assert_false(seats[1].is_done || seats[2].is_done);
    group_ring_change(&ring, UINT32_MAX);
    run_until_done(7);

    assert_ended(0, MUSTER_INVALID_ARGUMENT, "rank 1 (worker:1) has called all_reduce");
    assert_int_equal(seats[1].rc, MUSTER_ABORTED);
    assert_int_equal(seats[2].rc, MUSTER_ABORTED);
    for (uint32_t member = 0; member < 3; member++)
        for (uint32_t i = 0; i < LARGE; i++)
            assert_int_equal(large[member][i], (int32_t)(member + i % 7));
    check_next(7);
    close_boards();
}

/* --- What has been adopted --- */

/* Members 0 and 1 hold the whole result of a broadcast that member 2 has not called; the view says
 * ADOPT. */
static void adopt_without_member_2(void)
{
    struct muster_chunk_source source = {.first = 0, .count = 1, .rank = 0};
    struct muster_verdict verdict = {
        .kind = MUSTER_VERDICT_ADOPT, .chunk_count = 1, .source_count = 1, .sources = &source};
    struct muster_view fields, *next;

    group_ring_open(&ring, 3);
    start_broadcast(0, 0);
    start_broadcast(1, 0);
    for (unsigned turns = 0; turns < TURNS_MAX; turns++) {
        const struct muster_run *run = seats[1].op.impl;

        if (run->state == MUSTER_RUN_COMPLETE)
            break;
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    }
    verdict.op = seats[0].op.id;
    verdict.descriptor = ((const struct muster_run *)seats[0].op.impl)->descriptor;
    group_ring_freeze(&ring);
    fields = *ring.view;
    fields.epoch++;
    fields.verdicts = &verdict;
    fields.verdict_count = 1;
    assert_int_equal(muster_view_new(ring.test.env.mem, &fields, &next), MUSTER_OK);
    muster_view_unref(ring.view);
    ring.view = next;
    for (uint32_t member = 0; member < 3; member++)
        group_ring_follow(&ring, member);
}

static void who_calls_an_adopted_operation_late_gets_its_result(void **state)
{
    (void)state;
    adopt_without_member_2();
    start_broadcast(2, 0);
    run_until_done(7);

    for (uint32_t member = 0; member < 3; member++) {
        assert_int_equal(seats[member].rc, MUSTER_OK);
        assert_int_equal(seats[member].values[3], 3);
    }
    check_next(7);
}

/* The verdict stands for those who hold it; what the late one has called is its own mistake. */
static void who_calls_another_operation_than_the_adopted_one_fails_alone(void **state)
{
    (void)state;
    adopt_without_member_2();
    all_reduce(2, 4);
    run_until_done(7);

    assert_int_equal(seats[0].rc, MUSTER_OK);
    assert_int_equal(seats[1].rc, MUSTER_OK);
    assert_int_equal(seats[1].values[3], 3);
    assert_ended(2, MUSTER_INVALID_ARGUMENT, "has called broadcast(i32 x 4, root");
    assert_non_null(strstr(seats[2].op.error.text, "this rank all_reduce(sum, i32 x 4)"));
    assert_int_equal(seats[2].values[0], 20);
    check_next(7);
}

/* A change of view in between: it fails all the same, and the others keep what they have adopted. */
static void another_operation_than_the_adopted_one_does_not_undo_it_in_the_next_view(void **state)
{
    (void)state;
    adopt_without_member_2();
    all_reduce(2, 4);
    group_ring_change(&ring, UINT32_MAX);
    run_until_done(7);

    assert_int_equal(seats[0].rc, MUSTER_OK);
    assert_int_equal(seats[1].rc, MUSTER_OK);
    assert_ended(2, MUSTER_INVALID_ARGUMENT, "this rank has called all_reduce(sum, i32 x 4)");
    check_next(7);
}

/* --- Steps that call fewer operations --- */

static void begin_step(uint64_t step)
{
    for (uint32_t i = 0; i < 3; i++)
        muster_group_begin_step(ring.members[i].group, step);
}

/* One operation of all, then another one of members 0 and 1 only. */
static void call_twice_without_member_2(void)
{
    group_ring_open(&ring, 3);
    begin_step(1);
    check_next(7);
    all_reduce(0, 4);
    all_reduce(1, 4);
}

/* They ask member 2 after a second only; were there no answer, their deadline would end them. */
static void run_until_both_end(void)
{
    while (!seats[0].is_done || !seats[1].is_done)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
}

static void assert_skipped(uint32_t member)
{
    assert_ended(member, MUSTER_INVALID_ARGUMENT,
                 "operation #1: rank 2 (worker:2) has called commit of step 1 after 1 operation, "
                 "this rank all_reduce(sum, i32 x 4)");
    assert_int_equal(seats[member].values[1], 10 * member + 1);
}

/* It is in their way when it has been asked: it may commit late. */
static void who_commits_without_an_operation_ends_it_on_those_who_wait(void **state)
{
    (void)state;
    call_twice_without_member_2();
    group_ring_turn(&ring, 20);
    muster_group_commit_step(ring.members[2].group, 1);
    run_until_both_end();

    assert_skipped(0);
    assert_skipped(1);
    assert_int_equal(ring.members[2].skipped_count, 1); /* two have asked for one operation */
    assert_int_equal(ring.members[2].skipped_step, 1);
    assert_int_equal(ring.members[0].skipped_count, 0);
    begin_step(2);
    check_next(7);
}

static void who_is_in_the_next_step_already_goes_on_with_the_others(void **state)
{
    (void)state;
    call_twice_without_member_2();
    muster_group_commit_step(ring.members[2].group, 1);
    muster_group_begin_step(ring.members[2].group, 2);
    all_reduce(2, 3);
    run_until_both_end();
    assert_skipped(0);
    assert_skipped(1);

    begin_step(2);
    all_reduce(0, 3);
    all_reduce(1, 3);
    run_until_done(7);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(seats[i].rc, MUSTER_OK);
        assert_int_equal(seats[i].values[0], 30);
    }
}

/* Member 2 has committed step 1, and the next view is without it. */
static void leave_member_2(bool counts_calls)
{
    muster_group_commit_step(ring.members[2].group, 1);
    ring.members[2].is_leaving = true;
    ring.members[2].counts_calls = counts_calls;
    group_ring_decide(&ring, UINT32_MAX);
    assert_int_equal(ring.view->member_count, 2);
    group_ring_follow(&ring, 0);
    group_ring_follow(&ring, 1);
    group_ring_kill(&ring, 2);
}

static void assert_left_out(uint32_t member)
{
    assert_ended(member, MUSTER_INVALID_ARGUMENT,
                 "operation #1: worker:2, which has left, has called commit of step 1 after 1 "
                 "operation, this rank all_reduce(sum, i32 x 4)");
    assert_int_equal(seats[member].values[1], 10 * member + 1);
    assert_int_equal(ring.members[member].left_out_count, 1);
    assert_int_equal(ring.members[member].left_out_step, 1);
}

/* Open at the change on one, called after it on the other. */
static void what_a_leaver_has_left_out_ends_on_those_who_call_it(void **state)
{
    (void)state;
    group_ring_open(&ring, 3);
    begin_step(1);
    check_next(7);
    all_reduce(0, 4);
    group_ring_turn(&ring, 20);
    leave_member_2(true);
    all_reduce(1, 4);
    run_until_both_end();

    assert_left_out(0);
    assert_left_out(1);
    muster_group_begin_step(ring.members[0].group, 2);
    muster_group_begin_step(ring.members[1].group, 2);
    check_next(3);
    check_next(3); /* number 1 of another step */
}

/* Nothing is left out: the others begin the step of the leaver's end once more, and their numbers go on. */
static void a_step_that_runs_again_after_a_member_has_left_calls_as_many(void **state)
{
    (void)state;
    group_ring_open(&ring, 3);
    begin_step(1);
    check_next(7);
    group_ring_turn(&ring, 20);
    leave_member_2(true);
    muster_group_begin_step(ring.members[0].group, 1);
    muster_group_begin_step(ring.members[1].group, 1);
    check_next(3);
    all_reduce(0, 4);
    all_reduce(1, 4); /* more than the leaver */
    run_until_both_end();

    assert_int_equal(seats[0].rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(seats[1].rc, MUSTER_INVALID_ARGUMENT);
}

/* The leaver had run it again, too. */
static void a_leaver_counts_from_its_last_attempt(void **state)
{
    (void)state;
    group_ring_open(&ring, 3);
    begin_step(1);
    check_next(7);
    begin_step(1);
    check_next(7);
    all_reduce(0, 4);
    group_ring_turn(&ring, 20);
    leave_member_2(true);
    assert_int_equal(ring.view->done_calls, 2);
    all_reduce(1, 4);
    run_until_both_end();

    assert_int_equal(ring.members[0].left_out_count, 1);
    assert_int_equal(ring.members[1].left_out_count, 1);
}

/* The leaver does not know how many: a joiner that has done no step, or one of another version. */
static void a_leaver_that_does_not_count_ends_nothing(void **state)
{
    (void)state;
    group_ring_open(&ring, 3);
    begin_step(1);
    check_next(7);
    all_reduce(0, 4);
    group_ring_turn(&ring, 20);
    leave_member_2(false);
    all_reduce(1, 4);
    run_until_done(3);

    assert_int_equal(seats[0].rc, MUSTER_OK);
    assert_int_equal(ring.members[0].left_out_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_RING_CASE(roots_of_different_epochs_end_aborted_on_all_at_once),
        GROUP_RING_CASE(the_same_root_by_the_ranks_of_different_epochs_is_no_difference),
        GROUP_RING_CASE(a_root_that_died_before_it_was_issued_ends_it_with_the_next_change),
        GROUP_RING_CASE(who_has_ended_it_has_no_part_in_what_the_others_do),
        GROUP_RING_CASE(a_root_that_takes_no_part_in_the_step_is_gone),
        GROUP_RING_CASE(different_roots_of_one_epoch_are_an_error),
        GROUP_RING_CASE(who_is_frozen_before_it_hears_of_the_difference_is_aborted),
        cmocka_unit_test(who_is_refuted_by_its_own_board_ends_nothing),
        cmocka_unit_test(a_report_before_all_have_announced_it_ends_it),
        GROUP_RING_CASE(who_calls_an_adopted_operation_late_gets_its_result),
        GROUP_RING_CASE(who_calls_another_operation_than_the_adopted_one_fails_alone),
        GROUP_RING_CASE(another_operation_than_the_adopted_one_does_not_undo_it_in_the_next_view),
        GROUP_RING_CASE(who_commits_without_an_operation_ends_it_on_those_who_wait),
        GROUP_RING_CASE(who_is_in_the_next_step_already_goes_on_with_the_others),
        GROUP_RING_CASE(what_a_leaver_has_left_out_ends_on_those_who_call_it),
        GROUP_RING_CASE_WITH_BOARDS(what_a_leaver_has_left_out_ends_on_those_who_call_it),
        GROUP_RING_CASE(a_leaver_that_does_not_count_ends_nothing),
        GROUP_RING_CASE(a_step_that_runs_again_after_a_member_has_left_calls_as_many),
        GROUP_RING_CASE(a_leaver_counts_from_its_last_attempt),
        GROUP_RING_CASE_WITH_BOARDS(who_commits_without_an_operation_ends_it_on_those_who_wait),
        GROUP_RING_CASE_WITH_BOARDS(who_is_in_the_next_step_already_goes_on_with_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
