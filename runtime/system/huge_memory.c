/* Memory of the caller's allocator, aligned here, and advice to the system. */
#include "runtime/system/huge_memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <muster/env.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE_BYTES ((size_t)4096)
/* Virtual machines may take milliseconds for a huge page. The thread rests as long as it has worked, by the clock of
 * its own processor time: among busy processes it has waited long enough. */
#define NICENESS    10
#define REST_MIN_NS (100 * UINT64_C(1000))
#define REST_MAX_NS (100 * MUSTER_NS_PER_MS)

/* `taken` is written by the thread alone (release), and read by any other (acquire). */
struct muster_huge_memory_taker {
    struct muster_mem *mem;
    uint8_t *bytes;
    size_t capacity;
    _Atomic size_t taken;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t change;
    bool is_cancelled; /* under the mutex */
};

/* --- The thread --- */

/* An older kernel does not know the advice: nothing is added to a byte of each page. */
static void pages_take(uint8_t *bytes, size_t count)
{
    if (madvise(bytes, count, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t at = 0; at < count; at += PAGE_BYTES)
        (void)atomic_fetch_or_explicit((_Atomic uint8_t *)(bytes + at), 0, memory_order_relaxed);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * MUSTER_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* False: it is cancelled. */
static bool taker_rest(struct muster_huge_memory_taker *taker, uint64_t worked_ns)
{
    uint64_t rest_ns = worked_ns < REST_MIN_NS   ? REST_MIN_NS
                       : worked_ns > REST_MAX_NS ? REST_MAX_NS
                                                 : worked_ns;
    uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + rest_ns;
    struct timespec end = {.tv_sec = (time_t)(end_ns / MUSTER_NS_PER_S),
                           .tv_nsec = (long)(end_ns % MUSTER_NS_PER_S)};
    bool goes_on;
    int rc = 0;

    (void)pthread_mutex_lock(&taker->mutex);
    while (!taker->is_cancelled && rc == 0)
        rc = pthread_cond_timedwait(&taker->change, &taker->mutex, &end);
    goes_on = !taker->is_cancelled;
    (void)pthread_mutex_unlock(&taker->mutex);
    return goes_on;
}

static void *taker_run(void *data)
{
    struct muster_huge_memory_taker *taker = data;
    size_t at = 0;
    uint64_t worked_ns = 0;

    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread alone, on Linux */
    while (at < taker->capacity && taker_rest(taker, worked_ns)) {
        size_t rest = taker->capacity - at;
        size_t count = rest < MUSTER_HUGE_PAGE_BYTES ? rest : MUSTER_HUGE_PAGE_BYTES;
        uint64_t begun_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

        pages_take(taker->bytes + at, count);
        at += count;
        worked_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns;
        atomic_store_explicit(&taker->taken, at, memory_order_release);
    }
    return NULL;
}

/* Signals are for the program's threads. */
static bool thread_start(struct muster_huge_memory_taker *taker)
{
    sigset_t all, before;
    bool is_started;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    is_started = pthread_create(&taker->thread, NULL, taker_run, taker) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static void change_init(pthread_cond_t *change)
{
    pthread_condattr_t by_monotonic;

    (void)pthread_condattr_init(&by_monotonic);
    (void)pthread_condattr_setclock(&by_monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(change, &by_monotonic);
    (void)pthread_condattr_destroy(&by_monotonic);
}

static void taker_free(struct muster_huge_memory_taker *taker)
{
    (void)pthread_cond_destroy(&taker->change);
    (void)pthread_mutex_destroy(&taker->mutex);
    muster_mem_free(taker->mem, taker);
}

static void taker_stop(struct muster_huge_memory_taker *taker)
{
    (void)pthread_mutex_lock(&taker->mutex);
    taker->is_cancelled = true;
    (void)pthread_cond_signal(&taker->change);
    (void)pthread_mutex_unlock(&taker->mutex);
    (void)pthread_join(taker->thread, NULL);
    taker_free(taker);
}

void muster_huge_memory_take_start(struct muster_huge_memory *memory)
{
    struct muster_huge_memory_taker *taker;

    MUSTER_ASSERT(memory->taker == NULL);
    if (memory->capacity == 0)
        return;
    taker = muster_mem_alloc_zero(memory->mem, 1, sizeof(*taker));
    if (taker == NULL)
        return;
    taker->mem = memory->mem;
    taker->bytes = memory->bytes;
    taker->capacity = memory->capacity;
    change_init(&taker->change);
    (void)pthread_mutex_init(&taker->mutex, NULL);
    if (thread_start(taker))
        memory->taker = taker;
    else
        taker_free(taker);
}

size_t muster_huge_memory_taken_bytes(const struct muster_huge_memory *memory)
{
    return memory->taker != NULL ? atomic_load_explicit(&memory->taker->taken, memory_order_acquire)
                                 : 0;
}

/* --- The memory --- */

/* The pages of a system that has no huge ones are small. */
void muster_huge_memory_advise(void *bytes, size_t count)
{
    size_t before = (MUSTER_HUGE_PAGE_BYTES - (uintptr_t)bytes % MUSTER_HUGE_PAGE_BYTES) %
                    MUSTER_HUGE_PAGE_BYTES;

    if (count < before + MUSTER_HUGE_PAGE_BYTES)
        return;
    count = (count - before) / MUSTER_HUGE_PAGE_BYTES * MUSTER_HUGE_PAGE_BYTES;
    (void)madvise((uint8_t *)bytes + before, count, MADV_HUGEPAGE);
}

enum muster_rc muster_huge_memory_open(struct muster_mem *mem, size_t bytes,
                                       struct muster_huge_memory *ret_memory)
{
    size_t align = bytes < MUSTER_HUGE_PAGE_BYTES ? PAGE_BYTES : MUSTER_HUGE_PAGE_BYTES;
    uint8_t *room;
    size_t before;

    if (bytes > SIZE_MAX - 2 * align)
        return MUSTER_RESOURCE_EXHAUSTED;
    bytes = (bytes + align - 1) / align * align;
    room = muster_mem_alloc(mem, bytes + align);
    if (room == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    before = (align - (uintptr_t)room % align) % align;
    *ret_memory = (struct muster_huge_memory){
        .bytes = room + before, .capacity = bytes, .mem = mem, .room = room};
    muster_huge_memory_advise(ret_memory->bytes, bytes);
    return MUSTER_OK;
}

void muster_huge_memory_close(struct muster_huge_memory *memory)
{
    if (memory->taker != NULL)
        taker_stop(memory->taker);
    if (memory->room != NULL)
        muster_mem_free(memory->mem, memory->room);
    *memory = (struct muster_huge_memory){.room = NULL};
}
