/* The state of the backend for a group: its communicator, and the operations on their way through
 * it, across changes of view. op.c brings operations here when all members have agreed on them; setup.c brings the
 * communicator. docs/gpu.md says why nothing on a device is adopted or run again. */
#include "collective/gpu/gpu_internal.h"

#include <muster/base.h>

static struct muster_gpu_op *first_op(struct muster_list *list)
{
    return MUSTER_CONTAINER_OF(list->next, struct muster_gpu_op, node);
}

/* --- Ends --- */

/* An operation on the device uses the caller's memory until its kernel has ended: the memory is the caller's again
 * only when nothing runs any more. */
static bool can_end_aborted(const struct muster_gpu_group *group)
{
    return group->comm == NULL || muster_gpu_communicator_is_stopped(group->comm) ||
           (group->comm->state == MUSTER_GPU_READY && muster_list_is_empty(&group->issued));
}

static void end_aborted(struct muster_gpu_group *group)
{
    struct muster_list *node;

    if (!can_end_aborted(group) || group->is_frozen)
        return;
    while ((node = muster_list_pop(&group->aborted)) != NULL) {
        struct muster_gpu_op *op = MUSTER_CONTAINER_OF(node, struct muster_gpu_op, node);
        struct muster_error why = op->error;

        muster_gpu_op_end(op, &why);
    }
}

/* `first`, which was cancelled or late, keeps its own reason; to the others it is an abort. A device that has failed
 * (UNAVAILABLE) is the reason of all. */
static void abort_list(struct muster_gpu_group *group, struct muster_list *list,
                       const struct muster_gpu_op *first, const struct muster_error *why)
{
    struct muster_list *node;
    char name[64];

    while ((node = muster_list_pop(list)) != NULL) {
        struct muster_gpu_op *op = MUSTER_CONTAINER_OF(node, struct muster_gpu_op, node);
        enum muster_rc rc = op->abort_why != MUSTER_OK ? op->abort_why : why->rc;

        if (first != NULL && op != first && why->rc != MUSTER_UNAVAILABLE)
            rc = MUSTER_ABORTED;
        muster_timer_stop(&op->timer);
        muster_error_set(&op->error, rc, "%s: %s", muster_gpu_op_name(op, name, sizeof(name)),
                         why->text);
        muster_list_append(&group->aborted, &op->node);
    }
    if (list == &group->issued) /* Nothing seals the one that was being issued any more. */
        group->issuing = NULL;
}

/* After its group was closed this stays until nothing leads to it: operations, the communicator, callbacks. */
void muster_gpu_group_settle(struct muster_gpu_group *group)
{
    struct muster_gpu_backend *backend = group->backend;

    if (group->group != NULL || group->open_count > 0 || group->comm != NULL || group->is_calling ||
        !muster_list_is_empty(&group->done))
        return;
    MUSTER_ASSERT(group->setup == NULL);
    muster_task_cancel(&group->task);
    muster_list_remove(&group->node);
    muster_mem_free(backend->env->mem, group);
    muster_gpu_backend_settle(backend);
}

/* --- Trouble --- */

static void propose_abort(struct muster_gpu_group *gpu_group, const struct muster_op_id *id,
                          enum muster_rc why)
{
    struct muster_group *group = gpu_group->group;

    if (group != NULL && !gpu_group->is_frozen && group->events->on_abort_proposed != NULL)
        group->events->on_abort_proposed(group->data, id, why);
}

void muster_gpu_group_break(struct muster_gpu_group *group, struct muster_gpu_op *first,
                            const struct muster_error *why)
{
    const struct muster_gpu_op *named = first;
    struct muster_op_id id = {0};

    MUSTER_ASSERT(why->rc != MUSTER_OK);
    if (named == NULL && !muster_list_is_empty(&group->issued))
        named = first_op(&group->issued);
    /* Copied now: the operation may end below. The other members learn of the break from this member's word in the
     * next agreement, or by the abort that is proposed. */
    if (named != NULL)
        id = named->id;
    group->broken = group->serial;
    abort_list(group, &group->issued, first, why);
    abort_list(group, &group->queued, first, why);
    if (group->comm != NULL) {
        muster_gpu_communicator_fail(group->comm, why);
        muster_gpu_communicator_stop(group->comm);
    }
    if (named != NULL)
        propose_abort(group, &id, why->rc);
    end_aborted(group);
}

static void on_op_timer(struct muster_timer *timer)
{
    struct muster_gpu_op *op = timer->data;
    struct muster_error why;

    op->abort_why = MUSTER_DEADLINE_EXCEEDED;
    muster_error_set(&why, MUSTER_DEADLINE_EXCEEDED, "the device has not finished it in time");
    muster_gpu_group_break(op->group, op, &why);
}

