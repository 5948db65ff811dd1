/* Each allocation of a client fails once: no crash, no leak, one done, and the next call is served.
 */
#include "rpc_fixture.h"

#include <stdlib.h>
#include <string.h>

#define ALLOCATIONS_MAX 2000

struct scene {
    struct rpc_fixture rpc;
    unsigned calls;
};

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct scene *scene = muster_rpc_service(rpc);

    if (scene->calls++ % 3 == 0) {
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, "again");
        return;
    }
    muster_rpc_finish(rpc, muster_rpc_send(rpc, message.data, message.size), NULL);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Memory/Unary", .on_message = on_message, .is_unary = true}};

static int set_up(void **state)
{
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    rpc_fixture_hang_up(&scene->rpc);
    assert_int_equal(muster_rpc_server_add(scene->rpc.server, methods, 1, scene), MUSTER_OK);
    return 0;
}

/* A text, not only the address of the server behind a colon. */
static void check_reason(const struct rpc_probe *probe)
{
    const char *text = probe->call.status.text;

    if (probe->call.status.rc != MUSTER_OK)
        assert_true(text[0] != '\0' && text[0] != ':');
}

/* One call on a new channel, while the i-th allocation fails. False: so many there were not. */
static bool call_survives(struct scene *scene, const struct muster_channel_options *options,
                          uint64_t i)
{
    struct muster_call_options call = {.method = "/test.Memory/Unary",
                                       .deadline_ns = rpc_fixture_after_ms(&scene->rpc, 60000)};
    struct rpc_probe probe = {.done = 0};
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;
    bool has_failed;

    scene->rpc.test.mem.fail_at = i;
    if (muster_channel_open(scene->rpc.env, muster_address_format(&scene->rpc.address, target),
                            options, &scene->rpc.channel, &error) != MUSTER_OK) {
        assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
        scene->rpc.channel = NULL;
        return true;
    }
    muster_channel_set_data(scene->rpc.channel, &scene->rpc);
    scene->rpc.is_channel_closed = false;
    if (rpc_probe_start_with(&probe, &scene->rpc, &call) == MUSTER_OK) {
        if (muster_call_send(&probe.call, "x", 1) == MUSTER_OK)
            muster_call_half_close(&probe.call);
        else
            muster_call_cancel(&probe.call);
        rpc_probe_wait(&probe, &scene->rpc);
        assert_int_equal(probe.done, 1);
        check_reason(&probe);
    }
    has_failed = scene->rpc.test.mem.fail_at == 0;
    scene->rpc.test.mem.fail_at = 0;
    rpc_fixture_hang_up(&scene->rpc);
    return has_failed;
}

static void torture_channel(struct scene *scene, const struct muster_channel_options *options)
{
    uint64_t i = 1;

    while (call_survives(scene, options, i))
        assert_true(++i < ALLOCATIONS_MAX);
    assert_true(i > 5);
}

static const struct muster_method_policy repeat = {
    .retry = {.attempts_max = 4,
              .codes =
                  MUSTER_RETRY_ON(MUSTER_UNAVAILABLE) | MUSTER_RETRY_ON(MUSTER_RESOURCE_EXHAUSTED),
              .backoff_base_ns = MUSTER_NS_PER_MS,
              .backoff_max_ns = MUSTER_NS_PER_MS,
              .backoff_multiplier = 1}};

static void pick_first_with_repetitions(void **state)
{
    const struct muster_channel_options options = {
        .backoff_base_ns = MUSTER_NS_PER_MS, .method_policies = &repeat, .method_policy_count = 1};

    torture_channel(*state, &options);
}

static void a_call_that_fails_says_why(void **state)
{
    const struct muster_channel_options options = {.backoff_base_ns = MUSTER_NS_PER_MS};

    torture_channel(*state, &options);
}

static void round_robin_with_health_checks(void **state)
{
    const struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                   .health_service = "",
                                                   .backoff_base_ns = MUSTER_NS_PER_MS,
                                                   .method_policies = &repeat,
                                                   .method_policy_count = 1,
                                                   .connections_max = 3};

    torture_channel(*state, &options);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest memory[] = {
        CASE(pick_first_with_repetitions),
        CASE(round_robin_with_health_checks),
        CASE(a_call_that_fails_says_why),
    };

    return cmocka_run_group_tests(memory, NULL, NULL);
}
