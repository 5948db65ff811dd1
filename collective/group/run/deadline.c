/* Deadlines and cancel: ask who is missing, propose the abort, give up after the grace period. */
#include "collective/group/group_internal.h"

#include <stdio.h>
#include <string.h>

/* Survivors need as long as the memory takes; one that has stalled is evicted by then. */
#define HELD_NS_MAX (30 * MUSTER_NS_PER_S)
/* Members that have not started it by then are asked: who has gone on without it says so. */
#define LOOK_NS MUSTER_NS_PER_S

enum timer_stage {
    TIMER_LOOK,         /* time to ask who has started it, and who never will */
    TIMER_DEADLINE,     /* the operation's own */
    TIMER_ANSWERS,      /* the others say whether they have started it */
    TIMER_GRACE,        /* the verdict is awaited */
    TIMER_CONTRADICTED, /* the others say what they have adopted */
    TIMER_STALLED,      /* the others make progress, or are left behind */
    TIMER_HELD,         /* the others are through with its memory */
};

static void start_timer(struct muster_run *run, enum timer_stage stage, uint64_t due_ns)
{
    run->timer_stage = (uint8_t)stage;
    muster_timer_start(&run->timer, run->group->env->loop, due_ns);
}

static bool is_in_epoch(const struct muster_run *run)
{
    return run->memory != NULL && !run->group->is_frozen;
}

static uint32_t silent_count(const struct muster_run *run)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index &&
            (run->heard[i] & (MUSTER_HEARD_ISSUED | MUSTER_HEARD_ANSWER)) == 0)
            count++;
    return count;
}

static void ask(struct muster_run *run)
{
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && (run->heard[i] & MUSTER_HEARD_ISSUED) == 0)
            muster_run_send(run, MUSTER_FRAME_QUERY, i, 0, NULL, 0, NULL);
}

static enum muster_rc own_reason(const struct muster_run *run)
{
    return run->abort_why != MUSTER_OK ? run->abort_why : MUSTER_DEADLINE_EXCEEDED;
}

static void expire(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_error why;
    char name[64];

    muster_run_explain_abort(run, own_reason(run),
                             muster_shm_is_left_behind(run) ? "the others went on without this rank"
                                                            : NULL);
    muster_error_set(&why, MUSTER_ABORTED, "no verdict came on %s within the grace period",
                     muster_run_name(run, name, sizeof(name)));
    muster_group_end_all(group, &why, run, own_reason(run));
    if (group->events->on_expired != NULL)
        group->events->on_expired(group->data, &why);
}

/* Its end is sure, and no verdict can change it. */
static void await_stalled(struct muster_run *run)
{
    struct muster_loop *loop = run->group->env->loop;

    if (run->stalled_ns <= muster_loop_now_ns(loop)) {
        muster_shm_leave_stalled(run);
        run->stalled_ns = muster_loop_after_ns(loop, run->group->abort_grace_ns);
    }
    start_timer(run, TIMER_STALLED, run->stalled_ns);
}

static void await_deadline(struct muster_run *run)
{
    uint64_t look_ns = muster_loop_after_ns(run->group->env->loop, LOOK_NS);

    if (look_ns < run->deadline_ns)
        start_timer(run, TIMER_LOOK, look_ns);
    else
        start_timer(run, TIMER_DEADLINE, run->deadline_ns);
}

static void look(struct muster_run *run)
{
    await_deadline(run);
    if (run->state != MUSTER_RUN_ACTIVE || run->is_adopting || !is_in_epoch(run))
        return;
    if (run->shm != NULL)
        muster_shm_hear(run);
    if (run->state == MUSTER_RUN_ACTIVE && is_in_epoch(run))
        ask(run);
}

