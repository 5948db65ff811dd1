/* muster server: one task of a TensorFlow cluster, as tf.distribute.Server is.
 *
 * The cluster comes from --cluster or MUSTER_CLUSTER, or from a resolver; without it, it is one task on this machine.
 * service.c runs the command; this file has its options and how it is opened. */
#include "common/command.h"
#include "serve/serve.h"

#include <inttypes.h>
#include <string.h>

#include <muster/address.h>
#include <muster/cluster_spec.h>
#include <muster/log.h>
#include <muster/server.h>

#include "serve/server_place.h"
#include "serve/service.h"
#include "serve/service_tls.h"

struct settings {
    const char *cluster;
    const char *resolver;
    const char *devices;
    const char *status;
    const char *job;
    uint64_t task;
    uint64_t port;
    const char *bind;
    uint64_t coordination_tasks;
    uint64_t heartbeat_timeout_ns;
    const char *log_level, *log_format;
    struct service_tls_settings tls;
};

#define TASK_UNSAID UINT64_MAX /* --task was not given: the job must have one task */

/* The text is parsed here only to refuse it early, with the option's name; open_server parses it
 * again, when there is an environment. */
static bool check_cluster(const char *text, struct muster_error *ret_error)
{
    struct muster_cluster_spec *cluster = NULL;
    struct muster_error error;
    enum muster_rc rc =
        muster_cluster_spec_parse(muster_mem_system(), text, strlen(text), &cluster, &error);

    muster_cluster_spec_unref(cluster);
    if (rc != MUSTER_OK)
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                         "%s; write {\"worker\": [\"host:port\", …]}", error.text);
    return rc == MUSTER_OK;
}

/* The option has no port: one is added, so that the parser of listening addresses judges it. */
static bool check_bind(const char *text, struct muster_error *ret_error)
{
    struct muster_address address;
    char full[MUSTER_ADDRESS_TEXT_BYTES];

    (void)snprintf(full, sizeof(full), "%.140s:0", text);
    if (muster_address_parse_listen(full, &address, NULL) == MUSTER_OK)
        return true;
    muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                     "must be an address such as 127.0.0.1, [::1] or localhost, got \"%.80s\"",
                     text);
    return false;
}

static bool check_devices(const char *text, struct muster_error *ret_error)
{
    struct server_place place = {.device_count = 0};

    return server_place_add_devices(&place, text, ret_error) == MUSTER_OK;
}

static const struct muster_option rows[] = {
    {.name = "cluster",
     .letter = 'c',
     .variable = "MUSTER_CLUSTER",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, cluster),
     .check = check_cluster,
     .value = "JSON",
     .help = "The cluster: {\"worker\": [\"host:port\", …], …}. By default a job localhost of one "
             "task, on a free port."},
    {.name = "resolver",
     .letter = 'r',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, resolver),
     .check = command_check_resolver,
     .value = "URI",
     .help = "Resolver that gives the cluster, this task and its accelerators, instead of "
             "--cluster, --job and "
             "--task: tf_config:, slurm:, kubernetes: … (docs/resolvers.md)."},
    {.name = "devices",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, devices),
     .check = check_devices,
     .value = "TYPE:COUNT,…",
     .help = "Devices of this task, such as CPU:1,GPU:4. By default one CPU, with --resolver also "
             "the accelerators "
             "that it reports."},
    {.name = "status",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, status),
     .check = command_check_listen,
     .value = "HOST:PORT",
     .help =
         "Serve /healthz and /metrics (Prometheus) there, over HTTP/1.1; the address is printed "
         "after the ready line."},
    {.name = "job",
     .letter = 'j',
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, job),
     .value = "NAME",
     .help = "Job of this task; may be left out if the cluster has one job."},
    {.name = "task",
     .letter = 't',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, task),
     .unit = "index",
     .max = INT32_MAX,
     .help = "Index of this task; may be left out if the job has one task."},
    {.name = "port",
     .letter = 'p',
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, port),
     .fallback = "0",
     .unit = "port",
     .max = UINT16_MAX,
     .help = "Port to listen on instead of the port in the cluster (0: that one)."},
    {.name = "bind",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, bind),
     .fallback = "0.0.0.0",
     .check = check_bind,
     .value = "ADDRESS",
     .help = "Interface to listen on."},
    {.name = "coordination",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, coordination_tasks),
     .fallback = "0",
     .unit = "tasks",
     .max = 1000000,
     .help = "Also serve the coordination service for this many tasks (0: no)."},
    {.name = "heartbeat-timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, heartbeat_timeout_ns),
     .fallback = "100",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "With --coordination: a task that is silent for this long counts as dead."},
    SERVICE_TLS_ROWS(struct settings),
    COMMAND_LOG_ROW(struct settings, "info"),
    COMMAND_LOG_FORMAT_ROW(struct settings),
};

const struct muster_options server_options = {
    .command = "muster server",
    .usage = "[--cluster JSON | --resolver URI] [--job NAME] [--task N]",
    .about =
        "Serve one task of a cluster, as tf.distribute.Server does: its devices, the leader's "
        "part of collective groups, buffers, and with --coordination the coordination service. "
        "SIGTERM drains and ends it.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct task_server {
    struct service service;
    struct muster_server *server;
    struct server_place place;
    struct muster_address address;
    struct muster_rpc_server_options rpc;
    struct muster_authorization *authorization;
    const struct muster_interceptor *guard;
};

