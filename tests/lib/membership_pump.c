/* The world around membership machines: time, links, registry, processes; oracles on what they do.
 */
#include "membership_pump_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster/membership/progress_proto.h"

void pump_fail(struct pump *pump, const char *format, ...)
{
    va_list args;

    if (pump->failure[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(pump->failure, sizeof(pump->failure), format, args);
    va_end(args);
}

uint64_t pump_random(struct pump *pump, uint64_t bound)
{
    return muster_rng_below(&pump->rng.rng, bound);
}

/* --- the queue --- */

static bool is_before(const struct pump_event *a, const struct pump_event *b)
{
    return a->due_ns < b->due_ns || (a->due_ns == b->due_ns && a->sequence < b->sequence);
}

void pump_push(struct pump *pump, struct pump_event event, uint64_t delay_ns)
{
    size_t at = pump->heap_count++;

    if (pump->heap_count > pump->heap_room) {
        pump->heap_room = pump->heap_room == 0 ? 256 : pump->heap_room * 2;
        pump->heap =
            muster_mem_realloc(pump->mem, pump->heap, pump->heap_room * sizeof(*pump->heap));
    }
    event.due_ns = pump->now_ns + delay_ns;
    event.sequence = pump->sequence++;
    for (; at > 0 && is_before(&event, &pump->heap[(at - 1) / 2]); at = (at - 1) / 2)
        pump->heap[at] = pump->heap[(at - 1) / 2];
    pump->heap[at] = event;
}

static struct pump_event pump_pop(struct pump *pump)
{
    struct pump_event top = pump->heap[0], last = pump->heap[--pump->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= pump->heap_count)
            break;
        if (child + 1 < pump->heap_count && is_before(&pump->heap[child + 1], &pump->heap[child]))
            child++;
        if (!is_before(&pump->heap[child], &last))
            break;
        pump->heap[at] = pump->heap[child];
        at = child;
    }
    if (pump->heap_count > 0)
        pump->heap[at] = last;
    return top;
}

uint64_t pump_latency(struct pump *pump)
{
    uint64_t us = 20 + pump_random(pump, 300);

    if (pump_random(pump, 50) == 0)
        us += pump_random(pump, 20000);
    return us * MUSTER_NS_PER_US;
}

/* --- links --- */

static struct pump_link *link_of(struct pump *pump, unsigned a, unsigned b)
{
    return a < b ? &pump->links[a][b] : &pump->links[b][a];
}

static uint64_t *sent_of(struct pump *pump, unsigned from, unsigned to)
{
    struct pump_link *link = link_of(pump, from, to);

    return from < to ? &link->sent : &link->sent_back;
}

static uint64_t *received_of(struct pump *pump, unsigned from, unsigned to)
{
    struct pump_link *link = link_of(pump, from, to);

    return from < to ? &link->received : &link->received_back;
}

void pump_step_kind(struct pump_node *node, enum muster_membership_event_kind kind)
{
    struct muster_membership_event event = {.kind = kind};

    pump_step(node, &event);
}

static void step_peer(struct pump_node *node, enum muster_membership_event_kind kind, unsigned peer,
                      const char *text)
{
    struct muster_membership_event event = {.kind = kind, .text = text};

    event.peer = node->pump->nodes[peer].member.incarnation;
    pump_step(node, &event);
}

static void drop_link(struct pump *pump, unsigned a, unsigned b)
{
    struct pump_link *link = link_of(pump, a, b);

    link->is_up = false;
    link->generation++;
    link->sent = link->received = link->sent_back = link->received_back = 0;
}

/* Both ends learn of the end of the link, each after its own time. */
static void break_link(struct pump *pump, unsigned a, unsigned b)
{
    struct pump_event event = {.kind = PUMP_LINK_DOWN};

    if (!link_of(pump, a, b)->is_up)
        return;
    drop_link(pump, a, b);
    event.generation = link_of(pump, a, b)->generation;
    event.from = a;
    event.to = b;
    pump_push(pump, event, pump_latency(pump));
    event.from = b;
    event.to = a;
    pump_push(pump, event, pump_latency(pump));
}

static void send_bytes(struct pump_node *node, unsigned to, struct pump_event event)
{
    struct pump *pump = node->pump;
    struct pump_link *link = link_of(pump, node->index, to);

    if (!link->is_up) {
        muster_mem_free(pump->mem, event.bytes);
        return;
    }
    event.from = node->index;
    event.to = to;
    event.generation = link->generation;
    event.link_sequence = (*sent_of(pump, node->index, to))++;
    pump_push(pump, event, pump_latency(pump));
}

void pump_send_complete(struct pump_node *node, unsigned to, uint64_t epoch,
                        const struct muster_op_id *id)
{
    struct pump_event event = {.kind = PUMP_COMPLETE, .epoch = epoch, .op = *id};

    event.from = node->index;
    event.to = to;
    pump_push(node->pump, event, pump_latency(node->pump));
}

/* --- actions --- */

static void send_control(struct pump_node *node, const struct muster_membership_action *action)
{
    struct pump *pump = node->pump;
    struct pump_event event = {.kind = PUMP_CONTROL};
    unsigned to = pump_node_of(pump, &action->peer);

    pump->silences_told +=
        action->control.kind == MUSTER_CONTROL_SUSPECT && action->control.is_silence;
    if (muster_control_pack(&action->control, pump->mem, &event.bytes, &event.size) != MUSTER_OK) {
        pump_fail(pump, "control message does not pack");
        return;
    }
    send_bytes(node, to, event);
}

static void watch_process(struct pump_node *node, const struct muster_membership_action *action)
{
    unsigned other = pump_node_of(node->pump, &action->member.incarnation);

    if (!node->pump->nodes[other].is_alive)
        pump_push(node->pump,
                  (struct pump_event){.kind = PUMP_PROCESS_DEAD, .from = other, .to = node->index},
                  MUSTER_NS_PER_US);
}

static void node_freeze(struct pump_node *node)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_FROZEN};

    if (node->view == NULL)
        pump_fail(node->pump, "node %u freezes without a group", node->index);
    event.progress = pump_ops_freeze(node);
    pump_step(node, &event);
}

