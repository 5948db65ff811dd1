/* A task's server: what it may be asked to be, its states, and what it answers its peers. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include <muster/server.h>
#include <muster/stream.h>

#include "proto/worker.muster.h"

#define CLUSTER                                                                                    \
    "{\"worker\": [\"127.0.0.1:0\", \"b:7000\", \"c:7000\"], \"ps\": {\"3\": \"127.0.0.1:0\"}}"

struct fixture {
    struct test_env test;
    struct muster_env *env;
    struct muster_cluster_spec *cluster;
    struct muster_server *server;
    struct muster_channel *channel;
    bool is_stopped, is_closed;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    test_env_open(&fixture->test);
    fixture->env = &fixture->test.env;
    assert_int_equal(muster_net_system_open(fixture->env, &fixture->env->net), MUSTER_OK);
    assert_int_equal(muster_cluster_spec_parse(fixture->env->mem, CLUSTER, strlen(CLUSTER),
                                               &fixture->cluster, NULL),
                     MUSTER_OK);
    *state = fixture;
    return 0;
}

static void on_stopped(struct muster_server *server)
{
    ((struct fixture *)muster_server_data(server))->is_stopped = true;
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct fixture *)muster_channel_data(channel))->is_closed = true;
}

static void hang_up(struct fixture *fixture)
{
    if (fixture->channel == NULL)
        return;
    muster_channel_set_data(fixture->channel, fixture);
    muster_channel_close(fixture->channel, on_channel_closed);
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_closed);
    fixture->channel = NULL;
}

static void stop_server(struct fixture *fixture)
{
    muster_server_set_data(fixture->server, fixture);
    muster_server_stop(fixture->server, 0, on_stopped);
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_stopped);
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    hang_up(fixture);
    if (fixture->server != NULL && !fixture->is_stopped)
        stop_server(fixture);
    test_env_turn(fixture->env, 8);
    muster_server_free(fixture->server);
    muster_cluster_spec_unref(fixture->cluster);
    muster_net_system_close(fixture->env->net);
    test_env_close(&fixture->test);
    free(fixture);
    return 0;
}

/* Worker 0, with `tasks` tasks of the coordination service. */
static void start_server(struct fixture *fixture, uint32_t tasks)
{
    static const int32_t task = 0;
    const struct muster_coordination_server_options coordination = {.task_count = tasks};
    const struct muster_server_options options = {.cluster = fixture->cluster,
                                                  .job = "worker",
                                                  .task = &task,
                                                  .bind_host = "127.0.0.1",
                                                  .coordination = tasks > 0 ? &coordination : NULL};
    struct muster_error error = {.text = ""};

    fail_if(muster_server_open(fixture->env, &options, &fixture->server, &error) != MUSTER_OK ||
                muster_server_start(fixture->server, &error) != MUSTER_OK,
            "%s", error.text);
    assert_int_equal(muster_channel_open(fixture->env, muster_server_target(fixture->server) + 7,
                                         NULL, &fixture->channel, NULL),
                     MUSTER_OK);
}

static void what_cannot_be_served_is_named(void **state)
{
    static const int32_t zero = 0, three = 3;
    static const struct {
        const char *job;
        const int32_t *task;
        const char *protocol;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {NULL, &zero, NULL, MUSTER_INVALID_ARGUMENT, "2 jobs: say which one"},
        {"chief", &zero, NULL, MUSTER_NOT_FOUND, "job \"chief\" is not in the cluster"},
        {"worker", NULL, NULL, MUSTER_INVALID_ARGUMENT, "job \"worker\" has 3 tasks: say which"},
        {"worker", &three, NULL, MUSTER_INVALID_ARGUMENT, "task 3 is not in job \"worker\""},
        {"ps", &zero, NULL, MUSTER_INVALID_ARGUMENT, "task 0 is not in job \"ps\""},
        {"worker", &zero, "grpc+mpi", MUSTER_NOT_FOUND, "protocol \"grpc+mpi\"; there are: grpc"},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_server_options options = {.cluster = fixture->cluster,
                                                      .job = rows[i].job,
                                                      .task = rows[i].task,
                                                      .protocol = rows[i].protocol};
        struct muster_server *server = NULL;
        struct muster_error error = {.text = ""};
        enum muster_rc rc = muster_server_open(fixture->env, &options, &server, &error);

        fail_if(rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL, "row %zu: %d \"%s\"",
                i, rc, error.text);
    }
}

