/* Groups of a node: frozen, opened and handed over as the machine says; what they report goes to the
 * machine. Reports are posted, since a group calls them in the middle of its work. */
#include "cluster/node/node_internal.h"
#include "cluster/membership/progress_proto.h"

/* --- Events of groups --- */

/* A data link is lost; the machine asks for new links by a change (has_accused in change.c) and suspects
 * nobody for it. */
static void on_suspect(void *data, const struct muster_incarnation *peer,
                       const struct muster_error *error)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_PEER_SUSPECTED, .peer = *peer};
    struct muster_node *node = data;

    muster_node_note_cause_of(node, peer);
    muster_node_post(node, &event, error->text);
}

static void on_death(void *data, const struct muster_incarnation *peer)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_PROCESS_DEAD, .peer = *peer};
    struct muster_node *node = data;

    muster_node_note_cause_of(node, peer);
    muster_node_post(node, &event, "process ended");
}

static void on_abort_proposed(void *data, const struct muster_op_id *op, enum muster_rc why)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_ABORT_PROPOSED, .rc = why};
    struct muster_node *node = data;

    event.op = *op;
    muster_node_post(node, &event, NULL);
}

static void on_higher_epoch(void *data, const struct muster_incarnation *peer, uint64_t epoch)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_HIGHER_EPOCH, .peer = *peer};
    struct muster_node *node = data;

    (void)epoch;
    muster_node_post(node, &event, NULL);
}

/* The program is told that it is out; the machine resigns in the next turn, so that the members do
 * not wait for this process. */
static void on_expired(void *data, const struct muster_error *error)
{
    struct muster_node *node = data;

    muster_node_exclude(node, error);
    muster_node_resign(node, error);
}

/* A change that waits for the end of an operation (muster_membership_is_holding) looks again now. */
static void on_ended(void *data)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_TICK};
    struct muster_node *node = data;

    node->handover.ended_count++;
    if (muster_membership_is_holding(node->machine))
        muster_node_post(node, &event, NULL);
}

static void on_skipped(void *data, uint64_t step)
{
    struct muster_node *node = data;

    if (node->events->on_skipped != NULL)
        node->events->on_skipped(node->data, step);
}

static void on_left_out(void *data, uint64_t step, const char *why)
{
    struct muster_node *node = data;

    if (node->events->on_left_out != NULL)
        node->events->on_left_out(node->data, step, why);
}

static const struct muster_group_events group_events = {
    .on_suspect = on_suspect,
    .on_death = on_death,
    .on_abort_proposed = on_abort_proposed,
    .on_higher_epoch = on_higher_epoch,
    .on_expired = on_expired,
    .on_ended = on_ended,
    .on_skipped = on_skipped,
    .on_left_out = on_left_out,
};

/* Groups report broken links of members themselves; state has links of its own. */
const struct muster_wire_events muster_node_wire_events = {.on_link_down = NULL};

/* --- Actions of the machine --- */

/* Without a group that works, this process cannot vote, nor take part in the others' operations.
 * Its own operations end at once, so that the program, which may wait for one, hears of the
 * failure. */
void muster_node_break_group(struct muster_node *node, const struct muster_error *why)
{
    node->handover.is_broken = true;
    muster_node_fail(node, why);
    muster_node_abort_group(node, why);
    muster_group_close_left(node->board);
}

/* The answer is fed inside the action: the machine must not see another event before it. Where the
 * action that opens the group was lost for lack of memory, there is nothing to answer. */
void muster_node_freeze(struct muster_node *node)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_FROZEN};
    struct muster_progress *progress;
    struct muster_error error;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (node->group == NULL)
        node->handover.is_broken = true;
    if (node->handover.is_broken)
        return;
    muster_node_note_cause(node);
    progress = muster_mem_alloc_zero(node->env->mem, 1, sizeof(*progress));
    if (progress != NULL)
        rc = muster_group_freeze(node->group, progress);
    if (rc == MUSTER_OK) {
        progress->lacks_state = muster_node_lacks_state(node);
        event.progress = progress;
        muster_node_feed(node, &event);
        return;
    }
    muster_mem_free(node->env->mem, progress);
    muster_error_set(&error, rc, "the group cannot be frozen");
    muster_node_break_group(node, &error);
}

