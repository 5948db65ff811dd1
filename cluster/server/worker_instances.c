/* Instances: what the members of a group are about to do together, one per collective operation and
 * step. All members must describe it alike; of a broadcast they also learn which rank sends. The
 * texts of errors are TensorFlow's. */
#include "cluster/server/worker_groups_internal.h"

#include <inttypes.h>
#include <string.h>

#define SHAPE_BYTES_MAX 256

struct instance {
    struct muster_list node;
    int64_t step_id;
    int32_t key, type, data_type;
    char shape[SHAPE_BYTES_MAX];
    struct muster_error error;
    uint32_t known_count; /* in a broadcast, the members that have asked */
    uint32_t source;      /* a rank; the group's size: not claimed yet */
    struct muster_list asks;
    bool is_known[]; /* by rank */
};

static struct instance *instance_find(struct muster_worker_group *group, int64_t step_id,
                                      int32_t key)
{
    MUSTER_LIST_EACH (&group->instances, instance, struct instance, node) {
        if (instance->step_id == step_id && instance->key == key)
            return instance;
    }
    return NULL;
}

/* Make room for one more instance: a long job asks about ever new ones, and never again about those that are
 * over. */
static bool forget_oldest(struct muster_worker_groups *groups, struct muster_worker_group *group)
{
    /* The newest stand in front, so the search begins at the end. An instance for which somebody
     * waits stays. */
    for (struct muster_list *node = group->instances.prev; node != &group->instances;
         node = node->prev) {
        struct instance *instance = MUSTER_CONTAINER_OF(node, struct instance, node);

        if (!muster_list_is_empty(&instance->asks))
            continue;
        muster_list_remove(node);
        muster_mem_free(groups->mem, instance);
        group->instance_count--;
        return true;
    }
    return false;
}

static struct instance *instance_new(struct muster_worker_groups *groups,
                                     struct muster_worker_group *group,
                                     const struct muster_worker_instance_request *request)
{
    struct instance *instance;

    if (group->instance_count >= MUSTER_WORKER_INSTANCES_MAX && !forget_oldest(groups, group))
        return NULL;
    instance = muster_mem_alloc_zero(
        groups->mem, 1, sizeof(*instance) + (size_t)group->size * sizeof(instance->is_known[0]));
    if (instance == NULL)
        return NULL;
    instance->step_id = request->step_id;
    instance->key = request->key;
    instance->type = request->type;
    instance->data_type = request->data_type;
    (void)snprintf(instance->shape, sizeof(instance->shape), "%s", request->shape);
    instance->source = group->size;
    muster_list_init(&instance->asks);
    muster_list_prepend(&group->instances, &instance->node); /* the newest are asked for most */
    group->instance_count++;
    return instance;
}

static void instance_fail(struct instance *instance, const struct muster_error *error)
{
    MUSTER_ASSERT(error->rc != MUSTER_OK);
    instance->error = *error;
    muster_worker_asks_fail(&instance->asks, error);
}

void muster_worker_instances_fail(struct muster_worker_group *group,
                                  const struct muster_error *error)
{
    MUSTER_LIST_EACH (&group->instances, instance, struct instance, node)
        instance_fail(instance, error);
}

void muster_worker_instances_free(struct muster_worker_groups *groups,
                                  struct muster_worker_group *group)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&group->instances)) != NULL)
        muster_mem_free(groups->mem, MUSTER_CONTAINER_OF(node, struct instance, node));
}

static enum muster_rc check_request(const struct instance *instance,
                                    const struct muster_worker_instance_request *request,
                                    struct muster_error *error)
{
    if (instance->type != request->type || instance->data_type != request->data_type)
        return muster_error_set(
            error, MUSTER_INTERNAL,
            "Collective instance %" PRId32 " expected type %" PRId32 " and data_type %" PRId32
            " but got type %" PRId32 " and data_type %" PRId32,
            instance->key, instance->type, instance->data_type, request->type, request->data_type);
    if (strcmp(instance->shape, request->shape) != 0)
        return muster_error_set(
            error, MUSTER_INVALID_ARGUMENT,
            "Shape mismatch in the collective instance %" PRId32
            ". Op at device %s expected shape %s but another member in the group expected shape "
            "%s.",
            instance->key, request->device, request->shape, instance->shape);
    return MUSTER_OK;
}

