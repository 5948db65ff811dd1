/* A task's server, the counterpart of tf.distribute.Server: one gRPC server with the worker
 * service, the health service and, if wanted, the coordination service. Opening checks what the
 * server is asked to be; starting runs a table of steps, each with its undo, so a start that fails
 * part-way leaves nothing behind. */
#include <muster/server.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>
#include <muster/trace.h>

#include "cluster/server/worker_service.h"

/* The accelerators of the largest hosts, several times over; GetStatus answers from arrays of this
 * size. */
#define DEVICES_MAX 64
#define STOPPED     "the server has stopped"

struct muster_server {
    struct muster_env *env;
    void *data;
    enum muster_server_state state;
    char name[160]; /* "/job:worker/replica:0/task:1" */
    char target[MUSTER_SERVER_TARGET_BYTES];
    char host[MUSTER_HOST_TEXT_BYTES]; /* the host in target */
    struct muster_address address;     /* to bind, then bound */
    struct muster_rpc_server_options rpc_options;
    bool has_coordination;
    struct muster_coordination_server_options coordination_options;
    struct muster_worker_device devices[DEVICES_MAX];
    size_t device_count;
    /* while started */
    struct muster_rpc_server *rpc_server;
    struct muster_rpc_health *health;
    struct muster_coordination_server *coordination;
    struct muster_worker_service worker;
    uint64_t stop_deadline_ns;
    muster_server_stop_fn *stopped;
    struct muster_task stopped_task;
};

/* A server serves once: a program that wants to serve again opens another one. */
static void server_move(struct muster_server *server, enum muster_server_state to)
{
    static const unsigned moves[] = {
        [MUSTER_SERVER_NEW] = 1u << MUSTER_SERVER_STARTED | 1u << MUSTER_SERVER_STOPPED,
        [MUSTER_SERVER_STARTED] = 1u << MUSTER_SERVER_STOPPING,
        [MUSTER_SERVER_STOPPING] = 1u << MUSTER_SERVER_STOPPED,
        [MUSTER_SERVER_STOPPED] = 1u << MUSTER_SERVER_STOPPED, /* stopped once more */
    };

    MUSTER_ASSERT((moves[server->state] >> to & 1u) != 0);
    server->state = to;
}

/* --- What it is asked to be --- */

static enum muster_rc find_job(const struct muster_server_options *options,
                               const struct muster_cluster_job **ret_job,
                               struct muster_error *error)
{
    const struct muster_cluster_spec *cluster = options->cluster;

    /* TensorFlow picks the only job and the only task by itself, and so does this. */
    if (options->job == NULL && cluster->job_count != 1)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "the cluster has %zu jobs: say which one this task is of (job)",
                                cluster->job_count);
    *ret_job =
        options->job == NULL ? cluster->jobs[0] : muster_cluster_spec_job(cluster, options->job);
    if (*ret_job == NULL)
        return muster_error_set(error, MUSTER_NOT_FOUND,
                                "job \"%s\" is not in the cluster (its first job is \"%s\")",
                                options->job, cluster->job_count > 0 ? cluster->jobs[0]->name : "");
    return MUSTER_OK;
}

static enum muster_rc find_task(const struct muster_server_options *options,
                                const struct muster_cluster_job *job,
                                const struct muster_cluster_task **ret_task,
                                struct muster_error *error)
{
    if (options->task == NULL && job->task_count != 1)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "job \"%s\" has %zu tasks: say which one this is (task)", job->name,
                                job->task_count);
    for (size_t i = 0; i < job->task_count; i++) {
        if (options->task == NULL || job->tasks[i].index == *options->task) {
            *ret_task = &job->tasks[i];
            return MUSTER_OK;
        }
    }
    return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                            "task %" PRId32 " is not in job \"%s\", which has %zu tasks",
                            *options->task, job->name, job->task_count);
}

/* Port 0 is a free one; everything else is as in an endpoint. */
static enum muster_rc split_address(const char *text, char host[MUSTER_HOST_TEXT_BYTES],
                                    uint16_t *ret_port, struct muster_error *error)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    unsigned long port;

    if (colon == NULL || colon[1] < '0' || colon[1] > '9')
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "this task's address \"%s\" has no port (host:port)", text);
    port = strtoul(colon + 1, &end, 10);
    if (*end != '\0' || port > UINT16_MAX)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "this task's address \"%s\" needs a port from 0 to 65535", text);
    if ((size_t)(colon - text) >= MUSTER_HOST_TEXT_BYTES)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "this task's address \"%s\" has too long a name", text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    *ret_port = (uint16_t)port;
    return MUSTER_OK;
}

