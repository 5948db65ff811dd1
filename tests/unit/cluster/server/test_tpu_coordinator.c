/* The coordinator of a Cloud TPU's cluster: a server that the resolver starts, against a played metadata server. */
#include "cloud_fixture.h"
#include "resolver_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/server_client.h>
#include <muster/tpu.h>
#include <muster/tpu_coordinator.h>

#define METADATA                                                                                   \
    "[{\"match\":{\"path\":\"/computeMetadata/v1/instance/network-interfaces/0/ip\"},"             \
    "\"response\":{\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":\"127.0.0.1\"}}]"

struct scene {
    struct cloud_fixture cloud;
    struct muster_tpu_coordinator coordinator;
    struct muster_tpu_resolver_options options;
    struct muster_resolver *resolver;
    char wanted[160]; /* the cluster */
    char content[256];
    bool is_stopped, is_answered, is_closed;
};

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    cloud_fixture_open(&scene->cloud, NULL);
    cloud_fixture_set_var(&scene->cloud, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(&scene->cloud, METADATA);
    scene->coordinator.env = scene->cloud.env;
    scene->options =
        (struct muster_tpu_resolver_options){.client.tpu = "grpc://a:1",
                                             .coordinator_name = "coordinator",
                                             .start_server = muster_tpu_coordinator_start,
                                             .start_server_data = &scene->coordinator};
    assert_int_equal(
        muster_tpu_resolver_open(scene->cloud.env, &scene->options, &scene->resolver, NULL),
        MUSTER_OK);
    *state = scene;
    return 0;
}

static void on_stopped(struct muster_server *server)
{
    ((struct scene *)muster_server_data(server))->is_stopped = true;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    close_resolver(scene->resolver);
    if (scene->coordinator.server != NULL) {
        muster_server_set_data(scene->coordinator.server, scene);
        muster_server_stop(scene->coordinator.server, 0, on_stopped);
        test_env_run_until(scene->cloud.env, test_env_is_true, &scene->is_stopped);
        muster_server_free(scene->coordinator.server);
    }
    cloud_fixture_close(&scene->cloud);
    free(scene);
    return 0;
}

static const char *cluster_with_server(struct scene *scene)
{
    assert_non_null(scene->coordinator.server);
    (void)snprintf(scene->wanted, sizeof(scene->wanted),
                   "{\"worker\":[\"a:1\"],\"coordinator\":[\"127.0.0.1:%u\"]}",
                   muster_server_address(scene->coordinator.server)->port);
    return scene->wanted;
}

static void on_devices(struct muster_server_devices *op, enum muster_rc rc)
{
    struct scene *scene = op->data;

    assert_int_equal(rc, MUSTER_OK);
    assert_int_equal(op->count, 1);
    (void)snprintf(scene->content, sizeof(scene->content), "%s", op->peers[0].device);
    scene->is_answered = true;
}

static void on_channel_closed(struct muster_channel *channel)
{
    ((struct scene *)muster_channel_data(channel))->is_closed = true;
}

/* As a worker that has the cluster from elsewhere does. */
static const char *ask_device(struct scene *scene, const char *address)
{
    struct muster_server_devices op = {.data = scene};
    struct muster_channel *channel = NULL;

    assert_int_equal(muster_channel_open(scene->cloud.env, address, NULL, &channel, NULL),
                     MUSTER_OK);
    assert_int_equal(muster_server_devices_start(&op, channel,
                                                 cloud_fixture_in_s(&scene->cloud, 30), on_devices),
                     MUSTER_OK);
    test_env_run_until(scene->cloud.env, test_env_is_true, &scene->is_answered);
    muster_channel_set_data(channel, scene);
    muster_channel_close(channel, on_channel_closed);
    test_env_run_until(scene->cloud.env, test_env_is_true, &scene->is_closed);
    return scene->content;
}

static void a_question_for_the_cluster_starts_a_server_that_answers_there(void **state)
{
    struct scene *scene = *state;
    const char *master, *cluster = ask_cluster(scene->resolver);

    assert_string_equal(cluster, cluster_with_server(scene));
    master = ask_master(scene->resolver, "coordinator", 0);
    assert_memory_equal(master, "grpc://127.0.0.1:", strlen("grpc://127.0.0.1:"));
    assert_string_equal(ask_device(scene, master + strlen("grpc://")),
                        "/job:local/replica:0/task:0/device:CPU:0");
}

static void a_copy_of_the_resolver_shares_the_server(void **state)
{
    struct scene *scene = *state;
    struct muster_resolver *copy = NULL;
    struct muster_server *server;

    (void)ask_cluster(scene->resolver);
    server = scene->coordinator.server;
    assert_int_equal(muster_tpu_resolver_copy(scene->resolver, &copy, NULL), MUSTER_OK);
    assert_string_equal(ask_cluster(copy), cluster_with_server(scene));
    assert_ptr_equal(scene->coordinator.server, server);
    close_resolver(copy);
}

static void a_second_resolver_gets_the_server_that_is_there(void **state)
{
    struct scene *scene = *state;
    struct muster_resolver *second = NULL;
    struct muster_server *server;

    (void)ask_cluster(scene->resolver);
    server = scene->coordinator.server;
    assert_int_equal(muster_tpu_resolver_open(scene->cloud.env, &scene->options, &second, NULL),
                     MUSTER_OK);
    assert_string_equal(ask_cluster(second), cluster_with_server(scene));
    assert_ptr_equal(scene->coordinator.server, server);
    close_resolver(second);
}

static void the_program_says_what_the_server_is(void **state)
{
    static const struct muster_server_device devices[] = {{.type = "TPU", .number = 2}};
    const struct muster_server_options options = {.bind_host = "127.0.0.1",
                                                  .devices = devices,
                                                  .device_count = 1,
                                                  .job = "unread",
                                                  .port = 1};
    struct scene *scene = *state;

    scene->coordinator.options = &options;
    scene->coordinator.job = "coordinator";
    (void)ask_cluster(scene->resolver);

    assert_string_equal(ask_device(scene, muster_server_target(scene->coordinator.server) + 7),
                        "/job:coordinator/replica:0/task:0/device:TPU:2");
    assert_int_equal(muster_server_address(scene->coordinator.server)->ip[0], 127);
}

static void a_server_that_cannot_start_fails_the_question_and_the_next_one_tries_again(void **state)
{
    const struct muster_server_options options = {.bind_host = "192.0.2.1"}; /* nobody's */
    struct scene *scene = *state;

    scene->coordinator.options = &options;
    assert_non_null(strstr(ask_cluster(scene->resolver), "192.0.2.1"));
    assert_null(scene->coordinator.server);

    scene->coordinator.options = NULL;
    assert_non_null(strstr(ask_cluster(scene->resolver), "\"coordinator\":[\"127.0.0.1:"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_question_for_the_cluster_starts_a_server_that_answers_there),
        CASE(a_copy_of_the_resolver_shares_the_server),
        CASE(a_second_resolver_gets_the_server_that_is_there),
        CASE(the_program_says_what_the_server_is),
        CASE(a_server_that_cannot_start_fails_the_question_and_the_next_one_tries_again),
    };

    return cmocka_run_group_tests_name("cluster.server.tpu_coordinator", tests, NULL, NULL);
}