static void open_group(struct pump_node *node, const struct muster_membership_action *action)
{
    struct pump *pump = node->pump;

    pump_check_view(pump, action->view);
    if (pump->key_view == NULL || pump->key_view->epoch < action->view->epoch)
        pump_fail(pump, "node %u enters epoch %llu before it is committed", node->index,
                  (unsigned long long)action->view->epoch);
    if (action->is_hand_over != (node->view != NULL))
        pump_fail(pump, "node %u: hand over without a group, or a group without", node->index);
    pump_ops_open(node, action->view, action->is_hand_over);
}

static void told_excluded(struct pump_node *node)
{
    node->is_excluded_once = true;
    pump_push(node->pump, (struct pump_event){.kind = PUMP_READY, .to = node->index},
              PUMP_MS(pump_random(node->pump, 300)));
}

static void told_failed(struct pump_node *node, const struct muster_membership_action *action)
{
    node->is_failed = true;
    node->error = action->error;
    if (action->error.rc != MUSTER_FAILED_PRECONDITION && action->error.rc != MUSTER_OUT_OF_RANGE &&
        action->error.rc != MUSTER_CANCELLED)
        pump_fail(node->pump, "node %u failed: %s", node->index, action->error.text);
}

static void stop_node(struct pump_node *node, bool is_told);

static void node_connect(struct pump_node *node, const struct muster_membership_action *action)
{
    struct pump_event event = {.kind = PUMP_CONNECT, .from = node->index};

    event.to = pump_node_of(node->pump, &action->member.incarnation);
    pump_push(node->pump, event, pump_latency(node->pump));
}

/* A step inside this one (FROZEN) may have moved it already: the machine knows. */
static void set_timer(struct pump_node *node, struct pump_event event)
{
    uint64_t due = muster_membership_timer_ns(node->machine);

    pump_push(node->pump, event, due > node->pump->now_ns ? due - node->pump->now_ns : 0);
}

