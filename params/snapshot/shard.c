/* The file, little endian: a head of 64 bytes, a hash for each 256 KiB of the body, and the body: for each
 * table with rows its name, widths and rows, then the positions of sources. */
#include "params/snapshot/shard.h"

#include <string.h>

#include "params/store/freeze.h"
#include "params/store/row.h"
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
    uint32_t reserved[5];
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

struct packing {
    const struct muster_params_region *region;
    uint32_t shard;
    muster_params_snapshot_keep_fn *is_kept;
    const void *data;
    uint8_t *at;
};

/* A region that is frozen is packed as the freeze has it. */
static uint64_t sources_count(const struct muster_params_region *region)
{
    return region->freeze != NULL ? muster_params_frozen_sources(region->freeze)
                                  : region->head->source_count;
}

static uint64_t position_of(const struct packing *packing, uint64_t slot)
{
    return packing->region->freeze != NULL
               ? muster_params_frozen_position(packing->region, slot, packing->shard)
               : muster_params_source_at(packing->region, slot)->positions[packing->shard];
}

static void rows_visit(const struct packing *packing, const struct muster_params_store_table *table,
                       muster_params_row_fn *fn, void *data)
{
    if (packing->region->freeze != NULL)
        muster_params_frozen_rows_visit(packing->region, table, packing->shard, fn, data);
    else
        muster_params_rows_visit(packing->region, table, packing->shard, fn, data);
}

static bool source_is_kept(const struct packing *packing, uint64_t slot)
{
    const struct muster_params_source *source = muster_params_source_at(packing->region, slot);

    return source->generation != 0 && position_of(packing, slot) != 0 &&
           (packing->is_kept == NULL || packing->is_kept(packing->data, source));
}

static void bytes_put(struct packing *packing, const void *bytes, size_t count)
{
    memcpy(packing->at, bytes, count);
    packing->at += count;
}

static void row_put(void *data, const struct muster_params_store_table *table,
                    const struct muster_params_row *row)
{
    const struct packed_row packed = {.key = row->key, .clock = row->clock};
    struct packing *packing = data;
    size_t count = ((size_t)table->row_elements + table->state_elements) * sizeof(row->values[0]);

    bytes_put(packing, &packed, sizeof(packed));
    memcpy(packing->at, row->values, count);
    packing->at += values_bytes(table->row_elements, table->state_elements);
}

static void row_count(void *data, const struct muster_params_store_table *table,
                      const struct muster_params_row *row)
{
    (void)table, (void)row;
    ++*(uint64_t *)data;
}

static uint64_t shard_rows(const struct packing *packing,
                           const struct muster_params_store_table *table)
{
    uint64_t count = 0;

    if (packing->region->freeze == NULL)
        return muster_params_shard_at(packing->region, table, packing->shard)->row_count;
    rows_visit(packing, table, row_count, &count);
    return count;
}

static void head_fill(const struct packing *packing, struct packed_head *head,
                      struct muster_params_snapshot_shard *shard)
{
    const struct muster_params_region_head *region = packing->region->head;

    for (uint32_t i = 0; i < region->table_count; i++) {
        const struct muster_params_store_table *table = &region->tables[i];
        uint64_t rows = shard_rows(packing, table);

        if (rows == 0)
            continue;
        head->section_count++;
        shard->rows += rows;
        head->body_bytes += sizeof(struct packed_section) +
                            rows * (sizeof(struct packed_row) +
                                    values_bytes(table->row_elements, table->state_elements));
    }
    for (uint64_t slot = 0; slot < sources_count(packing->region); slot++)
        head->source_count += source_is_kept(packing, slot);
    head->body_bytes += head->source_count * sizeof(struct packed_source);
    head->block_count = (uint32_t)((head->body_bytes + BLOCK - 1) / BLOCK);
    shard->bytes = hashed_bytes(head) + head->body_bytes;
}

static void body_put(struct packing *packing)
{
    const struct muster_params_region_head *region = packing->region->head;

    for (uint32_t i = 0; i < region->table_count; i++) {
        const struct muster_params_store_table *table = &region->tables[i];
        struct packed_section section = {.row_elements = table->row_elements,
                                         .state_elements = table->state_elements,
                                         .row_count = shard_rows(packing, table)};

        if (section.row_count == 0)
            continue;
        memcpy(section.table, table->name, sizeof(section.table));
        bytes_put(packing, &section, sizeof(section));
        rows_visit(packing, table, row_put, packing);
    }
    for (uint64_t slot = 0; slot < sources_count(packing->region); slot++) {
        const struct muster_params_source *source = muster_params_source_at(packing->region, slot);
        struct packed_source packed;

        if (!source_is_kept(packing, slot))
            continue;
        memcpy(packed.id, source->id.bytes, sizeof(packed.id));
        packed.generation = source->generation;
        packed.position = position_of(packing, slot);
        bytes_put(packing, &packed, sizeof(packed));
    }
}

enum muster_rc muster_params_snapshot_shard_pack(const struct muster_params_region *region,
                                                 uint32_t shard, uint64_t cut,
                                                 muster_params_snapshot_keep_fn *is_kept,
                                                 const void *data, struct muster_mem *mem,
                                                 void **ret_bytes,
                                                 struct muster_params_snapshot_shard *ret_shard)
{
    struct packing packing = {.region = region, .shard = shard, .is_kept = is_kept, .data = data};
    struct packed_head head = {.magic = SHARD_MAGIC,
                               .version = MUSTER_PARAMS_SNAPSHOT_VERSION,
                               .cut = cut,
                               .shard = shard,
                               .shard_count = region->head->shard_count};
    struct muster_params_snapshot_shard entry = {0};
    uint8_t *bytes, *body;

    head_fill(&packing, &head, &entry);
    bytes = muster_mem_alloc_zero(mem, 1, (size_t)entry.bytes);
    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(bytes, &head, sizeof(head));
    body = packing.at = bytes + hashed_bytes(&head);
    body_put(&packing);
    MUSTER_ASSERT(packing.at == bytes + entry.bytes);
    for (uint32_t i = 0; i < head.block_count; i++)
        muster_hash128(body + (size_t)i * BLOCK, block_bytes(&head, i),
                       bytes + sizeof(head) + (size_t)i * MUSTER_HASH128_BYTES);
    muster_hash128(bytes, hashed_bytes(&head), entry.hash);
    *ret_bytes = bytes;
    *ret_shard = entry;
    return MUSTER_OK;
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
    if (ret_head->cut != manifest->cut || ret_head->shard != shard ||
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

static enum muster_rc source_read(struct reading *reading)
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
                                       packed.position);
}

static enum muster_rc body_read(const struct packed_head *head, struct reading reading)
{
    enum muster_rc rc = MUSTER_OK;

    for (uint32_t i = 0; i < head->section_count && rc == MUSTER_OK; i++)
        rc = section_read(&reading);
    for (uint32_t i = 0; i < head->source_count && rc == MUSTER_OK; i++)
        rc = source_read(&reading);
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
    return rc == MUSTER_OK ? rc : muster_error_set(ret_error, rc, "cannot be restored");
}
