/* A node gives its machine events and carries out what it says; the program is told when the
 * machine is at rest. */
#include <stdio.h>
#include <string.h>

#include <muster/loop.h>

#include "cluster/node/node_internal.h"
#include "cluster/membership/progress_proto.h"

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

void muster_node_fail(struct muster_node *node, const struct muster_error *error)
{
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

void muster_node_exclude(struct muster_node *node, const struct muster_error *why)
{
    muster_node_state_excluded(node);
    node->tell.is_excluded = true;
    if (!node->tell.is_failed)
        node->tell.error = *why;
    muster_task_post(&node->excluded_task, node->env->loop);
}

/* A program whose operations had expired knows already, and may have named its state again. */
static void excluded(struct muster_node *node, const struct muster_membership_action *action)
{
    bool is_told = node->expiry != NODE_NOT_EXPIRED;

    MUSTER_LOG(node->env, WARN, "excluded", "view", action->view->epoch, "reason",
               action->error.text);
    node->expiry = NODE_NOT_EXPIRED;
    node->has_state = false;
    if (!is_told)
        muster_node_exclude(node, &action->error);
    else if (node->state == NODE_STATE_NAMED)
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

static void moved(struct muster_node *node, const struct muster_membership_action *action)
{
    const uint64_t *numbers = action->numbers;

    muster_trace_emit_text(node->env, action->trace_kind,
                           muster_membership_state_name((enum muster_membership_state)numbers[2]),
                           numbers[0], numbers[1], numbers[2]);
    MUSTER_LOG(node->env, DEBUG, action->trace_kind, "view", numbers[0], "from",
               muster_membership_state_name((enum muster_membership_state)numbers[1]), "to",
               muster_membership_state_name((enum muster_membership_state)numbers[2]));
}

static void execute(struct muster_node *node, const struct muster_membership_action *action)
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
        excluded(node, action);
        return;
    case MUSTER_ACTION_TELL_LEFT:
        node->tell.is_left = true;
        return;
    case MUSTER_ACTION_TELL_FAILED:
        muster_node_fail(node, &action->error);
        node->tell.is_left = true;
        return;
    case MUSTER_ACTION_TRACE:
        moved(node, action);
        return;
    }
}

/* --- telling the program --- */

static void tell_view(struct muster_node *node)
{
    struct muster_view_change change = {.view = node->tell.view, .previous = node->tell.previous};
    struct muster_error error;

    change.group = node->group;
    change.cause_ns = node->tell.cause_ns;
    change.opened_ns = node->tell.opened_ns;
    node->tell.is_view = false;
    node->tell.view = node->tell.previous = NULL;
    if (change.view->is_below_min) {
        muster_error_set(&error, MUSTER_ABORTED,
                         "too few members: %u are left after waiting for a return (%s)",
                         change.view->member_count, change.view->reason);
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
}

/* Each callback may start the next step, or close the node. */
static void tell(struct muster_node *node)
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

/* --- feeding --- */

static struct muster_membership_work work_of(const struct muster_node *node)
{
    struct muster_membership_work work = {.ended_count = node->ended_count};

    if (node->group == NULL)
        return work;
    work.is_busy = muster_group_is_busy(node->group);
    work.is_finishing =
        muster_loop_is_crowded(node->env->loop) && muster_group_is_finishing(node->group);
    return work;
}

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
        execute(node, &actions.items[i]);
    muster_membership_actions_fini(&actions);
    if (rc != MUSTER_OK) {
        muster_error_set(&error, rc, "no memory for a change of membership");
        muster_node_fail(node, &error);
    }
    muster_node_check_options(node);
    node->depth--;
    if (node->depth == 0)
        tell(node);
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

/* Used entries are kept for reuse, so that a node that posts rarely allocates only once. */
static struct node_news *news_take(struct muster_node *node)
{
    struct muster_list *at = muster_list_pop(&node->idle_news);

    return at != NULL ? MUSTER_CONTAINER_OF(at, struct node_news, list_node)
                      : muster_mem_alloc_zero(node->env->mem, 1, sizeof(struct node_news));
}

void muster_node_post(struct muster_node *node, const struct muster_membership_event *event,
                      const char *text)
{
    struct node_news *news;
    struct muster_error error;

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

void muster_node_resign(struct muster_node *node, const struct muster_error *why)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_RESIGN};

    node->expiry = NODE_EXPIRED;
    node->is_resign_posted = true;
    muster_node_post(node, &event, why->text);
}

void muster_node_run_news(struct muster_node *node)
{
    struct muster_list *at;

    while ((at = muster_list_pop(&node->news)) != NULL) {
        struct node_news *news = MUSTER_CONTAINER_OF(at, struct node_news, list_node);

        news->event.text = news->text;
        if (news->event.kind == MUSTER_EVENT_RESIGN)
            node->is_resign_posted = false;
        muster_node_feed(node, &news->event);
        if (node->is_closing)
            muster_mem_free(node->env->mem, news);
        else
            muster_list_append(&node->idle_news, &news->list_node);
    }
    if (node->depth == 0)
        tell(node);
}
