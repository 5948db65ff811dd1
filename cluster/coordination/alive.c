/* GetAliveTasks: all live tasks of a set ask together, and get the same answer. So they agree on who is
 * alive without a further round: a task that dies before the answer is in nobody's list, one that dies after
 * it is in everybody's. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <string.h>

/* The tasks that asked for one set. */
struct round {
    struct muster_list node; /* of alive_rounds */
    struct muster_list asks;
    uint8_t *is_member; /* by task */
    uint8_t *has_asked;
};

/* One allocation for the round and its two sets, which are indexed by task. */
static struct round *round_new(struct muster_coordination *coordination)
{
    size_t tasks = coordination->options.task_count;
    struct round *round = muster_mem_alloc_zero(coordination->mem, 1, sizeof(*round) + 2 * tasks);

    if (round == NULL)
        return NULL;
    round->is_member = (uint8_t *)(round + 1);
    round->has_asked = round->is_member + tasks;
    muster_list_init(&round->node);
    muster_list_init(&round->asks);
    return round;
}

static void round_free(struct muster_coordination *coordination, struct round *round)
{
    muster_list_remove(&round->node);
    muster_mem_free(coordination->mem, round);
}

void muster_coordination_free_alive(struct muster_coordination *coordination)
{
    while (!muster_list_is_empty(&coordination->alive_rounds))
        round_free(coordination,
                   MUSTER_CONTAINER_OF(coordination->alive_rounds.next, struct round, node));
}

/* Numbers that name no task are left out: they cannot be alive. */
static void fill_members(struct muster_coordination *coordination, struct round *round,
                         const struct muster_coordination_request *request)
{
    uint32_t count = coordination->options.task_count;

    for (size_t i = 0; i < request->task_count; i++)
        if (request->tasks[i] < count)
            round->is_member[request->tasks[i]] = 1;
}

static bool is_alive(const struct muster_coordination *coordination, const struct round *round,
                     uint32_t id)
{
    return round->is_member[id] != 0 && coordination->tasks[id].state == MUSTER_TASK_CONNECTED;
}

/* Every live task of the set has asked. */
static bool is_complete(const struct muster_coordination *coordination, const struct round *round)
{
    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        if (is_alive(coordination, round, id) && round->has_asked[id] == 0)
            return false;
    return true;
}

/* The list is made once and told to all, also when the memory lacks: then all fail alike. */
static void answer_round(struct muster_coordination *coordination, struct round *round)
{
    struct muster_coordination_answer answer = {.rc = MUSTER_OK};
    struct muster_coordination_task_info *infos =
        muster_mem_alloc_zero(coordination->mem, coordination->options.task_count, sizeof(*infos));
    struct muster_list *node;

    MUSTER_ASSERT(is_complete(coordination, round));
    if (infos == NULL) {
        answer.rc = MUSTER_RESOURCE_EXHAUSTED;
        answer.text = "out of memory";
    }
    for (uint32_t id = 0; infos != NULL && id < coordination->options.task_count; id++)
        if (is_alive(coordination, round, id))
            infos[answer.task_count++] = (struct muster_coordination_task_info){
                .id = id, .incarnation = coordination->tasks[id].incarnation};
    answer.tasks = infos;
    while ((node = muster_list_pop(&round->asks)) != NULL)
        muster_coordination_answer(
            coordination, MUSTER_CONTAINER_OF(node, struct muster_coordination_ask, node), &answer);
    muster_mem_free(coordination->mem, infos);
}

static void round_review(struct muster_coordination *coordination, struct round *round)
{
    if (!is_complete(coordination, round))
        return;
    answer_round(coordination, round);
    round_free(coordination, round);
}

/* A death may complete a round, because the dead task is not waited for any more. */
void muster_coordination_review_alive(struct muster_coordination *coordination)
{
    MUSTER_LIST_EACH_SAFE (&coordination->alive_rounds, round, struct round, node)
        round_review(coordination, round);
}

/* The open round of the same set, in place of the given one, which is freed; else the given one, opened. */
static struct round *round_join(struct muster_coordination *coordination, struct round *round)
{
    size_t tasks = coordination->options.task_count;

    MUSTER_ASSERT(muster_list_is_empty(&round->node)); /* a new one */
    MUSTER_LIST_EACH (&coordination->alive_rounds, other, struct round, node) {
        if (memcmp(other->is_member, round->is_member, tasks) == 0) {
            round_free(coordination, round);
            return other;
        }
    }
    muster_list_append(&coordination->alive_rounds, &round->node);
    return round;
}

/* The round is made before it is known whether one is open: the set has to be written down to be compared. */
void muster_coordination_ask_alive(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask)
{
    struct round *round = round_new(coordination);
    const struct muster_coordination_task *task =
        muster_coordination_find_task(coordination, request->task);

    if (round == NULL) {
        muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    fill_members(coordination, round, request);
    if (task == NULL || round->is_member[task->id] == 0) {
        const struct muster_coordination_answer answer = {
            .rc = MUSTER_INVALID_ARGUMENT,
            .text = muster_coordination_format(
                coordination,
                "Requesting task %" PRId32
                " is not one of the tasks specified in a GetAliveTasks request.",
                (int32_t)request->task)};

        round_free(coordination, round);
        muster_coordination_answer(coordination, ask, &answer);
        return;
    }
    round = round_join(coordination, round);
    round->has_asked[task->id] = 1;
    muster_list_append(&round->asks, &ask->node);
    round_review(coordination, round);
}
