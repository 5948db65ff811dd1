/* Counted buffers that are reused. Sizes are rounded up to a power of two and each has a list of
 * idle buffers, so a training step that repeats itself finds all of its buffers there. Idle memory
 * is returned only when the pool ends. */
#include "collective/wire/buffer_pool.h"

#include <muster/base.h>

#define LINE_BYTES 64u
/* Smaller buffers would be dwarfed by their heads: the first class has 256 bytes. */
#define CLASS_FIRST 8u

/* Stands directly before the buffer's first line. */
struct buffer_head {
    struct muster_buffer_pool *pool;
    struct muster_list node;
    void *block; /* what the allocator gave */
    uint32_t references;
    uint32_t class;
};

static struct buffer_head *head_of(void *buffer)
{
    return (struct buffer_head *)(void *)((uint8_t *)buffer - sizeof(struct buffer_head));
}

static uint32_t class_of(size_t bytes)
{
    uint32_t class = CLASS_FIRST;

    while (class + 1 < MUSTER_POOL_CLASSES + CLASS_FIRST && ((size_t)1 << class) < bytes)
        class ++;
    return class - CLASS_FIRST;
}

static size_t class_bytes(uint32_t class)
{
    return (size_t)1 << (class + CLASS_FIRST);
}

void muster_buffer_pool_init(struct muster_buffer_pool *pool, struct muster_mem *mem)
{
    pool->mem = mem;
    pool->held_bytes = 0;
    pool->lent_count = 0;
    pool->lent_bytes = pool->lent_peak_bytes = 0;
    for (size_t i = 0; i < MUSTER_POOL_CLASSES; i++)
        muster_list_init(&pool->idle[i]);
}

void muster_buffer_pool_fini(struct muster_buffer_pool *pool)
{
    MUSTER_ASSERT(pool->lent_count == 0);
    for (size_t i = 0; i < MUSTER_POOL_CLASSES; i++) {
        struct muster_list *node;

        while ((node = muster_list_pop(&pool->idle[i])) != NULL)
            muster_mem_free(pool->mem, MUSTER_CONTAINER_OF(node, struct buffer_head, node)->block);
    }
    pool->held_bytes = 0;
}

static void *buffer_new(struct muster_buffer_pool *pool, uint32_t class)
{
    size_t room = sizeof(struct buffer_head) + LINE_BYTES; /* the head, and the way to a line */
    void *block = muster_mem_alloc(pool->mem, class_bytes(class) + room);
    struct buffer_head *head;
    uintptr_t at;

    if (block == NULL)
        return NULL;
    at = ((uintptr_t)block + room - 1) & ~(uintptr_t)(LINE_BYTES - 1);
    head = head_of((void *)at);
    head->pool = pool;
    head->block = block;
    head->class = class;
    muster_list_init(&head->node);
    pool->held_bytes += class_bytes(class);
    return (void *)at;
}

void *muster_buffer_get(struct muster_buffer_pool *pool, size_t bytes)
{
    uint32_t class = class_of(bytes);
    struct muster_list *node;
    void *buffer;

    if (bytes > class_bytes(class)) /* above the largest class */
        return NULL;
    node = muster_list_pop(&pool->idle[class]);
    buffer = node != NULL ? (void *)(MUSTER_CONTAINER_OF(node, struct buffer_head, node) + 1)
                          : buffer_new(pool, class);
    if (buffer == NULL)
        return NULL;
    MUSTER_ASSERT(head_of(buffer)->class == class);
    head_of(buffer)->references = 1;
    pool->lent_count++;
    pool->lent_bytes += class_bytes(class);
    if (pool->lent_bytes > pool->lent_peak_bytes)
        pool->lent_peak_bytes = pool->lent_bytes;
    return buffer;
}

size_t muster_buffer_bytes(size_t bytes)
{
    return class_bytes(class_of(bytes));
}

void *muster_buffer_ref(void *buffer)
{
    MUSTER_ASSERT(head_of(buffer)->references > 0);
    head_of(buffer)->references++;
    return buffer;
}

void muster_buffer_unref(void *buffer)
{
    struct buffer_head *head;

    if (buffer == NULL)
        return;
    head = head_of(buffer);
    MUSTER_ASSERT(head->references > 0);
    if (--head->references > 0)
        return;
    head->pool->lent_count--;
    head->pool->lent_bytes -= class_bytes(head->class);
    muster_list_prepend(&head->pool->idle[head->class], &head->node);
}
