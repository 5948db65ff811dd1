/* The keeper of a seat, in a process of its own. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t play_waitpid(pid_t child, int *ret_status, int options);
#define waitpid(child, ret_status, options) play_waitpid(child, ret_status, options)
#include "tools/params/keeper.c"
#undef waitpid

#include "test_env.h"

#define EXIT_OF_CHILD 3

static int late_signal;

/* The signal comes while the keeper reaps its last child, so that it is not waited for any more. */
static pid_t play_waitpid(pid_t child, int *ret_status, int options)
{
    pid_t reaped = waitpid(child, ret_status, options);

    if (reaped > 0 && late_signal != 0)
        (void)kill(getpid(), late_signal);
    return reaped;
}

static int serve_nothing(struct keeper *keeper)
{
    keeper_taken(keeper);
    return EXIT_OF_CHILD;
}

static const struct {
    const char *name;
    int signal;
} signals[] = {
    {"none", 0},
    {"a spare that is ready", SIGUSR1},
    {"a second SIGTERM", SIGTERM},
    {"a second SIGINT", SIGINT},
    {"a reload", SIGHUP},
};

static void late_signal_leaves_the_exit_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct keeper keeper = {.serve = serve_nothing, .name = signals[i].name};
        struct muster_error error;
        int status = 0;
        pid_t process;

        assert_int_equal(keeper_init(&keeper, &error), MUSTER_OK);
        process = fork();
        if (process == 0) {
            late_signal = signals[i].signal;
            _exit(keeper_run(&keeper));
        }
        assert_true(process > 0);

        assert_int_equal(waitpid(process, &status, 0), process);

        if (!WIFEXITED(status))
            fail_msg("%s: the keeper was killed by signal %d", signals[i].name, WTERMSIG(status));
        assert_int_equal(WEXITSTATUS(status), EXIT_OF_CHILD);
        keeper_fini(&keeper);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_signal_leaves_the_exit_code),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
