/* Shapes of tensors as arithmetic on extents. */
#include "training/replicas/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "collective/kernel/kernels.h"

enum muster_rc muster_shape_elements(const struct muster_shaped_tensor *shaped, uint64_t *ret_count,
                                     struct muster_error *ret_error)
{
    size_t bytes = muster_dtype_bytes(shaped->dtype);
    uint64_t count = 1, max;

    if (bytes == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%d is not a type",
                                (int)shaped->dtype);
    if (shaped->dimension_count > MUSTER_DIMENSIONS_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a tensor must have at most %u dimensions, got %" PRIu32,
                                MUSTER_DIMENSIONS_MAX, shaped->dimension_count);
    max = SIZE_MAX / 2 / bytes;
    for (uint32_t i = 0; i < shaped->dimension_count; i++) {
        uint64_t extent = shaped->dimensions[i];

        if (extent > 0 && count > max / extent)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a tensor must fit into memory, got extents of more");
        count *= extent;
    }
    *ret_count = count;
    return MUSTER_OK;
}

enum muster_rc muster_shape_count(const struct muster_shaped_tensor *shaped, uint64_t *ret_count,
                                  struct muster_error *ret_error)
{
    size_t bytes = muster_dtype_bytes(shaped->dtype);
    uint64_t count = 0;
    enum muster_rc rc = muster_shape_elements(shaped, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (count > 0 && (shaped->data == NULL || (uintptr_t)shaped->data % bytes != 0))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "data of a tensor must be aligned to its %s, got %s",
                                muster_dtype_name(shaped->dtype),
                                shaped->data == NULL ? "NULL" : "another address");
    *ret_count = count;
    return MUSTER_OK;
}

enum muster_rc muster_shape_axis(const struct muster_shaped_tensor *shaped, int32_t axis,
                                 struct muster_axis *ret_axis, struct muster_error *ret_error)
{
    int64_t count = shaped->dimension_count, place = axis < 0 ? axis + count : axis;
    struct muster_axis seen = {1, 1, 1};

    if (count == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a tensor without dimensions has no axis, got %" PRId32
                                "; give it one dimension, or no axis (MUSTER_AXIS_NONE)",
                                axis);
    if (place < 0 || place >= count)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the axis of a tensor with %" PRId64 " dimensions must be %" PRId64
                                " to %" PRId64 ", got %" PRId32,
                                count, -count, count - 1, axis);
    for (uint32_t i = 0; i < shaped->dimension_count; i++) {
        if (i < place)
            seen.outer *= shaped->dimensions[i];
        else if (i == place)
            seen.extent = shaped->dimensions[i];
        else
            seen.inner *= shaped->dimensions[i];
    }
    *ret_axis = seen;
    return MUSTER_OK;
}

void muster_shape_add_along(const struct muster_axis *axis, enum muster_dtype dtype, void *into,
                            const void *from)
{
    size_t row = (size_t)axis->inner * muster_dtype_bytes(dtype);
    const uint8_t *at = from;

    for (uint64_t outer = 0; outer < axis->outer; outer++)
        for (uint64_t i = 0; i < axis->extent; i++, at += row)
            muster_kernel_reduce(dtype, MUSTER_SUM, (uint8_t *)into + outer * row, at,
                                 (size_t)axis->inner);
}

void muster_shape_place(const struct muster_axis *whole, uint64_t first,
                        const struct muster_axis *part, size_t element_bytes, void *into,
                        const void *from)
{
    size_t row = (size_t)part->inner * element_bytes, run = (size_t)part->extent * row;

    for (uint64_t outer = 0; run > 0 && outer < part->outer; outer++)
        memcpy((uint8_t *)into + (outer * whole->extent + first) * row,
               (const uint8_t *)from + outer * run, run);
}

static uint64_t min_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct muster_tensor_part muster_shape_split(const struct muster_shaped_tensor *shaped,
                                             const uint64_t *partition, uint64_t number)
{
    struct muster_tensor_part part = {.first = {0}};

    for (uint32_t i = shaped->dimension_count; i-- > 0;) {
        uint64_t whole = shaped->dimensions[i];
        uint64_t size = whole / partition[i] + (whole % partition[i] != 0);

        part.first[i] = min_of(number % partition[i] * size, whole);
        part.extent[i] = min_of(size, whole - part.first[i]);
        number /= partition[i];
    }
    return part;
}

/* Runs of the last dimension, one for each place in the dimensions before it. */
void muster_shape_read_part(const struct muster_shaped_tensor *shaped,
                            const struct muster_tensor_part *part, void *into)
{
    size_t bytes = muster_dtype_bytes(shaped->dtype);
    uint32_t last = shaped->dimension_count;
    uint64_t runs = 1;
    size_t run = bytes;

    for (uint32_t i = 0; i + 1 < last; i++)
        runs *= part->extent[i];
    if (last > 0)
        run *= (size_t)part->extent[last - 1];
    for (uint64_t number = 0; run > 0 && number < runs; number++) {
        uint64_t rest = number, at = last > 0 ? part->first[last - 1] : 0, stride = 1;

        for (uint32_t i = last; i-- > 1;) {
            stride *= shaped->dimensions[i];
            at += (part->first[i - 1] + rest % part->extent[i - 1]) * stride;
            rest /= part->extent[i - 1];
        }
        memcpy((uint8_t *)into + number * run, (const uint8_t *)shaped->data + at * bytes, run);
    }
}

void muster_shape_format(const struct muster_shaped_tensor *shaped, char *ret_text, size_t size)
{
    int length = snprintf(ret_text, size, "%s[", muster_dtype_name(shaped->dtype));

    for (uint32_t i = 0; i < shaped->dimension_count && i < MUSTER_DIMENSIONS_MAX; i++)
        if (length > 0 && (size_t)length < size)
            length += snprintf(ret_text + length, size - (size_t)length, "%s%" PRIu64,
                               i > 0 ? "," : "", shaped->dimensions[i]);
    if (length > 0 && (size_t)length < size)
        snprintf(ret_text + length, size - (size_t)length, "]");
}
