/* Waiting in the open: a process that is not admitted yet, or a change of view that is blocked, is logged again and
 * again, and a start that takes too long fails. */
#include <stdio.h>
#include <string.h>

#include "cluster/node/node_internal.h"

/* A shorter start or change is ordinary and says nothing; a longer one names whom it waits for, and again
 * every ten seconds, so that the last lines of a log show it. */
#define START_PATIENCE_NS  (2 * MUSTER_NS_PER_S) /* before the first line in the log */
#define START_REPEAT_NS    (10 * MUSTER_NS_PER_S)
#define CHANGE_PATIENCE_NS (1 * MUSTER_NS_PER_S)
#define CHANGE_REPEAT_NS   (10 * MUSTER_NS_PER_S)

/* The machine does not know where the registry is. */
static bool name_change_wait(const struct muster_node *node, char *text, size_t room)
{
    bool is_waiting = muster_membership_waits_for(node->machine, text, room);

    if (is_waiting && !node->registry.is_up)
        snprintf(text, room, "the registry at %s", node->registry.endpoints);
    return is_waiting;
}

/* Warn periodically while a view change is blocked. The patience counts per view: the next change may be
 * blocked by something else. */
void muster_node_log_wait(struct muster_node *node)
{
    uint64_t now_ns = muster_loop_now_ns(node->env->loop);
    char what[240];

    if (!name_change_wait(node, what, sizeof(what))) {
        node->blocked.epoch = 0;
        return;
    }
    if (node->blocked.epoch != muster_membership_view(node->machine)->epoch) {
        node->blocked.epoch = muster_membership_view(node->machine)->epoch;
        node->blocked.since_ns = now_ns;
        node->blocked.due_ns = now_ns + CHANGE_PATIENCE_NS;
    }
    if (now_ns < node->blocked.due_ns)
        return;
    node->blocked.due_ns = now_ns + CHANGE_REPEAT_NS;
    MUSTER_LOG(node->env, WARN, "view_change_blocked", "job", node->job, "view",
               node->blocked.epoch, "waits_for", what, "seconds",
               (now_ns - node->blocked.since_ns) / MUSTER_NS_PER_S);
}

static void add_missing(const struct muster_node *node, const char *type, uint32_t count,
                        char *text, size_t room)
{
    size_t length = strlen(text);

    for (uint32_t task = 0; task < count && length + 1 < room; task++)
        if (!muster_membership_is_candidate(node->machine, type, task))
            length += (size_t)snprintf(text + length, room - length, "%s%s:%u",
                                       length == 0 ? "" : ", ", type, task);
}

/* Empty where none is missing. */
static void name_missing(const struct muster_node *node, char *text, size_t room)
{
    uint32_t there = muster_membership_candidate_count(node->machine);
    const char *chief = node->expected.chief;

    text[0] = '\0';
    if (node->expected.is_sparse) {
        if (there < node->expected_count)
            snprintf(text, room, "%u of %u", node->expected_count - there, node->expected_count);
        return;
    }
    if (chief != NULL)
        add_missing(node, chief, 1, text, room);
    add_missing(node, chief != NULL ? "worker" : node->member.task_type,
                node->expected_count - (chief != NULL), text, room);
}

/* Text of the wait: tasks that are missing, members that do not admit this process, the registry. */
static void name_start_wait(const struct muster_node *node, char *text, size_t room)
{
    enum muster_membership_state state = muster_membership_state(node->machine);
    char missing[120], rival[200];
    bool has_rival = muster_membership_has_rival(node->machine, rival, sizeof(rival));

    name_missing(node, missing, sizeof(missing));
    if (!node->registry.is_up)
        snprintf(text, room, "the registry at %s", node->registry.endpoints);
    else if (state == MUSTER_MEMBERSHIP_FORMING && missing[0] != '\0')
        snprintf(text, room, "tasks that are not registered: %s%s%s%s", missing,
                 has_rival ? "; " : "", rival,
                 has_rival ? " has the task of this process, too: give each its own" : "");
    else
        muster_membership_start_waits_for(node->machine, text, room);
}

bool muster_node_waits_for(const struct muster_node *node, char *text, size_t room)
{
    if (muster_membership_is_member(node->machine))
        return name_change_wait(node, text, room);
    name_start_wait(node, text, room);
    return true;
}

/* The code says what to do: UNAVAILABLE is worth another start, DEADLINE_EXCEEDED names processes that did
 * not come. */
static void fail_start(struct muster_node *node, const char *what)
{
    const struct muster_view *view = muster_membership_view(node->machine);
    struct muster_error error;

    if (!node->registry.is_up)
        muster_error_set(&error, MUSTER_UNAVAILABLE,
                         "the registry at %s cannot be reached; start it with 'muster registry' or "
                         "set MUSTER_REGISTRY",
                         node->registry.endpoints);
    else if (view != NULL)
        muster_error_set(&error, MUSTER_DEADLINE_EXCEEDED,
                         "the members of job %s (view %llu) did not admit this process, which "
                         "waited for %s",
                         node->job, (unsigned long long)view->epoch, what);
    else
        muster_error_set(
            &error, MUSTER_DEADLINE_EXCEEDED,
            "job %s did not begin, for it waited for %s; start them with the same registry "
            "and job name (MUSTER_REGISTRY, MUSTER_JOB)",
            node->job, what);
    muster_node_fail(node, &error);
}

/* A program that has not asked to be admitted does not wait, however long it takes. */
void muster_node_on_start_timer(struct muster_timer *timer)
{
    struct muster_node *node = timer->data;
    uint64_t now_ns = muster_loop_now_ns(node->env->loop);
    uint64_t again_ns = now_ns + START_REPEAT_NS;
    char what[400];

    if (muster_membership_is_member(node->machine) ||
        (muster_membership_view(node->machine) != NULL && node->training.state == NODE_STATE_NONE))
        return;                    /* its program has not asked to be admitted (again) */
    if (node->training.is_ahead) { /* nor has it yet: it fetches, and will end by itself */
        muster_timer_start(timer, node->env->loop, again_ns);
        return;
    }
    name_start_wait(node, what, sizeof(what));
    if (now_ns >= node->start.deadline_ns) {
        fail_start(node, what);
        return;
    }
    MUSTER_LOG(node->env, WARN, "start_blocked", "job", node->job, "registry",
               node->registry.endpoints, "waits_for", what, "seconds",
               (now_ns - (node->start.deadline_ns - node->start.timeout_ns)) / MUSTER_NS_PER_S,
               "timeout_seconds", node->start.timeout_ns / MUSTER_NS_PER_S);
    muster_timer_start(timer, node->env->loop,
                       again_ns < node->start.deadline_ns ? again_ns : node->start.deadline_ns);
}

void muster_node_await_view(struct muster_node *node)
{
    uint64_t patience_ns =
        node->start.timeout_ns < START_PATIENCE_NS ? node->start.timeout_ns : START_PATIENCE_NS;

    node->start.deadline_ns = muster_loop_after_ns(node->env->loop, node->start.timeout_ns);
    muster_timer_start(&node->start.timer, node->env->loop,
                       muster_loop_after_ns(node->env->loop, patience_ns));
}

void muster_node_join(struct muster_node *node)
{
    struct muster_membership_event ready = {.kind = MUSTER_EVENT_READY};

    if (muster_membership_view(node->machine) != NULL)
        muster_node_await_view(node);
    muster_node_post(node, &ready, NULL);
}
