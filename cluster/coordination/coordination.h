/* The coordination service as a state machine: tasks, keys, barriers, live tasks. It knows neither wire nor clock;
 * its owner tells it the time and carries its answers. It behaves as the service of jaxlib 0.10
 * (tsl/…/coordination_service.cc). */
#ifndef MUSTER_CLUSTER_COORDINATION_H
#define MUSTER_CLUSTER_COORDINATION_H

#include <muster/list.h>
#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>

struct muster_coordination;

enum muster_coordination_method {
    MUSTER_COORDINATION_REGISTER,
    MUSTER_COORDINATION_WAIT_FOR_ALL,
    MUSTER_COORDINATION_HEARTBEAT,
    MUSTER_COORDINATION_POLL_FOR_ERROR,
    MUSTER_COORDINATION_SHUTDOWN,
    MUSTER_COORDINATION_RESET,
    MUSTER_COORDINATION_REPORT_ERROR,
    MUSTER_COORDINATION_WATCH,
    MUSTER_COORDINATION_TASK_STATE,
    MUSTER_COORDINATION_INSERT,
    MUSTER_COORDINATION_GET,
    MUSTER_COORDINATION_TRY_GET,
    MUSTER_COORDINATION_INCREMENT,
    MUSTER_COORDINATION_DIRECTORY,
    MUSTER_COORDINATION_DELETE,
    MUSTER_COORDINATION_BARRIER,
    MUSTER_COORDINATION_CANCEL_BARRIER,
    MUSTER_COORDINATION_ALIVE,
};

/** Numbers as on the wire. */
enum muster_coordination_state {
    MUSTER_TASK_UNINITIALIZED = 1, /* has not registered in this job */
    MUSTER_TASK_DISCONNECTED = 2,  /* has shut down, was reset, or died where tasks may */
    MUSTER_TASK_CONNECTED = 3,     /* registered; beats once all have */
    MUSTER_TASK_ERROR = 4,         /* until it is reset or the next job begins */
};

/** Whatever the method asks; all borrowed during muster_coordination_handle. */
struct muster_coordination_request {
    enum muster_coordination_method method;
    uint32_t task;                /* the asker */
    bool has_service_incarnation; /* of the service that the asker knows */
    uint64_t service_incarnation;
    uint64_t asker_incarnation; /* incarnation of the asker; 0: not given */
    uint64_t incarnation;       /* register, heartbeat: of the task */
    struct muster_bytes key;    /* or the barrier's id, or the text of a reported error */
    struct muster_bytes value;  /* insert; wait for all: of the devices */
    bool is_overwriting;        /* insert */
    int64_t number;             /* increment, version of watch, code of a reported error */
    int64_t timeout_ms;         /* barrier */
    int64_t counter;            /* barrier, cancel */
    const uint32_t *tasks;      /* barrier, alive, task state; none: all */
    size_t task_count;
};

struct muster_coordination_entry {
    struct muster_bytes key, value;
};

struct muster_coordination_task_info {
    uint32_t id;
    enum muster_coordination_state state;
    enum muster_rc rc;
    const char *text; /* of the error; NULL: none */
    uint64_t incarnation;
    bool has_shut_down; /* with MUSTER_TASK_DISCONNECTED: in order, not by dying */
};

/* Details that go along with a status, as bits. */
#define MUSTER_COORDINATION_DETAIL_ERROR    1u /* CoordinationServiceError: the service decided */
#define MUSTER_COORDINATION_DETAIL_SOURCE   2u /* … naming source_task */
#define MUSTER_COORDINATION_DETAIL_BARRIER  4u /* BarrierError with key and counter */
#define MUSTER_COORDINATION_DETAIL_MISMATCH 8u /* ServiceMismatchError */

