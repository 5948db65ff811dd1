/* Folders of the system: their names, and what is on the disk. */
#include "power_disk.h"
#include "test_env.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/system/folder_system.h"

/* The errno of readdir behind the first name; 0: it works. */
static int readdir_failure;
static unsigned readdir_calls;

struct dirent *readdir(DIR *names)
{
    struct dirent *(*real)(DIR *) =
        (struct dirent * (*)(DIR *))(uintptr_t)dlsym(RTLD_NEXT, "readdir");

    if (readdir_failure != 0 && readdir_calls++ > 0) {
        errno = readdir_failure;
        return NULL;
    }
    return real(names);
}

/* The errno of flock; 0: it works. */
static int flock_failure;
/* Whoever holds the file deletes it before the next flock, and NFS keeps it under this name. */
static char deleted_path[96], hidden_path[96];

int flock(int fd, int operation)
{
    int (*real)(int, int) = (int (*)(int, int))(uintptr_t)dlsym(RTLD_NEXT, "flock");

    if (flock_failure != 0) {
        errno = flock_failure;
        return -1;
    }
    if (deleted_path[0] != '\0')
        assert_int_equal(rename(deleted_path, hidden_path), 0);
    deleted_path[0] = '\0';
    return real(fd, operation);
}

struct fixture {
    char folder[64], after[64];
    char path[96]; /* a file, which is not there */
};

