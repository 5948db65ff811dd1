/* Ranges of a tensor as messages: everything but the values stands in the header of the frame, so that values
 * leave from and arrive in the memory where they belong. */
#ifndef MUSTER_PARAMS_RANGE_H
#define MUSTER_PARAMS_RANGE_H

#include "params/wire/frame.h"
#include "params/wire/hash.h"

/** A tensor: a table whose rows are its blocks. */
struct muster_params_tensor {
    uint64_t elements;
    uint32_t block_elements;
    enum muster_dtype dtype;
};

/** Elements of one extent. */
struct muster_params_range_frame {
    uint64_t clock;  /* as in rows */
    uint64_t offset; /* the first element */
    uint64_t count;
    uint32_t table;
    bool is_first; /* PUSH_RANGE: the source's first push to the shard */
};

/** header.flags of PUSH_RANGE. */
#define MUSTER_PARAMS_RANGE_FIRST 2u
#define MUSTER_PARAMS_PULL_RANGE_BYTES 8u

/** Blocks that have elements of the range, and the first of them. */
uint64_t muster_params_range_block(const struct muster_params_tensor *tensor, uint64_t offset);
uint32_t muster_params_range_blocks(const struct muster_params_tensor *tensor,
                                    const struct muster_params_range_frame *range);
/** Whether a push may have it: it begins at a block, and ends at one or at the end of the tensor. */
bool muster_params_range_is_blocks(const struct muster_params_tensor *tensor, uint64_t offset,
                                   uint64_t count);
/** Write the range into the header, but for header->payload_bytes, and the payload of a pull. */
void muster_params_range_pack(const struct muster_params_range_frame *range,
                              struct muster_frame_header *header,
                              uint8_t ret_payload[MUSTER_PARAMS_PULL_RANGE_BYTES]);
/** The table's number, which comes before its tensor is known. */
static inline uint32_t muster_params_range_table(const struct muster_frame_header *header)
{
    return header->phase;
}
/** Bytes from the end of a range to the end of its last block. */
uint64_t muster_params_range_padding(const struct muster_params_tensor *tensor,
                                     const struct muster_params_range_frame *range);

/* Memory of a client that a server of its host maps. */
#define MUSTER_PARAMS_STAGE_BYTES  ((size_t)4 << 20)
#define MUSTER_PARAMS_STAGED_BYTES 16u
struct muster_params_stage_token {
    uint8_t bytes[16];
};
/** PUSH_STAGED: so many elements lie there, from that byte on. */
void muster_params_staged_pack(size_t at, uint64_t count,
                               uint8_t ret_payload[MUSTER_PARAMS_STAGED_BYTES]);
/** header as of a PUSH_STAGED, payload of MUSTER_PARAMS_STAGED_BYTES. All blocks of the range lie within the
 * memory. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_params_staged_unpack(
    const struct muster_frame_header *header, const void *payload,
    const struct muster_params_tensor *tensor, struct muster_params_range_frame *ret_range,
    size_t *ret_at, struct muster_error *ret_error);

/** The count of a PUSH_RANGE follows from the size of its payload. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_params_range_unpack(
    const struct muster_frame_header *header, const void *payload,
    const struct muster_params_tensor *tensor, struct muster_params_range_frame *ret_range,
    struct muster_error *ret_error);

#endif
