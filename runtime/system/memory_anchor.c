/* A process that shares the memory of another and outlives it by a moment. */
#include "runtime/system/memory_anchor.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <muster/base.h>

#define STACK_BYTES 16384
#define NICE        10 /* to take the memory down is never urgent */
#define LOOK_NS     10000000L
/* By then clients talk to whoever has taken the dead process's place. */
#define PAUSE_NS 50000000L
/* So much of huge pages is taken down in less than 0.1 ms. */
#define PIECE_BYTES    ((size_t)64 << 20)
#define PIECE_PAUSE_NS 1000000L
#define SIGNAL_BYTES   8u /* of a set, in the kernel */

enum state { STARTING = 0, READY, REFUSED };

/* The anchor runs on the stack for as long as the memory lives. One per process: a child of fork
 * has its own copy, and may start its own anchor. */
static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
static pid_t parent;
static uint8_t *shared; /* NULL: nothing goes in pieces */
static size_t shared_bytes;
/* Written by the anchor once, read by its parent: release, acquire. */
static _Atomic uint32_t state;

#ifdef __has_feature
#define HAS_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define HAS_THREAD_SANITIZER 0
#endif
/* Sanitizers keep state per thread, and the anchor has none of its own. */
#define UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

UNSANITIZED static void state_tell(uint32_t told)
{
    atomic_store_explicit(&state, told, memory_order_release);
    (void)syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Others may send the signal, too. No handler of the program runs: the call takes it. */
UNSANITIZED static void death_await(void)
{
    const uint64_t ends = (uint64_t)1 << (SIGTERM - 1);

    while (syscall(SYS_getppid) == parent)
        (void)syscall(SYS_rt_sigtimedwait, &ends, NULL, NULL, SIGNAL_BYTES);
}

UNSANITIZED static void shared_take_down(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS}, piece_pause = {.tv_nsec = PIECE_PAUSE_NS};

    (void)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
    for (size_t at = 0; at < shared_bytes; at += PIECE_BYTES) {
        size_t bytes = shared_bytes - at < PIECE_BYTES ? shared_bytes - at : PIECE_BYTES;

        if (syscall(SYS_madvise, shared + at, bytes, MADV_DONTNEED) != 0)
            return; /* a process that has ended in order has unmapped it */
        (void)syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &piece_pause, NULL);
    }
}

/* errno and all that belongs to the parent's thread is the anchor's, too: its parent waits until
 * READY, and from then on the anchor makes one call, which does not end before the parent does. */
UNSANITIZED static int anchor_run(void *data)
{
    const struct sched_param plain = {.sched_priority = 0};

    (void)data;
    if (syscall(SYS_close_range, 0u, ~0u, 0u) != 0 ||
        syscall(SYS_prctl, PR_SET_PDEATHSIG, shared == NULL ? SIGKILL : SIGTERM, 0, 0, 0) != 0 ||
        syscall(SYS_getppid) != parent) {
        state_tell(REFUSED);
        return 1;
    }
    (void)syscall(SYS_prctl, PR_SET_NAME, "muster-memory", 0, 0, 0);
    (void)syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &plain);
    (void)syscall(SYS_setpriority, PRIO_PROCESS, 0, NICE);
    state_tell(READY);
    while (shared == NULL)
        (void)syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
    death_await();
    shared_take_down();
    (void)syscall(SYS_exit, 0);
    return 0;
}

/* Until the anchor is ready or has ended. */
static bool anchor_is_ready(pid_t anchor)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    uint32_t told;

    while ((told = atomic_load_explicit(&state, memory_order_acquire)) == STARTING) {
        (void)syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, STARTING, &look, NULL, 0);
        if (waitpid(anchor, NULL, WNOHANG | __WALL) == anchor)
            return false;
    }
    if (told == READY)
        return true;
    (void)waitpid(anchor, NULL, __WALL);
    return false;
}

pid_t muster_memory_anchor_start(void *memory, size_t bytes)
{
    sigset_t all, before;
    pid_t anchor;
    int sys = errno;

    MUSTER_ASSERT(parent != getpid());
    if (HAS_THREAD_SANITIZER) /* its calls of atomics need a thread of its own */
        return -1;
    parent = getpid();
    shared = memory;
    shared_bytes = bytes;
    atomic_store_explicit(&state, STARTING, memory_order_relaxed);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    anchor = clone(anchor_run, stack + STACK_BYTES, CLONE_VM, NULL);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (anchor > 0 && !anchor_is_ready(anchor))
        anchor = -1;
    errno = sys;
    return anchor;
}
