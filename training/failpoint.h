/* MUSTER_KILL: the process raises SIGKILL (or stops) inside the wire, at a chosen step and chunk. For
 * fault tests and demonstrations. */
#ifndef MUSTER_TRAINING_FAILPOINT_H
#define MUSTER_TRAINING_FAILPOINT_H

#include <muster/env.h>

struct muster_failpoint {
    bool is_armed;
    bool is_stop; /* SIGSTOP instead */
    uint64_t step;
    uint32_t chunk; /* the chunk-th chunk event of that step's operations, from 0 */
    uint32_t seen;
    void (*on_hit)(void *data); /* before it is killed; NULL: nothing */
    void *data;
};

/** Reads MUSTER_KILL ("step=150", "step=150,chunk=3", "step=150,chunk=3,stop"); unset disarms. Errors:
 * INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_failpoint_init(struct muster_failpoint *failpoint,
                                                       struct muster_env *env,
                                                       struct muster_error *ret_error);

/** A chunk of an operation of `step` has passed the wire; does not return when it was the chosen
 * one, but for a stop. */
void muster_failpoint_hit(struct muster_failpoint *failpoint, uint64_t step);

#endif
