/* Between the files of `muster params inspect`: the answers of the servers of a job, put together. */
#ifndef MUSTER_TOOLS_PARAMS_INSPECT_H
#define MUSTER_TOOLS_PARAMS_INSPECT_H

#include <muster/params_inspect.h>

#include "params/connection.h"

#define INSPECT_SERVERS_MAX 64u
#define INSPECT_FOLDER_BYTES 4096u

struct inspect_settings {
    struct params_connection_settings connection;
    uint64_t interval_ns;
    bool wants_digest, is_json;
};

struct inspect_job;

struct inspect_server {
    struct inspect_job *job;
    char address[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_incarnation id, incarnation;
    uint32_t primaries, replicas, learning;
    bool is_leaving;
    bool has_answered;
    struct muster_params_stats stats;
    uint64_t lag_frames;
    bool has_rates; /* the same process has answered twice */
    double pushed_rows_per_s, pulled_rows_per_s;
    struct muster_error error; /* unless it has answered */
    char waits[MUSTER_ERROR_TEXT_BYTES]; /* why it does not take part in its job; "": it does */
    /* The question that is being asked. */
    struct muster_channel *channel;
    struct muster_params_inspect question;
    bool is_asked;
    uint64_t answered_ns;
};

struct inspect_table {
    char name[MUSTER_PARAMS_NAME_BYTES];
    struct muster_params_table_state state; /* its name is the one here */
};

struct inspect_row {
    struct muster_params_row_state state;
    float *values;
};

struct inspect_cut {
    char folder[INSPECT_FOLDER_BYTES];
    uint64_t clock, bytes;
};

struct inspect_job {
    const struct inspect_settings *settings;
    struct params_connection connection;
    /* Cleared for each attempt, from here on. */
    struct inspect_server asked; /* first, by the address of the settings */
    uint64_t map;
    bool has_moved; /* a server has answered by another map */
    uint32_t replicas, shards, short_shards;
    struct inspect_server servers[INSPECT_SERVERS_MAX];
    uint32_t server_count;
    struct inspect_table *tables;
    size_t table_count;
    struct inspect_row *rows; /* of the keys that were asked for */
    size_t row_count;
    uint32_t sources;
    struct muster_params_clocks_state clocks; /* of the server that has heard of least */
    struct inspect_cut cuts[INSPECT_SERVERS_MAX];
    uint32_t cut_count;
    bool is_short_of_memory;
};

/* inspect_ask.c */
/** Ask the server of the settings, then all others of its job. An error is of the first one; the others have
 * errors of their own. */
MUSTER_MUST_CHECK enum muster_rc inspect_ask(struct inspect_job *job,
                                             const struct muster_params_inspect_options *options,
                                             struct muster_error *ret_error);
void inspect_free(struct inspect_job *job);

/* inspect_text.c */
bool inspect_print(const struct inspect_job *job);
/* inspect_json.c */
bool inspect_print_json(const struct inspect_job *job);

#endif
