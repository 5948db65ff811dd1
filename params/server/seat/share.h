/* The server's memory for clients of its host, to read from. */
#ifndef MUSTER_PARAMS_SHARE_H
#define MUSTER_PARAMS_SHARE_H

#include <muster/env.h>

#include "params/server/seat/seat.h"
#include "params/wire/range.h"

struct muster_params_share;

/** A client of this user wants to talk through memory. Whether there is room: takes socket then. */
typedef bool muster_params_share_ring_fn(void *data, int socket);
/** Give the seat's memory, to read from, to processes of this user that ask for it. NULL: that is not
 * possible (a simulated host, an old kernel, no descriptor left); clients pull then. on_ring NULL: clients talk over
 * connections alone. Gives. */
struct muster_params_share *muster_params_share_open(struct muster_env *env,
                                                     struct muster_params_seat *seat,
                                                     muster_params_share_ring_fn *on_ring,
                                                     void *data);
/** The memory that a client of this user has given with this token. -1: it has not. Gives. */
int muster_params_share_find(struct muster_params_share *share,
                             const struct muster_params_stage_token *token);
/** NULL is accepted. What was given stays readable. */
void muster_params_share_close(struct muster_params_share *share);

#endif
