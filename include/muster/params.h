/* Parameter exchange: tables of rows that a server holds and many clients push to and pull from.
 * docs/params.md says what it promises. */
#ifndef MUSTER_PARAMS_H
#define MUSTER_PARAMS_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/env.h>
#include <muster/runtime.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_PARAMS_NAME_BYTES      64 /* name of a table or a source, with its NUL */
#define MUSTER_PARAMS_ROW_BYTES_MAX   65536u
#define MUSTER_PARAMS_SHARD_COUNT_MAX 4096u

/** How a push of g changes a row's values w (f32). The numbers are stored and travel: new ones come at
 * the end. */
enum muster_params_optimizer {
    MUSTER_PARAMS_ADD,         /* w += g */
    MUSTER_PARAMS_ASSIGN,      /* w = g */
    MUSTER_PARAMS_MAX,         /* w = max(w, g); NaN when either is NaN */
    MUSTER_PARAMS_SGD,         /* w -= rate g */
    MUSTER_PARAMS_MOMENTUM,    /* m = beta1 m + g; w -= rate m */
    MUSTER_PARAMS_NESTEROV,    /* m = beta1 m + g; w -= rate (g + beta1 m) */
    MUSTER_PARAMS_ADAGRAD,     /* s += g g; w -= rate g / (sqrt(s) + epsilon) */
    MUSTER_PARAMS_ROW_ADAGRAD, /* s += mean of g g, one s for the row; w as ADAGRAD */
    MUSTER_PARAMS_ADAM,        /* Kingma & Ba 2015, algorithm 1; steps are counted per row */
    MUSTER_PARAMS_FTRL,        /* McMahan et al. 2013, algorithm 1, per coordinate */
    MUSTER_PARAMS_CLOCK_SUM, /* w += g; first w = 0 when the push has another clock than the one before */
};
#define MUSTER_PARAMS_OPTIMIZER_COUNT (MUSTER_PARAMS_CLOCK_SUM + 1)

/** The values of a row that nothing has been pushed to: a function of (init_seed, key, position), the
 * same on every machine. The numbers are stored and travel. */
enum muster_params_init {
    MUSTER_PARAMS_INIT_ZERO,
    MUSTER_PARAMS_INIT_CONSTANT, /* init_scale */
    MUSTER_PARAMS_INIT_UNIFORM,  /* in [-init_scale, init_scale) */
    MUSTER_PARAMS_INIT_NORMAL,   /* mean 0, standard deviation init_scale */
};
#define MUSTER_PARAMS_INIT_COUNT (MUSTER_PARAMS_INIT_NORMAL + 1)

/** By which a row has to go for a new one (rows_max). */
enum muster_params_evict {
    MUSTER_PARAMS_EVICT_LRU, /* not pushed to for longest, by the clocks of pushes */
    MUSTER_PARAMS_EVICT_LFU, /* with the fewest pushes; counts are halved as rows are evicted */
    MUSTER_PARAMS_EVICT_COUNT,
};

/**
 * A table's description. Immutable, and equal on all clients: another schema under the same name is
 * refused with INVALID_ARGUMENT.
 */
