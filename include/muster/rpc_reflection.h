/* The reflection service of a gRPC server (grpc.reflection.v1 and v1alpha): clients that have no
 * .proto files, grpcurl for one, ask the server for them. */
#ifndef MUSTER_RPC_REFLECTION_H
#define MUSTER_RPC_REFLECTION_H

#include <muster/base.h>
#include <muster/descriptors.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

/**
 * Serve ServerReflectionInfo on `server`, under both names.
 *
 * The services that are listed are those that the server has methods of, also of later
 * muster_rpc_server_add; what can be said about them stands in `sets`, which protoc-gen-muster
 * makes (NAME_descriptors). The files of the health and reflection services are known besides. A
 * file is sent together with all that it imports.
 *
 * Bounds:  a client that does not read is not read from once 256 KiB of answers wait for it.
 * Owns:    copies the array; borrows what it points at, static as a rule, until server is closed.
 * Errors:  ALREADY_EXISTS when somebody serves it, RESOURCE_EXHAUSTED.
 * Source:  grpc/doc/server-reflection.md, gRFC A15.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_rpc_reflection_open(
    struct muster_rpc_server *server, const struct muster_descriptors *const *sets, size_t count);

MUSTER_END

#endif
