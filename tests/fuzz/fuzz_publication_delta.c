/* Deltas: every path accepts the same ones and makes the same range of them, and what was made survives the way
 * out. */
#include <stdlib.h>
#include <string.h>

#include "params/publication/delta.h"

#define RANGE_BYTES_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* No byte longer than the range. */
static uint8_t *base_new(uint32_t bytes)
{
    uint8_t *base = malloc(bytes > 0 ? bytes : 1);

    if (base == NULL)
        abort();
    for (uint32_t i = 0; i < bytes; i++)
        base[i] = (uint8_t)(i * 7);
    return base;
}

/* The blocks alone, on one path. */
static void check_path(const struct muster_delta_path *path, const uint8_t *delta, size_t size,
                       const uint8_t *range, uint32_t range_bytes)
{
    const uint8_t *blocks = delta + MUSTER_DELTA_HEAD_BYTES;
    uint32_t element_bytes = delta[1], count = range_bytes / element_bytes;
    uint8_t *into;

    if (path == NULL)
        return;
    if (path->check(blocks, size - MUSTER_DELTA_HEAD_BYTES, count, element_bytes) !=
        (range != NULL))
        abort();
    if (range == NULL)
        return;
    into = base_new(range_bytes);
    path->apply(blocks, into, count, element_bytes);
    if (memcmp(into, range, range_bytes) != 0)
        abort();
    free(into);
}

static void check_again(const uint8_t *range, uint32_t range_bytes, uint32_t element_bytes)
{
    uint8_t *base = base_new(range_bytes), *delta = malloc(muster_delta_bytes_max(range_bytes));
    const struct muster_delta_source source = {base, range, range_bytes, element_bytes};
    size_t size;

    if (delta == NULL)
        abort();
    size = muster_delta_encode(&source, delta);
    if (size > muster_delta_bytes_max(range_bytes) ||
        muster_delta_apply(delta, size, base, range_bytes, NULL) != MUSTER_OK ||
        memcmp(base, range, range_bytes) != 0)
        abort();
    free(base);
    free(delta);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint32_t range_bytes, element_bytes;
    uint8_t *range;
    bool is_ok;

    if (size < MUSTER_DELTA_HEAD_BYTES)
        return 0;
    element_bytes = bytes[1];
    memcpy(&range_bytes, bytes + 4, sizeof(range_bytes));
    if (range_bytes > RANGE_BYTES_MAX)
        return 0;
    range = base_new(range_bytes);
    is_ok = muster_delta_apply(bytes, size, range, range_bytes, NULL) == MUSTER_OK;
    /* The paths know nothing of the head. */
    if (bytes[0] == 1 && bytes[2] == 0 && bytes[3] == 0 &&
        (element_bytes == 1 || element_bytes == 2 || element_bytes == 4) &&
        range_bytes % element_bytes == 0) {
        check_path(muster_delta_path_baseline(), bytes, size, is_ok ? range : NULL, range_bytes);
        check_path(muster_delta_path_avx2(), bytes, size, is_ok ? range : NULL, range_bytes);
        check_path(muster_delta_path_avx512(), bytes, size, is_ok ? range : NULL, range_bytes);
    }
    if (is_ok)
        check_again(range, range_bytes, element_bytes);
    free(range);
    return 0;
}
