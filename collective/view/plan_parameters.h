/* The plan parameters of a view. */
#ifndef MUSTER_COLLECTIVE_PLAN_PARAMETERS_H
#define MUSTER_COLLECTIVE_PLAN_PARAMETERS_H

#include <muster/view.h>

/** Its algorithms, wires and spans are known, and its rows are not too many. */
bool muster_plan_parameters_are_valid(const struct muster_plan_parameters *parameters);

#endif
