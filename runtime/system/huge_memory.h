/* Large memory that the system backs by huge pages where it can: fewer faults when it is first touched, and fewer
 * places for a disk to read from. A thread can take its pages from the system before they are needed. */
#ifndef MUSTER_RUNTIME_HUGE_MEMORY_H
#define MUSTER_RUNTIME_HUGE_MEMORY_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_HUGE_PAGE_BYTES ((size_t)2 << 20)

struct muster_huge_memory_taker;

/** All zero: none. */
struct muster_huge_memory {
    uint8_t *bytes; /* at a multiple of a page; not set to anything */
    size_t capacity;
    /* --- Private --- */
    struct muster_mem *mem;
    void *room;
    struct muster_huge_memory_taker *taker;
};

/** Gives (muster_huge_memory_close). The system gives pages only as they are touched. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_huge_memory_open(struct muster_mem *mem, size_t bytes,
                                                         struct muster_huge_memory *ret_memory);
/** Idempotent. It stops the thread of take_start, and waits for its end: for one huge page, at most. */
void muster_huge_memory_close(struct muster_huge_memory *memory);

/** Back the whole huge pages of memory that is the caller's by such, when they are touched first. */
void muster_huge_memory_advise(void *bytes, size_t count);

/** A thread takes the pages one by one, from the first to the last, and rests between them: it has a low priority.
 * The contents stay as they are, also while other threads write. If there is no memory or no thread, pages are taken
 * on first touch. Once for each memory. */
void muster_huge_memory_take_start(struct muster_huge_memory *memory);
/** The number of leading bytes that the thread has taken so far. */
size_t muster_huge_memory_taken_bytes(const struct muster_huge_memory *memory);

#endif
