/* The map comes into force. */
#ifndef MUSTER_PARAMS_SERVER_MAP_H
#define MUSTER_PARAMS_SERVER_MAP_H

#include "params/server/core/server_internal.h"

/** The map that counts from now on; ignored unless its number is higher, and by a server that
 * closes. Takes map. */
void muster_params_server_set_map(struct muster_params_server *server,
                                  struct muster_params_map *map);

#endif
