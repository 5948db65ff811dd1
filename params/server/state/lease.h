/* Sources that have gone are forgotten. */
#ifndef MUSTER_PARAMS_SERVER_LEASE_H
#define MUSTER_PARAMS_SERVER_LEASE_H

#include "params/server/core/server_internal.h"

/** Sources without a name are forgotten when they have had no link for source_lease_ns. */
void muster_params_leases_open(struct muster_params_server *server);
void muster_params_leases_close(struct muster_params_server *server);

#endif
