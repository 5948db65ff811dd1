/* Messages between two members: exactly once, whatever happens to the others. */
#include "group_ring.h"

#include <muster/message.h>

#include <string.h>

#include "collective/pair.h"

#define ELEMENTS  1000u
#define MAIL_MAX  600u
#define TURNS_MAX 6000u

/* One send or receive. */
struct mail {
    struct muster_op op;
    int32_t *values;
    unsigned done_count;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct mail mails[MAIL_MAX];
static int32_t heap[MAIL_MAX * ELEMENTS];
static int32_t *memory[GROUP_RING_MAX]; /* by member: mapped by the others, or the heap */
static bool is_cut;

/* Through boards: the members have agreed on them, and see each other's memory. */
static void await_boards(uint32_t n)
{
    bool is_settled = false;

    for (unsigned turns = 0; !is_settled; turns++) {
        group_ring_turn(&ring, 1);
        is_settled = true;
        for (uint32_t member = 0; member < n; member++)
            is_settled = is_settled && muster_shm_is_used(ring.members[member].group);
        assert_true(turns < TURNS_MAX);
    }
    group_ring_turn(&ring, 2);
}

static void take_memory(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++) {
        void *mapped = heap;

        if (group_ring_has_boards)
            assert_int_equal(
                muster_board_share_new(ring.members[member].board, sizeof(heap), &mapped),
                MUSTER_OK);
        memory[member] = mapped;
    }
    is_cut = false;
    if (group_ring_has_boards)
        await_boards(n);
}

static void open_ring_plan(uint32_t n, const struct muster_plan_parameters *plan)
{
    group_ring_open_plan(&ring, n, plan);
    take_memory(n);
}

static void open_ring(uint32_t n)
{
    group_ring_open(&ring, n);
    take_memory(n);
}

static void close_ring(void)
{
    group_ring_close(&ring);
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct mail *mail = op->data;

    mail->done_count++;
    mail->rc = rc;
}

static struct muster_tensor prepare(struct mail *mail, uint32_t member, uint64_t count, int32_t first,
                                    uint32_t lane)
{
    memset(mail, 0, sizeof(*mail));
    mail->values = memory[member] + (mail - mails) * ELEMENTS;
    memset(mail->values, 0, ELEMENTS * sizeof(int32_t));
    mail->op.data = mail;
    mail->op.lane = lane;
    mail->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    for (uint32_t i = 0; i < count && first != 0; i++)
        mail->values[i] = first + (int32_t)i;
    return (struct muster_tensor){.data = mail->values, .count = count, .dtype = MUSTER_I32};
}

static void send_in(struct mail *mail, uint32_t from, uint32_t to, uint64_t count, int32_t first,
                    uint32_t lane)
{
    struct muster_tensor tensor = prepare(mail, from, count, first, lane);

    assert_int_equal(muster_send_start(&mail->op, ring.members[from].group, &tensor, to, on_done),
                     MUSTER_OK);
}

static void receive_in(struct mail *mail, uint32_t to, uint32_t from, uint64_t count, uint32_t lane)
{
    struct muster_tensor tensor = prepare(mail, to, count, 0, lane);

    assert_int_equal(
        muster_receive_start(&mail->op, ring.members[to].group, &tensor, from, on_done), MUSTER_OK);
}

static void run(struct mail *mail)
{
    for (unsigned turns = 0; mail->done_count == 0; turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > TURNS_MAX)
            fail_msg("mail %zu hangs", (size_t)(mail - mails));
    }
    assert_int_equal(mail->done_count, 1);
}

static void run_ok(struct mail *mail)
{
    run(mail);
    if (mail->rc != MUSTER_OK)
        fail_msg("mail %zu ended with %d: %s", (size_t)(mail - mails), (int)mail->rc,
                 mail->op.error.text);
}

static void check_values(const struct mail *mail, uint64_t count, int32_t first)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(mail->values[i], first + (int32_t)i);
}

