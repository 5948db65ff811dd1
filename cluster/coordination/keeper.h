/* The state of a coordination service in a file, so that the next process goes on with it. */
#ifndef MUSTER_CLUSTER_COORDINATION_KEEPER_H
#define MUSTER_CLUSTER_COORDINATION_KEEPER_H

#include "cluster/coordination/coordination.h"
#include "cluster/store/mvcc.h"

/** Changes are collected, and kept once committed. Caller's memory. */
struct muster_coordination_keeper {
    struct muster_mem *mem;
    struct muster_registry_store *store;
    struct muster_mvcc mvcc;
    struct muster_registry_arena arena;
    bool is_dirty;             /* something waits for the commit */
    struct muster_error error; /* of a change that could not be written: the next commit tells */
};

/** Errors: as muster_registry_store_open. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_keeper_open(
    struct muster_coordination_keeper *keeper, struct muster_mem *mem, const char *path,
    struct muster_error *ret_error);
/** Changes that are not committed are lost. */
void muster_coordination_keeper_close(struct muster_coordination_keeper *keeper);

/** The incarnation of the service in the file; 0: the file is new. FAILED_PRECONDITION: the file is of a job with
 * another number of tasks, or not a coordinator's. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_keeper_load_service(
    struct muster_coordination_keeper *keeper, uint32_t task_count, uint64_t *ret_incarnation,
    struct muster_error *ret_error);
MUSTER_MUST_CHECK enum muster_rc muster_coordination_keeper_load(
    struct muster_coordination_keeper *keeper, struct muster_coordination *coordination,
    uint64_t now_ns);

void muster_coordination_keeper_put_service(struct muster_coordination_keeper *keeper,
                                            uint64_t incarnation, uint32_t task_count);
/** value NULL: the key is gone. */
void muster_coordination_keeper_put_key(struct muster_coordination_keeper *keeper,
                                        struct muster_bytes key, const struct muster_bytes *value);
void muster_coordination_keeper_put_task(struct muster_coordination_keeper *keeper,
                                         const struct muster_coordination_task_info *task);
void muster_coordination_keeper_put_barrier(struct muster_coordination_keeper *keeper,
                                            struct muster_bytes id, int64_t counter,
                                            enum muster_rc rc, const char *text);
void muster_coordination_keeper_clear(struct muster_coordination_keeper *keeper);

/** Survives the death of the process from here on. Errors: the store's; nothing is kept any more. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_keeper_commit(
    struct muster_coordination_keeper *keeper);

#endif
