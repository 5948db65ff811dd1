/* The real file system: what is read and written at limits, and what a failed write leaves. */
#include "assertion_count.h"
#include "secret_mem.h"
#include "test_env.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "runtime/system/file_system.h"

/* Calls that fail once: an errno; -1: nothing is done, and 0 returned; 0: none. */
static struct {
    int read, write, close, rename, sync;
    unsigned inherited; /* opened so that programs get it */
    bool direct;        /* O_DIRECT is refused, always */
} failing;
static size_t unsynced,
    unsynced_max;             /* bytes that were written since a part of a file was synced */
static unsigned direct_count; /* writes past the page cache */

/* True: it is to return *ret_result. */
static bool call_fails(int *failure, ssize_t *ret_result)
{
    int sys = *failure;

    *failure = 0;
    *ret_result = sys < 0 ? 0 : -1;
    if (sys != 0)
        errno = sys < 0 ? EDOM : sys;
    return sys != 0;
}

int open(const char *name, int flags, ...)
{
    va_list args;
    int mode;

    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
    va_end(args);
    failing.inherited += (flags & O_CLOEXEC) == 0;
    return (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}

ssize_t read(int fd, void *bytes, size_t count)
{
    ssize_t result;

    return call_fails(&failing.read, &result) ? result : syscall(SYS_read, fd, bytes, count);
}

int fcntl(int fd, int command, ...)
{
    long argument = 0;
    va_list args;

    va_start(args, command);
    argument = command == F_SETFL ? va_arg(args, int) : 0;
    va_end(args);
    errno = EINVAL;
    return failing.direct && (argument & O_DIRECT) != 0
               ? -1
               : (int)syscall(SYS_fcntl, fd, command, argument);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t result;
    bool is_direct;

    is_direct = (syscall(SYS_fcntl, fd, F_GETFL) & O_DIRECT) != 0;
    unsynced += is_direct ? 0 : count;
    unsynced_max = unsynced > unsynced_max ? unsynced : unsynced_max;
    direct_count += is_direct;
    return call_fails(&failing.write, &result) ? result : syscall(SYS_write, fd, bytes, count);
}

int sync_file_range(int fd, off64_t at, off64_t count, unsigned flags)
{
    ssize_t result;

    unsynced = 0;
    return call_fails(&failing.sync, &result)
               ? (int)result
               : (int)syscall(SYS_sync_file_range, fd, at, count, flags);
}

/* It is closed all the same. */
int close(int fd)
{
    int closed = (int)syscall(SYS_close, fd);
    ssize_t result;

    return call_fails(&failing.close, &result) ? (int)result : closed;
}

int rename(const char *from, const char *to)
{
    ssize_t result;

    return call_fails(&failing.rename, &result)
               ? (int)result
               : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static const char *node = "node";

int uname(struct utsname *ret_name)
{
    *ret_name = (struct utsname){.sysname = "Linux"};
    snprintf(ret_name->nodename, sizeof(ret_name->nodename), "%s", node);
    return 0;
}

static unsigned globfree_count;

void globfree(glob_t *found)
{
    void (*real)(glob_t *) = (void (*)(glob_t *))(uintptr_t)dlsym(RTLD_NEXT, "globfree");

    globfree_count++;
    real(found);
}

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

/* A file may hold a key. */
static void what_was_read_is_wiped_before_its_memory_goes(void **state)
{
    static char content[9000] = "the text of a private key";
    static const size_t limits[] = {SIZE_MAX, 5000};

    (void)state;
    assert_int_equal(muster_files_write(test.env.files, path, content, sizeof(content)), MUSTER_OK);
    for (size_t i = 0; i < 2; i++) {
        struct secret_mem memory;
        char *text = NULL;
        size_t bytes = 0;
        enum muster_rc rc = i == 0 ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED;

        secret_mem_init(&memory, test.env.mem, content, strlen(content));
        assert_int_equal(
            muster_files_read(test.env.files, &memory.mem, path, limits[i], &text, &bytes), rc);
        assert_true(secret_mem_is_held(&memory) == (rc == MUSTER_OK));
        assert_int_equal(memory.leaked_count, 0);
        muster_mem_free(&memory.mem, text);
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

static void calls_that_fail_are_told_and_interruptions_are_not(void **state)
{
    static const struct {
        int write, close, rename, sys;
    } rows[] = {
        {EINTR, 0, 0, 0},         {-1, 0, 0, 0}, /* nothing was written at first */
        {EIO, 0, 0, EIO},         {0, EIO, 0, EIO},
        {ENOSPC, EIO, 0, ENOSPC}, /* the first one counts */
        {0, 0, EPERM, EPERM},     {0, 0, EACCES, EACCES},
    };
    static const struct {
        int read;
        enum muster_rc rc;
    } reads[] = {{EINTR, MUSTER_OK}, {EIO, MUSTER_INTERNAL}, {EISDIR, MUSTER_INVALID_ARGUMENT}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_files_write(test.env.files, path, "old", 3), MUSTER_OK);
        failing.write = rows[i].write;
        failing.close = rows[i].close;
        failing.rename = rows[i].rename;
        assert_int_equal(muster_files_write(test.env.files, path, "new text", 8),
                         muster_rc_from_errno(rows[i].sys));
        assert_int_equal(errno, rows[i].sys);
        assert_int_equal(failing.write | failing.close | failing.rename, 0);
        check_content(rows[i].sys == 0 ? "new text" : "old", rows[i].sys == 0 ? 8 : 3);
        assert_int_equal(count_files(), 1);
    }
    for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++) {
        char *text = NULL;
        size_t bytes = 0;

        failing.read = reads[i].read;
        assert_int_equal(
            muster_files_read(test.env.files, test.env.mem, path, SIZE_MAX, &text, &bytes),
            reads[i].rc);
        muster_mem_free(test.env.mem, text);
    }
}

#define LARGE (((size_t)3 << 20) + 5)

static char *large_new(void)
{
    char *large = test_malloc(LARGE);

    for (size_t i = 0; i < LARGE; i++)
        large[i] = (char)(i * 7 + i / 4093);
    return large;
}

static void check_large(const char *large)
{
    char *text;
    size_t bytes;

    assert_int_equal(muster_files_read(test.env.files, test.env.mem, path, LARGE, &text, &bytes),
                     MUSTER_OK);
    assert_int_equal(bytes, LARGE);
    assert_memory_equal(text, large, LARGE);
    muster_mem_free(test.env.mem, text);
}

/* A write fails, or none (0). */
static void check_large_written(const char *large, int failure, int sys)
{
    assert_int_equal(muster_files_write(test.env.files, path, "old", 3), MUSTER_OK);
    unsynced = unsynced_max = 0;
    direct_count = 0;
    failing.write = failure;
    assert_int_equal(muster_files_write(test.env.files, path, large, LARGE),
                     muster_rc_from_errno(sys));
    assert_int_equal(failing.sync | failing.write, 0);
    assert_int_equal(count_files(), 1);
    if (sys != 0)
        check_content("old", 3);
    else
        check_large(large);
}

static void a_large_file_goes_past_the_page_cache(void **state)
{
    char *large = large_new();

    (void)state;
    check_large_written(large, 0, 0);
    assert_int_equal(direct_count, 3); /* of 1 MiB each, and the rest through the cache */
    assert_int_equal(unsynced_max, 5);
    test_free(large);
}

/* EINVAL: the file system takes the flag, and no such write. */
static void a_direct_write_that_fails_is_told_or_goes_through_the_cache(void **state)
{
    static const struct {
        int failure, sys;
    } rows[] = {{EINVAL, 0}, {EINTR, 0}, {EIO, EIO}, {ENOSPC, ENOSPC}};
    char *large = large_new();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_large_written(large, rows[i].failure, rows[i].sys);
    test_free(large);
}

static void a_large_file_goes_through_the_cache_in_pieces(void **state)
{
    static const struct {
        int failure, sys;
    } rows[] = {{0, 0}, {EIO, EIO}, {ENOSPC, ENOSPC}, {ENOSYS, 0}, {EINVAL, 0}, {EPERM, 0}};
    char *large = large_new();

    (void)state;
    failing.direct = true;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        failing.sync = rows[i].failure;
        check_large_written(large, 0, rows[i].sys);
        assert_int_equal(direct_count, 0);
        assert_in_range(unsynced_max, 1, 512 << 10);
    }
    failing.direct = false;
    test_free(large);
}

/* By a program that another thread starts meanwhile. */
static void no_file_is_inherited(void **state)
{
    (void)state;
    failing.inherited = 0;
    assert_int_equal(muster_files_write(test.env.files, path, "12345", 5), MUSTER_OK);
    assert_int_equal(muster_files_write(test.env.files, "/dev/null", "12345", 5), MUSTER_OK);
    check_content("12345", 5);
    assert_int_equal(failing.inherited, 0);
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

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

/* 0 is a descriptor. */
static void a_process_without_standard_input_has_files(void **state)
{
    int kept = dup(STDIN_FILENO);

    (void)state;
    close(STDIN_FILENO);
    assert_int_equal(muster_files_write(test.env.files, path, "12345", 5), MUSTER_OK);
    check_content("12345", 5);
    assert_int_equal(next_descriptor(), STDIN_FILENO);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
}

/* The neighbour of a process that died while it wrote, and that had this one's number. */
static void what_a_write_left_behind_is_written_over(void **state)
{
    char neighbour[PATH_MAX];
    struct stat status;
    mode_t before = umask(0);
    int fd;

    (void)state;
    assert_true(muster_file_neighbour_format(path, neighbour));
    fd = open(neighbour, O_WRONLY | O_CREAT, 0644);
    assert_int_equal(write(fd, "left behind", 11), 11);
    close(fd);
    assert_int_equal(muster_files_write(test.env.files, path, "12345", 5), MUSTER_OK);
    check_content("12345", 5);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0644);
    assert_int_equal(count_files(), 1);
    unlink(path);
    assert_int_equal(muster_files_write(test.env.files, path, "", 0), MUSTER_OK);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0644);
    (void)umask(before);
}