static void assert_ended(struct mail *mail, enum muster_rc rc, const char *text)
{
    run(mail);
    if (mail->rc != rc || strstr(mail->op.error.text, text) == NULL)
        fail_msg("mail %zu ended with %d: %s", (size_t)(mail - mails), (int)mail->rc,
                 mail->op.error.text);
}

/* Both ways between members 0 and 1, in lane 9: nothing of what was is in the way. */
static void check_next(uint32_t rank_of_1)
{
    send_in(&mails[MAIL_MAX - 4], 0, rank_of_1, 300, 77, 9);
    send_in(&mails[MAIL_MAX - 3], 1, 0, 3, 88, 9);
    receive_in(&mails[MAIL_MAX - 2], 1, 0, 300, 9);
    receive_in(&mails[MAIL_MAX - 1], 0, rank_of_1, 3, 9);
    for (unsigned i = MAIL_MAX - 4; i < MAIL_MAX; i++)
        run_ok(&mails[i]);
    check_values(&mails[MAIL_MAX - 2], 300, 77);
    check_values(&mails[MAIL_MAX - 1], 3, 88);
}

/* --- Without failures --- */

static void both_may_send_first(void **state)
{
    static const uint64_t counts[] = {0, 1, 16, 17, 64, 65, ELEMENTS};

    (void)state;
    open_ring(2);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        send_in(&mails[0], 0, 1, counts[i], 100, 0);
        send_in(&mails[1], 1, 0, counts[i], 5000, 0);
        group_ring_turn(&ring, 20);
        assert_int_equal(mails[0].done_count + mails[1].done_count, 0);
        receive_in(&mails[2], 0, 1, counts[i], 0);
        receive_in(&mails[3], 1, 0, counts[i], 0);
        for (unsigned k = 0; k < 4; k++)
            run_ok(&mails[k]);
        check_values(&mails[2], counts[i], 5000);
        check_values(&mails[3], counts[i], 100);
        assert_int_equal(mails[2].op.id.sequence, i);
    }
    close_ring();
}

static void who_receives_first_waits_for_nobody_else(void **state)
{
    (void)state;
    open_ring(3);
    receive_in(&mails[0], 2, 0, 500, 0);
    receive_in(&mails[1], 2, 0, 4, 0);
    group_ring_turn(&ring, 20);
    send_in(&mails[2], 0, 2, 500, 7, 0);
    send_in(&mails[3], 0, 2, 4, 9, 0);
    for (unsigned k = 0; k < 4; k++)
        run_ok(&mails[k]);
    check_values(&mails[0], 500, 7);
    check_values(&mails[1], 4, 9);
    close_ring();
}

/* More than may be sent unasked: the rest waits, and nothing else does. */
static void unasked_messages_do_not_stop_the_group(void **state)
{
    const uint32_t count = 290;
    struct mail *barrier = &mails[2 * count];

    (void)state;
    open_ring(2);
    for (uint32_t i = 0; i < count; i++)
        send_in(&mails[i], 0, 1, 5, (int32_t)(10 * i + 1), 3);
    for (uint32_t member = 0; member < 2; member++) {
        (void)prepare(&barrier[member], member, 0, 0, 3);
        assert_int_equal(
            muster_barrier_start(&barrier[member].op, ring.members[member].group, on_done),
            MUSTER_OK);
    }
    run_ok(&barrier[0]);
    run_ok(&barrier[1]);
    group_ring_turn(&ring, 20);
    assert_int_equal(muster_pair_get(ring.members[1].group, 0)->kept_bytes,
                     MUSTER_EAGER_COUNT_MAX * (5 * sizeof(int32_t) + sizeof(struct muster_early)));
    for (uint32_t i = 0; i < count; i++)
        receive_in(&mails[count + i], 1, 0, 5, 3);
    for (uint32_t i = 0; i < 2 * count; i++)
        run_ok(&mails[i]);
    for (uint32_t i = 0; i < count; i++)
        check_values(&mails[count + i], 5, (int32_t)(10 * i + 1));
    close_ring();
}