static void set_target(struct muster_server *server)
{
    (void)snprintf(server->target, sizeof(server->target), "grpc://%s:%u", server->host,
                   server->address.port);
}

static enum muster_rc set_place(struct muster_server *server,
                                const struct muster_server_options *options, const char *text,
                                struct muster_error *error)
{
    char bind[MUSTER_HOST_TEXT_BYTES + 16];
    uint16_t port = 0;
    enum muster_rc rc = split_address(text, server->host, &port, error);

    if (rc != MUSTER_OK)
        return rc;
    if (options->port != 0)
        port = options->port;
    /* The address of the cluster is the one that others dial; the host to bind is this host's
     * affair, and by default all of its interfaces. */
    (void)snprintf(bind, sizeof(bind), "%s:%u",
                   options->bind_host != NULL ? options->bind_host : "0.0.0.0", port);
    rc = muster_address_parse_listen(bind, &server->address, error);
    set_target(server);
    return rc;
}

static enum muster_rc set_devices(struct muster_server *server,
                                  const struct muster_server_options *options,
                                  struct muster_error *error)
{
    /* A task without accelerators has one CPU, with the memory limit that TensorFlow reports for
     * its own (256 MiB). */
    static const struct muster_server_device cpu = {.type = "CPU", .memory_limit_bytes = 256 << 20};
    size_t count = options->device_count > 0 ? options->device_count : 1;
    char name[sizeof(server->name) + 64];
    bool has_description;

    if (count > DEVICES_MAX)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "a task has at most %d devices, not %zu", DEVICES_MAX, count);
    for (size_t i = 0; i < count; i++) {
        struct muster_worker_device *device = &server->devices[i];

        device->device = options->device_count > 0 ? options->devices[i] : cpu;
        (void)snprintf(name, sizeof(name), "%s/device:%s:%" PRIu32, server->name,
                       device->device.type, device->device.number);
        device->name = muster_mem_strdup(server->env->mem, name);
        device->device.type = muster_mem_strdup(server->env->mem, device->device.type);
        has_description = device->device.description != NULL;
        if (has_description)
            device->device.description =
                muster_mem_strdup(server->env->mem, device->device.description);
        /* The count rises before the check, so that muster_server_free also frees a device that is
         * only half copied. */
        server->device_count++;
        if (device->name == NULL || device->device.type == NULL ||
            (has_description && device->device.description == NULL))
            return muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the devices");
    }
    return MUSTER_OK;
}

/* tf.distribute.Server.create_local_server: a job "localhost" of one task. */
static enum muster_rc local_cluster(struct muster_env *env, struct muster_cluster_spec **ret_spec,
                                    struct muster_error *error)
{
    static const char text[] = "{\"localhost\": [\"localhost:0\"]}";

    return muster_cluster_spec_parse(env->mem, text, sizeof(text) - 1, ret_spec, error);
}

static enum muster_rc resolve_options(struct muster_server *server,
                                      const struct muster_server_options *options,
                                      struct muster_error *error)
{
    const struct muster_cluster_job *job = NULL;
    const struct muster_cluster_task *task = NULL;
    enum muster_rc rc;

    if (options->protocol != NULL && strcmp(options->protocol, "grpc") != 0)
        return muster_error_set(error, MUSTER_NOT_FOUND, "no server for protocol \"%s\"; use grpc",
                                options->protocol);
    rc = find_job(options, &job, error);
    if (rc == MUSTER_OK)
        rc = find_task(options, job, &task, error);
    if (rc != MUSTER_OK)
        return rc;
    (void)snprintf(server->name, sizeof(server->name), "/job:%s/replica:0/task:%" PRId32, job->name,
                   task->index);
    rc = set_place(server, options, task->address, error);
    if (rc == MUSTER_OK)
        rc = set_devices(server, options, error);
    if (options->rpc != NULL)
        server->rpc_options = *options->rpc;
    if (options->coordination != NULL) {
        server->has_coordination = true;
        server->coordination_options = *options->coordination;
    }
    return rc;
}

