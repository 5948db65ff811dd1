/* The frame of a small service. */
#include "serving.h"

#include <signal.h>
#include <stdio.h>

#define GRACE_NS (10 * MUSTER_NS_PER_S)

static struct muster_wake *termination;

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(termination);
}

bool serving_parse(const struct muster_options *options, int argc, char **argv, void *settings,
                   int *ret_exit)
{
    struct muster_error error;
    char *page = NULL;
    size_t bytes = 0;
    int rest = argc;
    enum muster_rc rc =
        muster_options_parse(options, muster_vars_system(), argc, argv, settings, &rest, &error);

    if (rc == MUSTER_OK && rest == argc)
        return true;
    *ret_exit = rc == MUSTER_CANCELLED ? 0 : 2;
    if (rc == MUSTER_CANCELLED &&
        muster_options_help(options, muster_mem_system(), &page, &bytes) == MUSTER_OK)
        fputs(page, stdout);
    else if (rc == MUSTER_OK)
        fprintf(stderr, "%s: unexpected argument '%s'\n", options->command, argv[rest]);
    else
        fprintf(stderr, "%s: %s ('%s --help' shows all options)\n", options->command, error.text,
                options->command);
    muster_mem_free(muster_mem_system(), page);
    return false;
}

bool serving_is_address(const char *text, struct muster_error *ret_error)
{
    struct muster_address address;

    return muster_address_parse_listen(text, &address, ret_error) == MUSTER_OK;
}

void serving_ended(struct serving *serving)
{
    muster_loop_stop(serving->env->loop);
}

static void on_server_closed(struct muster_rpc_server *server)
{
    struct serving *serving = muster_rpc_server_data(server);

    if (serving->on_closed != NULL)
        serving->on_closed(serving);
    else
        serving_ended(serving);
}

static void on_termination(struct muster_wake *wake)
{
    struct serving *serving = muster_wake_data(wake);

    if (serving->server == NULL)
        return;
    if (serving->on_drain != NULL)
        serving->on_drain(serving);
    muster_rpc_server_close(serving->server, muster_loop_after_ns(serving->env->loop, GRACE_NS),
                            on_server_closed);
    serving->server = NULL;
}

static bool report_error(const struct serving *serving, const char *what)
{
    fprintf(stderr, "%s: %s\n", serving->program, what);
    return false;
}

bool serving_open(struct serving *serving, const struct muster_rpc_server_options *options)
{
    if (muster_env_system_open(NULL, &serving->env) != MUSTER_OK ||
        muster_net_system_open(serving->env, &serving->env->net) != MUSTER_OK ||
        muster_wake_open(serving->env->mem, serving->env->loop, on_termination, serving,
                         &termination) != MUSTER_OK ||
        muster_rpc_server_open(serving->env, options, &serving->server) != MUSTER_OK)
        return report_error(serving, "no environment");
    muster_rpc_server_set_data(serving->server, serving);
    return true;
}

bool serving_describe(struct serving *serving, const struct muster_descriptors *descriptors)
{
    struct muster_rpc_health *health = NULL;

    if (muster_rpc_health_open(serving->server, &health) != MUSTER_OK ||
        muster_rpc_reflection_open(serving->server, &descriptors, 1) != MUSTER_OK)
        return report_error(serving, "health and reflection cannot be served");
    return true;
}

static bool serving_start(struct serving *serving, const char *place)
{
    struct muster_error error;
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    if (muster_address_parse_listen(place, &address, &error) != MUSTER_OK ||
        muster_rpc_server_listen(serving->server, &address, &address, &error) != MUSTER_OK) {
        fprintf(stderr, "%s: %s\n", serving->program, error.text);
        return false;
    }
    printf("listening %s\n", muster_address_format(&address, text));
    (void)fflush(stdout);
    return true;
}

int serving_run(struct serving *serving, const char *place)
{
    bool is_started = serving_start(serving, place);

    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    if (!is_started)
        muster_wake_signal(termination); /* everything closes as at the end */
    muster_loop_run(serving->env->loop);
    muster_wake_close(termination);
    muster_net_system_close(serving->env->net);
    muster_env_system_close(serving->env);
    return is_started ? 0 : 1;
}
