/* Messages of parameter exchange: frames of peer links with purpose MUSTER_LINK_PARAMS and channel
 * MUSTER_FRAME_PARAMS (docs/protocol.md, "Parameters"). Little endian. Bytes come from strangers:
 * nothing is used before it is checked here. */
#ifndef MUSTER_PARAMS_FRAME_H
#define MUSTER_PARAMS_FRAME_H

#include <muster/incarnation.h>
#include <muster/params.h>
#include <muster/status.h>

#include "net/link/peer_link.h"
#include "params/wire/run.h"
#include "params/wire/version.h"

/** Whether a server that refuses with this code would do so again: there is no use in another attempt. */
static inline bool muster_params_rc_is_final(enum muster_rc rc)
{
    return rc == MUSTER_FAILED_PRECONDITION || rc == MUSTER_INVALID_ARGUMENT ||
           rc == MUSTER_PERMISSION_DENIED || rc == MUSTER_UNAUTHENTICATED;
}

/** header.type. A request has a number in header.offset, which its answer repeats. */
enum muster_params_message {
    MUSTER_PARAMS_OPEN = 1,   /* payload: open; the first of a link */
    MUSTER_PARAMS_OPENED,     /* payload: opened */
    MUSTER_PARAMS_TABLE,      /* payload: schema */
    MUSTER_PARAMS_TABLE_OPEN, /* header.phase: the table's number, header.descriptor */
    MUSTER_PARAMS_PUSH,       /* payload: rows with values; header.offset: the sequence number,
                               * header.chunk: piece, which answers repeat */
    MUSTER_PARAMS_ACK,        /* payload: acks */
    MUSTER_PARAMS_PULL,       /* payload: rows without values */
    MUSTER_PARAMS_ROWS,       /* payload: values, in the order of the request's keys */
    MUSTER_PARAMS_REFUSED,    /* header.phase: enum muster_rc; payload: text for people */
    MUSTER_PARAMS_MAP,   /* payload: map (map.h); the server's first message, and at each change */
    MUSTER_PARAMS_MOVED, /* header.epoch: of the server's map, which it has sent before: route the
                               * request by that one, or a newer one. Runs of a push that are the
                               * server's were applied */
    MUSTER_PARAMS_PUSH_PULL, /* as PUSH; the answer is ROWS after it, with header.flags
                               * REFUSED_PUSH, header.chunk: piece, header.phase: refused rows */
    MUSTER_PARAMS_TICK = 20, /* payload: tick; sent when all pushes before it were answered */
    MUSTER_PARAMS_TICKED,
    MUSTER_PARAMS_WAITS, /* payload: text; the pull of header.offset waits for a clock, and for whom; 0:
                          * operations on tables by round wait for the end of a round */
    MUSTER_PARAMS_ROUND, /* payload: round. To clients, who tell all servers: it is closed */
    MUSTER_PARAMS_CUT, /* payload: number u64 of the cut, and from a client the folder, without NUL: save
                          * all shards. To clients: send MARK */
    MUSTER_PARAMS_MARK, /* payload: mark, to all servers: pushes from here on are after the cut */
    MUSTER_PARAMS_SAVED, /* payload: saved; the answer to CUT */
    MUSTER_PARAMS_PUSH_RANGE, /* elements of a tensor: params/wire/range.h. Answers as to PUSH … */
    MUSTER_PARAMS_PULL_RANGE, /* … and PULL */
    MUSTER_PARAMS_ALIVE, /* both ways, no payload; header.flags MUSTER_PARAMS_ALIVE_ASKS (pulse.h) wants one
                          * without it. The only message that a client may send before the map comes */
    MUSTER_PARAMS_STAGE,      /* payload: token of memory that was given over the host's socket */
    MUSTER_PARAMS_STAGED,     /* that memory is mapped for this link */
    MUSTER_PARAMS_PUSH_STAGED, /* as PUSH_RANGE, whose values lie there; payload: staged */
    MUSTER_PARAMS_HOLD, /* payload: hold. From the client that wants a cut at a clock, and to all clients: send no
                         * push of that step, or a later one; clock 0: go on */
    MUSTER_PARAMS_HELD, /* to the client that wants the cut: all sources have come to its clock */
    MUSTER_PARAMS_LEFT, /* to a server that leaves (MUSTER_LINK_PARAMS_LEAVE): its farewell is noted */
};
/* header.type between servers, over links with purpose MUSTER_LINK_PARAMS_COPY that the primary opens:
 * a stream of changes, in header.epoch the number of the primary's map. */
