/* A training job of whole nodes in the simulated world: registry, launcher, workers that check
 * each other. */
#ifndef MUSTER_TEST_SIM_TRAIN_JOB_H
#define MUSTER_TEST_SIM_TRAIN_JOB_H

#include <muster/registry.h>
#include <muster/registry_server.h>
#include "cluster/node/member.h"
#include "tests/sim/world.h"

#define LIVES_MAX     24
#define STEPS_MAX     4096
#define COUNT         5000 /* elements of the gradient and of the state: several chunks */
#define REGISTRY_PORT 2379
#define WORKER_PORT   5000

struct train_job;

/** One life of one worker. It lies outside the process, so that its record survives it. */
struct train_worker {
    struct train_job *job;
    struct sim_node *process;
    unsigned index; /* in job->workers */
    uint32_t task;
    struct muster_env *env;
    struct muster_node *node;
    struct muster_incarnation incarnation;
    struct muster_op op;
    struct muster_timer timer;
    int64_t *state, *gradient, *frozen;
    uint64_t step, committed;
    uint64_t epoch;
    uint32_t members;
    unsigned exclusions, restores, adopts, aborts;
    unsigned second_tries; /* what had been under way, and began again */
    bool is_failed, is_left, is_closed, has_other_shape, is_op_open;
    struct muster_error error;
    int64_t sums[STEPS_MAX]; /* of the state after each step, in this membership */
    bool has_sum[STEPS_MAX];
};

struct train_job {
    struct sim_world *world;
    struct sim_host *hosts[8];
    unsigned host_count;
    struct sim_node *registry, *launcher;
    struct muster_registry_store *store;
    struct muster_registry *client; /* of the launcher */
    struct muster_registry_op dead_op;
    struct train_worker workers[LIVES_MAX];
    unsigned worker_count;
    uint32_t expected_count, min_members;
    uint64_t pace_ns, start_timeout_ns;
    uint64_t alone_from_step, alone_until_step;
    uint64_t idle_in_step;        /* who begins it does nothing more; 0: none */
    size_t frozen_count;          /* elements of the state that no step changes */
    bool is_by_parts;             /* steps say what they change … */
    uint64_t whole_step_interval; /* … but for each so-manieth; 0: all do */
};

/** A registry process again, on the same store. */
void train_job_run_registry(struct train_job *job);
void train_job_open(struct train_job *job, uint64_t seed, unsigned worker_hosts);
void train_job_close(struct train_job *job);
struct train_worker *train_job_start_task(struct train_job *job, uint32_t task);
/** Report a death, as `muster run` does as soon as it reaps a child. */
void train_job_say_dead(struct train_job *job, const struct train_worker *worker);
bool train_job_is_alive(const struct train_worker *worker);
uint64_t train_job_highest_step(const struct train_job *job);
void train_job_assert_trains_within(struct train_job *job, uint64_t limit_ns);
/** All living workers are in one view of exactly them and go on, with equal states. */
void train_job_assert_trains(struct train_job *job);
/** So long, in which what matters is that time passes: with a twentieth of the steps. */
void train_job_run_for(struct train_job *job, uint64_t duration_ns);
void train_job_start(struct train_job *job, uint64_t seed, uint32_t tasks, unsigned hosts);

#endif
