/* Requests: operations that are started, and end on the loop while the program computes. What has ended waits in a
 * list until the program's thread completes it. */
#include <muster/strategy_request.h>

#include <stdio.h>
#include <string.h>

#include "collective/group/group.h"
#include "training/strategy_stage.h"

#define REQUESTS_MAX 1024u

/** The library's part of a request that is open, on the loop. */
struct open_request {
    struct muster_strategy *strategy;
    struct muster_request *request;
    struct muster_list node;
    const char *name;
    struct muster_stage *stage; /* NULL: its tensors are the program's */
    bool is_written;            /* what the stage has is on the device */
    /* Until its operations start: after the copies of its stage, and after the requests before it. */
    bool is_deferred;
    bool is_cancelled;
    struct muster_list turn;
    struct muster_strategy_call call; /* with copies of what is the program's … */
    uint8_t *call_memory;             /* … in here */
    enum muster_rc rc;                /* the first failure */
    struct muster_error error;
    struct muster_op_result result;
    bool has_result;
    size_t open_count;
    bool is_earlier; /* of an attempt before the last begin: the step does not fail with it */
    size_t op_count;
    struct muster_op ops[];
};

/* --- Starting --- */

/* The program's threads read is_under_way without the seat: release makes the tensors readable for them. */
static void end_open(struct open_request *open)
{
    muster_list_remove(&open->node);
    muster_list_append(&open->strategy->ended, &open->node);
    __atomic_store_n(&open->request->is_under_way, false, __ATOMIC_RELEASE);
}

/* On the device the results are there when their copies are. */
static void end_ops(struct open_request *open)
{
    if (open->stage != NULL && open->rc == MUSTER_OK)
        open->is_written = muster_stage_start_write_back(open->stage);
    if (!open->is_written)
        end_open(open);
}

/* A failure of an operation after the first one comes with the completion, since those before it are open. */
static void start_ops(struct open_request *open, const struct muster_strategy_call *call,
                      struct muster_group *group)
{
    struct muster_strategy *strategy = open->strategy;

    for (size_t i = 0; i < call->count && open->rc == MUSTER_OK; i++) {
        struct muster_op *op = &open->ops[i];
        enum muster_rc rc;

        muster_strategy_init_op(strategy, call, op);
        rc = call->start(call, i, op, group);
        open->rc = rc;
        if (rc == MUSTER_OK) {
            open->op_count++;
            open->open_count++;
            continue;
        }
        op->data = NULL;
        if (rc != MUSTER_ABORTED || !call->is_message) /* that one says who is gone */
            muster_strategy_explain_refusal(strategy, call, i, op, rc);
        open->error = strategy->error;
    }
}

/* --- Deferred --- */

/* The program may change its structs and counts after the start. */
static enum muster_rc keep_call(struct open_request *open, const struct muster_strategy_call *call)
{
    size_t tensors = call->tensors == NULL ? 0 : call->view != NULL ? 2 : call->count;
    size_t tensor_bytes = tensors * sizeof(call->tensors[0]);
    size_t count_bytes = call->part_count * sizeof(call->part_counts[0]);
    uint8_t *memory =
        muster_mem_alloc(open->strategy->env->mem, tensor_bytes + 2 * count_bytes + 1);

    if (memory == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    open->call = *call;
    open->call_memory = memory;
    if (tensors > 0)
        open->call.tensors = memcpy(memory, call->tensors, tensor_bytes);
    if (call->part_counts != NULL)
        open->call.part_counts = memcpy(memory + tensor_bytes, call->part_counts, count_bytes);
    if (call->output_counts != NULL)
        open->call.output_counts =
            memcpy(memory + tensor_bytes + count_bytes, call->output_counts, count_bytes);
    return MUSTER_OK;
}

static void cancel_ops(struct open_request *open)
{
    for (size_t i = 0; i < open->op_count; i++)
        if (open->ops[i].data != NULL)
            muster_op_cancel(&open->ops[i]);
}

static void begin_ops(struct open_request *open)
{
    const struct muster_strategy *strategy = open->strategy;
    struct muster_group *group = strategy->node != NULL ? muster_node_group(strategy->node) : NULL;

    open->is_deferred = false;
    if (open->rc == MUSTER_OK && group == NULL)
        open->rc = muster_error_set(&open->error, MUSTER_ABORTED,
                                    "%s: this member is not in the current view", open->name);
    start_ops(open, &open->call, group);
    if (open->is_cancelled)
        cancel_ops(open);
    if (open->open_count == 0)
        end_ops(open);
}

/* In the order of their calls, which is the same on all members. */
static void begin_deferred(struct muster_strategy *strategy)
{
    while (!muster_list_is_empty(&strategy->deferred)) {
        struct open_request *open =
            MUSTER_CONTAINER_OF(strategy->deferred.next, struct open_request, turn);

        if (open->stage != NULL && muster_stage_is_copying(open->stage))
            return;
        muster_list_remove(&open->turn);
        begin_ops(open);
    }
}

static void on_stage_copied(void *data, enum muster_rc rc)
{
    struct open_request *open = data;

    if (rc != MUSTER_OK && open->rc == MUSTER_OK) {
        open->rc = rc;
        open->error = open->strategy->error;
    }
    if (open->is_deferred)
        begin_deferred(open->strategy);
    else
        end_open(open);
}

static bool must_defer(const struct muster_strategy *strategy,
                       const struct muster_strategy_call *call)
{
    return !muster_list_is_empty(&strategy->deferred) ||
           (call->stage != NULL && muster_stage_is_copying(call->stage));
}

static enum muster_rc start_or_defer(struct open_request *open,
                                     const struct muster_strategy_call *call,
                                     struct muster_group *group)
{
    struct muster_strategy *strategy = open->strategy;
    enum muster_rc rc;

