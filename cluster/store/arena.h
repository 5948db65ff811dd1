/* Scratch memory of one request: many small pieces, freed together. */
#ifndef MUSTER_CLUSTER_REGISTRY_ARENA_H
#define MUSTER_CLUSTER_REGISTRY_ARENA_H

#include <muster/mem.h>
#include <muster/rpc.h>

struct muster_registry_arena_chunk;

struct muster_registry_arena {
    struct muster_mem *mem;
    struct muster_registry_arena_chunk *chunks; /* newest first */
    size_t limit_bytes;                         /* handed out between two resets at most */
    size_t held_bytes;
};

/** Allocates nothing yet. Borrows mem until fini. */
void muster_registry_arena_init(struct muster_registry_arena *arena, struct muster_mem *mem,
                                size_t limit_bytes);
void muster_registry_arena_fini(struct muster_registry_arena *arena);

/** Everything handed out is invalid from here on; one chunk is kept for the next request. */
void muster_registry_arena_reset(struct muster_registry_arena *arena);

/** Aligned for any type, not cleared; NULL at the limit or without memory. Borrowed until reset. */
void *muster_registry_arena_alloc(struct muster_registry_arena *arena, size_t bytes);
/** All zero, of count * bytes; NULL also when the product overflows. */
void *muster_registry_arena_array(struct muster_registry_arena *arena, size_t count, size_t bytes);
/** The array with room for one element after its `count`: as it is, or copied into a larger one;
 * the smaller one stays until the reset. NULL array: none yet. NULL: as
 * muster_registry_arena_alloc. */
void *muster_registry_arena_reserve(struct muster_registry_arena *arena, void *array, size_t count,
                                    size_t *capacity, size_t element_bytes);
/** A copy of `from`; false without memory. An empty one copies to a non-NULL pointer. */
bool muster_registry_arena_copy(struct muster_registry_arena *arena, struct muster_bytes from,
                                struct muster_bytes *ret_copy);

#endif
