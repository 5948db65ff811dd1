/* Round robin over several servers, and what the state of a channel tells. */
#include "rpc_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/stream.h>

#define SERVERS 3

struct scene {
    struct rpc_fixture rpc; /* its environment and channel */
    struct rpc_backend backends[SERVERS];
    char states[256];
};

static void scene_dial(struct scene *scene, const char *prefix)
{
    const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                   .backoff_base_ns = MUSTER_NS_PER_MS,
                                                   .backoff_max_ns = 4 * MUSTER_NS_PER_MS};

    rpc_backends_dial(scene->backends, SERVERS, &scene->rpc, prefix, &options);
}

static int set_up(void **state)
{
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    rpc_fixture_stop_serving(&scene->rpc, 0);
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_serve(&scene->backends[i], &scene->rpc, false);
    scene_dial(scene, "");
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

static enum muster_rc scene_ask(struct scene *scene)
{
    return rpc_fixture_ask(&scene->rpc, "Unary", "x").rc;
}

/* And nothing is counted so far. */
static void ask_until_all_serve(struct scene *scene)
{
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_ask_until_served(&scene->backends[i], &scene->rpc);
    for (unsigned i = 0; i < SERVERS; i++)
        scene->backends[i].served = 0;
}

static void calls_go_to_all_servers_in_turn(void **state)
{
    struct scene *scene = *state;

    ask_until_all_serve(scene);
    for (unsigned i = 0; i < 4 * SERVERS; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);

    for (unsigned i = 0; i < SERVERS; i++)
        assert_int_equal(scene->backends[i].served, 4);
}

static void a_server_named_twice_has_one_turn(void **state)
{
    struct scene *scene = *state;
    char twice[MUSTER_ADDRESS_TEXT_BYTES];

    scene_dial(scene, muster_address_format(&scene->backends[1].address, twice));
    ask_until_all_serve(scene);
    for (unsigned i = 0; i < SERVERS; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);

    assert_int_equal(scene->backends[1].served, 1);
}

static void a_dead_server_is_left_out_until_it_is_back(void **state)
{
    struct scene *scene = *state;

    ask_until_all_serve(scene);
    rpc_backend_stop(&scene->backends[0], &scene->rpc);
    test_env_turn(scene->rpc.env, 32);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);
    assert_int_equal(scene->backends[0].served, 0);
    assert_int_equal(scene->backends[1].served, 5);

    rpc_backend_serve(&scene->backends[0], &scene->rpc, false);
    rpc_backend_ask_until_served(&scene->backends[0], &scene->rpc);
    assert_int_equal(muster_channel_state(scene->rpc.channel), MUSTER_CHANNEL_READY);
}

static void an_address_that_never_answers_is_no_harm(void **state)
{
    struct scene *scene = *state;

    scene_dial(scene, "127.0.0.1:1,unix:/nonexistent/socket");
    ask_until_all_serve(scene);

    for (unsigned i = 0; i < 2 * SERVERS; i++)
        assert_int_equal(scene_ask(scene), MUSTER_OK);
}

static void without_any_server_calls_fail_or_wait(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe patient = {.done = 0};
    struct muster_call_options options = {
        .method = "/test.Echo/Unary", .deadline_ns = UINT64_MAX, .wait_for_ready = true};

    ask_until_all_serve(scene);
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_stop(&scene->backends[i], &scene->rpc);
    test_env_run_until(scene->rpc.env, rpc_channel_is_failing, scene->rpc.channel);
    test_env_turn(scene->rpc.env, 100);
    assert_true(rpc_channel_is_failing(scene->rpc.channel)); /* also while it tries again */
    assert_int_equal(scene_ask(scene), MUSTER_UNAVAILABLE);
    assert_int_equal(rpc_probe_start_with(&patient, &scene->rpc, &options), MUSTER_OK);
    rpc_probe_send_last(&patient, "x");
    rpc_backend_serve(&scene->backends[2], &scene->rpc, false);
    rpc_probe_wait(&patient, &scene->rpc);

    assert_int_equal(patient.rc, MUSTER_OK);
}

/* One call through each of 40 channels to all servers, which takes the first address that answers. */
static void dial_forty_times(struct scene *scene, const struct muster_channel_options *options)
{
    for (unsigned i = 0; i < 40; i++) {
        rpc_backends_dial(scene->backends, SERVERS, &scene->rpc, NULL, options);
        assert_int_equal(scene_ask(scene), MUSTER_OK);
    }
}

