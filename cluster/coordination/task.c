/* The life of tasks: registration, heartbeats, errors, the end. A task is its number; its incarnation tells
 * a restarted process from one whose connection was lost. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_BARRIER           "WaitForAllTasks"
/* "Shutdown::" and the 20 digits of an incarnation. */
#define SHUTDOWN_BARRIER_BYTES 48

/* The task that asks. NULL: there is none, and the ask was refused with before, its number and after. */
static struct muster_coordination_task *find_asker(
    struct muster_coordination *coordination, const struct muster_coordination_request *request,
    struct muster_coordination_ask *ask, const char *before, const char *after)
{
    struct muster_coordination_task *task =
        muster_coordination_find_task(coordination, request->task);

    if (task == NULL)
        muster_coordination_refuse(coordination, ask, MUSTER_INVALID_ARGUMENT,
                                   muster_coordination_format(coordination, "%s%" PRId32 "%s",
                                                              before, (int32_t)request->task,
                                                              after));
    return task;
}

/* --- Registration --- */

/* A new job is a new service to its clients, so that a straggler of the old one is refused. Number 0 means
 * none, on the wire. */
static uint64_t next_incarnation(uint64_t incarnation)
{
    return incarnation + 1 != 0 ? incarnation + 1 : 1;
}

/* Forget the job that has ended. Nobody is connected, so that no round of alive tasks is open. */
static void begin_next_job(struct muster_coordination *coordination)
{
    static const char over[] = "the job has ended";

    MUSTER_ASSERT(muster_list_is_empty(&coordination->beating));
    muster_coordination_free_keys(coordination, over);
    muster_coordination_free_barriers(coordination, over);
    muster_coordination_forget_error(coordination);
    coordination->has_all = false;
    coordination->options.service_incarnation =
        next_incarnation(coordination->options.service_incarnation);
    for (uint32_t id = 0; id < coordination->options.task_count; id++) {
        struct muster_coordination_task *task = &coordination->tasks[id];

        muster_coordination_end_poll(coordination, task, over);
        muster_mem_free(coordination->mem, (void *)(uintptr_t)task->devices.data);
        task->devices = (struct muster_bytes){NULL, 0};
        muster_mem_free(coordination->mem, task->text);
        task->text = NULL;
        task->rc = MUSTER_OK;
        task->state = MUSTER_TASK_UNINITIALIZED;
        task->has_shut_down = false;
        task->incarnation = 0;
    }
    if (coordination->ops->keep_nothing != NULL)
        coordination->ops->keep_nothing(coordination->data,
                                        coordination->options.service_incarnation);
}

/* The registration barrier has ended: every task has come, or the time is over. Then those that came are
 * disconnected, and may try again: no job of fewer tasks begins. */
static void on_registered(struct muster_coordination *coordination,
                          struct muster_coordination_barrier *barrier)
{
    if (barrier->rc == MUSTER_OK) {
        muster_coordination_listen(coordination);
        return;
    }
    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        if (coordination->tasks[id].state == MUSTER_TASK_CONNECTED)
            muster_coordination_disconnect(coordination, &coordination->tasks[id],
                                           "not all tasks have registered");
}

/* Every task has shut down or died for good: a registration now begins the next job. */
static bool is_over(const struct muster_coordination *coordination)
{
    for (uint32_t id = 0; id < coordination->options.task_count; id++) {
        const struct muster_coordination_task *task = &coordination->tasks[id];

        if (!task->has_shut_down && task->state != MUSTER_TASK_ERROR)
            return false;
    }
    return true;
}

/* A restarted task is refused once all have met: the others count on what its first life had told them. */
static const char *find_objection(struct muster_coordination *coordination,
                                  const struct muster_coordination_task *task,
                                  const struct muster_coordination_request *request)
{
    if (task->state == MUSTER_TASK_ERROR)
        return muster_coordination_format(
            coordination,
            "%" PRIu32 " unexpectedly tried to connect while it is already in error. ResetTask() "
            "should be called before a subsequent connect attempt. Existing error: %s",
            task->id, task->text != NULL ? task->text : "");
    if (task->state == MUSTER_TASK_CONNECTED && task->incarnation != request->incarnation &&
        coordination->has_all && !coordination->options.is_recoverable)
        return muster_coordination_format(
            coordination,
            "%" PRIu32 " unexpectedly tried to connect with a different incarnation. It has likely "
            "restarted.",
            task->id);
    return NULL;
}