static void on_deadline(struct muster_run *run)
{
    if (run->shm != NULL)
        muster_shm_hear(run);
    for (uint32_t i = 0; is_in_epoch(run) && i < run->participant_count; i++)
        run->heard[i] &= (uint8_t)~MUSTER_HEARD_ANSWER; /* to an earlier look */
    if (!is_in_epoch(run) || silent_count(run) == 0) {
        muster_run_propose_abort(run, MUSTER_DEADLINE_EXCEEDED);
        return;
    }
    start_timer(run, TIMER_ANSWERS,
                muster_loop_after_ns(run->group->env->loop, run->group->answer_wait_ns));
    ask(run);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_run *run = timer->data;

    switch ((enum timer_stage)run->timer_stage) {
    case TIMER_LOOK:
        look(run);
        return;
    case TIMER_DEADLINE:
        on_deadline(run);
        return;
    case TIMER_ANSWERS:
        muster_run_propose_abort(run, own_reason(run));
        return;
    case TIMER_CONTRADICTED:
        muster_run_end_contradicted(run);
        return;
    case TIMER_STALLED:
        if (muster_shm_is_sure(run))
            await_stalled(run);
        else
            muster_run_propose_abort(run, own_reason(run));
        return;
    case TIMER_HELD:
        muster_run_end_held(run);
        return;
    case TIMER_GRACE:
        /* what cannot run here is nobody's fault: its end can wait for the registry */
        if (run->is_unfit && muster_loop_now_ns(run->group->env->loop) < run->deadline_ns)
            muster_run_propose_abort(run, MUSTER_ABORTED);
        else if (muster_shm_is_sure(run))
            await_stalled(run);
        else
            expire(run);
        return;
    }
}

void muster_run_start_deadline(struct muster_run *run)
{
    muster_timer_stop(&run->timer);
    muster_timer_init(&run->timer, on_timer, run);
    await_deadline(run);
}

void muster_run_await_answers(struct muster_run *run)
{
    start_timer(run, TIMER_CONTRADICTED,
                muster_loop_after_ns(run->group->env->loop, run->group->abort_grace_ns));
}

void muster_run_propose_abort(struct muster_run *run, enum muster_rc why)
{
    struct muster_group *group = run->group;
    struct muster_op_id id = run->id;

    if (run->op == NULL || run->is_held)
        return;
    if (muster_shm_is_sure(run)) {
        await_stalled(run);
        return;
    }
    run->abort_why = why;
    start_timer(run, TIMER_GRACE, muster_loop_after_ns(group->env->loop, group->abort_grace_ns));
    if (group->events->on_abort_proposed != NULL)
        group->events->on_abort_proposed(group->data, &id, why);
}

void muster_run_give_up(struct muster_run *run)
{
    if (run->op == NULL || run->is_held)
        return;
    if (run->abort_why == MUSTER_OK && muster_loop_now_ns(run->group->env->loop) < run->deadline_ns)
        run->abort_why = MUSTER_ABORTED;
    start_timer(run, TIMER_GRACE, 0);
}

void muster_run_await_release(struct muster_run *run)
{
    start_timer(run, TIMER_HELD, muster_loop_after_ns(run->group->env->loop, HELD_NS_MAX));
}

void muster_run_propose_again(struct muster_run *run)
{
    if (run->op != NULL && run->abort_why != MUSTER_OK)
        start_timer(run, TIMER_ANSWERS, 0);
}

void muster_run_hear_status(struct muster_run *run, uint32_t participant, bool is_issued)
{
    if (run->memory == NULL)
        return;
    run->heard[participant] |= MUSTER_HEARD_ANSWER;
    if (is_issued)
        run->heard[participant] |= MUSTER_HEARD_ISSUED;
    if (run->op != NULL && run->timer_stage == TIMER_ANSWERS && silent_count(run) == 0)
        start_timer(run, TIMER_ANSWERS, 0);
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
    if (run->memory == NULL || run->is_adopting || muster_shm_is_left_behind(run))
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

    if (run->op == NULL || run->is_unfit)
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
