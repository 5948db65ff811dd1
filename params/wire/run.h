/* Runs: the rows of a push stand together by shard. */
#ifndef MUSTER_PARAMS_RUN_H
#define MUSTER_PARAMS_RUN_H

#include <stdint.h>

/** How many rows of a push belong to a shard. */
struct muster_params_run {
    uint16_t shard; /* with MUSTER_PARAMS_RUN_FIRST: the source's first to this shard */
    uint16_t rows;  /* at least 1 */
};
/* A server that has no position of the source for a shard takes only a first run: a source whose
 * position was lost is told, and does not begin anew in silence. */
#define MUSTER_PARAMS_RUN_FIRST 0x8000u

static inline uint16_t muster_params_run_shard(const struct muster_params_run *run)
{
    return (uint16_t)(run->shard & ~MUSTER_PARAMS_RUN_FIRST);
}

#endif
