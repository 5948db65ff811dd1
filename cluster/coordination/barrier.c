/* Barriers: instances of one name, counted by the service and by each caller, so that a caller that was cut
 * off can tell a repeated call from the next one. Only the newest instance is kept, with its result, for a
 * caller that has lost the answer and repeats the call. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <string.h>

/* The name is that of the reference; it shows in texts of errors that people search for. */
const char muster_coordination_register_barrier[] = "[Init]Wait_for_all_tasks_to_register";

#define MISSING_SHOWN_MAX 20 /* names in the text of a barrier that timed out */

static struct muster_coordination_barrier *barrier_of(struct muster_coordination_name *name)
{
    return name != NULL ? MUSTER_CONTAINER_OF(name, struct muster_coordination_barrier, name)
                        : NULL;
}

static struct muster_coordination_barrier *barrier_find(struct muster_coordination *coordination,
                                                        struct muster_bytes id)
{
    return barrier_of(muster_coordination_index_find(&coordination->barriers, id));
}

/* The details name the barrier and its instance, by which the client knows what its next call must be. */
static void answer_barrier(struct muster_coordination *coordination,
                           struct muster_coordination_ask *ask, struct muster_bytes id,
                           int64_t counter, enum muster_rc rc, const char *text)
{
    const struct muster_coordination_answer answer = {.rc = rc,
                                                      .text = text,
                                                      .details = MUSTER_COORDINATION_DETAIL_ERROR |
                                                                 MUSTER_COORDINATION_DETAIL_BARRIER,
                                                      .key = id,
                                                      .counter = counter};

    muster_coordination_answer(coordination, ask, &answer);
}

static void answer_result(struct muster_coordination *coordination,
                          const struct muster_coordination_barrier *barrier,
                          struct muster_coordination_ask *ask)
{
    MUSTER_ASSERT(barrier->has_ended);
    if (barrier->rc != MUSTER_OK) {
        answer_barrier(coordination, ask, barrier->name.text, barrier->counter, barrier->rc,
                       barrier->text);
    } else {
        const struct muster_coordination_answer answer = {
            .service_incarnation = coordination->options.service_incarnation,
            .counter = barrier->counter,
            .devices = barrier->devices};

        muster_coordination_answer(coordination, ask, &answer);
    }
}

/* --- Life --- */

/* Members and counter stay: they are of the barrier and not of one instance. */
static void instance_clear(struct muster_coordination *coordination,
                           struct muster_coordination_barrier *barrier)
{
    MUSTER_ASSERT(muster_list_is_empty(&barrier->asks));
    muster_mem_free(coordination->mem, barrier->text);
    muster_mem_free(coordination->mem, barrier->has_arrived);
    muster_mem_free(coordination->mem, (void *)(uintptr_t)barrier->devices.data);
    barrier->devices = (struct muster_bytes){NULL, 0};
    barrier->text = NULL;
    barrier->has_arrived = NULL;
    barrier->arrived_count = 0;
    barrier->has_ended = false;
    barrier->rc = MUSTER_OK;
    barrier->on_end = NULL;
}

static void barrier_free(struct muster_coordination *coordination,
                         struct muster_coordination_barrier *barrier, const char *why)
{
    struct muster_list *node;

    while ((node = muster_list_pop(&barrier->asks)) != NULL)
        if (why != NULL)
            muster_coordination_refuse(
                coordination, MUSTER_CONTAINER_OF(node, struct muster_coordination_ask, node),
                MUSTER_CANCELLED, why);
    instance_clear(coordination, barrier);
    muster_coordination_forget_members(coordination, barrier);
    muster_list_remove(&barrier->open_node);
    muster_coordination_index_remove(&coordination->barriers, &barrier->name);
    muster_mem_free(coordination->mem, barrier);
}

/* Counter -1, ended: so the first instance is number 0, begun by its first call like any other. */
static struct muster_coordination_barrier *barrier_add(struct muster_coordination *coordination,
                                                       struct muster_bytes id)
{
    struct muster_coordination_barrier *barrier =
        muster_mem_alloc_zero(coordination->mem, 1, sizeof(*barrier) + id.size);
    char *text = NULL;

