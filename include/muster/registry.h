/* The registry client: keys, transactions, leases and watches over the etcd v3 gRPC API. */
#ifndef MUSTER_REGISTRY_H
#define MUSTER_REGISTRY_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/list.h>
#include <muster/loop.h>
#include <muster/mem.h>
#include <muster/rpc.h>
#include <muster/status.h>

MUSTER_BEGIN

/** A connection to one embedded registry, or to the endpoints of one etcd cluster. */
struct muster_registry;
struct muster_registry_op;
struct muster_registry_lease;
struct muster_registry_watch;
struct muster_registry_request; /* private */

#define MUSTER_REGISTRY_ENDPOINTS_MAX   16
#define MUSTER_REGISTRY_LEASE_TTL_MIN_S 2 /* registries raise a shorter one to this */

struct muster_registry_options {
    /* "host:port" or several joined by commas; "https://host:port" is spoken to under TLS. Copied. */
    const char *endpoints;
    /* For these: a credential (shared until closed), or its files. All NULL: the files that
     * MUSTER_REGISTRY_CA_FILE, MUSTER_REGISTRY_CERT_FILE and MUSTER_REGISTRY_KEY_FILE name (the
     * last two where the registry demands certificates); no roots: the system's. */
    struct muster_tls *tls;
    const char *ca_file, *cert_file, *key_file;
    /* Where the registry asks who we are. NULL: what MUSTER_REGISTRY_USER and
     * MUSTER_REGISTRY_PASSWORD_FILE say. The file is read at each login, up to its first line's end.
     */
    const char *user;
    const char *password_file;
    uint64_t
        backoff_base_ns; /* first wait before a stream or connection is opened again; 0: 50 ms */
    uint64_t backoff_max_ns; /* 0: 1 s */
};

/** A key and its value as of mod_revision. All bytes are borrowed for the callback that shows them.
 */
struct muster_registry_kv {
    struct muster_bytes key;
    struct muster_bytes value;
    uint64_t create_revision;
    uint64_t mod_revision;
    uint64_t version; /* 1 = created by mod_revision */
    int64_t lease;    /* 0: none */
};

typedef void muster_registry_close_fn(struct muster_registry *registry);

/** Whether `endpoints` are written as muster_registry_open takes them. INVALID_ARGUMENT. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_endpoints_check(
    const char *endpoints, struct muster_error *ret_error);
/** Connects lazily. Borrows env; borrows options and its texts for the call. Errors: INVALID_ARGUMENT
 * (an endpoint, which the text names; a user without a password file, or one whose password would go
 * to some endpoints in plain text and to others not), RESOURCE_EXHAUSTED, those of muster_tls_open.
 * Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_open(
    struct muster_env *env, const struct muster_registry_options *options,
    struct muster_registry **ret_registry, struct muster_error *ret_error);
/** Ops and snapshots under way end with CANCELLED, leases and watches are stopped without a callback;
 * then closed (may be NULL), in a later turn. */
MUSTER_API void muster_registry_close(struct muster_registry *registry,
                                      muster_registry_close_fn *closed);
MUSTER_API void muster_registry_set_data(struct muster_registry *registry, void *data);
MUSTER_API void *muster_registry_data(const struct muster_registry *registry);
/** A connection to some endpoint is up right now. */
MUSTER_API bool muster_registry_is_connected(const struct muster_registry *registry);
/** Why no endpoint can be used, before any had ever let us in: TLS refused at every endpoint for a
 * certificate of ours or theirs (UNAUTHENTICATED), or each endpoint that answers speaks TLS where plain
 * text was asked, or the reverse, or does not speak HTTP/2 (FAILED_PRECONDITION). Operations end with
 * this, since waiting mends nothing. NULL: there is no such reason. After a first contact refusals are
 * waited out like any other absence. Borrowed. */
MUSTER_API const struct muster_error *muster_registry_refusal(
    const struct muster_registry *registry);

/* Operations. */

typedef void muster_registry_op_fn(struct muster_registry_op *op, enum muster_rc rc);

/**
 * One request. Caller's memory; results are valid until the callback returns.
 *
 * rc of a write: OK = applied. CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE, INTERNAL, UNKNOWN = the
 * outcome is unknown (muster_registry_is_unknown): read before writing again, unless is_unsent, and
 * write on a condition: of several members one may still apply it after a read without it.
 * Everything else = not applied. Reads, and writes that were certainly not applied (unsent, or the
 * member has no leader), go to the next endpoint by themselves after UNAVAILABLE, until the
 * deadline. UNAUTHENTICATED: the registry does not take the user or its password.
 */
