/* The backend of one device: opening and closing, the callbacks of finished operations, and the slow
 * timer after them. The environment's backend table leads here; op.c and group.c do the work. */
#include "collective/gpu/gpu_internal.h"

#include <muster/base.h>

#include <stdio.h>
#include <string.h>

/* A communicator of many hosts takes seconds to come up; a member that hangs in it is given up after a minute. */
#define INIT_TIMEOUT_NS (60 * MUSTER_NS_PER_S)
/* A communicator whose end takes longer is left to itself. */
#define ABORT_TIMEOUT_NS (10 * MUSTER_NS_PER_S)
/* The period of the look for errors and for callbacks that the driver has lost: rare, so a delay does no harm. */
#define SLOW_NS (20 * MUSTER_NS_PER_MS)
/* Tries to make a communicator in one view, and the most that may be asked for: ids of a setup have room for four
 * (setup.c, IDS_PER_OCCASION). */
#define ATTEMPT_MAX   3u
#define ATTEMPT_LIMIT 4u
/* Agreements go in this lane and setups in the one after it: programs begin with lane 0. */
#define LANE_DEFAULT 14u

struct muster_gpu_backend *muster_gpu_backend_of(struct muster_backend *backend)
{
    return MUSTER_CONTAINER_OF(backend, struct muster_gpu_backend, base);
}

/* --- Finished operations --- */

/* Ends are told by a task of the group, so no group goes away in here. */
static void on_wake(struct muster_wake *wake)
{
    struct muster_gpu_backend *backend = muster_wake_data(wake);

    MUSTER_LIST_EACH (&backend->groups, group, struct muster_gpu_group, node)
        (void)muster_gpu_group_collect(group, false);
}

static void start_slow(struct muster_gpu_backend *backend)
{
    muster_timer_start(&backend->slow, backend->env->loop,
                       muster_loop_after_ns(backend->env->loop, SLOW_NS));
}

static void on_slow(struct muster_timer *timer)
{
    struct muster_gpu_backend *backend = timer->data;
    bool is_needed = false;

    /* A group that breaks may be freed. */
    MUSTER_LIST_EACH_SAFE (&backend->groups, group, struct muster_gpu_group, node)
        is_needed |= muster_gpu_group_collect(group, true);
    if (is_needed)
        start_slow(backend);
}

void muster_gpu_backend_watch(struct muster_gpu_backend *backend)
{
    if (!muster_timer_is_started(&backend->slow))
        start_slow(backend);
}

/* --- Groups --- */

static void on_group_task(struct muster_task *task)
{
    struct muster_gpu_group *group = task->data;
    struct muster_list *node;

    /* A callback may close the group: the mark keeps it alive until the loop below has ended. */
    group->is_calling = true;
    while ((node = muster_list_pop(&group->done)) != NULL) {
        struct muster_op *op = MUSTER_CONTAINER_OF(node, struct muster_op, node);

        op->done(op, op->error.rc);
    }
    group->is_calling = false;
    muster_gpu_group_settle(group);
}

struct muster_gpu_group *muster_gpu_group_of(struct muster_gpu_backend *backend,
                                             struct muster_group *group)
{
    struct muster_gpu_group *gpu_group;

    if (group->parts[MUSTER_PART_DEVICE] != NULL)
        return MUSTER_CONTAINER_OF(group->parts[MUSTER_PART_DEVICE], struct muster_gpu_group, base);
    gpu_group = muster_mem_alloc_zero(backend->env->mem, 1, sizeof(*gpu_group));
    if (gpu_group == NULL)
        return NULL;
    gpu_group->backend = backend;
    gpu_group->group = group;
    gpu_group->is_frozen = group->is_frozen;
    gpu_group->is_step_clean = true;
    muster_list_init(&gpu_group->held);
    muster_list_init(&gpu_group->agreeing);
    muster_list_init(&gpu_group->queued);
    muster_list_init(&gpu_group->issued);
    muster_list_init(&gpu_group->aborted);
    muster_list_init(&gpu_group->done);
    muster_task_init(&gpu_group->task, on_group_task, gpu_group);
    muster_list_append(&backend->groups, &gpu_group->node);
    muster_group_register(group, MUSTER_PART_DEVICE, &gpu_group->base, &muster_gpu_group_ops);
    return gpu_group;
}

