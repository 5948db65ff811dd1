/* gRPC's service config in JSON, and a channel that has one. */
#include "assertion_count.h"
#include "careful_mem.h"
#include "rpc_fixture.h"
#include "torture.h"

#include <stdlib.h>
#include <string.h>

#include "net/grpc/client/service_config.h"

static int set_up(void **state)
{
    struct test_env *test = calloc(1, sizeof(*test));

    test_env_open(test);
    *state = test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    free(*state);
    return 0;
}

static void config_read(struct muster_service_config *config, struct test_env *test,
                        const char *text, struct muster_channel_options *options)
{
    assert_int_equal(muster_service_config_init(config, test->env.mem, text, NULL), MUSTER_OK);
    muster_service_config_apply(config, options);
}

static void all_that_it_can_say_is_read(void **state)
{
    static const char text[] =
        "{\"loadBalancingConfig\":[{\"grpclb\":{}},{\"round_robin\":{}}],"
        "\"methodConfig\":[{\"name\":[{\"service\":\"a.B\",\"method\":\"C\"},{\"service\":\"a.D\"}]"
        ","
        "\"timeout\":\"1.25s\",\"waitForReady\":true,\"maxRequestMessageBytes\":100,"
        "\"maxResponseMessageBytes\":\"200\",\"retryPolicy\":{\"maxAttempts\":4,"
        "\"initialBackoff\":\"0.1s\",\"maxBackoff\":\"3s\",\"backoffMultiplier\":1.5,"
        "\"retryableStatusCodes\":[\"UNAVAILABLE\",\"aborted\",8]}},{\"name\":[{}]}],"
        "\"retryThrottling\":{\"maxTokens\":10,\"tokenRatio\":0.1},"
        "\"healthCheckConfig\":{\"serviceName\":\"a.B\"},\"something\":\"new\"}";
    struct muster_service_config config;
    struct muster_channel_options options = {.load_balancing = MUSTER_PICK_FIRST};
    const struct muster_method_policy *policy;

    config_read(&config, *state, text, &options);

    assert_int_equal(options.load_balancing, MUSTER_ROUND_ROBIN);
    assert_string_equal(options.health_service, "a.B");
    assert_int_equal(options.retry_throttle.tokens_max, 10);
    assert_int_equal(options.method_policy_count, 3);
    policy = &options.method_policies[0];
    assert_string_equal(policy->method, "/a.B/C");
    assert_string_equal(options.method_policies[1].method, "/a.D/");
    assert_string_equal(options.method_policies[2].method, "");
    assert_int_equal(policy->timeout_ns, 1250 * MUSTER_NS_PER_MS);
    assert_true(policy->wait_for_ready);
    assert_int_equal(policy->request_max_bytes, 100);
    assert_int_equal(policy->response_max_bytes, 200);
    assert_int_equal(policy->retry.attempts_max, 4);
    assert_int_equal(policy->retry.backoff_base_ns, 100 * MUSTER_NS_PER_MS);
    assert_int_equal(policy->retry.backoff_max_ns, 3 * MUSTER_NS_PER_S);
    assert_int_equal(policy->retry.codes, MUSTER_RETRY_ON(MUSTER_UNAVAILABLE) |
                                              MUSTER_RETRY_ON(MUSTER_ABORTED) |
                                              MUSTER_RETRY_ON(MUSTER_RESOURCE_EXHAUSTED));
    muster_service_config_fini(&config);
}

static void load_balancing_has_two_names(void **state)
{
    static const struct {
        const char *text;
        enum muster_load_balancing before, after;
        bool is_shuffled;
    } rows[] = {
        {"{\"loadBalancingPolicy\":\"ROUND_ROBIN\"}", MUSTER_PICK_FIRST, MUSTER_ROUND_ROBIN, false},
        {"{\"loadBalancingConfig\":[{\"pick_first\":{\"shuffleAddressList\":true}}]}",
         MUSTER_ROUND_ROBIN, MUSTER_PICK_FIRST, true},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_service_config config;
        struct muster_channel_options options = {.load_balancing = rows[i].before};

        config_read(&config, *state, rows[i].text, &options);
        fail_if(options.load_balancing != rows[i].after ||
                    options.is_shuffled != rows[i].is_shuffled,
                "%s", rows[i].text);
        muster_service_config_fini(&config);
    }
}

static void what_it_does_not_say_stays(void **state)
{
    static const char *const texts[] = {"{}", "{\"methodConfig\":null}",
                                        "{\"methodConfig\":[{\"name\":[],\"timeout\":null}]}"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct muster_service_config config;
        struct muster_channel_options options = {.load_balancing = MUSTER_ROUND_ROBIN,
                                                 .health_service = "x",
                                                 .retry_throttle = {.tokens_max = 7}};

        config_read(&config, *state, texts[i], &options);
        assert_int_equal(options.load_balancing, MUSTER_ROUND_ROBIN);
        assert_string_equal(options.health_service, "x");
        assert_int_equal(options.retry_throttle.tokens_max, 7);
        assert_int_equal(options.method_policy_count, 0);
        muster_service_config_fini(&config);
    }
}

#define RETRY(members)                                                                             \
    "{\"methodConfig\":[{\"name\":[{\"service\":\"s\"}],\"retryPolicy\":{" members "}}]}"