    if (barrier == NULL)
        return NULL;
    text = (char *)(barrier + 1);
    if (id.size > 0)
        memcpy(text, id.data, id.size);
    barrier->name.text = (struct muster_bytes){text, id.size};
    muster_list_init(&barrier->open_node);
    muster_list_init(&barrier->asks);
    barrier->counter = -1;
    barrier->has_ended = true;
    if (muster_coordination_index_add(&coordination->barriers, &barrier->name))
        return barrier;
    muster_mem_free(coordination->mem, barrier);
    return NULL;
}

void muster_coordination_free_barriers(struct muster_coordination *coordination, const char *why)
{
    while (coordination->barriers.count > 0)
        barrier_free(coordination,
                     barrier_of(coordination->barriers.names[coordination->barriers.count - 1]),
                     why);
    muster_coordination_index_fini(&coordination->barriers);
}

/* End the open instance for all callers. text may be scratch, so it is copied before an answer overwrites
 * it. on_end runs before the result is kept and told, because it may change it. The result stays for callers
 * that repeat the call. */
static void barrier_end(struct muster_coordination *coordination,
                        struct muster_coordination_barrier *barrier, enum muster_rc rc,
                        const char *text)
{
    struct muster_list round, *node;

    MUSTER_ASSERT(!barrier->has_ended);
    muster_list_remove(&barrier->open_node);
    barrier->has_ended = true;
    barrier->rc = rc;
    barrier->text = text != NULL ? muster_mem_strdup(coordination->mem, text) : NULL;
    if (barrier->on_end != NULL)
        barrier->on_end(coordination, barrier);
    if (coordination->ops->keep_barrier != NULL)
        coordination->ops->keep_barrier(coordination->data, barrier->name.text, barrier->counter,
                                        barrier->rc, barrier->text);
    muster_list_take_all(&round, &barrier->asks);
    while ((node = muster_list_pop(&round)) != NULL)
        answer_result(coordination, barrier,
                      MUSTER_CONTAINER_OF(node, struct muster_coordination_ask, node));
}

/* --- Entering --- */

/* Text of why this instance must fail at its beginning, or NULL. A task that is in error will not come, so
 * the others need not wait for the timeout. Members that name no task of the job are forgotten: the next
 * call may name others. */
static const char *find_obstacle(struct muster_coordination *coordination,
                                 struct muster_coordination_barrier *barrier,
                                 enum muster_rc *ret_rc)
{
    for (size_t i = 0; i < muster_coordination_member_count(coordination, barrier); i++) {
        uint32_t id = muster_coordination_member_at(barrier, i);
        const struct muster_coordination_task *task =
            muster_coordination_find_task(coordination, id);

        *ret_rc = task == NULL ? MUSTER_INVALID_ARGUMENT : MUSTER_INTERNAL;
        if (task == NULL) {
            muster_coordination_forget_members(coordination, barrier);
            return muster_coordination_format(
                coordination,
                "Unexpected task (%" PRIu32 ") that is not in the cluster called the barrier. "
                "Barrier Id: " BARRIER_FORMAT,
                id, BARRIER_ARGS(barrier->name.text, barrier->counter));
        }
        if (task->state == MUSTER_TASK_ERROR)
            return muster_coordination_format(
                coordination,
                "Task (%" PRIu32 ") is already in error before the barrier was called. "
                "Barrier Id: " BARRIER_FORMAT " Task error: %s",
                id, BARRIER_ARGS(barrier->name.text, barrier->counter),
                task->text != NULL ? task->text : "");
    }
    return NULL;
}

/* False: no memory; the result of the last instance stays, so nothing is changed before all memory is there. */
static bool instance_begin(struct muster_coordination *coordination,
                           struct muster_coordination_barrier *barrier,
                           const struct muster_coordination_request *request, uint64_t timeout_ns)
{
    uint64_t now_ns = coordination->now_ns;
    uint8_t *has_arrived;

    MUSTER_ASSERT(barrier->has_ended);
    muster_coordination_settle_members(coordination, barrier, request);
    if (!barrier->has_members)
        return false;
    has_arrived = muster_mem_alloc_zero(coordination->mem, coordination->options.task_count, 1);
    if (has_arrived == NULL)
        return false;
    instance_clear(coordination, barrier);
    barrier->counter++;
    barrier->has_arrived = has_arrived;
    barrier->first_task = request->task;
    barrier->due_ns = timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
    muster_list_append(&coordination->open_barriers, &barrier->open_node);
    return true;
}

/* A second call of one task replaces the first, which is cancelled: its client has given up waiting for that
 * answer. At most one ask of a task is in the list. */
