/* Ranges of a tensor. A message has elements of one extent, and so of one shard. */
#include "params/wire/range.h"

#include <string.h>

uint64_t muster_params_range_block(const struct muster_params_tensor *tensor, uint64_t offset)
{
    return offset / tensor->block_elements;
}

uint32_t muster_params_range_blocks(const struct muster_params_tensor *tensor,
                                    const struct muster_params_range_frame *range)
{
    return (uint32_t)(muster_params_range_block(tensor, range->offset + range->count - 1) -
                      muster_params_range_block(tensor, range->offset) + 1);
}

bool muster_params_range_is_blocks(const struct muster_params_tensor *tensor, uint64_t offset,
                                   uint64_t count)
{
    return offset % tensor->block_elements == 0 &&
           ((offset + count) % tensor->block_elements == 0 || offset + count == tensor->elements);
}

void muster_params_range_pack(const struct muster_params_range_frame *range,
                              struct muster_frame_header *header,
                              uint8_t ret_payload[MUSTER_PARAMS_PULL_RANGE_BYTES])
{
    header->phase = range->table;
    header->op = (struct muster_op_id){.step = range->offset,
                                       .lane = (uint32_t)range->clock,
                                       .sequence = (uint32_t)(range->clock >> 32)};
    if (range->is_first)
        header->flags |= MUSTER_PARAMS_RANGE_FIRST;
    if (header->type == MUSTER_PARAMS_PULL_RANGE)
        memcpy(ret_payload, &range->count, sizeof(range->count));
}

static enum muster_rc count_unpack(const struct muster_frame_header *header, const void *payload,
                                   size_t element_bytes, uint64_t *ret_count,
                                   struct muster_error *ret_error)
{
    if (header->type == MUSTER_PARAMS_PUSH_RANGE) {
        *ret_count = header->payload_bytes / element_bytes;
        if (header->payload_bytes % element_bytes == 0)
            return MUSTER_OK;
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message PUSH_RANGE of parameters must have elements of %zu bytes, "
                                "got %u bytes",
                                element_bytes, header->payload_bytes);
    }
    if (header->payload_bytes != MUSTER_PARAMS_PULL_RANGE_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message PULL_RANGE of parameters must have %u bytes, got %u",
                                MUSTER_PARAMS_PULL_RANGE_BYTES, header->payload_bytes);
    memcpy(ret_count, payload, sizeof(*ret_count));
    return MUSTER_OK;
}

/* Nothing is added before it is known to be small. */
static enum muster_rc range_check(const struct muster_params_range_frame *range,
                                  const struct muster_params_tensor *tensor, bool is_push,
                                  struct muster_error *ret_error)
{
    uint64_t extent = (uint64_t)tensor->block_elements * MUSTER_PARAMS_EXTENT_BLOCKS;

    if (range->count == 0 || range->offset >= tensor->elements ||
        range->count > tensor->elements - range->offset)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range of %llu elements from %llu is not within a tensor of %llu",
                                (unsigned long long)range->count, (unsigned long long)range->offset,
                                (unsigned long long)tensor->elements);
    if (range->offset / extent != (range->offset + range->count - 1) / extent)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range of %llu elements from %llu is not within an extent of %llu",
                                (unsigned long long)range->count, (unsigned long long)range->offset,
                                (unsigned long long)extent);
    if (is_push && !muster_params_range_is_blocks(tensor, range->offset, range->count))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a range that is pushed must be whole blocks of %u elements, got "
                                "%llu elements from %llu",
                                tensor->block_elements, (unsigned long long)range->count,
                                (unsigned long long)range->offset);
    return MUSTER_OK;
}

enum muster_rc muster_params_range_unpack(const struct muster_frame_header *header,
                                          const void *payload,
                                          const struct muster_params_tensor *tensor,
                                          struct muster_params_range_frame *ret_range,
                                          struct muster_error *ret_error)
{
    struct muster_params_range_frame range = {
        .clock = header->op.lane | (uint64_t)header->op.sequence << 32,
        .offset = header->op.step,
        .table = muster_params_range_table(header),
        .is_first = (header->flags & MUSTER_PARAMS_RANGE_FIRST) != 0};
    enum muster_rc rc = count_unpack(header, payload, muster_dtype_bytes(tensor->dtype),
                                     &range.count, ret_error);

    if (rc == MUSTER_OK)
        rc = range_check(&range, tensor, header->type == MUSTER_PARAMS_PUSH_RANGE, ret_error);
    if (rc == MUSTER_OK)
        *ret_range = range;
    return rc;
}

uint64_t muster_params_range_padding(const struct muster_params_tensor *tensor,
                                     const struct muster_params_range_frame *range)
{
    uint64_t beyond = (range->offset + range->count) % tensor->block_elements;

    return beyond == 0 ? 0 : (tensor->block_elements - beyond) * muster_dtype_bytes(tensor->dtype);
}

/* --- Values in memory of the client: at u64, count u64 --- */

void muster_params_staged_pack(size_t at, uint64_t count,
                               uint8_t ret_payload[MUSTER_PARAMS_STAGED_BYTES])
{
    const uint64_t words[2] = {at, count};

    memcpy(ret_payload, words, sizeof(words));
}

/* The payload is the server's own copy: the client cannot change it while it is read. */
enum muster_rc muster_params_staged_unpack(const struct muster_frame_header *header,
                                           const void *payload,
                                           const struct muster_params_tensor *tensor,
                                           struct muster_params_range_frame *ret_range,
                                           size_t *ret_at, struct muster_error *ret_error)
{
    struct muster_frame_header push = *header;
    size_t element_bytes = muster_dtype_bytes(tensor->dtype);
    struct muster_params_range_frame range;
    uint64_t words[2];
    enum muster_rc rc;

    memcpy(words, payload, sizeof(words));
    push.type = MUSTER_PARAMS_PUSH_RANGE;
    push.payload_bytes = 0;
    if (words[1] <= MUSTER_PARAMS_STAGE_BYTES)
        push.payload_bytes = (uint32_t)(words[1] * element_bytes);
    rc = muster_params_range_unpack(&push, NULL, tensor, &range, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (words[0] % sizeof(uint64_t) != 0 || words[0] > MUSTER_PARAMS_STAGE_BYTES ||
        push.payload_bytes + muster_params_range_padding(tensor, &range) >
            MUSTER_PARAMS_STAGE_BYTES - words[0])
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "message PUSH_STAGED of parameters has %u bytes from %llu of %zu",
                                push.payload_bytes, (unsigned long long)words[0],
                                MUSTER_PARAMS_STAGE_BYTES);
    *ret_range = range;
    *ret_at = (size_t)words[0];
    return MUSTER_OK;
}
