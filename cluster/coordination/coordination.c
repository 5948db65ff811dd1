/* The coordination service from above: its life, the table of requests, and what is due. */
#include "cluster/coordination/coordination_internal.h"

#include <inttypes.h>
#include <string.h>

/* --- Life --- */

enum muster_rc muster_coordination_new(struct muster_mem *mem,
                                       const struct muster_coordination_options *options,
                                       const struct muster_coordination_ops *ops, void *data,
                                       struct muster_coordination **ret_coordination)
{
    struct muster_coordination *coordination = muster_mem_alloc_zero(mem, 1, sizeof(*coordination));

    MUSTER_ASSERT(options->service_incarnation != 0 && ops->answer != NULL);
    if (coordination == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    coordination->tasks =
        muster_mem_alloc_zero(mem, options->task_count, sizeof(*coordination->tasks));
    if (coordination->tasks == NULL) {
        muster_mem_free(mem, coordination);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    coordination->mem = mem;
    coordination->options = *options;
    coordination->ops = ops;
    coordination->data = data;
    muster_list_init(&coordination->beating);
    muster_coordination_index_init(&coordination->keys, mem);
    muster_coordination_index_init(&coordination->barriers, mem);
    muster_list_init(&coordination->open_barriers);
    muster_list_init(&coordination->alive_rounds);
    muster_list_init(&coordination->watches);
    muster_text_init(&coordination->scratch, mem);
    for (uint32_t id = 0; id < options->task_count; id++) {
        coordination->tasks[id].id = id;
        coordination->tasks[id].state = MUSTER_TASK_UNINITIALIZED;
        muster_list_init(&coordination->tasks[id].beat_node);
    }
    *ret_coordination = coordination;
    return MUSTER_OK;
}

void muster_coordination_free(struct muster_coordination *coordination)
{
    if (coordination == NULL)
        return;
    muster_coordination_free_keys(coordination, NULL);
    muster_coordination_free_barriers(coordination, NULL);
    muster_coordination_free_alive(coordination);
    for (uint32_t id = 0; id < coordination->options.task_count; id++) {
        muster_mem_free(coordination->mem, coordination->tasks[id].text);
        muster_mem_free(coordination->mem, (void *)(uintptr_t)coordination->tasks[id].devices.data);
    }
    muster_mem_free(coordination->mem, coordination->tasks);
    muster_mem_free(coordination->mem, coordination->text);
    muster_text_fini(&coordination->scratch);
    muster_mem_free(coordination->mem, coordination);
}

/* --- Requests --- */

/* The reference checks the incarnation on every call but the first. A request without one speaks the earlier
 * protocol, which is allowed. */
static bool is_for_this_service(struct muster_coordination *coordination,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask)
{
    struct muster_coordination_answer answer = {
        .rc = MUSTER_INTERNAL,
        .details = MUSTER_COORDINATION_DETAIL_ERROR | MUSTER_COORDINATION_DETAIL_MISMATCH,
        .service_incarnation = coordination->options.service_incarnation};

    if (!request->has_service_incarnation ||
        request->service_incarnation == coordination->options.service_incarnation)
        return true;
    answer.text = muster_coordination_format(
        coordination, "wrong service incarnation: requested %" PRIu64 ", currently %" PRIu64,
        request->service_incarnation, coordination->options.service_incarnation);
    muster_coordination_answer(coordination, ask, &answer);
    return false;
}

/* One function per method, indexed by the enum, so that a new method cannot be forgotten in a chain of ifs. */
typedef void handler_fn(struct muster_coordination *coordination,
                        const struct muster_coordination_request *request,
                        struct muster_coordination_ask *ask);

/* A registration names no service yet, so only it is not checked. The handler answers at once or puts the
 * ask into a list; it never keeps a pointer into the request. */
void muster_coordination_handle(struct muster_coordination *coordination, uint64_t now_ns,
                                const struct muster_coordination_request *request,
                                struct muster_coordination_ask *ask)
{
    static handler_fn *const handlers[] = {
        [MUSTER_COORDINATION_REGISTER] = muster_coordination_register,
        [MUSTER_COORDINATION_WAIT_FOR_ALL] = muster_coordination_wait_for_all,
        [MUSTER_COORDINATION_HEARTBEAT] = muster_coordination_heartbeat,
        [MUSTER_COORDINATION_POLL_FOR_ERROR] = muster_coordination_poll,
        [MUSTER_COORDINATION_SHUTDOWN] = muster_coordination_shut_down,
        [MUSTER_COORDINATION_RESET] = muster_coordination_reset,
        [MUSTER_COORDINATION_REPORT_ERROR] = muster_coordination_report,
        [MUSTER_COORDINATION_WATCH] = muster_coordination_watch,
        [MUSTER_COORDINATION_TASK_STATE] = muster_coordination_tell_states,
        [MUSTER_COORDINATION_INSERT] = muster_coordination_insert,
        [MUSTER_COORDINATION_GET] = muster_coordination_get,
        [MUSTER_COORDINATION_TRY_GET] = muster_coordination_get,
        [MUSTER_COORDINATION_INCREMENT] = muster_coordination_increment,
        [MUSTER_COORDINATION_DIRECTORY] = muster_coordination_list_directory,
        [MUSTER_COORDINATION_DELETE] = muster_coordination_delete,
        [MUSTER_COORDINATION_BARRIER] = muster_coordination_enter,
        [MUSTER_COORDINATION_CANCEL_BARRIER] = muster_coordination_cancel_barrier,
        [MUSTER_COORDINATION_ALIVE] = muster_coordination_ask_alive,
    };

    MUSTER_ASSERT((size_t)request->method < sizeof(handlers) / sizeof(handlers[0]));
    coordination->now_ns = now_ns;
    muster_list_init(&ask->node);
    ask->task = request->task;
    ask->key = (struct muster_bytes){NULL, 0};
    if (request->method != MUSTER_COORDINATION_REGISTER &&
        !is_for_this_service(coordination, request, ask))
        return;
    handlers[request->method](coordination, request, ask);
}

bool muster_coordination_find_asker(const struct muster_coordination *coordination,
                                    const struct muster_coordination_request *request,
                                    uint32_t *ret_task)
{
    if (request->method == MUSTER_COORDINATION_POLL_FOR_ERROR) {
        *ret_task = request->task;
        return true;
    }
    /* Only a request that may wait for long is worth the search. */
    if (request->method != MUSTER_COORDINATION_GET || request->asker_incarnation == 0)
        return false;
    for (uint32_t id = 0; id < coordination->options.task_count; id++) {
        if (coordination->tasks[id].incarnation != request->asker_incarnation)
            continue;
        *ret_task = id;
        return true;
    }
    return false;
}

/* An ask is in at most one list, or the poll of its task; each of them is left whether or not it was there. */
void muster_coordination_drop(struct muster_coordination *coordination,
                              struct muster_coordination_ask *ask)
{
    struct muster_coordination_task *task = muster_coordination_find_task(coordination, ask->task);

    if (task != NULL && task->poll == ask)
        task->poll = NULL;
    muster_list_remove(&ask->node);
    muster_coordination_drop_wait(coordination, ask);
}

/* --- Time --- */

/* Tasks come first: a barrier that waits for a task that has just died fails for that, and not for its
 * timeout. */
void muster_coordination_expire(struct muster_coordination *coordination, uint64_t now_ns)
{
    coordination->now_ns = now_ns;
    muster_coordination_expire_tasks(coordination);
    muster_coordination_expire_barriers(coordination);
}

/* The first of the beating tasks has been silent the longest, so only it is looked at. */
uint64_t muster_coordination_due_ns(const struct muster_coordination *coordination)
{
    uint64_t due_ns = muster_coordination_barriers_due_ns(coordination);

    if (!muster_list_is_empty(&coordination->beating)) {
        const struct muster_coordination_task *oldest = MUSTER_CONTAINER_OF(
            coordination->beating.next, struct muster_coordination_task, beat_node);
        uint64_t silent_ns = oldest->beaten_ns + coordination->options.heartbeat_timeout_ns;

        if (silent_ns < due_ns)
            due_ns = silent_ns;
    }
    return due_ns;
}
