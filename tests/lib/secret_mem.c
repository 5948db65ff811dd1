/* An allocator that looks for a secret in all that is given back. */
#include "secret_mem.h"

#include <assert.h>
#include <stdalign.h>
#include <string.h>

#define PEM_HEAD  "PRIVATE KEY-----\n"
#define PEM_BYTES 48

struct block {
    struct muster_list node;
    alignas(max_align_t) size_t bytes;
    alignas(max_align_t) char room[];
};

static bool block_holds(const struct secret_mem *memory, const struct block *block)
{
    return memmem(block->room, block->bytes, memory->secret, memory->secret_bytes) != NULL;
}

static void block_free(struct secret_mem *memory, struct block *block)
{
    memory->leaked_count += block_holds(memory, block);
    muster_list_remove(&block->node);
    muster_mem_free(memory->base, block);
}

/* A block that grows is always moved: the heap may do so, too. */
static void *secret_realloc(struct muster_mem *mem, void *ptr, size_t bytes)
{
    struct secret_mem *memory = MUSTER_CONTAINER_OF(mem, struct secret_mem, mem);
    struct block *old = ptr != NULL ? MUSTER_CONTAINER_OF(ptr, struct block, room) : NULL;
    struct block *block = NULL;

    if (bytes > 0) {
        block = muster_mem_alloc(memory->base, sizeof(*block) + bytes);
        if (block == NULL)
            return NULL;
        block->bytes = bytes;
        memset(block->room, 0, bytes); /* what lay there before is nobody's */
        muster_list_append(&memory->blocks, &block->node);
        if (old != NULL)
            memcpy(block->room, old->room, old->bytes < bytes ? old->bytes : bytes);
    }
    if (old != NULL)
        block_free(memory, old);
    return block != NULL ? block->room : NULL;
}

void secret_mem_init(struct secret_mem *memory, struct muster_mem *base, const void *secret,
                     size_t secret_bytes)
{
    static const struct muster_mem_ops ops = {.realloc = secret_realloc};

    assert(secret_bytes > 0 && secret_bytes <= sizeof(memory->secret));
    *memory = (struct secret_mem){.mem.ops = &ops, .base = base, .secret_bytes = secret_bytes};
    memcpy(memory->secret, secret, secret_bytes);
    muster_list_init(&memory->blocks);
}

void secret_mem_init_pem(struct secret_mem *memory, struct muster_mem *base, const char *key_pem)
{
    const char *at = strstr(key_pem, PEM_HEAD);

    assert(at != NULL);
    secret_mem_init(memory, base, at + strlen(PEM_HEAD) + 64, PEM_BYTES); /* its second line */
}

bool secret_mem_is_held(const struct secret_mem *memory)
{
    const struct muster_list *node = memory->blocks.next;

    for (; node != &memory->blocks; node = node->next)
        if (block_holds(memory, MUSTER_CONTAINER_OF(node, struct block, node)))
            return true;
    return false;
}
