/* The step in which each worker is: it writes that into memory of this launcher, and is read when it has ended. */
#ifndef MUSTER_RUN_PLACES_H
#define MUSTER_RUN_PLACES_H

#include "run/state/run.h"

#include <pthread.h>
#include <stdatomic.h>

#define RUN_PLACE_BYTES 64

enum run_place_life { RUN_LIFE_UNKNOWN, RUN_LIFE_HELD, RUN_LIFE_RELEASED };

/** As runtime/system/host_place.h has it, which says who writes and reads what. */
struct run_worker_place {
    _Atomic uint64_t begun_step, committed_step;
    pthread_mutex_t life;
    _Atomic uint32_t life_state; /* enum run_place_life */
};

/** Without memory for it nothing is known but what workers report. */
void run_places_open(struct run *run);
void run_places_close(struct run *run);
/** A new life has begun no step. */
void run_places_clear(const struct run_task *task);
/** NULL: there is none. */
struct run_worker_place *run_places_of(const struct run_task *task);
/** The value of MUSTER_STEP_PLACE. False: there is none. */
bool run_places_name(const struct run_task *task, char ret_name[RUN_PLACE_BYTES]);

/** Where a worker has ended. */
struct run_last_step {
    uint64_t begun_step, committed_step;
};
/** False: it has not said so. */
bool run_places_read(const struct run_task *task, struct run_last_step *ret_step);

#endif
