/* Between the files of the client. */
#ifndef MUSTER_PARAMS_CLIENT_INTERNAL_H
#define MUSTER_PARAMS_CLIENT_INTERNAL_H

#include <muster/address.h>
#include <muster/params.h>

#include "net/link/peer_link.h"
#include "params/client/forward.h"
#include "params/wire/frame.h"
#include "params/wire/map.h"
#include "params/wire/range.h"
#include "params/wire/pulse.h"

/** The state of the way to a server. The table of moves is in client/way.c. */
enum muster_params_way_state {
    MUSTER_PARAMS_WAY_CONNECTING, /* a link is being opened, up to the server's hello */
    MUSTER_PARAMS_WAY_MEETING,    /* its map is awaited, or the source's generation */
    MUSTER_PARAMS_WAY_OPENING,    /* the source is named; OPENED is awaited */
    MUSTER_PARAMS_WAY_OPEN,
    MUSTER_PARAMS_WAY_PAUSED, /* the link was lost: the next attempt waits */
    MUSTER_PARAMS_WAY_FAILED, /* the server refuses this client for good */
};

/** A table as one server numbers it. */
struct muster_params_way_table {
    bool is_asked; /* a request for it is in way->requests, or was answered */
    bool is_known;
    uint32_t number;
};

#define MUSTER_PARAMS_SERVER_TEXT_BYTES (MUSTER_HOST_TEXT_BYTES + 8u) /* a name and a port */

/** The way to one server. */
struct muster_params_way {
    struct muster_list node;
    struct muster_params *params;
    struct muster_incarnation id; /* of the server's memory; zero: it has not been met */
    struct muster_endpoint endpoint;
    char server[MUSTER_PARAMS_SERVER_TEXT_BYTES]; /* endpoint, for people */
    enum muster_params_way_state state;
    struct muster_error error;     /* why it is not open */
    struct muster_peer_link *link; /* NULL: none */
    struct muster_timer retry;
    uint64_t backoff_ns;
    struct muster_timer check; /* whether the link is half open; runs while an answer is awaited */
    struct muster_params_pulse pulse;
    struct muster_frame leaving;                      /* tells the server that this client ends */
    uint8_t opened_bytes[MUSTER_PARAMS_OPENED_BYTES]; /* OPENED, or the begin of a refusal */
    bool is_seed;                                     /* it is not a way to a server of the map */
    bool is_by_memory;      /* its link is a stream through memory of this host … */
    bool avoids_memory;     /* … which has failed: the next one is a connection */
    bool was_by_memory;     /* it goes back to memory when it can … */
    uint32_t returns_tried; /* … and has looked so often over this link whether it is idle */
    bool is_strange;        /* CONNECTING: another server answers, whose map is awaited */
    bool was_met;           /* it has answered at this address, or by memory */
    bool was_open;
    uint64_t map_number; /* of the map by which the source was named, the last time */
    bool leads;          /* a shard of the map */
    uint64_t slot;       /* of the source */
    uint64_t since_ns;   /* when it was made, or open the last time */
    uint64_t told_ns;    /* when the log was told that it is not reached */
    /* Messages that are not answered, in the order of their numbers. */
    struct muster_list pushes;
    struct muster_list requests; /* others than pushes */
    /* A push waits for credit or for the number of its table: those behind it wait, and pulls of their tables. */
    bool is_behind;
    uint64_t behind;         /* its number */
    bool is_pull_behind;     /* a pull waits for credit: others wait behind it */
    uint64_t credit;         /* of the server, in bytes; 0: it has not said any */
    uint64_t outstanding[2]; /* bytes of pushes, and of pulls, that are sent and not answered */
    struct muster_params_way_table *tables; /* by table->index */
    uint32_t table_count;
    struct muster_params_stage *stage; /* of this link; NULL: none */
    uint64_t stage_ns;                 /* it is not offered before that */
    struct muster_params_sight *sight; /* of the server's memory; NULL: it was not asked for */
    /* The answer that is being received: a pull's into the memory of its only part, or, with receiving NULL,
     * any other's into a buffer of the pool. */
    struct muster_params_request *receiving;
    uint8_t *received;
    uint64_t
        hold_clock; /* a cut of the server waits for it: no push of this step or later is sent; 0: none */
    char waits_for[200]; /* the server's text on why a pull waits for a clock; "": none waits */
};