/* The own address and those of the others alike: a call to them would fail hours later. */
static void addresses_that_nobody_could_dial_are_refused_at_the_start(void **state)
{
    static const char *const wrong[] = {"b:70000", "c",     "",     "b:",   "b:-1",       "b:http",
                                        "b:1e3",   "b:0x1", "b:1/", "b: 1", "grpc://b:1", "b/c:1"};
    static const int32_t zero = 0;
    struct fixture *fixture = *state;

    for (size_t i = 0; i < 2 * sizeof(wrong) / sizeof(wrong[0]); i++) {
        bool is_own = i % 2 == 0;
        struct muster_server_options options = {.job = "a", .task = &zero};
        struct muster_cluster_spec *cluster = NULL;
        struct muster_error error = {.text = ""};
        char text[96], expected[64];

        snprintf(text, sizeof(text), "{\"a\": [\"%s\"], \"ps\": {\"3\": \"%s\"}}",
                 is_own ? wrong[i / 2] : "127.0.0.1:0", is_own ? "b:1" : wrong[i / 2]);
        snprintf(expected, sizeof(expected), "the address of %s must be HOST:PORT with a port",
                 is_own ? "a:0" : "ps:3");
        assert_int_equal(
            muster_cluster_spec_parse(fixture->env->mem, text, strlen(text), &cluster, NULL),
            MUSTER_OK);
        options.cluster = cluster;
        assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, expected) == NULL || strstr(error.text, wrong[i / 2]) == NULL)
            fail_msg("%s: \"%s\"", text, error.text);
        muster_cluster_spec_unref(cluster);
    }
}

static void an_address_without_a_host_is_this_one(void **state)
{
    static const char text[] = "{\"a\": [\":0\"]}";
    struct fixture *fixture = *state;
    struct muster_server_options options = {.bind_host = "127.0.0.1"};
    struct muster_cluster_spec *cluster = NULL;

    assert_int_equal(
        muster_cluster_spec_parse(fixture->env->mem, text, strlen(text), &cluster, NULL),
        MUSTER_OK);
    options.cluster = cluster;
    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, NULL), MUSTER_OK);
    assert_memory_equal(muster_server_target(fixture->server), "grpc://localhost:", 17);
    muster_cluster_spec_unref(cluster);
}

static void the_only_task_of_a_job_need_not_be_named(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_server_options options = {.cluster = fixture->cluster, .job = "ps"};

    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, NULL), MUSTER_OK);

    assert_string_equal(muster_server_name(fixture->server), "/job:ps/replica:0/task:3");
}

static void without_a_cluster_it_is_local(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_server_options options = {.bind_host = "127.0.0.1"};

    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, NULL), MUSTER_OK);

    assert_string_equal(muster_server_name(fixture->server), "/job:localhost/replica:0/task:0");
    assert_string_not_equal(muster_server_target(fixture->server), "grpc://localhost:0");
    assert_string_equal(muster_server_device_name(fixture->server, 0),
                        "/job:localhost/replica:0/task:0/device:CPU:0");
    assert_null(muster_server_device_name(fixture->server, 1));
}

static void states_follow_one_another(void **state)
{
    struct fixture *fixture = *state;
    struct muster_error error = {.text = ""};

    start_server(fixture, 0);
    assert_int_equal(muster_server_state(fixture->server), MUSTER_SERVER_STARTED);
    assert_non_null(muster_server_rpc_server(fixture->server));
    assert_int_equal(muster_server_start(fixture->server, &error), MUSTER_OK);
    stop_server(fixture);
    assert_int_equal(muster_server_state(fixture->server), MUSTER_SERVER_STOPPED);

    assert_int_equal(muster_server_start(fixture->server, &error), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "has stopped"));
}