static void fixture_open(struct fixture *f)
{
    (void)strcpy(f->folder, "/tmp/folder_system.XXXXXX");
    (void)strcpy(f->after, "/tmp/folder_after.XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_non_null(mkdtemp(f->after));
    (void)snprintf(f->path, sizeof(f->path), "%s/file", f->folder);
    readdir_failure = 0;
    readdir_calls = 0;
    flock_failure = 0;
    deleted_path[0] = '\0';
}

static void fixture_close(struct fixture *f)
{
    char hidden[96]; /* the disk leaves it alone */

    (void)snprintf(hidden, sizeof(hidden), "%s/..b", f->folder);
    (void)unlink(hidden);
    power_disk_remove(f->folder);
    power_disk_remove(f->after);
}

static void file_make(const struct fixture *f, const char *name)
{
    char path[96];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", f->folder, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs("12345", file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* --- Names --- */

struct names {
    unsigned a, b, others;
    enum muster_rc rc; /* the answer */
};

static enum muster_rc on_name(void *data, const char *name)
{
    struct names *names = data;

    names->a += strcmp(name, "a") == 0;
    names->b += strcmp(name, "..b") == 0;
    names->others += strcmp(name, "a") != 0 && strcmp(name, "..b") != 0;
    return names->rc;
}

static void each_name_but_the_dots_is_visited_once(void **state)
{
    struct names names = {.rc = MUSTER_OK};
    struct fixture f;

    (void)state;
    fixture_open(&f);
    file_make(&f, "a");
    file_make(&f, "..b");

    assert_int_equal(muster_folder_list(f.folder, on_name, &names), MUSTER_OK);

    assert_int_equal(names.a, 1);
    assert_int_equal(names.b, 1);
    assert_int_equal(names.others, 0);
    fixture_close(&f);
}

static void an_error_of_the_visitor_ends_the_walk(void **state)
{
    struct names names = {.rc = MUSTER_ABORTED};
    struct fixture f;

    (void)state;
    fixture_open(&f);
    file_make(&f, "a");
    file_make(&f, "..b");

    assert_int_equal(muster_folder_list(f.folder, on_name, &names), MUSTER_ABORTED);

    assert_int_equal(names.a + names.b + names.others, 1);
    fixture_close(&f);
}

/* An end of the names and a failed look are both NULL. */
static void names_that_cannot_be_read_are_an_error(void **state)
{
    struct names names = {.rc = MUSTER_OK};
    struct fixture f;

    (void)state;
    fixture_open(&f);
    file_make(&f, "a");
    readdir_failure = EIO;

    assert_int_equal(muster_folder_list(f.folder, on_name, &names), muster_rc_from_errno(EIO));

    readdir_failure = 0;
    fixture_close(&f);
}

static void a_folder_that_is_not_there_is_told(void **state)
{
    struct names names = {.rc = MUSTER_OK};
    struct fixture f;

    (void)state;
    fixture_open(&f);

    assert_int_equal(muster_folder_list(f.path, on_name, &names), MUSTER_NOT_FOUND);
    assert_int_equal(muster_folder_sync(f.path), MUSTER_NOT_FOUND);
    assert_int_equal(muster_folder_check(f.path), MUSTER_NOT_FOUND);

    file_make(&f, "file");
    assert_int_equal(muster_folder_list(f.path, on_name, &names), muster_rc_from_errno(ENOTDIR));
    assert_int_equal(muster_folder_sync(f.path), muster_rc_from_errno(ENOTDIR));
    fixture_close(&f);
}

/* --- Folders --- */

static void a_folder_is_made_once_and_is_no_error_then(void **state)
{
    struct fixture f;
    struct stat found;

    (void)state;
    fixture_open(&f);

    assert_int_equal(muster_folder_make(f.path), MUSTER_OK);
    assert_int_equal(muster_folder_make(f.path), MUSTER_OK);
    assert_int_equal(muster_folder_check(f.path), MUSTER_OK);

    assert_int_equal(stat(f.path, &found), 0);
    assert_true(S_ISDIR(found.st_mode));
    assert_int_equal(rmdir(f.path), 0);
    fixture_close(&f);
}

static void a_folder_cannot_be_made_over_a_file_or_without_its_parent(void **state)
{
    char below[128];
    struct fixture f;

    (void)state;
    fixture_open(&f);
    (void)snprintf(below, sizeof(below), "%s/below", f.path);

    assert_int_equal(muster_folder_make(below), MUSTER_NOT_FOUND);
    file_make(&f, "file");
    assert_int_equal(muster_folder_make(f.path), MUSTER_ALREADY_EXISTS);
    assert_int_equal(muster_folder_make(below), muster_rc_from_errno(ENOTDIR));

    fixture_close(&f);
}

static void a_path_is_made_whole(void **state)
{
    static const struct {
        const char *folder,
            *below; /* of the directory that is current; NULL: it is whole already */
    } rows[] = {{"/", NULL}, {"/a/b", NULL}, {"a", "/a"}, {"a/b//", "/a/b"}};
    char here[PATH_MAX], expected[PATH_MAX + 8];

    (void)state;
    assert_non_null(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *path = NULL;

        (void)snprintf(expected, sizeof(expected), "%s%s", rows[i].below != NULL ? here : "",
                       rows[i].below != NULL ? rows[i].below : rows[i].folder);
        assert_int_equal(muster_folder_absolute(muster_mem_system(), rows[i].folder, &path),
                         MUSTER_OK);
        assert_string_equal(path, expected);
        muster_mem_free(muster_mem_system(), path);
    }
}

static bool is_after(const struct fixture *f, size_t steps)
{
    char path[96];

    power_disk_cut(steps, POWER_KEEPS_NOTHING, f->after);
    (void)snprintf(path, sizeof(path), "%s/file", f->after);
    return access(path, F_OK) == 0;
}

static void a_name_is_on_the_disk_when_its_folder_is_synced(void **state)
{
    struct fixture f;
    size_t steps;

    (void)state;
    fixture_open(&f);
    power_disk_begin(f.folder);
    assert_int_equal(muster_files_write(muster_files_system(), f.path, "12345", 5), MUSTER_OK);
    steps = power_disk_steps();

    assert_int_equal(muster_folder_sync(f.folder), MUSTER_OK);

    power_disk_end();
    assert_false(is_after(&f, steps));
    assert_true(is_after(&f, power_disk_steps()));
    power_disk_free();
    fixture_close(&f);
}

static void a_sync_that_fails_is_told(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f);
    power_disk_begin(f.folder);
    power_disk_fail(0, 1, EIO);

    assert_int_equal(muster_folder_sync(f.folder), muster_rc_from_errno(EIO));

    assert_true(power_disk_has_failed());
    power_disk_end();
    power_disk_free();
    fixture_close(&f);
}

/* --- Files --- */

static void a_file_has_its_size_until_it_is_deleted(void **state)
{
    uint64_t bytes = 7;
    struct fixture f;

    (void)state;
    fixture_open(&f);
    assert_int_equal(muster_file_bytes(f.path, &bytes), MUSTER_NOT_FOUND);
    assert_int_equal(bytes, 7);
    file_make(&f, "file");

    assert_int_equal(muster_file_bytes(f.path, &bytes), MUSTER_OK);
    assert_int_equal(bytes, 5);
    assert_int_equal(muster_file_remove(f.path), MUSTER_OK);

    assert_int_equal(access(f.path, F_OK), -1);
    assert_int_equal(muster_file_remove(f.path), MUSTER_OK); /* somebody else has */
    fixture_close(&f);
}

static void a_folder_is_not_deleted_as_a_file(void **state)
{
    struct fixture f;

    (void)state;
    fixture_open(&f);

    assert_int_not_equal(muster_file_remove(f.folder), MUSTER_OK);

    assert_int_equal(access(f.folder, F_OK), 0);
    fixture_close(&f);
}

static void nobody_holds_a_file_beside_one_that_holds_it_alone(void **state)
{
    int shared[2], alone = -1;
    struct fixture f;

    (void)state;
    fixture_open(&f);
    assert_int_equal(muster_file_hold(f.path, true, &shared[0]), MUSTER_OK);
    assert_int_equal(muster_file_hold(f.path, true, &shared[1]), MUSTER_OK);
    assert_int_equal(muster_file_hold_alone(f.path, &alone), MUSTER_UNAVAILABLE);
    muster_file_release(shared[0]);
    assert_int_equal(muster_file_hold_alone(f.path, &alone), MUSTER_UNAVAILABLE);
    assert_int_equal(alone, -1);
    muster_file_release(shared[1]);

    assert_int_equal(muster_file_hold_alone(f.path, &alone), MUSTER_OK);

    assert_true(muster_file_is_held(f.path));
    assert_int_equal(muster_file_hold_alone(f.path, &shared[0]), MUSTER_UNAVAILABLE);
    muster_file_release(alone);
    fixture_close(&f);
}

static void the_last_holder_deletes_the_file(void **state)
{
    int holds[2];
    struct fixture f;

    (void)state;
    fixture_open(&f);
    for (int i = 0; i < 2; i++)
        assert_int_equal(muster_file_hold(f.path, true, &holds[i]), MUSTER_OK);

    muster_file_release_last(holds[0], f.path);
    assert_int_equal(access(f.path, F_OK), 0);
    muster_file_release_last(holds[1], f.path);

    assert_int_not_equal(access(f.path, F_OK), 0);
    fixture_close(&f);
}

static void a_file_that_has_another_name_by_then_is_not_held(void **state)
{
    struct stat held, named;
    struct fixture f;
    int hold = -1;

    (void)state;
    fixture_open(&f);
    (void)strcpy(deleted_path, f.path);
    (void)snprintf(hidden_path, sizeof(hidden_path), "%s/hidden", f.folder);

    assert_int_equal(muster_file_hold(f.path, true, &hold), MUSTER_OK);

    assert_int_equal(access(hidden_path, F_OK), 0);
    assert_int_equal(fstat(hold, &held), 0);
    assert_int_equal(stat(f.path, &named), 0);
    assert_true(held.st_ino == named.st_ino);
    muster_file_release(hold);
    fixture_close(&f);
}

static void the_file_of_a_later_holder_stays(void **state)
{
    struct fixture f;
    int former, later;

    (void)state;
    fixture_open(&f);
    assert_int_equal(muster_file_hold_shared(f.path, &former), MUSTER_OK);
    assert_int_equal(muster_file_remove(f.path), MUSTER_OK);
    assert_int_equal(muster_file_hold_shared(f.path, &later), MUSTER_OK);

    muster_file_release_last(former, f.path);

    assert_int_equal(access(f.path, F_OK), 0);
    muster_file_release_last(later, f.path);
    assert_int_not_equal(access(f.path, F_OK), 0);
    fixture_close(&f);
}

static void without_locks_a_file_is_only_opened(void **state)
{
    struct fixture f;
    int holds[2];

    (void)state;
    fixture_open(&f);
    flock_failure = ENOLCK;

    assert_int_equal(muster_file_hold(f.path, true, &holds[0]), MUSTER_OK);
    assert_int_equal(muster_file_hold_alone(f.path, &holds[1]), MUSTER_OK);
    assert_false(muster_file_is_held(f.path));
    muster_file_release_last(holds[1], f.path);
    assert_int_equal(access(f.path, F_OK), 0);

    muster_file_release(holds[0]);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_but_the_dots_is_visited_once),
        cmocka_unit_test(an_error_of_the_visitor_ends_the_walk),
        cmocka_unit_test(names_that_cannot_be_read_are_an_error),
        cmocka_unit_test(a_folder_that_is_not_there_is_told),
        cmocka_unit_test(a_folder_is_made_once_and_is_no_error_then),
        cmocka_unit_test(a_folder_cannot_be_made_over_a_file_or_without_its_parent),
        cmocka_unit_test(a_path_is_made_whole),
        cmocka_unit_test(a_name_is_on_the_disk_when_its_folder_is_synced),
        cmocka_unit_test(a_sync_that_fails_is_told),
        cmocka_unit_test(a_file_has_its_size_until_it_is_deleted),
        cmocka_unit_test(a_folder_is_not_deleted_as_a_file),
        cmocka_unit_test(nobody_holds_a_file_beside_one_that_holds_it_alone),
        cmocka_unit_test(the_last_holder_deletes_the_file),
        cmocka_unit_test(a_file_that_has_another_name_by_then_is_not_held),
        cmocka_unit_test(the_file_of_a_later_holder_stays),
        cmocka_unit_test(without_locks_a_file_is_only_opened),
    };

    return cmocka_run_group_tests_name("runtime.system.folder_system", tests, NULL, NULL);
}
