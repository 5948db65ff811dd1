/* The manifest of a version. What was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include "params/publication/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_parts(const struct muster_version_manifest *manifest)
{
    uint64_t bytes = 0, end = 0;

    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        const struct muster_version_tensor *tensor = &manifest->tensors[i];

        if (tensor->offset < end || tensor->offset % MUSTER_VERSION_ALIGN != 0)
            abort();
        end = tensor->offset + tensor->count * muster_dtype_bytes(tensor->dtype);
    }
    for (uint32_t i = 0; i < manifest->chunk_count; i++) {
        bytes += muster_version_chunk_bytes(manifest, i);
        if (bytes % muster_version_chunk_element_bytes(manifest, i) != 0)
            abort();
    }
    if (bytes != manifest->bytes || end != manifest->bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_version_manifest manifest;
    void *packed;
    size_t packed_size;

    if (muster_version_manifest_unpack(muster_mem_system(), bytes, size, &manifest, NULL) !=
        MUSTER_OK)
        return 0;
    check_parts(&manifest);
    if (muster_version_manifest_pack(&manifest, &packed, &packed_size) != MUSTER_OK ||
        packed_size != size || memcmp(packed, bytes, size) != 0)
        abort();
    free(packed);
    muster_version_manifest_fini(&manifest);
    return 0;
}
