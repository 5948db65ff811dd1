/* The real thing in every process of a cast: muster_node, groups, catch-up, and a training loop on
 * them. */
#ifndef MUSTER_SIM_WORKER_H
#define MUSTER_SIM_WORKER_H

#include "tests/sim/cast.h"

extern const struct cast_ops worker_ops;

#endif
