/* Copies of rows by their addresses, in an open-addressing table that doubles. */
#include "params/store/freeze.h"

#include <string.h>

#include "params/wire/hash.h"

#define SLOTS_MIN   1024u
#define BLOCK_BYTES ((size_t)1 << 20)

struct kept {
    uint64_t row_at;                      /* offset; 0: free */
    const struct muster_params_row *copy; /* NULL: there was no row */
};

struct block {
    struct block *next;
    size_t used;
    _Alignas(8) uint8_t bytes[];
};

struct muster_params_freeze {
    struct muster_mem *mem;
    uint32_t shard_count;
    uint64_t source_count;
    uint64_t *positions; /* [source_count][shard_count] */
    uint8_t released[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    struct kept *slots;
    size_t slot_count, kept_count;
    struct block *blocks;
    bool is_short;
};

static struct kept *kept_find(struct kept *slots, size_t slot_count, uint64_t row_at)
{
    size_t i = (size_t)muster_params_hash(0, row_at) & (slot_count - 1);

    while (slots[i].row_at != 0 && slots[i].row_at != row_at)
        i = (i + 1) & (slot_count - 1);
    return &slots[i];
}

static bool slots_grow(struct muster_params_freeze *freeze)
{
    size_t count = freeze->slot_count * 2;
    struct kept *slots = muster_mem_alloc_zero(freeze->mem, count, sizeof(*slots));

    if (slots == NULL)
        return false;
    for (size_t i = 0; i < freeze->slot_count; i++) {
        if (freeze->slots[i].row_at != 0)
            *kept_find(slots, count, freeze->slots[i].row_at) = freeze->slots[i];
    }
    muster_mem_free(freeze->mem, freeze->slots);
    freeze->slots = slots;
    freeze->slot_count = count;
    return true;
}

static void *copy_room(struct muster_params_freeze *freeze, size_t bytes)
{
    struct block *block = freeze->blocks;
    void *room;

    bytes = (bytes + 7) / 8 * 8;
    if (block == NULL || BLOCK_BYTES - block->used < bytes) {
        block = muster_mem_alloc(freeze->mem, sizeof(*block) + BLOCK_BYTES);
        if (block == NULL)
            return NULL;
        block->next = freeze->blocks;
        block->used = 0;
        freeze->blocks = block;
    }
    room = block->bytes + block->used;
    block->used += bytes;
    return room;
}

void muster_params_freeze_keep(struct muster_params_region *region,
                               const struct muster_params_store_table *table, uint32_t shard,
                               const struct muster_params_row *row, bool is_new)
{
    struct muster_params_freeze *freeze = region->freeze;
    uint64_t row_at = muster_params_offset(region, row);
    struct kept *kept;
    void *copy = NULL;

    if ((freeze->released[shard / 8] & 1u << shard % 8) != 0 || freeze->is_short)
        return;
    kept = kept_find(freeze->slots, freeze->slot_count, row_at);
    if (kept->row_at != 0)
        return;
    if (freeze->kept_count * 2 >= freeze->slot_count) {
        freeze->is_short = !slots_grow(freeze);
        if (freeze->is_short)
            return;
        kept = kept_find(freeze->slots, freeze->slot_count, row_at);
    }
    if (!is_new) {
        copy = copy_room(freeze, table->row_stride);
        freeze->is_short = copy == NULL;
        if (freeze->is_short)
            return;
        memcpy(copy, row, table->row_stride);
    }
    *kept = (struct kept){row_at, copy};
    freeze->kept_count++;
}

_Static_assert(MUSTER_PARAMS_STRIDE_MAX <= BLOCK_BYTES, "a block has room for a row");

static bool positions_copy(struct muster_params_freeze *freeze,
                           const struct muster_params_region *region)
{
    size_t bytes = freeze->shard_count * sizeof(uint64_t);

    freeze->source_count = region->head->source_count;
    freeze->positions = muster_mem_alloc(freeze->mem, (size_t)freeze->source_count * bytes + 1);
    if (freeze->positions == NULL)
        return false;
    for (uint64_t slot = 0; slot < freeze->source_count; slot++)
        memcpy(freeze->positions + slot * freeze->shard_count,
               muster_params_source_at(region, slot)->positions, bytes);
    return true;
}

enum muster_rc muster_params_freeze_begin(struct muster_params_region *region,
                                          struct muster_mem *mem)
{
    struct muster_params_freeze *freeze = muster_mem_alloc_zero(mem, 1, sizeof(*freeze));

    MUSTER_ASSERT(region->freeze == NULL);
    if (freeze == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    freeze->mem = mem;
    freeze->shard_count = region->head->shard_count;
    freeze->slot_count = SLOTS_MIN;
    freeze->slots = muster_mem_alloc_zero(mem, SLOTS_MIN, sizeof(*freeze->slots));
    region->freeze = freeze;
    if (freeze->slots != NULL && positions_copy(freeze, region))
        return MUSTER_OK;
    muster_params_freeze_end(region);
    return MUSTER_RESOURCE_EXHAUSTED;
}

void muster_params_freeze_end(struct muster_params_region *region)
{
    struct muster_params_freeze *freeze = region->freeze;

    region->freeze = NULL;
    if (freeze == NULL)
        return;
    while (freeze->blocks != NULL) {
        struct block *next = freeze->blocks->next;

        muster_mem_free(freeze->mem, freeze->blocks);
        freeze->blocks = next;
    }
    muster_mem_free(freeze->mem, freeze->slots);
    muster_mem_free(freeze->mem, freeze->positions);
    muster_mem_free(freeze->mem, freeze);
}

bool muster_params_freeze_is_short(const struct muster_params_freeze *freeze)
{
    return freeze->is_short;
}

void muster_params_freeze_release(struct muster_params_freeze *freeze, uint32_t shard)
{
    freeze->released[shard / 8] |= (uint8_t)(1u << shard % 8);
}

const struct muster_params_row *muster_params_frozen_row(const struct muster_params_region *region,
                                                         const struct muster_params_row *row)
{
    const struct kept *kept = kept_find(region->freeze->slots, region->freeze->slot_count,
                                        muster_params_offset(region, row));

    return kept->row_at != 0 ? kept->copy : row;
}

uint64_t muster_params_frozen_sources(const struct muster_params_freeze *freeze)
{
    return freeze->source_count;
}

uint64_t muster_params_frozen_position(const struct muster_params_region *region, uint64_t slot,
                                       uint32_t shard)
{
    return region->freeze->positions[slot * region->freeze->shard_count + shard];
}
