/* Guarded unpack and plain pack of protobuf messages: bytes from strangers never reach protobuf-c
 * unchecked. */
#include "proto/guard.h"

#include <stdalign.h>
#include <string.h>

#include "proto/guard_scan.h"

#define DEPTH_MAX       32                   /* the scan and protobuf-c recurse: bounds the stack */
#define ELEMENTS_MAX    (UINT32_C(1) << 20)  /* fields and packed values: bounds the time */
#define MEMORY_PER_BYTE 16                   /* messages of many small parts need more */
#define MEMORY_FREE     (UINT32_C(64) << 10) /* on top of what is proportional to the size */
#define FIRST_SLACK     64 /* beside the message and the guess at its parts */
#define CHUNK_BYTES_MIN 512
#define CHUNK_BYTES_MAX (UINT32_C(256) << 10)
#define ALIGNMENT       alignof(max_align_t)

/* A run of memory; allocations are cut from its front and never given back alone. */
struct chunk {
    struct chunk *next;
    size_t bytes;
    size_t used;
    alignas(max_align_t) uint8_t room[];
};

/* The arena stands at the front of its own first chunk, and the unpacked message right after it. */
struct arena {
    struct muster_mem *mem;
    struct chunk *chunks; /* newest first */
    size_t held_bytes;
    size_t limit_bytes;
    bool is_exhausted;
};

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static struct chunk *chunk_new(struct muster_mem *mem, size_t bytes)
{
    struct chunk *chunk = muster_mem_alloc(mem, sizeof(*chunk) + bytes);

    if (chunk == NULL)
        return NULL;
    chunk->next = NULL;
    chunk->bytes = bytes;
    chunk->used = 0;
    return chunk;
}

static struct arena *arena_new(struct muster_mem *mem, size_t first_bytes, size_t limit_bytes)
{
    struct chunk *chunk = chunk_new(mem, align_up(sizeof(struct arena)) + first_bytes);
    struct arena *arena;

    if (chunk == NULL)
        return NULL;
    arena = (struct arena *)(void *)chunk->room;
    chunk->used = align_up(sizeof(*arena));
    arena->mem = mem;
    arena->chunks = chunk;
    arena->held_bytes = chunk->bytes;
    arena->limit_bytes = limit_bytes;
    MUSTER_ASSERT(arena->held_bytes <= arena->limit_bytes);
    arena->is_exhausted = false;
    return arena;
}

static void arena_free(struct arena *arena)
{
    struct muster_mem *mem;
    struct chunk *chunk, *next;

    if (arena == NULL)
        return;
    mem = arena->mem;
    for (chunk = arena->chunks; chunk != NULL; chunk = next) {
        next = chunk->next;
        muster_mem_free(mem, chunk);
    }
}

/* Chunks double up to a limit, so that a large message needs few allocations and a small one wastes
 * little. */
static struct chunk *arena_grow(struct arena *arena, size_t bytes)
{
    size_t want = arena->chunks->bytes * 2;
    struct chunk *chunk;

    if (want < CHUNK_BYTES_MIN)
        want = CHUNK_BYTES_MIN;
    if (want > CHUNK_BYTES_MAX)
        want = CHUNK_BYTES_MAX;
    if (want < bytes)
        want = bytes;
    if (want > arena->limit_bytes - arena->held_bytes) {
        if (bytes > arena->limit_bytes - arena->held_bytes)
            return NULL;
        want = bytes;
    }
    chunk = chunk_new(arena->mem, want);
    if (chunk == NULL)
        return NULL;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->held_bytes += want;
    MUSTER_ASSERT(arena->held_bytes <= arena->limit_bytes);
    return chunk;
}

/* The allocator of protobuf-c, which calls it with sizes that a peer has chosen: everything counts
 * against the limit, and a refusal is remembered to tell it from a malformed message. */
static void *arena_alloc(void *data, size_t bytes)
{
    struct arena *arena = data;
    struct chunk *chunk = arena->chunks;
    void *block;

    if (bytes > arena->limit_bytes) {
        arena->is_exhausted = true;
        return NULL;
    }
    bytes = align_up(bytes);
    if (bytes > chunk->bytes - chunk->used) {
        chunk = arena_grow(arena, bytes);
        if (chunk == NULL) {
            arena->is_exhausted = true;
            return NULL;
        }
    }
    MUSTER_ASSERT(bytes <= chunk->bytes - chunk->used);
    block = chunk->room + chunk->used;
    chunk->used += bytes;
    return block;
}

/* protobuf-c frees parts of a message that turns out malformed: the arena frees all at once. */
static void arena_alloc_free(void *data, void *block)
{
    (void)data;
    (void)block;
}