static void refuse_objection(struct muster_coordination *coordination,
                             const struct muster_coordination_task *task, const char *text,
                             struct muster_coordination_ask *ask)
{
    const struct muster_coordination_answer answer = {.rc = MUSTER_ABORTED,
                                                      .text = text,
                                                      .details = MUSTER_COORDINATION_DETAIL_ERROR |
                                                                 MUSTER_COORDINATION_DETAIL_SOURCE,
                                                      .source_task = task->id};

    muster_coordination_answer(coordination, ask, &answer);
}

/* A registration that is repeated (its answer was lost) changes nothing and waits at the same barrier. */
void muster_coordination_register(struct muster_coordination *coordination,
                                  const struct muster_coordination_request *request,
                                  struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected task registered with task=", "");
    const char *objection;

    if (task == NULL)
        return;
    if (is_over(coordination))
        begin_next_job(coordination);
    objection = find_objection(coordination, task, request);
    if (objection != NULL) {
        refuse_objection(coordination, task, objection, ask);
        return;
    }
    if (task->state != MUSTER_TASK_CONNECTED || task->incarnation != request->incarnation) {
        task->incarnation = request->incarnation;
        muster_coordination_connect(coordination, task);
    }
    muster_coordination_enter_own(coordination, muster_coordination_register_barrier,
                                  coordination->options.register_timeout_ns, request, on_registered,
                                  ask);
}

/* Concatenated protobuf messages parse as one message with all their repeated fields. */
static void join_devices(struct muster_coordination *coordination,
                         struct muster_coordination_barrier *barrier)
{
    size_t bytes = 0;
    uint8_t *joined;

    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        bytes += coordination->tasks[id].devices.size;
    joined = muster_mem_alloc(coordination->mem, bytes + 1);
    if (joined == NULL) {
        barrier->rc = MUSTER_RESOURCE_EXHAUSTED; /* they ask again */
        return;
    }
    bytes = 0;
    for (uint32_t id = 0; id < coordination->options.task_count; id++) {
        struct muster_bytes devices = coordination->tasks[id].devices;

        if (devices.size > 0)
            memcpy(joined + bytes, devices.data, devices.size);
        bytes += devices.size;
    }
    barrier->devices = (struct muster_bytes){joined, bytes};
}

/* TensorFlow's WaitForAllTasks sends the devices of all tasks to every task. */
void muster_coordination_wait_for_all(struct muster_coordination *coordination,
                                      const struct muster_coordination_request *request,
                                      struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected task: ", "");
    void *copy;

    if (task == NULL)
        return;
    copy = muster_mem_alloc(coordination->mem, request->value.size + 1);
    if (copy == NULL) {
        muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    if (request->value.size > 0)
        memcpy(copy, request->value.data, request->value.size);
    muster_mem_free(coordination->mem, (void *)(uintptr_t)task->devices.data);
    task->devices = (struct muster_bytes){copy, request->value.size};
    muster_coordination_enter_own(coordination, WAIT_BARRIER,
                                  coordination->options.register_timeout_ns, request, join_devices,
                                  ask);
}

/* --- Heartbeats --- */

/* A heartbeat of another incarnation shows that the task has restarted without telling: what waits for its
 * first life must fail now and not at a timeout. The text is copied, since failing the task overwrites
 * scratch. */
static bool is_expected(struct muster_coordination *coordination,
                        struct muster_coordination_task *task,
                        const struct muster_coordination_request *request,
                        struct muster_coordination_ask *ask)
{
    char *text;

    if (task->incarnation == request->incarnation)
        return true;
    text = muster_mem_strdup(
        coordination->mem,
        muster_coordination_format(
            coordination,
            "%" PRIu32 " Heartbeat: Incarnation ID mismatch: expecting %" PRIu64 " but got %" PRIu64
            ". The task has restarted and likely crashed earlier - check for any earlier errors or "
            "any scheduler events (e.g. preemption, eviction) to debug further.",
            task->id, task->incarnation, request->incarnation));
    if (!coordination->options.is_recoverable)
        muster_coordination_fail(coordination, task, MUSTER_ABORTED,
                                 text != NULL ? text : "the task has restarted", false);
    muster_coordination_refuse(coordination, ask, MUSTER_ABORTED, text);
    muster_mem_free(coordination->mem, text);
    return false;
}

void muster_coordination_heartbeat(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected heartbeat request from task: ",
                   ". This usually implies a configuration error.");

    if (task == NULL || !is_expected(coordination, task, request, ask))
        return;
    /* A poll that was ended at once could not carry the error: the heartbeat does. */
    if (coordination->options.ends_polls && coordination->rc != MUSTER_OK) {
        muster_coordination_refuse(coordination, ask, coordination->rc, coordination->text);
        return;
    }
    if (task->state == MUSTER_TASK_CONNECTED)
        muster_coordination_beat(coordination, task);
    else if (coordination->options.is_recoverable && !task->has_shut_down)
        muster_coordination_connect(coordination, task); /* it only slept */
    muster_coordination_succeed(coordination, ask);
}

