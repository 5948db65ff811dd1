/* Records: what followers must have, kept until they have it. */
#ifndef MUSTER_PARAMS_SERVER_FOLLOWER_RECORD_H
#define MUSTER_PARAMS_SERVER_FOLLOWER_RECORD_H

#include "params/server/core/server_internal.h"
#include "params/server/followers/follower.h"
#include "params/store/turnover.h"

struct muster_params_record {
    struct muster_frame frame;
    struct muster_list node;
    struct muster_params_server *server;
    uint64_t number;      /* of the change that it carries, or after which it was made */
    uint64_t source_begin, source_end; /* slots: the follower must know these sources … */
    uint32_t table_count;              /* … and so many tables */
    uint32_t shard;                    /* with is_copy */
    bool is_copy;    /* a part of a shard that is being copied */
    bool is_sending; /* the link has the frame */
    bool is_done;    /* to be freed as soon as the link gives it back */
    _Alignas(8) uint8_t payload[];
};

/** NULL: no memory. Gives. */
struct muster_params_record *muster_params_record_new(struct muster_params_server *server,
                                                      enum muster_params_copy_message type,
                                                      size_t payload_bytes);
/** Those that no link has. */
void muster_params_records_free(struct muster_params_server *server, struct muster_list *records);
/** Which runs of a push a record is to have. */
struct muster_params_run_filter {
    const struct muster_params_server *server;
    uint64_t mask;         /* those that a follower in it must have, unless … */
    const uint8_t *shards; /* … these are named, a bit each, … */
    const uint64_t *since; /* … and the stamp is not below that of the shard (tail.h) */
    uint64_t stamp;
};
bool muster_params_push_has_runs(const struct muster_params_push *push,
                                 const struct muster_params_run_filter *filter);
/** There are some. As muster_params_record_new. */
struct muster_params_record *muster_params_filtered_record(
    struct muster_params_server *server, const struct muster_params_push *push,
    const struct muster_params_run_filter *filter);
/** The runs of a push whose shards a follower in `mask` must have. As muster_params_record_new. */
struct muster_params_record *muster_params_push_record(struct muster_params_server *server,
                                                       const struct muster_params_push *push,
                                                       uint64_t mask);
/** Room for so many keys that a push turns. As muster_params_record_new. */
struct muster_params_record *muster_params_turnover_record(struct muster_params_server *server,
                                                           const struct muster_params_push *push,
                                                           size_t turned_max);
/** Those whose shards the follower in `mask` must have. */
void muster_params_turnover_fill(struct muster_params_record *record, uint64_t mask,
                                 const struct muster_params_turned *turned, uint32_t count);
/** The next piece of the copy of a shard: about 1 MiB of its positions, or of rows of one table. False: no
 * memory, and none are given; the copy begins anew. */
MUSTER_MUST_CHECK bool muster_params_copy_piece(struct muster_params_server *server,
                                                struct muster_params_copy_cursor *cursor,
                                                struct muster_list *ret_records,
                                                uint32_t *ret_count);

/** Send the record over the follower's link, now or once there is one. Takes record. (follower_send.c) */
void muster_params_follower_append(struct muster_params_follower *follower,
                                   struct muster_params_record *record);

#endif
