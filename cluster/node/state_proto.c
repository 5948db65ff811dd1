/* Manifests and refusals on the wire. A manifest comes from a peer: sizes are checked here, its fit with the
 * own tensors by muster_state_match, and its bytes by their hashes. */
#include <string.h>

#include "cluster/node/state_manifest.h"
#include "proto/guard.h"
#include "proto/state.pb-c.h"

static void tell_place(const struct muster_tensor *tensor, struct muster_board *board,
                       Mstate__Tensor *message)
{
    uint32_t share = 0;

    message->address = (uint64_t)(uintptr_t)tensor->data;
    if (muster_board_find_share(board, tensor->data,
                                tensor->count * muster_dtype_bytes(tensor->dtype), &share,
                                &message->share_offset))
        message->share_end = share + 1;
}

/* Without blobs the root is that of the chunks alone. */
static enum muster_rc root_compute(struct muster_mem *mem, const void *hashes, size_t bytes,
                                   const struct muster_node_blob *blobs, size_t blob_count,
                                   uint8_t ret_root[MUSTER_HASH128_BYTES])
{
    uint8_t(*parts)[MUSTER_HASH128_BYTES];

    muster_hash128(hashes, bytes, ret_root);
    if (blob_count == 0)
        return MUSTER_OK;
    parts = muster_mem_alloc_zero(mem, blob_count + 1, sizeof(*parts));
    if (parts == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    memcpy(parts[0], ret_root, sizeof(*parts));
    for (size_t i = 0; i < blob_count; i++)
        muster_hash128(blobs[i].bytes, blobs[i].size, parts[i + 1]);
    muster_hash128(parts, (blob_count + 1) * sizeof(*parts), ret_root);
    muster_mem_free(mem, parts);
    return MUSTER_OK;
}

enum muster_rc muster_state_manifest_pack(const struct muster_state_chunks *chunks, uint64_t step,
                                          const struct muster_state_answer *answer,
                                          void **ret_bytes, size_t *ret_size)
{
    struct muster_mem *mem = chunks->mem;
    size_t count = chunks->tensor_count;
    uint8_t root[MUSTER_HASH128_BYTES];
    Mstate__Tensor *tensors = muster_mem_alloc_zero(mem, count, sizeof(*tensors));
    Mstate__Tensor **pointers = muster_mem_alloc_zero(mem, count, sizeof(*pointers));
    size_t blob_count = answer != NULL && step != MUSTER_STATE_STABLE ? chunks->blob_count : 0;
    ProtobufCBinaryData *blobs = muster_mem_alloc_zero(mem, blob_count, sizeof(*blobs));
    Mstate__Manifest manifest;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (tensors == NULL || pointers == NULL || blobs == NULL)
        goto done;
    mstate__manifest__init(&manifest);
    for (size_t i = 0; i < count; i++) {
        mstate__tensor__init(&tensors[i]);
        tensors[i].name = (char *)(uintptr_t)chunks->tensors[i].name;
        tensors[i].dtype = (uint32_t)chunks->tensors[i].tensor.dtype;
        tensors[i].count = chunks->tensors[i].tensor.count;
        if (answer != NULL && answer->board != NULL && chunks->tensors[i].memory == NULL)
            tell_place(&chunks->tensors[i].tensor, answer->board, &tensors[i]);
        pointers[i] = &tensors[i];
    }
    manifest.step = step;
    manifest.n_tensors = count;
    manifest.tensors = pointers;
    for (size_t i = 0; i < blob_count; i++)
        blobs[i] = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)chunks->blobs[i].bytes,
                                         .len = chunks->blobs[i].size};
    manifest.n_blobs = blob_count;
    manifest.blobs = blobs;
    if (answer != NULL) {
        manifest.chunk_hashes.data = (uint8_t *)(uintptr_t)answer->hashes;
        manifest.chunk_hashes.len = (size_t)chunks->chunk_count * MUSTER_HASH128_BYTES;
        if (root_compute(mem, answer->hashes, manifest.chunk_hashes.len, chunks->blobs, blob_count,
                         root) != MUSTER_OK)
            goto done;
        manifest.root.data = root;
        manifest.root.len = sizeof(root);
    }
    rc = muster_proto_pack(mem, &manifest, ret_bytes, ret_size);
done:
    muster_mem_free(mem, blobs);
    muster_mem_free(mem, pointers);
    muster_mem_free(mem, tensors);
    return rc;
}

