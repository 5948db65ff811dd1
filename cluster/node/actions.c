/* The driver of a node: carries out the actions of the membership machine in their order, and tells the
 * program when the machine is at rest. None of the events of struct muster_node_events is told inside a
 * step, so the program may do anything in one. */
#include <stdio.h>
#include <string.h>

#include <muster/loop.h>

#include "cluster/node/node_internal.h"
#include "cluster/membership/progress_proto.h"

/* A program whose operations had expired knows already, and may have named its state again. */
static void handle_exclusion(struct muster_node *node,
                             const struct muster_membership_action *action)
{
    bool is_told = node->handover.expiry != NODE_NOT_EXPIRED;

    MUSTER_LOG(node->env, WARN, "excluded", "view", action->view->epoch, "reason",
               action->error.text);
    node->handover.expiry = NODE_NOT_EXPIRED;
    node->training.has_state = false;
    if (!is_told)
        muster_node_exclude(node, &action->error);
    else if (node->training.state == NODE_STATE_NAMED)
        muster_node_ask_to_join(node);
}

static void set_timer(struct muster_node *node)
{
    uint64_t due = muster_membership_timer_ns(node->machine);

    if (due == UINT64_MAX)
        muster_timer_stop(&node->timer);
    else
        muster_timer_start(&node->timer, node->env->loop, due);
}

static void trace_move(struct muster_node *node, const struct muster_membership_action *action)
{
    const uint64_t *numbers = action->numbers;

    muster_trace_emit_text(node->env, action->trace_kind,
                           muster_membership_state_name((enum muster_membership_state)numbers[2]),
                           numbers[0], numbers[1], numbers[2]);
    MUSTER_LOG(node->env, DEBUG, action->trace_kind, "view", numbers[0], "from",
               muster_membership_state_name((enum muster_membership_state)numbers[1]), "to",
               muster_membership_state_name((enum muster_membership_state)numbers[2]));
}

static void execute_action(struct muster_node *node, const struct muster_membership_action *action)
{
    switch (action->kind) {
    case MUSTER_ACTION_SEND:
        muster_node_send(node, &action->peer, &action->control);
        return;
    case MUSTER_ACTION_CONNECT:
        muster_node_connect(node, &action->member);
        return;
    case MUSTER_ACTION_RENEW:
        muster_node_renew(node, &action->peer);
        return;
    case MUSTER_ACTION_DISCONNECT:
        muster_node_disconnect(node, &action->peer);
        return;
    case MUSTER_ACTION_WATCH:
        muster_node_watch(node, &action->member);
        return;
    case MUSTER_ACTION_FREEZE:
        muster_node_freeze(node);
        return;
    case MUSTER_ACTION_OPEN_GROUP:
        muster_node_open_group(node, action->view, action->is_hand_over);
        return;
    case MUSTER_ACTION_ABORT_ALL:
        muster_node_abort_group(node, &action->error);
        return;
    case MUSTER_ACTION_CAS:
        muster_node_cas(node, action->id, action->view, action->revision);
        return;
    case MUSTER_ACTION_READ_VIEW:
        muster_node_read_view(node);
        return;
    case MUSTER_ACTION_REGISTER:
        node->registry.begins_after = action->begins_after;
        muster_node_register(node);
        return;
    case MUSTER_ACTION_DEREGISTER:
        muster_node_deregister(node);
        return;
    case MUSTER_ACTION_SET_TIMER:
        set_timer(node);
        return;
    case MUSTER_ACTION_TELL_EXCLUDED:
        handle_exclusion(node, action);
        return;
    case MUSTER_ACTION_TELL_LEFT:
        node->tell.is_left = true;
        return;
    case MUSTER_ACTION_TELL_FAILED:
        muster_node_fail(node, &action->error);
        node->tell.is_left = true;
        return;
    case MUSTER_ACTION_TRACE:
        trace_move(node, action);
        return;
    }
}

/* --- Events for the program --- */

/* The program may have missed views in between: it is told only the newest. The fields are cleared before
 * the callback, which may bring the next view. */
static void tell_view(struct muster_node *node)
{
    struct muster_view_change change = {.view = node->tell.view, .previous = node->tell.previous};
    struct muster_error error;

    MUSTER_ASSERT(node->tell.view != NULL);
    change.group = node->group;
    change.cause_ns = node->tell.cause_ns;
    change.opened_ns = node->tell.opened_ns;
    node->tell.is_view = false;
    node->tell.view = node->tell.previous = NULL;
    if (change.view->is_below_min) {
        muster_error_set(&error, MUSTER_ABORTED,
                         "too few members: %u are left, at least %u were asked for (muster run "
                         "--min-members, MUSTER_MIN_MEMBERS), and none came back in time (%s)",
                         change.view->member_count, node->min_members, change.view->reason);
        muster_node_fail(node, &error);
    }
    if (change.view->is_state_lost && muster_node_lacks_state(node)) {
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "the training state is lost: all that had it are dead (%s)",
                         change.view->reason);
        muster_node_fail(node, &error);
    }
    if (node->group != NULL && node->events->on_view != NULL)
        node->events->on_view(node->data, &change);
    muster_view_unref((struct muster_view *)(uintptr_t)change.view);
    muster_view_unref((struct muster_view *)(uintptr_t)change.previous);
}

static void tell_ready(struct muster_node *node)
{
    node->tell.is_ready = false;
    if (node->events->on_ready != NULL)
        node->events->on_ready(node->data, node->tell.next_step, node->tell.is_restored);
}

void muster_node_tell_excluded(struct muster_node *node)
{
    struct muster_error error = node->tell.error;

    if (!node->tell.is_excluded || node->is_closing)
        return;
    node->tell.is_excluded = false;
    if (node->events->on_excluded != NULL)
        node->events->on_excluded(node->data, &error);
}

static void tell_failed(struct muster_node *node)
{
    struct muster_error error = node->tell.error;

    if (node->tell.is_failure_told)
        return;
    node->tell.is_failure_told = true;
    if (node->events->on_failed != NULL)
        node->events->on_failed(node->data, &error);
    /* The program may wait for an operation that no member will complete any more. */
    if (!node->is_closing && node->group != NULL && muster_group_is_busy(node->group))
        muster_node_break_group(node, &error);
}

/* Each callback may start the next step, or close the node, so is_closing is asked before each. A failure
 * comes after the view that caused it, and the end of leaving last. */
static void tell_program(struct muster_node *node)
{
    if (node->tell.is_view && !node->is_closing)
        tell_view(node);
    if (node->tell.is_ready && !node->is_closing)
        tell_ready(node);
    if (node->tell.is_failed && !node->is_closing)
        tell_failed(node);
    if (node->tell.is_left && !node->is_closing) {
        node->tell.is_left = false;
        muster_node_is_out(node);
    }
}

static void settle_step(struct muster_node *node)
{
    muster_node_check_options(node);
    muster_node_settle_join(node);
}

const struct node_driver muster_node_driver = {
    .execute = execute_action,
    .stepped = settle_step,
    .tell = tell_program,
};
