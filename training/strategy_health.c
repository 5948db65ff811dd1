/* Whether all members answer. */
#include <stdio.h>
#include <string.h>

#include "training/strategy_internal.h"

#define TIMEOUT_NS (10 * MUSTER_NS_PER_S) /* as TensorFlow's question to a peer */
/* The first message may have been under way before the question. */
#define MESSAGES_MIN 2u

struct health_check {
    struct muster_strategy *strategy;
    struct muster_view *view; /* shares; as of begin */
    uint32_t *heard;          /* messages of each member before it */
};

static bool is_gone(const struct health_check *check, uint32_t rank)
{
    return !muster_view_find(muster_node_view(check->strategy->node),
                             &check->view->members[rank].incarnation, NULL);
}

static bool is_heard(const struct health_check *check, uint32_t rank)
{
    const struct muster_node *node = check->strategy->node;
    const struct muster_incarnation *member = &check->view->members[rank].incarnation;

    return muster_incarnation_is_equal(member, muster_node_incarnation(node)) ||
           muster_node_heard_count(node, member) - check->heard[rank] >= MESSAGES_MIN;
}

static bool are_all_settled(void *data)
{
    const struct health_check *check = data;

    if (check->strategy->state == MUSTER_STRATEGY_FAILED)
        return true;
    for (uint32_t rank = 0; rank < check->view->member_count; rank++)
        if (!is_gone(check, rank) && !is_heard(check, rank))
            return false;
    return true;
}

/* "worker:1 (gone), worker:2 (silent for 0.7 s)"; cut at the end of names. */
static size_t name_missing(const struct health_check *check, uint64_t timeout_ns, char *names,
                           size_t room)
{
    size_t length = 0, count = 0;

    for (uint32_t rank = 0; rank < check->view->member_count; rank++) {
        const struct muster_member *member = &check->view->members[rank];
        char how[40] = "gone";
        int written;

        if (!is_gone(check, rank) && is_heard(check, rank))
            continue;
        if (!is_gone(check, rank))
            snprintf(how, sizeof(how), "silent for %.1f s",
                     (double)timeout_ns / (double)MUSTER_NS_PER_S);
        count++;
        written = snprintf(names + length, room - length, "%s%s:%u (%s)", length > 0 ? ", " : "",
                           member->task_type, member->task_index, how);
        if (written < 0 || (size_t)written >= room - length)
            room = length; /* no name after this one has room, either */
        else
            length += (size_t)written;
        names[length] = '\0';
    }
    return count;
}

static enum muster_rc tell_missing(const struct health_check *check, uint64_t timeout_ns)
{
    char names[MUSTER_ERROR_TEXT_BYTES - 40];
    size_t count = name_missing(check, timeout_ns, names, sizeof(names));

    if (count == 0)
        return MUSTER_OK;
    return muster_error_set(&check->strategy->error, MUSTER_UNAVAILABLE,
                            "%zu of %u do not answer: %s", count, check->view->member_count, names);
}

static enum muster_rc check_in_seat(struct muster_strategy *strategy, uint64_t timeout_ns)
{
    struct muster_mem *mem = strategy->env->mem;
    struct health_check check = {.strategy = strategy};
    enum muster_rc rc;

    if (strategy->state == MUSTER_STRATEGY_FAILED)
        return strategy->error.rc;
    if (strategy->view == NULL)
        return muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                "check_health before the first begin: the members are not known");
    check.view = muster_view_ref(strategy->view);
    check.heard = muster_mem_alloc_zero(mem, check.view->member_count, sizeof(*check.heard));
    if (check.heard == NULL) {
        muster_view_unref(check.view);
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    }
    for (uint32_t rank = 0; rank < check.view->member_count; rank++)
        check.heard[rank] =
            muster_node_heard_count(strategy->node, &check.view->members[rank].incarnation);
    rc = muster_runtime_wait(strategy->runtime, are_all_settled, &check,
                             muster_loop_after_ns(strategy->env->loop, timeout_ns));
    (void)rc; /* late: those that are missing are named */
    rc = strategy->state == MUSTER_STRATEGY_FAILED ? strategy->error.rc
                                                   : tell_missing(&check, timeout_ns);
    muster_mem_free(mem, check.heard);
    muster_view_unref(check.view);
    return rc;
}

enum muster_rc muster_strategy_check_health(struct muster_strategy *strategy, uint64_t timeout_ns)
{
    enum muster_rc rc = muster_strategy_enter(strategy, "check_health");

    if (rc != MUSTER_OK)
        return rc;
    rc = check_in_seat(strategy, timeout_ns != 0 ? timeout_ns : TIMEOUT_NS);
    muster_strategy_leave(strategy);
    return rc;
}
