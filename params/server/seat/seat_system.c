/* Seats of real processes: a memfd that forked processes share, and a robust mutex in it. The
 * kernel wakes a waiter of the mutex as soon as its holder dies, before it takes down the memory
 * of the dead process: a successor begins within microseconds whatever the tables hold. */
#include "params/server/seat/seat.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "params/server/seat/ahead_system.h"
#include "runtime/loop/time_slice.h"
#include "runtime/system/host_share.h"
#include "runtime/system/memory_anchor.h"

#define MEMORY_MAX_DEFAULT  ((uint64_t)1 << 30)
#define SHARD_COUNT_DEFAULT 256u
#define SEALS               (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif
/* A process that waits for the seat looks for memory that has come into use: at first soon, as the
 * next death may be near, but not while its holder begins; later seldom, while there is none. */
#define WARM_INTERVAL_MIN_NS 20000000L
#define WARM_INTERVAL_MAX_NS 640000000L
#define SEGMENTS_MAX         ((size_t)(MUSTER_PARAMS_REGION_BYTES_MAX / MUSTER_PARAMS_SEGMENT_BYTES))
#define SEGMENT_WORDS        (SEGMENTS_MAX / 64)

/* The first segment of the file; the region follows, aligned for huge pages. */
struct seat_head {
    pthread_mutex_t mutex; /* robust, shared between processes: locked by the holder's thread */
    /* A bit per segment of the region that has its pages. Writers: the holder and its thread that is ahead, after the
     * pages exist (release). Readers: both, and processes that wait for the seat (acquire). Lost bits cost time
     * only. */
    _Atomic uint64_t committed[SEGMENT_WORDS];
};
_Static_assert(sizeof(struct seat_head) <= MUSTER_PARAMS_SEGMENT_BYTES, "the head is one segment");

struct muster_params_seat {
    struct muster_params_seat_options options;
    uint8_t *memory; /* head and region; NULL: the caller's (wrap) */
    size_t bytes;    /* of memory */
    uint8_t *region_memory;
    size_t region_bytes;
    int fd;
    bool is_taken;
    bool
        is_readable; /* the file can be given to readers: only mappings that were made here can write */
    struct muster_params_region region;
    uint64_t warmed[SEGMENT_WORDS];    /* a bit per segment that this process has mapped */
    struct muster_params_ahead *ahead; /* NULL: the seat is not taken, or there is no thread */
};

static struct seat_head *head_of(const struct muster_params_seat *seat)
{
    return (struct seat_head *)(void *)seat->memory;
}

static size_t round_up(uint64_t bytes)
{
    return (size_t)((bytes + MUSTER_PARAMS_SEGMENT_BYTES - 1) / MUSTER_PARAMS_SEGMENT_BYTES *
                    MUSTER_PARAMS_SEGMENT_BYTES);
}

static void on_made(void *data, size_t segment)
{
    struct muster_params_seat *seat = data;

    atomic_fetch_or_explicit(&head_of(seat)->committed[segment / 64], (uint64_t)1 << segment % 64,
                             memory_order_release);
}

static bool is_committed(const struct muster_params_seat *seat, size_t segment)
{
    uint64_t bits =
        atomic_load_explicit(&head_of(seat)->committed[segment / 64], memory_order_acquire);

    return (bits >> segment % 64 & 1) != 0;
}

static bool segment_is_made(const void *data, size_t segment)
{
    return is_committed(data, segment);
}

/* Segments that the thread has not come to are made at once. */
static void seat_commit(void *data, void *memory, size_t bytes)
{
    struct muster_params_seat *seat = data;
    size_t at = (size_t)((uint8_t *)memory - seat->region_memory) / MUSTER_PARAMS_SEGMENT_BYTES;
    size_t end = at + bytes / MUSTER_PARAMS_SEGMENT_BYTES;

    while (at < end) {
        size_t first = at;

        while (at < end && !is_committed(seat, at))
            at++;
        if (at > first)
            muster_params_pages_make(seat->region_memory + first * MUSTER_PARAMS_SEGMENT_BYTES,
                                     at - first);
        for (size_t i = first; i < at; i++)
            on_made(seat, i);
        while (at < end && is_committed(seat, at))
            at++;
    }
    if (seat->ahead != NULL)
        muster_params_ahead_of(seat->ahead, end);
}

