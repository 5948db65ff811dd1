/* The parts of the embedded registry's server: its struct, and what each file offers to those above
 * it, lowest first. */
#ifndef MUSTER_CLUSTER_REGISTRY_SERVER_INTERNAL_H
#define MUSTER_CLUSTER_REGISTRY_SERVER_INTERNAL_H

#include <muster/metrics.h>
#include <muster/registry_server.h>

#include "cluster/registry/lease.h"
#include "cluster/store/mvcc.h"
#include "cluster/registry/watch.h"

/* Room for a scheme, the longest name of a host (253 letters, RFC 1035) and a port. */
#define MUSTER_REGISTRY_URL_BYTES 280
#define MUSTER_REGISTRY_STOPPED   "etcdserver: server stopped"
/* Clients choose their ways by this number: 3.4 has all that is served here and nothing that is
 * not. */
#define MUSTER_REGISTRY_ETCD_VERSION         "3.4.23"
#define MUSTER_REGISTRY_ETCD_CLUSTER_VERSION "3.4.0"
#define MUSTER_REGISTRY_PAGE_COUNT           3

struct Etcdserverpb__ResponseHeader;
struct muster_registry_pending;

enum muster_registry_gauge {
    MUSTER_REGISTRY_FILE_BYTES,
    MUSTER_REGISTRY_USED_BYTES,
    MUSTER_REGISTRY_JOURNAL_BYTES,
    MUSTER_REGISTRY_QUOTA_BYTES,
    MUSTER_REGISTRY_KEYS,
    MUSTER_REGISTRY_LEASES,
    MUSTER_REGISTRY_WATCHES,
    MUSTER_REGISTRY_REVISION,
    MUSTER_REGISTRY_IS_FAILING,
    MUSTER_REGISTRY_IS_OVER_QUOTA,
    MUSTER_REGISTRY_GAUGE_COUNT
};

/** The state of cluster/registry/server_status.c; its probe runs in commit.c. */
struct muster_registry_server_health {
    bool is_failing;   /* the last write that counts did not reach the store */
    enum muster_rc rc; /* the last failure's, as are the next two */
    uint64_t failed_ns;
    char text[240];
    uint64_t failed_count; /* since writes began to fail */
    struct muster_timer probe;
    struct muster_metric failures_total;
    struct muster_metric gauges[MUSTER_REGISTRY_GAUGE_COUNT];
    struct muster_metrics_collector collector;
};

/* The interval of the registry's own writes while writes fail; the first ones after a failure also
 * wait for QUIET_NS. */
#define MUSTER_REGISTRY_PROBE_INTERVAL_NS MUSTER_NS_PER_S

struct muster_registry_server {
    void *data;
    struct muster_env *env;
    struct muster_registry_store *store;
    /* The parts below share the store's one open transaction, so commit.c commits and undoes them
     * together. */
    struct muster_mvcc mvcc;
    struct muster_leases leases;
    struct muster_watch_hub hub;
    struct muster_registry_arena arena;      /* for the request in hand */
    struct muster_registry_arena send_arena; /* for the stream message in hand */
    struct muster_rpc_server *rpc_server;
    bool owns_rpc_server;
    bool is_closing;
    bool has_snapshot; /* one is being taken */
    struct muster_address address;
    char client_url[MUSTER_REGISTRY_URL_BYTES];
    char name[64];
    struct muster_registry_server_options options;
    struct muster_list pending;    /* answers that wait for the group commit */
    struct muster_list compacting; /* answers that wait for the physical compaction */
    struct muster_list streams;    /* open calls that the server ends when it stops */
    struct muster_list hashes;     /* calls of hash_service.c; the first one is worked on */
    struct muster_task commit;
    struct muster_task compact;
    struct muster_task hash; /* the next step of the first of hashes */
    struct muster_task close;
    struct muster_timer idle; /* to the next checkpoint */
    muster_registry_server_close_fn *closed;
    struct muster_metric commits_total;
    struct muster_metric answers_total;
    struct muster_registry_server_health status;
    struct muster_rpc_page pages[MUSTER_REGISTRY_PAGE_COUNT];
};

