/* The states of a communicator: a table of allowed moves, one function that moves, and what each
 * call, answer and tick of the timer does in each state. */
#include "collective/gpu_communicator.h"

#include <muster/trace.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define POLL_FIRST_NS (50 * MUSTER_NS_PER_US)
#define POLL_LAST_NS  (2 * MUSTER_NS_PER_MS)

#define TO(state) (1u << MUSTER_GPU_##state)

static const unsigned moves[MUSTER_GPU_STATE_COUNT] = {
    [MUSTER_GPU_NONE] = TO(INITIALISING) | TO(GONE),
    [MUSTER_GPU_INITIALISING] = TO(READY) | TO(FAILED) | TO(ABORTING) | TO(ABANDONED) | TO(GONE),
    [MUSTER_GPU_READY] = TO(ISSUING) | TO(FAILED) | TO(REVOKING) | TO(FINALISING) | TO(ABORTING),
    [MUSTER_GPU_ISSUING] = TO(READY) | TO(FAILED) | TO(REVOKING) | TO(ABORTING),
    [MUSTER_GPU_FAILED] = TO(ABORTING) | TO(ABANDONED) | TO(GONE),
    [MUSTER_GPU_REVOKING] = TO(REVOKED) | TO(ABORTING),
    [MUSTER_GPU_REVOKED] = TO(ABORTING),
    [MUSTER_GPU_FINALISING] = TO(DESTROYING) | TO(ABORTING),
    [MUSTER_GPU_DESTROYING] = TO(ABANDONED) | TO(GONE),
    [MUSTER_GPU_ABORTING] = TO(ABANDONED) | TO(GONE),
    [MUSTER_GPU_ABANDONED] = TO(ABORTING) | TO(GONE),
};

bool muster_gpu_move_is_allowed(enum muster_gpu_state from, enum muster_gpu_state to)
{
    return (moves[from] & (1u << to)) != 0;
}

const char *muster_gpu_state_name(enum muster_gpu_state state)
{
    static const char *const names[] = {
#define X(name, text) text,
        MUSTER_GPU_STATE_MAP(X)
#undef X
    };

    return names[state];
}

static void move(struct muster_gpu_communicator *comm, enum muster_gpu_state to)
{
    struct muster_gpu_device *device = comm->device;

    assert(muster_gpu_move_is_allowed(comm->state, to));
    muster_trace_emit(device->env, "gpu_communicator", comm->key, comm->state, to);
    if (device->on_move != NULL)
        device->on_move(comm->state, to);
    comm->state = to;
}

/* --- Telling the owner --- */

static void tell_ready(struct muster_gpu_communicator *comm)
{
    if (comm->events != NULL)
        comm->events->on_ready(comm);
}

static void tell_stopped(struct muster_gpu_communicator *comm)
{
    if (comm->events != NULL)
        comm->events->on_stopped(comm);
}

static void start_abort(struct muster_gpu_communicator *comm);

/* The library writes it on a thread of its own while it makes a child. */
static struct muster_nccl_comm *handle_of(const struct muster_gpu_communicator *comm)
{
    return __atomic_load_n(&comm->nccl, __ATOMIC_ACQUIRE);
}

static void leave_parent(struct muster_gpu_communicator *comm)
{
    if (comm->parent != NULL)
        comm->parent->child = NULL;
    comm->parent = NULL;
}

static void set_failed(struct muster_gpu_communicator *comm, const struct muster_error *why)
{
    muster_timer_stop(&comm->timer);
    comm->error = *why;
    move(comm, MUSTER_GPU_FAILED);
    MUSTER_LOG(comm->device->env, WARN, "gpu_communicator_failed", "name", comm->name, "why",
               why->text);
}

static void fail_and_tell(struct muster_gpu_communicator *comm, const struct muster_error *why)
{
    set_failed(comm, why);
    if (comm->events != NULL)
        comm->events->on_failed(comm);
    else
        start_abort(comm);
}

/* --- The end --- */

/* A stream of a communicator that was given up may be stuck for ever: it stays. */
static void free_comm(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_mem *mem = device->env->mem;
    void *before = muster_cuda_enter(device->cuda);

    muster_cuda_stream_free(device->cuda, comm->stream);
    muster_cuda_leave(device->cuda, before);
    leave_parent(comm);
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

    if (child == NULL)
        return;
    leave_parent(child);
    if (child->is_abort_wanted || child->state == MUSTER_GPU_ABANDONED)
        start_abort(child);
}

