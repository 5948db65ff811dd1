/* Groups and ranks by name, and failed answers. worker_groups.c and worker_instances.c both use
 * them. */
#include "cluster/server/worker_groups_internal.h"

#include <string.h>

struct muster_worker_group *muster_worker_groups_find(struct muster_worker_groups *groups,
                                                      int32_t key)
{
    MUSTER_LIST_EACH (&groups->groups, group, struct muster_worker_group, node) {
        if (group->key == key)
            return group;
    }
    return NULL;
}

uint32_t muster_worker_group_rank(const struct muster_worker_group *group, const char *device)
{
    uint32_t rank = 0;

    while (rank < group->member_count && strcmp(group->members[rank].name, device) != 0)
        rank++;
    return rank;
}

void muster_worker_ask_fail(struct muster_worker_group_ask *ask, const struct muster_error *error)
{
    const struct muster_worker_answer answer = {
        .rc = error->rc, .text = error->text, .source_rank = -1};

    MUSTER_ASSERT(error->rc != MUSTER_OK);
    ask->on_answer(ask, &answer);
}

void muster_worker_asks_fail(struct muster_list *asks, const struct muster_error *error)
{
    struct muster_list *node;

    /* Each ask is unlinked before its callback, which may drop others of the list. */
    while ((node = muster_list_pop(asks)) != NULL)
        muster_worker_ask_fail(MUSTER_CONTAINER_OF(node, struct muster_worker_group_ask, node),
                               error);
}
