/* Deadlines and cancel: the timer of a run, and proposals of its abort. expiry.c acts when it fires. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

/* A lingering run is held for at most this long: survivors read its memory in much less, and a member that stands
 * still for so long is evicted by then (docs/boards.md, "Its memory is held"). */
#define LINGER_NS_MAX (30 * MUSTER_NS_PER_S)
/* Members that have not started the operation after so long are asked: one that has gone on without it says so, and
 * the operation ends long before its deadline. */
#define LOOK_NS MUSTER_NS_PER_S

void muster_run_start_timer(struct muster_run *run, enum muster_timer_stage stage, uint64_t due_ns)
{
    run->timer_stage = (uint8_t)stage;
    muster_timer_start(&run->timer, run->group->env->loop, due_ns);
}

bool muster_run_is_sure(const struct muster_run *run)
{
    return muster_run_is_shared(run) && run->ops->shared->is_sure(run);
}

bool muster_run_is_left_behind(const struct muster_run *run)
{
    return muster_run_is_shared(run) && run->ops->shared->is_left_behind(run);
}

bool muster_run_is_in_epoch(const struct muster_run *run)
{
    return run->memory != NULL && !run->group->is_frozen;
}

uint32_t muster_run_silent_count(const struct muster_run *run)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index &&
            (run->heard[i] & (MUSTER_HEARD_ISSUED | MUSTER_HEARD_ANSWER)) == 0)
            count++;
    return count;
}

/* The operation is sure to end well, so no verdict is asked for: those that do not move are left behind. */
void muster_run_await_stalled(struct muster_run *run)
{
    struct muster_loop *loop = run->group->env->loop;

    MUSTER_ASSERT(muster_run_is_shared(run));
    if (run->stalled_ns <= muster_loop_now_ns(loop)) {
        run->ops->shared->leave_stalled(run);
        run->stalled_ns = muster_loop_after_ns(loop, run->group->abort_grace_ns);
    }
    muster_run_start_timer(run, MUSTER_TIMER_STALLED, run->stalled_ns);
}

void muster_run_await_deadline(struct muster_run *run)
{
    uint64_t look_ns = muster_loop_after_ns(run->group->env->loop, LOOK_NS);

    if (look_ns < run->deadline_ns)
        muster_run_start_timer(run, MUSTER_TIMER_LOOK, look_ns);
    else
        muster_run_start_timer(run, MUSTER_TIMER_DEADLINE, run->deadline_ns);
}

void muster_run_start_deadline(struct muster_run *run)
{
    muster_timer_stop(&run->timer);
    muster_timer_init(&run->timer, run->group->lane_events->on_timer, run);
    muster_run_await_deadline(run);
}

void muster_run_await_answers(struct muster_run *run)
{
    muster_run_start_timer(run, MUSTER_TIMER_CONTRADICTED,
                           muster_loop_after_ns(run->group->env->loop, run->group->abort_grace_ns));
}

void muster_run_propose_abort(struct muster_run *run, enum muster_rc why)
{
    struct muster_group *group = run->group;
    struct muster_op_id id = run->id;

    if (run->op == NULL || muster_run_is_lingering(run))
        return;
    if (muster_run_is_sure(run)) {
        muster_run_await_stalled(run);
        return;
    }
    /* The timer first: on_abort_proposed is the cluster layer's, and may end the run inside. */
    run->abort_why = why;
    muster_run_start_timer(run, MUSTER_TIMER_GRACE,
                           muster_loop_after_ns(group->env->loop, group->abort_grace_ns));
    if (group->events->on_abort_proposed != NULL)
        group->events->on_abort_proposed(group->data, &id, why);
}

void muster_run_give_up(struct muster_run *run)
{
    if (run->op == NULL || muster_run_is_lingering(run))
        return;
    if (run->abort_why == MUSTER_OK && muster_loop_now_ns(run->group->env->loop) < run->deadline_ns)
        run->abort_why = MUSTER_ABORTED;
    /* By the timer, not at once: the caller may be in the middle of the run's list. */
    muster_run_start_timer(run, MUSTER_TIMER_GRACE, 0);
}

void muster_run_await_release(struct muster_run *run)
{
    muster_run_start_timer(run, MUSTER_TIMER_LINGERING,
                           muster_loop_after_ns(run->group->env->loop, LINGER_NS_MAX));
}

void muster_run_propose_again(struct muster_run *run)
{
    if (run->op != NULL && run->abort_why != MUSTER_OK)
        muster_run_start_timer(run, MUSTER_TIMER_ANSWERS, 0);
}

void muster_run_hear_status(struct muster_run *run, uint32_t participant, bool is_issued)
{
    if (run->memory == NULL)
        return;
    run->heard[participant] |= MUSTER_HEARD_ANSWER;
    if (is_issued)
        run->heard[participant] |= MUSTER_HEARD_ISSUED;
    if (run->op != NULL && run->timer_stage == MUSTER_TIMER_ANSWERS &&
        muster_run_silent_count(run) == 0)
        muster_run_start_timer(run, MUSTER_TIMER_ANSWERS, 0);
}

void muster_run_cancel(struct muster_op *op)
{
    struct muster_run *run = op->impl;

    if (run->abort_why == MUSTER_OK)
        muster_run_propose_abort(run, MUSTER_CANCELLED);
}

void muster_op_cancel(struct muster_op *op)
{
    if (op->impl != NULL)
        op->cancel(op);
}

/* The first participant that has not started it, or UINT32_MAX. */
static uint32_t find_culprit(const struct muster_run *run)
{
    if (run->memory == NULL || muster_run_is_adopting(run) || muster_run_is_left_behind(run))
        return UINT32_MAX;
    for (uint32_t i = 0; i < run->participant_count && i < run->plan.n; i++)
        if (i != run->self_index && (run->heard[i] & MUSTER_HEARD_ISSUED) == 0)
            return i;
    return UINT32_MAX;
}

void muster_run_explain_abort(struct muster_run *run, enum muster_rc rc, const char *reason)
{
    uint32_t culprit = find_culprit(run);
    char name[64], who[96];
    uint32_t rank;

    if (run->op == NULL || muster_run_is_unfit(run))
        return;
    muster_run_name(run, name, sizeof(name));
    if (run->abort_why == MUSTER_RESOURCE_EXHAUSTED) {
        muster_error_set(&run->op->error, rc, "%s: this process has no memory left for it", name);
    } else if (culprit != UINT32_MAX && rc != MUSTER_CANCELLED && run->abort_why != MUSTER_OK) {
        rank = muster_op_participant_rank(run->group, &run->id, culprit);
        muster_error_set(
            &run->op->error, rc, "rank %u (%s) has not %s %s", rank,
            muster_group_rank_name(run->group, rank, who, sizeof(who)),
            (run->heard[culprit] & MUSTER_HEARD_ANSWER) != 0 ? "called" : "answered about", name);
    } else if (reason != NULL && reason[0] != '\0') {
        muster_error_set(&run->op->error, rc, "%s: %s", name, reason);
    } else {
        muster_error_set(&run->op->error, rc, "%s: %s", name, muster_rc_text(rc));
    }
}
