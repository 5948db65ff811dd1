/* Whether and when a failed call is sent again: counts, waits, tokens, pushback. */
#include "test_env.h"

#include <string.h>

#include "net/grpc/client/retry.h"

#define BASE_NS MUSTER_NS_PER_S

static const struct muster_retry_policy policy = {
    .attempts_max = 4,
    .codes = MUSTER_RETRY_ON(MUSTER_UNAVAILABLE) | MUSTER_RETRY_ON(MUSTER_ABORTED),
    .backoff_base_ns = BASE_NS,
    .backoff_max_ns = 3 * BASE_NS,
    .backoff_multiplier = 2,
};

struct stand {
    struct muster_rng_seeded rng;
    struct muster_rpc_throttle throttle;
    struct muster_rpc_retry retry;
    uint64_t delay_ns;
};

static int set_up(void **state)
{
    static struct stand stand;

    memset(&stand, 0, sizeof(stand));
    muster_rng_seeded_init(&stand.rng, 7);
    stand.retry.policy = &policy;
    *state = &stand;
    return 0;
}

static bool retry_next(struct stand *stand, enum muster_rc rc)
{
    stand->delay_ns = 0;
    return muster_rpc_retry_next(&stand->retry, &stand->throttle, &stand->rng.rng, rc, false,
                                 &stand->delay_ns);
}

static void push_back(struct stand *stand, const char *text)
{
    muster_rpc_retry_parse_pushback(&stand->retry, text, strlen(text));
}

static void set_throttle(struct stand *stand, unsigned tokens_max, double ratio)
{
    const struct muster_retry_throttle options = {tokens_max, ratio};

    assert_int_equal(muster_rpc_throttle_init(&stand->throttle, &options, NULL), MUSTER_OK);
}

static void assert_about(uint64_t value, uint64_t expected)
{
    assert_in_range(value, expected / 10 * 8, expected / 10 * 12);
}

static void waits_grow_to_their_bound_and_attempts_end(void **state)
{
    struct stand *stand = *state;

    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
    assert_about(stand->delay_ns, BASE_NS);
    assert_true(retry_next(stand, MUSTER_ABORTED));
    assert_about(stand->delay_ns, 2 * BASE_NS);
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
    assert_about(stand->delay_ns, 3 * BASE_NS);

    assert_false(retry_next(stand, MUSTER_UNAVAILABLE));
    assert_int_equal(stand->retry.repeated, 3);
}

static void waits_are_jittered(void **state)
{
    struct stand *stand = *state;
    uint64_t lowest = UINT64_MAX, highest = 0;

    for (unsigned i = 0; i < 100; i++) {
        memset(&stand->retry, 0, sizeof(stand->retry));
        stand->retry.policy = &policy;
        assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
        lowest = stand->delay_ns < lowest ? stand->delay_ns : lowest;
        highest = stand->delay_ns > highest ? stand->delay_ns : highest;
    }

    assert_in_range(lowest, BASE_NS / 100 * 80, BASE_NS / 100 * 85);
    assert_in_range(highest, BASE_NS / 100 * 115, BASE_NS / 100 * 120);
}

static void five_attempts_are_the_most(void **state)
{
    struct stand *stand = *state;
    struct muster_retry_policy greedy = policy;

    greedy.attempts_max = 100;
    stand->retry.policy = &greedy;
    for (unsigned i = 1; i < MUSTER_RETRY_ATTEMPTS_MAX; i++)
        assert_true(retry_next(stand, MUSTER_UNAVAILABLE));

    assert_false(retry_next(stand, MUSTER_UNAVAILABLE));
}

/* The double nearest to such a bound is one that uint64_t does not have. */
static void waits_may_be_as_long_as_the_clock_counts(void **state)
{
    struct stand *stand = *state;
    struct muster_retry_policy endless = policy;

    endless.backoff_max_ns = UINT64_MAX;
    endless.backoff_multiplier = 1e30;
    stand->retry.policy = &endless;
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));

    assert_in_range(stand->delay_ns, UINT64_MAX / 10 * 8, UINT64_MAX);
}

static void nothing_is_repeated_without_reason(void **state)
{
    struct stand *stand = *state;

    assert_false(retry_next(stand, MUSTER_OK));
    assert_false(retry_next(stand, MUSTER_INTERNAL));
    assert_false(muster_rpc_retry_next(&stand->retry, &stand->throttle, &stand->rng.rng,
                                       MUSTER_UNAVAILABLE, true, &stand->delay_ns));
    stand->retry.policy = NULL;
    assert_false(retry_next(stand, MUSTER_UNAVAILABLE));
}

