/* Messages of clients: one function for each. */
#ifndef MUSTER_PARAMS_SERVER_HANDLE_H
#define MUSTER_PARAMS_SERVER_HANDLE_H

#include "params/server/core/server_internal.h"

muster_params_handle_fn muster_params_handle_open, muster_params_handle_table,
    muster_params_handle_push, muster_params_handle_pull, muster_params_handle_push_pull,
    muster_params_handle_tick;
/** Do what a message asks whose frame is checked, but for positions and keys. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_push_take(struct muster_params_client *client,
                                               const struct muster_frame_header *header,
                                               const struct muster_params_rows_frame *frame);
/** The same for a push that is refused with this error: the next one to its shards is not the source's first. */
MUSTER_MUST_CHECK bool muster_params_push_refused_take(struct muster_params_client *client,
                                                       const struct muster_frame_header *header,
                                                       const struct muster_params_rows_frame *frame,
                                                       const struct muster_error *error);
MUSTER_MUST_CHECK bool muster_params_pull_take(struct muster_params_client *client,
                                               const struct muster_frame_header *header,
                                               const struct muster_params_rows_frame *frame,
                                               size_t bytes);
/** A push that its client may not send: the next one to its shards is not the source's first. False: the client
 * must be closed. */
MUSTER_MUST_CHECK bool muster_params_push_deny(struct muster_params_client *client,
                                               const struct muster_frame_header *header,
                                               const uint8_t *payload,
                                               const struct muster_error *denial);

#endif
