/* Cases of kinds Server and create_local_server. */
#include "cases.h"

#include "fake_cloud.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <muster/server.h>

#define STOP_NS (5 * MUSTER_NS_PER_S)

struct server_case {
    struct case_run *run;
    struct muster_server *server;
    struct case_outcome *outcome;
    const json_t *call; /* the one under way */
    bool is_stopped;
};

static const json_t *server_def_of(const struct case_run *run)
{
    return json_object_get(case_argument(run->one, "server_or_cluster_def"), "server_def");
}

/* The definition of the case, as it comes off the wire. Gives. */
static enum muster_rc def_read(struct case_run *run, struct muster_server_def **ret_def,
                               struct muster_error *ret_error)
{
    const json_t *given = server_def_of(run), *port = json_object_get(given, "port");
    json_t *wrapped = json_pack("{s:O}", "cluster_def", json_object_get(given, "cluster"));
    struct muster_mem *mem = run->env->mem;
    struct muster_cluster_spec *cluster = NULL;
    struct muster_server_def def = {
        .job = case_text(json_object_get(given, "job_name")),
        .task = (int32_t)json_integer_value(json_object_get(given, "task_index")),
        .protocol = case_text(json_object_get(given, "protocol"))};
    void *bytes = NULL;
    size_t size = 0;
    enum muster_rc rc = case_read_cluster(run, wrapped, &cluster, ret_error);

    def.cluster = cluster;
    if (rc == MUSTER_OK && (!json_is_integer(port) || json_integer_value(port) != 0))
        rc = case_read_port(port, 0, &def.port, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_server_def_pack(&def, mem, &bytes, &size);
    if (rc == MUSTER_OK)
        rc = muster_server_def_unpack(mem, bytes, size, ret_def, ret_error);
    muster_mem_free(mem, bytes);
    muster_cluster_spec_unref(cluster);
    json_decref(wrapped);
    return rc;
}

/* The server never reads its config: its JSON text stands for the message. */
static void open_server(struct server_case *one, const struct muster_cluster_spec *cluster,
                        const struct muster_server_def *def)
{
    const json_t *index = case_argument(one->run->one, "task_index");
    const json_t *config = case_argument(one->run->one, "config");
    int32_t task = (int32_t)json_integer_value(index);
    char *text = config != NULL ? json_dumps(config, JSON_SORT_KEYS) : NULL;
    const struct muster_server_options options = {
        .def = def,
        .cluster = cluster,
        .job = case_text(case_argument(one->run->one, "job_name")),
        .task = index != NULL ? &task : NULL,
        .protocol = case_text(case_argument(one->run->one, "protocol")),
        .config = {.data = text, .size = text != NULL ? strlen(text) : 0},
        .bind_host = "127.0.0.1",
    };

    one->outcome->rc =
        muster_server_open(one->run->env, &options, &one->server, &one->outcome->error);
    if (one->outcome->rc == MUSTER_OK && !json_is_false(case_argument(one->run->one, "start")))
        one->outcome->rc = muster_server_start(one->server, &one->outcome->error);
    free(text);
}

static void on_stopped(struct muster_server *server)
{
    *(bool *)muster_server_data(server) = true;
}

static void stop_server(struct server_case *one)
{
    struct muster_loop *loop = one->run->env->loop;

    one->is_stopped = false;
    muster_server_set_data(one->server, &one->is_stopped);
    muster_server_stop(one->server, muster_loop_after_ns(loop, STOP_NS), on_stopped);
    while (!one->is_stopped && muster_server_state(one->server) != MUSTER_SERVER_STOPPED)
        muster_loop_turn(loop, UINT64_MAX);
}

/* --- calls --- */

/* A port is text where the case has it as a placeholder. */
static json_t *port_value(const struct server_case *one, uint16_t port)
{
    const json_t *expected =
        json_object_get(json_object_get(json_object_get(one->call, "expect"), "value"), "port");
    char text[8];

    if (!json_is_string(expected))
        return json_integer(port);
    snprintf(text, sizeof(text), "%u", port);
    return json_string(text);
}

static void call_server_def(struct server_case *one)
{
    const struct muster_server_def *def = muster_server_definition(one->server);

    one->outcome->value =
        json_pack("{s:o, s:s, s:i, s:s, s:o}", "cluster", case_cluster_def(def->cluster),
                  "job_name", def->job, "task_index", (int)def->task, "protocol", def->protocol,
                  "port", port_value(one, def->port));
    if (def->config.size > 0)
        json_object_set_new(one->outcome->value, "default_session_config",
                            json_loadb(def->config.data, def->config.size, 0, NULL));
}

static void call_devices(struct server_case *one)
{
    const char *name;

    one->outcome->value = json_array();
    for (size_t i = 0; (name = muster_server_device_name(one->server, i)) != NULL; i++)
        json_array_append_new(one->outcome->value, json_string(name));
}

static void on_joined(struct muster_server_join *join, enum muster_rc rc)
{
    *(int *)join->data = (int)rc;
}

static void call_join_returns(struct server_case *one)
{
    const json_t *seconds = case_argument(one->call, "within_s");
    struct muster_loop *loop = one->run->env->loop;
    int joined = -1;
    struct muster_server_join join = {.data = &joined};

    muster_server_join_start(
        &join, one->server,
        muster_loop_after_ns(loop, (uint64_t)json_integer_value(seconds) * MUSTER_NS_PER_S),
        on_joined);
    while (joined < 0)
        muster_loop_turn(loop, UINT64_MAX);
    one->outcome->value = json_boolean(joined == MUSTER_OK);
}

static void call_target(struct server_case *one)
{
    one->outcome->value = json_string(muster_server_target(one->server));
}

static void call_start(struct server_case *one)
{
    one->outcome->rc = muster_server_start(one->server, &one->outcome->error);
}

static void call_accepts(struct server_case *one)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_port = htons(muster_server_address(one->server)->port);
    one->outcome->value =
        json_boolean(fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0);
    if (fd >= 0)
        close(fd);
}

