/* The store's file: what survives, what is refused, what is moved. */
#include "store_stage.h"
#include "scene_case.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

SCENE_CASES(struct store_stage, store_stage_open, store_stage_close)

static void what_was_committed_is_there_after_reopening(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_record record;
    struct muster_registry_meta meta;
    struct muster_error error;
    int64_t seq = 0;

    seq = store_stage_append(f, "a", "1", 2, 0);
    assert_int_equal(muster_registry_store_load_meta(f->store, &meta), MUSTER_OK);
    assert_int_equal(meta.revision, 1);
    meta.revision = 2;
    assert_int_equal(muster_registry_store_save_meta(f->store, &meta), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    (void)store_stage_append(f, "b", "1", 3, 0);

    muster_registry_store_close(f->store);
    assert_int_equal(store_stage_open_file(f, &f->store, &error), MUSTER_OK);

    assert_int_equal(muster_registry_store_load_meta(f->store, &meta), MUSTER_OK);
    assert_int_equal(meta.revision, 2);
    assert_int_equal(muster_registry_store_find(f->store, store_stage_bytes_of("a"), &record),
                     MUSTER_OK);
    assert_int_equal(record.seq, seq);
    assert_int_equal(muster_registry_store_read(f->store, seq, &record), MUSTER_OK);
    assert_int_equal(record.value.size, 1);
    assert_int_equal(muster_registry_store_find(f->store, store_stage_bytes_of("b"), &record),
                     MUSTER_NOT_FOUND);
    assert_int_equal(store_stage_append(f, "c", "1", 3, 0), seq + 1);
}

static void a_file_has_one_owner(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_store *second = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    assert_int_equal(store_stage_open_file(f, &second, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, f->path));
    assert_non_null(strstr(error.text, "in use"));
}

static void write_letter(const char *path)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs("This is not a registry, but a letter to a friend.\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void write_database(const char *path, const char *sql)
{
    sqlite3 *db = NULL;

    (void)unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    store_stage_run_sql(db, sql);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Its sum: enough to see that nobody has written to it. */
static uint64_t sum_file(const char *path)
{
    FILE *file = fopen(path, "r");
    uint64_t sum = 1;

    assert_non_null(file);
    for (int byte = getc(file); byte != EOF; byte = getc(file))
        sum = sum * 1099511628211U + (uint64_t)byte;
    assert_int_equal(fclose(file), 0);
    return sum;
}

static void files_that_are_no_registry_are_refused_and_left_alone(void **state)
{
    static const struct {
        const char *name;
        const char *sql; /* NULL: a letter */
        enum muster_rc rc;
        const char *says;
    } rows[] = {
        {"a letter", NULL, MUSTER_DATA_LOSS, "is not a data file"},
        {"tables of somebody else", "CREATE TABLE friends(name)", MUSTER_DATA_LOSS,
         "is not a data file"},
        {"another application", "PRAGMA application_id = 7", MUSTER_DATA_LOSS,
         "is not a data file"},
        {"another version of ours", "PRAGMA application_id = 1836282994; PRAGMA user_version = 2",
         MUSTER_DATA_LOSS, "is not a data file"},
        {"ours without tables", "PRAGMA application_id = 1836282994; PRAGMA user_version = 1",
         MUSTER_UNAVAILABLE, "no such table"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct store_stage f;
        struct muster_registry_store *store = NULL;
        struct muster_error error = {.rc = MUSTER_OK};
        uint64_t before = 0;

        store_stage_open(&f);
        muster_registry_store_close(f.store);
        f.store = NULL;
        if (rows[i].sql == NULL)
            write_letter(f.path);
        else
            write_database(f.path, rows[i].sql);
        before = sum_file(f.path);

        if (store_stage_open_file(&f, &store, &error) != rows[i].rc)
            fail_msg("%s: %s %s", rows[i].name, muster_rc_name(error.rc), error.text);
        assert_null(store);
        assert_non_null(strstr(error.text, f.path));
        assert_non_null(strstr(error.text, rows[i].says));
        if (rows[i].rc == MUSTER_DATA_LOSS && sum_file(f.path) != before)
            fail_msg("%s: written to", rows[i].name);
        store_stage_close(&f);
    }
}

static void a_file_may_be_empty_or_an_empty_database(void **state)
{
    static const char *const sqls[] = {"", "PRAGMA user_version = 3"};

    (void)state;
    for (size_t i = 0; i < sizeof(sqls) / sizeof(sqls[0]); i++) {
        struct store_stage f;
        struct muster_error error;

        store_stage_open(&f);
        muster_registry_store_close(f.store);
        write_database(f.path, sqls[i]);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(store_stage_open_file(&f, &f.store, &error), MUSTER_OK);
            (void)store_stage_append(&f, round == 0 ? "a" : "b", "1", 2, 0);
            assert_int_equal(muster_registry_store_commit(f.store), MUSTER_OK);
            if (round == 0)
                muster_registry_store_close(f.store);
        }
        store_stage_close(&f);
    }
}

static void a_folder_is_no_data_file(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    options.path = f->folder;

    assert_int_equal(muster_registry_store_open(&f->mem.mem, &options, &store, &error),
                     muster_rc_from_errno(EISDIR));
    assert_int_equal(error.sys, EISDIR);
    assert_non_null(strstr(error.text, f->folder));
}

static void a_new_file_is_its_owners_alone(void **state)
{
    struct store_stage *f = *state;
    char wal[128];
    struct stat status;

    (void)store_stage_append(f, "a", "1", 2, 0);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);

    assert_int_equal(stat(f->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    (void)snprintf(wal, sizeof(wal), "%s-wal", f->path);
    assert_int_equal(stat(wal, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

static void a_folder_that_does_not_exist_is_named(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_store_options options = {.path = "/nonexistent/registry.db"};
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    assert_int_equal(muster_registry_store_open(&f->mem.mem, &options, &store, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nonexistent/registry.db"));
}

static void a_checkpoint_moves_the_journal_into_the_file(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_store_size size;
    struct stat before;
    struct stat after;
    int64_t prev = 0;

    assert_int_equal(stat(f->path, &before), 0);
    for (int64_t i = 0; i < 500; i++)
        prev = store_stage_append(f, "a", "a value of some length, so that pages fill up", i + 2,
                                  prev);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    muster_registry_store_measure(f->store, &size);
    assert_true(size.journal_bytes > 0);

    muster_registry_store_checkpoint(f->store);

    muster_registry_store_measure(f->store, &size);
    assert_int_equal(size.journal_bytes, 0);
    assert_int_equal(stat(f->path, &after), 0);
    assert_true(after.st_size > before.st_size);
}

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

static void a_store_leaves_no_descriptor_open(void **state)
{
    struct store_stage f;
    int before = count_descriptors();

    (void)state;
    store_stage_open(&f);
    (void)store_stage_append(&f, "a", "1", 2, 0);
    store_stage_close(&f);

    assert_int_equal(count_descriptors(), before);
}

static void sizes_are_those_of_the_file(void **state)
{
    struct store_stage f;
    struct muster_registry_store_options options = {.quota_bytes = 77777};
    struct muster_registry_store_size size;
    struct muster_registry_store *store = NULL;
    struct muster_error error;
    struct stat status;
    uint64_t used = 0;

    (void)state;
    store_stage_open(&f);
    for (int64_t i = 1; i <= 60; i++)
        (void)store_stage_append(&f, "a", "a value of some length, so that pages fill up", i,
                                 i - 1);
    assert_int_equal(muster_registry_store_commit(f.store), MUSTER_OK);
    muster_registry_store_measure(f.store, &size);
    used = size.used_bytes;
    assert_int_equal(size.quota_bytes, UINT64_C(2) << 30);
    assert_int_equal(size.file_bytes, used);
    assert_int_equal(muster_registry_store_begin(f.store), MUSTER_OK);
    assert_int_equal(muster_registry_store_compact(f.store, 0, 60, 0), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f.store), MUSTER_OK);
    muster_registry_store_checkpoint(f.store);

    muster_registry_store_measure(f.store, &size);
    assert_int_equal(stat(f.path, &status), 0);
    assert_int_equal(size.file_bytes, status.st_size);
    assert_int_equal(size.file_bytes, used);
    assert_true(size.used_bytes < used && size.used_bytes % 1024 == 0 && size.used_bytes > 0);
    store_stage_close(&f);

    assert_int_equal(muster_registry_store_open(muster_mem_system(), &options, &store, &error),
                     MUSTER_OK);
    muster_registry_store_measure(store, &size);
    assert_int_equal(size.quota_bytes, 77777);
    muster_registry_store_close(store);
}

static void give_back_cuts_the_journal(void **state)
{
    struct store_stage *f = *state;
    struct muster_registry_store_size size;
    struct muster_registry_record record;
    char wal[128];
    struct stat status;

    (void)store_stage_append(f, "a", "1", 2, 0);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_read(f->store, 1, &record), MUSTER_OK);
    (void)snprintf(wal, sizeof(wal), "%s-wal", f->path);

    muster_registry_store_checkpoint(f->store);
    assert_int_equal(stat(wal, &status), 0);
    assert_true(status.st_size > 0);
    assert_int_equal(muster_registry_store_read(f->store, 1, &record), MUSTER_OK);
    muster_registry_store_give_back(f->store);
    assert_int_equal(stat(wal, &status), 0);
    assert_int_equal(status.st_size, 0);
    (void)store_stage_append(f, "b", "1", 3, 0);
    assert_int_equal(muster_registry_store_commit(f->store), MUSTER_OK);
    muster_registry_store_measure(f->store, &size);
    assert_true(size.journal_bytes > 0 && size.journal_bytes < 20480);
}

static void an_error_of_a_store_in_memory_says_so(void **state)
{
    struct muster_registry_store_options options = {.path = NULL};
    struct muster_registry_record record = {.key = {.data = "a", .size = 1}, .version = 1};
    struct muster_registry_store *store = NULL;
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_registry_store_open(muster_mem_system(), &options, &store, &error),
                     MUSTER_OK);
    store_stage_run_sql(muster_registry_store_database(store), "DROP TABLE keys");
    assert_int_equal(muster_registry_store_begin(store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(store, &record), MUSTER_UNAVAILABLE);

    assert_string_equal(muster_registry_store_error(store), "memory: no such table: keys");

    muster_registry_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_was_committed_is_there_after_reopening),
        CASE(a_file_has_one_owner),
        cmocka_unit_test(files_that_are_no_registry_are_refused_and_left_alone),
        cmocka_unit_test(a_file_may_be_empty_or_an_empty_database),
        CASE(a_folder_is_no_data_file),
        CASE(a_new_file_is_its_owners_alone),
        CASE(a_folder_that_does_not_exist_is_named),
        cmocka_unit_test(a_store_leaves_no_descriptor_open),
        cmocka_unit_test(sizes_are_those_of_the_file),
        CASE(give_back_cuts_the_journal),
        cmocka_unit_test(an_error_of_a_store_in_memory_says_so),
        CASE(a_checkpoint_moves_the_journal_into_the_file),
    };

    return cmocka_run_group_tests_name("registry_store_sqlite", tests, NULL, NULL);
}
