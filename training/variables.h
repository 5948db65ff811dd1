/* The variables of docs/protocol.md that concern membership. */
#ifndef MUSTER_TRAINING_VARIABLES_H
#define MUSTER_TRAINING_VARIABLES_H

#include "cluster/member.h"

/** Fills in what the environment says; texts are borrowed from it. INVALID_ARGUMENT names the
 * variable. */
MUSTER_MUST_CHECK enum muster_rc muster_training_read_variables(struct muster_env *env,
                                                                struct muster_node_options *node,
                                                                struct muster_error *ret_error);

#endif
