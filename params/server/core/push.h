/* A push on its way through the server: from its door to the rows, and to the servers that copy them. */
#ifndef MUSTER_PARAMS_SERVER_PUSH_H
#define MUSTER_PARAMS_SERVER_PUSH_H

#include <muster/base.h>

#include "params/store/source.h"
#include "params/store/table.h"
#include "params/wire/hash.h"
#include "params/wire/run.h"

/** One push, cut into runs. Borrowed during the call. */
struct muster_params_push {
    struct muster_params_store_table *table;
    struct muster_params_source *source;
    uint64_t slot; /* of the source */
    uint64_t sequence;
    uint32_t clock;
    const struct muster_params_run *runs; /* with rising shards, row_count rows in all */
    uint32_t run_count;
    const uint64_t *keys; /* in the order of the runs */
    const void *values;   /* of dtype, aligned to its element */
    enum muster_dtype dtype;
    uint32_t row_count;
    bool is_copy;    /* of another server, which has decided about its rows */
    bool is_refused; /* it is not applied, but the next push of its source to these shards is not the first */
    bool is_told;    /* its rows are made before it, or are refused: turnover.h */
    bool is_adopted; /* of another copy's tail: it is not for followers yet */
};

static inline uint32_t muster_params_key_shard(const struct muster_params_store_table *table,
                                               uint64_t key, uint32_t shard_count)
{
    return muster_params_shard_of(muster_params_hash(table->seed, key), shard_count);
}

#endif
