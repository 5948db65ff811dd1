/* Messages between two members: exactly once, whatever happens to the others. */
#include "mail_stage.h"

#include <string.h>

#include "collective/group/pair.h"
#include "collective/group/shm/shm_internal.h"

/* Not over before the operation begins, on a busy machine either. */
#define SOON_NS (50 * MUSTER_NS_PER_MS)

/* --- Without failures --- */

static void both_may_send_first(void **state)
{
    static const uint64_t counts[] = {0, 1, 16, 17, 64, 65, MAIL_ELEMENTS};

    (void)state;
    mail_open(2);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        mail_send(&mails[0], 0, 1, counts[i], 100, 0);
        mail_send(&mails[1], 1, 0, counts[i], 5000, 0);
        group_ring_turn(&mail_ring, 20);
        assert_int_equal(mails[0].done_count + mails[1].done_count, 0);
        mail_receive(&mails[2], 0, 1, counts[i], 0);
        mail_receive(&mails[3], 1, 0, counts[i], 0);
        for (unsigned k = 0; k < 4; k++)
            mail_run_ok(&mails[k]);
        mail_check_values(&mails[2], counts[i], 5000);
        mail_check_values(&mails[3], counts[i], 100);
        assert_int_equal(mails[2].op.id.sequence, i);
    }
}

static void who_receives_first_waits_for_nobody_else(void **state)
{
    (void)state;
    mail_open(3);
    mail_receive(&mails[0], 2, 0, 500, 0);
    mail_receive(&mails[1], 2, 0, 4, 0);
    group_ring_turn(&mail_ring, 20);
    mail_send(&mails[2], 0, 2, 500, 7, 0);
    mail_send(&mails[3], 0, 2, 4, 9, 0);
    for (unsigned k = 0; k < 4; k++)
        mail_run_ok(&mails[k]);
    mail_check_values(&mails[0], 500, 7);
    mail_check_values(&mails[1], 4, 9);
}

/* More than may be sent unasked: the rest waits, and nothing else does. */
static void unasked_messages_do_not_stop_the_group(void **state)
{
    const uint32_t count = 290;
    struct mail *barrier = &mails[2 * count];

    (void)state;
    mail_open(2);
    for (uint32_t i = 0; i < count; i++)
        mail_send(&mails[i], 0, 1, 5, (int32_t)(10 * i + 1), 3);
    for (uint32_t member = 0; member < 2; member++) {
        (void)mail_prepare(&barrier[member], member, 0, 0, 3);
        assert_int_equal(
            muster_barrier_start(&barrier[member].op, mail_ring.members[member].group, mail_done),
            MUSTER_OK);
    }
    mail_run_ok(&barrier[0]);
    mail_run_ok(&barrier[1]);
    group_ring_turn(&mail_ring, 20);
    assert_int_equal(muster_pair_get(mail_ring.members[1].group, 0)->kept_bytes,
                     MUSTER_EAGER_COUNT_MAX * (5 * sizeof(int32_t) + sizeof(struct muster_early)));
    for (uint32_t i = 0; i < count; i++)
        mail_receive(&mails[count + i], 1, 0, 5, 3);
    for (uint32_t i = 0; i < 2 * count; i++)
        mail_run_ok(&mails[i]);
    for (uint32_t i = 0; i < count; i++)
        mail_check_values(&mails[count + i], 5, (int32_t)(10 * i + 1));
}

static void lanes_and_members_count_apart(void **state)
{
    (void)state;
    mail_open(3);
    mail_send(&mails[0], 0, 1, 40, 100, 0);
    mail_send(&mails[1], 0, 1, 40, 200, 5);
    mail_send(&mails[2], 2, 1, 40, 300, 0);
    mail_receive(&mails[3], 1, 2, 40, 0);
    mail_receive(&mails[4], 1, 0, 40, 5);
    mail_receive(&mails[5], 1, 0, 40, 0);
    for (unsigned k = 0; k < 6; k++)
        mail_run_ok(&mails[k]);
    mail_check_values(&mails[3], 40, 300);
    mail_check_values(&mails[4], 40, 200);
    mail_check_values(&mails[5], 40, 100);
}

