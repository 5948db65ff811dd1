/* Calls that are sent again by their policy, before a server that fails first and serves later. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assertion_count.h"

#define HOUR_NS (3600 * MUSTER_NS_PER_S)

/* How the server treats its first calls. */
struct script {
    unsigned fail_count;
    enum muster_rc code;
    const char *pushback;
    bool has_headers; /* before it fails */
    bool hangs;       /* instead of failing */
};

static const struct script fails_once = {.fail_count = 1, .code = MUSTER_UNAVAILABLE};

struct scene {
    struct rpc_fixture rpc;
    struct script script;
    unsigned calls, awaited;
    char previous[64]; /* grpc-previous-rpc-attempts of each call */
    struct muster_method_policy policy;
    unsigned released;
};

static struct scene *scene_of(const struct muster_rpc *rpc)
{
    return muster_rpc_service(rpc);
}

static void on_start(struct muster_rpc *rpc)
{
    struct scene *scene = scene_of(rpc);
    struct muster_metadata metadata = muster_rpc_metadata(rpc);
    const struct muster_metadata_entry *entry =
        muster_metadata_find(&metadata, "grpc-previous-rpc-attempts");
    size_t length = strlen(scene->previous);

    scene->calls++;
    (void)snprintf(scene->previous + length, sizeof(scene->previous) - length, "%s,",
                   entry != NULL ? (const char *)entry->value : "-");
}

/* True: this call ends as the script says. */
static bool does_fail(struct muster_rpc *rpc)
{
    const struct script *script = &scene_of(rpc)->script;

    if (scene_of(rpc)->calls > script->fail_count)
        return false;
    if (script->hangs)
        return true;
    if (script->has_headers)
        muster_rpc_send_headers(rpc, (struct muster_metadata){NULL, 0});
    if (script->pushback != NULL) {
        struct muster_metadata_entry entry = {"grpc-retry-pushback-ms", script->pushback,
                                              strlen(script->pushback)};

        muster_rpc_set_trailers(rpc, (struct muster_metadata){&entry, 1});
    }
    muster_rpc_finish(rpc, script->code, "as the script says");
    return true;
}

