/* muster coordinator: JAX's and TensorFlow's coordination service as a process of its own. */
#include "commands.h"

#include <sys/resource.h>

#include <muster/coordination_server.h>

#include "service.h"

struct settings {
    const char *listen;
    uint64_t task_count;
    uint64_t heartbeat_timeout_ns;
    uint64_t shutdown_timeout_ns;
    uint64_t register_timeout_ns;
    bool is_recoverable;
    bool is_closed_dead;
    const char *log_level;
};

static const struct muster_option rows[] = {
    {.name = "listen",
     .letter = 'l',
     .variable = "MUSTER_COORDINATOR_LISTEN",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, listen),
     .fallback = "127.0.0.1:0",
     .value = "HOST:PORT",
     .help = "Where tasks connect; port 0 takes a free one, ':PORT' every interface."},
    {.name = "tasks",
     .letter = 'n',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, task_count),
     .unit = "tasks",
     .max = 1000000,
     .help = "How many processes the job has; required."},
    {.name = "heartbeat-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, heartbeat_timeout_ns),
     .fallback = "100",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "A task that is silent for so long counts as dead."},
    {.name = "shutdown-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, shutdown_timeout_ns),
     .fallback = "300",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long the first task that shuts down waits for the others."},
    {.name = "register-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, register_timeout_ns),
     .fallback = "3600",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long the first task that registers waits for the others."},
    {.name = "recoverable",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_recoverable),
     .help = "A task may die and come back; the others live on and are told nothing."},
    {.name = "closed-is-dead",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_closed_dead),
     .help = "A task whose connection ends is dead at once, not only after the heartbeat timeout."},
    {.name = "log-level",
     .variable = "MUSTER_LOG_LEVEL",
     .kind = MUSTER_OPTION_CHOICE,
     .offset = offsetof(struct settings, log_level),
     .fallback = "info",
     .choices = "error|warn|info|debug|trace",
     .help = "How much goes to standard error."},
};

const struct muster_options coordinator_options = {
    .command = "muster coordinator",
    .usage = "--tasks N [--listen HOST:PORT]",
    .about = "Serve the coordination service of JAX and TensorFlow: give its address to "
             "jax.distributed.initialize as coordinator_address, and to process 0 also a "
             "coordinator_bind_address with a free port.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct coordinator {
    struct service service;
    struct muster_coordination_server *server;
};

static struct coordinator *coordinator_of(struct service *service)
{
    return MUSTER_CONTAINER_OF(service, struct coordinator, service);
}

/* A connection for each task. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static enum muster_rc open_coordinator(struct service *service, struct muster_error *ret_error)
{
    const struct settings *settings = service->settings;
    const struct muster_coordination_server_options options = {
        .task_count = (uint32_t)settings->task_count,
        .listen = settings->listen,
        .heartbeat_timeout_ns = settings->heartbeat_timeout_ns,
        .shutdown_timeout_ns = settings->shutdown_timeout_ns,
        .register_timeout_ns = settings->register_timeout_ns,
        .is_recoverable = settings->is_recoverable,
        .is_closed_dead = settings->is_closed_dead,
    };

    raise_descriptor_limit();
    return muster_coordination_server_open(service->env, &options, &coordinator_of(service)->server,
                                           ret_error);
}

static const struct muster_address *address(struct service *service)
{
    return muster_coordination_server_address(coordinator_of(service)->server);
}

static void on_closed(struct muster_coordination_server *server)
{
    service_closed(muster_coordination_server_data(server));
}

static void close_coordinator(struct service *service, uint64_t deadline_ns)
{
    struct coordinator *coordinator = coordinator_of(service);

    muster_coordination_server_set_data(coordinator->server, service);
    muster_coordination_server_close(coordinator->server, deadline_ns, on_closed);
}

static const struct service_kind kind = {.name = "coordinator",
                                         .open = open_coordinator,
                                         .address = address,
                                         .close = close_coordinator};

int command_coordinator(int argc, char **argv)
{
    struct settings settings = {.listen = NULL};
    struct coordinator coordinator = {.service = {.kind = &kind, .settings = &settings}};
    int code = EXIT_OK;

    if (!command_parse_all(&coordinator_options, argc, argv, &settings, &code))
        return code;
    if (settings.task_count == 0) {
        fprintf(stderr,
                "muster coordinator: --tasks N is required: how many processes the job has\n");
        return EXIT_USAGE;
    }
    return service_run(&coordinator.service, settings.log_level);
}
