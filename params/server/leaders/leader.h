/* Leaders: servers whose changes this one copies. Changes of a shard are taken only from the primary that this
 * server's own map names. */
#ifndef MUSTER_PARAMS_SERVER_LEADER_H
#define MUSTER_PARAMS_SERVER_LEADER_H

#include "params/server/core/server_internal.h"

/** A link over which another server sends what it has applied. Takes link. */
void muster_params_leader_accept(struct muster_params_server *server,
                                 struct muster_peer_link *link);
/** The map has changed: what waited for it goes on. */
void muster_params_leaders_resume(struct muster_params_server *server);
/** Acknowledge what was done in this turn. */
void muster_params_leaders_flush(struct muster_params_server *server);
void muster_params_leaders_close(struct muster_params_server *server);
/** As muster_params_followers_check. */
bool muster_params_leaders_check(struct muster_params_server *server);

#endif