/** Borrowed during the answer. */
struct muster_coordination_answer {
    enum muster_rc rc;
    const char *text;
    unsigned details;
    uint32_t source_task;
    uint64_t service_incarnation;
    struct muster_bytes key;
    int64_t counter; /* barrier */
    int64_t version; /* watch */
    const struct muster_coordination_entry *entries;
    size_t entry_count;
    const struct muster_coordination_task_info *tasks;
    size_t task_count;
    struct muster_bytes devices; /* wait for all */
};

/** A question until it is answered. Caller's memory. */
struct muster_coordination_ask {
    void *data;
    /* private */
    struct muster_list node; /* where it waits */
    uint32_t task;
    struct muster_bytes key; /* as it was asked; the waiting key's memory */
};

/** Callbacks of the service to its owner; none may call back into it. */
struct muster_coordination_ops {
    /** Exactly once for each ask that is not dropped, perhaps inside handle. */
    void (*answer)(void *data, struct muster_coordination_ask *ask,
                   const struct muster_coordination_answer *answer);
    /* Changes of the state that outlives the process; all may be NULL. */
    void (*keep_key)(void *data, struct muster_bytes key, const struct muster_bytes *value);
    void (*keep_task)(void *data, const struct muster_coordination_task_info *task);
    void (*keep_barrier)(void *data, struct muster_bytes id, int64_t counter, enum muster_rc rc,
                         const char *text);
    /** The job has ended, the next begins: all that was kept is void. */
    void (*keep_nothing)(void *data, uint64_t service_incarnation);
};

struct muster_coordination_options {
    uint32_t task_count;
    uint64_t heartbeat_timeout_ns;
    uint64_t shutdown_timeout_ns;
    uint64_t register_timeout_ns;
    uint64_t service_incarnation; /* not 0 */
    bool is_recoverable;          /* tasks may die and come back without an error of the job */
    bool ends_polls; /* answers PollForError at once, so that clients outlive a restart of the
                        service; errors are told by heartbeats */
};

/** Borrows ops and mem until freed. Errors: RESOURCE_EXHAUSTED. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_coordination_new(
    struct muster_mem *mem, const struct muster_coordination_options *options,
    const struct muster_coordination_ops *ops, void *data,
    struct muster_coordination **ret_coordination);
/** Asks that still wait are forgotten, not answered. */
void muster_coordination_free(struct muster_coordination *coordination);

void muster_coordination_handle(struct muster_coordination *coordination, uint64_t now_ns,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask);
/** Which task asks: from a request that names it, or by the incarnation it gives. False: it does not
 * say. */
bool muster_coordination_find_asker(const struct muster_coordination *coordination,
                                    const struct muster_coordination_request *request,
                                    uint32_t *ret_task);
/** The asker does not want the answer any more. */
void muster_coordination_drop(struct muster_coordination *coordination,
                              struct muster_coordination_ask *ask);
/** The connection of a task has ended without its having shut down: it counts as dead. */
void muster_coordination_lost(struct muster_coordination *coordination, uint64_t now_ns,
                              uint32_t task);
/** Do what is due. */
void muster_coordination_expire(struct muster_coordination *coordination, uint64_t now_ns);
/** UINT64_MAX: nothing. */
uint64_t muster_coordination_due_ns(const struct muster_coordination *coordination);

/* After a restart, before the first question: what was kept. A task that was connected has its full
 * heartbeat time again. RESOURCE_EXHAUSTED; DATA_LOSS: the job has no such task. */

MUSTER_MUST_CHECK enum muster_rc muster_coordination_restore_key(
    struct muster_coordination *coordination, struct muster_bytes key, struct muster_bytes value);
MUSTER_MUST_CHECK enum muster_rc muster_coordination_restore_task(
    struct muster_coordination *coordination, uint64_t now_ns,
    const struct muster_coordination_task_info *task);
MUSTER_MUST_CHECK enum muster_rc muster_coordination_restore_barrier(
    struct muster_coordination *coordination, struct muster_bytes id, int64_t counter,
    enum muster_rc rc, const char *text);

#endif
