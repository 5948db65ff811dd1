/* The store's file: what survives, what is refused, how the log is found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_env.h"

#include "cluster/registry_store.h"

struct fixture {
    struct muster_mem_limited mem;
    char folder[64];
    char path[96];
    struct muster_registry_store *store;
};

static struct muster_bytes bytes_of(const char *text)
{
    return (struct muster_bytes){.data = text, .size = strlen(text)};
}

static enum muster_rc open_store(struct fixture *f, struct muster_registry_store **ret_store,
                                 struct muster_error *ret_error)
{
    struct muster_registry_store_options options = {.path = f->path};

    return muster_registry_store_open(&f->mem.mem, &options, ret_store, ret_error);
}

static void open_fixture(struct fixture *f)
{
    struct muster_error error;

    memset(f, 0, sizeof(*f));
    muster_mem_limited_init(&f->mem, muster_mem_system(), 0);
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/registry_store.XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    (void)snprintf(f->path, sizeof(f->path), "%s/registry.db", f->folder);
    assert_int_equal(open_store(f, &f->store, &error), MUSTER_OK);
}

static void close_fixture(struct fixture *f)
{
    char wal[128];

    muster_registry_store_close(f->store);
    (void)snprintf(wal, sizeof(wal), "%s-wal", f->path);
    (void)unlink(wal);
    (void)unlink(f->path);
    assert_int_equal(rmdir(f->folder), 0);
    assert_int_equal(muster_mem_limited_fini(&f->mem), 0);
}

static int64_t append(struct fixture *f, const char *key, const char *value, int64_t revision,
                      int64_t prev_seq)
{
    struct muster_registry_record record = {.key = bytes_of(key),
                                            .value = bytes_of(value),
                                            .create_revision = revision,
                                            .mod_revision = revision,
                                            .version = 1,
                                            .prev_seq = prev_seq};

    assert_int_equal(muster_registry_store_begin(f->store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(f->store, &record), MUSTER_OK);
    return record.seq;
}

static void what_was_committed_is_there_after_reopening(void **state)
{
    struct fixture f;
    struct muster_registry_record record;
    struct muster_registry_meta meta;
    struct muster_error error;
    int64_t seq = 0;

    (void)state;
    open_fixture(&f);
    seq = append(&f, "a", "1", 2, 0);
    assert_int_equal(muster_registry_store_load_meta(f.store, &meta), MUSTER_OK);
    assert_int_equal(meta.revision, 1);
    meta.revision = 2;
    assert_int_equal(muster_registry_store_save_meta(f.store, &meta), MUSTER_OK);
    assert_int_equal(muster_registry_store_commit(f.store), MUSTER_OK);
    (void)append(&f, "b", "1", 3, 0);

    muster_registry_store_close(f.store);
    assert_int_equal(open_store(&f, &f.store, &error), MUSTER_OK);

    assert_int_equal(muster_registry_store_load_meta(f.store, &meta), MUSTER_OK);
    assert_int_equal(meta.revision, 2);
    assert_int_equal(muster_registry_store_find(f.store, bytes_of("a"), &record), MUSTER_OK);
    assert_int_equal(record.seq, seq);
    assert_int_equal(muster_registry_store_read(f.store, seq, &record), MUSTER_OK);
    assert_int_equal(record.value.size, 1);
    assert_int_equal(muster_registry_store_find(f.store, bytes_of("b"), &record), MUSTER_NOT_FOUND);
    assert_int_equal(append(&f, "c", "1", 3, 0), seq + 1);
    close_fixture(&f);
}

static void a_file_has_one_owner(void **state)
{
    struct fixture f;
    struct muster_registry_store *second = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    open_fixture(&f);

    assert_int_equal(open_store(&f, &second, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, f.path));
    assert_non_null(strstr(error.text, "in use"));

    close_fixture(&f);
}

static void a_file_of_something_else_is_refused_and_left_alone(void **state)
{
    static const char text[] = "This is no registry, but a letter to a friend.\n";
    struct fixture f;
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    char kept[sizeof(text)] = "";
    FILE *file = NULL;

    (void)state;
    open_fixture(&f);
    muster_registry_store_close(f.store);
    f.store = NULL;
    file = fopen(f.path, "w");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);

    assert_int_equal(open_store(&f, &store, &error), MUSTER_DATA_LOSS);
    assert_non_null(strstr(error.text, f.path));
    file = fopen(f.path, "r");
    assert_non_null(file);
    assert_int_equal(fread(kept, 1, sizeof(kept), file), sizeof(text) - 1);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(kept, text);

    close_fixture(&f);
}

static void a_folder_that_does_not_exist_is_named(void **state)
{
    struct fixture f;
    struct muster_registry_store_options options = {.path = "/nonexistent/registry.db"};
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    open_fixture(&f);

    assert_int_equal(muster_registry_store_open(&f.mem.mem, &options, &store, &error),
                     MUSTER_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nonexistent/registry.db"));

    close_fixture(&f);
}

static void seek_finds_the_first_change_at_or_after_a_revision(void **state)
{
    static const int64_t revisions[] = {2, 3, 3, 3, 7, 8, 8, 20};
    struct fixture f;
    int64_t prev = 0;

    (void)state;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof(revisions) / sizeof(revisions[0]); i++)
        prev = append(&f, "a", "1", revisions[i], prev);

    for (int64_t revision = 0; revision <= 22; revision++) {
        int64_t expected = 1;
        int64_t seq = 0;

        for (size_t i = 0; i < sizeof(revisions) / sizeof(revisions[0]); i++)
            expected += revisions[i] < revision;
        assert_int_equal(muster_registry_store_seek(f.store, revision, &seq), MUSTER_OK);
        assert_int_equal(seq, expected);
    }
    close_fixture(&f);
}

static void keys_and_values_may_hold_any_bytes_and_be_empty(void **state)
{
    struct fixture f;
    struct muster_registry_record record = {.key = {.data = "\0\xff", .size = 2},
                                            .value = {.data = NULL, .size = 0},
                                            .version = 1,
                                            .mod_revision = 2};
    struct muster_registry_record found;

    (void)state;
    open_fixture(&f);
    assert_int_equal(muster_registry_store_begin(f.store), MUSTER_OK);
    assert_int_equal(muster_registry_store_append(f.store, &record), MUSTER_OK);

    assert_int_equal(muster_registry_store_read(f.store, record.seq, &found), MUSTER_OK);
    assert_int_equal(found.key.size, 2);
    assert_memory_equal(found.key.data, "\0\xff", 2);
    assert_int_equal(found.value.size, 0);
    assert_non_null(found.value.data);

    close_fixture(&f);
}

static void a_checkpoint_moves_the_journal_into_the_file(void **state)
{
    struct fixture f;
    struct muster_registry_store_size size;
    struct stat before;
    struct stat after;
    int64_t prev = 0;

    (void)state;
    open_fixture(&f);
    assert_int_equal(stat(f.path, &before), 0);
    for (int64_t i = 0; i < 500; i++)
        prev = append(&f, "a", "a value of some length, so that pages fill up", i + 2, prev);
    assert_int_equal(muster_registry_store_commit(f.store), MUSTER_OK);
    muster_registry_store_measure(f.store, &size);
    assert_true(size.journal_bytes > 0);

    muster_registry_store_checkpoint(f.store);

    muster_registry_store_measure(f.store, &size);
    assert_int_equal(size.journal_bytes, 0);
    assert_int_equal(stat(f.path, &after), 0);
    assert_true(after.st_size > before.st_size);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_committed_is_there_after_reopening),
        cmocka_unit_test(a_file_has_one_owner),
        cmocka_unit_test(a_file_of_something_else_is_refused_and_left_alone),
        cmocka_unit_test(a_folder_that_does_not_exist_is_named),
        cmocka_unit_test(seek_finds_the_first_change_at_or_after_a_revision),
        cmocka_unit_test(keys_and_values_may_hold_any_bytes_and_be_empty),
        cmocka_unit_test(a_checkpoint_moves_the_journal_into_the_file),
    };

    return cmocka_run_group_tests_name("registry_store_sqlite", tests, NULL, NULL);
}
