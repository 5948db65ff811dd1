/* A server among others: the map, the servers that copy what this one applies (its followers), and those
 * that it copies (its leaders).
 *
 * A primary applies a push, sends it to the followers of its shards, and answers when all of them have
 * it. A follower takes changes of a shard only from the primary that its own map names. */
#ifndef MUSTER_PARAMS_CLUSTER_H
#define MUSTER_PARAMS_CLUSTER_H

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/store/row.h"
#include "params/store/turnover.h"
#include "params/wire/map.h"

#define MUSTER_PARAMS_NOWHERE UINT32_MAX

/* --- The map (map.c) --- */

/** Whether clients whose map has this number may send this server rows of the shard. */
static inline bool muster_params_server_leads(const struct muster_params_server *server,
                                              uint32_t shard, uint64_t map_number)
{
    const struct muster_params_map_shard *entry = &server->map->shards[shard];

    return entry->copy_count > 0 && entry->copies[0] == server->place && entry->since <= map_number;
}
/** The map that counts from now on; ignored unless its number is higher, and by a server that
 * closes. Takes map. */
void muster_params_server_set_map(struct muster_params_server *server,
                                  struct muster_params_map *map);
/** muster_params_positions_digest. The digests of all shards are kept until a position changes: whatever does so
 * ends server->has_digests. */
uint64_t muster_params_server_digest(struct muster_params_server *server, uint32_t shard);

/* --- Followers (follower.c) --- */

/** A change, or a part of a shard, on its way to a follower. */
struct muster_params_record;

/** How far the copy of a shard has come. */
struct muster_params_copy_cursor {
    uint32_t shard;
    uint64_t slot;  /* of the next source */
    uint32_t table; /* whose rows come next, from this one on */
    struct muster_params_row_cursor row;
    bool is_begun, is_over;
};