static void the_server_sets_the_wait(void **state)
{
    struct stand *stand = *state;

    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
    push_back(stand, "1500");
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
    assert_int_equal(stand->delay_ns, 1500 * MUSTER_NS_PER_MS);

    assert_true(retry_next(stand, MUSTER_UNAVAILABLE)); /* the growth starts anew */
    assert_about(stand->delay_ns, BASE_NS);
}

static void a_negative_or_broken_pushback_ends_the_call(void **state)
{
    static const char *const values[] = {"-1",          "",          "soon", "1.5", "01",
                                         "99999999999", "4294967296"};
    struct stand *stand = *state;

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        memset(&stand->retry, 0, sizeof(stand->retry));
        stand->retry.policy = &policy;
        push_back(stand, values[i]);
        assert_false(retry_next(stand, MUSTER_UNAVAILABLE));
    }
    memset(&stand->retry, 0, sizeof(stand->retry));
    stand->retry.policy = &policy;
    push_back(stand, "0");
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));
    assert_int_equal(stand->delay_ns, 0);
}

static void half_of_the_tokens_must_be_there(void **state)
{
    struct stand *stand = *state;

    set_throttle(stand, 4, 0.5);
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));  /* 3 left */
    assert_false(retry_next(stand, MUSTER_UNAVAILABLE)); /* 2 left */
    assert_false(retry_next(stand, MUSTER_OK));          /* 2.5 */
    assert_false(retry_next(stand, MUSTER_OK));          /* 3 */
    assert_false(retry_next(stand, MUSTER_OK));          /* 3.5 */
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));  /* 2.5 */
}

static void a_success_gives_back_no_more_than_the_ratio(void **state)
{
    struct stand *stand = *state;

    set_throttle(stand, 4, 0.5);
    assert_true(retry_next(stand, MUSTER_UNAVAILABLE));  /* 3 left */
    assert_false(retry_next(stand, MUSTER_UNAVAILABLE)); /* 2 left */
    assert_false(retry_next(stand, MUSTER_OK));          /* 2.5 */
    assert_int_equal(stand->throttle.tokens, 2500);
    assert_false(retry_next(stand, MUSTER_UNAVAILABLE)); /* 1.5 */
}

static void tokens_have_bounds(void **state)
{
    struct stand *stand = *state;

    set_throttle(stand, 2, 1);
    for (unsigned i = 0; i < 10; i++)
        (void)retry_next(stand, MUSTER_UNAVAILABLE);
    assert_int_equal(stand->throttle.tokens, 0);
    for (unsigned i = 0; i < 10; i++)
        (void)retry_next(stand, MUSTER_OK);
    assert_int_equal(stand->throttle.tokens, 2000);
}

static void only_retryable_failures_and_refusals_cost_tokens(void **state)
{
    struct stand *stand = *state;

    set_throttle(stand, 10, 1);
    (void)retry_next(stand, MUSTER_NOT_FOUND);
    assert_int_equal(stand->throttle.tokens, 10000);
    push_back(stand, "-1");
    (void)retry_next(stand, MUSTER_NOT_FOUND);
    assert_int_equal(stand->throttle.tokens, 9000);
}

static void mistakes_in_options_are_named(void **state)
{
    static const struct muster_retry_throttle bad[] = {{1001, 1}, {10, 0}, {10, -1}, {10, 1e9}};
    struct muster_retry_policy broken = policy;
    struct muster_rpc_throttle tokens;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(muster_rpc_throttle_init(&tokens, &bad[i], &error),
                         MUSTER_INVALID_ARGUMENT);
    broken.codes = MUSTER_RETRY_ON(MUSTER_OK);
    assert_int_equal(muster_retry_policy_check(&broken, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "codes"));
    broken = policy;
    broken.backoff_multiplier = 0;
    assert_int_equal(muster_retry_policy_check(&broken, &error), MUSTER_INVALID_ARGUMENT);
    broken.attempts_max = 1;
    assert_int_equal(muster_retry_policy_check(&broken, &error), MUSTER_OK);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest retry[] = {
        CASE(waits_grow_to_their_bound_and_attempts_end),
        CASE(waits_are_jittered),
        CASE(five_attempts_are_the_most),
        CASE(waits_may_be_as_long_as_the_clock_counts),
        CASE(nothing_is_repeated_without_reason),
        CASE(the_server_sets_the_wait),
        CASE(a_negative_or_broken_pushback_ends_the_call),
        CASE(half_of_the_tokens_must_be_there),
        CASE(a_success_gives_back_no_more_than_the_ratio),
        CASE(tokens_have_bounds),
        CASE(only_retryable_failures_and_refusals_cost_tokens),
        CASE(mistakes_in_options_are_named),
    };

    return cmocka_run_group_tests(retry, NULL, NULL);
}
