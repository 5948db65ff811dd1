/* Faults at random: swarm style, a seed first draws which kinds exist and how often, then they
 * happen. */
#ifndef MUSTER_SIM_FAULTS_H
#define MUSTER_SIM_FAULTS_H

#include "tests/sim/world.h"

#define SIM_FAULT_MAP(X)                                                                           \
    X(KILL, "kill")               /* kill -9 between turns */                                      \
    X(KILL_WITHIN, "kill_within") /* kill -9 inside a turn */                                      \
    X(CRASH_HOST, "crash_host")   /* and boot later */                                             \
    X(PAUSE, "pause")             /* SIGSTOP for a while */                                        \
    X(CUT, "cut")                 /* two hosts, both ways */                                       \
    X(CUT_ONE_WAY, "cut_one_way")                                                                  \
    X(ISOLATE, "isolate") /* one host from all others */                                           \
    X(RESET, "reset")     /* one stream */                                                         \
    X(STALL, "stall")     /* one stream for a while */                                             \
    X(SLOW, "slow")       /* one process for a while */                                            \
    X(DRIFT, "drift")     /* one clock, from now on */

enum sim_fault_kind {
#define X(name, text) SIM_FAULT_##name,
    SIM_FAULT_MAP(X)
#undef X
        SIM_FAULT_COUNT
};
#define SIM_FAULT_BIT(name) (1u << SIM_FAULT_##name)
#define SIM_FAULTS_ALL      ((1u << SIM_FAULT_COUNT) - 1)
#define SIM_FAULTS_DEADLY                                                                          \
    (SIM_FAULT_BIT(KILL) | SIM_FAULT_BIT(KILL_WITHIN) | SIM_FAULT_BIT(CRASH_HOST))

const char *sim_fault_name(enum sim_fault_kind kind);

struct sim_faults;

struct sim_faults_options {
    uint32_t allowed;         /* SIM_FAULT_BITs; a random part of them exists in this seed */
    uint64_t interval_min_ns; /* mean time between faults is drawn from these */
    uint64_t interval_max_ns;
    uint64_t duration_max_ns; /* of what passes by itself */
    uint32_t count_max;
    /** May this happen to this process (or its host) now? NULL: always. */
    bool (*may_hit)(void *data, enum sim_fault_kind kind, struct sim_node *node);
    void *data;
};

/** Begin. Gives. */
struct sim_faults *sim_faults_start(struct sim_world *world,
                                    const struct sim_faults_options *options);
/** No more faults; everything that passes by itself is over now. */
void sim_faults_heal(struct sim_faults *faults);
uint64_t sim_faults_count(const struct sim_faults *faults);
uint64_t sim_faults_count_of(const struct sim_faults *faults, enum sim_fault_kind kind);
/** Before the world closes. NULL is accepted. */
void sim_faults_free(struct sim_faults *faults);

#endif
