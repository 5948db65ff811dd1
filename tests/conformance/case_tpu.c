/* Cases of the TPU resolver and of the plain TPU client. */
#include "cases.h"

#include <muster/tpu.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ANSWER_WITHIN_NS (30 * MUSTER_NS_PER_S)

/* One query, waited for. */

static void on_query(struct muster_tpu_query *query, enum muster_rc rc)
{
    (void)rc;
    *(bool *)query->data = true;
}

static enum muster_rc ask_tpu(struct case_run *run, struct muster_tpu_client *client,
                              struct muster_tpu_query *query, struct muster_error *ret_error)
{
    bool is_done = false;
    enum muster_rc rc;

    query->data = &is_done;
    query->deadline_ns = muster_loop_after_ns(run->env->loop, ANSWER_WITHIN_NS);
    rc = muster_tpu_query_start(query, client, on_query);
    while (rc == MUSTER_OK && !is_done)
        muster_loop_turn(run->env->loop, UINT64_MAX);
    if (rc == MUSTER_OK)
        rc = query->rc;
    *ret_error = query->error;
    return rc;
}

static struct muster_tpu_node *ask_node(struct case_call *call)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};

    call->outcome->rc = ask_tpu(call->run, muster_tpu_resolver_client(call->resolver), &query,
                                &call->outcome->error);
    return query.node;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : NULL;
}

/* Calls. */

static void call_state(struct case_call *call)
{
    struct muster_tpu_node *node = ask_node(call);

    if (node != NULL)
        call->outcome->value = text_or_null(node->state);
    muster_tpu_node_unref(node);
}

static void call_health(struct case_call *call)
{
    struct muster_tpu_node *node = ask_node(call);

    if (node != NULL)
        call->outcome->value = text_or_null(node->health);
    muster_tpu_node_unref(node);
}

static void call_accelerator_type(struct case_call *call)
{
    struct muster_tpu_node *node = ask_node(call);

    if (node != NULL)
        call->outcome->value = text_or_null(node->accelerator_type);
    muster_tpu_node_unref(node);
}

static void call_symptoms(struct case_call *call)
{
    struct muster_tpu_node *node = ask_node(call);

    if (node != NULL && node->has_symptoms)
        call->outcome->value = json_array();
    for (size_t i = 0; node != NULL && i < node->symptom_count; i++)
        json_array_append_new(
            call->outcome->value,
            json_pack("{s:s, s:s, s:s, s:s}", "symptomType", node->symptoms[i].type, "createTime",
                      node->symptoms[i].create_time, "workerId", node->symptoms[i].worker_id,
                      "details", node->symptoms[i].details));
    muster_tpu_node_unref(node);
}

/* With an API ports are numbers, without it texts, as TensorFlow gives them. */
static void call_network_endpoints(struct case_call *call)
{
    struct muster_tpu_client *client = muster_tpu_resolver_client(call->resolver);
    bool has_api = muster_tpu_client_has_api(client);
    struct muster_tpu_node *node = ask_node(call);

    if (node != NULL && has_api)
        call->outcome->rc = muster_tpu_node_check(node, muster_tpu_client_name(client), false,
                                                  &call->outcome->error);
    if (node == NULL || call->outcome->rc != MUSTER_OK) {
        muster_tpu_node_unref(node);
        return;
    }
    call->outcome->value = json_array();
    for (size_t i = 0; i < node->endpoint_count; i++) {
        json_t *port = has_api ? json_integer(node->endpoints[i].port)
                               : json_sprintf("%u", (unsigned)node->endpoints[i].port);

        json_array_append_new(
            call->outcome->value,
            json_pack("{s:s, s:o}", "ipAddress", node->endpoints[i].host, "port", port));
    }
    muster_tpu_node_unref(node);
}

/* The clock of the case ("2024-05-01T10:01:29", UTC), else the real one. */
static uint64_t wall_ns(struct case_run *run)
{
    const char *now = case_text(json_object_get(run->one, "now"));
    struct tm tm = {0};

    if (now == NULL || strptime(now, "%Y-%m-%dT%H:%M:%S", &tm) == NULL)
        return muster_host_wall_ns(run->env->host);
    return (uint64_t)timegm(&tm) * MUSTER_NS_PER_S;
}

static void call_recoverable(struct case_call *call)
{
    static const struct muster_tpu_recovery recovery;
    struct muster_tpu_node *node = ask_node(call);

    if (node != NULL)
        call->outcome->value =
            json_boolean(muster_tpu_node_is_recoverable(node, &recovery, wall_ns(call->run)));
    muster_tpu_node_unref(node);
}

