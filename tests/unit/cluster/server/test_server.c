/* A task's server: what it may be asked to be, its states, and what it answers its peers. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include <muster/server.h>
#include <muster/stream.h>

#include "proto/worker.muster.h"

#define CLUSTER                                                                                    \
    "{\"worker\": [\"127.0.0.1:0\", \"b:70000\", \"c\"], \"ps\": {\"3\": \"127.0.0.1:0\"}}"

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
    static const int32_t zero = 0, one = 1, two = 2, three = 3;
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
        {"worker", &one, NULL, MUSTER_INVALID_ARGUMENT, "\"b:70000\" needs a port from 0 to 65535"},
        {"worker", &two, NULL, MUSTER_INVALID_ARGUMENT, "\"c\" has no port"},
        {"worker", &zero, "grpc+mpi", MUSTER_NOT_FOUND, "protocol \"grpc+mpi\"; use grpc"},
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
    assert_string_equal(muster_server_target(fixture->server), "grpc://localhost:0");
    assert_int_equal(muster_server_start(fixture->server, NULL), MUSTER_OK);

    assert_string_equal(muster_server_name(fixture->server), "/job:localhost/replica:0/task:0");
    assert_string_not_equal(muster_server_target(fixture->server), "grpc://localhost:0");
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
    assert_int_equal(muster_server_open(fixture->env, &options, &server, &error), MUSTER_OK);

    assert_string_equal(muster_server_target(server), muster_server_target(fixture->server));
    assert_int_equal(muster_server_start(server, &error), MUSTER_ALREADY_EXISTS);
    muster_server_free(server);
    muster_cluster_spec_unref(cluster);
}

static void an_address_that_is_taken_can_be_tried_again(void **state)
{
    struct fixture *fixture = *state, other = {.env = fixture->env};
    struct muster_error error = {.text = ""};
    struct muster_server_options options = {.bind_host = "127.0.0.1"};
    bool is_taken;

    start_server(fixture, 2);
    options.port = muster_server_address(fixture->server)->port;
    assert_int_equal(muster_server_open(fixture->env, &options, &other.server, &error), MUSTER_OK);
    is_taken = muster_server_start(other.server, &error) == MUSTER_ALREADY_EXISTS;
    assert_null(muster_server_rpc_server(other.server));
    hang_up(fixture);
    stop_server(fixture);

    assert_true(is_taken);
    assert_int_equal(muster_server_start(other.server, &error), MUSTER_OK);
    stop_server(&other);
    muster_server_free(other.server);
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
    request.device_type = (char *)(uintptr_t)"CPU";
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
    request.buf_rendezvous_key = (char *)(uintptr_t)"key:1";
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
        CASE(the_only_task_of_a_job_need_not_be_named),
        CASE(without_a_cluster_it_is_local),
        CASE(states_follow_one_another),
        CASE(it_listens_at_its_port_in_the_cluster),
        CASE(an_address_that_is_taken_can_be_tried_again),
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
