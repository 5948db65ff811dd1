/* Backups of data files, and the way back: what is refused, what is renewed, what is left. */
#include "store_stage.h"
#include "scene_case.h"

#include <muster/registry.h>

#include "cluster/store/backup.h"
#include "net/tls/crypto.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sqlite3.h>

#define PATH_BYTES  128
#define LARGE_BYTES 200000

/* fsync(2) of a folder fails with this errno, unless it is 0. */
static int folder_sync_errno;

/* It stands in the place of the C library's: file systems that cannot sync a folder are rare. */
__attribute__((visibility("default"))) int fsync(int fd)
{
    struct stat status;

    if (folder_sync_errno != 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        errno = folder_sync_errno;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

struct fixture {
    struct store_stage stage;
    char backup[PATH_BYTES], made[PATH_BYTES];
};

static void remove_all(const char *folder)
{
    DIR *dir = opendir(folder);

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    }
    closedir(dir);
}

static unsigned count_files(const struct fixture *f)
{
    DIR *dir = opendir(f->stage.folder);
    unsigned count = 0;

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Two keys that exist, one of them on a lease; one that was deleted; revision 5. */
static void open_fixture(struct fixture *f)
{
    struct muster_registry_record records[] = {
        {.version = 1, .create_revision = 2, .mod_revision = 2},
        {.version = 1, .create_revision = 3, .mod_revision = 3, .lease = 7},
        {.version = 1, .create_revision = 4, .mod_revision = 4},
        {.version = 0, .mod_revision = 5, .prev_seq = 1},
    };
    static const char *const keys[] = {"a", "b", "c", "a"};
    static const struct muster_registry_meta meta = {
        .cluster_id = 11, .member_id = 12, .term = 13, .revision = 5, .compact_revision = 2};

    store_stage_open(&f->stage);
    (void)snprintf(f->backup, sizeof(f->backup), "%s/backup", f->stage.folder);
    (void)snprintf(f->made, sizeof(f->made), "%s/made", f->stage.folder);
    assert_int_equal(muster_registry_store_begin(f->stage.store), MUSTER_OK);
    for (size_t i = 0; i < 4; i++) {
        records[i].key = store_stage_bytes_of(keys[i]);
        assert_int_equal(muster_registry_store_append(f->stage.store, &records[i]), MUSTER_OK);
    }
    assert_int_equal(muster_registry_store_put_lease(f->stage.store, 7, 60), MUSTER_OK);
    assert_int_equal(muster_registry_store_put_lease(f->stage.store, 8, 60), MUSTER_OK);
    assert_int_equal(muster_registry_store_save_meta(f->stage.store, &meta), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f->stage.store), MUSTER_OK);
    muster_registry_store_close(f->stage.store);
    f->stage.store = NULL;
}

static void close_fixture(struct fixture *f)
{
    remove_all(f->stage.folder);
    store_stage_close(&f->stage);
}

static enum muster_rc back_up(struct fixture *f, struct muster_error *ret_error)
{
    return muster_registry_backup_write(&f->stage.mem.mem, f->stage.path, f->backup, ret_error);
}

static enum muster_rc restore_backup(struct fixture *f,
                                     struct muster_registry_restored *ret_restored,
                                     struct muster_error *ret_error)
{
    return muster_registry_backup_restore(&f->stage.mem.mem, f->backup, f->made, ret_restored,
                                          ret_error);
}

SCENE_CASES(struct fixture, open_fixture, close_fixture)

static void what_is_restored_is_another_cluster_far_ahead(void **state)
{
    struct fixture *f = *state;
    struct muster_registry_restored restored;
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_registry_store *store = NULL;
    struct muster_registry_record record;
    struct muster_registry_meta meta;
    struct muster_error error;
    struct stat status;

    assert_int_equal(back_up(f, &error), MUSTER_OK);
    assert_int_equal(restore_backup(f, &restored, &error), MUSTER_OK);

    assert_int_equal(restored.revision, 1000000005);
    assert_int_equal(restored.keys, 2);
    assert_int_equal(restored.leases, 2);
    options.path = f->made;
    assert_int_equal(muster_registry_store_open(&f->stage.mem.mem, &options, &store, &error),
                     MUSTER_OK);
    assert_int_equal(muster_registry_store_load_meta(store, &meta), MUSTER_OK);
    assert_true(meta.cluster_id == 0 && meta.member_id == 0 && meta.term == 13);
    assert_true(meta.revision == 1000000005 && meta.compact_revision == 1000000005);
    assert_int_equal(meta.compacted_seq, 0);
    assert_int_equal(muster_registry_store_find(store, store_stage_bytes_of("b"), &record),
                     MUSTER_OK);
    assert_true(record.lease == 7 && record.mod_revision == 3);
    muster_registry_store_close(store);
    assert_int_equal(stat(f->made, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(stat(f->backup, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(status.st_size % 1024, 32);
    assert_int_equal(count_files(f), 3);
}

/* Bytes of files. */

struct bytes {
    uint8_t data[65536];
    size_t size;
};

static void read_bytes(const char *path, struct bytes *ret_bytes)
{
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    ret_bytes->size = fread(ret_bytes->data, 1, sizeof(ret_bytes->data), file);
    assert_true(ret_bytes->size < sizeof(ret_bytes->data) - MUSTER_SHA256_BYTES);
    assert_int_equal(fclose(file), 0);
}

static void write_bytes(const char *path, const struct bytes *bytes)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
    assert_int_equal(fclose(file), 0);
}

static void add_digest(struct bytes *bytes)
{
    struct muster_sha256 sum;

    assert_int_equal(muster_sha256_init(&sum), MUSTER_OK);
    muster_sha256_update(&sum, bytes->data, bytes->size);
    muster_sha256_fini(&sum, bytes->data + bytes->size);
    bytes->size += MUSTER_SHA256_BYTES;
}

static void check_refused(struct fixture *f, const char *name, enum muster_rc rc, const char *says)
{
    struct muster_registry_restored restored = {.keys = 77};
    struct muster_error error = {.text = ""};
    unsigned before = count_files(f);

    if (restore_backup(f, &restored, &error) != rc || strstr(error.text, says) == NULL)
        fail_msg("%s: %s %s", name, muster_rc_name(error.rc), error.text);
    if (rc == MUSTER_OK) {
        assert_int_equal(unlink(f->made), 0);
        return;
    }
    assert_int_equal(error.rc, rc);
    assert_int_equal(restored.keys, 77);
    assert_int_equal(count_files(f), before);
    assert_int_not_equal(access(f->made, F_OK), 0);
}

/* The bytes are right, and the contents are none that a registry would have written. */
static void contents_that_no_registry_writes_are_refused(void **state)
{
    static const struct {
        const char *name, *sql;
        enum muster_rc rc;
        const char *says;
    } rows[] = {
        {"as it is", "SELECT 1", MUSTER_OK, ""},
        {"no counters", "DELETE FROM meta", MUSTER_DATA_LOSS, "damaged one"},
        {"counters twice", "INSERT INTO meta VALUES(2, 1, 1, 1, 5, 0, 0)", MUSTER_DATA_LOSS,
         "damaged one"},
        {"a key without its change", "DELETE FROM log WHERE seq = 3", MUSTER_DATA_LOSS,
         "damaged one"},
        {"an older change less", "DELETE FROM log WHERE seq = 1", MUSTER_OK, ""},
        {"a change ahead of the revision", "UPDATE meta SET revision = 4", MUSTER_DATA_LOSS,
         "damaged one"},
        {"compacted ahead of the revision", "UPDATE meta SET compact_revision = 6",
         MUSTER_DATA_LOSS, "damaged one"},
        {"all compacted", "UPDATE meta SET compact_revision = 5", MUSTER_OK, ""},
        {"a key on a lease that is not there", "DELETE FROM leases WHERE id = 7", MUSTER_DATA_LOSS,
         "damaged one"},
        {"a lease without keys less", "DELETE FROM leases WHERE id = 8", MUSTER_OK, ""},
        {"a deletion on a lease that is not there", "UPDATE keys SET lease = 9 WHERE version = 0",
         MUSTER_OK, ""},
        {"an index that lacks rows",
         "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE INDEX keys_of_lease"
         " ON keys(lease, key) WHERE lease != 1' WHERE name = 'keys_of_lease'",
         MUSTER_DATA_LOSS, "damaged one"},
        {"a table less", "DROP TABLE leases", MUSTER_UNAVAILABLE, "cannot restore"},
        {"another application", "PRAGMA application_id = 7", MUSTER_DATA_LOSS, "no registry"},
        {"another version", "PRAGMA user_version = 2", MUSTER_DATA_LOSS, "no registry"},
    };
    static struct bytes bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        sqlite3 *db = NULL;

        open_fixture(&f);
        assert_int_equal(sqlite3_open(f.stage.path, &db), SQLITE_OK);
        store_stage_run_sql(db, rows[i].sql);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        read_bytes(f.stage.path, &bytes);
        add_digest(&bytes);
        write_bytes(f.backup, &bytes);

        check_refused(&f, rows[i].name, rows[i].rc, rows[i].says);
        close_fixture(&f);
    }
}

enum change { CUT, FLIP, APPEND, OVERWRITE, OVERWRITE_AND_SUM };

static void change_bytes(struct bytes *bytes, enum change change, int64_t at, const char *with,
                         size_t size)
{
    size_t place = at >= 0 ? (size_t)at : bytes->size - (size_t)-at;

    switch (change) {
    case CUT:
        bytes->size = place;
        break;
    case FLIP:
        bytes->data[place] ^= 1;
        break;
    case APPEND:
        bytes->data[bytes->size++] = 0;
        break;
    case OVERWRITE:
    case OVERWRITE_AND_SUM:
        memcpy(bytes->data + place, with, size);
        break;
    }
    if (change == OVERWRITE_AND_SUM) {
        bytes->size -= MUSTER_SHA256_BYTES;
        add_digest(bytes);
    }
}

static void files_that_are_no_backup_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        enum change change;
        int64_t at; /* below 0: from the end */
        const char *with;
        size_t size;
        const char *says;
    } rows[] = {
        {"nothing", CUT, 0, NULL, 0, "too short"},
        {"less than a header", CUT, 99, NULL, 0, "too short"},
        {"a header", CUT, 100, NULL, 0, "torn"},
        {"a byte less", CUT, -1, NULL, 0, "torn"},
        {"no digest", CUT, -32, NULL, 0, "torn"},
        {"a byte more", APPEND, 0, NULL, 0, "torn"},
        {"a bit of the data", FLIP, 5000, NULL, 0, "checksum differs"},
        {"a bit of the last page", FLIP, -33, NULL, 0, "checksum differs"},
        {"the digest's first bit", FLIP, -32, NULL, 0, "checksum differs"},
        {"the digest's last bit", FLIP, -1, NULL, 0, "checksum differs"},
        {"another name at the start", OVERWRITE_AND_SUM, 0, "SQLite format 4", 16,
         "is not a backup of a registry"},
        {"another name's last byte", OVERWRITE_AND_SUM, 15, "x", 1,
         "is not a backup of a registry"},
        {"a snapshot of etcd", OVERWRITE_AND_SUM, 16, "\xed\xda\x0c\xed", 4,
         "etcdctl snapshot restore"},
        {"pages of 65536 bytes", OVERWRITE_AND_SUM, 16, "\0\1", 2, "instead of 393248"},
        {"pages of 512 bytes", OVERWRITE_AND_SUM, 16, "\2\0", 2, "instead of 3104"},
        {"more pages", OVERWRITE_AND_SUM, 28, "\0\1\0\0", 4, "instead of 67108896"},
    };
    static struct bytes bytes;
    struct muster_error error;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)unlink(f->backup);
        assert_int_equal(back_up(f, &error), MUSTER_OK);
        read_bytes(f->backup, &bytes);
        change_bytes(&bytes, rows[i].change, rows[i].at, rows[i].with, rows[i].size);
        write_bytes(f->backup, &bytes);

        check_refused(f, rows[i].name, MUSTER_DATA_LOSS, rows[i].says);
    }
}