static void set_gone(struct muster_gpu_communicator *comm)
{
    muster_timer_stop(&comm->timer);
    let_child_go(comm);
    if (comm->was_abandoned) {
        comm->device->reclaimed_count++;
        MUSTER_LOG(comm->device->env, WARN, "gpu_communicator_reclaimed", "name", comm->name);
    }
    move(comm, MUSTER_GPU_GONE);
    comm->nccl = NULL;
    if (comm->events == NULL)
        free_comm(comm);
    else if (!comm->was_abandoned)
        tell_stopped(comm);
}

static void abandon(struct muster_gpu_communicator *comm)
{
    muster_timer_stop(&comm->timer);
    comm->was_abandoned = true;
    comm->device->abandoned_count++;
    MUSTER_LOG(comm->device->env, ERROR, "gpu_communicator_abandoned", "name", comm->name, "state",
               muster_gpu_state_name(comm->state));
    move(comm, MUSTER_GPU_ABANDONED);
    muster_error_set(&comm->error, MUSTER_UNAVAILABLE, "communicator %s does not end", comm->name);
    tell_stopped(comm);
}

static void on_late(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;
    struct muster_gpu_communicator *child = comm->child;

    abandon(comm);
    if (child != NULL && child->is_abort_wanted && child->state != MUSTER_GPU_ABANDONED)
        abandon(child); /* it could only end with its parent */
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

/* Whatever the call said, there is nothing more to call. */
static void on_ended(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;

    if (comm->answer.rc != MUSTER_OK)
        MUSTER_LOG(comm->device->env, WARN, "gpu_communicator_end", "name", comm->name, "why",
                   comm->answer.text);
    set_gone(comm);
}

static void prepare_request(struct muster_gpu_communicator *comm, muster_gpu_request_fn *work,
                            muster_gpu_request_fn *on_answer)
{
    comm->answer = (struct muster_error){.rc = MUSTER_OK};
    comm->request.data = comm;
    comm->request.work = work;
    comm->request.on_answer = on_answer;
    comm->request.on_late = on_late;
}

/* Each abort has a thread of its own: they all begin before one of them can wait for another. */
static void start_abort(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;

    muster_timer_stop(&comm->timer);
    if (comm->request.state != MUSTER_GPU_REQUEST_IDLE) {
        comm->is_abort_wanted = true; /* when its call has returned */
        return;
    }
    if (comm->parent != NULL) { /* there is nothing to abort but the parent */
        comm->is_abort_wanted = true;
        if (muster_gpu_communicator_is_quiet(comm->parent))
            start_abort(comm->parent);
        return;
    }
    if (handle_of(comm) == NULL) {
        set_gone(comm);
        return;
    }
    move(comm, MUSTER_GPU_ABORTING);
    prepare_request(comm, work_abort, on_ended);
    if (muster_gpu_control_start_apart(device->control, &comm->request, device->abort_timeout_ns) ==
        MUSTER_OK)
        return;
    /* no thread: late from the beginning */
    on_late(&comm->request);
}

static void start_destroy(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;

    prepare_request(comm, work_destroy, on_ended);
    if (muster_gpu_control_start(device->control, &comm->request, device->abort_timeout_ns) !=
        MUSTER_OK) {
        start_abort(comm);
        return;
    }
    muster_timer_stop(&comm->timer);
    move(comm, MUSTER_GPU_DESTROYING);
}

/* --- Polling --- */

static void start_poll(struct muster_gpu_communicator *comm)
{
    struct muster_loop *loop = comm->device->env->loop;
    uint64_t due_ns = muster_loop_after_ns(loop, comm->poll_ns);

    muster_timer_start(&comm->timer, loop, due_ns < comm->give_up_ns ? due_ns : comm->give_up_ns);
    comm->poll_ns = comm->poll_ns * 2 < POLL_LAST_NS ? comm->poll_ns * 2 : POLL_LAST_NS;
}

static void begin_poll(struct muster_gpu_communicator *comm, uint64_t timeout_ns)
{
    comm->poll_ns = POLL_FIRST_NS;
    comm->give_up_ns = muster_loop_after_ns(comm->device->env->loop, timeout_ns);
    start_poll(comm);
}

static enum muster_rc poll(struct muster_gpu_communicator *comm, bool *ret_is_pending,
                           struct muster_error *ret_error)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_nccl_comm *handle =
        comm->parent != NULL ? handle_of(comm->parent) : handle_of(comm);
    enum muster_rc rc;
    void *before;

    if (handle == NULL) { /* not even the library knows it yet */
        *ret_is_pending = true;
        return MUSTER_OK;
    }
    before = muster_cuda_enter(device->cuda);
    rc = muster_nccl_poll(device->nccl, handle, ret_is_pending, ret_error);
    muster_cuda_leave(device->cuda, before);
    return rc;
}