static void call_name(struct case_call *call)
{
    call->outcome->value =
        json_string(muster_tpu_client_name(muster_tpu_resolver_client(call->resolver)));
}

static void call_api_available(struct case_call *call)
{
    call->outcome->value =
        json_boolean(muster_tpu_client_has_api(muster_tpu_resolver_client(call->resolver)));
}

static void call_runtime_version(struct case_call *call)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_RUNTIME_VERSION};

    call->outcome->rc = ask_tpu(call->run, muster_tpu_resolver_client(call->resolver), &query,
                                &call->outcome->error);
    call->outcome->value = text_or_null(query.text);
    muster_mem_free(call->run->env->mem, query.text);
}

static void call_configure_version(struct case_call *call)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_CONFIGURE_VERSION,
                                     .version = case_text(case_argument(call->call, "version"))};
    const char *restart = case_text(case_argument(call->call, "restart_type"));

    query.is_restart_if_needed = restart != NULL && strcmp(restart, "ifNeeded") == 0;
    call->outcome->rc = ask_tpu(call->run, muster_tpu_resolver_client(call->resolver), &query,
                                &call->outcome->error);
}

static void call_job_name(struct case_call *call)
{
    call->outcome->value = json_string(muster_tpu_resolver_job_name(call->resolver));
}

static void call_leader(struct case_call *call)
{
    char text[320];

    call->outcome->value =
        json_string(muster_tpu_resolver_leader(call->resolver, sizeof(text), text));
}

/* A scoped use is the use of a copy. */
static void on_copy_closed(struct muster_resolver *resolver)
{
    *(bool *)resolver->data = true;
}

static void call_enter_exit(struct case_call *call)
{
    struct muster_resolver *copy = NULL;
    bool is_closed = false;

    call->outcome->rc = muster_tpu_resolver_copy(call->resolver, &copy, &call->outcome->error);
    if (call->outcome->rc != MUSTER_OK)
        return;
    copy->data = &is_closed;
    muster_resolver_close(copy, on_copy_closed);
    while (!is_closed)
        muster_loop_turn(call->run->env->loop, UINT64_MAX);
}

static void call_system_metadata(struct case_call *call)
{
    const json_t *names = json_object_get(call->run->one, "devices");
    size_t count = json_array_size(names);
    const char **array = calloc(count + 1, sizeof(array[0]));
    struct muster_tpu_system system = {.mem = NULL};
    json_t *devices;

    for (size_t i = 0; i < count; i++)
        array[i] = json_string_value(json_array_get(names, i));
    call->outcome->rc =
        muster_tpu_system_init(&system, call->run->env->mem, array, count, &call->outcome->error);
    free(array);
    if (call->outcome->rc != MUSTER_OK)
        return;
    devices = json_array();
    for (size_t i = 0; i < system.device_count; i++)
        json_array_append_new(devices, json_string(system.devices[i]));
    call->outcome->value = json_pack("{s:i, s:i, s:i, s:o}", "num_cores", (int)system.num_cores,
                                     "num_hosts", (int)system.num_hosts, "num_of_cores_per_host",
                                     (int)system.num_of_cores_per_host, "devices", devices);
    muster_tpu_system_fini(&system);
}

struct waiting {
    bool is_done;
    json_t *sleeps;
};

/* The clock advances by sleeping only: every sleep is over at once. */
static void on_wait(struct muster_tpu_wait *wait, enum muster_rc rc)
{
    struct waiting *waiting = wait->data;

    (void)rc;
    json_array_append_new(waiting->sleeps,
                          json_integer((json_int_t)(wait->interval_ns / MUSTER_NS_PER_S)));
    muster_tpu_wait_look_now(wait);
}

static void on_waited(struct muster_tpu_wait *wait, enum muster_rc rc)
{
    struct waiting *waiting = wait->data;

    (void)rc;
    waiting->is_done = true;
}

static uint64_t seconds_of(const json_t *value)
{
    return (uint64_t)json_integer_value(value) * MUSTER_NS_PER_S;
}

