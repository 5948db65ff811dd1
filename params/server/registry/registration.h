/* The registry as a server of parameters uses it: its own key under a lease, the keys of the others, and
 * the map, which whoever sees that the next one is due changes by compare-and-swap. */
#ifndef MUSTER_PARAMS_REGISTRATION_H
#define MUSTER_PARAMS_REGISTRATION_H

#include "params/server/core/server_internal.h"
#include "params/wire/map.h"

/** Gives server->registration. Borrows options during the call; the server listens. Errors:
 * INVALID_ARGUMENT, RESOURCE_EXHAUSTED, those of muster_registry_open. */
MUSTER_MUST_CHECK enum muster_rc muster_params_registration_open(
    struct muster_params_server *server, const struct muster_params_server_options *options,
    struct muster_error *ret_error);
/** Whether the registry shows another server that does not leave. */
bool muster_params_registration_has_heir(const struct muster_params_server *server);
/** A server of the map that has shards, is not registered, and has not said that it leaves; NULL: there is none.
 * Borrows from the map. */
const struct muster_params_map_server *muster_params_registration_missing(
    const struct muster_params_server *server);
/** Why the registry cannot be asked; NULL: it answers. Borrowed. */
const char *muster_params_registration_away(const struct muster_params_server *server);
/** "HOST:PORT" by which others, and this server itself, connect to it. Borrowed. */
const char *muster_params_registration_reach(const struct muster_params_server *server);
typedef void muster_params_registration_fn(struct muster_params_server *server);
/** Ask to give all shards away. left is called, from a turn of its own, when there are none. */
void muster_params_registration_leave(struct muster_params_server *server,
                                      muster_params_registration_fn *left);
/** The key goes with its lease, at once where the registry answers. Then closed. */
void muster_params_registration_close(struct muster_params_server *server,
                                      muster_params_registration_fn *closed);

#endif
