/* Between the files of `muster bench params`. */
#ifndef MUSTER_TOOLS_BENCH_PARAMS_H
#define MUSTER_TOOLS_BENCH_PARAMS_H

#include <stdint.h>
#include <sys/types.h>

#include <muster/env.h>
#include <muster/params.h>

#include "bench/samples.h"
#include "params/seat.h"

#define BENCH_SERVERS_MAX MUSTER_PARAMS_REPLICAS_MAX
#define BENCH_JOB "bench" /* of several servers */
#define BENCH_TABLE "bench"

/* With --bind. */
#define BENCH_SERVER_PROCESSOR 0u
#define BENCH_LOAD_PROCESSOR   1u

enum bench_kind { BENCH_PUSH, BENCH_PULL, BENCH_PUSH_PULL };

struct bench_params_settings {
    uint64_t clients, value_bytes, batch, rows, replicas, bulk_bytes, kills, rate, depth;
    uint64_t duration_ns, kill_interval_ns, seed, memory_max;
    const char *mix, *wire, *optimizer;
    const char *cut_dir; /* NULL: no cut */
    bool is_bound, is_json;
};

struct bench_params;
struct bench_grpc_batch;

/** One of a client's batches: started again as soon as it is done. */
struct bench_batch {
    struct muster_params_op op;
    struct bench_client *client;
    enum bench_kind kind;
    uint64_t start_ns; /* with --rate: when it was due; 0: it is idle */
    uint64_t round; /* of kills, when it was started */
    uint64_t *keys;
    float *values;
    float *pulled;                 /* of a push_pull */
    struct bench_grpc_batch *grpc; /* NULL: by a link */
};

struct bench_client {
    struct bench_params *bench;
    struct muster_params *params; /* NULL: its calls go through its channel */
    struct muster_channel *channel;
    struct muster_params_table *table;
    struct muster_params_op table_op;
    struct bench_batch *batches; /* depth */
    bool is_open, is_closed;
    uint64_t answered_round; /* of kills: an answer to a batch that was started after it is here */
};

/** Another way than links by which clients call. */
struct bench_wire {
    const char *name;
    /** All clients. False: said on standard error. */
    bool (*connect)(struct bench_params *bench);
    /** The answer comes to bench_params_answered. */
    enum muster_rc (*start)(struct bench_batch *batch, struct muster_error *ret_error);
    void (*disconnect)(struct bench_client *client);
};

struct bench_params {
    const struct bench_params_settings *settings;
    struct params_seat seats[BENCH_SERVERS_MAX];
    pid_t keepers[BENCH_SERVERS_MAX];
    uint32_t server_count; /* as many as replicas */
    pid_t registry;        /* of several servers; 0: there is none */
    char registry_address[MUSTER_ADDRESS_TEXT_BYTES];
    char servers[BENCH_SERVERS_MAX * MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_env *env;
    struct bench_client *clients;
    uint64_t random;
    uint32_t elements, rows_per_batch;
    enum bench_kind kind;
    bool is_tensor; /* the rows are one tensor */
    const struct bench_wire *wire; /* NULL: links */
    /* The load. */
    bool is_stopping;
    uint64_t running;  /* batches whose answers are awaited */
    uint64_t failures; /* batches that ended with an error */
    struct muster_error first_error;
    uint64_t begin_ns, end_ns;
    uint64_t pushed_rows, pulled_rows; /* answered */
    uint64_t pushed_in_time, pulled_in_time;
    struct bench_samples latencies_us;
    struct muster_timer pace;
    uint64_t paced; /* batches that --rate has had started */
    /* Kills. */
    struct muster_timer kill;
    uint64_t kill_count, round;
    uint64_t kill_ns;
    uint64_t unanswered; /* clients that have had no answer since the kill */
    struct bench_samples stalls_ms;
    /* The cut. */
    struct muster_timer cut;
    pid_t cutter;
    uint64_t cut_begin_ns, cut_end_ns; /* 0: not yet */
    uint64_t answered_ns;              /* when the last push was */
    uint64_t plain_stall_ns, cut_stall_ns;
    /* Outcome. */
    double cpu_s; /* of the servers, in the time of the load; 0: one was killed meanwhile */
    double iperf3_gb_per_s; /* 0: it is not here */
    uint32_t memory_least, memory_most; /* clients that talked through memory, before and after the load */
    uint64_t peeked_rows, peek_ns; /* read from the server's memory, and the time in these calls */
    uint64_t lost, doubled, torn;
    char digest[33];
};

/* params_load.c */
/** Connect the clients and open the table. False: said on standard error. */
bool bench_params_connect(struct bench_params *bench);
/** Keep depth batches of each client under way for the duration, and until the kills are done. False:
 * a batch failed; said on standard error. */
bool bench_params_load(struct bench_params *bench);
/** Compare the sums of all rows with the pushes that were acknowledged. False: said on standard
 * error. */
bool bench_params_verify(struct bench_params *bench);
void bench_params_disconnect(struct bench_params *bench);

/** Push each row once, so that the load finds them all. False: said on standard error. */
bool bench_params_fill(struct bench_params *bench);

/** Keep all batches under way. */
void bench_params_start(struct bench_params *bench);
/** Wait for them. False: one failed; said on standard error. */
bool bench_params_stop(struct bench_params *bench);
uint64_t bench_params_random(struct bench_params *bench);
void bench_params_note_failure(struct bench_params *bench, enum muster_rc rc,
                               const struct muster_error *error);
/** False: something has failed; said on standard error. */
bool bench_params_run_until(struct bench_params *bench, bool (*is_done)(struct bench_params *bench));
/** A batch has its answer. */
void bench_params_answered(struct bench_batch *batch, enum muster_rc rc,
                           const struct muster_error *error);

/* params_proto.c */
extern const struct bench_wire bench_params_grpc;

/* params_beside.c */
/** Measure iperf3, or say on standard error why not. */
void bench_params_beside(struct bench_params *bench);

/* params_peek.c */
/** Read rows from the server's memory beside the load, where --wire allows and that is possible. False: it
 * is not and must be, or a row was torn; said on standard error. */
bool bench_params_peek(struct bench_params *bench);

/* params_cut.c */
void bench_params_cut_start(struct bench_params *bench);
bool bench_params_cut_is_done(const struct bench_params *bench);
void bench_params_cut_note_answer(struct bench_params *bench);
void bench_params_cut_print(const struct bench_params *bench);

/* params_kill.c */
void bench_params_kills_start(struct bench_params *bench);
bool bench_params_kills_are_done(const struct bench_params *bench);
/** A client has an answer to a batch that was started in `round`. */
void bench_params_note_answer(struct bench_client *client, uint64_t round);

#endif
