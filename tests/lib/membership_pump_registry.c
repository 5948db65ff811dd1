/* The registry of the small world: keys, a log that everybody watches, leases, and answers that get
 * lost. */
#include "membership_pump_internal.h"

static void wake_watchers(struct pump *pump)
{
    for (unsigned i = 0; i < pump->node_count; i++)
        if (pump->nodes[i].is_alive)
            pump_push(pump, (struct pump_event){.kind = PUMP_WATCH, .to = i}, pump_latency(pump));
}

static void log_change(struct pump *pump, enum pump_change_kind kind, unsigned node,
                       struct muster_view *view)
{
    if (pump->log_count == pump->log_room) {
        pump->log_room = pump->log_room == 0 ? 64 : pump->log_room * 2;
        pump->log = muster_mem_realloc(pump->mem, pump->log, pump->log_room * sizeof(*pump->log));
    }
    pump->log[pump->log_count++] = (struct pump_change){.kind = kind, .node = node, .view = view};
    wake_watchers(pump);
}

void pump_check_view(struct pump *pump, struct muster_view *view)
{
    if (view->epoch >= 1024) {
        pump_fail(pump, "epochs without end");
        return;
    }
    if (pump->epochs[view->epoch] == NULL)
        pump->epochs[view->epoch] = muster_view_ref(view);
    else if (pump->epochs[view->epoch]->digest != view->digest)
        pump_fail(pump, "two views of epoch %llu", (unsigned long long)view->epoch);
}

bool pump_apply_cas(struct pump *pump, const struct pump_event *event)
{
    uint64_t present = pump->key_view == NULL ? 0 : pump->key_revision;

    if (present != event->revision)
        return false;
    if (pump->key_view != NULL && event->view->epoch != pump->key_view->epoch + 1)
        pump_fail(pump, "epoch %llu follows epoch %llu", (unsigned long long)event->view->epoch,
                  (unsigned long long)pump->key_view->epoch);
    muster_view_unref(pump->key_view);
    pump->key_view = muster_view_ref(event->view);
    log_change(pump, PUMP_VIEW_PUT, 0, muster_view_ref(event->view));
    pump->key_revision = pump->log_count;
    pump->views_seen++;
    pump_check_view(pump, event->view);
    return true;
}

bool pump_reaches_registry(const struct pump_node *node)
{
    return node->pump->is_registry_up && node->sees_registry;
}

void pump_on_cas(struct pump *pump, struct pump_event *event)
{
    struct pump_node *node = &pump->nodes[event->from];
    struct muster_membership_event answer = {.kind = MUSTER_EVENT_CAS_ANSWERED, .id = event->id};
    bool is_lost_answer = pump_random(pump, 100) < pump->lose_answer_percent;

    answer.cas = MUSTER_CAS_UNKNOWN;
    if (node->stops_before_cas) {
        node->stops_before_cas = false;
        pump_kill(pump, event->from);
    } else if (pump_reaches_registry(node) && is_lost_answer && pump_random(pump, 2) == 0) {
        struct pump_event late = *event; /* the request overtakes its own answer */

        late.kind = PUMP_CAS_LATE;
        late.view = muster_view_ref(event->view);
        pump_push(pump, late, PUMP_MS(pump_random(pump, 300)));
    } else if (pump_reaches_registry(node)) {
        bool is_won = pump_apply_cas(pump, event);

        if (is_won && node->stops_after_cas) {
            node->stops_after_cas = false;
            pump_kill(pump, event->from);
        }
        if (!is_lost_answer)
            answer.cas = is_won ? MUSTER_CAS_WON : MUSTER_CAS_LOST;
    }
    answer.revision = pump->key_revision;
    pump_step(node, &answer);
}

void pump_on_read(struct pump *pump, struct pump_node *node)
{
    struct muster_membership_event answer = {.kind = MUSTER_EVENT_VIEW_READ};

    answer.rc = pump_reaches_registry(node) ? MUSTER_OK : MUSTER_UNAVAILABLE;
    answer.view = pump->key_view;
    answer.revision = pump->key_view == NULL ? 0 : pump->key_revision;
    pump_step(node, &answer);
}