static void replace_ask(struct muster_coordination *coordination,
                        struct muster_coordination_barrier *barrier, uint32_t task)
{
    MUSTER_LIST_EACH (&barrier->asks, ask, struct muster_coordination_ask, node) {
        const struct muster_coordination_answer answer = {
            .rc = MUSTER_CANCELLED,
            .text = muster_coordination_format(
                coordination,
                "Cancelled because there's a more recent barrier call for " BARRIER_FORMAT
                " from the same task.",
                BARRIER_ARGS(barrier->name.text, barrier->counter))};

        if (ask->task != task)
            continue;
        muster_coordination_answer(coordination, ask, &answer);
        return;
    }
}

/* The last arrival ends the barrier inside its own call. */
static void barrier_arrive(struct muster_coordination *coordination,
                           struct muster_coordination_barrier *barrier, uint32_t task,
                           struct muster_coordination_ask *ask)
{
    MUSTER_ASSERT(task < coordination->options.task_count && !barrier->has_ended);
    if (barrier->has_arrived[task] != 0)
        replace_ask(coordination, barrier, task);
    else
        barrier->arrived_count++;
    barrier->has_arrived[task] = 1;
    muster_list_append(&barrier->asks, &ask->node);
    if (barrier->arrived_count == muster_coordination_member_count(coordination, barrier))
        barrier_end(coordination, barrier, MUSTER_OK, NULL);
}

/* The caller arrives at the open instance. One that does not belong there, or names other members, ends it
 * for all: the program has a fault, and waiting would only hide it until the timeout. */
static void enter_open(struct muster_coordination *coordination,
                       struct muster_coordination_barrier *barrier,
                       const struct muster_coordination_request *request,
                       struct muster_coordination_ask *ask)
{
    const char *text = muster_coordination_find_conflict(coordination, barrier, request);

    if (text == NULL && !muster_coordination_is_member(coordination, barrier, request->task))
        text = muster_coordination_format(
            coordination,
            "A non-participating task (%" PRIu32 ") called the barrier: " BARRIER_FORMAT,
            request->task, BARRIER_ARGS(barrier->name.text, barrier->counter));
    if (text == NULL) {
        barrier_arrive(coordination, barrier, request->task, ask);
        return;
    }
    muster_list_append(&barrier->asks, &ask->node);
    barrier_end(coordination, barrier, MUSTER_INVALID_ARGUMENT, text);
}

/* The call that begins an instance settles its timeout, as its caller asks; the others join it. */
static void barrier_enter(struct muster_coordination *coordination,
                          struct muster_coordination_barrier *barrier,
                          const struct muster_coordination_request *request, uint64_t timeout_ns,
                          void (*on_end)(struct muster_coordination *,
                                         struct muster_coordination_barrier *),
                          struct muster_coordination_ask *ask)
{
    enum muster_rc rc = MUSTER_OK;
    const char *obstacle;

    if (!barrier->has_ended) {
        enter_open(coordination, barrier, request, ask);
        return;
    }
    if (!instance_begin(coordination, barrier, request, timeout_ns)) {
        muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    barrier->on_end = on_end;
    obstacle = find_obstacle(coordination, barrier, &rc);
    if (obstacle == NULL) {
        enter_open(coordination, barrier, request, ask);
        return;
    }
    muster_list_append(&barrier->asks, &ask->node);
    barrier_end(coordination, barrier, rc, obstacle);
}

/* Repeat the result of the instance for a caller that is late or asks again. */
static void answer_again(struct muster_coordination *coordination,
                         const struct muster_coordination_barrier *barrier,
                         const struct muster_coordination_request *request,
                         struct muster_coordination_ask *ask)
{
    const char *text = muster_coordination_find_conflict(coordination, barrier, request);

    if (text == NULL)
        answer_result(coordination, barrier, ask);
    else
        answer_barrier(coordination, ask, barrier->name.text, barrier->counter,
                       MUSTER_INVALID_ARGUMENT, text);
}

/* The numbers of caller and service do not fit: one of them has restarted, or missed an instance. The answer
 * carries the number of our instance, from which the caller counts on. */
static void refuse_gap(struct muster_coordination *coordination,
                       const struct muster_coordination_request *request, int64_t instance,
                       struct muster_coordination_ask *ask)
{
    const char *text = muster_coordination_format(
        coordination,
        "Barrier (" BARRIER_FORMAT
        ") is invoked by the task, but the service thinks it is the %" PRId64 "-th instance. %s",
        BARRIER_ARGS(request->key, request->counter), instance,
        request->counter == 0 || instance == 0
            ? "The service or task probably restarted, check the earlier logs to debug further. "
              "Usually, a restart on the stale tasks will resolve the issue."
            : "One task is probably way too quick / slow in its execution. For example, one task "
              "started a barrier early, which timed out, and started a second barrier before the "
              "late task even joined once.");

