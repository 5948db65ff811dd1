/* Processes below this one, of any depth, are ended. */
#include "tools/run/task/descendants.c"

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
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (unsigned i = 0; i < 3; i++)
        start_two();
    run_descendants_kill();

    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
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
