/* The variables MUSTER_* that muster knows. */
#ifndef MUSTER_TRAINING_VARIABLE_NAMES_H
#define MUSTER_TRAINING_VARIABLE_NAMES_H

struct muster_env;

/** Log each variable of the environment that muster_strategy_find_unknown_variables finds, and of which no launcher
 * has told: at the first call of a process. */
void muster_training_tell_unknown_variables(struct muster_env *env);

#endif
