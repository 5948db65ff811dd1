/* The compare-and-swap that makes a view true, and what to do when its answer is lost. This is the only
 * place where members could disagree: whatever leaders believe of each other, the registry applies at most
 * one swap per revision of the key, and everybody follows the view that the key holds (docs/protocol.md,
 * "The swap"). */
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "runtime/value/backoff.h"

/* Members stand frozen meanwhile, so the first attempts come soon; the last second bounds the load on a
 * registry that is coming back. */
static const struct muster_backoff read_backoff = {
    .first_ns = 50 * MUSTER_NS_PER_MS, .max_ns = 1 * MUSTER_NS_PER_S, .growth_permille = 2000};

void muster_membership_proposal_fini(struct muster_membership *machine)
{
    muster_view_unref(machine->proposal.view);
    machine->proposal.view = NULL;
    machine->proposal.is_reading = false;
}

/* The swap names the revision of the key that the decision was made on. A rival's swap changes that
 * revision, so at most one view E+1 is ever committed, however many leaders propose. The answer is known by
 * cas_id: one that belongs to an earlier proposal must not be taken for this one's. */
void muster_membership_propose(struct muster_membership *machine, struct muster_view *view)
{
    struct muster_membership_action *action;

    MUSTER_ASSERT(view != NULL);
    MUSTER_ASSERT(machine->view == NULL || view->epoch == machine->view->epoch + 1);
    muster_membership_proposal_fini(machine);
    machine->proposal.view = view;
    machine->proposal.cas_id = ++machine->id_last;
    action = muster_membership_act(machine, MUSTER_ACTION_CAS);
    action->id = machine->proposal.cas_id;
    action->view = muster_view_ref(view);
    action->revision = machine->revision;
    muster_membership_move(machine, MUSTER_MEMBERSHIP_PROPOSING);
}

/* Send the view to every linked process: members of the old and the new view, excluded ones, observers. They
 * would see it by the registry's watch too; this is a matter of speed. */
static void announce_view(struct muster_membership *machine, struct muster_view *view,
                          uint64_t revision)
{
    struct muster_control control = {.kind = MUSTER_CONTROL_COMMIT};

    MUSTER_ASSERT(view != NULL);
    control.view = view;
    control.revision = revision;
    for (size_t i = 0; i < machine->peer_count; i++)
        muster_membership_send(machine, &machine->peers[i], &control);
}

/* The digest is compared, not the number: a rival may have committed another view of the same number. */
static bool is_proposed(const struct muster_membership *machine, const struct muster_view *view)
{
    return machine->proposal.view != NULL && view != NULL &&
           machine->proposal.view->digest == view->digest;
}

/* The registry's watch or a peer may show our own proposal before the answer to the swap comes; it is
 * committed all the same, and announced then. Following it waits until the event is recorded: the part that
 * has called may still hold pointers into the old view. */
void muster_membership_record_view(struct muster_membership *machine, struct muster_view *view,
                                   uint64_t revision)
{
    MUSTER_ASSERT(machine->seen_view == NULL);
    if (is_proposed(machine, view)) {
        machine->proposal.backoff_ns = 0;
        announce_view(machine, view, revision);
    }
    machine->seen_view = muster_view_ref(view);
    machine->seen_revision = revision;
}

static void read_later(struct muster_membership *machine, bool is_at_once)
{
    struct membership_proposal *proposal = &machine->proposal;

    proposal->is_reading = true;
    proposal->read_due_ns = machine->now_ns;
    if (is_at_once)
        return;
    proposal->read_due_ns += muster_membership_jitter(
        machine, muster_backoff_next(&read_backoff, &proposal->backoff_ns, NULL));
}

/* LOST: another leader was faster, and its view is in the key. UNKNOWN: the swap may have been applied or
 * not. In both cases the key is read before anything is decided again; proposing again without reading could
 * only be refused. */
void muster_membership_cas_answered(struct muster_membership *machine,
                                    const struct muster_membership_event *event)
{
    if (machine->state != MUSTER_MEMBERSHIP_PROPOSING || event->id != machine->proposal.cas_id)
        return;
    if (event->cas != MUSTER_CAS_WON) {
        read_later(machine, event->cas == MUSTER_CAS_LOST);
        return;
    }
    muster_membership_record_view(machine, machine->proposal.view, event->revision);
}

/* The key as it is. A later view wins, be it ours or a rival's. Else the proposal was not applied at the
 * time of the read, and the change is decided again. If that swap is applied later all the same, the new
 * proposal names the same revision and is refused, or was applied first and refuses the old one. */
static void read_key(struct muster_membership *machine, struct muster_view *view, uint64_t revision)
{
    if (view != NULL && (machine->view == NULL || view->epoch > machine->view->epoch)) {
        muster_membership_record_view(machine, view, revision);
        return;
    }
    machine->revision = view == NULL ? 0 : revision;
    machine->is_revision_known = true;
    if (machine->state != MUSTER_MEMBERSHIP_PROPOSING)
        return;
    muster_membership_proposal_fini(machine);
    muster_membership_move(machine, muster_membership_is_member(machine)
                                        ? MUSTER_MEMBERSHIP_COLLECTING
                                        : MUSTER_MEMBERSHIP_FORMING);
}

void muster_membership_view_read(struct muster_membership *machine,
                                 const struct muster_membership_event *event)
{
    machine->proposal.is_read_sent = false;
    if (machine->state == MUSTER_MEMBERSHIP_PROPOSING && !machine->proposal.is_reading)
        return; /* an older read; the swap under way will answer */
    if (event->rc == MUSTER_OK)
        read_key(machine, event->view, event->revision);
    else
        read_later(machine, false);
}

/* One read at a time: an answer is matched to no request, so a second one under way could show an older key. */
static void read_view(struct muster_membership *machine)
{
    if (machine->proposal.is_read_sent || !machine->is_registry_up ||
        !muster_membership_is_due(machine, machine->proposal.read_due_ns))
        return;
    machine->proposal.is_read_sent = true;
    muster_membership_act(machine, MUSTER_ACTION_READ_VIEW);
}

/* A view that came from a member may carry no revision, and a swap without it would be refused. */
bool muster_membership_knows_revision(struct muster_membership *machine)
{
    if (!machine->is_revision_known)
        read_view(machine);
    return machine->is_revision_known;
}

void muster_membership_settle_proposal(struct muster_membership *machine)
{
    MUSTER_ASSERT(machine->proposal.view != NULL);
    if (machine->proposal.is_reading)
        read_view(machine);
}
