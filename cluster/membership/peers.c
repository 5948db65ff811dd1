/* The other processes as the membership machine knows them: records, beliefs, links. All facts about a peer
 * are kept here with the epoch in which they count, so that a new view voids them by its number alone.
 * Beliefs come from suspicion.c; the parts above read the records directly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "cluster/membership/progress_proto.h"
#include "runtime/value/array.h"
#include "runtime/value/backoff.h"

/* A process outside the view keeps its link this long without a word. Observers send heartbeats and joiners
 * repeat their Join, so one that is silent has gone for good. */
#define STRANGER_SILENCE_NS (30 * MUSTER_NS_PER_S)

/* The machine's own generator adds the jitter, and only where a wait is waited. */
static const struct muster_backoff connect_backoff = {
    .first_ns = 20 * MUSTER_NS_PER_MS, .max_ns = 1 * MUSTER_NS_PER_S, .growth_permille = 2000};

/* link_moves[from]: a link may come up without having been opened here, and be replaced by another one. */
static const unsigned link_moves[MEMBERSHIP_LINK_STATES] = {
    [MEMBERSHIP_LINK_NONE] =
        1u << MEMBERSHIP_LINK_NONE | 1u << MEMBERSHIP_LINK_CONNECTING | 1u << MEMBERSHIP_LINK_UP,
    [MEMBERSHIP_LINK_CONNECTING] = 1u << MEMBERSHIP_LINK_NONE | 1u << MEMBERSHIP_LINK_UP,
    [MEMBERSHIP_LINK_UP] = 1u << MEMBERSHIP_LINK_NONE | 1u << MEMBERSHIP_LINK_UP,
};

static void link_move(struct membership_peer *peer, enum membership_link to)
{
    MUSTER_ASSERT((link_moves[peer->link] >> to & 1u) != 0);
    peer->link = to;
}

static bool reserve_peer(struct muster_membership *machine)
{
    void *peers = muster_array_reserve(machine->options.mem, machine->peers, machine->peer_count,
                                       &machine->peer_room, sizeof(*machine->peers));

    if (peers == NULL) {
        machine->rc = MUSTER_RESOURCE_EXHAUSTED;
        return false;
    }
    machine->peers = peers;
    return true;
}

/* Peers are never removed: a record of a dead process must stay, or a late message would make it look alive.
 * Incarnations are random and not used twice, so the array grows with the number of processes that the job
 * has had. */
struct membership_peer *muster_membership_peer(struct muster_membership *machine,
                                               const struct muster_incarnation *incarnation)
{
    struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    if (peer != NULL)
        return peer;
    if (!reserve_peer(machine))
        return NULL;
    peer = &machine->peers[machine->peer_count++];
    memset(peer, 0, sizeof(*peer));
    peer->member.incarnation = *incarnation;
    muster_suspicion_init(&peer->suspicion, false);
    return peer;
}

/* An empty key means that the host is not known; such a process counts as remote, which never delays its
 * suspicion. */
static bool is_same_host(const struct muster_membership *machine,
                         const struct muster_member *member)
{
    return member->host_key[0] != '\0' &&
           strcmp(member->host_key, machine->options.self.host_key) == 0;
}

void muster_membership_peer_watch(struct muster_membership *machine, struct membership_peer *peer)
{
    if (peer->is_watched || !peer->has_record || !peer->suspicion.is_same_host ||
        peer->suspicion.is_dead || muster_membership_is_self(machine, &peer->member.incarnation))
        return;
    peer->is_watched = true;
    muster_membership_act(machine, MUSTER_ACTION_WATCH)->member = peer->member;
}

/* A peer of our view is watched by its PID before a connection exists: it may die before that. A record without a
 * start time may name a process that has got the PID since: a member watches that one for nothing, but an observer
 * would wait for it. */
static bool is_known_by_pid(const struct muster_membership *machine,
                            const struct membership_peer *peer)
{
    return muster_membership_in_view(machine, peer) &&
           (peer->member.started != 0 || muster_membership_is_member(machine));
}

/* from_step belongs to the view, not to the record: a record that is put again must not reset it. */
void muster_membership_peer_record(struct muster_membership *machine, struct membership_peer *peer,
                                   const struct muster_member *member)
{
    uint64_t from_step = peer->member.from_step;

    MUSTER_ASSERT(muster_incarnation_is_equal(&peer->member.incarnation, &member->incarnation));
    peer->member = *member;
    peer->member.from_step = from_step;
    peer->has_record = true;
    peer->suspicion.is_same_host = is_same_host(machine, member);
    if (peer->link == MEMBERSHIP_LINK_UP || is_known_by_pid(machine, peer))
        muster_membership_peer_watch(machine, peer);
}