static void lanes_and_members_count_apart(void **state)
{
    (void)state;
    open_ring(3);
    send_in(&mails[0], 0, 1, 40, 100, 0);
    send_in(&mails[1], 0, 1, 40, 200, 5);
    send_in(&mails[2], 2, 1, 40, 300, 0);
    receive_in(&mails[3], 1, 2, 40, 0);
    receive_in(&mails[4], 1, 0, 40, 5);
    receive_in(&mails[5], 1, 0, 40, 0);
    for (unsigned k = 0; k < 6; k++)
        run_ok(&mails[k]);
    check_values(&mails[3], 40, 300);
    check_values(&mails[4], 40, 200);
    check_values(&mails[5], 40, 100);
    close_ring();
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

        open_ring_plan(3, &plans[play % 2]);
        for (unsigned i = 0; i < 4; i++) {
            send_in(&mails[i], 1, ranks[1], counts[i], 100, i % 2);
            receive_in(&mails[4 + i], 2, ranks[0], counts[i], i % 2);
            send_in(&mails[8 + i], 2, ranks[0], counts[i], 900, i % 2);
        }
        group_ring_turn(&ring, turns);
        group_ring_kill(&ring, 0);
        if (turns % 3 == 1) /* one is stopped earlier than the other */
            group_ring_freeze(&ring);
        group_ring_change(&ring, UINT32_MAX);
        for (unsigned i = 0; i < 4; i++)
            receive_in(&mails[12 + i], 1, 1, counts[i], i % 2);
        for (unsigned i = 0; i < 16; i++)
            run_ok(&mails[i]);
        for (unsigned i = 0; i < 4; i++) {
            check_values(&mails[4 + i], counts[i], 100);
            check_values(&mails[12 + i], counts[i], 900);
        }
        close_ring();
    }
}

/* Again and again: what has been received is not received twice. */
static void many_changes_receive_nothing_twice(void **state)
{
    (void)state;
    open_ring(2);
    send_in(&mails[0], 0, 1, ELEMENTS, 100, 0);
    send_in(&mails[1], 0, 1, 6, 5000, 0);
    receive_in(&mails[2], 1, 0, ELEMENTS, 0);
    receive_in(&mails[3], 1, 0, 6, 0);
    for (unsigned i = 0; i < 12; i++) {
        group_ring_turn(&ring, 3 + i);
        group_ring_change(&ring, UINT32_MAX);
    }
    for (unsigned k = 0; k < 4; k++)
        run_ok(&mails[k]);
    check_values(&mails[2], ELEMENTS, 100);
    check_values(&mails[3], 6, 5000);
    check_next(1);
    close_ring();
}

static void started_while_frozen_they_go_in_the_next_epoch(void **state)
{
    (void)state;
    open_ring(2);
    group_ring_turn(&ring, 10);
    group_ring_freeze(&ring);
    send_in(&mails[0], 0, 1, 200, 100, 0);
    receive_in(&mails[1], 1, 0, 200, 0);
    group_ring_turn(&ring, 10);
    assert_int_equal(mails[0].done_count + mails[1].done_count, 0);
    group_ring_change(&ring, UINT32_MAX);
    run_ok(&mails[0]);
    run_ok(&mails[1]);
    check_values(&mails[1], 200, 100);
    assert_true(mails[1].op.result.is_interrupted);
    close_ring();
}

