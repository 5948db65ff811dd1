/* How the process that makes cuts ends, and whether another one begins. */
#include <sys/wait.h>

#include "tools/params/cutter.c"

#include "test_env.h"

#define CUTTER 100
#define OTHER  101

int params_cut(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return EXIT_OK;
}

static void stderr_catch(FILE *file, int *ret_fd)
{
    fflush(stderr);
    *ret_fd = dup(STDERR_FILENO);
    assert_int_not_equal(dup2(fileno(file), STDERR_FILENO), -1);
}

static void stderr_restore(int fd)
{
    fflush(stderr);
    assert_int_not_equal(dup2(fd, STDERR_FILENO), -1);
    close(fd);
}

static void the_next_cutter_begins_unless_it_could_not(void **state)
{
    static const struct {
        pid_t ended;
        int status;
        bool must_restart;
        const char *text;
    } rows[] = {
        {CUTTER, W_EXITCODE(0, SIGKILL), true, "was killed by signal 9 (Killed); the next one"},
        {CUTTER, W_EXITCODE(EXIT_OK, 0), true, "has ended with exit code 0; the next one"},
        {CUTTER, W_EXITCODE(EXIT_UNAVAILABLE, 0), true, "has ended with exit code 4; the next one"},
        {CUTTER, W_EXITCODE(EXIT_DENIED, 0), true, "has ended with exit code 5; the next one"},
        {CUTTER, W_EXITCODE(EXIT_OTHER, 0), true, "has ended with exit code 1; the next one"},
        {CUTTER, W_EXITCODE(EXIT_USAGE, 0), false, "no cuts are made any more: "},
        {CUTTER, W_EXITCODE(EXIT_NOT_RUNNABLE, 0), false, "has ended with exit code 126; correct"},
        {OTHER, W_EXITCODE(0, SIGKILL), false, NULL},
        {OTHER, W_EXITCODE(EXIT_OK, 0), false, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512] = "";
        FILE *file = tmpfile();
        bool must_restart;
        int fd;

        assert_non_null(file);
        stderr_catch(file, &fd);
        must_restart = cutter_must_restart(CUTTER, rows[i].ended, rows[i].status);
        stderr_restore(fd);
        rewind(file);
        (void)fread(text, 1, sizeof(text) - 1, file);
        fclose(file);

        assert_int_equal(must_restart, rows[i].must_restart);
        if (rows[i].text == NULL)
            assert_string_equal(text, "");
        else
            assert_non_null(strstr(text, rows[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_cutter_begins_unless_it_could_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
