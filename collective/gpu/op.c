/* An operation on the device, from start until it is agreed, and its end. The agreement is an all_gather of one word
 * of each member in host memory: a kernel of NCCL waits for all members and cannot be taken back, so none starts
 * before all have called the operation. group.c has it in between. */
#include "collective/gpu/gpu_internal.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

#include "runtime/loop/deadline.h"

/* --- Memory --- */

static enum muster_rc op_new(struct muster_gpu_backend *backend, struct muster_gpu_op **ret_op,
                             struct muster_error *ret_error)
{
    struct muster_gpu_op *op = muster_mem_alloc_zero(backend->env->mem, 1, sizeof(*op));
    enum muster_rc rc;
    void *before;

    if (op == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    before = muster_cuda_enter(backend->device.cuda);
    rc = muster_cuda_event_new(backend->device.cuda, &op->order, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_cuda_event_new(backend->device.cuda, &op->finish, ret_error);
    muster_cuda_leave(backend->device.cuda, before);
    muster_list_init(&op->node);
    if (rc != MUSTER_OK) {
        muster_gpu_op_free(backend, op);
        return rc;
    }
    *ret_op = op;
    return MUSTER_OK;
}

void muster_gpu_op_free(struct muster_gpu_backend *backend, struct muster_gpu_op *op)
{
    void *before = muster_cuda_enter(backend->device.cuda);

    muster_cuda_event_free(backend->device.cuda, op->order);
    muster_cuda_event_free(backend->device.cuda, op->finish);
    muster_cuda_leave(backend->device.cuda, before);
    muster_mem_free(backend->env->mem, op->words);
    muster_mem_free(backend->env->mem, op);
}

/* Operations are used again with their events and words, so that a training step allocates nothing. */
static enum muster_rc op_get(struct muster_gpu_group *group, struct muster_gpu_op **ret_op,
                             struct muster_error *ret_error)
{
    struct muster_list *node;
    struct muster_gpu_op *op = NULL;
    struct muster_gpu_op kept;
    enum muster_rc rc;

    if (group->open_count == MUSTER_GPU_OPS_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "%u operations on the device are open, the most of a group: wait "
                                "until some have ended",
                                group->open_count);
    node = muster_list_pop(&group->backend->idle_ops);
    if (node != NULL) {
        op = MUSTER_CONTAINER_OF(node, struct muster_gpu_op, node);
    } else {
        rc = op_new(group->backend, &op, ret_error);
        if (rc != MUSTER_OK)
            return rc;
    }
    kept = *op;
    memset(op, 0, sizeof(*op));
    op->order = kept.order;
    op->finish = kept.finish;
    op->words = kept.words;
    op->words_count = kept.words_count;
    op->group = group;
    muster_list_init(&op->node);
    *ret_op = op;
    return MUSTER_OK;
}

/* The last one used comes first: its memory is in the cache. */
static void op_put(struct muster_gpu_op *op)
{
    muster_list_remove(&op->node);
    muster_list_prepend(&op->group->backend->idle_ops, &op->node);
}

/* --- The end --- */

const char *muster_gpu_op_name(const struct muster_gpu_op *op, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "gpu %s #%u", muster_device_kind_name(op->kind), op->id.sequence);
    return ret_text;
}

/* A commit has looked at the operations before it: they are forgotten, however it ended. */
static void note_end(struct muster_gpu_op *op, enum muster_rc rc)
{
    if (op->kind == MUSTER_DEVICE_COMMIT)
        op->group->is_step_clean = true;
    else if (rc != MUSTER_OK)
        op->group->is_step_clean = false;
}

/* The user's callback comes by a task, never from here: the caller may be within a start, or walk a list of operations
 * that the callback would change. */
void muster_gpu_op_end(struct muster_gpu_op *op, const struct muster_error *why)
{
    struct muster_gpu_group *group = op->group;
    struct muster_op *user = op->user;

    MUSTER_ASSERT(group->open_count > 0);
    note_end(op, why->rc);
    muster_timer_stop(&op->timer);
    muster_gpu_slot_drop(op->slot, true);
    op->slot = NULL;
    user->result = op->agreement.result;
    if (why->rc != MUSTER_OK)
        user->result.verdict = MUSTER_VERDICT_ABORTED;
    user->error = *why;
    user->impl = NULL;
    user->done = op->done;
    if (group->issuing == op)
        group->issuing = NULL;
    op_put(op);
    group->open_count--;
    muster_list_append(&group->done, &user->node);
    muster_task_post(&group->task, group->backend->env->loop);
}

static void end_changed(struct muster_gpu_op *op)
{
    struct muster_error why;
    char name[64];

    muster_error_set(&why, MUSTER_ABORTED, "%s: the members have changed",
                     muster_gpu_op_name(op, name, sizeof(name)));
    muster_gpu_op_end(op, &why);
}

/* --- Agreement --- */

/* The highest setup that any member knows to be broken: what one knows counts for all. */
static uint64_t broken_of(const struct muster_gpu_op *op, uint32_t count)
{
    uint64_t broken = 0;

    for (uint32_t i = 0; i < count; i++)
        if (op->words[i].broken > broken)
            broken = op->words[i].broken;
    return broken;
}

/* A step counts if the operations of all members have ended well; else all run it again, since nobody's memory can be
 * trusted after an aborted kernel. */
static void end_commit(struct muster_gpu_op *op)
{
    struct muster_error why = {.rc = MUSTER_OK};

    for (uint32_t rank = 0; rank < op->agreed_count && why.rc == MUSTER_OK; rank++)
        if (op->words[rank].is_fit == 0)
            muster_error_set(&why, MUSTER_ABORTED,
                             "operations of the step have failed on rank %u: run it again", rank);
    muster_gpu_op_end(op, &why);
}

/* All members have started it, in this epoch, and all know that from the same words. */
static void use_agreement(struct muster_gpu_op *op)
{
    struct muster_gpu_group *group = op->group;
    uint32_t count = op->agreed_count;
    struct muster_error why;

    if (muster_gpu_words_check(op->words, count, op->kind, &why) != MUSTER_OK)
        muster_gpu_op_end(op, &why);
    else
        muster_gpu_group_enter(group, op, broken_of(op, count));
}

static void on_agreed(struct muster_op *agreement, enum muster_rc rc)
{
    struct muster_gpu_op *op = agreement->data;
    struct muster_gpu_group *group = op->group;

    muster_list_remove(&op->node);
    if (rc != MUSTER_OK)
        muster_gpu_op_end(op, &agreement->error);
    else if (op->kind == MUSTER_DEVICE_COMMIT)
        end_commit(op); /* in another view too: other members may have ended it before the change */
    else if (group->group == NULL || group->is_frozen || agreement->result.is_interrupted ||
             agreement->result.epoch != group->group->view->epoch)
        end_changed(op);
    else
        use_agreement(op);
    muster_gpu_group_settle(group);
}

static bool has_room(struct muster_gpu_op *op, uint32_t count)
{
    struct muster_mem *mem = op->group->backend->env->mem;
    void *words;

    if (op->words_count >= count)
        return true;
    words = muster_mem_realloc(mem, op->words, count * sizeof(*op->words));
    if (words == NULL)
        return false;
    op->words = words;
    op->words_count = count;
    return true;
}

/* The view may change between the call and the agreement. Shapes by the number of members must fit the new one, and
 * ranks of send_recv are those of the view in which it was called. */
static bool is_fit(const struct muster_gpu_op *op, uint32_t count)
{
    if (op->kind == MUSTER_DEVICE_COMMIT)
        return op->group->is_step_clean;
    if (op->kind == MUSTER_DEVICE_SEND_RECV)
        return op->epoch == op->group->group->view->epoch;
    return op->whole_count == 0 || op->whole_count == count * op->work.count;
}

static struct muster_device_mark mark_of(const struct muster_gpu_op *op)
{
    struct muster_device_mark mark = {.kind = op->kind, .id = op->id};