static void record_view(struct muster_node *node, struct muster_view *view, struct muster_view *old)
{
    uint32_t rank = 0;

    MUSTER_ASSERT(view != NULL);
    muster_view_find(view, &node->self, &rank);
    MUSTER_LOG(node->env, INFO, "view_changed", "view", view->epoch, "members", view->member_count,
               "rank", rank, "verdicts", view->verdict_count, "reason", view->reason);
    muster_trace_emit(node->env, "view_entered", view->epoch, view->member_count,
                      view->verdict_count);
    muster_metric_set(&node->epoch_metric, (int64_t)view->epoch);
    muster_metric_set(&node->members_metric, view->member_count);
    muster_metric_add(&node->changes_metric, 1);
    if (node->tell.is_view) { /* the program has not heard of the one before */
        muster_view_unref(node->tell.view);
        muster_view_unref(node->tell.previous);
    }
    node->tell.is_view = true;
    node->tell.view = muster_view_ref(view);
    node->tell.previous = old;
    node->tell.cause_ns = node->cause_ns;
    node->tell.opened_ns = muster_loop_clock_ns(node->env->loop);
    node->cause_ns = 0;
}

/* The view counts on this process although it had resigned, and the resignation was known when the view was
 * decided. When it was not known (is_resign_posted, or the machine resigns again), the process only stands
 * still in this view. */
static bool is_kept_now(const struct muster_node *node)
{
    return node->handover.expiry == NODE_EXPIRED && !node->handover.is_resign_posted &&
           !muster_membership_is_resigning(node->machine);
}

/* No member that knew of this process's operations is left. They have ended; the step after its
 * state begins again, and its operations count from 0 as those of the joiners do. */
static void start_over(struct muster_node *node, struct muster_group *old)
{
    struct muster_error why;

    muster_error_set(&why, MUSTER_ABORTED, "its operations have expired");
    muster_group_abort_all(old, &why);
    muster_group_begin_step(node->group, node->training.committed_step);
    muster_group_commit_step(node->group, node->training.committed_step);
    muster_group_start_over(node->group);
}

/* The old group hands its operations over to the new one before it leaves. */
void muster_node_open_group(struct muster_node *node, struct muster_view *view, bool is_hand_over)
{
    struct muster_group_options options = {.env = node->env, .view = view, .self = node->self};
    struct muster_group *old = node->group;
    bool is_kept = is_hand_over && is_kept_now(node);
    struct muster_view *previous = NULL;
    struct muster_error error;
    enum muster_rc rc;

    MUSTER_ASSERT(view != NULL);
    if (node->handover.is_broken)
        return;
    options.wire = node->wire;
    options.board = node->board;
    options.events = &group_events;
    options.data = node;
    rc = muster_group_open(&options, &node->group);
    if (rc != MUSTER_OK) {
        node->group = old;
        muster_error_set(&error, rc, "the group of view %llu cannot be opened: %s",
                         (unsigned long long)view->epoch, muster_rc_text(rc));
        muster_node_break_group(node, &error);
        return;
    }
    muster_group_set_shm_failpoint(node->group, node->shm_failpoint, node->shm_failpoint_data);
    if (old != NULL) {
        previous = muster_view_ref(
            (struct muster_view *)(uintptr_t)muster_group_view(old)); /* counted, never written */
        if (is_kept)
            start_over(node, old);
        else
            muster_group_hand_over(old, node->group);
        muster_group_leave(old);
    }
    node->handover.may_lack_state = true;
    record_view(node, view, previous);
    muster_state_server_set_epoch(node->training.server, view->epoch);
    if (!is_hand_over)
        muster_node_state_entered(node);
    else if (is_kept)
        muster_node_state_kept(node);
    else if (node->training.is_catching)
        muster_catch_up_follow(&node->training.catch_up, view);
}

/* The pointer is cleared first: the ends of operations may ask the node for its group. */
void muster_node_abort_group(struct muster_node *node, const struct muster_error *why)
{
    struct muster_group *group = node->group;

    node->group = NULL;
    if (group == NULL)
        return;
    muster_group_abort_all(group, why);
    muster_group_leave(group);
}
