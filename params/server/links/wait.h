/* Answers of clients that wait until all followers have what they tell. */
#ifndef MUSTER_PARAMS_SERVER_WAIT_H
#define MUSTER_PARAMS_SERVER_WAIT_H

#include "params/server/core/server_internal.h"
#include "params/server/followers/held.h"

struct muster_params_waiting {
    struct muster_params_held held;
    struct muster_list node; /* of the client's */
    struct muster_params_client *client;
    uint64_t since_ns;
    size_t held_bytes; /* of the request, while it waits: followers' records have its rows */
    struct muster_frame_header request;
    struct muster_params_ack ack;        /* of a push */
    struct muster_params_answer *answer; /* of others, with its size in its header */
    uint16_t shards[];
};

/** The answer to a request; shards are added by muster_params_waiting_add. NULL: no memory. Gives to
 * muster_params_waiting_start. */
struct muster_params_waiting *muster_params_waiting_new(struct muster_params_client *client,
                                                        const struct muster_frame_header *request,
                                                        uint32_t shards_max);
void muster_params_waiting_add(struct muster_params_waiting *waiting, uint32_t shard);
void muster_params_waiting_free(struct muster_params_waiting *waiting);
/** Answer now, where all followers have it, or later. Takes waiting. As muster_params_answer_send. */
MUSTER_MUST_CHECK bool muster_params_waiting_start(struct muster_params_waiting *waiting);
/** The client is being closed. */
void muster_params_waiting_drop(struct muster_params_client *client);

#endif
