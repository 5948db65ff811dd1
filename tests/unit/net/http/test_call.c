/* Calls: repetition, Retry-After, tokens, deadlines. */
#include "cloud_fixture.h"

#include <muster/credentials.h>
#include <muster/http.h>
#include <stdio.h>
#include <string.h>

static struct cloud_caller caller; /* of the case, which may make it */

static int tear_down(void **state)
{
    muster_http_call_fini(&caller.call);
    return cloud_fixture_tear_down(state);
}

static size_t exchange_count;

static void on_exchange(struct muster_http_tracer *tracer,
                        const struct muster_http_exchange *exchange)
{
    (void)tracer;
    (void)exchange;
    exchange_count++;
}

static int set_up(void **state)
{
    static struct muster_http_tracer tracer = {.on_exchange = on_exchange};
    struct cloud_fixture *fixture;

    (void)cloud_fixture_set_up(state);
    fixture = *state;
    exchange_count = 0;
    fixture->env->http->tracer = &tracer;
    return 0;
}

/* Repetition. */

static void passing_failures_are_repeated_until_an_answer(void **state)
{
    static const char *const faults[] = {
        "\"status\": 500",
        "\"status\": 502",
        "\"status\": 503",
        "\"status\": 504",
        "\"status\": 429",
        "\"status\": 408",
        "\"close\": true",
        "\"raw\": \"no http\\r\\n\\r\\n\"",
        "\"body\": \"0123\", \"truncate\": 2",
    };
    struct cloud_fixture *fixture = *state;
    char script[512];

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        size_t before = cloud_fixture_request_count(fixture);

        fake_cloud_forget_script(fixture->cloud);
        snprintf(script, sizeof(script),
                 "[{\"times\": 2, \"response\": {%s}}, {\"response\": {\"body\": \"yes\"}}]",
                 faults[i]);
        cloud_fixture_script(fixture, script);
        cloud_caller_init(fixture, &caller, "/");
        assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
        if (strcmp(caller.call.request.answer, "yes") != 0 ||
            cloud_fixture_request_count(fixture) != before + 3)
            fail_msg("%s: %s after %zu", faults[i], caller.call.request.answer,
                     cloud_fixture_request_count(fixture) - before);
        muster_http_call_fini(&caller.call);
    }
}

static void lasting_failures_are_told_at_once(void **state)
{
    static const int statuses[] = {400, 401, 403, 404, 409, 410, 501};
    struct cloud_fixture *fixture = *state;

    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        fake_cloud_forget_script(fixture->cloud);
        fake_cloud_say(fixture->cloud, "GET", "/", statuses[i], NULL);
        cloud_caller_init(fixture, &caller, "/");
        assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
        assert_int_equal(caller.call.request.status, statuses[i]);
        assert_int_equal(cloud_fixture_request_count(fixture), i + 1);
        muster_http_call_fini(&caller.call);
    }
}

static void repetition_ends_with_the_last_answer(void **state)
{
    struct cloud_fixture *fixture = *state;

    fake_cloud_say(fixture->cloud, "GET", "/", 503, "still");
    cloud_caller_init(fixture, &caller, "/");
    caller.call.retry.attempts_max = 3;

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_int_equal(caller.call.request.status, 503);
    assert_string_equal(caller.call.request.answer, "still");
    assert_int_equal(cloud_fixture_request_count(fixture), 3);
}

static void a_post_is_repeated_only_where_that_is_allowed(void **state)
{
    struct cloud_fixture *fixture = *state;

    fake_cloud_say(fixture->cloud, "POST", "/", 503, NULL);
    cloud_caller_init(fixture, &caller, "/");
    caller.call.request.method = "POST";
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_int_equal(cloud_fixture_request_count(fixture), 1);
    caller.call.is_idempotent = true;
    caller.call.retry.attempts_max = 2;
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_int_equal(cloud_fixture_request_count(fixture), 3);
}

static void a_refused_connection_is_tried_again_and_told_with_its_cause(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_caller_init(fixture, &caller, "/");
    caller.call.request.url = "http://127.0.0.1:1/";
    caller.call.retry.attempts_max = 3;

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(caller.call.request.error.text, "127.0.0.1:1"));
    assert_int_equal(exchange_count, 3);
}

static void a_certificate_that_does_not_hold_is_not_tried_again(void **state)
{
    struct cloud_fixture *fixture = *state;
    const struct fake_cloud_options options = {.is_tls = true};
    struct fake_cloud *secure = NULL;

    assert_int_equal(fake_cloud_open(fixture->env, &options, &secure, NULL), MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/");
    caller.call.request.url = fake_cloud_base(secure);

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_UNAUTHENTICATED);
    assert_int_equal(exchange_count, 1);
    fake_cloud_close_wait(secure);
}

