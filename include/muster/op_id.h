/* The name of a collective operation, carried by its frames. */
#ifndef MUSTER_OP_ID_H
#define MUSTER_OP_ID_H

#include <muster/base.h>

MUSTER_BEGIN

/** Names one collective operation for ever: all members issue the operations of a lane in the
 * same order. */
struct muster_op_id {
    uint64_t step; /* of the training loop; 0 before the first begin */
    uint32_t lane;
    uint32_t sequence; /* within (step, lane), from 0 */
};
/** Below, at or above zero: lanes first, then steps, then sequences. */
MUSTER_API int muster_op_id_compare(const struct muster_op_id *a, const struct muster_op_id *b);

MUSTER_END

#endif
