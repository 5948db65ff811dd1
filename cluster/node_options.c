/* The options that a view carries for all strategies, against those that this process was given. */
#include <stdio.h>

#include "cluster/node_internal.h"

/** One option, as both sides have it. */
struct difference {
    const char *name;
    char asked[32], agreed[32];
};

static void write_number(char to[32], uint64_t number)
{
    if (number == 0)
        snprintf(to, 32, "none");
    else
        snprintf(to, 32, "%llu", (unsigned long long)number);
}

static void write_seconds(char to[32], uint64_t time_ns)
{
    if (time_ns == 0)
        snprintf(to, 32, "none");
    else
        snprintf(to, 32, "%g s", (double)time_ns / (double)MUSTER_NS_PER_S);
}

static bool is_another(uint64_t asked, uint64_t agreed)
{
    return asked != 0 && asked != agreed;
}

/* The first one that was asked for and is not so in the view. */
static bool find_difference(const struct muster_node *node, const struct muster_view *view,
                            struct difference *ret_difference)
{
    const struct muster_communication_options *asked = &node->asked;
    const struct muster_communication_options *agreed = &view->communication;
    struct difference found = {.name = NULL};

    if (is_another(asked->implementation, agreed->implementation)) {
        found.name = "communication";
        snprintf(found.asked, 32, "%s", muster_communication_name(asked->implementation));
        snprintf(found.agreed, 32, "%s", muster_communication_name(agreed->implementation));
    } else if (is_another(asked->bytes_per_pack, agreed->bytes_per_pack)) {
        found.name = "bytes_per_pack";
        write_number(found.asked, asked->bytes_per_pack);
        write_number(found.agreed, agreed->bytes_per_pack);
    } else if (is_another(asked->timeout_ns, agreed->timeout_ns)) {
        found.name = "timeout";
        write_seconds(found.asked, asked->timeout_ns);
        write_seconds(found.agreed, agreed->timeout_ns);
    } else if (node->asks_reproducible && !view->plan.is_reproducible) {
        found = (struct difference){.name = "reproducible", .asked = "view", .agreed = "no"};
    }
    *ret_difference = found;
    return found.name != NULL;
}

static bool is_self(const struct muster_node *node, const struct muster_member *member)
{
    return muster_incarnation_is_equal(&member->incarnation, &node->self);
}

/* A member of the view that can be heard, this one too once it is in it: the view of those who are
 * dead binds nobody. */
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
    struct difference difference;
    char others[MUSTER_JOB_NAME_BYTES];
    struct muster_error error;

    if (view == NULL || view->epoch == node->checked_epoch || node->tell.is_failed ||
        !is_alive(node, view))
        return;
    node->checked_epoch = view->epoch;
    if (!find_difference(node, view, &difference))
        return;
    name_others(node, view, others);
    muster_error_set(&error, MUSTER_INVALID_ARGUMENT,
                     "%.40s:%u asks for %s %s, %s have agreed on %s: give all the same, or leave "
                     "it unset here to take theirs",
                     node->member.task_type, node->member.task_index, difference.name,
                     difference.asked, others, difference.agreed);
    muster_node_give_up(node, &error);
}