/* The loop clears a claimed run segment by segment: the thread is told its end, so that it makes the pages before. */
static void seat_claimed(void *data, void *memory, size_t bytes)
{
    struct muster_params_seat *seat = data;
    size_t end = (size_t)((uint8_t *)memory - seat->region_memory) + bytes;

    if (seat->ahead != NULL)
        muster_params_ahead_until(seat->ahead, end / MUSTER_PARAMS_SEGMENT_BYTES);
}

/* Maps what other processes have committed, so that a server that takes over does not fault at
 * each segment: thousands of faults would fall into the first turn of a large seat. */
static bool seat_warm(struct muster_params_seat *seat)
{
    bool is_fresh = false;

    for (size_t word = 0; word < SEGMENT_WORDS; word++) {
        uint64_t fresh =
            atomic_load_explicit(&head_of(seat)->committed[word], memory_order_acquire) &
            ~seat->warmed[word];

        seat->warmed[word] |= fresh;
        is_fresh |= fresh != 0;
        for (; fresh != 0; fresh &= fresh - 1) {
            size_t segment = word * 64 + (size_t)__builtin_ctzll(fresh);

            (void)madvise(seat->region_memory + segment * MUSTER_PARAMS_SEGMENT_BYTES,
                          MUSTER_PARAMS_SEGMENT_BYTES, MADV_POPULATE_WRITE);
        }
    }
    return is_fresh;
}

/* Returns an errno: EOWNERDEAD after a holder that died. */
static int seat_wait(struct muster_params_seat *seat)
{
    long interval_ns = WARM_INTERVAL_MIN_NS;

    for (;;) {
        struct timespec until;
        int sys;

        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += interval_ns;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        sys = pthread_mutex_clocklock(&head_of(seat)->mutex, CLOCK_MONOTONIC, &until);
        if (sys != ETIMEDOUT)
            return sys;
        if (seat_warm(seat))
            interval_ns = WARM_INTERVAL_MIN_NS;
        else if (interval_ns < WARM_INTERVAL_MAX_NS)
            interval_ns *= 2;
    }
}

static struct muster_params_region_options region_options(const struct muster_params_seat *seat)
{
    return (struct muster_params_region_options){.shard_count = seat->options.shard_count,
                                                 .memory_max = seat->options.memory_max};
}

static struct muster_params_seat *seat_alloc(const struct muster_params_seat_options *options)
{
    struct muster_params_seat *seat = muster_mem_alloc_zero(muster_mem_system(), 1, sizeof(*seat));

    if (seat == NULL)
        return NULL;
    seat->options = *options;
    seat->fd = -1;
    if (seat->options.memory_max == 0)
        seat->options.memory_max = MEMORY_MAX_DEFAULT;
    if (seat->options.shard_count == 0)
        seat->options.shard_count = SHARD_COUNT_DEFAULT;
    return seat;
}

/* --- Shared between processes --- */

static int mutex_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int sys = pthread_mutexattr_init(&attributes);

    if (sys != 0)
        return sys;
    sys = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (sys == 0)
        sys = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (sys == 0)
        sys = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return sys;
}

