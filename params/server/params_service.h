/* The gRPC door of a server of parameters: muster.params.v1. */
#ifndef MUSTER_PARAMS_SERVICE_H
#define MUSTER_PARAMS_SERVICE_H

#include <muster/rpc.h>

#include "params/server/server_internal.h"
#include "proto/params.muster.h"

/** Inspect. Its digest reads some shards in each turn of the loop. */
void muster_params_on_inspect(struct muster_rpc *rpc,
                              const Muster__Params__V1__InspectRequest *request);
muster_rpc_end_fn muster_params_on_inspect_end;
/** Drain. Answered when the server has given its shards away. */
void muster_params_on_drain(struct muster_rpc *rpc,
                            const Muster__Params__V1__DrainRequest *request);
muster_rpc_end_fn muster_params_on_drain_end;

#endif