/** A part of an operation that travels in one message. */
struct muster_params_part {
    struct muster_params_op *op; /* NULL: it has ended meanwhile */
    uint32_t row_count;
    void *values; /* of a pull: where they go */
};

enum muster_params_request_kind {
    MUSTER_PARAMS_REQUEST_TABLE,
    MUSTER_PARAMS_REQUEST_PUSH,
    MUSTER_PARAMS_REQUEST_PULL,
    MUSTER_PARAMS_REQUEST_PUSH_PULL, /* each row is a part of its own, in the order of the message */
    MUSTER_PARAMS_REQUEST_TICK,      /* without a table */
    MUSTER_PARAMS_REQUEST_CUT,       /* likewise */
    MUSTER_PARAMS_REQUEST_HOLD,      /* likewise */
    MUSTER_PARAMS_REQUEST_PUSH_RANGE, /* of a tensor: one part, whose values are the frame's payload */
    MUSTER_PARAMS_REQUEST_PULL_RANGE,
};

/** Whether the request is about all tables. */
static inline bool muster_params_request_kind_is_wide(enum muster_params_request_kind kind)
{
    return kind == MUSTER_PARAMS_REQUEST_TICK || kind == MUSTER_PARAMS_REQUEST_CUT ||
           kind == MUSTER_PARAMS_REQUEST_HOLD;
}

/** A message that is kept until it is answered, and sent again over the next link. */
struct muster_params_request {
    struct muster_frame frame;
    struct muster_params *params;
    struct muster_params_way *way;
    struct muster_params_table *table;
    enum muster_params_request_kind kind;
    uint64_t number; /* PUSH: its sequence number */
    struct muster_list node;
    uint64_t first_ns; /* when it was sent the first time; 0: it was not */
    bool is_sent;      /* over the link that the way has now */
    bool is_sending;   /* a link has the frame */
    uint64_t cost;     /* while it is sent: in way->outstanding */
    uint64_t barrier;  /* PULL: number of the newest push to its table */
    bool is_answered;  /* to be freed as soon as the link gives it back */
    uint32_t part_count;
    struct muster_params_part *parts;       /* after the payload */
    uint64_t row_bytes;                     /* PUSH: of its keys and values */
    struct muster_params_range_frame range; /* of a tensor */
    uint32_t shard;                         /* of the range */
    void *copy;    /* of the values of a push to a tensor whose operation has ended; NULL: none */
    uint32_t slot; /* of the way's stage, from 1: the values lie there; 0: in the message */
    bool has_ack;  /* came while a link still had the frame */
    uint32_t refused; /* has_ack: rows */
    _Alignas(8) uint8_t payload[];
};

/** Whether the request has runs and a sequence number. */
static inline bool muster_params_request_is_push(const struct muster_params_request *request)
{
    return request->kind == MUSTER_PARAMS_REQUEST_PUSH ||
           request->kind == MUSTER_PARAMS_REQUEST_PUSH_PULL ||
           request->kind == MUSTER_PARAMS_REQUEST_PUSH_RANGE;
}

static inline bool muster_params_request_is_range(const struct muster_params_request *request)
{
    return request->kind == MUSTER_PARAMS_REQUEST_PUSH_RANGE ||
           request->kind == MUSTER_PARAMS_REQUEST_PULL_RANGE;
}