static struct muster_proto_limits limits_or_defaults(const struct muster_proto_limits *limits)
{
    struct muster_proto_limits chosen = {DEPTH_MAX, ELEMENTS_MAX, MEMORY_PER_BYTE};

    if (limits == NULL)
        return chosen;
    if (limits->depth_max != 0)
        chosen.depth_max = limits->depth_max;
    if (limits->elements_max != 0)
        chosen.elements_max = limits->elements_max;
    if (limits->memory_per_byte != 0)
        chosen.memory_per_byte = limits->memory_per_byte;
    return chosen;
}

/* Makes the arena with room for the message in front. Half as much again as the wire bytes is enough for
 * most messages, which then need one allocation; above CHUNK_BYTES_MAX memory is taken only as the
 * message turns out to need it, because its size is a peer's word. */
static enum muster_rc arena_prepare(struct muster_mem *mem, size_t message_bytes, size_t memory_max,
                                    size_t size, struct arena **ret_arena)
{
    size_t guess = size < CHUNK_BYTES_MAX ? align_up(size + size / 2) : 0;
    size_t first = align_up(message_bytes) + FIRST_SLACK;
    struct arena *arena;

    /* The arena itself counts, too: a first chunk above the limit would leave less than nothing. */
    if (align_up(sizeof(*arena)) + first + guess <= memory_max)
        first += guess;
    arena = arena_new(mem, first, memory_max);
    if (arena == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_arena = arena;
    return MUSTER_OK;
}

static enum muster_rc unpack_into(struct arena *arena, const ProtobufCMessageDescriptor *descriptor,
                                  const void *bytes, size_t size, void *ret_message,
                                  struct muster_error *ret_error)
{
    static const uint8_t nothing[1];
    ProtobufCAllocator allocator = {arena_alloc, arena_alloc_free, arena};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, size, size > 0 ? bytes : nothing);

    if (message == NULL) {
        if (arena->is_exhausted)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                    "%s: %zu bytes need more than %zu bytes of memory",
                                    descriptor->name, size, arena->limit_bytes);
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%s: malformed message",
                                descriptor->name);
    }
    /* muster_proto_free finds the arena right in front of the message. */
    MUSTER_ASSERT((void *)message == (uint8_t *)arena + align_up(sizeof(*arena)));
    memcpy(ret_message, &message, sizeof(message));
    return MUSTER_OK;
}

/* Unknown fields are stripped first, because protobuf-c would keep them at fifty times their
 * size. */
enum muster_rc muster_proto_unpack(struct muster_mem *mem,
                                   const ProtobufCMessageDescriptor *descriptor, const void *bytes,
                                   size_t size, const struct muster_proto_limits *limits,
                                   void *ret_message, struct muster_error *ret_error)
{
    struct muster_proto_limits chosen = limits_or_defaults(limits);
    struct muster_proto_scan scan = {
        .depth_max = chosen.depth_max, .elements_max = chosen.elements_max, .error = ret_error};
    struct arena *arena = NULL;
    void *stripped = NULL;
    enum muster_rc rc = muster_proto_scan_check(&scan, descriptor, bytes, size);

    MUSTER_ASSERT(ret_message != NULL);
    if (rc != MUSTER_OK)
        return rc;
    if (scan.unknown_fields > 0) {
        stripped = muster_mem_alloc(mem, size);
        if (stripped == NULL)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
        size = muster_proto_scan_strip(descriptor, bytes, size, stripped);
        bytes = stripped;
    }
    rc = arena_prepare(mem, descriptor->sizeof_message,
                       MEMORY_FREE + size * (size_t)chosen.memory_per_byte, size, &arena);
    if (rc == MUSTER_OK)
        rc = unpack_into(arena, descriptor, bytes, size, ret_message, ret_error);
    else
        (void)muster_error_set(ret_error, rc, "out of memory");
    muster_mem_free(mem, stripped);
    if (rc != MUSTER_OK)
        arena_free(arena);
    return rc;
}

/* The arena stands right in front of its message (unpack_into checks it), so the message alone is
 * enough. */
void muster_proto_free(void *message)
{
    if (message == NULL)
        return;
    arena_free((struct arena *)(void *)((uint8_t *)message - align_up(sizeof(struct arena))));
}

enum muster_rc muster_proto_pack(struct muster_mem *mem, const void *message, void **ret_bytes,
                                 size_t *ret_size)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = muster_mem_alloc(mem, size);

    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_size = protobuf_c_message_pack(message, bytes);
    MUSTER_ASSERT(*ret_size == size); /* else it has written past the block */
    *ret_bytes = bytes;
    return MUSTER_OK;
}
