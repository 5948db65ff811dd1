/* The registry's store on SQLite: rows in and out, transactions, sizes. The meaning of the rows is
 * in mvcc*.c above it. SQLite's codes are translated here and in backup_sqlite.c and nowhere else.
 * Loop only: the connection is opened without a mutex. */
#include "cluster/store/store.h"
#include "cluster/store/store_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <sqlite3.h>

#define APPLICATION_ID 0x6d737472 /* "mstr" */
#define SCHEMA_VERSION 1
/* The default quota of etcd (--quota-backend-bytes). */
#define QUOTA_BYTES_DEFAULT (UINT64_C(2) << 30)
#define ERROR_BYTES         240
/* Revisions and places in the log rise by one, so half of the range is never reached; a file that has
 * more is damaged, and sums with its numbers could overflow. */
#define COUNTER_MAX (INT64_MAX / 2)
/* The free space that shows that a disk is no longer full; a smaller one would end after a few
 * writes. */
#define ROOM_BYTES (UINT64_C(512) << 10)

enum statement {
#define X(name, sql) STATEMENT_##name,
    STATEMENT_MAP(X)
#undef X
        STATEMENT_COUNT
};

static const char *const statement_sql[STATEMENT_COUNT] = {
#define X(name, sql) [STATEMENT_##name] = (sql),
    STATEMENT_MAP(X)
#undef X
};

struct muster_registry_store {
    struct muster_mem *mem;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    /* Each pair is the value with the open transaction and without it, so that a rollback needs no
     * query. */
    int64_t last_seq, committed_seq;
    int64_t key_count, committed_key_count; /* keys that exist */
    uint64_t page_bytes;
    uint64_t quota_bytes;
    /* The length of the journal at the last commit; 0 after a checkpoint. */
    uint64_t journal_pages;
    /* A transaction is open. Only begin, commit and rollback change it. */
    bool is_writing;
    bool is_meta_damaged; /* as found by the last load_meta */
    char error_text[ERROR_BYTES];
};

/* Codes. */

static enum muster_rc rc_from_sqlite(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW:
        return MUSTER_OK;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
        return MUSTER_RESOURCE_EXHAUSTED;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return MUSTER_FAILED_PRECONDITION;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return MUSTER_DATA_LOSS;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
        return MUSTER_PERMISSION_DENIED;
    case SQLITE_CONSTRAINT:
        return MUSTER_ALREADY_EXISTS;
    default:
        return MUSTER_UNAVAILABLE;
    }
}

/* The folder of path; true also where it has no room for a name. */
static bool folder_allows(const char *path, int mode)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];

    if (slash == NULL)
        return access(".", mode) == 0;
    return snprintf(folder, sizeof(folder), "%.*s/", (int)(slash - path), path) >=
               (int)sizeof(folder) ||
           access(folder, mode) == 0;
}

static enum muster_rc open_error(struct muster_registry_store *store, const char *path, int code,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = rc_from_sqlite(code);
    int sys = store->db != NULL ? sqlite3_system_errno(store->db) : 0;

    /* SQLite looks for the file once more when it could not make it, and finds none. */
    if (sys == ENOENT && !folder_allows(path, F_OK))
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "cannot open registry file %.150s: its folder does not exist",
                                path);
    if (sys == ENOENT && !folder_allows(path, W_OK))
        return muster_error_set(ret_error, MUSTER_PERMISSION_DENIED,
                                "cannot make registry file %.150s: its folder cannot be written to",
                                path);
    if (sys != 0) /* the file could not be opened, or read or written */
        return muster_error_set_sys(ret_error, muster_rc_from_errno(sys), sys,
                                    "cannot open registry file %s", path);
    if (rc == MUSTER_FAILED_PRECONDITION)
        return muster_error_set(
            ret_error, rc, "registry file %s is in use by another process; stop it first", path);
    if (rc == MUSTER_DATA_LOSS)
        return muster_error_set(ret_error, rc,
                                "%.120s is not a data file of 'muster registry' (SQLite), or is "
                                "damaged: name another file, or restore a backup ('muster registry "
                                "restore')",
                                path);
    return muster_error_set(ret_error, rc, "cannot open registry file %s: %s", path,
                            store->db != NULL ? sqlite3_errmsg(store->db) : "out of memory");
}