struct muster_params_table {
    struct muster_list node;
    struct muster_params *params;
    char name[MUSTER_PARAMS_NAME_BYTES];
    uint8_t schema[MUSTER_PARAMS_SCHEMA_BYTES];
    uint32_t row_elements;
    enum muster_dtype wire_dtype;
    uint64_t seed;  /* of the hash of keys */
    uint32_t index; /* among the tables of this client */
    /* The operation that opens it, until all servers that lead a shard are asked. */
    struct muster_params_op *opening;
    struct muster_params_table **ret_table; /* where that operation wants it */
    bool is_given;                          /* the program has it */
    uint64_t descriptor;                    /* the servers' */
    struct muster_list pushes, pulls;       /* operations of this turn */
    struct muster_list
        kept; /* pushes that wait for a cut at a clock before them; pulls wait behind them */
    struct muster_params_tensor tensor; /* elements 0: it has rows */
    uint64_t pushed;                    /* number of its newest push; 0: none */
    uint32_t range_pushes;              /* messages to the tensor that are not answered */
    struct muster_list
        ranges; /* operations on the tensor of which elements are in no message yet */
    /* By round. */
    bool is_by_round;
    bool is_round_carried;       /* pushes of closed rounds are sent */
    uint64_t round;              /* that is open */
    struct muster_list held;     /* operations that wait for it, and those of this turn */
    struct muster_list closings; /* of the newest rounds before it, as servers are told of them */
};

struct muster_params {
    struct muster_env *env;
    void *data;
    const struct muster_params_home *home; /* NULL: no server of this process */
    struct muster_runtime *runtime;        /* of blocking calls; NULL: none */
    struct muster_params_outcome *outcome; /* for which a blocking call waits */
    struct muster_params_options options;
    struct muster_peer_hello hello;
    struct muster_params_open source;
    struct muster_mem_pool pool;
    struct muster_params_map *map; /* NULL: none has come yet */
    bool is_alone;                 /* the map is of one server that has no registry */
    struct muster_list ways;
    struct muster_params_way *routes[MUSTER_PARAMS_SERVERS_MAX]; /* by places of the map */
    struct muster_params_way *only; /* leads all shards; NULL: several do, or some have no server */
    struct muster_params_way
        *nowhere; /* keeps messages for shards that no server has; never open */
    const struct muster_params_way_events *way_events;
    struct muster_error error;
    bool is_failed;           /* for good; error says why */
    bool is_ready;            /* all servers know the source: pushes have numbers from here on */
    muster_params_fn *opened; /* NULL: it has been called */
    struct muster_task tell;  /* calls opened, or closed */
    struct muster_task look;  /* checks whether all servers are open */
    struct muster_task ask;   /* asks servers for new tables */
    struct muster_timer opening_deadline;
    uint32_t shard_count; /* 0: there is no map */
    uint64_t lease_ns;    /* servers may forget a source without a name after so long; 0: never */
    struct muster_list tables;
    uint32_t table_count;
    struct muster_list ops;
    struct muster_params_tick completed; /* of a source that is done: the one before; 0: none */
    uint64_t mark_wanted, marked;        /* numbers of cuts */
    uint64_t pushed; /* the newest step of which a push has a message, and 1; 0: none */
    struct muster_params_cutting *cutting; /* that the program has asked for; NULL: none */
    struct muster_list ticks; /* operations that wait for the acknowledgements of pushes */
    double weight;            /* of the clock that servers are told */
    char round_waits[200];    /* for whom operations on tables by round wait; "": not known */
    uint64_t ticked;          /* the newest clock that the program has told … */
    uint64_t clock;           /* … and the one that servers are told */
    uint32_t push_count;      /* messages of pushes that are not answered */
    uint32_t piece; /* number of the newest message with some runs of a push; whole pushes have 0 */
    uint64_t sequence;                                     /* of the next push, from 1 */
    uint8_t has_pushed[MUSTER_PARAMS_SHARD_COUNT_MAX / 8]; /* a bit per shard */
    uint64_t position;                                     /* muster_params_source_position */
    uint64_t number;                                       /* of the next other request */
    uint64_t queued_bytes;    /* of keys and values of pushes that are not acknowledged */
    uint64_t collected_bytes; /* of pushes of this turn */
    uint64_t range_bytes;     /* of values of ranges whose messages are not answered */
    uint64_t range_pushes;    /* counts those that were started */
    struct muster_task flush;
    struct muster_timer deadline; /* the next of any operation */
    /* Closing. */
    bool is_closing;
    bool has_left;          /* servers are told that it ends, … */
    uint32_t leaving_count; /* … over links that have not sent it yet */
    bool is_closed;
    muster_params_fn *closed;
    struct muster_timer closing_deadline;
};