static struct task_server *task_of(struct service *service)
{
    return MUSTER_CONTAINER_OF(service, struct task_server, service);
}

/* TLS, and the policy that decides which calls are allowed. */
static enum muster_rc open_guard(struct task_server *own, struct muster_error *ret_error)
{
    const struct settings *settings = own->service.settings;
    struct muster_env *env = own->service.env;
    enum muster_rc rc = service_tls_open(env, &settings->tls, &own->rpc.tls, ret_error);

    own->service.tls = own->rpc.tls;
    if (rc == MUSTER_OK)
        rc = service_authorization_new(env, &settings->tls, &own->authorization, ret_error);
    if (rc != MUSTER_OK || own->authorization == NULL)
        return rc;
    own->guard = muster_authorization_interceptor(own->authorization);
    own->rpc.interceptors = &own->guard;
    own->rpc.interceptor_count = 1;
    return MUSTER_OK;
}

static enum muster_rc open_with(struct service *service, const struct muster_cluster_spec *cluster,
                                struct muster_error *ret_error)
{
    const struct settings *settings = service->settings;
    const struct muster_coordination_server_options coordination = {
        .task_count = (uint32_t)settings->coordination_tasks,
        .heartbeat_timeout_ns = settings->heartbeat_timeout_ns};
    int32_t task = (int32_t)settings->task;
    const struct muster_server_options options = {
        .cluster = cluster,
        .job = settings->job,
        .task = settings->task == TASK_UNSAID ? NULL : &task,
        .port = (uint16_t)settings->port,
        .bind_host = settings->bind,
        .devices = task_of(service)->place.devices,
        .device_count = task_of(service)->place.device_count,
        .coordination = settings->coordination_tasks > 0 ? &coordination : NULL,
        .rpc = &task_of(service)->rpc,
    };
    struct task_server *own = task_of(service);
    enum muster_rc rc = open_guard(own, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_server_open(service->env, &options, &own->server, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_server_start(own->server, ret_error);
    if (rc == MUSTER_OK)
        own->address = *muster_server_address(own->server);
    return rc;
}

static enum muster_rc open_server(struct service *service, struct muster_error *ret_error)
{
    const struct settings *settings = service->settings;
    struct muster_cluster_spec *cluster = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (settings->cluster != NULL)
        rc = muster_cluster_spec_parse(service->env->mem, settings->cluster,
                                       strlen(settings->cluster), &cluster, ret_error);
    if (rc == MUSTER_OK)
        rc = open_with(service, cluster, ret_error);
    muster_cluster_spec_unref(cluster);
    return rc;
}

/* The address is copied while the server is open, as service.c prints it later. */
static const struct muster_address *address(struct service *service)
{
    return &task_of(service)->address;
}

static void tell_devices(struct service *service)
{
    const struct muster_server *server = task_of(service)->server;
    const char *name;

    MUSTER_LOG(service->env, INFO, "serving", "task", muster_server_name(server), "target",
               muster_server_target(server));
    for (size_t i = 0; (name = muster_server_device_name(server, i)) != NULL; i++)
        MUSTER_LOG(service->env, INFO, "device", "name", name);
}

static void on_stopped(struct muster_server *server)
{
    service_closed(muster_server_data(server));
}

static void close_server(struct service *service, uint64_t deadline_ns)
{
    muster_server_set_data(task_of(service)->server, service);
    muster_server_stop(task_of(service)->server, deadline_ns, on_stopped);
}

static void server_clean(struct service *service)
{
    muster_server_free(task_of(service)->server);
    muster_authorization_free(task_of(service)->authorization);
}

static const struct service_kind kind = {.name = "server",
                                         .address_option = "--bind",
                                         .port_option = "--port",
                                         .open = open_server,
                                         .address = address,
                                         .ready = tell_devices,
                                         .close = close_server,
                                         .clean = server_clean};

/* Before there is a service: a platform may take its time. False: *ret_exit says why not. */
static bool find_place(struct settings *settings, struct server_place *place, int *ret_exit)
{
    struct muster_error error = {.rc = MUSTER_OK};

    if (settings->devices != NULL &&
        server_place_add_devices(place, settings->devices, &error) != MUSTER_OK)
        *ret_exit = command_fail("server", &error);
    else if (settings->resolver == NULL)
        return true;
    else if (settings->cluster != NULL || settings->job != NULL || settings->task != TASK_UNSAID)
        *ret_exit =
            command_refuse(server_options.command,
                           "--cluster, --job and --task must not be given with --resolver %s, "
                           "which tells all three; leave them out (and MUSTER_CLUSTER)",
                           settings->resolver);
    else if (server_place_ask(place, settings->resolver, &error) != MUSTER_OK)
        *ret_exit = command_fail("server", &error);
    else {
        settings->cluster = place->cluster;
        settings->job = place->job;
        settings->task = (uint64_t)place->task;
        return true;
    }
    return false;
}

int command_server(int argc, char **argv)
{
    struct settings settings = {.task = TASK_UNSAID};
    struct task_server own = {.service = {.kind = &kind, .settings = &settings}};
    int code = EXIT_OK;

    if (!command_parse_all(&server_options, argc, argv, &settings, &code) ||
        !service_tls_check(server_options.command, &settings.tls, &code))
        return code;
    own.service.status = settings.status;
    if (find_place(&settings, &own.place, &code))
        code = service_run(&own.service, settings.log_level, settings.log_format);
    server_place_fini(&own.place);
    return code;
}