static void on_stopped_task(struct muster_task *task)
{
    struct muster_server *server = task->data;
    muster_server_stop_fn *stopped = server->stopped;

    server_move(server, MUSTER_SERVER_STOPPED);
    server->stopped = NULL;
    if (stopped != NULL)
        stopped(server);
}

enum muster_rc muster_server_open(struct muster_env *env,
                                  const struct muster_server_options *options,
                                  struct muster_server **ret_server, struct muster_error *ret_error)
{
    static const struct muster_server_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    struct muster_server_options own = *options;
    struct muster_cluster_spec *local = NULL;
    enum muster_rc rc = MUSTER_OK;

    if (server == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the server");
    server->env = env;
    server->worker.env = env;
    /* The incarnation tells this life of the task from the one before a restart. It is never 0,
     * which would mean not known. */
    server->worker.incarnation = muster_rng_next(env->rng) | 1;
    muster_task_init(&server->stopped_task, on_stopped_task, server);
    if (options->cluster == NULL) {
        rc = local_cluster(env, &local, ret_error);
        own.cluster = local;
    }
    if (rc == MUSTER_OK)
        rc = resolve_options(server, &own, ret_error);
    muster_cluster_spec_unref(local);
    if (rc != MUSTER_OK) {
        muster_server_free(server);
        return rc;
    }
    *ret_server = server;
    return MUSTER_OK;
}

void muster_server_free(struct muster_server *server)
{
    if (server == NULL)
        return;
    for (size_t i = 0; i < server->device_count; i++) {
        struct muster_worker_device *device = &server->devices[i];

        muster_mem_free(server->env->mem, device->name);
        muster_mem_free(server->env->mem, (void *)(uintptr_t)device->device.type);
        muster_mem_free(server->env->mem, (void *)(uintptr_t)device->device.description);
    }
    muster_task_cancel(&server->stopped_task);
    muster_worker_groups_free(server->worker.groups);
    muster_mem_free(server->env->mem, server);
}

/* --- Starting: each step, and how it is taken back --- */

static enum muster_rc open_rpc(struct muster_server *server, struct muster_error *error)
{
    enum muster_rc rc =
        muster_rpc_server_open(server->env, &server->rpc_options, &server->rpc_server);

    if (rc != MUSTER_OK)
        return muster_error_set(error, rc, "no memory for the server");
    muster_rpc_server_set_data(server->rpc_server, server);
    return MUSTER_OK;
}

static void close_coordination(struct muster_server *server)
{
    if (server->coordination != NULL)
        muster_coordination_server_close(server->coordination, 0, NULL);
    server->coordination = NULL;
}

static void on_rpc_closed(struct muster_rpc_server *rpc_server)
{
    struct muster_server *server = muster_rpc_server_data(rpc_server);

    server->rpc_server = NULL;
    close_coordination(server); /* no call is left that could ask it */
    muster_task_post(&server->stopped_task, server->env->loop);
}

static void on_abandoned(struct muster_rpc_server *rpc_server)
{
    (void)rpc_server; /* after a start that failed, nothing hangs on it any more */
}

static enum muster_rc add_worker(struct muster_server *server, struct muster_error *error)
{
    enum muster_rc rc;

    muster_worker_groups_free(server->worker.groups); /* left by a start that failed */
    server->worker.groups = NULL;
    rc = muster_worker_groups_new(server->env->mem, server->env->rng, &server->worker.groups);
    server->worker.devices = server->devices;
    server->worker.device_count = server->device_count;
    if (rc == MUSTER_OK)
        rc = muster_worker_service_add(&server->worker, server->rpc_server);
    return rc == MUSTER_OK ? rc : muster_error_set(error, rc, "no memory for the worker service");
}

static enum muster_rc add_health(struct muster_server *server, struct muster_error *error)
{
    enum muster_rc rc = muster_rpc_health_open(server->rpc_server, &server->health);

    return rc == MUSTER_OK ? rc : muster_error_set(error, rc, "no memory for the health service");
}

static enum muster_rc add_coordination(struct muster_server *server, struct muster_error *error)
{
    if (!server->has_coordination)
        return MUSTER_OK;
    server->coordination_options.rpc_server = server->rpc_server;
    return muster_coordination_server_open(server->env, &server->coordination_options,
                                           &server->coordination, error);
}

static enum muster_rc listen_there(struct muster_server *server, struct muster_error *error)
{
    enum muster_rc rc =
        muster_rpc_server_listen(server->rpc_server, &server->address, &server->address, error);