/* The parent has done its part, or has failed: from now on the child speaks for itself. */
static void finish_in_parent(struct muster_gpu_communicator *comm, enum muster_rc rc,
                             const struct muster_error *error)
{
    struct muster_error why;

    leave_parent(comm);
    if (rc != MUSTER_OK) {
        fail_and_tell(comm, error);
    } else if (handle_of(comm) == NULL) {
        muster_error_set(&why, MUSTER_INTERNAL, "communicator %s: the library gave none",
                         comm->name);
        fail_and_tell(comm, &why);
    } else {
        start_poll(comm);
    }
}

static void give_up(struct muster_gpu_communicator *comm)
{
    struct muster_error why;

    if (comm->state == MUSTER_GPU_REVOKING || comm->state == MUSTER_GPU_FINALISING) {
        start_abort(comm);
        return;
    }
    muster_error_set(&why, MUSTER_DEADLINE_EXCEEDED, "communicator %s: %s took too long",
                     comm->name, muster_gpu_state_name(comm->state));
    fail_and_tell(comm, &why);
}

/* The call that was pending has ended well. */
static void settle(struct muster_gpu_communicator *comm)
{
    muster_timer_stop(&comm->timer);
    switch (comm->state) {
    case MUSTER_GPU_INITIALISING:
    case MUSTER_GPU_ISSUING:
        move(comm, MUSTER_GPU_READY);
        tell_ready(comm);
        return;
    case MUSTER_GPU_REVOKING:
        move(comm, MUSTER_GPU_REVOKED);
        if (comm->events == NULL)
            start_abort(comm);
        else
            tell_stopped(comm);
        return;
    case MUSTER_GPU_FINALISING:
        start_destroy(comm);
        return;
    default:
        return;
    }
}

static void on_poll_error(struct muster_gpu_communicator *comm, const struct muster_error *why)
{
    if (comm->state == MUSTER_GPU_REVOKING || comm->state == MUSTER_GPU_FINALISING)
        start_abort(comm);
    else
        fail_and_tell(comm, why);
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_gpu_communicator *comm = timer->data;
    struct muster_error error;
    bool is_pending;

    enum muster_rc rc = poll(comm, &is_pending, &error);

    if (comm->parent != NULL && (rc != MUSTER_OK || !is_pending))
        finish_in_parent(comm, rc, &error);
    else if (rc != MUSTER_OK)
        on_poll_error(comm, &error);
    else if (!is_pending)
        settle(comm);
    else if (muster_loop_now_ns(comm->device->env->loop) >= comm->give_up_ns)
        give_up(comm);
    else
        start_poll(comm);
}

/* --- The beginning --- */

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
    muster_timer_init(&comm->timer, on_timer, comm);
    muster_list_append(&device->communicators, &comm->node);
    *ret_comm = comm;
    return MUSTER_OK;
}

/* On the thread. */
static void work_start(struct muster_gpu_request *request)
{
    struct muster_gpu_communicator *comm = request->data;
    const struct muster_nccl *nccl = comm->device->nccl;
    struct muster_nccl_comm *parent = comm->parent != NULL ? comm->parent->nccl : NULL;
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
    struct muster_gpu_communicator *comm = request->data;

    if (comm->answer.rc != MUSTER_OK || !comm->is_call_pending)
        leave_parent(comm);
    if (comm->state == MUSTER_GPU_ABANDONED || comm->is_abort_wanted)
        start_abort(comm);
    else if (comm->answer.rc != MUSTER_OK)
        fail_and_tell(comm, &comm->answer);
    else
        begin_poll(comm, comm->device->init_timeout_ns);
}

static void start(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_error why;

    move(comm, MUSTER_GPU_INITIALISING);
    prepare_request(comm, work_start, on_start_answer);
    if (muster_gpu_control_start(device->control, &comm->request, device->init_timeout_ns) ==
        MUSTER_OK)
        return;
    leave_parent(comm);
    muster_error_set(&why, MUSTER_RESOURCE_EXHAUSTED, "the queue of device calls is full");
    fail_and_tell(comm, &why);
}

void muster_gpu_communicator_start_init(struct muster_gpu_communicator *comm,
                                        const struct muster_nccl_id *id)
{
    comm->id = *id;
    comm->has_id = true;
    start(comm);
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
        move(comm, MUSTER_GPU_INITIALISING);
        fail_and_tell(comm, &why);
        return;
    }
    for (uint32_t i = 0; i < excluded_count; i++)
        comm->excluded[i] = (int)excluded[i];
    comm->excluded_count = excluded_count;
    comm->parent = parent;
    parent->child = comm;
    comm->is_shrinking = true;
    start(comm);
}

