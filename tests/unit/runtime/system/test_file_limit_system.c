/* A file at its limit is an error to who has asked for it, and SIGXFSZ to everybody else. */
#include "test_env.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/system/file_limit_system.h"
#include "runtime/system/host_share.h"

static struct rlimit limit_before;
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static int set_up(void **state)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct rlimit limit;

    (void)state;
    signals = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit_before), 0);
    limit = limit_before;
    limit.rlim_cur = 1024;
    assert_int_equal(sigaction(SIGXFSZ, &action, NULL), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit_before), 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    return 0;
}

/* An errno. */
static int file_grow(int fd, bool is_blocked)
{
    bool was_blocked = is_blocked && muster_file_limit_block();
    int sys = ftruncate(fd, 4096) == 0 ? 0 : errno;

    if (is_blocked)
        muster_file_limit_unblock(was_blocked);
    return sys;
}

static void the_signal_comes_to_whoever_has_not_blocked_it(void **state)
{
    int fd = memfd_create("limit", MFD_CLOEXEC);

    (void)state;
    assert_int_equal(file_grow(fd, true), EFBIG);
    assert_int_equal(signals, 0);
    assert_int_equal(file_grow(fd, false), EFBIG);
    assert_int_equal(signals, 1);
    close(fd);
}

static void who_has_blocked_it_before_keeps_it_blocked(void **state)
{
    int fd = memfd_create("limit", MFD_CLOEXEC);

    (void)state;
    assert_false(muster_file_limit_block());
    assert_int_equal(file_grow(fd, true), EFBIG);
    assert_int_equal(file_grow(fd, false), EFBIG);
    assert_int_equal(signals, 0);
    muster_file_limit_unblock(false);
    assert_int_equal(signals, 0);
    close(fd);
}

static void shared_memory_beyond_the_limit_is_refused(void **state)
{
    struct muster_shared_memory shared;

    (void)state;
    assert_int_equal(muster_shared_memory_open("limit", 4096, &shared), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(signals, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_signal_comes_to_whoever_has_not_blocked_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_has_blocked_it_before_keeps_it_blocked, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(shared_memory_beyond_the_limit_is_refused, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
