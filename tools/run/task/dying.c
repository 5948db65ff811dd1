/* A thread for each worker waits for the first word of the robust mutex that the worker holds (places.h). It does not
 * lock it: the list of robust mutexes leads through memory that the worker can write. */
#include "run/task/dying.h"

#include "run/task/places.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct waiter {
    struct run_dying *dying;
    struct run_worker_place *place;
    pthread_t thread;
    bool is_started;
    unsigned life;           /* of the task, which the thread was started for */
    _Atomic bool is_stopped; /* Writer: the loop; reader: the thread */
    _Atomic bool has_died;   /* Writers and readers: both; set by the thread, cleared by the loop */
};

struct run_dying {
    struct run *run;
    struct muster_wake *wake;
    struct waiter *waiters; /* by local rank */
};

static uint32_t *word_of(struct waiter *waiter)
{
    return (uint32_t *)(void *)&waiter->place->life;
}

static void wait_while(uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

/* The kernel wakes somebody only where the word says that somebody waits. */
static void *wait_for_death(void *data)
{
    struct waiter *waiter = data;
    uint32_t *word = word_of(waiter);

    while (!atomic_load_explicit(&waiter->is_stopped, memory_order_acquire)) {
        uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        uint32_t awaited = value | FUTEX_WAITERS;

        if ((value & FUTEX_OWNER_DIED) != 0) {
            if (atomic_load_explicit(&waiter->place->life_state, memory_order_acquire) ==
                RUN_LIFE_HELD) {
                atomic_store_explicit(&waiter->has_died, true, memory_order_release);
                muster_wake_signal(waiter->dying->wake);
            }
            break;
        }
        if ((value & FUTEX_TID_MASK) == 0)
            break; /* its strategy is closed */
        if (value == awaited || __atomic_compare_exchange_n(word, &value, awaited, false,
                                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            wait_while(word, awaited);
    }
    return NULL;
}

static void on_died(struct muster_wake *wake)
{
    struct run_dying *dying = muster_wake_data(wake);

    for (uint32_t i = 0; i < dying->run->task_count; i++) {
        struct waiter *waiter = &dying->waiters[i];
        struct run_task *task = &dying->run->tasks[i];

        if (atomic_exchange_explicit(&waiter->has_died, false, memory_order_acq_rel) &&
            waiter->life == task->lives && task->state == RUN_TASK_RUNNING)
            task->run->control->on_dying(task);
    }
}

void run_dying_open(struct run *run)
{
    struct run_dying *dying = run->places != NULL ? calloc(1, sizeof(*dying)) : NULL;

    if (dying == NULL)
        return;
    dying->run = run;
    dying->waiters = calloc(run->task_count, sizeof(*dying->waiters));
    if (dying->waiters == NULL || muster_wake_open(run->env->mem, run->env->loop, on_died, dying,
                                                   &dying->wake) != MUSTER_OK) {
        free(dying->waiters);
        free(dying);
        return;
    }
    run->dying = dying;
}

/* Signals are for the launcher's own thread. */
static bool thread_start(struct waiter *waiter)
{
    sigset_t all, before;
    bool is_started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started = pthread_create(&waiter->thread, NULL, wait_for_death, waiter) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

void run_dying_watch(struct run_task *task)
{
    struct run_dying *dying = task->run->dying;
    struct waiter *waiter = dying != NULL ? &dying->waiters[task->local_rank] : NULL;

    if (waiter == NULL || waiter->is_started)
        return;
    waiter->dying = dying;
    waiter->place = run_places_of(task);
    waiter->life = task->lives;
    atomic_store_explicit(&waiter->is_stopped, false, memory_order_relaxed);
    atomic_store_explicit(&waiter->has_died, false, memory_order_relaxed);
    waiter->is_started = thread_start(waiter);
}

/* The word of a process that has been taken down is marked or free, and the thread ends by itself. Where the process
 * goes on the thread may be about to wait when it is told to stop: it is woken until it has ended. */
static void waiter_stop(struct waiter *waiter)
{
    if (!waiter->is_started)
        return;
    atomic_store_explicit(&waiter->is_stopped, true, memory_order_release);
    do {
        syscall(SYS_futex, word_of(waiter), FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
        sched_yield();
    } while (pthread_tryjoin_np(waiter->thread, NULL) != 0);
    waiter->is_started = false;
}

void run_dying_end(const struct run_task *task)
{
    struct run_dying *dying = task->run->dying;

    if (dying != NULL)
        waiter_stop(&dying->waiters[task->local_rank]);
}

void run_dying_close(struct run *run)
{
    struct run_dying *dying = run->dying;

    if (dying == NULL)
        return;
    for (uint32_t i = 0; i < run->task_count; i++)
        waiter_stop(&dying->waiters[i]);
    muster_wake_close(dying->wake);
    free(dying->waiters);
    free(dying);
    run->dying = NULL;
}
