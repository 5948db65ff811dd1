/* The file, little endian: a head of 64 bytes, a hash for each 256 KiB of the body, and the body: for each
 * table with rows its name, widths and rows, then the positions of sources. */
#include "params/snapshot/shard.h"

#include <string.h>

#include "params/store/freeze.h"
#include "params/store/source.h"

#define SHARD_MAGIC 0x53534d50u /* "PMSS" */
#define BLOCK       MUSTER_PARAMS_SNAPSHOT_BLOCK_BYTES

struct packed_head {
    uint32_t magic;
    uint32_t version;
    uint64_t cut;
    uint32_t shard;
    uint32_t shard_count;
    uint32_t section_count;
    uint32_t source_count;
    uint64_t body_bytes;
    uint32_t block_count;
    uint32_t
        nameless_count; /* sources behind the others, which servers may forget; older files have 0 */
    uint32_t reserved[4];
};

struct packed_section {
    char table[MUSTER_PARAMS_NAME_BYTES];
    uint32_t row_elements;
    uint32_t state_elements;
    uint64_t row_count;
};

struct packed_row {
    uint64_t key;
    uint32_t clock;
    uint32_t reserved;
};

struct packed_source {
    uint8_t id[16];
    uint64_t generation;
    uint64_t position;
};
_Static_assert(sizeof(struct packed_head) == 64, "no padding");
_Static_assert(sizeof(struct packed_section) == 80, "no padding");
_Static_assert(sizeof(struct packed_row) == 16, "no padding");
_Static_assert(sizeof(struct packed_source) == 32, "no padding");

static size_t values_bytes(uint32_t row_elements, uint32_t state_elements)
{
    return (((size_t)row_elements + state_elements) * sizeof(float) + 7) / 8 * 8;
}

static size_t hashed_bytes(const struct packed_head *head)
{
    return sizeof(*head) + (size_t)head->block_count * MUSTER_HASH128_BYTES;
}

static size_t block_bytes(const struct packed_head *head, uint32_t block)
{
    uint64_t rest = head->body_bytes - (uint64_t)block * BLOCK;

    return rest < BLOCK ? (size_t)rest : BLOCK;
}

/* --- Packing --- */

/* A region that is frozen is packed as the freeze has it. */
static uint64_t sources_count(const struct muster_params_region *region)
{
    return region->freeze != NULL ? muster_params_frozen_sources(region->freeze)
                                  : region->head->source_count;
}

static uint64_t position_of(const struct muster_params_snapshot_packing *packing, uint64_t slot)
{
    return packing->region->freeze != NULL
               ? muster_params_frozen_position(packing->region, slot, packing->shard)
               : muster_params_source_at(packing->region, slot)->positions[packing->shard];
}

static bool source_is_kept(const struct muster_params_snapshot_packing *packing, uint64_t slot)
{
    const struct muster_params_source *source = muster_params_source_at(packing->region, slot);

    return source->generation != 0 && position_of(packing, slot) != 0 &&
           (packing->is_kept == NULL || packing->is_kept(packing->data, source));
}

static size_t row_bytes(const struct muster_params_store_table *table)
{
    return sizeof(struct packed_row) + values_bytes(table->row_elements, table->state_elements);
}

static uint64_t blocks_of(uint64_t body_bytes)
{
    return (body_bytes + BLOCK - 1) / BLOCK;
}

static uint64_t body_bytes_max(const struct muster_params_snapshot_packing *packing)
{
    const struct muster_params_region_head *region = packing->region->head;
    uint64_t bytes = sources_count(packing->region) * sizeof(struct packed_source);

    for (uint32_t i = 0; i < region->table_count; i++)
        bytes +=
            sizeof(struct packed_section) +
            row_bytes(&region->tables[i]) *
                muster_params_shard_places(packing->region, &region->tables[i], packing->shard);
    return bytes;
}

static enum muster_rc room_reserve(struct muster_params_snapshot_packing *packing, uint64_t bytes)
{
    uint8_t *room;

