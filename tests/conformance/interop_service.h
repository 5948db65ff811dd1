/* grpc.testing.TestService as the official interop clients expect it. */
#ifndef MUSTER_INTEROP_SERVICE_H
#define MUSTER_INTEROP_SERVICE_H

#include <muster/rpc.h>

#include "interop_orca.h"
#include "tests/proto/interop.pb-c.h"

#define INTEROP_PAYLOAD_MAX_BYTES (64 << 20)
#define INTEROP_SERVER_ID_BYTES   33

struct interop_service {
    struct muster_env *env;
    struct interop_orca orca;
    char server_id[INTEROP_SERVER_ID_BYTES]; /* another one in each process */
};

/** Borrows env until fini. */
void interop_service_init(struct interop_service *service, struct muster_env *env);
void interop_service_fini(struct interop_service *service);
/** Serve TestService and load reports. Borrows service until the server is closed. */
MUSTER_MUST_CHECK enum muster_rc interop_service_add(struct interop_service *service,
                                                     struct muster_rpc_server *server);

/* Shared by the files of the service. */

/** Unpack one request. False: the call has been finished with INVALID_ARGUMENT. Gives
 * *ret_message (muster_proto_free). */
bool interop_request(struct muster_rpc *rpc, const ProtobufCMessageDescriptor *descriptor,
                     struct muster_bytes bytes, void *ret_message);
/** Queue one answer. False: the call has been finished. */
bool interop_reply(struct muster_rpc *rpc, const void *message);
/** Whether the message just received came compressed as the client says it sends it. False: the
 * call has been finished. */
bool interop_check_compressed(struct muster_rpc *rpc, const Grpc__Testing__BoolValue *expected);
/** A payload of zeros, to be freed with muster_mem_free(mem, payload->body.data). False: the call
 * has been finished. */
bool interop_payload_init(struct muster_rpc *rpc, Grpc__Testing__PayloadType type, int32_t size,
                          Grpc__Testing__Payload *ret_payload);
/** Answer may be compressed; what the client asks to be echoed in headers and trailers is. */
void interop_begin(struct muster_rpc *rpc);
/** The trailers that interop_begin has set, and a load report. */
void interop_add_trailer(struct muster_rpc *rpc, const void *report, size_t bytes);
/** The status that the client asks for; a number that is no status becomes UNKNOWN. */
enum muster_rc interop_status_of(const Grpc__Testing__EchoStatus *wanted);

/** interop_stream.c. */
MUSTER_MUST_CHECK enum muster_rc interop_stream_add(struct interop_service *service,
                                                    struct muster_rpc_server *server);

#endif
