/* Each piece of work has a thread of its own: to start one takes less than the disk does. */
#include "runtime/system/aside_system.h"

#include <pthread.h>
#include <sys/resource.h>

#include "runtime/system/file_limit_system.h"

/* The loop goes first where both want a processor. */
#define THREAD_NICENESS 10

struct muster_aside {
    struct muster_env *env;
    struct muster_wake *wake;
    muster_aside_fn *work;
    muster_aside_done_fn *done; /* NULL: nothing is under way */
    void *data;
    enum muster_rc rc; /* written by the thread before it wakes the loop */
    bool has_thread;
    bool keeps_priority;
    pthread_t thread;
};

static void work_do(struct muster_aside *aside)
{
    aside->rc = aside->work(aside->data);
    muster_wake_signal(aside->wake);
}

static void *thread_run(void *data)
{
    struct muster_aside *aside = data;

    if (!aside->keeps_priority && getpriority(PRIO_PROCESS, 0) < THREAD_NICENESS)
        (void)setpriority(PRIO_PROCESS, 0, THREAD_NICENESS); /* of this thread alone, on Linux */
    work_do(aside);
    return NULL;
}

static void thread_join(struct muster_aside *aside)
{
    if (aside->has_thread)
        (void)pthread_join(aside->thread, NULL);
    aside->has_thread = false;
}

static void on_wake(struct muster_wake *wake)
{
    struct muster_aside *aside = muster_wake_data(wake);
    muster_aside_done_fn *done = aside->done;

    if (done == NULL)
        return;
    thread_join(aside);
    aside->done = NULL;
    done(aside->data, aside->rc);
}

enum muster_rc muster_aside_open(struct muster_env *env, struct muster_aside **ret_aside)
{
    struct muster_aside *aside = muster_mem_alloc_zero(env->mem, 1, sizeof(*aside));

    if (aside == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    aside->env = env;
    if (muster_wake_open(env->mem, env->loop, on_wake, aside, &aside->wake) != MUSTER_OK) {
        muster_mem_free(env->mem, aside);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_aside = aside;
    return MUSTER_OK;
}

void muster_aside_keep_priority(struct muster_aside *aside)
{
    MUSTER_ASSERT(aside->done == NULL);
    aside->keeps_priority = true;
}

/* The thread gets its signals from this one. */
static bool thread_start(struct muster_aside *aside)
{
    bool was_blocked = muster_file_limit_block();
    bool is_started = pthread_create(&aside->thread, NULL, thread_run, aside) == 0;

    muster_file_limit_unblock(was_blocked);
    return is_started;
}

static void work_do_here(struct muster_aside *aside)
{
    bool was_blocked = muster_file_limit_block();

    work_do(aside);
    muster_file_limit_unblock(was_blocked);
}

void muster_aside_start(struct muster_aside *aside, muster_aside_fn *work,
                        muster_aside_done_fn *done, void *data)
{
    MUSTER_ASSERT(aside->done == NULL);
    aside->work = work;
    aside->done = done;
    aside->data = data;
    aside->has_thread = thread_start(aside);
    if (!aside->has_thread)
        work_do_here(aside);
}

void muster_aside_close(struct muster_aside *aside)
{
    if (aside == NULL)
        return;
    thread_join(aside);
    muster_wake_close(aside->wake);
    muster_mem_free(aside->env->mem, aside);
}
