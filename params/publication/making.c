/* A version that is being made. */
#include "params/publication/making.h"

#include <inttypes.h>
#include <string.h>

#include "params/wire/frame.h"

/* One turn copies or hashes for a few milliseconds, so that other events go on meanwhile. */
#define BYTES_PER_TURN ((size_t)16 << 20)

/* The bytes between the tensors are hashed, too. */
static void gaps_clear(struct muster_held_version *held)
{
    const struct muster_version_manifest *manifest = &held->manifest;
    uint64_t end = 0;

    for (uint32_t i = 0; i <= manifest->tensor_count; i++) {
        const struct muster_version_tensor *tensor = &manifest->tensors[i];
        uint64_t begin = i < manifest->tensor_count ? tensor->offset : manifest->bytes;

        memset(held->range + end, 0, (size_t)(begin - end));
        if (i < manifest->tensor_count)
            end = tensor->offset + tensor->count * muster_dtype_bytes(tensor->dtype);
    }
}

/* Readers get it in one message. */
static enum muster_rc manifest_check(const struct muster_version_manifest *manifest,
                                     struct muster_error *ret_error)
{
    uint64_t bytes = muster_version_manifest_packed_bytes(manifest);

    if (bytes <= MUSTER_FRAME_PAYLOAD_MAX)
        return MUSTER_OK;
    return muster_error_set(
        ret_error, MUSTER_RESOURCE_EXHAUSTED,
        "the manifest of %u tensors in %u chunks has %" PRIu64
        " bytes and does not fit into a message of %u: publish fewer bytes or shorter names, or "
        "part them among publications",
        manifest->tensor_count, manifest->chunk_count, bytes, MUSTER_FRAME_PAYLOAD_MAX);
}

static enum muster_rc put_check(const struct muster_publication_put *put,
                                struct muster_error *ret_error)
{
    if (put->count == 0 || put->count > MUSTER_PUBLICATION_TENSORS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a version must have 1 to %u tensors, got %zu",
                                MUSTER_PUBLICATION_TENSORS_MAX, put->count);
    for (size_t i = 0; i < put->count; i++) {
        if (put->tensors[i].data == NULL && put->tensors[i].count > 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "tensor %zu has no data",
                                    i);
    }
    return MUSTER_OK;
}

static enum muster_rc manifest_make(struct muster_mem *mem, uint64_t version,
                                    const struct muster_publication_put *put,
                                    struct muster_version_manifest *ret_manifest,
                                    struct muster_error *ret_error)
{
    struct muster_version_tensor *tensors =
        muster_mem_alloc_zero(mem, put->count, sizeof(tensors[0]));
    enum muster_rc rc;

    if (tensors == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a version");
    for (size_t i = 0; i < put->count; i++) {
        tensors[i].name = put->tensors[i].name;
        tensors[i].dtype = put->tensors[i].dtype;
        tensors[i].count = put->tensors[i].count;
    }
    rc = muster_version_manifest_init(mem, version, tensors, put->count, ret_manifest, ret_error);
    muster_mem_free(mem, tensors);
    if (rc != MUSTER_OK)
        return rc;
    rc = manifest_check(ret_manifest, ret_error);
    if (rc != MUSTER_OK)
        muster_version_manifest_fini(ret_manifest);
    return rc;
}

enum muster_rc muster_version_making_init(struct muster_version_making *making,
                                          struct muster_mem *mem, uint64_t version,
                                          const struct muster_publication_put *put,
                                          struct muster_held_spare *spare,
                                          struct muster_error *ret_error)
{
    struct muster_version_manifest manifest;
    struct muster_held_version *held = NULL;
    enum muster_rc rc = put_check(put, ret_error);

    if (rc == MUSTER_OK)
        rc = manifest_make(mem, version, put, &manifest, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_held_new(mem, &manifest, spare, &held);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for a version");
    gaps_clear(held);
    *making = (struct muster_version_making){.held = held, .tensors = put->tensors};
    return MUSTER_OK;
}

static void copy_step(struct muster_version_making *making)
{
    const struct muster_version_manifest *manifest = &making->held->manifest;
    size_t budget = BYTES_PER_TURN;

    while (making->tensor < manifest->tensor_count && budget > 0) {
        const struct muster_named_tensor *tensor = &making->tensors[making->tensor];
        uint64_t bytes = tensor->count * muster_dtype_bytes(tensor->dtype),
                 left = bytes - making->copied;
        size_t step = left < budget ? (size_t)left : budget;

        if (step > 0)
            memcpy(making->held->range + manifest->tensors[making->tensor].offset + making->copied,
                   (const uint8_t *)tensor->data + making->copied, step);
        making->copied += step;
        budget -= step;
        if (making->copied == bytes) {
            making->tensor++;
            making->copied = 0;
        }
    }
}

static void hash_step(struct muster_version_making *making)
{
    struct muster_held_version *held = making->held;
    size_t left = BYTES_PER_TURN / MUSTER_VERSION_CHUNK_BYTES;

    for (; left > 0 && making->chunk < held->manifest.chunk_count; left--, making->chunk++) {
        muster_version_manifest_hash_chunk(&held->manifest, making->chunk,
                                           muster_held_chunk(held, making->chunk));
        muster_held_set(held, making->chunk);
    }
}

bool muster_version_making_step(struct muster_version_making *making)
{
    const struct muster_version_manifest *manifest;

    MUSTER_ASSERT(making->held != NULL);
    manifest = &making->held->manifest;
    if (making->tensor < manifest->tensor_count) {
        copy_step(making);
        return true;
    }
    hash_step(making);
    return making->chunk < manifest->chunk_count;
}
