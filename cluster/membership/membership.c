/* The membership machine from above: made, asked, and stepped. Events record facts in its parts; settle decides what
 * follows. */
#include "cluster/membership/membership_internal.h"

#include <string.h>

#include "cluster/membership/progress_proto.h"
#include "collective/plan/plan.h"

/* Ten heartbeats fit into the shortest silence that is suspected (suspicion.c). */
#define HEARTBEAT_INTERVAL_NS  (100 * MUSTER_NS_PER_MS)
#define MIN_MEMBERS_TIMEOUT_NS (60 * MUSTER_NS_PER_S)
/* No chain of moves in one step is longer; the bound keeps two states that move to each other from hanging
 * the process. */
#define SETTLE_ROUNDS_MAX 8

/* --- new, free, questions --- */

static void fill_defaults(struct muster_membership_options *options)
{
    if (options->expected_count == 0)
        options->expected_count = 1;
    if (options->min_members == 0)
        options->min_members = 1;
    if (options->min_members_timeout_ns == 0)
        options->min_members_timeout_ns = MIN_MEMBERS_TIMEOUT_NS;
    if (options->heartbeat_interval_ns == 0)
        options->heartbeat_interval_ns = HEARTBEAT_INTERVAL_NS;
    if (options->plan.chunk_bytes == 0)
        options->plan.chunk_bytes = MUSTER_CHUNK_BYTES_DEFAULT;
    options->suspicion = muster_suspicion_policy_defaults(&options->suspicion);
}

enum muster_rc muster_membership_new(const struct muster_membership_options *options,
                                     struct muster_membership **ret_machine)
{
    size_t length = strlen(options->job);
    struct muster_membership *machine;

