/* Tables whose rows come and go, in a play: the table of the books has rows for a share of its keys, and a second one
 * has fewer rows than keys, so that its rows take each other's place. */
#ifndef MUSTER_SIM_PARAMS_TURNOVER_H
#define MUSTER_SIM_PARAMS_TURNOVER_H

#include "tests/sim/params_cast.h"

/** Draw how rows go. Before the first client. */
void params_turnover_draw(struct params_cast *cast);
/** Whether the row of the books is one: its key is admitted. */
bool params_turnover_has_row(const struct params_cast *cast, uint32_t row);
/** A client whose first table is open opens the second one. */
void params_turnover_open(struct params_client *client);
/** Perhaps a push to a few rows of it. */
void params_turnover_act(struct params_client *client);

#endif
