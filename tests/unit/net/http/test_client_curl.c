/* The client on curl against a real server: exchanges, streams, ends, and servers that misbehave. */
#include "cloud_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_up_tls(void **state)
{
    return cloud_fixture_set_up_with(state, &(struct fake_cloud_options){.is_tls = true});
}

/* Plain exchanges. */

static void an_answer_has_status_headers_and_body(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    cloud_fixture_script(fixture, "[{\"match\": {\"method\": \"GET\", \"path\": \"/a b\", "
                                  "\"query\": {\"q\": \"1&2\"}}, \"response\": {\"status\": 203, "
                                  "\"headers\": {\"ETag\": \"x\"}, \"body\": {\"n\": 1}}}]");
    request->url = cloud_fixture_url(fixture, "/a%20b?q=1%262");

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_int_equal(request->status, 203);
    assert_string_equal(request->answer, "{\"n\":1}");
    assert_int_equal(request->answer_bytes, 7);
    assert_string_equal(muster_http_response_header(request, "eTAG"), "x");
    assert_string_equal(muster_http_response_header(request, "content-type"), "application/json");
    assert_null(muster_http_response_header(request, "no-such-header"));
}

static void a_posted_body_and_headers_arrive(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    static const struct muster_http_header headers[] = {
        {.name = "Content-Type", .value = "application/json"}, {.name = "X-Empty", .value = ""}};
    const struct fake_cloud_request *seen;

    fake_cloud_say(fixture->cloud, "POST", "/p", 200, NULL);
    request->method = "POST";
    request->url = cloud_fixture_url(fixture, "/p");
    request->headers = headers;
    request->header_count = 2;
    request->body = "{\"a\":1}";
    request->body_bytes = 7;

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_int_equal(request->status, 200);
    assert_string_equal(request->answer, "");
    seen = fake_cloud_request(fixture->cloud, 0);
    assert_string_equal(seen->body, "{\"a\":1}");
    assert_string_equal(fake_cloud_request_header(seen, "content-type"), "application/json");
    assert_string_equal(fake_cloud_request_header(seen, "x-empty"), "");
    assert_null(fake_cloud_request_header(seen, "expect"));
}

static void every_method_is_sent_as_it_is_named(void **state)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"};
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    const char *length;

    for (size_t i = 0; i < 6; i++) {
        fake_cloud_say(fixture->cloud, methods[i], "/m", 200, "body");
        request->method = methods[i];
        request->url = cloud_fixture_url(fixture, "/m");
        assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
        assert_int_equal(request->status, 200);
        assert_string_equal(request->answer, strcmp(methods[i], "HEAD") == 0 ? "" : "body");
        length = fake_cloud_request_header(fake_cloud_request(fixture->cloud, i), "content-length");
        assert_string_equal(length != NULL ? length : "none",
                            methods[i][0] == 'P' ? "0" : "none"); /* RFC 9110 8.6 */
    }
    assert_int_equal(fake_cloud_counts(fixture->cloud)->connections, 1); /* kept */
}

static void a_status_that_is_no_success_becomes_its_code_with_the_servers_words(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    static const struct muster_http_header headers[] = {
        {.name = "Authorization", .value = "Bearer hush-hush"},
        {.name = "X-Goog-Api-Key", .value = "hush-hush"},
    };
    struct muster_error error;

    fake_cloud_say(fixture->cloud, "GET", "/x", 403,
                   "{\"error\": {\"message\": \"no access for hush-hush\"}}");
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        request->url = cloud_fixture_url(fixture, "/x?token=hidden");
        request->headers = &headers[i];
        request->header_count = 1;

        assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
        assert_int_equal(muster_http_check(request, &error), MUSTER_PERMISSION_DENIED);
        assert_non_null(strstr(error.text, "/x: status 403: no access for *********"));
        assert_null(strstr(error.text, "hush-hush"));
        assert_null(strstr(error.text, "hidden"));
    }
}

static void malformed_requests_never_start(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    static const struct muster_http_header bad_name = {.name = "a b", .value = "x"};
    static const struct muster_http_header bad_value = {.name = "a", .value = "x\r\nEvil: 1"};

    request->url = "gopher://x/";
    assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_INVALID_ARGUMENT);
    request->url = "http://x/";
    request->method = "GET /";
    assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_INVALID_ARGUMENT);
    request->method = "GET";
    request->headers = &bad_name;
    request->header_count = 1;
    assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_INVALID_ARGUMENT);
    request->headers = &bad_value;
    assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(request->error.text, "header a"));
    test_env_turn(fixture->env, 3);
    assert_int_equal(fixture->outcome.count, 0);
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
    struct muster_http_request *request = &fixture->request;

    for (size_t i = 0; i < 2; i++) {
        request->url = rows[i].url;
        assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAVAILABLE);
        assert_int_equal(request->status, 0);
        assert_null(request->answer);
        assert_non_null(strstr(request->error.text, rows[i].host));
        assert_non_null(strstr(request->error.text, rows[i].cause));
        assert_null(strstr(request->error.text, "hush"));
    }
}