struct muster_registry_op {
    void *data;
    /* results */
    uint64_t revision; /* of the store when the request was applied */
    bool is_succeeded; /* txn, swap: all compares held */
    bool is_more;      /* range: the limit cut the answer */
    bool is_unsent;    /* failed before anything left for a registry: certainly not applied */
    uint64_t count;    /* range: keys in the range; delete: keys deleted */
    uint64_t ttl_s;    /* time to live left (time_to_live) or granted (grant) */
    int64_t lease;     /* grant: its id */
    const struct muster_registry_kv
        *kvs; /* range; txn, swap: those of all GET steps taken, in order */
    size_t kv_count;
    struct muster_error error; /* the registry's own words */
    /* private */
    muster_registry_op_fn *done;
    struct muster_registry_request *request;
};

/** The outcome of a write that ended with rc is not known. */
static inline bool muster_registry_is_unknown(enum muster_rc rc)
{
    return rc == MUSTER_CANCELLED || rc == MUSTER_DEADLINE_EXCEEDED || rc == MUSTER_UNAVAILABLE ||
           rc == MUSTER_INTERNAL || rc == MUSTER_UNKNOWN;
}

enum muster_registry_reach {
    MUSTER_REGISTRY_KEY,    /* exactly this key */
    MUSTER_REGISTRY_PREFIX, /* every key that begins with it; an empty one = all keys */
};

enum muster_registry_order {
    MUSTER_REGISTRY_BY_KEY,       /* ascending */
    MUSTER_REGISTRY_OLDEST_FIRST, /* by create_revision */
    MUSTER_REGISTRY_NEWEST_FIRST,
};

struct muster_registry_range {
    struct muster_bytes key;
    enum muster_registry_reach reach;
    uint64_t revision; /* read the past; 0: now */
    uint64_t limit;    /* 0: none; cuts after ordering */
    enum muster_registry_order order;
    bool is_keys_only;
    bool is_count_only;
    bool is_serializable; /* may be stale, works without a leader */
};

