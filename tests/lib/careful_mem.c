/* Blocks between two fences. */
#include "careful_mem.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FENCE_BYTES 16
#define FILLED_MAX  16384 /* of a block; more would be slow */
#define FENCE       0xfd
#define FRESH       0xcd
#define FREED       0xdd

#ifdef __SANITIZE_ADDRESS__
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

struct fenced {
    alignas(max_align_t) size_t bytes;
    unsigned char before[FENCE_BYTES];
    alignas(max_align_t) unsigned char block[];
};

static void check_fence(const struct fenced *fenced, const unsigned char *fence, const char *where)
{
    for (size_t i = 0; i < FENCE_BYTES; i++) {
        if (fence[i] == FENCE)
            continue;
        fprintf(stderr, "careful_mem: a byte %s a block of %zu bytes was written\n", where,
                fenced->bytes);
        abort();
    }
}

static void fill_block(unsigned char *block, int value, size_t bytes)
{
    memset(block, value, bytes < FILLED_MAX ? bytes : FILLED_MAX);
}

static void free_fenced(struct fenced *fenced)
{
    if (fenced == NULL)
        return;
    check_fence(fenced, fenced->before, "before");
    check_fence(fenced, fenced->block + fenced->bytes, "behind");
    fill_block(fenced->block, FREED, fenced->bytes);
    free(fenced);
}

static void *careful_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    struct fenced *old = ptr != NULL ? (struct fenced *)ptr - 1 : NULL;
    struct fenced *fenced = NULL;

    (void)mem;
    if (bytes > SIZE_MAX - sizeof(*fenced) - FENCE_BYTES)
        return NULL;
    if (bytes > 0) {
        fenced = malloc(sizeof(*fenced) + bytes + FENCE_BYTES);
        if (fenced == NULL)
            return NULL;
        fenced->bytes = bytes;
        memset(fenced->before, FENCE, FENCE_BYTES);
        memset(fenced->block + bytes, FENCE, FENCE_BYTES);
        fill_block(fenced->block, FRESH, bytes);
        if (old != NULL)
            memcpy(fenced->block, old->block, old->bytes < bytes ? old->bytes : bytes);
    }
    free_fenced(old);
    return fenced != NULL ? fenced->block : NULL;
}

struct muster_mem *careful_mem(void)
{
    static const struct muster_mem_ops ops = {.realloc = careful_realloc};
    static struct muster_mem mem = {.ops = &ops};

    return IS_SANITIZED ? muster_mem_system() : &mem;
}