/* The target names the host as the cluster does; the port is where it listens. */
static void it_listens_at_its_port_in_the_cluster(void **state)
{
    struct fixture *fixture = *state;
    struct muster_server_options options = {.bind_host = "127.0.0.1"};
    struct muster_cluster_spec *cluster = NULL;
    struct muster_server *server = NULL;
    struct muster_error error = {.text = ""};
    char text[64];

    start_server(fixture, 0);
    snprintf(text, sizeof(text), "{\"worker\": [\"127.0.0.1:%u\"]}",
             muster_server_address(fixture->server)->port);
    assert_int_equal(
        muster_cluster_spec_parse(fixture->env->mem, text, strlen(text), &cluster, NULL),
        MUSTER_OK);
    options.cluster = cluster;
    assert_int_equal(muster_server_open(fixture->env, &options, &server, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, "127.0.0.1:"));
    assert_null(server);
    hang_up(fixture);
    stop_server(fixture);
    muster_server_free(fixture->server);
    fixture->is_stopped = false;
    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, &error),
                     MUSTER_OK);

    assert_memory_equal(muster_server_target(fixture->server) + 7,
                        text + strlen("{\"worker\": [\""), strlen("127.0.0.1:"));
    muster_cluster_spec_unref(cluster);
}

/* --- Its definition --- */

static struct muster_server *open_new(struct fixture *fixture,
                                      const struct muster_server_options *options)
{
    struct muster_error error = {.text = ""};

    fail_if(muster_server_open(fixture->env, options, &fixture->server, &error) != MUSTER_OK, "%s",
            error.text);
    return fixture->server;
}

static void what_was_inferred_is_in_its_definition(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_server_def *def = muster_server_definition(open_new(
        fixture, &(struct muster_server_options){.cluster = fixture->cluster, .job = "ps"}));

    assert_ptr_equal(def->cluster, fixture->cluster);
    assert_string_equal(def->job, "ps");
    assert_int_equal(def->task, 3);
    assert_string_equal(def->protocol, "grpc");
    assert_int_equal(def->port, 0);
    assert_int_equal(def->config.size, 0);
}

static void options_count_before_the_definition(void **state)
{
    static const int32_t zero = 0;
    static const char *const filters[] = {"/job:ps"};
    const struct muster_device_filter filter = {
        .job = "worker", .task = 0, .filters = filters, .filter_count = 1};
    struct fixture *fixture = *state;
    const struct muster_server_def given = {.cluster = fixture->cluster,
                                            .job = "worker",
                                            .task = 2,
                                            .protocol = "carrier pigeon",
                                            .config = {"\x38\x01", 2},
                                            .device_filters = &filter,
                                            .device_filter_count = 1};
    const struct muster_server_def *def =
        muster_server_definition(open_new(fixture, &(struct muster_server_options){
                                                       .def = &given,
                                                       .task = &zero,
                                                       .protocol = "grpc",
                                                       .config = {"\x40\x01", 2},
                                                   }));

    assert_string_equal(def->job, "worker");
    assert_int_equal(def->task, 0);
    assert_string_equal(def->protocol, "grpc");
    assert_int_equal(def->config.size, 4);
    assert_memory_equal(def->config.data, "\x38\x01\x40\x01", 4);
    assert_int_equal(def->device_filter_count, 1);
    assert_string_equal(def->device_filters[0].filters[0], "/job:ps");
}

/* TensorFlow takes a task's number of a ServerDef as 0, and no protocol where it names none. */
static void a_definition_that_lacks_something_is_refused(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        struct muster_server_def def;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {{.job = "worker", .protocol = "grpc"}, MUSTER_INVALID_ARGUMENT, "no cluster"},
        {{.cluster = fixture->cluster, .protocol = "grpc"},
         MUSTER_INVALID_ARGUMENT,
         "name its job"},
        {{.cluster = fixture->cluster, .job = "worker"}, MUSTER_NOT_FOUND, "protocol \"\""},
        {{.cluster = fixture->cluster, .job = "ps", .protocol = "grpc"},
         MUSTER_INVALID_ARGUMENT,
         "task 0 is not in job \"ps\""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_server_options options = {.def = &rows[i].def};
        struct muster_error error = {.text = ""};
        enum muster_rc rc = muster_server_open(fixture->env, &options, &fixture->server, &error);

        fail_if(rc != rows[i].rc || strstr(error.text, rows[i].text) == NULL, "row %zu: %d \"%s\"",
                i, (int)rc, error.text);
    }
}

