/* Large memory that the system backs by huge pages where it can: fewer faults when it is first touched, and fewer
 * places for a disk to read from. */
#ifndef MUSTER_RUNTIME_HUGE_MEMORY_H
#define MUSTER_RUNTIME_HUGE_MEMORY_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_HUGE_PAGE_BYTES ((size_t)2 << 20)

/** All zero: none. */
struct muster_huge_memory {
    uint8_t *bytes; /* at a multiple of a page; not set to anything */
    size_t capacity;
    /* --- Private --- */
    struct muster_mem *mem;
    void *room;
};

/** Gives (muster_huge_memory_close). The system gives pages only as they are touched. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_huge_memory_open(struct muster_mem *mem, size_t bytes,
                                                         struct muster_huge_memory *ret_memory);
/** Idempotent. */
void muster_huge_memory_close(struct muster_huge_memory *memory);

#endif
