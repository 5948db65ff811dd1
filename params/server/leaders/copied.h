/* Changes that another server has sent: checks, and the part of them that counts here. */
#ifndef MUSTER_PARAMS_SERVER_COPIED_H
#define MUSTER_PARAMS_SERVER_COPIED_H

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/store/turnover.h"

/** Whether each key is of its run's shard. */
bool muster_params_keys_belong(const struct muster_params_push *push, uint32_t shard_count);
/** Whether a key that is turned is of its shard. */
bool muster_params_turned_is_sound(const struct muster_params_server *server,
                                   const struct muster_params_store_table *table,
                                   const struct muster_params_turned *turned);
/** Runs of other shards are left out of the push, where it lies in payload: those after them move up. */
void muster_params_runs_filter(struct muster_params_push *push, uint8_t *payload,
                               bool (*is_kept)(void *data, uint32_t shard), void *data);

#endif
