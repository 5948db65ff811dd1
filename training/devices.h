/* The devices on which the replicas of this member compute: which, and how they are asked for. */
#ifndef MUSTER_TRAINING_DEVICES_H
#define MUSTER_TRAINING_DEVICES_H

#include "training/strategy_internal.h"

/** Choose the devices of the strategy, whose place and logical_device_count are known. *replica_count is what was asked
 * for (0: nothing), and becomes what holds. Errors: as of muster_replicas_configure. */
MUSTER_MUST_CHECK enum muster_rc muster_devices_choose(
    struct muster_strategy *strategy, const struct muster_strategy_options *options,
    uint32_t *replica_count, struct muster_error *ret_error);

#endif