/* --- Its end --- */

struct joined {
    struct muster_server_join join;
    unsigned count;
    enum muster_rc rc;
};

static void on_joined(struct muster_server_join *join, enum muster_rc rc)
{
    struct joined *joined = join->data;

    joined->count++;
    joined->rc = rc;
}

static void join_start(struct joined *joined, struct fixture *fixture, uint64_t deadline_ns)
{
    *joined = (struct joined){.count = 0};
    joined->join.data = joined;
    muster_server_join_start(&joined->join, fixture->server, deadline_ns, on_joined);
    assert_int_equal(joined->count, 0);
}

static bool is_joined(void *data)
{
    return ((struct joined *)data)->count > 0;
}

static void those_who_join_hear_of_its_end(void **state)
{
    struct fixture *fixture = *state;
    struct joined waits, late, never, given_up;

    start_server(fixture, 0);
    join_start(&waits, fixture, UINT64_MAX);
    join_start(&never, fixture, 0);
    join_start(&given_up, fixture, UINT64_MAX);
    muster_server_join_cancel(&given_up.join);
    muster_server_join_cancel(&given_up.join);
    test_env_run_until(fixture->env, is_joined, &never);
    test_env_run_until(fixture->env, is_joined, &given_up);
    assert_int_equal(never.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_int_equal(given_up.rc, MUSTER_CANCELLED);
    assert_int_equal(waits.count, 0);
    hang_up(fixture);
    stop_server(fixture);
    join_start(&late, fixture, 0);
    test_env_run_until(fixture->env, is_joined, &late);

    assert_int_equal(waits.count, 1);
    assert_int_equal(waits.rc, MUSTER_OK);
    assert_int_equal(late.rc, MUSTER_OK);
    assert_int_equal(never.count, 1);
    assert_int_equal(given_up.count, 1);
}

static void a_server_that_never_started_ends_when_it_is_joined(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_server_options options = {.bind_host = "127.0.0.1"};
    struct joined joined;
    struct muster_error error;

    open_new(fixture, &options);
    join_start(&joined, fixture, UINT64_MAX);
    test_env_run_until(fixture->env, is_joined, &joined);

    assert_int_equal(joined.rc, MUSTER_OK);
    assert_int_equal(muster_server_state(fixture->server), MUSTER_SERVER_STOPPED);
    assert_int_equal(muster_server_start(fixture->server, &error), MUSTER_FAILED_PRECONDITION);
    fixture->is_stopped = true;
}

/* --- Another protocol --- */

struct pigeon {
    struct muster_server *server;
    unsigned opened, started, stopped, freed;
    bool is_refused;
};

static enum muster_rc pigeon_open(const struct muster_server_protocol *protocol,
                                  struct muster_env *env, struct muster_server *server,
                                  const struct muster_server_def *def,
                                  char ret_target[MUSTER_SERVER_TARGET_BYTES], void **ret_impl,
                                  struct muster_error *ret_error)
{
    struct pigeon *pigeon = protocol->data;

    (void)env;
    pigeon->opened++;
    if (pigeon->is_refused)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no pigeon");
    pigeon->server = server;
    snprintf(ret_target, MUSTER_SERVER_TARGET_BYTES, "pigeon://%s/%d", def->job, (int)def->task);
    *ret_impl = pigeon;
    return MUSTER_OK;
}

static enum muster_rc pigeon_start(void *impl, struct muster_error *ret_error)
{
    (void)ret_error;
    ((struct pigeon *)impl)->started++;
    return MUSTER_OK;
}

static void pigeon_stop(void *impl, uint64_t deadline_ns)
{
    struct pigeon *pigeon = impl;

    (void)deadline_ns;
    pigeon->stopped++;
    muster_server_on_stopped(pigeon->server);
}

static void pigeon_free(void *impl)
{
    ((struct pigeon *)impl)->freed++;
}

static void another_protocol_serves_as_it_is_told(void **state)
{
    struct fixture *fixture = *state;
    struct pigeon pigeon = {.is_refused = true};
    const struct muster_server_protocol protocol = {.name = "pigeon",
                                                    .data = &pigeon,
                                                    .open = pigeon_open,
                                                    .start = pigeon_start,
                                                    .stop = pigeon_stop,
                                                    .free = pigeon_free};
    const struct muster_server_options options = {.cluster = fixture->cluster,
                                                  .job = "ps",
                                                  .protocol = "pigeon",
                                                  .protocols = &protocol,
                                                  .protocol_count = 1};
    struct muster_server_buffer buffer = {.key = "k"};
    struct muster_error error;

    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, &error),
                     MUSTER_UNAVAILABLE);
    assert_int_equal(pigeon.freed, 0);
    pigeon.is_refused = false;
    open_new(fixture, &options);
    assert_string_equal(muster_server_target(fixture->server), "pigeon://ps/3");
    assert_int_equal(muster_server_address(fixture->server)->family, MUSTER_ADDRESS_NONE);
    assert_null(muster_server_rpc_server(fixture->server));
    assert_null(muster_server_device_name(fixture->server, 0));
    assert_int_equal(muster_server_start(fixture->server, &error), MUSTER_OK);
    assert_int_equal(muster_server_offer_start(&buffer, fixture->server, NULL),
                     MUSTER_FAILED_PRECONDITION);
    muster_server_abort_collectives(fixture->server, MUSTER_ABORTED, "none");
    stop_server(fixture);
    muster_server_free(fixture->server);
    fixture->server = NULL;

    assert_int_equal(pigeon.started, 1);
    assert_int_equal(pigeon.stopped, 1);
    assert_int_equal(pigeon.freed, 1);
}

