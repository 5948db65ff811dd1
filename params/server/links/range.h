/* Pushes and pulls of ranges of a tensor. */
#ifndef MUSTER_PARAMS_SERVER_RANGE_H
#define MUSTER_PARAMS_SERVER_RANGE_H

#include "params/server/core/server_internal.h"
#include "params/wire/range.h"

muster_params_handle_fn muster_params_handle_push_range, muster_params_handle_pull_range,
    muster_params_handle_stage, muster_params_handle_push_staged;

/** Give up the memory of a client that is being closed. Idempotent. */
void muster_params_stage_unmap(struct muster_params_client *client);
/** The tensor of a table that has one. */
struct muster_params_tensor muster_params_tensor_of(const struct muster_params_store_table *table);
/** Push what a message that is checked names. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_range_push(struct muster_params_client *client,
                                                const struct muster_frame_header *header,
                                                const struct muster_params_range_frame *range,
                                                const void *values);
/** Refuse a push to a tensor: as with rows, the client marks no other push to its shard as the first one. As
 * muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_range_refuse(struct muster_params_client *client,
                                                  const struct muster_frame_header *header,
                                                  const struct muster_error *error);
/** The tensor that a message names. Errors: INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_params_range_table_find(
    const struct muster_params_client *client, const struct muster_frame_header *header,
    struct muster_params_tensor *ret_tensor, struct muster_error *ret_error);

/** Bytes after the payload of a PUSH_RANGE up to the end of its last block. 0 for what is refused later. */
size_t muster_params_message_padding(const struct muster_params_server *server,
                                     const struct muster_frame_header *header);

#endif
