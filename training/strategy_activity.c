/* The activity and the waits of this member, told to its launcher a few times a second: also while
 * the program computes, or stands still in a call. */
#include <stdio.h>

#include "training/strategy_internal.h"

#define INTERVAL_NS     (250 * MUSTER_NS_PER_MS) /* a display seems live */
#define PATIENCE_NS     (2 * MUSTER_NS_PER_S)    /* a begin that takes longer is logged … */
#define LOG_INTERVAL_NS (10 * MUSTER_NS_PER_S)   /* … and again */
#define MIB             ((uint64_t)1 << 20)
#define SHARE_BYTES     64

static uint64_t clock_ns(const struct muster_strategy *strategy)
{
    return muster_loop_clock_ns(strategy->env->loop);
}

void muster_strategy_move_activity(struct muster_strategy *strategy,
                                   enum muster_activity_state state)
{
    muster_activity_move(&strategy->activity, state, clock_ns(strategy));
}

static void find_awaited(const struct muster_strategy *strategy, const struct muster_view *view,
                         char *task, size_t room, struct muster_group_wait *ret_wait)
{
    const struct muster_group *group = muster_node_group(strategy->node);

    task[0] = '\0';
    if (group == NULL || !muster_group_waits_for(group, ret_wait) ||
        ret_wait->rank >= view->member_count)
        return;
    snprintf(task, room, "%s:%u", view->members[ret_wait->rank].task_type,
             view->members[ret_wait->rank].task_index);
}

static uint64_t state_bytes(const struct muster_strategy *strategy)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < strategy->tensor_count; i++)
        bytes += strategy->tensors[i].tensor.count *
                 muster_dtype_bytes(strategy->tensors[i].tensor.dtype);
    return bytes;
}

/* "2 of 5 MiB", and of less than that in bytes. */
static const char *share_format(const struct muster_strategy *strategy, uint64_t done_bytes,
                                char text[SHARE_BYTES])
{
    uint64_t bytes = state_bytes(strategy), unit = bytes < MIB ? 1 : MIB;

    (void)snprintf(text, SHARE_BYTES, "%llu of %llu %s", (unsigned long long)(done_bytes / unit),
                   (unsigned long long)(bytes / unit), unit == 1 ? "bytes" : "MiB");
    return text;
}

/* The reason why this member stands still, in words for people, with how much of it is done. True:
 * the node logs it. */
static bool describe_wait(const struct muster_strategy *strategy, const char *task, char *text,
                          size_t room)
{
    const struct muster_member *joiner = NULL;
    char share[SHARE_BYTES];
    uint64_t fetched = 0;

    text[0] = '\0';
    if (muster_node_waits_for(strategy->node, text, room))
        return true;
    text[0] = '\0';
    if (strategy->awaited_job != NULL)
        snprintf(text, room,
                 "the checkpoint directory %.100s, which is in use by another job, %.63s",
                 strategy->awaited_folder, strategy->awaited_job);
    if (strategy->awaited_job != NULL || strategy->activity.state != MUSTER_ACTIVITY_BEGIN)
        return false;
    if (strategy->begin == MUSTER_STRATEGY_BEGIN_SHARES)
        snprintf(text, room, "the initial state, %s have gone to all%s%s",
                 share_format(strategy, strategy->shared_bytes, share),
                 task[0] != '\0' ? "; it waits for " : "", task);
    else if (muster_node_is_fetching(strategy->node, &fetched))
        snprintf(text, room, "the members' state, %s are fetched",
                 share_format(strategy, fetched, share));
    else if (muster_strategy_is_member(strategy))
        joiner = muster_node_find_stateless(strategy->node, strategy->next_step);
    if (joiner != NULL)
        snprintf(text, room, "%s:%u, which joins and reads the state (%llu MiB)", joiner->task_type,
                 joiner->task_index, (unsigned long long)(state_bytes(strategy) / MIB));
    return false;
}

/* A wait is logged after a while without progress, then now and then, so that a log shows the wait
 * and is not filled by it. */
static void log_wait(struct muster_strategy *strategy, const char *task, const char *text,
                     bool is_logged)
{
    uint64_t now_ns = clock_ns(strategy), since_ns = strategy->activity.since_ns;

    if (strategy->activity.state != MUSTER_ACTIVITY_BEGIN || now_ns - since_ns < PATIENCE_NS ||
        (strategy->wait_logged_ns > since_ns &&
         now_ns - strategy->wait_logged_ns < LOG_INTERVAL_NS))
        return;
    strategy->wait_logged_ns = now_ns;
    muster_trace_emit(strategy->env, "begin_waits", strategy->next_step, now_ns - since_ns, 0);
    if (is_logged)
        return;
    MUSTER_LOG(strategy->env, WARN, "begin_waits", "waits_for",
               text[0] != '\0'   ? text
               : task[0] != '\0' ? task
                                 : "the other members",
               "seconds", (now_ns - since_ns) / MUSTER_NS_PER_S);
}

static void activity_tell(struct muster_strategy *strategy)
{
    const struct muster_view *view = muster_node_view(strategy->node);
    char task[MUSTER_ACTIVITY_NAME_BYTES], stands_for[240] = "";
    struct muster_group_wait wait;
    struct muster_report_activity report = {
        .activity = &strategy->activity,
        .now_ns = clock_ns(strategy),
        .step = strategy->committed_step,
        .waits_for = task,
        .op = wait.op,
        .stands_for = stands_for,
    };
    bool is_logged;

    MUSTER_ASSERT(strategy->node != NULL);
    find_awaited(strategy, view, task, sizeof(task), &wait);
    is_logged = describe_wait(strategy, task, stands_for, sizeof(stands_for));
    log_wait(strategy, task, stands_for, is_logged);
    if (view != NULL) {
        report.epoch = view->epoch;
        report.member_count = view->member_count;
        report.is_member =
            muster_view_find(view, muster_node_incarnation(strategy->node), &report.rank);
    }
    muster_report_activity(strategy->report, &report);
}

static void on_due(struct muster_timer *timer)
{
    struct muster_strategy *strategy = timer->data;

    activity_tell(strategy);
    muster_timer_start(timer, strategy->env->loop,
                       muster_loop_after_ns(strategy->env->loop, INTERVAL_NS));
}

void muster_strategy_start_activity(struct muster_strategy *strategy)
{
    MUSTER_ASSERT(strategy->runtime != NULL && strategy->node != NULL);
    (void)muster_runtime_enter(strategy->runtime); /* nobody else knows it yet */
    muster_timer_init(&strategy->activity_timer, on_due, strategy);
    on_due(&strategy->activity_timer);
    muster_runtime_leave(strategy->runtime);
}

/* The last report says that this member closes. */
void muster_strategy_stop_activity(struct muster_strategy *strategy)
{
    muster_timer_stop(&strategy->activity_timer);
    if (strategy->node == NULL || strategy->runtime == NULL)
        return; /* it was never open */
    muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_CLOSE);
    activity_tell(strategy);
}