static void call_wait_for_healthy(struct case_call *call)
{
    struct waiting waiting = {.sleeps = json_array()};
    struct muster_tpu_wait wait = {
        .data = &waiting,
        .timeout_ns = seconds_of(case_argument(call->call, "timeout_s")),
        .interval_ns = seconds_of(case_argument(call->call, "interval")),
        .on_wait = on_wait,
    };

    call->outcome->rc =
        muster_tpu_wait_start(&wait, muster_tpu_resolver_client(call->resolver), on_waited);
    while (call->outcome->rc == MUSTER_OK && !waiting.is_done)
        muster_loop_turn(call->run->env->loop, UINT64_MAX);
    if (call->outcome->rc == MUSTER_OK)
        call->outcome->rc = wait.error.rc;
    call->outcome->error = wait.error;
    call->outcome->value = json_pack("{s:o}", "sleeps", waiting.sleeps);
}

const struct case_call_kind case_tpu_calls[] = {
    {"state", call_state},
    {"health", call_health},
    {"accelerator_type", call_accelerator_type},
    {"symptoms", call_symptoms},
    {"network_endpoints", call_network_endpoints},
    {"recoverable", call_recoverable},
    {"name", call_name},
    {"api_available", call_api_available},
    {"runtime_version", call_runtime_version},
    {"configure_tpu_version", call_configure_version},
    {"get_job_name", call_job_name},
    {"get_coordination_service_leader", call_leader},
    {"enter_exit", call_enter_exit},
    {"get_tpu_system_metadata", call_system_metadata},
    {"wait_for_healthy", call_wait_for_healthy},
    {NULL, NULL},
};

/* Construction. */

/* {{bound}} stands for the port that the system chose. */
static enum muster_rc start_server(void *data, uint16_t *ret_port, struct muster_error *ret_error)
{
    const struct case_run *run = data;

    (void)ret_error;
    *ret_port = run->bound_port;
    return MUSTER_OK;
}

/* A list of one is that one. */
static enum muster_rc read_tpu(const json_t *tpu, const char **ret_tpu,
                               struct muster_error *ret_error)
{
    if (json_is_array(tpu) && json_array_size(tpu) == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "no TPU in the list");
    if (json_is_array(tpu) && json_array_size(tpu) > 1)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED, "more than one TPU");
    *ret_tpu = case_text(json_is_array(tpu) ? json_array_get(tpu, 0) : tpu);
    return MUSTER_OK;
}

/* TensorFlow asks for project and zone while it constructs. */
static enum muster_rc locate_core(struct case_run *run, struct muster_resolver *resolver,
                                  struct muster_error *ret_error)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_RESOURCE_NAME};
    enum muster_rc rc = ask_tpu(run, muster_tpu_resolver_client(resolver), &query, ret_error);

    muster_mem_free(run->env->mem, query.text);
    return rc;
}

static void close_wait(struct case_run *run, struct muster_resolver *resolver)
{
    bool is_closed = false;

    resolver->data = &is_closed;
    muster_resolver_close(resolver, on_copy_closed);
    while (!is_closed)
        muster_loop_turn(run->env->loop, UINT64_MAX);
}

enum muster_rc case_open_tpu(struct case_run *run, const struct muster_resolver_options *common,
                             struct muster_resolver **ret_resolver, struct muster_error *ret_error)
{
    struct case_run *top = run->top != NULL ? run->top : run;
    struct muster_tpu_resolver_options options = {
        .common = *common,
        .client = {.project = case_text(case_argument(run->one, "project")),
                   .zone = case_text(case_argument(run->one, "zone")),
                   .discovery_url = case_text(case_argument(run->one, "discovery_url")),
                   .api_endpoint = case_text(case_argument(run->one, "api_endpoint")),
                   .access_token = case_text(case_argument(run->one, "access_token")),
                   .is_anonymous = case_argument(run->one, "access_token") == NULL},
        .job_name = case_text(case_argument(run->one, "job_name")),
        .coordinator_name = case_text(case_argument(run->one, "coordinator_name")),
        .coordinator_address = case_text(case_argument(run->one, "coordinator_address")),
        .start_server = start_server,
        .start_server_data = top,
    };
    enum muster_rc rc = read_tpu(case_argument(run->one, "tpu"), &options.client.tpu, ret_error);

    if (rc == MUSTER_OK)
        rc = case_read_port(case_argument(run->one, "version_port"), 0,
                            &options.client.version_port, ret_error);
    if (json_object_get(top->one, "devices") == NULL)
        options.common.list_devices = NULL;
    if (rc == MUSTER_OK)
        rc = muster_tpu_resolver_open(run->env, &options, ret_resolver, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = locate_core(run, *ret_resolver, ret_error);
    if (rc != MUSTER_OK) {
        close_wait(run, *ret_resolver);
        *ret_resolver = NULL;
    }
    return rc;
}
