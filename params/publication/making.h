/* A version that is being made: the tensors of a program are copied into memory of its own, and hashed, in turns. */
#ifndef MUSTER_PUBLICATION_MAKING_H
#define MUSTER_PUBLICATION_MAKING_H

#include <muster/publication.h>

#include "params/publication/held.h"

struct muster_version_making {
    struct muster_held_version *held; /* owned by whoever made it; NULL: nothing is being made */
    const struct muster_named_tensor *tensors; /* of the program, until the last turn */
    uint32_t tensor;                           /* that is being copied, … */
    uint64_t copied;                           /* … so many bytes of it */
    uint32_t chunk;                            /* that is hashed next */
};

/**
 * Memory for a version of put's tensors. Nothing of them is copied yet.
 *
 * Owns:    gives ret_making->held (muster_held_unref); borrows put->tensors until the last turn.
 * Errors:  INVALID_ARGUMENT (a tensor without data, too many tensors, the names of
 *          muster_version_manifest_init), RESOURCE_EXHAUSTED (no memory, a manifest that does not fit into a message).
 */
MUSTER_MUST_CHECK enum muster_rc muster_version_making_init(
    struct muster_version_making *making, struct muster_mem *mem, uint64_t version,
    const struct muster_publication_put *put, struct muster_held_spare *spare,
    struct muster_error *ret_error);
/** Copy or hash for a few milliseconds. False: all is done, and the version only lacks its seal. */
bool muster_version_making_step(struct muster_version_making *making);

#endif
