/* The timer of a run fires: missing participants are asked, its abort is proposed, and after the
 * grace period the whole group expires. deadline.c starts the timer and says for which stage. */
#include "collective/group/group_internal.h"

#include <muster/base.h>

static void ask_silent(struct muster_run *run)
{
    for (uint32_t i = 0; i < run->participant_count; i++)
        if (i != run->self_index && (run->heard[i] & MUSTER_HEARD_ISSUED) == 0)
            muster_run_send(run, MUSTER_FRAME_QUERY, i, 0, NULL, 0, NULL);
}

static enum muster_rc own_reason(const struct muster_run *run)
{
    return run->abort_why != MUSTER_OK ? run->abort_why : MUSTER_DEADLINE_EXCEEDED;
}

/* No verdict has come: this member does not know how the operation ended elsewhere, so its state may differ, and it
 * leaves with all its operations and comes back by catch-up (docs/protocol.md). */
static void run_expire(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_error why;
    char name[64];

    muster_run_explain_abort(run, own_reason(run),
                             muster_run_is_left_behind(run) ? "the others went on without this rank"
                                                            : NULL);
    muster_error_set(&why, MUSTER_ABORTED, "no verdict came on %s within the grace period",
                     muster_run_name(run, name, sizeof(name)));
    muster_group_end_all(group, &why, run, own_reason(run));
    if (group->events->on_expired != NULL)
        group->events->on_expired(group->data, &why);
}

/* A second before any deadline: a member that has skipped the operation says so, and it ends early. */
static void look_for_silent(struct muster_run *run)
{
    muster_run_await_deadline(run);
    if (run->state != MUSTER_RUN_ACTIVE || muster_run_is_adopting(run) ||
        !muster_run_is_in_epoch(run))
        return;
    if (muster_run_is_shared(run))
        run->ops->shared->hear(run);
    if (run->state == MUSTER_RUN_ACTIVE && muster_run_is_in_epoch(run))
        ask_silent(run);
}

/* The members that have not started it are asked first, so that the error can name one that is at fault. */
static void on_deadline(struct muster_run *run)
{
    if (muster_run_is_shared(run))
        run->ops->shared->hear(run);
    for (uint32_t i = 0; muster_run_is_in_epoch(run) && i < run->participant_count; i++)
        run->heard[i] &= (uint8_t)~MUSTER_HEARD_ANSWER; /* to an earlier look */
    if (!muster_run_is_in_epoch(run) || muster_run_silent_count(run) == 0) {
        muster_run_propose_abort(run, MUSTER_DEADLINE_EXCEEDED);
        return;
    }
    muster_run_start_timer(run, MUSTER_TIMER_ANSWERS,
                           muster_loop_after_ns(run->group->env->loop, run->group->answer_wait_ns));
    ask_silent(run);
}

void muster_run_on_timer(struct muster_timer *timer)
{
    struct muster_run *run = timer->data;

    switch ((enum muster_timer_stage)run->timer_stage) {
    case MUSTER_TIMER_LOOK:
        look_for_silent(run);
        return;
    case MUSTER_TIMER_DEADLINE:
        on_deadline(run);
        return;
    case MUSTER_TIMER_ANSWERS:
        muster_run_propose_abort(run, own_reason(run));
        return;
    case MUSTER_TIMER_CONTRADICTED:
        muster_run_end_contradicted(run);
        return;
    case MUSTER_TIMER_STALLED:
        if (muster_run_is_sure(run))
            muster_run_await_stalled(run);
        else
            muster_run_propose_abort(run, own_reason(run));
        return;
    case MUSTER_TIMER_LINGERING:
        run->ops->shared->end_lingering(run);
        return;
    case MUSTER_TIMER_GRACE:
        /* An operation that cannot run here is nobody's fault: its end can wait for the registry. */
        if (muster_run_is_unfit(run) &&
            muster_loop_now_ns(run->group->env->loop) < run->deadline_ns)
            muster_run_propose_abort(run, MUSTER_ABORTED);
        else if (muster_run_is_sure(run))
            muster_run_await_stalled(run);
        else
            run_expire(run);
        return;
    }
}

void muster_run_end_contradicted(struct muster_run *run)
{
    struct muster_group *group = run->group;
    struct muster_lane *lane = &group->lanes[MUSTER_LANE_INDEX(run->id.lane)];

    MUSTER_ASSERT(run->mode == MUSTER_RUN_CONTRADICTED);
    muster_run_end(run, MUSTER_INVALID_ARGUMENT);
    if (!group->is_frozen)
        muster_lane_settle(group, lane);
}