/* Statements. */

static sqlite3_stmt *statement_of(struct muster_registry_store *store, enum statement which)
{
    return store->statements[which];
}

static enum muster_rc finish_statement(sqlite3_stmt *stmt, int code)
{
    sqlite3_reset(stmt);
    return rc_from_sqlite(code);
}

/* Run a statement that gives no rows. */
static enum muster_rc run_statement(struct muster_registry_store *store, enum statement which)
{
    sqlite3_stmt *stmt = statement_of(store, which);

    return finish_statement(stmt, sqlite3_step(stmt));
}

/* An empty blob must not become NULL. */
static void bind_bytes(sqlite3_stmt *stmt, int index, struct muster_bytes bytes)
{
    sqlite3_bind_blob64(stmt, index, bytes.size > 0 ? bytes.data : "", bytes.size, SQLITE_STATIC);
}

static struct muster_bytes column_bytes(sqlite3_stmt *stmt, int index)
{
    struct muster_bytes bytes = {.data = sqlite3_column_blob(stmt, index)};

    bytes.size = (size_t)sqlite3_column_bytes(stmt, index);
    if (bytes.data == NULL)
        bytes.data = "";
    return bytes;
}

/* A row of KEY_COLUMNS, or of LOG_COLUMNS. */
static struct muster_registry_record row_record(sqlite3_stmt *stmt, bool is_log)
{
    struct muster_registry_record record = {
        .key = column_bytes(stmt, 0),
        .seq = sqlite3_column_int64(stmt, 1),
        .create_revision = sqlite3_column_int64(stmt, 2),
        .mod_revision = sqlite3_column_int64(stmt, 3),
        .version = sqlite3_column_int64(stmt, 4),
        .lease = sqlite3_column_int64(stmt, 5),
        .value = {.data = "", .size = 0},
    };

    if (is_log) {
        record.prev_seq = sqlite3_column_int64(stmt, 6);
        record.value = column_bytes(stmt, 7);
    }
    return record;
}

static void bind_record(sqlite3_stmt *stmt, const struct muster_registry_record *record)
{
    bind_bytes(stmt, 1, record->key);
    sqlite3_bind_int64(stmt, 2, record->seq);
    sqlite3_bind_int64(stmt, 3, record->create_revision);
    sqlite3_bind_int64(stmt, 4, record->mod_revision);
    sqlite3_bind_int64(stmt, 5, record->version);
    sqlite3_bind_int64(stmt, 6, record->lease);
}

static enum muster_rc visit_rows(sqlite3_stmt *stmt, bool is_log, muster_registry_visit_fn *visit,
                                 void *data)
{
    int code = SQLITE_OK;

    while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
        struct muster_registry_record record = row_record(stmt, is_log);
        enum muster_rc rc = visit(data, &record);

        if (rc != MUSTER_OK) {
            sqlite3_reset(stmt);
            return rc;
        }
    }
    return finish_statement(stmt, code);
}

/* Open and close. */

static int on_journal(void *data, sqlite3 *db, const char *name, int pages)
{
    struct muster_registry_store *store = data;

    (void)db;
    (void)name;
    store->journal_pages = (uint64_t)pages;
    return SQLITE_OK;
}

