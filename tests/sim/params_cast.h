/* Clients of parameters in a play: processes that push and pull at random, and the books of what they saw.
 * Source i adds 1.0 to element i of a row only, so that a row is the vector of the counts. */
#ifndef MUSTER_SIM_PARAMS_CAST_H
#define MUSTER_SIM_PARAMS_CAST_H

#include <muster/params.h>

#include "tests/sim/world.h"

#define PARAMS_SOURCES_MAX     5u
#define PARAMS_ROWS            12u
#define PARAMS_SLOTS           24u
#define PARAMS_QUEUE_MAX_BYTES 1024u
#define PARAMS_STEPS_MAX       64u /* that a source ticks */
#define PARAMS_STALENESS_MAX   2u
#define PARAMS_FEW_PUSHED      3u /* rows of a push to the second table */

struct params_cast;
struct params_cuts;

enum params_act { PARAMS_PULL, PARAMS_PUSH, PARAMS_PUSH_PULL, PARAMS_TICK };

/* The knowledge of the clients about one row. */
struct params_row_book {
    uint64_t begun[PARAMS_SOURCES_MAX];                     /* pushes of each source */
    uint64_t answered[PARAMS_SOURCES_MAX];                  /* those of them that ended well */
    uint64_t in_step[PARAMS_SOURCES_MAX][PARAMS_STEPS_MAX]; /* the same by steps of the source */
    uint64_t seen[PARAMS_SOURCES_MAX]; /* the newest vector that a pull has returned */
    /* All vectors that pulls have returned, each once, rising. */
    uint64_t (*chain)[PARAMS_SOURCES_MAX];
    size_t chain_count, chain_room;
    /* The vectors of answered pushes when each push of each source began. */
    uint64_t (*before[PARAMS_SOURCES_MAX])[PARAMS_SOURCES_MAX];
    size_t before_room[PARAMS_SOURCES_MAX];
};

struct params_source {
    uint32_t element;
    bool is_named;
    uint32_t life_count;
    uint64_t ticked;          /* the highest clock that a process of it has begun to tell */
    struct params_life *life; /* the newest */
};

/* One process of a source. It outlives the process, for the books. */
struct params_life {
    struct params_cast *cast;
    struct params_source *source;
    struct sim_node *node;
    struct muster_list link;
    char name[32];
    bool is_superseded; /* a younger process has been started under its name */
    bool is_contested;  /* the first OPEN of an older one may arrive after its own */
    bool was_opened;
    bool is_fenced; /* and that one has been told that it is connected */
    uint64_t step;  /* of the source, as this process knows it */
    uint64_t begun[PARAMS_ROWS], answered[PARAMS_ROWS], failed[PARAMS_ROWS];
};

struct params_slot {
    struct params_client *client;
    struct muster_params_op op;
    enum params_act act;
    bool is_busy, is_cancelled, is_hasty, is_fenced, is_last;
    size_t number;  /* of a push, among those of its source; in plays with cuts */
    uint64_t clock; /* of a tick; the least of all sources for a pull; the step of a push */
    uint32_t count;
    uint32_t rows[PARAMS_ROWS];
    uint64_t keys[PARAMS_ROWS];
    float values[PARAMS_ROWS * PARAMS_SOURCES_MAX];
    /* The least that the answer to a pull must have. */
    uint64_t least[PARAMS_ROWS][PARAMS_SOURCES_MAX];
    uint64_t own[PARAMS_ROWS];
};

/* The program of a life. */
struct params_client {
    struct params_life *life;
    struct muster_env *env;
    struct muster_params *params;
    struct muster_params_table *table;
    struct muster_params_op table_op;
    struct muster_timer timer;
    struct params_slot slots[PARAMS_SLOTS];
    uint32_t busy_count;
    bool is_ready, has_looked, has_retired, is_refused;
    /* The second table, in plays with rows that come and go. */
    struct muster_params_table *few;
    struct muster_params_op few_op; /* its opening, then its pushes, one at a time */
    uint64_t few_keys[PARAMS_FEW_PUSHED];
    bool has_few, few_is_busy;
};

struct params_cast {
    struct sim_world *world;
    char servers[512]; /* for options of clients */
    const char *job;
    bool has_several_servers;
    uint64_t act_max_ns; /* between two acts of a client */
    struct sim_host *hosts[PARAMS_SOURCES_MAX];
    struct params_source sources[PARAMS_SOURCES_MAX];
    uint32_t source_count;
    struct muster_list lives;
    struct params_row_book rows[PARAMS_ROWS];
    uint32_t replace_permille;
    uint32_t lives_max; /* of a source, by replacement */
    bool is_ticking;    /* sources tick, and pulls wait for clocks; then all are named */
    bool is_turning;    /* rows come and go (params_turnover.h) */
    uint32_t admit_share; /* of the table of the books */
    enum muster_params_evict few_evict_by;
    uint64_t few_ttl_clocks;
    bool is_ending;
    struct params_cuts *cuts;  /* that source 0 asks for; NULL: none */
    struct sim_host *cut_host; /* of source 0, in such plays */
    struct sim_host *marooned; /* its client reaches one server only; NULL: none is */
    uint64_t op_count;
};

/* --- Processes (params_cast.c) --- */

/** Its operations may end with ABORTED. */
bool params_life_may_be_refused(const struct params_life *life);
/** Two sources or more on hosts of their own. world, servers, job and act_max_ns are set. */
void params_cast_open(struct params_cast *cast);
/** After the world. */
void params_cast_close(struct params_cast *cast);
uint64_t params_cast_key(uint32_t row);
uint64_t params_cast_draw(struct params_cast *cast, uint64_t bound);
/** Another process of the source. */
void params_cast_start(struct params_cast *cast, struct params_source *source,
                       struct sim_host *host);
/** Sources whose newest process is dead get another one. */
void params_cast_revive(struct params_cast *cast);
/** All processes die, and each source gets another one. */
void params_cast_kill(struct params_cast *cast);
/** Perhaps a second process under a source's name. */
void params_cast_replace(struct params_cast *cast);
/** No more acts: operations end, each client pulls all rows, and closes. Nothing may be left. */
void params_cast_finish(struct params_cast *cast, uint64_t limit_ns);

/* --- Books (params_books.c) --- */

/** Before a pull: what the row at this place of it must have at least. */
void params_books_expect(struct params_slot *slot, uint32_t place);
void params_books_pulled(struct params_slot *slot);
/** A pull that waits for clocks has ended well: its rows are checked next, by params_books_pulled. */
void params_books_waited(const struct params_slot *slot);
void params_books_push(struct params_slot *slot);
void params_books_pushed(struct params_slot *slot, enum muster_rc rc);

#endif
