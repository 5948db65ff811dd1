/* Where a worker is in its job, in memory that its launcher reads: also when the worker has no time for a word. */
#ifndef MUSTER_RUNTIME_HOST_PLACE_H
#define MUSTER_RUNTIME_HOST_PLACE_H

#include <stdatomic.h>
#include <stdint.h>

/** One of many in the launcher's memory. Writer: the worker, relaxed: nothing but the numbers is read. Reader: the
 * launcher, when the worker has ended. All zero: it has begun no step. */
struct muster_host_place {
    _Atomic uint64_t begun_step, committed_step;
};

/** The launcher's memory has this name (memfd_create): a number of a process is used again, and may mean another one in
 * a container. */
#define MUSTER_HOST_PLACES_NAME "muster-places"

/** The place of that name, "/proc/PID/fd/NUMBER:OFFSET" (MUSTER_STEP_PLACE). NULL: there is none, it is not in the
 * memory of a launcher, or it cannot be mapped. Gives. */
struct muster_host_place *muster_host_place_open(const char *name);
/** NULL is accepted. */
void muster_host_place_close(struct muster_host_place *place);

#endif
