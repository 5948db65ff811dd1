/* Wakes: what a signal brings, what calls that fail do, what is left. */
#include "test_env.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The calls on one descriptor, which a case has chosen; calls on others pass. */
static struct {
    int eventfd_failure, flags;
    int fd, read_failure, write_failure;
    unsigned write_failures; /* so many calls */
} kernel;

static int fail_with(int sys)
{
    errno = sys;
    return -1;
}

int eventfd(unsigned count, int flags)
{
    kernel.flags = flags;
    if (kernel.eventfd_failure != 0)
        return fail_with(kernel.eventfd_failure);
    return (int)syscall(SYS_eventfd2, count, flags);
}

ssize_t read(int fd, void *bytes, size_t count)
{
    if (fd == kernel.fd && kernel.read_failure != 0) {
        int failure = kernel.read_failure;

        kernel.read_failure = 0;
        return failure < 0 ? 1 : fail_with(failure); /* or a part of it */
    }
    return syscall(SYS_read, fd, bytes, count);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    if (fd == kernel.fd && kernel.write_failures > 0) {
        kernel.write_failures--;
        return fail_with(kernel.write_failure);
    }
    return syscall(SYS_write, fd, bytes, count);
}

static struct test_env test;
static unsigned wake_count;

static int set_up(void **state)
{
    (void)state;
    memset(&kernel, 0, sizeof(kernel));
    kernel.fd = -1;
    wake_count = 0;
    test_env_open(&test);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_env_close(&test);
    return 0;
}

static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    close(fd);
    return fd;
}

static void on_wake(struct muster_wake *wake)
{
    assert_ptr_equal(muster_wake_data(wake), &wake_count);
    wake_count++;
}

/* Its descriptor is kernel.fd. */
static struct muster_wake *open_wake(void)
{
    struct muster_wake *wake = NULL;

    kernel.fd = next_descriptor();
    assert_int_equal(muster_wake_open(test.env.mem, test.env.loop, on_wake, &wake_count, &wake),
                     MUSTER_OK);
    return wake;
}

static void signals_of_a_turn_are_one_wake(void **state)
{
    struct muster_wake *wake = open_wake();

    (void)state;
    assert_int_equal(kernel.flags, EFD_NONBLOCK | EFD_CLOEXEC);
    for (unsigned turn = 1; turn < 4; turn++) {
        test_env_turn(&test.env, 2);
        assert_int_equal(wake_count, turn - 1);
        for (unsigned i = 0; i < turn; i++)
            muster_wake_signal(wake);
        test_env_turn(&test.env, 2);
        assert_int_equal(wake_count, turn);
    }
    muster_wake_signal(wake);
    muster_wake_close(wake); /* and it is over */
    test_env_turn(&test.env, 2);
    assert_int_equal(wake_count, 3);
    assert_int_equal(next_descriptor(), kernel.fd);
    muster_wake_close(NULL);
}

/* A handler of signals may have interrupted something that looks at errno. */
static void a_signal_is_not_lost_and_leaves_errno_alone(void **state)
{
    static const struct {
        int failure;
        unsigned failures, left;
    } rows[] = {{0, 0, 0}, {EINTR, 1, 0}, {EINTR, 3, 0}, {EAGAIN, 5, 4}};
    struct muster_wake *wake = open_wake();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        kernel.write_failure = rows[i].failure;
        kernel.write_failures = rows[i].failures;
        errno = EDOM;
        muster_wake_signal(wake);
        assert_int_equal(errno, EDOM);
        assert_int_equal(kernel.write_failures, rows[i].left);
        test_env_turn(&test.env, 2);
        assert_int_equal(wake_count, i + (rows[i].left == 0));
    }
    kernel.write_failures = 0;
    muster_wake_close(wake);
}

/* The descriptor is readable still. */
static void what_cannot_be_read_is_read_again(void **state)
{
    static const int rows[] = {EAGAIN, EINTR, -1};
    struct muster_wake *wake = open_wake();

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        kernel.read_failure = rows[i];
        muster_wake_signal(wake);
        test_env_turn(&test.env, 3);
        assert_int_equal(kernel.read_failure, 0);
        assert_int_equal(wake_count, i + 1); /* not twice */
    }
    muster_wake_close(wake);
}

static void a_wake_that_cannot_be_opened_leaves_nothing(void **state)
{
    static const struct {
        int failure;
        uint64_t fail_at;
        enum muster_rc rc;
    } rows[] = {
        {EMFILE, 0, MUSTER_RESOURCE_EXHAUSTED},
        {ENOSYS, 0, MUSTER_UNIMPLEMENTED},
        {0, 1, MUSTER_RESOURCE_EXHAUSTED}, /* itself */
        {0, 2, MUSTER_RESOURCE_EXHAUSTED}, /* its watch */
    };
    int next = next_descriptor();

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_wake *wake = NULL;

        kernel.eventfd_failure = rows[i].failure;
        test.mem.fail_at = rows[i].fail_at;
        assert_int_equal(muster_wake_open(test.env.mem, test.env.loop, on_wake, NULL, &wake),
                         rows[i].rc);
        assert_null(wake);
        assert_int_equal(test.mem.fail_at, 0);
        assert_int_equal(next_descriptor(), next);
    }
}

/* 0 is a descriptor. */
static void a_process_without_standard_input_is_woken(void **state)
{
    int kept = dup(STDIN_FILENO);
    struct muster_wake *wake;

    (void)state;
    close(STDIN_FILENO);
    wake = open_wake();
    assert_int_equal(kernel.fd, STDIN_FILENO);
    muster_wake_signal(wake);
    test_env_turn(&test.env, 2);
    assert_int_equal(wake_count, 1);
    muster_wake_close(wake);
    assert_int_equal(next_descriptor(), STDIN_FILENO);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(signals_of_a_turn_are_one_wake),
        CASE(a_signal_is_not_lost_and_leaves_errno_alone),
        CASE(what_cannot_be_read_is_read_again),
        CASE(a_wake_that_cannot_be_opened_leaves_nothing),
        CASE(a_process_without_standard_input_is_woken),
    };

    return cmocka_run_group_tests_name("wake_eventfd", tests, NULL, NULL);
}
