/* Cases of kinds Server and create_local_server, as far as the product has what they ask: construction, target,
 * start, stop and connections. It has no ServerDef to show, no join, and no way to look at its own devices. */
#include "cases.h"

#include "fake_cloud.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <muster/server.h>

#define STOP_NS (5 * MUSTER_NS_PER_S)

struct server_case {
    struct case_run *run;
    struct muster_server *server;
    struct case_outcome *outcome;
    bool is_stopped;
};

/* The argument of the case, else the member of its ServerDef. */
static const json_t *argument_of(const struct case_run *run, const char *name)
{
    const json_t *given = case_argument(run->one, name);
    const json_t *def =
        json_object_get(case_argument(run->one, "server_or_cluster_def"), "server_def");

    return given != NULL ? given : json_object_get(def, name);
}

static const json_t *server_def_of(const struct case_run *run)
{
    return json_object_get(case_argument(run->one, "server_or_cluster_def"), "server_def");
}

static enum muster_rc read_server_cluster(struct case_run *run,
                                          struct muster_cluster_spec **ret_cluster,
                                          struct muster_error *ret_error)
{
    const json_t *def = server_def_of(run);
    json_t *wrapped;
    enum muster_rc rc;

    if (def == NULL)
        return case_read_cluster(run, case_argument(run->one, "server_or_cluster_def"), ret_cluster,
                                 ret_error);
    wrapped = json_pack("{s:O}", "cluster_def", json_object_get(def, "cluster"));
    rc = case_read_cluster(run, wrapped, ret_cluster, ret_error);
    json_decref(wrapped);
    return rc;
}

static void open_server(struct server_case *one, const struct muster_cluster_spec *cluster)
{
    const json_t *protocol = argument_of(one->run, "protocol");
    const json_t *index = argument_of(one->run, "task_index");
    const bool has_def = server_def_of(one->run) != NULL;
    int32_t task = (int32_t)json_integer_value(index);
    struct muster_server_options options = {
        .cluster = cluster,
        .job = case_text(argument_of(one->run, "job_name")),
        .task = index != NULL || has_def ? &task : NULL, /* a ServerDef has a number: 0 */
        .protocol = protocol != NULL ? case_text(protocol)
                    : has_def        ? ""
                                     : NULL,
        .bind_host = "127.0.0.1",
    };

    one->outcome->rc =
        case_read_port(argument_of(one->run, "port"), 0, &options.port, &one->outcome->error);
    if (one->outcome->rc == MUSTER_OK)
        one->outcome->rc =
            muster_server_open(one->run->env, &options, &one->server, &one->outcome->error);
    if (one->outcome->rc == MUSTER_OK && !json_is_false(case_argument(one->run->one, "start")))
        one->outcome->rc = muster_server_start(one->server, &one->outcome->error);
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
    struct fake_cloud *occupant = NULL;
    struct case_outcome outcome = {0};
    struct server_case one = {.run = run, .outcome = &outcome};

    if (!is_local)
        outcome.rc = read_server_cluster(run, &cluster, &outcome.error);
    if (outcome.rc == MUSTER_OK) {
        occupant = occupy_port(run, cluster);
        open_server(&one, cluster);
    }
    if (case_judge_construct(run, &outcome))
        for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++)
            make_server_call(&one, json_array_get(calls, i));
    if (one.server != NULL)
        stop_server(&one);
    muster_server_free(one.server);
    if (occupant != NULL)
        fake_cloud_close_wait(occupant);
    muster_cluster_spec_unref(cluster);
}
