/* What lies where on a board. */
#include "collective/shm_internal.h"

struct muster_shm_board *muster_shm_board_of(struct muster_board *board)
{
    return (struct muster_shm_board *)(void *)board->memory;
}

const struct muster_shm_board *muster_shm_board_of_peer(const struct muster_board_peer *peer)
{
    return (const struct muster_shm_board *)(const void *)peer->memory;
}

/* --- Names of operations --- */

/* Rises in a lane. */
uint64_t muster_shm_ordinal(const struct muster_op_id *id)
{
    return id->step << 32 | id->sequence;
}

/* Never 0; the same again only after 65,535 epochs or 65,536 steps. */
uint64_t muster_shm_key(uint64_t epoch, const struct muster_op_id *id)
{
    return (epoch % 65535 + 1) << 48 | (id->step & 0xFFFF) << 32 | id->sequence;
}

/* Alike on all members, whatever they took part in before. */
uint32_t muster_shm_entry_index(const struct muster_op_id *id)
{
    return (uint32_t)(id->step * 7 + id->sequence) % SHM_LANE_ENTRIES;
}

/* --- Slots --- */

static uint32_t class_of(size_t bytes)
{
    uint32_t class = 10;

    while (((size_t)1 << class) < bytes)
        class ++;
    return class;
}

static size_t heap_start(void)
{
    return (sizeof(struct muster_shm_board) + 4095) / 4096 * 4096;
}

/* Powers of two, last returned first: it is in the cache. */
uint8_t *muster_shm_heap_take(struct muster_board *board, size_t bytes, uint32_t *ret_class)
{
    struct muster_shm_heap *heap = &muster_shm_board_of(board)->heap;
    uint32_t class = class_of(bytes);
    uint8_t *at;

    if (class >= SHM_HEAP_CLASSES)
        return NULL;
    *ret_class = class;
    if (heap->top == 0)
        heap->top = heap_start();
    if (heap->free[class] != 0) {
        at = board->memory + (size_t)heap->free[class] * SHM_LINE_BYTES;
        heap->free[class] = *(const uint32_t *)(const void *)at;
        return at;
    }
    if (((size_t)1 << class) > board->memory_bytes - heap->top)
        return NULL;
    at = board->memory + heap->top;
    heap->top += (size_t)1 << class;
    return at;
}

void muster_shm_heap_give(struct muster_board *board, uint8_t *at, uint32_t class)
{
    struct muster_shm_heap *heap = &muster_shm_board_of(board)->heap;

    *(uint32_t *)(void *)at = heap->free[class];
    heap->free[class] = (uint32_t)((size_t)(at - board->memory) / SHM_LINE_BYTES);
}
