/* The parts of the coordination service: its structs, and what each file offers to those above it, lowest first. */
#ifndef MUSTER_CLUSTER_COORDINATION_INTERNAL_H
#define MUSTER_CLUSTER_COORDINATION_INTERNAL_H

#include "cluster/coordination/coordination.h"
#include "cluster/coordination/index.h"
#include "runtime/value/text.h"

struct muster_coordination_task {
    uint32_t id;
    enum muster_coordination_state state;
    uint64_t incarnation;
    uint64_t beaten_ns;                   /* the last heartbeat */
    struct muster_list beat_node;         /* of beating, the longest silent first */
    struct muster_coordination_ask *poll; /* PollForError, or NULL */
    enum muster_rc rc;                    /* of the error */
    char *text;
    bool has_shut_down;
    struct muster_bytes devices;
};

/** A key with its value, or one that is waited for. */
struct muster_coordination_key {
    struct muster_coordination_name name;
    struct muster_bytes value; /* NULL data: none yet */
    struct muster_list asks;
};

/** The newest instance of a barrier. */
struct muster_coordination_barrier {
    struct muster_coordination_name name;
    struct muster_list open_node; /* of open_barriers; removed: it has ended */
    int64_t counter;
    bool has_ended;
    enum muster_rc rc; /* once ended */
    char *text;
    uint64_t due_ns;
    uint32_t first_task;
    bool has_members;  /* settled by the first call, for all instances */
    uint32_t *members; /* sorted; NULL: all */
    size_t member_count;
    uint8_t *has_arrived; /* by task */
    size_t arrived_count;
    struct muster_bytes devices; /* of all, of WaitForAllTasks */
    struct muster_list asks;
    void (*on_end)(struct muster_coordination *coordination,
                   struct muster_coordination_barrier *barrier); /* NULL: none */
};

struct muster_coordination {
    struct muster_mem *mem;
    struct muster_coordination_options options;
    const struct muster_coordination_ops *ops;
    void *data;
    uint64_t now_ns;
    struct muster_coordination_task *tasks;
    bool has_all; /* tasks have registered: silence counts from now on */
    struct muster_list beating;
    struct muster_coordination_index keys;
    struct muster_coordination_index barriers;
    struct muster_list open_barriers;
    struct muster_list alive_rounds;
    struct muster_list watches;
    int64_t version;   /* of the states of tasks */
    enum muster_rc rc; /* the first error of a task: the answer to all later polls and heartbeats */
    char *text;
    uint32_t error_task;
    struct muster_text scratch; /* the text being made */
};

/* base.c: calls no other part */

/** NULL: the job has no such task. */
struct muster_coordination_task *muster_coordination_find_task(
    struct muster_coordination *coordination, uint32_t id);
/** The formatted text, in scratch: borrowed until the next. */
const char *muster_coordination_format(struct muster_coordination *coordination, const char *fmt,
                                       ...) MUSTER_PRINTF(2, 3);
void muster_coordination_answer(struct muster_coordination *coordination,
                                struct muster_coordination_ask *ask,
                                const struct muster_coordination_answer *answer);
void muster_coordination_succeed(struct muster_coordination *coordination,
                                 struct muster_coordination_ask *ask);
/** Answer with an error and DETAIL_ERROR. */
void muster_coordination_refuse(struct muster_coordination *coordination,
                                struct muster_coordination_ask *ask, enum muster_rc rc,
                                const char *text);
void muster_coordination_forget_error(struct muster_coordination *coordination);
/** The task was heard of: its silence counts from now on. */
void muster_coordination_beat(struct muster_coordination *coordination,
                              struct muster_coordination_task *task);
/** All tasks have registered: from now on the silence of a connected task counts. */
void muster_coordination_listen(struct muster_coordination *coordination);

/* key.c */

void muster_coordination_insert(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask);
void muster_coordination_get(struct muster_coordination *coordination,
                             const struct muster_coordination_request *request,
                             struct muster_coordination_ask *ask);
void muster_coordination_increment(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask);
void muster_coordination_list_directory(struct muster_coordination *coordination,
                                        const struct muster_coordination_request *request,
                                        struct muster_coordination_ask *ask);
void muster_coordination_delete(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask);
/** The ask is in no list any more; it may have waited for a key. */
void muster_coordination_drop_wait(struct muster_coordination *coordination,
                                   struct muster_coordination_ask *ask);
/** why: told to the tasks that wait; NULL: they are not told. */
void muster_coordination_free_keys(struct muster_coordination *coordination, const char *why);

/* barrier_members.c */

