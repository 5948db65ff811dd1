/* Further connections to a server whose bound of concurrent streams is reached (gRPC A105). */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#define CALLS 8

struct scene {
    struct rpc_fixture rpc;
    struct rpc_probe probes[CALLS];
    unsigned awaited;
};

static int set_up(void **state)
{
    const struct muster_rpc_server_options two = {.concurrent_streams_max = 2};

    (void)rpc_scene_open(state, sizeof(struct scene), &two, NULL);
    return 0;
}

static void scene_dial(struct scene *scene, uint32_t connections_max,
                       enum muster_load_balancing policy)
{
    const struct muster_channel_options options = {.connections_max = connections_max,
                                                   .load_balancing = policy,
                                                   .backoff_base_ns = MUSTER_NS_PER_MS};

    rpc_fixture_redial(&scene->rpc, &options);
}

static void start_hanging(struct scene *scene, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        rpc_probe_begin(&scene->probes[i], &scene->rpc, "Hang");
}

static bool are_started(void *data)
{
    const struct scene *scene = data;

    return scene->rpc.started >= scene->awaited;
}

static void wait_for(struct scene *scene, unsigned started)
{
    scene->awaited = started;
    test_env_run_until(scene->rpc.env, are_started, scene);
    test_env_turn(scene->rpc.env, 64); /* would there be more? */
    assert_int_equal(scene->rpc.started, started);
}

static void a_full_connection_gets_others_beside_it(void **state)
{
    struct scene *scene = *state;

    scene_dial(scene, 4, MUSTER_PICK_FIRST);
    start_hanging(scene, 7);

    wait_for(scene, 7);
}

static void connections_have_a_bound(void **state)
{
    struct scene *scene = *state;

    scene_dial(scene, 2, MUSTER_PICK_FIRST);
    start_hanging(scene, 6);
    wait_for(scene, 4);
    muster_call_cancel(&scene->probes[0].call);

    wait_for(scene, 5);
}

static void one_connection_is_the_default(void **state)
{
    struct scene *scene = *state;

    scene_dial(scene, 0, MUSTER_PICK_FIRST);
    start_hanging(scene, 4);

    wait_for(scene, 2);
}

static void round_robin_does_it_too(void **state)
{
    struct scene *scene = *state;

    scene_dial(scene, 3, MUSTER_ROUND_ROBIN);
    start_hanging(scene, 6);

    wait_for(scene, 6);
}

static void room_on_an_older_connection_is_used_first(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe more = {.done = 0};

    scene_dial(scene, 4, MUSTER_PICK_FIRST);
    start_hanging(scene, 4);
    wait_for(scene, 4);
    muster_call_cancel(&scene->probes[0].call);
    rpc_probe_wait(&scene->probes[0], &scene->rpc);
    test_env_turn(scene->rpc.env, 16);
    rpc_probe_ask(&more, &scene->rpc, "Unary", "x");

    assert_int_equal(more.rc, MUSTER_OK);
}

static void calls_wait_out_a_server_that_takes_no_more_connections(void **state)
{
    struct scene *scene = *state;
    const struct muster_rpc_server_options narrow = {.concurrent_streams_max = 2,
                                                     .connections_max = 1};

    rpc_fixture_serve_with(&scene->rpc, &narrow);
    scene_dial(scene, 4, MUSTER_PICK_FIRST);
    start_hanging(scene, 4);
    wait_for(scene, 2);
    assert_int_equal(muster_channel_state(scene->rpc.channel), MUSTER_CHANNEL_READY);
    muster_call_cancel(&scene->probes[0].call);
    muster_call_cancel(&scene->probes[1].call);

    wait_for(scene, 4);
}

static void all_connections_are_lost_with_the_server(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .wait_for_ready = true};

    scene_dial(scene, 4, MUSTER_PICK_FIRST);
    start_hanging(scene, 6);
    wait_for(scene, 6);
    rpc_fixture_stop_serving(&scene->rpc, 0);
    for (unsigned i = 0; i < 6; i++) {
        rpc_probe_wait(&scene->probes[i], &scene->rpc);
        assert_int_equal(scene->probes[i].rc, MUSTER_UNAVAILABLE);
    }
    rpc_fixture_serve(&scene->rpc, NULL);
    rpc_probe_ask_with(&probe, &scene->rpc, &options, "x");

    assert_int_equal(probe.rc, MUSTER_OK);
}

static void a_channel_closes_while_it_opens_another_connection(void **state)
{
    struct scene *scene = *state;

    for (unsigned turns = 0; turns < 12; turns++) {
        memset(scene->probes, 0, sizeof(scene->probes));
        scene->rpc.started = 0;
        scene_dial(scene, 4, MUSTER_PICK_FIRST);
        start_hanging(scene, 5);
        test_env_turn(scene->rpc.env, turns);
        rpc_fixture_hang_up(&scene->rpc);
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(scene->probes[i].rc, MUSTER_CANCELLED);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest scaling[] = {
        CASE(a_full_connection_gets_others_beside_it),
        CASE(connections_have_a_bound),
        CASE(one_connection_is_the_default),
        CASE(round_robin_does_it_too),
        CASE(room_on_an_older_connection_is_used_first),
        CASE(calls_wait_out_a_server_that_takes_no_more_connections),
        CASE(all_connections_are_lost_with_the_server),
        CASE(a_channel_closes_while_it_opens_another_connection),
    };

    return cmocka_run_group_tests(scaling, NULL, NULL);
}
