/* The grpc-timeout header: at most eight digits and a unit. */
#ifndef MUSTER_NET_GRPC_TIMEOUT_H
#define MUSTER_NET_GRPC_TIMEOUT_H

#include <muster/status.h>

#define MUSTER_GRPC_TIMEOUT_TEXT_BYTES 10 /* eight digits, unit, NUL */

/** "250m" → 250,000,000. Saturates at UINT64_MAX. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_timeout_parse(const char *text, size_t length,
                                                           uint64_t *ret_timeout_ns);

/** The finest unit that fits, rounded up, so that a peer never gives up first. Returns the length.
 */
size_t muster_grpc_timeout_format(uint64_t timeout_ns,
                                  char ret_text[MUSTER_GRPC_TIMEOUT_TEXT_BYTES]);

#endif