/* A piece for member 1 from member 0, as from the wire. Returns whether it was wanted. */
static bool bring_piece(uint32_t chunk, uint64_t count)
{
    struct muster_group *group = ring.members[1].group;
    struct muster_frame_header header = {
        .channel = MUSTER_FRAME_COLLECTIVE,
        .type = MUSTER_FRAME_MESSAGE,
        .flags = MUSTER_I32,
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

static void pieces_come_in_any_order_and_count_once(void **state)
{
    (void)state;
    open_ring(2);
    group_ring_turn(&ring, 10);
    receive_in(&mails[0], 1, 0, 4 * 64, 0);
    assert_true(bring_piece(0, 4 * 64));
    assert_false(bring_piece(0, 4 * 64));
    assert_true(bring_piece(2, 4 * 64));
    assert_false(bring_piece(2, 4 * 64));
    assert_true(bring_piece(3, 4 * 64));
    group_ring_turn(&ring, 10);
    assert_int_equal(mails[0].done_count, 0);
    assert_int_equal(ring.members[0].suspect_count + ring.members[1].suspect_count, 0);
    assert_true(bring_piece(1, 4 * 64));
    run_ok(&mails[0]);
    check_values(&mails[0], 4 * 64, 1);
    close_ring();
}

static void leave_out(uint32_t member)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};

    muster_group_abort_all(ring.members[member].group, &why);
    muster_group_close(ring.members[member].group);
    ring.members[member].group = NULL;
}

/* The same process, another life: both count from the beginning. */
static void who_was_left_out_and_returns_begins_anew(void **state)
{
    (void)state;
    open_ring(2);
    check_next(1);
    check_next(1);
    send_in(&mails[0], 0, 1, 500, 1, 9);
    send_in(&mails[1], 0, 1, 5, 1, 9);
    group_ring_turn(&ring, 5);
    leave_out(1);
    group_ring_change(&ring, UINT32_MAX);
    assert_ended(&mails[0], MUSTER_ABORTED, "rank 1 (worker:1) is gone");
    assert_ended(&mails[1], MUSTER_ABORTED, "rank 1 (worker:1) is gone");
    group_ring_change(&ring, 1);
    check_next(1);
    close_ring();
}

/* Returns whether the k-th point of the victim exists. */
static bool play_death(uint32_t victim, unsigned k)
{
    uint32_t other = 3 - victim;
    bool has_cut;

    open_ring(3);
    ring.members[victim].cut_at = k;
    send_in(&mails[0], 1, 2, 600, 100, 0);
    receive_in(&mails[1], 2, 1, 600, 0);
    send_in(&mails[2], 2, 1, 4, 50, 0);
    receive_in(&mails[3], 1, 2, 4, 0);
    for (unsigned turns = 0; turns < 60 && !ring.has_cut; turns++)
        group_ring_turn(&ring, 1);
    has_cut = ring.has_cut;
    if (has_cut) {
        group_ring_kill(&ring, victim);
        group_ring_change(&ring, UINT32_MAX);
        for (unsigned i = 0; i < 4; i++) {
            bool is_of_victim = victim == 1 ? i == 0 || i == 3 : i == 1 || i == 2;

            run(&mails[i]);
            if (!is_of_victim && mails[i].rc != MUSTER_OK) {
                assert_ended(&mails[i], MUSTER_ABORTED, "is gone (epoch 2: a member died)");
                assert_non_null(strstr(mails[i].op.error.text,
                                       other == 1 ? "rank 2 (worker:2)" : "rank 1 (worker:1)"));
            }
        }
        if (mails[1].rc == MUSTER_OK)
            check_values(&mails[1], 600, 100);
        if (mails[3].rc == MUSTER_OK)
            check_values(&mails[3], 4, 50);
    }
    close_ring();
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

static void play_shapes(bool is_received_first, uint64_t sent, uint64_t expected)
{
    open_ring(2);
    if (is_received_first)
        receive_in(&mails[1], 1, 0, expected, 0);
    group_ring_turn(&ring, 15);
    send_in(&mails[0], 0, 1, sent, 1, 0);
    group_ring_turn(&ring, 15);
    if (!is_received_first)
        receive_in(&mails[1], 1, 0, expected, 0);
    assert_ended(&mails[0], MUSTER_INVALID_ARGUMENT,
                 "send #0 to rank 1 (worker:1): it expects i32");
    assert_ended(&mails[1], MUSTER_INVALID_ARGUMENT,
                 "receive #0 from rank 0 (worker:0): it sends i32");
    send_in(&mails[0], 0, 1, 5, 10, 0);
    receive_in(&mails[1], 1, 0, 5, 0);
    run_ok(&mails[0]);
    run_ok(&mails[1]);
    check_next(1);
    close_ring();
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
    open_ring(2);
    tensor = prepare(&mails[0], 0, 4, 0, 0);
    assert_int_equal(muster_send_start(&mails[0].op, ring.members[0].group, &tensor, 0, on_done),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_receive_start(&mails[0].op, ring.members[0].group, &tensor, 2, on_done),
                     MUSTER_INVALID_ARGUMENT);
    tensor.data = NULL;
    assert_int_equal(muster_send_start(&mails[0].op, ring.members[0].group, &tensor, 1, on_done),
                     MUSTER_INVALID_ARGUMENT);
    assert_false(muster_group_is_busy(ring.members[0].group));
    close_ring();
}

/* --- Giving up --- */

static void a_send_that_was_cancelled_ends_its_receive(void **state)
{
    static const uint64_t counts[] = {5, 500};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        open_ring(2);
        group_ring_turn(&ring, 10);
        send_in(&mails[0], 0, 1, counts[i % 2], 1, 0);
        send_in(&mails[2], 0, 1, counts[i % 2], 40, 0);
        group_ring_turn(&ring, i < 2 ? 0 : 20);
        muster_op_cancel(&mails[0].op);
        muster_op_cancel(&mails[0].op);
        assert_ended(&mails[0], MUSTER_CANCELLED, "send #0 to rank 1");
        receive_in(&mails[1], 1, 0, counts[i % 2], 0);
        receive_in(&mails[3], 1, 0, counts[i % 2], 0);
        assert_ended(&mails[1], MUSTER_ABORTED, "it has given it up");
        run_ok(&mails[2]);
        run_ok(&mails[3]);
        check_values(&mails[3], counts[i % 2], 40);
        check_next(1);
        close_ring();
    }
}

