/* The only file that includes xxHash. */
#include <muster/hash.h>

#include <assert.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of the state */
#include <xxhash.h>
#ifdef HAVE_XXH3_128bits_dispatch /* the same hashes with the widest vectors of this processor: 1.6 times as fast */
#include <xxh_x86dispatch.h>
#endif

static_assert(sizeof(((struct muster_hash_stream *)0)->state) >=
                  sizeof(XXH3_state_t) + alignof(XXH3_state_t),
              "room for an aligned state");

uint64_t muster_hash64(const void *bytes, size_t count, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, count, seed);
}

static void to_bytes(XXH128_hash_t hash, uint8_t ret_hash[MUSTER_HASH128_BYTES])
{
    XXH128_canonical_t canonical; /* big endian: the same bytes on every machine */

    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(ret_hash, canonical.digest, MUSTER_HASH128_BYTES);
}

void muster_hash128(const void *bytes, size_t count, uint8_t ret_hash[MUSTER_HASH128_BYTES])
{
    to_bytes(XXH3_128bits(bytes, count), ret_hash);
}

const char *muster_hash128_format(const uint8_t hash[MUSTER_HASH128_BYTES],
                                  char ret_text[MUSTER_HASH128_TEXT_BYTES])
{
    for (size_t i = 0; i < MUSTER_HASH128_BYTES; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", hash[i]);
    return ret_text;
}

/* Vector code wants 64-byte alignment, which an object inside a heap block does not have. */
static XXH3_state_t *state_of(const struct muster_hash_stream *stream)
{
    uintptr_t at = (uintptr_t)stream->state + alignof(XXH3_state_t) - 1;

    return (XXH3_state_t *)(at - at % alignof(XXH3_state_t));
}

void muster_hash_stream_init(struct muster_hash_stream *stream)
{
    /* 64 and 128 bits start alike; only the digest differs. */
    XXH3_128bits_reset(state_of(stream));
}

void muster_hash_stream_add(struct muster_hash_stream *stream, const void *bytes, size_t count)
{
    XXH3_128bits_update(state_of(stream), bytes, count);
}

uint64_t muster_hash_stream_hash64(const struct muster_hash_stream *stream)
{
    return XXH3_64bits_digest(state_of(stream));
}

void muster_hash_stream_hash128(const struct muster_hash_stream *stream,
                                uint8_t ret_hash[MUSTER_HASH128_BYTES])
{
    to_bytes(XXH3_128bits_digest(state_of(stream)), ret_hash);
}