/** One row has so many bytes as it travels. */
static inline size_t muster_params_value_bytes(const struct muster_params_table *table)
{
    return table->row_elements * muster_dtype_bytes(table->wire_dtype);
}

/** Whether nothing was pushed to the shard before; from now on something was. */
static inline bool muster_params_shard_is_new(struct muster_params *params, uint32_t shard)
{
    uint8_t bit = (uint8_t)(1u << shard % 8);
    bool is_new = (params->has_pushed[shard / 8] & bit) == 0;

    params->has_pushed[shard / 8] |= bit;
    return is_new;
}

/** The next push to the shard is as its first. */
static inline void muster_params_shard_renew(struct muster_params *params, uint32_t shard)
{
    params->has_pushed[shard / 8] &= (uint8_t) ~(1u << shard % 8);
}

/* client.c */
/** As muster_params_open. home: NULL, or as muster_params_forward_open has it. */
MUSTER_MUST_CHECK enum muster_rc muster_params_open_home(
    struct muster_env *env, const struct muster_params_options *options,
    const struct muster_params_home *home, muster_params_fn *opened,
    struct muster_params **ret_params, struct muster_error *ret_error);

/* way.c */
/** The owner of the ways is told by these. */
struct muster_params_way_events {
    /** The server has been met, or has a new map. The bytes are a stranger's. */
    void (*on_map)(struct muster_params_way *way, const void *bytes, size_t size);
    /** A source is opened at the server now. */
    void (*on_open)(struct muster_params_way *way, const struct muster_params_opened *opened);
    void (*on_failed)(struct muster_params_way *way); /* for good; way->error says why */
    /** An answer that is not the way's own: room for its payload, or NULL to discard it. */
    void *(*on_frame)(struct muster_params_way *way, const struct muster_frame_header *header);
    void (*on_payload)(struct muster_params_way *way, const struct muster_frame_header *header,
                       void *buffer);
    void (*on_lost)(struct muster_params_way *way); /* the link is gone, and what it received */
    /** A link has given back the frame of a push that was acknowledged before; rows were refused. */
    void (*on_acked)(struct muster_params_request *request, uint32_t refused);
    void (*on_unreached)(struct muster_params_way *way); /* the server is not where the map says */
};
/** A way that connects. id NULL: not known. NULL: no memory. Gives. */
struct muster_params_way *muster_params_way_new(struct muster_params *params,
                                                const struct muster_incarnation *id,
                                                const struct muster_endpoint *endpoint,
                                                const char *server);
/** Name the source, if the way is met and waits for that: with params->source.generation, or, at the
 * source's home, without. */
void muster_params_way_name(struct muster_params_way *way, bool is_home);
/** The link is given up; the next attempt follows. */
void muster_params_way_break(struct muster_params_way *way, const struct muster_error *error);
/** The server can never serve this client: on_failed. */
void muster_params_way_fail(struct muster_params_way *way, const struct muster_error *error);
/** The client is refused: no way carries anything any more. */
void muster_params_ways_end(struct muster_params *params);
/** Its link ends, and gives back the messages that it has. */
void muster_params_way_hang_up(struct muster_params_way *way);
/** An answer is awaited: find out when the link is half open (pulse.c). */
void muster_params_way_watch(struct muster_params_way *way);
/** The same for all ways: an operation has begun. */
void muster_params_ways_watch(struct muster_params *params);
/** Its timer has fired. UNAVAILABLE: the link is half open. */
MUSTER_MUST_CHECK enum muster_rc muster_params_way_check(struct muster_params_way *way,
                                                         struct muster_error *ret_error);