static void node_execute(struct pump_node *node, const struct muster_membership_action *action)
{
    struct pump *pump = node->pump;
    struct pump_event event = {.from = node->index, .to = node->index};

    switch (action->kind) {
    case MUSTER_ACTION_SEND:
        send_control(node, action);
        return;
    case MUSTER_ACTION_CONNECT:
        node_connect(node, action);
        return;
    case MUSTER_ACTION_RENEW:
        return; /* its connections do not lose what they carry */
    case MUSTER_ACTION_DISCONNECT:
        break_link(pump, node->index, pump_node_of(pump, &action->peer));
        return;
    case MUSTER_ACTION_WATCH:
        watch_process(node, action);
        return;
    case MUSTER_ACTION_FREEZE:
        node_freeze(node);
        return;
    case MUSTER_ACTION_OPEN_GROUP:
        open_group(node, action);
        return;
    case MUSTER_ACTION_ABORT_ALL:
        pump_ops_abort(node);
        return;
    case MUSTER_ACTION_CAS:
        event.kind = PUMP_CAS;
        event.view = muster_view_ref(action->view);
        event.id = action->id;
        event.revision = action->revision;
        pump_push(pump, event, pump_latency(pump));
        return;
    case MUSTER_ACTION_READ_VIEW:
        event.kind = PUMP_READ;
        pump_push(pump, event, pump_latency(pump));
        return;
    case MUSTER_ACTION_REGISTER:
        node->wants_registered = true;
        node->begins_after = action->begins_after;
        event.kind = PUMP_REGISTER;
        pump_push(pump, event, pump_latency(pump));
        return;
    case MUSTER_ACTION_DEREGISTER:
        node->wants_registered = false;
        event.kind = PUMP_DEREGISTER;
        pump_push(pump, event, pump_latency(pump));
        return;
    case MUSTER_ACTION_SET_TIMER:
        event.kind = PUMP_TIMER;
        event.generation = ++node->timer_generation;
        set_timer(node, event);
        return;
    case MUSTER_ACTION_TELL_EXCLUDED:
        told_excluded(node);
        return;
    case MUSTER_ACTION_TELL_LEFT:
        node->is_left = true;
        return;
    case MUSTER_ACTION_TELL_FAILED:
        told_failed(node, action);
        return;
    case MUSTER_ACTION_TRACE:
        return;
    }
}

void pump_step(struct pump_node *node, const struct muster_membership_event *event)
{
    struct pump *pump = node->pump;
    struct muster_membership_actions actions;
    enum muster_rc rc;

    if (!node->is_alive) {
        muster_progress_free(event->progress);
        return;
    }
    muster_membership_actions_init(&actions, node->mem);
    rc = muster_membership_step(node->machine, event, pump->now_ns, &actions);
    if (rc != MUSTER_OK && (node->mem == pump->mem || rc != MUSTER_RESOURCE_EXHAUSTED))
        pump_fail(pump, "a step of node %u fails", node->index);
    for (size_t i = 0; i < actions.count && node->is_alive; i++)
        node_execute(node, &actions.items[i]);
    muster_membership_actions_fini(&actions);
    if (node->is_alive && (node->is_left || node->is_failed || rc != MUSTER_OK))
        stop_node(node, true);
}

/* --- processes --- */

unsigned pump_node_of(const struct pump *pump, const struct muster_incarnation *incarnation)
{
    for (unsigned i = 0; i < pump->node_count; i++)
        if (muster_incarnation_is_equal(&pump->nodes[i].member.incarnation, incarnation))
            return i;
    return 0;
}

static void make_machine(struct pump_node *node)
{
    struct pump *pump = node->pump;
    struct muster_membership_options options = {
        .mem = node->mem,
        .rng = &pump->rng.rng,
        .job = "job",
        .self = node->member,
        .expected_count = pump->expected_count,
        .min_members = pump->min_members,
        .min_members_start = pump->min_members_start,
        .min_members_timeout_ns = PUMP_S(8),
        .heartbeat_interval_ns = PUMP_MS(250),
        .is_force_new = pump->is_force_new,
        .is_return = pump->is_return,
        .communication = node->asked,
    };

    options.suspicion.silence_floor_ns = PUMP_S(1);
    options.suspicion.evict_after_ns = PUMP_S(5);
    options.suspicion.connect_timeout_ns = PUMP_S(3);
    if (muster_membership_new(&options, &node->machine) != MUSTER_OK && node->mem == pump->mem)
        pump_fail(pump, "no machine");
}