static void a_protocol_that_nobody_brings_is_named_with_those_there_are(void **state)
{
    struct fixture *fixture = *state;
    const struct muster_server_protocol protocol = {.name = "pigeon"};
    const struct muster_server_options options = {
        .protocol = "grpc+verbs", .protocols = &protocol, .protocol_count = 1};
    struct muster_error error;

    assert_int_equal(muster_server_open(fixture->env, &options, &fixture->server, &error),
                     MUSTER_NOT_FOUND);

    assert_non_null(strstr(error.text, "\"grpc+verbs\"; there are: grpc, pigeon"));
}

/* --- Over the wire --- */

struct answer {
    unsigned count;
    enum muster_rc rc;
    char text[MUSTER_ERROR_TEXT_BYTES];
    char content[256];
};

static bool is_answered(void *data)
{
    return ((struct answer *)data)->count > 0;
}

static struct muster_call_options options_within(const struct fixture *fixture)
{
    return (struct muster_call_options){
        .deadline_ns = muster_loop_after_ns(fixture->env->loop, 60 * MUSTER_NS_PER_S)};
}

static void record_answer(struct answer *answer, enum muster_rc rc,
                          const struct muster_error *status)
{
    answer->count++;
    answer->rc = rc;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", status->text);
}

static void on_status(struct tensorflow_worker_service_get_status_call *call, enum muster_rc rc,
                      const Tensorflow__GetStatusResponse *response)
{
    struct answer *answer = call->data;

    record_answer(answer, rc, &call->stub.call.status);
    if (response != NULL && response->n_device_attributes == 1)
        (void)snprintf(answer->content, sizeof(answer->content), "%s %s %d",
                       response->device_attributes[0]->name,
                       response->device_attributes[0]->device_type,
                       response->device_attributes[0]->incarnation != 0);
}