/** The server says that it lives, or asks for the same. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_way_alive(struct muster_params_way *way,
                                               const struct muster_frame_header *header);
/** Close the link and free what it has received. The way must have no requests. */
void muster_params_way_free(struct muster_params_way *way);

/** "", or the remedy where a server of the map was never met: it ends the text of an error. */
const char *muster_params_way_remedy(const struct muster_params_way *way);

/* answer.c: events of ways */
void *muster_params_answer_on_frame(struct muster_params_way *way,
                                    const struct muster_frame_header *header);
void muster_params_answer_on_payload(struct muster_params_way *way,
                                     const struct muster_frame_header *header, void *buffer);
void muster_params_answer_on_lost(struct muster_params_way *way);
void muster_params_answer_on_acked(struct muster_params_request *request, uint32_t refused);

/* seeds.c */
/** Whether the list is of addresses, with commas between them. INVALID_ARGUMENT. */
MUSTER_MUST_CHECK enum muster_rc muster_params_seeds_check(const char *list,
                                                           struct muster_error *ret_error);
/** Open ways to those of options.server that no way leads to. False: no memory. */
bool muster_params_seeds_open(struct muster_params *params);

/* table.c */
void muster_params_tables_on_ask(struct muster_task *task); /* for params->ask */

/* request.c */
/** A request with room for payload and parts; NULL: no memory. Gives to muster_params_request_send. */
struct muster_params_request *muster_params_request_new(struct muster_params *params,
                                                        struct muster_params_table *table,
                                                        enum muster_params_request_kind kind,
                                                        size_t payload_bytes, uint32_t part_count);
/** A message for elements of one extent of a tensor. values: the caller's. NULL: no memory. */
struct muster_params_request *muster_params_range_request_new(
    struct muster_params_table *table, enum muster_params_request_kind kind,
    const struct muster_params_range_frame *range, void *values);
uint32_t muster_params_range_shard(const struct muster_params_table *table, uint64_t offset);
/** Keep it in its place by its number, and send it as soon as the way is open. Takes request. */
void muster_params_request_send(struct muster_params_request *request,
                                struct muster_params_way *way, uint64_t number);
/** Send everything that the way's link has not had: over a new link, or once a table is known. */
void muster_params_requests_resend(struct muster_params_way *way);
/** Nothing that has waited for half the lease of a source without a name is sent again: servers may have
 * forgotten that they have applied it. Such pushes end. */
void muster_params_pushes_expire(struct muster_params *params);
/** The link is gone: all requests of the way are to be sent again. */
void muster_params_requests_unsend(struct muster_params_way *way);
/** The request that has this number (of a push, with its piece); NULL: none, its answer came before. */
struct muster_params_request *muster_params_request_find(const struct muster_params_way *way,
                                                         bool is_push, uint64_t number,
                                                         uint32_t piece);
/** The request was answered: its parts end with rc, and it is freed. error may be NULL. */
void muster_params_request_finish(struct muster_params_request *request, enum muster_rc rc,
                                  const struct muster_error *error);
/** Other requests have taken over all parts of this one: remove it from its way, and free it. */
void muster_params_request_drop(struct muster_params_request *request);
/** No part of any request names the operation any more; a link that is filling its memory is broken. */
void muster_params_requests_forget(struct muster_params *params, struct muster_params_op *op);
/** Some request of the way names the operation. */
bool muster_params_way_has_op(const struct muster_params_way *way,
                              const struct muster_params_op *op);
/** Messages of the operation wait for the server's credit. */
bool muster_params_way_starves(const struct muster_params_way *way,
                               const struct muster_params_op *op);
/** Answers have come: messages that waited for credit may leave. */
void muster_params_requests_go_on(struct muster_params *params);
/** A link that has the frame gives it back: nobody reads the caller's memory, or the way's stage, then. */
void muster_params_request_take_back(struct muster_params_request *request);
/** Free all requests of the way, when the client is freed. No link may have one. */
void muster_params_requests_free(struct muster_params_way *way);

