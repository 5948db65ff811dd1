/* The tasks that meet at a barrier: settled by its first call, for all its instances. All tasks are stored
 * as NULL, since that is the usual case and costs nothing for a large job. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int compare_ids(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

/* The tasks of the request, sorted, each once; NULL for all tasks. Gives. False: no memory. */
static bool members_of(struct muster_coordination *coordination,
                       const struct muster_coordination_request *request, uint32_t **ret_members,
                       size_t *ret_count)
{
    uint32_t task_count = coordination->options.task_count;
    uint32_t *members = NULL;
    size_t count = 0;

    if (request->task_count > 0) {
        members = muster_mem_alloc(coordination->mem, request->task_count * sizeof(*members));
        if (members == NULL)
            return false;
        memcpy(members, request->tasks, request->task_count * sizeof(*members));
        qsort(members, request->task_count, sizeof(*members), compare_ids);
    }
    for (size_t i = 0; i < request->task_count; i++)
        if (count == 0 || members[count - 1] != members[i])
            members[count++] = members[i];
    if (count == task_count && members[count - 1] == task_count - 1) {
        muster_mem_free(coordination->mem, members);
        members = NULL;
        count = 0;
    }
    *ret_members = members;
    *ret_count = count;
    return true;
}

void muster_coordination_settle_members(struct muster_coordination *coordination,
                                        struct muster_coordination_barrier *barrier,
                                        const struct muster_coordination_request *request)
{
    if (!barrier->has_members)
        barrier->has_members =
            members_of(coordination, request, &barrier->members, &barrier->member_count);
}

void muster_coordination_forget_members(struct muster_coordination *coordination,
                                        struct muster_coordination_barrier *barrier)
{
    muster_mem_free(coordination->mem, barrier->members);
    barrier->members = NULL;
    barrier->member_count = 0;
    barrier->has_members = false;
}

bool muster_coordination_is_member(const struct muster_coordination *coordination,
                                   const struct muster_coordination_barrier *barrier, uint32_t task)
{
    if (barrier->members == NULL)
        return task < coordination->options.task_count;
    return bsearch(&task, barrier->members, barrier->member_count, sizeof(task), compare_ids) !=
           NULL;
}

size_t muster_coordination_member_count(const struct muster_coordination *coordination,
                                        const struct muster_coordination_barrier *barrier)
{
    return barrier->members != NULL ? barrier->member_count : coordination->options.task_count;
}

uint32_t muster_coordination_member_at(const struct muster_coordination_barrier *barrier, size_t i)
{
    MUSTER_ASSERT(barrier->members == NULL || i < barrier->member_count);
    return barrier->members != NULL ? barrier->members[i] : (uint32_t)i;
}

/* Without memory to compare, the call counts as fitting. */
static bool has_same_members(struct muster_coordination *coordination,
                             const struct muster_coordination_barrier *barrier,
                             const struct muster_coordination_request *request)
{
    uint32_t *members = NULL;
    size_t count = 0;
    bool is_same =
        !members_of(coordination, request, &members, &count) ||
        (count == barrier->member_count &&
         (count == 0 || memcmp(members, barrier->members, count * sizeof(*members)) == 0));

    muster_mem_free(coordination->mem, members);
    return is_same &&
           (request->task_count == 0 ||
            request->task_count == muster_coordination_member_count(coordination, barrier));
}

const char *muster_coordination_find_conflict(struct muster_coordination *coordination,
                                              const struct muster_coordination_barrier *barrier,
                                              const struct muster_coordination_request *request)
{
    if (!barrier->has_members || has_same_members(coordination, barrier, request))
        return NULL;
    if (request->task_count == 0)
        return muster_coordination_format(
            coordination,
            BARRIER_FORMAT
            ": No tasks were specified by the client, which implies that the entire cluster is "
            "participating in the barrier. However, the service disagrees. Check that the callers "
            "are invoking the barrier with the same arguments.",
            BARRIER_ARGS(barrier->name.text, barrier->counter));
    return muster_coordination_format(
        coordination,
        "Conflicting tasks specified by different processes for the same barrier: " BARRIER_FORMAT
        ". Check that the callers are invoking the barrier with the same arguments.",
        BARRIER_ARGS(barrier->name.text, barrier->counter));
}
