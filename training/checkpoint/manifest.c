/* The manifest, little endian: a head of 64 bytes, 32 for each tensor, 32 for each shard, the names of the tensors, and
 * XXH3-128 of all before. */
#include "training/checkpoint/manifest.h"

#include <string.h>

#define MAGIC       "MUSTERCK"
#define DTYPE_BYTES 8u
#define CHUNK       MUSTER_CHECKPOINT_CHUNK_BYTES

struct packed_head {
    char magic[8];
    uint32_t version;
    uint32_t chunk_bytes;
    uint64_t step, id;
    uint64_t saved_wall_ns;
    uint64_t state_bytes;
    uint32_t tensor_count, shard_count;
    uint64_t names_bytes;
};
struct packed_tensor {
    uint64_t count, offset;
    uint32_t name_at, name_bytes;
    char dtype[DTYPE_BYTES]; /* "f32", zeros after it */
};
_Static_assert(sizeof(struct packed_head) == 64, "no padding");
_Static_assert(sizeof(struct packed_tensor) == 32, "no padding");
_Static_assert(sizeof(struct muster_checkpoint_shard) == 32, "no padding");

void muster_checkpoint_cut(uint64_t state_bytes, uint32_t shard, uint32_t shard_count,
                           uint64_t *ret_offset, uint64_t *ret_bytes)
{
    uint64_t chunks = (state_bytes + CHUNK - 1) / CHUNK;
    uint64_t each = chunks / shard_count, more = chunks % shard_count;
    uint64_t first = each * shard + (shard < more ? shard : more);
    uint64_t end = first + each + (shard < more);

    *ret_offset = first * CHUNK < state_bytes ? first * CHUNK : state_bytes;
    *ret_bytes = (end * CHUNK < state_bytes ? end * CHUNK : state_bytes) - *ret_offset;
}

static struct muster_checkpoint *checkpoint_alloc(struct muster_mem *mem, const char *folder,
                                                  uint32_t tensor_count, uint32_t shard_count,
                                                  size_t names_bytes)
{
    struct muster_checkpoint *made = muster_mem_alloc_zero(mem, 1, sizeof(*made));

    if (made == NULL)
        return NULL;
    made->mem = mem;
    made->tensor_count = tensor_count;
    made->shard_count = shard_count;
    made->tensors = muster_mem_alloc_zero(mem, (size_t)tensor_count + 1, sizeof(made->tensors[0]));
    made->shards = muster_mem_alloc_zero(mem, shard_count, sizeof(made->shards[0]));
    made->names = muster_mem_alloc_zero(mem, names_bytes + 1, 1);
    made->folder = muster_mem_strdup(mem, folder);
    if (made->tensors != NULL && made->shards != NULL && made->names != NULL &&
        made->folder != NULL)
        return made;
    muster_checkpoint_close(made);
    return NULL;
}

void muster_checkpoint_close(struct muster_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    muster_mem_free(checkpoint->mem, checkpoint->tensors);
    muster_mem_free(checkpoint->mem, checkpoint->shards);
    muster_mem_free(checkpoint->mem, checkpoint->names);
    muster_mem_free(checkpoint->mem, checkpoint->folder);
    muster_mem_free(checkpoint->mem, checkpoint);
}

static size_t names_bytes_of(const struct muster_checkpoint_tensor *tensors, uint32_t count)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < count; i++)
        bytes += strlen(tensors[i].name) + 1;
    return bytes;
}

enum muster_rc muster_checkpoint_new(struct muster_mem *mem, const char *folder,
                                     const struct muster_checkpoint_tensor *tensors,
                                     uint32_t tensor_count, uint32_t shard_count,
                                     struct muster_checkpoint **ret_checkpoint)
{
    struct muster_checkpoint *made;
    char *at;

