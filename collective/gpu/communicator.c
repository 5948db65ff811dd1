/* The states of a communicator: a table of allowed moves, one function that moves, and what each
 * call, answer and tick of the timer does in each state. Calls that may block are in communicator_start.c and
 * communicator_end.c; those here only begin something, which the timer follows by polling. */
#include "collective/gpu/communicator_internal.h"

#include <muster/base.h>
#include <muster/trace.h>

#include "runtime/value/backoff.h"

#include <string.h>

/* The first looks are close together, since most pending calls end at once; later ones cost little. */
static const struct muster_backoff poll_backoff = {
    .first_ns = 50 * MUSTER_NS_PER_US, .max_ns = 2 * MUSTER_NS_PER_MS, .growth_permille = 2000};

#define TO(state) (1u << MUSTER_GPU_##state)

/* By state: those that may follow. ABANDONED is not the end: a call that returns after all is followed by an abort.
 * A call that fails in REVOKING or FINALISING leads straight to ABORTING, since nobody needs to hear of it. */
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

void muster_gpu_communicator_move(struct muster_gpu_communicator *comm, enum muster_gpu_state to)
{
    struct muster_gpu_device *device = comm->device;

    MUSTER_ASSERT(muster_gpu_move_is_allowed(comm->state, to));
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

void muster_gpu_communicator_tell_stopped(struct muster_gpu_communicator *comm)
{
    if (comm->events != NULL)
        comm->events->on_stopped(comm);
}

struct muster_nccl_comm *muster_gpu_communicator_handle(const struct muster_gpu_communicator *comm)
{
    return __atomic_load_n(&comm->nccl, __ATOMIC_ACQUIRE);
}

void muster_gpu_communicator_leave_parent(struct muster_gpu_communicator *comm)
{
    if (comm->parent != NULL)
        comm->parent->child = NULL;
    comm->parent = NULL;
}

static void set_failed(struct muster_gpu_communicator *comm, const struct muster_error *why)
{
    muster_timer_stop(&comm->timer);
    comm->error = *why;
    muster_gpu_communicator_move(comm, MUSTER_GPU_FAILED);
    MUSTER_LOG(comm->device->env, WARN, "gpu_communicator_failed", "name", comm->name, "reason",
               why->text);
}

void muster_gpu_communicator_fail_and_tell(struct muster_gpu_communicator *comm,
                                           const struct muster_error *why)
{
    set_failed(comm, why);
    /* One that its owner has released has nobody else to end it. */
    if (comm->events != NULL)
        comm->events->on_failed(comm);
    else
        muster_gpu_communicator_abort(comm);
}

/* --- Polling --- */

/* The last look is at the time limit itself. */
static void start_poll(struct muster_gpu_communicator *comm)
{
    struct muster_loop *loop = comm->device->env->loop;
    uint64_t wait_ns = muster_backoff_next(&poll_backoff, &comm->poll_ns, NULL);
    uint64_t due_ns = muster_loop_after_ns(loop, wait_ns);

    muster_timer_start(&comm->timer, loop, due_ns < comm->give_up_ns ? due_ns : comm->give_up_ns);
}

void muster_gpu_communicator_begin_poll(struct muster_gpu_communicator *comm, uint64_t timeout_ns)
{
    comm->poll_ns = 0;
    comm->give_up_ns = muster_loop_after_ns(comm->device->env->loop, timeout_ns);
    start_poll(comm);
}

/* While the parent makes this one, the library answers for the parent only. A parent that has begun to end must not be
 * asked, for its handle may be freed at any time; this one ends with it (communicator_end.c, let_child_go). */
static enum muster_rc poll_state(struct muster_gpu_communicator *comm, bool *ret_is_pending,
                                 struct muster_error *ret_error)
{
    struct muster_gpu_device *device = comm->device;
    const struct muster_gpu_communicator *asked = comm->parent != NULL ? comm->parent : comm;
    bool is_ending = asked != comm && !muster_gpu_communicator_is_quiet(asked);
    struct muster_nccl_comm *handle = is_ending ? NULL : muster_gpu_communicator_handle(asked);
    enum muster_rc rc;
    void *before;

    if (handle == NULL) { /* … or the call on the thread has not given it yet. */
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

    muster_gpu_communicator_leave_parent(comm);
    if (rc != MUSTER_OK) {
        muster_gpu_communicator_fail_and_tell(comm, error);
    } else if (muster_gpu_communicator_handle(comm) == NULL) {
        muster_error_set(&why, MUSTER_INTERNAL, "communicator %s: the library gave none",
                         comm->name);
        muster_gpu_communicator_fail_and_tell(comm, &why);
    } else {
        start_poll(comm);
    }
}

/* Ends that take too long are cut short; beginnings and operations fail, and their owner hears of it. */
static void give_up(struct muster_gpu_communicator *comm)
{
    struct muster_error why;

    if (comm->state == MUSTER_GPU_REVOKING || comm->state == MUSTER_GPU_FINALISING) {
        muster_gpu_communicator_abort(comm);
        return;
    }
    muster_error_set(&why, MUSTER_DEADLINE_EXCEEDED, "communicator %s: %s took too long",
                     comm->name, muster_gpu_state_name(comm->state));
    muster_gpu_communicator_fail_and_tell(comm, &why);
}

/* The call that was pending has ended well. */
static void settle_state(struct muster_gpu_communicator *comm)
{
    muster_timer_stop(&comm->timer);
    switch (comm->state) {
    case MUSTER_GPU_INITIALISING:
    case MUSTER_GPU_ISSUING:
        muster_gpu_communicator_move(comm, MUSTER_GPU_READY);
        tell_ready(comm);
        return;
    case MUSTER_GPU_REVOKING:
        muster_gpu_communicator_move(comm, MUSTER_GPU_REVOKED);
        if (comm->events == NULL)
            muster_gpu_communicator_abort(comm);
        else
            muster_gpu_communicator_tell_stopped(comm);
        return;
    case MUSTER_GPU_FINALISING:
        muster_gpu_communicator_destroy(comm);
        return;
    default:
        return;
    }
}

static void on_poll_error(struct muster_gpu_communicator *comm, const struct muster_error *why)
{
    if (comm->state == MUSTER_GPU_REVOKING || comm->state == MUSTER_GPU_FINALISING)
        muster_gpu_communicator_abort(comm);
    else
        muster_gpu_communicator_fail_and_tell(comm, why);
}

/* The library's answer counts before the time limit: a loop that was held up must not fail a call that has ended. */
void muster_gpu_communicator_on_timer(struct muster_timer *timer)
{
    struct muster_gpu_communicator *comm = timer->data;
    struct muster_error error;
    bool is_pending;
    enum muster_rc rc = poll_state(comm, &is_pending, &error);

    if (comm->parent != NULL && (rc != MUSTER_OK || !is_pending))
        finish_in_parent(comm, rc, &error);
    else if (rc != MUSTER_OK)
        on_poll_error(comm, &error);
    else if (!is_pending)
        settle_state(comm);
    else if (muster_loop_now_ns(comm->device->env->loop) >= comm->give_up_ns)
        give_up(comm);
    else
        start_poll(comm);
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

    MUSTER_ASSERT(comm->state == MUSTER_GPU_READY);
    before = muster_cuda_enter(device->cuda);
    rc = muster_nccl_issue(device->nccl, comm->nccl, work, comm->stream, &is_pending, &error);
    muster_cuda_leave(device->cuda, before);
    if (rc != MUSTER_OK) {
        set_failed(comm, &error);
        return muster_error_set(ret_error, rc, "%s", error.text);
    }
    if (is_pending) {
        muster_gpu_communicator_move(comm, MUSTER_GPU_ISSUING);
        muster_gpu_communicator_begin_poll(comm,
                                           device->init_timeout_ns); /* the first one connects */
    }
    return MUSTER_OK;
}

void muster_gpu_communicator_look(struct muster_gpu_communicator *comm)
{
    struct muster_error error;
    bool is_pending;

    if (comm->state == MUSTER_GPU_READY && poll_state(comm, &is_pending, &error) != MUSTER_OK)
        muster_gpu_communicator_fail_and_tell(comm, &error);
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
        muster_gpu_communicator_abort(comm);
        return;
    }
    muster_gpu_communicator_move(comm, MUSTER_GPU_REVOKING);
    muster_gpu_communicator_begin_poll(
        comm, device->abort_timeout_ns); /* the first look is in a later turn */
}

void muster_gpu_communicator_stop(struct muster_gpu_communicator *comm)
{
    bool can_revoke = (muster_nccl_features(comm->device->nccl) & MUSTER_NCCL_REVOKE) != 0;

    /* A revoked communicator can still be the parent of the next one; an aborted one cannot. */
    switch (comm->state) {
    case MUSTER_GPU_READY:
    case MUSTER_GPU_ISSUING:
        if (can_revoke)
            start_revoke(comm);
        else
            muster_gpu_communicator_abort(comm);
        return;
    case MUSTER_GPU_NONE:
    case MUSTER_GPU_INITIALISING:
    case MUSTER_GPU_FAILED:
        muster_gpu_communicator_abort(comm);
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

bool muster_gpu_communicator_can_be_parent(const struct muster_gpu_communicator *comm)
{
    return comm != NULL && muster_gpu_communicator_is_quiet(comm) && comm->child == NULL &&
           !comm->is_lent && !comm->is_abort_wanted;
}

struct muster_nccl_comm *muster_gpu_communicator_lend(struct muster_gpu_communicator *comm)
{
    MUSTER_ASSERT(muster_gpu_communicator_can_be_parent(comm));
    comm->is_lent = true;
    return muster_gpu_communicator_handle(comm);
}

void muster_gpu_communicator_take_back(struct muster_gpu_communicator *comm)
{
    MUSTER_ASSERT(comm->is_lent);
    comm->is_lent = false;
    if (comm->is_abort_wanted)
        muster_gpu_communicator_abort(comm);
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
        muster_gpu_communicator_abort(comm);
        return;
    }
    muster_gpu_communicator_move(comm, MUSTER_GPU_FINALISING);
    muster_gpu_communicator_begin_poll(comm, device->abort_timeout_ns);
}

void muster_gpu_communicator_release(struct muster_gpu_communicator *comm, bool is_orderly)
{
    if (comm == NULL)
        return;
    comm->events = NULL; /* its owner's memory may go now */
    switch (comm->state) {
    case MUSTER_GPU_GONE:
        muster_gpu_communicator_free(comm);
        return;
    case MUSTER_GPU_READY:
        /* To finalise it would run in the library beside the call that uses it; an abort waits for that call. */
        if (is_orderly && comm->child == NULL && !comm->is_lent)
            start_finalise(comm);
        else
            muster_gpu_communicator_abort(comm);
        return;
    case MUSTER_GPU_NONE:
    case MUSTER_GPU_INITIALISING:
    case MUSTER_GPU_ISSUING:
    case MUSTER_GPU_FAILED:
    case MUSTER_GPU_REVOKED:
        muster_gpu_communicator_abort(comm);
        return;
    default: /* ends by itself */
        return;
    }
}