static int query_int(sqlite3 *db, const char *sql, int64_t *ret_value)
{
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    if (code == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}

/* A file that is something else is refused before anything is written to it. */
static int check_contents(sqlite3 *db, bool *ret_is_new)
{
    int64_t application = 0;
    int64_t version = 0;
    int64_t objects = 0;
    int code = query_int(db, "PRAGMA application_id", &application);

    if (code == SQLITE_OK)
        code = query_int(db, "PRAGMA user_version", &version);
    if (code == SQLITE_OK)
        code = query_int(db, "SELECT count(*) FROM sqlite_master", &objects);
    if (code != SQLITE_OK)
        return code;
    *ret_is_new = application == 0 && objects == 0;
    if (*ret_is_new || (application == APPLICATION_ID && version == SCHEMA_VERSION))
        return SQLITE_OK;
    return SQLITE_NOTADB;
}

static int execute_sql(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int make_tables(sqlite3 *db)
{
    int code = execute_sql(db, "BEGIN IMMEDIATE");

    if (code == SQLITE_OK)
        code = execute_sql(db, registry_schema);
    if (code == SQLITE_OK)
        code =
            execute_sql(db, "PRAGMA application_id = 1836282994; PRAGMA user_version = 1; COMMIT");
    return code;
}

/* The exclusive lock is taken here and held until close. Small pages: a put touches a few, and each
 * goes to the journal whole. */
static int set_up(struct muster_registry_store *store, bool is_durable)
{
    static const char settings[] = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = 1024;"
                                   "PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;"
                                   "BEGIN IMMEDIATE";
    bool is_new = false;
    int code = execute_sql(store->db, settings);

    if (code == SQLITE_OK)
        code = check_contents(store->db, &is_new);
    if (code == SQLITE_OK)
        code = execute_sql(store->db, "COMMIT; PRAGMA journal_mode = WAL");
    if (code == SQLITE_OK)
        /* FULL syncs the journal at every commit. NORMAL syncs only at checkpoints: a loss of power
         * may lose the last commits, but never tears the file
         * (https://www.sqlite.org/pragma.html#pragma_synchronous). */
        code = execute_sql(store->db, is_durable ? "PRAGMA synchronous = FULL"
                                                 : "PRAGMA synchronous = NORMAL");
    if (code == SQLITE_OK && is_new)
        code = make_tables(store->db);
    for (int i = 0; code == SQLITE_OK && i < STATEMENT_COUNT; i++)
        code = sqlite3_prepare_v3(store->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                  &store->statements[i], NULL);
    return code;
}

/* Values may be secrets: a new file is its owner's alone. SQLite gives the journal the same mode,
 * and says why a file cannot be made. */
static void make_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);

    if (fd >= 0)
        close(fd);
}

/* Reads the last place in the log, the number of keys and the page size. */
static int load_counts(struct muster_registry_store *store)
{
    int64_t page_bytes = 0;
    int code = query_int(store->db, "SELECT max(seq) FROM log", &store->last_seq);

    if (code == SQLITE_OK)
        code =
            query_int(store->db, "SELECT count(*) FROM keys WHERE version != 0", &store->key_count);
    if (code == SQLITE_OK)
        code = query_int(store->db, "PRAGMA page_size", &page_bytes);
    if (code == SQLITE_OK && (store->last_seq < 0 || store->last_seq > COUNTER_MAX))
        code = SQLITE_CORRUPT;
    store->committed_seq = store->last_seq;
    store->committed_key_count = store->key_count;
    store->page_bytes = (uint64_t)page_bytes;
    return code;
}

enum muster_rc muster_registry_store_open(struct muster_mem *mem,
                                          const struct muster_registry_store_options *options,
                                          struct muster_registry_store **ret_store,
                                          struct muster_error *ret_error)
{
    static const struct muster_registry_store_options none = {0};

    if (options == NULL)
        options = &none;
    const char *path = options->path != NULL ? options->path : ":memory:";
    struct muster_registry_store *store = muster_mem_alloc_zero(mem, 1, sizeof(*store));
    enum muster_rc rc = MUSTER_OK;
    int code = SQLITE_OK;

