/* A task of a cluster that serves the others, as tf.distribute.Server does: its devices, collective
 * groups, buffers, and the coordination service where it is the leader. */
#ifndef MUSTER_SERVER_H
#define MUSTER_SERVER_H

#include <muster/address.h>
#include <muster/base.h>
#include <muster/cluster_spec.h>
#include <muster/coordination_server.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/rpc.h>
#include <muster/server_def.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_server;

#define MUSTER_SERVER_TARGET_BYTES 300 /* "grpc://host:port" with its NUL */

/** One device of this task. Its full name is made of job, task, type and number; its incarnation is
 * this process's. */
struct muster_server_device {
    const char *type; /* "CPU", "GPU", "TPU" */
    uint32_t number;
    int64_t memory_limit_bytes;
    int32_t numa_node;
    const char *description; /* NULL: none */
};

struct muster_server_protocol;

/** Borrowed during open. What is said here counts, then what `def` says, then what is given below. */
struct muster_server_options {
    const struct muster_server_def *def;       /* NULL: none */
    const struct muster_cluster_spec *cluster; /* NULL: one task of a job "localhost", port 0 */
    const char *job;                           /* NULL: the cluster's only job; a def has to say it */
    const int32_t *task;                       /* NULL: the job's only task; of a def: 0 */
    const char *protocol;                      /* NULL: "grpc"; a def has to say it */
    uint16_t port;                             /* 0: that of its own address in the cluster */
    struct muster_bytes config; /* a packed ConfigProto, merged into that of def; never read */
    const struct muster_server_protocol *protocols; /* besides "grpc"; borrowed until freed */
    size_t protocol_count;
    const char *bind_host; /* an IP address; NULL: every interface of IPv4, as TensorFlow */
    const struct muster_server_device *devices;
    size_t device_count;                                           /* 0: one CPU */
    const struct muster_rpc_server_options *rpc;                   /* limits, TLS; NULL: defaults */
    const struct muster_coordination_server_options *coordination; /* served here too; its
                                                                      rpc_server and listen are not
                                                                      read. NULL: not here */
};

enum muster_server_state {
    MUSTER_SERVER_NEW,
    MUSTER_SERVER_STARTED,
    MUSTER_SERVER_STOPPING,
    MUSTER_SERVER_STOPPED,
};

typedef void muster_server_stop_fn(struct muster_server *server);

/** Another way to serve a task than gRPC (TensorFlow's ServerFactory). The functions are called for one
 * server at a time: open first, free last, start and stop between them as in enum
 * muster_server_state. */
struct muster_server_protocol {
    const char *name; /* "grpc+verbs" */
    void *data;
    /** Bind. Gives *ret_impl; ret_target is what others dial. */
    enum muster_rc (*open)(const struct muster_server_protocol *protocol, struct muster_env *env,
                           struct muster_server *server, const struct muster_server_def *def,
                           char ret_target[MUSTER_SERVER_TARGET_BYTES], void **ret_impl,
                           struct muster_error *ret_error);
    enum muster_rc (*start)(void *impl, struct muster_error *ret_error);
    /** The server may have been started or not. Calls muster_server_on_stopped once, from the loop. */
    void (*stop)(void *impl, uint64_t deadline_ns);
    /** Stopped, or never started. */
    void (*free)(void *impl);
};

/**
 * Check what is asked for, and bind. Clients that connect wait until the server is started.
 *
 * Owns:    gives; borrows env until freed.
 * Errors:  INVALID_ARGUMENT (names job, task, address and what the cluster has instead), NOT_FOUND
 *          (no such protocol, or job), ALREADY_EXISTS (address in use), RESOURCE_EXHAUSTED.
 * Thread:  loop only, as all below.
 * Source:  tf.distribute.Server; a missing task or a port beyond 65535 is an argument's fault here.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_open(
    struct muster_env *env, const struct muster_server_options *options,
    struct muster_server **ret_server, struct muster_error *ret_error);
/** Serve. Again: OK. What was begun is undone when a later step fails. Errors: FAILED_PRECONDITION
 * (it has been stopped) and as muster_coordination_server_open. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_start(struct muster_server *server,
                                                                struct muster_error *ret_error);
/** Stop the server: waiting callers are answered, open calls may end until deadline_ns, the port is
 * free afterwards. stopped (may be NULL) runs once, from the loop. A second call only waits for
 * the first. */
