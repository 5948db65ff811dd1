/* The first view, and a new beginning when every member of the last one is dead. Until there is a view the
 * registry's keys are all that processes know of each other; every candidate may propose, and the swap on
 * the absent (or old) key lets one of them win (docs/protocol.md, "The first view and new beginnings"). */
#include <stdlib.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"

/* The kernel reports the exit of a process that is being watched within this time, so a killed one does not
 * become a member. */
#define FORMING_LOOK_NS (2 * MUSTER_NS_PER_MS)
#define FORMING_STEP_NS (50 * MUSTER_NS_PER_MS) /* rank k proposes k of them later than the first */

/* Only confirmed deaths count: a member that is merely silent may train on, and two jobs would run on one
 * state. With is_force_new the operator answers for it, but a member with a link or a lease is alive
 * whatever was said. */
bool muster_membership_is_view_dead(const struct muster_membership *machine)
{
    const struct muster_view *view = machine->view;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct membership_peer *peer =
            muster_membership_peer_find(machine, &view->members[i].incarnation);

        if (peer == NULL)
            return false;
        if (peer->suspicion.is_dead)
            continue;
        if (!machine->options.is_force_new || peer->link == MEMBERSHIP_LINK_UP ||
            peer->is_registered)
            return false;
    }
    return true;
}

struct ends {
    bool is_done;
    uint64_t done_step; /* the last step of those whose work was done */
    uint64_t step;      /* of all */
};

static void count_end(struct ends *ends, const struct membership_peer *peer)
{
    ends->is_done = ends->is_done || peer->is_recorded_done;
    if (peer->is_recorded_done && peer->committed_step > ends->done_step)
        ends->done_step = peer->committed_step;
    if (peer->committed_step > ends->step)
        ends->step = peer->committed_step;
}

/* Those who had the state are in no view any more: all have left, or a view is left without the state. While a member
 * lacks it nobody begins the step from which that member takes part, so they have not gone beyond the one before. It
 * had been begun when that member came: a program that finds nothing to do in it ends with the step before that. */
static bool count_former(const struct muster_membership *machine, struct ends *ends)
{
    const struct muster_view *view = machine->view;

    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        /* Records of an earlier job of this name may be there still, and of this one before it began anew. */
        if (peer->is_recorded && peer->recorded_epoch >= view->begin_epoch)
            count_end(ends, peer);
    }
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].from_step > ends->done_step + 2)
            return false;
    return true;
}

/* The work is done when a member left or ended with success having done it, and no member of the last view had gone
 * beyond that step. is_sure: only records of launchers count. */
static bool is_work_done(const struct muster_membership *machine, bool is_sure)
{
    const struct muster_view *view = machine->view;
    struct ends ends = {.is_done = view->is_done, .done_step = view->done_step};

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct membership_peer *peer =
            muster_membership_peer_find(machine, &view->members[i].incarnation);

        if (peer == NULL || (is_sure && !peer->is_recorded))
            return false;
        count_end(&ends, peer);
    }
    if (!ends.is_done && (view->member_count == 0 || view->is_state_lost) &&
        !count_former(machine, &ends))
        return false;
    return ends.is_done && ends.step <= ends.done_step;
}

bool muster_membership_fail_if_over(struct muster_membership *machine, bool is_sure)
{
    if (machine->view == NULL || machine->is_leaving ||
        !(machine->options.is_return || machine->has_seen_members) ||
        !muster_membership_is_view_dead(machine) || !is_work_done(machine, is_sure))
        return false;
    muster_membership_fail(machine, MUSTER_OUT_OF_RANGE,
                           machine->view->member_count == 0
                               ? "the job has ended: all its members have left"
                               : "the job has ended: some of its members have finished, and no "
                                 "other is left");
    return true;
}

/* A record outlives the job of its process, which may not know that it is over: for a new beginning only
 * those count that ask for one. The number is that of the dead view. It is in the record before this process
 * may count itself, so that all candidates see the same ones. */
