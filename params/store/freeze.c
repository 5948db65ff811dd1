/* Copies of rows, found by segment, page and place in the page: to keep one more never takes longer than to
 * keep the first. All lie in blocks, where a copy is named by its place in granules. */
#include "params/store/freeze.h"

#include <string.h>

#define GRANULE     ((size_t)16)
#define BLOCK_BYTES ((size_t)1 << 20)
#define BLOCKS_MIN  64u
#define NEVER       1u /* there was no row */

_Static_assert(MUSTER_PARAMS_STRIDE_MAX <= BLOCK_BYTES, "a block has room for a row");
_Static_assert(MUSTER_PARAMS_REGION_BYTES_MAX / MUSTER_PARAMS_SEGMENT_BYTES <= BLOCK_BYTES / 4,
               "a block has room for the names of all segments");

struct muster_params_freeze {
    struct muster_mem *mem;
    uint32_t shard_count;
    uint64_t source_count;
    uint64_t *positions; /* [source_count][shard_count] */
    uint8_t released[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    uint8_t **blocks;
    uint32_t block_count, block_max;
    size_t used;        /* of the last block */
    uint32_t *segments; /* place of the pages of a segment; 0: none is kept */
    bool is_short;
};

static void *room_at(const struct muster_params_freeze *freeze, uint32_t place)
{
    return freeze->blocks[place / (BLOCK_BYTES / GRANULE)] +
           (size_t)(place % (BLOCK_BYTES / GRANULE)) * GRANULE;
}

static bool blocks_grow(struct muster_params_freeze *freeze)
{
    uint32_t max = freeze->block_max == 0 ? BLOCKS_MIN : freeze->block_max * 2;
    uint8_t **blocks = muster_mem_alloc_zero(freeze->mem, max, sizeof(*blocks));

    if (blocks == NULL)
        return false;
    if (freeze->block_count > 0)
        memcpy(blocks, freeze->blocks, freeze->block_count * sizeof(*blocks));
    muster_mem_free(freeze->mem, freeze->blocks);
    freeze->blocks = blocks;
    freeze->block_max = max;
    return true;
}

/* 0: no memory. */
static uint32_t room_take(struct muster_params_freeze *freeze, size_t bytes)
{
    uint32_t place;

    bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (freeze->block_count == 0 || BLOCK_BYTES - freeze->used < bytes) {
        uint8_t *block;

        if (freeze->block_count == freeze->block_max && !blocks_grow(freeze))
            return 0;
        block = muster_mem_alloc(freeze->mem, BLOCK_BYTES);
        if (block == NULL)
            return 0;
        freeze->blocks[freeze->block_count++] = block;
        freeze->used = freeze->block_count == 1 ? (NEVER + 1) * GRANULE : 0;
    }
    place = (uint32_t)((freeze->block_count - 1) * (BLOCK_BYTES / GRANULE) +
                       freeze->used / GRANULE);
    freeze->used += bytes;
    return place;
}

/* The places of a level below, made where they are wanted and not there yet. NULL: they are not there. */
static uint32_t *level_open(struct muster_params_freeze *freeze, uint32_t *place, size_t count,
                            bool is_wanted)
{
    if (*place == 0 && is_wanted) {
        *place = room_take(freeze, count * sizeof(*place));
        if (*place != 0)
            memset(room_at(freeze, *place), 0, count * sizeof(*place));
    }
    return *place == 0 ? NULL : room_at(freeze, *place);
}

/* Where the place of the row's copy stands; NULL: none of its page is kept, or there is no memory. */
static uint32_t *kept_find(struct muster_params_freeze *freeze, uint64_t offset,
                           const struct muster_params_store_table *table, bool is_wanted)
{
    uint64_t in_segment = offset % MUSTER_PARAMS_SEGMENT_BYTES;
    uint32_t *pages = level_open(freeze, &freeze->segments[offset / MUSTER_PARAMS_SEGMENT_BYTES],
                                 MUSTER_PARAMS_SEGMENT_PAGES, is_wanted);
    uint32_t *rows = pages == NULL ? NULL
                                   : level_open(freeze, &pages[in_segment / table->page_bytes],
                                                table->rows_per_page, is_wanted);

    return rows == NULL ? NULL : &rows[in_segment % table->page_bytes / table->row_stride];
}

void muster_params_freeze_keep(struct muster_params_region *region,
                               const struct muster_params_store_table *table, uint32_t shard,
                               const struct muster_params_row *row, bool is_new)
{
    struct muster_params_freeze *freeze = region->freeze;
    uint32_t place = NEVER, *kept;

    if ((freeze->released[shard / 8] & 1u << shard % 8) != 0 || freeze->is_short)
        return;
    kept = kept_find(freeze, muster_params_offset(region, row), table, true);
    if (kept != NULL && *kept != 0)
        return;
    if (!is_new && kept != NULL)
        place = room_take(freeze, table->row_stride);
    freeze->is_short = kept == NULL || place == 0;
    if (freeze->is_short)
        return;
    if (!is_new)
        memcpy(room_at(freeze, place), row, table->row_stride);
    *kept = place;
}

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
    freeze->segments = muster_mem_alloc_zero(mem, (size_t)region->head->segment_count,
                                             sizeof(*freeze->segments));
    region->freeze = freeze;
    if (freeze->segments != NULL && positions_copy(freeze, region))
        return MUSTER_OK;
    muster_params_freeze_end(region);
    return MUSTER_RESOURCE_EXHAUSTED;
}

struct muster_params_freeze *muster_params_freeze_take(struct muster_params_region *region)
{
    struct muster_params_freeze *freeze = region->freeze;

    region->freeze = NULL;
    return freeze;
}

bool muster_params_freeze_shrink(struct muster_params_freeze *freeze, uint32_t block_count)
{
    if (freeze == NULL)
        return false;
    for (; block_count > 0 && freeze->block_count > 0; block_count--)
        muster_mem_free(freeze->mem, freeze->blocks[--freeze->block_count]);
    if (freeze->block_count > 0)
        return true;
    muster_mem_free(freeze->mem, freeze->blocks);
    muster_mem_free(freeze->mem, freeze->segments);
    muster_mem_free(freeze->mem, freeze->positions);
    muster_mem_free(freeze->mem, freeze);
    return false;
}

void muster_params_freeze_end(struct muster_params_region *region)
{
    (void)muster_params_freeze_shrink(muster_params_freeze_take(region), UINT32_MAX);
}

bool muster_params_freeze_is_short(const struct muster_params_freeze *freeze)
{
    return freeze->is_short;
}

void muster_params_freeze_release(struct muster_params_freeze *freeze, uint32_t shard)
{
    freeze->released[shard / 8] |= (uint8_t)(1u << shard % 8);
}

const struct muster_params_row *muster_params_frozen_row(
    const struct muster_params_region *region, const struct muster_params_store_table *table,
    const struct muster_params_row *row)
{
    const uint32_t *kept =
        kept_find(region->freeze, muster_params_offset(region, row), table, false);

    if (kept == NULL || *kept == 0)
        return row;
    return *kept == NEVER ? NULL : room_at(region->freeze, *kept);
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
