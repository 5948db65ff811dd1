/* Blobs of a strategy: bytes of the training state whose number may change from step to step, such as the state of a
 * sampler, of generators of random numbers, or of a schedule. Like registered tensors they are given to all members of
 * a new job and to members that join, and are a part of checkpoints; large state belongs in tensors. */
#ifndef MUSTER_STRATEGY_BLOB_H
#define MUSTER_STRATEGY_BLOB_H

#include <muster/base.h>
#include <muster/status.h>
#include <muster/strategy.h>

MUSTER_BEGIN

#define MUSTER_BLOBS_MAX       16u
#define MUSTER_BLOBS_BYTES_MAX (8u << 20) /* of all together */

/** Name a blob, which is empty until it is set: the same names on every member, before the first begin. A name is of a
 * tensor or of a blob; it is copied.
 * ALREADY_EXISTS, FAILED_PRECONDITION (after begin), RESOURCE_EXHAUSTED (MUSTER_BLOBS_MAX; tensors that leave no room
 * for blobs, docs/known-limits.md); what is final in begin, if it is known by now. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_register_blob(
    struct muster_strategy *strategy, const char *name);

/**
 * Set a blob to these bytes, the same on every member. Before the first begin: its initial value; all are given that of
 * one member. Between begin and commit: its value from commit on; a step that ends without commit leaves the blob as
 * it was. A blob that is not set in a step keeps its value.
 *
 * Owns:    copies bytes.
 * Errors:  NOT_FOUND (no such blob), FAILED_PRECONDITION (between commit and begin), RESOURCE_EXHAUSTED (above
 *          MUSTER_BLOBS_BYTES_MAX, no memory). Nothing has changed then.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_set_blob(
    struct muster_strategy *strategy, const char *name, const void *bytes, size_t size);

/** The bytes of the last commit, or those that begin has brought; before the first begin, the initial value. A program
 * looks after the first begin, after one that says that it has restored the state, and when a step runs again.
 * *ret_bytes is borrowed until commit or the next begin. NOT_FOUND. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_strategy_blob(struct muster_strategy *strategy,
                                                                 const char *name,
                                                                 const void **ret_bytes,
                                                                 size_t *ret_size);

MUSTER_END

#endif