    set_target(server);
    return rc;
}

static void close_rpc(struct muster_server *server)
{
    bool is_stopping = server->state == MUSTER_SERVER_STOPPING;

    muster_rpc_server_close(server->rpc_server, server->stop_deadline_ns,
                            is_stopping ? on_rpc_closed : on_abandoned);
    if (!is_stopping)
        server->rpc_server = NULL;
}

static void end_worker(struct muster_server *server)
{
    muster_worker_service_end(&server->worker, MUSTER_CANCELLED, STOPPED);
}

static void end_coordination(struct muster_server *server)
{
    if (server->coordination == NULL)
        return;
    /* A stop drains: calls under way still reach the coordination service, which closes once the
     * rpc server has. */
    if (server->state == MUSTER_SERVER_STOPPING)
        muster_coordination_server_drain(server->coordination);
    else
        close_coordination(server);
}

/* The order is that of building up. Listening comes last, because a peer that connects must find
 * every service; undoing goes the other way. */
static const struct {
    enum muster_rc (*begin)(struct muster_server *server, struct muster_error *error);
    void (*undo)(struct muster_server *server); /* NULL: goes with the step before it */
} steps[] = {
    {open_rpc, close_rpc}, {add_worker, end_worker},
    {add_health, NULL},    {add_coordination, end_coordination},
    {listen_there, NULL},
};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void undo_start(struct muster_server *server, size_t count)
{
    MUSTER_ASSERT(count <= STEPS);
    while (count-- > 0) {
        if (steps[count].undo != NULL)
            steps[count].undo(server);
    }
}

enum muster_rc muster_server_start(struct muster_server *server, struct muster_error *ret_error)
{
    size_t done = 0;
    enum muster_rc rc = MUSTER_OK;

    if (server->state == MUSTER_SERVER_STARTED)
        return MUSTER_OK;
    if (server->state != MUSTER_SERVER_NEW)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s; open another one to serve again", STOPPED);
    while (done < STEPS && (rc = steps[done].begin(server, ret_error)) == MUSTER_OK)
        done++;
    if (rc != MUSTER_OK) {
        undo_start(server, done);
        return rc;
    }
    server_move(server, MUSTER_SERVER_STARTED);
    MUSTER_LOG(server->env, INFO, "server_started", "name", server->name, "target", server->target);
    return MUSTER_OK;
}

void muster_server_stop(struct muster_server *server, uint64_t deadline_ns,
                        muster_server_stop_fn *stopped)
{
    if (stopped != NULL)
        server->stopped = stopped;
    if (server->state == MUSTER_SERVER_STARTED) {
        server_move(server, MUSTER_SERVER_STOPPING);
        server->stop_deadline_ns = deadline_ns;
        undo_start(server, STEPS);
    } else if (server->state != MUSTER_SERVER_STOPPING) {
        server_move(server, MUSTER_SERVER_STOPPED);
        muster_task_post(&server->stopped_task, server->env->loop);
    }
}

/* --- Looking --- */

enum muster_server_state muster_server_state(const struct muster_server *server)
{
    return server->state;
}

const char *muster_server_target(const struct muster_server *server)
{
    return server->target;
}

const struct muster_address *muster_server_address(const struct muster_server *server)
{
    return &server->address;
}

const char *muster_server_name(const struct muster_server *server)
{
    return server->name;
}

uint64_t muster_server_incarnation(const struct muster_server *server)
{
    return server->worker.incarnation;
}

struct muster_rpc_server *muster_server_rpc_server(const struct muster_server *server)
{
    return server->rpc_server;
}

void muster_server_set_data(struct muster_server *server, void *data)
{
    server->data = data;
}

void *muster_server_data(const struct muster_server *server)
{
    return server->data;
}

void muster_server_abort_collectives(struct muster_server *server, enum muster_rc rc,
                                     const char *text)
{
    if (server->state == MUSTER_SERVER_STARTED)
        muster_worker_service_end(&server->worker, rc, text);
}

enum muster_rc muster_server_offer_start(struct muster_server_buffer *buffer,
                                         struct muster_server *server,
                                         muster_server_buffer_fn *on_taken)
{
    if (server->state != MUSTER_SERVER_STARTED)
        return MUSTER_FAILED_PRECONDITION;
    buffer->on_taken = on_taken;
    return muster_buffer_offer(&server->worker.buffers, buffer);
}
