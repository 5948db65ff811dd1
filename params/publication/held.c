/* The memory of a version. */
#include "params/publication/held.h"

#include <string.h>

#include "params/publication/delta.h"
#include "runtime/system/host_memory.h"

static size_t memory_bytes(const struct muster_version_manifest *manifest)
{
    return manifest->bytes < SIZE_MAX / 2 ? (size_t)manifest->bytes + MUSTER_VERSION_ALIGN
                                          : SIZE_MAX;
}

bool muster_held_fits(const struct muster_version_manifest *manifest, uint64_t size)
{
    return size >= memory_bytes(manifest) && size < SIZE_MAX / 2;
}

/* Memory that others may have mapped is not written again. */
static void memory_give_back(struct muster_held_version *held)
{
    struct muster_held_spare *spare = held->spare;

    if (spare == NULL || spare->memory != NULL || spare->shared.bytes != NULL || held->is_mapped ||
        held->is_offered)
        return;
    spare->memory = held->memory;
    spare->shared = held->shared;
    spare->bytes = memory_bytes(&held->manifest);
    held->memory = NULL;
    held->shared.bytes = NULL;
}

static void held_free(struct muster_held_version *held)
{
    memory_give_back(held);
    muster_mem_free(held->mem, held->memory);
    muster_host_memory_close(held->host, &held->shared);
    muster_host_memory_close(held->host, &held->mapped_before);
    muster_version_manifest_fini(&held->manifest);
    muster_mem_free(held->mem, held->packed);
    muster_mem_free(held->mem, held->arrived);
    muster_mem_free(held->mem, held->tensors);
    muster_mem_free(held->mem, held);
}

void muster_held_spare_fini(struct muster_held_spare *spare, struct muster_mem *mem)
{
    muster_mem_free(mem, spare->memory);
    spare->memory = NULL;
    muster_host_memory_close(spare->host, &spare->shared);
    spare->bytes = 0;
}

/* Memory that can be shared where the owner serves others. */
static bool memory_take(struct muster_held_version *held)
{
    struct muster_held_spare *spare = held->spare;
    size_t bytes = memory_bytes(&held->manifest);

    if (spare != NULL && spare->bytes == bytes) {
        held->memory = spare->memory;
        held->shared = spare->shared;
        spare->memory = NULL;
        spare->shared.bytes = NULL;
    }
    if (spare != NULL)
        muster_held_spare_fini(spare, held->mem);
    if (held->memory == NULL && held->shared.bytes == NULL &&
        (held->host == NULL ||
         muster_host_memory_open(held->host, bytes, &held->shared) != MUSTER_OK))
        held->memory = muster_mem_alloc(held->mem, bytes);
    return held->memory != NULL || held->shared.bytes != NULL;
}

/* The range is aligned to MUSTER_VERSION_ALIGN, which suits every type of element. */
static void range_place(struct muster_held_version *held)
{
    uintptr_t begin = (uintptr_t)(held->memory != NULL ? held->memory : held->shared.bytes);

    held->range =
        (uint8_t *)((begin + MUSTER_VERSION_ALIGN - 1) & ~(uintptr_t)(MUSTER_VERSION_ALIGN - 1));
    for (uint32_t i = 0; i < held->manifest.tensor_count; i++)
        held->tensors[i].data = held->range + held->manifest.tensors[i].offset;
}

/* Without the range's memory. Takes manifest. */
static struct muster_held_version *held_alloc(struct muster_mem *mem,
                                              struct muster_version_manifest *manifest)
{
    struct muster_held_version *held = muster_mem_alloc_zero(mem, 1, sizeof(*held));

    if (held == NULL) {
        muster_version_manifest_fini(manifest);
        return NULL;
    }
    held->mem = mem;
    held->refs = 1;
    muster_list_init(&held->node);
    held->manifest = *manifest;
    memset(manifest, 0, sizeof(*manifest));
    held->arrived = muster_mem_alloc_zero(mem, held->manifest.chunk_count / 64 + 1, 8);
    held->tensors =
        muster_mem_alloc_zero(mem, held->manifest.tensor_count, sizeof(held->tensors[0]));
    if (held->arrived == NULL || held->tensors == NULL) {
        held_free(held);
        return NULL;
    }
    held->shown.number = held->manifest.version;
    held->shown.tensors = held->tensors;
    held->shown.count = held->manifest.tensor_count;
    for (uint32_t i = 0; i < held->manifest.tensor_count; i++) {
        const struct muster_version_tensor *tensor = &held->manifest.tensors[i];

        held->tensors[i] = (struct muster_named_tensor){
            .name = tensor->name, .dtype = tensor->dtype, .count = tensor->count};
        held->shown.bytes += tensor->count * muster_dtype_bytes(tensor->dtype);
    }
    return held;
}

enum muster_rc muster_held_new(struct muster_mem *mem, struct muster_version_manifest *manifest,
                               struct muster_held_spare *spare,
                               struct muster_held_version **ret_held)
{
    struct muster_held_version *held = held_alloc(mem, manifest);

