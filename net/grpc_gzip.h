/* gzip of single messages (RFC 1952), with a bound on what comes out. */
#ifndef MUSTER_NET_GRPC_GZIP_H
#define MUSTER_NET_GRPC_GZIP_H

#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>

/** Compress all pieces, as one, to at most bytes_max. FAILED_PRECONDITION: they do not fit, so it
 * does not pay; RESOURCE_EXHAUSTED: no memory. ret_bytes: how many were written to into. */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_gzip_deflate(struct muster_mem *mem,
                                                          const struct iovec *pieces, size_t count,
                                                          uint8_t *into, size_t bytes_max,
                                                          size_t *ret_bytes);

/** The one member that compressed holds, whole. Gives ret_plain->data, never NULL. Errors:
 * OUT_OF_RANGE (more than plain_bytes_max come out), DATA_LOSS (no gzip, cut off, damaged, or
 * something follows), RESOURCE_EXHAUSTED (no memory). */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_gzip_inflate(struct muster_mem *mem,
                                                          struct muster_bytes compressed,
                                                          size_t plain_bytes_max,
                                                          struct muster_bytes *ret_plain);

#endif
