/* The beginning of a communicator: init, shrink or growth, called on the control thread, since the library may block
 * there whatever it promises. The rest of the way up is polled by communicator.c. */
#include "collective/gpu/communicator_internal.h"

#include <stdio.h>

enum muster_rc muster_gpu_communicator_new(const struct muster_gpu_communicator_options *options,
                                           struct muster_gpu_communicator **ret_comm,
                                           struct muster_error *ret_error)
{
    struct muster_gpu_device *device = options->device;
    struct muster_gpu_communicator *comm =
        muster_mem_alloc_zero(device->env->mem, 1, sizeof(*comm));
    enum muster_rc rc;
    void *before;

    if (comm == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    before = muster_cuda_enter(device->cuda);
    rc = muster_cuda_stream_new(device->cuda, &comm->stream, ret_error);
    muster_cuda_leave(device->cuda, before);
    if (rc != MUSTER_OK) {
        muster_mem_free(device->env->mem, comm);
        return rc;
    }
    comm->data = options->data;
    comm->device = device;
    comm->events = options->events;
    comm->key = options->key;
    comm->count = options->count;
    comm->rank = options->rank;
    snprintf(comm->name, sizeof(comm->name), "muster-%08llx",
             (unsigned long long)(options->key & UINT32_MAX));
    muster_timer_init(&comm->timer, muster_gpu_communicator_on_timer, comm);
    muster_list_append(&device->communicators, &comm->node);
    *ret_comm = comm;
    return MUSTER_OK;
}

/* On the thread. It touches only fields that the loop leaves alone until the answer: answer, is_call_pending, and
 * `nccl`, which the loop loads by muster_gpu_communicator_handle. */
static void work_start(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;
    const struct muster_nccl *nccl = comm->device->nccl;
    struct muster_nccl_comm *parent = comm->parent_nccl;
    const struct muster_nccl_id *id = comm->has_id ? &comm->id : NULL;
    struct muster_nccl_place place = {.count = comm->count, .rank = comm->rank, .name = comm->name};

    if (comm->is_shrinking)
        comm->answer.rc =
            muster_nccl_shrink(nccl, parent, comm->excluded, comm->excluded_count, comm->name,
                               &comm->nccl, &comm->is_call_pending, &comm->answer);
    else if (comm->is_growing)
        comm->answer.rc = muster_nccl_grow(nccl, parent, &place, id, &comm->nccl,
                                           &comm->is_call_pending, &comm->answer);
    else
        comm->answer.rc = muster_nccl_init(nccl, &place, &comm->id, &comm->nccl,
                                           &comm->is_call_pending, &comm->answer);
}

/* The call has returned, perhaps when nobody waits for it any more. */
static void on_start_answer(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data, *parent = comm->parent;

    if (comm->answer.rc != MUSTER_OK || !comm->is_call_pending)
        muster_gpu_communicator_leave_parent(comm);
    if (parent != NULL && parent->is_abort_wanted) { /* it has waited for this call */
        comm->is_abort_wanted = true;
        muster_gpu_communicator_abort(parent);
    }
    if (comm->state == MUSTER_GPU_ABANDONED || comm->is_abort_wanted)
        muster_gpu_communicator_abort(comm);
    else if (comm->answer.rc != MUSTER_OK)
        muster_gpu_communicator_fail_and_tell(comm, &comm->answer);
    else
        muster_gpu_communicator_begin_poll(comm, comm->device->init_timeout_ns);
}

static void start_communicator(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_error why;

    muster_gpu_communicator_move(comm, MUSTER_GPU_INITIALISING);
    muster_gpu_communicator_prepare(comm, work_start, on_start_answer);
    if (muster_gpu_control_start(device->control, &comm->request, device->init_timeout_ns) ==
        MUSTER_OK)
        return;
    muster_gpu_communicator_leave_parent(comm);
    muster_error_set(&why, MUSTER_RESOURCE_EXHAUSTED, "the queue of device calls is full");
    muster_gpu_communicator_fail_and_tell(comm, &why);
}

/* parent_nccl is a copy for the thread, which must not look into the parent. */
static void set_parent(struct muster_gpu_communicator *comm, struct muster_gpu_communicator *parent)
{
    MUSTER_ASSERT(comm->parent == NULL && muster_gpu_communicator_can_be_parent(parent));
    comm->parent = parent;
    comm->parent_nccl = parent->nccl;
    parent->child = comm;
}

void muster_gpu_communicator_start_init(struct muster_gpu_communicator *comm,
                                        const struct muster_nccl_id *id)
{
    comm->id = *id;
    comm->has_id = true;
    start_communicator(comm);
}

void muster_gpu_communicator_start_shrink(struct muster_gpu_communicator *comm,
                                          struct muster_gpu_communicator *parent,
                                          const uint32_t *excluded, uint32_t excluded_count)
{
    struct muster_error why;

    comm->excluded =
        muster_mem_alloc_zero(comm->device->env->mem, excluded_count, sizeof(*comm->excluded));
    if (comm->excluded == NULL) {
        muster_error_set(&why, MUSTER_RESOURCE_EXHAUSTED, "no memory");
        muster_gpu_communicator_move(comm, MUSTER_GPU_INITIALISING); /* NONE cannot fail */
        muster_gpu_communicator_fail_and_tell(comm, &why);
        return;
    }
    for (uint32_t i = 0; i < excluded_count; i++)
        comm->excluded[i] = (int)excluded[i];
    comm->excluded_count = excluded_count;
    set_parent(comm, parent);
    comm->is_shrinking = true;
    start_communicator(comm);
}

void muster_gpu_communicator_start_grow(struct muster_gpu_communicator *comm,
                                        struct muster_gpu_communicator *parent,
                                        const struct muster_nccl_id *id)
{
    if (parent != NULL)
        set_parent(comm, parent);
    comm->is_growing = true;
    comm->has_id = id != NULL;
    if (id != NULL)
        comm->id = *id;
    start_communicator(comm);
}
