/* Where a shard belongs: rendezvous hashing over the servers of a map. Pure. */
#ifndef MUSTER_PARAMS_PLACE_H
#define MUSTER_PARAMS_PLACE_H

#include "params/wire/map.h"

/**
 * The places of the servers that should hold the shard, the best first: of servers that are alive and do
 * not leave, by rendezvous; two on one host (host_key) only where no other host is left. A server that
 * comes or goes moves only the shards that it gets or had.
 *
 * is_alive: by places; NULL: all are.
 *
 * Returns how many: at most map->copies_wanted.
 */
uint32_t muster_params_place_targets(const struct muster_params_map *map, const bool *is_alive,
                                     uint32_t shard, uint16_t ret_places[MUSTER_PARAMS_COPIES_MAX]);

#endif
