/* A server of parameters, and the seat that it sits in. */
#ifndef MUSTER_PARAMS_SERVER_H
#define MUSTER_PARAMS_SERVER_H

#include <muster/address.h>
#include <muster/authorization.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

/**
 * A place for a server: memory that outlives its process, and a lock that one process holds at a time.
 * When the process that holds it dies, the next one goes on in the same memory.
 */
struct muster_params_seat;

struct muster_params_seat_options {
    uint64_t memory_max;  /* bytes; 0: 1 GiB. Taken from the system as it is needed */
    uint32_t shard_count; /* a power of two up to 4,096; 0: 256 */
    /* take, in the main thread of a process that has no other, starts a second process that shares
     * all memory with it and ends right after it: when the first is killed, its connections are
     * closed at once, however much memory it has. Clients then lose milliseconds less per GiB, and
     * 70 ms per GiB where the system has no huge pages. */
    bool has_anchor;
};

/**
 * Make a seat. Processes that are forked from this one share it.
 *
 * Owns:    gives.
 * Errors:  INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED (no memfd on this system).
 * Thread:  any; a seat is used by one thread.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_seat_new(
    const struct muster_params_seat_options *options, struct muster_params_seat **ret_seat,
    struct muster_error *ret_error);
/**
 * Wait until no other process holds the seat, hold it, and make its memory whole. Blocks: until the
 * holder dies, where there is one. The thread that calls it must live as long as the process.
 *
 * Errors: FAILED_PRECONDITION (the memory is of another version, or damaged).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_seat_take(struct muster_params_seat *seat,
                                                                    struct muster_error *ret_error);
/** The memory of this process's mapping goes; the seat lives on in other processes. NULL is
 * accepted. */
MUSTER_API void muster_params_seat_free(struct muster_params_seat *seat);

struct muster_params_server;
typedef void muster_params_server_fn(struct muster_params_server *server);
/** The server cannot do its work; it serves nobody, and is to be closed, from another turn. */
typedef void muster_params_failed_fn(struct muster_params_server *server,
                                     const struct muster_error *error);

/** Servers that may hold each row. */
#define MUSTER_PARAMS_REPLICAS_MAX 5u

struct muster_params_server_options {
    const struct muster_address *listen; /* port 0: a free one */
    struct muster_params_seat *seat;     /* taken by this process. Borrowed until closed */
    const char *job;                     /* clients of other jobs are refused; NULL: "" */
    /* The policy of callers, by the methods of muster.params.v1;
     * the messages of links count as these. Borrowed until closed; NULL: everybody. */
    const struct muster_authorization *authorization;
    /* Share the tables of `job` with other servers: its registry ("HOST:PORT", https:// for TLS). NULL:
     * this server has them alone. */
    const char *registry;
    const char *reach;   /* "HOST:PORT" that others connect to; NULL: the address of the server */
    uint32_t replicas;   /* servers that hold each row, 1 to 5; 0: 1. The first server's counts */
    /* Begin with the tables of this cut (muster_params_cut_start): the folder, NULL: none. With a registry:
     * the shards that the first map of the job gives this server. Where a server has died amid that, the
     * next one of its memory restores all again; where the cut was restored before, the rows stay. */
    const char *restore;
    /* With a registry: the job may have a map there whose servers have all gone. It is deleted, and their rows are
     * given up. Without this the server is refused (failed): with restore at once, otherwise when none of them has
     * come back for 10 s. */
    bool is_new_by_force;
    /* Restoring has failed after all, the servers of the job have another number of shards, or its rows have gone
     * with the servers that had them. May be NULL: the server waits for these. */
    muster_params_failed_fn *failed;
    /* With restore and a registry: this server needs the cut no more. Its rows are there, or the job has
     * begun without it. May be NULL. A server that is alone has the rows once it is open. */
    muster_params_server_fn *restored;
    /* A source without a name is forgotten when it has had no link for so long; 0: 10 minutes, UINT64_MAX:
     * never. The same for all servers of a job. A client that comes back later is refused with
     * FAILED_PRECONDITION. */
    uint64_t source_lease_ns;
    /* A server that has copies, and does nothing of what it is sent for so long, is not waited for any more: its
     * copies leave the map, and it learns them again when it is back. 0: 2 s, UINT64_MAX: it is waited for. */
    uint64_t replica_lag_max_ns;
    /* Bytes of clients' messages that are being received or wait, and of answers that have not left. Each client
     * has its share, 16 KiB to 64 MiB, and waits beyond it. 0: 256 MiB. */
    uint64_t receive_max_bytes;
    uint32_t sources_max;  /* further ones are refused with RESOURCE_EXHAUSTED; 0: 1,048,576 */
    uint32_t server_count; /* the job begins when so many servers are there; 0: 1 */
    /* A client asks the server to drain (params_drain.h): the program calls muster_params_server_drain,
     * and closes the server then. Called at each request until it does. NULL: clients may not ask. */
    muster_params_server_fn *on_drain;
};