    answer_barrier(coordination, ask, request->key, instance, MUSTER_INTERNAL, text);
}

/* Instances are counted by both sides: the newest, once ended, is answered again, the one after it is begun, and
 * any other number is refused. */
void muster_coordination_enter(struct muster_coordination *coordination,
                               const struct muster_coordination_request *request,
                               struct muster_coordination_ask *ask)
{
    struct muster_coordination_barrier *barrier = barrier_find(coordination, request->key);
    uint64_t timeout_ns =
        request->timeout_ms > 0 ? (uint64_t)request->timeout_ms * MUSTER_NS_PER_MS : 0;
    int64_t newest = barrier != NULL ? barrier->counter : -1;
    int64_t next = barrier != NULL && !barrier->has_ended ? newest : newest + 1;

    if (request->timeout_ms > (int64_t)(UINT64_MAX / MUSTER_NS_PER_MS / 2))
        timeout_ns = UINT64_MAX / 2;
    if (barrier != NULL && barrier->has_ended && request->counter == newest) {
        answer_again(coordination, barrier, request, ask);
        return;
    }
    if (request->counter != next) {
        refuse_gap(coordination, request, newest < 0 ? 0 : newest, ask);
        return;
    }
    if (barrier == NULL)
        barrier = barrier_add(coordination, request->key);
    if (barrier == NULL) {
        muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    barrier_enter(coordination, barrier, request, timeout_ns, NULL, ask);
}

/* A barrier of the service itself has no numbers on the wire. Once it has succeeded every later call
 * succeeds at once; one that failed may be tried again. */
void muster_coordination_enter_own(struct muster_coordination *coordination, const char *id,
                                   uint64_t timeout_ns,
                                   const struct muster_coordination_request *request,
                                   void (*on_end)(struct muster_coordination *coordination,
                                                  struct muster_coordination_barrier *barrier),
                                   struct muster_coordination_ask *ask)
{
    const struct muster_bytes name = {id, strlen(id)};
    struct muster_coordination_request own = *request;
    struct muster_coordination_barrier *barrier = barrier_find(coordination, name);

    own.key = name;
    own.task_count = 0;
    if (barrier == NULL)
        barrier = barrier_add(coordination, name);
    if (barrier == NULL)
        muster_coordination_refuse(coordination, ask, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    else if (barrier->has_ended && barrier->counter >= 0 && barrier->rc == MUSTER_OK)
        answer_result(coordination, barrier, ask);
    else
        barrier_enter(coordination, barrier, &own, timeout_ns, on_end, ask);
}

/* --- Cancelled, failed, timed out --- */

/* Cancelling an instance that has not begun, or an earlier one while a later one is open, has nothing to do. */
void muster_coordination_cancel_barrier(struct muster_coordination *coordination,
                                        const struct muster_coordination_request *request,
                                        struct muster_coordination_ask *ask)
{
    struct muster_coordination_barrier *barrier = barrier_find(coordination, request->key);