enum muster_params_copy_message {
    MUSTER_PARAMS_COPY_SOURCE = 64, /* payload: copied_source; header.offset: the primary's slot,
                                     * header.descriptor: its clock as the store has it, header.phase: the newest
                                     * generation of it that a process is known to have */
    MUSTER_PARAMS_COPY_TABLE,       /* payload: schema; header.phase: the primary's number */
    MUSTER_PARAMS_COPY_PUSH,        /* as PUSH, with the slot and the number of the primary */
    MUSTER_PARAMS_COPY_MARK,        /* nothing but its place in the stream */
    MUSTER_PARAMS_COPY_BEGIN,       /* header.phase: a shard, all of which follows: forget it */
    MUSTER_PARAMS_COPY_POSITIONS,   /* header.phase: the shard; payload: copied_position[] */
    MUSTER_PARAMS_COPY_ROWS, /* header.phase: the shard, header.chunk: the primary's table, header.offset: about so
                              * many rows of it the copy will have of this primary, 0: not known; payload:
                              * copied_row[] with values and state */
    MUSTER_PARAMS_COPY_END, /* header.phase: the shard, header.offset: rows of it that were removed */
    MUSTER_PARAMS_COPY_TURNOVER, /* rows that come and go with the COPY_PUSH after it. header.offset: its
                                  * sequence, header.phase: the primary's slot of its source,
                                  * header.chunk: the primary's table; payload: turned[] */
    MUSTER_PARAMS_COPY_ACK, /* to the primary; header.offset: so many of the messages from COPY_PUSH
                              * to COPY_TURNOVER, COPY_CHECK and COPY_FORGET are done; header.epoch: number of the
                              * replica's map */
    MUSTER_PARAMS_COPY_CHECK, /* header.phase: a shard, header.descriptor: digest of its positions */
    MUSTER_PARAMS_COPY_DIFFERS, /* to the primary: those of header.phase have another digest */
    MUSTER_PARAMS_COPY_ALIVE,   /* as ALIVE; not counted by COPY_ACK */
    MUSTER_PARAMS_COPY_FORGET, /* header.offset: the primary's slot of a source, which has another source
                                 * from then on, or none. Its positions are dropped in the primary's shards */
    MUSTER_PARAMS_COPY_FULL, /* to the primary: there is no memory for rows of the shard of header.phase,
                                 * which lacks them from now on */
    MUSTER_PARAMS_COPY_TAIL, /* to the primary, before COPY_DIFFERS: a change that other copies may lack. Payload:
                              * open, schema, and the payload of COPY_PUSH or, with header.flags
                              * COPY_IS_TURNED, of COPY_TURNOVER; header.offset: its sequence */
};
/* header.flags of COPY_CHECK: the copy has said that it differs, over an older link. */
#define MUSTER_PARAMS_COPY_IS_STALE 1u
/* … : a copy that differs now is made anew. Without it, it sends its tail first. */
#define MUSTER_PARAMS_COPY_IS_LAST 2u
/* header.flags of COPY_TAIL. */
#define MUSTER_PARAMS_COPY_IS_TURNED 1u
/* … and of COPY_PUSH: nothing of it is applied, but its source is not new to its shards any more. */
#define MUSTER_PARAMS_COPY_IS_REFUSED 2u
/* … likewise: it makes no rows but those of the COPY_TURNOVER before it, as always in tables whose rows come and go,
 * and in others while the primary's memory is short. */
#define MUSTER_PARAMS_COPY_IS_TOLD 4u
/* … of COPY_TAIL: its source has a name, and is kept. */
#define MUSTER_PARAMS_COPY_TAIL_IS_NAMED 8u
/* header.flags of COPY_SOURCE: the source has a name, and is kept. */
#define MUSTER_PARAMS_COPY_IS_NAMED 1u
/* … : its client is connected to the primary, or has lost its link and may come back. */
#define MUSTER_PARAMS_COPY_IS_LINKED 2u
/** An entry of COPY_POSITIONS. */
struct muster_params_copied_position {
    uint64_t slot; /* the primary's */
    uint64_t position;
};
/** An entry of COPY_ROWS: row_elements + state_elements of f32 follow. */
struct muster_params_copied_row {
    uint64_t key;
    uint32_t clock;
    uint32_t reserved;
};
/* header.flags of REFUSED, MOVED and ROWS: the number is the sequence number of a push. */
#define MUSTER_PARAMS_REFUSED_PUSH 1u
/* header.flags of OPEN: the client has never been open at this server, which may not know the
 * source; open.generation is what another server gave. */
