/* gRPC status on the wire: grpc-message coding, and what HTTP and HTTP/2 codes stand for. */
#ifndef MUSTER_NET_GRPC_STATUS_H
#define MUSTER_NET_GRPC_STATUS_H

#include <muster/status.h>

/** Decimal 0 to 16; anything else is UNKNOWN. */
enum muster_rc muster_grpc_status_parse(const char *text, size_t length);

/** PROTOCOL-HTTP2.md "Errors". */
enum muster_rc muster_rc_from_h2_code(uint32_t code);

/** http-grpc-status-mapping.md; 200 (a response without grpc-status) is UNKNOWN. Clients only. */
enum muster_rc muster_rc_from_http_status(int status);

/** Percent-encode `text` into `out` (cut at a whole sequence, NUL-terminated). Returns the length.
 */
size_t muster_grpc_message_encode(const char *text, char *out, size_t out_bytes);

/** Decode, keeping broken sequences as they are; cut to fit, NUL-terminated. Returns the length. */
size_t muster_grpc_message_decode(const char *text, size_t length, char *out, size_t out_bytes);

#endif
