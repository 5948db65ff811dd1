/* Memory of the caller's allocator, aligned here, and advice to the system. */
#include "runtime/system/huge_memory.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)

enum muster_rc muster_huge_memory_open(struct muster_mem *mem, size_t bytes,
                                       struct muster_huge_memory *ret_memory)
{
    size_t align = bytes < MUSTER_HUGE_PAGE_BYTES ? PAGE_BYTES : MUSTER_HUGE_PAGE_BYTES;
    uint8_t *room;
    size_t before;

    if (bytes > SIZE_MAX - 2 * align)
        return MUSTER_RESOURCE_EXHAUSTED;
    bytes = (bytes + align - 1) / align * align;
    room = muster_mem_alloc(mem, bytes + align);
    if (room == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    before = (align - (uintptr_t)room % align) % align;
    *ret_memory = (struct muster_huge_memory){
        .bytes = room + before, .capacity = bytes, .mem = mem, .room = room};
    if (align == MUSTER_HUGE_PAGE_BYTES) /* of a system that has none the pages are small */
        (void)madvise(ret_memory->bytes, bytes, MADV_HUGEPAGE);
    return MUSTER_OK;
}

void muster_huge_memory_close(struct muster_huge_memory *memory)
{
    if (memory->room != NULL)
        muster_mem_free(memory->mem, memory->room);
    *memory = (struct muster_huge_memory){.room = NULL};
}