/* --- Memory --- */

static void work_alloc(struct muster_gpu_request *request)
{
    struct muster_gpu_alloc *alloc = request->data;
    const struct muster_gpu_backend *backend = alloc->impl;
    void *before = muster_cuda_enter(backend->device.cuda);

    alloc->error.rc =
        muster_cuda_alloc(backend->device.cuda, alloc->bytes, &alloc->memory, &alloc->error);
    muster_cuda_leave(backend->device.cuda, before);
}

static void on_alloc(struct muster_gpu_request *request)
{
    struct muster_gpu_alloc *alloc = request->data;
    struct muster_gpu_backend *backend = alloc->impl;

    if (request->is_skipped)
        muster_error_set(&alloc->error, MUSTER_DEADLINE_EXCEEDED,
                         "no device memory: other calls take too long");
    muster_mem_free(backend->env->mem, request);
    backend->alloc_count--;
    alloc->done(alloc);
    muster_gpu_backend_settle(backend);
}

/* A late allocation is waited for all the same: it may succeed, and the memory would be lost. */
static void on_alloc_late(struct muster_gpu_request *request)
{
    const struct muster_gpu_alloc *alloc = request->data;
    const struct muster_gpu_backend *backend = alloc->impl;

    MUSTER_LOG(backend->env, WARN, "gpu_alloc_slow", "bytes", alloc->bytes);
}

