/* The manifest of a version: its tensors, where they lie in the version's range of bytes, and the hashes of
 * that range. Its packed form travels from reader to reader; the root, which is the hash of the packed form,
 * comes from the registry (docs/protocol.md, "Publications"). */
#ifndef MUSTER_PARAMS_PUBLICATION_MANIFEST_H
#define MUSTER_PARAMS_PUBLICATION_MANIFEST_H

#include <muster/collective.h>
#include <muster/hash.h>
#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_VERSION_CHUNK_BYTES (256u << 10)
#define MUSTER_VERSION_ALIGN       64u /* of a tensor in the range */
#define MUSTER_VERSION_TENSORS_MAX 65536u
#define MUSTER_VERSION_NAME_MAX    255u       /* bytes of a tensor's name, without its NUL */
#define MUSTER_VERSION_CHUNKS_MAX  (1u << 22) /* a range of 1 TiB */
/** The longest packed form that an unpack accepts. */
#define MUSTER_VERSION_MANIFEST_BYTES_MAX (128u << 20)

struct muster_version_tensor {
    const char *name;
    enum muster_dtype dtype;
    uint64_t count;  /* elements */
    uint64_t offset; /* in the range; a multiple of MUSTER_VERSION_ALIGN */
};

/** One version. Tensors lie in the range one after the other; bytes between them are 0. */
struct muster_version_manifest {
    struct muster_mem *mem;
    uint64_t version; /* from 1 */
    uint64_t bytes;   /* of the range */
    uint32_t tensor_count;
    uint32_t chunk_count; /* all but the last have MUSTER_VERSION_CHUNK_BYTES */
    struct muster_version_tensor *tensors;
    uint8_t (*hashes)[MUSTER_HASH128_BYTES]; /* XXH3-128 of each chunk */
    char *names;
};

/**
 * Lay out a version. Of `tensors` the offsets are ignored: they are determined here. The hashes are 0 until
 * muster_version_manifest_hash_chunk.
 *
 * Owns:    copies tensors and their names; *ret_manifest holds memory until fini.
 * Errors:  INVALID_ARGUMENT (version 0, a name that is empty, too long or there twice, an unknown type),
 *          RESOURCE_EXHAUSTED (a limit of this header, or memory).
 */
MUSTER_MUST_CHECK enum muster_rc muster_version_manifest_init(
    struct muster_mem *mem, uint64_t version, const struct muster_version_tensor *tensors,
    size_t count, struct muster_version_manifest *ret_manifest, struct muster_error *ret_error);
/** A manifest that is all zero holds nothing, and may be given too. */
void muster_version_manifest_fini(struct muster_version_manifest *manifest);

/** Write the range: data[i] are the bytes of tensor i, NULL for one without elements. */
void muster_version_range_write(const struct muster_version_manifest *manifest,
                                const void *const *data, void *range);

/** The bytes of a chunk; chunk < chunk_count. */
uint32_t muster_version_chunk_bytes(const struct muster_version_manifest *manifest, uint32_t chunk);
/** Largest size, of 1, 2 and 4, that divides each element of the chunk's tensors: for muster_delta_encode. */
uint32_t muster_version_chunk_element_bytes(const struct muster_version_manifest *manifest,
                                            uint32_t chunk);
/** Record the hash of a chunk that lies at `bytes`. */
void muster_version_manifest_hash_chunk(struct muster_version_manifest *manifest, uint32_t chunk,
                                        const void *bytes);
/** Whether the bytes are the chunk's. */
bool muster_version_chunk_is_valid(const struct muster_version_manifest *manifest, uint32_t chunk,
                                   const void *bytes);
/** Check the whole range. Errors: DATA_LOSS, naming the first chunk that differs. */
MUSTER_MUST_CHECK enum muster_rc muster_version_range_check(
    const struct muster_version_manifest *manifest, const void *range,
    struct muster_error *ret_error);

/** Bytes of the packed form. */
uint64_t muster_version_manifest_packed_bytes(const struct muster_version_manifest *manifest);
/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_version_manifest_pack(
    const struct muster_version_manifest *manifest, void **ret_bytes, size_t *ret_size);
/** The root of a packed form. */
void muster_version_manifest_root(const void *bytes, size_t size,
                                  uint8_t ret_root[MUSTER_HASH128_BYTES]);
/**
 * Bytes of strangers: whether they are the committed version is to be seen by their root.
 *
 * Owns:    *ret_manifest holds memory until fini.
 * Errors:  INVALID_ARGUMENT (naming the part), RESOURCE_EXHAUSTED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_version_manifest_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_version_manifest *ret_manifest, struct muster_error *ret_error);

#endif
