/* A byte stream through memory: each side has a ring of its own, which it alone can write and the other side reads. Two
 * processes of a host tell each other of their rings, wake each other and see each other's death over a unix socket;
 * two sides in one process need none. */
#ifndef MUSTER_NET_STREAM_RING_H
#define MUSTER_NET_STREAM_RING_H

#include <muster/stream.h>

/** Bytes that one side may be ahead of the other. */
#define MUSTER_RING_BYTES ((size_t)256 << 10)

/**
 * Go on over this socket, of which the other end does the same: SOCK_SEQPACKET, connected, non-blocking.
 *
 * The other side is not trusted. Its memory can neither shrink nor be written here; bytes are copied before they are
 * looked at, and positions that cannot be are its end.
 *
 * Owns:    takes socket, also on failure; borrows env. Gives.
 * Errors:  RESOURCE_EXHAUSTED, UNIMPLEMENTED (a kernel without sealed memory), UNAVAILABLE (the other end is gone).
 */
MUSTER_MUST_CHECK enum muster_rc muster_ring_stream_open(struct muster_env *env, int socket,
                                                         struct muster_stream **ret_stream);
/** Two ends within this process. Borrows env. Gives both. RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_ring_stream_pair(struct muster_env *env,
                                                         struct muster_stream *ret_streams[2]);
bool muster_ring_stream_is_one(const struct muster_stream *stream);
/** Both of its ends are in this process. */
bool muster_ring_stream_is_within(const struct muster_stream *stream);

#endif
