/* The part of this process in its cluster, by the rules of tf.distribute, for whatever a resolver tells. */
#ifndef MUSTER_TRAINING_PLACE_ROLE_H
#define MUSTER_TRAINING_PLACE_ROLE_H

#include <muster/strategy_role.h>

#include "training/place.h"

/** Fill in place's is_alone, is_chief, id_in_cluster and expected_count by muster_strategy_role_…, with
 * three things that resolvers tell and TensorFlow's rules do not know: "master" is an older name of the
 * chief, a job "coordinator" (of Cloud TPU) stands aside, and indices may have gaps.
 *
 * Errors: INVALID_ARGUMENT (see muster_strategy_role), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_replica_place_set_role(
    struct muster_replica_place *place, struct muster_mem *mem,
    const struct muster_strategy_role *role, struct muster_error *ret_error);

#endif