    if (store == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a registry");
    if (options->path != NULL)
        make_private(path);
    store->mem = mem;
    store->quota_bytes = options->quota_bytes != 0 ? options->quota_bytes : QUOTA_BYTES_DEFAULT;
    code = sqlite3_open_v2(path, &store->db,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK)
        code = set_up(store, options->is_durable);
    if (code == SQLITE_OK)
        code = load_counts(store);
    if (code == SQLITE_OK) {
        /* Takes the place of SQLite's own automatic checkpoint, which would run amid puts. */
        sqlite3_wal_hook(store->db, on_journal, store);
        *ret_store = store;
        return MUSTER_OK;
    }
    rc = open_error(store, path, code, ret_error);
    muster_registry_store_close(store);
    return rc;
}

void muster_registry_store_close(struct muster_registry_store *store)
{
    if (store == NULL)
        return;
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    muster_mem_free(store->mem, store);
}

struct sqlite3 *muster_registry_store_database(struct muster_registry_store *store)
{
    return store->db;
}

int muster_registry_store_errno(struct sqlite3 *db)
{
    sqlite3_file *journal = NULL;
    int sys = 0;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, (void *)&journal) ==
            SQLITE_OK &&
        journal != NULL && journal->pMethods != NULL && journal->pMethods->xFileControl != NULL)
        (void)journal->pMethods->xFileControl(journal, SQLITE_FCNTL_LAST_ERRNO, &sys);
    if (sys == 0)
        (void)sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &sys);
    return sys;
}

/* SQLite's words for a full disk leave the reader to guess between a quota and the disk. */
const char *muster_registry_store_error(struct muster_registry_store *store)
{
    const char *path = sqlite3_db_filename(store->db, "main");
    int code = sqlite3_errcode(store->db) & 0xff;
    int sys = code == SQLITE_FULL ? ENOSPC : muster_registry_store_errno(store->db);

    if (path == NULL || path[0] == '\0')
        path = "memory";
    if (store->is_meta_damaged)
        (void)snprintf(store->error_text, sizeof(store->error_text),
                       "%.100s: the counters of the registry are missing or damaged; restore a "
                       "backup ('muster registry restore')",
                       path);
    else if (code == SQLITE_FULL || (code == SQLITE_IOERR && sys != 0))
        (void)snprintf(store->error_text, sizeof(store->error_text), "cannot write %.150s: %s",
                       path, strerror(sys));
    else
        (void)snprintf(store->error_text, sizeof(store->error_text), "%.100s: %s", path,
                       sqlite3_errmsg(store->db));
    return store->error_text;
}

/* Transactions. */

enum muster_rc muster_registry_store_begin(struct muster_registry_store *store)
{
    enum muster_rc rc = MUSTER_OK;

    if (store->is_writing)
        return MUSTER_OK;
    store->is_meta_damaged = false;
    rc = run_statement(store, STATEMENT_BEGIN);
    store->is_writing = rc == MUSTER_OK;
    return rc;
}

enum muster_rc muster_registry_store_commit(struct muster_registry_store *store)
{
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(store->is_writing);
    sqlite3_reset(statement_of(store, STATEMENT_READ));
    rc = run_statement(store, STATEMENT_COMMIT);
    if (rc != MUSTER_OK)
        return rc;
    store->is_writing = false;
    store->committed_seq = store->last_seq;
    store->committed_key_count = store->key_count;
    return MUSTER_OK;
}

int64_t muster_registry_store_committed_seq(const struct muster_registry_store *store)
{
    return store->committed_seq;
}

