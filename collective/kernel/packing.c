/* Packs of a list of tensors: small ones travel together, because an operation costs latency
 * whatever its size. Packs are made from the end, because the gradients of the last layers are
 * there first (as in TensorFlow). */
#include "collective/kernel/packing.h"

static uint64_t bytes_of(const struct muster_tensor *tensor)
{
    return tensor->count * muster_dtype_bytes(tensor->dtype);
}

struct muster_pack muster_pack_before(const struct muster_tensor *tensors, size_t end,
                                      uint64_t bytes_per_pack)
{
    struct muster_pack pack = {.first = end, .end = end};
    uint64_t bytes = 0;

    MUSTER_ASSERT(end > 0);
    while (pack.first > 0 && (bytes_per_pack == 0 || bytes <= bytes_per_pack))
        bytes += bytes_of(&tensors[--pack.first]);
    return pack;
}

struct muster_pack muster_pack_part_before(const struct muster_tensor *tensors,
                                           struct muster_pack pack, size_t end)
{
    struct muster_pack part = {.first = end, .end = end};

    MUSTER_ASSERT(end > pack.first && end <= pack.end);
    while (part.first > pack.first && tensors[part.first - 1].dtype == tensors[end - 1].dtype)
        part.first--;
    return part;
}

bool muster_pack_is_contiguous(const struct muster_tensor *tensors, struct muster_pack part)
{
    for (size_t i = part.first + 1; i < part.end; i++)
        if ((const uint8_t *)tensors[i - 1].data + bytes_of(&tensors[i - 1]) !=
            (const uint8_t *)tensors[i].data)
            return false;
    return true;
}

uint64_t muster_pack_elements(const struct muster_tensor *tensors, struct muster_pack part)
{
    uint64_t count = 0;

    for (size_t i = part.first; i < part.end; i++)
        count += tensors[i].count;
    return count;
}