struct muster_params_schema {
    const char *name;      /* 1 to 63 bytes; borrowed during the call */
    uint32_t row_elements; /* f32 values per row, 1 to 16,384; state of the optimizer is added */
    enum muster_dtype wire_dtype; /* F32, F16 or BF16: values in pushes and pulls */
    enum muster_params_optimizer optimizer;
    /* Hyper-parameters that the optimizer has; 0: its default. Others must be 0. */
    float learning_rate; /* default 0.01; ADAM 0.001; FTRL: alpha, 0.05 */
    float beta1;         /* MOMENTUM, NESTEROV, ADAM: default 0.9; FTRL: beta, 1 */
    float beta2;         /* ADAM: default 0.999 */
    float epsilon;       /* ADAGRAD, ROW_ADAGRAD: default 1e-10; ADAM: 1e-8 */
    float l1, l2;        /* FTRL: default 0 */
    enum muster_params_init init;
    float init_scale;
    uint64_t init_seed;
    /* By round: pushes at clock c are kept until round c closes, and then applied once as their sum, in
     * the order of the sources' ids. It closes when all sources that tick have come to c + 1, or
     * round_quorum of them have (0: all) and round_grace_ns has passed since. So the rows depend on what
     * counted, and not on timing or on servers that died. Such a table's name has at most 46 bytes. */
    bool is_by_round;
    bool is_round_mean; /* the sum is divided by the sum of the weights that counted */
    uint32_t round_quorum;
    uint64_t round_grace_ns;
    /* A push whose round is closed is kept for the next round that its source completes, instead of ending
     * OUT_OF_RANGE: what a source has pushed since it last counted counts then, times the weight of that tick. At
     * most MUSTER_PARAMS_ROUND_SOURCES_MAX sources count in the life of such a table. */
    bool is_round_carried;
    /* Rows that come and go; not in a table by round. What is removed has its initial values again, and
     * the next push to it makes a new row. */
    uint32_t
        admit_after; /* a key gets its row after about this number of pushes, up to 65,535; pushes
                           * before change nothing. 0 or 1: with the first */
    uint32_t
        admit_share; /* about so many of 65,536 keys get rows, up to 65,535, by a hash of the key: on all
                           * servers the same ones; pushes to others change nothing. 0: all */
    uint64_t
        ttl_clocks; /* a row that was not pushed to for more steps than these, of the slowest source
                           * that ticks, is removed by a later push; below 2^31. 0: none */
    uint64_t
        rows_max; /* a new row beyond about as many, or beyond the server's memory, takes the place
                           * of another one (evict_by). 0: new rows beyond the memory are refused;
                           * UINT64_MAX: only the memory limits them */
    enum muster_params_evict evict_by; /* with rows_max. LFU takes 4 bytes more per row */
    /* The table is one tensor of so many elements, up to 2^40, in blocks of row_elements (1,024 to 16,384;
     * large ones are fastest): muster_params_tensor_start pushes to it and pulls from it. No rows come
     * and go. 0: it has rows. */
    uint64_t tensor_elements;
};

#define MUSTER_PARAMS_TENSOR_ELEMENTS_MAX (UINT64_C(1) << 40)
#define MUSTER_PARAMS_BLOCK_ELEMENTS_MIN  1024u

#define MUSTER_PARAMS_ADMIT_AFTER_MAX 65535u
#define MUSTER_PARAMS_TTL_CLOCKS_MAX  ((UINT64_C(1) << 31) - 1)

/** Sources that tick, in a job that has tables by round. */
#define MUSTER_PARAMS_ROUND_SOURCES_MAX 1024u

/** "row_adagrad". Static text, also for a value that is not an optimizer. */
MUSTER_API const char *muster_params_optimizer_name(enum muster_params_optimizer optimizer);
/** Errors: NOT_FOUND. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_optimizer_parse(
    const char *name, enum muster_params_optimizer *ret_optimizer);
/** "lru" or "lfu". Static text, also for another value. */
MUSTER_API const char *muster_params_evict_name(enum muster_params_evict evict);
/** Check the description before it is used. Errors: INVALID_ARGUMENT, naming the part. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_schema_check(
    const struct muster_params_schema *schema, struct muster_error *ret_error);

/* --- A client --- */

struct muster_params;       /* a client of the servers of one job */
struct muster_params_table; /* a table that the client has opened */
struct muster_params_op;

typedef void muster_params_fn(struct muster_params *params, enum muster_rc rc);
typedef void muster_params_op_fn(struct muster_params_op *op, enum muster_rc rc);

struct muster_params_options {
    /* "HOST:PORT", an address or a name, which is looked up at each attempt; of several servers of a job any, or
     * several joined by commas: they tell of the others. */
    const char *server;
    const char *job; /* the server's; NULL: "" */
    /* A name keeps the source's position across processes: a worker that is started again under it
     * goes on, and an older process of the name is refused with ABORTED. NULL: a source of this
     * process alone. */
    const char *source;
    uint32_t clock_sources; /* sources of the job that tick, this one among them; 0: it does not */
    uint64_t queue_max_bytes; /* keys and values whose pushes are not acknowledged; 0: 64 MiB */
    uint64_t connect_deadline_ns; /* loop time, absolute: when opened comes at the latest */
    /* All goes over connections also where the server is on this host. Else messages pass through memory that both
     * map, where the server is of the same user, and neither TLS nor rules of authorization are in use. */
    bool no_host_memory;
    void *data;
};

