/* The training state as chunks: where each lies, and what its bytes hash to. */
#ifndef MUSTER_CLUSTER_STATE_MANIFEST_H
#define MUSTER_CLUSTER_STATE_MANIFEST_H

#include <muster/env.h>
#include <muster/hash.h>

#include "cluster/node/member.h"
#include "cluster/node/state_hashes.h"
#include "collective/board/board.h"

#define MUSTER_STATE_CHUNK_BYTES (256u << 10)
/* The wire form of a request has names and counts only, no hashes. */
#define MUSTER_STATE_REQUEST_MAX (1u << 20)
/* In place of a step: the state as it is, chunks that the step under way changes left out. */
#define MUSTER_STATE_STABLE UINT64_MAX
#define MUSTER_STATE_AT_ONCE                                                                       \
    1u /* flag of such a request: hashes that are not known yet are zeros */
/** The tensor that tells in how many slots (micro-batches) the steps are, by its count: micro_batches_5_x_f32, u8. */
#define MUSTER_STATE_SLOTS_PREFIX "micro_batches_"

/** The registered tensors cut into chunks: chunks never span tensors. */
struct muster_state_chunks {
    struct muster_mem *mem;
    struct muster_node_tensor *tensors; /* names borrowed */
    uint32_t *first_chunk;              /* per tensor; [tensor_count] = chunk_count */
    size_t tensor_count;
    uint32_t chunk_count;
    uint8_t *room; /* of one chunk, to hash it; NULL: all tensors are in host memory */
    struct muster_state_hashes hashes;
    const struct muster_node_blob *blobs; /* borrowed; their values change from step to step */
    size_t blob_count;
};

/** Copies the list; borrows the tensors' memory and names until fini. Errors: RESOURCE_EXHAUSTED
 * (also more than 2^32 - 1 chunks). */
MUSTER_MUST_CHECK enum muster_rc muster_state_chunks_init(struct muster_state_chunks *chunks,
                                                          struct muster_mem *mem,
                                                          const struct muster_node_tensor *tensors,
                                                          size_t count);
void muster_state_chunks_fini(struct muster_state_chunks *chunks);

/** The size of what a joiner is told of a state: it grows with each tensor, so that a large list is looked at once. All
 * zero: of no tensors. */
struct muster_state_size {
    size_t count;
    uint64_t names_bytes; /* of the description of the tensors */
    uint64_t chunks;      /* UINT64_MAX: as many as there cannot be */
};
void muster_state_size_add(struct muster_state_size *size, const struct muster_node_tensor *tensor);
/** Check that a joiner can be told of such a state with up to blob_bytes of blobs: the description of its tensors has a
 * bound (MUSTER_STATE_REQUEST_MAX), and so have the hashes of its chunks (one frame). Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_state_size_check(const struct muster_state_size *size,
                                                         size_t blob_bytes,
                                                         struct muster_error *ret_error);

/** The bytes of all chunks, were all of them whole. */
static inline uint64_t muster_state_chunks_bytes_max(const struct muster_state_chunks *chunks)
{
    return (uint64_t)chunks->chunk_count * MUSTER_STATE_CHUNK_BYTES;
}

/** Where chunk lies, in its own memory; chunk < chunk_count. */
void *muster_state_chunk_at(const struct muster_state_chunks *chunks, uint32_t chunk,
                            uint32_t *ret_bytes);
/** The memory that chunk lies in; NULL: the host's. Borrowed. */
struct muster_far_memory *muster_state_chunk_memory(const struct muster_state_chunks *chunks,
                                                    uint32_t chunk);
/** The tensor that it is in, and its offset there in bytes. */
size_t muster_state_chunk_tensor(const struct muster_state_chunks *chunks, uint32_t chunk,
                                 uint64_t *ret_offset);

/** The description of a member's state: a value; fini frees it. */
struct muster_state_manifest {
    struct muster_mem *mem;
    uint64_t step;
    size_t tensor_count;
    struct muster_state_tensor {
        char *name;
        uint32_t dtype;
        uint64_t count;
        /* Where a process of the same host reads it, as its owner says; zeros: nowhere. */
        uint64_t address;      /* of the owner's memory */
        uint32_t share_end;    /* the number of its share plus 1, if it lies in one … */
        uint64_t share_offset; /* … there */
    } * tensors;
    uint32_t chunk_count;                    /* 0 in a request */
    uint8_t (*hashes)[MUSTER_HASH128_BYTES]; /* zeros: not known */
    uint8_t root[MUSTER_HASH128_BYTES];
    struct muster_node_blob *blobs; /* its own */
    size_t blob_count;              /* 0 in a request, and ahead of the admission */
};

/** Hash of one chunk as it lies in memory now. False: its memory has failed. */
bool muster_state_chunk_hash(const struct muster_state_chunks *chunks, uint32_t chunk,
                             uint8_t ret_hash[MUSTER_HASH128_BYTES]);

/** Whether `theirs` describes the same tensors; else INVALID_ARGUMENT names the first that differs.
 */
MUSTER_MUST_CHECK enum muster_rc muster_state_match(const struct muster_state_chunks *ours,
                                                    const struct muster_state_manifest *theirs,
                                                    struct muster_error *ret_error);

/** The part of an answer that a request lacks. */
struct muster_state_answer {
    const uint8_t (*hashes)[MUSTER_HASH128_BYTES]; /* chunk_count of them */
    struct muster_board *board; /* whose peer is asking, and may read the memory here; or NULL */
};
/** The wire form; answer NULL for a request. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_state_manifest_pack(
    const struct muster_state_chunks *chunks, uint64_t step,
    const struct muster_state_answer *answer, void **ret_bytes, size_t *ret_size);
/** Gives what *ret_manifest holds: muster_state_manifest_fini. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_state_manifest_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_state_manifest *ret_manifest, struct muster_error *ret_error);
void muster_state_manifest_fini(struct muster_state_manifest *manifest);
/** The blobs of a manifest. NULL is accepted. */
void muster_state_blobs_free(struct muster_mem *mem, struct muster_node_blob *blobs, size_t count);

/** A refusal with its text. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_state_refusal_pack(struct muster_mem *mem,
                                                           const struct muster_error *error,
                                                           void **ret_bytes, size_t *ret_size);
/** The error that a refusal carries; of bytes that are not a refusal, INTERNAL. */
void muster_state_refusal_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                 struct muster_error *ret_error);

/* Frames of channel STATE; op.step is the step, chunk the chunk. */
enum muster_state_frame {
    /* payload: Manifest without hashes; phase > 1: so many members share the hashing, and this one's part is number
     * `chunk` of them */
    MUSTER_STATE_MANIFEST_REQUEST = 1,
    MUSTER_STATE_MANIFEST = 2,
    MUSTER_STATE_CHUNK_REQUEST = 3,
    MUSTER_STATE_CHUNK = 4,
    MUSTER_STATE_REFUSED =
        5, /* payload: Refusal; chunk as in the request, UINT32_MAX for a manifest */
};

#endif
