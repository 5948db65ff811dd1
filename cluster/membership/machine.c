/* The trunk of the membership machine: its states and moves, the list of actions, and helpers that every
 * part calls. */
#include <stdio.h>
#include <string.h>

#include "cluster/membership/membership_internal.h"
#include "runtime/value/array.h"

/* A quarter either way: members that the same event has woken at the same time do not stay in step with each
 * other. */
#define JITTER_PERMILLE 250u

#define IN(state) (1u << MUSTER_MEMBERSHIP_##state)

/* moves[from]: the states that may follow. A committed view may arrive in every state but IDLE and LEFT, by
 * the registry's watch or from a member, so all of them lead to STEADY (it has this process) or JOINING (it
 * has not), each from where that can be. PROPOSING goes back to COLLECTING or FORMING when the key turns out
 * to be unchanged: the change is decided again from the votes of now. COLLECTING and WAITING go to FROZEN
 * when a lower rank leads too. LEFT is final: a process comes back as a new incarnation. */
static const unsigned moves[MUSTER_MEMBERSHIP_STATES] = {
    [MUSTER_MEMBERSHIP_IDLE] = IN(FORMING) | IN(LEFT),
    [MUSTER_MEMBERSHIP_FORMING] = IN(JOINING) | IN(PROPOSING) | IN(STEADY) | IN(LEFT),
    [MUSTER_MEMBERSHIP_JOINING] = IN(FORMING) | IN(STEADY) | IN(LEFT),
    [MUSTER_MEMBERSHIP_STEADY] = IN(FROZEN) | IN(COLLECTING) | IN(JOINING) | IN(LEFT),
    [MUSTER_MEMBERSHIP_FROZEN] = IN(STEADY) | IN(COLLECTING) | IN(JOINING) | IN(LEFT),
    [MUSTER_MEMBERSHIP_COLLECTING] =
        IN(WAITING) | IN(PROPOSING) | IN(FROZEN) | IN(STEADY) | IN(JOINING) | IN(LEFT),
    [MUSTER_MEMBERSHIP_WAITING] = IN(PROPOSING) | IN(FROZEN) | IN(STEADY) | IN(JOINING) | IN(LEFT),
    [MUSTER_MEMBERSHIP_PROPOSING] =
        IN(FORMING) | IN(COLLECTING) | IN(STEADY) | IN(JOINING) | IN(LEFT),
    [MUSTER_MEMBERSHIP_LEFT] = 0,
};

const char *muster_membership_state_name(enum muster_membership_state state)
{
    static const char *const names[MUSTER_MEMBERSHIP_STATES] = {
        [MUSTER_MEMBERSHIP_IDLE] = "idle",       [MUSTER_MEMBERSHIP_FORMING] = "forming",
        [MUSTER_MEMBERSHIP_JOINING] = "joining", [MUSTER_MEMBERSHIP_STEADY] = "steady",
        [MUSTER_MEMBERSHIP_FROZEN] = "frozen",   [MUSTER_MEMBERSHIP_COLLECTING] = "collecting",
        [MUSTER_MEMBERSHIP_WAITING] = "waiting", [MUSTER_MEMBERSHIP_PROPOSING] = "proposing",
        [MUSTER_MEMBERSHIP_LEFT] = "left",
    };

    return names[state];
}

/* --- the list of actions --- */

void muster_membership_actions_init(struct muster_membership_actions *actions,
                                    struct muster_mem *mem)
{
    memset(actions, 0, sizeof(*actions));
    actions->mem = mem;
}

static void action_drop(struct muster_membership_action *action)
{
    muster_view_unref(action->view);
    muster_view_unref(action->control.view);
}

void muster_membership_actions_clear(struct muster_membership_actions *actions)
{
    for (size_t i = 0; i < actions->count; i++)
        action_drop(&actions->items[i]);
    action_drop(&actions->spare);
    memset(&actions->spare, 0, sizeof(actions->spare));
    actions->count = 0;
}

void muster_membership_actions_fini(struct muster_membership_actions *actions)
{
    muster_membership_actions_clear(actions);
    muster_mem_free(actions->mem, actions->items);
}

/* Without memory for the list an action is written here: the step has failed, and nothing reads it. */
static struct muster_membership_action *spare_action(struct muster_membership *machine)
{
    machine->rc = MUSTER_RESOURCE_EXHAUSTED;
    action_drop(&machine->actions->spare);
    memset(&machine->actions->spare, 0, sizeof(machine->actions->spare));
    return &machine->actions->spare;
}

struct muster_membership_action *muster_membership_act(struct muster_membership *machine,
                                                       enum muster_membership_action_kind kind)
{
    struct muster_membership_actions *actions = machine->actions;
    struct muster_membership_action *action, *items;

    MUSTER_ASSERT(actions != NULL);
    items = muster_array_reserve(actions->mem, actions->items, actions->count, &actions->room,
                                 sizeof(*items));
    if (items == NULL)
        return spare_action(machine);
    actions->items = items;
    action = &actions->items[actions->count++];
    memset(action, 0, sizeof(*action));
    action->kind = kind;
    return action;
}

