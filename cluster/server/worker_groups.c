/* Collective groups: devices join until there are as many as were announced, and each asker then
 * gets the same members in the same order. The worker service calls this on the task that leads
 * the collectives. The texts of errors are TensorFlow's, because its programs and tests look for
 * them. */
#include "cluster/server/worker_groups_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/value/array.h"

static void group_free(struct muster_worker_groups *groups, struct muster_worker_group *group)
{
    muster_worker_instances_free(groups, group);
    muster_list_remove(&group->node);
    for (uint32_t i = 0; i < group->member_count; i++)
        muster_mem_free(groups->mem, group->members[i].name);
    muster_mem_free(groups->mem, group->members);
    muster_mem_free(groups->mem, group->device_type);
    muster_mem_free(groups->mem, group);
}

enum muster_rc muster_worker_groups_new(struct muster_mem *mem, struct muster_rng *rng,
                                        struct muster_worker_groups **ret_groups)
{
    struct muster_worker_groups *groups = muster_mem_alloc_zero(mem, 1, sizeof(*groups));

    if (groups == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    groups->mem = mem;
    groups->rng = rng;
    muster_list_init(&groups->groups);
    *ret_groups = groups;
    return MUSTER_OK;
}

void muster_worker_groups_free(struct muster_worker_groups *groups)
{
    if (groups == NULL)
        return;
    while (!muster_list_is_empty(&groups->groups))
        group_free(groups,
                   MUSTER_CONTAINER_OF(groups->groups.next, struct muster_worker_group, node));
    muster_mem_free(groups->mem, groups);
}

/* --- Answers --- */

/* The error stays: a group that has failed fails every later ask. Members that have been answered
 * may be using the group, so it cannot be begun again with others. */
static void group_fail(struct muster_worker_group *group, const struct muster_error *error)
{
    MUSTER_ASSERT(error->rc != MUSTER_OK);
    group->error = *error;
    muster_worker_asks_fail(&group->asks, error);
    muster_worker_instances_fail(group, error);
}

static void group_answer(struct muster_worker_group *group)
{
    const struct muster_worker_answer answer = {.group = group, .source_rank = -1};
    struct muster_list *node;

    while ((node = muster_list_pop(&group->asks)) != NULL) {
        struct muster_worker_group_ask *ask =
            MUSTER_CONTAINER_OF(node, struct muster_worker_group_ask, node);

        ask->on_answer(ask, &answer);
    }
}

void muster_worker_groups_drop(struct muster_worker_group_ask *ask)
{
    muster_list_remove(&ask->node);
}

void muster_worker_groups_abort(struct muster_worker_groups *groups, enum muster_rc rc,
                                const char *text)
{
    (void)muster_error_set(&groups->aborted, rc, "%s", text);
    MUSTER_LIST_EACH (&groups->groups, group, struct muster_worker_group, node)
        group_fail(group, &groups->aborted);
}

/* --- Ranks --- */

/* The task is the part of a full name before the device: "/job:worker/replica:0/task:1". */
static size_t task_bytes(const char *device)
{
    const char *end = strstr(device, "/device:");

    return end != NULL ? (size_t)(end - device) : strlen(device);
}

static int compare_tasks(const char *a, const char *b)
{
    size_t a_bytes = task_bytes(a), b_bytes = task_bytes(b);
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    if (order != 0)
        return order;
    return a_bytes < b_bytes ? -1 : a_bytes > b_bytes;
}

/* Devices of one task are ordered by number: "/device:GPU:2" before "/device:GPU:10". */
static int compare_devices(const char *a, const char *b)
{
    const char *a_end = strrchr(a, ':'), *b_end = strrchr(b, ':');
    size_t a_bytes = a_end != NULL ? (size_t)(a_end - a) : strlen(a);
    size_t b_bytes = b_end != NULL ? (size_t)(b_end - b) : strlen(b);
    unsigned long a_number, b_number;

    if (a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0 || a_end == NULL)
        return strcmp(a, b);
    a_number = strtoul(a_end + 1, NULL, 10);
    b_number = strtoul(b_end + 1, NULL, 10);
    return a_number < b_number ? -1 : a_number > b_number;
}

static int compare_members(const void *a, const void *b)
{
    const char *first = ((const struct muster_worker_member *)a)->name;
    const char *second = ((const struct muster_worker_member *)b)->name;
    int order = compare_tasks(first, second);

    return order != 0 ? order : compare_devices(first, second);
}

static void group_complete(struct muster_worker_groups *groups, struct muster_worker_group *group)
{
    MUSTER_ASSERT(group->member_count == group->size);
    qsort(group->members, group->member_count, sizeof(group->members[0]), compare_members);
    /* The members are sorted by task, so a task begins where two neighbours differ. */
    group->task_count = 1;
    for (uint32_t i = 1; i < group->member_count; i++)
        group->task_count += compare_tasks(group->members[i - 1].name, group->members[i].name) != 0;
    /* All members pass this key to NCCL or its like as the name of their communicator, so it must
     * be one of its kind. */
    muster_rng_fill(groups->rng, group->communicator_key, sizeof(group->communicator_key));
}

/* --- Joining --- */

static struct muster_worker_group *group_new(struct muster_worker_groups *groups,
                                             const struct muster_worker_group_request *request)
{
    struct muster_worker_group *group = muster_mem_alloc_zero(groups->mem, 1, sizeof(*group));

    if (group == NULL)
        return NULL;
    group->device_type = muster_mem_strdup(groups->mem, request->device_type);
    if (group->device_type == NULL) {
        muster_mem_free(groups->mem, group);
        return NULL;
    }
    group->key = request->key;
    group->size = (uint32_t)request->size;
    muster_list_init(&group->asks);
    muster_list_init(&group->instances);
    muster_list_append(&groups->groups, &group->node);
    groups->group_count++;
    return group;
}

/* Find the group of the request, or make it. */
static enum muster_rc group_take(struct muster_worker_groups *groups,
                                 const struct muster_worker_group_request *request,
                                 struct muster_worker_group **ret_group, struct muster_error *error)
{
    if (groups->aborted.rc != MUSTER_OK) {
        *error = groups->aborted;
        return error->rc;
    }
    if (request->size < 1 || (uint32_t)request->size > MUSTER_WORKER_MEMBERS_MAX)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "group %" PRId32 " must have 1 to %u members, got %" PRId32,
                                request->key, MUSTER_WORKER_MEMBERS_MAX, request->size);
    *ret_group = muster_worker_groups_find(groups, request->key);
    if (*ret_group == NULL && groups->group_count < MUSTER_WORKER_GROUPS_MAX)
        *ret_group = group_new(groups, request);
    if (*ret_group == NULL)
        return muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED,
                                "no room for group %" PRId32 " (%u are known, at most %u)",
                                request->key, groups->group_count, MUSTER_WORKER_GROUPS_MAX);
    return MUSTER_OK;
}