void muster_registry_store_rollback(struct muster_registry_store *store)
{
    for (int i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_reset(store->statements[i]);
    /* Some errors have rolled back already; then there is nothing left to do. */
    if (sqlite3_get_autocommit(store->db) == 0)
        (void)run_statement(store, STATEMENT_ROLLBACK);
    store->is_writing = false;
    store->key_count = store->committed_key_count;
    store->last_seq = store->committed_seq;
}

bool muster_registry_store_is_writing(const struct muster_registry_store *store)
{
    return store->is_writing;
}

static bool is_sound_meta(const struct muster_registry_meta *meta)
{
    return meta->revision >= 0 && meta->revision <= COUNTER_MAX && meta->compact_revision >= 0 &&
           meta->compact_revision <= meta->revision && meta->compacted_seq >= 0;
}

enum muster_rc muster_registry_store_load_meta(struct muster_registry_store *store,
                                               struct muster_registry_meta *ret_meta)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_LOAD_META);
    struct muster_registry_meta meta = {.cluster_id = 0};
    int code = sqlite3_step(stmt);
    enum muster_rc rc = MUSTER_OK;

    if (code == SQLITE_ROW)
        meta = (struct muster_registry_meta){
            .cluster_id = (uint64_t)sqlite3_column_int64(stmt, 0),
            .member_id = (uint64_t)sqlite3_column_int64(stmt, 1),
            .term = (uint64_t)sqlite3_column_int64(stmt, 2),
            .revision = sqlite3_column_int64(stmt, 3),
            .compact_revision = sqlite3_column_int64(stmt, 4),
            .compacted_seq = sqlite3_column_int64(stmt, 5),
        };
    rc = finish_statement(stmt, code);
    store->is_meta_damaged = code == SQLITE_DONE || (code == SQLITE_ROW && !is_sound_meta(&meta));
    if (store->is_meta_damaged)
        return MUSTER_DATA_LOSS;
    if (rc == MUSTER_OK)
        *ret_meta = meta;
    return rc;
}

enum muster_rc muster_registry_store_save_meta(struct muster_registry_store *store,
                                               const struct muster_registry_meta *meta)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_SAVE_META);

    MUSTER_ASSERT(store->is_writing);
    sqlite3_bind_int64(stmt, 1, (int64_t)meta->cluster_id);
    sqlite3_bind_int64(stmt, 2, (int64_t)meta->member_id);
    sqlite3_bind_int64(stmt, 3, (int64_t)meta->term);
    sqlite3_bind_int64(stmt, 4, meta->revision);
    sqlite3_bind_int64(stmt, 5, meta->compact_revision);
    sqlite3_bind_int64(stmt, 6, meta->compacted_seq);
    return run_statement(store, STATEMENT_SAVE_META);
}

/* Single records. */

enum muster_rc muster_registry_store_find(struct muster_registry_store *store,
                                          struct muster_bytes key,
                                          struct muster_registry_record *ret_record)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_FIND);
    int code = SQLITE_OK;

    bind_bytes(stmt, 1, key);
    code = sqlite3_step(stmt);
    if (code == SQLITE_ROW) {
        *ret_record = row_record(stmt, false);
        ret_record->key = key;
    }
    sqlite3_reset(stmt);
    return code == SQLITE_DONE ? MUSTER_NOT_FOUND : rc_from_sqlite(code);
}

enum muster_rc muster_registry_store_read(struct muster_registry_store *store, int64_t seq,
                                          struct muster_registry_record *ret_record)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_READ);
    int code = SQLITE_OK;

    /* The row's bytes live until the statement is reset: at the next read, or at the end of the
     * transaction. */
    sqlite3_reset(stmt);
    sqlite3_bind_int64(stmt, 1, seq);
    code = sqlite3_step(stmt);
    if (code == SQLITE_ROW) {
        *ret_record = row_record(stmt, true);
        return MUSTER_OK;
    }
    sqlite3_reset(stmt);
    return code == SQLITE_DONE ? MUSTER_NOT_FOUND : rc_from_sqlite(code);
}

enum muster_rc muster_registry_store_append(struct muster_registry_store *store,
                                            struct muster_registry_record *record)
{
    sqlite3_stmt *log = statement_of(store, STATEMENT_INSERT_LOG);
    sqlite3_stmt *key = NULL;
    enum muster_rc rc = MUSTER_OK;

    MUSTER_ASSERT(store->is_writing);
    record->seq = store->last_seq + 1;
    bind_record(log, record);
    sqlite3_bind_int64(log, 7, record->prev_seq);
    bind_bytes(log, 8, record->value);
    rc = run_statement(store, STATEMENT_INSERT_LOG);
    if (rc != MUSTER_OK)
        return rc;
    store->last_seq = record->seq;
    /* A key with a previous change still has its row, a tombstone included, because compaction
     * removes the row together with the last change. */
    key = statement_of(store, record->prev_seq == 0 ? STATEMENT_INSERT_KEY : STATEMENT_UPDATE_KEY);
    bind_record(key, record);
    store->key_count += (record->version == 1) - (record->version == 0);
    return run_statement(store,
                         record->prev_seq == 0 ? STATEMENT_INSERT_KEY : STATEMENT_UPDATE_KEY);
}

