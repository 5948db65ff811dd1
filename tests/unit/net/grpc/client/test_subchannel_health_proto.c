/* Round robin asks its servers whether they serve (gRPC A17). */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#define SERVERS 2

struct backend {
    struct muster_rpc_server *server;
    struct muster_rpc_health *health; /* NULL: it does not serve that */
    struct muster_address address;
    unsigned served;
    bool is_closed;
};

struct scene {
    struct rpc_fixture rpc; /* its environment and channel */
    struct backend backends[SERVERS];
};

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    ((struct backend *)muster_rpc_service(rpc))->served++;
    assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Echo/Unary", .on_message = on_message, .is_unary = true}};

static void backend_serve(struct scene *scene, unsigned i, bool has_health)
{
    struct backend *backend = &scene->backends[i];

    assert_int_equal(muster_address_parse("127.0.0.1:0", &backend->address, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_open(scene->rpc.env, NULL, &backend->server), MUSTER_OK);
    muster_rpc_server_set_data(backend->server, backend);
    assert_int_equal(muster_rpc_server_add(backend->server, methods, 1, backend), MUSTER_OK);
    if (has_health)
        assert_int_equal(muster_rpc_health_open(backend->server, &backend->health), MUSTER_OK);
    assert_int_equal(
        muster_rpc_server_listen(backend->server, &backend->address, &backend->address, NULL),
        MUSTER_OK);
}

static void on_closed(struct muster_rpc_server *server)
{
    ((struct backend *)muster_rpc_server_data(server))->is_closed = true;
}

static void backend_stop(struct scene *scene, unsigned i)
{
    struct backend *backend = &scene->backends[i];

    if (backend->server == NULL)
        return;
    muster_rpc_server_close(backend->server, 0, on_closed);
    test_env_run_until(scene->rpc.env, test_env_is_true, &backend->is_closed);
    memset(backend, 0, sizeof(*backend));
}

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
        backend_stop(scene, i);
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
    char target[256], first[MUSTER_ADDRESS_TEXT_BYTES], second[MUSTER_ADDRESS_TEXT_BYTES];

    (void)snprintf(target, sizeof(target), "%s,%s",
                   muster_address_format(&scene->backends[0].address, first),
                   muster_address_format(&scene->backends[1].address, second));
    rpc_fixture_hang_up(&scene->rpc);
    rpc_fixture_dial(&scene->rpc, target, &options);
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

static void ask_until_served(struct scene *scene, unsigned i)
{
    scene->backends[i].served = 0;
    for (unsigned tries = 0; scene->backends[i].served == 0; tries++) {
        assert_true(tries < 100000);
        (void)scene_ask(scene);
    }
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

    backend_serve(scene, 0, true);
    backend_serve(scene, 1, true);
    say_status(scene, 0, MUSTER_HEALTH_SERVING);
    say_status(scene, 1, MUSTER_HEALTH_NOT_SERVING);
    scene_dial(scene, "test.Echo");
    scene_settle(scene);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 10);
    assert_int_equal(scene->backends[1].served, 0);

    say_status(scene, 1, MUSTER_HEALTH_SERVING);
    ask_until_served(scene, 1);
    say_status(scene, 0, MUSTER_HEALTH_NOT_SERVING);
    scene_settle(scene);
    assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 0);
}

static void servers_without_health_are_called(void **state)
{
    struct scene *scene = *state;

    backend_serve(scene, 0, false);
    backend_serve(scene, 1, false);
    scene_dial(scene, "test.Echo");

    ask_until_served(scene, 0);
    ask_until_served(scene, 1);
}

static bool is_failing(void *data)
{
    return muster_channel_state(data) == MUSTER_CHANNEL_TRANSIENT_FAILURE;
}

static void calls_fail_when_none_serves(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    backend_serve(scene, 0, true);
    backend_serve(scene, 1, true); /* none of them knows the service */
    scene_dial(scene, "test.Echo");
    muster_channel_connect(scene->rpc.channel);
    test_env_run_until(scene->rpc.env, is_failing, scene->rpc.channel);
    rpc_probe_ask(&probe, &scene->rpc, "Unary", "x");
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(probe.text, "\"test.Echo\" is not serving"));

    say_status(scene, 1, MUSTER_HEALTH_SERVING);
    ask_until_served(scene, 1);
}

static void a_server_that_closes_is_left(void **state)
{
    struct scene *scene = *state;

    backend_serve(scene, 0, true);
    backend_serve(scene, 1, true);
    scene_dial(scene, "");
    ask_until_served(scene, 0);
    ask_until_served(scene, 1);
    muster_rpc_health_shut_down(scene->backends[0].health);
    scene_settle(scene);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 0);

    backend_stop(scene, 0);
    assert_int_equal(scene_ask(scene), MUSTER_OK);
}

static void watches_survive_the_loss_of_connections(void **state)
{
    struct scene *scene = *state;
    struct muster_address address;

    backend_serve(scene, 0, true);
    backend_serve(scene, 1, true);
    address = scene->backends[0].address;
    scene_dial(scene, "");
    ask_until_served(scene, 0);
    ask_until_served(scene, 1);
    backend_stop(scene, 0);
    scene_settle(scene);
    assert_int_equal(muster_rpc_server_open(scene->rpc.env, NULL, &scene->backends[0].server),
                     MUSTER_OK);
    muster_rpc_server_set_data(scene->backends[0].server, &scene->backends[0]);
    assert_int_equal(
        muster_rpc_server_add(scene->backends[0].server, methods, 1, &scene->backends[0]),
        MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(scene->backends[0].server, &address, NULL, NULL),
                     MUSTER_OK);

    ask_until_served(scene, 0);
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
