/* The registry's meaning: revisions, ranges, writes, transactions, compaction. Knows no wire and no
 * SQL. */
#ifndef MUSTER_CLUSTER_REGISTRY_MVCC_H
#define MUSTER_CLUSTER_REGISTRY_MVCC_H

#include "cluster/store/arena.h"
#include "cluster/store/store.h"

/* etcd's limits, and one of our own: the operations of a whole transaction tree. */
#define MUSTER_MVCC_TXN_OPS_MAX       128
#define MUSTER_MVCC_TXN_TREE_MAX      4096
#define MUSTER_MVCC_REQUEST_BYTES_MAX ((size_t)1536 << 10)
#define MUSTER_MVCC_ANSWER_BYTES_MAX  ((size_t)64 << 20)

struct muster_mvcc_request;
struct muster_mvcc_result;

enum muster_mvcc_order { MUSTER_MVCC_UNSORTED, MUSTER_MVCC_ASCEND, MUSTER_MVCC_DESCEND };

/** Numbers as on the wire. */
enum muster_mvcc_target {
    MUSTER_MVCC_BY_KEY,
    MUSTER_MVCC_BY_VERSION,
    MUSTER_MVCC_BY_CREATE,
    MUSTER_MVCC_BY_MOD,
    MUSTER_MVCC_BY_VALUE,
};
enum muster_mvcc_compare_target {
    MUSTER_MVCC_COMPARE_VERSION,
    MUSTER_MVCC_COMPARE_CREATE,
    MUSTER_MVCC_COMPARE_MOD,
    MUSTER_MVCC_COMPARE_VALUE,
    MUSTER_MVCC_COMPARE_LEASE,
};
enum muster_mvcc_relation {
    MUSTER_MVCC_EQUAL,
    MUSTER_MVCC_GREATER,
    MUSTER_MVCC_LESS,
    MUSTER_MVCC_NOT_EQUAL,
};

struct muster_mvcc_range {
    struct muster_registry_span span;
    int64_t limit;    /* 0: none */
    int64_t revision; /* <= 0: now */
    int order;        /* as on the wire; checked here */
    int target;
    bool is_keys_only;
    bool is_count_only;
    int64_t min_mod_revision, max_mod_revision;
    int64_t min_create_revision, max_create_revision;
};

struct muster_mvcc_put {
    struct muster_bytes key;
    struct muster_bytes value;
    int64_t lease;
    bool wants_prev;
    bool ignores_value;
    bool ignores_lease;
};

struct muster_mvcc_delete {
    struct muster_registry_span span;
    bool wants_prev;
};

struct muster_mvcc_compare {
    struct muster_registry_span span;
    int target;
    int relation;
    int64_t number;
    struct muster_bytes value;
};

struct muster_mvcc_txn {
    const struct muster_mvcc_compare *compares;
    size_t compare_count;
    struct muster_mvcc_request *success;
    size_t success_count;
    struct muster_mvcc_request *failure;
    size_t failure_count;
    bool is_succeeded; /* the path taken, found before anything is written */
};

enum muster_mvcc_kind {
    MUSTER_MVCC_NOTHING, /* an empty operation of the wire */
    MUSTER_MVCC_RANGE,
    MUSTER_MVCC_PUT,
    MUSTER_MVCC_DELETE,
    MUSTER_MVCC_TXN,
};

struct muster_mvcc_request {
    enum muster_mvcc_kind kind;
    union {
        struct muster_mvcc_range range;
        struct muster_mvcc_put put;
        struct muster_mvcc_delete delete;
        struct muster_mvcc_txn txn;
    };
};

/** Bytes lie in the arena. */
struct muster_mvcc_result {
    enum muster_mvcc_kind kind;
    bool is_more;      /* range */
    bool is_succeeded; /* txn */
    int64_t count;     /* range: in the span; delete: deleted */
    struct muster_registry_record
        *records; /* range: found; put, delete: what was there, when asked for */
    size_t record_count;
    struct muster_mvcc_result *results; /* txn */
    size_t result_count;
};

typedef bool muster_mvcc_has_lease_fn(void *data, int64_t lease);