/* --- Issuing --- */

/* Its kernel is on the stream: an event and a callback after it say that it is done. The callback is the fast way;
 * the event is there for callbacks that the driver loses, and for the user's stream to wait for. */
static enum muster_rc seal_op(struct muster_gpu_group *group, struct muster_gpu_op *op,
                              struct muster_error *ret_error)
{
    struct muster_gpu_backend *backend = group->backend;
    const struct muster_cuda *cuda = backend->device.cuda;
    struct muster_cuda_stream *stream = group->comm->stream;
    void *before;
    enum muster_rc rc;

    MUSTER_ASSERT(!op->is_sealed && op->slot == NULL);
    op->slot = muster_gpu_slot_take(backend->wake);
    before = muster_cuda_enter(cuda);
    rc = muster_cuda_event_record(cuda, op->finish, stream, ret_error);
    if (rc == MUSTER_OK && op->slot != NULL)
        rc = muster_cuda_launch_host(cuda, stream, muster_gpu_slot_fire, op->slot, ret_error);
    if (rc != MUSTER_OK) {
        muster_gpu_slot_drop(op->slot, false);
        op->slot = NULL;
    } else if (backend->options.is_stream_joined) {
        rc = muster_cuda_stream_wait(cuda, op->stream, op->finish, ret_error);
    }
    muster_cuda_leave(cuda, before);
    op->is_sealed = rc == MUSTER_OK;
    return rc;
}

/* The root's rank in the view of now, which may not be that of the start; false: it is gone. */
static bool find_root(const struct muster_gpu_group *gpu_group, struct muster_gpu_op *op)
{
    const struct muster_group *group = gpu_group->group;
    uint32_t rank;

    if (op->kind != MUSTER_DEVICE_BROADCAST && op->kind != MUSTER_DEVICE_REDUCE)
        return true;
    if (!muster_view_find(group->view, &op->root, &rank))
        return false;
    op->work.root = muster_group_participant_index(group, op->id.step, rank);
    return op->work.root != UINT32_MAX;
}

/* On the communicator's stream, after what the user's stream held at the start of the operation. */
static enum muster_rc issue_op(struct muster_gpu_group *group, struct muster_gpu_op *op,
                               struct muster_error *ret_error)
{
    const struct muster_cuda *cuda = group->backend->device.cuda;
    void *before = muster_cuda_enter(cuda);
    enum muster_rc rc = muster_cuda_stream_wait(cuda, group->comm->stream, op->order, ret_error);