    open->is_deferred = must_defer(strategy, call);
    if (!open->is_deferred) {
        start_ops(open, call, group);
        return open->open_count == 0 ? open->rc : MUSTER_OK;
    }
    rc = keep_call(open, call);
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc, "%s: out of memory", call->name);
    muster_list_append(&strategy->deferred, &open->turn);
    return MUSTER_OK;
}

static enum muster_rc start_request(struct muster_strategy *strategy,
                                    const struct muster_strategy_call *call)
{
    struct muster_group *group = muster_node_group(strategy->node);
    struct open_request *open;
    enum muster_rc rc;

    if (group == NULL)
        return muster_error_set(&strategy->error, MUSTER_ABORTED,
                                "%s: this member is not in the current view", call->name);
    if (strategy->request_count >= REQUESTS_MAX)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "%s: %zu requests are open, at most %u are possible", call->name,
                                strategy->request_count, REQUESTS_MAX);
    open = muster_mem_alloc_zero(strategy->env->mem, 1,
                                 sizeof(*open) + call->count * sizeof(open->ops[0]));
    if (open == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED, "%s: out of memory",
                                call->name);
    open->strategy = strategy;
    open->request = call->request;
    open->name = call->name;
    open->stage = call->stage;
    rc = start_or_defer(open, call, group);
    if (rc != MUSTER_OK) {
        muster_mem_free(strategy->env->mem, open);
        return rc;
    }
    muster_list_append(&strategy->requests, &open->node);
    strategy->request_count++;
    call->request->impl = open;
    __atomic_store_n(&call->request->is_under_way, true, __ATOMIC_RELAXED);
    if (open->stage != NULL && muster_stage_is_copying(open->stage))
        muster_stage_set_owner(open->stage, on_stage_copied, open);
    if (open->open_count == 0 && !open->is_deferred) /* of no tensors */
        end_open(open);
    return MUSTER_OK;
}

/* --- Ending --- */

static struct open_request *find_open(struct muster_strategy *strategy, const struct muster_op *op)
{
    MUSTER_LIST_EACH (&strategy->requests, open, struct open_request, node)
        if (op >= open->ops && op < open->ops + open->op_count)
            return open;
    return NULL;
}

static void keep_result(struct open_request *open, const struct muster_op_result *result)
{
    bool was_interrupted = open->has_result && open->result.is_interrupted;

    open->result = *result;
    open->result.is_interrupted = result->is_interrupted || was_interrupted;
    open->has_result = true;
}

static void on_request_op_done(struct muster_strategy *strategy, struct muster_op *op,
                               enum muster_rc rc)
{
    struct open_request *open = find_open(strategy, op);

    MUSTER_ASSERT(open != NULL && open->open_count > 0);
    open->open_count--;
    muster_activity_count(&strategy->activity, &op->result, muster_node_view(strategy->node));
    if (rc == MUSTER_OK) {
        keep_result(open, &op->result);
        muster_node_touch_state(strategy->node);
        if (strategy->change.op == NULL || !strategy->change.is_untold)
            muster_strategy_tell_delivery(strategy);
    } else if (open->rc == MUSTER_OK) {
        open->rc = rc;
        muster_error_set(&open->error, rc, "%s: %s", open->name,
                         op->error.text[0] != '\0' ? op->error.text : muster_rc_text(rc));
    }
    if (open->open_count == 0)
        end_ops(open);
}

static bool is_reduction(enum muster_request_kind kind)
{
    return kind <= MUSTER_REQUEST_BARRIER;
}

static const struct muster_strategy_request_calls request_calls = {
    .start = start_request, .on_op_done = on_request_op_done};

enum muster_rc muster_request_start(struct muster_request *request,
                                    struct muster_strategy *strategy)
{
    enum muster_rc rc;

    if (request->impl != NULL) {
        rc = muster_strategy_check(strategy, "request");
        return rc != MUSTER_OK
                   ? rc
                   : muster_error_set(&strategy->error, MUSTER_FAILED_PRECONDITION,
                                      "request: it is open: complete it before it starts anew");
    }
    if (request->split != NULL) {
        rc = muster_strategy_check_split(request->split, "request");
        if (rc != MUSTER_OK)
            return rc;
    }
    if (strategy->request_calls == NULL) /* the loop reads it as soon as there is a request */
        strategy->request_calls = &request_calls;
    return is_reduction(request->kind) ? muster_strategy_call_reduction(strategy, request)
                                       : muster_strategy_call_exchange(strategy, request);
}

