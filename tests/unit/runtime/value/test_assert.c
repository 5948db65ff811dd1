/* Assertions that stay in release builds: a failed one says what and where, prints the flight recorder, and aborts. */
#include <muster/trace.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_env.h"

typedef void child_fn(struct test_env *test);

/* The child's standard error, and its end. */
struct child_end {
    char text[16384];
    int status;
};

static void child_run(struct test_env *test, child_fn *run, struct child_end *ret_end)
{
    size_t length = 0;
    ssize_t count;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        run(test);
        _exit(0);
    }
    close(ends[1]);
    while ((count = read(ends[0], ret_end->text + length, sizeof(ret_end->text) - 1 - length)) > 0)
        length += (size_t)count;
    ret_end->text[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(pid, &ret_end->status, 0), pid);
}

static void assert_that_holds(struct test_env *test)
{
    MUSTER_ASSERT(test != NULL);
}

static void assert_that_fails(struct test_env *test)
{
    MUSTER_ASSERT(test == NULL);
}

static void assert_with_trace(struct test_env *test)
{
    if (muster_trace_open(test->env.mem, 16, &test->env.trace) != MUSTER_OK)
        _exit(1);
    muster_trace_emit_at(&test->env, 4711, "view_entered", NULL, 1, 2, 3);
    MUSTER_ASSERT(test == NULL);
}

static void assert_after_close(struct test_env *test)
{
    if (muster_trace_open(test->env.mem, 16, &test->env.trace) != MUSTER_OK)
        _exit(1);
    muster_trace_emit_at(&test->env, 4711, "view_entered", NULL, 1, 2, 3);
    muster_trace_close(test->env.trace);
    MUSTER_ASSERT(test == NULL);
}

static void a_condition_that_holds_does_nothing(void **state)
{
    static struct child_end end;
    struct test_env test;
    (void)state;
    test_env_open(&test);

    child_run(&test, assert_that_holds, &end);

    assert_true(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0);
    assert_string_equal(end.text, "");
    test_env_close(&test);
}

static void a_condition_that_fails_names_itself_and_its_place_and_aborts(void **state)
{
    static struct child_end end;
    struct test_env test;
    (void)state;
    test_env_open(&test);

    child_run(&test, assert_that_fails, &end);

    assert_true(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGABRT);
    assert_non_null(strstr(end.text, "muster: assertion failed: test == NULL ("));
    assert_non_null(strstr(end.text, "test_assert.c:"));
    assert_non_null(strstr(end.text, "assert_that_fails)"));
    test_env_close(&test);
}

static void a_failure_prints_the_events_of_the_flight_recorder(void **state)
{
    static struct child_end end;
    struct test_env test;
    (void)state;
    test_env_open(&test);

    child_run(&test, assert_with_trace, &end);

    assert_true(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGABRT);
    assert_non_null(strstr(end.text, "4711"));
    test_env_close(&test);
}

static void a_trace_that_is_closed_is_not_printed(void **state)
{
    static struct child_end end;
    struct test_env test;
    (void)state;
    test_env_open(&test);

    child_run(&test, assert_after_close, &end);

    assert_true(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGABRT);
    assert_null(strstr(end.text, "4711"));
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_condition_that_holds_does_nothing),
        cmocka_unit_test(a_condition_that_fails_names_itself_and_its_place_and_aborts),
        cmocka_unit_test(a_failure_prints_the_events_of_the_flight_recorder),
        cmocka_unit_test(a_trace_that_is_closed_is_not_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