/* "id::counter" as in all texts; needs inttypes.h. */
#define BARRIER_FORMAT                "%.*s::%" PRId64
#define BARRIER_ARGS(name_, counter_) (int)(name_).size, (const char *)(name_).data, (counter_)

/** The first call settles the members; has_members stays false for lack of memory. */
void muster_coordination_settle_members(struct muster_coordination *coordination,
                                        struct muster_coordination_barrier *barrier,
                                        const struct muster_coordination_request *request);
void muster_coordination_forget_members(struct muster_coordination *coordination,
                                        struct muster_coordination_barrier *barrier);
bool muster_coordination_is_member(const struct muster_coordination *coordination,
                                   const struct muster_coordination_barrier *barrier,
                                   uint32_t task);
size_t muster_coordination_member_count(const struct muster_coordination *coordination,
                                        const struct muster_coordination_barrier *barrier);
uint32_t muster_coordination_member_at(const struct muster_coordination_barrier *barrier, size_t i);
/** Text of why the call does not fit the members (scratch), or NULL. */
const char *muster_coordination_find_conflict(struct muster_coordination *coordination,
                                              const struct muster_coordination_barrier *barrier,
                                              const struct muster_coordination_request *request);

/* barrier.c */

void muster_coordination_enter(struct muster_coordination *coordination,
                               const struct muster_coordination_request *request,
                               struct muster_coordination_ask *ask);
extern const char muster_coordination_register_barrier[];
/** A barrier of the service itself, over all tasks, passed once; on_end runs before the answers. */
void muster_coordination_enter_own(struct muster_coordination *coordination, const char *id,
                                   uint64_t timeout_ns,
                                   const struct muster_coordination_request *request,
                                   void (*on_end)(struct muster_coordination *coordination,
                                                  struct muster_coordination_barrier *barrier),
                                   struct muster_coordination_ask *ask);
void muster_coordination_cancel_barrier(struct muster_coordination *coordination,
                                        const struct muster_coordination_request *request,
                                        struct muster_coordination_ask *ask);
/** The barriers that wait for the task end with that error. */
void muster_coordination_leave_barriers(struct muster_coordination *coordination, uint32_t task,
                                        const char *reason);
void muster_coordination_expire_barriers(struct muster_coordination *coordination);
uint64_t muster_coordination_barriers_due_ns(const struct muster_coordination *coordination);
/** why: told to the tasks that wait; NULL: they are not told. */
void muster_coordination_free_barriers(struct muster_coordination *coordination, const char *why);

/* alive.c */

void muster_coordination_ask_alive(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask);
/** After a task has died or come: answer the rounds that are complete now. */
void muster_coordination_review_alive(struct muster_coordination *coordination);
void muster_coordination_free_alive(struct muster_coordination *coordination);

/* task_state.c */

void muster_coordination_connect(struct muster_coordination *coordination,
                                 struct muster_coordination_task *task);
/** The task has shut down, was reset, or died where nobody is told. reason: for the barriers that wait for it. */
void muster_coordination_disconnect(struct muster_coordination *coordination,
                                    struct muster_coordination_task *task, const char *reason);
/** The task is in error, and every task is told. */
void muster_coordination_fail(struct muster_coordination *coordination,
                              struct muster_coordination_task *task, enum muster_rc rc,
                              const char *text, bool is_reported);
void muster_coordination_end_poll(struct muster_coordination *coordination,
                                  struct muster_coordination_task *task, const char *why);
void muster_coordination_watch(struct muster_coordination *coordination,
                               const struct muster_coordination_request *request,
                               struct muster_coordination_ask *ask);
void muster_coordination_tell_states(struct muster_coordination *coordination,
                                     const struct muster_coordination_request *request,
                                     struct muster_coordination_ask *ask);

/* task.c */

void muster_coordination_register(struct muster_coordination *coordination,
                                  const struct muster_coordination_request *request,
                                  struct muster_coordination_ask *ask);
void muster_coordination_wait_for_all(struct muster_coordination *coordination,
                                      const struct muster_coordination_request *request,
                                      struct muster_coordination_ask *ask);
void muster_coordination_heartbeat(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask);
void muster_coordination_poll(struct muster_coordination *coordination,
                              const struct muster_coordination_request *request,
                              struct muster_coordination_ask *ask);
void muster_coordination_shut_down(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask);
void muster_coordination_reset(struct muster_coordination *coordination,
                               const struct muster_coordination_request *request,
                               struct muster_coordination_ask *ask);
void muster_coordination_report(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask);
/** Fail or disconnect every task that has been silent for too long. */
void muster_coordination_expire_tasks(struct muster_coordination *coordination);

#endif
