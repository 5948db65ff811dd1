/* gRPC's metrics: calls and attempts by method, target and status; connections; their bounds. */
#include "rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/rpc.h>

#include "net/grpc/tally.h"

struct scene {
    struct rpc_fixture fixture;
    char target[MUSTER_ADDRESS_TEXT_BYTES];
    char *text; /* the page, once shown */
};

static void scene_begin(struct scene *scene, const struct muster_channel_options *options)
{
    struct rpc_fixture *fixture = &scene->fixture;

    rpc_fixture_open(fixture, NULL, NULL);
    rpc_fixture_hang_up(fixture);
    rpc_fixture_stop_serving(fixture, 0);
    assert_int_equal(muster_metrics_open(fixture->env->mem, &fixture->env->metrics), MUSTER_OK);
    assert_int_equal(muster_rpc_metrics_open(fixture->env, &fixture->env->rpc_metrics), MUSTER_OK);
    rpc_fixture_serve(fixture, NULL);
    (void)muster_address_format(&fixture->address, scene->target);
    rpc_fixture_dial(fixture, scene->target, options);
}

static void scene_show(struct scene *scene)
{
    struct muster_env *env = scene->fixture.env;
    size_t bytes = 0;

    muster_mem_free(env->mem, scene->text);
    assert_int_equal(muster_metrics_format(env->metrics, env->mem, &scene->text, &bytes),
                     MUSTER_OK);
}

static void scene_finish(struct scene *scene)
{
    struct muster_env *env = scene->fixture.env;

    muster_mem_free(env->mem, scene->text);
    rpc_fixture_hang_up(&scene->fixture);
    rpc_fixture_stop_serving(&scene->fixture, 0);
    muster_rpc_metrics_close(env->rpc_metrics);
    muster_metrics_close(env->metrics);
    env->metrics = NULL;
    env->rpc_metrics = NULL;
    rpc_fixture_close(&scene->fixture);
}

static int set_up(void **state)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    scene_begin(scene, NULL);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    scene_finish(*state);
    free(*state);
    return 0;
}

/* The number behind "\nSERIES "; $T in series is the channel's target. -1: there is none. */
static double series_value(const struct scene *scene, const char *series)
{
    char line[512] = "\n";
    const char *at;

    for (size_t count = 1; *series != '\0'; series++) {
        if (strncmp(series, "$T", 2) == 0) {
            count += (size_t)snprintf(line + count, sizeof(line) - count, "%s", scene->target);
            series++;
        } else {
            line[count++] = *series;
        }
    }
    (void)strncat(line, " ", sizeof(line) - strlen(line) - 1);
    at = strstr(scene->text, line);
    return at == NULL ? -1 : strtod(at + strlen(line), NULL);
}

#define IS(number, series) assert_true(series_value(scene, series) == (double)(number))

/* The server ends its calls once their last bytes are out: one turn later than the client. */
static void scene_settle(struct scene *scene)
{
    test_env_turn(scene->fixture.env, 20);
    scene_show(scene);
}

static void a_call_is_counted_on_both_sides(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.rc = MUSTER_UNKNOWN};

    rpc_probe_ask(&probe, &scene->fixture, "Unary", "seven b");
    scene_settle(scene);

    assert_int_equal(probe.rc, MUSTER_OK);
    IS(1, "grpc_server_call_started_total{grpc_method=\"test.Echo/Unary\"}");
    IS(0, "grpc_server_call_started_total{grpc_method=\"test.Echo/Sink\"}");
#define SERVER "{grpc_method=\"test.Echo/Unary\",grpc_status=\"OK\"}"
    IS(1, "grpc_server_call_duration_seconds_count" SERVER);
    IS(7, "grpc_server_call_sent_total_compressed_message_size_bytes_sum" SERVER);
    IS(7, "grpc_server_call_rcvd_total_compressed_message_size_bytes_sum" SERVER);
    IS(0, "grpc_server_call_rcvd_total_compressed_message_size_bytes_bucket{grpc_method=\"test."
          "Echo/Unary\",grpc_status=\"OK\",le=\"0\"}");
    IS(1, "grpc_server_call_rcvd_total_compressed_message_size_bytes_bucket{grpc_method=\"test."
          "Echo/Unary\",grpc_status=\"OK\",le=\"1024\"}");
    IS(1, "grpc_client_attempt_started_total{grpc_method=\"test.Echo/Unary\",grpc_target=\"dns:///"
          "$T\"}");
