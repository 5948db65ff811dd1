/* The client on curl against a real server: exchanges, streams, ends, and servers that misbehave. */
#include "cloud_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct outcome {
    int count;
    enum muster_rc rc;
    bool is_done;
};

static int set_up(void **state)
{
    static struct cloud_fixture fixture;

    cloud_fixture_open(&fixture, NULL);
    *state = &fixture;
    return 0;
}

static int set_up_tls(void **state)
{
    static struct cloud_fixture fixture;
    const struct fake_cloud_options options = {.is_tls = true};

    cloud_fixture_open(&fixture, &options);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    cloud_fixture_close(*state);
    return 0;
}

static void on_done(struct muster_http_request *request, enum muster_rc rc)
{
    struct outcome *outcome = request->data;

    outcome->count++;
    outcome->rc = rc;
    outcome->is_done = true;
}

static enum muster_rc ask(struct cloud_fixture *fixture, struct muster_http_request *request)
{
    struct outcome *outcome = request->data;

    *outcome = (struct outcome){.count = 0};
    if (request->deadline_ns == 0)
        request->deadline_ns = cloud_fixture_in_s(fixture, 30);
    if (request->tls == NULL)
        request->tls = &fixture->tls;
    assert_int_equal(muster_http_start(request, fixture->env->http, on_done), MUSTER_OK);
    assert_int_equal(outcome->count, 0);
    test_env_run_until(fixture->env, test_env_is_true, &outcome->is_done);
    assert_int_equal(outcome->count, 1);
    return outcome->rc;
}

/* Plain exchanges. */

static void an_answer_has_status_headers_and_body(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;

    cloud_fixture_script(fixture, "[{\"match\": {\"method\": \"GET\", \"path\": \"/a b\", "
                                  "\"query\": {\"q\": \"1&2\"}}, \"response\": {\"status\": 203, "
                                  "\"headers\": {\"ETag\": \"x\"}, \"body\": {\"n\": 1}}}]");
    muster_http_request_init(&request, &outcome);
    request.url = cloud_fixture_url(fixture, "/a%20b?q=1%262");

    assert_int_equal(ask(fixture, &request), MUSTER_OK);
    assert_int_equal(request.status, 203);
    assert_string_equal(request.answer, "{\"n\":1}");
    assert_int_equal(request.answer_bytes, 7);
    assert_string_equal(muster_http_response_header(&request, "eTAG"), "x");
    assert_string_equal(muster_http_response_header(&request, "content-type"), "application/json");
    assert_null(muster_http_response_header(&request, "no-such-header"));
    muster_http_request_fini(&request);
}

static void a_posted_body_and_headers_arrive(void **state)
{
    struct cloud_fixture *fixture = *state;
    static const struct muster_http_header headers[] = {
        {.name = "Content-Type", .value = "application/json"}, {.name = "X-Empty", .value = ""}};
    const struct fake_cloud_request *seen;
    struct outcome outcome;
    struct muster_http_request request;

    fake_cloud_say(fixture->cloud, "POST", "/p", 200, NULL);
    muster_http_request_init(&request, &outcome);
    request.method = "POST";
    request.url = cloud_fixture_url(fixture, "/p");
    request.headers = headers;
    request.header_count = 2;
    request.body = "{\"a\":1}";
    request.body_bytes = 7;

    assert_int_equal(ask(fixture, &request), MUSTER_OK);
    assert_int_equal(request.status, 200);
    assert_string_equal(request.answer, "");
    seen = fake_cloud_request(fixture->cloud, 0);
    assert_string_equal(seen->body, "{\"a\":1}");
    assert_string_equal(fake_cloud_request_header(seen, "content-type"), "application/json");
    assert_string_equal(fake_cloud_request_header(seen, "x-empty"), "");
    assert_null(fake_cloud_request_header(seen, "expect"));
    muster_http_request_fini(&request);
}

