/* Pushes and pulls of ranges of a tensor. */
#ifndef MUSTER_PARAMS_SERVER_RANGE_H
#define MUSTER_PARAMS_SERVER_RANGE_H

#include "params/server/server_internal.h"
#include "params/wire/range.h"

muster_params_handle_fn muster_params_handle_push_range, muster_params_handle_pull_range;

/** Bytes behind the payload of a PUSH_RANGE up to the end of its last block. 0 for what is refused later. */
size_t muster_params_range_padding(const struct muster_params_server *server,
                                   const struct muster_frame_header *header);

/* handle.c */
/** Do what a message asks whose frame is checked, but for positions and keys. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_push_take(struct muster_params_client *client,
                                               const struct muster_frame_header *header,
                                               const struct muster_params_rows_frame *frame);
MUSTER_MUST_CHECK bool muster_params_pull_take(struct muster_params_client *client,
                                               const struct muster_frame_header *header,
                                               const struct muster_params_rows_frame *frame,
                                               size_t bytes);

#endif
