/* Workers of a play with a table by round: each pushes once to every row in a round, ticks with a weight, and
 * goes on. A row per round is pushed to in that round only, so it tells whose pushes have counted. */
#ifndef MUSTER_SIM_PARAMS_WORKERS_H
#define MUSTER_SIM_PARAMS_WORKERS_H

#include <muster/params.h>

#include "tests/sim/world.h"

#define PARAMS_WORKERS_MAX 4u
#define PARAMS_ROUNDS_MAX  10u
#define PARAMS_MARKERS     3u /* rows of one round, in different shards mostly */
#define PARAMS_DENSE       3u /* rows of all rounds */
#define PARAMS_PIECES_MAX  3u /* pushes of a worker in a round */
#define PARAMS_LOOKS_MAX   256u
#define PARAMS_ROUND_WIDTH PARAMS_WORKERS_MAX
#define PARAMS_ROUND_ROWS  (PARAMS_MARKERS + PARAMS_DENSE)
#define PARAMS_WORKER_ROWS (PARAMS_ROUNDS_MAX * PARAMS_MARKERS + PARAMS_DENSE)

struct params_crew;

/* One source. Its newest process is node. */
struct params_worker {
    struct params_crew *crew;
    uint32_t element;
    char name[24];
    struct sim_host *host;
    struct sim_node *node;
    uint32_t life_count;
    uint64_t started; /* rounds before it may have been pushed to, or completed where late pushes are carried */
    bool is_over;     /* a process of it has ended in order */
    float weights[PARAMS_ROUNDS_MAX];
    bool is_begun[PARAMS_ROUNDS_MAX]; /* what is marked with this round may have been pushed */
    bool is_sure[PARAMS_ROUNDS_MAX]; /* its pushes and its tick of the round are answered */
};

/* Rows that a pull has returned to a source that had completed `clock` rounds. */
struct params_look {
    uint64_t clock;
    float rows[PARAMS_DENSE][PARAMS_ROUND_WIDTH];
};

struct params_crew {
    struct sim_world *world;
    const char *servers, *job;
    uint64_t act_max_ns;
    struct params_worker workers[PARAMS_WORKERS_MAX];
    uint32_t worker_count;
    uint32_t quorum; /* 0: all */
    uint64_t grace_ns;
    bool is_mean;
    bool is_carried; /* late pushes count in a later round, which the weight of a tick names: it is the clock */
    bool is_ending;
    struct params_look looks[PARAMS_LOOKS_MAX];
    uint32_t look_count;
    /* At rest, by each worker. */
    float rows[PARAMS_WORKERS_MAX][PARAMS_WORKER_ROWS][PARAMS_ROUND_WIDTH];
    bool has_rows[PARAMS_WORKERS_MAX];
};

/** Two workers or more on hosts of their own. world, servers, job, act_max_ns and is_carried are set. */
void params_crew_open(struct params_crew *crew);
/** Workers whose newest process is dead or refused get another one. */
void params_crew_revive(struct params_crew *crew);
/** A worker's process dies. */
void params_crew_kill(struct params_crew *crew);
/** Begun rounds end, all pull all rows and close; then the rows are compared with a fold. */
void params_crew_finish(struct params_crew *crew, uint64_t limit_ns);

/* --- params_fold.c --- */

uint64_t params_fold_key(uint64_t round, uint32_t row); /* row: markers, then dense rows */
float params_fold_gradient(uint32_t worker, uint64_t round, uint32_t row, uint32_t element);
/** The workers in the order of their sources' ids. */
void params_fold_order(const struct params_crew *crew, uint32_t ret_order[PARAMS_WORKERS_MAX]);
/** Every row at rest, and every look, is as the contributions that counted say. */
void params_fold_check(struct params_crew *crew);

/* --- params_carried.c --- */

/** The same where late pushes are carried. */
void params_carried_check(struct params_crew *crew);

#endif
