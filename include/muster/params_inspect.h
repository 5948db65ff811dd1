/* The contents of a server of parameters, asked from outside. */
#ifndef MUSTER_PARAMS_INSPECT_H
#define MUSTER_PARAMS_INSPECT_H

#include <muster/base.h>
#include <muster/channel.h>
#include <muster/env.h>
#include <muster/incarnation.h>
#include <muster/params.h>
#include <muster/params_server.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_PARAMS_DIGEST_BYTES 16

struct muster_params_table_state {
    uint32_t number;
    const char *name;
    uint64_t descriptor; /* hash of the schema */
    uint64_t rows;
    uint64_t led_rows; /* of shards that the server leads */
    uint32_t row_elements;
    uint32_t row_bytes; /* that a row takes in memory, with the optimizer's state */
    enum muster_dtype wire_dtype;
    enum muster_params_optimizer optimizer;
    uint64_t rows_max; /* 0: no rows are evicted */
    enum muster_params_evict evict_by;
    bool has_digest;
    /* It is of the rows of shards that the server leads, whatever their order and shards. */
    uint8_t digest[MUSTER_PARAMS_DIGEST_BYTES];
};

struct muster_params_row_state {
    uint64_t key;
    bool exists;      /* else the values are the initial ones */
    uint32_t version; /* rises by 2 with each push; begins above 0 where the row was another key's */
    uint32_t clock;   /* of the newest push, its lower 32 bits */
    const float *values;
    size_t value_count;
};

/** A server as the map has it. */
struct muster_params_server_state {
    struct muster_incarnation id; /* of its memory: a new process in the same seat has the same */
    const char *address;          /* "": a server that is alone */
    uint32_t primaries;           /* shards that it leads */
    uint32_t replicas;            /* that it copies */
    uint32_t learning;            /* that it is about to hold */
    bool is_leaving;
};

/** Sources that tick and are not done. */
struct muster_params_clocks_state {
    bool has_low; /* false: there are none */
    uint64_t low, high;
    struct muster_incarnation slowest; /* a source that is at low; zero: none is known */
    /* The name of that source, where it has one and a link to the server that has answered; "": not known. */
    char slowest_name[MUSTER_PARAMS_NAME_BYTES];
    uint32_t known, expected;          /* low is 0 until so many are known */
};

/** The last cut that the server has saved since its process serves. */
struct muster_params_cut_told {
    const char *folder; /* NULL: none */
    uint64_t clock, bytes;
};

struct muster_params_inspection {
    struct muster_incarnation incarnation; /* of the process that serves */
    uint32_t shard_count;
    struct muster_params_stats stats;
    const struct muster_params_table_state *tables;
    size_t table_count;
    const struct muster_params_row_state *rows; /* of the keys that were asked for */
    size_t row_count;
    uint64_t map; /* its number; 0: the server has none yet */
    uint32_t replicas, short_shards;
    const struct muster_params_server_state *servers;
    size_t server_count;
    struct muster_incarnation id; /* of this server among them */
    struct muster_params_clocks_state clocks;
    uint64_t lag_frames; /* messages that the slowest of the servers that copy this one has not done yet */
    struct muster_params_cut_told cut;
    const char *waits; /* why the server does not take part in its job; "": it does */
};

/** The digest of two servers' rows. */
MUSTER_API void muster_params_digest_join(uint8_t digest[MUSTER_PARAMS_DIGEST_BYTES],
                                          const uint8_t other[MUSTER_PARAMS_DIGEST_BYTES]);

/** The tables and rows to show. */
struct muster_params_inspect_options {
    const char *table;    /* NULL: all */
    const uint64_t *keys; /* rows of that table; at most 1,000 */
    size_t key_count;
    bool wants_digest; /* reads every row while pushes go on: exact when nobody pushes meanwhile */
    uint64_t deadline_ns; /* loop time, absolute */
};

struct muster_params_inspect;
typedef void muster_params_inspect_fn(struct muster_params_inspect *inspect, enum muster_rc rc);

/** One question. Caller's memory until done. */
struct muster_params_inspect {
    void *data;
    struct muster_error error; /* at done, unless OK */
    const struct muster_params_inspection
        *inspection; /* borrowed until done returns; NULL: error */
};

/**
 * Ask the server at the other end of channel (channel.h: "HOST:PORT", and TLS).
 *
 * Owns:    borrows inspect until done, env and channel too; options during the call.
 * Errors:  returned RESOURCE_EXHAUSTED, and as muster_call_start; by done NOT_FOUND (no such table),
 *          INVALID_ARGUMENT, UNIMPLEMENTED (the server is not one of parameters), PERMISSION_DENIED,
 *          UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL (a malformed answer).
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_inspect_start(
    struct muster_params_inspect *inspect, struct muster_env *env, struct muster_channel *channel,
    const struct muster_params_inspect_options *options, muster_params_inspect_fn *done);

MUSTER_END

#endif
