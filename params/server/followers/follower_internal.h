/* Between the files of a follower, lowest first: follower_break.c gives a link up, follower_send.c sends records over
 * it, follower_copy.c the copies of shards, follower_ask.c asks whether copies are the same, follower_link.c hears what
 * the follower says, follower_still.c finds those that stand still. */
#ifndef MUSTER_PARAMS_SERVER_FOLLOWER_INTERNAL_H
#define MUSTER_PARAMS_SERVER_FOLLOWER_INTERNAL_H

#include "params/server/core/bits.h"
#include "params/server/followers/follower.h"
#include "params/server/followers/record.h"

static inline uint64_t muster_params_follower_mask(const struct muster_params_follower *follower)
{
    return (uint64_t)1 << follower->bit;
}

/* --- follower_break.c --- */

/** The link is gone, and what it has told: all records that are not done come again over the next one. */
void muster_params_follower_drop_link(struct muster_params_follower *follower);
/** The same, and there is another one soon. */
void muster_params_follower_break(struct muster_params_follower *follower, const char *reason);
/** By which others connect to it. Borrowed from the map. */
const char *muster_params_follower_address(const struct muster_params_follower *follower);
/** The log is told now and then of one that is not reached. */
void muster_params_follower_tell_away(struct muster_params_follower *follower, const char *reason);
/** Whoever waits on a silent link counts from here on. */
void muster_params_follower_await(struct muster_params_follower *follower);
/** Frees record, as soon as the link gives it back. */
void muster_params_record_done(struct muster_params_record *record);

/* --- follower_send.c --- */

/** Send the record, and before it the source and the tables that the link has not told. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_record_send(struct muster_params_follower *follower,
                                                 struct muster_params_record *record);
bool muster_params_follower_knows_source(const struct muster_params_follower *follower,
                                         uint64_t slot);

/* --- follower_copy.c --- */

/** Begin the copy of the next shard that is wanted, unless one is under way. */
void muster_params_follower_learn_next(struct muster_params_follower *follower);
void muster_params_follower_on_copy(struct muster_task *task); /* for follower->copy */
/** The follower has done a record of the copy of this shard. */
void muster_params_copy_record_done(struct muster_params_follower *follower, uint32_t shard);
/** Followers are ready to be copies of what they have learned, where the copies have all that it holds. */
void muster_params_followers_settle(struct muster_params_server *server);
/** It does not wait for that any more. */
static inline void muster_params_copy_unsettle(struct muster_params_follower *follower,
                                               uint32_t shard)
{
    follower->settling_count -= muster_params_bit_is_set(follower->settling, shard);
    muster_params_bit_clear(follower->settling, shard);
}

/* --- follower_ask.c --- */

/** Ask whether the copy is as this server's, unless it has been asked. */
void muster_params_copy_ask(struct muster_params_follower *follower, uint32_t shard);
/** Questions and answers about the shard do not count any more. */
void muster_params_copy_unask(struct muster_params_follower *follower, uint32_t shard);
/** Tell it over a new link which of its copies are stale. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_follower_tell_stale(struct muster_params_follower *follower);
/** It has acknowledged the question: its answer is complete. */
void muster_params_copy_checked(struct muster_params_follower *follower, uint32_t shard);
/** COPY_DIFFERS, COPY_FULL, COPY_TAIL. */
void muster_params_copy_differs(struct muster_params_follower *follower, uint32_t shard);
void muster_params_copy_full(struct muster_params_follower *follower, uint32_t shard);
void muster_params_copy_tail(struct muster_params_follower *follower,
                             const struct muster_frame_header *header);

/** It is known to differ, or cannot be asked: the next map is to drop it. */
void muster_params_copy_stale(struct muster_params_follower *follower, uint32_t shard);

/* --- Followers that stand still (follower_still.c) --- */

/* In the time that a follower has: bytes that leave a queue meanwhile count as progress. */
#define MUSTER_PARAMS_STILL_LOOKS 4u

static inline void muster_params_still_schedule(struct muster_params_server *server)
{
    if (!muster_timer_is_started(&server->still))
        muster_timer_start(&server->still, server->env->loop,
                           muster_loop_after_ns(server->env->loop,
                                                server->replica_lag_ns / MUSTER_PARAMS_STILL_LOOKS +
                                                    1));
}
/** There is a record that is not done. */
static inline void muster_params_follower_owes(struct muster_params_follower *follower)
{
    if (follower->progress_ns != 0 || follower->server->replica_lag_ns == 0)
        return;
    follower->progress_ns = muster_loop_now_ns(follower->server->env->loop);
    follower->still_bytes = 0;
    muster_params_still_schedule(follower->server);
}
/** It has done some. */
static inline void muster_params_follower_progress(struct muster_params_follower *follower)
{
    follower->progress_ns = muster_list_is_empty(&follower->records)
                                ? 0
                                : muster_loop_now_ns(follower->server->env->loop);
}

/* --- follower_link.c --- */

void muster_params_follower_connect(struct muster_params_follower *follower);

#endif
