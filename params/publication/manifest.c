/* Layout, hashes and bytes of a manifest. Packed, little endian: a head of 32 bytes, 16 for each tensor, the
 * names one after the other, 16 for each chunk. Offsets and the size of the range are not in it: both sides
 * determine them alike. */
#include "params/publication/manifest.h"

#include <stdlib.h>
#include <string.h>

#define MANIFEST_MAGIC  0x52455650u /* "PVER" */
#define MANIFEST_FORMAT 1u

struct packed_head {
    uint32_t magic;
    uint32_t format;
    uint64_t version;
    uint32_t tensor_count;
    uint32_t name_bytes;
    uint32_t chunk_count;
    uint32_t reserved;
};

struct packed_tensor {
    uint64_t count;
    uint32_t dtype;
    uint32_t name_bytes;
};
_Static_assert(sizeof(struct packed_head) == 32, "no padding");
_Static_assert(sizeof(struct packed_tensor) == 16, "no padding");

static enum muster_rc manifest_refuse(struct muster_error *ret_error, const char *part)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the manifest of a version is malformed: %s", part);
}

static uint64_t tensor_bytes(const struct muster_version_tensor *tensor)
{
    return tensor->count * muster_dtype_bytes(tensor->dtype);
}

/* --- Layout --- */

/* The range's size stays far below 2^64, so that no sum here overflows. */
static enum muster_rc range_lay_out(struct muster_version_manifest *manifest,
                                    struct muster_error *ret_error)
{
    const uint64_t bytes_max = (uint64_t)MUSTER_VERSION_CHUNKS_MAX * MUSTER_VERSION_CHUNK_BYTES;
    uint64_t end = 0;

    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        struct muster_version_tensor *tensor = &manifest->tensors[i];
        size_t element = muster_dtype_bytes(tensor->dtype);

        if (element == 0)
            return manifest_refuse(ret_error, "the type of a tensor");
        tensor->offset =
            (end + MUSTER_VERSION_ALIGN - 1) / MUSTER_VERSION_ALIGN * MUSTER_VERSION_ALIGN;
        if (tensor->offset > bytes_max || tensor->count > (bytes_max - tensor->offset) / element)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                    "a version may have at most 1 TiB; publish fewer tensors");
        end = tensor->offset + tensor_bytes(tensor);
    }
    manifest->bytes = end;
    manifest->chunk_count =
        (uint32_t)((end + MUSTER_VERSION_CHUNK_BYTES - 1) / MUSTER_VERSION_CHUNK_BYTES);
    return MUSTER_OK;
}

static int names_compare(const void *a, const void *b)
{
    const char *const *left = a, *const *right = b;

    return strcmp(*left, *right);
}

/* Sorted, because a comparison of each with each takes minutes with as many as there may be. */
static enum muster_rc names_check(const struct muster_version_manifest *manifest,
                                  struct muster_error *ret_error)
{
    const char **names =
        muster_mem_alloc_zero(manifest->mem, manifest->tensor_count, sizeof(*names));
    enum muster_rc rc = MUSTER_OK;

    if (names == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a manifest");
    for (uint32_t i = 0; i < manifest->tensor_count; i++)
        names[i] = manifest->tensors[i].name;
    qsort(names, manifest->tensor_count, sizeof(*names), names_compare);
    for (uint32_t i = 1; i < manifest->tensor_count && rc == MUSTER_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "a version must have each name once, got \"%s\" twice", names[i]);
    }
    muster_mem_free(manifest->mem, names);
    return rc;
}

static enum muster_rc manifest_alloc(struct muster_version_manifest *manifest, size_t name_bytes)
{
    manifest->tensors =
        muster_mem_alloc_zero(manifest->mem, manifest->tensor_count, sizeof(*manifest->tensors));
    manifest->names = muster_mem_alloc(manifest->mem, name_bytes + manifest->tensor_count);
    return manifest->tensors == NULL || manifest->names == NULL ? MUSTER_RESOURCE_EXHAUSTED
                                                                : MUSTER_OK;
}

/* The checks that need all tensors, and what follows from them. */
static enum muster_rc manifest_complete(struct muster_version_manifest *manifest,
                                        struct muster_error *ret_error)
{
    enum muster_rc rc = range_lay_out(manifest, ret_error);

    if (rc == MUSTER_OK)
        rc = names_check(manifest, ret_error);
    return rc;
}