static void ask_to_begin(struct muster_membership *machine)
{
    if (machine->view == NULL || machine->begins_after == machine->view->epoch)
        return;
    machine->begins_after = machine->view->epoch;
    muster_membership_register(machine);
}

static bool is_beginner(const struct muster_membership *machine, const struct membership_peer *peer)
{
    return peer->is_registered && peer->has_record && !peer->suspicion.is_dead &&
           (machine->view == NULL || peer->begins_after >= machine->view->epoch);
}

/* Two processes may hold one task: the one registered later counts. The registry's revisions order the two
 * in the same way for all that look. */
static bool is_superseded(const struct muster_membership *machine,
                          const struct membership_peer *peer)
{
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *other = &machine->peers[i];

        if (other != peer && is_beginner(machine, other) &&
            muster_member_compare(&other->member, &peer->member) == 0 &&
            other->register_revision > peer->register_revision)
            return true;
    }
    return false;
}

static bool is_candidate(const struct muster_membership *machine,
                         const struct membership_peer *peer)
{
    return is_beginner(machine, peer) && !is_superseded(machine, peer);
}

uint32_t muster_membership_candidate_count(const struct muster_membership *machine)
{
    uint32_t count = 0;

    for (size_t i = 0; i < machine->peer_count; i++)
        if (is_candidate(machine, &machine->peers[i]))
            count++;
    return count;
}

bool muster_membership_is_candidate(const struct muster_membership *machine, const char *task_type,
                                    uint32_t task_index)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (is_candidate(machine, &machine->peers[i]) &&
            machine->peers[i].member.task_index == task_index &&
            strcmp(machine->peers[i].member.task_type, task_type) == 0)
            return true;
    return false;
}

const struct membership_peer *muster_membership_rival_find(const struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++) {
        const struct membership_peer *peer = &machine->peers[i];

        if (is_beginner(machine, peer) &&
            !muster_membership_is_self(machine, &peer->member.incarnation) &&
            muster_member_compare(&peer->member, &machine->options.self) == 0)
            return peer;
    }
    return NULL;
}

void muster_membership_set_expected(struct muster_membership *machine, uint32_t count)
{
    machine->options.expected_count = count == 0 ? 1 : count;
}

/* A view from a member may be ahead of what the registry has shown, and then a process that left with that view
 * would still count as a candidate. A leaver's record is deleted before the view without it is committed, so it is
 * enough that the registry has shown that view. */
static bool is_informed(const struct muster_membership *machine)
{
    return machine->is_registry_up && machine->is_synced &&
           (machine->view == NULL || machine->shown_epoch >= machine->view->epoch);
}

/* After the timeout min_members are enough: a task that never starts must not stop the job. But a job that needs
 * several machines does not begin on one. */
static bool has_enough(struct muster_membership *machine)
{
    uint32_t count = muster_membership_candidate_count(machine);

    if (count >= machine->options.expected_count)
        return true;
    return muster_membership_is_due(machine, machine->forming_since_ns +
                                                 machine->options.min_members_timeout_ns) &&
           count >= machine->options.min_members && count >= machine->options.min_members_start;
}

/* Registry entries outlive a process by up to one lease. Candidates on this host are watched through the kernel
 * instead, which reports an exit within FORMING_LOOK_NS. */
static void watch_candidates(struct muster_membership *machine)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (is_candidate(machine, &machine->peers[i]))
            muster_membership_peer_watch(machine, &machine->peers[i]);
}

/* The place of this process among the candidates. */
static uint32_t own_place(const struct muster_membership *machine)
{
    uint32_t place = 0;

    for (size_t i = 0; i < machine->peer_count; i++)
        if (is_candidate(machine, &machine->peers[i]) &&
            muster_member_compare(&machine->peers[i].member, &machine->options.self) < 0)
            place++;
    return place;
}

