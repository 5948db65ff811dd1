/* Threads for device calls that may block. The mutex guards the ring, the finished requests and the
 * counters; it is held for a few instructions only. One thread serves the ring in order; a request that must not wait
 * for others has a thread of its own. A thread that does not come back is replaced, never joined or killed: it may
 * hold locks of the library. */
#include "collective/gpu/control.h"

#include <muster/base.h>

#include <pthread.h>
#include <signal.h>

/* One thread, which frees this at its end. The mutex guards `current` and is_abandoned. */
struct worker {
    struct muster_gpu_control *control;
    struct muster_gpu_request *current; /* NULL: waits */
    bool is_apart;                      /* ends after `current` */
    bool is_abandoned;                  /* its request is late */
};

struct muster_gpu_control {
    struct muster_env *env; /* the loop's side only */
    struct muster_mem *mem; /* the C library's heap: workers outlive counted memory */
    void (*on_thread)(void *data);
    void *data;
    struct muster_wake *wake;
    struct worker *worker; /* of the ring; the loop's side */
    uint32_t open_count, late_count;
    pthread_mutex_t mutex;
    pthread_cond_t
        changed; /* workers wait for requests, close waits for workers: always broadcast */
    struct muster_gpu_request *ring[MUSTER_GPU_RING_COUNT];
    uint32_t head, tail; /* next to take, next free; they only grow, the ring's size divides 2^32 */
    struct muster_list finished;
    uint32_t thread_count; /* that still run */
    uint32_t references;   /* theirs, and the loop's until close */
    uint32_t stuck_count;
    bool is_closed;
};

/* --- On threads --- */

static void control_free(struct muster_gpu_control *control)
{
    struct muster_mem *mem = control->mem;

    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->mutex);
    muster_mem_free(mem, control);
}

/* Mutex held. NULL: the thread ends. */
static struct muster_gpu_request *take_next(struct worker *worker)
{
    struct muster_gpu_control *control = worker->control;

    while (!worker->is_abandoned && !control->is_closed && control->head == control->tail)
        pthread_cond_wait(&control->changed, &control->mutex);
    if (worker->is_abandoned || control->is_closed)
        return NULL;
    return control->ring[control->head++ % MUSTER_GPU_RING_COUNT];
}

/* Mutex held. The wake is the loop's to close, which it does with the mutex. */
static void answer_request(struct worker *worker, struct muster_gpu_request *request)
{
    struct muster_gpu_control *control = worker->control;

    worker->current = NULL;
    request->worker = NULL;
    if (worker->is_abandoned)
        control->stuck_count--;
    if (control->is_closed) /* nobody takes answers any more */
        return;
    muster_list_append(&control->finished, &request->node);
    muster_wake_signal(control->wake);
}

static void worker_run(struct worker *worker)
{
    struct muster_gpu_control *control = worker->control;
    struct muster_gpu_request *request = worker->current;

    if (request == NULL)
        request = take_next(worker);
    while (request != NULL) {
        worker->current = request;
        request->worker = worker;
        request->is_begun = true;
        if (!request->is_skipped) {
            pthread_mutex_unlock(&control->mutex);
            request->work(request);
            pthread_mutex_lock(&control->mutex);
        }
        answer_request(worker, request);
        request = worker->is_apart ? NULL : take_next(worker);
    }
}

static void *run_thread(void *data)
{
    struct worker *worker = data;
    struct muster_gpu_control *control = worker->control;
    struct muster_mem *mem = control->mem;
    bool is_last;

    control->on_thread(control->data);
    pthread_mutex_lock(&control->mutex);
    worker_run(worker);
    control->thread_count--;
    is_last = --control->references == 0;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->mutex);
    if (is_last)
        control_free(control);
    muster_mem_free(mem, worker);
    return NULL;
}

/* Signals belong to the program's threads. The worker may have ended, with its memory, when this
 * returns. */