static void every_method_is_sent_as_it_is_named(void **state)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"};
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;
    const char *length;

    muster_http_request_init(&request, &outcome);
    for (size_t i = 0; i < 6; i++) {
        fake_cloud_say(fixture->cloud, methods[i], "/m", 200, "body");
        request.method = methods[i];
        request.url = cloud_fixture_url(fixture, "/m");
        assert_int_equal(ask(fixture, &request), MUSTER_OK);
        assert_int_equal(request.status, 200);
        assert_string_equal(request.answer, strcmp(methods[i], "HEAD") == 0 ? "" : "body");
        length = fake_cloud_request_header(fake_cloud_request(fixture->cloud, i), "content-length");
        assert_string_equal(length != NULL ? length : "none",
                            methods[i][0] == 'P' ? "0" : "none"); /* RFC 9110 8.6 */
    }
    assert_int_equal(fake_cloud_counts(fixture->cloud)->connections, 1); /* kept */
    muster_http_request_fini(&request);
}

static void a_status_that_is_no_success_becomes_its_code_with_the_servers_words(void **state)
{
    struct cloud_fixture *fixture = *state;
    static const struct muster_http_header headers[] = {
        {.name = "Authorization", .value = "Bearer hush-hush"},
        {.name = "X-Goog-Api-Key", .value = "hush-hush"},
    };
    struct outcome outcome;
    struct muster_http_request request;
    struct muster_error error;

    fake_cloud_say(fixture->cloud, "GET", "/x", 403,
                   "{\"error\": {\"message\": \"no access for hush-hush\"}}");
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        muster_http_request_init(&request, &outcome);
        request.url = cloud_fixture_url(fixture, "/x?token=hidden");
        request.headers = &headers[i];
        request.header_count = 1;

        assert_int_equal(ask(fixture, &request), MUSTER_OK);
        assert_int_equal(muster_http_check(&request, &error), MUSTER_PERMISSION_DENIED);
        assert_non_null(strstr(error.text, "/x: status 403: no access for *********"));
        assert_null(strstr(error.text, "hush-hush"));
        assert_null(strstr(error.text, "hidden"));
        muster_http_request_fini(&request);
    }
}