    if (shard_count == 0 || shard_count > MUSTER_CHECKPOINT_SHARDS_MAX)
        return MUSTER_INVALID_ARGUMENT;
    made = checkpoint_alloc(mem, folder, tensor_count, shard_count,
                            names_bytes_of(tensors, tensor_count));
    if (made == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    at = made->names;
    for (uint32_t i = 0; i < tensor_count; i++) {
        size_t bytes = strlen(tensors[i].name) + 1;

        memcpy(at, tensors[i].name, bytes);
        made->tensors[i] = (struct muster_checkpoint_tensor){.name = at,
                                                             .dtype = tensors[i].dtype,
                                                             .count = tensors[i].count,
                                                             .offset = made->state_bytes};
        made->state_bytes += tensors[i].count * muster_dtype_bytes(tensors[i].dtype);
        at += bytes;
    }
    for (uint32_t i = 0; i < shard_count; i++)
        muster_checkpoint_cut(made->state_bytes, i, shard_count, &made->shards[i].offset,
                              &made->shards[i].bytes);
    *ret_checkpoint = made;
    return MUSTER_OK;
}

/* --- Bytes --- */

static size_t packed_bytes(const struct packed_head *head)
{
    return sizeof(*head) + (size_t)head->tensor_count * sizeof(struct packed_tensor) +
           (size_t)head->shard_count * sizeof(struct muster_checkpoint_shard) +
           (size_t)head->names_bytes + MUSTER_HASH128_BYTES;
}

static void tensors_pack(const struct muster_checkpoint *checkpoint, uint8_t *to)
{
    for (uint32_t i = 0; i < checkpoint->tensor_count; i++) {
        const struct muster_checkpoint_tensor *tensor = &checkpoint->tensors[i];
        const char *dtype = muster_dtype_name(tensor->dtype);
        struct packed_tensor packed = {.count = tensor->count,
                                       .offset = tensor->offset,
                                       .name_at = (uint32_t)(tensor->name - checkpoint->names),
                                       .name_bytes = (uint32_t)strlen(tensor->name)};

        MUSTER_ASSERT(strlen(dtype) < DTYPE_BYTES);
        memcpy(packed.dtype, dtype, strlen(dtype));
        memcpy(to + i * sizeof(packed), &packed, sizeof(packed));
    }
}

enum muster_rc muster_checkpoint_manifest_pack(const struct muster_checkpoint *checkpoint,
                                               void **ret_bytes, size_t *ret_size)
{
    struct packed_head head = {.version = MUSTER_CHECKPOINT_VERSION,
                               .chunk_bytes = CHUNK,
                               .step = checkpoint->name.step,
                               .id = checkpoint->name.id,
                               .saved_wall_ns = checkpoint->saved_wall_ns,
                               .state_bytes = checkpoint->state_bytes,
                               .tensor_count = checkpoint->tensor_count,
                               .shard_count = checkpoint->shard_count,
                               .names_bytes =
                                   names_bytes_of(checkpoint->tensors, checkpoint->tensor_count)};
    size_t size = packed_bytes(&head);
    uint8_t *bytes = muster_mem_alloc_zero(checkpoint->mem, 1, size), *at = bytes;

    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(head.magic, MAGIC, sizeof(head.magic));
    memcpy(at, &head, sizeof(head));
    at += sizeof(head);
    tensors_pack(checkpoint, at);
    at += checkpoint->tensor_count * sizeof(struct packed_tensor);
    memcpy(at, checkpoint->shards, checkpoint->shard_count * sizeof(checkpoint->shards[0]));
    at += checkpoint->shard_count * sizeof(checkpoint->shards[0]);
    memcpy(at, checkpoint->names, (size_t)head.names_bytes);
    muster_hash128(bytes, size - MUSTER_HASH128_BYTES, bytes + size - MUSTER_HASH128_BYTES);
    *ret_bytes = bytes;
    *ret_size = size;
    return MUSTER_OK;
}

static enum muster_rc head_read(const void *bytes, size_t size, struct packed_head *ret_head,
                                struct muster_error *ret_error)
{
    uint8_t hash[MUSTER_HASH128_BYTES];

