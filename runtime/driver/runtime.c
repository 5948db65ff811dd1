/* The program's side of a kept loop: entering, waiting, and callbacks that only the program's
 * thread may run. */
#include <muster/runtime.h>

#include <stdatomic.h>
#include <stdio.h>

#include "runtime/driver/driver_seat.h"
#include "runtime/system/process_system.h"
#include "runtime/loop/time_slice.h"

struct muster_runtime {
    struct muster_env *env;
    struct muster_driver_seat *seat;
    unsigned depth;      /* nested enters of the owner; it alone reads and writes it */
    unsigned generation; /* of the process that opened it */
    /* Number of the thread that is inside a call; 0: none. The thread that enters writes it
     * (acquire), and clears it when it leaves (release), which is the pair that orders two threads'
     * calls. Any thread reads it, relaxed, to refuse a second caller. */
    atomic_uint_fast32_t owner;
    /* The name of the owner's call, for the text of a refusal: written by the owner and read by
     * others, relaxed. It may be the name of a call that has just ended, never freed memory: names
     * are static. */
    const char *_Atomic call;
    struct muster_list program_tasks;
};

enum muster_rc muster_runtime_open(const struct muster_runtime_options *options,
                                   struct muster_runtime **ret_runtime)
{
    static const struct muster_runtime_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_env *env = options->env;
    struct muster_runtime *runtime;
    enum muster_rc rc;

    if (env == NULL)
        return MUSTER_INVALID_ARGUMENT;
    runtime = muster_mem_alloc_zero(env->mem, 1, sizeof(*runtime));
    if (runtime == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    runtime->env = env;
    runtime->generation = muster_process_generation();
    muster_list_init(&runtime->program_tasks);
    rc = muster_driver_seat_open(env->mem, env->loop, options->tick_ns, &runtime->seat);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, runtime);
        return rc;
    }
    muster_time_slice_shorten();
    muster_driver_seat_release(runtime->seat);
    *ret_runtime = runtime;
    return MUSTER_OK;
}

void muster_runtime_close(struct muster_runtime *runtime)
{
    if (runtime == NULL || runtime->generation != muster_process_generation())
        return;
    MUSTER_ASSERT(runtime->depth == 0);
    muster_driver_seat_take(runtime->seat);
    muster_driver_seat_close(runtime->seat);
    while (muster_list_pop(&runtime->program_tasks) != NULL)
        continue;
    muster_mem_free(runtime->env->mem, runtime);
}

struct muster_env *muster_runtime_env(const struct muster_runtime *runtime)
{
    return runtime->env;
}

/* A task that is posted by one of these runs in the next round, so a loop of tasks cannot starve
 * the caller. */
static bool run_program_tasks(struct muster_runtime *runtime)
{
    struct muster_list batch;
    struct muster_list *node;
    bool has_run = false;

    muster_list_take_all(&batch, &runtime->program_tasks);
    while ((node = muster_list_pop(&batch)) != NULL) {
        struct muster_task *task = MUSTER_CONTAINER_OF(node, struct muster_task, node);

        task->on_run(task);
        has_run = true;
    }
    return has_run;
}

static enum muster_rc refuse_fork(const char *call, struct muster_error *ret_error)
{
    return muster_error_set(
        ret_error, MUSTER_FAILED_PRECONDITION,
        "%s: this process is a fork of the one that opened it, which alone is the "
        "member: open another one here, or start children before open",
        call);
}

/* The text names both threads and their calls, because the program has two places to look at. */
static enum muster_rc refuse_thread(struct muster_runtime *runtime, uint32_t owner,
                                    const char *call, struct muster_error *ret_error)
{
    const char *other = atomic_load(&runtime->call);
    char theirs[MUSTER_THREAD_TEXT_BYTES], ours[MUSTER_THREAD_TEXT_BYTES];

    muster_thread_format(owner, theirs);
    muster_thread_format(muster_thread_number(), ours);
    return muster_error_set(
        ret_error, MUSTER_FAILED_PRECONDITION,
        "%s by thread %s while thread %s is in %s: call from one thread at a time", call, ours,
        theirs, other != NULL ? other : "another call");
}