static void get_status_names_the_devices(void **state)
{
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};
    struct tensorflow_worker_service_get_status_call call = {.data = &answer};
    Tensorflow__GetStatusRequest request = TENSORFLOW__GET_STATUS_REQUEST__INIT;
    struct muster_call_options options = options_within(fixture);

    start_server(fixture, 0);
    assert_int_equal(tensorflow_worker_service_get_status_start(&call, fixture->channel, &options,
                                                                &request, on_status),
                     MUSTER_OK);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_string_equal(answer.content, "/job:worker/replica:0/task:0/device:CPU:0 CPU 1");
}

static void on_group(struct tensorflow_worker_service_complete_group_call *call, enum muster_rc rc,
                     const Tensorflow__CompleteGroupResponse *response)
{
    struct answer *answer = call->data;
    size_t at = 0;

    record_answer(answer, rc, &call->stub.call.status);
    for (size_t i = 0; response != NULL && i < response->n_device_attributes; i++)
        at += (size_t)snprintf(answer->content + at, sizeof(answer->content) - at, "%s=%llu ",
                               response->device_attributes[i]->name,
                               (unsigned long long)response->device_attributes[i]->incarnation);
}

static void join_group(struct fixture *fixture,
                       struct tensorflow_worker_service_complete_group_call *call,
                       const char *device, uint64_t incarnation, int32_t size)
{
    Tensorflow__CompleteGroupRequest request;
    Tensorflow__DeviceAttributes attributes;
    struct muster_call_options options = options_within(fixture);

    tensorflow__complete_group_request__init(&request);
    tensorflow__device_attributes__init(&attributes);
    attributes.name = (char *)(uintptr_t)device;
    attributes.incarnation = incarnation;
    request.group_key = 1;
    request.group_size = size;
    request.device_type = (char *)(uintptr_t) "CPU";
    request.device_attributes = &attributes;
    assert_int_equal(tensorflow_worker_service_complete_group_start(call, fixture->channel,
                                                                    &options, &request, on_group),
                     MUSTER_OK);
}

static void a_group_is_completed_for_all(void **state)
{
    struct fixture *fixture = *state;
    struct answer first = {.count = 0}, second = {.count = 0};
    struct tensorflow_worker_service_complete_group_call calls[2] = {{.data = &first},
                                                                     {.data = &second}};

    start_server(fixture, 0);
    join_group(fixture, &calls[0], "/b/device:CPU:0", 7, 2);
    join_group(fixture, &calls[1], "/a/device:CPU:0", 8, 2);
    test_env_run_until(fixture->env, is_answered, &first);
    test_env_run_until(fixture->env, is_answered, &second);

    assert_string_equal(first.content, "/a/device:CPU:0=8 /b/device:CPU:0=7 ");
    assert_string_equal(second.content, first.content);
}

static void a_stop_ends_those_who_wait(void **state)
{
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};
    struct tensorflow_worker_service_complete_group_call call = {.data = &answer};

    start_server(fixture, 3);
    join_group(fixture, &call, "/b/device:CPU:0", 7, 2);
    for (unsigned i = 0; i < 50 && muster_channel_state(fixture->channel) != MUSTER_CHANNEL_READY;
         i++)
        test_env_turn(fixture->env, 1);
    test_env_turn(fixture->env, 20);
    muster_server_set_data(fixture->server, fixture);
    muster_server_stop(fixture->server,
                       muster_loop_after_ns(fixture->env->loop, 60 * MUSTER_NS_PER_S), on_stopped);
    test_env_run_until(fixture->env, is_answered, &answer);
    test_env_run_until(fixture->env, test_env_is_true, &fixture->is_stopped);

    assert_int_equal(answer.rc, MUSTER_CANCELLED);
    assert_string_equal(answer.text, "the server has stopped");
}

static void on_buffer(struct tensorflow_worker_service_recv_buf_call *call, enum muster_rc rc,
                      const Tensorflow__RecvBufResponse *response)
{
    struct answer *answer = call->data;
    Tensorflow__RecvBufRespExtra *extra = NULL;

    record_answer(answer, rc, &call->stub.call.status);
    if (response == NULL)
        return;
    assert_int_equal(response->num_bytes, 5);
    assert_string_equal(response->transport_options->type_url,
                        "type.googleapis.com/tensorflow.RecvBufRespExtra");
    extra = tensorflow__recv_buf_resp_extra__unpack(NULL, response->transport_options->value.len,
                                                    response->transport_options->value.data);
    (void)snprintf(answer->content, sizeof(answer->content), "%.*s",
                   (int)extra->tensor_content[0].len, (char *)extra->tensor_content[0].data);
    tensorflow__recv_buf_resp_extra__free_unpacked(extra, NULL);
}

