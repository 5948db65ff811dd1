/* A task's server, the counterpart of tf.distribute.Server: what it is asked to be, its states, and those
 * who wait for its end. A protocol does the serving: gRPC, or one of the program's. */
#include <muster/server.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <muster/trace.h>

#include "cluster/server/server_grpc.h"

#define STOPPED "the server has stopped"

struct muster_server {
    struct muster_env *env;
    void *data;
    enum muster_server_state state;
    uint64_t incarnation;
    char name[160]; /* "/job:worker/replica:0/task:1" */
    char target[MUSTER_SERVER_TARGET_BYTES];
    struct muster_server_def *def;
    const struct muster_server_protocol *protocol; /* of the program; NULL: gRPC */
    void *impl;                                    /* of protocol */
    struct muster_server_grpc *grpc;               /* NULL: another protocol */
    muster_server_stop_fn *stopped;
    struct muster_task stopped_task;
    struct muster_list joins;
};

/* A server serves once: a program that wants to serve again opens another one. */
static void server_move(struct muster_server *server, enum muster_server_state to)
{
    static const unsigned moves[] = {
        [MUSTER_SERVER_NEW] = 1u << MUSTER_SERVER_STARTED | 1u << MUSTER_SERVER_STOPPING,
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

    /* A definition stands as it is. TensorFlow picks the only job and the only task of a cluster by
     * itself, and so does this. */
    if (options->job == NULL && options->def != NULL && options->cluster == options->def->cluster)
        return muster_error_set(error, MUSTER_INVALID_ARGUMENT,
                                "the definition of the server must name its job, got none");
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

/* tf.distribute.Server.create_local_server: a job "localhost" of one task. */
static enum muster_rc local_cluster(struct muster_env *env, struct muster_cluster_spec **ret_spec,
                                    struct muster_error *error)
{
    static const char text[] = "{\"localhost\": [\"localhost:0\"]}";

    return muster_cluster_spec_parse(env->mem, text, sizeof(text) - 1, ret_spec, error);
}

/* The fields of the options, then those of the def, then what TensorFlow takes. */
static void options_fill(struct muster_server_options *options, const int32_t *def_task)
{
    const struct muster_server_def *def = options->def;

    if (def != NULL) {
        if (options->cluster == NULL)
            options->cluster = def->cluster;
        if (options->job == NULL && def->job != NULL && def->job[0] != '\0')
            options->job = def->job;
        if (options->task == NULL)
            options->task = def_task;
        if (options->protocol == NULL)
            options->protocol = def->protocol != NULL ? def->protocol : "";
        if (options->port == 0)
            options->port = def->port;
    }
    if (options->protocol == NULL)
        options->protocol = "grpc";
}

/* Two packed messages, one after the other, are what protobuf merges. Gives. */
static enum muster_rc config_merge(struct muster_mem *mem,
                                   const struct muster_server_options *options,
                                   struct muster_bytes *ret_config)
{
    struct muster_bytes before = {.data = NULL};
    uint8_t *bytes;

    if (options->def != NULL)
        before = options->def->config;
    bytes = muster_mem_alloc(mem, before.size + options->config.size + 1);
    if (bytes == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (before.size > 0)
        memcpy(bytes, before.data, before.size);
    if (options->config.size > 0)
        memcpy(bytes + before.size, options->config.data, options->config.size);
    *ret_config = (struct muster_bytes){.data = bytes, .size = before.size + options->config.size};
    return MUSTER_OK;
}

static enum muster_rc def_make(struct muster_server *server,
                               const struct muster_server_options *options,
                               struct muster_error *error)
{
    const struct muster_cluster_job *job = NULL;
    const struct muster_cluster_task *task = NULL;
    struct muster_server_def def = {.cluster = options->cluster, .protocol = options->protocol};
    enum muster_rc rc = find_job(options, &job, error);

    if (rc == MUSTER_OK)
        rc = find_task(options, job, &task, error);
    if (rc != MUSTER_OK)
        return rc;
    def.job = job->name;
    def.task = task->index;
    def.port = options->port;
    if (options->def != NULL) {
        def.device_filters = options->def->device_filters;
        def.device_filter_count = options->def->device_filter_count;
    }
    rc = config_merge(server->env->mem, options, &def.config);
    if (rc == MUSTER_OK)
        rc = muster_server_def_new(server->env->mem, &def, &server->def);
    muster_mem_free(server->env->mem, (void *)(uintptr_t)def.config.data);
    if (rc != MUSTER_OK)
        return muster_error_set(error, rc, "no memory for the server");
    (void)snprintf(server->name, sizeof(server->name), "/job:%s/replica:0/task:%" PRId32, job->name,
                   task->index);
    return MUSTER_OK;
}

static enum muster_rc find_protocol(struct muster_server *server,
                                    const struct muster_server_options *options,
                                    struct muster_error *error)
{
    char names[160] = "grpc";

    if (strcmp(options->protocol, "grpc") == 0)
        return MUSTER_OK;
    for (size_t i = 0; i < options->protocol_count; i++) {
        size_t used = strlen(names);

        if (strcmp(options->protocol, options->protocols[i].name) == 0) {
            server->protocol = &options->protocols[i];
            return MUSTER_OK;
        }
        (void)snprintf(names + used, sizeof(names) - used, ", %s", options->protocols[i].name);
    }
    return muster_error_set(error, MUSTER_NOT_FOUND, "no server for protocol \"%s\"; there are: %s",
                            options->protocol, names);
}

/* --- The end --- */

static void join_end(struct muster_server_join *join, enum muster_rc rc)
{
    muster_list_remove(&join->node);
    muster_timer_stop(&join->timer);
    join->rc = rc;
    muster_task_post(&join->task, join->server->env->loop);
    join->server = NULL;
}

/* The callback may free the server: all that waits is unlinked before it. */
static void on_stopped_task(struct muster_task *task)
{
    struct muster_server *server = task->data;
    muster_server_stop_fn *stopped = server->stopped;

    server_move(server, MUSTER_SERVER_STOPPED);
    server->stopped = NULL;
    MUSTER_LIST_EACH_SAFE (&server->joins, join, struct muster_server_join, node)
        join_end(join, MUSTER_OK);
    if (stopped != NULL)
        stopped(server);
}

void muster_server_on_stopped(struct muster_server *server)
{
    MUSTER_ASSERT(server->state == MUSTER_SERVER_STOPPING);
    muster_task_post(&server->stopped_task, server->env->loop);
}

/* --- Opening --- */

static enum muster_rc protocol_open(struct muster_server *server,
                                    const struct muster_server_options *options,
                                    struct muster_error *error)
{
    const struct muster_server_grpc_place place = {.server = server,
                                                   .on_stopped = muster_server_on_stopped,
                                                   .name = server->name,
                                                   .incarnation = server->incarnation,
                                                   .def = server->def};

    if (server->protocol != NULL)
        return server->protocol->open(server->protocol, server->env, server, server->def,
                                      server->target, &server->impl, error);
    return muster_server_grpc_open(server->env, options, &place, &server->grpc, error);
}

static enum muster_rc server_fill(struct muster_server *server,
                                  const struct muster_server_options *given,
                                  struct muster_error *error)
{
    struct muster_server_options options = *given;
    const int32_t def_task = given->def != NULL ? given->def->task : 0;
    struct muster_cluster_spec *local = NULL;
    enum muster_rc rc = MUSTER_OK;

    options_fill(&options, &def_task);
    if (options.cluster == NULL && options.def == NULL) {
        rc = local_cluster(server->env, &local, error);
        options.cluster = local;
    } else if (options.cluster == NULL) {
        rc = muster_error_set(error, MUSTER_INVALID_ARGUMENT, "the ServerDef has no cluster");
    }
    if (rc == MUSTER_OK)
        rc = find_protocol(server, &options, error);
    if (rc == MUSTER_OK)
        rc = def_make(server, &options, error);
    if (rc == MUSTER_OK)
        rc = protocol_open(server, &options, error);
    muster_cluster_spec_unref(local);
    return rc;
}

enum muster_rc muster_server_open(struct muster_env *env,
                                  const struct muster_server_options *options,
                                  struct muster_server **ret_server, struct muster_error *ret_error)
{
    static const struct muster_server_options none = {0};
    struct muster_server *server = muster_mem_alloc_zero(env->mem, 1, sizeof(*server));
    enum muster_rc rc;

    if (server == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the server");
    server->env = env;
    /* The incarnation tells this life of the task from the one before a restart. It is never 0,
     * which would mean not known. */
    server->incarnation = muster_rng_next(env->rng) | 1;
    muster_list_init(&server->joins);
    muster_task_init(&server->stopped_task, on_stopped_task, server);
    rc = server_fill(server, options != NULL ? options : &none, ret_error);
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
    MUSTER_ASSERT(muster_list_is_empty(&server->joins));
    if (server->impl != NULL)
        server->protocol->free(server->impl);
    muster_server_grpc_free(server->grpc);
    muster_task_cancel(&server->stopped_task);
    muster_server_def_free(server->def);
    muster_mem_free(server->env->mem, server);
}

/* --- Start, stop, join --- */

enum muster_rc muster_server_start(struct muster_server *server, struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (server->state == MUSTER_SERVER_STARTED)
        return MUSTER_OK;
    if (server->state != MUSTER_SERVER_NEW)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s; open another one to serve again", STOPPED);
    rc = server->grpc != NULL ? muster_server_grpc_start(server->grpc, ret_error)
                              : server->protocol->start(server->impl, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    server_move(server, MUSTER_SERVER_STARTED);
    MUSTER_LOG(server->env, INFO, "server_started", "name", server->name, "target",
               muster_server_target(server));
    return MUSTER_OK;
}

void muster_server_stop(struct muster_server *server, uint64_t deadline_ns,
                        muster_server_stop_fn *stopped)
{
    if (stopped != NULL)
        server->stopped = stopped;
    if (server->state == MUSTER_SERVER_STOPPED) {
        muster_task_post(&server->stopped_task, server->env->loop);
    } else if (server->state != MUSTER_SERVER_STOPPING) {
        server_move(server, MUSTER_SERVER_STOPPING);
        if (server->grpc != NULL)
            muster_server_grpc_stop(server->grpc, deadline_ns);
        else
            server->protocol->stop(server->impl, deadline_ns);
    }
}

static void on_join_task(struct muster_task *task)
{
    struct muster_server_join *join = task->data;

    join->done(join, join->rc);
}

static void on_join_deadline(struct muster_timer *timer)
{
    join_end(timer->data, MUSTER_DEADLINE_EXCEEDED);
}

void muster_server_join_start(struct muster_server_join *join, struct muster_server *server,
                              uint64_t deadline_ns, muster_server_join_fn *done)
{
    join->done = done;
    join->server = server;
    muster_task_init(&join->task, on_join_task, join);
    muster_timer_init(&join->timer, on_join_deadline, join);
    muster_list_append(&server->joins, &join->node);
    if (server->state == MUSTER_SERVER_STOPPED) {
        join_end(join, MUSTER_OK);
        return;
    }
    muster_timer_start(&join->timer, server->env->loop, deadline_ns);
    if (server->state == MUSTER_SERVER_NEW)
        muster_server_stop(server, muster_loop_now_ns(server->env->loop), NULL);
}

void muster_server_join_cancel(struct muster_server_join *join)
{
    if (join->server != NULL)
        join_end(join, MUSTER_CANCELLED);
}

/* --- Looking --- */

enum muster_server_state muster_server_state(const struct muster_server *server)
{
    return server->state;
}

const struct muster_server_def *muster_server_definition(const struct muster_server *server)
{
    return server->def;
}

const char *muster_server_target(const struct muster_server *server)
{
    return server->grpc != NULL ? muster_server_grpc_target(server->grpc) : server->target;
}

const struct muster_address *muster_server_address(const struct muster_server *server)
{
    static const struct muster_address none = {.family = MUSTER_ADDRESS_NONE};

    return server->grpc != NULL ? muster_server_grpc_address(server->grpc) : &none;
}

const char *muster_server_device_name(const struct muster_server *server, size_t i)
{
    return server->grpc != NULL ? muster_server_grpc_device_name(server->grpc, i) : NULL;
}

const char *muster_server_name(const struct muster_server *server)
{
    return server->name;
}

uint64_t muster_server_incarnation(const struct muster_server *server)
{
    return server->incarnation;
}

struct muster_rpc_server *muster_server_rpc_server(const struct muster_server *server)
{
    return server->grpc != NULL ? muster_server_grpc_rpc_server(server->grpc) : NULL;
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
    if (server->state == MUSTER_SERVER_STARTED && server->grpc != NULL)
        muster_worker_service_end(muster_server_grpc_worker(server->grpc), rc, text);
}

enum muster_rc muster_server_offer_start(struct muster_server_buffer *buffer,
                                         struct muster_server *server,
                                         muster_server_buffer_fn *on_taken)
{
    if (server->state != MUSTER_SERVER_STARTED || server->grpc == NULL)
        return MUSTER_FAILED_PRECONDITION;
    buffer->on_taken = on_taken;
    return muster_buffer_offer(&muster_server_grpc_worker(server->grpc)->buffers, buffer);
}