enum muster_belief muster_membership_peer_belief(const struct muster_membership *machine,
                                                 const struct membership_peer *peer)
{
    if (muster_membership_is_self(machine, &peer->member.incarnation))
        return MUSTER_BELIEF_ALIVE;
    return muster_suspicion_belief(&peer->suspicion, &machine->options.suspicion, machine->now_ns);
}

enum muster_belief muster_membership_belief(const struct muster_membership *machine,
                                            const struct muster_incarnation *incarnation,
                                            uint64_t now_ns)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    if (peer == NULL || muster_membership_is_self(machine, incarnation))
        return MUSTER_BELIEF_ALIVE;
    return muster_suspicion_belief(&peer->suspicion, &machine->options.suspicion, now_ns);
}

const struct muster_member *muster_membership_find(const struct muster_membership *machine,
                                                   const struct muster_incarnation *incarnation)
{
    const struct membership_peer *peer = muster_membership_peer_find(machine, incarnation);

    return peer != NULL && peer->has_record ? &peer->member : NULL;
}

static uint64_t number_behind(const char *text, const char *word)
{
    const char *at = strstr(text, word);

    return at == NULL ? 0 : strtoull(at + strlen(word), NULL, 10);
}

/* Texts of the launcher (docs/protocol.md, "Registry keys"): "SIGKILL", "SIGKILL at step 150 in view 3",
 * "exit 0 at step 900 in view 7, done". The step only raises what the heartbeats have shown: both are true, and
 * the launcher may have read an older report. */
static void read_record(struct membership_peer *peer, const char *text)
{
    static const char done[] = ", done";
    size_t length = strlen(text);
    uint64_t number = number_behind(text, " at step ");

    peer->is_recorded = true;
    peer->recorded_epoch = number_behind(text, " in view ");
    peer->is_recorded_done =
        length >= sizeof(done) - 1 && strcmp(text + length - (sizeof(done) - 1), done) == 0;
    if (number > peer->committed_step)
        peer->committed_step = number;
}

/* A confirmation is final: no later heartbeat or link makes the process alive again. A second one may still
 * bring a better text than the first. */
void muster_membership_confirm_dead(struct muster_membership *machine, struct membership_peer *peer,
                                    const char *text)
{
    if (text != NULL && text[0] != '\0')
        snprintf(peer->death, sizeof(peer->death), "%s", text);
    if (peer->suspicion.is_dead)
        return;
    muster_suspicion_confirm(&peer->suspicion);
    peer->join_epoch = 0;
    if (peer->link != MEMBERSHIP_LINK_NONE) {
        muster_membership_act(machine, MUSTER_ACTION_DISCONNECT)->peer = peer->member.incarnation;
        link_move(peer, MEMBERSHIP_LINK_NONE);
    }
}

/* --- links --- */

/* A new link is a reason to speak at once: the deadlines of all repeated messages are due now. */
static void link_up(struct muster_membership *machine, struct membership_peer *peer)
{
    if (peer->suspicion.is_dead) {
        muster_membership_act(machine, MUSTER_ACTION_DISCONNECT)->peer = peer->member.incarnation;
        return;
    }
    link_move(peer, MEMBERSHIP_LINK_UP);
    peer->connect_backoff_ns = 0;
    muster_suspicion_link_up(&peer->suspicion, machine->now_ns);
    muster_membership_peer_watch(machine, peer);
    machine->join_due_ns = 0;
    machine->leave_due_ns = 0;
    machine->heartbeat_due_ns = 0;
    machine->change.freeze_due_ns = 0;
}

/* A link that was up is tried again at once, because its loss may be that of a connection only. An attempt
 * that failed waits, longer each time. The next Join is due now: it tells the leader which members this
 * process does not reach. */
static void link_down(struct muster_membership *machine, struct membership_peer *peer)
{
    uint64_t wait_ns = muster_backoff_next(&connect_backoff, &peer->connect_backoff_ns, NULL);

    peer->connect_due_ns = machine->now_ns;
    if (peer->link != MEMBERSHIP_LINK_UP)
        peer->connect_due_ns += muster_membership_jitter(machine, wait_ns);
    link_move(peer, MEMBERSHIP_LINK_NONE);
    peer->has_asked = false;
    machine->join_due_ns = 0;
    muster_suspicion_link_down(&peer->suspicion, machine->now_ns);
}

