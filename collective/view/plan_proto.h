/* Plan parameters as a part of the message View. */
#ifndef MUSTER_COLLECTIVE_PLAN_PROTO_H
#define MUSTER_COLLECTIVE_PLAN_PROTO_H

#include <muster/view.h>

#include "proto/membership.pb-c.h"

/** Memory of one message. */
struct muster_plan_message {
    Muster__Plan plan;
    Muster__PlanRow rows[MUSTER_PLAN_ROWS_MAX];
    Muster__PlanRow *pointers[MUSTER_PLAN_ROWS_MAX];
};

/** NULL when there is nothing to say: all as built in. */
Muster__Plan *muster_plan_to_message(const struct muster_plan_parameters *parameters,
                                     struct muster_plan_message *memory);
/** message may be NULL. False: no valid parameters. */
bool muster_plan_from_message(const Muster__Plan *message,
                              struct muster_plan_parameters *parameters);

#endif
