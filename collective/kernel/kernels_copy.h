/* Copies of what is too large to stay in the caches. */
#ifndef MUSTER_COLLECTIVE_KERNELS_COPY_H
#define MUSTER_COLLECTIVE_KERNELS_COPY_H

#include <stddef.h>

/** As memcpy, but what is written goes past the caches where the processor can do that: it reads no
 * line only to overwrite it, and drives none out. Later stores of this thread are seen after it. */
void muster_copy_nontemporal(void *restrict into, const void *restrict from, size_t bytes);

#endif
