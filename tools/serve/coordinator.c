/* muster coordinator: JAX's and TensorFlow's coordination service as a process of its own.
 *
 * With --data its state outlives it: a coordinator that is killed and started again finds the state
 * in the file, and its listening socket with the connections that came meanwhile in a small process
 * that held it (holder.c). service.c runs it; this file has its options and how it is opened. */
#include "common/command.h"
#include "serve/serve.h"

#include <sys/resource.h>
#include <unistd.h>

#include <muster/coordination_server.h>
#include <muster/stream.h>

#include "serve/data_owner.h"
#include "serve/holder.h"
#include "serve/service.h"
#include "serve/service_tls.h"

#define HOLD_S 60 /* a successor within this time finds the connections that came meanwhile */

struct settings {
    const char *listen;
    uint64_t task_count;
    uint64_t heartbeat_timeout_ns;
    uint64_t shutdown_timeout_ns;
    uint64_t register_timeout_ns;
    bool is_recoverable;
    bool is_closed_dead;
    const char *data;
    const char *log_level, *log_format;
    struct service_tls_settings tls;
    const char *status;
};

static const struct muster_option rows[] = {
    {.name = "listen",
     .letter = 'l',
     .variable = "MUSTER_COORDINATOR_LISTEN",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, listen),
     .fallback = "127.0.0.1:0",
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Address for tasks; port 0 takes a free port, ':PORT' listens on every interface."},
    {.name = "tasks",
     .letter = 'n',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, task_count),
     .unit = "tasks",
     .max = 1000000,
     .help = "Number of processes of the job; required."},
    {.name = "heartbeat-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, heartbeat_timeout_ns),
     .fallback = "100",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "A task that is silent for this long counts as dead."},
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
     .help = "A task may die and come back; the other tasks go on and are not notified."},
    {.name = "closed-is-dead",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_closed_dead),
     .help = "A task whose connection closes counts as dead at once, not only after the heartbeat "
             "timeout."},
    {.name = "data",
     .letter = 'd',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, data),
     .value = "FILE",
     .help = "Keep all state in this file: a coordinator that was killed and is started again "
             "continues its job."},
    SERVICE_TLS_ROWS(struct settings),
    {.name = "status",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, status),
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help = "Serve /healthz and /metrics (Prometheus) there, over HTTP/1.1; the address is "
             "printed after the ready line."},
    COMMAND_LOG_ROW(struct settings, "info"),
    COMMAND_LOG_FORMAT_ROW(struct settings),
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
    struct muster_authorization *authorization;
    int holder; /* -1: none */
};

static struct coordinator *coordinator_of(struct service *service)
{
    return MUSTER_CONTAINER_OF(service, struct coordinator, service);
}

/* Each task keeps a connection, so the limit goes up as far as the system allows. A failure is not
 * reported: a job of a few tasks does without. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Listen on the socket that the holder of a killed coordinator keeps, if it is bound to the port
 * that is wanted, else on a new one; from then on a holder of our own keeps it. */
static enum muster_rc coordinator_hold_socket(struct coordinator *coordinator, const char *data,
                                              const char *listen, struct muster_error *ret_error)
{
    struct holder_name name = {0, 0};
    struct muster_address wanted, bound;
    int fd;
    enum muster_rc rc = muster_address_parse_listen(listen, &wanted, ret_error);

    if (rc == MUSTER_OK)
        rc = holder_name_of(data, &name, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    fd = holder_take(&name);
    if (fd >= 0 && (muster_net_system_bound(fd, &bound) != MUSTER_OK ||
                    (wanted.port != 0 && wanted.port != bound.port))) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        rc = muster_net_system_bind(&wanted, &fd, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    coordinator->holder = holder_start(&name, fd, HOLD_S);
    muster_net_system_adopt(coordinator->service.env->net, fd);
    return MUSTER_OK;
}

/* The order: the file must be free before the socket is asked for, since the process that has it
 * would be the owner of both; TLS and policy come before the server listens. */
static enum muster_rc open_coordinator(struct service *service, struct muster_error *ret_error)
{
    const struct settings *settings = service->settings;
    struct muster_coordination_server_options options = {
        .task_count = (uint32_t)settings->task_count,
        .listen = settings->listen,
        .heartbeat_timeout_ns = settings->heartbeat_timeout_ns,
        .shutdown_timeout_ns = settings->shutdown_timeout_ns,
        .register_timeout_ns = settings->register_timeout_ns,
        .is_recoverable = settings->is_recoverable,
        .is_closed_dead = settings->is_closed_dead,
        .data = settings->data,
    };
    enum muster_rc rc = MUSTER_OK;

    raise_descriptor_limit();
    if (settings->data != NULL)
        rc = data_owner_check(settings->data, ret_error);
    if (rc == MUSTER_OK && settings->data != NULL)
        rc = coordinator_hold_socket(coordinator_of(service), settings->data, settings->listen,
                                     ret_error);
    if (rc == MUSTER_OK)
        rc = service_tls_open(service->env, &settings->tls, &options.tls, ret_error);
    if (rc == MUSTER_OK)
        rc = service_authorization_new(service->env, &settings->tls,
                                       &coordinator_of(service)->authorization, ret_error);
    options.authorization = coordinator_of(service)->authorization;
    if (rc == MUSTER_OK)
        rc = muster_coordination_server_open(service->env, &options,
                                             &coordinator_of(service)->server, ret_error);
    service->tls = options.tls; /* the server has a share of its own */
    return rc;
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

/* An orderly end dismisses the holder: nobody will come for the socket. */
static void coordinator_clean(struct service *service)
{
    holder_dismiss(coordinator_of(service)->holder);
    muster_authorization_free(coordinator_of(service)->authorization);
}

/* `check` is not there: a coordinator that is open can do its work. */
static const struct service_kind kind = {.name = "coordinator",
                                         .open = open_coordinator,
                                         .address = address,
                                         .close = close_coordinator,
                                         .clean = coordinator_clean};

int command_coordinator(int argc, char **argv)
{
    struct settings settings = {.listen = NULL};
    struct coordinator coordinator = {.service = {.kind = &kind, .settings = &settings},
                                      .holder = -1};
    int code = EXIT_OK;

    if (!command_parse_all(&coordinator_options, argc, argv, &settings, &code) ||
        !service_tls_check(coordinator_options.command, &settings.tls, &code))
        return code;
    if (settings.task_count == 0)
        return command_refuse(coordinator_options.command,
                              "--tasks must be the number of processes of the job, got none");
    coordinator.service.status = settings.status;
    return service_run(&coordinator.service, settings.log_level, settings.log_format);
}