static void an_attempt_that_hangs_gives_way_to_the_next(void **state)
{
    struct cloud_fixture *fixture = *state;
    uint64_t deadline_ns;

    cloud_fixture_script(fixture, "[{\"times\": 1, \"response\": {\"hang\": true}}, "
                                  "{\"response\": {\"body\": \"yes\"}}]");
    cloud_caller_init(fixture, &caller, "/");
    caller.call.retry.attempt_timeout_ns = 20 * MUSTER_NS_PER_MS;
    caller.call.retry.attempts_max = 1000;
    deadline_ns = caller.call.request.deadline_ns;

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_string_equal(caller.call.request.answer, "yes");
    assert_int_equal(caller.call.request.deadline_ns,
                     deadline_ns); /* The call may be used again. */
}

static enum muster_rc on_piece(struct muster_http_request *request, const void *bytes, size_t count)
{
    struct muster_http_call *call = MUSTER_CONTAINER_OF(request, struct muster_http_call, request);

    (void)bytes;
    (void)count;
    assert_non_null(call->data);
    return MUSTER_OK;
}

static void a_stream_that_has_begun_is_not_asked_for_again(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture,
                         "[{\"response\": {\"chunks\": [{\"body\": \"one\"}], \"cut\": true}}]");
    cloud_caller_init(fixture, &caller, "/");
    caller.call.request.on_body = on_piece;

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_UNAVAILABLE);
    assert_int_equal(cloud_fixture_request_count(fixture), 1);
}

/* Retry-After and the deadline. */

static void retry_after_is_obeyed(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_loop *loop = fixture->env->loop;
    uint64_t before_ns = muster_loop_now_ns(loop);

    cloud_fixture_script(fixture, "[{\"times\": 1, \"response\": {\"status\": 429, \"headers\": "
                                  "{\"Retry-After\": \"7\"}}}, {\"response\": {\"body\": 1}}]");
    cloud_caller_init(fixture, &caller, "/");
    cloud_caller_start(fixture, &caller);
    while (caller.call.state != MUSTER_HTTP_CALL_WAITING)
        muster_loop_turn(loop, MUSTER_NS_PER_MS);
    assert_in_range(caller.call.timer.due_ns, before_ns + 7 * MUSTER_NS_PER_S,
                    muster_loop_now_ns(loop) + 7 * MUSTER_NS_PER_S);

    muster_timer_start(&caller.call.timer, loop, 0); /* that time has passed */
    test_env_run_until(fixture->env, test_env_is_true, &caller.is_done);
    assert_int_equal(caller.rc, MUSTER_OK);
    assert_int_equal(caller.call.request.status, 200);
}

static void a_retry_after_beyond_the_deadline_is_not_waited_for(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[{\"response\": {\"status\": 429, \"headers\": "
                                  "{\"Retry-After\": \"3600\"}}}]");
    cloud_caller_init(fixture, &caller, "/");

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_int_equal(caller.call.request.status, 429);
    assert_int_equal(cloud_fixture_request_count(fixture), 1);
}

static void the_deadline_holds_for_all_attempts_together(void **state)
{
    struct cloud_fixture *fixture = *state;
    uint64_t deadline_ns = muster_loop_after_ns(fixture->env->loop, 50 * MUSTER_NS_PER_MS);

    cloud_fixture_script(fixture, "[{\"response\": {\"hang\": true}}]");
    cloud_caller_init(fixture, &caller, "/");
    caller.call.request.deadline_ns = deadline_ns;
    caller.call.retry.attempts_max = 1000;

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_DEADLINE_EXCEEDED);
    assert_true(muster_loop_now_ns(fixture->env->loop) >= deadline_ns);
    assert_int_equal(caller.call.request.deadline_ns, deadline_ns);
}

static void a_cancel_ends_a_call_in_every_state(void **state)
{
    static const char *const scripts[] = {
        "[{\"response\": {\"hang\": true}}]",
        "[{\"response\": {\"status\": 503, \"headers\": {\"Retry-After\": \"20\"}}}]",
    };
    struct cloud_fixture *fixture = *state;

    for (size_t i = 0; i < 2; i++) {
        fake_cloud_forget_script(fixture->cloud);
        cloud_fixture_script(fixture, scripts[i]);
        cloud_caller_init(fixture, &caller, "/");
        cloud_caller_start(fixture, &caller);
        while (i == 1 ? caller.call.state != MUSTER_HTTP_CALL_WAITING
                      : cloud_fixture_request_count(fixture) == 0)
            muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);
        muster_http_call_cancel(&caller.call);
        muster_http_call_cancel(&caller.call);
        assert_int_equal(caller.count, 0);
        test_env_run_until(fixture->env, test_env_is_true, &caller.is_done);
        assert_int_equal(caller.count, 1);
        assert_int_equal(caller.rc, MUSTER_CANCELLED);
        muster_http_call_fini(&caller.call);
    }
}

