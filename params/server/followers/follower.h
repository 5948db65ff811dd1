/* Followers: servers that copy what this one applies. A primary applies a push, sends it to the followers of its
 * shards, and answers when all of them have it. */
#ifndef MUSTER_PARAMS_SERVER_FOLLOWER_H
#define MUSTER_PARAMS_SERVER_FOLLOWER_H

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/store/row.h"
#include "params/wire/map.h"

/** A change, or a part of a shard, on its way to a follower. */
struct muster_params_record;

/** How far the copy of a shard has come. */
struct muster_params_copy_cursor {
    uint32_t shard;
    uint64_t slot;  /* of the next source */
    uint32_t table; /* whose rows come next, from this one on */
    struct muster_params_row_cursor row;
    uint64_t rows_expected; /* of that table, at the follower */
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
    bool is_stranger_told;         /* another server answers there: the log has said so */
    bool was_met;                  /* at this address */
    uint64_t away_ns;              /* since when it is not met */
    uint64_t told_ns;              /* when the log was told of that; before away_ns: it was not */
    struct muster_timer retry;
    uint64_t backoff_ns;
    struct muster_params_pulse pulse;
    uint64_t progress_ns; /* when it has done something the last time, while there is more; 0: there is not */
    size_t still_bytes;   /* that had not left when it was looked at */
    uint64_t again_ns;    /* until it is tried again, if it stands still once more; 0: it did not */
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
    uint8_t settling[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* all of it is done, … */
    uint8_t ready[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];   /* … and the copies have what it has */
    uint8_t refused[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* it has no memory for all of it */
    /* Copies: a bit for each shard whose copy is known to be as this server's, or has been asked. */
    uint8_t asked[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    uint8_t asking[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];  /* it has not answered yet (unite.h) … */
    uint8_t differs[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* … or it has, and is to be asked again */
    uint8_t stale[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];   /* it is not: the next map is to drop it */
    uint8_t answered[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* it has answered the last question */
    uint32_t stale_count;
    uint32_t settling_count;
    uint64_t settle_number; /* of the newest record when the last shard was done */
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
/** Copies of followers that stand still leave the map. */
void muster_params_followers_still_init(struct muster_params_server *server);
/** Ask whether its copy of the shard is as this server's, with these flags of COPY_CHECK. */
void muster_params_follower_check(struct muster_params_follower *follower, uint32_t shard,
                                  uint16_t flags);
/** Begin the copies of shards that are wanted. */
void muster_params_followers_learn(struct muster_params_server *server);
/** The source of the slot is told anew before the next record that names it. */
void muster_params_followers_untell(struct muster_params_server *server, uint64_t slot);
/** Whether some follower keeps a slot for the source of this one. */
bool muster_params_followers_know(const struct muster_params_server *server, uint64_t slot);
/** Whether all followers have done all records up to this one. */
bool muster_params_followers_have(const struct muster_params_server *server, uint64_t number);
/** Whether it has done all records up to this one, and its copies of these shards are not stale. */
bool muster_params_follower_has(const struct muster_params_follower *follower, uint64_t number,
                                const uint16_t *shards, uint32_t shard_count);
/** A learner of the shard has all of it. For muster_params_decide. */
bool muster_params_follower_is_ready(const void *server, uint32_t shard, uint32_t place);
/** The copy of the shard is known to be as this server's. For muster_params_decide. */
bool muster_params_follower_is_whole(const void *server, uint32_t shard, uint32_t place);
/** It is known not to be. */
bool muster_params_follower_is_stale(const void *server, uint32_t shard, uint32_t place);
/** Some learner is ready, or some copy is stale: this server alone knows it. */
bool muster_params_followers_have_news(const struct muster_params_server *server);
/** The server at this place has all that was applied to the shard, and its copy is as this server's. */
bool muster_params_followers_give(const struct muster_params_server *server, uint32_t shard,
                                  uint32_t place);
/** Acknowledgements that came with a later map count now. */
void muster_params_followers_catch_up(struct muster_params_server *server);

/** A message of a copy's tail that is to be adopted, with the shards of which it was asked. */
struct muster_params_told {
    struct muster_list node;
    struct muster_frame_header header;
    void *payload;
    uint32_t follower; /* its bit */
    uint8_t shards[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
};

#endif
