/* Memory of a board for slots: a buddy allocator (Knuth, TAOCP volume 1, 2.5). Blocks that are given back wait in
 * the list of their class, and are joined with their neighbours only when there is nothing else to take: the
 * steady state takes and gives in a few instructions. run.c takes slots for operations, message.c for messages.
 * The lists hold line numbers, not pointers, since the board is mapped elsewhere in other processes. */
#include "collective/group/shm/shm_internal.h"

#include <muster/base.h>

/* Smallest class: 1 KiB. Smaller ones would save little of a board and lengthen the lists that are joined. */
#define CLASS_MIN 10u

static size_t size_of(uint32_t class)
{
    return (size_t)1 << class;
}

static uint32_t class_of(size_t bytes)
{
    uint32_t class = CLASS_MIN;

    while (class < SHM_HEAP_CLASSES && size_of(class) < bytes)
        class ++;
    return class;
}

/* The first page after the tables: blocks lie at multiples of their size from here. */
static size_t heap_start(void)
{
    return (sizeof(struct muster_shm_board) + 4095) / 4096 * 4096;
}

static struct muster_shm_heap *heap_of(struct muster_board *board)
{
    return &muster_shm_board_of(board)->heap;
}

/* --- Lists: free blocks by their lines, each naming the next in its first bytes --- */

static uint32_t *next_of(struct muster_board *board, uint32_t line)
{
    return (uint32_t *)(void *)(board->memory + (size_t)line * SHM_LINE_BYTES);
}

static void push_line(struct muster_board *board, uint32_t class, uint32_t line)
{
    struct muster_shm_heap *heap = heap_of(board);

    MUSTER_ASSERT(line != 0 && class < SHM_HEAP_CLASSES);
    *next_of(board, line) = heap->free[class];
    heap->free[class] = line;
}

static uint32_t pop_line(struct muster_board *board, uint32_t class)
{
    struct muster_shm_heap *heap = heap_of(board);
    uint32_t line = heap->free[class];

    if (line != 0)
        heap->free[class] = *next_of(board, line);
    return line;
}

/* Two lists sorted by address become one. */
static uint32_t merge_lists(struct muster_board *board, uint32_t a, uint32_t b)
{
    uint32_t first = 0, *end = &first;

    while (a != 0 && b != 0) {
        uint32_t *lower = a < b ? &a : &b;

        *end = *lower;
        end = next_of(board, *lower);
        *lower = *end;
    }
    *end = a != 0 ? a : b;
    return first;
}

/* A merge sort without recursion or memory of its own. Runs of 2^i blocks are merged like the digits of a number
 * that is counted up; 32 digits are enough, since lines are numbered by 32 bits. */
static uint32_t sort_list(struct muster_board *board, uint32_t list)
{
    uint32_t runs[32] = {0}, sorted = 0;

    while (list != 0) {
        uint32_t run = list, i = 0;

        list = *next_of(board, run);
        *next_of(board, run) = 0;
        for (; runs[i] != 0; i++) {
            run = merge_lists(board, runs[i], run);
            runs[i] = 0;
        }
        runs[i] = run;
    }
    for (uint32_t i = 0; i < 32; i++)
        sorted = merge_lists(board, runs[i], sorted);
    return sorted;
}

/* --- Joining --- */

/* The block is the lower half of one of the next class, and `line` the upper one. */
static bool are_buddies(uint32_t class, uint32_t block, uint32_t line)
{
    size_t offset = (size_t)block * SHM_LINE_BYTES - heap_start();

    return offset % size_of(class + 1) == 0 && line == block + size_of(class) / SHM_LINE_BYTES;
}

/* In the order of addresses, so that all that can be joined is seen at once. */
static void join_class(struct muster_board *board, uint32_t class)
{
    uint32_t list = sort_list(board, heap_of(board)->free[class]), kept = 0, *end = &kept;

    while (list != 0) {
        uint32_t block = list, next = *next_of(board, block);

        if (next != 0 && are_buddies(class, block, next)) {
            list = *next_of(board, next);
            push_line(board, class + 1, block);
            continue;
        }
        *end = block;
        end = next_of(board, block);
        list = next;
    }
    *end = 0;
    heap_of(board)->free[class] = kept;
}

/* The last block of a sorted list becomes untouched memory again when it ends where that begins. */
static void lower_top(struct muster_board *board, uint32_t class)
{
    struct muster_shm_heap *heap = heap_of(board);
    uint32_t *last = &heap->free[class];

    if (*last == 0)
        return;
    while (*next_of(board, *last) != 0)
        last = next_of(board, *last);
    if ((size_t)*last * SHM_LINE_BYTES + size_of(class) != heap->top)
        return;
    heap->top = (size_t)*last * SHM_LINE_BYTES;
    *last = 0;
}

