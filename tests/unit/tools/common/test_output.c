/* The report of output that is lost. */
#include "tools/common/output.c"

#include "test_env.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PART "a-folder-whose-name-is-so-long-that-four-of-them-do-not-fit-into-one-line-of-a-report"

/* Everything that `output_tell_lost` says of fd. */
static void tell_of(int fd, int error, char text[static 1024])
{
    int kept = dup(STDERR_FILENO), file = memfd_create("said", MFD_CLOEXEC);
    ssize_t length;

    assert_true(kept >= 0 && file >= 0);
    assert_true(dup2(file, STDERR_FILENO) >= 0);
    output_tell_lost("standard output", fd, error);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    length = pread(file, text, 1023, 0);
    assert_true(length >= 0);
    text[length] = '\0';
    close(file);
    close(kept);
}

static void the_file_and_the_reason_are_named(void **state)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    char text[1024];

    (void)state;
    assert_true(fd >= 0);
    tell_of(fd, ENOSPC, text);
    assert_string_equal(text,
                        "muster: standard output (/dev/full) is lost: No space left on device\n");
    close(fd);
}

static void a_descriptor_that_is_closed_has_no_name(void **state)
{
    char text[1024];

    (void)state;
    tell_of(1000000, EBADF, text);
    assert_string_equal(text, "muster: standard output () is lost: Bad file descriptor\n");
}

static void the_name_is_cut_where_the_room_ends(void **state)
{
    char base[64] = "/tmp/muster-test-output-XXXXXX", path[1024], expected[1024], text[1024];
    size_t length;
    int fd;

    (void)state;
    assert_non_null(mkdtemp(base));
    length = (size_t)snprintf(path, sizeof(path), "%s", base);
    for (int i = 0; i < 4; i++) {
        length += (size_t)snprintf(path + length, sizeof(path) - length, "/" PART);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(expected, sizeof(expected), "muster: standard output (%.255s) is lost: %s\n", path,
             "Input/output error");
    tell_of(fd, EIO, text);
    assert_string_equal(text, expected);

    close(fd);
    while (strlen(path) > strlen("/tmp")) {
        assert_int_equal(rmdir(path), 0);
        *strrchr(path, '/') = '\0';
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_and_the_reason_are_named),
        cmocka_unit_test(a_descriptor_that_is_closed_has_no_name),
        cmocka_unit_test(the_name_is_cut_where_the_room_ends),
    };

    return cmocka_run_group_tests_name("output", tests, NULL, NULL);
}