/**
 * Connect to the server, and stay connected: when the connection is lost, or the server dies, the
 * client connects again and sends what was not answered. It is applied once.
 *
 * Owns:    gives, muster_params_close; copies options; borrows env until closed.
 * Errors:  returned INVALID_ARGUMENT; by opened UNAVAILABLE or DEADLINE_EXCEEDED (no server by
 *          connect_deadline_ns), FAILED_PRECONDITION (another version or job),
 *          PERMISSION_DENIED.
 *          muster_params_error tells more. After an error the client can only be closed.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_open(
    struct muster_env *env, const struct muster_params_options *options, muster_params_fn *opened,
    struct muster_params **ret_params, struct muster_error *ret_error);
MUSTER_API void *muster_params_data(const struct muster_params *params);
/** Why it is not connected now; rc MUSTER_OK: it is. Borrowed. */
MUSTER_API const struct muster_error *muster_params_error(const struct muster_params *params);
/**
 * Where the source stood when this process opened it: the number of the newest message of pushes, from 1,
 * of which an earlier process has had a row applied; 0: of none. All messages before it are applied, or
 * were refused; it may be applied in part where server and client died in the middle of it, and the rest
 * of it never comes. A program that waits for each push, and pushes at most 256 KiB in it, sends one
 * message with each. Known once opened came with OK; does not change.
 */
MUSTER_API uint64_t muster_params_source_position(const struct muster_params *params);
/** How many shards have fewer servers that hold them than the job wants, as far as this client knows:
 * while there are some, the loss of one more server may lose rows. */
MUSTER_API uint32_t muster_params_short_shards(const struct muster_params *params);
/** Whether messages to all servers that are connected now pass through memory of this host. */
MUSTER_API bool muster_params_is_by_memory(const struct muster_params *params);
/**
 * Wait for the acknowledgements of pushes, then close the client and its tables. Pulls end with CANCELLED at
 * once, pushes that are not acknowledged by deadline_ns then.
 *
 * Owns:    env is borrowed for some more turns of the loop, in which connections are freed.
 * Errors:  new starts get FAILED_PRECONDITION; by closed DEADLINE_EXCEEDED (pushes were not acknowledged).
 * Order:   closed comes after the callbacks of all operations.
 */
MUSTER_API void muster_params_close(struct muster_params *params, uint64_t deadline_ns,
                                    muster_params_fn *closed);

/** One operation. Caller's memory until done. */
struct muster_params_op {
    void *data;
    struct muster_error error; /* at done, unless OK; and why a start was refused for its arguments */
    /* private */
    struct muster_params *params;
    muster_params_op_fn *done;
    uint64_t deadline_ns;
    enum muster_rc rc;
    uint32_t waits; /* messages whose answers are awaited; 1 more while it is queued */
    struct muster_list node;
    struct muster_list queued; /* until the turn ends */
    struct muster_params_table *table, *opens;
    const uint64_t *keys;
    void *values;
    void *ret_values; /* for push_pull; NULL: none */
    uint32_t count;
    bool is_push;
    uint64_t clock, barrier;
    double weight;
    uint64_t sequence;    /* for all its rows, given by the caller; 0: the next ones */
    uint32_t refused;     /* rows of a push with a given sequence for which there was no memory */
    uint64_t offset, end; /* in a tensor: elements that are in no message yet */
    uint64_t order;       /* number of pushes to tensors that were started before */
};

/** The clock of a source that is done: nobody waits for it any more. */
#define MUSTER_PARAMS_CLOCK_DONE UINT64_MAX

/** Rows of a table. */
struct muster_params_rows {
    const uint64_t *keys;
    void *values;   /* count x row_elements of wire_dtype, row after row; aligned to its element */
    uint32_t count; /* at least 1 */
};