unsigned pump_start(struct pump *pump, uint32_t task, unsigned host)
{
    struct pump_node *node = &pump->nodes[pump->node_count];

    memset(node, 0, sizeof(*node));
    node->pump = pump;
    node->index = pump->node_count++;
    node->asked = pump->asked;
    muster_rng_fill(&pump->rng.rng, node->member.incarnation.bytes, 16);
    snprintf(node->member.task_type, sizeof(node->member.task_type), "worker");
    node->member.task_index = task;
    node->member.pid = 1000 + (int64_t)node->index;
    node->member.started = 1 + node->index;
    snprintf(node->member.host_key, sizeof(node->member.host_key), "host-%u", host);
    node->is_alive = true;
    node->sees_registry = true;
    node->mem =
        pump->hungry_mem != NULL && pump->hungry_task == task ? pump->hungry_mem : pump->mem;
    make_machine(node);
    if (node->machine == NULL) {
        stop_node(node, true);
        return node->index;
    }
    pump_push(pump, (struct pump_event){.kind = PUMP_LEASE, .to = node->index}, PUMP_S(1));
    pump_push(pump, (struct pump_event){.kind = PUMP_OPS, .to = node->index}, pump_latency(pump));
    if (!pump->is_unready)
        pump_push(pump, (struct pump_event){.kind = PUMP_READY, .to = node->index},
                  PUMP_MS(pump_random(pump, 300)));
    pump_step_kind(node, MUSTER_EVENT_START);
    if (pump_reaches_registry(node))
        pump_step_kind(node, MUSTER_EVENT_REGISTRY_UP);
    pump_step_kind(node, MUSTER_EVENT_SNAPSHOT_BEGIN);
    pump_on_watch(pump, node);
    pump_step_kind(node, MUSTER_EVENT_SNAPSHOT_END);
    return node->index;
}

static void stop_node(struct pump_node *node, bool is_told)
{
    struct pump *pump = node->pump;

    node->is_alive = false;
    snprintf(node->record, sizeof(node->record), "SIGKILL at step %llu",
             (unsigned long long)node->committed_step);
    pump_ops_abort(node);
    for (unsigned i = 0; i < pump->node_count; i++) {
        struct pump_event event = {.kind = PUMP_PROCESS_DEAD, .from = node->index, .to = i};

        if (i == node->index)
            continue;
        if (is_told && strcmp(pump->nodes[i].member.host_key, node->member.host_key) == 0)
            pump_push(pump, event, pump_latency(pump));
        if (is_told)
            break_link(pump, node->index, i);
    }
    if (is_told && !pump->is_launcherless)
        pump_push(pump, (struct pump_event){.kind = PUMP_DEAD_KEY, .to = node->index},
                  PUMP_MS(1 + pump_random(pump, 50)));
}

void pump_kill(struct pump *pump, unsigned node)
{
    if (pump->nodes[node].is_alive)
        stop_node(&pump->nodes[node], true);
}

void pump_crash_silently(struct pump *pump, unsigned node)
{
    if (pump->nodes[node].is_alive)
        stop_node(&pump->nodes[node], false);
}

void pump_leave(struct pump *pump, unsigned node)
{
    struct muster_membership_event event = {
        .kind = MUSTER_EVENT_LEAVE, .is_done = true, .done_calls = 3};

    pump_step(&pump->nodes[node], &event);
}

void pump_leave_undone(struct pump *pump, unsigned node)
{
    pump_step_kind(&pump->nodes[node], MUSTER_EVENT_LEAVE);
}

void pump_commit(struct pump *pump, unsigned node, uint64_t step)
{
    pump->nodes[node].committed_step = step;
    muster_membership_set_committed(pump->nodes[node].machine, step);
}

