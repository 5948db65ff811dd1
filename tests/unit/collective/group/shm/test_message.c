/* Messages through boards: shown by the sender, copied by the receiver; frames where one does not
 * look. */
#include "mail_stage.h"

#include <string.h>

#include "collective/group/pair.h"
#include "collective/group/shm/shm_internal.h"
#include "collective/wire/wire_tcp_internal.h"
#include "net/link/peer_link_internal.h"

static bool is_cut;

/* The process ends: what it stores from now on reaches nobody. */
static void on_point(void *data, const char *point)
{
    struct group_ring_member *member = data;

    (void)point;
    if (member->is_dead || ++member->passed != member->cut_at)
        return;
    member->is_dead = true;
    is_cut = true;
    sim_board_kill(&mail_ring.boards, &member->self.incarnation);
}

/* Returns whether the k-th point of the victim exists. */
static bool play_death_at_a_store(uint32_t victim, unsigned k, bool is_received_first)
{
    bool was_cut;

    is_cut = false;
    mail_open(3);
    mail_ring.members[victim].passed = 0;
    mail_ring.members[victim].cut_at = k;
    for (uint32_t member = 1; member <= 2; member++)
        muster_group_set_shm_failpoint(mail_ring.members[member].group, on_point,
                                       &mail_ring.members[member]);
    if (is_received_first)
        mail_receive(&mails[1], 2, 1, 600, 0);
    group_ring_turn(&mail_ring, 5);
    mail_send(&mails[0], 1, 2, 600, 100, 0);
    if (!is_received_first)
        mail_receive(&mails[1], 2, 1, 600, 0);
    for (unsigned turns = 0; turns < 60 && !is_cut; turns++)
        group_ring_turn(&mail_ring, 1);
    was_cut = is_cut;
    group_ring_turn(&mail_ring, 30);
    if (was_cut) {
        struct mail *left = &mails[victim == 1 ? 1 : 0];

        group_ring_kill(&mail_ring, victim);
        group_ring_change(&mail_ring, UINT32_MAX);
        mail_run(left);
        if (left->rc != MUSTER_OK)
            mail_assert_ended(left, MUSTER_ABORTED, "is gone (view 2: a member died)");
    }
    if (mails[1].rc == MUSTER_OK && mails[1].done_count > 0)
        mail_check_values(&mails[1], 600, 100);
    mail_close();
    return was_cut;
}

static void the_death_of_one_ends_the_others_at_every_store(void **state)
{
    (void)state;
    for (unsigned play = 0; play < 4; play++) {
        unsigned k = 1;

        while (play_death_at_a_store(1 + play % 2, k, play < 2))
            k++;
        assert_true(k > 2);
    }
}

static void the_receiver_copies_from_where_the_tensor_is(void **state)
{
    struct muster_tensor tensor;
    int32_t private[300] = {1, 2, 3};

    (void)state;
    mail_open(2);
    mail_receive(&mails[1], 1, 0, 300, 0);
    mail_send(&mails[0], 0, 1, 300, 5, 0);
    mail_run_ok(&mails[0]);
    mail_run_ok(&mails[1]);
    assert_string_equal(mails[0].op.result.wire, "shm");
    assert_string_equal(mails[0].op.result.input, "mapped");
    assert_string_equal(mails[1].op.result.wire, "shm");
    for (unsigned i = 0; i < 2; i++) {
        mail_receive(&mails[1], 1, 0, 300, 0);
        tensor = mail_prepare(&mails[0], 0, 300, 0, 0);
        tensor.data = private;
        assert_int_equal(
            muster_send_start(&mails[0].op, mail_ring.members[0].group, &tensor, 1, mail_done),
            MUSTER_OK);
        mail_run_ok(&mails[0]);
        mail_run_ok(&mails[1]);
        assert_memory_equal(mails[1].values, private, sizeof(private));
        /* the first time the receiver does not know the copy */
        assert_string_equal(mails[0].op.result.input, i == 0 ? "sent" : "staged");
        group_ring_turn(&mail_ring, 10);
    }
}

static void a_place_is_used_again_when_its_message_has_arrived(void **state)
{
    (void)state;
    mail_open(2);
    for (unsigned i = 0; i < SHM_SHOWN_MAX + 2; i++) {
        mail_receive(&mails[1], 1, 0, 300, 0);
        mail_send(&mails[0], 0, 1, 300, 5, 0);
        mail_run_ok(&mails[0]);
        mail_run_ok(&mails[1]);
        assert_string_equal(mails[1].op.result.wire, "shm");
    }
}