static enum muster_rc copy_tensors(struct muster_state_manifest *manifest,
                                   const Mstate__Manifest *message)
{
    manifest->tensors =
        muster_mem_alloc_zero(manifest->mem, message->n_tensors, sizeof(*manifest->tensors));
    if (manifest->tensors == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < message->n_tensors; i++) {
        struct muster_state_tensor *tensor = &manifest->tensors[i];

        tensor->name = muster_mem_strdup(manifest->mem, message->tensors[i]->name);
        if (tensor->name == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        tensor->dtype = message->tensors[i]->dtype;
        tensor->count = message->tensors[i]->count;
        tensor->address = message->tensors[i]->address;
        tensor->share_end = message->tensors[i]->share_end;
        tensor->share_offset = message->tensors[i]->share_offset;
        manifest->tensor_count = i + 1;
    }
    return MUSTER_OK;
}

static enum muster_rc copy_blobs(struct muster_state_manifest *manifest,
                                 const Mstate__Manifest *message)
{
    if (message->n_blobs == 0)
        return MUSTER_OK;
    manifest->blobs =
        muster_mem_alloc_zero(manifest->mem, message->n_blobs, sizeof(manifest->blobs[0]));
    if (manifest->blobs == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < message->n_blobs; i++) {
        void *bytes = muster_mem_alloc(manifest->mem, message->blobs[i].len + 1);

        if (bytes == NULL)
            return MUSTER_RESOURCE_EXHAUSTED;
        if (message->blobs[i].len > 0)
            memcpy(bytes, message->blobs[i].data, message->blobs[i].len);
        manifest->blobs[i] =
            (struct muster_node_blob){.bytes = bytes, .size = message->blobs[i].len};
        manifest->blob_count = i + 1;
    }
    return MUSTER_OK;
}

/* The root is computed and not only taken: comparing roots is then comparing all hashes. */
static enum muster_rc copy_hashes(struct muster_state_manifest *manifest,
                                  const Mstate__Manifest *message, struct muster_error *ret_error)
{
    size_t bytes = message->chunk_hashes.len;

    if (bytes == 0 && message->root.len == 0)
        return MUSTER_OK; /* a request */
    if (bytes % MUSTER_HASH128_BYTES != 0 || bytes / MUSTER_HASH128_BYTES >= UINT32_MAX ||
        message->root.len != MUSTER_HASH128_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the hashes of a state manifest must be %d bytes each, with a "
                                "root, got %zu bytes and a root of %zu",
                                MUSTER_HASH128_BYTES, bytes, message->root.len);
    manifest->chunk_count = (uint32_t)(bytes / MUSTER_HASH128_BYTES);
    manifest->hashes = muster_mem_alloc(manifest->mem, bytes);
    if (manifest->hashes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (bytes > 0)
        memcpy(manifest->hashes, message->chunk_hashes.data, bytes);
    if (root_compute(manifest->mem, manifest->hashes, bytes, manifest->blobs, manifest->blob_count,
                     manifest->root) != MUSTER_OK)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (memcmp(manifest->root, message->root.data, MUSTER_HASH128_BYTES) != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the root of a state manifest does not fit its hashes and blobs");
    return MUSTER_OK;
}

enum muster_rc muster_state_manifest_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                            struct muster_state_manifest *ret_manifest,
                                            struct muster_error *ret_error)
{
    struct muster_state_manifest manifest = {.mem = mem};
    Mstate__Manifest *message = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &mstate__manifest__descriptor, bytes, size, NULL,
                                            &message, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    manifest.step = message->step;
    rc = copy_tensors(&manifest, message);
    if (rc == MUSTER_OK)
        rc = copy_blobs(&manifest, message);
    if (rc == MUSTER_OK)
        rc = copy_hashes(&manifest, message, ret_error);
    muster_proto_free(message);
    if (rc == MUSTER_OK) {
        *ret_manifest = manifest;
        return MUSTER_OK;
    }
    muster_state_manifest_fini(&manifest);
    if (rc == MUSTER_RESOURCE_EXHAUSTED)
        muster_error_set(ret_error, rc, "no memory for a state manifest");
    return rc;
}

enum muster_rc muster_state_refusal_pack(struct muster_mem *mem, const struct muster_error *error,
                                         void **ret_bytes, size_t *ret_size)
{
    Mstate__Refusal refusal;

    mstate__refusal__init(&refusal);
    refusal.code = (uint32_t)error->rc;
    refusal.text = (char *)(uintptr_t)error->text;
    return muster_proto_pack(mem, &refusal, ret_bytes, ret_size);
}

void muster_state_refusal_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                 struct muster_error *ret_error)
{
    Mstate__Refusal *refusal = NULL;

    if (muster_proto_unpack(mem, &mstate__refusal__descriptor, bytes, size, NULL, &refusal, NULL) !=
            MUSTER_OK ||
        refusal->code == 0 || refusal->code > MUSTER_UNAUTHENTICATED) {
        muster_error_set(ret_error, MUSTER_INTERNAL, "an unreadable refusal");
    } else {
        muster_error_set(ret_error, (enum muster_rc)refusal->code, "%s", refusal->text);
    }
    muster_proto_free(refusal);
}
