/* SIGTERM and SIGUSR1 as events of a loop. */
#include "runtime/system/stop_signals_system.h"

#include "test_env.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct scene {
    struct muster_env *env;
    struct muster_stop_signals signals;
    char told[64];
};

static void on_stop(struct muster_stop_signals *signals, const char *name)
{
    struct scene *scene = signals->data;

    strcat(strcat(scene->told, name), " ");
}

static void usual_signals(void)
{
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGUSR1, SIG_DFL);
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    if (scene == NULL || muster_env_system_open(NULL, &scene->env) != MUSTER_OK)
        return -1;
    usual_signals();
    scene->signals.data = scene;
    scene->signals.on_stop = on_stop;
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    muster_stop_signals_close(&scene->signals);
    muster_env_system_close(scene->env);
    free(scene);
    return 0;
}

static void take_signals(struct scene *scene)
{
    muster_stop_signals_look(&scene->signals);
    assert_int_equal(muster_stop_signals_open(&scene->signals, scene->env), MUSTER_OK);
}

static void look_at_events(struct scene *scene)
{
    for (int turn = 0; turn < 4; turn++)
        muster_loop_turn(scene->env->loop, 0);
}

static bool is_usual(int number)
{
    struct sigaction now;

    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_DFL;
}

static void the_first_signal_of_each_kind_is_told(void **state)
{
    struct scene *scene = *state;

    take_signals(scene);
    (void)raise(SIGUSR1);
    look_at_events(scene);
    (void)raise(SIGUSR1);
    (void)raise(SIGTERM);
    look_at_events(scene);

    assert_string_equal(scene->told, "SIGUSR1 SIGTERM ");
}

static void a_signal_that_was_ignored_is_told_and_is_ignored_again(void **state)
{
    struct scene *scene = *state;
    struct sigaction now;

    (void)signal(SIGUSR1, SIG_IGN);
    take_signals(scene);
    (void)raise(SIGUSR1);
    look_at_events(scene);
    assert_string_equal(scene->told, "SIGUSR1 ");

    muster_stop_signals_close(&scene->signals);
    assert_int_equal(sigaction(SIGUSR1, NULL, &now), 0);
    assert_true(now.sa_handler == SIG_IGN);
}

static void on_own_signal(int number)
{
    (void)number;
}

static void a_signal_with_a_handler_is_left_to_it(void **state)
{
    struct scene *scene = *state;
    struct sigaction now;

    (void)signal(SIGTERM, on_own_signal);
    take_signals(scene);

    assert_int_equal(sigaction(SIGTERM, NULL, &now), 0);
    assert_true(now.sa_handler == on_own_signal);
    assert_false(is_usual(SIGUSR1));
}

static void sigusr1_can_be_left_alone(void **state)
{
    struct scene *scene = *state;

    scene->signals.is_term_only = true;
    take_signals(scene);

    assert_true(is_usual(SIGUSR1));
    assert_false(is_usual(SIGTERM));
}

static void close_gives_the_signals_back(void **state)
{
    struct scene *scene = *state;

    take_signals(scene);
    muster_stop_signals_close(&scene->signals);
    assert_true(is_usual(SIGTERM) && is_usual(SIGUSR1));

    take_signals(scene); /* and once more */
    (void)raise(SIGTERM);
    look_at_events(scene);
    assert_string_equal(scene->told, "SIGTERM ");
}

static void only_one_takes_them(void **state)
{
    struct scene *scene = *state;
    struct muster_stop_signals second = {.data = scene, .on_stop = on_stop};

    take_signals(scene);
    muster_stop_signals_look(&second);
    assert_int_equal(muster_stop_signals_open(&second, scene->env), MUSTER_OK);
    muster_stop_signals_close(&second);

    assert_false(is_usual(SIGTERM));
}

/* The signal by which a child ends that takes the signals and does this. */
static int end_of_child(struct scene *scene, void (*act)(struct scene *scene))
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        take_signals(scene);
        act(scene);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void raise_once(struct scene *scene)
{
    (void)scene;
    (void)raise(SIGTERM);
}

static void raise_twice(struct scene *scene)
{
    (void)scene;
    (void)raise(SIGTERM);
    (void)raise(SIGTERM);
}

static void end_itself(struct scene *scene)
{
    muster_stop_signals_end(&scene->signals);
}

static void a_second_sigterm_ends_the_process_as_before(void **state)
{
    assert_int_equal(end_of_child(*state, raise_once), 0);
    assert_int_equal(end_of_child(*state, raise_twice), SIGTERM);
    assert_int_equal(end_of_child(*state, end_itself), SIGTERM);
}

/* raise() names the process itself as the sender. */
static void raise_as_ender(struct scene *scene)
{
    scene->signals.ender = getpid();
    (void)raise(SIGTERM);
}

static void raise_beside_ender(struct scene *scene)
{
    scene->signals.ender = getppid();
    (void)raise(SIGTERM);
}

static void the_sigterm_of_the_process_that_may_end_it_ends_it(void **state)
{
    assert_int_equal(end_of_child(*state, raise_as_ender), SIGTERM);
    assert_int_equal(end_of_child(*state, raise_beside_ender), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* The program may end its helpers by these signals, and wait for them. */
static void a_fork_ends_as_one_of_a_program_without_muster(void **state)
{
    static const int kinds[] = {SIGTERM, SIGUSR1};
    struct scene *scene = *state;

    take_signals(scene);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        int status = 0;
        pid_t child = fork();

        if (child == 0)
            for (;;)
                (void)pause();
        assert_true(child > 0);
        assert_int_equal(kill(child, kinds[i]), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), kinds[i]);
    }
    look_at_events(scene);
    assert_string_equal(scene->told, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_first_signal_of_each_kind_is_told),
        CASE(a_signal_that_was_ignored_is_told_and_is_ignored_again),
        CASE(a_signal_with_a_handler_is_left_to_it),
        CASE(sigusr1_can_be_left_alone),
        CASE(close_gives_the_signals_back),
        CASE(only_one_takes_them),
        CASE(a_second_sigterm_ends_the_process_as_before),
        CASE(the_sigterm_of_the_process_that_may_end_it_ends_it),
        CASE(a_fork_ends_as_one_of_a_program_without_muster),
    };

    return cmocka_run_group_tests_name("stop_signals_system", tests, NULL, NULL);
}
