/* The memory of a version. */
#include "params/publication/held.h"

#include <string.h>

#include "params/publication/delta.h"

#define ALIGN 64u

static size_t memory_bytes(const struct muster_version_manifest *manifest)
{
    return manifest->bytes < SIZE_MAX / 2 ? (size_t)manifest->bytes + ALIGN : SIZE_MAX;
}

static void held_free(struct muster_held_version *held)
{
    struct muster_held_spare *spare = held->spare;

    if (spare != NULL && spare->memory == NULL && held->memory != NULL) {
        *spare = (struct muster_held_spare){held->memory, memory_bytes(&held->manifest)};
        held->memory = NULL;
    }
    muster_mem_free(held->mem, held->memory);
    muster_version_manifest_fini(&held->manifest);
    muster_mem_free(held->mem, held->packed);
    muster_mem_free(held->mem, held->arrived);
    muster_mem_free(held->mem, held->tensors);
    muster_mem_free(held->mem, held);
}

static void *memory_take(struct muster_mem *mem, struct muster_held_spare *spare, size_t bytes)
{
    void *memory = NULL;

    if (spare != NULL && spare->bytes == bytes)
        memory = spare->memory;
    else if (spare != NULL)
        muster_mem_free(mem, spare->memory);
    if (spare != NULL)
        *spare = (struct muster_held_spare){NULL, 0};
    return memory != NULL ? memory : muster_mem_alloc(mem, bytes);
}

/* The range begins on a boundary that suits every element. */
enum muster_rc muster_held_new(struct muster_mem *mem, struct muster_version_manifest *manifest,
                               struct muster_held_spare *spare,
                               struct muster_held_version **ret_held)
{
    size_t bytes = memory_bytes(manifest);
    struct muster_held_version *held = muster_mem_alloc_zero(mem, 1, sizeof(*held));

    if (held == NULL) {
        muster_version_manifest_fini(manifest);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    held->mem = mem;
    held->refs = 1;
    held->spare = spare;
    muster_list_init(&held->node);
    held->manifest = *manifest;
    memset(manifest, 0, sizeof(*manifest));
    held->memory = memory_take(mem, spare, bytes);
    held->arrived = muster_mem_alloc_zero(mem, held->manifest.chunk_count / 64 + 1, 8);
    held->tensors =
        muster_mem_alloc_zero(mem, held->manifest.tensor_count, sizeof(held->tensors[0]));
    if (held->memory == NULL || held->arrived == NULL || held->tensors == NULL) {
        held_free(held);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    held->range = (uint8_t *)(((uintptr_t)held->memory + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    held->shown.number = held->manifest.version;
    held->shown.tensors = held->tensors;
    held->shown.count = held->manifest.tensor_count;
    for (uint32_t i = 0; i < held->manifest.tensor_count; i++) {
        const struct muster_version_tensor *tensor = &held->manifest.tensors[i];

        held->tensors[i] = (struct muster_named_tensor){.name = tensor->name,
                                                        .dtype = tensor->dtype,
                                                        .count = tensor->count,
                                                        .data = held->range + tensor->offset};
        held->shown.bytes += tensor->count * muster_dtype_bytes(tensor->dtype);
    }
    *ret_held = held;
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