#define CLIENT "{grpc_method=\"test.Echo/Unary\",grpc_target=\"dns:///$T\",grpc_status=\"OK\"}"
    IS(1, "grpc_client_attempt_duration_seconds_count" CLIENT);
    IS(1, "grpc_client_call_duration_seconds_count" CLIENT);
    IS(7, "grpc_client_attempt_sent_total_compressed_message_size_bytes_sum" CLIENT);
    IS(7, "grpc_client_attempt_rcvd_total_compressed_message_size_bytes_sum" CLIENT);
    assert_true(series_value(scene, "grpc_client_call_duration_seconds_sum" CLIENT) > 0);
    assert_non_null(strstr(scene->text, "le=\"1e-05\"}"));
    assert_non_null(strstr(scene->text, "le=\"4294967296\"}"));
}

static void on_busy(struct muster_rpc *rpc, struct muster_bytes message)
{
    struct muster_loop *loop = muster_rpc_env(rpc)->loop;
    uint64_t until_ns = muster_loop_clock_ns(loop) + 5 * MUSTER_NS_PER_MS;

    (void)message;
    while (muster_loop_clock_ns(loop) < until_ns)
        continue;
    assert_int_equal(muster_rpc_send(rpc, "", 0), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

/* Loop time stands still while a method keeps the loop. */
static void what_a_method_takes_within_a_turn_is_seen(void **state)
{
    static const struct muster_rpc_method method = {
        .path = "/test.Echo/Busy", .on_message = on_busy, .is_unary = true};
    struct scene *scene = *state;
    struct rpc_probe probe = {.rc = MUSTER_UNKNOWN};

    assert_int_equal(muster_rpc_server_add(scene->fixture.server, &method, 1, NULL), MUSTER_OK);
    rpc_probe_ask(&probe, &scene->fixture, "Busy", "");
    scene_settle(scene);

    assert_true(series_value(scene, "grpc_server_call_duration_seconds_sum{grpc_method=\"test.Echo/"
                                    "Busy\",grpc_status=\"OK\"}") >= 0.005);
    assert_true(series_value(scene,
                             "grpc_client_call_duration_seconds_sum{grpc_method=\"test.Echo/"
                             "Busy\",grpc_target=\"dns:///$T\",grpc_status=\"OK\"}") >= 0.005);
}

static void a_status_has_a_series_of_its_own(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.rc = MUSTER_OK};

    rpc_probe_ask(&probe, &scene->fixture, "Fail", "5 nothing");
    scene_settle(scene);

    IS(1, "grpc_server_call_duration_seconds_count{grpc_method=\"test.Echo/"
          "Fail\",grpc_status=\"NOT_FOUND\"}");
    IS(1, "grpc_client_call_duration_seconds_count{grpc_method=\"test.Echo/"
          "Fail\",grpc_target=\"dns:///$T\",grpc_status=\"NOT_FOUND\"}");
    IS(-1, "grpc_server_call_duration_seconds_count{grpc_method=\"test.Echo/"
           "Fail\",grpc_status=\"OK\"}");
}

static void what_the_server_does_not_have_is_other(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.rc = MUSTER_OK};

    rpc_probe_ask(&probe, &scene->fixture, "Invented", "");
    scene_settle(scene);

    assert_int_equal(probe.rc, MUSTER_UNIMPLEMENTED);
    IS(1, "grpc_server_call_started_total{grpc_method=\"other\"}");
    IS(1, "grpc_server_call_duration_seconds_count{grpc_method=\"other\",grpc_status="
          "\"UNIMPLEMENTED\"}");
    IS(-1, "grpc_server_call_started_total{grpc_method=\"test.Echo/Invented\"}");
}

