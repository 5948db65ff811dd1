/* The head of a delta, and the choice of the path. */
#include "params/publication/delta.h"

#include <string.h>

#define DELTA_FORMAT 1u

struct packed_head {
    uint8_t format;
    uint8_t element_bytes;
    uint16_t reserved;
    uint32_t range_bytes;
};
_Static_assert(sizeof(struct packed_head) == MUSTER_DELTA_HEAD_BYTES, "no padding");

static bool element_is_valid(uint32_t element_bytes)
{
    return element_bytes == 1 || element_bytes == 2 || element_bytes == 4;
}

const struct muster_delta_path *muster_delta_path_best(void)
{
    const struct muster_delta_path *best = muster_delta_path_avx512();

    if (best == NULL)
        best = muster_delta_path_avx2();
    return best != NULL ? best : muster_delta_path_baseline();
}

/* The worst block has one byte and all its elements; blocks are shortest with elements of one byte. */
size_t muster_delta_bytes_max(uint32_t range_bytes)
{
    return MUSTER_DELTA_HEAD_BYTES + (size_t)range_bytes +
           (range_bytes + MUSTER_DELTA_BLOCK_ELEMENTS - 1) / MUSTER_DELTA_BLOCK_ELEMENTS;
}

size_t muster_delta_encode(const struct muster_delta_source *source, void *ret_delta)
{
    struct packed_head head = {.format = DELTA_FORMAT,
                               .element_bytes = (uint8_t)source->element_bytes,
                               .range_bytes = source->bytes};

    MUSTER_ASSERT(element_is_valid(source->element_bytes) &&
                  source->bytes % source->element_bytes == 0 &&
                  source->bytes <= MUSTER_DELTA_RANGE_BYTES_MAX);
    memcpy(ret_delta, &head, sizeof(head));
    return sizeof(head) +
           muster_delta_path_best()->encode(source, (uint8_t *)ret_delta + sizeof(head));
}

static enum muster_rc delta_refuse(struct muster_error *ret_error, const char *part)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "a delta is malformed: %s", part);
}

enum muster_rc muster_delta_apply(const void *delta, size_t delta_bytes, void *range,
                                  uint32_t range_bytes, struct muster_error *ret_error)
{
    const struct muster_delta_path *path = muster_delta_path_best();
    const uint8_t *blocks;
    struct packed_head head;

    if (delta_bytes < sizeof(head))
        return delta_refuse(ret_error, "its size");
    memcpy(&head, delta, sizeof(head));
    blocks = (const uint8_t *)delta + sizeof(head);
    if (head.format != DELTA_FORMAT || head.reserved != 0)
        return delta_refuse(ret_error, "its format");
    if (head.range_bytes != range_bytes || range_bytes > MUSTER_DELTA_RANGE_BYTES_MAX)
        return delta_refuse(ret_error, "the size of the range");
    if (!element_is_valid(head.element_bytes) || range_bytes % head.element_bytes != 0)
        return delta_refuse(ret_error, "the size of an element");
    if (!path->check(blocks, delta_bytes - sizeof(head), range_bytes / head.element_bytes,
                     head.element_bytes))
        return delta_refuse(ret_error, "a block");
    path->apply(blocks, range, range_bytes / head.element_bytes, head.element_bytes);
    return MUSTER_OK;
}
