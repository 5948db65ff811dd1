/* Progress vectors on the heap and on the wire (proto/membership.proto, message ProgressVector). */
#ifndef MUSTER_CLUSTER_PROGRESS_PROTO_H
#define MUSTER_CLUSTER_PROGRESS_PROTO_H

#include "collective/view/progress.h"

/** A deep copy. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_progress_copy(struct muster_mem *mem,
                                                      const struct muster_progress *progress,
                                                      struct muster_progress **ret_copy);
/** A vector on the heap, with all it holds. NULL is accepted. Takes. */
void muster_progress_free(struct muster_progress *progress);

/** Gives *ret_bytes. */
MUSTER_MUST_CHECK enum muster_rc muster_progress_pack(const struct muster_progress *progress,
                                                      struct muster_mem *mem, void **ret_bytes,
                                                      size_t *ret_size);
/** Gives. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_progress_unpack(struct muster_mem *mem, const void *bytes,
                                                        size_t size,
                                                        struct muster_progress **ret_progress);

#endif