/* Scans. */

static enum muster_rc scan_one(struct muster_registry_store *store, struct muster_bytes key,
                               muster_registry_visit_fn *visit, void *data)
{
    struct muster_registry_record record;
    enum muster_rc rc = muster_registry_store_find(store, key, &record);

    if (rc == MUSTER_NOT_FOUND)
        return MUSTER_OK;
    return rc == MUSTER_OK ? visit(data, &record) : rc;
}

enum muster_rc muster_registry_store_scan_keys(struct muster_registry_store *store,
                                               const struct muster_registry_span *span,
                                               muster_registry_visit_fn *visit, void *data)
{
    bool is_open = span->end.size == 1 && *(const uint8_t *)span->end.data == 0;
    sqlite3_stmt *stmt = statement_of(store, is_open ? STATEMENT_SCAN_FROM : STATEMENT_SCAN_RANGE);

    if (span->end.size == 0)
        return scan_one(store, span->key, visit, data);
    bind_bytes(stmt, 1, span->key);
    if (!is_open)
        bind_bytes(stmt, 2, span->end);
    return visit_rows(stmt, false, visit, data);
}

enum muster_rc muster_registry_store_scan_lease(struct muster_registry_store *store, int64_t lease,
                                                muster_registry_visit_fn *visit, void *data)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_SCAN_LEASE);

    sqlite3_bind_int64(stmt, 1, lease);
    return visit_rows(stmt, false, visit, data);
}

enum muster_rc muster_registry_store_scan_log(struct muster_registry_store *store, int64_t seq,
                                              muster_registry_visit_fn *visit, void *data)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_SCAN_LOG);

    sqlite3_bind_int64(stmt, 1, seq);
    return visit_rows(stmt, true, visit, data);
}

/* The first row at or after seq; *ret_found false past the end. */
static enum muster_rc probe_log(struct muster_registry_store *store, int64_t seq, bool *ret_found,
                                int64_t *ret_seq, int64_t *ret_revision)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_PROBE_LOG);
    int code = SQLITE_OK;

    sqlite3_bind_int64(stmt, 1, seq);
    code = sqlite3_step(stmt);
    *ret_found = code == SQLITE_ROW;
    if (code == SQLITE_ROW) {
        *ret_seq = sqlite3_column_int64(stmt, 0);
        *ret_revision = sqlite3_column_int64(stmt, 1);
    }
    return finish_statement(stmt, code);
}

/* seq and mod_revision rise together, so a bisection takes the place of an index that every put
 * would have to pay. */
enum muster_rc muster_registry_store_seek(struct muster_registry_store *store, int64_t revision,
                                          int64_t *ret_seq)
{
    int64_t low = 1;                    /* every row below is older than revision */
    int64_t high = store->last_seq + 1; /* no row from here on is older */

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int64_t seq = 0;
        int64_t found_revision = 0;
        bool is_found = false;
        enum muster_rc rc = probe_log(store, middle, &is_found, &seq, &found_revision);

        if (rc != MUSTER_OK)
            return rc;
        if (is_found && found_revision < revision)
            low = seq + 1;
        else
            high = middle;
    }
    *ret_seq = low;
    return MUSTER_OK;
}