    if (op->kind == MUSTER_DEVICE_COMMIT || op->kind == MUSTER_DEVICE_SEND_RECV)
        return mark;
    mark.reduction = op->work.reduction;
    mark.dtype = op->work.dtype;
    mark.count = op->work.count;
    return mark;
}

static enum muster_rc start_agreement(struct muster_gpu_op *op)
{
    struct muster_group *group = op->group->group;
    uint32_t count = muster_group_participants(group, op->id.step);
    struct muster_op_call call = {
        .kind = MUSTER_OP_ALL_GATHER,
        .dtype = MUSTER_U8,
        .count = count * sizeof(op->word),
        .part_count = sizeof(op->word),
        .n = count,
        .input = &op->word,
        .root.incarnation = op->root,
        .device = mark_of(op),
    };

    if (!has_room(op, count))
        return MUSTER_RESOURCE_EXHAUSTED;
    op->agreed_count = count;
    call.output = op->words;
    op->word.broken = op->group->broken;
    op->word.is_fit = is_fit(op, count);
    op->agreement.data = op;
    op->agreement.lane = op->user->lane;
    op->agreement.deadline_ns = op->user->deadline_ns;
    return muster_group_start_call(&op->agreement, group, &call, on_agreed);
}

void muster_gpu_op_agree(struct muster_gpu_op *op)
{
    struct muster_error why;
    enum muster_rc rc = start_agreement(op);

    muster_list_remove(&op->node);
    if (rc == MUSTER_OK) {
        muster_list_append(&op->group->agreeing, &op->node);
        if (op->abort_why != MUSTER_OK)
            muster_op_cancel(&op->agreement);
        return;
    }
    muster_error_set(&why, rc, "the agreement with the other members could not start");
    muster_gpu_op_end(op, &why);
}

/* --- Start, cancel --- */

static enum muster_rc refuse_call(struct muster_group *group, const struct muster_device_call *call,
                                  const struct muster_error *error)
{
    MUSTER_LOG(group->env, ERROR, "op_refused", "op", muster_device_kind_name(call->kind), "reason",
               error->text);
    return error->rc;
}

/* The user's stream up to here comes before the operation. */
static enum muster_rc record_order(struct muster_gpu_op *op, void *stream,
                                   struct muster_error *ret_error)
{
    const struct muster_cuda *cuda = op->group->backend->device.cuda;
    enum muster_rc rc;
    void *before;

