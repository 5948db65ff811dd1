/* Fast hashes of bytes for comparing values between processes; not against forgery. */
#ifndef MUSTER_RUNTIME_HASH_H
#define MUSTER_RUNTIME_HASH_H

#include <muster/base.h>

/** XXH3, 64 bits. Chain several pieces by passing the last result as seed; start with 0. */
uint64_t muster_hash64(const void *bytes, size_t size, uint64_t seed);

/** XXH3, 128 bits, in canonical (big-endian) order. */
void muster_hash128(const void *bytes, size_t size, uint8_t ret_hash[16]);

#endif