MUSTER_API void muster_server_stop(struct muster_server *server, uint64_t deadline_ns,
                                   muster_server_stop_fn *stopped);
/** NEW or STOPPED only; the port of a NEW one is free after the loop's next turns. NULL is accepted. */
MUSTER_API void muster_server_free(struct muster_server *server);
MUSTER_API enum muster_server_state muster_server_state(const struct muster_server *server);
/** For protocols: the server has stopped. Frees nothing. */
MUSTER_API void muster_server_on_stopped(struct muster_server *server);

/** Waits for the end of a server. Caller's memory. */
struct muster_server_join;
typedef void muster_server_join_fn(struct muster_server_join *join, enum muster_rc rc);
struct muster_server_join {
    void *data;
    /* private */
    muster_server_join_fn *done;
    struct muster_server *server; /* NULL: done is posted */
    enum muster_rc rc;
    struct muster_list node;
    struct muster_timer timer;
    struct muster_task task;
};
/** done runs once the server is STOPPED, OK; a server that was never started is stopped, as
 * TensorFlow's. Then DEADLINE_EXCEEDED, CANCELLED. Borrows join until done, which may free the
 * server. */
MUSTER_API void muster_server_join_start(struct muster_server_join *join,
                                         struct muster_server *server, uint64_t deadline_ns,
                                         muster_server_join_fn *done);
MUSTER_API void muster_server_join_cancel(struct muster_server_join *join);

/** The definition of the server: as asked for, with what was inferred. Borrowed. */
MUSTER_API const struct muster_server_def *muster_server_definition(
    const struct muster_server *server);
/** "grpc://host:port", with the port that was bound. Borrowed. */
MUSTER_API const char *muster_server_target(const struct muster_server *server);
/** Bound address; of another protocol none. Borrowed. */
MUSTER_API const struct muster_address *muster_server_address(const struct muster_server *server);
/** "/job:worker/replica:0/task:1/device:CPU:0"; NULL: there are no so many. Borrowed. */
MUSTER_API const char *muster_server_device_name(const struct muster_server *server, size_t i);
/** "/job:worker/replica:0/task:1". Borrowed. */
MUSTER_API const char *muster_server_name(const struct muster_server *server);
MUSTER_API uint64_t muster_server_incarnation(const struct muster_server *server);
/** For services of the program itself, which may be added before start, too. NULL once stopped, and of
 * another protocol. Borrowed. */
MUSTER_API struct muster_rpc_server *muster_server_rpc_server(const struct muster_server *server);
MUSTER_API void muster_server_set_data(struct muster_server *server, void *data);
MUSTER_API void *muster_server_data(const struct muster_server *server);

/** Every collective that waits here, and every one to come, ends with rc and text. */
MUSTER_API void muster_server_abort_collectives(struct muster_server *server, enum muster_rc rc,
                                                const char *text);

/* Buffers: what a peer fetches by its key (RecvBuf). TensorFlow's keys: of a broadcast
 * "GROUP:INSTANCE:FRAME:ITERATION:0:FROM:TO", of a ring
 * "GROUP:INSTANCE:FRAME:ITERATION:PASS:PART:FROM"; frame and iteration are 0 outside of loops, FROM
 * and TO are ranks. */

struct muster_server_buffer;
typedef void muster_server_buffer_fn(struct muster_server_buffer *buffer, enum muster_rc rc);
struct muster_server_buffer {
    void *data;
    int64_t step_id;           /* 0: of eager code and functions, TensorFlow's only one there */
    const char *key;           /* borrowed until on_taken */
    struct muster_bytes bytes; /* borrowed until on_taken */
    /* private */
    muster_server_buffer_fn *on_taken;
    enum muster_rc rc;
    struct muster_list node;
    struct muster_task task;
};

/** Offer bytes to the one peer that asks for the key in this step, before or after. on_taken runs
 * exactly once: OK (it was sent), CANCELLED (the server has stopped), that of
 * muster_server_abort_collectives. Errors: ALREADY_EXISTS (the key is on offer),
 * FAILED_PRECONDITION (not started, or not of gRPC), RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_offer_start(
    struct muster_server_buffer *buffer, struct muster_server *server,
    muster_server_buffer_fn *on_taken);

MUSTER_END

#endif
