/* Questions of a task to another task's server: its devices, collective groups and instances, buffers. The asking half
 * of tensorflow.WorkerService; the other one may be a muster_server or TensorFlow's. The channel goes to "host:port",
 * the target of the server without its "grpc://". */
#ifndef MUSTER_SERVER_CLIENT_H
#define MUSTER_SERVER_CLIENT_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>
#include <muster/stub.h>

MUSTER_BEGIN

/** A device of a task, as the task describes it. */
struct muster_server_peer {
    const char *device; /* "/job:worker/replica:0/task:1/device:CPU:0" */
    const char *type;   /* "CPU" */
    int64_t memory_limit_bytes;
    int32_t numa_node;
    uint64_t incarnation; /* of its process: another one is another life; never 0 */
    const char *description;
};

/* Each operation is the caller's memory, borrowed from start to done. What it gives is valid until done returns, and
 * the operation may be reused or freed in done. cancel is idempotent; done still comes. */

struct muster_server_devices;
typedef void muster_server_devices_fn(struct muster_server_devices *op, enum muster_rc rc);
struct muster_server_devices {
    void *data;
    /* valid in done */
    const struct muster_server_peer *peers; /* with OK */
    size_t count;
    struct muster_error error; /* the server's own words, or why there are none */
    /* private */
    struct muster_stub_call stub;
    muster_server_devices_fn *done;
};

/**
 * Ask a server for its devices. It answers as soon as it is started, so this is also the question whether it lives,
 * and by the incarnation, whether it is the same process as before.
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows op and channel until done, and options during the call.
 * Errors:  returned as muster_call_start; by done UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INTERNAL (an answer
 *          that cannot be read), RESOURCE_EXHAUSTED, and those of the server.
 * Thread:  loop only, as all below.
 * Source:  tensorflow.WorkerService GetStatus; MultiWorkerMirroredStrategy's health check.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_devices_start(
    struct muster_server_devices *op, struct muster_channel *channel, uint64_t deadline_ns,
    muster_server_devices_fn *done);
MUSTER_API void muster_server_devices_cancel(struct muster_server_devices *op);

/** Borrowed during start. */
struct muster_server_group_options {
    int32_t key;                             /* of the group, the same on all members */
    uint32_t size;                           /* devices in it */
    const struct muster_server_peer *member; /* the device that joins */
};

struct muster_server_group;
typedef void muster_server_group_fn(struct muster_server_group *op, enum muster_rc rc);
struct muster_server_group {
    void *data;
    /* valid in done */
    const struct muster_server_peer *members; /* with OK, by rank */
    size_t count;
    uint32_t task_count;
    struct muster_bytes communicator_key; /* the same for all members */
    struct muster_error error;
    /* private */
    struct muster_stub_call stub;
    muster_server_group_fn *done;
};

/**
 * Join a collective group. The leader of the collectives is asked, and answers when all `size` devices have joined.
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows op and channel until done, and options during the call.
 * Errors:  returned as muster_call_start; by done INTERNAL (another size or type than the others', one too many),
 *          FAILED_PRECONDITION (the device has restarted), those of an abort, and as muster_server_devices_start.
 * Source:  tensorflow.WorkerService CompleteGroup.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_group_start(
    struct muster_server_group *op, struct muster_channel *channel,
    const struct muster_server_group_options *options, uint64_t deadline_ns,
    muster_server_group_fn *done);
MUSTER_API void muster_server_group_cancel(struct muster_server_group *op);

#define MUSTER_SERVER_DIMS_MAX 254u /* TensorFlow's */

/** TensorFlow's CollectiveType. */
enum muster_server_collective {
    MUSTER_SERVER_REDUCTION = 0,
    MUSTER_SERVER_BROADCAST = 1,
    MUSTER_SERVER_GATHER = 2,
    MUSTER_SERVER_PERMUTE = 3,
    MUSTER_SERVER_ALL_TO_ALL = 4,
    MUSTER_SERVER_REDUCE_SCATTER = 5,
};

/** Borrowed during start. */
struct muster_server_instance_options {
    int32_t group_key;
    uint32_t group_size;
    int32_t key; /* of the instance: one collective operation */
    enum muster_server_collective collective;
    int32_t data_type; /* TensorFlow's DataType: 1 float, 2 double, 3 int32, 9 int64 */
    const int64_t *dims;
    size_t dim_count;
    const struct muster_server_peer *member; /* the device that takes part */
    bool is_source;                          /* of a broadcast: it sends */
    int64_t step_id;                         /* 0: of eager code and functions */
};

struct muster_server_instance;
typedef void muster_server_instance_fn(struct muster_server_instance *op, enum muster_rc rc);
struct muster_server_instance {
    void *data;
    /* valid in done */
    int32_t source_rank; /* with OK: of the sender of a broadcast; -1: nobody sends */
    struct muster_error error;
    /* private */
    struct muster_stub_call stub;
    muster_server_instance_fn *done;
};

/**
 * Say what this device is about to do, and learn who sends. The leader is asked, after the group is complete; a
 * broadcast is answered when all members have asked.
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows op and channel until done, and options during the call.
 * Errors:  returned INVALID_ARGUMENT (more dims than MUSTER_SERVER_DIMS_MAX) and as muster_call_start; by done INTERNAL
 *          and others of the server (members differ; no such group), and as muster_server_devices_start.
 * Source:  tensorflow.WorkerService CompleteInstance.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_instance_start(
    struct muster_server_instance *op, struct muster_channel *channel,
    const struct muster_server_instance_options *options, uint64_t deadline_ns,
    muster_server_instance_fn *done);
MUSTER_API void muster_server_instance_cancel(struct muster_server_instance *op);

/** Borrowed during start. */
struct muster_server_fetch_options {
    const char *key; /* muster/server.h says how TensorFlow makes them */
    int64_t step_id;
    const struct muster_server_peer *source; /* the device that sends, with its incarnation */
    const char *destination;                 /* the device that asks */
};

struct muster_server_fetch;
typedef void muster_server_fetch_fn(struct muster_server_fetch *op, enum muster_rc rc);
struct muster_server_fetch {
    void *data;
    /* valid in done */
    struct muster_bytes bytes; /* with OK */
    bool is_dead;              /* the sender's branch was not taken: there are no bytes */
    struct muster_error error;
    /* private */
    struct muster_stub_call stub;
    muster_server_fetch_fn *done;
};

/**
 * Fetch the bytes that a task has on offer under a key, or will have: it answers then. Each key is fetched once in a
 * step. The channel must take messages as large as the bytes (receive_message_max_bytes).
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows op and channel until done, and options during the call.
 * Errors:  returned as muster_call_start; by done INVALID_ARGUMENT (it has no such device), FAILED_PRECONDITION (its
 *          incarnation is another), INTERNAL (somebody else waits for the key), those of an abort, and as
 *          muster_server_devices_start.
 * Source:  tensorflow.WorkerService RecvBuf; the bytes are in transport_options, as RecvBufRespExtra.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_server_fetch_start(
    struct muster_server_fetch *op, struct muster_channel *channel,
    const struct muster_server_fetch_options *options, uint64_t deadline_ns,
    muster_server_fetch_fn *done);
MUSTER_API void muster_server_fetch_cancel(struct muster_server_fetch *op);

MUSTER_END

#endif