/** Caller's memory. */
struct muster_mvcc {
    struct muster_registry_store *store;
    struct muster_registry_meta meta; /* meta.revision moves with each applied write */
    muster_mvcc_has_lease_fn *has_lease;
    void *lease_data;
    bool is_full; /* the owner's: refuse puts */
    /* private */
    int64_t writing_revision; /* the one that the request being applied writes */
    int64_t clean_seq;        /* log rows up to here have been visited for this compaction */
    /* The request being applied has changed the store. */
    bool has_written;
    bool is_meta_stale; /* newer here than in the store */
};

/** Load the counters, dropping what an earlier owner had not committed. Borrows store. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_init(struct muster_mvcc *mvcc,
                                                  struct muster_registry_store *store,
                                                  muster_mvcc_has_lease_fn *has_lease,
                                                  void *lease_data);

/**
 * Apply one request inside the store's open transaction (opened here when it writes).
 *
 * Errors:  the codes and the exact words of etcd in ret_error; nothing was written then. An error
 * that is_broken tells apart came from the store: the whole open transaction must be rolled back.
 */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_apply(struct muster_mvcc *mvcc,
                                                   struct muster_mvcc_request *request,
                                                   struct muster_registry_arena *arena,
                                                   struct muster_mvcc_result *ret_result,
                                                   struct muster_error *ret_error,
                                                   bool *ret_is_broken);

/** Delete all keys of a lease in one revision; none is used when there are none. Errors: the
 * store's. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_delete_leased(struct muster_mvcc *mvcc, int64_t lease,
                                                           struct muster_registry_arena *arena,
                                                           int64_t *ret_deleted);

/** Let nothing below `revision` be read from now on; muster_mvcc_compact_step deletes the rows.
 * OUT_OF_RANGE. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_compact(struct muster_mvcc *mvcc, int64_t revision,
                                                     struct muster_error *ret_error);
/** Clean up to `rows` rows of the log. *ret_is_done: none are left to clean. Errors: the store's.
 */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_compact_step(struct muster_mvcc *mvcc, int64_t rows,
                                                          bool *ret_is_done);

/** Save the counters and commit. Errors: the store's; the owner rolls back. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_commit(struct muster_mvcc *mvcc);
/** Forget what is not committed and load the counters again. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_rollback(struct muster_mvcc *mvcc);

/** The key's change before `record`, with value, copied to the arena; NOT_FOUND: none, or compacted
 * away. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_previous(struct muster_mvcc *mvcc,
                                                      const struct muster_registry_record *record,
                                                      struct muster_registry_arena *arena,
                                                      struct muster_registry_record *ret_previous);

/** A hash that is made in steps. Caller's memory. */
struct muster_mvcc_hash {
    int64_t revision;         /* everything up to here is in it */
    int64_t compact_revision; /* as it is in it */
    uint32_t value;           /* once done */
    /* private */
    int64_t next_seq;                 /* rows of the log below this one are in it */
    int64_t compacted_seq, clean_seq; /* the compaction whose rows it has seen */
    size_t bytes_left;                /* of this step */
    bool is_done;
};
/** Prepare a hash of all keys, values and revisions up to `revision` (<= 0: now), as HashKV answers
 * it. What it covers must be committed, unless one step makes all of it. OUT_OF_RANGE. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_hash_init(struct muster_mvcc *mvcc, int64_t revision,
                                                       struct muster_mvcc_hash *ret_hash,
                                                       struct muster_error *ret_error);
/** Hash about `bytes` more; requests may be applied between two steps. A compaction that deletes
 * rows meanwhile makes it begin again. Errors: OUT_OF_RANGE (compacted meanwhile), the store's. */
MUSTER_MUST_CHECK enum muster_rc muster_mvcc_hash_step(struct muster_mvcc *mvcc,
                                                       struct muster_mvcc_hash *hash, size_t bytes,
                                                       bool *ret_is_done,
                                                       struct muster_error *ret_error);

/** key lies in span. */
bool muster_registry_span_has(const struct muster_registry_span *span, struct muster_bytes key);
/** No key can lie in it. */
bool muster_registry_span_is_empty(const struct muster_registry_span *span);
/** <0, 0, >0 in byte order. */
int muster_registry_bytes_compare(struct muster_bytes a, struct muster_bytes b);

#endif