    if (held == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    held->spare = spare;
    held->host = spare != NULL ? spare->host : NULL;
    if (!memory_take(held)) {
        held_free(held);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    range_place(held);
    *ret_held = held;
    return MUSTER_OK;
}

enum muster_rc muster_held_new_mapped(struct muster_mem *mem,
                                      struct muster_version_manifest *manifest,
                                      struct muster_host *host, struct muster_host_memory *mapped,
                                      struct muster_held_version **ret_held)
{
    struct muster_held_version *held = held_alloc(mem, manifest);

    if (held == NULL) {
        muster_host_memory_close(host, mapped);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    MUSTER_ASSERT(muster_held_fits(&held->manifest, mapped->size));
    held->host = host;
    held->shared = *mapped;
    held->is_mapped = true;
    range_place(held);
    *ret_held = held;
    return MUSTER_OK;
}

void muster_held_take_mapped(struct muster_held_version *held, uint32_t chunk)
{
    size_t at = (size_t)chunk * MUSTER_VERSION_CHUNK_BYTES;

    if (!held->is_mapped && held->mapped_before.bytes != NULL)
        memcpy(held->range + at, held->mapped_before.bytes + at,
               muster_version_chunk_bytes(&held->manifest, chunk));
}

enum muster_rc muster_held_detach(struct muster_held_version *held)
{
    MUSTER_ASSERT(held->is_mapped && held->user_count == 0 && held->mapped_before.bytes == NULL);
    held->memory = muster_mem_alloc(held->mem, memory_bytes(&held->manifest));
    if (held->memory == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    held->mapped_before = held->shared;
    held->shared.bytes = NULL;
    held->is_mapped = false;
    range_place(held);
    for (uint32_t chunk = 0; chunk < held->manifest.chunk_count; chunk++) {
        if (muster_held_has(held, chunk))
            muster_held_take_mapped(held, chunk);
    }
    return MUSTER_OK;
}

enum muster_rc muster_held_seal(struct muster_held_version *held)
{
    enum muster_rc rc =
        muster_version_manifest_pack(&held->manifest, &held->packed, &held->packed_bytes);

    if (rc == MUSTER_OK)
        muster_version_manifest_root(held->packed, held->packed_bytes, held->shown.root);
    return rc;
}

void muster_held_ref(struct muster_held_version *held)
{
    held->refs++;
}

void muster_held_unref(struct muster_held_version *held)
{
    if (held == NULL)
        return;
    MUSTER_ASSERT(held->refs > 0);
    if (--held->refs > 0)
        return;
    muster_list_remove(&held->node);
    held_free(held);
}

uint8_t *muster_held_chunk(const struct muster_held_version *held, uint32_t chunk)
{
    return held->range + (size_t)chunk * MUSTER_VERSION_CHUNK_BYTES;
}

bool muster_held_has(const struct muster_held_version *held, uint32_t chunk)
{
    return (held->arrived[chunk / 64] >> (chunk % 64) & 1u) != 0;
}

void muster_held_set(struct muster_held_version *held, uint32_t chunk)
{
    MUSTER_ASSERT(!muster_held_has(held, chunk));
    held->arrived[chunk / 64] |= UINT64_C(1) << (chunk % 64);
    held->arrived_count++;
}

bool muster_held_is_whole(const struct muster_held_version *held)
{
    return held->arrived_count == held->manifest.chunk_count;
}

struct muster_held_version *muster_held_find(const struct muster_list *list, uint64_t version)
{
    MUSTER_LIST_EACH (list, held, struct muster_held_version, node) {
        if (held->shown.number == version)
            return held;
    }
    return NULL;
}

static bool chunks_are_alike(const struct muster_held_version *held,
                             const struct muster_held_version *base, uint32_t chunk)
{
    return chunk < base->manifest.chunk_count &&
           muster_version_chunk_bytes(&base->manifest, chunk) ==
               muster_version_chunk_bytes(&held->manifest, chunk);
}

void *muster_held_delta_new(const struct muster_held_version *held,
                            const struct muster_held_version *base, uint32_t chunk,
                            size_t *ret_bytes)
{
    struct muster_delta_source source;
    void *delta, *shorter;
    size_t bytes;

    if (!chunks_are_alike(held, base, chunk))
        return NULL;
    source = (struct muster_delta_source){
        .base = muster_held_chunk(base, chunk),
        .range = muster_held_chunk(held, chunk),
        .bytes = muster_version_chunk_bytes(&held->manifest, chunk),
        .element_bytes = muster_version_chunk_element_bytes(&held->manifest, chunk)};
    delta = muster_mem_alloc(held->mem, muster_delta_bytes_max(source.bytes));
    if (delta == NULL)
        return NULL;
    bytes = muster_delta_encode(&source, delta);
    if (bytes >= source.bytes) {
        muster_mem_free(held->mem, delta);
        return NULL;
    }
    shorter = muster_mem_realloc(held->mem, delta, bytes); /* it may wait in a queue of answers */
    *ret_bytes = bytes;
    return shorter != NULL ? shorter : delta;
}

bool muster_held_delta_apply(struct muster_held_version *held,
                             const struct muster_held_version *base, uint32_t chunk,
                             const void *delta, size_t bytes)
{
    uint32_t chunk_bytes = muster_version_chunk_bytes(&held->manifest, chunk);
    struct muster_error error;

    if (!chunks_are_alike(held, base, chunk))
        return false;
    memcpy(muster_held_chunk(held, chunk), muster_held_chunk(base, chunk), chunk_bytes);
    return muster_delta_apply(delta, bytes, muster_held_chunk(held, chunk), chunk_bytes, &error) ==
           MUSTER_OK;
}