static void on_unary(struct muster_rpc *rpc, struct muster_bytes message)
{
    if (does_fail(rpc))
        return;
    assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void on_stream(struct muster_rpc *rpc, struct muster_bytes message)
{
    if (!does_fail(rpc))
        assert_int_equal(muster_rpc_send(rpc, message.data, message.size), MUSTER_OK);
}

static void on_stream_end(struct muster_rpc *rpc)
{
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static const char unary[] = "/test.Flaky/Unary", stream[] = "/test.Flaky/Stream";
static const struct muster_rpc_method methods[] = {
    {.path = unary, .on_start = on_start, .on_message = on_unary, .is_unary = true},
    {.path = stream, .on_start = on_start, .on_message = on_stream, .on_half_close = on_stream_end},
};

static void scene_serve(struct scene *scene)
{
    rpc_fixture_serve(&scene->rpc, NULL);
    assert_int_equal(muster_rpc_server_add(scene->rpc.server, methods, 2, scene), MUSTER_OK);
}

static void scene_dial(struct scene *scene, struct muster_channel_options options)
{
    options.backoff_base_ns = MUSTER_NS_PER_MS;
    options.method_policies = &scene->policy;
    options.method_policy_count = 1;
    rpc_fixture_redial(&scene->rpc, &options);
}

static void scene_redial(struct scene *scene)
{
    scene_dial(scene, (struct muster_channel_options){.authority = NULL});
}

/* Between two attempts the channel waits so long. */
static void scene_redial_waiting(struct scene *scene, uint64_t wait_ns)
{
    scene->policy.retry.backoff_base_ns = scene->policy.retry.backoff_max_ns = wait_ns;
    scene_redial(scene);
}

static int set_up(void **state)
{
    struct scene *scene = rpc_scene_open(state, sizeof(*scene), NULL, NULL);

    scene->policy = (struct muster_method_policy){
        .retry = {.attempts_max = 4,
                  .codes = MUSTER_RETRY_ON(MUSTER_UNAVAILABLE),
                  .backoff_base_ns = MUSTER_NS_PER_MS,
                  .backoff_max_ns = 4 * MUSTER_NS_PER_MS,
                  .backoff_multiplier = 2},
    };
    rpc_fixture_stop_serving(&scene->rpc, 0);
    scene_serve(scene);
    scene_redial(scene);
    return 0;
}

static void scene_start(struct scene *scene, struct rpc_probe *probe, const char *method,
                        uint64_t deadline_ns)
{
    struct muster_call_options options = {.method = method, .deadline_ns = deadline_ns};

    assert_int_equal(rpc_probe_start_with(probe, &scene->rpc, &options), MUSTER_OK);
}

static void scene_ask(struct scene *scene, struct rpc_probe *probe, struct script script)
{
    scene->script = script;
    scene_start(scene, probe, unary, UINT64_MAX);
    rpc_probe_send(probe, "hello");
    rpc_probe_end(probe, &scene->rpc);
}

static bool has_calls(void *data)
{
    const struct scene *scene = data;

    return scene->calls >= scene->awaited;
}

static void wait_for_calls(struct scene *scene, unsigned count)
{
    scene->awaited = count;
    test_env_run_until(scene->rpc.env, has_calls, scene);
    test_env_turn(scene->rpc.env, 16);
}

static void the_policy_and_the_server_decide(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *name;
        struct script script;
        enum muster_rc rc;
        const char *previous; /* of each attempt */
    } rows[] = {
        {"it is sent again", {2, .code = MUSTER_UNAVAILABLE}, MUSTER_OK, "-,1,2,"},
        {"attempts are counted", {100, .code = MUSTER_UNAVAILABLE}, MUSTER_UNAVAILABLE, "-,1,2,3,"},
        {"other statuses end the call", {1, .code = MUSTER_NOT_FOUND}, MUSTER_NOT_FOUND, "-,"},
        {"response headers commit",
         {1, MUSTER_UNAVAILABLE, .has_headers = true},
         MUSTER_UNAVAILABLE,
         "-,"},
        {"a negative pushback ends the call",
         {1, MUSTER_UNAVAILABLE, .pushback = "-1"},
         MUSTER_UNAVAILABLE,
         "-,"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rpc_probe probe = {.done = 0};

        scene->calls = 0;
        scene->previous[0] = '\0';
        scene_ask(scene, &probe, rows[i].script);
        fail_if(probe.rc != rows[i].rc || probe.done != 1, "%s: rc %d", rows[i].name, probe.rc);
        fail_if(strcmp(scene->previous, rows[i].previous) != 0, "%s: %s", rows[i].name,
                scene->previous);
        fail_if(strcmp(probe.messages, probe.rc == MUSTER_OK ? "hello" : "") != 0, "%s: %s",
                rows[i].name, probe.messages);
        fail_if(strcmp(probe.text, probe.rc == MUSTER_OK ? "" : "as the script says") != 0,
                "%s: %s", rows[i].name, probe.text);
    }
}

static void more_than_is_kept_commits(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    char text[5001];

    scene_dial(scene, (struct muster_channel_options){.replay_max_bytes = 1000});
    scene->script = fails_once;
    memset(text, 'x', 5000);
    text[5000] = '\0';
    scene_start(scene, &probe, unary, UINT64_MAX);
    rpc_probe_send(&probe, text);
    rpc_probe_end(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(scene->calls, 1);
}

static void a_pushback_sets_the_wait(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_redial_waiting(scene, HOUR_NS);
    scene_ask(scene, &probe,
              (struct script){.fail_count = 1, .code = MUSTER_UNAVAILABLE, .pushback = "2"});

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(scene->calls, 2);
}

/* One attempt has failed; the next is an hour off. */
static void scene_start_waiting(struct scene *scene, struct rpc_probe *probe, const char *method)
{
    scene_redial_waiting(scene, HOUR_NS);
    scene->script = fails_once;
    scene_start(scene, probe, method, UINT64_MAX);
    rpc_probe_send(probe, "x");
    if (method == unary)
        muster_call_half_close(&probe->call);
    wait_for_calls(scene, 1);
}

/* The server's word was of another attempt. */
static void a_call_cancelled_between_two_attempts_is_not_answered(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_start_waiting(scene, &probe, unary);
    test_env_turn(scene->rpc.env, 20);
    rpc_probe_cancel(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    assert_false(probe.call.is_answered);
}

static void a_waiting_call_can_be_cancelled(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_start_waiting(scene, &probe, stream);
    rpc_probe_cancel(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_CANCELLED);
    assert_int_equal(scene->calls, 1);
}

static void a_channel_closes_over_a_waiting_call(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_start_waiting(scene, &probe, stream);
    rpc_fixture_hang_up(&scene->rpc);

    assert_int_equal(probe.done, 1);
    assert_int_equal(probe.rc, MUSTER_CANCELLED);
}

static void too_many_failures_throttle_the_channel(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0}, second = {.done = 0};

    scene_dial(scene, (struct muster_channel_options){
                          .retry_throttle = {.tokens_max = 4, .token_ratio = 0.1}});
    scene_ask(scene, &probe, (struct script){.fail_count = 100, .code = MUSTER_UNAVAILABLE});
    assert_int_equal(scene->calls, 2);
    scene_ask(scene, &second, scene->script);

    assert_int_equal(second.rc, MUSTER_UNAVAILABLE);
    assert_int_equal(scene->calls, 3);
}

static void a_stream_is_sent_again_from_its_beginning(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->script = fails_once;
    scene_start(scene, &probe, stream, UINT64_MAX);
    rpc_probe_send(&probe, "one");
    rpc_probe_send(&probe, "two");
    wait_for_calls(scene, 1);
    rpc_probe_send(&probe, "three");
    rpc_probe_end(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "one,two,three");
}

static void a_paused_call_is_sent_again_and_stays_paused(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->script = fails_once;
    scene_start(scene, &probe, unary, UINT64_MAX);
    muster_call_pause(&probe.call);
    rpc_probe_send_last(&probe, "hello");
    wait_for_calls(scene, 2);
    assert_int_equal(probe.message_count, 0);
    muster_call_resume(&probe.call);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "hello");
}

static void on_released(struct muster_loan *loan)
{
    ((struct scene *)loan->data)->released++;
}

static void lent_messages_are_sent_again(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_loan loan = {.data = scene};
    char text[] = "lent";
    const struct iovec piece = {text, 4};

    scene->script = (struct script){.fail_count = 2, .code = MUSTER_UNAVAILABLE};
    scene_start(scene, &probe, unary, UINT64_MAX);
    assert_int_equal(muster_call_send_loan(&probe.call, &loan, &piece, 1, on_released), MUSTER_OK);
    rpc_probe_end(&probe, &scene->rpc);
    test_env_turn(scene->rpc.env, 16);

    assert_string_equal(probe.messages, "lent");
    assert_int_equal(scene->released, 1);
}

static void the_deadline_spans_all_attempts(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_redial_waiting(scene, HOUR_NS);
    scene->script = fails_once;
    scene_start(scene, &probe, unary, rpc_fixture_after_ms(&scene->rpc, 200));
    rpc_probe_send(&probe, "x");
    rpc_probe_end(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(probe.text, "as the script says"));
}

static void a_lost_connection_is_an_attempt(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene->policy.wait_for_ready = true;
    scene_redial_waiting(scene, 100 * MUSTER_NS_PER_MS);
    scene->script = (struct script){.fail_count = 1, .hangs = true};
    scene_start(scene, &probe, unary, UINT64_MAX);
    rpc_probe_send_last(&probe, "again");
    wait_for_calls(scene, 1);
    rpc_fixture_stop_serving(&scene->rpc, 0);
    scene_serve(scene);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "again");
    assert_string_equal(scene->previous, "-,1,");
}

static bool is_failing(void *data)
{
    return muster_channel_state(data) == MUSTER_CHANNEL_TRANSIENT_FAILURE;
}

static void an_absent_server_is_asked_again(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};

    scene_redial_waiting(scene, 500 * MUSTER_NS_PER_MS);
    rpc_fixture_stop_serving(&scene->rpc, 0);
    scene_start(scene, &probe, unary, UINT64_MAX);
    rpc_probe_send_last(&probe, "hello");
    test_env_run_until(scene->rpc.env, is_failing, scene->rpc.channel);
    scene_serve(scene);
    rpc_probe_wait(&probe, &scene->rpc);

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(scene->previous, "1,");
}

