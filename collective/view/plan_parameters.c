/* Whether plan parameters that came from a user or over the wire can be used. */
#include "collective/view/plan_parameters.h"

/* FLAT, HOST and EXCHANGE stand behind TWO_LEVEL in the enum: the plan chooses them itself, so no
 * row may name them. */
static bool row_is_valid(const struct muster_plan_row *row)
{
    return row->wire <= MUSTER_WIRE_SHM && row->span <= MUSTER_SPAN_SPREAD &&
           row->algorithm != MUSTER_ALGORITHM_AUTO && row->algorithm <= MUSTER_ALGORITHM_TWO_LEVEL;
}

bool muster_plan_parameters_are_valid(const struct muster_plan_parameters *parameters)
{
    if (parameters->forced > MUSTER_ALGORITHM_HOST || parameters->row_count > MUSTER_PLAN_ROWS_MAX)
        return false;
    for (uint32_t i = 0; i < parameters->row_count; i++)
        if (!row_is_valid(&parameters->rows[i]))
            return false;
    return true;
}