    op->stream = stream;
    if (op->kind == MUSTER_DEVICE_COMMIT)
        return MUSTER_OK;
    before = muster_cuda_enter(cuda);
    rc = muster_cuda_event_record(cuda, op->order, op->stream, ret_error);
    muster_cuda_leave(cuda, before);
    return rc;
}

static void set_user(struct muster_gpu_op *op, struct muster_op *user, struct muster_group *group,
                     muster_op_fn *done)
{
    op->user = user;
    op->done = done;
    op->epoch = group->view->epoch;
    op->group->open_count++;
    user->lane = op->group->backend->options.lane;
    op->id = muster_lane_next_id(group, user->lane);
    user->id = op->id;
    user->error = (struct muster_error){.rc = MUSTER_OK};
    memset(&user->result, 0, sizeof(user->result));
    user->impl = NULL;
    muster_list_init(&user->node);
}

static enum muster_rc begin_op(struct muster_gpu_op *op)
{
    struct muster_gpu_group *group = op->group;
    enum muster_rc rc = MUSTER_OK;

    if (group->is_frozen) {
        muster_list_append(&group->held, &op->node);
        return rc;
    }
    /* A start never calls back, so it may be listed after. */
    rc = start_agreement(op);
    if (rc == MUSTER_OK)
        muster_list_append(&group->agreeing, &op->node);
    return rc;
}

/* The id that was taken is given back: nothing has happened. */
static void undo_user(struct muster_gpu_op *op, struct muster_group *group)
{
    MUSTER_ASSERT(group->lanes[op->user->lane].next_sequence > 0 && op->group->open_count > 0);
    group->lanes[op->user->lane].next_sequence--;
    op->group->open_count--;
    op_put(op);
}

enum muster_rc muster_gpu_op_start(struct muster_backend *base, struct muster_op *user,
                                   struct muster_group *group,
                                   const struct muster_device_call *call, muster_op_fn *done)
{
    struct muster_gpu_backend *backend = muster_gpu_backend_of(base);
    struct muster_gpu_group *gpu_group;
    struct muster_gpu_op *op = NULL;
    struct muster_error error;
    enum muster_rc rc;

    MUSTER_ASSERT(done != NULL);
    rc = muster_deadline_check(group->env, "operation on a GPU", user->deadline_ns, &user->error);
    if (rc != MUSTER_OK)
        return rc;
    if (group->is_ended || group->is_closed || backend->is_closing)
        return MUSTER_FAILED_PRECONDITION;
    gpu_group = muster_gpu_group_of(backend, group);
    if (gpu_group == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    /* A commit tells the others how this member's operations have ended: all must have. */
    if (call->kind == MUSTER_DEVICE_COMMIT && gpu_group->open_count > 0)
        return MUSTER_FAILED_PRECONDITION;
    if (op_get(gpu_group, &op, &error) != MUSTER_OK)
        return refuse_call(group, call, &error);
    rc = muster_gpu_call_take(op, group, call, &error);
    if (rc == MUSTER_OK)
        rc = record_order(op, call->stream, &error);
    if (rc != MUSTER_OK) {
        op_put(op);
        return refuse_call(group, call, &error);
    }
    set_user(op, user, group, done);
    rc = begin_op(op);
    if (rc != MUSTER_OK)
        undo_user(op, group);
    return rc;
}

static struct muster_gpu_op *find_in(struct muster_list *list, const struct muster_op *user)
{
    MUSTER_LIST_EACH (list, op, struct muster_gpu_op, node)
        if (op->user == user)
            return op;
    return NULL;
}

/* Before the agreement an operation ends alone. Afterwards the others rely on its kernel, and NCCL cannot take back a
 * single one: the communicator goes with it. */
static void cancel_in(struct muster_gpu_group *group, const struct muster_op *user)
{
    struct muster_error why = {.rc = MUSTER_CANCELLED, .text = "cancelled"};
    struct muster_gpu_op *op = find_in(&group->agreeing, user);

    if (op != NULL) {
        muster_op_cancel(&op->agreement);
        return;
    }
    op = find_in(&group->held, user);
    if (op != NULL) {
        op->abort_why = why.rc; /* Cancelled when it has begun: the others have to hear of it. */
        return;
    }
    op = find_in(&group->issued, user);
    if (op == NULL)
        op = find_in(&group->queued, user);
    if (op == NULL || op->abort_why != MUSTER_OK)
        return;
    op->abort_why = why.rc;
    muster_gpu_group_break(group, op, &why);
}

void muster_gpu_op_cancel(struct muster_backend *base, struct muster_op *user)
{
    struct muster_gpu_backend *backend = muster_gpu_backend_of(base);

    MUSTER_LIST_EACH_SAFE (&backend->groups, group, struct muster_gpu_group, node)
        cancel_in(group, user);
}