/* Nothing is expected of a task that is not in the list of beating ones. */
static bool is_silent(const struct muster_coordination *coordination,
                      const struct muster_coordination_task *task)
{
    return !muster_list_is_empty(&task->beat_node) &&
           coordination->now_ns - task->beaten_ns >= coordination->options.heartbeat_timeout_ns;
}

/* The longest silent, or NULL. */
static struct muster_coordination_task *find_silent(struct muster_coordination *coordination)
{
    struct muster_coordination_task *task;

    if (muster_list_is_empty(&coordination->beating))
        return NULL;
    task =
        MUSTER_CONTAINER_OF(coordination->beating.next, struct muster_coordination_task, beat_node);
    return is_silent(coordination, task) ? task : NULL;
}

/* The text names all tasks that are silent for too long, and `lost`. Gives; NULL: no memory. */
static char *format_silent(struct muster_coordination *coordination,
                           const struct muster_coordination_task *lost)
{
    (void)muster_coordination_format(
        coordination, "The following tasks are unhealthy (stopped sending heartbeats):\n");
    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        if (is_silent(coordination, &coordination->tasks[id]) || lost == &coordination->tasks[id])
            muster_text_add_format(&coordination->scratch, "%" PRIu32 "\n", id);
    muster_text_add_string(&coordination->scratch,
                           "The tasks have crashed. Check the task logs for an earlier error, or "
                           "scheduler events (e.g. preemption, eviction) to debug further.");
    return coordination->scratch.is_failed
               ? NULL
               : muster_mem_strdup(coordination->mem, coordination->scratch.bytes);
}

/* With recoverable tasks a death concerns only those that wait for the task; else it is the end of the job. */
static void task_lose(struct muster_coordination *coordination,
                      struct muster_coordination_task *task, const char *text)
{
    if (coordination->options.is_recoverable)
        muster_coordination_disconnect(coordination, task, "it has died");
    else
        muster_coordination_fail(coordination, task, MUSTER_UNAVAILABLE,
                                 text != NULL ? text : "a task has died", false);
}

/* All silent tasks get the same text, made before the first of them changes state. */
void muster_coordination_expire_tasks(struct muster_coordination *coordination)
{
    struct muster_coordination_task *task = find_silent(coordination);
    char *text;

    if (task == NULL)
        return;
    text = format_silent(coordination, task);
    for (; task != NULL; task = find_silent(coordination)) {
        task_lose(coordination, task, text);
        MUSTER_ASSERT(muster_list_is_empty(&task->beat_node)); /* or the loop would not end */
    }
    muster_mem_free(coordination->mem, text);
}

/* Before all have registered a connection that ends is no death: clients try several times until the service
 * answers. */
void muster_coordination_lost(struct muster_coordination *coordination, uint64_t now_ns,
                              uint32_t id)
{
    struct muster_coordination_task *task = muster_coordination_find_task(coordination, id);
    char *text;

    coordination->now_ns = now_ns;
    if (task == NULL || task->state != MUSTER_TASK_CONNECTED || !coordination->has_all)
        return;
    text = format_silent(coordination, task);
    task_lose(coordination, task, text);
    muster_mem_free(coordination->mem, text);
}

/* --- Errors --- */

