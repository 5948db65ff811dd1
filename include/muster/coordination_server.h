/* The coordination service of JAX and TensorFlow: tasks, keys, barriers, who is alive. */
#ifndef MUSTER_COORDINATION_SERVER_H
#define MUSTER_COORDINATION_SERVER_H

#include <muster/address.h>
#include <muster/authorization.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_coordination_server;

struct muster_coordination_server_options {
    uint32_t task_count; /* of the job; 1 to 1,000,000 */
    struct muster_rpc_server
        *rpc_server;    /* serve on this one (its owner listens); NULL: one of its own */
    const char *listen; /* own server: as muster_address_parse_listen; port 0: a free one */
    uint64_t heartbeat_timeout_ns; /* 0: 100 s */
    uint64_t shutdown_timeout_ns;  /* 0: 300 s */
    uint64_t register_timeout_ns;  /* 0: 3,600 s */
    bool
        is_recoverable; /* a task may die and come back: nobody is told, it is not alive meanwhile */
    const char *data;   /* a file: the service may be killed and opened again on it, and its clients
                         live on; NULL: memory only */
    bool is_closed_dead;    /* a task whose connection ends is dead at once */
    struct muster_tls *tls; /* own server: NULL: plain text. Shared until closed */
    const struct muster_authorization *authorization; /* own server: who may call what; NULL:
                                                       * everybody. Borrowed until closed */
};

typedef void muster_coordination_server_close_fn(struct muster_coordination_server *server);

/**
 * Serve /xla.coordination.CoordinationService (both numberings of its fields) and
 * /tensorflow.CoordinationService (one job, by task number). When all tasks have shut down, the
 * next job may begin. With data, what is answered has been kept; who dies is told to the others by
 * their heartbeats instead of PollForError, because JAX's clients end when that call breaks.
 *
 * Owns:    gives; borrows env and rpc_server until closed, options during the call.
 * Errors:  INVALID_ARGUMENT, ALREADY_EXISTS (address in use), RESOURCE_EXHAUSTED; with data also as
 *          muster_registry_store_open.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_coordination_server_open(
    struct muster_env *env, const struct muster_coordination_server_options *options,
    struct muster_coordination_server **ret_server, struct muster_error *ret_error);
/** Address of the service's own server; NULL when it runs on a server of the caller. Borrowed. */
MUSTER_API const struct muster_address *muster_coordination_server_address(
    const struct muster_coordination_server *server);
MUSTER_API void muster_coordination_server_set_data(struct muster_coordination_server *server,
                                                    void *data);
MUSTER_API void *muster_coordination_server_data(const struct muster_coordination_server *server);
/** Questions that wait, and all to come, end CANCELLED. For one on another's rpc_server: before that
 * is closed, so that none holds it; the close below belongs after it. */
MUSTER_API void muster_coordination_server_drain(struct muster_coordination_server *server);
/** Drains, and frees. closed (may be NULL) runs last, from the loop. */
MUSTER_API void muster_coordination_server_close(struct muster_coordination_server *server,
                                                 uint64_t deadline_ns,
                                                 muster_coordination_server_close_fn *closed);

MUSTER_END

#endif
