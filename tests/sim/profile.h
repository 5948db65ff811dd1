/* Profiles: kinds of simulated runs that muster-sim draws seeds for. */
#ifndef MUSTER_SIM_PROFILE_H
#define MUSTER_SIM_PROFILE_H

#include <stdio.h>

#include "tests/sim/world.h"

/** One run of one seed: what goes in, what comes out. */
struct sim_run {
    uint64_t seed;
    FILE *trace;  /* NULL: silent */
    uint8_t fill; /* of fresh memory */
    /* out */
    uint64_t hash, faults, events;
    char failure[1024]; /* "": none */
};

struct sim_profile {
    const char *name;
    const char *text;  /* for --list */
    const char *group; /* "data", "membership", "params", "rpc", "streams" */
    void (*run)(struct sim_run *run, const struct sim_profile *profile);
    uint32_t variant; /* the runner's own */
};

/** NULL: no such profile. */
const struct sim_profile *sim_profile_find(const char *name);
const struct sim_profile *sim_profile_at(size_t index); /* NULL behind the last */

/** A world for this run: trace, fill, conditions drawn from the seed. */
struct sim_world *sim_run_open(struct sim_run *run);
/** Fill in the results, also the count of faults, and close the world. */
void sim_run_close(struct sim_run *run, struct sim_world *world, uint64_t faults);

/** Run a seed. Returns no failure = true. */
bool sim_run_once(const struct sim_profile *profile, uint64_t seed, struct sim_run *ret_run);
/** Run a seed twice with different memory; a difference is a failure. Returns no failure = true. */
bool sim_run_twice(const struct sim_profile *profile, uint64_t seed, struct sim_run *ret_run);

void sim_profile_streams(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_params(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_params_shards(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_params_cuts(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_params_rounds(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_publication(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_rpc(struct sim_run *run, const struct sim_profile *profile);
/** variant: of these. */
enum sim_data { SIM_DATA_DEATHS, SIM_DATA_MICRO, SIM_DATA_PREEMPTIONS };
void sim_profile_data(struct sim_run *run, const struct sim_profile *profile);
void sim_profile_collective(struct sim_run *run, const struct sim_profile *profile);
/** variant: place in the table of plays. */
void sim_profile_membership(struct sim_run *run, const struct sim_profile *profile);

#endif