static const struct {
    const char *name;
    void (*make)(struct server_case *one);
} server_calls[] = {
    {"server_def", call_server_def},
    {"devices", call_devices},
    {"join_returns", call_join_returns},
    {"target", call_target},
    {"start", call_start},
    {"stop", stop_server},
    {"accepts_connection", call_accepts},
};

/* The call with {{bound}} replaced by the port, where there is one. Gives. */
static json_t *fill_bound(const struct server_case *one, const json_t *call)
{
    const char *value =
        json_string_value(json_object_get(json_object_get(call, "expect"), "value"));
    const char *mark = value != NULL ? strstr(value, "{{bound}}") : NULL;
    uint16_t port = muster_server_address(one->server)->port;
    json_t *filled = json_deep_copy(call);
    char text[MUSTER_SERVER_TARGET_BYTES];

    if (mark == NULL || port == 0)
        return filled;
    snprintf(text, sizeof(text), "%.*s%u%s", (int)(mark - value), value, port,
             mark + strlen("{{bound}}"));
    json_object_set_new(json_object_get(filled, "expect"), "value", json_string(text));
    return filled;
}

static void make_server_call(struct server_case *one, const json_t *call)
{
    const char *name = case_text(json_object_get(call, "call"));
    struct case_outcome outcome = {0};
    json_t *filled;

    one->outcome = &outcome;
    one->call = call;
    for (size_t i = 0; i < sizeof(server_calls) / sizeof(server_calls[0]); i++) {
        if (name == NULL || strcmp(server_calls[i].name, name) != 0)
            continue;
        server_calls[i].make(one);
        filled = fill_bound(one, call);
        case_judge(one->run, name, filled, &outcome);
        json_decref(filled);
        return;
    }
    case_fail(one->run, "call %s: not built", name != NULL ? name : "?");
}

/* Something else listens where the case's only task would. */
static struct fake_cloud *occupy_port(struct case_run *run,
                                      const struct muster_cluster_spec *cluster)
{
    struct fake_cloud_options options = {.listen = NULL};
    struct fake_cloud *cloud = NULL;
    char listen[64];

    if (!json_is_true(json_object_get(run->one, "occupied")))
        return NULL;
    snprintf(listen, sizeof(listen), "127.0.0.1%s",
             strrchr(cluster->defs[0].tasks[0].address, ':'));
    options.listen = listen;
    if (fake_cloud_open(run->env, &options, &cloud, NULL) != MUSTER_OK)
        case_fail(run, "the port cannot be occupied");
    return cloud;
}

void case_server(struct case_run *run)
{
    const bool is_local = strcmp(case_text(json_object_get(run->one, "kind")), "Server") != 0;
    const json_t *calls = case_calls(run);
    struct muster_cluster_spec *cluster = NULL;
    struct muster_server_def *def = NULL;
    struct fake_cloud *occupant = NULL;
    struct case_outcome outcome = {0};
    struct server_case one = {.run = run, .outcome = &outcome};

    if (server_def_of(run) != NULL)
        outcome.rc = def_read(run, &def, &outcome.error);
    else if (!is_local)
        outcome.rc = case_read_cluster(run, case_argument(run->one, "server_or_cluster_def"),
                                       &cluster, &outcome.error);
    if (outcome.rc == MUSTER_OK) {
        occupant = occupy_port(run, cluster);
        open_server(&one, cluster, def);
    }
    if (case_judge_construct(run, &outcome))
        for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++)
            make_server_call(&one, json_array_get(calls, i));
    if (one.server != NULL)
        stop_server(&one);
    muster_server_free(one.server);
    if (occupant != NULL)
        fake_cloud_close_wait(occupant);
    muster_server_def_free(def);
    muster_cluster_spec_unref(cluster);
}
