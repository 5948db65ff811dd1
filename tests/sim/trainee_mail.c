/* Messages between the members of a simulated training loop: some pairs in some steps, each message
 * once and in its place. */
#include <inttypes.h>

#include <muster/collective.h>

#include "tests/sim/trainee.h"

#define MAIL_TIMEOUT_NS (300 * MUSTER_NS_PER_S)
#define CANCEL_ONE_IN   300

static int64_t value_of(const struct trainee_mail *mail, uint32_t from, uint32_t to, uint64_t i)
{
    return (int64_t)sim_mix(sim_mix(mail->step, from * (uint64_t)LEDGER_LIVES_MAX + to), i);
}

/* Both sides come to the same, whatever else they know of the members. */
static uint64_t shape_of(const struct trainee *trainee, uint64_t step, uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;

    return sim_mix(sim_mix(trainee->seed, step), low * (uint64_t)LEDGER_LIVES_MAX + high);
}

static void mail_check(const struct trainee_mail *mail)
{
    uint64_t i;

    for (i = 0; i < mail->count; i++)
        if (mail->values[i] != value_of(mail, mail->peer_life, mail->trainee->life, i)) {
            sim_fail(mail->trainee->world,
                     "life %" PRIu32 " received at step %" PRIu64 " from life %" PRIu32
                     " what was not sent: element %" PRIu64,
                     mail->trainee->life, mail->step, mail->peer_life, i);
            return;
        }
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct trainee_mail *mail = op->data;
    struct trainee *trainee = mail->trainee;

    if (!mail->is_open)
        sim_fail(trainee->world, "a message called back twice");
    mail->is_open = false;
    if (rc == MUSTER_OK && !mail->is_send)
        mail_check(mail);
    if (rc != MUSTER_OK && rc != MUSTER_ABORTED && !(trainee->may_cancel && rc == MUSTER_CANCELLED))
        sim_fail(trainee->world, "a message of life %" PRIu32 " ended with %d: %s", trainee->life,
                 (int)rc, op->error.text);
    sim_note(trainee->world, mail->is_send ? "sent" : "received", trainee->life, mail->step,
             (uint64_t)rc);
    trainee_aside_closed(trainee);
}

static bool trainee_start(struct trainee *trainee, struct muster_group *group, uint32_t rank,
                          bool is_send, uint64_t shape)
{
    struct trainee_mail *mail = &trainee->mails[trainee->mail_count++];
    const struct muster_member *member = &muster_group_view(group)->members[rank];
    struct muster_tensor tensor = {.data = mail->values, .dtype = MUSTER_I64};
    enum muster_rc rc;
    uint64_t i;

    mail->trainee = trainee;
    mail->step = trainee->step;
    mail->is_send = is_send;
    mail->peer_life = ledger_life(trainee->ledger, &member->incarnation);
    tensor.count = mail->count = (shape >> 8) % (TRAINEE_MAIL_COUNT + 1);
    for (i = 0; i < mail->count; i++)
        mail->values[i] = is_send ? value_of(mail, trainee->life, mail->peer_life, i) : 0;
    mail->op = (struct muster_op){.data = mail, .lane = shape >> 4 & 1};
    mail->op.deadline_ns = muster_loop_after_ns(trainee->env->loop, MAIL_TIMEOUT_NS);
    rc = is_send ? muster_send_start(&mail->op, group, &tensor, rank, on_done)
                 : muster_receive_start(&mail->op, group, &tensor, rank, on_done);
    if (rc == MUSTER_FAILED_PRECONDITION && trainee->may_cancel)
        return false; /* the group has ended: an exclusion follows */
    if (rc != MUSTER_OK) {
        sim_fail(trainee->world, "a message is refused: %d", (int)rc);
        return false;
    }
    mail->is_open = true;
    trainee->aside_open++;
    if (trainee->may_cancel && muster_rng_below(trainee->env->rng, CANCEL_ONE_IN) == 0)
        muster_op_cancel(&mail->op);
    return true;
}

void trainee_mail_begin(struct trainee *trainee)
{
    struct muster_group *group = trainee->ops->group(trainee->keeper);
    const struct muster_view *view;
    uint32_t rank;

    if (!trainee->has_mail || group == NULL)
        return;
    trainee->mail_count = 0;
    view = muster_group_view(group);
    for (rank = 0; rank < view->member_count; rank++) {
        uint32_t life = ledger_life(trainee->ledger, &view->members[rank].incarnation);
        uint64_t shape = shape_of(trainee, trainee->step, trainee->life, life);

        /* in a joiner's first step not all may know of it when they begin */
        if (life == trainee->life || view->members[rank].from_step >= trainee->step ||
            view->members[muster_group_rank(group)].from_step >= trainee->step ||
            (shape & 3) != 0 || trainee->mail_count + 2 > TRAINEE_MAILS_MAX)
            continue;
        if (!trainee_start(trainee, group, rank, (shape & 32) != 0, shape) ||
            !trainee_start(trainee, group, rank, (shape & 32) == 0, shape))
            return;
    }
}