static void fetch_page(struct fixture *fixture,
                       struct tensorflow_worker_service_recv_buf_call *call, const char *device,
                       uint64_t incarnation)
{
    Tensorflow__RecvBufRequest request;
    struct muster_call_options options = options_within(fixture);

    tensorflow__recv_buf_request__init(&request);
    request.buf_rendezvous_key = (char *)(uintptr_t) "key:1";
    request.src_device = (char *)(uintptr_t)device;
    request.src_incarnation = incarnation;
    assert_int_equal(tensorflow_worker_service_recv_buf_start(call, fixture->channel, &options,
                                                              &request, on_buffer),
                     MUSTER_OK);
}

struct offer {
    struct muster_server_buffer buffer;
    struct answer answer;
};

static void on_taken(struct muster_server_buffer *buffer, enum muster_rc rc)
{
    struct offer *offer = MUSTER_CONTAINER_OF(buffer, struct offer, buffer);

    offer->answer.count++;
    offer->answer.rc = rc;
}

static void a_buffer_goes_to_who_asks_for_it(void **state)
{
    struct fixture *fixture = *state;

    start_server(fixture, 0);
    for (int offered_first = 0; offered_first < 2; offered_first++) {
        struct answer answer = {.count = 0};
        struct tensorflow_worker_service_recv_buf_call call = {.data = &answer};
        struct offer offer = {.buffer = {.key = "key:1", .bytes = {"hello", 5}}};

        if (!offered_first) {
            fetch_page(fixture, &call, "/job:worker/replica:0/task:0/device:CPU:0",
                       muster_server_incarnation(fixture->server));
            test_env_turn(fixture->env, 50);
        }
        assert_int_equal(muster_server_offer_start(&offer.buffer, fixture->server, on_taken),
                         MUSTER_OK);
        assert_int_equal(offer.answer.count, 0);
        if (offered_first)
            fetch_page(fixture, &call, "/job:worker/replica:0/task:0/device:CPU:0",
                       muster_server_incarnation(fixture->server));
        test_env_run_until(fixture->env, is_answered, &answer);
        test_env_run_until(fixture->env, is_answered, &offer.answer);

        assert_string_equal(answer.content, "hello");
        assert_int_equal(offer.answer.rc, MUSTER_OK);
    }
}

static void buffers_of_others_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct answer unknown = {.count = 0}, restarted = {.count = 0};
    struct tensorflow_worker_service_recv_buf_call calls[2] = {{.data = &unknown},
                                                               {.data = &restarted}};

    start_server(fixture, 0);
    fetch_page(fixture, &calls[0], "/job:worker/replica:0/task:1/device:CPU:0", 1);
    fetch_page(fixture, &calls[1], "/job:worker/replica:0/task:0/device:CPU:0", 2);
    test_env_run_until(fixture->env, is_answered, &unknown);
    test_env_run_until(fixture->env, is_answered, &restarted);

    assert_int_equal(unknown.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(unknown.text, "task:1/device:CPU:0 unknown device"));
    assert_int_equal(restarted.rc, MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(restarted.text, "was probably restarted"));
}

static void an_offer_that_nobody_took_comes_back(void **state)
{
    struct fixture *fixture = *state;
    struct offer offer = {.buffer = {.key = "key:1", .bytes = {"hello", 5}}}, twice = offer;

    start_server(fixture, 0);
    assert_int_equal(muster_server_offer_start(&offer.buffer, fixture->server, on_taken),
                     MUSTER_OK);
    assert_int_equal(muster_server_offer_start(&twice.buffer, fixture->server, on_taken),
                     MUSTER_ALREADY_EXISTS);
    hang_up(fixture);
    stop_server(fixture);
    test_env_run_until(fixture->env, is_answered, &offer.answer);

    assert_int_equal(offer.answer.rc, MUSTER_CANCELLED);
    assert_int_equal(twice.answer.count, 0);
    assert_int_equal(muster_server_offer_start(&twice.buffer, fixture->server, on_taken),
                     MUSTER_FAILED_PRECONDITION);
}