/**
 * Open a table, or make it.
 *
 * Owns:    borrows op and ret_table until done; *ret_table is shared until muster_params_close.
 * Errors:  returned INVALID_ARGUMENT (a wrong schema: op->error), FAILED_PRECONDITION (closing); by done
 *          INVALID_ARGUMENT (the table has another schema; both sides are named),
 *          RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_table_start(
    struct muster_params_op *op, struct muster_params *params,
    const struct muster_params_schema *schema, struct muster_params_table **ret_table,
    uint64_t deadline_ns, muster_params_op_fn *done);

/**
 * Give gradients (or values) to the server. Pushes of one loop turn travel together.
 *
 * Units:   deadline_ns is loop time, absolute; it ends the waiting, not the push: what has left may
 *          count.
 * Owns:    borrows op, keys and values until done.
 * Errors:  returned INVALID_ARGUMENT, RESOURCE_EXHAUSTED (queue_max_bytes), FAILED_PRECONDITION
 *          (closing); by done RESOURCE_EXHAUSTED (new rows for which the server has no memory; the
 *          others are applied), OUT_OF_RANGE (its round is closed, and the table is not is_round_carried),
 *          ABORTED (a younger process has this source), FAILED_PRECONDITION (the server has lost its
 *          memory), UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED.
 * Order:   applied exactly once, in the order of starts per row; equal keys in their order.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_push_start(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_rows *rows, uint64_t deadline_ns, muster_params_op_fn *done);
/**
 * Fetch rows into rows->values. A key without a row has its initial values, and gets no row. Pulls
 * of one loop turn travel together, after the pushes to their table that were started before them.
 *
 * Owns:    borrows op, keys and values until done.
 * Errors:  returned INVALID_ARGUMENT, FAILED_PRECONDITION (closing); by done UNAVAILABLE,
 *          DEADLINE_EXCEEDED, CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_pull_start(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_rows *rows, uint64_t deadline_ns, muster_params_op_fn *done);
/**
 * Pull once all sources have completed min_clock steps (muster_params_tick_start): the rows show all their
 * pushes of these, and perhaps newer ones. As muster_params_pull_start otherwise.
 *
 * Errors:  those of muster_params_pull_start; the text of DEADLINE_EXCEEDED names the slowest source.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_pull_after_start(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_rows *rows, uint64_t min_clock, uint64_t deadline_ns,
    muster_params_op_fn *done);
/**
 * Push, and get the rows as they are after it, in the order of the keys. Where a message is sent again
 * after a loss, the values are those after its repetition: others may have pushed meanwhile.
 *
 * Owns:    borrows op, keys, values and ret_values until done; ret_values may be rows->values.
 * Errors:  those of muster_params_push_start; returned INVALID_ARGUMENT also for a table by round. With
 *          RESOURCE_EXHAUSTED, rows for which the server has no memory have their initial values.
 * Order:   as muster_params_push_start.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_push_pull_start(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_rows *rows, void *ret_values, uint64_t deadline_ns,
    muster_params_op_fn *done);
enum muster_params_direction {
    MUSTER_PARAMS_DIRECTION_PUSH,
    MUSTER_PARAMS_DIRECTION_PULL,
};

/** The elements [offset, offset + count) of a tensor. */
struct muster_params_range {
    uint64_t offset;
    uint64_t count;     /* 0: up to the end of the tensor */
    void *values;       /* elements of wire_dtype, aligned to it */
    uint64_t min_clock; /* for a pull, as in muster_params_pull_after_start; 0: at once */
};

/**
 * Push to a tensor, or pull from it. Values travel from and to the caller's memory without a copy of the
 * client, in pieces that let other operations pass between them. Each piece of a push is applied once; a pull
 * may show some pieces of a push of another client and not others. A range that is pushed begins at a block
 * and ends at one, or at the end of the tensor. Where muster_params_peek can read the blocks, a pull reads them so
 * once all pushes of this client to the tensor are acknowledged.
 *
 * Units:   deadline_ns is loop time, absolute. Pieces of a push that have not left by then do not leave.
 * Owns:    borrows op and values until done. They do not count in queue_max_bytes.
 * Errors:  returned INVALID_ARGUMENT (the table is not a tensor; the range: op->error), FAILED_PRECONDITION
 *          (closing); by done those of muster_params_push_start and muster_params_pull_start.
 * Order:   operations on one tensor take effect in the order of their starts.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_tensor_start(
    struct muster_params_op *op, struct muster_params_table *table,
    const struct muster_params_range *range, enum muster_params_direction direction,
    uint64_t deadline_ns, muster_params_op_fn *done);
/**
 * This source has completed `clock` steps: the pushes that were started before this call are of them.
 * Rising. muster_params_pull_after_start waits until all clock_sources sources have come to a clock; so a
 * program that pulls after its own clock - s runs at most s steps ahead of the slowest (Ho et al. 2013),
 * and with s = 0 in step with it. A source that has no connection for 10 s is not waited for any more.
 *
 * Owns:    borrows op until done: all servers know it, and all pushes before it are acknowledged.
 * Errors:  returned INVALID_ARGUMENT (clock_sources is 0, or clock is below the last one),
 *          FAILED_PRECONDITION (closing); by done UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_tick_start(struct muster_params_op *op,
                                                                     struct muster_params *params,
                                                                     uint64_t clock,
                                                                     uint64_t deadline_ns,
                                                                     muster_params_op_fn *done);
/** Tick with a weight: in tables by round the pushes of this source in round clock - 1 count with it, instead of
 * 1. Errors: those of muster_params_tick_start, and INVALID_ARGUMENT (the weight is negative or not finite). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_tick_weighted_start(
    struct muster_params_op *op, struct muster_params *params, uint64_t clock, double weight,
    uint64_t deadline_ns, muster_params_op_fn *done);
/** The open round of a table by round, as far as this client knows. A source whose push ended OUT_OF_RANGE
 * goes on there: it ticks this clock, and pushes. With is_round_carried a source that was late ticks the clock after
 * it to complete it: what it has pushed counts then. */
