/* Counted buffers that are reused: staging, undo copies, retained inputs. A steady training step
 * allocates nothing. */
#ifndef MUSTER_COLLECTIVE_BUFFER_POOL_H
#define MUSTER_COLLECTIVE_BUFFER_POOL_H

#include <muster/list.h>
#include <muster/mem.h>

#define MUSTER_POOL_CLASSES 32

/** Idle buffers by power of two of their size, last returned first (it is in the cache). Caller's
 * memory. */
struct muster_buffer_pool {
    struct muster_mem *mem;
    struct muster_list idle[MUSTER_POOL_CLASSES];
    size_t held_bytes; /* idle and lent */
    size_t lent_count;
    size_t lent_bytes, lent_peak_bytes; /* the peak is its user's to set back */
};

void muster_buffer_pool_init(struct muster_buffer_pool *pool, struct muster_mem *mem);
/** Frees the idle buffers; none may be lent. */
void muster_buffer_pool_fini(struct muster_buffer_pool *pool);

/** At least `bytes` (0 is taken as 1), aligned to a cache line, one reference; NULL when memory is
 * short. */
void *muster_buffer_get(struct muster_buffer_pool *pool, size_t bytes);
/** The memory that a buffer of `bytes` takes. */
size_t muster_buffer_bytes(size_t bytes);
void *muster_buffer_ref(void *buffer);
/** The last reference returns it to its pool. NULL is accepted. */
void muster_buffer_unref(void *buffer);

#endif