static void on_unary(struct muster_unary *unary, enum muster_rc rc)
{
    record_answer(unary->data, rc, &unary->status);
}

/* The port is bound from the start, so that its target can be told to others. */
static void those_who_come_before_the_start_wait_for_it(void **state)
{
    const struct muster_server_options options = {.bind_host = "127.0.0.1"};
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};
    struct muster_unary unary = {.data = &answer};

    open_new(fixture, &options);
    assert_int_equal(muster_channel_open(fixture->env, muster_server_target(fixture->server) + 7,
                                         NULL, &fixture->channel, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_unary_start(&unary, fixture->channel,
                                        "/tensorflow.MasterService/CreateSession", "", 0,
                                        options_within(fixture).deadline_ns, on_unary),
                     MUSTER_OK);
    test_env_turn(fixture->env, 64);
    assert_int_equal(answer.count, 0);
    assert_int_equal(muster_server_start(fixture->server, NULL), MUSTER_OK);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_int_equal(answer.rc, MUSTER_UNIMPLEMENTED);
}

static void graphs_are_refused_with_the_way_out(void **state)
{
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};
    struct muster_unary unary = {.data = &answer};

    start_server(fixture, 0);
    assert_int_equal(muster_unary_start(&unary, fixture->channel,
                                        "/tensorflow.MasterService/CreateSession", "", 0,
                                        options_within(fixture).deadline_ns, on_unary),
                     MUSTER_OK);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_int_equal(answer.rc, MUSTER_UNIMPLEMENTED);
    assert_non_null(strstr(answer.text, "run the computation in each task's own process"));
}

static void it_serves_the_coordination_that_it_was_given(void **state)
{
    static const char method[] = "/xla.coordination.CoordinationService/TryGetKeyValue";
    struct fixture *fixture = *state;
    struct answer answer = {.count = 0};
    struct muster_unary unary = {.data = &answer};

    start_server(fixture, 1);
    assert_int_equal(muster_unary_start(&unary, fixture->channel, method, "\x0a\x01k", 3,
                                        options_within(fixture).deadline_ns, on_unary),
                     MUSTER_OK);
    test_env_run_until(fixture->env, is_answered, &answer);

    assert_int_equal(answer.rc, MUSTER_NOT_FOUND);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest server[] = {
        CASE(what_cannot_be_served_is_named),
        CASE(addresses_that_nobody_could_dial_are_refused_at_the_start),
        CASE(an_address_without_a_host_is_this_one),
        CASE(the_only_task_of_a_job_need_not_be_named),
        CASE(without_a_cluster_it_is_local),
        CASE(states_follow_one_another),
        CASE(it_listens_at_its_port_in_the_cluster),
        CASE(what_was_inferred_is_in_its_definition),
        CASE(options_count_before_the_definition),
        CASE(a_definition_that_lacks_something_is_refused),
        CASE(those_who_join_hear_of_its_end),
        CASE(a_server_that_never_started_ends_when_it_is_joined),
        CASE(another_protocol_serves_as_it_is_told),
        CASE(a_protocol_that_nobody_brings_is_named_with_those_there_are),
        CASE(those_who_come_before_the_start_wait_for_it),
        CASE(get_status_names_the_devices),
        CASE(a_group_is_completed_for_all),
        CASE(a_stop_ends_those_who_wait),
        CASE(a_buffer_goes_to_who_asks_for_it),
        CASE(buffers_of_others_are_refused),
        CASE(an_offer_that_nobody_took_comes_back),
        CASE(graphs_are_refused_with_the_way_out),
        CASE(it_serves_the_coordination_that_it_was_given),
    };
    return cmocka_run_group_tests(server, NULL, NULL);
}