static void a_broken_answer_is_unavailable(void **state)
{
    static const char *const rows[][2] = {
        {"{\"close\": true}", "hung up without an answer"},
        {"{\"raw\": \"\\u0001\\u0002 this is nothing like http\\r\\n\\r\\n\"}", "not HTTP"},
        {"{\"body\": \"0123456789\", \"truncate\": 4}", "cut short"},
        {"{\"chunks\": [{\"body\": \"part\"}], \"cut\": true}", "cut short"},
    };
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    char script[256];

    for (size_t i = 0; i < 4; i++) {
        fake_cloud_forget_script(fixture->cloud);
        snprintf(script, sizeof(script), "[{\"response\": %s}]", rows[i][0]);
        cloud_fixture_script(fixture, script);
        request->url = cloud_fixture_url(fixture, "/");
        if (cloud_fixture_ask(fixture, request) != MUSTER_UNAVAILABLE)
            fail_msg("%s: %s", rows[i][0], request->error.text);
        if (strstr(request->error.text, rows[i][1]) == NULL)
            fail_msg("%s: %s", rows[i][0], request->error.text);
    }
}

static void a_silent_server_runs_into_the_deadline(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    cloud_fixture_script(fixture, "[{\"match\": {\"path\": \"/slow\"}, "
                                  "\"response\": {\"body\": \"x\", \"hold\": true}},"
                                  "{\"response\": {\"hang\": true}}]");
    request->url = cloud_fixture_url(fixture, "/");
    request->deadline_ns = muster_loop_after_ns(fixture->env->loop, 20 * MUSTER_NS_PER_MS);
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(request->error.text, "no answer before the deadline"));

    request->url = cloud_fixture_url(fixture, "/slow");
    request->deadline_ns = UINT64_MAX;
    fixture->outcome = (struct cloud_outcome){.count = 0};
    assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_OK);
    while (request->answer_bytes == 0)
        muster_loop_turn(fixture->env->loop, MUSTER_NS_PER_S);
    muster_timer_start(&request->timer, fixture->env->loop, 0); /* the deadline is now */
    test_env_run_until(fixture->env, test_env_is_true, &fixture->outcome.is_done);
    assert_int_equal(fixture->outcome.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(request->error.text, "the answer did not end before the deadline"));
}

static void a_gigabyte_is_refused_before_it_is_held(void **state)
{
    static const char *const rows[] = {
        "[{\"response\": {\"body\": \"0123456789abcdef\", \"repeat_bytes\": 1073741824}}]",
        "[{\"response\": {\"body\": \"0123456789abcdef\", \"repeat_bytes\": 1073741824, "
        "\"hold\": true}}]", /* no length announced */
    };
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    for (size_t i = 0; i < 2; i++) {
        fake_cloud_forget_script(fixture->cloud);
        cloud_fixture_script(fixture, rows[i]);
        request->url = cloud_fixture_url(fixture, "/");
        request->response_bytes_max = 100000;
        assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(request->error.text, "body must be at most 100000 bytes"));
        assert_true(fixture->test.mem.held_bytes < 8u << 20);
    }
}

static void endless_headers_are_refused(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    char *script = malloc(80000);
    size_t at = 0;

    assert_non_null(script);
    at += (size_t)sprintf(script, "[{\"response\": {\"headers\": {");
    for (int i = 0; i < 700; i++)
        at += (size_t)sprintf(script + at, "%s\"h%d\": \"%090d\"", i == 0 ? "" : ",", i, i);
    sprintf(script + at, "}}}]");
    cloud_fixture_script(fixture, script);
    free(script);
    request->url = cloud_fixture_url(fixture, "/");

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(request->error.text, "headers must be at most 65536 bytes"));
}

/* Streams. */

struct watch {
    struct cloud_outcome outcome;
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
    assert_int_equal(muster_http_start(&request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_OK);
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
    struct muster_http_request *request = &fixture->request;

    cloud_fixture_script(fixture, "[{\"response\": {\"body\": \"0123456789abcdef\", "
                                  "\"repeat_bytes\": 1000000}}]");
    request->url = cloud_fixture_url(fixture, "/");
    request->on_body = on_counted;

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_true(request->answer_bytes >= 1000000);
    assert_true(request->answer_capacity < 10000);
    assert_string_equal(request->answer, "");
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
    assert_int_equal(cloud_fixture_ask(fixture, &request), MUSTER_DATA_LOSS);
    watch.give_up = MUSTER_OK;
    watch.cancels = true;
    assert_int_equal(cloud_fixture_ask(fixture, &request), MUSTER_CANCELLED);
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

    assert_int_equal(cloud_fixture_ask(fixture, &request), MUSTER_OK);
    assert_int_equal(request.status, 410);
    assert_string_equal(request.answer, "{\"message\": \"too old\"}");
    assert_int_equal(watch.pieces, 0);
    muster_http_request_fini(&request);
}

/* Ends. */

static void a_cancelled_request_is_told_so_once(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    cloud_fixture_script(fixture, "[{\"response\": {\"hang\": true}}]");
    request->url = cloud_fixture_url(fixture, "/");
    request->deadline_ns = UINT64_MAX;
    for (unsigned turns = 0; turns < 12; turns++) { /* wherever the request stands */
        fixture->outcome = (struct cloud_outcome){.count = 0};
        assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                         MUSTER_OK);
        test_env_turn(fixture->env, turns);
        muster_http_cancel(request);
        muster_http_cancel(request);
        assert_int_equal(fixture->outcome.count, 0);
        test_env_run_until(fixture->env, test_env_is_true, &fixture->outcome.is_done);
        test_env_turn(fixture->env, 3);
        assert_int_equal(fixture->outcome.count, 1);
        assert_int_equal(fixture->outcome.rc, MUSTER_CANCELLED);
    }
}

