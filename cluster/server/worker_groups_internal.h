/* The parts of the worker groups, shared by worker_groups*.c and worker_instances.c. */
#ifndef MUSTER_CLUSTER_WORKER_GROUPS_INTERNAL_H
#define MUSTER_CLUSTER_WORKER_GROUPS_INTERNAL_H

#include "cluster/server/worker_groups.h"

struct muster_worker_groups {
    struct muster_mem *mem;
    struct muster_rng *rng;
    struct muster_list groups; /* each a struct muster_worker_group */
    uint32_t group_count;
    struct muster_error aborted; /* rc OK: no */
};

/* worker_groups_base.c */
struct muster_worker_group *muster_worker_groups_find(struct muster_worker_groups *groups,
                                                      int32_t key);
/** The rank of the device, or member_count. */
uint32_t muster_worker_group_rank(const struct muster_worker_group *group, const char *device);
/** Answer one, or all in a list. */
void muster_worker_ask_fail(struct muster_worker_group_ask *ask, const struct muster_error *error);
void muster_worker_asks_fail(struct muster_list *asks, const struct muster_error *error);

/* worker_instances.c */
void muster_worker_instances_fail(struct muster_worker_group *group,
                                  const struct muster_error *error);
void muster_worker_instances_free(struct muster_worker_groups *groups,
                                  struct muster_worker_group *group);

#endif
