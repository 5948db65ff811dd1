/* Backups on SQLite: its online copy, a checksum after it, and the way back. The snapshot
 * service streams a copy of the living store; 'muster registry backup' and 'restore' work on
 * files. A backup is the data file and its SHA-256 after it, the form that 'etcdctl snapshot
 * save' expects. */
#include "cluster/store/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include <muster/registry.h>

#include "net/tls/crypto.h"

/* One step copies 256 KiB (pages have 1 KiB), so that requests are answered between two steps. */
#define PAGES_PER_STEP 256
#define PATH_BYTES     4096
#define PIECE_BYTES    16384
/* The header of an SQLite file: https://www.sqlite.org/fileformat.html, section 1.3. */
#define HEADER_BYTES 100
#define BBOLT_MAGIC  0xED0CDAEDu /* begins etcd's own database, after 16 bytes */

static const char temporary_suffix[] = ".copy-XXXXXX";

/* Files. */

/* A new file next to `beside`; its name is left in path. */
static int make_temporary(const char *beside, char path[PATH_BYTES])
{
    int length = snprintf(path, PATH_BYTES, "%s%s", beside, temporary_suffix);

    if (length < 0 || length >= PATH_BYTES) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkostemp(path, O_CLOEXEC);
}

static enum muster_rc fail_at(const char *path, struct muster_error *ret_error)
{
    int sys = errno;

    return muster_error_set_sys(ret_error, muster_rc_from_errno(sys), sys, "%.180s", path);
}

static bool write_whole(int fd, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    while (size > 0) {
        ssize_t written = write(fd, at, size);

        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        at += written;
        size -= (size_t)written;
    }
    return true;
}