#define MUSTER_PARAMS_OPEN_JOIN 1u
/** header.flags of a client's CUT: it was sent over a link that is gone, perhaps to an older process of the server.
 * Clients have marked for it then, and mark once. */
#define MUSTER_PARAMS_CUT_AGAIN 1u
/* header.epoch of PUSH and PULL: of the map by which the client has routed it. */

/* header.op.step of answers: bytes of messages and of their answers that the client may have outstanding at the
 * server, half of them for pushes and half for pulls; 0: nothing is said. */

#define MUSTER_PARAMS_FRAME_ROWS_MAX 65535u

/** OPEN: who pushes over this link. 104 bytes: source 0, name 16, generation 80, process 88, link 96, and at
 * 100 MUSTER_PARAMS_MESSAGES_VERSION. */
struct muster_params_open {
    struct muster_incarnation source;
    char name[MUSTER_PARAMS_NAME_BYTES]; /* for people; "": none */
    uint64_t generation; /* that this process got before; 0: it opens the source for the first time */
    uint64_t process;    /* the process's own number, drawn at random; 0: not known */
    uint32_t link;       /* counts the openings of the process, so that a late one is known */
};
#define MUSTER_PARAMS_OPEN_BYTES 104u

/** COPY_SOURCE: that of OPEN, and 24 bytes. */
struct muster_params_copied_source {
    struct muster_params_open open;
    uint64_t rounds;        /* that it has completed */
    double weight;          /* of the newest of them */
    uint32_t clock_sources; /* that pulls for a clock wait for; 0: not known */
    uint32_t pushed_clock;  /* of its newest push, + 1; 0: none */
};
#define MUSTER_PARAMS_COPIED_SOURCE_BYTES (MUSTER_PARAMS_OPEN_BYTES + 24u)

/** OPENED. 32 bytes. */
struct muster_params_opened {
    uint64_t slot;       /* of the source; stands in its pushes */
    uint64_t generation; /* an older process of the same source is refused from now on */
    uint32_t shard_count;
    uint32_t lease_s;  /* the server forgets a source without a name after so long without a link; 0: never */
    uint64_t sequence; /* from which a process that opens the source for the first time numbers */
};
#define MUSTER_PARAMS_OPENED_BYTES 32u

#define MUSTER_PARAMS_SCHEMA_BYTES 160u

/** TICK. 24 bytes. */
struct muster_params_tick {
    uint64_t clock;        /* steps that the source has completed, or MUSTER_PARAMS_CLOCK_DONE */
    uint32_t source_count; /* that are expected to tick */
    double weight;         /* of the last of these steps, in rounds; finite and not negative */
};
#define MUSTER_PARAMS_TICK_BYTES 24u

/** ROUND: which sources count in a round. 16 bytes, and 24 for each source; their ids rise. With origins 8 more for
 * each, after all sources. */
struct muster_params_round_source {
    struct muster_incarnation id;
    double weight;
};
/** In a table whose late pushes count later: what of the source is in the round. */
struct muster_params_round_origin {
    uint32_t from;   /* its pushes since this round have not counted before */
    uint32_t counts; /* 1: they do in this round; 0: they go on to the next one */
};
struct muster_params_round {
    uint64_t round; /* the sources' clock in it */
    uint32_t table; /* the server's number */
    uint32_t source_count;
    const struct muster_params_round_source *sources;
    const struct muster_params_round_origin *origins; /* of each; NULL: all count, with their pushes of this round */
};
/* Rounds are numbered below this, so that (round, message) is a sequence number. */
#define MUSTER_PARAMS_ROUND_MAX       (UINT64_C(1) << 31)
#define MUSTER_PARAMS_ROUND_BYTES_MAX (16u + 32u * MUSTER_PARAMS_ROUND_SOURCES_MAX)

/** One answer to a push. 24 bytes. */
struct muster_params_ack {
    uint64_t sequence;
    uint32_t piece; /* header.chunk of the push: several messages may have the runs of one sequence */
    uint32_t rc;
    uint32_t refused; /* rows, with RESOURCE_EXHAUSTED: they are new and there is no memory */
};
#define MUSTER_PARAMS_ACK_BYTES 24u