    muster_cuda_leave(cuda, before);
    op->work.member_count = group->comm->count;
    if (rc == MUSTER_OK)
        rc = muster_gpu_communicator_issue(group->comm, &op->work, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (group->comm->state == MUSTER_GPU_ISSUING) {
        group->issuing = op;
        return MUSTER_OK;
    }
    return seal_op(group, op, ret_error);
}

static void issue_first(struct muster_gpu_group *group)
{
    struct muster_gpu_op *op = first_op(&group->queued);
    struct muster_error why;

    muster_list_remove(&op->node);
    /* All members look in the same view: where it is gone for one, none issues the operation. */
    if (!find_root(group, op)) {
        muster_error_set(&why, MUSTER_ABORTED, "the root is gone");
        muster_gpu_op_end(op, &why);
        return;
    }
    muster_list_append(&group->issued, &op->node);
    muster_gpu_backend_watch(group->backend);
    if (issue_op(group, op, &why) != MUSTER_OK) {
        why.rc = MUSTER_UNAVAILABLE;
        muster_gpu_group_break(group, NULL, &why);
    }
}

void muster_gpu_group_pump(struct muster_gpu_group *group)
{
    while (!muster_list_is_empty(&group->queued) && group->setup == NULL && !group->is_frozen &&
           group->comm != NULL && group->comm->state == MUSTER_GPU_READY)
        issue_first(group);
}

/* --- Setups --- */

/* All members answer alike: `broken` is the highest that any member has said in this agreement, and the serial counts
 * setups, which all make on the same occasions. */
static bool needs_setup(const struct muster_gpu_group *gpu_group, const struct muster_gpu_op *op,
                        uint64_t broken)
{
    const struct muster_group *group = gpu_group->group;

    return gpu_group->serial == 0 || broken >= gpu_group->serial ||
           muster_group_participants(group, op->id.step) !=
               muster_group_participants(group, gpu_group->comm_from_step);
}

static void fail_setup(struct muster_gpu_group *group, const struct muster_error *why)
{
    group->is_failed = true;
    group->error = *why;
    group->broken = group->serial;
    abort_list(group, &group->queued, NULL, why);
    end_aborted(group);
}

static void begin_setup(struct muster_gpu_group *group, const struct muster_gpu_op *op)
{
    struct muster_error why;

    group->serial++;
    group->comm_from_step = op->id.step;
    muster_gpu_setup_drop(group->setup);
    muster_error_set(&why, MUSTER_ABORTED, "the communicator has failed on another rank");
    if (group->comm != NULL && !muster_list_is_empty(&group->issued)) {
        abort_list(group, &group->issued, NULL, &why);
        muster_gpu_communicator_stop(group->comm);
        end_aborted(group);
    }
    group->setup = muster_gpu_setup_start(group, &op->id);
    /* NULL also when it has failed at once: then is_failed has the reason already. */
    muster_error_set(&why, MUSTER_UNAVAILABLE, "no memory for a communicator");
    if (group->setup == NULL && !group->is_failed)
        fail_setup(group, &why);
}

void muster_gpu_group_enter(struct muster_gpu_group *group, struct muster_gpu_op *op,
                            uint64_t broken)
{
    struct muster_error why;

    MUSTER_ASSERT(group->group != NULL && !group->is_frozen);
    if (!group->is_failed && needs_setup(group, op, broken))
        begin_setup(group, op);
    if (group->is_failed || group->broken == group->serial) {
        /* It broke here, and the others did not know that when they started this operation. */
        muster_error_set(&why, MUSTER_UNAVAILABLE, "%s",
                         group->is_failed ? group->error.text : "the communicator has failed");
        muster_gpu_op_end(op, &why);
        return;
    }
    muster_timer_init(&op->timer, on_op_timer, op);
    muster_timer_start(&op->timer, group->backend->env->loop, op->user->deadline_ns);
    muster_list_append(&group->queued, &op->node);
    muster_gpu_group_pump(group);
}

void muster_gpu_group_set_up(struct muster_gpu_group *group, struct muster_gpu_communicator *comm,
                             const struct muster_error *why)
{
    MUSTER_ASSERT(group->setup != NULL && (comm != NULL || why->rc != MUSTER_OK));
    group->setup = NULL;
    if (why->rc != MUSTER_OK) {
        fail_setup(group, why);
        return;
    }
    group->comm = comm;
    comm->data = group;
    comm->events = &muster_gpu_group_comm_events;
    muster_gpu_group_pump(group);
}

/* --- What the communicator tells --- */

static void on_comm_ready(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_group *group = comm->data;
    struct muster_gpu_op *op = group->issuing;
    struct muster_error why;

    group->issuing = NULL;
    if (op != NULL && seal_op(group, op, &why) != MUSTER_OK) {
        why.rc = MUSTER_UNAVAILABLE;
        muster_gpu_group_break(group, NULL, &why);
    }
    muster_gpu_group_pump(group);
}

static void on_comm_failed(struct muster_gpu_communicator *comm)
{
    struct muster_error why = comm->error;

    why.rc = MUSTER_UNAVAILABLE;
    muster_gpu_group_break(comm->data, NULL, &why);
}

static void on_comm_stopped(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_group *group = comm->data;

    if (group->comm != comm)
        return;
    end_aborted(group);
    if (group->setup != NULL)
        muster_gpu_setup_proceed(group->setup);
    if (group->group == NULL) {
        group->comm = NULL;
        muster_gpu_communicator_release(comm, false);
        muster_gpu_group_settle(group);
    }
}

const struct muster_gpu_communicator_events muster_gpu_group_comm_events = {
    .on_ready = on_comm_ready,
    .on_failed = on_comm_failed,
    .on_stopped = on_comm_stopped,
};

/* --- Completion --- */

/* The event is done, and the callback that ought to come right after it has not come for one more tick of the slow
 * timer: it never will. */
static bool is_lost(struct muster_gpu_op *op)
{
    const struct muster_cuda *cuda = op->group->backend->device.cuda;
    struct muster_error unused;
    bool is_done = false, was_seen = op->is_seen_done;
    void *before = muster_cuda_enter(cuda);
    enum muster_rc rc = muster_cuda_event_query(cuda, op->finish, &is_done, &unused);

    muster_cuda_leave(cuda, before);
    op->is_seen_done = rc == MUSTER_OK && is_done;
    if (!was_seen || !op->is_seen_done)
        return false;
    op->group->backend->counters.lost_callback_count++;
    MUSTER_LOG(op->group->backend->env, WARN, "gpu_callback_lost");
    return true;
}

static bool is_finished(struct muster_gpu_op *op, bool is_slow)
{
    return op->is_sealed &&
           ((op->slot != NULL && muster_gpu_slot_has_fired(op->slot)) || (is_slow && is_lost(op)));
}

/* From the front only: operations of one stream end in order, and so do their callbacks. */
bool muster_gpu_group_collect(struct muster_gpu_group *group, bool is_slow)
{
    const struct muster_error fine = {.rc = MUSTER_OK};

    while (!muster_list_is_empty(&group->issued) && !group->is_frozen &&
           is_finished(first_op(&group->issued), is_slow))
        muster_gpu_op_end(first_op(&group->issued), &fine);
    if (!muster_list_is_empty(&group->issued) && is_slow && group->comm != NULL)
        muster_gpu_communicator_look(group->comm);
    return !muster_list_is_empty(&group->issued);
}

/* --- What the group tells --- */

static struct muster_gpu_group *group_of(struct muster_group_part *part)
{
    return MUSTER_CONTAINER_OF(part, struct muster_gpu_group, base);
}

static bool is_working(const struct muster_gpu_group *group)
{
    return group->comm != NULL &&
           (!muster_list_is_empty(&group->issued) || group->comm->state == MUSTER_GPU_ISSUING);
}

/* Nothing is waited for here: all communicators of the process are told to stop first. */
static void stop_all(struct muster_gpu_group *group, const struct muster_error *why)
{
    bool was_working = is_working(group);

    group->is_frozen = true;
    muster_gpu_setup_drop(group->setup);
    group->setup = NULL;
    abort_list(group, &group->issued, NULL, why);
    abort_list(group, &group->queued, NULL, why);
    if (was_working)
        muster_gpu_communicator_stop(group->comm);
}

static void on_freeze(struct muster_group_part *part)
{
    struct muster_error why;

    muster_error_set(&why, MUSTER_ABORTED, "the members have changed");
    stop_all(group_of(part), &why);
}

static void explain_aborted(struct muster_gpu_group *group)
{
    const struct muster_view *view = group->group->view;
    char name[64];

    MUSTER_LIST_EACH (&group->aborted, op, struct muster_gpu_op, node)
        if (op->error.rc == MUSTER_ABORTED)
            muster_error_set(&op->error, MUSTER_ABORTED,
                             "%s: the members have changed (view %llu: %s)",
                             muster_gpu_op_name(op, name, sizeof(name)),
                             (unsigned long long)view->epoch, view->reason);
}

static void on_hand_over(struct muster_group_part *part, struct muster_group *next)
{
    struct muster_gpu_group *group = group_of(part);
    struct muster_list held;

    group->group = next;
    group->is_frozen = false;
    group->is_failed = false;
    group->serial = group->broken = 0;
    explain_aborted(group);
    end_aborted(group);
    /* Setups are counted anew in each epoch, by all members. Operations that were started meanwhile agree now. */
    muster_list_take_all(&held, &group->held);
    while (!muster_list_is_empty(&held))
        muster_gpu_op_agree(first_op(&held));
}

static void on_end(struct muster_group_part *part, const struct muster_error *why)
{
    struct muster_gpu_group *group = group_of(part);

    stop_all(group, why);
    abort_list(group, &group->held, NULL, why);
    MUSTER_LIST_EACH (&group->aborted, op, struct muster_gpu_op, node)
        op->error = *why;
    group->is_frozen = false;
    group->is_ended = true;
    end_aborted(group);
}

static void on_close(struct muster_group_part *part)
{
    struct muster_gpu_group *group = group_of(part);
    struct muster_gpu_communicator *comm = group->comm;
    bool is_orderly = !group->is_ended && !group->is_frozen;

    group->group = NULL;
    group->is_frozen = false;
    muster_gpu_setup_drop(group->setup);
    group->setup = NULL;
    /* Operations that wait for the communicator to stop keep it: on_comm_stopped releases it then. */
    if (muster_list_is_empty(&group->aborted)) {
        group->comm = NULL;
        muster_gpu_communicator_release(comm, is_orderly);
    }
    muster_gpu_group_settle(group);
}

static void on_alarm(struct muster_group_part *part, uint32_t rank,
                     const struct muster_frame_header *header)
{
    struct muster_gpu_group *group = group_of(part);

    (void)rank;
    group->alarm = header->op;
    group->has_alarm = true;
    if (group->setup != NULL)
        muster_gpu_setup_hear_alarm(group->setup);
}

const struct muster_group_part_ops muster_gpu_group_ops = {
    .name = "gpu",
    .frames = 1u << MUSTER_FRAME_ALARM,
    .freeze = on_freeze,
    .hand_over = on_hand_over,
    .end = on_end,
    .close = on_close,
    .hear = on_alarm,
};