    if (length == 0 || length >= sizeof(machine->job))
        return MUSTER_INVALID_ARGUMENT;
    machine = muster_mem_alloc_zero(options->mem, 1, sizeof(*machine));
    if (machine == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    machine->options = *options;
    memcpy(machine->job, options->job, length + 1);
    machine->options.job = machine->job;
    fill_defaults(&machine->options);
    *ret_machine = machine;
    return MUSTER_OK;
}

void muster_membership_free(struct muster_membership *machine)
{
    if (machine == NULL)
        return;
    MUSTER_ASSERT(machine->actions == NULL); /* not from within a step */
    muster_membership_peers_fini(machine);
    muster_membership_proposal_fini(machine);
    muster_progress_free(machine->progress);
    muster_progress_free(machine->retired);
    muster_view_unref(machine->view);
    muster_mem_free(machine->options.mem, machine);
}

enum muster_membership_state muster_membership_state(const struct muster_membership *machine)
{
    return machine->state;
}

struct muster_view *muster_membership_view(const struct muster_membership *machine)
{
    return machine->view;
}

uint64_t muster_membership_timer_ns(const struct muster_membership *machine)
{
    return machine->timer_due_ns == 0 ? UINT64_MAX : machine->timer_due_ns;
}

void muster_membership_set_committed(struct muster_membership *machine, uint64_t step)
{
    machine->committed_step = step;
}

void muster_membership_set_work(struct muster_membership *machine,
                                struct muster_membership_work work)
{
    machine->work = work;
}

bool muster_membership_is_holding(const struct muster_membership *machine)
{
    return machine->join_hold.since_ns != 0 || machine->work_hold.since_ns != 0;
}

uint64_t muster_membership_committed_by(const struct muster_membership *machine,
                                        const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    return peer == NULL ? 0 : peer->committed_step;
}

uint32_t muster_membership_heard_count(const struct muster_membership *machine,
                                       const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    return peer == NULL ? 0 : peer->suspicion.gap_count;
}

/* A state that a peer showed before it was a member is not the one that it was admitted for: its process may
 * have been in the job before, with a step as high. */
static bool has_state(const struct membership_peer *peer, const struct muster_member *member)
{
    return peer != NULL && peer->committed_epoch >= peer->member_epoch &&
           peer->committed_step + 1 >= member->from_step;
}

const struct muster_member *muster_membership_stateless(const struct muster_membership *machine,
                                                        uint64_t step)
{
    for (uint32_t i = 0; machine->view != NULL && i < machine->view->member_count; i++) {
        const struct muster_member *member = &machine->view->members[i];

        if (member->from_step > 0 && member->from_step <= step &&
            !muster_membership_is_self(machine, &member->incarnation) &&
            !has_state(muster_membership_peer_find(machine, &member->incarnation), member))
            return member;
    }
    return NULL;
}

void muster_membership_show_committed(struct muster_membership *machine)
{
    machine->heartbeat_due_ns = 0;
}

/* --- one step --- */

static void on_start(struct muster_membership *machine)
{
    machine->forming_since_ns = machine->now_ns;
    muster_membership_register(machine);
    muster_membership_move(machine, MUSTER_MEMBERSHIP_FORMING);
}

/* If our own timer fired late, we could not have received anything either: extend all deadlines by the lag.
 * Without this a process that was stopped would suspect everybody at once when it goes on, and a leader would
 * give up members that may have come back meanwhile. Lags below one heartbeat are ordinary. */
static void on_tick(struct muster_membership *machine)
{
    uint64_t lag = 0;

    if (machine->timer_due_ns != 0 && machine->now_ns > machine->timer_due_ns)
        lag = machine->now_ns - machine->timer_due_ns;
    machine->timer_due_ns = 0;
    if (lag < machine->options.heartbeat_interval_ns)
        return;
    for (size_t i = 0; i < machine->peer_count; i++)
        muster_suspicion_forgive(&machine->peers[i].suspicion, lag);
    machine->forming_since_ns += lag;
    if (machine->change.below_since_ns != 0)
        machine->change.below_since_ns += lag;
}

/* A vote that was given before the resignation does not say so: it is void, and in a view that counts on it this
 * process resigns again. */
static void on_resign(struct muster_membership *machine)
{
    if (!muster_membership_is_member(machine))
        return;
    machine->resign_epoch = machine->view->epoch;
    machine->is_vote_void = machine->progress != NULL;
    machine->leave_due_ns = 0;
}

static void on_ready(struct muster_membership *machine, uint64_t committed_step)
{
    machine->is_ready = true;
    machine->committed_step = committed_step;
    machine->join_due_ns = 0;
}

static void on_process_dead(struct muster_membership *machine,
                            const struct muster_membership_event *event)
{
    struct membership_peer *peer = muster_membership_peer(machine, &event->peer);

    if (peer == NULL || peer->is_witnessed)
        return;
    peer->is_witnessed = true;
    muster_membership_confirm_dead(machine, peer, event->text);
    if (muster_membership_is_member(machine))
        muster_membership_send_death(machine, peer);
}

static void on_control(struct muster_membership *machine,
                       const struct muster_membership_event *event)
{
    struct membership_peer *peer = muster_membership_peer(machine, &event->peer);

    if (peer == NULL || muster_membership_is_self(machine, &event->peer))
        return;
    muster_suspicion_heard(&peer->suspicion, machine->now_ns);
    muster_membership_handle_control(machine, peer, event->control);
}

static void on_higher_epoch(struct muster_membership *machine,
                            const struct muster_membership_event *event)
{
    struct membership_peer *peer = muster_membership_peer_find(machine, &event->peer);

    if (peer != NULL)
        muster_membership_request_view(machine, peer);
}

static void dispatch_event(struct muster_membership *machine,
                           const struct muster_membership_event *event)
{
    switch (event->kind) {
    case MUSTER_EVENT_START:
        on_start(machine);
        return;
    case MUSTER_EVENT_REGISTRY_UP:
    case MUSTER_EVENT_REGISTRY_DOWN:
    case MUSTER_EVENT_SNAPSHOT_BEGIN:
    case MUSTER_EVENT_SNAPSHOT_END:
    case MUSTER_EVENT_MEMBER_PUT:
    case MUSTER_EVENT_MEMBER_DELETED:
    case MUSTER_EVENT_DEAD_PUT:
        muster_membership_registry_changed(machine, event);
        return;
    case MUSTER_EVENT_VIEW_PUT:
        if (event->view == NULL)
            return;
        machine->shown_epoch = event->view->epoch;
        muster_membership_record_view(machine, event->view, event->revision);
        return;
    case MUSTER_EVENT_VIEW_READ:
        muster_membership_view_read(machine, event);
        return;
    case MUSTER_EVENT_CAS_ANSWERED:
        muster_membership_cas_answered(machine, event);
        return;
    case MUSTER_EVENT_LINK_UP:
    case MUSTER_EVENT_LINK_DOWN:
        muster_membership_link_changed(machine, event);
        return;
    case MUSTER_EVENT_CONTROL:
        on_control(machine, event);
        return;
    case MUSTER_EVENT_PROCESS_DEAD:
        on_process_dead(machine, event);
        return;
    case MUSTER_EVENT_TICK:
        on_tick(machine);
        return;
    case MUSTER_EVENT_FROZEN:
        muster_membership_on_frozen(machine, event->progress);
        return;
    case MUSTER_EVENT_READY:
        on_ready(machine, event->committed_step);
        return;
    case MUSTER_EVENT_LEAVE:
        muster_membership_leave(machine, event->is_done, event->done_calls);
        return;
    case MUSTER_EVENT_QUIT:
        muster_membership_quit(machine);
        return;
    case MUSTER_EVENT_DEREGISTERED:
        machine->is_off = true;
        machine->leave_due_ns = 0;
        return;
    case MUSTER_EVENT_RESIGN:
        on_resign(machine);
        return;
    case MUSTER_EVENT_ABORT_PROPOSED:
        muster_membership_propose_abort(machine, event);
        return;
    case MUSTER_EVENT_PREEMPTED:
        muster_membership_on_preempted(machine, event);
        return;
    case MUSTER_EVENT_PEER_SUSPECTED:
        muster_membership_on_peer_suspected(machine, event);
        return;
    case MUSTER_EVENT_HIGHER_EPOCH:
        on_higher_epoch(machine, event);
        return;
    }
}

static void settle_state(struct muster_membership *machine)
{
    switch (machine->state) {
    case MUSTER_MEMBERSHIP_IDLE:
    case MUSTER_MEMBERSHIP_LEFT:
        return;
    case MUSTER_MEMBERSHIP_FORMING:
        if (machine->is_leaving)
            muster_membership_finish_leaving(machine);
        else
            muster_membership_settle_forming(machine);
        return;
    case MUSTER_MEMBERSHIP_JOINING:
        if (machine->is_leaving)
            muster_membership_finish_leaving(machine);
        else
            muster_membership_settle_joining(machine);
        return;
    case MUSTER_MEMBERSHIP_STEADY:
    case MUSTER_MEMBERSHIP_FROZEN:
        muster_membership_settle_member(machine);
        return;
    case MUSTER_MEMBERSHIP_COLLECTING:
    case MUSTER_MEMBERSHIP_WAITING:
        muster_membership_settle_change(machine);
        return;
    case MUSTER_MEMBERSHIP_PROPOSING:
        muster_membership_settle_proposal(machine);
        return;
    }
}

/* Events only state facts; what follows from the facts is done here, until nothing more follows. All
 * deadlines are asked for in each pass, and the earliest becomes the timer. Messages come after the state:
 * they carry the newest view. */
static void settle_machine(struct muster_membership *machine)
{
    machine->wake_ns = UINT64_MAX;
    for (int round = 0; round < SETTLE_ROUNDS_MAX; round++) {
        enum muster_membership_state before = machine->state;

        settle_state(machine);
        if (machine->state == before)
            break;
    }
    if (machine->state == MUSTER_MEMBERSHIP_IDLE || machine->state == MUSTER_MEMBERSHIP_LEFT)
        return;
    muster_membership_settle_messages(machine);
    muster_membership_settle_links(machine);
    if (machine->wake_ns != machine->timer_due_ns) {
        machine->timer_due_ns = machine->wake_ns;
        muster_membership_act(machine, MUSTER_ACTION_SET_TIMER)->due_ns = machine->wake_ns;
    }
}

/* Not re-entrant: the driver carries out the actions only after the step, and feeds what follows from them
 * as further events. A view is followed before anything is settled, so no decision is made on a view that is
 * known to be past. */
enum muster_rc muster_membership_step(struct muster_membership *machine,
                                      const struct muster_membership_event *event, uint64_t now_ns,
                                      struct muster_membership_actions *actions)
{
    MUSTER_ASSERT(machine->actions == NULL && actions != NULL);
    machine->rc = MUSTER_OK;
    machine->now_ns = now_ns;
    muster_progress_free(machine->retired);
    machine->retired = NULL;
    if (machine->state == MUSTER_MEMBERSHIP_LEFT) {
        muster_progress_free(event->progress);
        return MUSTER_OK;
    }
    machine->actions = actions;
    dispatch_event(machine, event);
    muster_membership_follow_recorded_view(machine);
    settle_machine(machine);
    machine->actions = NULL;
    return machine->rc;
}
