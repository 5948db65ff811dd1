/* Messages between the members of a ring. */
#include "mail_stage.h"

#include <string.h>

#include "collective/group/shm.h"

struct group_ring mail_ring;
struct mail mails[MAIL_MAX];
static int32_t heap[MAIL_MAX * MAIL_ELEMENTS];
static int32_t *memory[GROUP_RING_MAX]; /* by member: mapped by the others, or the heap */

/* Through boards: the members have agreed on them, and see each other's memory. */
static void await_boards(uint32_t n)
{
    bool is_settled = false;

    for (unsigned turns = 0; !is_settled; turns++) {
        group_ring_turn(&mail_ring, 1);
        is_settled = true;
        for (uint32_t member = 0; member < n; member++)
            is_settled = is_settled && muster_shm_is_used(mail_ring.members[member].group);
        assert_true(turns < MAIL_TURNS_MAX);
    }
    group_ring_turn(&mail_ring, 2);
}

static void take_memory(uint32_t n)
{
    mail_ring.boards.keeps_shares = true;
    for (uint32_t member = 0; member < n; member++) {
        void *mapped = heap;

        if (group_ring_has_boards)
            assert_int_equal(
                muster_board_share_new(mail_ring.members[member].board, sizeof(heap), &mapped),
                MUSTER_OK);
        memory[member] = mapped;
    }
    if (group_ring_has_boards)
        await_boards(n);
}

void mail_open_plan(uint32_t n, const struct muster_plan_parameters *plan)
{
    group_ring_open_plan(&mail_ring, n, plan);
    take_memory(n);
}

void mail_open(uint32_t n)
{
    group_ring_open(&mail_ring, n);
    take_memory(n);
}

void mail_close(void)
{
    group_ring_close(&mail_ring);
}

void mail_done(struct muster_op *op, enum muster_rc rc)
{
    struct mail *mail = op->data;

    mail->done_count++;
    mail->rc = rc;
}

struct muster_tensor mail_prepare(struct mail *mail, uint32_t member, uint64_t count, int32_t first,
                                  uint32_t lane)
{
    memset(mail, 0, sizeof(*mail));
    mail->values = memory[member] + (mail - mails) * MAIL_ELEMENTS;
    memset(mail->values, 0, MAIL_ELEMENTS * sizeof(int32_t));
    mail->op.data = mail;
    mail->op.lane = lane;
    mail->op.deadline_ns = muster_loop_after_ns(mail_ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    for (uint32_t i = 0; i < count && first != 0; i++)
        mail->values[i] = first + (int32_t)i;
    return (struct muster_tensor){.data = mail->values, .count = count, .dtype = MUSTER_I32};
}

void mail_send(struct mail *mail, uint32_t from, uint32_t to, uint64_t count, int32_t first,
               uint32_t lane)
{
    struct muster_tensor tensor = mail_prepare(mail, from, count, first, lane);

    assert_int_equal(
        muster_send_start(&mail->op, mail_ring.members[from].group, &tensor, to, mail_done),
        MUSTER_OK);
}

void mail_receive(struct mail *mail, uint32_t to, uint32_t from, uint64_t count, uint32_t lane)
{
    struct muster_tensor tensor = mail_prepare(mail, to, count, 0, lane);

    assert_int_equal(
        muster_receive_start(&mail->op, mail_ring.members[to].group, &tensor, from, mail_done),
        MUSTER_OK);
}

void mail_run(struct mail *mail)
{
    for (unsigned turns = 0; mail->done_count == 0; turns++) {
        muster_loop_turn(mail_ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > MAIL_TURNS_MAX)
            fail_msg("mail %zu hangs", (size_t)(mail - mails));
    }
    assert_int_equal(mail->done_count, 1);
}

void mail_run_ok(struct mail *mail)
{
    mail_run(mail);
    if (mail->rc != MUSTER_OK)
        fail_msg("mail %zu ended with %d: %s", (size_t)(mail - mails), (int)mail->rc,
                 mail->op.error.text);
}

void mail_check_values(const struct mail *mail, uint64_t count, int32_t first)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(mail->values[i], first + (int32_t)i);
}

void mail_assert_ended(struct mail *mail, enum muster_rc rc, const char *text)
{
    mail_run(mail);
    if (mail->rc != rc || strstr(mail->op.error.text, text) == NULL)
        fail_msg("mail %zu ended with %d: %s", (size_t)(mail - mails), (int)mail->rc,
                 mail->op.error.text);
}

void mail_check_next(uint32_t rank_of_1)
{
    mail_send(&mails[MAIL_MAX - 4], 0, rank_of_1, 300, 77, 9);
    mail_send(&mails[MAIL_MAX - 3], 1, 0, 3, 88, 9);
    mail_receive(&mails[MAIL_MAX - 2], 1, 0, 300, 9);
    mail_receive(&mails[MAIL_MAX - 1], 0, rank_of_1, 3, 9);
    for (unsigned i = MAIL_MAX - 4; i < MAIL_MAX; i++)
        mail_run_ok(&mails[i]);
    mail_check_values(&mails[MAIL_MAX - 2], 300, 77);
    mail_check_values(&mails[MAIL_MAX - 1], 3, 88);
}