static void a_receive_that_was_cancelled_ends_its_send(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 12; turns++) {
        open_ring(2);
        group_ring_turn(&ring, 10);
        receive_in(&mails[1], 1, 0, ELEMENTS, 0);
        if (turns > 0)
            send_in(&mails[0], 0, 1, ELEMENTS, 1, 0);
        group_ring_turn(&ring, turns);
        muster_op_cancel(&mails[1].op);
        run(&mails[1]);
        group_ring_turn(&ring, 10); /* the news of it finds nobody */
        if (turns == 0)
            send_in(&mails[0], 0, 1, ELEMENTS, 1, 0);
        if (mails[1].rc == MUSTER_CANCELLED)
            assert_ended(&mails[0], MUSTER_ABORTED, "it has given it up");
        else
            run_ok(&mails[0]);
        send_in(&mails[2], 0, 1, 5, 1, 0);
        receive_in(&mails[3], 1, 0, 5, 0);
        run_ok(&mails[2]);
        run_ok(&mails[3]);
        assert_int_equal(muster_pair_get(ring.members[1].group, 0)->outcome_count, 0);
        check_next(1);
        close_ring();
    }
}

static void a_deadline_names_the_other(void **state)
{
    struct muster_tensor tensor;

    (void)state;
    open_ring(2);
    group_ring_turn(&ring, 10);
    tensor = prepare(&mails[0], 0, 5, 1, 0);
    mails[0].op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 3 * MUSTER_NS_PER_MS);
    assert_int_equal(muster_send_start(&mails[0].op, ring.members[0].group, &tensor, 1, on_done),
                     MUSTER_OK);
    tensor = prepare(&mails[1], 0, 5, 0, 0);
    mails[1].op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 3 * MUSTER_NS_PER_MS);
    assert_int_equal(muster_receive_start(&mails[1].op, ring.members[0].group, &tensor, 1, on_done),
                     MUSTER_OK);
    assert_ended(&mails[0], MUSTER_DEADLINE_EXCEEDED, "it has not received it");
    assert_ended(&mails[1], MUSTER_DEADLINE_EXCEEDED,
                 "receive #0 from rank 1 (worker:1): rank 1 (worker:1) has not sent it");
    check_next(1);
    close_ring();
}