/** The rows of a push or a pull. 32 bytes, then runs (padded to 8 bytes), keys, values. A pull has no
 * runs. Pointers lead into the payload. */
struct muster_params_rows_frame {
    uint64_t slot;  /* PUSH: of the source */
    uint64_t clock; /* PUSH: the source's step; PULL: the clock that all sources must have come to */
    uint32_t table; /* number */
    uint32_t row_count;
    uint16_t run_count;
    uint8_t dtype; /* enum muster_dtype of the values */
    const struct muster_params_run *runs;
    const uint64_t *keys;
    const void *values; /* NULL in a pull */
    /* A range of a tensor, which has no keys on the wire: elements from the skip-th of the first row on. */
    uint32_t skip;
    uint32_t element_count; /* 0: all of the rows */
};
#define MUSTER_PARAMS_ROWS_HEAD_BYTES 32u

/** Bytes of the payload; row_elements 0: without values. */
size_t muster_params_rows_bytes(uint32_t run_count, uint32_t row_count, uint32_t row_elements,
                                enum muster_dtype dtype);
/** Write the head into a payload of muster_params_rows_bytes, and tell where runs, keys and values
 * go. The payload is aligned to 8. */
void muster_params_rows_pack(const struct muster_params_rows_frame *frame, void *payload,
                             struct muster_params_run **ret_runs, uint64_t **ret_keys,
                             void **ret_values);
/**
 * Read a payload of a push (has_runs) or a pull. row_elements tells the width of the table whose number the
 * frame has; it is called once and gives 0 for no table.
 *
 * Errors: INVALID_ARGUMENT, with a text that names the part. The pointers of ret_frame lead into payload.
 */
typedef uint32_t muster_params_width_fn(const void *data, uint32_t table);
MUSTER_MUST_CHECK enum muster_rc muster_params_rows_unpack(
    const void *payload, size_t bytes, bool has_runs, uint32_t shard_count,
    muster_params_width_fn *width, const void *width_data,
    struct muster_params_rows_frame *ret_frame, struct muster_error *ret_error);

/** The parts of a payload that muster_params_rows_pack has laid out: nothing is checked. */
void muster_params_rows_view(const void *payload, bool has_runs,
                             struct muster_params_rows_frame *ret_frame);
/** The number of the table in a payload of MUSTER_PARAMS_ROWS_HEAD_BYTES or more, of which nothing is checked. */
uint32_t muster_params_rows_table(const void *payload);
/** The numbers that one server has for the source and the table, in a payload of muster_params_rows_pack. */
void muster_params_rows_address(void *payload, uint64_t slot, uint32_t table);

/** Names are shown to people and travel in protobuf: UTF-8 without control characters, and a NUL at
 * their end. */
bool muster_params_name_is_valid(const char name[MUSTER_PARAMS_NAME_BYTES]);

void muster_params_copied_source_pack(const struct muster_params_copied_source *source,
                                      uint8_t ret_bytes[MUSTER_PARAMS_COPIED_SOURCE_BYTES]);
MUSTER_MUST_CHECK enum muster_rc muster_params_copied_source_unpack(
    const void *payload, size_t bytes, struct muster_params_copied_source *ret_source,
    struct muster_error *ret_error);
void muster_params_open_pack(const struct muster_params_open *open,
                             uint8_t ret_bytes[MUSTER_PARAMS_OPEN_BYTES]);
MUSTER_MUST_CHECK enum muster_rc muster_params_open_unpack(const void *payload, size_t bytes,
                                                           struct muster_params_open *ret_open,
                                                           struct muster_error *ret_error);
void muster_params_opened_pack(const struct muster_params_opened *opened,
                               uint8_t ret_bytes[MUSTER_PARAMS_OPENED_BYTES]);
MUSTER_MUST_CHECK enum muster_rc muster_params_opened_unpack(
    const void *payload, size_t bytes, struct muster_params_opened *ret_opened,
    struct muster_error *ret_error);
void muster_params_schema_pack(const struct muster_params_schema *schema,
                               uint8_t ret_bytes[MUSTER_PARAMS_SCHEMA_BYTES]);
