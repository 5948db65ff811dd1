/* When to try again. */
#include "assertion_count.h"
#include "test_env.h"

#include "net/http/retry.h"

#define NOW_S UINT64_C(784111717) /* Sun, 06 Nov 1994 08:48:37 GMT */

static void retry_after_is_seconds_or_a_date(void **state)
{
    static const struct {
        const char *text;
        uint64_t delay_s;
    } rows[] = {
        {"0", 0},
        {"120", 120},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 60},
        {"Sunday, 06-Nov-94 08:49:37 GMT", 60},
        {"Sun Nov  6 08:49:37 1994", 60},
        {"Sun Nov 06 08:49:37 1994", 60},
        {"Mon, 07 Nov 1994 08:48:37 GMT", 86400},
        {"Sat, 05 Nov 1994 08:48:37 GMT", 0},
        {"99999999999999", MUSTER_HTTP_RETRY_AFTER_S_MAX},
        {"Thu, 29 Feb 2096 00:00:00 GMT", MUSTER_HTTP_RETRY_AFTER_S_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t delay_ns = 1;

        fail_if(muster_http_retry_after_parse(rows[i].text, NOW_S * MUSTER_NS_PER_S, &delay_ns) !=
                    MUSTER_OK,
                "refused: %s", rows[i].text);
        fail_if(delay_ns != rows[i].delay_s * MUSTER_NS_PER_S, "%s: %llu ns", rows[i].text,
                (unsigned long long)delay_ns);
    }
}

static void what_is_no_retry_after_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        " 5",
        "-1",
        "5 s",
        "1.5",
        "soon",
        "Sun, 06 Nov 1994",
        "Sun, 06 Foo 1994 08:49:37 GMT",
        "Sun, 32 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 PST",
        "Sun, 06 Nov 1969 08:49:37 GMT",
        "1234567890123456",
    };
    uint64_t delay_ns;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        fail_if(muster_http_retry_after_parse(rows[i], 0, &delay_ns) != MUSTER_INVALID_ARGUMENT,
                "accepted: %s", rows[i]);
}

static void a_timestamp_is_a_delay_from_now(void **state)
{
    uint64_t delay_ns;

    (void)state;
    assert_int_equal(
        muster_http_timestamp_parse("1994-11-06T08:49:37Z", NOW_S * MUSTER_NS_PER_S, &delay_ns),
        MUSTER_OK);
    assert_int_equal(delay_ns, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_http_timestamp_parse("1994-11-06T08:49:37.123+00:00",
                                                 NOW_S * MUSTER_NS_PER_S, &delay_ns),
                     MUSTER_OK);
    assert_int_equal(delay_ns, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_http_timestamp_parse("1994-11-06 08:49:37Z", 0, &delay_ns),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_http_timestamp_parse("1994-13-06T08:49:37Z", 0, &delay_ns),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_http_timestamp_parse("1994-11-06T08:49:37", 0, &delay_ns),
                     MUSTER_INVALID_ARGUMENT);
}

static void backoff_doubles_up_to_its_cap_and_scatters_by_half(void **state)
{
    static const uint64_t expected_ms[] = {200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    struct muster_http_retry retry = {.attempts_max = 0};
    struct muster_rng_seeded seeded;
    bool has_varied = false;

    (void)state;
    muster_rng_seeded_init(&seeded, 7);
    for (uint32_t attempt = 1; attempt <= 8; attempt++)
        for (int i = 0; i < 100; i++) {
            uint64_t delay_ns = muster_http_backoff_ns(&retry, attempt, &seeded.rng);
            uint64_t middle_ns = expected_ms[attempt - 1] * MUSTER_NS_PER_MS;

            assert_in_range(delay_ns, middle_ns / 2, middle_ns / 2 * 3);
            has_varied = has_varied || delay_ns != middle_ns;
        }
    assert_true(has_varied);
}

static void only_harmless_methods_are_repeated(void **state)
{
    (void)state;
    assert_true(muster_http_is_idempotent("GET"));
    assert_true(muster_http_is_idempotent("DELETE"));
    assert_false(muster_http_is_idempotent("POST"));
    assert_false(muster_http_is_idempotent("PATCH"));
    assert_false(muster_http_is_idempotent("get"));
}

static void only_passing_failures_are_repeated(void **state)
{
    (void)state;
    assert_true(muster_http_is_passing(429));
    assert_true(muster_http_is_passing(503));
    assert_true(muster_http_is_passing(500));
    assert_false(muster_http_is_passing(501));
    assert_false(muster_http_is_passing(404));
    assert_false(muster_http_is_passing(200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry_after_is_seconds_or_a_date),
        cmocka_unit_test(what_is_no_retry_after_is_refused),
        cmocka_unit_test(a_timestamp_is_a_delay_from_now),
        cmocka_unit_test(backoff_doubles_up_to_its_cap_and_scatters_by_half),
        cmocka_unit_test(only_harmless_methods_are_repeated),
        cmocka_unit_test(only_passing_failures_are_repeated),
    };

    return cmocka_run_group_tests_name("http retry", tests, NULL, NULL);
}
