/* Rows of a larger tensor: checked, sorted, added; and as bytes that members send. */
#ifndef MUSTER_TRAINING_REPLICAS_SLICES_H
#define MUSTER_TRAINING_REPLICAS_SLICES_H

#include <muster/slices.h>

/** Bytes of a row; INVALID_ARGUMENT as muster_slices_combine. */
MUSTER_MUST_CHECK enum muster_rc muster_slices_check(const struct muster_slices *slices,
                                                     uint64_t row_count, size_t *ret_row_bytes,
                                                     struct muster_error *ret_error);
/** Room for so many rows in one piece of memory. RESOURCE_EXHAUSTED. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_slices_sum_new(struct muster_mem *mem, uint64_t count,
                                                       const struct muster_slices *like,
                                                       struct muster_slices_sum *ret_sum);
/** RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_slices_sum_copy(const struct muster_slices_sum *sum,
                                                        struct muster_slices_sum *ret_copy);
/** The rows of all, one after the other. All are checked, and alike. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_slices_join(struct muster_mem *mem,
                                                    const struct muster_slices *slices,
                                                    size_t count,
                                                    struct muster_slices_sum *ret_sum);
/** The larger tensor, 0 where there are no rows; into zeroed memory. */
void muster_slices_spread(const struct muster_slices *slices, void *into);

/** Bytes of `count` rows as they are sent: the indices, then the values, then up to 7 bytes. */
uint64_t muster_slices_wire_bytes(uint64_t count, size_t row_bytes);
void muster_slices_write(const struct muster_slices *slices, void *into);
/** Points into the bytes, which are aligned to 8. */
struct muster_slices muster_slices_read(const void *bytes, uint64_t count,
                                        const struct muster_slices *like);

#endif