static void a_cancelled_call_is_a_failed_stream(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.rc = MUSTER_OK};

    assert_int_equal(rpc_probe_start(&probe, &scene->fixture, "Hang",
                                     rpc_fixture_after_ms(&scene->fixture, 10000)),
                     MUSTER_OK);
    rpc_probe_send(&probe, "x");
    test_env_turn(scene->fixture.env, 20);
    rpc_probe_cancel(&probe, &scene->fixture);
    scene_settle(scene);

    IS(1, "grpc_server_call_duration_seconds_count{grpc_method=\"test.Echo/"
          "Hang\",grpc_status=\"CANCELLED\"}");
    IS(1, "grpc_client_attempt_duration_seconds_count{grpc_method=\"test.Echo/"
          "Hang\",grpc_target=\"dns:///$T\",grpc_status=\"CANCELLED\"}");
    IS(1, "muster_rpc_server_streams_failed_total{server=\"$T\"}");
    IS(1, "muster_rpc_channel_streams_failed_total{target=\"dns:///$T\"}");
}

static void connections_streams_and_messages_are_counted(void **state)
{
    struct scene *scene = *state;
    struct rpc_probe probe = {.rc = MUSTER_UNKNOWN};

    assert_int_equal(rpc_probe_start(&probe, &scene->fixture, "Bidi",
                                     rpc_fixture_after_ms(&scene->fixture, 10000)),
                     MUSTER_OK);
    for (int i = 0; i < 3; i++)
        rpc_probe_send(&probe, "x");
    rpc_probe_end(&probe, &scene->fixture);
    scene_settle(scene);

    IS(1, "muster_rpc_server_connections{server=\"$T\"}");
    IS(1, "muster_rpc_server_connections_opened_total{server=\"$T\"}");
    IS(1, "muster_rpc_server_streams_started_total{server=\"$T\"}");
    IS(1, "muster_rpc_server_streams_succeeded_total{server=\"$T\"}");
    IS(3, "muster_rpc_server_messages_sent_total{server=\"$T\"}");
    IS(3, "muster_rpc_server_messages_received_total{server=\"$T\"}");
    IS(1, "muster_rpc_channel_connections{target=\"dns:///$T\"}");
    IS(1, "muster_rpc_channel_streams_started_total{target=\"dns:///$T\"}");
    IS(1, "muster_rpc_channel_streams_succeeded_total{target=\"dns:///$T\"}");
    IS(3, "muster_rpc_channel_messages_sent_total{target=\"dns:///$T\"}");
    IS(3, "muster_rpc_channel_messages_received_total{target=\"dns:///$T\"}");
    IS(0, "muster_rpc_channel_keepalives_sent_total{target=\"dns:///$T\"}");

    rpc_fixture_hang_up(&scene->fixture);
    scene_settle(scene);
    IS(0, "muster_rpc_channel_connections{target=\"dns:///$T\"}");
    IS(0, "muster_rpc_server_connections{server=\"$T\"}");
    rpc_fixture_dial(&scene->fixture, scene->target, NULL);
}

static void each_attempt_of_a_repeated_call_counts(void **state)
{
    static const struct muster_method_policy policy = {
        .method = "/test.Echo/Fail",
        .retry = {.attempts_max = 3,
                  .codes = MUSTER_RETRY_ON(MUSTER_UNAVAILABLE),
                  .backoff_base_ns = 1,
                  .backoff_max_ns = 1,
                  .backoff_multiplier = 1}};
    const struct muster_channel_options options = {.method_policies = &policy,
                                                   .method_policy_count = 1};
    struct scene *scene = calloc(1, sizeof(*scene));
    struct rpc_probe probe = {.rc = MUSTER_OK};

    (void)state;
    scene_begin(scene, &options);
    rpc_probe_ask(&probe, &scene->fixture, "Fail", "14 no");
    scene_settle(scene);

#define FAIL                                                                                       \
    "{grpc_method=\"test.Echo/Fail\",grpc_target=\"dns:///$T\",grpc_status=\"UNAVAILABLE\"}"
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    IS(3, "grpc_client_attempt_started_total{grpc_method=\"test.Echo/Fail\",grpc_target=\"dns:///"
          "$T\"}");
    IS(3, "grpc_client_attempt_duration_seconds_count" FAIL);
    IS(15, "grpc_client_attempt_sent_total_compressed_message_size_bytes_sum" FAIL);
    IS(1, "grpc_client_call_duration_seconds_count" FAIL);
    scene_finish(scene);
    free(scene);
}