/* Tokens. */

static void a_token_travels_beside_the_callers_headers(void **state)
{
    static const struct muster_http_header header = {.name = "X-Mine", .value = "kept"};
    struct cloud_fixture *fixture = *state;
    struct muster_credentials *credentials = NULL;
    const struct fake_cloud_request *request;

    fake_cloud_say(fixture->cloud, "GET", "/", 200, NULL);
    assert_int_equal(muster_credentials_bearer_open(fixture->env, "tok", &credentials, NULL),
                     MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/");
    caller.call.credentials = credentials;
    caller.call.request.headers = &header;
    caller.call.request.header_count = 1;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
        request = fake_cloud_request(fixture->cloud, i);
        assert_string_equal(fake_cloud_request_header(request, "authorization"), "Bearer tok");
        assert_string_equal(fake_cloud_request_header(request, "x-mine"), "kept");
    }
    cloud_fixture_close_credentials(fixture, credentials);
}

static void a_refused_token_is_fetched_anew_once(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_credentials *credentials = NULL;

    cloud_fixture_set_var(fixture, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(
        fixture,
        "[{\"match\": {\"path\": \"/x\", \"headers\": {\"Authorization\": \"Bearer t2\"}}, "
        "\"response\": {\"body\": \"yes\"}}, {\"match\": {\"path\": \"/x\"}, \"response\": "
        "{\"status\": 401}}, {\"match\": {\"path_regex\": \".*token\"}, \"times\": 1, "
        "\"response\": {\"headers\": {\"Metadata-Flavor\": \"Google\"}, \"body\": "
        "{\"access_token\": \"t1\"}}}, {\"match\": {\"path_regex\": \".*token\"}, \"response\": "
        "{\"headers\": {\"Metadata-Flavor\": \"Google\"}, \"body\": {\"access_token\": "
        "\"t2\"}}}]");
    assert_int_equal(muster_credentials_metadata_open(fixture->env, &credentials, NULL), MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/x");
    caller.call.credentials = credentials;
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_string_equal(caller.call.request.answer, "yes");
    assert_int_equal(cloud_fixture_request_count(fixture), 4);
    cloud_fixture_close_credentials(fixture, credentials);
}

static void a_401_for_a_fresh_token_too_is_told(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_credentials *credentials = NULL;
    struct muster_error error;

    fake_cloud_say(fixture->cloud, "GET", "/", 401, "{\"message\": \"go away, hush-token\"}");
    assert_int_equal(muster_credentials_bearer_open(fixture->env, "hush-token", &credentials, NULL),
                     MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/");
    caller.call.credentials = credentials;
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);

    assert_int_equal(cloud_fixture_request_count(fixture), 2);
    assert_int_equal(muster_http_check(&caller.call.request, &error), MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(error.text, "go away, ***"));
    assert_null(strstr(error.text, "hush-token"));
    cloud_fixture_close_credentials(fixture, credentials);
}

static void without_a_token_nothing_is_sent(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_credentials *credentials = NULL;

    assert_int_equal(
        muster_credentials_token_file_open(fixture->env, "/no/such/token", &credentials, NULL),
        MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/");
    caller.call.credentials = credentials;
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_NOT_FOUND);

    assert_non_null(strstr(caller.call.request.error.text, "/no/such/token"));
    assert_int_equal(cloud_fixture_request_count(fixture), 0);
    cloud_fixture_close_credentials(fixture, credentials);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(passing_failures_are_repeated_until_an_answer),
        T(lasting_failures_are_told_at_once),
        T(repetition_ends_with_the_last_answer),
        T(a_post_is_repeated_only_where_that_is_allowed),
        T(a_refused_connection_is_tried_again_and_told_with_its_cause),
        T(a_certificate_that_does_not_hold_is_not_tried_again),
        T(an_attempt_that_hangs_gives_way_to_the_next),
        T(a_stream_that_has_begun_is_not_asked_for_again),
        T(retry_after_is_obeyed),
        T(a_retry_after_beyond_the_deadline_is_not_waited_for),
        T(the_deadline_holds_for_all_attempts_together),
        T(a_cancel_ends_a_call_in_every_state),
        T(a_token_travels_beside_the_callers_headers),
        T(a_refused_token_is_fetched_anew_once),
        T(a_401_for_a_fresh_token_too_is_told),
        T(without_a_token_nothing_is_sent),
    };

    return cmocka_run_group_tests_name("http call", tests, NULL, NULL);
}