#define BACKOFF "\"initialBackoff\":\"1s\",\"maxBackoff\":\"1s\",\"backoffMultiplier\":1"

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *culprit;
    } rows[] = {
        {"{", "line 1"},
        {"[]", "JSON object"},
        {"{\"loadBalancingConfig\":[{\"grpclb\":{}}]}", "loadBalancingConfig"},
        {"{\"loadBalancingPolicy\":\"magic\"}", "loadBalancingConfig"},
        {"{\"methodConfig\":5}", "methodConfig must be a list"},
        {"{\"methodConfig\":{}}", "methodConfig must be a list"},
        {"{\"methodConfig\":[5]}", "methodConfig must be a list of objects"},
        {"{\"methodConfig\":[{\"name\":{}}]}", "methodConfig.name must be a list"},
        {"{\"methodConfig\":[{\"name\":[{\"method\":\"C\"}]}]}", "methodConfig.name"},
        {"{\"methodConfig\":[{\"name\":[{}],\"timeout\":\"soon\"}]}", "methodConfig.timeout"},
        {"{\"methodConfig\":[{\"name\":[{}],\"timeout\":\"-1s\"}]}", "methodConfig.timeout"},
        {"{\"methodConfig\":[{\"name\":[{}],\"timeout\":\"1.1234567891s\"}]}", "timeout"},
        {"{\"methodConfig\":[{\"name\":[{}],\"timeout\":1}]}", "methodConfig.timeout"},
        {"{\"methodConfig\":[{\"name\":[{}],\"maxRequestMessageBytes\":-1}]}", "maxRequestMessage"},
        {"{\"methodConfig\":[{\"name\":[{}],\"maxResponseMessageBytes\":\"x\"}]}", "maxResponse"},
        {RETRY("\"maxAttempts\":1"), "maxAttempts"},
        {RETRY("\"maxAttempts\":2"), "backoffMultiplier"},
        {RETRY("\"maxAttempts\":2,\"backoffMultiplier\":1"), "initialBackoff"},
        {RETRY("\"maxAttempts\":2," BACKOFF), "retryableStatusCodes"},
        {RETRY("\"maxAttempts\":2," BACKOFF ",\"retryableStatusCodes\":[]"), "at least one"},
        {RETRY("\"maxAttempts\":2," BACKOFF ",\"retryableStatusCodes\":[\"OK\"]"), "names"},
        {RETRY("\"maxAttempts\":2," BACKOFF ",\"retryableStatusCodes\":[17]"), "names"},
        {"{\"retryThrottling\":{\"maxTokens\":0,\"tokenRatio\":1}}", "maxTokens"},
        {"{\"retryThrottling\":{\"maxTokens\":1001,\"tokenRatio\":1}}", "maxTokens"},
        {"{\"retryThrottling\":{\"maxTokens\":10}}", "tokenRatio"},
    };
    struct test_env *test = *state;
    struct muster_service_config config;
    struct muster_error error;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_service_config_init(&config, test->env.mem, rows[i].text, &error),
                         MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].culprit) == NULL)
            fail_msg("row %zu: \"%s\" does not name %s", i, error.text, rows[i].culprit);
    }
}

static void run_config(struct torture *torture, const void *data)
{
    struct muster_service_config config;
    struct muster_mem_limited mem;
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    muster_mem_limited_init(&mem, careful_mem(), 0);
    torture_arm_limited(torture, &mem);
    rc = muster_service_config_init(&config, &mem.mem, data, &error);
    torture_disarm(torture);

    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_true(rc == MUSTER_OK || strstr(error.text, "memory") != NULL);
    if (rc == MUSTER_OK)
        muster_service_config_fini(&config);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
}

static void want_of_memory_is_told(void **state)
{
    static const struct torture_scenario scenario = {
        .name = "config",
        .run = run_config,
        .data = "{\"methodConfig\":[{\"name\":[{},{\"service\":\"s\"}]}]}"};

    (void)state;
    torture_run(&scenario);
}

static void a_channel_takes_one(void **state)
{
    struct rpc_fixture fixture;
    struct rpc_probe probe = {.done = 0};
    const struct muster_channel_options options = {
        .service_config = "{\"methodConfig\":[{\"name\":[{\"service\":\"test.Echo\",\"method\":"
                          "\"Hang\"}],\"timeout\":\"0.02s\"}]}"};
    const struct muster_channel_options broken = {.service_config = "no"};
    struct muster_channel *channel;

    (void)state;
    rpc_fixture_open(&fixture, NULL, NULL);
    rpc_fixture_redial(&fixture, &options);
    rpc_probe_begin(&probe, &fixture, "Hang");
    rpc_probe_wait(&probe, &fixture);
    assert_int_equal(probe.rc, MUSTER_DEADLINE_EXCEEDED);

    assert_int_equal(muster_channel_open(fixture.env, "127.0.0.1:1", &broken, &channel, NULL),
                     MUSTER_INVALID_ARGUMENT);
    rpc_fixture_close(&fixture);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest configs[] = {
        CASE(all_that_it_can_say_is_read),
        CASE(load_balancing_has_two_names),
        CASE(what_it_does_not_say_stays),
        CASE(mistakes_are_named),
        cmocka_unit_test_teardown(want_of_memory_is_told, torture_tell),
        CASE(a_channel_takes_one),
    };

    return cmocka_run_group_tests(configs, NULL, NULL);
}
