/* Memory of a client that a server of its host reads: values of pushes to tensors pass through it. */
#ifndef MUSTER_PARAMS_CLIENT_STAGE_H
#define MUSTER_PARAMS_CLIENT_STAGE_H

#include "params/client/client_internal.h"

/** Give the server of the way such memory, if it is on this host and has none of this link. Pushes do not wait
 * for its answer. */
void muster_params_stage_offer(struct muster_params_way *way);
/** The server has mapped the memory of this number. */
void muster_params_stage_accept(struct muster_params_way *way, uint64_t number);
/** The way's link is gone. Its server may still read messages of it, so that this memory is not used again. */
void muster_params_stage_drop(struct muster_params_way *way);

/** A push of a range becomes a message of where its values lie, if there is room for them. */
void muster_params_stage_put(struct muster_params_request *request);
/** The room is free again: the push is answered, or the link is gone. Its message has its values itself. */
void muster_params_stage_take(struct muster_params_request *request);

#endif