    if (barrier == NULL || request->counter > barrier->counter ||
        (request->counter < barrier->counter && !barrier->has_ended)) {
        muster_coordination_succeed(coordination, ask);
        return;
    }
    if (barrier->has_ended) {
        const char *text = muster_coordination_format(
            coordination,
            "Barrier (" BARRIER_FORMAT ") has already been passed with status code: %d",
            BARRIER_ARGS(barrier->name.text, barrier->counter), (int)barrier->rc);

        answer_barrier(coordination, ask, barrier->name.text, barrier->counter,
                       MUSTER_FAILED_PRECONDITION, text);
        return;
    }
    barrier_end(coordination, barrier, MUSTER_CANCELLED,
                muster_coordination_format(
                    coordination, "Barrier (" BARRIER_FORMAT ") is cancelled by task: %" PRIu32,
                    BARRIER_ARGS(barrier->name.text, barrier->counter), request->task));
    muster_coordination_succeed(coordination, ask);
}

/* A barrier that waits for the task, or NULL. Ending one may end others, so the search begins anew each time. */
static struct muster_coordination_barrier *find_waiting(struct muster_coordination *coordination,
                                                        uint32_t task)
{
    MUSTER_LIST_EACH (&coordination->open_barriers, barrier, struct muster_coordination_barrier,
                      open_node) {
        if (muster_coordination_is_member(coordination, barrier, task))
            return barrier;
    }
    return NULL;
}

void muster_coordination_leave_barriers(struct muster_coordination *coordination, uint32_t task,
                                        const char *reason)
{
    struct muster_coordination_barrier *barrier;

    while ((barrier = find_waiting(coordination, task)) != NULL)
        barrier_end(coordination, barrier, MUSTER_INTERNAL,
                    muster_coordination_format(coordination,
                                               "Barrier failed. Id: " BARRIER_FORMAT
                                               ". Task %" PRIu32 " will not come: %s",
                                               BARRIER_ARGS(barrier->name.text, barrier->counter),
                                               task, reason));
}

/* The names go after the text that is in scratch already. */
static void add_missing(struct muster_coordination *coordination,
                        const struct muster_coordination_barrier *barrier)
{
    size_t shown = 0;

    for (size_t i = 0;
         i < muster_coordination_member_count(coordination, barrier) && shown < MISSING_SHOWN_MAX;
         i++) {
        uint32_t id = muster_coordination_member_at(barrier, i);

        if (barrier->has_arrived[id] != 0)
            continue;
        muster_text_add_format(&coordination->scratch, "%" PRIu32 "\n", id);
        shown++;
    }
}

/* The text is the reference's up to the names, so that a search for it finds the same advice. */
static void barrier_expire(struct muster_coordination *coordination,
                           struct muster_coordination_barrier *barrier)
{
    MUSTER_ASSERT(!barrier->has_ended);
    (void)muster_coordination_format(
        coordination,
        "Barrier timed out. Id: " BARRIER_FORMAT
        ". This usually happens because a task triggered the "
        "barrier too early or too slowly. Please look at the task logs (both timed out and first "
        "task) to debug further.\n# of tasks that reached the barrier: %zu/%zu.\nThe first task at "
        "the barrier: %" PRIu32 ". Some timed out task names:\n",
        BARRIER_ARGS(barrier->name.text, barrier->counter), barrier->arrived_count,
        muster_coordination_member_count(coordination, barrier), barrier->first_task);
    add_missing(coordination, barrier);
    barrier_end(coordination, barrier, MUSTER_DEADLINE_EXCEEDED,
                coordination->scratch.is_failed ? "out of memory" : coordination->scratch.bytes);
}

static struct muster_coordination_barrier *find_due(struct muster_coordination *coordination)
{
    MUSTER_LIST_EACH (&coordination->open_barriers, barrier, struct muster_coordination_barrier,
                      open_node) {
        if (barrier->due_ns <= coordination->now_ns)
            return barrier;
    }
    return NULL;
}

void muster_coordination_expire_barriers(struct muster_coordination *coordination)
{
    struct muster_coordination_barrier *barrier;

    while ((barrier = find_due(coordination)) != NULL)
        barrier_expire(coordination, barrier);
}

/* Few barriers are open at a time, so they are in no order. */
uint64_t muster_coordination_barriers_due_ns(const struct muster_coordination *coordination)
{
    uint64_t due_ns = UINT64_MAX;

    MUSTER_LIST_EACH (&coordination->open_barriers, barrier, struct muster_coordination_barrier,
                      open_node)
        if (barrier->due_ns < due_ns)
            due_ns = barrier->due_ns;
    return due_ns;
}

/* Only results are kept: a barrier that was open when the process died is entered again by its clients. When
 * all had registered, heartbeats count at once. */
enum muster_rc muster_coordination_restore_barrier(struct muster_coordination *coordination,
                                                   struct muster_bytes id, int64_t counter,
                                                   enum muster_rc rc, const char *text)
{
    struct muster_coordination_barrier *barrier = barrier_add(coordination, id);

    if (barrier == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    barrier->counter = counter;
    barrier->rc = rc;
    barrier->text = text != NULL ? muster_mem_strdup(coordination->mem, text) : NULL;
    if (text != NULL && barrier->text == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (rc == MUSTER_OK && id.size == strlen(muster_coordination_register_barrier) &&
        memcmp(id.data, muster_coordination_register_barrier, id.size) == 0)
        muster_coordination_listen(coordination);
    return MUSTER_OK;
}
