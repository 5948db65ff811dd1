/* The scratch memory of requests: a chain of chunks, and an allocation moves a pointer up in the
 * newest one. The registry resets an arena after each request, so nothing is freed one by one. */
#include "cluster/store/arena.h"

#include <stdalign.h>
#include <string.h>

/* A chunk holds the scratch memory of most requests, so that a reset between two of them calls no
 * allocator. */
#define CHUNK_BYTES ((size_t)16 << 10)
/* Most ranges find one key, and most commits change a few. */
#define CAPACITY_FIRST 4

struct muster_registry_arena_chunk {
    struct muster_registry_arena_chunk *older;
    size_t bytes;
    size_t used;
    alignas(max_align_t) unsigned char memory[];
};

void muster_registry_arena_init(struct muster_registry_arena *arena, struct muster_mem *mem,
                                size_t limit_bytes)
{
    arena->mem = mem;
    arena->chunks = NULL;
    arena->limit_bytes = limit_bytes;
    arena->held_bytes = 0;
}

static void free_chunks(struct muster_registry_arena *arena,
                        struct muster_registry_arena_chunk *chunk)
{
    while (chunk != NULL) {
        struct muster_registry_arena_chunk *older = chunk->older;

        muster_mem_free(arena->mem, chunk);
        chunk = older;
    }
}

void muster_registry_arena_fini(struct muster_registry_arena *arena)
{
    free_chunks(arena, arena->chunks);
    arena->chunks = NULL;
}

void muster_registry_arena_reset(struct muster_registry_arena *arena)
{
    struct muster_registry_arena_chunk *chunk = arena->chunks;

    arena->held_bytes = 0;
    if (chunk == NULL)
        return;
    free_chunks(arena, chunk->older);
    chunk->older = NULL;
    chunk->used = 0;
    /* One large answer must not keep its memory for as long as the registry runs. */
    if (chunk->bytes > 4 * CHUNK_BYTES) {
        muster_mem_free(arena->mem, chunk);
        arena->chunks = NULL;
    }
}

static bool add_chunk(struct muster_registry_arena *arena, size_t bytes)
{
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    struct muster_registry_arena_chunk *chunk = muster_mem_alloc(arena->mem, sizeof(*chunk) + size);

    if (chunk == NULL)
        return false;
    chunk->older = arena->chunks;
    chunk->bytes = size;
    chunk->used = 0;
    arena->chunks = chunk;
    return true;
}

void *muster_registry_arena_alloc(struct muster_registry_arena *arena, size_t bytes)
{
    const size_t unit = alignof(max_align_t);
    size_t rounded = 0;
    void *result = NULL;

    /* The test comes before the rounding, which could overflow for a size near SIZE_MAX. */
    if (bytes > arena->limit_bytes - arena->held_bytes)
        return NULL;
    rounded = (bytes + unit - 1) / unit * unit;
    if (arena->chunks == NULL || arena->chunks->bytes - arena->chunks->used < rounded) {
        if (!add_chunk(arena, rounded))
            return NULL;
    }
    result = arena->chunks->memory + arena->chunks->used;
    arena->chunks->used += rounded;
    arena->held_bytes += bytes;
    return result;
}

void *muster_registry_arena_array(struct muster_registry_arena *arena, size_t count, size_t bytes)
{
    void *result = NULL;

    if (count > SIZE_MAX / bytes)
        return NULL;
    result = muster_registry_arena_alloc(arena, count * bytes);
    if (result != NULL)
        memset(result, 0, count * bytes);
    return result;
}

/* The array grows fourfold, because the smaller ones are not freed: together they take a third of
 * the last one. */
void *muster_registry_arena_reserve(struct muster_registry_arena *arena, void *array, size_t count,
                                    size_t *capacity, size_t element_bytes)
{
    size_t wanted = *capacity == 0 ? CAPACITY_FIRST : *capacity * 4;
    void *grown = NULL;

    MUSTER_ASSERT(count <= *capacity && element_bytes > 0);
    if (count < *capacity)
        return array;
    grown = muster_registry_arena_alloc(arena, wanted * element_bytes);
    if (grown == NULL)
        return NULL;
    if (count > 0)
        memcpy(grown, array, count * element_bytes);
    *capacity = wanted;
    return grown;
}

bool muster_registry_arena_copy(struct muster_registry_arena *arena, struct muster_bytes from,
                                struct muster_bytes *ret_copy)
{
    void *copy = muster_registry_arena_alloc(arena, from.size);

    if (copy == NULL)
        return false;
    if (from.size > 0)
        memcpy(copy, from.data, from.size);
    ret_copy->data = copy;
    ret_copy->size = from.size;
    return true;
}
