/* An allocator that keeps freed blocks, by class of size: the buffers of messages come and go at
 * the same few sizes, and the C heap would split and join them each time. */
#include <muster/mem.h>

#include <stdalign.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* Classes go up in steps of 16 bytes to FINE_MAX, then in eighths of each power of two. */
#define STEP       16u
#define FINE_MAX   8192u
#define FINE       (FINE_MAX / STEP)
#define FINE_POWER 13
#define EIGHTHS    8u
#define NO_CLASS   UINT32_MAX /* never kept, not rounded */

/* Stands in front of every block. */
struct muster_mem_pool_block {
    union {
        alignas(max_align_t) size_t room;   /* after this header */
        struct muster_mem_pool_block *next; /* while kept */
    };
    uint32_t class_index;
};

/* Bytes [begin, end) after the header are in no block: an access is an error to the address
 * sanitizer. */
static void poison_bytes(struct muster_mem_pool_block *block, size_t begin, size_t end)
{
    ASAN_POISON_MEMORY_REGION((uint8_t *)(block + 1) + begin, end - begin);
}

static void unpoison_bytes(struct muster_mem_pool_block *block, size_t end)
{
    ASAN_UNPOISON_MEMORY_REGION(block + 1, end);
}

/* The class of a block with *room bytes; *room is rounded up to the size of the class. */
static uint32_t class_of(const struct muster_mem_pool *pool, size_t *room)
{
    unsigned power;
    size_t eighth, step;

    if (*room > pool->kept_max_bytes)
        return NO_CLASS;
    if (*room <= FINE_MAX) {
        *room = (*room + STEP - 1) / STEP * STEP;
        return (uint32_t)(*room / STEP - 1);
    }
    power = 63u - (unsigned)__builtin_clzll(*room); /* 2^power <= room < 2^(power + 1) */
    eighth = ((size_t)1 << power) / EIGHTHS;
    step = (*room - ((size_t)1 << power) + eighth - 1) /
           eighth; /* 0 to 8, of which 0 is the 8 before */
    *room = ((size_t)1 << power) + step * eighth;
    step += FINE + (power - FINE_POWER) * EIGHTHS - 1;
    return step < MUSTER_MEM_POOL_CLASSES ? (uint32_t)step : NO_CLASS;
}

/* The size of the blocks of a class, as class_of rounds to it. */
static size_t room_of(size_t class_index)
{
    size_t power = (class_index - FINE) / EIGHTHS + FINE_POWER;

    if (class_index < FINE)
        return (class_index + 1) * STEP;
    return ((size_t)1 << power) / EIGHTHS * (EIGHTHS + (class_index - FINE) % EIGHTHS + 1);
}

/* Kept blocks must not be the reason for a failure: they go back before the second attempt. */
static void *base_realloc(struct muster_mem_pool *pool, void *ptr, size_t bytes)
{
    void *memory = muster_mem_realloc(pool->base, ptr, bytes);

    if (memory != NULL || pool->kept_bytes == 0)
        return memory;
    muster_mem_pool_trim(pool);
    return muster_mem_realloc(pool->base, ptr, bytes);
}

static void *pool_alloc(struct muster_mem_pool *pool, size_t bytes)
{
    size_t room = bytes;
    uint32_t class_index = class_of(pool, &room);
    struct muster_mem_pool_block *block;

    if (bytes > SIZE_MAX - sizeof(*block))
        return NULL;
    if (class_index != NO_CLASS && pool->kept[class_index] != NULL) {
        block = pool->kept[class_index];
        pool->kept[class_index] = block->next;
        pool->kept_bytes -= room;
        unpoison_bytes(block, bytes);
    } else {
        block = base_realloc(pool, NULL, sizeof(*block) + room);
        if (block == NULL)
            return NULL;
        block->class_index = class_index;
        poison_bytes(block, bytes, room);
    }
    block->room = room;
    return block + 1;
}

/* Blocks are kept up to a limit of bytes, so that a peak does not hold its memory for ever. */
static void pool_free(struct muster_mem_pool *pool, struct muster_mem_pool_block *block)
{
    size_t room = block->room;

    if (block->class_index == NO_CLASS || pool->kept_bytes + room > pool->kept_max_bytes) {
        unpoison_bytes(block, room);
        muster_mem_free(pool->base, block);
        return;
    }
    poison_bytes(block, 0, room);
    block->next = pool->kept[block->class_index];
    pool->kept[block->class_index] = block;
    pool->kept_bytes += room;
}

/* Beyond the classes: the base may move pages instead of bytes. */
static void *large_realloc(struct muster_mem_pool *pool, struct muster_mem_pool_block *block,
                           size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(*block))
        return NULL;
    block = base_realloc(pool, block, sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->room = bytes;
    return block + 1;
}

/* A block stays where it is as long as its class fits: growing by small steps moves it only from
 * class to class. */
static void *pool_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    struct muster_mem_pool *pool = (struct muster_mem_pool *)mem;
    struct muster_mem_pool_block *block = (struct muster_mem_pool_block *)ptr - (ptr != NULL);
    size_t room = bytes;
    uint32_t class_index;
    void *moved;

    if (ptr == NULL)
        return pool_alloc(pool, bytes);
    if (bytes == 0) {
        pool_free(pool, block);
        return NULL;
    }
    class_index = class_of(pool, &room);
    if (class_index == NO_CLASS && block->class_index == NO_CLASS)
        return large_realloc(pool, block, bytes);
    if (class_index == block->class_index) {
        unpoison_bytes(block, bytes);
        poison_bytes(block, bytes, room);
        return ptr;
    }
    moved = pool_alloc(pool, bytes);
    if (moved == NULL)
        return NULL;
    unpoison_bytes(block, block->room);
    memcpy(moved, ptr, bytes < block->room ? bytes : block->room);
    pool_free(pool, block);
    return moved;
}

void muster_mem_pool_init(struct muster_mem_pool *pool, struct muster_mem *base,
                          size_t kept_max_bytes)
{
    static const struct muster_mem_ops ops = {.realloc = pool_realloc};

    MUSTER_ASSERT(base != NULL && base != &pool->mem);
    memset(pool, 0, sizeof(*pool));
    pool->mem.ops = &ops;
    pool->base = base;
    pool->kept_max_bytes = kept_max_bytes;
}

void muster_mem_pool_trim(struct muster_mem_pool *pool)
{
    for (size_t i = 0; i < MUSTER_MEM_POOL_CLASSES; i++) {
        struct muster_mem_pool_block *block;

        while ((block = pool->kept[i]) != NULL) {
            pool->kept[i] = block->next;
            pool->kept_bytes -= room_of(i);
            unpoison_bytes(block, room_of(i));
            muster_mem_free(pool->base, block);
        }
    }
    MUSTER_ASSERT(pool->kept_bytes == 0);
}

void muster_mem_pool_fini(struct muster_mem_pool *pool)
{
    muster_mem_pool_trim(pool);
}
