/* Allocators: the C library's heap, and one that counts and limits what it hands out. */
#include <muster/mem.h>

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* Stands in front of every block of a limited allocator, so that freeing knows the size. */
struct block {
    alignas(max_align_t) size_t bytes;
};

static void *system_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    (void)mem;
    if (bytes == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, bytes);
}

struct muster_mem *muster_mem_system(void)
{
    static const struct muster_mem_ops ops = {.realloc = system_realloc};
    static struct muster_mem mem = {.ops = &ops};

    return &mem;
}

/* To an implementation 0 bytes means free, so a caller that asks for none gets one: NULL then
 * always means that there was no memory. */
void *muster_mem_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    return mem->ops->realloc(mem, ptr, bytes == 0 ? 1 : bytes);
}

void *muster_mem_alloc(struct muster_mem *mem, size_t bytes)
{
    return muster_mem_realloc(mem, NULL, bytes);
}

/* The product may overflow with a count that a peer has sent, and then there is no such memory. */
void *muster_mem_alloc_zero(struct muster_mem *mem, size_t count, size_t bytes)
{
    void *ptr;
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    ptr = muster_mem_alloc(mem, total);
    if (ptr != NULL)
        memset(ptr, 0, total);
    return ptr;
}

void muster_mem_free(struct muster_mem *mem, void *ptr)
{
    if (ptr != NULL)
        mem->ops->realloc(mem, ptr, 0);
}

char *muster_mem_strndup(struct muster_mem *mem, const char *text, size_t length)
{
    size_t bytes = strnlen(text, length);
    char *copy = muster_mem_alloc(mem, bytes + 1);

    if (copy == NULL)
        return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

char *muster_mem_strdup(struct muster_mem *mem, const char *text)
{
    return muster_mem_strndup(mem, text, strlen(text));
}

/* fail_at counts down at every allocation, also of a block that only grows: a test can refuse each
 * one in turn. */
static bool limited_refuses(struct muster_mem_limited *limited, size_t bytes_old, size_t bytes)
{
    if (limited->fail_at != 0 && --limited->fail_at == 0)
        return true;
    if (bytes > SIZE_MAX - sizeof(struct block))
        return true;
    return limited->limit_bytes != 0 && bytes > bytes_old &&
           bytes - bytes_old > limited->limit_bytes - limited->held_bytes;
}

/* The counts change only when the base has given the memory: a refusal leaves all as it was. */
static void *limited_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    struct muster_mem_limited *limited = (struct muster_mem_limited *)mem;
    struct block *block = ptr == NULL ? NULL : (struct block *)ptr - 1;
    size_t bytes_old = block == NULL ? 0 : block->bytes;

    if (bytes == 0) {
        if (block != NULL) {
            MUSTER_ASSERT(limited->block_count > 0 && limited->held_bytes >= bytes_old);
            limited->held_bytes -= bytes_old;
            limited->block_count--;
            muster_mem_free(limited->base, block);
        }
        return NULL;
    }
    if (limited_refuses(limited, bytes_old, bytes))
        return NULL;
    block = muster_mem_realloc(limited->base, block, sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->bytes = bytes;
    limited->held_bytes += bytes - bytes_old;
    if (limited->held_bytes > limited->held_peak_bytes)
        limited->held_peak_bytes = limited->held_bytes;
    limited->block_count += ptr == NULL;
    limited->alloc_count++;
    return block + 1;
}

void muster_mem_limited_init(struct muster_mem_limited *limited, struct muster_mem *base,
                             size_t limit_bytes)
{
    static const struct muster_mem_ops ops = {.realloc = limited_realloc};

    MUSTER_ASSERT(base != NULL && base != &limited->mem);
    *limited = (struct muster_mem_limited){
        .mem.ops = &ops,
        .base = base,
        .limit_bytes = limit_bytes,
    };
}

size_t muster_mem_limited_fini(struct muster_mem_limited *limited)
{
    MUSTER_ASSERT(limited->base != NULL);
    limited->base = NULL;
    return limited->block_count;
}
