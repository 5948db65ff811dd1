/* Sizes of operations through shared memory. */
#ifndef MUSTER_COLLECTIVE_SHM_LIMITS_H
#define MUSTER_COLLECTIVE_SHM_LIMITS_H

#include <stddef.h>

/* Size of a board: entries of all lanes, and slots. Untouched pages cost nothing, unless huge
 * pages are reserved: then all of it is taken from those at once. */
#define MUSTER_SHM_BOARD_BYTES ((size_t)64 << 20)
/* More members of one host use TCP. */
#define MUSTER_SHM_MEMBERS_MAX 64u
/* Up to this size inputs are copied to slots, and everybody reduces all; so many of all members
 * together. */
#define MUSTER_SHM_FLAT_BYTES     (256u << 10)
#define MUSTER_SHM_FLAT_BYTES_ALL (512u << 10)
/* Chunks that stay in the caches while they are summed and copied. */
#define MUSTER_SHM_CHUNK_BYTES (64u << 10)
/* Pieces that are copied before looking at other operations. */
#define MUSTER_SHM_PIECE_BYTES (128u << 10)

#endif