static bool read_whole(int fd, uint64_t offset, void *bytes, size_t size)
{
    uint8_t *at = bytes;

    while (size > 0) {
        ssize_t got = pread(fd, at, size, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = ENODATA; /* the end of the file */
        if (got <= 0)
            return false;
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return true;
}

static enum muster_rc fail_to(const char *what, const char *path, struct muster_error *ret_error)
{
    int sys = errno;

    return muster_error_set_sys(ret_error, muster_rc_from_errno(sys), sys, "cannot %s %.180s", what,
                                path);
}

/* The error of the system call if one failed, else how SQLite did. */
static const char *database_cause(sqlite3 *db, int code)
{
    int sys = (code & 0xff) == SQLITE_NOMEM ? 0 : muster_registry_store_errno(db);

    return sys != 0 ? strerror(sys) : sqlite3_errstr(code);
}

/* Copies of a living store. */

struct muster_registry_backup {
    struct muster_mem *mem;
    sqlite3 *from, *to; /* from: borrowed */
    sqlite3_backup *copy;
    int code; /* the last step's */
    int fd;
    uint64_t bytes;
    char path[PATH_BYTES];
};

/* The copy needs no journal: one that is torn is thrown away. */
static int open_target(struct muster_registry_backup *backup)
{
    int code = sqlite3_open_v2(backup->path, &backup->to,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_exec(backup->to, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL,
                            NULL, NULL);
    return code;
}

enum muster_rc muster_registry_backup_open(struct muster_mem *mem,
                                           struct muster_registry_store *store,
                                           struct muster_registry_backup **ret_backup,
                                           struct muster_error *ret_error)
{
    struct muster_registry_backup *backup = muster_mem_alloc_zero(mem, 1, sizeof(*backup));
    sqlite3 *from = muster_registry_store_database(store);
    const char *beside = sqlite3_db_filename(from, "main");
    enum muster_rc rc = MUSTER_UNAVAILABLE;

    if (backup == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a backup");
    backup->mem = mem;
    backup->from = from;
    backup->fd = make_temporary(
        beside != NULL && beside[0] != '\0' ? beside : P_tmpdir "/muster-registry", backup->path);
    if (backup->fd < 0) {
        rc = fail_at(backup->path, ret_error);
        backup->path[0] = '\0';
    } else if (open_target(backup) == SQLITE_OK) {
        backup->copy = sqlite3_backup_init(backup->to, "main", from, "main");
        if (backup->copy != NULL) {
            *ret_backup = backup;
            return MUSTER_OK;
        }
        rc = muster_error_set(ret_error, rc, "backup: %.200s", sqlite3_errmsg(backup->to));
    } else {
        rc = muster_error_set(ret_error, rc, "cannot write %.160s: %.60s", backup->path,
                              database_cause(backup->to, sqlite3_extended_errcode(backup->to)));
    }
    muster_registry_backup_close(backup);
    return rc;
}

static void end_copy(struct muster_registry_backup *backup)
{
    (void)sqlite3_backup_finish(backup->copy);
    (void)sqlite3_close(backup->to);
    backup->copy = NULL;
    backup->to = NULL;
}

void muster_registry_backup_close(struct muster_registry_backup *backup)
{
    if (backup == NULL)
        return;
    end_copy(backup);
    if (backup->fd >= 0)
        close(backup->fd);
    if (backup->path[0] != '\0')
        (void)unlink(backup->path);
    muster_mem_free(backup->mem, backup);
}

enum muster_rc muster_registry_backup_step(struct muster_registry_backup *backup, bool *ret_is_done)
{
    int code = SQLITE_OK;
    struct stat status;

    MUSTER_ASSERT(backup->copy != NULL);
    code = sqlite3_backup_step(backup->copy, PAGES_PER_STEP);
    backup->code = code;
    *ret_is_done = code == SQLITE_DONE;
    /* A busy or locked source is no failure; the same pages are tried at the next step. */
    if (code == SQLITE_OK || code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return MUSTER_OK;
    if (code != SQLITE_DONE)
        return (code & 0xff) == SQLITE_FULL || (code & 0xff) == SQLITE_NOMEM
                   ? MUSTER_RESOURCE_EXHAUSTED
                   : MUSTER_UNAVAILABLE;
    end_copy(backup);
    if (fstat(backup->fd, &status) != 0)
        return MUSTER_UNAVAILABLE;
    backup->bytes = (uint64_t)status.st_size;
    if (unlink(backup->path) == 0) /* the open descriptor keeps it, whatever becomes of us */
        backup->path[0] = '\0';
    return MUSTER_OK;
}

uint64_t muster_registry_backup_bytes(const struct muster_registry_backup *backup)
{
    MUSTER_ASSERT(backup->copy == NULL);
    return backup->bytes;
}

enum muster_rc muster_registry_backup_read(const struct muster_registry_backup *backup,
                                           uint64_t offset, void *bytes, size_t size)
{
    return read_whole(backup->fd, offset, bytes, size) ? MUSTER_OK : MUSTER_UNAVAILABLE;
}

/* Files from files: pieces in turn, with their digest. */

struct copying {
    int from, to;
    const char *from_name, *to_name;
    uint64_t bytes;
};

static enum muster_rc copy_with_digest(const struct copying *copying, uint8_t *ret_digest,
                                       struct muster_error *ret_error)
{
    uint8_t piece[PIECE_BYTES];
    struct muster_sha256 sum;
    enum muster_rc rc = muster_sha256_init(&sum);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "no memory for the checksum of %.180s",
                                copying->from_name);
    for (uint64_t at = 0; rc == MUSTER_OK && at < copying->bytes;) {
        uint64_t left = copying->bytes - at;
        size_t count = left < sizeof(piece) ? (size_t)left : sizeof(piece);

        if (!read_whole(copying->from, at, piece, count))
            rc = fail_to("read", copying->from_name, ret_error);
        else if (!write_whole(copying->to, piece, count))
            rc = fail_to("write", copying->to_name, ret_error);
        else
            muster_sha256_update(&sum, piece, count);
        at += count;
    }
    muster_sha256_fini(&sum, rc == MUSTER_OK ? ret_digest : NULL);
    return rc;
}

static enum muster_rc refuse_taken_name(const char *path, struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                            "%.150s is there already: choose another name, or move it away", path);
}

/* A name is safe against a loss of power once its folder is synced. File systems that cannot do so
 * say EINVAL: there it is as safe as it gets. */
static bool sync_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_BYTES];
    int fd = -1, sys;
    bool is_synced = false;

    (void)snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    fd = open(slash == NULL   ? "."
              : slash == path ? "/"
                              : folder,
              O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    is_synced = fsync(fd) == 0 || errno == EINVAL;
    sys = errno;
    close(fd);
    errno = sys;
    return is_synced;
}

enum muster_rc muster_registry_backup_publish(int fd, const char *temporary, const char *path,
                                              struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    /* The order makes the backup appear whole or not at all: the data reach the disk before the
     * name does. link(2), unlike rename(2), never replaces a file that somebody else has put
     * there. */
    if (fsync(fd) != 0)
        return fail_at(temporary, ret_error);
    if (link(temporary, path) != 0)
        return errno == EEXIST ? refuse_taken_name(path, ret_error) : fail_at(path, ret_error);
    /* The temporary name is of no more use; if this fails, the caller's clean-up tries again. */
    (void)unlink(temporary);
    if (sync_folder_of(path))
        return MUSTER_OK;
    rc = fail_at(path, ret_error);
    (void)unlink(path);
    return rc;
}

static enum muster_rc refuse_existing(const char *path, const char *suffix,
                                      struct muster_error *ret_error)
{
    char name[PATH_BYTES];

    (void)snprintf(name, sizeof(name), "%s%s", path, suffix);
    return access(name, F_OK) != 0 ? MUSTER_OK : refuse_taken_name(name, ret_error);
}

/* Reading the store has failed, or writing the copy. */
static const char *copy_cause(struct muster_registry_backup *backup)
{
    if (backup->to == NULL) /* it is whole, and cannot be looked at */
        return strerror(errno);
    return database_cause(muster_registry_store_errno(backup->to) != 0 ? backup->to : backup->from,
                          backup->code);
}

static enum muster_rc copy_all(struct muster_registry_backup *backup)
{
    bool is_done = false;
    enum muster_rc rc = MUSTER_OK;

    while (rc == MUSTER_OK && !is_done)
        rc = muster_registry_backup_step(backup, &is_done);
    return rc;
}

static enum muster_rc write_backup(struct muster_registry_backup *backup, const char *output,
                                   struct muster_error *ret_error)
{
    uint8_t digest[MUSTER_SHA256_BYTES];
    char path[PATH_BYTES];
    int to = make_temporary(output, path);
    const struct copying copying = {.from = backup->fd,
                                    .to = to,
                                    .from_name = backup->path,
                                    .to_name = output,
                                    .bytes = backup->bytes};
    enum muster_rc rc = MUSTER_OK;

    if (to < 0)
        return fail_at(output, ret_error);
    rc = copy_with_digest(&copying, digest, ret_error);
    if (rc == MUSTER_OK && !write_whole(to, digest, sizeof(digest)))
        rc = fail_to("write", output, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_backup_publish(to, path, output, ret_error);
    close(to);
    (void)unlink(path);
    return rc;
}

enum muster_rc muster_registry_backup_write(struct muster_mem *mem, const char *data,
                                            const char *output, struct muster_error *ret_error)
{
    struct muster_registry_store_options options = {.path = data};
    struct muster_registry_store *store = NULL;
    struct muster_registry_backup *backup = NULL;
    enum muster_rc rc = refuse_existing(output, "", ret_error);

    if (rc == MUSTER_OK && access(data, F_OK) != 0)
        rc = fail_at(data, ret_error); /* opening would make it */
    if (rc == MUSTER_OK)
        rc = muster_registry_store_open(mem, &options, &store, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_backup_open(mem, store, &backup, ret_error);
    if (rc == MUSTER_OK) {
        rc = copy_all(backup);
        if (rc == MUSTER_OK)
            rc = write_backup(backup, output, ret_error);
        else
            (void)muster_error_set(ret_error, rc, "cannot copy %.160s: %.60s", data,
                                   copy_cause(backup));
    }
    muster_registry_backup_close(backup);
    muster_registry_store_close(store);
    return rc;
}

/* The way back. */

static uint32_t big_endian(const uint8_t *at, size_t bytes)
{
    uint32_t value = 0;

    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

/* The size that the first page tells. */
static enum muster_rc read_header(int fd, const char *from, uint64_t *ret_bytes,
                                  struct muster_error *ret_error)
{
    uint8_t header[HEADER_BYTES];
    uint32_t magic = 0, page = 0;
    bool is_read = read_whole(fd, 0, header, sizeof(header));

    if (!is_read && errno != ENODATA)
        return fail_to("read", from, ret_error);
    if (!is_read)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%.150s is not a backup of a registry: it is too short", from);
    memcpy(&magic, header + 16, sizeof(magic));
    if (magic == BBOLT_MAGIC)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%.120s is a snapshot of etcd: 'etcdctl snapshot restore' makes an "
                                "etcd member of it",
                                from);
    if (memcmp(header, "SQLite format 3", 16) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS, "%.150s is not a backup of a registry",
                                from);
    page = big_endian(header + 16, 2);
    /* The page size is two bytes at offset 16, where 1 stands for 65,536; the number of pages is
     * four bytes at offset 28. */
    *ret_bytes = (uint64_t)(page == 1 ? 65536 : page) * big_endian(header + 28, 4);
    return MUSTER_OK;
}

/* Copy the data without the digest after them; *ret_bytes is their size. */
static enum muster_rc copy_checked(struct copying *copying, struct muster_error *ret_error)
{
    uint8_t told[MUSTER_SHA256_BYTES], counted[MUSTER_SHA256_BYTES];
    const char *from = copying->from_name;
    struct stat status;
    enum muster_rc rc = read_header(copying->from, from, &copying->bytes, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (fstat(copying->from, &status) != 0)
        return fail_at(from, ret_error);
    /* The size is compared before the file is read, because a plain data file would fail at the
     * checksum with a misleading text. */
    if ((uint64_t)status.st_size != copying->bytes + MUSTER_SHA256_BYTES)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%.80s is torn or not a backup (a data file?): %llu bytes "
                                "instead of %llu; take another, or make one with 'muster registry "
                                "backup'",
                                from, (unsigned long long)status.st_size,
                                (unsigned long long)(copying->bytes + MUSTER_SHA256_BYTES));
    rc = copy_with_digest(copying, counted, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (!read_whole(copying->from, copying->bytes, told, sizeof(told)))
        return fail_to("read", from, ret_error);
    if (memcmp(told, counted, sizeof(told)) != 0)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%.150s is damaged: its checksum differs; take another backup",
                                from);
    return MUSTER_OK;
}

static int on_row(void *data, int count, char **values, char **names)
{
    (void)names;
    (void)snprintf(data, 120, "%s", count > 0 && values[0] != NULL ? values[0] : "");
    return SQLITE_OK;
}

static int64_t count_of(sqlite3 *db, const char *sql)
{
    char text[120] = "-1";
    long long value = -1;

    if (sqlite3_exec(db, sql, on_row, text, NULL) != SQLITE_OK)
        return -1;
    return sscanf(text, "%lld", &value) == 1 ? value : -1;
}

/* Contents that no registry would have written. */
static bool is_sound(sqlite3 *db)
{
    static const char *const never[] = {
        "SELECT count(*) != 1 FROM meta",
        "SELECT count(*) FROM keys WHERE seq NOT IN (SELECT seq FROM log)",
        "SELECT count(*) FROM log WHERE mod_revision > (SELECT revision FROM meta)",
        "SELECT compact_revision > revision FROM meta",
        ("SELECT count(*) FROM keys WHERE lease != 0 AND version != 0"
         " AND lease NOT IN (SELECT id FROM leases)"),
    };
    char text[120] = "";
    bool is_sound =
        sqlite3_exec(db, "PRAGMA integrity_check(1)", on_row, text, NULL) == SQLITE_OK &&
        strcmp(text, "ok") == 0;

    for (size_t i = 0; is_sound && i < sizeof(never) / sizeof(never[0]); i++)
        is_sound = count_of(db, never[i]) == 0;
    return is_sound;
}

/* A look that failed does not say that the data is damaged. */
static enum muster_rc check_sound(sqlite3 *db)
{
    if (is_sound(db))
        return MUSTER_OK;
    switch (sqlite3_errcode(db)) {
    case SQLITE_NOMEM:
        return MUSTER_RESOURCE_EXHAUSTED;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_FULL:
        return MUSTER_UNAVAILABLE;
    default:
        return MUSTER_DATA_LOSS;
    }
}

/* Make the restored data another cluster, with a revision far ahead of the old one. Clients that
 * saw later revisions of the old cluster must not meet them again with other contents, and a watch
 * from such a revision gets an error instead of silence: everything below counts as compacted. */
static enum muster_rc renew_identity(struct muster_registry_store *store,
                                     struct muster_registry_restored *ret_restored)
{
    struct muster_registry_meta meta;
    sqlite3 *db = muster_registry_store_database(store);
    enum muster_rc rc = check_sound(db);

    if (rc == MUSTER_OK)
        rc = muster_registry_store_load_meta(store, &meta);
    if (rc != MUSTER_OK)
        return rc;
    meta.cluster_id = meta.member_id = 0; /* drawn anew when it is served */
    meta.revision += MUSTER_REGISTRY_RESTORE_REVISIONS;
    meta.compact_revision = meta.revision;
    rc = muster_registry_store_begin(store);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_save_meta(store, &meta);
    if (rc == MUSTER_OK)
        rc = muster_registry_store_commit(store);
    if (rc != MUSTER_OK)
        return rc;
    muster_registry_store_checkpoint(store);
    ret_restored->revision = meta.revision;
    ret_restored->keys = count_of(db, "SELECT count(*) FROM keys WHERE version != 0");
    ret_restored->leases = count_of(db, "SELECT count(*) FROM leases");
    return MUSTER_OK;
}

/* A journal that SQLite leaves beside the file holds what could not be moved into it. */
static bool has_journal(const char *path)
{
    char journal[PATH_BYTES + sizeof("-wal")];

    (void)snprintf(journal, sizeof(journal), "%s-wal", path);
    return access(journal, F_OK) == 0;
}

static enum muster_rc open_and_renew(struct muster_mem *mem, const char *path, const char *from,
                                     struct muster_registry_restored *ret_restored,
                                     struct muster_error *ret_error)
{
    struct muster_registry_store_options options = {.path = path};
    struct muster_registry_store *store = NULL;
    struct muster_error why = {.text = ""};
    enum muster_rc rc = muster_registry_store_open(mem, &options, &store, &why);

    if (rc == MUSTER_OK) {
        rc = renew_identity(store, ret_restored);
        if (rc != MUSTER_OK)
            (void)muster_error_set(&why, rc, "%s", muster_registry_store_error(store));
    }
    muster_registry_store_close(store); /* the journal goes with it */
    if (rc == MUSTER_OK && has_journal(path))
        rc = muster_error_set(&why, MUSTER_UNAVAILABLE, "its journal cannot be moved into it");
    if (rc == MUSTER_DATA_LOSS)
        return muster_error_set(
            ret_error, rc, "%.120s holds no registry, or a damaged one; take another backup", from);
    if (rc != MUSTER_OK)
        (void)muster_error_set(ret_error, rc, "cannot restore %.90s: %.140s", from, why.text);
    return rc;
}

/* Remove the file and the journal that a failure leaves. */
static void remove_database(const char *path)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    char name[PATH_BYTES + 8];

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", path, endings[i]);
        (void)unlink(name);
    }
}

static enum muster_rc restore_file(struct muster_mem *mem, int fd, const char *from,
                                   const char *data, struct muster_registry_restored *ret_restored,
                                   struct muster_error *ret_error)
{
    char path[PATH_BYTES];
    int to = make_temporary(data, path);
    struct copying copying = {.from = fd, .to = to, .from_name = from, .to_name = data};
    enum muster_rc rc = MUSTER_OK;

    if (to < 0)
        return fail_at(data, ret_error);
    rc = copy_checked(&copying, ret_error);
    if (rc == MUSTER_OK)
        rc = open_and_renew(mem, path, from, ret_restored, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_backup_publish(to, path, data, ret_error);
    close(to);
    remove_database(path);
    return rc;
}

enum muster_rc muster_registry_backup_restore(struct muster_mem *mem, const char *from,
                                              const char *data,
                                              struct muster_registry_restored *ret_restored,
                                              struct muster_error *ret_error)
{
    struct muster_registry_restored restored = {0};
    enum muster_rc rc = refuse_existing(data, "", ret_error);
    int fd = -1;

    if (rc == MUSTER_OK)
        rc = refuse_existing(data, "-wal", ret_error);
    if (rc != MUSTER_OK)
        return rc;
    fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_at(from, ret_error);
    rc = restore_file(mem, fd, from, data, &restored, ret_error);
    close(fd);
    if (rc == MUSTER_OK)
        *ret_restored = restored;
    return rc;
}
