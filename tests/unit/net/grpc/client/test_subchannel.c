/* A subchannel that its channel needs no more: its calls end, then it goes, whatever it was doing. */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "net/grpc/client/channel_internal.h"

static int set_up(void **state)
{
    static const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                          .backoff_base_ns = MUSTER_NS_PER_MS};
    struct rpc_fixture *fixture = rpc_scene_open(state, sizeof(*fixture), NULL, NULL);

    rpc_fixture_redial(fixture, &options);
    return 0;
}

static struct muster_rpc_subchannel *only_subchannel(const struct rpc_fixture *fixture)
{
    struct muster_list *node = fixture->channel->subchannels.next;

    assert_ptr_not_equal(node, &fixture->channel->subchannels);
    return MUSTER_CONTAINER_OF(node, struct muster_rpc_subchannel, node);
}

static bool is_gone(void *data)
{
    return muster_list_is_empty(&((struct rpc_fixture *)data)->channel->subchannels);
}

static bool is_hanging(void *data)
{
    return ((struct rpc_fixture *)data)->hanging != NULL;
}

static void an_orderly_end_waits_for_calls(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Hang");
    test_env_run_until(fixture->env, is_hanging, fixture);
    muster_rpc_subchannel_close(only_subchannel(fixture), true);
    test_env_turn(fixture->env, 32);
    assert_false(is_gone(fixture));
    assert_int_equal(probe.done, 0);
    muster_rpc_finish(fixture->hanging, MUSTER_OK, NULL);
    rpc_probe_wait(&probe, fixture);

    assert_int_equal(probe.rc, MUSTER_OK);
    test_env_run_until(fixture->env, is_gone, fixture);
}

static void one_that_is_not_connected_goes_at_once(void **state)
{
    struct rpc_fixture *fixture = *state;

    rpc_fixture_stop_serving(fixture, 0);
    muster_channel_connect(fixture->channel);
    for (unsigned i = 0; i < 10000 && is_gone(fixture); i++)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);
    muster_rpc_subchannel_close(only_subchannel(fixture), true);

    test_env_run_until(fixture->env, is_gone, fixture);
}

static void it_goes_at_every_step_of_connecting(void **state)
{
    static const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                          .health_service = "",
                                                          .backoff_base_ns = MUSTER_NS_PER_MS};
    struct rpc_fixture *fixture = *state;

    for (unsigned turns = 1; turns < 16; turns++) {
        rpc_fixture_redial(fixture, &options);
        muster_channel_connect(fixture->channel);
        while (is_gone(fixture))
            muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);
        test_env_turn(fixture->env, turns);
        muster_rpc_subchannel_close(only_subchannel(fixture), true);
        test_env_run_until(fixture->env, is_gone, fixture);
    }
}

static void an_orderly_end_can_be_cut_short(void **state)
{
    struct rpc_fixture *fixture = *state;
    struct rpc_probe probe = {.done = 0};

    rpc_probe_begin(&probe, fixture, "Hang");
    test_env_run_until(fixture->env, is_hanging, fixture);
    muster_rpc_subchannel_close(only_subchannel(fixture), true);
    rpc_fixture_hang_up(fixture);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
}

static bool are_two_hanging(void *data)
{
    return ((struct rpc_fixture *)data)->started == 2;
}

/* A server that is not healthy may have moved: it is looked for again, whatever connections are left. */
static void only_a_ready_one_goes_on_with_another_connection(void **state)
{
    static const struct muster_rpc_server_options one_call = {.concurrent_streams_max = 1};
    static const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                          .connections_max = 2,
                                                          .backoff_base_ns = MUSTER_NS_PER_MS};
    static const struct {
        enum muster_channel_state state;
        bool goes_on;
    } rows[] = {{MUSTER_CHANNEL_READY, true}, {MUSTER_CHANNEL_TRANSIENT_FAILURE, false}};
    static struct rpc_probe probes[2]; /* outlive a case that fails */
    struct rpc_fixture *fixture = *state;

    rpc_fixture_serve_with(fixture, &one_call);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_error error = {.rc = MUSTER_UNAVAILABLE, .text = "not serving"};
        struct muster_rpc_subchannel *subchannel;
        struct muster_rpc_transport *first;

        memset(probes, 0, sizeof(probes));
        fixture->started = 0;
        rpc_fixture_redial(fixture, &options);
        rpc_probe_begin(&probes[0], fixture, "Hang");
        rpc_probe_begin(&probes[1], fixture, "Hang");
        test_env_run_until(fixture->env, are_two_hanging, fixture);
        subchannel = only_subchannel(fixture);
        first = subchannel->current;
        assert_int_equal(subchannel->state, MUSTER_CHANNEL_READY);
        if (rows[i].state != MUSTER_CHANNEL_READY)
            subchannel->events->on_judged(subchannel, rows[i].state, &error);
        muster_rpc_subchannel_retire(subchannel, first, "it is old");

        assert_ptr_not_equal(subchannel->current, first);
        assert_int_equal(subchannel->current != NULL, rows[i].goes_on);
        assert_int_equal(subchannel->state == MUSTER_CHANNEL_READY, rows[i].goes_on);
        rpc_fixture_hang_up(fixture);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest ends[] = {
        CASE(an_orderly_end_waits_for_calls),
        CASE(one_that_is_not_connected_goes_at_once),
        CASE(it_goes_at_every_step_of_connecting),
        CASE(an_orderly_end_can_be_cut_short),
        CASE(only_a_ready_one_goes_on_with_another_connection),
    };

    return cmocka_run_group_tests(ends, NULL, NULL);
}