void pump_ready(struct pump *pump, unsigned node)
{
    pump_step_kind(&pump->nodes[node], MUSTER_EVENT_READY);
}

void pump_pause(struct pump *pump, unsigned node, uint64_t span_ns)
{
    pump->nodes[node].paused_until_ns = pump->now_ns + span_ns;
}

void pump_block(struct pump *pump, unsigned a, unsigned b, bool is_blocked)
{
    if (a != b)
        link_of(pump, a, b)->is_blocked = is_blocked;
}

void pump_reset_link(struct pump *pump, unsigned a, unsigned b)
{
    if (a != b)
        break_link(pump, a, b);
}

void pump_suspect(struct pump *pump, unsigned by, unsigned accused)
{
    step_peer(&pump->nodes[by], MUSTER_EVENT_PEER_SUSPECTED, accused, "data link reset");
}

void pump_propose_abort(struct pump *pump, unsigned node)
{
    struct muster_membership_event event = {.kind = MUSTER_EVENT_ABORT_PROPOSED,
                                            .rc = MUSTER_DEADLINE_EXCEEDED};

    if (pump->nodes[node].op_count == 0)
        return;
    pump->nodes[node].ops[0].is_abort_proposed = true;
    event.op = pump->nodes[node].ops[0].id;
    pump_step(&pump->nodes[node], &event);
}

void pump_expire(struct pump *pump, unsigned node)
{
    if (pump->nodes[node].op_count == 0)
        return;
    pump_ops_expire(&pump->nodes[node]);
    pump_step_kind(&pump->nodes[node], MUSTER_EVENT_RESIGN);
}

/* --- events --- */

static void on_control(struct pump *pump, struct pump_event *event)
{
    struct pump_link *link = link_of(pump, event->from, event->to);
    struct muster_membership_event news = {.kind = MUSTER_EVENT_CONTROL};
    struct muster_control control;

    if (!link->is_up || link->generation != event->generation)
        return;
    if (link->is_blocked || *received_of(pump, event->from, event->to) != event->link_sequence) {
        struct pump_event again = *event; /* in order, and after the partition */

        event->bytes = NULL;
        pump_push(pump, again, PUMP_MS(link->is_blocked ? 20 : 0) + 100 * MUSTER_NS_PER_US);
        return;
    }
    ++*received_of(pump, event->from, event->to);
    if (muster_control_unpack(pump->mem, event->bytes, event->size, &control) != MUSTER_OK) {
        pump_fail(pump, "control message does not unpack");
        return;
    }
    news.peer = pump->nodes[event->from].member.incarnation;
    news.control = &control;
    pump_step(&pump->nodes[event->to], &news);
    muster_control_fini(&control);
}

static void on_complete(struct pump *pump, struct pump_event *event)
{
    struct pump_node *node = &pump->nodes[event->to];
    uint64_t epoch = node->view == NULL ? 0 : node->view->epoch;

    if (!node->is_alive)
        return;
    if (link_of(pump, event->from, event->to)->is_blocked || event->epoch > epoch) {
        if (pump->nodes[event->from].is_alive)
            pump_push(pump, *event, PUMP_MS(20));
        return;
    }
    pump_ops_complete(node, event->from, event->epoch, &event->op);
}

static void on_connect(struct pump *pump, struct pump_event *event)
{
    struct pump_link *link = link_of(pump, event->from, event->to);
    struct pump_node *target = &pump->nodes[event->to];

    if (!pump->nodes[event->from].is_alive)
        return;
    if (!target->is_alive || link->is_blocked) {
        step_peer(&pump->nodes[event->from], MUSTER_EVENT_LINK_DOWN, event->to, "refused");
        return;
    }
    drop_link(pump, event->from, event->to);
    link->is_up = true;
    step_peer(target, MUSTER_EVENT_LINK_UP, event->from, NULL);
    step_peer(&pump->nodes[event->from], MUSTER_EVENT_LINK_UP, event->to, NULL);
}

static void on_link_down(struct pump *pump, struct pump_event *event)
{
    struct pump_link *link = link_of(pump, event->from, event->to);

    if (link->generation == event->generation)
        step_peer(&pump->nodes[event->from], MUSTER_EVENT_LINK_DOWN, event->to, "reset");
}