/* The other is in the view and says nothing. */
static void without_an_answer_a_send_gives_up_after_the_grace_period(void **state)
{
    (void)state;
    open_ring(2);
    group_ring_turn(&ring, 10);
    muster_group_close(ring.members[0].group);
    ring.members[0].group = NULL;
    ring.abort_grace_ns = 3 * MUSTER_NS_PER_MS;
    group_ring_reopen(&ring);
    group_ring_turn(&ring, 10);
    send_in(&mails[0], 0, 1, 500, 1, 0);
    muster_group_close(ring.members[1].group);
    ring.members[1].group = NULL;
    muster_op_cancel(&mails[0].op);
    assert_ended(&mails[0], MUSTER_CANCELLED, "send #0");
    group_ring_reopen(&ring);
    close_ring();
}

static void the_excluded_end_theirs(void **state)
{
    const struct muster_error why = {.rc = MUSTER_ABORTED, .text = "excluded"};

    (void)state;
    open_ring(2);
    send_in(&mails[0], 0, 1, 500, 1, 0);
    receive_in(&mails[1], 0, 1, 500, 0);
    group_ring_turn(&ring, 10);
    muster_group_abort_all(ring.members[0].group, &why);
    assert_ended(&mails[0], MUSTER_ABORTED, "excluded");
    assert_ended(&mails[1], MUSTER_ABORTED, "excluded");
    close_ring();
}