/* --- Changes of view --- */

/* The third member dies after `turns`; ranks shift. Large and small, asked and unasked. */
static void a_change_that_leaves_both_in_delays_them_only(void **state)
{
    static const uint64_t counts[] = {0, 5, 60, 900};
    /* what goes unasked is one piece, or several */
    static const struct muster_plan_parameters plans[] = {
        {.chunk_bytes = 256, .direct_max_bytes = 64}, {.chunk_bytes = 64, .direct_max_bytes = 256}};

    (void)state;
    for (unsigned play = 0; play < 48; play++) {
        const uint32_t ranks[] = {1, 2};
        unsigned turns = play / 2;

        mail_open_plan(3, &plans[play % 2]);
        for (unsigned i = 0; i < 4; i++) {
            mail_send(&mails[i], 1, ranks[1], counts[i], 100, i % 2);
            mail_receive(&mails[4 + i], 2, ranks[0], counts[i], i % 2);
            mail_send(&mails[8 + i], 2, ranks[0], counts[i], 900, i % 2);
        }
        group_ring_turn(&mail_ring, turns);
        group_ring_kill(&mail_ring, 0);
        if (turns % 3 == 1) /* one is stopped earlier than the other */
            group_ring_freeze(&mail_ring);
        group_ring_change(&mail_ring, UINT32_MAX);
        for (unsigned i = 0; i < 4; i++)
            mail_receive(&mails[12 + i], 1, 1, counts[i], i % 2);
        for (unsigned i = 0; i < 16; i++)
            mail_run_ok(&mails[i]);
        for (unsigned i = 0; i < 4; i++) {
            mail_check_values(&mails[4 + i], counts[i], 100);
            mail_check_values(&mails[12 + i], counts[i], 900);
        }
        mail_close();
    }
}

/* Again and again: what has been received is not received twice. */
static void many_changes_receive_nothing_twice(void **state)
{
    (void)state;
    mail_open(2);
    mail_send(&mails[0], 0, 1, MAIL_ELEMENTS, 100, 0);
    mail_send(&mails[1], 0, 1, 6, 5000, 0);
    mail_receive(&mails[2], 1, 0, MAIL_ELEMENTS, 0);
    mail_receive(&mails[3], 1, 0, 6, 0);
    for (unsigned i = 0; i < 12; i++) {
        group_ring_turn(&mail_ring, 3 + i);
        group_ring_change(&mail_ring, UINT32_MAX);
    }
    for (unsigned k = 0; k < 4; k++)
        mail_run_ok(&mails[k]);
    mail_check_values(&mails[2], MAIL_ELEMENTS, 100);
    mail_check_values(&mails[3], 6, 5000);
    mail_check_next(1);
}

static void started_while_frozen_they_go_in_the_next_epoch(void **state)
{
    (void)state;
    mail_open(2);
    group_ring_turn(&mail_ring, 10);
    group_ring_freeze(&mail_ring);
    mail_send(&mails[0], 0, 1, 200, 100, 0);
    mail_receive(&mails[1], 1, 0, 200, 0);
    group_ring_turn(&mail_ring, 10);
    assert_int_equal(mails[0].done_count + mails[1].done_count, 0);
    group_ring_change(&mail_ring, UINT32_MAX);
    mail_run_ok(&mails[0]);
    mail_run_ok(&mails[1]);
    mail_check_values(&mails[1], 200, 100);
    assert_true(mails[1].op.result.is_interrupted);
}

/* A piece for member 1 from member 0, as from the wire. Returns whether it was wanted. */
static bool bring_piece_of(uint16_t dtype, uint32_t chunk, uint64_t count)
{
    struct muster_group *group = mail_ring.members[1].group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_MESSAGE,
        .flags = dtype,
        .payload_bytes = 256,
        .epoch = 1,
        .op = {.step = MUSTER_MESSAGE_STEP | 1},
        .chunk = chunk,
        .offset = count,
    };
    uint8_t *place = muster_group_wire_client.on_frame(group, 0, &header);

    for (uint32_t i = 0; place != NULL && i < 64; i++)
        ((int32_t *)(void *)place)[i] = (int32_t)(chunk * 64 + i + 1);
    if (place != NULL)
        muster_group_wire_client.on_payload(group, 0, &header, place);
    return place != NULL;
}