enum muster_rc muster_registry_store_compact(struct muster_registry_store *store, int64_t after_seq,
                                             int64_t upto_seq, int64_t deletions_seq)
{
    static const enum statement steps[] = {STATEMENT_COMPACT_REPLACED, STATEMENT_COMPACT_KEYS,
                                           STATEMENT_COMPACT_DELETIONS};

    MUSTER_ASSERT(store->is_writing);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        sqlite3_stmt *stmt = statement_of(store, steps[i]);
        /* The rows that were replaced go up to the end; deletions only up to deletions_seq. */
        bool is_for_all = steps[i] == STATEMENT_COMPACT_REPLACED || upto_seq < deletions_seq;
        enum muster_rc rc = MUSTER_OK;

        sqlite3_bind_int64(stmt, 1, after_seq);
        sqlite3_bind_int64(stmt, 2, is_for_all ? upto_seq : deletions_seq);
        rc = run_statement(store, steps[i]);
        if (rc != MUSTER_OK)
            return rc;
    }
    return MUSTER_OK;
}

/* Leases. */

enum muster_rc muster_registry_store_put_lease(struct muster_registry_store *store, int64_t id,
                                               int64_t ttl_s)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_PUT_LEASE);

    MUSTER_ASSERT(store->is_writing);
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_int64(stmt, 2, ttl_s);
    return run_statement(store, STATEMENT_PUT_LEASE);
}

enum muster_rc muster_registry_store_delete_lease(struct muster_registry_store *store, int64_t id)
{
    MUSTER_ASSERT(store->is_writing);
    sqlite3_bind_int64(statement_of(store, STATEMENT_DELETE_LEASE), 1, id);
    return run_statement(store, STATEMENT_DELETE_LEASE);
}

enum muster_rc muster_registry_store_scan_leases(struct muster_registry_store *store,
                                                 muster_registry_visit_lease_fn *visit, void *data)
{
    sqlite3_stmt *stmt = statement_of(store, STATEMENT_SCAN_LEASES);
    int code = SQLITE_OK;

    while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
        enum muster_rc rc =
            visit(data, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));

        if (rc != MUSTER_OK) {
            sqlite3_reset(stmt);
            return rc;
        }
    }
    return finish_statement(stmt, code);
}

/* Size. */

static uint64_t pragma_value(struct muster_registry_store *store, enum statement which)
{
    sqlite3_stmt *stmt = statement_of(store, which);
    uint64_t value = sqlite3_step(stmt) == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(stmt, 0) : 0;

    sqlite3_reset(stmt);
    return value;
}

void muster_registry_store_measure(struct muster_registry_store *store,
                                   struct muster_registry_store_size *ret_size)
{
    uint64_t pages = pragma_value(store, STATEMENT_PAGE_COUNT);
    uint64_t unused = pragma_value(store, STATEMENT_FREE_COUNT);

    ret_size->file_bytes = pages * store->page_bytes;
    ret_size->used_bytes = (pages - unused) * store->page_bytes;
    ret_size->quota_bytes = store->quota_bytes;
    ret_size->journal_bytes = store->journal_pages * store->page_bytes;
    ret_size->key_count = (uint64_t)store->key_count;
}

bool muster_registry_store_has_room(const struct muster_registry_store *store)
{
    const char *path = sqlite3_db_filename(store->db, "main");
    struct statvfs disk;

    /* A store in memory has no file, and a file system that cannot tell must not keep the registry
     * from trying. */
    if (path == NULL || path[0] == '\0' || statvfs(path, &disk) != 0)
        return true;
    return (uint64_t)disk.f_bavail * disk.f_frsize >= ROOM_BYTES;
}

static void move_journal(struct muster_registry_store *store, int mode)
{
    sqlite3_reset(statement_of(store, STATEMENT_READ));
    /* A checkpoint that fails is tried again at the next idle moment; the journal keeps what it
     * has. */
    if (sqlite3_wal_checkpoint_v2(store->db, NULL, mode, NULL, NULL) == SQLITE_OK)
        store->journal_pages = 0;
}

void muster_registry_store_checkpoint(struct muster_registry_store *store)
{
    move_journal(store, SQLITE_CHECKPOINT_PASSIVE);
}

void muster_registry_store_give_back(struct muster_registry_store *store)
{
    move_journal(store, SQLITE_CHECKPOINT_TRUNCATE);
}