/* Returns whether the k-th allocation was reached. */
static bool play_short_of_memory(unsigned k)
{
    static const uint64_t counts[] = {5, 500};
    bool is_started[4], has_failed;

    open_ring(2);
    group_ring_turn(&ring, 12);
    ring.test.mem.fail_at = k;
    for (unsigned i = 0; i < 4; i++) {
        struct muster_tensor tensor = prepare(&mails[i], i / 2, counts[i % 2], i < 2, 0);
        enum muster_rc rc =
            i < 2 ? muster_send_start(&mails[i].op, ring.members[0].group, &tensor, 1, on_done)
                  : muster_receive_start(&mails[i].op, ring.members[1].group, &tensor, 0, on_done);

        is_started[i] = rc == MUSTER_OK;
    }
    group_ring_turn(&ring, 40);
    has_failed = ring.test.mem.fail_at == 0;
    ring.test.mem.fail_at = 0;
    group_ring_change(&ring, UINT32_MAX);
    group_ring_turn(&ring, 40);
    for (unsigned i = 0; i < 4; i++)
        if (is_started[0] && is_started[1] && is_started[2] && is_started[3])
            run_ok(&mails[i]);
    close_ring();
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

static int with_boards(void **state)
{
    (void)state;
    group_ring_has_boards = true;
    return 0;
}

static int without_boards(void **state)
{
    (void)state;
    group_ring_has_boards = false;
    return 0;
}

/* The process ends: what it stores from now on reaches nobody. */
static void on_point(void *data, const char *point)
{
    struct group_ring_member *member = data;

    (void)point;
    if (member->is_dead || ++member->passed != member->cut_at)
        return;
    member->is_dead = true;
    is_cut = true;
    sim_board_kill(&ring.boards, &member->self.incarnation);
}

/* Returns whether the k-th point of the victim exists. */
static bool play_death_at_a_store(uint32_t victim, unsigned k, bool is_received_first)
{
    bool was_cut;

    open_ring(3);
    ring.members[victim].passed = 0;
    ring.members[victim].cut_at = k;
    for (uint32_t member = 1; member <= 2; member++)
        muster_group_set_shm_failpoint(ring.members[member].group, on_point, &ring.members[member]);
    if (is_received_first)
        receive_in(&mails[1], 2, 1, 600, 0);
    group_ring_turn(&ring, 5);
    send_in(&mails[0], 1, 2, 600, 100, 0);
    if (!is_received_first)
        receive_in(&mails[1], 2, 1, 600, 0);
    for (unsigned turns = 0; turns < 60 && !is_cut; turns++)
        group_ring_turn(&ring, 1);
    was_cut = is_cut;
    group_ring_turn(&ring, 30);
    if (was_cut) {
        struct mail *left = &mails[victim == 1 ? 1 : 0];

        group_ring_kill(&ring, victim);
        group_ring_change(&ring, UINT32_MAX);
        run(left);
        if (left->rc != MUSTER_OK)
            assert_ended(left, MUSTER_ABORTED, "is gone (epoch 2: a member died)");
    }
    if (mails[1].rc == MUSTER_OK && mails[1].done_count > 0)
        check_values(&mails[1], 600, 100);
    close_ring();
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
    open_ring(2);
    receive_in(&mails[1], 1, 0, 300, 0);
    send_in(&mails[0], 0, 1, 300, 5, 0);
    run_ok(&mails[0]);
    run_ok(&mails[1]);
    assert_string_equal(mails[0].op.result.wire, "shm");
    assert_string_equal(mails[0].op.result.input, "mapped");
    assert_string_equal(mails[1].op.result.wire, "shm");
    for (unsigned i = 0; i < 2; i++) {
        receive_in(&mails[1], 1, 0, 300, 0);
        tensor = prepare(&mails[0], 0, 300, 0, 0);
        tensor.data = private;
        assert_int_equal(
            muster_send_start(&mails[0].op, ring.members[0].group, &tensor, 1, on_done), MUSTER_OK);
        run_ok(&mails[0]);
        run_ok(&mails[1]);
        assert_memory_equal(mails[1].values, private, sizeof(private));
        /* the first time the receiver does not know the copy */
        assert_string_equal(mails[0].op.result.input, i == 0 ? "sent" : "staged");
        group_ring_turn(&ring, 10);
    }
    close_ring();
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
        open_ring(2);
        muster_group_set_shm_failpoint(ring.members[1].group, hide_at, &at);
        receive_in(&mails[1], 1, 0, 300, 0);
        send_in(&mails[0], 0, 1, 300, 5, 0);
        run_ok(&mails[1]);
        assert_string_equal(mails[1].op.result.wire, "tcp"); /* it has asked for pieces */
        assert_int_equal(mails[1].values[0], 0x5a5a5a5a);
        close_ring();
    }
}

static void steady_messages_allocate_nothing(void **state)
{
    uint64_t before = 0;

    (void)state;
    open_ring(2);
    for (unsigned round = 0; round < 80; round++) {
        if (round == 60)
            before = ring.test.mem.alloc_count;
        send_in(&mails[0], 0, 1, 300, 5, 0);
        receive_in(&mails[1], 1, 0, 300, 0);
        run_ok(&mails[0]);
        run_ok(&mails[1]);
    }
    assert_int_equal(ring.test.mem.alloc_count, before);
    close_ring();
}

static void stop_looking(uint32_t member)
{
    const struct muster_group *group = ring.members[member].group;

    for (unsigned turns = 0; !muster_list_is_empty(&group->looking); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        assert_true(turns < 100 * TURNS_MAX);
    }
}

static void who_has_stopped_looking_is_told_by_a_frame(void **state)
{
    static const uint64_t counts[] = {0, 5, 300};

    (void)state;
    for (unsigned play = 0; play < 6; play++) {
        uint64_t count = counts[play / 2];

        open_ring(2);
        if (play % 2 == 0)
            receive_in(&mails[1], 1, 0, count, 0);
        else
            send_in(&mails[0], 0, 1, count, 5, 0);
        stop_looking(play % 2 == 0);
        if (play % 2 == 0)
            send_in(&mails[0], 0, 1, count, 5, 0);
        else
            receive_in(&mails[1], 1, 0, count, 0);
        run_ok(&mails[0]);
        run_ok(&mails[1]);
        check_values(&mails[1], count, 5);
        if (count > 0)
            assert_string_equal(mails[1].op.result.wire, "shm");
        close_ring();
    }
}