/* An error that has happened already is answered at once, so that none is missed between two polls. */
void muster_coordination_poll(struct muster_coordination *coordination,
                              const struct muster_coordination_request *request,
                              struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected task polls for errors: ", "");

    if (task == NULL)
        return;
    if (task->state != MUSTER_TASK_CONNECTED && task->state != MUSTER_TASK_ERROR) {
        muster_coordination_refuse(
            coordination, ask, MUSTER_FAILED_PRECONDITION,
            muster_coordination_format(
                coordination, "Task (%" PRIu32 ") that has not been registered polls for errors.",
                task->id));
        return;
    }
    muster_coordination_end_poll(coordination, task, "new request from the same task");
    if (coordination->rc != MUSTER_OK) {
        muster_coordination_refuse(coordination, ask, coordination->rc, coordination->text);
        return;
    }
    MUSTER_ASSERT(task->poll == NULL);
    task->poll = ask;
    if (coordination->options.ends_polls)
        muster_coordination_end_poll(coordination, task,
                                     "errors are told by heartbeats, so that tasks outlive a "
                                     "restart of the service");
}

/* The code is a number from the wire; one that is no status becomes UNKNOWN. */
void muster_coordination_report(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected request from task ", "");
    enum muster_rc rc = request->number > 0 && request->number <= MUSTER_UNAUTHENTICATED
                            ? (enum muster_rc)request->number
                            : MUSTER_UNKNOWN;

    if (task == NULL)
        return;
    muster_coordination_fail(coordination, task, rc,
                             muster_coordination_format(coordination, "%.*s",
                                                        (int)request->key.size,
                                                        (const char *)request->key.data),
                             true);
    muster_coordination_succeed(coordination, ask);
}

/* A task that was in error may connect again after this, and the job's error goes when it was this task's. */
void muster_coordination_reset(struct muster_coordination *coordination,
                               const struct muster_coordination_request *request,
                               struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected task: ", "");

    if (task == NULL)
        return;
    muster_coordination_disconnect(coordination, task, "it was reset");
    if (coordination->error_task == task->id)
        muster_coordination_forget_error(coordination);
    muster_coordination_succeed(coordination, ask);
}

/* --- The end --- */

static void task_shut_down(struct muster_coordination *coordination,
                           struct muster_coordination_task *task)
{
    task->has_shut_down = true;
    muster_coordination_disconnect(coordination, task, "it has shut down");
}

/* A connected task that did not reach the shutdown barrier in time is in error. */
static void fail_missing(struct muster_coordination *coordination,
                         const struct muster_coordination_barrier *barrier)
{
    for (uint32_t id = 0; id < coordination->options.task_count; id++)
        if (coordination->tasks[id].state == MUSTER_TASK_CONNECTED && barrier->has_arrived[id] == 0)
            muster_coordination_fail(
                coordination, &coordination->tasks[id], MUSTER_DEADLINE_EXCEEDED,
                "This task did not come to the shutdown barrier in time.", false);
}

/* All tasks go together, so that none takes the end of another's connection for a death. The result of a
 * barrier that has failed is rewritten here, before it is told (barrier_end). */
static void on_shut_down(struct muster_coordination *coordination,
                         struct muster_coordination_barrier *barrier)
{
    char *text;

    if (barrier->rc == MUSTER_OK) {
        for (uint32_t id = 0; id < coordination->options.task_count; id++)
            task_shut_down(coordination, &coordination->tasks[id]);
        return;
    }
    if (barrier->rc == MUSTER_DEADLINE_EXCEEDED)
        fail_missing(coordination, barrier);
    text = muster_mem_strdup(
        coordination->mem,
        muster_coordination_format(
            coordination, "Shutdown barrier has failed.\nBarrier result: '%s: %s'",
            muster_rc_name(barrier->rc), barrier->text != NULL ? barrier->text : ""));
    muster_mem_free(coordination->mem, barrier->text);
    barrier->text = text;
    barrier->rc = MUSTER_INTERNAL;
}

/* Recoverable tasks do not wait for each other at the end either. The barrier's name has the incarnation of
 * the service, so that each job has its own. */
void muster_coordination_shut_down(struct muster_coordination *coordination,
                                   const struct muster_coordination_request *request,
                                   struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task =
        find_asker(coordination, request, ask, "Unexpected task shuts down: ", "");
    char id[SHUTDOWN_BARRIER_BYTES];

    if (task == NULL)
        return;
    if (coordination->options.is_recoverable) {
        muster_coordination_succeed(coordination, ask);
        task_shut_down(coordination, task);
        return;
    }
    (void)snprintf(id, sizeof(id), "Shutdown::%" PRIu64, coordination->options.service_incarnation);
    muster_coordination_enter_own(coordination, id, coordination->options.shutdown_timeout_ns,
                                  request, on_shut_down, ask);
}