static void nothing_is_written_over_and_nothing_made_of_nothing(void **state)
{
    struct fixture *f = *state;
    static struct bytes bytes = {.data = "mine", .size = 4};
    struct muster_registry_restored restored;
    struct muster_error error;
    char journal[PATH_BYTES + 4];

    (void)snprintf(journal, sizeof(journal), "%s-wal", f->made);
    assert_int_equal(restore_backup(f, &restored, &error), MUSTER_NOT_FOUND); /* no backup */
    assert_non_null(strstr(error.text, f->backup));
    assert_int_equal(back_up(f, &error), MUSTER_OK);
    assert_int_equal(back_up(f, &error), MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, f->backup));
    write_bytes(journal, &bytes);
    assert_int_equal(restore_backup(f, &restored, &error), MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, journal));
    assert_int_equal(unlink(journal), 0);
    write_bytes(f->made, &bytes);
    assert_int_equal(restore_backup(f, &restored, &error), MUSTER_ALREADY_EXISTS);
    read_bytes(f->made, &bytes);
    assert_int_equal(bytes.size, 4);
    assert_int_equal(unlink(f->made), 0);
    assert_int_equal(unlink(f->backup), 0);
    assert_int_equal(unlink(f->stage.path), 0);
    assert_int_equal(back_up(f, &error), MUSTER_NOT_FOUND); /* no data */
    assert_non_null(strstr(error.text, f->stage.path));
    assert_int_equal(count_files(f), 0);
}