/** A call that the server ends when it stops. The first field of its owner. */
struct muster_registry_stream {
    struct muster_registry_server *server;
    struct muster_rpc *rpc;
    struct muster_list node;
};

/* answer_proto.c: answers leave after the group commit that holds what they show. */

void muster_registry_fill_header(const struct muster_registry_server *server,
                                 struct Etcdserverpb__ResponseHeader *ret_header);
/** message: a generated struct, borrowed for the call. */
void muster_registry_send_answer(struct muster_registry_server *server, struct muster_rpc *rpc,
                                 const void *message);
/** As muster_registry_send_answer, but sent once the physical compaction under way is done. */
void muster_registry_send_answer_compacted(struct muster_registry_server *server,
                                           struct muster_rpc *rpc, const void *message);
void muster_registry_refuse(struct muster_registry_server *server, struct muster_rpc *rpc,
                            enum muster_rc rc, const char *text);
/** Send one message of a stream, at once. */
void muster_registry_stream_send(struct muster_registry_server *server, struct muster_rpc *rpc,
                                 const void *message);
/** Unpack a request; false: the call has been refused. Gives *ret_message (muster_proto_free). */
bool muster_registry_unpack(struct muster_registry_server *server, struct muster_rpc *rpc,
                            const void *descriptor, struct muster_bytes bytes, void *ret_message);
/** Answer all calls that wait: with their own answers when rc is OK, else with rc and text. */
void muster_registry_flush(struct muster_registry_server *server, enum muster_rc rc,
                           const char *text);
/** on_end of every unary method. */
void muster_registry_unary_end(struct muster_rpc *rpc, enum muster_rc rc);

/* server_status.c */

void muster_registry_status_init(struct muster_registry_server *server);
void muster_registry_status_fini(struct muster_registry_server *server);
/** The store has refused a write. Logged once until writes reach it again. */
void muster_registry_status_failed(struct muster_registry_server *server, enum muster_rc rc);
/** Writes reach the store again. */
void muster_registry_status_mended(struct muster_registry_server *server);
/** After a commit: whether the quota is passed. */
void muster_registry_status_measured(struct muster_registry_server *server,
                                     const struct muster_registry_store_size *size);

/* commit.c */

/** Something was written: commit at the end of the turn. */
void muster_registry_server_touch(struct muster_registry_server *server);
/** Commit and answer now. */
void muster_registry_server_commit(struct muster_registry_server *server);
/** Commit what there is to commit: what is read now has been committed. */
void muster_registry_server_settle(struct muster_registry_server *server);
/** The store failed: everything that was not committed is undone, and every call that waits is
 * told. */
void muster_registry_server_break(struct muster_registry_server *server, enum muster_rc rc);
/** Delete a lease and its keys. NOT_FOUND; other errors have broken the server's open commit
 * already. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_server_revoke(
    struct muster_registry_server *server, int64_t lease);
/** Clean the log in the background. */
void muster_registry_server_clean(struct muster_registry_server *server);
/** Note the size of the store after a commit, and checkpoint when it is time. */
void muster_registry_server_measure(struct muster_registry_server *server);
void muster_registry_commit_init(struct muster_registry_server *server);

/** server_page.c: on a server of its own. */
void muster_registry_pages_add(struct muster_registry_server *server);

/* The services: each adds its methods. */

MUSTER_MUST_CHECK enum muster_rc muster_registry_kv_add(struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_lease_add(struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_watch_add(struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_snapshot_add(
    struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_cluster_add(struct muster_registry_server *server);
/** Prepares the list of hashes; muster_registry_hash_add needs it. */
void muster_registry_hash_init(struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_hash_add(struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_lock_add(struct muster_registry_server *server);
MUSTER_MUST_CHECK enum muster_rc muster_registry_election_add(
    struct muster_registry_server *server);

#endif