    if (bytes <= packing->capacity)
        return MUSTER_OK;
    room = muster_mem_alloc(packing->mem, (size_t)(bytes + bytes / 4));
    if (room == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    muster_mem_free(packing->mem, packing->bytes);
    packing->bytes = room;
    packing->capacity = (size_t)(bytes + bytes / 4);
    return MUSTER_OK;
}

enum muster_rc muster_params_snapshot_packing_begin(struct muster_params_snapshot_packing *packing,
                                                    const struct muster_params_region *region,
                                                    uint32_t shard, uint64_t cut)
{
    uint64_t body_max;
    enum muster_rc rc;

    packing->region = region;
    packing->shard = shard;
    packing->shard_count = region->head->shard_count;
    packing->cut = cut;
    body_max = body_bytes_max(packing);
    packing->body_at =
        sizeof(struct packed_head) + (size_t)blocks_of(body_max) * MUSTER_HASH128_BYTES;
    rc = room_reserve(packing, packing->body_at + body_max);
    packing->used = packing->section_at = packing->body_at;
    packing->table = packing->section_count = packing->source_count = packing->nameless_count = 0;
    packing->cursor = (struct muster_params_row_cursor){.page = 0};
    packing->entry = (struct muster_params_snapshot_shard){0};
    return rc;
}

static void bytes_put(struct muster_params_snapshot_packing *packing, const void *bytes,
                      size_t count)
{
    MUSTER_ASSERT(packing->capacity - packing->used >= count);
    memcpy(packing->bytes + packing->used, bytes, count);
    packing->used += count;
}

static void row_put(void *data, const struct muster_params_store_table *table,
                    const struct muster_params_row *row)
{
    const struct packed_row packed = {.key = row->key, .clock = row->clock};
    struct muster_params_snapshot_packing *packing = data;
    size_t count = ((size_t)table->row_elements + table->state_elements) * sizeof(row->values[0]);
    size_t padding = row_bytes(table) - sizeof(packed) - count;

    bytes_put(packing, &packed, sizeof(packed));
    bytes_put(packing, row->values, count);
    memset(packing->bytes + packing->used, 0, padding);
    packing->used += padding;
}

static void section_end(struct muster_params_snapshot_packing *packing,
                        const struct muster_params_store_table *table)
{
    struct packed_section section = {.row_elements = table->row_elements,
                                     .state_elements = table->state_elements};

    section.row_count = (packing->used - packing->section_at - sizeof(section)) / row_bytes(table);
    memcpy(section.table, table->name, sizeof(section.table));
    if (section.row_count == 0)
        packing->used = packing->section_at;
    else
        memcpy(packing->bytes + packing->section_at, &section, sizeof(section));
    packing->section_count += section.row_count > 0;
    packing->entry.rows += section.row_count;
    packing->section_at = packing->used;
    packing->cursor = (struct muster_params_row_cursor){.page = 0};
    packing->table++;
}

static void sources_put(struct muster_params_snapshot_packing *packing, bool are_named)
{
    for (uint64_t slot = 0; slot < sources_count(packing->region); slot++) {
        const struct muster_params_source *source = muster_params_source_at(packing->region, slot);
        bool is_named = (source->flags & MUSTER_PARAMS_SOURCE_NAMED) != 0;
        struct packed_source packed;

        if (is_named != are_named || !source_is_kept(packing, slot))
            continue;
        memcpy(packed.id, source->id.bytes, sizeof(packed.id));
        packed.generation = source->generation;
        packed.position = position_of(packing, slot);
        bytes_put(packing, &packed, sizeof(packed));
        packing->source_count++;
        packing->nameless_count += !is_named;
    }
}

bool muster_params_snapshot_packing_step(struct muster_params_snapshot_packing *packing,
                                         size_t bytes)
{
    const struct muster_params_region_head *region = packing->region->head;
    size_t end = packing->used + bytes;

    while (packing->table < region->table_count && packing->used < end) {
        const struct muster_params_store_table *table = &region->tables[packing->table];
        uint32_t left = (uint32_t)((end - packing->used) / row_bytes(table) + 1);

        if (packing->used == packing->section_at)
            packing->used += sizeof(struct packed_section);
        if (muster_params_frozen_rows_step(packing->region, table, packing->shard, &packing->cursor,
                                           &left, row_put, packing))
            return true; /* also where few of the places had rows */
        section_end(packing, table);
    }
    if (packing->table < region->table_count)
        return true;
    sources_put(packing, true);
    sources_put(packing, false);
    return false;
}

void muster_params_snapshot_packing_seal(struct muster_params_snapshot_packing *packing)
{
    struct packed_head head = {.magic = SHARD_MAGIC,
                               .version = MUSTER_PARAMS_SNAPSHOT_VERSION,
                               .cut = packing->cut,
                               .shard = packing->shard,
                               .shard_count = packing->shard_count,
                               .section_count = packing->section_count,
                               .source_count = packing->source_count,
                               .nameless_count = packing->nameless_count,
                               .body_bytes = packing->used - packing->body_at};
    uint8_t *body;

    head.block_count = (uint32_t)blocks_of(head.body_bytes);
    packing->entry.cut = packing->cut;
    packing->entry.bytes = hashed_bytes(&head) + head.body_bytes;
    body = packing->bytes + hashed_bytes(&head);
    if (hashed_bytes(&head) < packing->body_at) /* there were fewer rows than places */
        memmove(body, packing->bytes + packing->body_at, (size_t)head.body_bytes);
    memcpy(packing->bytes, &head, sizeof(head));
    for (uint32_t i = 0; i < head.block_count; i++)
        muster_hash128(body + (size_t)i * BLOCK, block_bytes(&head, i),
                       packing->bytes + sizeof(head) + (size_t)i * MUSTER_HASH128_BYTES);
    muster_hash128(packing->bytes, hashed_bytes(&head), packing->entry.hash);
}

void muster_params_snapshot_packing_fini(struct muster_params_snapshot_packing *packing)
{
    muster_mem_free(packing->mem, packing->bytes);
    packing->bytes = NULL;
    packing->capacity = 0;
}

/* --- Reading --- */

static enum muster_rc head_check(const struct muster_params_snapshot_manifest *manifest,
                                 uint32_t shard, const uint8_t *bytes, size_t size,
                                 struct packed_head *ret_head, struct muster_error *ret_error)
{
    const struct muster_params_snapshot_shard *entry = &manifest->shards[shard];
    uint8_t hash[MUSTER_HASH128_BYTES];

