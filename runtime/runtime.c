/* The program's side of a kept loop: entering, waiting, and callbacks that only the program's
 * thread may run. */
#include <muster/runtime.h>

#include <assert.h>

#include "runtime/driver_seat.h"
#include "runtime/time_slice.h"

struct muster_runtime {
    struct muster_env *env;
    struct muster_driver_seat *seat;
    unsigned depth; /* the program's nested enters; the program's alone */
    struct muster_list program_tasks;
};

enum muster_rc muster_runtime_open(const struct muster_runtime_options *options,
                                   struct muster_runtime **ret_runtime)
{
    struct muster_env *env = options->env;
    struct muster_runtime *runtime;
    enum muster_rc rc;

    if (env == NULL)
        return MUSTER_INVALID_ARGUMENT;
    runtime = muster_mem_alloc_zero(env->mem, 1, sizeof(*runtime));
    if (runtime == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    runtime->env = env;
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
    if (runtime == NULL)
        return;
    assert(runtime->depth == 0);
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

void muster_runtime_enter(struct muster_runtime *runtime)
{
    if (runtime->depth++ > 0)
        return;
    muster_driver_seat_take(runtime->seat);
    /* A program that comes back more often than every tick keeps the keeper away: timers are its
     * duty then. */
    if (muster_driver_seat_is_turn_due(runtime->seat))
        muster_loop_turn(runtime->env->loop, 0);
    run_program_tasks(runtime);
}

void muster_runtime_leave(struct muster_runtime *runtime)
{
    assert(runtime->depth > 0);
    if (--runtime->depth == 0)
        muster_driver_seat_release(runtime->seat);
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

    muster_runtime_enter(runtime);
    muster_timer_init(&timer, on_deadline, &is_late);
    is_over = is_done(data);
    if (!is_over && deadline_ns != UINT64_MAX)
        muster_timer_start(&timer, runtime->env->loop, deadline_ns);
    while (!is_over && !is_late) {
        /* Tasks that user callbacks posted last round must not wait behind a sleeping poll. */
        if (!run_program_tasks(runtime)) {
            muster_loop_turn(runtime->env->loop, UINT64_MAX);
            run_program_tasks(runtime);
        }
        is_over = is_done(data);
    }
    muster_timer_stop(&timer);
    muster_runtime_leave(runtime);
    return is_over ? MUSTER_OK : MUSTER_DEADLINE_EXCEEDED;
}

void muster_runtime_post_program(struct muster_runtime *runtime, struct muster_task *task)
{
    if (!muster_task_is_posted(task))
        muster_list_append(&runtime->program_tasks, &task->node);
}
