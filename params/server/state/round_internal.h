/* Between the files of rounds: round.c has tables and messages, round_decide.c when a round ends,
 * round_decision.c who counts, round_sum.c what is applied. */
#ifndef MUSTER_PARAMS_SERVER_ROUND_INTERNAL_H
#define MUSTER_PARAMS_SERVER_ROUND_INTERNAL_H

#include "params/server/core/server_internal.h"
#include "params/server/followers/held.h"
#include "params/server/state/round.h"

#define MUSTER_PARAMS_DECISIONS_KEPT 8u /* a client that was away tells servers so many rounds */
#define MUSTER_PARAMS_ROUND_RETRY_NS (10 * MUSTER_NS_PER_MS) /* after a lack of memory */

struct muster_params_decision {
    uint64_t round;
    uint32_t count;
    uint32_t has_origins; /* of each source, after all sources: muster_params_decision_origins() */
    struct muster_params_round_source sources[];
};

struct muster_params_rounds {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_params_store_table *table;
    struct muster_params_source *source; /* whose pushes are decisions and sums */
    uint64_t slot;
    uint64_t open; /* those before it are decided */
    struct muster_params_decision *decisions
        [MUSTER_PARAMS_DECISIONS_KEPT]; /* by round modulo MUSTER_PARAMS_DECISIONS_KEPT; NULL: not known */
    uint32_t home;                      /* the shard of the decisions */
    uint64_t keys[MUSTER_PARAMS_DECISIONS_KEPT]; /* of it, for the rows of decisions */
    struct muster_params_store_table *log;       /* NAME#rounds; NULL: there is none yet */
    struct muster_params_decision
        *pending; /* it counts once all followers of home have it; NULL: none */
    struct muster_params_held held;
    uint16_t held_shard;
    uint64_t
        applied; /* rounds before it are applied to the shards that the map gives this server */
    struct muster_params_closing *closing; /* is applied by and by; NULL: nothing is */
    struct muster_task step;
    bool is_home;   /* this server leads home, and has told its clients what was decided before */
    bool is_behind; /* the newest decision is not applied whole: there was no memory */
    bool is_short;  /* the open round is complete, and there is no memory to decide it */
    bool has_quorum;
    uint64_t quorum_ns; /* since when */
};

static inline bool muster_params_rounds_are_carried(const struct muster_params_rounds *rounds)
{
    return rounds->table->is_by_round == MUSTER_PARAMS_ROUND_CARRIED;
}

/* --- round_sum.c --- */

/** The name of NAME#rounds. */
void muster_params_round_log_name(const struct muster_params_store_table *table,
                                  char ret_name[MUSTER_PARAMS_NAME_BYTES]);
/** The table that keeps what this source pushes, made where there is none. As muster_params_table_open. */
MUSTER_MUST_CHECK enum muster_rc muster_params_round_kept_open(
    struct muster_params_rounds *rounds, const struct muster_incarnation *id,
    struct muster_params_store_table **ret_table, struct muster_error *ret_error);
/** Whether it is there. */
bool muster_params_round_is_kept(const struct muster_params_rounds *rounds,
                                 const struct muster_incarnation *id);
/** rounds->log is there. As muster_params_table_open. */
MUSTER_MUST_CHECK enum muster_rc muster_params_round_log_open(struct muster_params_rounds *rounds,
                                                              struct muster_error *ret_error);
/** Rows of one shard that a closed round gives to a table. */
struct muster_params_own_rows {
    struct muster_params_store_table *table;
    uint32_t shard;
    uint64_t round;
    uint32_t message; /* of the round, for this shard */
    const uint64_t *keys;
    const float *values;
    uint32_t count;
};
/** Push them as the source of the rounds. A repetition changes nothing. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_own_rows_push(
    struct muster_params_rounds *rounds, const struct muster_params_own_rows *rows);
/** Push the sums of the rounds that are decided to the shards that this server leads, by and by; without memory
 * again soon (rounds->is_behind). */
void muster_params_decisions_apply(struct muster_params_rounds *rounds);
/** The same now, as far as it has begun. */
void muster_params_decisions_finish(struct muster_params_rounds *rounds);
/** Begin again later. */
void muster_params_closing_stop(struct muster_params_rounds *rounds);
void muster_params_rounds_step(struct muster_task *task); /* for rounds->step */

/* --- round_decision.c --- */

/** NULL: no memory. Gives. */
struct muster_params_decision *muster_params_decision_new(struct muster_params_server *server,
                                                          const struct muster_params_round *round);
/** NULL: it is not known, or not kept any more. */
const struct muster_params_decision *muster_params_decision_at(
    const struct muster_params_rounds *rounds, uint64_t round);
size_t muster_params_decision_bytes(uint32_t count, bool has_origins);
/** NULL: all sources count, with what they have pushed in the round. */
const struct muster_params_round_origin *muster_params_decision_origins(
    const struct muster_params_decision *decision);
/** The clock, + 1, of rows kept of this source of the decision that count in the round; 0: none do. */
uint32_t muster_params_decision_label(const struct muster_params_decision *decision,
                                      uint32_t source);
/**
 * The clock, + 1, that rows of a late push of this source, or one in time, are kept with. It is the same at all
 * servers: what a source pushes next comes when they know of the round in which it counted last.
 *
 * Errors: OUT_OF_RANGE (the table has had as many sources as can be).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_round_label(
    const struct muster_params_rounds *rounds, const struct muster_incarnation *id,
    uint32_t *ret_label, struct muster_error *ret_error);
/** The decision of the open round, which so many sources have completed. NULL: no memory. Gives. */
struct muster_params_decision *muster_params_decision_make(struct muster_params_rounds *rounds,
                                                           uint32_t count);

/* --- round_decide.c --- */

/** Takes decision. False: this server knows it already, or a newer one. */
bool muster_params_decision_learn(struct muster_params_rounds *rounds,
                                  struct muster_params_decision *decision);
/** False: no memory, or the link is down. */
MUSTER_MUST_CHECK bool muster_params_decision_tell(struct muster_params_client *client,
                                                   const struct muster_params_rounds *rounds,
                                                   const struct muster_params_decision *decision);
void muster_params_decision_announce(struct muster_params_rounds *rounds,
                                     const struct muster_params_decision *decision);
/** Tell all clients the decisions that are kept. */
void muster_params_decisions_announce(struct muster_params_rounds *rounds);
/** Learn the decisions in NAME#rounds that are newer than the ones this server knows. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_round_log_read(struct muster_params_rounds *rounds);
/** The same, and tell clients of them; not while a decision waits for followers. */
MUSTER_MUST_CHECK enum muster_rc muster_params_round_log_follow(
    struct muster_params_rounds *rounds);
/** The text tells which sources have completed the open round. */
void muster_params_round_text(const struct muster_params_rounds *rounds,
                              char ret_text[MUSTER_PARAMS_WAIT_TEXT_BYTES]);
/** Decide the open round if it is complete; is_told: clients hear for whom they wait. */
void muster_params_rounds_look(struct muster_params_rounds *rounds, bool is_told);

#endif