static void hide_at(void *data, const char *point)
{
    static const char *const points[] = {"before copy", "copy"};

    if (mails[0].op.impl == NULL || strcmp(point, points[*(unsigned *)data]) != 0)
        return;
    muster_message_hide(mails[0].op.impl);
    memset(mails[0].values, 0x5a, 4);
}

/* Given up without an answer: what has been copied may not be what was sent. */
static void what_is_taken_back_meanwhile_is_not_received(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 2; at++) {
        mail_open(2);
        muster_group_set_shm_failpoint(mail_ring.members[1].group, hide_at, &at);
        mail_receive(&mails[1], 1, 0, 300, 0);
        mail_send(&mails[0], 0, 1, 300, 5, 0);
        mail_run_ok(&mails[1]);
        assert_string_equal(mails[1].op.result.wire, "tcp"); /* it has asked for pieces */
        assert_int_equal(mails[1].values[0], 0x5a5a5a5a);
        mail_close();
    }
}

static void steady_messages_allocate_nothing(void **state)
{
    uint64_t before = 0;

    (void)state;
    mail_open(2);
    for (unsigned round = 0; round < 80; round++) {
        if (round == 60)
            before = mail_ring.test.mem.alloc_count;
        mail_send(&mails[0], 0, 1, 300, 5, 0);
        mail_receive(&mails[1], 1, 0, 300, 0);
        mail_run_ok(&mails[0]);
        mail_run_ok(&mails[1]);
        assert_string_equal(mails[1].op.result.wire, "shm"); /* places are used again */
    }
    assert_int_equal(mail_ring.test.mem.alloc_count, before);
}

static uint64_t frame_bytes_from(uint32_t member, uint32_t to)
{
    return mail_ring.members[member].wire->members[to]->stripes[0].link->submitted;
}

static void a_message_that_both_look_for_needs_no_frame(void **state)
{
    uint64_t bytes[2];

    (void)state;
    mail_open(2);
    for (uint32_t i = 0; i < 2; i++)
        bytes[i] = frame_bytes_from(i, 1 - i);
    mail_send(&mails[0], 0, 1, 300, 5, 0);
    mail_receive(&mails[1], 1, 0, 300, 0);
    mail_run_ok(&mails[0]);
    mail_run_ok(&mails[1]);

    mail_check_values(&mails[1], 300, 5);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(frame_bytes_from(i, 1 - i), bytes[i]);
}

/* Long before the sender stops to look itself. */
static void a_receiver_that_does_not_look_is_told_of_a_send(void **state)
{
    struct muster_message *message;
    uint64_t bytes;

    (void)state;
    mail_open(2);
    bytes = frame_bytes_from(0, 1);
    mail_send(&mails[0], 0, 1, 300, 5, 0);
    message = mails[0].op.impl;
    message->look_until_ns = UINT64_MAX;
    group_ring_turn(&mail_ring, 200);
    assert_false(muster_list_is_empty(&mail_ring.members[0].group->looking));
    assert_true(frame_bytes_from(0, 1) > bytes);

    mail_receive(&mails[1], 1, 0, 300, 0);
    mail_run_ok(&mails[0]);
    mail_run_ok(&mails[1]);
    mail_check_values(&mails[1], 300, 5);
}

static void stop_looking(uint32_t member)
{
    const struct muster_group *group = mail_ring.members[member].group;

    for (unsigned turns = 0; !muster_list_is_empty(&group->looking); turns++) {
        muster_loop_turn(mail_ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < 100 * MAIL_TURNS_MAX);
    }
}

static void who_has_stopped_looking_is_told_by_a_frame(void **state)
{
    static const uint64_t counts[] = {0, 5, 300};

    (void)state;
    for (unsigned play = 0; play < 6; play++) {
        uint64_t count = counts[play / 2];

        mail_open(2);
        if (play % 2 == 0)
            mail_receive(&mails[1], 1, 0, count, 0);
        else
            mail_send(&mails[0], 0, 1, count, 5, 0);
        stop_looking(play % 2 == 0);
        if (play % 2 == 0)
            mail_send(&mails[0], 0, 1, count, 5, 0);
        else
            mail_receive(&mails[1], 1, 0, count, 0);
        mail_run_ok(&mails[0]);
        mail_run_ok(&mails[1]);
        mail_check_values(&mails[1], count, 5);
        if (count > 0)
            assert_string_equal(mails[1].op.result.wire, "shm");
        mail_close();
    }
}

