/* connectrpc.conformance.v1.ConformanceService: it answers as each request says. */
#ifndef MUSTER_CONFORMANCE_SERVICE_H
#define MUSTER_CONFORMANCE_SERVICE_H

#include <muster/rpc.h>

MUSTER_MUST_CHECK enum muster_rc conformance_service_add(struct muster_rpc_server *server);

#endif
