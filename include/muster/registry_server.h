/* The embedded registry: the etcd v3 gRPC API over one SQLite file, or over memory. */
#ifndef MUSTER_REGISTRY_SERVER_H
#define MUSTER_REGISTRY_SERVER_H

#include <muster/address.h>
#include <muster/authorization.h>
#include <muster/base.h>
#include <muster/env.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

/** Persistent state of a registry: keys, their history, leases. Servers may be opened and closed on
 * it one after the other. */
struct muster_registry_store;
struct muster_registry_server;

struct muster_registry_store_options {
    const char *path; /* data file; NULL: memory, gone at close */
    bool
        is_durable; /* sync each group commit: safe against power loss too, not only against kill */
    uint64_t quota_bytes; /* writes beyond it: RESOURCE_EXHAUSTED; 0: 2 GiB */
};

/** Errors: PERMISSION_DENIED, FAILED_PRECONDITION (another process has the file open), DATA_LOSS
 * (no registry file, or a damaged one), UNAVAILABLE. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_store_open(
    struct muster_mem *mem, const struct muster_registry_store_options *options,
    struct muster_registry_store **ret_store, struct muster_error *ret_error);
/** Close the store; uncommitted changes are dropped. No server may be open on it. NULL is accepted.
 */
MUSTER_API void muster_registry_store_close(struct muster_registry_store *store);

struct muster_registry_server_options {
    struct muster_rpc_server
        *rpc_server;    /* serve on this one (its owner listens); NULL: one of its own */
    const char *listen; /* own server: "host:port", address text or a name of this host; port 0: a
                           free one */
    const char *
        client_url; /* what MemberList tells clients to dial; NULL: http(s)://<listening address> */
    const char *name;       /* of the one member; NULL: "muster" */
    struct muster_tls *tls; /* own server: NULL: plain text. Shared until closed */
    const struct muster_authorization *authorization; /* own server: who may call what; NULL:
                                                       * everybody. Borrowed until closed */
    uint64_t progress_interval_ns; /* notices on quiet watches that asked for them; 0: 10 min */
};

typedef void muster_registry_server_close_fn(struct muster_registry_server *server);

/**
 * Serve the registry in store. A server that died before (with the memory of its process) leaves
 * the store with what it had committed; every lease gets its full time again.
 *
 * Owns:    gives; borrows env, store and rpc_server until closed, options during the call.
 * Errors:  INVALID_ARGUMENT, ALREADY_EXISTS (address in use), UNAVAILABLE (store).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_server_open(
    struct muster_env *env, struct muster_registry_store *store,
    const struct muster_registry_server_options *options,
    struct muster_registry_server **ret_server, struct muster_error *ret_error);
/** The figures of a registry for its operator. */
struct muster_registry_server_status {
    int64_t revision;
    uint64_t file_bytes;    /* of the data file */
    uint64_t used_bytes;    /* what the data take of it; puts are refused at quota_bytes */
    uint64_t journal_bytes; /* written since the last checkpoint */
    uint64_t quota_bytes;
    uint64_t key_count, lease_count, watch_count;
    bool is_failing;    /* writes do not reach the data file */
    bool is_over_quota; /* puts are refused */
};
MUSTER_API void muster_registry_server_status(const struct muster_registry_server *server,
                                              struct muster_registry_server_status *ret_status);
/** Whether it can do its work. Errors: RESOURCE_EXHAUSTED (full disk, quota), UNAVAILABLE, or
 * DATA_LOSS: writes do not reach the data file; the text says which file and why. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_server_check(
    const struct muster_registry_server *server, struct muster_error *ret_error);
/** The address that it listens on; NULL on an rpc server of somebody else. */
MUSTER_API const struct muster_address *muster_registry_server_address(
    const struct muster_registry_server *server);
MUSTER_API void muster_registry_server_set_data(struct muster_registry_server *server, void *data);
MUSTER_API void *muster_registry_server_data(const struct muster_registry_server *server);
/** Commit and answer what is open, end streams with UNAVAILABLE, let unary calls end until
 * deadline_ns, then closed (may be NULL). An rpc server of somebody else must be closed first. */
MUSTER_API void muster_registry_server_close(struct muster_registry_server *server,
                                             uint64_t deadline_ns,
                                             muster_registry_server_close_fn *closed);

MUSTER_END

#endif