MUSTER_API uint64_t muster_params_table_round(const struct muster_params_table *table);
/** The contents of a cut. */
struct muster_params_cut {
    uint64_t number; /* part of the names of the files that it has written */
    uint64_t
        clock; /* steps that all sources had completed, or that of a cut at a clock; 0 where nobody ticks */
    uint64_t rows, bytes;
    uint32_t shards, tables, servers;
    uint32_t shards_saved; /* the others had not changed since an earlier cut to this folder */
};

/**
 * Save all rows of all tables, and what is applied of each source's pushes, to files in a folder: of each
 * source all pushes up to some one of them, in every shard. Pushes go on. Each server writes the files of the
 * shards that it leads to the folder of this name on its machine, and this process writes the manifest: for
 * servers on several machines it must be one folder that all of them see. The cut that was there before stays
 * good until the new one is whole.
 *
 * Owns:    borrows op and ret_cut until done; copies folder, which is there already.
 * Errors:  returned INVALID_ARGUMENT (folder: 1 to 1,024 bytes that begin with /), FAILED_PRECONDITION (closing; not
 *          connected yet; another cut of this client; a cut of another job in the folder), RESOURCE_EXHAUSTED; by
 *          done UNAVAILABLE (shards moved, a client came or went meanwhile, one that has pushed has lost its
 *          connection less than 10 s ago, a connection was lost or the process of a server has ended, a server
 *          knows of another cut that it was not asked for yet, or this source has begun another one: try again),
 *          DEADLINE_EXCEEDED (a source has not answered within a second, and is named), FAILED_PRECONDITION (a cut
 *          of another source, which is named, is under way), PERMISSION_DENIED, and errors of the disk; CANCELLED.
 *          No file of the cut before is changed.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_cut_start(
    struct muster_params_op *op, struct muster_params *params, const char *folder,
    struct muster_params_cut *ret_cut, uint64_t deadline_ns, muster_params_op_fn *done);
/**
 * The same at a clock: of each source that ticks all pushes of the steps before `clock`, and none of later
 * steps; of the others all pushes up to some one of them. The cut waits until all have come to the clock, and
 * sources that are there already push nothing more until then. 0: now. Where muster_params_cut_start would end
 * UNAVAILABLE, it is begun again until the deadline, and the sources go on waiting.
 *
 * Errors:  those of muster_params_cut_start, but UNAVAILABLE: DEADLINE_EXCEEDED names the reason of the last attempt;
 *          returned INVALID_ARGUMENT (UINT64_MAX); by done OUT_OF_RANGE (a source has gone on after this clock: name
 *          a later one), FAILED_PRECONDITION (no source ticks).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_cut_at_start(
    struct muster_params_op *op, struct muster_params *params, const char *folder, uint64_t clock,
    struct muster_params_cut *ret_cut, uint64_t deadline_ns, muster_params_op_fn *done);
/**
 * Read rows of a server of this host from its memory: no message, no waiting. Each row is as it was at
 * one moment, with all pushes of this client that are acknowledged. A key without a row has its initial
 * values. The first call asks for the memory: peek again after some turns of the loop.
 *
 * Errors:  UNAVAILABLE: not all of the rows can be read (the server is on another host, of another user,
 *          not connected or has rules of authorization; the job keeps replicas; the table's wire_dtype
 *          is not F32; a row was being changed at every attempt): pull them. Some of rows->values may be
 *          written. INVALID_ARGUMENT (no rows), FAILED_PRECONDITION (closing).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_peek(
    struct muster_params_table *table, const struct muster_params_rows *rows);
/** done still comes, with CANCELLED unless the answer was here; a push that has left counts. */
MUSTER_API void muster_params_op_cancel(struct muster_params_op *op);