void muster_gpu_communicator_start_grow(struct muster_gpu_communicator *comm,
                                        struct muster_gpu_communicator *parent,
                                        const struct muster_nccl_id *id)
{
    comm->parent = parent;
    if (parent != NULL)
        parent->child = comm;
    comm->is_growing = true;
    comm->has_id = id != NULL;
    if (id != NULL)
        comm->id = *id;
    start(comm);
}

/* --- Work --- */

enum muster_rc muster_gpu_communicator_issue(struct muster_gpu_communicator *comm,
                                             const struct muster_nccl_work *work,
                                             struct muster_error *ret_error)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_error error;
    bool is_pending = false;
    void *before;
    enum muster_rc rc;

    assert(comm->state == MUSTER_GPU_READY);
    before = muster_cuda_enter(device->cuda);
    rc = muster_nccl_issue(device->nccl, comm->nccl, work, comm->stream, &is_pending, &error);
    muster_cuda_leave(device->cuda, before);
    if (rc != MUSTER_OK) {
        set_failed(comm, &error);
        return muster_error_set(ret_error, rc, "%s", error.text);
    }
    if (is_pending) {
        move(comm, MUSTER_GPU_ISSUING);
        begin_poll(comm, device->init_timeout_ns); /* the first one connects */
    }
    return MUSTER_OK;
}

void muster_gpu_communicator_look(struct muster_gpu_communicator *comm)
{
    struct muster_error error;
    bool is_pending;

    if (comm->state == MUSTER_GPU_READY && poll(comm, &is_pending, &error) != MUSTER_OK)
        fail_and_tell(comm, &error);
}

void muster_gpu_communicator_fail(struct muster_gpu_communicator *comm,
                                  const struct muster_error *why)
{
    if (comm->state == MUSTER_GPU_READY || comm->state == MUSTER_GPU_ISSUING)
        set_failed(comm, why);
}

/* --- Stopping --- */

static void start_revoke(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_error error;
    bool is_pending;
    void *before = muster_cuda_enter(device->cuda);
    enum muster_rc rc = muster_nccl_revoke(device->nccl, comm->nccl, &is_pending, &error);

    muster_cuda_leave(device->cuda, before);
    if (rc != MUSTER_OK) {
        start_abort(comm);
        return;
    }
    move(comm, MUSTER_GPU_REVOKING);
    begin_poll(comm, device->abort_timeout_ns); /* the first look is in a later turn */
}

void muster_gpu_communicator_stop(struct muster_gpu_communicator *comm)
{
    bool can_revoke = (muster_nccl_features(comm->device->nccl) & MUSTER_NCCL_REVOKE) != 0;

    switch (comm->state) {
    case MUSTER_GPU_READY:
    case MUSTER_GPU_ISSUING:
        if (can_revoke)
            start_revoke(comm);
        else
            start_abort(comm);
        return;
    case MUSTER_GPU_NONE:
    case MUSTER_GPU_INITIALISING:
    case MUSTER_GPU_FAILED:
        start_abort(comm);
        return;
    default:
        return;
    }
}

bool muster_gpu_communicator_is_stopped(const struct muster_gpu_communicator *comm)
{
    return comm->state == MUSTER_GPU_REVOKED || comm->state == MUSTER_GPU_GONE ||
           comm->state == MUSTER_GPU_ABANDONED;
}

bool muster_gpu_communicator_is_quiet(const struct muster_gpu_communicator *comm)
{
    return comm->state == MUSTER_GPU_READY || comm->state == MUSTER_GPU_REVOKED;
}

static void start_finalise(struct muster_gpu_communicator *comm)
{
    struct muster_gpu_device *device = comm->device;
    struct muster_error error;
    bool is_pending;
    void *before = muster_cuda_enter(device->cuda);
    enum muster_rc rc = muster_nccl_finalise(device->nccl, comm->nccl, &is_pending, &error);

    muster_cuda_leave(device->cuda, before);
    if (rc != MUSTER_OK) {
        start_abort(comm);
        return;
    }
    move(comm, MUSTER_GPU_FINALISING);
    begin_poll(comm, device->abort_timeout_ns);
}

void muster_gpu_communicator_release(struct muster_gpu_communicator *comm, bool is_orderly)
{
    if (comm == NULL)
        return;
    comm->events = NULL;
    switch (comm->state) {
    case MUSTER_GPU_GONE:
        free_comm(comm);
        return;
    case MUSTER_GPU_READY:
        if (is_orderly)
            start_finalise(comm);
        else
            start_abort(comm);
        return;
    case MUSTER_GPU_NONE:
    case MUSTER_GPU_INITIALISING:
    case MUSTER_GPU_ISSUING:
    case MUSTER_GPU_FAILED:
    case MUSTER_GPU_REVOKED:
        start_abort(comm);
        return;
    default: /* ends by itself */
        return;
    }
}
