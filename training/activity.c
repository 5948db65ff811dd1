/* Where the time of a member goes: states with the time spent in each, waits by task, bytes by
 * wire. Nothing here allocates: it runs at every call of a step. */
#include "training/activity.h"

#include <stdio.h>
#include <string.h>

static const char *const state_names[MUSTER_ACTIVITY_STATES] = {
    [MUSTER_ACTIVITY_START] = "start",     [MUSTER_ACTIVITY_BEGIN] = "begin",
    [MUSTER_ACTIVITY_COMPUTE] = "compute", [MUSTER_ACTIVITY_COLLECTIVE] = "collective",
    [MUSTER_ACTIVITY_OUTSIDE] = "outside", [MUSTER_ACTIVITY_CLOSE] = "close",
};

static const char *const wire_names[MUSTER_ACTIVITY_WIRES] = {
    [MUSTER_ACTIVITY_SHM] = "shm",
    [MUSTER_ACTIVITY_TCP] = "tcp",
    [MUSTER_ACTIVITY_NCCL] = "nccl",
};

#define BIT(state) (1u << MUSTER_ACTIVITY_##state)

/* moves[from]: the states that may follow. A begin that waits for nothing is not a state of its own, so
 * that a step costs little; one without a commit before it repeats the step. */
static const unsigned moves[MUSTER_ACTIVITY_STATES] = {
    [MUSTER_ACTIVITY_START] = BIT(BEGIN) | BIT(COMPUTE) | BIT(OUTSIDE) | BIT(CLOSE),
    [MUSTER_ACTIVITY_BEGIN] = BIT(COMPUTE) | BIT(OUTSIDE) | BIT(CLOSE),
    [MUSTER_ACTIVITY_COMPUTE] =
        BIT(COLLECTIVE) | BIT(COMPUTE) | BIT(OUTSIDE) | BIT(BEGIN) | BIT(CLOSE),
    [MUSTER_ACTIVITY_COLLECTIVE] = BIT(COMPUTE),
    [MUSTER_ACTIVITY_OUTSIDE] = BIT(BEGIN) | BIT(COMPUTE) | BIT(OUTSIDE) | BIT(CLOSE),
    [MUSTER_ACTIVITY_CLOSE] = 0,
};

void muster_activity_init(struct muster_activity *activity, uint64_t now_ns)
{
    *activity = (struct muster_activity){.state = MUSTER_ACTIVITY_START, .since_ns = now_ns};
}

bool muster_activity_may_move(enum muster_activity_state from, enum muster_activity_state to)
{
    return (moves[from] >> to & 1u) != 0;
}

void muster_activity_move(struct muster_activity *activity, enum muster_activity_state state,
                          uint64_t now_ns)
{
    MUSTER_ASSERT(muster_activity_may_move(activity->state, state));
    if (now_ns > activity->since_ns)
        activity->spent_ns[activity->state] += now_ns - activity->since_ns;
    activity->state = state;
    activity->since_ns = now_ns;
    activity->has_met = false;
}

uint64_t muster_activity_spent_ns(const struct muster_activity *activity,
                                  enum muster_activity_state state, uint64_t now_ns)
{
    uint64_t spent_ns = activity->spent_ns[state];

    if (state == activity->state && now_ns > activity->since_ns)
        spent_ns += now_ns - activity->since_ns;
    return spent_ns;
}

/* The entry of this member; of a full table the shortest wait gives its place away, and the time in
 * it stays with the newcomer, so that a long wait is never missed. */
static struct muster_activity_wait *find_wait(struct muster_activity *activity,
                                              const struct muster_member *member)
{
    struct muster_activity_wait *shortest = &activity->waits[0];
    size_t length = strlen(member->task_type);

    for (uint32_t i = 0; i < activity->wait_count; i++) {
        struct muster_activity_wait *wait = &activity->waits[i];

        if (wait->index == member->task_index &&
            strncmp(wait->task, member->task_type, length) == 0 && wait->task[length] == ':')
            return wait;
        if (wait->ns < shortest->ns)
            shortest = wait;
    }
    if (activity->wait_count < MUSTER_ACTIVITY_WAITS_MAX) {
        shortest = &activity->waits[activity->wait_count++];
        shortest->ns = 0;
    }
    MUSTER_ASSERT(activity->wait_count <= MUSTER_ACTIVITY_WAITS_MAX);
    shortest->index = member->task_index;
    snprintf(shortest->task, sizeof(shortest->task), "%s:%u", member->task_type,
             member->task_index);
    return shortest;
}

/* Later operations of a call wait for its earlier ones besides: the first one tells who was late.
 */
static void count_wait(struct muster_activity *activity, const struct muster_op_result *result,
                       const struct muster_view *view)
{
    uint64_t waited_ns;

    if (activity->state != MUSTER_ACTIVITY_COLLECTIVE || activity->has_met)
        return;
    activity->has_met = true;
    if (result->met_ns <= activity->since_ns)
        return; /* all were there before this one */
    waited_ns = result->met_ns - activity->since_ns;
    activity->waiting_ns += waited_ns;
    if (view == NULL || result->is_interrupted || result->last_rank >= view->member_count)
        return; /* ranks have shifted since */
    find_wait(activity, &view->members[result->last_rank])->ns += waited_ns;
}

void muster_activity_count(struct muster_activity *activity, const struct muster_op_result *result,
                           const struct muster_view *view)
{
    bool is_shm = result->wire != NULL && strcmp(result->wire, "shm") == 0;

    activity->sent_bytes[is_shm ? MUSTER_ACTIVITY_SHM : MUSTER_ACTIVITY_TCP] += result->sent_bytes;
    count_wait(activity, result, view);
}

void muster_activity_count_bytes(struct muster_activity *activity, enum muster_activity_wire wire,
                                 uint64_t bytes)
{
    MUSTER_ASSERT(wire < MUSTER_ACTIVITY_WIRES);
    activity->sent_bytes[wire] += bytes;
}

const char *muster_activity_state_name(enum muster_activity_state state)
{
    return state_names[state];
}

const char *muster_activity_wire_name(enum muster_activity_wire wire)
{
    return wire_names[wire];
}
