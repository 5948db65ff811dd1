/* Tails: changes that this server has copied while some other copy may lack them. With three copies and more, and while
 * a shard moves, those that a primary leaves behind may have got more or less of its last changes; the next primary
 * gets all of them from the tails, before it goes on (unite.c). */
#ifndef MUSTER_PARAMS_SERVER_TAIL_H
#define MUSTER_PARAMS_SERVER_TAIL_H

#include "params/server/core/push.h"
#include "params/server/core/server_internal.h"
#include "params/store/turnover.h"

struct muster_params_record;
struct muster_params_tail_entry;

/* Numbers of records rise over all processes of a memory: the bits from this one on count its links. */
#define MUSTER_PARAMS_RECORD_TERM_BIT 40

/* COPY_TAIL has an open and a schema before what changes. */
#define MUSTER_PARAMS_TAIL_HEAD_BYTES (MUSTER_PARAMS_OPEN_BYTES + MUSTER_PARAMS_SCHEMA_BYTES)

/** Errors: RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_params_tail_init(struct muster_params_server *server);
void muster_params_tail_fini(struct muster_params_server *server);

/** The change comes from this server, in its record of this number; zero: another copy told it. */
struct muster_params_tail_origin {
    struct muster_incarnation leader;
    uint64_t number;
    uint64_t epoch; /* of the map by which it was sent */
};
/** A push that was copied. A tail has at most twice what some copy may lack, which the credit of the primaries' clients
 * bounds, and 16 MiB. Takes payload, of so many bytes, in which the push lies; false: no memory, and it is not
 * taken. */
bool muster_params_tail_push(struct muster_params_server *server,
                             const struct muster_params_tail_origin *origin,
                             const struct muster_params_push *push, void *payload, size_t bytes);
/** Rows that came and went with the next push; those with shard UINT32_MAX do not count. As before. */
bool muster_params_tail_turned(struct muster_params_server *server,
                               const struct muster_params_tail_origin *origin,
                               const struct muster_params_push *push,
                               struct muster_params_turned *turned, uint32_t count);
/** All copies have what this leader has told in records up to this number. */
void muster_params_tail_floor(struct muster_params_server *server,
                              const struct muster_incarnation *leader, uint64_t number);
/** Older changes of the shard are of no use: it is learned anew. */
void muster_params_tail_forget(struct muster_params_server *server, uint32_t shard);
/** From now on this process has every change of the shard. */
void muster_params_tail_begin(struct muster_params_server *server, uint32_t shard);
/** The primary asks for this shard now, and settles all older changes with it … */
void muster_params_tail_ask(struct muster_params_server *server, uint32_t shard);
/** … or has settled them: all copies have them. muster_params_tail_sweep follows. */
void muster_params_tail_settle(struct muster_params_server *server, uint32_t shard);
/** Free the entries that nobody can lack. */
void muster_params_tail_sweep(struct muster_params_server *server);
/** The same, now and then, where nothing comes to the tail any more. */
void muster_params_tail_tidy(struct muster_params_server *server);

/** Send all of the tail that tells of these shards (a bit each). False: no memory, and some is not sent. */
bool muster_params_tail_send(struct muster_params_server *server, struct muster_peer_link *link,
                             const uint8_t *shards);
/** Records of the same. As muster_params_tail_send. */
bool muster_params_tail_records(struct muster_params_server *server, const uint8_t *shards,
                                struct muster_list *ret_records);

#endif