enum muster_rc muster_gpu_alloc_start(struct muster_gpu_alloc *alloc, struct muster_backend *base,
                                      muster_gpu_alloc_fn *done)
{
    struct muster_gpu_backend *backend = muster_gpu_backend_of(base);
    struct muster_gpu_request *request =
        muster_mem_alloc_zero(backend->env->mem, 1, sizeof(*request));
    enum muster_rc rc;

    if (request == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    request->data = alloc;
    request->work = work_alloc;
    request->on_answer = on_alloc;
    request->on_late = on_alloc_late;
    alloc->memory = NULL;
    alloc->error = (struct muster_error){.rc = MUSTER_OK};
    alloc->done = done;
    alloc->impl = backend;
    rc =
        muster_gpu_control_start(backend->device.control, request, backend->device.init_timeout_ns);
    if (rc != MUSTER_OK)
        muster_mem_free(backend->env->mem, request);
    else
        backend->alloc_count++;
    return rc;
}

void muster_gpu_free(struct muster_backend *base, void *memory)
{
    struct muster_gpu_backend *backend = muster_gpu_backend_of(base);
    void *before;

    if (memory == NULL)
        return;
    before = muster_cuda_enter(backend->device.cuda);
    muster_cuda_free(backend->device.cuda, memory);
    muster_cuda_leave(backend->device.cuda, before);
}

/* On the default stream, which is waited for. */
static enum muster_rc copy_now(struct muster_backend *base, void *device, void *host, size_t bytes,
                               bool is_out, struct muster_error *ret_error)
{
    const struct muster_cuda *cuda = muster_gpu_backend_of(base)->device.cuda;
    void *before = muster_cuda_enter(cuda);
    enum muster_rc rc = is_out ? muster_cuda_copy_out(cuda, host, device, bytes, NULL, ret_error)
                               : muster_cuda_copy_in(cuda, device, host, bytes, NULL, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_cuda_stream_synchronise(cuda, NULL, ret_error);
    muster_cuda_leave(cuda, before);
    return rc;
}

enum muster_rc muster_gpu_write(struct muster_backend *base, void *to, const void *from,
                                size_t bytes, struct muster_error *ret_error)
{
    return copy_now(base, to, (void *)(uintptr_t)from, bytes, false, ret_error);
}

enum muster_rc muster_gpu_read(struct muster_backend *base, void *to, const void *from,
                               size_t bytes, struct muster_error *ret_error)
{
    return copy_now(base, (void *)(uintptr_t)from, to, bytes, true, ret_error);
}

/* --- Opening --- */

static const char *backend_name(const struct muster_backend *base)
{
    return muster_gpu_backend_of((struct muster_backend *)(uintptr_t)base)->name;
}

static enum muster_rc backend_check(const struct muster_backend *base,
                                    const struct muster_device_call *call,
                                    struct muster_error *ret_error)
{
    return muster_gpu_call_check(muster_gpu_backend_of((struct muster_backend *)(uintptr_t)base),
                                 call, ret_error);
}

static const struct muster_backend_ops ops = {
    .name = backend_name,
    .check = backend_check,
    .start = muster_gpu_op_start,
    .cancel = muster_gpu_op_cancel,
};

/* The context is the thread's, for as long as the thread lives. */
static void on_thread(void *data)
{
    const struct muster_gpu_device *device = data;

    (void)muster_cuda_enter(device->cuda);
}

static const char *library_of(const struct muster_env *env, const char *option, const char *name_)
{
    const char *value = option;

    if (value == NULL && env->vars != NULL)
        value = muster_vars_get(env->vars, name_);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

size_t muster_gpu_count_tensors(const struct muster_env *env, const struct muster_tensor *tensors,
                                size_t count)
{
    const char *library = library_of(env, NULL, "MUSTER_CUDA_LIBRARY");
    struct muster_cuda_look look;
    size_t found = 0;

    if (count == 0 || !muster_cuda_look_init(&look, library))
        return 0;
    for (size_t i = 0; i < count; i++)
        found += muster_cuda_look_is_device(&look, tensors[i].data);
    return found;
}

static void set_options(struct muster_gpu_backend *backend,
                        const struct muster_gpu_options *options)
{
    struct muster_gpu_options *to = &backend->options;

    *to = *options;
    if (to->init_timeout_ns == 0)
        to->init_timeout_ns = INIT_TIMEOUT_NS;
    if (to->abort_timeout_ns == 0)
        to->abort_timeout_ns = ABORT_TIMEOUT_NS;
    if (to->attempt_max == 0)
        to->attempt_max = ATTEMPT_MAX;
    if (to->attempt_max > ATTEMPT_LIMIT)
        to->attempt_max = ATTEMPT_LIMIT;
    if (to->lane == 0)
        to->lane = LANE_DEFAULT;
    backend->device.init_timeout_ns = to->init_timeout_ns;
    backend->device.abort_timeout_ns = to->abort_timeout_ns;
}

static void on_gone(struct muster_gpu_device *device)
{
    muster_gpu_backend_settle(MUSTER_CONTAINER_OF(device, struct muster_gpu_backend, device));
}

static void on_closed_task(struct muster_task *task);

static enum muster_rc open_parts(struct muster_gpu_backend *backend, struct muster_error *ret_error)
{
    struct muster_env *env = backend->env;
    struct muster_gpu_device *device = &backend->device;
    const struct muster_gpu_options *options = &backend->options;
    enum muster_rc rc =
        muster_cuda_open(env->mem, library_of(env, options->cuda_library, "MUSTER_CUDA_LIBRARY"),
                         options->ordinal, &device->cuda, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_nccl_open(env->mem,
                              library_of(env, options->nccl_library, "MUSTER_NCCL_LIBRARY"),
                              &device->nccl, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_wake_open(env->mem, env->loop, on_wake, backend, &backend->wake);
    if (rc == MUSTER_OK)
        rc = muster_gpu_control_open(env, on_thread, device, &device->control);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, rc, "no thread for device calls");
    return rc;
}

/* A thread that is stuck in a library still uses what leads it there: that stays for ever. */
static void backend_free(struct muster_gpu_backend *backend)
{
    struct muster_list *node;
    bool is_stuck = backend->device.control != NULL &&
                    muster_gpu_control_stuck_count(backend->device.control) > 0;

    while ((node = muster_list_pop(&backend->idle_ops)) != NULL)
        muster_gpu_op_free(backend, MUSTER_CONTAINER_OF(node, struct muster_gpu_op, node));
    muster_timer_stop(&backend->slow);
    /* The threads before the libraries that they call, and before the wake that the driver's callbacks signal. */
    muster_gpu_control_close(backend->device.control);
    if (backend->wake != NULL)
        muster_wake_close(backend->wake);
    if (is_stuck) {
        MUSTER_LOG(backend->env, ERROR, "gpu_left_behind", "name", backend->name);
        return;
    }
    muster_nccl_close(backend->device.nccl);
    muster_cuda_close(backend->device.cuda);
    muster_mem_free(backend->env->mem, backend);
}

static void describe_device(struct muster_gpu_backend *backend)
{
    int version = muster_nccl_version(backend->device.nccl);
    const struct muster_cuda_device *device = muster_cuda_device(backend->device.cuda);

    snprintf(backend->name, sizeof(backend->name), "nccl %d.%d.%d on %s", version / 10000,
             version / 100 % 100, version % 100, device->name);
    MUSTER_LOG(backend->env, INFO, "gpu_open", "name", backend->name, "driver",
               device->driver_version, "features", muster_nccl_features(backend->device.nccl));
}

enum muster_rc muster_gpu_open(struct muster_env *env, const struct muster_gpu_options *options,
                               struct muster_backend **ret_backend, struct muster_error *ret_error)
{
    static const struct muster_gpu_options defaults;
    struct muster_gpu_backend *backend;
    enum muster_rc rc;

    if (options == NULL)
        options = &defaults;
    if (options->lane >= MUSTER_LANES_MAX - 1)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "the lane of a device must be at most %u, got %u: its setups use the "
            "lane after it",
            MUSTER_LANES_MAX - 2, options->lane);
    backend = muster_mem_alloc_zero(env->mem, 1, sizeof(*backend));
    if (backend == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    backend->base.ops = &ops;
    backend->env = env;
    backend->device.env = env;
    backend->device.on_gone = on_gone;
    set_options(backend, options);
    muster_list_init(&backend->groups);
    muster_list_init(&backend->idle_ops);
    muster_list_init(&backend->device.communicators);
    muster_timer_init(&backend->slow, on_slow, backend);
    muster_task_init(&backend->task, on_closed_task, backend);
    rc = open_parts(backend, ret_error);
    if (rc != MUSTER_OK) {
        backend_free(backend);
        return rc;
    }
    describe_device(backend);
    *ret_backend = &backend->base;
    return MUSTER_OK;
}

/* --- Closing --- */

/* An operation that does not end is left behind: its thread may still use its memory. */
static bool has_living(const struct muster_gpu_backend *backend)
{
    MUSTER_LIST_EACH (&backend->device.communicators, comm, const struct muster_gpu_communicator,
                      node)
        if (comm->state != MUSTER_GPU_ABANDONED)
            return true;
    return false;
}

static void on_closed_task(struct muster_task *task)
{
    struct muster_gpu_backend *backend = task->data;
    muster_gpu_close_fn *on_closed = backend->on_closed;
    void *data = backend->on_closed_data;

    backend_free(backend);
    if (on_closed != NULL)
        on_closed(data);
}

void muster_gpu_backend_settle(struct muster_gpu_backend *backend)
{
    if (backend->is_closing && muster_list_is_empty(&backend->groups) &&
        backend->alloc_count == 0 && backend->setup_count == 0 && !has_living(backend))
        muster_task_post(&backend->task, backend->env->loop);
}

void muster_gpu_close(struct muster_backend *base, muster_gpu_close_fn *on_closed, void *data)
{
    struct muster_gpu_backend *backend;

    if (base == NULL)
        return;
    backend = muster_gpu_backend_of(base);
    MUSTER_ASSERT(!backend->is_closing);
    backend->is_closing = true;
    backend->on_closed = on_closed;
    backend->on_closed_data = data;
    muster_gpu_backend_settle(backend);
}

void muster_gpu_counters(const struct muster_backend *base,
                         struct muster_gpu_counters *ret_counters)
{
    const struct muster_gpu_backend *backend =
        muster_gpu_backend_of((struct muster_backend *)(uintptr_t)base);

    *ret_counters = backend->counters;
    ret_counters->abandoned_count = backend->device.abandoned_count;
    ret_counters->reclaimed_count = backend->device.reclaimed_count;
}
