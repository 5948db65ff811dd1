/* Arrays that grow by one element at a time. */
#ifndef MUSTER_RUNTIME_ARRAY_H
#define MUSTER_RUNTIME_ARRAY_H

#include <muster/mem.h>

/**
 * The array with room for one element after its `count`: as it is, or moved into twice the room.
 *
 * Owns:    takes array (NULL: none yet) and gives what it returns; on NULL it is still the caller's.
 * Errors:  NULL: no memory; *capacity is as before.
 */
MUSTER_MUST_CHECK void *muster_array_reserve(struct muster_mem *mem, void *array, size_t count,
                                             size_t *capacity, size_t element_bytes);

#endif