enum muster_rc muster_runtime_check(struct muster_runtime *runtime, const char *call,
                                    struct muster_error *ret_error)
{
    uint32_t owner;

    if (runtime->generation != muster_process_generation())
        return refuse_fork(call, ret_error);
    owner = (uint32_t)atomic_load_explicit(&runtime->owner, memory_order_relaxed);
    if (owner != 0 && owner != muster_thread_number())
        return refuse_thread(runtime, owner, call, ret_error);
    return MUSTER_OK;
}

enum muster_rc muster_runtime_enter_as(struct muster_runtime *runtime, const char *call,
                                       struct muster_error *ret_error)
{
    uint32_t self = muster_thread_number();
    uint_fast32_t owner = 0;

    if (runtime->generation != muster_process_generation())
        return refuse_fork(call, ret_error);
    if (!atomic_compare_exchange_strong_explicit(&runtime->owner, &owner, self,
                                                 memory_order_acquire, memory_order_relaxed) &&
        owner != self)
        return refuse_thread(runtime, (uint32_t)owner, call, ret_error);
    if (runtime->depth++ > 0)
        return MUSTER_OK;
    atomic_store_explicit(&runtime->call, call, memory_order_relaxed);
    muster_driver_seat_take(runtime->seat);
    /* A program that comes back more often than every tick keeps the keeper away: timers are its
     * duty then. */
    if (muster_driver_seat_is_turn_due(runtime->seat))
        muster_loop_turn(runtime->env->loop, 0);
    run_program_tasks(runtime);
    return MUSTER_OK;
}

enum muster_rc muster_runtime_enter(struct muster_runtime *runtime)
{
    struct muster_error error;

    return muster_runtime_enter_as(runtime, "muster_runtime_enter", &error);
}

/* Idempotent towards a refused enter: a thread that was not let in has nothing to give back. */
void muster_runtime_leave(struct muster_runtime *runtime)
{
    if (runtime->generation != muster_process_generation() ||
        atomic_load_explicit(&runtime->owner, memory_order_relaxed) != muster_thread_number())
        return; /* its enter was refused */
    MUSTER_ASSERT(runtime->depth > 0);
    if (--runtime->depth > 0)
        return;
    muster_driver_seat_release(runtime->seat);
    atomic_store_explicit(&runtime->owner, 0, memory_order_release);
}

static void on_deadline(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

enum muster_rc muster_runtime_wait(struct muster_runtime *runtime, bool (*is_done)(void *data),
                                   void *data, uint64_t deadline_ns)
{
    struct muster_timer timer;
    bool is_late = false;
    bool is_over;
    enum muster_rc rc = muster_runtime_enter(runtime);

    if (rc != MUSTER_OK)
        return rc;
    MUSTER_ASSERT((is_done != NULL || deadline_ns != UINT64_MAX) && runtime->depth > 0);
    muster_timer_init(&timer, on_deadline, &is_late);
    is_over = is_done != NULL && is_done(data);
    if (!is_over && deadline_ns != UINT64_MAX)
        muster_timer_start(&timer, runtime->env->loop, deadline_ns);
    while (!is_over && !is_late) {
        /* Tasks that user callbacks posted last round must not wait for a poll that sleeps. */
        if (!run_program_tasks(runtime)) {
            muster_loop_turn(runtime->env->loop, UINT64_MAX);
            run_program_tasks(runtime);
        }
        is_over = is_done != NULL && is_done(data);
    }
    muster_timer_stop(&timer);
    muster_runtime_leave(runtime);
    return is_over ? MUSTER_OK : MUSTER_DEADLINE_EXCEEDED;
}

void muster_runtime_post_program(struct muster_runtime *runtime, struct muster_task *task)
{
    MUSTER_ASSERT(task->on_run != NULL);
    if (!muster_task_is_posted(task))
        muster_list_append(&runtime->program_tasks, &task->node);
}
