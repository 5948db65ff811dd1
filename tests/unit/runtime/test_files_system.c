/* The real file system: what is read and written at limits, and what a failed write leaves. */
#include "assertion_count.h"
#include "test_env.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct test_env test;
static char folder[] = "/tmp/muster-files-XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    test_env_open(&test);
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    snprintf(path, sizeof(path), "%s/file", mkdtemp(folder));
    return 0;
}

static size_t count_files(void)
{
    char pattern[64];

    snprintf(pattern, sizeof(pattern), "%s/*", folder);
    return muster_files_count(test.env.files, pattern);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    rmdir(path);
    assert_int_equal(rmdir(folder), 0);
    test_env_close(&test);
    return 0;
}

static void check_content(const char *expected, size_t count)
{
    char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(muster_files_read(test.env.files, test.env.mem, path, SIZE_MAX, &text, &bytes),
                     MUSTER_OK);
    assert_int_equal(bytes, count);
    assert_memory_equal(text, expected, count);
    assert_int_equal(text[count], '\0');
    muster_mem_free(test.env.mem, text);
}

static void files_of_every_size_come_back_whole(void **state)
{
    static char content[16400];
    static const size_t sizes[] = {0, 1, 4094, 4095, 4096, 4097, 12286, 12287, 12288, 16400};

    (void)state;
    for (size_t i = 0; i < sizeof(content); i++)
        content[i] = (char)('a' + i % 23);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(muster_files_write(test.env.files, path, content, sizes[i]), MUSTER_OK);
        check_content(content, sizes[i]);
        assert_int_equal(count_files(), 1);
    }
}

static void a_limit_holds_to_the_byte(void **state)
{
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(muster_files_write(test.env.files, path, "12345", 5), MUSTER_OK);
    for (size_t limit = 0; limit < 7; limit++) {
        enum muster_rc rc =
            muster_files_read(test.env.files, test.env.mem, path, limit, &text, &bytes);

        assert_int_equal(rc, limit < 5 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
        if (rc == MUSTER_OK)
            muster_mem_free(test.env.mem, text);
    }
}

static void a_read_without_memory_is_refused(void **state)
{
    char *text = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(muster_files_write(test.env.files, path, "12345", 5), MUSTER_OK);
    test.mem.limit_bytes = test.mem.held_bytes + 1;
    assert_int_equal(muster_files_read(test.env.files, test.env.mem, path, SIZE_MAX, &text, &bytes),
                     MUSTER_RESOURCE_EXHAUSTED);
    test.mem.limit_bytes = 0;
}

/* The file keeps what it had, and no neighbour is left. */
static void check_refused(const char *where, enum muster_rc rc, int sys)
{
    assert_int_equal(muster_files_write(test.env.files, where, "new", 3), rc);
    assert_int_equal(errno, sys);
    assert_int_equal(count_files(), 1);
}

static void a_write_that_fails_leaves_the_old_file(void **state)
{
    struct rlimit limit, small;

    (void)state;
    assert_int_equal(muster_files_write(test.env.files, path, "old", 3), MUSTER_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 2;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    check_refused(path, muster_rc_from_errno(EFBIG), EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    check_content("old", 3);
}

static void a_folder_is_not_replaced(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    check_refused(path, muster_rc_from_errno(EISDIR), EISDIR);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    char longest[4200];

    (void)state;
    assert_int_equal(muster_files_write(test.env.files, path, "old", 3), MUSTER_OK);
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    check_refused(longest, muster_rc_from_errno(ENAMETOOLONG), ENAMETOOLONG);
}

static void files_of_a_pattern_are_counted(void **state)
{
    char pattern[80];

    (void)state;
    snprintf(pattern, sizeof(pattern), "%s/fi*", folder);
    assert_int_equal(muster_files_count(test.env.files, pattern), 0);
    assert_int_equal(muster_files_write(test.env.files, path, "1", 1), MUSTER_OK);
    assert_int_equal(muster_files_count(test.env.files, pattern), 1);
    assert_int_equal(muster_files_count(test.env.files, "/nonexistent/*"), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(files_of_every_size_come_back_whole),
        CASE(a_limit_holds_to_the_byte),
        CASE(a_read_without_memory_is_refused),
        CASE(a_write_that_fails_leaves_the_old_file),
        CASE(a_folder_is_not_replaced),
        CASE(a_path_that_is_too_long_is_refused),
        CASE(files_of_a_pattern_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
