/* Packs of a list of tensors: which of them travel together. Pure. */
#ifndef MUSTER_COLLECTIVE_PACKING_H
#define MUSTER_COLLECTIVE_PACKING_H

#include <muster/collective.h>

#include <stdbool.h>
#include <stddef.h>

/** Tensors first … end - 1. */
struct muster_pack {
    size_t first, end;
};

/** The pack before tensors[end], end > 0: tensors are added from end - 1 downwards until the pack has
 * more than bytes_per_pack bytes (0: all).
 * Source: cross_device_utils.group_by_size (TensorFlow). */
struct muster_pack muster_pack_before(const struct muster_tensor *tensors, size_t end,
                                      uint64_t bytes_per_pack);

/** The part of a pack before its tensor `end` that is of one type. */
struct muster_pack muster_pack_part_before(const struct muster_tensor *tensors,
                                           struct muster_pack pack, size_t end);

/** They lie one after the other in memory (one alone does). */
bool muster_pack_is_contiguous(const struct muster_tensor *tensors, struct muster_pack part);
uint64_t muster_pack_elements(const struct muster_tensor *tensors, struct muster_pack part);

#endif
