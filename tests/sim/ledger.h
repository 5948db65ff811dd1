/* The ledger: what the members of a simulated job say they saw, and whether it can all be true. */
#ifndef MUSTER_SIM_LEDGER_H
#define MUSTER_SIM_LEDGER_H

#include <muster/collective.h>
#include <muster/view.h>

#include "tests/sim/world.h"

#define LEDGER_LIVES_MAX 64

/* A set of lives (incarnations), bit = life number. */
typedef uint64_t ledger_lives_type;

struct ledger;

/** Borrows world: every contradiction becomes its failure. Gives. */
struct ledger *ledger_new(struct sim_world *world);
void ledger_free(struct ledger *ledger);

/** The number of an incarnation; a new one gets the next. */
uint32_t ledger_life(struct ledger *ledger, const struct muster_incarnation *incarnation);
/** How many have been numbered so far; there is room for LEDGER_LIVES_MAX. */
uint32_t ledger_life_count(const struct ledger *ledger);
/** Highest epoch that the registry has accepted; 0: none. */
uint64_t ledger_epoch(const struct ledger *ledger);
/** Members of an accepted epoch. */
ledger_lives_type ledger_members(const struct ledger *ledger, uint64_t epoch);
/** Members of an accepted epoch that take part in operations of `step`. */
ledger_lives_type ledger_participants(const struct ledger *ledger, uint64_t epoch, uint64_t step);
/** The same of one operation: on a lane that is split, those of its color. */
ledger_lives_type ledger_participants_of(const struct ledger *ledger, uint64_t epoch,
                                         const struct muster_op_id *op);

/** The rank of a life among those who take part; 0 when it does not. */
uint64_t ledger_place(const struct ledger *ledger, uint64_t epoch, const struct muster_op_id *op,
                      uint32_t life);

/** Colors by which processes split lanes: a function of the incarnation, which anybody can compute.
 * */
#define LEDGER_COLORS 2
uint32_t ledger_color(const struct muster_incarnation *incarnation);

/** The first step of a life in an epoch; 0 when it is no member. */
uint64_t ledger_from_step(const struct ledger *ledger, uint64_t epoch, uint32_t life);

/** That view says that nobody has the training state any more. */
bool ledger_is_state_lost(const struct ledger *ledger, uint64_t epoch);
/** The last epoch that this life has entered; 0: none. */
uint64_t ledger_entered_epoch(const struct ledger *ledger, uint32_t life);

/** The registry accepted this view: epochs follow each other without a gap, one view each. */
void ledger_committed(struct ledger *ledger, const struct muster_view *view);
/** A process acts as a member of this view: committed before, the same for all, rising. */
void ledger_entered(struct ledger *ledger, uint32_t life, const struct muster_view *view);

/** It is no longer a member: what it starts after coming back is new. */
void ledger_excluded(struct ledger *ledger, uint32_t life);

/** A process starts an operation: once. */
void ledger_started(struct ledger *ledger, uint32_t life, const struct muster_op_id *op);

struct ledger_outcome {
    enum muster_rc rc;
    uint64_t epoch; /* in which the process was when it was called back; 0: in none */
    ledger_lives_type contributors; /* OK: whose inputs are in the value */
    uint64_t digest;                /* OK: of the bytes */
    bool has_value;                 /* false: a barrier, nothing to compare */
    bool is_partial;                /* of one member (broadcast), not of all */
};
/** Its callback: once; all members that say OK and stay say the same. */
void ledger_done(struct ledger *ledger, uint32_t life, const struct muster_op_id *op,
                 const struct ledger_outcome *outcome);

/** A process holds the state after `step`: the same bytes for all. */
void ledger_state(struct ledger *ledger, uint32_t life, uint64_t step, uint64_t digest);
/** False: nobody has told. */
bool ledger_find_state(const struct ledger *ledger, uint64_t step, uint64_t *ret_digest);

#endif