/* Containers count their processes from 1. */
static void writers_of_two_hosts_with_equal_process_numbers_do_not_share_a_file(void **state)
{
    static const char *const nodes[] = {"one", "two"};
    static const char *const texts[] = {"the text of one", "that of two"};
    struct muster_file_writer writers[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        node = nodes[i];
        assert_int_equal(muster_file_writer_open(&writers[i], path), MUSTER_OK);
        assert_int_equal(muster_file_writer_add(&writers[i], texts[i], strlen(texts[i])),
                         MUSTER_OK);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(muster_file_writer_finish(&writers[i]), MUSTER_OK);
        check_content(texts[i], strlen(texts[i]));
    }
    assert_int_equal(count_files(), 1);
}

static void files_of_a_pattern_are_counted(void **state)
{
    char pattern[80];

    (void)state;
    snprintf(pattern, sizeof(pattern), "%s/fi*", folder);
    assert_int_equal(muster_files_count(test.env.files, pattern), 0);
    assert_int_equal(muster_files_write(test.env.files, path, "1", 1), MUSTER_OK);
    assert_int_equal(muster_files_count(test.env.files, pattern), 1);
    assert_int_equal(muster_files_count(test.env.files, "/proc/self/fd/[0-2]"), 3);
    globfree_count = 0;
    assert_int_equal(muster_files_count(test.env.files, "/nonexistent/*"), 0);
    assert_int_equal(globfree_count, 1); /* and what was found is given back */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(files_of_every_size_come_back_whole),
        CASE(what_was_read_is_wiped_before_its_memory_goes),
        CASE(a_limit_holds_to_the_byte),
        CASE(a_read_without_memory_is_refused),
        CASE(a_write_that_fails_leaves_the_old_file),
        CASE(calls_that_fail_are_told_and_interruptions_are_not),
        CASE(a_large_file_goes_past_the_page_cache),
        CASE(a_direct_write_that_fails_is_told_or_goes_through_the_cache),
        CASE(a_large_file_goes_through_the_cache_in_pieces),
        CASE(no_file_is_inherited),
        CASE(a_folder_is_not_replaced),
        CASE(a_path_that_is_too_long_is_refused),
        CASE(a_process_without_standard_input_has_files),
        CASE(what_a_write_left_behind_is_written_over),
        CASE(writers_of_two_hosts_with_equal_process_numbers_do_not_share_a_file),
        CASE(files_of_a_pattern_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