/* Names that a caller makes up do not fill the page, nor break it. */
static void series_are_bounded_and_quoted(void **state)
{
    struct scene *scene = *state;
    unsigned lines = 0;

    for (unsigned i = 0; i < 600; i++) {
        struct rpc_probe probe = {.rc = MUSTER_OK};
        char name[32];

        (void)snprintf(name, sizeof(name), "%s%u", i == 0 ? "a\"b\\" : "Made", i);
        rpc_probe_ask(&probe, &scene->fixture, name, "");
    }
    scene_settle(scene);

    for (const char *at = scene->text; (at = strstr(at, "\ngrpc_client_attempt_started_total{"));
         at++)
        lines++;
    assert_in_range(lines, 480, 513);
    assert_non_null(strstr(scene->text, "{grpc_method=\"test.Echo/a\\\"b\\\\0\","));
    assert_true(
        series_value(
            scene,
            "grpc_client_attempt_started_total{grpc_method=\"other\",grpc_target=\"other\"}") > 80);
}

static void metrics_need_a_page_to_stand_on(void **state)
{
    struct test_env test;
    struct muster_rpc_metrics *metrics = NULL;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_rpc_metrics_open(&test.env, &metrics), MUSTER_FAILED_PRECONDITION);
    muster_rpc_metrics_close(metrics);
    test_env_close(&test);
}

static void without_memory_nothing_breaks(void **state)
{
    struct test_env test;
    struct muster_rpc_metrics *metrics = NULL;
    struct muster_rpc_counters own = {.connections = 1};
    struct muster_rpc_series *other;
    struct muster_rpc_tally tally;

    (void)state;
    test_env_open(&test);
    assert_int_equal(muster_metrics_open(test.env.mem, &test.env.metrics), MUSTER_OK);
    test.mem.fail_at = 2;
    assert_int_equal(muster_rpc_metrics_open(&test.env, &metrics), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_rpc_metrics_open(&test.env, &metrics), MUSTER_OK);

    other = muster_rpc_metrics_series(metrics, MUSTER_RPC_SERVER, NULL, "");
    test.mem.fail_at = 1;
    assert_ptr_equal(muster_rpc_metrics_series(metrics, MUSTER_RPC_SERVER, "/a/b", ""), other);
    muster_rpc_tally_start(&tally, other, test.env.loop);
    test.mem.fail_at = 1;
    muster_rpc_tally_end(&tally, MUSTER_OK, test.env.loop); /* not counted */
    test.mem.fail_at = 1;
    assert_non_null(muster_rpc_metrics_counters(metrics, MUSTER_RPC_CLIENT, "x", &own));

    test.mem.fail_at = 0;
    muster_rpc_metrics_close(metrics);
    muster_metrics_close(test.env.metrics);
    test.env.metrics = NULL;
    test_env_close(&test);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest rpc_metrics[] = {
        CASE(a_call_is_counted_on_both_sides),
        CASE(what_a_method_takes_within_a_turn_is_seen),
        CASE(a_status_has_a_series_of_its_own),
        CASE(what_the_server_does_not_have_is_other),
        CASE(a_cancelled_call_is_a_failed_stream),
        CASE(connections_streams_and_messages_are_counted),
        cmocka_unit_test(each_attempt_of_a_repeated_call_counts),
        CASE(series_are_bounded_and_quoted),
        cmocka_unit_test(metrics_need_a_page_to_stand_on),
        cmocka_unit_test(without_memory_nothing_breaks),
    };

    return cmocka_run_group_tests(rpc_metrics, NULL, NULL);
}
