/* Answers and decisions that wait until all followers have what they tell. */
#ifndef MUSTER_PARAMS_SERVER_HELD_H
#define MUSTER_PARAMS_SERVER_HELD_H

#include "params/server/core/server_internal.h"

struct muster_params_held;

/**
 * OK: all followers of the shards have what was applied to them. ABORTED: this server does not lead one
 * of them any more, so the outcome is for another server to tell. CANCELLED: the server closes.
 */
typedef void muster_params_held_fn(struct muster_params_held *held, enum muster_rc rc);

/** Caller's memory until done. */
struct muster_params_held {
    struct muster_list node;
    muster_params_held_fn *done;
    uint64_t number; /* of the record that followers must have */
    uint64_t mask;   /* of the followers */
    uint64_t map_number;
    uint32_t shard_count;
    const uint16_t *shards; /* borrowed until done */
};

/** The record and the followers that an answer about this shard must wait for are added. */
static inline void muster_params_held_add(struct muster_params_held *held,
                                          const struct muster_params_server *server, uint32_t shard)
{
    held->mask |= server->shard_followers[shard];
    if (server->shard_records[shard] > held->number)
        held->number = server->shard_records[shard];
}
/** Whether nothing is waited for. */
bool muster_params_held_is_done(const struct muster_params_server *server,
                                const struct muster_params_held *held);
/** held->done is called from a later turn. */
void muster_params_held_start(struct muster_params_held *held, struct muster_params_server *server);
void muster_params_held_cancel(struct muster_params_held *held);
/** Some followers have done more. */
void muster_params_held_check(struct muster_params_server *server);
/** The map has changed: those that wait for servers that do not count any more, and those that are not
 * ours any more, end. */
void muster_params_held_review(struct muster_params_server *server);
void muster_params_held_end_all(struct muster_params_server *server);

#endif