/* A member of a broadcast says whether it sends. */
static enum muster_rc record_member(struct instance *instance,
                                    const struct muster_worker_group *group, uint32_t rank,
                                    bool is_source, struct muster_error *error)
{
    MUSTER_ASSERT(rank < group->size);
    if (is_source && instance->source != group->size && instance->source != rank)
        return muster_error_set(error, MUSTER_INTERNAL,
                                "Instance %" PRId32 " already has source %" PRIu32
                                ", received second claim from %" PRIu32,
                                instance->key, instance->source, rank);
    if (is_source)
        instance->source = rank;
    /* A member that asks again is counted once. */
    if (!instance->is_known[rank]) {
        instance->is_known[rank] = true;
        instance->known_count++;
    }
    if (instance->known_count == group->size && instance->source == group->size)
        return muster_error_set(error, MUSTER_INTERNAL,
                                "Instance %" PRId32
                                " found no source for broadcast.  This could mean that there were "
                                "group_size=%" PRIu32 " BcastRecvs but no BcastSend.",
                                instance->key, group->size);
    return MUSTER_OK;
}

static void instance_answer(struct instance *instance, int32_t source_rank)
{
    const struct muster_worker_answer answer = {.source_rank = source_rank};
    struct muster_list *node;

    while ((node = muster_list_pop(&instance->asks)) != NULL) {
        struct muster_worker_group_ask *ask =
            MUSTER_CONTAINER_OF(node, struct muster_worker_group_ask, node);

        ask->on_answer(ask, &answer);
    }
}

/* Find the group, which must be complete, and the rank of the device that asks. */
static enum muster_rc find_rank(struct muster_worker_groups *groups,
                                const struct muster_worker_instance_request *request,
                                struct muster_worker_group **ret_group, uint32_t *ret_rank,
                                struct muster_error *error)
{
    struct muster_worker_group *group = muster_worker_groups_find(groups, request->group_key);

    if (group == NULL)
        return muster_error_set(error, MUSTER_FAILED_PRECONDITION,
                                "group %" PRId32
                                " not found. This normally means the server has restarted",
                                request->group_key);
    if (group->error.rc != MUSTER_OK) {
        *error = group->error;
        return error->rc;
    }
    *ret_rank = muster_worker_group_rank(group, request->device);
    if (*ret_rank == group->member_count || group->member_count < group->size)
        return muster_error_set(error, MUSTER_FAILED_PRECONDITION,
                                "%s is not a member of group %" PRId32
                                ", or the group is not complete; complete the group first",
                                request->device, request->group_key);
    *ret_group = group;
    return MUSTER_OK;
}

void muster_worker_groups_agree(struct muster_worker_groups *groups,
                                struct muster_worker_group_ask *ask,
                                const struct muster_worker_instance_request *request)
{
    struct muster_worker_group *group = NULL;
    struct instance *instance = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    uint32_t rank = 0;

    muster_list_init(&ask->node);
    if (find_rank(groups, request, &group, &rank, &error) == MUSTER_OK) {
        instance = instance_find(group, request->step_id, request->key);
        if (instance == NULL)
            instance = instance_new(groups, group, request);
        if (instance == NULL)
            (void)muster_error_set(&error, MUSTER_RESOURCE_EXHAUSTED,
                                   "no room for instance %" PRId32 " (at most %u of a group wait)",
                                   request->key, MUSTER_WORKER_INSTANCES_MAX);
    }
    if (instance == NULL) {
        muster_worker_ask_fail(ask, &error);
        return;
    }
    /* The asker is among those who wait before its request is checked, so that a contradiction is
     * answered to all of them. */
    muster_list_append(&instance->asks, &ask->node);
    if (instance->error.rc != MUSTER_OK)
        error = instance->error;
    else if (check_request(instance, request, &error) == MUSTER_OK &&
             instance->type == MUSTER_WORKER_BROADCAST)
        (void)record_member(instance, group, rank, request->is_source, &error);
    if (error.rc != MUSTER_OK)
        instance_fail(instance, &error);
    /* Only a broadcast has a source to wait for; the members of any other collective know all they
     * need. */
    else if (instance->type != MUSTER_WORKER_BROADCAST)
        instance_answer(instance, -1);
    else if (instance->known_count == group->size)
        instance_answer(instance, (int32_t)instance->source);
}
