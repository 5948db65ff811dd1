/* The map and the clocks of a server as messages of muster.params.v1. */
#ifndef MUSTER_PARAMS_STATE_PROTO_H
#define MUSTER_PARAMS_STATE_PROTO_H

#include "params/server/core/server_internal.h"
#include "params/wire/map.h"
#include "proto/params.muster.h"

/** Room for the servers of a map. */
struct muster_params_servers_proto {
    uint32_t count, short_shards;
    Muster__Params__V1__Server messages[MUSTER_PARAMS_SERVERS_MAX];
    Muster__Params__V1__Server *list[MUSTER_PARAMS_SERVERS_MAX];
};

/** Borrows the server's map. None where the server has no map yet. */
void muster_params_servers_describe(const struct muster_params_server *server,
                                    struct muster_params_servers_proto *ret_servers);
/** Borrows the id of a source, which stays as long as the memory of the seat. */
void muster_params_clocks_describe(const struct muster_params_server *server,
                                   Muster__Params__V1__Clocks *ret_clocks);
/** Messages that the slowest of the servers that copy this one has not done yet. */
uint64_t muster_params_followers_lag(const struct muster_params_server *server);

#endif