/**
 * Read: keys in op->kvs, op->count, op->revision (watch from revision + 1).
 *
 * Units:   deadline_ns is loop time, absolute.
 * Owns:    borrows op until done; everything else that is passed is copied.
 * Errors:  returned FAILED_PRECONDITION (closing), RESOURCE_EXHAUSTED, INVALID_ARGUMENT (empty
 *          key); by done OUT_OF_RANGE (revision compacted or in the future) and those named at
 *          muster_registry_op.
 * Thread:  loop only. Units, Owns, Errors and Thread hold for every start below.
 * Source:  etcdserverpb.KV.Range.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_range_start(
    struct muster_registry_op *op, struct muster_registry *registry,
    const struct muster_registry_range *range, uint64_t deadline_ns, muster_registry_op_fn *done);

/** lease 0: none. op->revision is the key's mod_revision. NOT_FOUND: no such lease. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_put_start(
    struct muster_registry_op *op, struct muster_registry *registry, struct muster_bytes key,
    struct muster_bytes value, int64_t lease, uint64_t deadline_ns, muster_registry_op_fn *done);

/** OK with count 0 when there was nothing to delete. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_delete_start(
    struct muster_registry_op *op, struct muster_registry *registry, struct muster_bytes key,
    enum muster_registry_reach reach, uint64_t deadline_ns, muster_registry_op_fn *done);

/** Compare-and-swap of one key: put value if its mod_revision is `mod_revision` (0: it does not
 * exist). is_succeeded tells; if false, kvs holds the key as it is (kv_count 0: absent). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_swap_start(
    struct muster_registry_op *op, struct muster_registry *registry, struct muster_bytes key,
    uint64_t mod_revision, struct muster_bytes value, int64_t lease, uint64_t deadline_ns,
    muster_registry_op_fn *done);

enum muster_registry_target {
    MUSTER_REGISTRY_VERSION,
    MUSTER_REGISTRY_CREATE_REVISION,
    MUSTER_REGISTRY_MOD_REVISION,
    MUSTER_REGISTRY_VALUE,
    MUSTER_REGISTRY_LEASE,
};
enum muster_registry_relation {
    MUSTER_REGISTRY_EQUAL,
    MUSTER_REGISTRY_GREATER,
    MUSTER_REGISTRY_LESS,
    MUSTER_REGISTRY_NOT_EQUAL,
};
struct muster_registry_compare {
    struct muster_bytes key;
    enum muster_registry_target target;
    enum muster_registry_relation relation;
    uint64_t number;           /* all targets but VALUE */
    struct muster_bytes value; /* VALUE */
};
enum muster_registry_step_kind {
    MUSTER_REGISTRY_GET,
    MUSTER_REGISTRY_PUT,
    MUSTER_REGISTRY_DELETE,
};
struct muster_registry_step {
    enum muster_registry_step_kind kind;
    struct muster_bytes key;
    enum muster_registry_reach reach; /* GET, DELETE */
    struct muster_bytes value;        /* PUT */
    int64_t lease;                    /* PUT */
    enum muster_registry_order order; /* GET */
    uint64_t limit;                   /* GET; 0: none */
    uint64_t create_revision_max;     /* GET: only keys as old as that; 0: all */
};
struct muster_registry_txn {
    const struct muster_registry_compare *compares;
    size_t compare_count;
    const struct muster_registry_step *success; /* taken when all compares hold */
    size_t success_count;
    const struct muster_registry_step *failure;
    size_t failure_count;
};
/** All or nothing, in one revision. At most 128 of each. INVALID_ARGUMENT: a key written twice. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_txn_start(
    struct muster_registry_op *op, struct muster_registry *registry,
    const struct muster_registry_txn *txn, uint64_t deadline_ns, muster_registry_op_fn *done);

/** A lease without keep-alive (see muster_registry_lease_start for one that lives): op->lease,
 * op->ttl_s. id 0: the registry picks. ALREADY_EXISTS or FAILED_PRECONDITION: the id is taken. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_grant_start(
    struct muster_registry_op *op, struct muster_registry *registry, uint64_t ttl_s, int64_t id,
    uint64_t deadline_ns, muster_registry_op_fn *done);
/** Ends the lease and deletes its keys in one revision. NOT_FOUND: it is gone already. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_revoke_start(
    struct muster_registry_op *op, struct muster_registry *registry, int64_t lease,
    uint64_t deadline_ns, muster_registry_op_fn *done);
/** op->ttl_s left. NOT_FOUND: the lease is gone. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_time_to_live_start(
    struct muster_registry_op *op, struct muster_registry *registry, int64_t lease,
    uint64_t deadline_ns, muster_registry_op_fn *done);
/** Forget the history below revision. OUT_OF_RANGE: it is forgotten already, or in the future. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_compact_start(
    struct muster_registry_op *op, struct muster_registry *registry, uint64_t revision,
    uint64_t deadline_ns, muster_registry_op_fn *done);

/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_registry_op_cancel(struct muster_registry_op *op);

/* Leases that are kept alive. */

typedef void muster_registry_lease_granted_fn(struct muster_registry_lease *lease,
                                              enum muster_rc rc);
typedef void muster_registry_lease_lost_fn(struct muster_registry_lease *lease);

/** Caller's memory until stop, a failed grant, or on_lost. */
struct muster_registry_lease {
    void *data;
    int64_t id;                /* from granted with OK on */
    uint64_t ttl_s;            /* granted */
    struct muster_error error; /* of a failed grant */
    /* private */
    muster_registry_lease_granted_fn *granted;
    muster_registry_lease_lost_fn *on_lost;
    struct muster_registry *registry;
    struct muster_registry_op *op; /* the grant, while it is under way */
    struct muster_timer timer;     /* sends the next keep-alive */
    struct muster_timer expiry;    /* no answer for a whole TTL */
    uint64_t expires_ns;
    uint64_t asked_ns; /* when the oldest unanswered keep-alive left; 0: none */
    struct muster_list node;
};

/**
 * Grant a lease of ttl_s and keep it alive over one stream for all leases, every ttl/3, across
 * reconnects.
 *
 * granted runs once. After OK, on_lost runs at most once: the registry said that the lease is gone,
 * or nothing was heard for a whole TTL (then it may still live a while: its keys are a label, not a
 * lock).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_lease_start(
    struct muster_registry_lease *lease, struct muster_registry *registry, uint64_t ttl_s,
    uint64_t deadline_ns, muster_registry_lease_granted_fn *granted,
    muster_registry_lease_lost_fn *on_lost);
/** Stop keeping it alive; it then expires unless revoked (muster_registry_revoke_start).
 * Synchronous: no callback follows, also not granted. Idempotent on a started lease. */