static int compare_members(const void *a, const void *b)
{
    return muster_member_compare(a, b);
}

/* The options of the first candidate in rank order count, whichever process makes the view: rivals that see
 * the same candidates propose the same options. */
static void set_options(struct muster_membership *machine, struct muster_view *fields)
{
    const struct membership_peer *first =
        muster_membership_peer_find(machine, &fields->members[0].incarnation);

    MUSTER_ASSERT(first != NULL);
    fields->communication = first->communication;
    fields->plan.is_reproducible = first->asks_reproducible;
    fields->data_protection = first->data_protection;
    fields->is_fixed_size = first->is_fixed_size;
}

/* Several candidates may make a view at once; the swap lets one of them win. All members have from_step 0:
 * there is no state to catch up with, since its holders are dead. */
static enum muster_rc make_view(struct muster_membership *machine, struct muster_view **ret_view)
{
    struct muster_mem *mem = machine->options.mem;
    struct muster_view fields = {.plan = machine->options.plan, .reason = "first view"};
    enum muster_rc rc;

    memcpy(fields.job, machine->job, sizeof(fields.job));
    fields.epoch = machine->view == NULL ? 1 : machine->view->epoch + 1;
    fields.begin_epoch = fields.epoch;
    if (machine->view != NULL)
        memcpy(fields.reason, MUSTER_VIEW_ANEW, sizeof(MUSTER_VIEW_ANEW));
    fields.members = muster_mem_alloc_zero(mem, machine->peer_count, sizeof(*fields.members));
    if (fields.members == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < machine->peer_count; i++)
        if (is_candidate(machine, &machine->peers[i])) {
            fields.members[fields.member_count] = machine->peers[i].member;
            fields.members[fields.member_count++].from_step = 0;
        }
    MUSTER_ASSERT(fields.member_count > 0); /* this process is a candidate itself */
    qsort(fields.members, fields.member_count, sizeof(*fields.members), compare_members);
    set_options(machine, &fields);
    rc = muster_view_new(mem, &fields, ret_view);
    muster_mem_free(mem, fields.members);
    return rc;
}

/* Later ranks wait a little longer, so that usually one process proposes. The wait begins again when a
 * candidate is missing once more: forming_due_ns counts from when all were there. */
void muster_membership_settle_forming(struct muster_membership *machine)
{
    const struct membership_peer *self =
        muster_membership_peer_find(machine, &machine->options.self.incarnation);
    struct muster_view *view = NULL;

    MUSTER_ASSERT(machine->state == MUSTER_MEMBERSHIP_FORMING);
    if (machine->view != NULL && !muster_membership_is_view_dead(machine)) {
        muster_membership_move(machine, MUSTER_MEMBERSHIP_JOINING);
        return;
    }
    if (machine->is_synced && (muster_membership_fail_if_over(machine, true) ||
                               muster_membership_fail_if_stopping(machine)))
        return;
    if (is_informed(machine)) {
        ask_to_begin(machine);
        watch_candidates(machine);
    }
    if (!is_informed(machine) || self == NULL || !is_candidate(machine, self) ||
        !has_enough(machine)) {
        machine->forming_due_ns = 0;
        return;
    }
    if (machine->forming_due_ns == 0)
        machine->forming_due_ns =
            machine->now_ns + FORMING_LOOK_NS +
            muster_membership_jitter(machine, own_place(machine) * FORMING_STEP_NS);
    if (!muster_membership_is_due(machine, machine->forming_due_ns))
        return;
    if (machine->view != NULL && !muster_membership_knows_revision(machine))
        return;
    if (muster_membership_fail_if_over(machine, false))
        return;
    if (make_view(machine, &view) != MUSTER_OK) {
        machine->rc = MUSTER_RESOURCE_EXHAUSTED;
        return;
    }
    machine->forming_due_ns = 0;
    muster_membership_propose(machine, view);
}