static void folders_that_are_not_there_are_named(void **state)
{
    struct fixture *f = *state;
    struct muster_registry_restored restored;
    struct muster_error error;

    assert_int_equal(back_up(f, &error), MUSTER_OK);
    assert_int_equal(muster_registry_backup_write(&f->stage.mem.mem, f->stage.path,
                                                  "/nonexistent/backup", &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nonexistent/backup"));
    assert_int_equal(muster_registry_backup_restore(&f->stage.mem.mem, f->backup,
                                                    "/nonexistent/data", &restored, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nonexistent/data"));
    assert_int_equal(count_files(f), 2);
}

/* Between its steps the store goes on; what it writes is in the copy, too. */
static void a_copy_of_a_living_store_is_of_its_end(void **state)
{
    struct fixture *f = *state;
    struct muster_registry_backup *backup = NULL;
    struct muster_error error;
    struct bytes *bytes = calloc(1, sizeof(*bytes));
    bool is_done = false;

    assert_non_null(bytes);
    assert_int_equal(store_stage_open_file(&f->stage, &f->stage.store, &error), MUSTER_OK);
    assert_int_equal(
        muster_registry_backup_open(&f->stage.mem.mem, f->stage.store, &backup, &error), MUSTER_OK);
    assert_int_equal(count_files(f), 3);
    (void)store_stage_append(&f->stage, "new", "of the last moment", 6, 0);
    assert_int_equal(muster_registry_store_commit(f->stage.store), MUSTER_OK);
    while (!is_done)
        assert_int_equal(muster_registry_backup_step(backup, &is_done), MUSTER_OK);

    assert_int_equal(count_files(f), 2); /* the data and their journal */
    bytes->size = (size_t)muster_registry_backup_bytes(backup);
    assert_true(bytes->size > 0 && bytes->size % 1024 == 0 && bytes->size < sizeof(bytes->data));
    assert_int_equal(muster_registry_backup_read(backup, 0, bytes->data, bytes->size), MUSTER_OK);
    assert_int_equal(muster_registry_backup_read(backup, 1, bytes->data, bytes->size),
                     MUSTER_UNAVAILABLE);
    assert_non_null(memmem(bytes->data, bytes->size, "of the last moment", 18));
    muster_registry_backup_close(backup);
    muster_registry_backup_close(NULL);
    free(bytes);
}

static void a_backup_that_cannot_be_read_says_why(void **state)
{
    struct fixture *f = *state;
    struct muster_registry_restored restored;
    struct muster_error error;

    (void)snprintf(f->backup, sizeof(f->backup), "%s", f->stage.folder);

    assert_int_not_equal(restore_backup(f, &restored, &error), MUSTER_OK);

    assert_int_not_equal(error.rc, MUSTER_DATA_LOSS);
    assert_non_null(strstr(error.text, f->stage.folder));
    assert_non_null(strstr(error.text, strerror(EISDIR)));
    assert_int_equal(count_files(f), 1);
}

static void a_copy_that_cannot_be_written_says_why(void **state)
{
    struct fixture *f = *state;
    static char value[LARGE_BYTES];
    struct muster_error error;
    struct rlimit before, limit;

    memset(value, 'x', sizeof(value) - 1);
    assert_int_equal(store_stage_open_file(&f->stage, &f->stage.store, &error), MUSTER_OK);
    (void)store_stage_append(&f->stage, "large", value, 6, 0);
    assert_int_equal(muster_registry_store_commit(f->stage.store), MUSTER_OK);
    muster_registry_store_close(f->stage.store);
    f->stage.store = NULL;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = LARGE_BYTES / 2;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);

    assert_int_not_equal(back_up(f, &error), MUSTER_OK);

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    assert_non_null(strstr(error.text, strerror(EFBIG)));
    assert_int_equal(count_files(f), 1);
}

/* EINVAL says that the file system has no such call: the name is as safe as it gets there. */
static void a_name_that_cannot_be_synced_is_taken_back_unless_no_folder_can(void **state)
{
    static const struct {
        const char *name;
        int sync_errno;
        bool is_made;
    } rows[] = {
        {"synced", 0, true},
        {"a file system that cannot sync folders", EINVAL, true},
        {"a disk that fails", EIO, false},
        {"a full disk", ENOSPC, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct muster_error error = {.text = ""};
        enum muster_rc rc;

        open_fixture(&f);
        folder_sync_errno = rows[i].sync_errno;
        rc = back_up(&f, &error);
        folder_sync_errno = 0;

        if ((rc == MUSTER_OK) != rows[i].is_made ||
            (access(f.backup, F_OK) == 0) != rows[i].is_made)
            fail_msg("%s: %s %s", rows[i].name, muster_rc_name(rc), error.text);
        if (!rows[i].is_made)
            assert_non_null(strstr(error.text, strerror(rows[i].sync_errno)));
        assert_int_equal(count_files(&f), rows[i].is_made ? 2 : 1);
        close_fixture(&f);
    }
}

/* SQLite's allocations, of which one fails. */
static sqlite3_mem_methods heap;
static uint64_t fails_in; /* 0: never */

static bool does_fail(void)
{
    return fails_in > 0 && --fails_in == 0;
}

static void *sqlite_malloc(int bytes)
{
    return does_fail() ? NULL : heap.xMalloc(bytes);
}

static void *sqlite_realloc(void *block, int bytes)
{
    return does_fail() ? NULL : heap.xRealloc(block, bytes);
}

static void watch_heap(void)
{
    sqlite3_mem_methods watched;

    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &heap), SQLITE_OK);
    watched = heap;
    watched.xMalloc = sqlite_malloc;
    watched.xRealloc = sqlite_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &watched), SQLITE_OK);
}