static bool bring_piece(uint32_t chunk, uint64_t count)
{
    return bring_piece_of(MUSTER_I32, chunk, count);
}

static void pieces_come_in_any_order_and_count_once(void **state)
{
    (void)state;
    mail_open(2);
    group_ring_turn(&mail_ring, 10);
    mail_receive(&mails[0], 1, 0, 4 * 64, 0);
    assert_true(bring_piece(0, 4 * 64));
    assert_false(bring_piece(0, 4 * 64));
    assert_true(bring_piece(2, 4 * 64));
    assert_false(bring_piece(2, 4 * 64));
    assert_true(bring_piece(3, 4 * 64));
    group_ring_turn(&mail_ring, 10);
    assert_int_equal(mails[0].done_count, 0);
    assert_int_equal(mail_ring.members[0].suspect_count + mail_ring.members[1].suspect_count, 0);
    assert_true(bring_piece(1, 4 * 64));
    mail_run_ok(&mails[0]);
    mail_check_values(&mails[0], 4 * 64, 1);
}

static void leave_out(uint32_t member)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};

    muster_group_abort_all(mail_ring.members[member].group, &why);
    muster_group_close(mail_ring.members[member].group);
    mail_ring.members[member].group = NULL;
}

/* The same process, another life: both count from the beginning. */
static void who_was_left_out_and_returns_begins_anew(void **state)
{
    (void)state;
    mail_open(2);
    mail_check_next(1);
    mail_check_next(1);
    mail_send(&mails[0], 0, 1, 500, 1, 9);
    mail_send(&mails[1], 0, 1, 5, 1, 9);
    group_ring_turn(&mail_ring, 5);
    leave_out(1);
    group_ring_change(&mail_ring, UINT32_MAX);
    mail_assert_ended(&mails[0], MUSTER_ABORTED, "rank 1 (worker:1) is gone");
    mail_assert_ended(&mails[1], MUSTER_ABORTED, "rank 1 (worker:1) is gone");
    group_ring_change(&mail_ring, 1);
    mail_check_next(1);
}

/* Returns whether the k-th point of the victim exists. */
static bool play_death(uint32_t victim, unsigned k)
{
    uint32_t other = 3 - victim;
    bool has_cut;

    mail_open(3);
    mail_ring.members[victim].cut_at = k;
    mail_send(&mails[0], 1, 2, 600, 100, 0);
    mail_receive(&mails[1], 2, 1, 600, 0);
    mail_send(&mails[2], 2, 1, 4, 50, 0);
    mail_receive(&mails[3], 1, 2, 4, 0);
    for (unsigned turns = 0; turns < 60 && !mail_ring.has_cut; turns++)
        group_ring_turn(&mail_ring, 1);
    has_cut = mail_ring.has_cut;
    if (has_cut) {
        group_ring_kill(&mail_ring, victim);
        group_ring_change(&mail_ring, UINT32_MAX);
        for (unsigned i = 0; i < 4; i++) {
            bool is_of_victim = victim == 1 ? i == 0 || i == 3 : i == 1 || i == 2;

            mail_run(&mails[i]);
            if (!is_of_victim && mails[i].rc != MUSTER_OK) {
                mail_assert_ended(&mails[i], MUSTER_ABORTED, "is gone (view 2: a member died)");
                assert_non_null(strstr(mails[i].op.error.text,
                                       other == 1 ? "rank 2 (worker:2)" : "rank 1 (worker:1)"));
            }
        }
        if (mails[1].rc == MUSTER_OK)
            mail_check_values(&mails[1], 600, 100);
        if (mails[3].rc == MUSTER_OK)
            mail_check_values(&mails[3], 4, 50);
    }
    mail_close();
    return has_cut;
}

static void the_death_of_one_ends_the_others_wherever_it_comes(void **state)
{
    (void)state;
    for (uint32_t victim = 1; victim <= 2; victim++) {
        unsigned k = 1;

        while (play_death(victim, k))
            k++;
        assert_true(k > 10);
    }
}