static void a_policy_limits_time_and_sizes(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe slow = {.done = 0}, large = {.done = 0};

    scene->policy.timeout_ns = 20 * MUSTER_NS_PER_MS;
    scene->policy.request_max_bytes = 10;
    scene_redial(scene);
    rpc_probe_begin(&slow, &scene->rpc, "Hang");
    assert_int_equal(muster_call_send(&slow.call, "12345678901", 11), MUSTER_RESOURCE_EXHAUSTED);
    rpc_probe_wait(&slow, &scene->rpc);
    assert_int_equal(slow.rc, MUSTER_DEADLINE_EXCEEDED);

    scene->policy.timeout_ns = 0;
    scene->policy.response_max_bytes = 100;
    scene_redial(scene);
    rpc_probe_ask(&large, &scene->rpc, "Large", "101");
    assert_int_equal(large.rc, MUSTER_RESOURCE_EXHAUSTED);
}

/* The prefix of a message has 32 bits for its size, whatever the policy allows. */
static void a_message_of_4_gib_is_refused(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.done = 0};
    struct muster_loan loan = {.data = scene};
    const struct iovec piece = {(void *)scene, (size_t)UINT32_MAX + 1};

    scene->policy.request_max_bytes = SIZE_MAX;
    scene_redial(scene);
    rpc_probe_begin(&probe, &scene->rpc, "Hang");
    assert_int_equal(muster_call_send_loan(&probe.call, &loan, &piece, 1, on_released),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_call_send(&probe.call, scene, piece.iov_len),
                     MUSTER_RESOURCE_EXHAUSTED);
    rpc_probe_cancel(&probe, &scene->rpc);

    assert_int_equal(scene->released, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest retries[] = {
        CASE(the_policy_and_the_server_decide),
        CASE(more_than_is_kept_commits),
        CASE(a_pushback_sets_the_wait),
        CASE(a_call_cancelled_between_two_attempts_is_not_answered),
        CASE(a_waiting_call_can_be_cancelled),
        CASE(a_channel_closes_over_a_waiting_call),
        CASE(too_many_failures_throttle_the_channel),
        CASE(a_stream_is_sent_again_from_its_beginning),
        CASE(a_paused_call_is_sent_again_and_stays_paused),
        CASE(lent_messages_are_sent_again),
        CASE(the_deadline_spans_all_attempts),
        CASE(a_lost_connection_is_an_attempt),
        CASE(an_absent_server_is_asked_again),
        CASE(a_policy_limits_time_and_sizes),
        CASE(a_message_of_4_gib_is_refused),
    };

    return cmocka_run_group_tests(retries, NULL, NULL);
}
