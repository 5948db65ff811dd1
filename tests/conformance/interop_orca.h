/* Load reports of the interop server (ORCA, gRFC A51): in the trailers of a call, and as a stream
 * beside the calls. */
#ifndef MUSTER_INTEROP_ORCA_H
#define MUSTER_INTEROP_ORCA_H

#include <muster/env.h>
#include <muster/rpc.h>

#include "tests/proto/interop.pb-c.h"

#define INTEROP_ORCA_TRAILER "endpoint-load-metrics-bin"

/** A server's report about itself: an OrcaLoadReport in its wire form. */
struct interop_orca {
    struct muster_env *env;
    void *bytes;
    size_t size;
};

/** Borrows env until fini. */
void interop_orca_init(struct interop_orca *orca, struct muster_env *env);
void interop_orca_fini(struct interop_orca *orca);
/** Serve OpenRcaService. Borrows orca until the server is closed. */
MUSTER_MUST_CHECK enum muster_rc interop_orca_add(struct interop_orca *orca,
                                                  struct muster_rpc_server *server);
/** From now on this is what the streams say. Errors: as interop_orca_pack. */
MUSTER_MUST_CHECK enum muster_rc interop_orca_set(struct interop_orca *orca,
                                                  const Grpc__Testing__TestOrcaReport *wanted);
/** The client's request for a report, as an OrcaLoadReport. Gives *ret_bytes. Errors:
 * INVALID_ARGUMENT (too many names), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc interop_orca_pack(struct muster_mem *mem,
                                                   const Grpc__Testing__TestOrcaReport *wanted,
                                                   void **ret_bytes, size_t *ret_size);

#endif