/* One round from the smallest class up is enough: a joined block that lies right below one of its size or a
 * larger one is an upper half whose lower half is taken, so as untouched memory it would be part of nothing
 * larger. */
static void join_all(struct muster_board *board)
{
    for (uint32_t class = CLASS_MIN; class + 1 < SHM_HEAP_CLASSES; class ++)
        join_class(board, class);
    for (uint32_t class = CLASS_MIN; class < SHM_HEAP_CLASSES; class ++)
        lower_top(board, class);
}

/* --- Taking --- */

/* The untouched memory, from a multiple of the size on; what lies before is free in smaller blocks. */
static uint32_t take_top(struct muster_board *board, uint32_t class)
{
    struct muster_shm_heap *heap = heap_of(board);
    size_t offset = heap->top - heap_start(), room = board->memory_bytes - heap_start();
    size_t first = (offset + size_of(class) - 1) / size_of(class) * size_of(class);

    if (first > room || size_of(class) > room - first)
        return 0;
    for (uint32_t gap = CLASS_MIN; offset < first; gap++)
        if ((offset & size_of(gap)) != 0) {
            push_line(board, gap, (uint32_t)((heap_start() + offset) / SHM_LINE_BYTES));
            offset += size_of(gap);
        }
    heap->top = heap_start() + first + size_of(class);
    return (uint32_t)((heap_start() + first) / SHM_LINE_BYTES);
}

/* A larger block in halves: the lower one is cut on, the upper ones stay free. */
static uint32_t split_block(struct muster_board *board, uint32_t class)
{
    uint32_t larger = class + 1, line;

    while (larger < SHM_HEAP_CLASSES && heap_of(board)->free[larger] == 0)
        larger++;
    if (larger >= SHM_HEAP_CLASSES)
        return 0;
    line = pop_line(board, larger);
    while (larger-- > class)
        push_line(board, larger, line + (uint32_t)(size_of(larger) / SHM_LINE_BYTES));
    return line;
}

/* Untouched memory before a larger block: a block that is cut cannot be had whole again without joining. */
static uint32_t take_block(struct muster_board *board, uint32_t class)
{
    uint32_t line = pop_line(board, class); /* The last block that was given back is likely in the cache. */

    if (line == 0)
        line = take_top(board, class);
    return line != 0 ? line : split_block(board, class);
}

uint8_t *muster_shm_heap_take(struct muster_board *board, size_t bytes, uint32_t *ret_class)
{
    struct muster_shm_heap *heap = heap_of(board);
    uint32_t class = class_of(bytes), line;

    if (class >= SHM_HEAP_CLASSES)
        return NULL;
    if (heap->top == 0)
        heap->top = heap_start();
    line = take_block(board, class);
    if (line == 0) {
        join_all(board);
        line = take_block(board, class);
    }
    if (line == 0)
        return NULL;
    *ret_class = class;
    return board->memory + (size_t)line * SHM_LINE_BYTES;
}

void muster_shm_heap_give(struct muster_board *board, uint8_t *at, uint32_t class)
{
    push_line(board, class, (uint32_t)((size_t)(at - board->memory) / SHM_LINE_BYTES));
}

/* --- Slots that are kept --- */

void muster_shm_kept_set(struct muster_board *board, uint32_t lane_index, uint32_t entry_index,
                         const uint8_t *slot, uint32_t class)
{
    struct muster_shm_kept *kept = &muster_shm_board_of(board)->kept[lane_index][entry_index];

    MUSTER_ASSERT(kept->line == 0);
    kept->line = (uint32_t)((size_t)(slot - board->memory) / SHM_LINE_BYTES);
    kept->class = class;
}

bool muster_shm_kept_give(struct muster_board *board, uint32_t lane_index, uint32_t entry_index)
{
    struct muster_shm_board *own = muster_shm_board_of(board);
    struct muster_shm_kept *kept = &own->kept[lane_index][entry_index];

    if (kept->line == 0)
        return false;
    atomic_store_explicit(&own->entries[lane_index][entry_index].ready, 0, memory_order_relaxed);
    /* The key is gone before the heap writes its list into the slot; pairs with muster_shm_is_valid. */
    atomic_thread_fence(memory_order_release);
    push_line(board, kept->class, kept->line);
    kept->line = 0;
    return true;
}

bool muster_shm_kept_give_all(struct muster_board *board)
{
    bool has_given = false;

    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++)
        for (uint32_t entry = 0; entry < SHM_LANE_ENTRIES; entry++)
            has_given = muster_shm_kept_give(board, lane, entry) || has_given;
    return has_given;
}
