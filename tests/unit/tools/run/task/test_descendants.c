/* Processes below this one, of any depth, are ended, also when the kernel's list of them cannot be read at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* The calls that fail from now on, and how: 0: one byte is read. */
static struct {
    const char *call;
    int sys;
    unsigned left;
} failing;

static bool call_fails(const char *call)
{
    if (failing.left == 0 || strcmp(failing.call, call) != 0)
        return false;
    failing.left--;
    errno = failing.sys;
    return true;
}

static int list_open(const char *path, int flags)
{
    return call_fails("open") ? -1 : open(path, flags);
}

static ssize_t list_read(int fd, void *buffer, size_t room)
{
    if (!call_fails("read"))
        return read(fd, buffer, room);
    return failing.sys != 0 ? -1 : read(fd, buffer, 1);
}

#define open list_open
#define read list_read
#include "tools/run/task/descendants.c"
#undef open
#undef read

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>

#include <cmocka.h>

#include "tests/lib/assertion_count.h"

static void wait_for_signal(void)
{
    for (;;)
        pause();
}

/* A child, and one of its own that is ours when the child is gone. */
static void start_two(void)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child > 0)
        return;
    if (fork() < 0)
        _exit(1);
    wait_for_signal();
}

static void none_is_left(void **state)
{
    static const struct {
        const char *call;
        int sys;
    } rows[] = {{"none", 0}, {"open", EMFILE}, {"read", EIO}, {"read", EINTR}, {"read", 0}};

    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        failing.call = rows[i].call;
        failing.sys = rows[i].sys;
        failing.left = 3;
        for (unsigned j = 0; j < 3; j++)
            start_two();
        run_descendants_kill();

        errno = 0;
        if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
            fail_msg("a process is left when %s fails with %d", rows[i].call, rows[i].sys);
    }
    failing.left = 0;
}

static void without_any_nothing_is_waited_for(void **state)
{
    (void)state;
    run_descendants_kill();

    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_is_left),
        cmocka_unit_test(without_any_nothing_is_waited_for),
    };

    return cmocka_run_group_tests_name("descendants", tests, NULL, NULL);
}
