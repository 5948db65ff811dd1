/* How a communicator ends: destroyed in order, aborted, or abandoned when that does not return. Both calls may block
 * for ever in the library, so they are made on threads that may be lost, and memory that such a thread uses stays. */
#include "collective/gpu/communicator_internal.h"

void muster_gpu_communicator_free(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_mem *mem = device->env->mem;
    void *before = muster_cuda_enter(device->cuda);

    muster_cuda_stream_free(device->cuda, comm->stream);
    muster_cuda_leave(device->cuda, before);
    muster_gpu_communicator_leave_parent(comm);
    muster_timer_stop(&comm->timer);
    muster_list_remove(&comm->node);
    muster_mem_free(mem, comm->excluded);
    muster_mem_free(mem, comm);
    if (device->on_gone != NULL)
        device->on_gone(device);
}

/* Whatever the parent was making has ended with it. */
static void let_child_go(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_communicator *child = comm->child;
    struct muster_error why;

    if (child == NULL)
        return;
    muster_gpu_communicator_leave_parent(child);
    muster_error_set(&why, MUSTER_UNAVAILABLE,
                     "communicator %s: the one that it is made of has ended", child->name);
    if (child->is_abort_wanted || child->state == MUSTER_GPU_ABANDONED)
        muster_gpu_communicator_abort(child);
    else if (child->state == MUSTER_GPU_INITIALISING)
        muster_gpu_communicator_fail_and_tell(child, &why);
}

/* One that was abandoned has told its owner that it is stopped already. */
static void set_gone(struct muster_gpu_communicator *comm)
{
    muster_timer_stop(&comm->timer);
    let_child_go(comm);
    if (comm->was_abandoned) {
        comm->device->reclaimed_count++;
        MUSTER_LOG(comm->device->env, WARN, "gpu_communicator_reclaimed", "name", comm->name);
    }
    muster_gpu_communicator_move(comm, MUSTER_GPU_GONE);
    comm->nccl = NULL;
    if (comm->events == NULL)
        muster_gpu_communicator_free(comm);
    else if (!comm->was_abandoned)
        muster_gpu_communicator_tell_stopped(comm);
}

static void abandon_communicator(struct muster_gpu_communicator *comm)
{
    muster_timer_stop(&comm->timer);
    comm->was_abandoned = true;
    comm->device->abandoned_count++;
    MUSTER_LOG(comm->device->env, ERROR, "gpu_communicator_abandoned", "name", comm->name, "state",
               muster_gpu_state_name(comm->state));
    muster_gpu_communicator_move(comm, MUSTER_GPU_ABANDONED);
    muster_error_set(&comm->error, MUSTER_UNAVAILABLE, "communicator %s does not end", comm->name);
    muster_gpu_communicator_tell_stopped(comm);
}

/* The call that makes or ends it has not returned in time. Its relatives that waited for the call wait no longer. */
static void on_late(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;
    struct muster_gpu_communicator *child = comm->child, *parent = comm->parent;

    abandon_communicator(comm);
    if (parent != NULL && parent->is_abort_wanted) /* it has waited long enough for this call */
        muster_gpu_communicator_abort(parent);
    if (child != NULL && child->is_abort_wanted && child->state != MUSTER_GPU_ABANDONED)
        abandon_communicator(child); /* it could only end with its parent */
}

static void work_abort(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;

    comm->answer.rc = muster_nccl_abort(comm->device->nccl, comm->nccl, &comm->answer);
}

static void work_destroy(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;

    comm->answer.rc = muster_nccl_destroy(comm->device->nccl, comm->nccl, &comm->answer);
}

/* The end does not depend on the call's answer: there is nothing more to call. */
static void on_ended(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;

    if (request->is_skipped) { /* the ring was stuck: an abort has a thread of its own */
        muster_gpu_communicator_abort(comm);
        return;
    }
    if (comm->answer.rc != MUSTER_OK)
        MUSTER_LOG(comm->device->env, WARN, "gpu_communicator_end", "name", comm->name, "reason",
                   comm->answer.text);
    set_gone(comm);
}

void muster_gpu_communicator_prepare(struct muster_gpu_communicator *comm,
                                     muster_gpu_request_fn *work, muster_gpu_request_fn *on_answer)
{
    comm->answer = (struct muster_error){.rc = MUSTER_OK};
    comm->request.data = comm;
    comm->request.work = work;
    comm->request.on_answer = on_answer;
    comm->request.on_late = on_late;
}

/* Each abort has a thread of its own: they all begin before one of them can wait for another. */
void muster_gpu_communicator_abort(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;

    muster_timer_stop(&comm->timer);
    if (comm->request.state != MUSTER_GPU_REQUEST_IDLE) {
        comm->is_abort_wanted = true; /* when its call has returned */
        return;
    }
    if (comm->is_lent ||
        (comm->child != NULL && comm->child->request.state == MUSTER_GPU_REQUEST_STARTED)) {
        comm->is_abort_wanted = true; /* a call on the control thread uses it */
        return;
    }
    if (comm->parent != NULL) { /* there is nothing to abort but the parent */
        comm->is_abort_wanted = true;
        if (muster_gpu_communicator_is_quiet(comm->parent))
            muster_gpu_communicator_abort(comm->parent);
        return;
    }
    if (muster_gpu_communicator_handle(comm) == NULL) { /* the library never gave one */
        set_gone(comm);
        return;
    }
    muster_gpu_communicator_move(comm, MUSTER_GPU_ABORTING);
    muster_gpu_communicator_prepare(comm, work_abort, on_ended);
    if (muster_gpu_control_start_apart(device->control, &comm->request, device->abort_timeout_ns) ==
        MUSTER_OK)
        return;
    /* Without a thread the call is late from the beginning. */
    on_late(&comm->request);
}

void muster_gpu_communicator_destroy(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;

    muster_gpu_communicator_prepare(comm, work_destroy, on_ended);
    if (muster_gpu_control_start(device->control, &comm->request, device->abort_timeout_ns) !=
        MUSTER_OK) {
        muster_gpu_communicator_abort(comm);
        return;
    }
    muster_timer_stop(&comm->timer);
    muster_gpu_communicator_move(comm, MUSTER_GPU_DESTROYING);
}