/* Returns an errno. */
static int seat_map(struct muster_params_seat *seat)
{
    seat->bytes = MUSTER_PARAMS_SEGMENT_BYTES + seat->region_bytes;
    seat->fd = memfd_create("muster-params", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (seat->fd < 0 || ftruncate(seat->fd, (off_t)seat->bytes) != 0)
        return errno;
    seat->memory = muster_shared_memory_map(seat->fd, seat->bytes, PROT_READ | PROT_WRITE);
    if (seat->memory == NULL)
        return errno;
    seat->is_readable = fcntl(seat->fd, F_ADD_SEALS, SEALS | F_SEAL_FUTURE_WRITE) == 0;
    if (!seat->is_readable && fcntl(seat->fd, F_ADD_SEALS, SEALS) != 0)
        return errno;
    seat->region_memory = seat->memory + MUSTER_PARAMS_SEGMENT_BYTES;
    return mutex_init(&head_of(seat)->mutex);
}

enum muster_rc muster_params_seat_new(const struct muster_params_seat_options *options,
                                      struct muster_params_seat **ret_seat,
                                      struct muster_error *ret_error)
{
    struct muster_params_seat *seat = seat_alloc(options);
    struct muster_params_region_options cut;
    struct muster_params_region region;
    enum muster_rc rc;
    int sys;

    if (seat == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a seat");
    cut = region_options(seat);
    seat->region_bytes = round_up(seat->options.memory_max);
    rc = muster_params_region_check(seat->region_bytes, &cut, ret_error);
    if (rc == MUSTER_OK && (sys = seat_map(seat)) != 0)
        rc = muster_error_set_sys(ret_error, muster_rc_from_errno(sys), sys,
                                  "the memory of a seat of %zu bytes cannot be made", seat->bytes);
    if (rc == MUSTER_OK)
        rc = muster_params_region_init(&region, seat->region_memory, seat->region_bytes, &cut,
                                       ret_error);
    if (rc != MUSTER_OK) {
        muster_params_seat_free(seat);
        return rc;
    }
    /* A process that takes the seat reads the head whole: a kilobyte per segment. */
    seat_commit(seat, seat->region_memory, muster_params_region_bytes_used(&region));
    *ret_seat = seat;
    return MUSTER_OK;
}

enum muster_rc muster_params_seat_take(struct muster_params_seat *seat,
                                       struct muster_error *ret_error)
{
    struct muster_params_region_options cut = region_options(seat);
    enum muster_rc rc;

    MUSTER_ASSERT(!seat->is_taken);
    if (seat->memory != NULL) {
        int sys;

        if (seat->options.has_anchor)
            (void)muster_memory_anchor_start(seat->memory, seat->bytes);
        sys = seat_wait(seat);

        if (sys == EOWNERDEAD)
            sys = pthread_mutex_consistent(&head_of(seat)->mutex);
        if (sys != 0)
            return muster_error_set_sys(ret_error, MUSTER_FAILED_PRECONDITION, sys,
                                        "the lock of the seat cannot be taken");
        /* Beside this thread run others that compute: the one that is ahead, the end of the last holder, cuts. */
        muster_time_slice_shorten();
    }
    rc = muster_params_region_recover(&seat->region, seat->region_memory, seat->region_bytes, &cut,
                                      ret_error);
    if (rc != MUSTER_OK) {
        if (seat->memory != NULL)
            pthread_mutex_unlock(&head_of(seat)->mutex);
        return rc;
    }
    if (seat->memory != NULL) {
        const struct muster_params_ahead_options ahead = {
            .memory = seat->region_memory,
            .segment_count = seat->region_bytes / MUSTER_PARAMS_SEGMENT_BYTES,
            .segments_used = seat->region.head->segment_end,
            .made = on_made,
            .is_made = segment_is_made,
            .data = seat};

        (void)!muster_params_ahead_open(&ahead, &seat->ahead); /* without a thread the loop waits */
        seat->region.commit = seat_commit;
        seat->region.claimed = seat_claimed;
        seat->region.commit_data = seat;
    }
    seat->is_taken = true;
    return MUSTER_OK;
}

void muster_params_seat_free(struct muster_params_seat *seat)
{
    if (seat == NULL)
        return;
    muster_params_ahead_close(seat->ahead);
    if (seat->memory != NULL && seat->is_taken)
        pthread_mutex_unlock(&head_of(seat)->mutex);
    if (seat->memory != NULL)
        munmap(seat->memory, seat->bytes);
    if (seat->fd >= 0)
        close(seat->fd);
    muster_mem_free(muster_mem_system(), seat);
}

struct muster_params_region *muster_params_seat_region(struct muster_params_seat *seat)
{
    MUSTER_ASSERT(seat->is_taken);
    return &seat->region;
}

int muster_params_seat_file(const struct muster_params_seat *seat)
{
    return seat->is_readable ? seat->fd : -1;
}

/* --- Memory of the caller --- */

enum muster_rc muster_params_seat_wrap(void *memory, size_t bytes,
                                       const struct muster_params_seat_options *options,
                                       struct muster_params_seat **ret_seat,
                                       struct muster_error *ret_error)
{
    struct muster_params_seat *seat = seat_alloc(options);
    struct muster_params_region_options cut;
    enum muster_rc rc;

    if (seat == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a seat");
    seat->region_memory = memory;
    seat->region_bytes = bytes;
    cut = region_options(seat);
    rc = muster_params_seat_take(seat, ret_error);
    if (rc == MUSTER_NOT_FOUND)
        rc = muster_params_region_init(&seat->region, memory, bytes, &cut, ret_error);
    if (rc != MUSTER_OK) {
        muster_params_seat_free(seat);
        return rc;
    }
    seat->is_taken = true;
    *ret_seat = seat;
    return MUSTER_OK;
}