static void on_timer(struct pump *pump, struct pump_event *event)
{
    struct pump_node *node = &pump->nodes[event->to];

    if (node->timer_generation == event->generation)
        pump_step_kind(node, MUSTER_EVENT_TICK);
}

static void on_ops(struct pump *pump, struct pump_node *node)
{
    if (!node->is_alive || !pump->has_ops)
        return;
    pump_ops_tick(node);
    pump_push(pump, (struct pump_event){.kind = PUMP_OPS, .to = node->index},
              PUMP_MS(5 + pump_random(pump, 30)));
}

static void pump_dispatch(struct pump *pump, struct pump_event *event)
{
    struct pump_node *to = &pump->nodes[event->to];

    switch (event->kind) {
    case PUMP_CONTROL:
        on_control(pump, event);
        return;
    case PUMP_COMPLETE:
        on_complete(pump, event);
        return;
    case PUMP_CONNECT:
        on_connect(pump, event);
        return;
    case PUMP_LINK_DOWN:
        on_link_down(pump, event);
        return;
    case PUMP_TIMER:
        on_timer(pump, event);
        return;
    case PUMP_WATCH:
        pump_on_watch(pump, to);
        return;
    case PUMP_CAS:
        pump_on_cas(pump, event);
        return;
    case PUMP_CAS_LATE:
        if (pump_reaches_registry(&pump->nodes[event->from]))
            pump_apply_cas(pump, event);
        return;
    case PUMP_READ:
        pump_on_read(pump, to);
        return;
    case PUMP_REGISTER:
        pump_on_register(pump, to);
        return;
    case PUMP_DEREGISTER:
        pump_on_deregister(pump, to);
        return;
    case PUMP_PROCESS_DEAD:
        step_peer(to, MUSTER_EVENT_PROCESS_DEAD, event->from, "process ended");
        return;
    case PUMP_DEAD_KEY:
        pump_confirm(pump, event->to);
        return;
    case PUMP_LEASE:
        pump_on_lease(pump, to);
        return;
    case PUMP_OPS:
        on_ops(pump, to);
        return;
    case PUMP_READY:
        if (to->view == NULL)
            pump_ready(pump, event->to);
        return;
    }
}

/* Events of a stopped process wait until it runs again. */
static bool is_paused(struct pump *pump, const struct pump_event *event)
{
    bool is_own = event->kind != PUMP_LEASE && event->kind != PUMP_DEAD_KEY &&
                  event->kind != PUMP_CAS_LATE && event->kind != PUMP_CONNECT;
    unsigned who = event->kind == PUMP_LINK_DOWN ? event->from : event->to;

    return is_own && pump->nodes[who].paused_until_ns > pump->now_ns;
}

static void pump_turn(struct pump *pump)
{
    struct pump_event event = pump_pop(pump);

    pump->now_ns = event.due_ns;
    if (is_paused(pump, &event)) {
        unsigned who = event.kind == PUMP_LINK_DOWN ? event.from : event.to;

        pump_push(pump, event, pump->nodes[who].paused_until_ns - pump->now_ns);
        return;
    }
    pump_dispatch(pump, &event);
    muster_mem_free(pump->mem, event.bytes);
    muster_view_unref(event.view);
}

bool pump_run_until(struct pump *pump, bool (*is_done)(struct pump *pump), uint64_t span_ns)
{
    uint64_t until = pump->now_ns + span_ns;

    while (pump->failure[0] == '\0') {
        if (is_done != NULL && is_done(pump))
            return true;
        if (pump->heap_count == 0 || pump->heap[0].due_ns > until)
            break;
        pump_turn(pump);
    }
    if (pump->failure[0] == '\0')
        pump->now_ns = until;
    return false;
}

void pump_run(struct pump *pump, uint64_t span_ns)
{
    pump_run_until(pump, NULL, span_ns);
}

/* --- questions, open, close --- */

unsigned pump_alive_count(const struct pump *pump)
{
    unsigned count = 0;

    for (unsigned i = 0; i < pump->node_count; i++)
        if (pump->nodes[i].is_alive)
            count++;
    return count;
}