/* route.c */
/** A server of the map can be reached: it tells of newer ones. */
void muster_params_seeds_drop(struct muster_params *params);
/** Take the map if it is newer, else drop a seed that sent it: open ways to new servers, close those to servers
 * that have left, and send messages whose shards have moved to where they are now. Errors: INVALID_ARGUMENT
 * (malformed), FAILED_PRECONDITION (another number of shards), RESOURCE_EXHAUSTED (the map is not taken). */
MUSTER_MUST_CHECK enum muster_rc muster_params_map_take(struct muster_params *params,
                                                        const void *bytes, size_t size,
                                                        struct muster_params_way *from,
                                                        struct muster_error *ret_error);
/** The way to the primary of a shard. */
struct muster_params_way *muster_params_route(const struct muster_params *params, uint32_t shard);
/** Whether the way leads to the source's home. */
bool muster_params_way_is_home(const struct muster_params_way *way);
/** Ask the server for all tables that it was not asked for. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_tables_ask(struct muster_params_way *way);
/** One of the servers that its opening operation waits for is over. With the last one, and without an error,
 * the program gets the table. */
void muster_params_table_release(struct muster_params_table *table, struct muster_params_op *op,
                                 enum muster_rc rc, const struct muster_error *error);

/* tick.c */
/** Tell the server the clock, if this source ticks. False: no memory. */
MUSTER_MUST_CHECK bool muster_params_way_tick(struct muster_params_way *way);
/** Give ticks their barriers: the pushes of this turn have their numbers. */
void muster_params_ticks_number(struct muster_params *params);
/** Pushes were acknowledged: ticks after them may leave. */
void muster_params_ticks_check(struct muster_params *params);

/* round.c */
/** Move operations whose round has come to the queues of the turn, and end pushes whose round is closed.
 * Returns the bytes of the pushes that still wait. */
uint64_t muster_params_rounds_admit(struct muster_params *params);
/** Whether no push of an earlier clock waits, and no round before the last one is open. */
bool muster_params_rounds_allow_tick(const struct muster_params *params, uint64_t clock);
/** Whether the clock's pushes are in messages. */
bool muster_params_rounds_allow_number(const struct muster_params *params, uint64_t clock);
/** A server says that a round is closed. False: the message is malformed, or there is no memory. */
MUSTER_MUST_CHECK bool muster_params_round_receive(struct muster_params_way *way,
                                                   const void *payload, size_t bytes);
/** Tell the server of the way which rounds of a table, or of all, are closed. As muster_params_way_tick. */
MUSTER_MUST_CHECK bool muster_params_way_tell_rounds(struct muster_params_way *way,
                                                     const struct muster_params_table *table);
MUSTER_MUST_CHECK bool muster_params_way_tell_all_rounds(struct muster_params_way *way);
void muster_params_rounds_forget(struct muster_params_table *table);

/* hold.c */
/** Leave pushes that a cut at a clock does not have in table->kept, and give the others to the turn's queue.
 * Returns the bytes of those that wait. */
uint64_t muster_params_holds_admit(struct muster_params *params);
/** Pushes of this step may have messages. */
bool muster_params_holds_allow(const struct muster_params *params, uint64_t clock);
/** No push of a step before this one waits for a cut. */
bool muster_params_holds_allow_number(const struct muster_params *params, uint64_t clock);
/** A push of this step has a message. */
void muster_params_pushed_note(struct muster_params *params, uint64_t clock);
/** A server holds back steps from some clock on, or no more. False: the message is malformed. */
MUSTER_MUST_CHECK bool muster_params_hold_receive(struct muster_params_way *way,
                                                  const void *payload, size_t bytes);
/** The link is gone: its server says it again over the next one. */
void muster_params_hold_drop(struct muster_params_way *way);

/* cut.c */
/** Marks that are wanted leave as soon as all pushes before them have. */
void muster_params_marks_send(struct muster_params *params);
/** A server wants a mark. False: the message is malformed. */
MUSTER_MUST_CHECK bool muster_params_mark_receive(struct muster_params *params, const void *payload,
                                                  size_t bytes);
