/* Where a worker is in its job, in memory that its launcher reads: also when the worker has no time for a word. */
#ifndef MUSTER_RUNTIME_HOST_PLACE_H
#define MUSTER_RUNTIME_HOST_PLACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum muster_host_life {
    MUSTER_HOST_LIFE_UNKNOWN,  /* no thread has held it */
    MUSTER_HOST_LIFE_HELD,     /* a mark of the kernel means that the process ends */
    MUSTER_HOST_LIFE_RELEASED, /* closed, or its thread has ended: a mark says nothing */
};

/** One of many in the launcher's memory. Writer: the worker, relaxed: nothing but the numbers is read. Reader: the
 * launcher, when the worker has ended. All zero: it has begun no step. */
struct muster_host_place {
    _Atomic uint64_t begun_step, committed_step;
    /** Robust, shared between processes, made by the launcher for each life. The worker locks it; when the process
     * ends the kernel marks it (FUTEX_OWNER_DIED) and wakes the launcher before it takes down the memory, which takes
     * 60 ms for a program of PyTorch. The launcher reads its first word alone. */
    pthread_mutex_t life;
    _Atomic uint32_t
        life_state; /* enum muster_host_life. Writer: the worker; reader: the launcher */
};

/** The launcher's memory has this name (memfd_create): a number of a process is used again, and may mean another one in
 * a container. */
#define MUSTER_HOST_PLACES_NAME "muster-places"

/** The place of that name, "/proc/PID/fd/NUMBER:OFFSET" (MUSTER_STEP_PLACE). NULL: there is none, it is not in the
 * memory of a launcher, or it cannot be mapped. Gives. */
struct muster_host_place *muster_host_place_open(const char *name);
/** Lock its life until close, or until this thread ends. A thread holds one place at a time. Errors are ignored: then
 * the launcher hears of the death when the system has taken the process down. NULL is accepted. */
void muster_host_place_hold(struct muster_host_place *place);
/** A place that another thread holds stays mapped until the process ends. NULL is accepted. */
void muster_host_place_close(struct muster_host_place *place);

#endif
