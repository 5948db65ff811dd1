/* A process that shares the memory of another and outlives it by a moment. */
#include "runtime/system/memory_anchor.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
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

enum state { STARTING = 0, READY, REFUSED };

/* The anchor runs on the stack for as long as the memory lives. One per process: a child of fork
 * has its own copy, and may start its own anchor. */
static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
static pid_t parent;
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

/* errno and all that belongs to the parent's thread is the anchor's, too: its parent waits until
 * READY, and from then on the anchor makes one call, which does not end. */
UNSANITIZED static int anchor_run(void *data)
{
    const struct sched_param plain = {.sched_priority = 0};

    (void)data;
    if (syscall(SYS_close_range, 0u, ~0u, 0u) != 0 ||
        syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
        syscall(SYS_getppid) != parent) {
        state_tell(REFUSED);
        return 1;
    }
    (void)syscall(SYS_prctl, PR_SET_NAME, "muster-memory", 0, 0, 0);
    (void)syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &plain);
    (void)syscall(SYS_setpriority, PRIO_PROCESS, 0, NICE);
    state_tell(READY);
    for (;;)
        (void)syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
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

pid_t muster_memory_anchor_start(void)
{
    sigset_t all, before;
    pid_t anchor;
    int sys = errno;

    MUSTER_ASSERT(parent != getpid());
    if (HAS_THREAD_SANITIZER) /* its calls of atomics need a thread of its own */
        return -1;
    parent = getpid();
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
