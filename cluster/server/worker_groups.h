/* The members of collective groups and the senders of broadcasts, which TensorFlow's workers ask
 * the leader of their collectives for. No I/O. */
#ifndef MUSTER_CLUSTER_WORKER_GROUPS_H
#define MUSTER_CLUSTER_WORKER_GROUPS_H

#include <muster/env.h>
#include <muster/list.h>
#include <muster/rpc.h>
#include <muster/status.h>

/* Bounds on what peers can make this task remember; real jobs stay far below them. */
#define MUSTER_WORKER_GROUPS_MAX  4096u
#define MUSTER_WORKER_MEMBERS_MAX 65536u /* in a group */
#define MUSTER_WORKER_INSTANCES_MAX                                                                \
    4096u                           /* in a group; the oldest without a waiting ask is dropped */
#define MUSTER_WORKER_KEY_BYTES 128 /* a communicator's key, as large as NCCL's */
#define MUSTER_WORKER_BROADCAST 1   /* CollectiveType */

struct muster_worker_groups;
struct muster_worker_group_ask;

/** One device of a group. */
struct muster_worker_member {
    char *name; /* "/job:worker/replica:0/task:1/device:CPU:0" */
    uint64_t incarnation;
    struct muster_bytes attributes; /* as it described itself; not looked into */
};

struct muster_worker_group {
    struct muster_list node;
    int32_t key;
    uint32_t size;
    char *device_type;
    uint32_t task_count;
    uint8_t communicator_key[MUSTER_WORKER_KEY_BYTES];
    struct muster_worker_member *members; /* by rank once complete */
    uint32_t member_count;
    size_t member_capacity;
    struct muster_error error; /* rc OK: none; else every ask about the group fails with it */
    struct muster_list asks;   /* each a struct muster_worker_group_ask, until complete */
    struct muster_list instances;
    uint32_t instance_count;
};

/** rc and text, or: the complete group, or the rank of the source (-1: none is needed). */
struct muster_worker_answer {
    enum muster_rc rc;
    const char *text;
    const struct muster_worker_group *group;
    int32_t source_rank;
};
typedef void muster_worker_answer_fn(struct muster_worker_group_ask *ask,
                                     const struct muster_worker_answer *answer);

/** One ask for a group or an instance. Caller's memory; unlinked before it is answered. */
struct muster_worker_group_ask {
    muster_worker_answer_fn *on_answer;
    struct muster_list node;
};

struct muster_worker_group_request {
    int32_t key;
    int32_t size;
    const char *device_type;
    const char *device;
    uint64_t incarnation;
    struct muster_bytes attributes;
};

struct muster_worker_instance_request {
    int32_t group_key;
    int64_t step_id; /* the same key in another step is another instance */
    int32_t key;
    int32_t type;
    int32_t data_type;
    const char *shape; /* "[2,3]" */
    const char *device;
    bool is_source;
};

MUSTER_MUST_CHECK enum muster_rc muster_worker_groups_new(struct muster_mem *mem,
                                                          struct muster_rng *rng,
                                                          struct muster_worker_groups **ret_groups);
/** No ask may be waiting. NULL is accepted. */
void muster_worker_groups_free(struct muster_worker_groups *groups);

/**
 * A device joins; it is answered, perhaps at once, when all `size` have. Ranks: tasks by the bytes
 * of their names, within a task devices by type and number. A contradiction (another size, another
 * type, one too many, a device that has restarted) fails the group for good, for all who wait and
 * all who come.
 *
 * Owns:    borrows ask until it is answered or dropped; request is copied.
 * Source:  TensorFlow's CollectiveParamResolverLocal::CompleteGroupLocal, observed in 2.21.
 */
void muster_worker_groups_join(struct muster_worker_groups *groups,
                               struct muster_worker_group_ask *ask,
                               const struct muster_worker_group_request *request);

/**
 * A member says what it is about to do. A broadcast is answered when all members have asked;
 * everything else at once. A contradiction fails the instance for all who wait and all who come;
 * there TensorFlow lets the others wait.
 *
 * Source:  TensorFlow's CollectiveParamResolverLocal::CompleteInstanceLocal, observed in 2.21.
 */
void muster_worker_groups_agree(struct muster_worker_groups *groups,
                                struct muster_worker_group_ask *ask,
                                const struct muster_worker_instance_request *request);

/** Drop an ask that has not been answered, because its caller has gone. What it said still counts. */
void muster_worker_groups_drop(struct muster_worker_group_ask *ask);

/** Fail every ask, waiting or to come, with rc and text: the collectives are aborted. */
void muster_worker_groups_abort(struct muster_worker_groups *groups, enum muster_rc rc,
                                const char *text);

#endif
