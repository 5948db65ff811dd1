/* The tables and statements of the registry's store. */
#ifndef MUSTER_CLUSTER_REGISTRY_STORE_SQL_H
#define MUSTER_CLUSTER_REGISTRY_STORE_SQL_H

/* meta: one row. keys: the newest change of each key, deletions until they are compacted. log:
 * every change; prev_seq chains the changes of one key, so that older revisions need no index that
 * each put would pay for. */
static const char registry_schema[] =
    "CREATE TABLE meta(id INTEGER PRIMARY KEY, cluster_id INTEGER NOT NULL, member_id INTEGER NOT "
    "NULL,"
    " term INTEGER NOT NULL, revision INTEGER NOT NULL, compact_revision INTEGER NOT NULL,"
    " compacted_seq INTEGER NOT NULL);"
    "INSERT INTO meta VALUES(1, 0, 0, 0, 1, 0, 0);"
    "CREATE TABLE keys(key BLOB PRIMARY KEY, seq INTEGER NOT NULL, create_revision INTEGER NOT "
    "NULL,"
    " mod_revision INTEGER NOT NULL, version INTEGER NOT NULL, lease INTEGER NOT NULL) WITHOUT "
    "ROWID;"
    "CREATE INDEX keys_of_lease ON keys(lease, key) WHERE lease != 0;"
    "CREATE TABLE log(seq INTEGER PRIMARY KEY, key BLOB NOT NULL, value BLOB NOT NULL,"
    " create_revision INTEGER NOT NULL, mod_revision INTEGER NOT NULL, version INTEGER NOT NULL,"
    " lease INTEGER NOT NULL, prev_seq INTEGER NOT NULL);"
    "CREATE TABLE leases(id INTEGER PRIMARY KEY, ttl_s INTEGER NOT NULL);";

#define STATEMENT_MAP(X)                                                                           \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                    \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(LOAD_META, "SELECT cluster_id, member_id, term, revision, compact_revision, compacted_seq"   \
                 " FROM meta WHERE id = 1")                                                        \
    X(SAVE_META, "UPDATE meta SET cluster_id = ?1, member_id = ?2, term = ?3, revision = ?4,"      \
                 " compact_revision = ?5, compacted_seq = ?6 WHERE id = 1")                        \
    X(FIND, "SELECT " KEY_COLUMNS " FROM keys WHERE key = ?1")                                     \
    X(INSERT_KEY, "INSERT INTO keys(key, seq, create_revision, mod_revision, version, lease)"      \
                  " VALUES(?1, ?2, ?3, ?4, ?5, ?6)")                                               \
    X(UPDATE_KEY, "UPDATE keys SET seq = ?2, create_revision = ?3, mod_revision = ?4,"             \
                  " version = ?5, lease = ?6 WHERE key = ?1")                                      \
    X(INSERT_LOG, "INSERT INTO log(key, seq, create_revision, mod_revision, version, lease,"       \
                  " prev_seq, value) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")                      \
    X(READ, "SELECT " LOG_COLUMNS " FROM log WHERE seq = ?1")                                      \
    X(SCAN_RANGE, "SELECT " KEY_COLUMNS " FROM keys WHERE key >= ?1 AND key < ?2 ORDER BY key")    \
    X(SCAN_FROM, "SELECT " KEY_COLUMNS " FROM keys WHERE key >= ?1 ORDER BY key")                  \
    X(SCAN_LEASE, "SELECT " KEY_COLUMNS " FROM keys WHERE lease = ?1 AND lease != 0 ORDER BY key") \
    X(SCAN_LOG, "SELECT " LOG_COLUMNS " FROM log WHERE seq >= ?1 ORDER BY seq")                    \
    X(PROBE_LOG, "SELECT seq, mod_revision FROM log WHERE seq >= ?1 ORDER BY seq LIMIT 1")         \
    X(COMPACT_REPLACED, "DELETE FROM log WHERE seq IN"                                             \
                        " (SELECT prev_seq FROM log WHERE seq > ?1 AND seq <= ?2)")                \
    X(COMPACT_KEYS, "DELETE FROM keys WHERE version = 0 AND key IN (SELECT key FROM log"           \
                    " WHERE seq > ?1 AND seq <= ?2 AND version = 0) AND seq <= ?2")                \
    X(COMPACT_DELETIONS, "DELETE FROM log WHERE seq > ?1 AND seq <= ?2 AND version = 0")           \
    X(PUT_LEASE, "INSERT INTO leases(id, ttl_s) VALUES(?1, ?2)")                                   \
    X(DELETE_LEASE, "DELETE FROM leases WHERE id = ?1")                                            \
    X(SCAN_LEASES, "SELECT id, ttl_s FROM leases ORDER BY id")                                     \
    X(PAGE_COUNT, "PRAGMA page_count")                                                             \
    X(FREE_COUNT, "PRAGMA freelist_count")

#define KEY_COLUMNS "key, seq, create_revision, mod_revision, version, lease"
#define LOG_COLUMNS KEY_COLUMNS ", prev_seq, value"

#endif
