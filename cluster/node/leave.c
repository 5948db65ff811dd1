/* Leaving in order: once no joiner needs this process any more, it leaves the view and sends its last
 * messages. Every wait here has an end: the program's deadline, then LEAVE_GRACE_NS for the view without it
 * (else it quits) and for what is queued. */
#include "cluster/node/node_internal.h"

#define LEAVE_POLL_NS (5 * MUSTER_NS_PER_MS)
/* The time after the deadline for a view without this process, and again for its last messages. */
#define LEAVE_GRACE_NS (1 * MUSTER_NS_PER_S)

/* moves[from]: the states that may follow. A node that fails is out without having asked. */
static const unsigned moves[NODE_LEAVE_STATES] = {
    [NODE_STAYS] = 1u << NODE_LEAVE_ASKED | 1u << NODE_OUT,
    [NODE_LEAVE_ASKED] = 1u << NODE_LEAVE_SENT | 1u << NODE_OUT,
    [NODE_LEAVE_SENT] = 1u << NODE_OUT,
    [NODE_OUT] = 0,
};

static void leave_move(struct muster_node *node, enum node_leave_state to)
{
    MUSTER_ASSERT((moves[node->leave.state] >> to & 1u) != 0);
    node->leave.state = to;
}

/* A joiner that has not shown the state before its first step may still want it from here. One that needs a step which
 * was not committed here gets it from others, or from nobody: this member commits no more. */
static bool is_needed_by_joiner(const struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);

    if (view == NULL || !muster_membership_is_member(node->machine))
        return false;
    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct muster_member *member = &view->members[i];

        if (member->from_step > 0 && member->from_step - 1 <= node->training.committed_step &&
            !muster_incarnation_is_equal(&member->incarnation, &node->self) &&
            muster_membership_committed_by(node->machine, &member->incarnation) + 1 <
                member->from_step)
            return true;
    }
    return false;
}

/* Operations come to their end first, since a leaver with open ones stays in the view anyway. */
static bool may_leave(const struct muster_node *node)
{
    return (node->group == NULL || muster_group_is_idle(node->group)) && !is_needed_by_joiner(node);
}

/* Nothing is queued, and nobody reads the memory of an operation that was given up: it goes with the board. */
static bool may_close(const struct muster_node *node)
{
    return muster_node_queued_bytes(node) == 0 && !muster_node_is_registered(node) &&
           !muster_group_is_awaited(node->board);
}

static void finish_leaving(struct muster_node *node)
{
    muster_node_fn *left = node->leave.left;

    MUSTER_ASSERT(node->leave.state != NODE_STAYS);
    node->leave.left = NULL;
    muster_timer_stop(&node->leave.timer);
    if (left != NULL)
        left(node, node->leave.data);
}

/* Operations that this member called in its last step, for those that have called more of them: + 1; 0: not known. A
 * joiner that has not taken part in it says nothing. */
static uint32_t count_calls(const struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    uint64_t step = node->training.committed_step;
    uint32_t rank;

    if (node->group == NULL || view == NULL || step == 0 ||
        !muster_view_find(view, &node->self, &rank) || view->members[rank].from_step > step)
        return 0;
    return muster_group_count_called(node->group, step) + 1;
}

static void feed_leave(struct muster_node *node)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_LEAVE};

    event.is_done = node->leave.is_done;
    event.done_calls = count_calls(node);
    muster_node_feed(node, &event);
}

/* A node that has failed keeps its program no longer than the grace; one that cannot vote any more has nothing to
 * wait for. */
static void bound_deadline(struct muster_node *node, uint64_t now)
{
    uint64_t bound = node->handover.is_broken ? now : now + LEAVE_GRACE_NS;

    if (node->tell.is_failed && node->leave.state != NODE_OUT && node->leave.deadline_ns > bound)
        node->leave.deadline_ns = bound;
}

/* The others do not let this process go in time: it goes without a view, and tells them. Without memory even for
 * that the end of its links tells them, later. */
static void quit_job(struct muster_node *node)
{
    MUSTER_ASSERT(node->leave.state == NODE_LEAVE_SENT);
    muster_node_feed_kind(node, MUSTER_EVENT_QUIT);
    if (!node->is_closing && node->leave.state == NODE_LEAVE_SENT)
        finish_leaving(node);
}

/* Polls, because three things end the wait: idle groups, joiners that have caught up, sent messages. */
void muster_node_on_leave_timer(struct muster_timer *timer)
{
    struct muster_node *node = timer->data;
    uint64_t now = muster_loop_now_ns(node->env->loop);
    bool is_late;

    bound_deadline(node, now);
    is_late = now >= node->leave.deadline_ns;
    if (node->leave.state == NODE_OUT && (is_late || may_close(node))) {
        finish_leaving(node);
        return;
    }
    if (node->leave.state == NODE_LEAVE_SENT && is_late) {
        quit_job(node);
        return;
    }
    if (node->leave.state == NODE_LEAVE_ASKED && (is_late || may_leave(node))) {
        leave_move(node, NODE_LEAVE_SENT);
        node->leave.deadline_ns += LEAVE_GRACE_NS;
        feed_leave(node);
    }
    if (!node->is_closing && node->leave.left != NULL)
        muster_timer_start(timer, node->env->loop, now + LEAVE_POLL_NS);
}

void muster_node_is_out(struct muster_node *node)
{
    leave_move(node, NODE_OUT);
    node->leave.deadline_ns = muster_loop_after_ns(node->env->loop, LEAVE_GRACE_NS);
    if (node->leave.left != NULL)
        muster_timer_start(&node->leave.timer, node->env->loop,
                           muster_loop_now_ns(node->env->loop));
}

void muster_node_leave(struct muster_node *node, bool is_done, uint64_t deadline_ns,
                       muster_node_fn *left, void *data)
{
    node->leave.is_done = is_done;
    node->leave.left = left;
    node->leave.data = data;
    node->leave.deadline_ns = deadline_ns;
    if (node->leave.state == NODE_STAYS)
        leave_move(node, NODE_LEAVE_ASKED);
    if (node->leave.state == NODE_OUT)
        node->leave.deadline_ns = muster_loop_after_ns(node->env->loop, LEAVE_GRACE_NS);
    muster_timer_start(&node->leave.timer, node->env->loop, muster_loop_now_ns(node->env->loop));
}
