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

/** Inflates the one member that compressed holds, in steps: a few bytes may ask for much work. */
struct muster_grpc_inflater;

/** Borrows compressed until free or keep. Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_inflater_new(
    struct muster_mem *mem, struct muster_bytes compressed, size_t plain_bytes_max,
    struct muster_grpc_inflater **ret_inflater);
void muster_grpc_inflater_free(struct muster_grpc_inflater *inflater);
/** Copies the input that it still borrows. False: no memory. */
MUSTER_MUST_CHECK bool muster_grpc_inflater_keep(struct muster_grpc_inflater *inflater);
/** Go on for about as much work as *work bytes that come out are, which goes down to what is left
 * of it. Errors: OUT_OF_RANGE (more than plain_bytes_max come out), DATA_LOSS (no gzip, cut off,
 * damaged, or something follows), RESOURCE_EXHAUSTED (no memory). */
MUSTER_MUST_CHECK enum muster_rc muster_grpc_inflater_step(struct muster_grpc_inflater *inflater,
                                                           size_t *work, bool *ret_is_done);
/** Once it is done: what came out, and the memory that it lies in. Gives data, never NULL. */
struct muster_bytes muster_grpc_inflater_take(struct muster_grpc_inflater *inflater,
                                              size_t *ret_capacity);
/** The memory that it holds, zlib's own included. */
size_t muster_grpc_inflater_held_bytes(const struct muster_grpc_inflater *inflater);

#endif