/* --- Blocking calls, for programs with a runtime (runtime.h) --- */

/**
 * muster_params_open, and wait until the client is connected. options->connect_deadline_ns is not used.
 *
 * Units:   timeout_ns is counted from the call, here and below.
 * Owns:    gives, muster_params_disconnect; borrows runtime and its env until then; copies options.
 * Errors:  those of muster_params_open, and FAILED_PRECONDITION (another thread is in the runtime);
 *          nothing is left open then.
 * Thread:  the program, here and below; never from a callback.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_connect(
    struct muster_runtime *runtime, const struct muster_params_options *options,
    uint64_t timeout_ns, struct muster_params **ret_params, struct muster_error *ret_error);
/**
 * muster_params_table_start, and wait.
 *
 * Errors:  those of muster_params_table_start; FAILED_PRECONDITION, here and below: params was not
 *          made by muster_params_connect, or another thread is in the runtime.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_table(
    struct muster_params *params, const struct muster_params_schema *schema, uint64_t timeout_ns,
    struct muster_params_table **ret_table, struct muster_error *ret_error);
/** muster_params_push_start, and wait until the server has applied it. Errors: those of
 * muster_params_push_start. After DEADLINE_EXCEEDED the push may still be applied. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_push(
    struct muster_params_table *table, const struct muster_params_rows *rows, uint64_t timeout_ns,
    struct muster_error *ret_error);
/** muster_params_push_pull_start, and wait. Errors: those of muster_params_push_pull_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_push_pull(
    struct muster_params_table *table, const struct muster_params_rows *rows, void *ret_values,
    uint64_t timeout_ns, struct muster_error *ret_error);
/** muster_params_pull_start, and wait. Errors: those of muster_params_pull_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_pull(
    struct muster_params_table *table, const struct muster_params_rows *rows, uint64_t timeout_ns,
    struct muster_error *ret_error);
/** muster_params_pull_after_start, and wait. Errors: those of muster_params_pull_after_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_pull_after(
    struct muster_params_table *table, const struct muster_params_rows *rows, uint64_t min_clock,
    uint64_t timeout_ns, struct muster_error *ret_error);
/** muster_params_tensor_start, and wait. Errors: those of muster_params_tensor_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_tensor(
    struct muster_params_table *table, const struct muster_params_range *range,
    enum muster_params_direction direction, uint64_t timeout_ns, struct muster_error *ret_error);
/** muster_params_cut_at_start at clock 0, and wait. Errors: those of muster_params_cut_at_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_cut(struct muster_params *params,
                                                              const char *folder,
                                                              struct muster_params_cut *ret_cut,
                                                              uint64_t timeout_ns,
                                                              struct muster_error *ret_error);
/** muster_params_cut_at_start, and wait. Errors: those of muster_params_cut_at_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_cut_at(struct muster_params *params,
                                                                 const char *folder, uint64_t clock,
                                                                 struct muster_params_cut *ret_cut,
                                                                 uint64_t timeout_ns,
                                                                 struct muster_error *ret_error);
/** muster_params_tick_weighted_start, and wait. Errors: those of muster_params_tick_weighted_start. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_tick(struct muster_params *params,
                                                               uint64_t clock, double weight,
                                                               uint64_t timeout_ns,
                                                               struct muster_error *ret_error);
/** muster_params_close, and wait. Errors: DEADLINE_EXCEEDED (pushes were not acknowledged in time;
 * the client is closed), FAILED_PRECONDITION (nothing has happened). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_disconnect(
    struct muster_params *params, uint64_t timeout_ns, struct muster_error *ret_error);

MUSTER_END

#endif