static void malformed_requests_never_start(void **state)
{
    struct cloud_fixture *fixture = *state;
    static const struct muster_http_header bad_name = {.name = "a b", .value = "x"};
    static const struct muster_http_header bad_value = {.name = "a", .value = "x\r\nEvil: 1"};
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    request.url = "gopher://x/";
    assert_int_equal(muster_http_start(&request, fixture->env->http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    request.url = "http://x/";
    request.method = "GET /";
    assert_int_equal(muster_http_start(&request, fixture->env->http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    request.method = "GET";
    request.headers = &bad_name;
    request.header_count = 1;
    assert_int_equal(muster_http_start(&request, fixture->env->http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    request.headers = &bad_value;
    assert_int_equal(muster_http_start(&request, fixture->env->http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(request.error.text, "header a"));
    test_env_turn(fixture->env, 3);
    assert_int_equal(outcome.count, 0);
    muster_http_request_fini(&request);
}

/* Servers that are not there, or fail. */

static void an_unreachable_server_is_unavailable_and_named(void **state)
{
    static const struct {
        const char *url, *host, *cause;
    } rows[] = {
        {"http://127.0.0.1:1/x?key=hush", "http://127.0.0.1:1/x", "cannot connect"},
        {"http://no-such-host.invalid/?key=hush", "no-such-host.invalid",
         "the name cannot be resolved"},
    };
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    for (size_t i = 0; i < 2; i++) {
        request.url = rows[i].url;
        assert_int_equal(ask(fixture, &request), MUSTER_UNAVAILABLE);
        assert_int_equal(request.status, 0);
        assert_null(request.answer);
        assert_non_null(strstr(request.error.text, rows[i].host));
        assert_non_null(strstr(request.error.text, rows[i].cause));
        assert_null(strstr(request.error.text, "hush"));
    }
    muster_http_request_fini(&request);
}

static void a_broken_answer_is_unavailable(void **state)
{
    static const char *const rows[][2] = {
        {"{\"close\": true}", "hung up without an answer"},
        {"{\"raw\": \"\\u0001\\u0002 this is no http at all\\r\\n\\r\\n\"}", "not HTTP"},
        {"{\"body\": \"0123456789\", \"truncate\": 4}", "cut short"},
        {"{\"chunks\": [{\"body\": \"part\"}], \"cut\": true}", "cut short"},
    };
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;
    char script[256];

    muster_http_request_init(&request, &outcome);
    for (size_t i = 0; i < 4; i++) {
        fake_cloud_forget_script(fixture->cloud);
        snprintf(script, sizeof(script), "[{\"response\": %s}]", rows[i][0]);
        cloud_fixture_script(fixture, script);
        request.url = cloud_fixture_url(fixture, "/");
        if (ask(fixture, &request) != MUSTER_UNAVAILABLE)
            fail_msg("%s: %s", rows[i][0], request.error.text);
        if (strstr(request.error.text, rows[i][1]) == NULL)
            fail_msg("%s: %s", rows[i][0], request.error.text);
    }
    muster_http_request_fini(&request);
}

static void a_silent_server_runs_into_the_deadline(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;

    cloud_fixture_script(fixture, "[{\"match\": {\"path\": \"/slow\"}, "
                                  "\"response\": {\"body\": \"x\", \"hold\": true}},"
                                  "{\"response\": {\"hang\": true}}]");
    muster_http_request_init(&request, &outcome);
    request.url = cloud_fixture_url(fixture, "/");
    request.deadline_ns = muster_loop_after_ns(fixture->env->loop, 20 * MUSTER_NS_PER_MS);
    assert_int_equal(ask(fixture, &request), MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(request.error.text, "no answer before the deadline"));

    request.url = cloud_fixture_url(fixture, "/slow");
    request.deadline_ns = UINT64_MAX;
    outcome = (struct outcome){.count = 0};
    assert_int_equal(muster_http_start(&request, fixture->env->http, on_done), MUSTER_OK);
    while (request.answer_bytes == 0)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_S);
    muster_timer_start(&request.timer, fixture->env->loop, 0); /* the deadline is now */
    test_env_run_until(fixture->env, test_env_is_true, &outcome.is_done);
    assert_int_equal(outcome.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(request.error.text, "the answer did not end before the deadline"));
    muster_http_request_fini(&request);
}

static void a_gigabyte_is_refused_before_it_is_held(void **state)
{
    static const char *const rows[] = {
        "[{\"response\": {\"body\": \"0123456789abcdef\", \"repeat_bytes\": 1073741824}}]",
        "[{\"response\": {\"body\": \"0123456789abcdef\", \"repeat_bytes\": 1073741824, "
        "\"hold\": true}}]", /* no length announced */
    };
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    for (size_t i = 0; i < 2; i++) {
        fake_cloud_forget_script(fixture->cloud);
        cloud_fixture_script(fixture, rows[i]);
        request.url = cloud_fixture_url(fixture, "/");
        request.response_bytes_max = 100000;
        assert_int_equal(ask(fixture, &request), MUSTER_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(request.error.text, "body must be at most 100000 bytes"));
        assert_true(fixture->test.mem.held_bytes < 8u << 20);
    }
    muster_http_request_fini(&request);
}

static void endless_headers_are_refused(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;
    char *script = malloc(80000);
    size_t at = 0;

    assert_non_null(script);
    at += (size_t)sprintf(script, "[{\"response\": {\"headers\": {");
    for (int i = 0; i < 700; i++)
        at += (size_t)sprintf(script + at, "%s\"h%d\": \"%090d\"", i == 0 ? "" : ",", i, i);
    sprintf(script + at, "}}}]");
    cloud_fixture_script(fixture, script);
    free(script);
    muster_http_request_init(&request, &outcome);
    request.url = cloud_fixture_url(fixture, "/");

    assert_int_equal(ask(fixture, &request), MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(request.error.text, "headers must be at most 65536 bytes"));
    muster_http_request_fini(&request);
}

/* Streams. */

struct watch {
    struct outcome outcome;
    char seen[256];
    size_t pieces;
    bool has_hello;
    enum muster_rc give_up;
    bool cancels;
};

static enum muster_rc on_piece(struct muster_http_request *request, const void *bytes, size_t count)
{
    struct watch *watch = MUSTER_CONTAINER_OF(request->data, struct watch, outcome);

    assert_int_equal(request->status, 200);
    strncat(watch->seen, bytes, count);
    watch->pieces++;
    watch->has_hello = strstr(watch->seen, "hello") != NULL;
    if (watch->cancels)
        muster_http_cancel(request);
    return watch->give_up;
}

static void a_watched_body_comes_in_pieces_until_cancelled(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct watch watch = {.pieces = 0};
    struct muster_http_request request;

    cloud_fixture_script(fixture, "[{\"response\": {\"chunks\": [{\"body\": \"one \"}, "
                                  "{\"after_ms\": 5, \"body\": \"two \"}], \"hold\": true}}]");
    muster_http_request_init(&request, &watch.outcome);
    request.url = cloud_fixture_url(fixture, "/");
    request.deadline_ns = UINT64_MAX;
    request.on_body = on_piece;
    request.tls = &fixture->tls;
    assert_int_equal(muster_http_start(&request, fixture->env->http, on_done), MUSTER_OK);
    while (fake_cloud_push(fixture->cloud, "hello") == 0)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_MS);
    test_env_run_until(fixture->env, test_env_is_true, &watch.has_hello);

    assert_string_equal(watch.seen, "one two hello");
    assert_int_equal(watch.outcome.count, 0);
    muster_http_cancel(&request);
    test_env_run_until(fixture->env, test_env_is_true, &watch.outcome.is_done);
    assert_int_equal(watch.outcome.rc, MUSTER_CANCELLED);
    muster_http_request_fini(&request);
}

static enum muster_rc on_counted(struct muster_http_request *request, const void *bytes,
                                 size_t count)
{
    (void)request;
    (void)bytes;
    return count > 0 ? MUSTER_OK : MUSTER_INTERNAL;
}

static void a_received_body_takes_no_memory(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcome;
    struct muster_http_request request;

    cloud_fixture_script(fixture, "[{\"response\": {\"body\": \"0123456789abcdef\", "
                                  "\"repeat_bytes\": 1000000}}]");
    muster_http_request_init(&request, &outcome);
    request.url = cloud_fixture_url(fixture, "/");
    request.on_body = on_counted;

    assert_int_equal(ask(fixture, &request), MUSTER_OK);
    assert_true(request.answer_bytes >= 1000000);
    assert_true(request.answer_capacity < 10000);
    assert_string_equal(request.answer, "");
    muster_http_request_fini(&request);
}

static void a_receiver_may_give_up_or_cancel_inside_its_callback(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct watch watch = {.give_up = MUSTER_DATA_LOSS};
    struct muster_http_request request;

    cloud_fixture_script(fixture, "[{\"response\": {\"body\": \"one\", \"hold\": true}}]");
    muster_http_request_init(&request, &watch.outcome);
    request.url = cloud_fixture_url(fixture, "/");
    request.on_body = on_piece;
    assert_int_equal(ask(fixture, &request), MUSTER_DATA_LOSS);
    watch.give_up = MUSTER_OK;
    watch.cancels = true;
    assert_int_equal(ask(fixture, &request), MUSTER_CANCELLED);
    assert_int_equal(watch.pieces, 2);
    muster_http_request_fini(&request);
}

static void a_refused_watch_gives_its_body_as_an_answer(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct watch watch = {.pieces = 0};
    struct muster_http_request request;

    fake_cloud_say(fixture->cloud, "GET", "/", 410, "{\"message\": \"too old\"}");
    muster_http_request_init(&request, &watch.outcome);
    request.url = cloud_fixture_url(fixture, "/");
    request.on_body = on_piece;

    assert_int_equal(ask(fixture, &request), MUSTER_OK);
    assert_int_equal(request.status, 410);
    assert_string_equal(request.answer, "{\"message\": \"too old\"}");
    assert_int_equal(watch.pieces, 0);
    muster_http_request_fini(&request);
}

/* Ends. */

static void a_cancelled_request_is_told_so_once(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;

    cloud_fixture_script(fixture, "[{\"response\": {\"hang\": true}}]");
    muster_http_request_init(&request, &outcome);
    request.url = cloud_fixture_url(fixture, "/");
    request.deadline_ns = UINT64_MAX;
    for (unsigned turns = 0; turns < 12; turns++) { /* wherever the request stands */
        outcome = (struct outcome){.count = 0};
        assert_int_equal(muster_http_start(&request, fixture->env->http, on_done), MUSTER_OK);
        test_env_turn(fixture->env, turns);
        muster_http_cancel(&request);
        muster_http_cancel(&request);
        assert_int_equal(outcome.count, 0);
        test_env_run_until(fixture->env, test_env_is_true, &outcome.is_done);
        test_env_turn(fixture->env, 3);
        assert_int_equal(outcome.count, 1);
        assert_int_equal(outcome.rc, MUSTER_CANCELLED);
    }
    muster_http_request_fini(&request);
}

/* Its thread may have answered before: then the cancel has come too late, and is tried again. */
static void a_look_up_of_a_name_does_not_hold_a_cancel(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcome = {.rc = MUSTER_UNAVAILABLE};
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    request.url = "http://no-such-host.invalid/";
    request.deadline_ns = UINT64_MAX;
    for (unsigned i = 0; i < 50 && outcome.rc == MUSTER_UNAVAILABLE; i++) {
        outcome = (struct outcome){.count = 0};
        assert_int_equal(muster_http_start(&request, fixture->env->http, on_done), MUSTER_OK);
        test_env_turn(fixture->env, 1);
        muster_http_cancel(&request);
        test_env_run_until(fixture->env, test_env_is_true, &outcome.is_done);
    }
    assert_int_equal(outcome.rc, MUSTER_CANCELLED);
    muster_http_request_fini(&request);
}

static bool flag;

static void on_closed(struct muster_http *http)
{
    (void)http;
    flag = true;
}

static void a_closed_client_cancels_what_runs_and_starts_nothing(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct outcome outcomes[3];
    struct muster_http_request requests[3];
    struct muster_http *http = NULL;

    cloud_fixture_script(fixture, "[{\"response\": {\"hang\": true}}]");
    assert_int_equal(muster_http_curl_open(fixture->env, NULL, &http, NULL), MUSTER_OK);
    for (int i = 0; i < 3; i++) {
        outcomes[i] = (struct outcome){.count = 0};
        muster_http_request_init(&requests[i], &outcomes[i]);
        requests[i].url = cloud_fixture_url(fixture, "/");
        requests[i].deadline_ns = UINT64_MAX;
        assert_int_equal(muster_http_start(&requests[i], http, on_done), MUSTER_OK);
        test_env_turn(fixture->env, 3);
    }
    flag = false;
    muster_http_close(http, on_closed);
    test_env_run_until(fixture->env, test_env_is_true, &flag);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(outcomes[i].count, 1);
        assert_int_equal(outcomes[i].rc, MUSTER_CANCELLED);
        muster_http_request_fini(&requests[i]);
    }
}

#define T(name, prepare) cmocka_unit_test_setup_teardown(name, prepare, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_answer_has_status_headers_and_body, set_up),
        T(a_posted_body_and_headers_arrive, set_up),
        T(every_method_is_sent_as_it_is_named, set_up),
        T(a_status_that_is_no_success_becomes_its_code_with_the_servers_words, set_up),
        T(malformed_requests_never_start, set_up),
        T(an_unreachable_server_is_unavailable_and_named, set_up),
        T(a_broken_answer_is_unavailable, set_up),
        T(a_silent_server_runs_into_the_deadline, set_up),
        T(a_gigabyte_is_refused_before_it_is_held, set_up),
        T(endless_headers_are_refused, set_up),
        T(a_watched_body_comes_in_pieces_until_cancelled, set_up),
        T(a_watched_body_comes_in_pieces_until_cancelled, set_up_tls),
        T(a_received_body_takes_no_memory, set_up),
        T(a_receiver_may_give_up_or_cancel_inside_its_callback, set_up),
        T(a_receiver_may_give_up_or_cancel_inside_its_callback, set_up_tls),
        T(a_refused_watch_gives_its_body_as_an_answer, set_up),
        T(a_cancelled_request_is_told_so_once, set_up),
        T(a_look_up_of_a_name_does_not_hold_a_cancel, set_up),
        T(a_closed_client_cancels_what_runs_and_starts_nothing, set_up),
        T(a_gigabyte_is_refused_before_it_is_held, set_up_tls),
    };

    return cmocka_run_group_tests_name("http client", tests, NULL, NULL);
}
