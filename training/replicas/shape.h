/* Shapes of tensors: extents around an axis, sums along it, and parts that are joined along it. */
#ifndef MUSTER_TRAINING_REPLICAS_SHAPE_H
#define MUSTER_TRAINING_REPLICAS_SHAPE_H

#include <muster/replicas.h>

/** A tensor seen from one axis: outer x extent x inner elements. */
struct muster_axis {
    uint64_t outer, extent, inner;
};

/** Elements of the tensor, whose data is not looked at. INVALID_ARGUMENT: too many dimensions, or more elements than
 * memory has; no type. */
MUSTER_MUST_CHECK enum muster_rc muster_shape_elements(const struct muster_shaped_tensor *shaped,
                                                       uint64_t *ret_count,
                                                       struct muster_error *ret_error);
/** The same; INVALID_ARGUMENT also: data that is NULL or not aligned. */
MUSTER_MUST_CHECK enum muster_rc muster_shape_count(const struct muster_shaped_tensor *shaped,
                                                    uint64_t *ret_count,
                                                    struct muster_error *ret_error);
/** A shape that muster_shape_count has counted, seen from `axis`, negative ones from the last. INVALID_ARGUMENT: it
 * has no such axis. */
MUSTER_MUST_CHECK enum muster_rc muster_shape_axis(const struct muster_shaped_tensor *shaped,
                                                   int32_t axis, struct muster_axis *ret_axis,
                                                   struct muster_error *ret_error);

/** Add the elements along the axis to `into`, outer x inner elements, one after the other. */
void muster_shape_add_along(const struct muster_axis *axis, enum muster_dtype dtype, void *into,
                            const void *from);
/** Put a part at extent `first` of a whole whose axis is `whole`; outer and inner are alike. */
void muster_shape_place(const struct muster_axis *whole, uint64_t first,
                        const struct muster_axis *part, size_t element_bytes, void *into,
                        const void *from);

/** The part with this number, the last dimension counted first; partition has a number above 0 for each dimension. */
struct muster_tensor_part muster_shape_split(const struct muster_shaped_tensor *shaped,
                                             const uint64_t *partition, uint64_t number);
/** Copy a part to where it stands alone. */
void muster_shape_read_part(const struct muster_shaped_tensor *shaped,
                            const struct muster_tensor_part *part, void *into);

/** "f32[2,3]", cut to size. */
void muster_shape_format(const struct muster_shaped_tensor *shaped, char *ret_text, size_t size);

#endif