    if (size < sizeof(*ret_head) + sizeof(hash))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is cut short");
    memcpy(ret_head, bytes, sizeof(*ret_head));
    if (memcmp(ret_head->magic, MAGIC, sizeof(ret_head->magic)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is not the manifest of a checkpoint");
    if (ret_head->version != MUSTER_CHECKPOINT_VERSION)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "has version %u, this program reads %u", ret_head->version,
                                MUSTER_CHECKPOINT_VERSION);
    muster_hash128(bytes, size - sizeof(hash), hash);
    if (memcmp(hash, (const uint8_t *)bytes + size - sizeof(hash), sizeof(hash)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "is damaged");
    if (ret_head->names_bytes > size || ret_head->shard_count == 0 ||
        ret_head->shard_count > MUSTER_CHECKPOINT_SHARDS_MAX || ret_head->chunk_bytes != CHUNK ||
        size != packed_bytes(ret_head))
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "has another size than it says");
    return MUSTER_OK;
}

static bool dtype_parse(const char text[DTYPE_BYTES], enum muster_dtype *ret_dtype)
{
    for (unsigned i = 0; muster_dtype_bytes((enum muster_dtype)i) > 0; i++)
        if (strncmp(text, muster_dtype_name((enum muster_dtype)i), DTYPE_BYTES) == 0) {
            *ret_dtype = (enum muster_dtype)i;
            return true;
        }
    return false;
}

/* The hash was right, so a wrong writer made the file, or somebody who lies. */
static enum muster_rc misfit_refuse(struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                            "has tensors or shards that do not fit its state");
}

static enum muster_rc tensors_unpack(struct muster_checkpoint *made, const uint8_t *from,
                                     size_t names_bytes, struct muster_error *ret_error)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < made->tensor_count; i++) {
        struct muster_checkpoint_tensor *tensor = &made->tensors[i];
        struct packed_tensor packed;
        size_t bytes;

        memcpy(&packed, from + i * sizeof(packed), sizeof(packed));
        if (packed.name_at >= names_bytes || packed.name_bytes >= names_bytes - packed.name_at ||
            strlen(made->names + packed.name_at) != packed.name_bytes)
            return misfit_refuse(ret_error);
        if (!dtype_parse(packed.dtype, &tensor->dtype))
            return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                    "has tensor %.80s of type %.*s, which this program does not "
                                    "know; read it with a newer one",
                                    made->names + packed.name_at, DTYPE_BYTES, packed.dtype);
        bytes = muster_dtype_bytes(tensor->dtype);
        if (packed.offset != offset || packed.count > (made->state_bytes - offset) / bytes)
            return misfit_refuse(ret_error);
        tensor->name = made->names + packed.name_at;
        tensor->count = packed.count;
        tensor->offset = offset;
        offset += packed.count * bytes;
    }
    return offset == made->state_bytes ? MUSTER_OK : misfit_refuse(ret_error);
}

static bool shards_are_valid(const struct muster_checkpoint *made)
{
    for (uint32_t i = 0; i < made->shard_count; i++) {
        uint64_t offset, bytes;

        muster_checkpoint_cut(made->state_bytes, i, made->shard_count, &offset, &bytes);
        if (made->shards[i].offset != offset || made->shards[i].bytes != bytes)
            return false;
    }
    return true;
}

enum muster_rc muster_checkpoint_manifest_unpack(struct muster_mem *mem, const char *folder,
                                                 const void *bytes, size_t size,
                                                 struct muster_checkpoint **ret_checkpoint,
                                                 struct muster_error *ret_error)
{
    const uint8_t *at = (const uint8_t *)bytes + sizeof(struct packed_head), *shards;
    struct muster_checkpoint *made;
    struct packed_head head;
    enum muster_rc rc = head_read(bytes, size, &head, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    made = checkpoint_alloc(mem, folder, head.tensor_count, head.shard_count,
                            (size_t)head.names_bytes);
    if (made == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "finds no memory");
    made->name = (struct muster_checkpoint_name){.step = head.step, .id = head.id};
    made->saved_wall_ns = head.saved_wall_ns;
    made->state_bytes = head.state_bytes;
    shards = at + (size_t)head.tensor_count * sizeof(struct packed_tensor);
    memcpy(made->shards, shards, head.shard_count * sizeof(made->shards[0]));
    memcpy(made->names, shards + head.shard_count * sizeof(made->shards[0]),
           (size_t)head.names_bytes);
    if (head.state_bytes > UINT64_MAX - CHUNK)
        rc = misfit_refuse(ret_error);
    if (rc == MUSTER_OK)
        rc = tensors_unpack(made, at, (size_t)head.names_bytes, ret_error);
    if (rc == MUSTER_OK && !shards_are_valid(made))
        rc = misfit_refuse(ret_error);
    if (rc != MUSTER_OK) {
        muster_checkpoint_close(made);
        return rc;
    }
    *ret_checkpoint = made;
    return MUSTER_OK;
}
