/* How a member spends its time, and what moved: counted at every call, told now and then. */
#ifndef MUSTER_TRAINING_ACTIVITY_H
#define MUSTER_TRAINING_ACTIVITY_H

#include <muster/collective.h>
#include <muster/view.h>

enum muster_activity_state {
    MUSTER_ACTIVITY_START,      /* before the first begin */
    MUSTER_ACTIVITY_BEGIN,      /* begin waits: a view is awaited, or the state of the members */
    MUSTER_ACTIVITY_COMPUTE,    /* between begin and commit, outside calls */
    MUSTER_ACTIVITY_COLLECTIVE, /* in a call that runs operations */
    MUSTER_ACTIVITY_OUTSIDE,    /* between commit and begin */
    MUSTER_ACTIVITY_CLOSE,      /* in close */
    MUSTER_ACTIVITY_STATES,
};

enum muster_activity_wire {
    MUSTER_ACTIVITY_SHM,
    MUSTER_ACTIVITY_TCP,
    MUSTER_ACTIVITY_NCCL,
    MUSTER_ACTIVITY_WIRES,
};

#define MUSTER_ACTIVITY_WAITS_MAX  8u
#define MUSTER_ACTIVITY_NAME_BYTES (MUSTER_JOB_NAME_BYTES + 16)

/** Time that this member waited for another to start an operation. */
struct muster_activity_wait {
    char task[MUSTER_ACTIVITY_NAME_BYTES]; /* "worker:3" */
    uint32_t index;
    uint64_t ns;
};

/** Everything counts from the start of the process and only grows. */
struct muster_activity {
    enum muster_activity_state state;
    uint64_t since_ns; /* of the state */
    uint64_t spent_ns[MUSTER_ACTIVITY_STATES];
    bool has_met;        /* an operation of the present call has told when all had started it */
    uint64_t waiting_ns; /* of COLLECTIVE: until the last member had started the operation */
    uint64_t sent_bytes[MUSTER_ACTIVITY_WIRES];
    uint64_t steps; /* committed here */
    struct muster_activity_wait waits[MUSTER_ACTIVITY_WAITS_MAX];
    uint32_t wait_count;
};

void muster_activity_init(struct muster_activity *activity, uint64_t now_ns);
/** Go to another state; now_ns is the loop's clock. */
void muster_activity_move(struct muster_activity *activity, enum muster_activity_state state,
                          uint64_t now_ns);
/** Whether the move is allowed. */
bool muster_activity_may_move(enum muster_activity_state from, enum muster_activity_state to);
/** An operation of the present call has ended; view is the one in which it did. With more than
 * MUSTER_ACTIVITY_WAITS_MAX members to wait for, the longest waits are kept by name. */
void muster_activity_count(struct muster_activity *activity, const struct muster_op_result *result,
                           const struct muster_view *view);
void muster_activity_count_bytes(struct muster_activity *activity, enum muster_activity_wire wire,
                                 uint64_t bytes);
/** Time in state, the present stay included. */
uint64_t muster_activity_spent_ns(const struct muster_activity *activity,
                                  enum muster_activity_state state, uint64_t now_ns);
/** "compute". Static. */
const char *muster_activity_state_name(enum muster_activity_state state);
/** "shm". Static. */
const char *muster_activity_wire_name(enum muster_activity_wire wire);

#endif