/* Check that the device fits the group as it is now. */
static enum muster_rc check_device(const struct muster_worker_group *group, uint32_t rank,
                                   const struct muster_worker_group_request *request,
                                   struct muster_error *error)
{
    if (strcmp(request->device_type, group->device_type) != 0)
        return muster_error_set(error, MUSTER_INTERNAL,
                                "Device %s is joining a group with incompatible device type %s "
                                "(group_key=%" PRId32 ")",
                                request->device, group->device_type, group->key);
    if ((uint32_t)request->size != group->size)
        return muster_error_set(error, MUSTER_INTERNAL,
                                "Device %s is joining a group with size %" PRId32
                                ", but that group has size %" PRIu32 " (group_key=%" PRId32 ")",
                                request->device, request->size, group->size, group->key);
    if (rank == group->size)
        return muster_error_set(
            error, MUSTER_INTERNAL,
            "Device %s is joining a group that is already full (group_key=%" PRId32 ")",
            request->device, group->key);
    if (rank < group->member_count && group->members[rank].incarnation != request->incarnation)
        return muster_error_set(
            error, MUSTER_FAILED_PRECONDITION,
            "Device %s current incarnation doesn't match with one in the group. "
            "This usually means this worker has restarted but the collective "
            "leader hasn't, or this worker connects to a wrong cluster.",
            request->device);
    return MUSTER_OK;
}

static bool reserve_member(struct muster_worker_groups *groups, struct muster_worker_group *group)
{
    struct muster_worker_member *members =
        muster_array_reserve(groups->mem, group->members, group->member_count,
                             &group->member_capacity, sizeof(*members));

    if (members == NULL)
        return false;
    group->members = members;
    return true;
}

/* One block holds the name and, after it, the attributes. */
static bool add_member(struct muster_worker_groups *groups, struct muster_worker_group *group,
                       const struct muster_worker_group_request *request)
{
    size_t name_bytes = strlen(request->device) + 1;
    char *room;

    MUSTER_ASSERT(group->member_count < group->size);
    if (!reserve_member(groups, group))
        return false;
    room = muster_mem_alloc(groups->mem, name_bytes + request->attributes.size);
    if (room == NULL)
        return false;
    memcpy(room, request->device, name_bytes);
    if (request->attributes.size > 0)
        memcpy(room + name_bytes, request->attributes.data, request->attributes.size);
    group->members[group->member_count++] = (struct muster_worker_member){
        room, request->incarnation, {room + name_bytes, request->attributes.size}};
    if (group->member_count == group->size)
        group_complete(groups, group);
    return true;
}

void muster_worker_groups_join(struct muster_worker_groups *groups,
                               struct muster_worker_group_ask *ask,
                               const struct muster_worker_group_request *request)
{
    struct muster_worker_group *group = NULL;
    struct muster_error error;
    uint32_t rank;

    muster_list_init(&ask->node);
    if (group_take(groups, request, &group, &error) != MUSTER_OK) {
        muster_worker_ask_fail(ask, &error);
        return;
    }
    /* The asker is among those who wait before its request is checked, so that a contradiction is
     * answered to all of them in one place. */
    muster_list_append(&group->asks, &ask->node);
    if (group->error.rc != MUSTER_OK) {
        muster_worker_asks_fail(&group->asks, &group->error);
        return;
    }
    /* A device that asks again (its first call was lost) keeps its place, and is answered like the
     * others. */
    rank = muster_worker_group_rank(group, request->device);
    if (check_device(group, rank, request, &error) != MUSTER_OK) {
        group_fail(group, &error);
        return;
    }
    if (rank == group->member_count && !add_member(groups, group, request)) {
        (void)muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                               "no memory for device %s in group %" PRId32, request->device,
                               request->key);
        group_fail(group, &error);
        return;
    }
    if (group->member_count == group->size)
        group_answer(group);
}