uint64_t pump_epoch(const struct pump *pump)
{
    return pump->key_view == NULL ? 0 : pump->key_view->epoch;
}

bool pump_is_member(const struct pump *pump, unsigned node)
{
    return pump->key_view != NULL &&
           muster_view_find(pump->key_view, &pump->nodes[node].member.incarnation, NULL);
}

enum muster_membership_state pump_state(const struct pump *pump, unsigned node)
{
    return muster_membership_state(pump->nodes[node].machine);
}

bool pump_is_settled(struct pump *pump)
{
    if (pump->key_view == NULL || pump->key_view->member_count != pump_alive_count(pump))
        return false;
    for (unsigned i = 0; i < pump->node_count; i++) {
        struct pump_node *node = &pump->nodes[i];

        if (node->is_alive && (pump_state(pump, i) != MUSTER_MEMBERSHIP_STEADY ||
                               node->view == NULL || node->view->epoch != pump->key_view->epoch))
            return false;
    }
    return true;
}

void pump_print(const struct pump *pump)
{
    fprintf(stderr, "time %.3f s, epoch %llu, registry %s\n", (double)pump->now_ns / 1e9,
            (unsigned long long)pump_epoch(pump), pump->is_registry_up ? "up" : "down");
    for (unsigned i = 0; i < 1024 && i <= pump_epoch(pump); i++)
        if (pump->epochs[i] != NULL)
            fprintf(stderr, "epoch %u: %u members, %u verdicts, %s\n", i,
                    pump->epochs[i]->member_count, pump->epochs[i]->verdict_count,
                    pump->epochs[i]->reason);
    for (unsigned i = 0; i < pump->node_count; i++) {
        const struct pump_node *node = &pump->nodes[i];
        const struct muster_view *view = muster_membership_view(node->machine);

        fprintf(stderr, "node %u worker:%u %s: %s%s%s epoch %llu%s%s step %llu\n", i,
                node->member.task_index, node->member.host_key,
                muster_membership_state_name(pump_state(pump, i)), node->is_alive ? "" : " dead",
                node->is_left ? " left" : "", view == NULL ? 0ULL : (unsigned long long)view->epoch,
                pump_is_member(pump, i) ? " member" : "", node->is_registered ? " registered" : "",
                (unsigned long long)node->begun_step);
        for (unsigned k = 0; k < node->op_count; k++)
            fprintf(stderr, "   op %llu.%u %s chunks %llx %llx %llx, complete from %llx\n",
                    (unsigned long long)node->ops[k].id.step, node->ops[k].id.sequence,
                    node->ops[k].is_delivered ? "delivered" : "open",
                    (unsigned long long)node->ops[k].chunks[0],
                    (unsigned long long)node->ops[k].chunks[1],
                    (unsigned long long)node->ops[k].chunks[2],
                    (unsigned long long)node->ops[k].complete_from);
    }
}

void pump_open(struct pump *pump, struct muster_mem *mem, uint64_t seed)
{
    memset(pump, 0, sizeof(*pump));
    pump->mem = mem;
    pump->now_ns = PUMP_S(1);
    pump->is_registry_up = true;
    pump->has_ops = true;
    pump->expected_count = 1;
    muster_rng_seeded_init(&pump->rng, seed);
}

void pump_close(struct pump *pump)
{
    while (pump->heap_count > 0) {
        struct pump_event event = pump_pop(pump);

        muster_mem_free(pump->mem, event.bytes);
        muster_view_unref(event.view);
    }
    for (unsigned i = 0; i < pump->node_count; i++) {
        pump_ops_abort(&pump->nodes[i]);
        muster_membership_free(pump->nodes[i].machine);
    }
    for (size_t i = 0; i < pump->log_count; i++)
        muster_view_unref(pump->log[i].view);
    for (size_t i = 0; i < 1024; i++)
        muster_view_unref(pump->epochs[i]);
    muster_view_unref(pump->key_view);
    muster_mem_free(pump->mem, pump->heap);
    muster_mem_free(pump->mem, pump->log);
}
