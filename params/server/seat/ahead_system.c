/* A thread that makes huge pages of memory which is not used yet. */
#include "params/server/seat/ahead_system.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <muster/env.h>

#include "params/store/region.h"

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
#define AHEAD_MIN     2u
#define AHEAD_MAX     64u
#define CALL_SEGMENTS 32u /* the kernel waits once in each call */
#define PAGE_BYTES    4096u

struct muster_params_ahead {
    struct muster_params_ahead_options options;
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t change;
    bool is_closing;
    size_t made_count, wanted_count; /* segments, from the first one on */
};

/* Each huge page must hold a small one first: the kernel collapses only pages that exist. Where it does not, the pages
 * stay small, and only a death takes longer. */
void muster_params_pages_make(uint8_t *segments, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)madvise(segments + i * MUSTER_PARAMS_SEGMENT_BYTES, PAGE_BYTES, MADV_POPULATE_WRITE);
    (void)madvise(segments, count * MUSTER_PARAMS_SEGMENT_BYTES, MADV_COLLAPSE);
}

/* How many segments the thread makes next, from ahead->made_count on. */
static size_t segments_next(struct muster_params_ahead *ahead)
{
    const struct muster_params_ahead_options *options = &ahead->options;
    size_t first = ahead->made_count, end;

    while (first < ahead->wanted_count && options->is_made(options->data, first))
        first++;
    for (end = first; end < ahead->wanted_count && end - first < CALL_SEGMENTS; end++) {
        if (options->is_made(options->data, end))
            break;
    }
    ahead->made_count = first;
    return end - first;
}

static void *thread_run(void *data)
{
    struct muster_params_ahead *ahead = data;
    const struct muster_params_ahead_options *options = &ahead->options;

    (void)pthread_mutex_lock(&ahead->mutex);
    while (!ahead->is_closing) {
        size_t count = segments_next(ahead), first = ahead->made_count;

        if (count == 0) {
            (void)pthread_cond_wait(&ahead->change, &ahead->mutex);
            continue;
        }
        ahead->made_count += count;
        (void)pthread_mutex_unlock(&ahead->mutex);
        muster_params_pages_make(options->memory + first * MUSTER_PARAMS_SEGMENT_BYTES, count);
        for (size_t i = 0; i < count; i++)
            options->made(options->data, first + i);
        (void)pthread_mutex_lock(&ahead->mutex);
    }
    (void)pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

/* Signals are for the loop's thread. */
static bool thread_start(struct muster_params_ahead *ahead)
{
    sigset_t all, before;
    bool is_started;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started = pthread_create(&ahead->thread, NULL, thread_run, ahead) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static void ahead_free(struct muster_params_ahead *ahead)
{
    (void)pthread_cond_destroy(&ahead->change);
    (void)pthread_mutex_destroy(&ahead->mutex);
    muster_mem_free(muster_mem_system(), ahead);
}

enum muster_rc muster_params_ahead_open(const struct muster_params_ahead_options *options,
                                        struct muster_params_ahead **ret_ahead)
{
    struct muster_params_ahead *ahead =
        muster_mem_alloc_zero(muster_mem_system(), 1, sizeof(*ahead));

    if (ahead == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    ahead->options = *options;
    ahead->made_count = ahead->wanted_count = options->segments_used;
    (void)pthread_mutex_init(&ahead->mutex, NULL);
    (void)pthread_cond_init(&ahead->change, NULL);
    if (!thread_start(ahead)) {
        ahead_free(ahead);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_ahead = ahead;
    return MUSTER_OK;
}

void muster_params_ahead_of(struct muster_params_ahead *ahead, size_t segments_used)
{
    size_t more = segments_used / 8;

    more = more < AHEAD_MIN ? AHEAD_MIN : more > AHEAD_MAX ? AHEAD_MAX : more;
    if (more > ahead->options.segment_count - segments_used)
        more = ahead->options.segment_count - segments_used;
    (void)pthread_mutex_lock(&ahead->mutex);
    if (ahead->wanted_count < segments_used + more)
        ahead->wanted_count = segments_used + more;
    (void)pthread_cond_signal(&ahead->change);
    (void)pthread_mutex_unlock(&ahead->mutex);
}

void muster_params_ahead_until(struct muster_params_ahead *ahead, size_t segment)
{
    MUSTER_ASSERT(segment <= ahead->options.segment_count);
    (void)pthread_mutex_lock(&ahead->mutex);
    if (ahead->wanted_count < segment)
        ahead->wanted_count = segment;
    (void)pthread_cond_signal(&ahead->change);
    (void)pthread_mutex_unlock(&ahead->mutex);
}

void muster_params_ahead_close(struct muster_params_ahead *ahead)
{
    if (ahead == NULL)
        return;
    (void)pthread_mutex_lock(&ahead->mutex);
    ahead->is_closing = true;
    (void)pthread_cond_signal(&ahead->change);
    (void)pthread_mutex_unlock(&ahead->mutex);
    (void)pthread_join(ahead->thread, NULL);
    ahead_free(ahead);
}
