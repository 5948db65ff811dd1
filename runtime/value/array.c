/* Growing by doubling, so that each element is moved about once. */
#include "runtime/value/array.h"

#define CAPACITY_FIRST 8

void *muster_array_reserve(struct muster_mem *mem, void *array, size_t count, size_t *capacity,
                           size_t element_bytes)
{
    size_t wanted = *capacity == 0 ? CAPACITY_FIRST : *capacity * 2;
    void *grown = array;

    MUSTER_ASSERT(count <= *capacity && element_bytes > 0);
    if (count == *capacity) {
        grown = muster_mem_realloc(mem, array, wanted * element_bytes);
        *capacity = grown != NULL ? wanted : *capacity;
    }
    return grown;
}
