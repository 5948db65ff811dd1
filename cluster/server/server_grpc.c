/* A task's server over gRPC. Opening runs a table of steps, each with its undo, so an open that fails
 * part-way leaves nothing behind; the last of them binds, and starting lets clients in. */
#include "cluster/server/server_grpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The accelerators of the largest hosts, several times over; GetStatus answers from arrays of this
 * size. */
#define DEVICES_MAX 64
#define STOPPED     "the server has stopped"

struct muster_server_grpc {
    struct muster_env *env;
    struct muster_server *server;
    void (*on_stopped)(struct muster_server *server);
    char name[160]; /* "/job:worker/replica:0/task:1" */
    char target[MUSTER_SERVER_TARGET_BYTES];
    char host[MUSTER_HOST_TEXT_BYTES]; /* the host in target */
    struct muster_address address;     /* to bind, then bound */
    struct muster_rpc_server_options rpc_options;
    bool has_coordination, is_stopping;
    struct muster_coordination_server_options coordination_options;
    struct muster_worker_device devices[DEVICES_MAX];
    size_t device_count;
    /* until stopped */
    struct muster_rpc_server *rpc_server;
    struct muster_rpc_health *health;
    struct muster_coordination_server *coordination;
    struct muster_worker_service worker;
    uint64_t stop_deadline_ns;
};

/* --- What it is asked to be --- */

/* Port 0 is a free one; everything else is as in an endpoint. Source: TensorFlow's ValidateHostPortPair. */
static enum muster_rc split_address(const char *job, const struct muster_cluster_task *task,
                                    char host[MUSTER_HOST_TEXT_BYTES], uint16_t *ret_port,
                                    struct muster_error *error)
{
    const char *text = task->address, *colon = strrchr(text, ':');
    size_t host_bytes = colon != NULL ? (size_t)(colon - text) : 0;
    char *end = NULL;
    unsigned long port = 0;

    if (colon != NULL && colon[1] >= '0' && colon[1] <= '9')
        port = strtoul(colon + 1, &end, 10);
    if (end == NULL || *end != '\0' || port > UINT16_MAX || memchr(text, '/', host_bytes) != NULL)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "the address of %s:%" PRId32
                                " must be HOST:PORT with a port from 0 to 65535, got \"%.100s\"",
                                job, task->index, text);
    if (host_bytes >= MUSTER_HOST_TEXT_BYTES)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "the host in the address of %s:%" PRId32
                                " must be shorter than %d bytes, got \"%.100s...\"",
                                job, task->index, MUSTER_HOST_TEXT_BYTES, text);
    memcpy(host, text, host_bytes);
    host[host_bytes] = '\0';
    *ret_port = (uint16_t)port;
    return MUSTER_OK;
}

/* A peer that nobody could dial is told at the start, not by a call that fails hours later. */
static enum muster_rc check_cluster(const struct muster_cluster_spec *cluster,
                                    struct muster_error *error)
{
    char host[MUSTER_HOST_TEXT_BYTES];
    enum muster_rc rc = MUSTER_OK;
    uint16_t port;

    for (size_t i = 0; rc == MUSTER_OK && i < cluster->job_count; i++)
        for (size_t k = 0; rc == MUSTER_OK && k < cluster->jobs[i]->task_count; k++)
            rc = split_address(cluster->jobs[i]->name, &cluster->jobs[i]->tasks[k], host, &port,
                               error);
    return rc;
}

static void set_target(struct muster_server_grpc *grpc)
{
    (void)snprintf(grpc->target, sizeof(grpc->target), "grpc://%s:%u", grpc->host,
                   grpc->address.port);
}

/* The address of the cluster is the one that others dial; the host to bind is this host's affair, and
 * by default all of its interfaces. */
static enum muster_rc set_place(struct muster_server_grpc *grpc,
                                const struct muster_server_options *options,
                                const struct muster_server_def *def, struct muster_error *error)
{
    const struct muster_cluster_task own = {
        .index = def->task,
        .address =
            muster_cluster_job_address(muster_cluster_spec_job(def->cluster, def->job), def->task)};
    char bind[MUSTER_HOST_TEXT_BYTES + 16];
    uint16_t port = 0;
    enum muster_rc rc = check_cluster(def->cluster, error);

    if (rc == MUSTER_OK)
        rc = split_address(def->job, &own, grpc->host, &port, error);
    if (rc != MUSTER_OK)
        return rc;
    if (grpc->host[0] == '\0')
        (void)snprintf(grpc->host, sizeof(grpc->host), "localhost");
    if (def->port != 0)
        port = def->port;
    (void)snprintf(bind, sizeof(bind), "%s:%u",
                   options->bind_host != NULL ? options->bind_host : "0.0.0.0", port);
    return muster_address_parse_listen(bind, &grpc->address, error);
}

