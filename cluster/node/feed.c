/* The trunk of a node: events go into the membership machine here, now or in the next turn, and what the
 * machine says is carried out by the node's driver (actions.c). The machine is pure, so the order in which
 * it gets events is the whole history of a member; everything that may call from the middle of something
 * else posts instead of feeding. */
#include <stdio.h>

#include "cluster/node/node_internal.h"
#include "cluster/membership/progress_proto.h"

const struct muster_view *muster_node_view(const struct muster_node *node)
{
    return node->machine == NULL ? NULL : muster_membership_view(node->machine);
}

/* The first cause counts: recovery_ms of a view is measured from when this process could have known. */
void muster_node_note_cause(struct muster_node *node)
{
    if (node->cause_ns == 0)
        node->cause_ns = muster_loop_clock_ns(node->env->loop);
}

void muster_node_note_cause_of(struct muster_node *node, const struct muster_incarnation *peer)
{
    const struct muster_view *view = muster_node_view(node);

    if (view != NULL && muster_view_find(view, peer, NULL))
        muster_node_note_cause(node);
}

/* Only the first failure is told: later ones are its consequences. */
void muster_node_fail(struct muster_node *node, const struct muster_error *error)
{
    MUSTER_ASSERT(error->rc != MUSTER_OK);
    if (node->tell.is_failed)
        return;
    if (error->rc == MUSTER_OUT_OF_RANGE)
        MUSTER_LOG(node->env, INFO, "job_over", "reason", error->text);
    else
        MUSTER_LOG(node->env, ERROR, "node_failed", "rc", muster_rc_name(error->rc), "reason",
                   error->text);
    node->tell.is_failed = true;
    node->tell.error = *error;
    muster_task_post(&node->task, node->env->loop);
}

/* The machine has no access to the group, so it is told before each step what the group is doing. */
static struct muster_membership_work work_of(const struct muster_node *node)
{
    struct muster_membership_work work = {.ended_count = node->handover.ended_count};

    if (node->group == NULL)
        return work;
    work.is_busy = muster_group_is_busy(node->group);
    work.is_finishing =
        muster_loop_is_crowded(node->env->loop) && muster_group_is_finishing(node->group);
    return work;
}

/* A step may feed further events (a freeze answers at once), so steps nest. The program is told only when the
 * outermost one is done: its callbacks may start the next step, or close the node. */
void muster_node_feed(struct muster_node *node, const struct muster_membership_event *event)
{
    struct muster_membership_actions actions;
    struct muster_error error;
    enum muster_rc rc;

    if (node->is_closing || node->machine == NULL) {
        muster_progress_free(event->progress);
        return;
    }
    node->depth++;
    muster_membership_set_work(node->machine, work_of(node));
    muster_membership_actions_init(&actions, node->env->mem);
    rc =
        muster_membership_step(node->machine, event, muster_loop_now_ns(node->env->loop), &actions);
    for (size_t i = 0; i < actions.count; i++)
        node->driver->execute(node, &actions.items[i]);
    muster_membership_actions_fini(&actions);
    if (rc != MUSTER_OK) {
        muster_error_set(&error, rc, "no memory for a change of membership");
        muster_node_fail(node, &error);
    }
    node->driver->stepped(node);
    MUSTER_ASSERT(node->depth > 0);
    node->depth--;
    if (node->depth == 0)
        node->driver->tell(node);
}

void muster_node_feed_kind(struct muster_node *node, enum muster_membership_event_kind kind)
{
    struct muster_membership_event event = {.kind = kind};

    muster_node_feed(node, &event);
}

void muster_node_feed_peer(struct muster_node *node, enum muster_membership_event_kind kind,
                           const struct muster_incarnation *peer, const char *text)
{
    struct muster_membership_event event = {.kind = kind, .peer = *peer, .text = text};

    muster_node_feed(node, &event);
}

/* Used entries are kept for reuse, so a training step in which an operation ends allocates nothing here. */
static struct node_news *news_take(struct muster_node *node)
{
    struct muster_list *at = muster_list_pop(&node->idle_news);

    return at != NULL ? MUSTER_CONTAINER_OF(at, struct node_news, list_node)
                      : muster_mem_alloc_zero(node->env->mem, 1, sizeof(struct node_news));
}

/* Groups, wires and watches report in the middle of their own work; the machine must not call back into them
 * there. An event is copied flat, so it may not point to anything that its sender frees. */
void muster_node_post(struct muster_node *node, const struct muster_membership_event *event,
                      const char *text)
{
    struct node_news *news;
    struct muster_error error;

    MUSTER_ASSERT(event->progress == NULL && event->control == NULL && event->view == NULL);
    if (node->is_closing)
        return;
    news = news_take(node);
    if (news == NULL) {
        muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED, "no memory for news of the job");
        muster_node_fail(node, &error);
        return;
    }
    news->event = *event;
    snprintf(news->text, sizeof(news->text), "%s", text == NULL ? "" : text);
    muster_list_append(&node->news, &news->list_node);
    muster_task_post(&node->task, node->env->loop);
}

/* The program is told at once; the machine hears of it in the next turn. is_resign_posted covers the time
 * between: a view that arrives in it was decided without the resignation. */
void muster_node_resign(struct muster_node *node, const struct muster_error *why)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_RESIGN};

    MUSTER_ASSERT(why->rc != MUSTER_OK);
    node->handover.expiry = NODE_EXPIRED;
    node->handover.is_resign_posted = true;
    muster_node_post(node, &event, why->text);
}

/* An event may close the node: the rest is then freed without effect. */
void muster_node_run_news(struct muster_node *node)
{
    struct muster_list *at;

    while ((at = muster_list_pop(&node->news)) != NULL) {
        struct node_news *news = MUSTER_CONTAINER_OF(at, struct node_news, list_node);

        news->event.text = news->text;
        if (news->event.kind == MUSTER_EVENT_RESIGN)
            node->handover.is_resign_posted = false;
        muster_node_feed(node, &news->event);
        if (node->is_closing)
            muster_mem_free(node->env->mem, news);
        else
            muster_list_append(&node->idle_news, &news->list_node);
    }
    if (node->depth == 0)
        node->driver->tell(node);
}

/* moves[from]: how the training state of this process may go on. */
static const unsigned moves[NODE_STATES] = {
    [NODE_STATE_NONE] = 1u << NODE_STATE_NONE | 1u << NODE_STATE_NAMED,
    [NODE_STATE_NAMED] = 1u << NODE_STATE_NONE | 1u << NODE_STATE_CATCHING | 1u << NODE_STATE_READY,
    [NODE_STATE_CATCHING] = 1u << NODE_STATE_NONE | 1u << NODE_STATE_NAMED | 1u << NODE_STATE_READY,
    [NODE_STATE_READY] = 1u << NODE_STATE_NONE,
};

void muster_node_state_move(struct muster_node *node, enum node_state to)
{
    MUSTER_ASSERT((moves[node->training.state] >> to & 1u) != 0);
    node->training.state = to;
}

/* The machine leaves also when it was admitted already: the members must not wait for this process. */
void muster_node_give_up(struct muster_node *node, const struct muster_error *error)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_LEAVE};

    MUSTER_ASSERT(error->rc != MUSTER_OK);
    muster_node_state_move(node, NODE_STATE_NONE);
    muster_node_fail(node, error);
    muster_node_post(node, &event, NULL);
}
