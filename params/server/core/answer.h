/* Answers to clients, in memory of the server. */
#ifndef MUSTER_PARAMS_SERVER_ANSWER_H
#define MUSTER_PARAMS_SERVER_ANSWER_H

#include "params/server/core/server_internal.h"

/** Answer with room for payload_max bytes; NULL: no memory. Gives to muster_params_answer_send. */
struct muster_params_answer *muster_params_answer_new(struct muster_params_client *client,
                                                      enum muster_params_message message,
                                                      uint64_t number, size_t payload_max);
/** Free an answer that is not sent; NULL: nothing. */
void muster_params_answer_free(struct muster_params_answer *answer);
/** Takes answer. False: there was no memory for it (answer is NULL) or the link is down; the client
 * must be closed, since it would wait for ever. */
MUSTER_MUST_CHECK bool muster_params_answer_send(struct muster_params_answer *answer,
                                                 size_t payload_bytes);
/** The answer that a request was not done, and why, with its size in its header. NULL: no memory. Gives to
 * muster_params_answer_send. */
struct muster_params_answer *muster_params_refusal_new(
    struct muster_params_client *client, const struct muster_frame_header *request,
    const struct muster_error *error);
/** Send it at once. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_refuse(struct muster_params_client *client,
                                            const struct muster_frame_header *request,
                                            const struct muster_error *error);
/** Acknowledge a push, with others of this turn. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_acknowledge(struct muster_params_client *client,
                                                 const struct muster_params_ack *ack);
/** Tell the client the map, where there is one. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_map_tell(struct muster_params_client *client);
/** Nothing of the request was done: another server leads one of its shards. As
 * muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_moved(struct muster_params_client *client,
                                           const struct muster_frame_header *request);
/** An answer that was due could not be made or sent: the door closes the client in a later turn, so that it asks
 * again over a new link. */
void muster_params_answer_lose(struct muster_params_client *client);
/** Send the acknowledgements that are collected. */
MUSTER_MUST_CHECK bool muster_params_acks_flush(struct muster_params_client *client);

#endif