static void show_change(struct pump_node *node, const struct pump_change *change, uint64_t revision)
{
    struct pump_node *other = &node->pump->nodes[change->node];
    const struct muster_member_record record = {.member = other->member,
                                                .begins_after = change->begins_after,
                                                .communication = other->asked};
    struct muster_membership_event event = {.revision = revision, .view = change->view};

    event.peer = other->member.incarnation;
    event.record = &record;
    if (change->kind == PUMP_MEMBER_PUT)
        event.revision = change->register_revision;
    event.text = other->record[0] != '\0' ? other->record : "SIGKILL";
    switch (change->kind) {
    case PUMP_MEMBER_PUT:
        event.kind = MUSTER_EVENT_MEMBER_PUT;
        break;
    case PUMP_MEMBER_DELETED:
        event.kind = MUSTER_EVENT_MEMBER_DELETED;
        break;
    case PUMP_DEAD_PUT:
        event.kind = MUSTER_EVENT_DEAD_PUT;
        break;
    case PUMP_VIEW_PUT:
        event.kind = MUSTER_EVENT_VIEW_PUT;
        break;
    case PUMP_PREEMPT_PUT:
        event.kind = MUSTER_EVENT_PREEMPTED;
        event.id = change->epoch;
        event.text = "SIGTERM";
        break;
    }
    pump_step(node, &event);
}

void pump_on_watch(struct pump *pump, struct pump_node *node)
{
    while (node->is_alive && pump_reaches_registry(node) && !node->is_watch_late &&
           node->watched < pump->log_count) {
        size_t at = node->watched++;
        struct pump_change change = pump->log[at];

        show_change(node, &change, at + 1);
    }
}

void pump_on_register(struct pump *pump, struct pump_node *node)
{
    struct pump_change *change;

    if (!node->wants_registered || !node->is_alive || !pump_reaches_registry(node) ||
        (node->is_registered && node->begins_after == node->put_begins_after))
        return;
    log_change(pump, PUMP_MEMBER_PUT, node->index, NULL);
    if (!node->is_registered)
        node->register_revision = pump->log_count;
    node->is_registered = true;
    node->put_begins_after = node->begins_after;
    change = &pump->log[pump->log_count - 1];
    change->begins_after = node->begins_after;
    change->register_revision = node->register_revision;
}

static void pump_deregister(struct pump *pump, struct pump_node *node)
{
    if (!node->is_registered)
        return;
    node->is_registered = false;
    log_change(pump, PUMP_MEMBER_DELETED, node->index, NULL);
}

/* A process that has left waits for it, and asks again. */
void pump_on_deregister(struct pump *pump, struct pump_node *node)
{
    struct pump_event again = {.kind = PUMP_DEREGISTER, .to = node->index};

    if (!node->is_alive && !node->is_left)
        return;
    if (!pump_reaches_registry(node)) {
        pump_push(pump, again, PUMP_MS(200));
        return;
    }
    pump_deregister(pump, node);
    pump_step_kind(node, MUSTER_EVENT_DEREGISTERED);
}

void pump_on_lease(struct pump *pump, struct pump_node *node)
{
    bool is_kept = node->is_alive && pump_reaches_registry(node);

    if (is_kept || !pump->is_registry_up)
        node->registry_cut_ns = 0;
    else if (node->registry_cut_ns == 0)
        node->registry_cut_ns = pump->now_ns;
    else if (pump->now_ns - node->registry_cut_ns >= PUMP_S(10))
        pump_deregister(pump, node);
    if (node->is_alive || node->is_registered)
        pump_push(pump, (struct pump_event){.kind = PUMP_LEASE, .to = node->index}, PUMP_S(1));
    if (is_kept && node->wants_registered && !node->is_registered)
        pump_on_register(pump, node);
}

static void sight_changed(struct pump *pump, struct pump_node *node)
{
    if (!node->is_alive)
        return;
    pump_step_kind(node, pump_reaches_registry(node) ? MUSTER_EVENT_REGISTRY_UP
                                                     : MUSTER_EVENT_REGISTRY_DOWN);
    pump_push(pump, (struct pump_event){.kind = PUMP_WATCH, .to = node->index}, pump_latency(pump));
    pump_push(pump, (struct pump_event){.kind = PUMP_REGISTER, .to = node->index},
              pump_latency(pump));
}

void pump_registry(struct pump *pump, bool is_up)
{
    if (pump->is_registry_up == is_up)
        return;
    pump->is_registry_up = is_up;
    for (unsigned i = 0; i < pump->node_count; i++)
        sight_changed(pump, &pump->nodes[i]);
}

void pump_see_registry(struct pump *pump, unsigned node, bool sees)
{
    if (pump->nodes[node].sees_registry == sees)
        return;
    pump->nodes[node].sees_registry = sees;
    if (pump->is_registry_up)
        sight_changed(pump, &pump->nodes[node]);
}

void pump_confirm(struct pump *pump, unsigned node)
{
    log_change(pump, PUMP_DEAD_PUT, node, NULL);
}

void pump_preempt(struct pump *pump, uint64_t epoch)
{
    log_change(pump, PUMP_PREEMPT_PUT, 0, NULL);
    pump->log[pump->log_count - 1].epoch = epoch;
}
