/* Each allocation of a client, and of its server, fails: no crash, no leak, one done, and the next call is served.
 */
#include "rpc_fixture.h"
#include "torture.h"

#include <stdlib.h>
#include <string.h>

struct scene {
    struct rpc_fixture rpc;
    unsigned calls;
};

static void on_message(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct scene *called = muster_rpc_service(rpc);

    if (called->calls++ % 3 == 0) {
        muster_rpc_finish(rpc, MUSTER_UNAVAILABLE, "again");
        return;
    }
    muster_rpc_finish(rpc, muster_rpc_send(rpc, message.data, message.size), NULL);
}

static const struct muster_rpc_method methods[] = {
    {.path = "/test.Memory/Unary", .on_message = on_message, .is_unary = true}};

static int set_up(void **state)
{
    struct scene *opened = rpc_scene_open(state, sizeof(*opened), NULL, NULL);

    rpc_fixture_hang_up(&opened->rpc);
    assert_int_equal(muster_rpc_server_add(opened->rpc.server, methods, 1, opened), MUSTER_OK);
    return 0;
}

/* A text, not only the address of the server behind a colon. */
static void check_reason(const struct rpc_probe *probe)
{
    const char *text = probe->call.status.text;

    if (probe->call.status.rc != MUSTER_OK)
        assert_true(text[0] != '\0' && text[0] != ':');
}

struct row {
    const char *name;
    struct muster_channel_options options;
};

static struct scene *scene;

static void call_once(struct rpc_fixture *rpc)
{
    struct muster_call_options call = {.method = "/test.Memory/Unary",
                                       .deadline_ns = rpc_fixture_after_ms(rpc, 60000)};
    struct rpc_probe probe = {.done = 0};

    if (rpc_probe_start_with(&probe, rpc, &call) != MUSTER_OK)
        return;
    if (muster_call_send(&probe.call, "x", 1) == MUSTER_OK)
        muster_call_half_close(&probe.call);
    else
        muster_call_cancel(&probe.call);
    rpc_probe_wait(&probe, rpc);
    assert_int_equal(probe.done, 1);
    check_reason(&probe);
}

/* With memory a connection is accepted again, so that the listener's next pause is short. */
static void call_served(struct rpc_fixture *rpc)
{
    unsigned before = scene->calls, tries = 0;

    while (scene->calls == before) {
        assert_true(tries++ < 10000);
        call_once(rpc);
    }
}

/* Two calls on a new channel: the first one connects. */
static void run_calls(struct torture *torture, const void *data)
{
    const struct row *row = data;
    struct rpc_fixture *rpc = &scene->rpc;
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_error error;

    torture_arm_limited(torture, &rpc->test.mem);
    if (muster_channel_open(rpc->env, muster_address_format(&rpc->address, target), &row->options,
                            &rpc->channel, &error) != MUSTER_OK) {
        torture_disarm(torture);
        assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
        rpc->channel = NULL;
        return;
    }
    muster_channel_set_data(rpc->channel, rpc);
    rpc->is_channel_closed = false;
    call_once(rpc);
    call_once(rpc);
    torture_disarm(torture);
    call_served(rpc);
    rpc_fixture_hang_up(rpc);
}

static const struct muster_method_policy repeat = {
    .retry = {.attempts_max = 4,
              .codes =
                  MUSTER_RETRY_ON(MUSTER_UNAVAILABLE) | MUSTER_RETRY_ON(MUSTER_RESOURCE_EXHAUSTED),
              .backoff_base_ns = MUSTER_NS_PER_MS,
              .backoff_max_ns = MUSTER_NS_PER_MS,
              .backoff_multiplier = 1}};

static void a_call_ends_once_and_says_why(void **state)
{
    static const struct row rows[] = {
        {"one attempt", {.backoff_base_ns = MUSTER_NS_PER_MS}},
        {"repetitions",
         {.backoff_base_ns = MUSTER_NS_PER_MS,
          .method_policies = &repeat,
          .method_policy_count = 1}},
        {"health checks",
         {.load_balancing = MUSTER_ROUND_ROBIN,
          .health_service = "",
          .backoff_base_ns = MUSTER_NS_PER_MS,
          .method_policies = &repeat,
          .method_policy_count = 1,
          .connections_max = 3}},
    };

    scene = *state;
    TORTURE_RUN_ROWS(run_calls, rows);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest memory[] = {
        CASE(a_call_ends_once_and_says_why),
    };

    return cmocka_run_group_tests(memory, NULL, NULL);
}