struct muster_params_follower {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_incarnation id;
    uint32_t place; /* in the map */
    uint32_t bit;   /* in masks of followers */
    struct muster_address address;
    struct muster_peer_link *link; /* NULL: none */
    bool is_met;                   /* hellos have been exchanged: records are being sent */
    bool is_awaited;               /* the pulse is checked */
    struct muster_timer retry;
    uint64_t backoff_ns;
    struct muster_params_pulse pulse;
    struct muster_list records; /* not done at the follower yet, in their order */
    uint64_t done_count;        /* of the records that this link has sent */
    uint64_t early_count;       /* that a later map than ours has answered … */
    uint64_t early_map;         /* … this one; 0: none */
    uint8_t *told_sources;      /* a bit per slot: the link has sent COPY_SOURCE */
    size_t told_bytes;
    uint32_t told_tables;
    /* Shards that it learns: a bit each. */
    uint8_t wanted[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];  /* by the map, and not begun */
    uint8_t begun[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];   /* all of it is in records, or done */
    uint8_t ready[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];   /* all of it is done */
    uint8_t refused[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* it has no memory for all of it */
    /* Copies: a bit for each shard whose copy is known to be as this server's, or has been asked. */
    uint8_t asked[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    uint8_t asking[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];  /* it has not answered yet (unite.h) … */
    uint8_t differs[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* … or it has, and is to be asked again */
    uint8_t stale[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];   /* it is not: the next map is to drop it */
    uint8_t answered[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* it has answered the last question */
    uint32_t stale_count;
    uint32_t
        copying; /* records of the shard that is being copied, which are not done; one shard at a time */
    bool is_copying;                         /* more of them are to be made, … */
    struct muster_params_copy_cursor cursor; /* … from here on, … */
    struct muster_task copy;                 /* … in another turn */
    uint8_t *payload;                        /* of the message that is being received */
};

/** Followers come and go with the map, and learn what it says. */
void muster_params_followers_update(struct muster_params_server *server);
void muster_params_followers_close(struct muster_params_server *server);
/** Links are given up from which nothing comes. True: some wait, and are to be checked again soon. */
bool muster_params_followers_check(struct muster_params_server *server);
/** Ask whether its copy of the shard is as this server's, with these flags of COPY_CHECK. */
void muster_params_follower_check(struct muster_params_follower *follower, uint32_t shard,
                                  uint16_t flags);
/** Begin the copies of shards that are wanted. */
void muster_params_followers_learn(struct muster_params_server *server);
/** A push on its way to the followers of its shards. */
struct muster_params_forward {
    uint64_t mask;                        /* of these followers; 0: none */
    struct muster_list pushes, turnovers; /* a record for each of them */
};
/** Make the records of a push, and of up to turned_max keys that it turns. RESOURCE_EXHAUSTED: there are
 * none. Otherwise muster_params_forward_send follows in the same turn. */
MUSTER_MUST_CHECK enum muster_rc muster_params_forward_prepare(
    struct muster_params_server *server, const struct muster_params_push *push, size_t turned_max,
    struct muster_params_forward *ret_forward);
/** Send them, those with keys that were turned first. The push is applied here in the same turn. */
void muster_params_forward_send(struct muster_params_server *server,
                                const struct muster_params_push *push,
                                struct muster_params_forward *forward,
                                const struct muster_params_turned *turned, uint32_t turned_count);
/** Tell all followers that the source was opened. As muster_params_forward_prepare. */
MUSTER_MUST_CHECK enum muster_rc muster_params_source_forward(struct muster_params_server *server,
                                                              uint64_t slot);
/** Tell all followers that this server has forgotten what the source has pushed to its shards. As
 * muster_params_forward_prepare. */
MUSTER_MUST_CHECK enum muster_rc muster_params_forget_forward(struct muster_params_server *server,
                                                              uint64_t slot);
/** The slot will have another source: followers are told of it. */
void muster_params_followers_untell(struct muster_params_server *server, uint64_t slot);
/** Whether all followers have done all records up to this one. */
bool muster_params_followers_have(const struct muster_params_server *server, uint64_t number);
/** Whether it has done all records up to this one, and its copies of these shards are not stale. */
bool muster_params_follower_has(const struct muster_params_follower *follower, uint64_t number,
                                const uint16_t *shards, uint32_t shard_count);
/** A learner of the shard has all of it. For muster_params_decide. */
bool muster_params_follower_is_ready(const void *server, uint32_t shard, uint32_t place);
/** A copy of the shard is not as this server's. For muster_params_decide. */
bool muster_params_follower_is_whole(const void *server, uint32_t shard, uint32_t place);
bool muster_params_follower_is_stale(const void *server, uint32_t shard, uint32_t place);
/** Some learner is ready, or some copy is stale: this server alone knows it. */
bool muster_params_followers_have_news(const struct muster_params_server *server);
/** Followers answer, in this turn or the next, whether they still follow this server: what they have
 * when they do is record_count. As muster_params_forward_prepare. */
MUSTER_MUST_CHECK enum muster_rc muster_params_mark_forward(struct muster_params_server *server);
/** The server at this place has all that was applied to the shard, and its copy is as this server's. */
bool muster_params_followers_give(const struct muster_params_server *server, uint32_t shard,
                                  uint32_t place);
/** Acknowledgements that came with a later map count now. */
void muster_params_followers_catch_up(struct muster_params_server *server);

/* --- Shards that another copy is to lead (handover.c) --- */

/** The server has a registry. */
void muster_params_handover_open(struct muster_params_server *server);
void muster_params_handover_close(struct muster_params_server *server);
/** The map has changed: shards that were being handed over have been, or begin anew. */
void muster_params_handover_map(struct muster_params_server *server);
/** Nothing is pushed to the shards that are handed over, and their next primaries have all. False: there are
 * none, too. */
bool muster_params_handover_is_ready(const struct muster_params_server *server);
/** For muster_params_decide. */
bool muster_params_handover_is_handed(const void *server, uint32_t shard, uint32_t place);

/* --- Answers that wait for followers (held.c) --- */

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

/* --- Copies that outlive a primary (unite.c) --- */

/** A message of a copy's tail that is to be adopted, with the shards of which it was asked. */
struct muster_params_told {
    struct muster_list node;
    struct muster_frame_header header;
    void *payload;
    uint32_t follower; /* its bit */
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
};

/** Whether rows may not change, nor be shown. */
static inline bool muster_params_unite_waits(const struct muster_params_server *server)
{
    return server->unite.open_count > 0 || server->unite.stale_count > 0;
}

/** A copy has answered, or need not answer any more: shards may be united in the next turn. */
static inline void muster_params_unite_look(struct muster_params_server *server)
{
    if (server->map->copies_wanted > 2)
        muster_task_post(&server->unite.task, server->env->loop);
}

/** A copy of the shard has been asked. */
static inline void muster_params_unite_begin(struct muster_params_server *server, uint32_t shard)
{
    if (server->unite.is_open[shard])
        return;
    server->unite.is_open[shard] = true;
    server->unite.open_count++;
}

/* --- Leaders (leader.c) --- */

/** A link over which another server sends what it has applied. Takes link. */
void muster_params_leader_accept(struct muster_params_server *server,
                                 struct muster_peer_link *link);
/** The map has changed: what waited for it goes on. */
void muster_params_leaders_resume(struct muster_params_server *server);
/** Acknowledge what was done in this turn. */
void muster_params_leaders_flush(struct muster_params_server *server);
void muster_params_leaders_close(struct muster_params_server *server);
/** As muster_params_followers_check. */
bool muster_params_leaders_check(struct muster_params_server *server);

#endif