/**
 * Serve clients (params.h) at an address, by links and by gRPC (muster.params.v1, proto/params.proto);
 * under TLS where env->tls is set.
 *
 * Owns:    gives; borrows env until closed, options during the call.
 * Errors:  INVALID_ARGUMENT, ALREADY_EXISTS (address in use), RESOURCE_EXHAUSTED; of restore NOT_FOUND (there
 *          is no cut), DATA_LOSS (a file is damaged), FAILED_PRECONDITION (of another version, or the
 *          memory has tables that were not restored); FAILED_PRECONDITION without restore: the memory has
 *          a part of a cut.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_server_open(
    struct muster_env *env, const struct muster_params_server_options *options,
    struct muster_params_server **ret_server, struct muster_error *ret_error);
/**
 * Whether the server takes part in its job: for health pages.
 *
 * Errors:  UNAVAILABLE, with the reason: the registry is away and the server knows no map of the job, not enough
 *          servers are there, it restores a cut, or all servers that had rows have gone.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_params_server_check(
    const struct muster_params_server *server, struct muster_error *ret_error);
/** Borrowed. */
MUSTER_API const struct muster_address *muster_params_server_address(
    const struct muster_params_server *server);
MUSTER_API void muster_params_server_set_data(struct muster_params_server *server, void *data);
MUSTER_API void *muster_params_server_data(const struct muster_params_server *server);

/** Counts since the server was opened, and the present contents of its memory. */
struct muster_params_stats {
    uint64_t pushes, pulls; /* messages */
    uint64_t pushed_rows, pulled_rows;
    uint64_t pushed_bytes, pulled_bytes; /* of their values, as they travel */
    uint64_t duplicate_runs; /* that had been applied before: a client sent them again */
    uint64_t refused_rows;   /* new rows for which there was no memory */
    uint64_t unadmitted_rows; /* pushed to keys that have no row yet (admit_after) */
    uint64_t evicted_rows;    /* removed for new ones (rows_max) */
    uint64_t expired_rows;    /* removed by their age (ttl_clocks) */
    uint64_t forgotten_sources; /* what they have pushed is not known any more (source_lease_ns) */
    uint64_t rows, memory_bytes, memory_max_bytes;
    uint64_t clock_low, clock_lag; /* of sources that tick: the lowest clock, and how far it is behind the highest */
    uint64_t still_replicas;       /* times that one of these stood still (replica_lag_max_ns) */
    uint64_t replica_lag_frames;   /* that the slowest of the servers that copy this one has not done yet */
    uint64_t credit_bytes;         /* that each client may have outstanding (receive_max_bytes), … */
    uint64_t held_bytes;           /* … all of them have now, … */
    uint64_t credit_waits;         /* … and times that a client had more, and was not read from */
    uint32_t tables, sources, clients;
};
MUSTER_API void muster_params_server_stats(const struct muster_params_server *server,
                                           struct muster_params_stats *ret_stats);
typedef void muster_params_drained_fn(struct muster_params_server *server, enum muster_rc rc);
/**
 * Give all shards to the other servers of the job, before the server is closed. Clients are served meanwhile.
 * drained gets OK when this server has no shard any more: at once, if it is alone or all servers drain.
 *
 * Units:   deadline_ns is loop time, absolute.
 * Errors:  by drained DEADLINE_EXCEEDED.
 * Order:   once only.
 * Thread:  loop only.
 */
MUSTER_API void muster_params_server_drain(struct muster_params_server *server,
                                           uint64_t deadline_ns, muster_params_drained_fn *drained);
/** Connections end; the memory stays in the seat. closed (may be NULL) runs last, from the loop. */
MUSTER_API void muster_params_server_close(struct muster_params_server *server,
                                           muster_params_server_fn *closed);

MUSTER_END

#endif
