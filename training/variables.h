/* The variables of docs/protocol.md that concern membership. */
#ifndef MUSTER_TRAINING_VARIABLES_H
#define MUSTER_TRAINING_VARIABLES_H

#include "cluster/member.h"

/** Fills in what the environment says; texts are borrowed from it. INVALID_ARGUMENT names the
 * variable. */
MUSTER_MUST_CHECK enum muster_rc muster_training_read_variables(struct muster_env *env,
                                                                struct muster_node_options *node,
                                                                struct muster_error *ret_error);

/** Under a launcher: this strategy is the process's member until give; the second one at the same
 * time is refused (FAILED_PRECONDITION). Of several one after the other the first alone is a return
 * after a restart. */
MUSTER_MUST_CHECK enum muster_rc muster_training_take_incarnation(struct muster_node_options *node,
                                                                  bool *ret_is_taken,
                                                                  struct muster_error *ret_error);
void muster_training_give_incarnation(void);

#endif