void muster_membership_link_changed(struct muster_membership *machine,
                                    const struct muster_membership_event *event)
{
    struct membership_peer *peer = muster_membership_peer(machine, &event->peer);

    if (peer == NULL || muster_membership_is_self(machine, &event->peer))
        return;
    if (event->kind == MUSTER_EVENT_LINK_UP)
        link_up(machine, peer);
    else
        link_down(machine, peer);
}

/* Between two members the smaller incarnation opens the link, so that two members do not open two at once. A
 * joiner opens one to every member: the members may not know its record yet. */
static bool opens_link(const struct muster_membership *machine, const struct membership_peer *peer)
{
    if (!peer->has_record || peer->suspicion.is_dead ||
        muster_membership_is_self(machine, &peer->member.incarnation) ||
        !muster_membership_in_view(machine, peer))
        return false;
    if (!muster_membership_is_member(machine))
        return true;
    return memcmp(machine->options.self.incarnation.bytes, peer->member.incarnation.bytes,
                  sizeof(peer->member.incarnation.bytes)) < 0;
}

/* Members' links are never dropped for silence: suspicion decides about members. A stranger that says
 * nothing any more is not watched by anything else. */
static bool drops_link(const struct muster_membership *machine, const struct membership_peer *peer)
{
    return peer->link == MEMBERSHIP_LINK_UP && !muster_membership_in_view(machine, peer) &&
           machine->now_ns > peer->suspicion.heard_ns + STRANGER_SILENCE_NS;
}

/* A renewal is asked for once per silence (the due time names the silence); from then on the driver tries by
 * itself (docs/protocol.md, "Links"). */
static void renew_link(struct muster_membership *machine, struct membership_peer *peer)
{
    uint64_t due_ns = muster_suspicion_renew_ns(&peer->suspicion, &machine->options.suspicion);

    if (due_ns == UINT64_MAX || peer->renewed_ns == due_ns ||
        !muster_membership_is_due(machine, due_ns))
        return;
    peer->renewed_ns = due_ns;
    muster_membership_act(machine, MUSTER_ACTION_RENEW)->peer = peer->member.incarnation;
}

void muster_membership_settle_links(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++) {
        struct membership_peer *peer = &machine->peers[i];

        if (drops_link(machine, peer)) {
            muster_membership_act(machine, MUSTER_ACTION_DISCONNECT)->peer =
                peer->member.incarnation;
            link_move(peer, MEMBERSHIP_LINK_NONE);
            muster_suspicion_link_down(&peer->suspicion, machine->now_ns);
        }
        renew_link(machine, peer);
        if (peer->link != MEMBERSHIP_LINK_NONE || !opens_link(machine, peer) ||
            !muster_membership_is_due(machine, peer->connect_due_ns))
            continue;
        link_move(peer, MEMBERSHIP_LINK_CONNECTING);
        muster_membership_act(machine, MUSTER_ACTION_CONNECT)->member = peer->member;
    }
}

/* --- the registry's news --- */

/* The view's entry of a member counts for as long as it is in the view, so its record does not replace that.
 * The wishes in a record (options, begins_after) belong to the registration and are taken from every put. */
static void member_put(struct muster_membership *machine,
                       const struct muster_membership_event *event)
{
    const struct muster_member_record *record = event->record;
    struct membership_peer *peer = muster_membership_peer(machine, &record->member.incarnation);

    if (peer == NULL)
        return;
    if (!muster_membership_in_view(machine, peer) || !peer->has_record)
        muster_membership_peer_record(machine, peer, &record->member);
    peer->is_registered = true;
    peer->is_listed = true;
    peer->register_revision = event->revision;
    peer->begins_after = record->begins_after;
    peer->communication = record->communication;
    peer->asks_reproducible = record->is_reproducible;
    peer->data_protection = record->data_protection;
    peer->is_fixed_size = record->is_fixed_size;
}

/* The key of a living process is gone because its lease ran out while it was cut off. That is no sign of
 * death to the others, which judge by links; this process puts its own key again. */
static void member_gone(struct muster_membership *machine, struct membership_peer *peer)
{
    bool was_registered = peer->is_registered;

    peer->is_registered = false;
    if (was_registered && !machine->is_leaving &&
        muster_membership_is_self(machine, &peer->member.incarnation))
        muster_membership_register(machine);
}

/* Keys that the snapshot did not show were deleted while the watch was down. */
static void snapshot_end(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (!machine->peers[i].is_listed)
            member_gone(machine, &machine->peers[i]);
    machine->is_synced = true;
}