/* Its thread may have answered before: then the cancel has come too late, and is tried again. */
static void a_look_up_of_a_name_does_not_hold_a_cancel(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    fixture->outcome.rc = MUSTER_UNAVAILABLE;
    request->url = "http://no-such-host.invalid/";
    request->deadline_ns = UINT64_MAX;
    for (unsigned i = 0; i < 50 && fixture->outcome.rc == MUSTER_UNAVAILABLE; i++) {
        fixture->outcome = (struct cloud_outcome){.count = 0};
        assert_int_equal(muster_http_start(request, fixture->env->http, cloud_outcome_on_done),
                         MUSTER_OK);
        test_env_turn(fixture->env, 1);
        muster_http_cancel(request);
        test_env_run_until(fixture->env, test_env_is_true, &fixture->outcome.is_done);
    }
    assert_int_equal(fixture->outcome.rc, MUSTER_CANCELLED);
}

static void a_closed_client_cancels_what_runs_and_starts_nothing(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct cloud_outcome outcomes[3];
    struct muster_http_request requests[3];
    struct muster_http *http = NULL;

    cloud_fixture_script(fixture, "[{\"response\": {\"hang\": true}}]");
    assert_int_equal(muster_http_curl_open(fixture->env, NULL, &http, NULL), MUSTER_OK);
    for (int i = 0; i < 3; i++) {
        outcomes[i] = (struct cloud_outcome){.count = 0};
        muster_http_request_init(&requests[i], &outcomes[i]);
        requests[i].url = cloud_fixture_url(fixture, "/");
        requests[i].deadline_ns = UINT64_MAX;
        assert_int_equal(muster_http_start(&requests[i], http, cloud_outcome_on_done), MUSTER_OK);
        test_env_turn(fixture->env, 3);
    }
    cloud_fixture_close_http(fixture, http);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(outcomes[i].count, 1);
        assert_int_equal(outcomes[i].rc, MUSTER_CANCELLED);
        muster_http_request_fini(&requests[i]);
    }
}

#define T(name, prepare) cmocka_unit_test_setup_teardown(name, prepare, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_answer_has_status_headers_and_body, cloud_fixture_set_up),
        T(a_posted_body_and_headers_arrive, cloud_fixture_set_up),
        T(every_method_is_sent_as_it_is_named, cloud_fixture_set_up),
        T(a_status_that_is_no_success_becomes_its_code_with_the_servers_words,
          cloud_fixture_set_up),
        T(malformed_requests_never_start, cloud_fixture_set_up),
        T(an_unreachable_server_is_unavailable_and_named, cloud_fixture_set_up),
        T(a_broken_answer_is_unavailable, cloud_fixture_set_up),
        T(a_silent_server_runs_into_the_deadline, cloud_fixture_set_up),
        T(a_gigabyte_is_refused_before_it_is_held, cloud_fixture_set_up),
        T(endless_headers_are_refused, cloud_fixture_set_up),
        T(a_watched_body_comes_in_pieces_until_cancelled, cloud_fixture_set_up),
        T(a_watched_body_comes_in_pieces_until_cancelled, set_up_tls),
        T(a_received_body_takes_no_memory, cloud_fixture_set_up),
        T(a_receiver_may_give_up_or_cancel_inside_its_callback, cloud_fixture_set_up),
        T(a_receiver_may_give_up_or_cancel_inside_its_callback, set_up_tls),
        T(a_refused_watch_gives_its_body_as_an_answer, cloud_fixture_set_up),
        T(a_cancelled_request_is_told_so_once, cloud_fixture_set_up),
        T(a_look_up_of_a_name_does_not_hold_a_cancel, cloud_fixture_set_up),
        T(a_closed_client_cancels_what_runs_and_starts_nothing, cloud_fixture_set_up),
        T(a_gigabyte_is_refused_before_it_is_held, set_up_tls),
    };

    return cmocka_run_group_tests_name("http client", tests, NULL, NULL);
}