static bool create_thread(struct worker *worker)
{
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;
    bool is_created;

    if (pthread_attr_init(&detached) != 0)
        return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    is_created = pthread_create(&thread, &detached, run_thread, worker) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return is_created;
}

static struct worker *worker_start(struct muster_gpu_control *control,
                                   struct muster_gpu_request *request)
{
    struct worker *worker = muster_mem_alloc_zero(control->mem, 1, sizeof(*worker));

    if (worker == NULL)
        return NULL;
    /* Counted before it runs: a thread may end, and give its reference back, before pthread_create returns here. */
    worker->control = control;
    worker->current = request;
    worker->is_apart = request != NULL;
    pthread_mutex_lock(&control->mutex);
    if (request != NULL) {
        request->worker = worker;
        request->is_begun = true;
    }
    control->thread_count++;
    control->references++;
    pthread_mutex_unlock(&control->mutex);
    if (create_thread(worker))
        return worker;
    pthread_mutex_lock(&control->mutex);
    if (request != NULL)
        request->worker = NULL;
    control->thread_count--;
    control->references--;
    pthread_mutex_unlock(&control->mutex);
    muster_mem_free(control->mem, worker);
    return NULL;
}

/* --- On the loop --- */

static struct muster_gpu_request *take_finished(struct muster_gpu_control *control)
{
    struct muster_list *node;

    pthread_mutex_lock(&control->mutex);
    node = muster_list_pop(&control->finished);
    pthread_mutex_unlock(&control->mutex);
    return node != NULL ? MUSTER_CONTAINER_OF(node, struct muster_gpu_request, node) : NULL;
}

/* The last answer may close the control: it is not touched afterwards. */
static void on_wake(struct muster_wake *wake)
{
    struct muster_gpu_control *control = muster_wake_data(wake);
    uint32_t more = UINT32_MAX;

    while (more > 0) {
        struct muster_gpu_request *request = take_finished(control);

        if (request == NULL)
            return;
        muster_timer_stop(&request->timer);
        MUSTER_ASSERT(control->open_count > 0);
        if (request->state == MUSTER_GPU_REQUEST_LATE)
            control->late_count--;
        control->open_count--;
        more = control->open_count;
        request->state = MUSTER_GPU_REQUEST_IDLE;
        request->on_answer(request);
    }
}

enum lateness {
    LATE_NOT,     /* finished after all */
    LATE_IN_RING, /* not begun: it is left out */
    LATE_APART,   /* its own thread is stuck: no other request waits for that */
    LATE_AT_WORK, /* the thread of the ring is stuck: another one takes over */
};

/* A request that has not begun never will; the thread that works on it takes no other request any
 * more. */
static enum lateness abandon_request(struct muster_gpu_control *control,
                                     struct muster_gpu_request *request)
{
    enum lateness lateness = LATE_NOT; /* finished: its answer is on the way */
    struct worker *worker;

    pthread_mutex_lock(&control->mutex);
    worker = request->worker;
    if (!request->is_begun) {
        request->is_skipped = true;
        lateness = LATE_IN_RING;
    } else if (worker != NULL) {
        worker->is_abandoned = true;
        control->stuck_count++;
        lateness = worker->is_apart ? LATE_APART : LATE_AT_WORK;
    }
    pthread_mutex_unlock(&control->mutex);
    return lateness;
}

static void on_timer(struct muster_timer *timer)
{
    struct muster_gpu_request *request = timer->data;
    struct muster_gpu_control *control = request->control;
    enum lateness lateness = abandon_request(control, request);

    if (lateness == LATE_NOT)
        return;
    request->state = MUSTER_GPU_REQUEST_LATE;
    control->late_count++;
    if (lateness == LATE_AT_WORK) {
        MUSTER_LOG(control->env, ERROR, "gpu_thread_stuck");
        /* NULL where no thread can be had: muster_gpu_control_start refuses from then on. */
        control->worker = worker_start(control, NULL);
    }
    request->on_late(request);
}

