/* muster registry: the embedded registry as a process of its own. */
#include "commands.h"

#include <signal.h>
#include <string.h>

#include <muster/log.h>
#include <muster/registry_server.h>
#include <muster/stream.h>

#define DRAIN_NS MUSTER_NS_PER_S

struct settings {
    const char *listen;
    const char *data;
    const char *advertise_url;
    const char *name;
    const char *log_level;
    uint64_t quota_bytes;
    bool is_durable;
};

static const struct muster_option rows[] = {
    {.name = "listen",
     .letter = 'l',
     .variable = "MUSTER_REGISTRY_LISTEN",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, listen),
     .fallback = "127.0.0.1:2379",
     .value = "HOST:PORT",
     .help = "Where clients connect; port 0 takes a free one, ':PORT' every interface."},
    {.name = "data",
     .letter = 'd',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .value = "FILE",
     .help = "Keep everything in this file; without it, in memory until the process ends."},
    {.name = "durable",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_durable),
     .help = "Sync each commit to the disk, so that a power failure loses nothing either."},
    {.name = "quota",
     .kind = MUSTER_OPTION_BYTES,
     .offset = offsetof(struct settings, quota_bytes),
     .fallback = "2G",
     .min = 1 << 20,
     .help = "Refuse puts once the data are this large."},
    {.name = "advertise-url",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, advertise_url),
     .value = "URL",
     .help = "What the member list tells clients to dial; default: the listening address."},
    {.name = "name",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, name),
     .fallback = "muster",
     .help = "The member's name."},
    {.name = "log-level",
     .variable = "MUSTER_LOG_LEVEL",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct settings, log_level),
     .fallback = "info",
     .choices = "error|warn|info|debug|trace",
     .help = "How much goes to standard error."},
};

const struct muster_options registry_options = {
    .command = "muster registry",
    .usage = "[--listen HOST:PORT] [--data FILE]",
    .about =
        "Serve the registry (keys, leases, watches) over the etcd v3 API; etcdctl works on it.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct service {
    struct muster_env *env;
    struct muster_registry_store *store;
    struct muster_registry_server *server;
    struct muster_wake *wake;
    bool is_closing;
    bool is_closed;
};

/* The signal handler's only way to the loop. */
static struct muster_wake *stop_wake;

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(stop_wake);
}

static void on_closed(struct muster_registry_server *server)
{
    struct service *service = muster_registry_server_data(server);

    service->is_closed = true;
}

static void on_stop(struct muster_wake *wake)
{
    struct service *service = muster_wake_data(wake);
    struct muster_loop *loop = service->env->loop;

    if (service->is_closing)
        return;
    service->is_closing = true;
    muster_registry_server_close(service->server, muster_loop_after_ns(loop, DRAIN_NS), on_closed);
}

static void watch_signals(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
}

static enum muster_rc open_service(struct service *service, const struct settings *settings,
                                   struct muster_error *ret_error)
{
    struct muster_registry_store_options store_options = {.path = settings->data,
                                                          .is_durable = settings->is_durable,
                                                          .quota_bytes = settings->quota_bytes};
    struct muster_registry_server_options options = {
        .listen = settings->listen, .client_url = settings->advertise_url, .name = settings->name};
    enum muster_rc rc =
        muster_registry_store_open(service->env->mem, &store_options, &service->store, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_registry_server_open(service->env, service->store, &options, &service->server,
                                         ret_error);
    return rc;
}

static void serve(struct service *service)
{
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    muster_registry_server_set_data(service->server, service);
    stop_wake = service->wake;
    watch_signals();
    printf("listening %s\n",
           muster_address_format(muster_registry_server_address(service->server), text));
    fflush(stdout);
    while (!service->is_closed)
        muster_loop_turn(service->env->loop, UINT64_MAX);
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
}

static int serve_in(struct muster_env *env, const struct settings *settings)
{
    struct service service = {.env = env};
    struct muster_error error = {.rc = MUSTER_OK};
    int code = EXIT_OK;

    if (muster_wake_open(env->mem, env->loop, on_stop, &service, &service.wake) != MUSTER_OK) {
        fprintf(stderr, "muster registry: no wake descriptor\n");
        return EXIT_OTHER;
    }
    if (open_service(&service, settings, &error) == MUSTER_OK)
        serve(&service);
    else
        code = command_fail("registry", &error);
    if (error.rc == MUSTER_ALREADY_EXISTS)
        fprintf(stderr,
                "muster registry: another process listens there; end it, or choose another "
                "--listen (port 0 takes a free one)\n");
    /* A server that failed to open is taken down by the loop's next turns. */
    for (int turn = 0; turn < 4; turn++)
        muster_loop_turn(env->loop, 0);
    muster_registry_store_close(service.store);
    muster_wake_close(service.wake);
    return code;
}

int command_registry(int argc, char **argv)
{
    struct settings settings = {.listen = NULL};
    enum muster_log_level level = MUSTER_LOG_INFO;
    struct muster_log *log = NULL;
    struct muster_env *env = NULL;
    int code = EXIT_OK;

    if (!command_parse_all(&registry_options, argc, argv, &settings, &code))
        return code;
    if (muster_env_system_open(NULL, &env) != MUSTER_OK) {
        fprintf(stderr, "muster registry: no event loop\n");
        return EXIT_OTHER;
    }
    if (muster_log_level_parse(settings.log_level, &level) == MUSTER_OK &&
        muster_log_file_open(env->mem, stderr, false, level, &log) == MUSTER_OK)
        env->log = log;
    if (muster_net_system_open(env, &env->net) == MUSTER_OK) {
        code = serve_in(env, &settings);
        muster_net_system_close(env->net);
    } else {
        fprintf(stderr, "muster registry: no network\n");
        code = EXIT_OTHER;
    }
    env->log = NULL;
    muster_log_file_close(log);
    muster_env_system_close(env);
    return code;
}