/** A server has saved its part of a cut, holds back pushes for it, or says why not (refusal). Ends the
 * request. */
void muster_params_cut_answer(struct muster_params_request *request, const void *payload,
                              size_t bytes, const struct muster_error *refusal);
void muster_params_cutting_drop(struct muster_params *params);
/** Why the operation's cut, which is tried again and again, has not been made. False: it is no cut, or its first
 * attempt is not over. */
bool muster_params_cutting_describe(const struct muster_params_op *op,
                                    struct muster_error *ret_error);
/** The operation is over before its cut: sources that wait for that hear of it. */
void muster_params_cutting_abandon(struct muster_params *params, const struct muster_params_op *op);

/* rows.c */
/** As muster_params_push_start and muster_params_push_pull_start; rows may be blocks of a tensor. */
MUSTER_MUST_CHECK enum muster_rc muster_params_rows_push(struct muster_params_op *op,
                                                         struct muster_params_table *table,
                                                         const struct muster_params_rows *rows,
                                                         void *ret_values, uint64_t deadline_ns,
                                                         muster_params_op_fn *done);
/** As muster_params_pull_after_start; rows may be blocks of a tensor. */
MUSTER_MUST_CHECK enum muster_rc muster_params_rows_pull(struct muster_params_op *op,
                                                         struct muster_params_table *table,
                                                         const struct muster_params_rows *rows,
                                                         uint64_t min_clock, uint64_t deadline_ns,
                                                         muster_params_op_fn *done);

/* op.c */
MUSTER_MUST_CHECK enum muster_rc muster_params_op_begin(struct muster_params_op *op,
                                                        struct muster_params *params,
                                                        uint64_t deadline_ns,
                                                        muster_params_op_fn *done);
/** One of the things that the operation waits for is over; the first error stays. Calls done after the
 * last one. */
void muster_params_op_release(struct muster_params_op *op, enum muster_rc rc,
                              const struct muster_error *error);
/** The first error stays. error may be NULL. */
void muster_params_op_note(struct muster_params_op *op, enum muster_rc rc,
                           const struct muster_error *error);
/** Whether all of the first `order` pushes to tensors are in messages. */
bool muster_params_ranges_are_numbered(const struct muster_params *params, uint64_t order);
/** Call done. No request names the operation any more. */
void muster_params_op_end(struct muster_params_op *op);
/** The timer of deadlines fires at deadline_ns, or before. */
void muster_params_deadline_watch(struct muster_params *params, uint64_t deadline_ns);

/* expire.c */
void muster_params_on_op_deadline(struct muster_timer *timer);
/** Why there is no connection, as an error with this rc, which it returns. */
enum muster_rc muster_params_way_describe(const struct muster_params_way *way, enum muster_rc rc,
                                          struct muster_error *ret_error);
/** End all operations with this error. */
void muster_params_ops_fail(struct muster_params *params, enum muster_rc rc,
                            const struct muster_error *error);

/** Finish closing once no push is waited for any more. */
void muster_params_close_check(struct muster_params *params);

/* sight.c */
/** Read blocks of a tensor from the memory of the server that leads them, as muster_params_peek does. False:
 * they must be pulled. */
MUSTER_MUST_CHECK bool muster_params_range_peek(const struct muster_params_table *table,
                                                uint64_t offset, uint64_t count, float *ret_values);
/** Read rows that the way leads to from the server's memory; the first call asks for it. UNAVAILABLE: not
 * all of them can be read there now. */
MUSTER_MUST_CHECK enum muster_rc muster_params_sight_read(struct muster_params_way *way,
                                                          const struct muster_params_table *table,
                                                          const uint64_t *keys, uint32_t count,
                                                          float *ret_values);
/** Unmap the server's memory. Idempotent. */
void muster_params_sight_close(struct muster_params_way *way);

/* range.c */
/** Operations on tensors become messages, as many as may be under way. */
void muster_params_ranges_send(struct muster_params *params);

/* batch.c */
void muster_params_on_flush(struct muster_task *task);

#endif