void muster_membership_registry_changed(struct muster_membership *machine,
                                        const struct muster_membership_event *event)
{
    struct membership_peer *peer;

    switch (event->kind) {
    case MUSTER_EVENT_REGISTRY_UP:
        machine->is_registry_up = true;
        machine->proposal.read_due_ns = 0;
        return;
    case MUSTER_EVENT_REGISTRY_DOWN:
        machine->is_registry_up = false;
        return;
    case MUSTER_EVENT_SNAPSHOT_BEGIN:
        machine->is_synced = false;
        for (size_t i = 0; i < machine->peer_count; i++)
            machine->peers[i].is_listed = false;
        return;
    case MUSTER_EVENT_SNAPSHOT_END:
        snapshot_end(machine);
        return;
    case MUSTER_EVENT_MEMBER_PUT:
        member_put(machine, event);
        return;
    default:
        break;
    }
    peer = muster_membership_peer(machine, &event->peer);
    if (peer == NULL)
        return;
    if (event->kind == MUSTER_EVENT_MEMBER_DELETED)
        member_gone(machine, peer);
    if (event->kind != MUSTER_EVENT_DEAD_PUT || muster_membership_is_self(machine, &event->peer))
        return;
    read_record(peer, event->text == NULL ? "" : event->text);
    muster_membership_confirm_dead(machine, peer, event->text);
}

/* --- a new view --- */

/* Votes and requests belong to one epoch and end with it: a vote for E+1 lists operations of E, and counting
 * it in a later change would decide about operations that have moved since. */
static void peer_follow(struct muster_membership *machine, struct membership_peer *peer)
{
    muster_progress_free(peer->vote);
    peer->vote = NULL;
    peer->has_asked = false;
    if (muster_membership_in_view(machine, peer)) {
        peer->join_epoch = 0;
        if (peer->member_epoch == 0)
            peer->member_epoch = machine->view->epoch;
        muster_suspicion_expect(&peer->suspicion, machine->now_ns);
    } else {
        peer->member_epoch = 0;
        muster_suspicion_unexpect(&peer->suspicion);
    }
}

/* The view's records are applied before any peer is judged as a member of it. A member whose from_step has
 * changed was out and has come back: what it showed before counts no more (member_epoch). */
void muster_membership_peers_follow(struct muster_membership *machine)
{
    MUSTER_ASSERT(machine->view != NULL);
    for (uint32_t i = 0; i < machine->view->member_count; i++) {
        const struct muster_member *member = &machine->view->members[i];
        struct membership_peer *peer = muster_membership_peer(machine, &member->incarnation);

        if (peer == NULL)
            return;
        muster_membership_peer_record(machine, peer, member);
        if (peer->member.from_step != member->from_step)
            peer->member_epoch = 0; /* it has come back */
        peer->member.from_step = member->from_step;
    }
    for (size_t i = 0; i < machine->peer_count; i++)
        peer_follow(machine, &machine->peers[i]);
}

void muster_membership_peers_fini(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        muster_progress_free(machine->peers[i].vote);
    muster_mem_free(machine->options.mem, machine->peers);
}

bool muster_membership_has_lost_member(const struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (muster_membership_in_view(machine, &machine->peers[i]) &&
            muster_membership_peer_belief(machine, &machine->peers[i]) != MUSTER_BELIEF_ALIVE)
            return true;
    return false;
}

bool muster_membership_is_evicted(const struct muster_membership *machine,
                                  const struct muster_incarnation *incarnation)
{
    return machine->change.has_evicted &&
           muster_incarnation_is_equal(&machine->change.evicted, incarnation);
}

/* A vote counts only while its sender is believed alive: a member that voted and died since must not be in
 * the next view. Leaving a living voter out is safe too, because it is frozen and sees the view without it. */
bool muster_membership_is_voter(const struct muster_membership *machine,
                                const struct membership_peer *peer)
{
    return peer->vote != NULL &&
           !muster_membership_is_evicted(machine, &peer->member.incarnation) &&
           muster_membership_in_view(machine, peer) &&
           muster_membership_peer_belief(machine, peer) < MUSTER_BELIEF_SUSPECTED;
}

/* DOUBTED is below SUSPECTED: a peer on this host whose link is lost is waited for until its death is
 * confirmed or evict_after has passed. */
bool muster_membership_is_awaited(const struct muster_membership *machine,
                                  const struct membership_peer *peer)
{
    return peer->vote == NULL && muster_membership_in_view(machine, peer) &&
           !muster_membership_is_self(machine, &peer->member.incarnation) &&
           muster_membership_peer_belief(machine, peer) < MUSTER_BELIEF_SUSPECTED;
}
