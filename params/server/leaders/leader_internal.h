/* Between the files of a leader: leader_known.c has its shards, sources and tables, leader_push.c takes pushes,
 * leader_copy.c copies of whole shards, leader.c has the link. */
#ifndef MUSTER_PARAMS_SERVER_LEADER_INTERNAL_H
#define MUSTER_PARAMS_SERVER_LEADER_INTERNAL_H

#include "params/server/core/bits.h"
#include "params/server/leaders/leader.h"

#define MUSTER_PARAMS_SLOT_UNKNOWN UINT64_MAX

struct muster_params_leader {
    struct muster_list node;
    struct muster_params_server *server;
    struct muster_peer_link *link;
    struct muster_params_pulse pulse;
    struct muster_incarnation id;
    uint64_t *slots; /* ours, by the leader's; MUSTER_PARAMS_SLOT_UNKNOWN: it has not told it */
    size_t slot_count;
    uint32_t *tables; /* ours, by the leader's */
    uint32_t table_count;
    uint64_t done_count, acked_count; /* messages */
    /* Shards whose copy differs from the leader's: it gets no pushes until it is made anew. */
    uint8_t stale[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    /* Shards whose copy differs: the tail is to be sent. */
    uint8_t differs[MUSTER_PARAMS_SHARD_COUNT_MAX / 8];
    bool does_differ;
    bool is_kept;                       /* the tail has taken the payload of the message */
    uint8_t *payload;                   /* of the message that is being received, or waits */
    struct muster_frame_header waiting; /* for a map; type 0: none */
};

/* Messages: false where one is malformed, or memory is short. */
typedef bool muster_params_leader_fn(struct muster_params_leader *leader,
                                     const struct muster_frame_header *header, uint8_t *payload);

/* --- leader_known.c --- */

/** Whether changes of the shard come from it: this server's map says so. */
bool muster_params_leader_leads(const struct muster_params_leader *leader, uint32_t shard);
muster_params_leader_fn muster_params_leader_source, muster_params_leader_table;
/** The table that it calls by this number, and the source in this slot of its. NULL: it has told of none. */
struct muster_params_store_table *muster_params_leader_table_at(
    const struct muster_params_leader *leader, uint32_t number);
struct muster_params_source *muster_params_leader_source_at(
    const struct muster_params_leader *leader, uint64_t slot);
/** It names the source anew before it speaks of the slot again. */
void muster_params_leader_drop_slot(struct muster_params_leader *leader, uint64_t slot);

/* --- leader_push.c --- */

muster_params_leader_fn muster_params_leader_push, muster_params_leader_turnover;
/** Whether changes of the shard are applied: it is led, and the copy is whole. data is the leader. */
bool muster_params_leader_is_taken(void *data, uint32_t shard);
/** The shard lacks rows from here on: it gets no pushes, and the primary is told before it hears that the message is
 * done. False: the link is down, or memory is short. */
bool muster_params_leader_full(struct muster_params_leader *leader, uint32_t shard);

/* --- leader_copy.c --- */

muster_params_leader_fn muster_params_leader_begin, muster_params_leader_positions,
    muster_params_leader_rows, muster_params_leader_check, muster_params_leader_forget,
    muster_params_leader_end;
/** Tell it that the copy of the shard is not as its own. As muster_params_leader_full. */
bool muster_params_leader_differs(struct muster_params_leader *leader, uint32_t shard);

#endif