static enum muster_rc set_devices(struct muster_server_grpc *grpc,
                                  const struct muster_server_options *options,
                                  struct muster_error *error)
{
    /* A task without accelerators has one CPU, with the memory limit that TensorFlow reports for
     * its own (256 MiB). */
    static const struct muster_server_device cpu = {.type = "CPU", .memory_limit_bytes = 256 << 20};
    size_t count = options->device_count > 0 ? options->device_count : 1;
    char name[sizeof(grpc->name) + 64];
    bool has_description;

    if (count > DEVICES_MAX)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "a task has at most %d devices, not %zu", DEVICES_MAX, count);
    for (size_t i = 0; i < count; i++) {
        struct muster_worker_device *device = &grpc->devices[i];

        device->device = options->device_count > 0 ? options->devices[i] : cpu;
        (void)snprintf(name, sizeof(name), "%s/device:%s:%" PRIu32, grpc->name, device->device.type,
                       device->device.number);
        device->name = muster_mem_strdup(grpc->env->mem, name);
        device->device.type = muster_mem_strdup(grpc->env->mem, device->device.type);
        has_description = device->device.description != NULL;
        if (has_description)
            device->device.description =
                muster_mem_strdup(grpc->env->mem, device->device.description);
        /* The count rises before the check, so that muster_server_grpc_free also frees a device that is
         * only half copied. */
        grpc->device_count++;
        if (device->name == NULL || device->device.type == NULL ||
            (has_description && device->device.description == NULL))
            return muster_error_set(error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the devices");
    }
    return MUSTER_OK;
}

/* --- Opening: each step, and how it is taken back --- */

static enum muster_rc open_rpc(struct muster_server_grpc *grpc, struct muster_error *error)
{
    enum muster_rc rc = muster_rpc_server_open(grpc->env, &grpc->rpc_options, &grpc->rpc_server);

    if (rc != MUSTER_OK)
        return muster_error_set(error, rc, "no memory for the server");
    muster_rpc_server_set_data(grpc->rpc_server, grpc);
    return MUSTER_OK;
}

static void close_coordination(struct muster_server_grpc *grpc)
{
    if (grpc->coordination != NULL)
        muster_coordination_server_close(grpc->coordination, 0, NULL);
    grpc->coordination = NULL;
}

static void on_rpc_closed(struct muster_rpc_server *rpc_server)
{
    struct muster_server_grpc *grpc = muster_rpc_server_data(rpc_server);

    grpc->rpc_server = NULL;
    close_coordination(grpc); /* no call is left that could ask it */
    grpc->on_stopped(grpc->server);
}

static void on_abandoned(struct muster_rpc_server *rpc_server)
{
    (void)rpc_server; /* nothing hangs on it any more */
}

static enum muster_rc add_worker(struct muster_server_grpc *grpc, struct muster_error *error)
{
    enum muster_rc rc =
        muster_worker_groups_new(grpc->env->mem, grpc->env->rng, &grpc->worker.groups);

    grpc->worker.devices = grpc->devices;
    grpc->worker.device_count = grpc->device_count;
    if (rc == MUSTER_OK)
        rc = muster_worker_service_add(&grpc->worker, grpc->rpc_server);
    return rc == MUSTER_OK ? rc : muster_error_set(error, rc, "no memory for the worker service");
}

static enum muster_rc add_health(struct muster_server_grpc *grpc, struct muster_error *error)
{
    enum muster_rc rc = muster_rpc_health_open(grpc->rpc_server, &grpc->health);

    return rc == MUSTER_OK ? rc : muster_error_set(error, rc, "no memory for the health service");
}

static enum muster_rc add_coordination(struct muster_server_grpc *grpc, struct muster_error *error)
{
    if (!grpc->has_coordination)
        return MUSTER_OK;
    grpc->coordination_options.rpc_server = grpc->rpc_server;
    return muster_coordination_server_open(grpc->env, &grpc->coordination_options,
                                           &grpc->coordination, error);
}

static enum muster_rc bind_held(struct muster_server_grpc *grpc, struct muster_error *error)
{
    enum muster_rc rc;

    muster_rpc_server_hold(grpc->rpc_server, true);
    rc = muster_rpc_server_listen(grpc->rpc_server, &grpc->address, &grpc->address, error);
    set_target(grpc);
    return rc;
}

static void close_rpc(struct muster_server_grpc *grpc)
{
    struct muster_rpc_server *rpc_server = grpc->rpc_server;

    if (!grpc->is_stopping)
        grpc->rpc_server = NULL;
    muster_rpc_server_close(rpc_server, grpc->stop_deadline_ns,
                            grpc->is_stopping ? on_rpc_closed : on_abandoned);
}

static void end_worker(struct muster_server_grpc *grpc)
{
    muster_worker_service_end(&grpc->worker, MUSTER_CANCELLED, STOPPED);
}

