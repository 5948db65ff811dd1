/* The server's memory for clients of its host, to read from. */
#ifndef MUSTER_PARAMS_SHARE_H
#define MUSTER_PARAMS_SHARE_H

#include <muster/env.h>

#include "params/server/seat.h"

struct muster_params_share;

/** Give the seat's memory, to read from, to processes of this user that ask for it. NULL: that is not
 * possible (a simulated host, an old kernel, no descriptor left); clients pull then. Gives. */
struct muster_params_share *muster_params_share_open(struct muster_env *env,
                                                     struct muster_params_seat *seat);
/** NULL is accepted. What was given stays readable. */
void muster_params_share_close(struct muster_params_share *share);

#endif
