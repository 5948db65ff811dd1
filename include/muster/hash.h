/* XXH3 hashes of 64 and 128 bits: digests of views, chunks and state. Not for secrets. */
#ifndef MUSTER_HASH_H
#define MUSTER_HASH_H

#include <muster/base.h>

MUSTER_BEGIN

#define MUSTER_HASH128_BYTES      16
#define MUSTER_HASH128_TEXT_BYTES 33 /* 32 hex digits and a NUL */

MUSTER_API uint64_t muster_hash64(const void *bytes, size_t count, uint64_t seed);
/** The canonical (big-endian) form. */
MUSTER_API void muster_hash128(const void *bytes, size_t count,
                               uint8_t ret_hash[MUSTER_HASH128_BYTES]);
/** 32 lower-case hex digits. Returns ret_text. */
MUSTER_API const char *muster_hash128_format(const uint8_t hash[MUSTER_HASH128_BYTES],
                                             char ret_text[MUSTER_HASH128_TEXT_BYTES]);

/** A hash of bytes that come in pieces: the same value as in one piece. Caller's memory; must not
 * move. */
struct muster_hash_stream {
    unsigned char state[640];
};
MUSTER_API void muster_hash_stream_init(struct muster_hash_stream *stream);
MUSTER_API void muster_hash_stream_add(struct muster_hash_stream *stream, const void *bytes,
                                       size_t count);
/** The hash of all bytes so far; more may be added afterwards. */
MUSTER_API uint64_t muster_hash_stream_hash64(const struct muster_hash_stream *stream);
MUSTER_API void muster_hash_stream_hash128(const struct muster_hash_stream *stream,
                                           uint8_t ret_hash[MUSTER_HASH128_BYTES]);

MUSTER_END

#endif