/* --- helpers of all parts --- */

uint64_t muster_membership_epoch(const struct muster_membership *machine)
{
    return machine->view == NULL ? 0 : machine->view->epoch;
}

static void act_trace(struct muster_membership *machine, const char *kind, uint64_t a, uint64_t b,
                      uint64_t c)
{
    struct muster_membership_action *action = muster_membership_act(machine, MUSTER_ACTION_TRACE);

    action->trace_kind = kind;
    action->numbers[0] = a;
    action->numbers[1] = b;
    action->numbers[2] = c;
}

void muster_membership_move(struct muster_membership *machine, enum muster_membership_state to)
{
    MUSTER_ASSERT((moves[machine->state] >> to & 1u) != 0);
    act_trace(machine, "membership_moved", muster_membership_epoch(machine),
              (uint64_t)machine->state, (uint64_t)to);
    machine->state = to;
}

/* A message to a peer without a link is dropped. That is safe because no message is acknowledged: everything
 * that matters is repeated until the view changes (docs/protocol.md, "Control messages"). */
void muster_membership_send(struct muster_membership *machine, const struct membership_peer *peer,
                            const struct muster_control *control)
{
    struct muster_membership_action *action;

    if (peer->link != MEMBERSHIP_LINK_UP)
        return;
    action = muster_membership_act(machine, MUSTER_ACTION_SEND);
    action->peer = peer->member.incarnation;
    action->control = *control;
    if (action->control.view != NULL)
        action->control.view = muster_view_ref(action->control.view);
}

void muster_membership_send_members(struct muster_membership *machine,
                                    const struct muster_control *control)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (muster_membership_in_view(machine, &machine->peers[i]))
            muster_membership_send(machine, &machine->peers[i], control);
}

/* The order of the actions matters: operations end first, so that the program does not wait in one when it
 * is told; the deletion of the record is begun before the program is told, which may end the process then. */
void muster_membership_fail(struct muster_membership *machine, enum muster_rc rc, const char *text)
{
    struct muster_error error;

    MUSTER_ASSERT(rc != MUSTER_OK);
    muster_error_set(&error, rc, "%s", text);
    muster_membership_act(machine, MUSTER_ACTION_ABORT_ALL)->error = error;
    muster_membership_act(machine, MUSTER_ACTION_DEREGISTER);
    muster_membership_act(machine, MUSTER_ACTION_TELL_FAILED)->error = error;
    muster_membership_move(machine, MUSTER_MEMBERSHIP_LEFT);
}

/* A deadline that has not passed becomes a candidate for the next wake-up. Each deadline must therefore be asked
 * for in every settle, or the machine sleeps past it. */
bool muster_membership_is_due(struct muster_membership *machine, uint64_t due_ns)
{
    if (machine->now_ns >= due_ns)
        return true;
    if (due_ns < machine->wake_ns)
        machine->wake_ns = due_ns;
    return false;
}

uint64_t muster_membership_jitter(struct muster_membership *machine, uint64_t delay_ns)
{
    return muster_rng_jitter(machine->options.rng, delay_ns, JITTER_PERMILLE);
}

bool muster_membership_is_self(const struct muster_membership *machine,
                               const struct muster_incarnation *incarnation)
{
    return muster_incarnation_is_equal(&machine->options.self.incarnation, incarnation);
}

/* The epoch is compared, so that a resignation lapses by itself when the next view is adopted. */
bool muster_membership_is_resigning(const struct muster_membership *machine)
{
    return machine->view != NULL && machine->resign_epoch == machine->view->epoch;
}

/* A leaver counts only when its record is deleted (is_off): a record that outlived the view without its
 * process would be a candidate for a new beginning (docs/protocol.md, "The first view and new beginnings"). */
bool muster_membership_must_remove(const struct muster_membership *machine)
{
    return (machine->is_leaving && machine->is_off) || muster_membership_is_resigning(machine);
}

bool muster_membership_votes_resigning(const struct muster_membership *machine)
{
    return muster_membership_is_resigning(machine) && !machine->is_vote_void;
}

bool muster_membership_is_member(const struct muster_membership *machine)
{
    return machine->view != NULL &&
           muster_view_find(machine->view, &machine->options.self.incarnation, NULL);
}

/* A linear search: a control link between every two members limits a job to hundreds of members anyway. */
struct membership_peer *muster_membership_peer_find(const struct muster_membership *machine,
                                                    const struct muster_incarnation *incarnation)
{
    for (size_t i = 0; i < machine->peer_count; i++)
        if (muster_incarnation_is_equal(&machine->peers[i].member.incarnation, incarnation))
            return &machine->peers[i];
    return NULL;
}

bool muster_membership_in_view(const struct muster_membership *machine,
                               const struct membership_peer *peer)
{
    return machine->view != NULL &&
           muster_view_find(machine->view, &peer->member.incarnation, NULL);
}

void muster_membership_register(struct muster_membership *machine)
{
    muster_membership_act(machine, MUSTER_ACTION_REGISTER)->begins_after = machine->begins_after;
}
