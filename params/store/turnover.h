/* Rows that come and go with a push: in tables that admit keys late, or evict rows.
 *
 * The primary decides before it applies the push, and its followers do the same from its list. A list
 * counts only while nothing of the push is applied to the shard, so that one that comes again, after
 * later changes, does nothing. Decisions depend on clocks and counts, never on time. */
#ifndef MUSTER_PARAMS_TURNOVER_H
#define MUSTER_PARAMS_TURNOVER_H

#include "params/store/apply.h"

enum muster_params_turned_kind {
    MUSTER_PARAMS_TURNED_REMOVED, /* the key loses its row */
    MUSTER_PARAMS_TURNED_MADE,    /* it gets one */
    MUSTER_PARAMS_TURNED_AGED,    /* the counts of the shard were halved: key is its age now */
};

/** A key that gets a row, or loses it, or the age of a shard. Travels (COPY_TURNOVER). */
struct muster_params_turned {
    uint64_t key;
    uint32_t shard;
    uint32_t kind; /* enum muster_params_turned_kind */
};

struct muster_params_turnover {
    uint64_t low_clock; /* that all sources have completed; UINT64_MAX: none ticks */
    struct muster_params_turned *turned; /* caller's, muster_params_turned_max of the push */
    uint32_t count;
    /* Rows. */
    uint32_t refused; /* new ones for which there was no memory, and none to evict */
    uint32_t evicted; /* for new ones */
    uint32_t expired;
};

/** The most entries for a push of so many rows in so many runs. */
static inline size_t muster_params_turned_max(uint32_t row_count, uint32_t run_count)
{
    return 3 * (size_t)row_count + 3 * (size_t)run_count;
}

/** Make and remove rows for a push that is about to be applied. turnover->low_clock and turned are set. */
void muster_params_turnover_decide(struct muster_params_region *region,
                                   const struct muster_params_update *update,
                                   struct muster_params_turnover *turnover);
/** Count the push to keys without rows, as its primary does: a copy that takes over goes on with its own counts.
 * Nothing of the push is applied yet, and what it turns was followed. */
void muster_params_turnover_count(struct muster_params_region *region,
                                  const struct muster_params_update *update);
/** Do what a primary has decided about one key, for the push of this source and sequence. False: there
 * was no memory for a row. */
MUSTER_MUST_CHECK bool muster_params_turnover_follow(struct muster_params_region *region,
                                                     struct muster_params_store_table *table,
                                                     const struct muster_params_source *source,
                                                     uint64_t sequence,
                                                     const struct muster_params_turned *turned);

#endif
