/* Cuts of the command, by a client that is played. */
#include <fcntl.h>

#include <muster/loop.h>
#include <muster/params.h>

static enum muster_rc play_open(struct muster_env *env, const struct muster_params_options *options,
                                muster_params_fn *opened, struct muster_params **ret_params,
                                struct muster_error *ret_error);
static const struct muster_error *play_error(const struct muster_params *params);
static void *play_data(const struct muster_params *params);
static void play_close(struct muster_params *params, uint64_t deadline_ns,
                       muster_params_fn *closed);
#define muster_params_open(env, options, opened, ret_params, ret_error)                            \
    play_open(env, options, opened, ret_params, ret_error)
#define muster_params_error(params)                      play_error(params)
#define muster_params_data(params)                       play_data(params)
#define muster_params_close(params, deadline_ns, closed) play_close(params, deadline_ns, closed)
#include "tools/params/cut.c"
#undef muster_params_open
#undef muster_params_error
#undef muster_params_data
#undef muster_params_close

#include "test_env.h"

bool command_parse(const struct muster_options *options, int argc, char **argv, void *settings,
                   int *ret_rest, int *ret_exit)
{
    (void)options;
    (void)argc;
    (void)argv;
    (void)settings;
    (void)ret_rest;
    (void)ret_exit;
    return false;
}

bool command_check_servers(const char *text, struct muster_error *ret_error)
{
    (void)text;
    (void)ret_error;
    return true;
}

int command_refuse(const char *command, const char *format, ...)
{
    fail_msg("%s: %s", command, format);
    return EXIT_USAGE;
}

int command_fail(const char *name, const struct muster_error *error)
{
    fail_msg("%s: %s", name, error->text);
    return EXIT_OTHER;
}

bool output_flush(void)
{
    return true;
}

bool params_connection_check(const char *command, const struct params_connection_settings *settings,
                             int *ret_exit)
{
    (void)command;
    (void)settings;
    (void)ret_exit;
    return true;
}

enum muster_rc params_connection_tls_open(struct muster_env *env,
                                          const struct params_connection_settings *settings,
                                          struct muster_tls **ret_tls,
                                          struct muster_error *ret_error)
{
    (void)env;
    (void)settings;
    (void)ret_tls;
    (void)ret_error;
    return MUSTER_OK;
}

bool cut_folder_open(const char *command, const char *option, const char *folder, int *ret_exit)
{
    (void)command;
    (void)option;
    (void)folder;
    (void)ret_exit;
    return true;
}

enum muster_rc cut_files_keep(const char *folder, uint64_t number, uint32_t keep,
                              struct muster_error *ret_error)
{
    (void)folder;
    (void)number;
    (void)keep;
    (void)ret_error;
    return MUSTER_OK;
}

/* --- The client --- */

static struct {
    void *data;
    struct muster_error error;
    struct muster_task task;
    muster_params_fn *opened;
} client;

static const struct muster_error *play_error(const struct muster_params *params)
{
    (void)params;
    return &client.error;
}

static void *play_data(const struct muster_params *params)
{
    (void)params;
    return client.data;
}

/* The deadline passes, and the last connection opens in the same turn. */
static void on_turn(struct muster_task *task)
{
    (void)task;
    muster_error_set(&client.error, MUSTER_DEADLINE_EXCEEDED, "the server is late");
    client.opened(NULL, MUSTER_DEADLINE_EXCEEDED);
    client.error = (struct muster_error){.rc = MUSTER_OK};
}

static enum muster_rc play_open(struct muster_env *env, const struct muster_params_options *options,
                                muster_params_fn *opened, struct muster_params **ret_params,
                                struct muster_error *ret_error)
{
    (void)ret_error;
    client.data = options->data;
    client.opened = opened;
    muster_task_init(&client.task, on_turn, NULL);
    muster_task_post(&client.task, env->loop);
    *ret_params = NULL;
    return MUSTER_OK;
}

static void play_close(struct muster_params *params, uint64_t deadline_ns, muster_params_fn *closed)
{
    (void)deadline_ns;
    closed(params, MUSTER_OK);
}

static void a_connection_that_comes_too_late_hides_no_error(void **state)
{
    const struct settings settings = {.connection = {.timeout_ns = MUSTER_NS_PER_S}};
    struct stop stop = {.fd = -1};
    struct muster_params_cut cut;
    struct muster_error error = {.rc = MUSTER_OK};

    (void)state;
    assert_int_equal(cut_try(&settings, &stop, "/", &cut, &error), MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(error.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_string_equal(error.text, "the server is late");
}

/* Cuts may fail without a turn of the loop, and take longer than the time between two. */
static void sigterm_is_seen_where_the_next_cut_is_due(void **state)
{
    const struct signalfd_siginfo info = {.ssi_signo = SIGTERM};
    struct stop stop;
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
    stop = (struct stop){.fd = fds[0]};
    stop_await(&stop, 0);
    assert_false(stop.is_asked);
    assert_int_equal(write(fds[1], &info, sizeof(info)), (ssize_t)sizeof(info));
    stop_await(&stop, 0);
    assert_true(stop.is_asked);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_that_comes_too_late_hides_no_error),
        cmocka_unit_test(sigterm_is_seen_where_the_next_cut_is_due),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