/* --- What does not fit --- */

/* A later version of the sender may have types that this one has not. */
static void a_message_of_an_unknown_type_is_refused(void **state)
{
    (void)state;
    mail_open(2);
    group_ring_turn(&mail_ring, 10);
    mail_receive(&mails[0], 1, 0, 64, 0);

    bring_piece_of(999, 0, 64);

    mail_assert_ended(&mails[0], MUSTER_INVALID_ARGUMENT,
                      "receive #0 from rank 0 (worker:0): it sends an unknown type x 64");
}

static void play_shapes(bool is_received_first, uint64_t sent, uint64_t expected)
{
    mail_open(2);
    if (is_received_first)
        mail_receive(&mails[1], 1, 0, expected, 0);
    group_ring_turn(&mail_ring, 15);
    mail_send(&mails[0], 0, 1, sent, 1, 0);
    group_ring_turn(&mail_ring, 15);
    if (!is_received_first)
        mail_receive(&mails[1], 1, 0, expected, 0);
    mail_assert_ended(&mails[0], MUSTER_INVALID_ARGUMENT,
                      "send #0 to rank 1 (worker:1): it expects i32");
    mail_assert_ended(&mails[1], MUSTER_INVALID_ARGUMENT,
                      "receive #0 from rank 0 (worker:0): it sends i32");
    mail_send(&mails[0], 0, 1, 5, 10, 0);
    mail_receive(&mails[1], 1, 0, 5, 0);
    mail_run_ok(&mails[0]);
    mail_run_ok(&mails[1]);
    mail_check_next(1);
    mail_close();
}

static void different_counts_are_an_error_on_both_sides(void **state)
{
    static const uint64_t pairs[][2] = {{5, 6}, {500, 499}, {0, 5}, {5, 0}, {500, 0}, {0, 500}};

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        play_shapes(true, pairs[i][0], pairs[i][1]);
        play_shapes(false, pairs[i][0], pairs[i][1]);
    }
}

static void oneself_and_nobody_are_no_partners(void **state)
{
    struct muster_tensor tensor;

    (void)state;
    mail_open(2);
    tensor = mail_prepare(&mails[0], 0, 4, 0, 0);
    assert_int_equal(
        muster_send_start(&mails[0].op, mail_ring.members[0].group, &tensor, 0, mail_done),
        MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_receive_start(&mails[0].op, mail_ring.members[0].group, &tensor, 2, mail_done),
        MUSTER_INVALID_ARGUMENT);
    tensor.data = NULL;
    assert_int_equal(
        muster_send_start(&mails[0].op, mail_ring.members[0].group, &tensor, 1, mail_done),
        MUSTER_INVALID_ARGUMENT);
    assert_false(muster_group_is_busy(mail_ring.members[0].group));
}

/* --- Giving up --- */

static void a_send_that_was_cancelled_ends_its_receive(void **state)
{
    static const uint64_t counts[] = {5, 500};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        mail_open(2);
        group_ring_turn(&mail_ring, 10);
        mail_send(&mails[0], 0, 1, counts[i % 2], 1, 0);
        mail_send(&mails[2], 0, 1, counts[i % 2], 40, 0);
        group_ring_turn(&mail_ring, i < 2 ? 0 : 20);
        muster_op_cancel(&mails[0].op);
        muster_op_cancel(&mails[0].op);
        mail_assert_ended(&mails[0], MUSTER_CANCELLED, "send #0 to rank 1");
        mail_receive(&mails[1], 1, 0, counts[i % 2], 0);
        mail_receive(&mails[3], 1, 0, counts[i % 2], 0);
        mail_assert_ended(&mails[1], MUSTER_ABORTED, "it has given it up");
        mail_run_ok(&mails[2]);
        mail_run_ok(&mails[3]);
        mail_check_values(&mails[3], counts[i % 2], 40);
        mail_check_next(1);
        mail_close();
    }
}

