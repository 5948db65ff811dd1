/* gRPC status on the wire: grpc-message coding, and what HTTP and HTTP/2 codes stand for. */
#ifndef MUSTER_NET_GRPC_STATUS_H
#define MUSTER_NET_GRPC_STATUS_H

#include <muster/status.h>

/** RFC 9113 7. */
enum muster_h2_code {
    MUSTER_H2_NO_ERROR = 0x0,
    MUSTER_H2_PROTOCOL_ERROR = 0x1,
    MUSTER_H2_INTERNAL_ERROR = 0x2,
    MUSTER_H2_FLOW_CONTROL_ERROR = 0x3,
    MUSTER_H2_SETTINGS_TIMEOUT = 0x4,
    MUSTER_H2_STREAM_CLOSED = 0x5,
    MUSTER_H2_FRAME_SIZE_ERROR = 0x6,
    MUSTER_H2_REFUSED_STREAM = 0x7,
    MUSTER_H2_CANCEL = 0x8,
    MUSTER_H2_COMPRESSION_ERROR = 0x9,
    MUSTER_H2_CONNECT_ERROR = 0xa,
    MUSTER_H2_ENHANCE_YOUR_CALM = 0xb,
    MUSTER_H2_INADEQUATE_SECURITY = 0xc,
    MUSTER_H2_HTTP_1_1_REQUIRED = 0xd,
};

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
