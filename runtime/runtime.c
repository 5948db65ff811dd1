/* The program's side of a kept loop: entering, waiting, and callbacks that only the program's
 * thread may run. */
#include <muster/runtime.h>

#include <assert.h>

#include "runtime/driver_seat.h"

/* About 10 us of looking at shared memory between two turns of the loop (0.2 us each). */
#define POLLS_PER_TURN 4000u
/* Turns without progress before a wait with pollers sleeps, and for how long it sleeps between
 * looks. */
#define EAGER_TURNS   20u
#define POLL_SLEEP_NS (200 * MUSTER_NS_PER_US)

struct muster_runtime {
    struct muster_env *env;
    struct muster_driver_seat *seat;
    unsigned depth;      /* the program's nested enters; the program's alone */
    unsigned poll_count; /* since the last turn */
    struct muster_list program_tasks;
    struct muster_list pollers;
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
    muster_list_init(&runtime->pollers);
    rc = muster_driver_seat_open(env->mem, env->loop, options->tick_ns, &runtime->seat);
    if (rc != MUSTER_OK) {
        muster_mem_free(env->mem, runtime);
        return rc;
    }
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
    while (muster_list_pop(&runtime->pollers) != NULL)
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

static void turn(struct muster_runtime *runtime, uint64_t wait_ns)
{
    runtime->poll_count = 0;
    muster_loop_turn(runtime->env->loop, wait_ns);
}

void muster_runtime_enter(struct muster_runtime *runtime)
{
    if (runtime->depth++ > 0)
        return;
    muster_driver_seat_take(runtime->seat);
    /* A program that comes back more often than every tick keeps the keeper away: timers are its
     * duty then. */
    if (muster_driver_seat_is_turn_due(runtime->seat))
        turn(runtime, 0);
    run_program_tasks(runtime);
}

void muster_runtime_leave(struct muster_runtime *runtime)
{
    assert(runtime->depth > 0);
    if (--runtime->depth == 0)
        muster_driver_seat_release(runtime->seat);
}

static bool poll_once(struct muster_runtime *runtime)
{
    bool has_moved = false;
    struct muster_list *next;

    for (struct muster_list *at = runtime->pollers.next; at != &runtime->pollers; at = next) {
        struct muster_poller *poller = MUSTER_CONTAINER_OF(at, struct muster_poller, node);

        next = at->next;
        has_moved = poller->on_poll(poller) || has_moved;
    }
    return has_moved;
}

/* Look at shared memory until something moved (true) or a turn of the loop is due. */
static bool poll_many(struct muster_runtime *runtime)
{
    if (muster_list_is_empty(&runtime->pollers))
        return false;
    while (runtime->poll_count < POLLS_PER_TURN) {
        runtime->poll_count++;
        if (poll_once(runtime))
            return true;
    }
    return false;
}

static void on_deadline(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

/* One round of a wait: shared memory, else a turn of the loop, then the program's callbacks. */
static void wait_round(struct muster_runtime *runtime, unsigned *idle_turns)
{
    uint64_t wait_ns = UINT64_MAX;

    if (!poll_many(runtime)) {
        if (!muster_list_is_empty(&runtime->pollers))
            wait_ns = (*idle_turns)++ < EAGER_TURNS ? 0 : POLL_SLEEP_NS;
        turn(runtime, wait_ns);
    } else {
        *idle_turns = 0;
    }
    if (run_program_tasks(runtime))
        *idle_turns = 0;
}

enum muster_rc muster_runtime_wait(struct muster_runtime *runtime, bool (*is_done)(void *data),
                                   void *data, uint64_t deadline_ns)
{
    struct muster_timer timer;
    unsigned idle_turns = 0;
    bool is_late = false;
    bool is_over;

    muster_runtime_enter(runtime);
    muster_timer_init(&timer, on_deadline, &is_late);
    is_over = is_done(data);
    if (!is_over && deadline_ns != UINT64_MAX)
        muster_timer_start(&timer, runtime->env->loop, deadline_ns);
    while (!is_over && !is_late) {
        /* Tasks that user callbacks posted last round must not wait behind a sleeping poll. */
        if (!run_program_tasks(runtime))
            wait_round(runtime, &idle_turns);
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

void muster_runtime_add_poller(struct muster_runtime *runtime, struct muster_poller *poller)
{
    muster_list_append(&runtime->pollers, &poller->node);
}

void muster_runtime_remove_poller(struct muster_poller *poller)
{
    muster_list_remove(&poller->node);
}