/* The reason is SQLite's, not that of a call of the system which failed before. */
static void a_copy_without_memory_says_so(void **state)
{
    struct muster_error error;
    struct fixture f;
    unsigned failed_copies = 0;
    bool has_failed = true;

    (void)state;
    open_fixture(&f);
    for (uint64_t at = 1; has_failed; at++) {
        enum muster_rc rc;

        fails_in = at;
        errno = EISDIR;
        rc = back_up(&f, &error);
        has_failed = fails_in == 0;
        fails_in = 0;
        assert_int_equal(count_files(&f), rc == MUSTER_OK ? 2 : 1);
        if (rc == MUSTER_OK) /* the lack did not matter, or there was none */
            assert_int_equal(unlink(f.backup), 0);
        else if (strstr(error.text, "cannot copy") != NULL) {
            assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
            assert_non_null(strstr(error.text, sqlite3_errstr(SQLITE_NOMEM)));
            failed_copies++;
        }
    }

    assert_true(failed_copies > 0);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_is_restored_is_another_cluster_far_ahead),
        cmocka_unit_test(contents_that_no_registry_writes_are_refused),
        CASE(files_that_are_no_backup_are_refused),
        CASE(nothing_is_written_over_and_nothing_made_of_nothing),
        CASE(folders_that_are_not_there_are_named),
        CASE(a_copy_of_a_living_store_is_of_its_end),
        CASE(a_backup_that_cannot_be_read_says_why),
        CASE(a_copy_that_cannot_be_written_says_why),
        cmocka_unit_test(a_name_that_cannot_be_synced_is_taken_back_unless_no_folder_can),
        cmocka_unit_test(a_copy_without_memory_says_so),
    };

    watch_heap();
    return cmocka_run_group_tests_name("registry_backup_sqlite", tests, NULL, NULL);
}