/** The name of ret_schema leads into payload. The schema itself is not judged here. */
MUSTER_MUST_CHECK enum muster_rc muster_params_schema_unpack(
    const void *payload, size_t bytes, struct muster_params_schema *ret_schema,
    struct muster_error *ret_error);
void muster_params_tick_pack(const struct muster_params_tick *tick,
                             uint8_t ret_bytes[MUSTER_PARAMS_TICK_BYTES]);
MUSTER_MUST_CHECK enum muster_rc muster_params_tick_unpack(const void *payload, size_t bytes,
                                                           struct muster_params_tick *ret_tick,
                                                           struct muster_error *ret_error);
size_t muster_params_round_bytes(const struct muster_params_round *round);
void muster_params_round_pack(const struct muster_params_round *round, void *ret_bytes);
/** The sources of ret_round lead into payload, which is aligned to 8. */
MUSTER_MUST_CHECK enum muster_rc muster_params_round_unpack(const void *payload, size_t bytes,
                                                            struct muster_params_round *ret_round,
                                                            struct muster_error *ret_error);
/** HOLD. */
struct muster_params_hold {
    uint64_t number;     /* of the cut */
    uint64_t clock;      /* 0: no cut waits for one */
    uint64_t timeout_ns; /* from a client: the cut is given up then */
};
#define MUSTER_PARAMS_HOLD_BYTES 24u
void muster_params_hold_pack(const struct muster_params_hold *hold,
                             uint8_t ret_bytes[MUSTER_PARAMS_HOLD_BYTES]);
MUSTER_MUST_CHECK enum muster_rc muster_params_hold_unpack(const void *payload, size_t bytes,
                                                           struct muster_params_hold *ret_hold,
                                                           struct muster_error *ret_error);
/** MARK. */
struct muster_params_mark {
    uint64_t number; /* of the cut */
    uint64_t pushed; /* the newest step of which this client has sent a push, and 1; 0: none */
};
#define MUSTER_PARAMS_MARK_BYTES 16u
void muster_params_mark_pack(const struct muster_params_mark *mark,
                             uint8_t ret_bytes[MUSTER_PARAMS_MARK_BYTES]);
MUSTER_MUST_CHECK enum muster_rc muster_params_mark_unpack(const void *payload, size_t bytes,
                                                           struct muster_params_mark *ret_mark,
                                                           struct muster_error *ret_error);
/** SAVED: head of 56 bytes, schemas of all tables, entries of 40 bytes of the shards that the server leads. */
struct muster_params_saved {
    uint64_t number; /* of the cut */
    uint64_t map;    /* number of the map by which the server leads its shards */
    uint64_t clock;  /* steps that all sources had completed; 0 where nobody ticks */
    uint32_t shard_count, table_count, entry_count;
    uint64_t sources; /* digest of those that have marked: equal at all servers of a cut */
    uint64_t pushed;  /* the highest of their marks */
    const uint8_t *schemas; /* table_count x MUSTER_PARAMS_SCHEMA_BYTES */
    const struct muster_params_saved_shard *entries;
};
struct muster_params_saved_shard {
    uint32_t shard;
    uint32_t reserved;
    uint64_t cut; /* that has saved it: this one, or an earlier one to the same folder */
    uint64_t bytes, rows;
    uint8_t hash[16];
};
#define MUSTER_PARAMS_SAVED_HEAD_BYTES 56u
#define MUSTER_PARAMS_FOLDER_BYTES_MAX 1024u /* of a cut, without NUL */
size_t muster_params_saved_bytes(uint32_t table_count, uint32_t entry_count);
/** Write the head, and tell where schemas and entries go. */
void muster_params_saved_pack(const struct muster_params_saved *saved, uint8_t *ret_bytes,
                              uint8_t **ret_schemas, struct muster_params_saved_shard **ret_entries);
/** The pointers of ret_saved lead into payload, which is aligned to 8. Schemas are not judged here. */
MUSTER_MUST_CHECK enum muster_rc muster_params_saved_unpack(const void *payload, size_t bytes,
                                                            struct muster_params_saved *ret_saved,
                                                            struct muster_error *ret_error);
void muster_params_ack_pack(const struct muster_params_ack *ack,
                            uint8_t ret_bytes[MUSTER_PARAMS_ACK_BYTES]);
void muster_params_ack_unpack(const uint8_t bytes[MUSTER_PARAMS_ACK_BYTES],
                              struct muster_params_ack *ret_ack);

#endif