    if (size < sizeof(*ret_head))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is cut short");
    memcpy(ret_head, bytes, sizeof(*ret_head));
    if (ret_head->magic != SHARD_MAGIC)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is not the file of a shard");
    if (ret_head->version != MUSTER_PARAMS_SNAPSHOT_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "has version %u, this program reads %u", ret_head->version,
                                MUSTER_PARAMS_SNAPSHOT_VERSION);
    if (size != entry->bytes)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "must have %llu bytes, got %zu",
                                (unsigned long long)entry->bytes, size);
    if (ret_head->cut != entry->cut || ret_head->shard != shard ||
        ret_head->shard_count != manifest->shard_count)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "belongs to another cut or shard");
    if (ret_head->block_count > (size - sizeof(*ret_head)) / MUSTER_HASH128_BYTES ||
        ret_head->body_bytes != size - hashed_bytes(ret_head) ||
        ret_head->block_count != (ret_head->body_bytes + BLOCK - 1) / BLOCK)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "has another size than it says");
    muster_hash128(bytes, hashed_bytes(ret_head), hash);
    if (memcmp(hash, entry->hash, sizeof(hash)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is damaged in its head");
    return MUSTER_OK;
}

static enum muster_rc blocks_check(const struct packed_head *head, const uint8_t *bytes,
                                   struct muster_error *ret_error)
{
    const uint8_t *body = bytes + hashed_bytes(head);
    uint8_t hash[MUSTER_HASH128_BYTES];

    for (uint32_t i = 0; i < head->block_count; i++) {
        muster_hash128(body + (size_t)i * BLOCK, block_bytes(head, i), hash);
        if (memcmp(hash, bytes + sizeof(*head) + (size_t)i * sizeof(hash), sizeof(hash)) != 0)
            return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is damaged in block %u of %u", i,
                                    head->block_count);
    }
    return MUSTER_OK;
}

struct reading {
    const struct muster_params_snapshot_manifest *manifest;
    const struct muster_params_snapshot_visitor *visitor; /* NULL: only check */
    const uint8_t *at;
    size_t left;
};

/* NULL: there are not so many. */
static const uint8_t *bytes_get(struct reading *reading, uint64_t count)
{
    const uint8_t *at = reading->at;

    if (count > reading->left)
        return NULL;
    reading->at += count;
    reading->left -= (size_t)count;
    return at;
}