enum muster_rc muster_gpu_control_open(struct muster_env *env, void (*on_thread)(void *data),
                                       void *data, struct muster_gpu_control **ret_control)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_gpu_control *control = muster_mem_alloc_zero(mem, 1, sizeof(*control));
    enum muster_rc rc;

    if (control == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    control->env = env;
    control->mem = mem;
    control->on_thread = on_thread;
    control->references = 1;
    control->data = data;
    pthread_mutex_init(&control->mutex, NULL);
    pthread_cond_init(&control->changed, NULL);
    muster_list_init(&control->finished);
    rc = muster_wake_open(env->mem, env->loop, on_wake, control, &control->wake);
    if (rc != MUSTER_OK) {
        control_free(control);
        return rc;
    }
    control->worker = worker_start(control, NULL);
    if (control->worker == NULL) {
        muster_wake_close(control->wake);
        control_free(control);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_control = control;
    return MUSTER_OK;
}

static void prepare_request(struct muster_gpu_control *control, struct muster_gpu_request *request)
{
    MUSTER_ASSERT(request->state == MUSTER_GPU_REQUEST_IDLE);
    request->control = control;
    request->worker = NULL;
    request->is_begun = request->is_skipped = false;
    muster_list_init(&request->node);
    muster_timer_init(&request->timer, on_timer, request);
}

static void set_started(struct muster_gpu_request *request, uint64_t timeout_ns)
{
    struct muster_gpu_control *control = request->control;

    request->state = MUSTER_GPU_REQUEST_STARTED;
    control->open_count++;
    muster_timer_start(&request->timer, control->env->loop,
                       muster_loop_after_ns(control->env->loop, timeout_ns));
}

enum muster_rc muster_gpu_control_start(struct muster_gpu_control *control,
                                        struct muster_gpu_request *request, uint64_t timeout_ns)
{
    bool is_full;

    if (control->worker == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    prepare_request(control, request);
    pthread_mutex_lock(&control->mutex);
    is_full = control->tail - control->head == MUSTER_GPU_RING_COUNT;
    if (!is_full) {
        control->ring[control->tail++ % MUSTER_GPU_RING_COUNT] = request;
        pthread_cond_broadcast(&control->changed);
    }
    pthread_mutex_unlock(&control->mutex);
    if (is_full)
        return MUSTER_RESOURCE_EXHAUSTED;
    set_started(request, timeout_ns);
    return MUSTER_OK;
}

enum muster_rc muster_gpu_control_start_apart(struct muster_gpu_control *control,
                                              struct muster_gpu_request *request,
                                              uint64_t timeout_ns)
{
    prepare_request(control, request);
    if (worker_start(control, request) == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    set_started(request, timeout_ns);
    return MUSTER_OK;
}

uint32_t muster_gpu_control_stuck_count(const struct muster_gpu_control *control)
{
    struct muster_gpu_control *shared = (struct muster_gpu_control *)(uintptr_t)control;
    uint32_t count;

    pthread_mutex_lock(&shared->mutex);
    count = shared->stuck_count;
    pthread_mutex_unlock(&shared->mutex);
    return count;
}

/* Threads that are not stuck end at once, and are waited for: they may still be at their answer. */
void muster_gpu_control_close(struct muster_gpu_control *control)
{
    bool is_last;

    if (control == NULL)
        return;
    MUSTER_ASSERT(control->open_count == control->late_count);
    pthread_mutex_lock(&control->mutex);
    control->is_closed = true;
    pthread_cond_broadcast(&control->changed);
    while (control->thread_count > control->stuck_count)
        pthread_cond_wait(&control->changed, &control->mutex);
    is_last = --control->references == 0;
    muster_wake_close(control->wake);
    pthread_mutex_unlock(&control->mutex);
    if (is_last)
        control_free(control);
}