static bool have_requests_ended(void *data)
{
    const struct muster_strategy *strategy = data;

    return muster_list_is_empty(&strategy->requests);
}

enum muster_rc muster_strategy_wait_requests(struct muster_strategy *strategy)
{
    enum muster_rc rc = strategy->state == MUSTER_STRATEGY_FAILED ? strategy->error.rc : MUSTER_OK;

    if (!muster_list_is_empty(&strategy->requests))
        rc = muster_strategy_wait(strategy, have_requests_ended);
    MUSTER_LIST_EACH (&strategy->ended, open, struct open_request, node)
        open->is_earlier = true;
    return rc;
}

/* --- Completing, in the program's thread --- */

/* The results of a request on device memory come there now: the program's next work on the device sees them. */
static void complete_stage(struct open_request *open)
{
    struct muster_strategy *strategy = open->strategy;

    if (open->stage == NULL)
        return;
    if (open->rc == MUSTER_OK && !open->is_written)
        open->rc = muster_stage_write_back(open->stage);
    if (open->rc != MUSTER_OK && open->error.rc == MUSTER_OK)
        open->error = strategy->error;
    muster_stage_close(open->stage);
    open->stage = NULL;
}

/* In the seat: the requests are the program's again, but for the callbacks that are due. */
void muster_strategy_take_requests(struct muster_strategy *strategy, struct muster_list *completed)
{
    struct muster_list *node;

    muster_list_init(completed);
    while ((node = muster_list_pop(&strategy->ended)) != NULL) {
        struct open_request *open = MUSTER_CONTAINER_OF(node, struct open_request, node);
        struct muster_request *request = open->request;

        complete_stage(open);
        request->error = open->error;
        request->error.rc = open->rc;
        request->result = open->result;
        request->impl = NULL;
        /* A request that the program itself has cancelled is not a failure of its step. */
        if (open->rc != MUSTER_OK && !open->is_earlier &&
            !(open->is_cancelled && open->rc == MUSTER_CANCELLED) &&
            strategy->state != MUSTER_STRATEGY_FAILED) {
            strategy->ops_rc = open->rc; /* of the step, which close looks at */
            strategy->error = open->error;
        }
        strategy->request_count--;
        muster_mem_free(strategy->env->mem, open->call_memory);
        muster_mem_free(strategy->env->mem, open);
        muster_list_append(completed, &request->node);
    }
}

void muster_strategy_complete_requests(struct muster_list *completed)
{
    struct muster_list *node;

    while ((node = muster_list_pop(completed)) != NULL) {
        struct muster_request *request = MUSTER_CONTAINER_OF(node, struct muster_request, node);

        if (request->done != NULL)
            request->done(request, request->error.rc);
    }
}

enum muster_rc muster_strategy_poll(struct muster_strategy *strategy, size_t *ret_count)
{
    struct muster_list completed;
    enum muster_rc rc = muster_strategy_enter(strategy, "poll");
    size_t count;

    if (rc != MUSTER_OK)
        return rc;
    muster_strategy_take_requests(strategy, &completed);
    count = strategy->request_count;
    muster_strategy_leave(strategy);
    if (ret_count != NULL)
        *ret_count = count;
    muster_strategy_complete_requests(&completed);
    return MUSTER_OK;
}

bool muster_request_has_ended(const struct muster_request *request)
{
    return !__atomic_load_n(&request->is_under_way, __ATOMIC_ACQUIRE);
}

static bool has_awaited_ended(void *data)
{
    const struct muster_strategy *strategy = data;

    return muster_request_has_ended(strategy->awaited);
}

enum muster_rc muster_request_wait(struct muster_request *request)
{
    const struct open_request *open = request->impl;
    struct muster_strategy *strategy;
    struct muster_list completed;
    enum muster_rc rc;

    if (open == NULL)
        return request->error.rc;
    strategy = open->strategy;
    rc = muster_strategy_enter(strategy, open->name);
    if (rc != MUSTER_OK)
        return rc;
    strategy->awaited = request;
    if (!muster_request_has_ended(request)) {
        muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_COLLECTIVE);
        rc = muster_strategy_wait(strategy, has_awaited_ended);
        muster_strategy_move_activity(strategy, MUSTER_ACTIVITY_COMPUTE);
    }
    strategy->awaited = NULL;
    muster_strategy_take_requests(strategy, &completed);
    if (request->error.rc != MUSTER_OK)
        rc = strategy->state == MUSTER_STRATEGY_FAILED ? strategy->error.rc : request->error.rc;
    else
        rc = MUSTER_OK; /* delivered before the strategy failed, if it has */
    muster_strategy_leave(strategy);
    muster_strategy_complete_requests(&completed);
    return rc;
}

void muster_request_cancel(struct muster_request *request)
{
    struct open_request *open = request->impl;
    struct muster_strategy *strategy;

    if (open == NULL || muster_request_has_ended(request))
        return;
    strategy = open->strategy;
    if (muster_strategy_enter(strategy, "cancel") != MUSTER_OK)
        return;
    open->is_cancelled = true;
    cancel_ops(open);
    muster_strategy_leave(strategy);
}
