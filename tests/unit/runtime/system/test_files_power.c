/* Files of the system are replaced whole or not at all, whatever fails. */
#include "power_disk.h"
#include "test_env.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEDS 6

struct fixture {
    char folder[64], after[64];
    char path[96];
};

static void open_fixture(struct fixture *f)
{
    (void)strcpy(f->folder, "/tmp/files_system.XXXXXX");
    (void)strcpy(f->after, "/tmp/files_after.XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    assert_non_null(mkdtemp(f->after));
    (void)snprintf(f->path, sizeof(f->path), "%s/file", f->folder);
}

static void close_fixture(struct fixture *f)
{
    power_disk_free();
    power_disk_remove(f->folder);
    power_disk_remove(f->after);
}

static enum muster_rc write_text(struct fixture *f, const char *text)
{
    return muster_files_write(muster_files_system(), f->path, text, strlen(text));
}

static void check_text(const char *path, const char *one, const char *other)
{
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(
        muster_files_read(muster_files_system(), muster_mem_system(), path, 4096, &text, &bytes),
        MUSTER_OK);
    if (strcmp(text, one) != 0 && strcmp(text, other) != 0)
        fail_msg("it holds \"%s\"", text);
    muster_mem_free(muster_mem_system(), text);
}

static void a_file_is_the_old_one_or_the_new_one_when_the_power_fails(void **state)
{
    struct fixture f;
    char path[96];

    (void)state;
    open_fixture(&f);
    (void)snprintf(path, sizeof(path), "%s/file", f.after);
    assert_int_equal(write_text(&f, "the old text"), MUSTER_OK);
    power_disk_begin(f.folder);
    assert_int_equal(write_text(&f, "the new text, which is longer"), MUSTER_OK);
    power_disk_end();

    assert_true(power_disk_steps() > 2);
    for (size_t steps = 0; steps <= power_disk_steps(); steps++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            power_disk_cut(steps, seed, f.after);
            check_text(path, "the old text", "the new text, which is longer");
        }
    }
    check_text(f.path, "the new text, which is longer", "");
    close_fixture(&f);
}

static unsigned count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    unsigned count = 0;

    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void a_file_that_cannot_be_replaced_stays(void **state)
{
    struct fixture f;
    size_t after = 0;
    bool has_failed = true;

    (void)state;
    open_fixture(&f);
    assert_int_equal(write_text(&f, "old"), MUSTER_OK);
    for (after = 0; has_failed; after++) {
        enum muster_rc rc = MUSTER_OK;

        power_disk_begin(f.folder);
        power_disk_fail(after, 1, ENOSPC);
        rc = write_text(&f, "new");
        assert_int_equal(rc == MUSTER_OK ? ENOSPC : errno, ENOSPC);
        has_failed = rc != MUSTER_OK;
        power_disk_fail(0, 0, 0);
        power_disk_end();
        check_text(f.path, has_failed ? "old" : "new", "");
        assert_int_equal(count_files(f.folder), 1);
    }
    assert_int_equal(after, 5); /* made, written, synced, renamed, and not failed */
    close_fixture(&f);
}

static void what_is_no_regular_file_is_written_into(void **state)
{
    struct fixture f;
    char text[16] = "";
    int fds[2];

    (void)state;
    open_fixture(&f);
    assert_int_equal(pipe(fds), 0);
    (void)snprintf(f.path, sizeof(f.path), "/dev/fd/%d", fds[1]);
    assert_int_equal(write_text(&f, "through"), MUSTER_OK);
    assert_int_equal(read(fds[0], text, sizeof(text)), 7);
    assert_string_equal(text, "through");
    close(fds[0]);
    close(fds[1]);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_the_old_one_or_the_new_one_when_the_power_fails),
        cmocka_unit_test(a_file_that_cannot_be_replaced_stays),
        cmocka_unit_test(what_is_no_regular_file_is_written_into),
    };

    return cmocka_run_group_tests_name("files_power", tests, NULL, NULL);
}