static enum muster_rc hashes_alloc(struct muster_version_manifest *manifest,
                                   struct muster_error *ret_error)
{
    manifest->hashes =
        muster_mem_alloc_zero(manifest->mem, manifest->chunk_count, sizeof(*manifest->hashes));
    if (manifest->hashes == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a manifest");
    return MUSTER_OK;
}

static enum muster_rc tensors_check(const struct muster_version_tensor *tensors, size_t count,
                                    size_t *ret_name_bytes, struct muster_error *ret_error)
{
    size_t name_bytes = 0;

    if (count > MUSTER_VERSION_TENSORS_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "a version may have at most %u tensors, got %zu",
                                MUSTER_VERSION_TENSORS_MAX, count);
    for (size_t i = 0; i < count; i++) {
        size_t length = strnlen(tensors[i].name, MUSTER_VERSION_NAME_MAX + 1);

        if (length == 0 || length > MUSTER_VERSION_NAME_MAX)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the name of a tensor must have 1 to %u bytes, got \"%.40s\"",
                                    MUSTER_VERSION_NAME_MAX, tensors[i].name);
        name_bytes += length;
    }
    *ret_name_bytes = name_bytes;
    return MUSTER_OK;
}

enum muster_rc muster_version_manifest_init(struct muster_mem *mem, uint64_t version,
                                            const struct muster_version_tensor *tensors,
                                            size_t count,
                                            struct muster_version_manifest *ret_manifest,
                                            struct muster_error *ret_error)
{
    struct muster_version_manifest manifest = {.mem = mem, .version = version};
    size_t name_bytes = 0;
    char *name;
    enum muster_rc rc;

    if (version == 0)
        return manifest_refuse(ret_error, "version 0");
    rc = tensors_check(tensors, count, &name_bytes, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    manifest.tensor_count = (uint32_t)count;
    rc = manifest_alloc(&manifest, name_bytes);
    if (rc != MUSTER_OK) {
        muster_version_manifest_fini(&manifest);
        return muster_error_set(ret_error, rc, "no memory for a manifest");
    }
    name = manifest.names;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(tensors[i].name) + 1;

        manifest.tensors[i] = tensors[i];
        manifest.tensors[i].name = memcpy(name, tensors[i].name, length);
        name += length;
    }
    rc = manifest_complete(&manifest, ret_error);
    if (rc == MUSTER_OK)
        rc = hashes_alloc(&manifest, ret_error);
    if (rc != MUSTER_OK) {
        muster_version_manifest_fini(&manifest);
        return rc;
    }
    *ret_manifest = manifest;
    return MUSTER_OK;
}

void muster_version_manifest_fini(struct muster_version_manifest *manifest)
{
    if (manifest->mem == NULL)
        return;
    muster_mem_free(manifest->mem, manifest->tensors);
    muster_mem_free(manifest->mem, manifest->names);
    muster_mem_free(manifest->mem, manifest->hashes);
    memset(manifest, 0, sizeof(*manifest));
}

/* --- The range --- */

void muster_version_range_write(const struct muster_version_manifest *manifest,
                                const void *const *data, void *range)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        const struct muster_version_tensor *tensor = &manifest->tensors[i];
        uint64_t bytes = tensor_bytes(tensor);

        memset((uint8_t *)range + end, 0, tensor->offset - end);
        if (bytes > 0)
            memcpy((uint8_t *)range + tensor->offset, data[i], bytes);
        end = tensor->offset + bytes;
    }
}

uint32_t muster_version_chunk_bytes(const struct muster_version_manifest *manifest, uint32_t chunk)
{
    uint64_t rest;

    MUSTER_ASSERT(chunk < manifest->chunk_count);
    rest = manifest->bytes - (uint64_t)chunk * MUSTER_VERSION_CHUNK_BYTES;
    return rest < MUSTER_VERSION_CHUNK_BYTES ? (uint32_t)rest : MUSTER_VERSION_CHUNK_BYTES;
}