static void shuffled_channels_begin_anywhere(void **state)
{
    struct scene *scene = *state;
    const struct muster_channel_options options = {.is_shuffled = true};

    dial_forty_times(scene, &options);

    for (unsigned i = 0; i < SERVERS; i++)
        assert_in_range(scene->backends[i].served, 1, 38);
}

static void other_channels_begin_with_the_first(void **state)
{
    struct scene *scene = *state;
    const struct muster_channel_options options = {.is_shuffled = false};

    dial_forty_times(scene, &options);

    assert_int_equal(scene->backends[0].served, 40);
}

static void a_name_is_balanced_too(void **state)
{
    struct scene *scene = *state;
    char name[64];

    (void)snprintf(name, sizeof(name), "localhost:%u", scene->backends[0].address.port);
    scene_dial(scene, name);
    ask_until_all_serve(scene);

    assert_int_equal(scene_ask(scene), MUSTER_OK);
}

static void a_channel_closes_while_it_looks_up_and_connects(void **state)
{
    struct scene *scene = *state;

    scene_dial(scene, "localhost:1");
    muster_channel_connect(scene->rpc.channel);
    rpc_fixture_hang_up(&scene->rpc);
    for (unsigned turns = 1; turns < 6; turns++) {
        scene_dial(scene, "");
        muster_channel_connect(scene->rpc.channel);
        test_env_turn(scene->rpc.env, turns);
        rpc_fixture_hang_up(&scene->rpc);
    }

    assert_true(scene->rpc.is_channel_closed);
}

static void on_state(struct muster_channel *channel)
{
    struct rpc_fixture *fixture = muster_channel_data(channel);
    struct scene *scene = MUSTER_CONTAINER_OF(fixture, struct scene, rpc);
    size_t length = strlen(scene->states);

    scene->states[length] = (char)('0' + muster_channel_state(channel));
}

static bool is_ready(void *data)
{
    return muster_channel_state(data) == MUSTER_CHANNEL_READY;
}

static void changes_of_state_are_told(void **state)
{
    struct scene *scene = *state;

    muster_channel_set_on_state(scene->rpc.channel, on_state);
    muster_channel_connect(scene->rpc.channel);
    muster_channel_connect(scene->rpc.channel);
    assert_string_equal(scene->states, "");
    test_env_run_until(scene->rpc.env, is_ready, scene->rpc.channel);
    test_env_turn(scene->rpc.env, 2);
    assert_string_equal(scene->states, "12");
    for (unsigned i = 0; i < SERVERS; i++)
        rpc_backend_stop(&scene->backends[i], &scene->rpc);
    test_env_run_until(scene->rpc.env, rpc_channel_is_failing, scene->rpc.channel);
    test_env_turn(scene->rpc.env, 2);

    assert_int_equal(scene->states[strlen(scene->states) - 1], '3');
    rpc_fixture_hang_up(&scene->rpc);
    assert_null(strchr(scene->states, '4'));
}

static void pick_first_tells_its_states_too(void **state)
{
    struct scene *scene = *state;

    rpc_backends_dial(scene->backends, 1, &scene->rpc, NULL, NULL);
    muster_channel_set_on_state(scene->rpc.channel, on_state);
    muster_channel_connect(scene->rpc.channel);
    test_env_run_until(scene->rpc.env, is_ready, scene->rpc.channel);
    assert_int_equal(scene_ask(scene), MUSTER_OK);
    rpc_backend_stop(&scene->backends[0], &scene->rpc);
    test_env_turn(scene->rpc.env, 32);

    assert_string_equal(scene->states, "120");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest balance[] = {
        CASE(calls_go_to_all_servers_in_turn),
        CASE(a_server_named_twice_has_one_turn),
        CASE(a_dead_server_is_left_out_until_it_is_back),
        CASE(an_address_that_never_answers_is_no_harm),
        CASE(without_any_server_calls_fail_or_wait),
        CASE(shuffled_channels_begin_anywhere),
        CASE(other_channels_begin_with_the_first),
        CASE(a_name_is_balanced_too),
        CASE(a_channel_closes_while_it_looks_up_and_connects),
        CASE(changes_of_state_are_told),
        CASE(pick_first_tells_its_states_too),
    };

    return cmocka_run_group_tests(balance, NULL, NULL);
}
