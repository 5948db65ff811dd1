/* The registry's data: the newest state of each key, the log of all changes, leases, counters. */
#ifndef MUSTER_CLUSTER_REGISTRY_STORE_H
#define MUSTER_CLUSTER_REGISTRY_STORE_H

#include <muster/registry_server.h>

/** One change of one key: a row of the log. */
struct muster_registry_record {
    struct muster_bytes key;
    struct muster_bytes value;
    int64_t create_revision; /* a deletion: 0 */
    int64_t mod_revision;
    int64_t version; /* a deletion: 0 */
    int64_t lease;
    int64_t seq;      /* place in the log, rising with mod_revision */
    int64_t prev_seq; /* the key's change before this one (it may be compacted away); 0: none */
};

/** The single row of counters. */
struct muster_registry_meta {
    uint64_t cluster_id; /* 0: the store is new */
    uint64_t member_id;
    uint64_t term; /* one more at each open of a server */
    int64_t revision;
    int64_t compact_revision;
    int64_t compacted_seq; /* log rows up to here have been cleaned */
};

/* Keys from `key` up to, not including, `end`. */
struct muster_registry_span {
    struct muster_bytes key;
    struct muster_bytes end; /* empty: key alone; "\0": no upper bound (etcd's convention) */
};

/** OK: go on; anything else ends the scan with that code. The record is borrowed for the call. A
 * visitor may read single records, but neither scan nor write. */
typedef enum muster_rc muster_registry_visit_fn(void *data,
                                                const struct muster_registry_record *record);
typedef enum muster_rc muster_registry_visit_lease_fn(void *data, int64_t id, int64_t ttl_s);

struct sqlite3;
/** The database, for backups. Borrowed. */
struct sqlite3 *muster_registry_store_database(struct muster_registry_store *store);
/** The errno of the journal's or the file's last failed call; 0: none has failed. */
int muster_registry_store_errno(struct sqlite3 *db);

/* Errors of all: UNAVAILABLE (I/O), RESOURCE_EXHAUSTED (disk full, no memory), DATA_LOSS (damaged).
 * After an error of a write the owner rolls back. Loop only. */

/** Drop what is not committed: the process that wrote it has died. */
void muster_registry_store_rollback(struct muster_registry_store *store);
/** Open a transaction unless one is open. Reads see its writes. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_begin(struct muster_registry_store *store);
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_commit(struct muster_registry_store *store);
/** A transaction is open: an answer that was made meanwhile may show what is not committed. */
bool muster_registry_store_is_writing(const struct muster_registry_store *store);
/** The last change that is committed, for a reader while a transaction is open. */
int64_t muster_registry_store_committed_seq(const struct muster_registry_store *store);
/** The last error and its file, in words. Borrowed until the next call. */
const char *muster_registry_store_error(struct muster_registry_store *store);

/** DATA_LOSS: there are none, or some that no registry writes. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_load_meta(
    struct muster_registry_store *store, struct muster_registry_meta *ret_meta);
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_save_meta(
    struct muster_registry_store *store, const struct muster_registry_meta *meta);

/** The key's newest change, deletions too, without value; key bytes are the caller's. NOT_FOUND. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_find(
    struct muster_registry_store *store, struct muster_bytes key,
    struct muster_registry_record *ret_record);
/** One row of the log, with value. Borrowed until the next read. NOT_FOUND: compacted away. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_read(
    struct muster_registry_store *store, int64_t seq, struct muster_registry_record *ret_record);
/** Add a change to the log and make it the key's newest; sets record->seq. prev_seq must be what
 * find gave. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_append(
    struct muster_registry_store *store, struct muster_registry_record *record);

/** The newest change of each key in span, ascending, deletions too, without values. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_scan_keys(
    struct muster_registry_store *store, const struct muster_registry_span *span,
    muster_registry_visit_fn *visit, void *data);
/** The keys attached to a lease, ascending, without values. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_scan_lease(
    struct muster_registry_store *store, int64_t lease, muster_registry_visit_fn *visit,
    void *data);
/** The log from seq on, with values. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_scan_log(struct muster_registry_store *store,
                                                                int64_t seq,
                                                                muster_registry_visit_fn *visit,
                                                                void *data);
/** The first seq whose mod_revision is at least `revision` (one past the end when there is none).
 */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_seek(struct muster_registry_store *store,
                                                            int64_t revision, int64_t *ret_seq);

/** Clean after the log rows in (after_seq, upto_seq], all at or below the compact revision: what
 * they replaced goes; of deletions, those up to deletions_seq go themselves. */
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_compact(struct muster_registry_store *store,
                                                               int64_t after_seq, int64_t upto_seq,
                                                               int64_t deletions_seq);

MUSTER_MUST_CHECK enum muster_rc muster_registry_store_put_lease(
    struct muster_registry_store *store, int64_t id, int64_t ttl_s);
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_delete_lease(
    struct muster_registry_store *store, int64_t id);
MUSTER_MUST_CHECK enum muster_rc muster_registry_store_scan_leases(
    struct muster_registry_store *store, muster_registry_visit_lease_fn *visit, void *data);

struct muster_registry_store_size {
    uint64_t file_bytes;
    uint64_t used_bytes;
    uint64_t quota_bytes;
    uint64_t journal_bytes; /* written since the last checkpoint */
    uint64_t key_count;     /* keys that exist */
};
void muster_registry_store_measure(struct muster_registry_store *store,
                                   struct muster_registry_store_size *ret_size);
/** The disk has half a mebibyte left for writes, as far as its file system can say. */
bool muster_registry_store_has_room(const struct muster_registry_store *store);
/** Move the journal into the file; takes milliseconds, so it is for idle moments. No transaction
 * may be open. */
void muster_registry_store_checkpoint(struct muster_registry_store *store);
/** Checkpoint, and cut the journal's file, for a disk that is full. */
void muster_registry_store_give_back(struct muster_registry_store *store);

#endif