MUSTER_API void muster_registry_lease_stop(struct muster_registry_lease *lease);

/* Watches. */

struct muster_registry_change {
    bool is_delete;               /* then kv has key and mod_revision only */
    struct muster_registry_kv kv; /* borrowed for the callback */
};

/** Changes in revision order, none missing, none twice; all changes of one revision come together.
 */
typedef void muster_registry_changes_fn(struct muster_registry_watch *watch,
                                        const struct muster_registry_change *changes, size_t count);
/** The watch has ended. OUT_OF_RANGE: its revision was compacted. DATA_LOSS: the registry is another
 * store or has lost revisions (memory registry restarted). RESOURCE_EXHAUSTED: one revision has more
 * changes than 64 messages hold, or the next changes could not be taken 8 times in a row (a message
 * too large, no memory): range again and start a new watch. INTERNAL: the answers cannot be read.
 * Others: watch->error. */
typedef void muster_registry_watch_end_fn(struct muster_registry_watch *watch, enum muster_rc rc);

/** Caller's memory until stop or on_end. */
struct muster_registry_watch {
    void *data;
    uint64_t next_revision; /* everything below has been shown */
    struct muster_error error;
    /* private */
    muster_registry_changes_fn *on_changes;
    muster_registry_watch_end_fn *on_end;
    struct muster_registry *registry;
    void *impl;
};

/** Watch key (or prefix) from start_revision on (0: from now). Opens again after every loss of
 * connection, from next_revision. Nothing runs inside this call. Copies key. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_watch_start(
    struct muster_registry_watch *watch, struct muster_registry *registry, struct muster_bytes key,
    enum muster_registry_reach reach, uint64_t start_revision,
    muster_registry_changes_fn *on_changes, muster_registry_watch_end_fn *on_end);
/** Synchronous: no callback follows. Idempotent; a zeroed watch is accepted. May be called from its
 * callbacks. */
MUSTER_API void muster_registry_watch_stop(struct muster_registry_watch *watch);

/* A session: a lease that is kept alive, and what hangs on it: locks, candidates, places in queues.
 */

struct muster_session;

typedef void muster_session_opened_fn(struct muster_session *session, enum muster_rc rc);
typedef void muster_session_lost_fn(struct muster_session *session);
typedef void muster_session_closed_fn(struct muster_session *session);

#define MUSTER_SESSION_TTL_S 60 /* etcd's default */

/** Caller's memory until opened with an error, or closed. */
struct muster_session {
    void *data;
    int64_t lease;             /* id, from opened on; keys may be put with it */
    struct muster_error error; /* of an open that failed */
    /* private */
    muster_session_opened_fn *opened;
    muster_session_lost_fn *on_lost;
    muster_session_closed_fn *closed;
    struct muster_registry *registry;
    struct muster_registry_lease keeper;
    struct muster_registry_op op; /* the revocation */
    struct muster_task task;      /* the end */
    struct muster_list places;
    bool is_granted, is_lost, is_closing, is_revoked;
};

/**
 * Grant a lease and keep it alive. While the session lives, what was made with it lives.
 *
 * Units:   ttl_s seconds (0: 60) that others wait after the death of this process; deadline_ns of
 *          the grant.
 * Owns:    borrows session until closed; borrows registry, which must be closed later.
 * Errors:  returned FAILED_PRECONDITION (registry closing), RESOURCE_EXHAUSTED; by opened those of
 *          a registry operation.
 * Order:   opened once. After OK on_lost at most once, after the on_lost of all that hangs on it:
 *          the registry says that the lease is gone, or it could not be asked for a whole TTL.
 * Thread:  loop only.
 * Source:  etcd client/v3/concurrency, Session.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_session_open(
    struct muster_session *session, struct muster_registry *registry, uint64_t ttl_s,
    uint64_t deadline_ns, muster_session_opened_fn *opened, muster_session_lost_fn *on_lost);

/** End what hangs on it (who waits ends with CANCELLED, who holds is told nothing), revoke the
 * lease, so that others need not wait for its end, then closed. Also after on_lost; before opened,
 * closed comes in its stead. */
