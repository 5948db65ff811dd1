/* Hashes by xxHash. */
#include "runtime/hash.h"

#include <string.h>

#include <xxhash.h>

uint64_t muster_hash64(const void *bytes, size_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}

void muster_hash128(const void *bytes, size_t size, uint8_t ret_hash[16])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    memcpy(ret_hash, canonical.digest, sizeof(canonical.digest));
}
