/* The next map: who is alive and what is ready -> map E+1. Pure. */
#ifndef MUSTER_PARAMS_DECIDE_H
#define MUSTER_PARAMS_DECIDE_H

#include "params/wire/map.h"

/** A server that has registered itself. */
struct muster_params_candidate {
    struct muster_params_map_server server; /* is_leaving: it asks to drain */
    bool
        is_full; /* it has no memory for rows: it learns nothing, and keeps the copies that it has */
};

struct muster_params_decide_input {
    const struct muster_params_map *map; /* E; NULL: there is none yet */
    /* All servers that are alive, in rising order of their ids. A server of the map that is not among
     * them is lost: with another copy its shards go on there; without one they wait for it. */
    const struct muster_params_candidate *alive;
    uint32_t alive_count;
    /* For a first map. */
    uint32_t shard_count;
    uint32_t copies_wanted;
    bool is_unused; /* no table has been made, or is about to be, as far as this server knows */
    /* A bit for each (shard, place of the learner in servers[] of E) whose learner has all of the
     * shard and is acknowledged with; by muster_params_decide_ready. */
    bool (*is_ready)(const void *data, uint32_t shard, uint32_t place);
    /* Whether a copy is not as its primary's: it becomes a learner. With a learner there is a next map even where
     * nothing else changes. NULL: none is. */
    bool (*is_stale)(const void *data, uint32_t shard, uint32_t place);
    /* Whether the copy has all that the primary has applied, which applies nothing more before the next map: it
     * leads then, where it is the shard's first target. NULL: none is. */
    bool (*is_handed)(const void *data, uint32_t shard, uint32_t place);
    /* Whether this server leads the shard and knows that the copy has all that was acknowledged: the copy may
     * lead instead, though the primary is alive. NULL: each may. */
    bool (*is_whole)(const void *data, uint32_t shard, uint32_t place);
    const void *data;
    uint32_t moves_max; /* learners that a server may have at once; 0: 2 */
};

/**
 * Decide map E+1: drop the lost ones where another copy is, and stale copies of living primaries, promote
 * learners that are ready, give up copies that are not wanted any more (never the last one that is alive),
 * and begin as many moves towards the target (place.h) as allowed.
 *
 * Owns:    gives *ret_map; NULL: nothing changes.
 * Errors:  RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_params_decide(
    struct muster_mem *mem, const struct muster_params_decide_input *input,
    struct muster_params_map **ret_map);

/** Whether E+1 is as a first map: no table was ever made, and all servers that have shards by E are lost. */
bool muster_params_decide_begins_anew(const struct muster_params_decide_input *input);

#endif