/* More than there are places: the others go in pieces. */
static void many_messages_find_no_place(void **state)
{
    const uint32_t count = SHM_SHOWN_MAX + 6;

    (void)state;
    open_ring(2);
    for (uint32_t i = 0; i < count; i++)
        send_in(&mails[i], 0, 1, 100, (int32_t)(10 * i + 1), 3);
    for (uint32_t i = 0; i < count; i++)
        receive_in(&mails[count + i], 1, 0, 100, 3);
    for (uint32_t i = 0; i < 2 * count; i++)
        run_ok(&mails[i]);
    for (uint32_t i = 0; i < count; i++)
        check_values(&mails[count + i], 100, (int32_t)(10 * i + 1));
    assert_string_equal(mails[0].op.result.wire, "shm");
    assert_string_equal(mails[count - 1].op.result.wire, "tcp");
    close_ring();
}

#define through_boards(test) cmocka_unit_test_setup_teardown(test, with_boards, without_boards)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_may_send_first),
        cmocka_unit_test(who_receives_first_waits_for_nobody_else),
        cmocka_unit_test(unasked_messages_do_not_stop_the_group),
        cmocka_unit_test(lanes_and_members_count_apart),
        cmocka_unit_test(a_change_that_leaves_both_in_delays_them_only),
        cmocka_unit_test(many_changes_receive_nothing_twice),
        cmocka_unit_test(started_while_frozen_they_go_in_the_next_epoch),
        cmocka_unit_test(pieces_come_in_any_order_and_count_once),
        cmocka_unit_test(who_was_left_out_and_returns_begins_anew),
        cmocka_unit_test(the_death_of_one_ends_the_others_wherever_it_comes),
        cmocka_unit_test(different_counts_are_an_error_on_both_sides),
        cmocka_unit_test(oneself_and_nobody_are_no_partners),
        cmocka_unit_test(a_send_that_was_cancelled_ends_its_receive),
        cmocka_unit_test(a_receive_that_was_cancelled_ends_its_send),
        cmocka_unit_test(a_deadline_names_the_other),
        cmocka_unit_test(without_an_answer_a_send_gives_up_after_the_grace_period),
        cmocka_unit_test(the_excluded_end_theirs),
        cmocka_unit_test(without_memory_nothing_is_lost),
        through_boards(both_may_send_first),
        through_boards(who_receives_first_waits_for_nobody_else),
        through_boards(unasked_messages_do_not_stop_the_group),
        through_boards(lanes_and_members_count_apart),
        through_boards(a_change_that_leaves_both_in_delays_them_only),
        through_boards(many_changes_receive_nothing_twice),
        through_boards(started_while_frozen_they_go_in_the_next_epoch),
        through_boards(who_was_left_out_and_returns_begins_anew),
        through_boards(different_counts_are_an_error_on_both_sides),
        through_boards(a_send_that_was_cancelled_ends_its_receive),
        through_boards(a_receive_that_was_cancelled_ends_its_send),
        through_boards(a_deadline_names_the_other),
        through_boards(without_an_answer_a_send_gives_up_after_the_grace_period),
        through_boards(the_excluded_end_theirs),
        through_boards(the_death_of_one_ends_the_others_at_every_store),
        through_boards(the_receiver_copies_from_where_the_tensor_is),
        through_boards(what_is_taken_back_meanwhile_is_not_received),
        through_boards(steady_messages_allocate_nothing),
        through_boards(who_has_stopped_looking_is_told_by_a_frame),
        through_boards(many_messages_find_no_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