/* The first tensor that ends after `begin`: offsets rise. */
static uint32_t tensor_at(const struct muster_version_manifest *manifest, uint64_t begin)
{
    uint32_t low = 0, high = manifest->tensor_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct muster_version_tensor *tensor = &manifest->tensors[middle];

        if (tensor->offset + tensor_bytes(tensor) <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t muster_version_chunk_element_bytes(const struct muster_version_manifest *manifest,
                                            uint32_t chunk)
{
    uint64_t begin = (uint64_t)chunk * MUSTER_VERSION_CHUNK_BYTES;
    uint64_t end = begin + muster_version_chunk_bytes(manifest, chunk);
    size_t element = 4;

    for (uint32_t i = tensor_at(manifest, begin);
         i < manifest->tensor_count && manifest->tensors[i].offset < end; i++) {
        size_t bytes = muster_dtype_bytes(manifest->tensors[i].dtype);

        if (manifest->tensors[i].count > 0 && bytes < element)
            element = bytes;
    }
    return (uint32_t)element;
}

/* --- Hashes --- */

void muster_version_manifest_hash_chunk(struct muster_version_manifest *manifest, uint32_t chunk,
                                        const void *bytes)
{
    muster_hash128(bytes, muster_version_chunk_bytes(manifest, chunk), manifest->hashes[chunk]);
}

bool muster_version_chunk_is_valid(const struct muster_version_manifest *manifest, uint32_t chunk,
                                   const void *bytes)
{
    uint8_t hash[MUSTER_HASH128_BYTES];

    muster_hash128(bytes, muster_version_chunk_bytes(manifest, chunk), hash);
    return memcmp(hash, manifest->hashes[chunk], sizeof(hash)) == 0;
}

enum muster_rc muster_version_range_check(const struct muster_version_manifest *manifest,
                                          const void *range, struct muster_error *ret_error)
{
    for (uint32_t i = 0; i < manifest->chunk_count; i++) {
        const uint8_t *bytes = (const uint8_t *)range + (size_t)i * MUSTER_VERSION_CHUNK_BYTES;

        if (!muster_version_chunk_is_valid(manifest, i, bytes))
            return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                    "chunk %u of %u of a version has other bytes than its manifest "
                                    "says",
                                    i, manifest->chunk_count);
    }
    return MUSTER_OK;
}

void muster_version_manifest_root(const void *bytes, size_t size,
                                  uint8_t ret_root[MUSTER_HASH128_BYTES])
{
    muster_hash128(bytes, size, ret_root);
}

/* --- Bytes --- */

/* Counts are within their limits, so the sum fits 64 bits. */
static uint64_t packed_bytes(const struct packed_head *head)
{
    return sizeof(*head) + (uint64_t)head->tensor_count * sizeof(struct packed_tensor) +
           head->name_bytes + (uint64_t)head->chunk_count * MUSTER_HASH128_BYTES;
}

static struct packed_head head_of(const struct muster_version_manifest *manifest)
{
    struct packed_head head = {.magic = MANIFEST_MAGIC,
                               .format = MANIFEST_FORMAT,
                               .version = manifest->version,
                               .tensor_count = manifest->tensor_count,
                               .chunk_count = manifest->chunk_count};

    for (uint32_t i = 0; i < manifest->tensor_count; i++)
        head.name_bytes += (uint32_t)strlen(manifest->tensors[i].name);
    return head;
}

uint64_t muster_version_manifest_packed_bytes(const struct muster_version_manifest *manifest)
{
    const struct packed_head head = head_of(manifest);

    return packed_bytes(&head);
}

enum muster_rc muster_version_manifest_pack(const struct muster_version_manifest *manifest,
                                            void **ret_bytes, size_t *ret_size)
{
    const struct packed_head head = head_of(manifest);
    uint8_t *bytes, *at;

    bytes = muster_mem_alloc(manifest->mem, packed_bytes(&head));
    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(bytes, &head, sizeof(head));
    at = bytes + sizeof(head);
    for (uint32_t i = 0; i < manifest->tensor_count; i++, at += sizeof(struct packed_tensor)) {
        const struct muster_version_tensor *tensor = &manifest->tensors[i];
        struct packed_tensor packed = {tensor->count, (uint32_t)tensor->dtype,
                                       (uint32_t)strlen(tensor->name)};

        memcpy(at, &packed, sizeof(packed));
    }
    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        size_t length = strlen(manifest->tensors[i].name);

        memcpy(at, manifest->tensors[i].name, length);
        at += length;
    }
    if (manifest->chunk_count > 0)
        memcpy(at, manifest->hashes, (size_t)manifest->chunk_count * MUSTER_HASH128_BYTES);
    *ret_bytes = bytes;
    *ret_size = packed_bytes(&head);
    return MUSTER_OK;
}