static void end_coordination(struct muster_server_grpc *grpc)
{
    if (grpc->coordination == NULL)
        return;
    /* A stop drains: calls under way still reach the coordination service, which closes once the
     * rpc server has. */
    if (grpc->is_stopping)
        muster_coordination_server_drain(grpc->coordination);
    else
        close_coordination(grpc);
}

/* The order is that of building up. Binding comes last, because a peer that connects must find
 * every service; undoing goes the other way. */
static const struct {
    enum muster_rc (*begin)(struct muster_server_grpc *grpc, struct muster_error *error);
    void (*undo)(struct muster_server_grpc *grpc); /* NULL: goes with the step before it */
} steps[] = {
    {open_rpc, close_rpc}, {add_worker, end_worker},
    {add_health, NULL},    {add_coordination, end_coordination},
    {bind_held, NULL},
};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void undo_steps(struct muster_server_grpc *grpc, size_t count)
{
    MUSTER_ASSERT(count <= STEPS);
    while (count-- > 0) {
        if (steps[count].undo != NULL)
            steps[count].undo(grpc);
    }
}

static enum muster_rc do_steps(struct muster_server_grpc *grpc, struct muster_error *error)
{
    size_t done = 0;
    enum muster_rc rc = MUSTER_OK;

    while (done < STEPS && (rc = steps[done].begin(grpc, error)) == MUSTER_OK)
        done++;
    if (rc != MUSTER_OK)
        undo_steps(grpc, done);
    return rc;
}

enum muster_rc muster_server_grpc_open(struct muster_env *env,
                                       const struct muster_server_options *options,
                                       const struct muster_server_grpc_place *place,
                                       struct muster_server_grpc **ret_grpc,
                                       struct muster_error *ret_error)
{
    struct muster_server_grpc *grpc = muster_mem_alloc_zero(env->mem, 1, sizeof(*grpc));
    enum muster_rc rc;

    if (grpc == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the server");
    grpc->env = env;
    grpc->server = place->server;
    grpc->on_stopped = place->on_stopped;
    grpc->worker.env = env;
    grpc->worker.incarnation = place->incarnation;
    (void)snprintf(grpc->name, sizeof(grpc->name), "%s", place->name);
    if (options->rpc != NULL)
        grpc->rpc_options = *options->rpc;
    grpc->has_coordination = options->coordination != NULL;
    if (grpc->has_coordination)
        grpc->coordination_options = *options->coordination;
    rc = set_place(grpc, options, place->def, ret_error);
    if (rc == MUSTER_OK)
        rc = set_devices(grpc, options, ret_error);
    if (rc == MUSTER_OK)
        rc = do_steps(grpc, ret_error);
    if (rc != MUSTER_OK) {
        muster_server_grpc_free(grpc);
        return rc;
    }
    *ret_grpc = grpc;
    return MUSTER_OK;
}

enum muster_rc muster_server_grpc_start(struct muster_server_grpc *grpc,
                                        struct muster_error *ret_error)
{
    (void)ret_error;
    muster_rpc_server_hold(grpc->rpc_server, false);
    return MUSTER_OK;
}

void muster_server_grpc_stop(struct muster_server_grpc *grpc, uint64_t deadline_ns)
{
    grpc->is_stopping = true;
    grpc->stop_deadline_ns = deadline_ns;
    undo_steps(grpc, STEPS);
}

void muster_server_grpc_free(struct muster_server_grpc *grpc)
{
    if (grpc == NULL)
        return;
    if (grpc->rpc_server != NULL)
        undo_steps(grpc, STEPS);
    for (size_t i = 0; i < grpc->device_count; i++) {
        struct muster_worker_device *device = &grpc->devices[i];

        muster_mem_free(grpc->env->mem, device->name);
        muster_mem_free(grpc->env->mem, (void *)(uintptr_t)device->device.type);
        muster_mem_free(grpc->env->mem, (void *)(uintptr_t)device->device.description);
    }
    muster_worker_groups_free(grpc->worker.groups);
    muster_mem_free(grpc->env->mem, grpc);
}

/* --- Looking --- */

const char *muster_server_grpc_target(const struct muster_server_grpc *grpc)
{
    return grpc->target;
}

const struct muster_address *muster_server_grpc_address(const struct muster_server_grpc *grpc)
{
    return &grpc->address;
}

const char *muster_server_grpc_device_name(const struct muster_server_grpc *grpc, size_t i)
{
    return i < grpc->device_count ? grpc->devices[i].name : NULL;
}

struct muster_rpc_server *muster_server_grpc_rpc_server(const struct muster_server_grpc *grpc)
{
    return grpc->rpc_server;
}

struct muster_worker_service *muster_server_grpc_worker(struct muster_server_grpc *grpc)
{
    return &grpc->worker;
}