static void a_receive_that_was_cancelled_ends_its_send(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 12; turns++) {
        mail_open(2);
        group_ring_turn(&mail_ring, 10);
        mail_receive(&mails[1], 1, 0, MAIL_ELEMENTS, 0);
        if (turns > 0)
            mail_send(&mails[0], 0, 1, MAIL_ELEMENTS, 1, 0);
        group_ring_turn(&mail_ring, turns);
        muster_op_cancel(&mails[1].op);
        mail_run(&mails[1]);
        group_ring_turn(&mail_ring, 10); /* the news of it finds nobody */
        if (turns == 0)
            mail_send(&mails[0], 0, 1, MAIL_ELEMENTS, 1, 0);
        if (mails[1].rc == MUSTER_CANCELLED)
            mail_assert_ended(&mails[0], MUSTER_ABORTED, "it has given it up");
        else
            mail_run_ok(&mails[0]);
        mail_send(&mails[2], 0, 1, 5, 1, 0);
        mail_receive(&mails[3], 1, 0, 5, 0);
        mail_run_ok(&mails[2]);
        mail_run_ok(&mails[3]);
        assert_int_equal(muster_pair_get(mail_ring.members[1].group, 0)->outcome_count, 0);
        mail_check_next(1);
        mail_close();
    }
}

static void a_deadline_names_the_other(void **state)
{
    struct muster_tensor tensor;

    (void)state;
    mail_open(2);
    group_ring_turn(&mail_ring, 10);
    tensor = mail_prepare(&mails[0], 0, 5, 1, 0);
    mails[0].op.deadline_ns = muster_loop_after_ns(mail_ring.test.env.loop, SOON_NS);
    assert_int_equal(
        muster_send_start(&mails[0].op, mail_ring.members[0].group, &tensor, 1, mail_done),
        MUSTER_OK);
    tensor = mail_prepare(&mails[1], 0, 5, 0, 0);
    mails[1].op.deadline_ns = muster_loop_after_ns(mail_ring.test.env.loop, SOON_NS);
    assert_int_equal(
        muster_receive_start(&mails[1].op, mail_ring.members[0].group, &tensor, 1, mail_done),
        MUSTER_OK);
    mail_assert_ended(&mails[0], MUSTER_DEADLINE_EXCEEDED, "it has not received it");
    mail_assert_ended(&mails[1], MUSTER_DEADLINE_EXCEEDED,
                      "receive #0 from rank 1 (worker:1): rank 1 (worker:1) has not sent it");
    mail_check_next(1);
}

/* The other is in the view and says nothing. */
static void without_an_answer_a_send_gives_up_after_the_grace_period(void **state)
{
    (void)state;
    mail_open(2);
    group_ring_turn(&mail_ring, 10);
    muster_group_close(mail_ring.members[0].group);
    mail_ring.members[0].group = NULL;
    mail_ring.abort_grace_ns = 3 * MUSTER_NS_PER_MS;
    group_ring_reopen(&mail_ring);
    group_ring_turn(&mail_ring, 10);
    mail_send(&mails[0], 0, 1, 500, 1, 0);
    muster_group_close(mail_ring.members[1].group);
    mail_ring.members[1].group = NULL;
    muster_op_cancel(&mails[0].op);
    mail_assert_ended(&mails[0], MUSTER_CANCELLED, "send #0");
    group_ring_reopen(&mail_ring);
}

static void the_excluded_end_theirs(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};

    (void)state;
    mail_open(2);
    mail_send(&mails[0], 0, 1, 500, 1, 0);
    mail_receive(&mails[1], 0, 1, 500, 0);
    group_ring_turn(&mail_ring, 10);
    muster_group_abort_all(mail_ring.members[0].group, &why);
    mail_assert_ended(&mails[0], MUSTER_ABORTED, "excluded");
    mail_assert_ended(&mails[1], MUSTER_ABORTED, "excluded");
}

