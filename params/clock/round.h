/* Rounds: contributions of sources to rows, kept until their round closes and applied once. Pure. */
#ifndef MUSTER_PARAMS_ROUND_H
#define MUSTER_PARAMS_ROUND_H

#include <muster/incarnation.h>
#include <muster/list.h>
#include <muster/mem.h>
#include <muster/status.h>

struct muster_params_round_options {
    uint32_t row_elements;
    uint32_t quorum;    /* sources that are enough; 0: all */
    uint64_t grace_ns;  /* the others have so long after the quorum's last tick */
    uint32_t ahead_max; /* rounds that a source may be ahead of the open one */
    bool is_late_kept;  /* a late push goes to the next round; otherwise it is refused */
};

enum muster_params_round_state {
    MUSTER_PARAMS_ROUND_OPEN,      /* sources are waited for */
    MUSTER_PARAMS_ROUND_GRACE,     /* the quorum has ticked */
    MUSTER_PARAMS_ROUND_UNDECIDED, /* enough have ticked, but the outcome of a dead one is not known */
    MUSTER_PARAMS_ROUND_DUE,       /* it can be closed */
};

struct muster_params_round_source; /* private */

/** The rounds of a table's shards that one server leads. */
struct muster_params_rounds {
    struct muster_mem *mem;
    struct muster_params_round_options options;
    struct muster_list sources; /* ids rise */
    uint64_t open;              /* the round that is open; those before are closed */
    bool has_quorum;
    uint64_t quorum_ns; /* when its last one ticked */
};

/** A closed round: what is applied to the rows, once. */
struct muster_params_round_sum {
    uint64_t round;
    uint32_t source_count; /* that counted */
    double weight;         /* their sum */
    uint32_t row_count;
    uint64_t *keys; /* they rise */
    float *values;  /* row after row: the sum of weight * value in the order of the sources' ids */
};

void muster_params_rounds_init(struct muster_params_rounds *rounds, struct muster_mem *mem,
                               const struct muster_params_round_options *options, uint64_t open);
void muster_params_rounds_fini(struct muster_params_rounds *rounds);

/** A source takes part from this round on, or from the open one where that is later.
 * Errors: ALREADY_EXISTS, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_rounds_join(struct muster_params_rounds *rounds,
                                                           const struct muster_incarnation *id,
                                                           uint64_t round);
/**
 * Keep rows for a round. A row that comes twice counts twice.
 *
 * Owns:    copies.
 * Errors:  NOT_FOUND, FAILED_PRECONDITION (it is dead, or has left), INVALID_ARGUMENT (behind its own
 *          tick), OUT_OF_RANGE (the round is closed), RESOURCE_EXHAUSTED (memory; ahead_max).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_rounds_push(struct muster_params_rounds *rounds,
                                                           const struct muster_incarnation *id,
                                                           uint64_t round, const uint64_t *keys,
                                                           const float *values, uint32_t count,
                                                           struct muster_error *ret_error);
/**
 * The source has pushed all of this round, and it counts with this weight. A repetition is OK and changes
 * nothing.
 *
 * Errors:  as muster_params_rounds_push; INVALID_ARGUMENT (a round is skipped; the weight is not finite, or negative).
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_rounds_tick(struct muster_params_rounds *rounds,
                                                           const struct muster_incarnation *id,
                                                           uint64_t round, double weight,
                                                           uint64_t now_ns,
                                                           struct muster_error *ret_error);
/** The source has closed: rounds that it has ticked count, the rest is dropped. */
void muster_params_rounds_leave(struct muster_params_rounds *rounds,
                                const struct muster_incarnation *id);
/** Its death is confirmed: nothing that it has ticked since counts before muster_params_rounds_decide. */
void muster_params_rounds_die(struct muster_params_rounds *rounds,
                              const struct muster_incarnation *id);
/** Rounds before which a dead source has ticked, here; UINT64_MAX: there is no such dead source. */
uint64_t muster_params_rounds_ticked(const struct muster_params_rounds *rounds,
                                     const struct muster_incarnation *id);
/** The outcome of a dead source, one for all servers: it counts in rounds before this one, which it must
 * have ticked here (muster_params_rounds_ticked), and nowhere from it on. */
void muster_params_rounds_decide(struct muster_params_rounds *rounds,
                                 const struct muster_incarnation *id, uint64_t counts_before,
                                 uint64_t now_ns);

/** The state of the open round. ret_grace_end_ns is written in GRACE; it may be NULL. */
enum muster_params_round_state muster_params_rounds_state(const struct muster_params_rounds *rounds,
                                                          uint64_t now_ns,
                                                          uint64_t *ret_grace_end_ns);
/**
 * Close the open round, which must be DUE, and open the next. Rows of sources that have not ticked it are
 * dropped, or with is_late_kept moved to the next round.
 *
 * Owns:    gives *ret_sum (muster_params_round_sum_fini).
 * Errors:  RESOURCE_EXHAUSTED: the round is open as before.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_rounds_close(
    struct muster_params_rounds *rounds, uint64_t now_ns, struct muster_params_round_sum *ret_sum);
void muster_params_round_sum_fini(struct muster_params_round_sum *sum, struct muster_mem *mem);

#endif
