/* Round robin asks its servers whether they serve (gRPC A17). */
#include "rpc_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#define SERVERS 2

struct scene {
    struct rpc_fixture rpc; /* its environment and channel */
    struct rpc_backend backends[SERVERS];
};

static int set_up(void **state)
{
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    rpc_fixture_stop_serving(&scene->rpc, 0);
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    rpc_fixture_hang_up(&scene->rpc);
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_stop(&scene->backends[i], &scene->rpc);
    rpc_fixture_close(&scene->rpc);
    free(scene);
    return 0;
}

static void scene_dial(struct scene *scene, const char *service)
{
    const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                   .health_service = service,
                                                   .backoff_base_ns = MUSTER_NS_PER_MS,
                                                   .backoff_max_ns = 4 * MUSTER_NS_PER_MS};

    rpc_backends_dial(scene->backends, SERVERS, &scene->rpc, NULL, &options);
}

/* Both serve, and a channel is there that asks for the health of the service. */
static void scene_open(struct scene *scene, bool has_health, const char *service)
{
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_serve(&scene->backends[i], &scene->rpc, has_health);
    scene_dial(scene, service);
}

static void ask_until_both_serve(struct scene *scene)
{
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_ask_until_served(&scene->backends[i], &scene->rpc);
}

static void say_status(struct scene *scene, unsigned i, enum muster_health_status status)
{
    assert_int_equal(muster_rpc_health_set(scene->backends[i].health, "test.Echo", status),
                     MUSTER_OK);
}

static enum muster_rc scene_ask(struct scene *scene)
{
    return rpc_fixture_ask(&scene->rpc, "Unary", "x").rc;
}

/* So that what was said has arrived. */
static void scene_settle(struct scene *scene)
{
    for (unsigned i = 0; i < 20; i++)
        (void)scene_ask(scene);
    for (unsigned i = 0; i < SERVERS; i++)
        scene->backends[i].served = 0;
}

static void only_servers_that_serve_are_called(void **state)
{
    struct scene *scene = *state;

    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_serve(&scene->backends[i], &scene->rpc, true);
    say_status(scene, 0, MUSTER_HEALTH_SERVING);
    say_status(scene, 1, MUSTER_HEALTH_NOT_SERVING);
    scene_dial(scene, "test.Echo");
    scene_settle(scene);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 10);
    assert_int_equal(scene->backends[1].served, 0);

    say_status(scene, 1, MUSTER_HEALTH_SERVING);
    rpc_backend_ask_until_served(&scene->backends[1], &scene->rpc);
    say_status(scene, 0, MUSTER_HEALTH_NOT_SERVING);
    scene_settle(scene);
    assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 0);
}

static void servers_without_health_are_called(void **state)
{
    struct scene *scene = *state;

    scene_open(scene, false, "test.Echo");

    ask_until_both_serve(scene);
}

static void calls_fail_when_none_serves(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_open(scene, true, "test.Echo"); /* none of them knows the service */
    muster_channel_connect(scene->rpc.channel);
    test_env_run_until(scene->rpc.env, rpc_channel_is_failing, scene->rpc.channel);
    rpc_probe_ask(&probe, &scene->rpc, "Unary", "x");
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(probe.text, "\"test.Echo\" is not serving"));

    say_status(scene, 1, MUSTER_HEALTH_SERVING);
    rpc_backend_ask_until_served(&scene->backends[1], &scene->rpc);
}

static void a_server_that_closes_is_left(void **state)
{
    struct scene *scene = *state;

    scene_open(scene, true, "");
    ask_until_both_serve(scene);
    muster_rpc_health_shut_down(scene->backends[0].health);
    scene_settle(scene);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 0);

    rpc_backend_stop(&scene->backends[0], &scene->rpc);
    assert_int_equal(scene_ask(scene), MUSTER_OK);
}

static void watches_survive_the_loss_of_connections(void **state)
{
    struct scene *scene = *state;

    scene_open(scene, true, "");
    ask_until_both_serve(scene);
    rpc_backend_stop(&scene->backends[0], &scene->rpc);
    scene_settle(scene);
    rpc_backend_serve(&scene->backends[0], &scene->rpc, false);

    rpc_backend_ask_until_served(&scene->backends[0], &scene->rpc);
}

static void pick_first_does_not_ask(void **state)
{
    struct scene *scene = *state;
    static const struct muster_channel_options options = {.health_service = ""};
    struct muster_channel *channel;
    struct muster_error error;

    assert_int_equal(muster_channel_open(scene->rpc.env, "127.0.0.1:1", &options, &channel, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "MUSTER_ROUND_ROBIN"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest health[] = {
        CASE(only_servers_that_serve_are_called),
        CASE(servers_without_health_are_called),
        CASE(calls_fail_when_none_serves),
        CASE(a_server_that_closes_is_left),
        CASE(watches_survive_the_loss_of_connections),
        CASE(pick_first_does_not_ask),
    };

    return cmocka_run_group_tests(health, NULL, NULL);
}
