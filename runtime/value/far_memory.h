/* Memory that the host does not reach by its addresses, as that of a device: it is copied to and from the host's. */
#ifndef MUSTER_RUNTIME_FAR_MEMORY_H
#define MUSTER_RUNTIME_FAR_MEMORY_H

#include <string.h>

#include <muster/base.h>
#include <muster/status.h>

/** Embed as the first field of an implementation. Both functions return when the bytes are there; any thread. What
 * has failed once fails from then on. */
struct muster_far_memory {
    enum muster_rc (*read)(struct muster_far_memory *memory, void *to, const void *from,
                           size_t bytes);
    enum muster_rc (*write)(struct muster_far_memory *memory, void *to, const void *from,
                            size_t bytes);
};

/** Copy from `memory` to the host's. NULL: `from` is the host's, too. */
static inline MUSTER_MUST_CHECK enum muster_rc muster_far_memory_read(
    struct muster_far_memory *memory, void *to, const void *from, size_t bytes)
{
    if (memory != NULL)
        return memory->read(memory, to, from, bytes);
    memcpy(to, from, bytes);
    return MUSTER_OK;
}

/** Copy from the host's to `memory`. NULL: `to` is the host's, too. */
static inline MUSTER_MUST_CHECK enum muster_rc muster_far_memory_write(
    struct muster_far_memory *memory, void *to, const void *from, size_t bytes)
{
    if (memory != NULL)
        return memory->write(memory, to, from, bytes);
    memcpy(to, from, bytes);
    return MUSTER_OK;
}

#endif