/* More than there are places: the others go in pieces. */
static void many_messages_find_no_place(void **state)
{
    const uint32_t count = SHM_SHOWN_MAX + 6;

    (void)state;
    mail_open(2);
    for (uint32_t i = 0; i < count; i++)
        mail_send(&mails[i], 0, 1, 100, (int32_t)(10 * i + 1), 3);
    for (uint32_t i = 0; i < count; i++)
        mail_receive(&mails[count + i], 1, 0, 100, 3);
    for (uint32_t i = 0; i < 2 * count; i++)
        mail_run_ok(&mails[i]);
    for (uint32_t i = 0; i < count; i++)
        mail_check_values(&mails[count + i], 100, (int32_t)(10 * i + 1));
    assert_string_equal(mails[0].op.result.wire, "shm");
    assert_string_equal(mails[count - 1].op.result.wire, "tcp");
}

static struct muster_tensor bytes_of(void *data, uint64_t bytes)
{
    return (struct muster_tensor){.data = data, .count = bytes, .dtype = MUSTER_U8};
}

static struct mail *fresh_call(struct mail *mail)
{
    memset(mail, 0, sizeof(*mail));
    mail->op.data = mail;
    mail->op.deadline_ns = muster_loop_after_ns(mail_ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    return mail;
}

/* Their receivers may first want an operation, for which there must be memory on the board. */
static void messages_that_nobody_receives_leave_room_for_operations(void **state)
{
    static uint8_t large[256 << 10], output[256 << 10];
    const struct muster_plan_parameters plan = {.chunk_bytes = 64 << 10,
                                                .direct_max_bytes = sizeof(large)};
    struct muster_tensor tensor;
    unsigned count = 0;

    (void)state;
    mail_open_plan(3, &plan);
    for (uint32_t to = 1; to <= 2; to++)
        for (unsigned i = 0; i < SHM_SHOWN_MAX; i++) {
            unsigned halvings = to == 2 && i > 6 ? i - 6 : 0; /* whatever is left of the heap */

            tensor = bytes_of(large, sizeof(large) >> halvings);
            assert_int_equal(muster_send_start(&fresh_call(&mails[count++])->op,
                                               mail_ring.members[0].group, &tensor, to, mail_done),
                             MUSTER_OK);
        }
    for (uint32_t member = 0; member < 3; member++) {
        tensor = mail_prepare(&mails[count + member], member, 4, 1, 0);
        assert_int_equal(muster_all_reduce_start(&mails[count + member].op,
                                                 mail_ring.members[member].group, &tensor,
                                                 MUSTER_SUM, mail_done),
                         MUSTER_OK);
    }
    for (uint32_t member = 0; member < 3; member++)
        mail_run_ok(&mails[count + member]);
    for (unsigned i = 0; i < count; i++) {
        tensor = bytes_of(output, mails[i].op.impl != NULL
                                      ? ((struct muster_message *)mails[i].op.impl)->bytes
                                      : 0);
        assert_int_equal(muster_receive_start(&fresh_call(&mails[count])->op,
                                              mail_ring.members[1 + i / SHM_SHOWN_MAX].group,
                                              &tensor, 0, mail_done),
                         MUSTER_OK);
        mail_run_ok(&mails[count]);
        mail_run_ok(&mails[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_death_of_one_ends_the_others_at_every_store),
        MAIL_CASE(the_receiver_copies_from_where_the_tensor_is),
        MAIL_CASE(a_place_is_used_again_when_its_message_has_arrived),
        cmocka_unit_test(what_is_taken_back_meanwhile_is_not_received),
        MAIL_CASE(steady_messages_allocate_nothing),
        MAIL_CASE(a_message_that_both_look_for_needs_no_frame),
        MAIL_CASE(a_receiver_that_does_not_look_is_told_of_a_send),
        cmocka_unit_test(who_has_stopped_looking_is_told_by_a_frame),
        MAIL_CASE(many_messages_find_no_place),
        MAIL_CASE(messages_that_nobody_receives_leave_room_for_operations),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