/* Returns whether the k-th allocation was reached. */
static bool play_short_of_memory(unsigned k)
{
    static const uint64_t counts[] = {5, 500};
    bool is_started[4], has_failed;

    mail_open(2);
    group_ring_turn(&mail_ring, 12);
    mail_ring.test.mem.fail_at = k;
    for (unsigned i = 0; i < 4; i++) {
        struct muster_tensor tensor = mail_prepare(&mails[i], i / 2, counts[i % 2], i < 2, 0);
        struct muster_op *op = &mails[i].op;
        struct muster_group *group = mail_ring.members[i / 2].group;
        enum muster_rc rc = i < 2 ? muster_send_start(op, group, &tensor, 1, mail_done)
                                  : muster_receive_start(op, group, &tensor, 0, mail_done);

        is_started[i] = rc == MUSTER_OK;
    }
    group_ring_turn(&mail_ring, 40);
    has_failed = mail_ring.test.mem.fail_at == 0;
    mail_ring.test.mem.fail_at = 0;
    group_ring_change(&mail_ring, UINT32_MAX);
    group_ring_turn(&mail_ring, 40);
    for (unsigned i = 0; i < 4; i++)
        if (is_started[0] && is_started[1] && is_started[2] && is_started[3])
            mail_run_ok(&mails[i]);
    mail_close();
    return has_failed;
}

static void without_memory_nothing_is_lost(void **state)
{
    unsigned k = 1;

    (void)state;
    while (play_short_of_memory(k))
        k++;
    assert_true(k > 4);
}

/* --- Through boards --- */

int main(void)
{
    const struct CMUnitTest tests[] = {
        MAIL_CASE(both_may_send_first),
        MAIL_CASE(who_receives_first_waits_for_nobody_else),
        MAIL_CASE(unasked_messages_do_not_stop_the_group),
        MAIL_CASE(lanes_and_members_count_apart),
        cmocka_unit_test(a_change_that_leaves_both_in_delays_them_only),
        MAIL_CASE(many_changes_receive_nothing_twice),
        MAIL_CASE(started_while_frozen_they_go_in_the_next_epoch),
        MAIL_CASE(a_message_of_an_unknown_type_is_refused),
        MAIL_CASE(pieces_come_in_any_order_and_count_once),
        MAIL_CASE(who_was_left_out_and_returns_begins_anew),
        cmocka_unit_test(the_death_of_one_ends_the_others_wherever_it_comes),
        cmocka_unit_test(different_counts_are_an_error_on_both_sides),
        MAIL_CASE(oneself_and_nobody_are_no_partners),
        cmocka_unit_test(a_send_that_was_cancelled_ends_its_receive),
        cmocka_unit_test(a_receive_that_was_cancelled_ends_its_send),
        MAIL_CASE(a_deadline_names_the_other),
        MAIL_CASE(without_an_answer_a_send_gives_up_after_the_grace_period),
        MAIL_CASE(the_excluded_end_theirs),
        cmocka_unit_test(without_memory_nothing_is_lost),
        GROUP_RING_CASE_WITH_BOARDS(both_may_send_first),
        GROUP_RING_CASE_WITH_BOARDS(who_receives_first_waits_for_nobody_else),
        GROUP_RING_CASE_WITH_BOARDS(unasked_messages_do_not_stop_the_group),
        GROUP_RING_CASE_WITH_BOARDS(lanes_and_members_count_apart),
        GROUP_RING_CASE_WITH_BOARDS(a_change_that_leaves_both_in_delays_them_only),
        GROUP_RING_CASE_WITH_BOARDS(many_changes_receive_nothing_twice),
        GROUP_RING_CASE_WITH_BOARDS(started_while_frozen_they_go_in_the_next_epoch),
        GROUP_RING_CASE_WITH_BOARDS(who_was_left_out_and_returns_begins_anew),
        GROUP_RING_CASE_WITH_BOARDS(different_counts_are_an_error_on_both_sides),
        GROUP_RING_CASE_WITH_BOARDS(a_send_that_was_cancelled_ends_its_receive),
        GROUP_RING_CASE_WITH_BOARDS(a_receive_that_was_cancelled_ends_its_send),
        GROUP_RING_CASE_WITH_BOARDS(a_deadline_names_the_other),
        GROUP_RING_CASE_WITH_BOARDS(without_an_answer_a_send_gives_up_after_the_grace_period),
        GROUP_RING_CASE_WITH_BOARDS(the_excluded_end_theirs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
