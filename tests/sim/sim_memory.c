/* Memory of one process: counted, filled, and dropped at once when the process dies. */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_internal.h"

#define FILL_BYTES_MAX  (256u << 10) /* larger buffers are only filled at their start */
#define SPOIL_BYTES_MAX 1024u        /* so much of a block that is freed, lest it be used again */
#define SPOILT          0xdb

struct block {
    struct muster_list link;
    alignas(max_align_t) size_t bytes;
};

static void fill_block(struct sim_mem *mem, struct block *block, size_t from, size_t to)
{
    if (to > from)
        memset((uint8_t *)(block + 1) + from, mem->fill,
               to - from > FILL_BYTES_MAX ? FILL_BYTES_MAX : to - from);
}

static void release_block(struct sim_mem *mem, struct block *block)
{
    muster_list_remove(&block->link);
    mem->block_count--;
    memset(block + 1, SPOILT, block->bytes < SPOIL_BYTES_MAX ? block->bytes : SPOIL_BYTES_MAX);
    free(block);
}

static void *mem_realloc(struct muster_mem *api, void *ptr, size_t bytes)
{
    struct sim_mem *mem = (struct sim_mem *)api;
    struct block *old = ptr == NULL ? NULL : (struct block *)ptr - 1;
    struct block *block;

    if (bytes == 0) {
        if (old != NULL)
            release_block(mem, old);
        return NULL;
    }
    if (mem->refuses != NULL && !mem->is_sure && mem->refuses(mem->refuse_data))
        return NULL;
    if (bytes > SIZE_MAX - sizeof(*block))
        return NULL;
    block = malloc(sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->bytes = bytes;
    muster_list_append(&mem->blocks, &block->link);
    mem->block_count++;
    if (old != NULL) {
        memcpy(block + 1, old + 1, old->bytes < bytes ? old->bytes : bytes);
        fill_block(mem, block, old->bytes, bytes);
        release_block(mem, old);
    } else {
        fill_block(mem, block, 0, bytes);
    }
    return block + 1;
}

void *sim_mem_alloc_surely(struct muster_mem *api, size_t bytes)
{
    struct sim_mem *mem = (struct sim_mem *)api;
    void *ptr;

    mem->is_sure = true;
    ptr = muster_mem_alloc(api, bytes);
    mem->is_sure = false;
    return ptr;
}

void sim_refuse(struct sim_node *node, sim_refuse_fn *refuses, void *data)
{
    node->mem.refuses = refuses;
    node->mem.refuse_data = data;
}

void sim_mem_init(struct sim_mem *mem, uint8_t fill_byte)
{
    static const struct muster_mem_ops ops = {.realloc = mem_realloc};

    *mem = (struct sim_mem){.mem.ops = &ops, .fill = fill_byte};
    muster_list_init(&mem->blocks);
}

size_t sim_mem_drop(struct sim_mem *mem)
{
    size_t count = mem->block_count;
    struct muster_list *link;

    while ((link = mem->blocks.next) != &mem->blocks)
        release_block(mem, MUSTER_CONTAINER_OF(link, struct block, link));
    return count;
}