MUSTER_API void muster_session_close(struct muster_session *session,
                                     muster_session_closed_fn *closed);

/* A backup of a registry that lives on, read through its API. */

struct muster_registry_snapshot;

typedef void muster_registry_snapshot_bytes_fn(struct muster_registry_snapshot *snapshot,
                                               struct muster_bytes bytes);
typedef void muster_registry_snapshot_done_fn(struct muster_registry_snapshot *snapshot,
                                              enum muster_rc rc);

/** Caller's memory until done. */
struct muster_registry_snapshot {
    void *data;
    uint64_t bytes; /* shown so far */
    struct muster_error error;
    /* private */
    muster_registry_snapshot_bytes_fn *on_bytes;
    muster_registry_snapshot_done_fn *done;
    struct muster_registry *registry;
    struct muster_call call;
    struct muster_timer again;
    struct muster_task ended;
    struct muster_list node;
    size_t endpoint;
    uint64_t generation, deadline_ns, backoff_ns;
    enum muster_rc result;
    bool is_calling;
};

/**
 * Read a consistent copy while others write: on_bytes shows all of it in order, the last 32 bytes
 * being the SHA-256 of those before. Of `muster registry` it is what muster_registry_backup_restore
 * takes, of an etcd what `etcdctl snapshot restore` takes.
 *
 * Errors:  returned FAILED_PRECONDITION (closing); by done UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED,
 *          RESOURCE_EXHAUSTED (another is being taken), UNAUTHENTICATED, PERMISSION_DENIED,
 *          INTERNAL (no answer of this method).
 * Thread:  loop only.
 * Source:  etcdserverpb.Maintenance.Snapshot.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_snapshot_start(
    struct muster_registry_snapshot *snapshot, struct muster_registry *registry,
    uint64_t deadline_ns, muster_registry_snapshot_bytes_fn *on_bytes,
    muster_registry_snapshot_done_fn *done);
/** Idempotent; done still comes, with CANCELLED unless it had already won. */
MUSTER_API void muster_registry_snapshot_cancel(struct muster_registry_snapshot *snapshot);

/* Copies of a registry's data, and a registry made from one. */

/** Distance by which a restored registry's revision is ahead of the backup's: larger than the
 * number of revisions that can have been written since. */
#define MUSTER_REGISTRY_RESTORE_REVISIONS INT64_C(1000000000)

/**
 * Write a backup of the data file `data`, which nobody serves now (of a living registry:
 * muster_registry_snapshot_start). A backup is the data and their SHA-256. It is there whole or not
 * at all, whenever the power fails, and stays once this returns.
 *
 * Errors:  ALREADY_EXISTS (output is there), FAILED_PRECONDITION (somebody has data open), NOT_FOUND,
 *          PERMISSION_DENIED, DATA_LOSS (no registry file, or a damaged one), RESOURCE_EXHAUSTED.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_write(
    struct muster_mem *mem, const char *data, const char *output, struct muster_error *ret_error);

/**
 * Give the file `temporary`, written through fd, the name `path` instead: whole, and to stay when
 * the power fails. For a snapshot of a living registry that was read into a file. After an error
 * the caller deletes it.
 *
 * Shape:   both names in one folder.
 * Errors:  ALREADY_EXISTS (path is there), PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_publish(
    int fd, const char *temporary, const char *path, struct muster_error *ret_error);

struct muster_registry_restored {
    int64_t revision; /* of the registry that was made */
    int64_t keys;
    int64_t leases;
};

/**
 * Make the data file `data` from a backup: all of it, or nothing, as muster_registry_backup_write.
 *
 * The new registry is another cluster, and its revision is MUSTER_REGISTRY_RESTORE_REVISIONS higher,
 * everything older compacted: whoever watched the old one is told to read again instead of
 * believing that nothing has happened. Leases have their full time from the moment it is served.
 *
 * Errors:  ALREADY_EXISTS (data is there), NOT_FOUND, PERMISSION_DENIED, DATA_LOSS (torn, damaged,
 *          or something else), RESOURCE_EXHAUSTED; the text says what and what to do.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_registry_backup_restore(
    struct muster_mem *mem, const char *from, const char *data,
    struct muster_registry_restored *ret_restored, struct muster_error *ret_error);

MUSTER_END

#endif
