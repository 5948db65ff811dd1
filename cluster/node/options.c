/* The options that a view carries for all strategies, against those that this process was given. Each view
 * is compared once, after the step that brought it; a difference ends this process and not the job. */
#include <stdio.h>

#include "cluster/node/node_internal.h"

static bool is_self(const struct muster_node *node, const struct muster_member *member)
{
    return muster_incarnation_is_equal(&member->incarnation, &node->self);
}

/* True when a member of the view can be heard, or this process is one. The view of dead members does not
 * bind this process: it will take part in a new beginning, with options of its own. */
static bool is_alive(struct muster_node *node, const struct muster_view *view)
{
    for (uint32_t rank = 0; rank < view->member_count; rank++) {
        const struct muster_member *member = &view->members[rank];
        const struct node_peer *peer = muster_node_peer_find(node, &member->incarnation);

        if (is_self(node, member) || (peer != NULL && peer->link != NULL))
            return true;
    }
    return false;
}

/* "worker:0 and 2 more" */
static void name_others(const struct muster_node *node, const struct muster_view *view,
                        char ret_text[MUSTER_JOB_NAME_BYTES])
{
    const struct muster_member *first = NULL;
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < view->member_count; rank++) {
        if (is_self(node, &view->members[rank]))
            continue;
        if (count++ == 0)
            first = &view->members[rank];
    }
    if (first == NULL)
        snprintf(ret_text, MUSTER_JOB_NAME_BYTES, "the members");
    else if (count == 1)
        snprintf(ret_text, MUSTER_JOB_NAME_BYTES, "%.40s:%u", first->task_type, first->task_index);
    else
        snprintf(ret_text, MUSTER_JOB_NAME_BYTES, "%.40s:%u and %u more", first->task_type,
                 first->task_index, count - 1);
}

void muster_node_check_options(struct muster_node *node)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    struct muster_option_difference difference;
    char others[MUSTER_JOB_NAME_BYTES];
    struct muster_error error;

    if (view == NULL || view->epoch == node->checked_epoch || node->tell.is_failed ||
        !is_alive(node, view))
        return;
    node->checked_epoch = view->epoch;
    if (!muster_view_differs(view, &node->demands, &difference))
        return;
    name_others(node, view, others);
    muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                     "%.40s:%u asks for %s %s, %s have agreed on %s: give all the same%s",
                     node->member.task_type, node->member.task_index, difference.name,
                     difference.asked, others, difference.agreed,
                     difference.may_be_unset ? ", or leave it unset here to take theirs" : "");
    muster_node_give_up(node, &error);
}