static enum muster_rc head_read(const void *bytes, size_t size, struct packed_head *ret_head,
                                struct muster_error *ret_error)
{
    if (size < sizeof(*ret_head) || size > MUSTER_VERSION_MANIFEST_BYTES_MAX)
        return manifest_refuse(ret_error, "its size");
    memcpy(ret_head, bytes, sizeof(*ret_head));
    if (ret_head->magic != MANIFEST_MAGIC)
        return manifest_refuse(ret_error, "its first bytes");
    if (ret_head->format != MANIFEST_FORMAT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the manifest of a version has format %u, this program reads %u",
                                ret_head->format, MANIFEST_FORMAT);
    if (ret_head->version == 0)
        return manifest_refuse(ret_error, "version 0");
    if (ret_head->reserved != 0)
        return manifest_refuse(ret_error, "the reserved bytes");
    if (ret_head->tensor_count > MUSTER_VERSION_TENSORS_MAX)
        return manifest_refuse(ret_error, "the number of tensors");
    if (ret_head->chunk_count > MUSTER_VERSION_CHUNKS_MAX)
        return manifest_refuse(ret_error, "the number of chunks");
    if (size != packed_bytes(ret_head))
        return manifest_refuse(ret_error, "its size");
    return MUSTER_OK;
}

/* `at` has head->tensor_count records and after them head->name_bytes of names. */
static enum muster_rc tensors_read(struct muster_version_manifest *manifest,
                                   const struct packed_head *head, const uint8_t *at,
                                   struct muster_error *ret_error)
{
    const uint8_t *names = at + (size_t)head->tensor_count * sizeof(struct packed_tensor);
    uint32_t names_left = head->name_bytes;
    char *name = manifest->names;

    for (uint32_t i = 0; i < head->tensor_count; i++, at += sizeof(struct packed_tensor)) {
        struct packed_tensor packed;

        memcpy(&packed, at, sizeof(packed));
        if (packed.name_bytes == 0 || packed.name_bytes > MUSTER_VERSION_NAME_MAX ||
            packed.name_bytes > names_left || memchr(names, 0, packed.name_bytes) != NULL)
            return manifest_refuse(ret_error, "the name of a tensor");
        memcpy(name, names, packed.name_bytes);
        name[packed.name_bytes] = 0;
        manifest->tensors[i] = (struct muster_version_tensor){
            .name = name, .dtype = (enum muster_dtype)packed.dtype, .count = packed.count};
        names += packed.name_bytes;
        names_left -= packed.name_bytes;
        name += packed.name_bytes + 1;
    }
    return names_left == 0 ? MUSTER_OK : manifest_refuse(ret_error, "the names of the tensors");
}

static enum muster_rc body_read(struct muster_version_manifest *manifest,
                                const struct packed_head *head, const uint8_t *at,
                                struct muster_error *ret_error)
{
    enum muster_rc rc = tensors_read(manifest, head, at, ret_error);

    if (rc == MUSTER_OK)
        rc = manifest_complete(manifest, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (manifest->chunk_count != head->chunk_count)
        return manifest_refuse(ret_error, "the number of chunks");
    rc = hashes_alloc(manifest, ret_error);
    if (rc == MUSTER_OK && head->chunk_count > 0)
        memcpy(manifest->hashes,
               at + (size_t)head->tensor_count * sizeof(struct packed_tensor) + head->name_bytes,
               (size_t)head->chunk_count * MUSTER_HASH128_BYTES);
    return rc;
}

enum muster_rc muster_version_manifest_unpack(struct muster_mem *mem, const void *bytes,
                                              size_t size,
                                              struct muster_version_manifest *ret_manifest,
                                              struct muster_error *ret_error)
{
    struct muster_version_manifest manifest = {.mem = mem};
    struct packed_head head;
    enum muster_rc rc = head_read(bytes, size, &head, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    manifest.version = head.version;
    manifest.tensor_count = head.tensor_count;
    if (manifest_alloc(&manifest, head.name_bytes) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a manifest");
    else
        rc = body_read(&manifest, &head, (const uint8_t *)bytes + sizeof(head), ret_error);
    if (rc != MUSTER_OK) {
        muster_version_manifest_fini(&manifest);
        return rc;
    }
    *ret_manifest = manifest;
    return MUSTER_OK;
}