static bool table_find(const struct muster_params_snapshot_manifest *manifest,
                       const struct packed_section *section, uint32_t *ret_table)
{
    for (uint32_t i = 0; i < manifest->table_count; i++) {
        if (strncmp(manifest->schemas[i].name, section->table, sizeof(section->table)) == 0 &&
            manifest->schemas[i].row_elements == section->row_elements) {
            *ret_table = i;
            return true;
        }
    }
    return false;
}

static enum muster_rc section_read(struct reading *reading)
{
    _Alignas(float) uint8_t values[MUSTER_PARAMS_STRIDE_MAX];
    const uint8_t *at = bytes_get(reading, sizeof(struct packed_section));
    struct packed_section section;
    enum muster_rc rc = MUSTER_OK;
    uint32_t table;
    size_t bytes;

    if (at == NULL)
        return MUSTER_DATA_LOSS;
    memcpy(&section, at, sizeof(section));
    bytes = values_bytes(section.row_elements, section.state_elements);
    if (!table_find(reading->manifest, &section, &table) || bytes > sizeof(values))
        return MUSTER_DATA_LOSS;
    for (uint64_t i = 0; i < section.row_count && rc == MUSTER_OK; i++) {
        struct packed_row row;

        at = bytes_get(reading, sizeof(row) + bytes);
        if (at == NULL)
            return MUSTER_DATA_LOSS;
        memcpy(&row, at, sizeof(row));
        memcpy(values, at + sizeof(row), bytes);
        if (reading->visitor != NULL && reading->visitor->on_row != NULL)
            rc = reading->visitor->on_row(reading->visitor->data, table, row.key, row.clock,
                                          (const float *)(const void *)values);
    }
    return rc;
}

static enum muster_rc source_read(struct reading *reading, bool is_named)
{
    const uint8_t *at = bytes_get(reading, sizeof(struct packed_source));
    struct packed_source packed;
    struct muster_incarnation id;

    if (at == NULL)
        return MUSTER_DATA_LOSS;
    memcpy(&packed, at, sizeof(packed));
    memcpy(id.bytes, packed.id, sizeof(id.bytes));
    if (packed.generation == 0 || muster_incarnation_is_zero(&id))
        return MUSTER_DATA_LOSS;
    if (reading->visitor == NULL || reading->visitor->on_source == NULL)
        return MUSTER_OK;
    return reading->visitor->on_source(reading->visitor->data, &id, packed.generation,
                                       packed.position, is_named);
}

static enum muster_rc body_read(const struct packed_head *head, struct reading reading)
{
    enum muster_rc rc = head->nameless_count <= head->source_count ? MUSTER_OK : MUSTER_DATA_LOSS;

    for (uint32_t i = 0; i < head->section_count && rc == MUSTER_OK; i++)
        rc = section_read(&reading);
    for (uint32_t i = 0; i < head->source_count && rc == MUSTER_OK; i++)
        rc = source_read(&reading, i < head->source_count - head->nameless_count);
    return rc != MUSTER_OK || reading.left == 0 ? rc : MUSTER_DATA_LOSS;
}

enum muster_rc muster_params_snapshot_shard_visit(
    const struct muster_params_snapshot_manifest *manifest, uint32_t shard, const void *bytes,
    size_t size, const struct muster_params_snapshot_visitor *visitor,
    struct muster_error *ret_error)
{
    struct reading reading = {.manifest = manifest};
    struct packed_head head;
    enum muster_rc rc = head_check(manifest, shard, bytes, size, &head, ret_error);

    if (rc == MUSTER_OK)
        rc = blocks_check(&head, bytes, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    reading.at = (const uint8_t *)bytes + hashed_bytes(&head);
    reading.left = (size_t)head.body_bytes;
    if (body_read(&head, reading) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "has rows or sources that do not belong to its tables");
    reading.visitor = visitor;
    rc = visitor != NULL ? body_read(&head, reading) : MUSTER_OK;
    if (rc == MUSTER_RESOURCE_EXHAUSTED)
        return muster_error_set(ret_error, rc,
                                "does not fit into the memory of this server: start it with a "
                                "higher --memory-max");
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "cannot be restored");
}
