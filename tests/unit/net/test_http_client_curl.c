/* The client on curl, against the small server of the library. */
#include "test_env.h"

#include <muster/http.h>
#include <muster/http_server.h>
#include <string.h>

struct fixture {
    struct test_env test;
    struct muster_http_server *server;
    bool is_server_closed;
    char base[192];
};

struct outcome {
    int count;
    enum muster_rc rc;
    bool is_done;
};

static bool http_closed;

static void on_http_closed(struct muster_http *http)
{
    (void)http;
    http_closed = true;
}

static void on_server_closed(struct muster_http_server *server)
{
    *(bool *)muster_http_server_data(server) = true;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct muster_address address;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    memset(&fixture, 0, sizeof(fixture));
    test_env_open(&fixture.test);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_http_server_open(&fixture.test.env, &address, &fixture.server, NULL),
                     MUSTER_OK);
    muster_http_server_set_data(fixture.server, &fixture.is_server_closed);
    assert_int_equal(muster_http_curl_open(&fixture.test.env, NULL, &fixture.test.env.http, NULL),
                     MUSTER_OK);
    muster_address_format(muster_http_server_address(fixture.server), text);
    snprintf(fixture.base, sizeof(fixture.base), "http://%s", text);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    http_closed = false;
    muster_http_close(fixture->test.env.http, on_http_closed);
    test_env_run_until(&fixture->test.env, test_env_is_true, &http_closed);
    if (fixture->server != NULL) {
        muster_http_server_close(fixture->server, on_server_closed);
        test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_server_closed);
    }
    test_env_close(&fixture->test);
    return 0;
}

static void on_done(struct muster_http_request *request, enum muster_rc rc)
{
    struct outcome *outcome = request->data;

    outcome->count++;
    outcome->rc = rc;
    outcome->is_done = true;
}

static void ask(struct fixture *fixture, struct muster_http_request *request, const char *url)
{
    struct outcome *outcome = request->data;

    request->url = url;
    request->deadline_ns = muster_loop_after_ns(fixture->test.env.loop, 30 * MUSTER_NS_PER_S);
    assert_int_equal(muster_http_start(request, fixture->test.env.http, on_done), MUSTER_OK);
    assert_int_equal(outcome->count, 0);
    test_env_run_until(&fixture->test.env, test_env_is_true, &outcome->is_done);
    assert_int_equal(outcome->count, 1);
}

static void a_page_is_fetched(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;
    char url[256];

    snprintf(url, sizeof(url), "%s/healthz", fixture->base);
    muster_http_request_init(&request, &outcome);
    ask(fixture, &request, url);

    assert_int_equal(outcome.rc, MUSTER_OK);
    assert_int_equal(request.status, 200);
    assert_string_equal(request.answer, "ok\n");
    assert_int_equal(request.answer_bytes, 3);
    assert_string_equal(muster_http_response_header(&request, "content-TYPE"),
                        "text/plain; charset=utf-8");
    assert_null(muster_http_response_header(&request, "no-such-header"));
    muster_http_request_fini(&request);
}

static void a_request_may_be_started_again(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;
    char url[256];

    snprintf(url, sizeof(url), "%s/nothing?token=hush", fixture->base);
    muster_http_request_init(&request, &outcome);
    for (int i = 0; i < 3; i++) {
        struct muster_error error;

        outcome = (struct outcome){.count = 0};
        ask(fixture, &request, url);
        assert_int_equal(outcome.rc, MUSTER_OK);
        assert_int_equal(request.status, 404);
        assert_int_equal(muster_http_check(&request, &error), MUSTER_NOT_FOUND);
        assert_non_null(strstr(error.text, "/nothing: status 404"));
        assert_null(strstr(error.text, "hush"));
    }
    muster_http_request_fini(&request);
}

static void a_refused_connection_is_unavailable_and_names_the_host(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    ask(fixture, &request, "http://127.0.0.1:1/x?key=hush");

    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(request.error.text, "http://127.0.0.1:1/x: cannot connect"));
    assert_null(strstr(request.error.text, "hush"));
    assert_null(request.answer);
    muster_http_request_fini(&request);
}

static void a_name_that_does_not_exist_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    ask(fixture, &request, "http://no-such-host.invalid/");

    assert_int_equal(outcome.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(request.error.text, "no-such-host.invalid"));
    assert_non_null(strstr(request.error.text, "the name cannot be resolved"));
    muster_http_request_fini(&request);
}

static void a_cancelled_request_is_told_so_once(void **state)
{
    struct fixture *fixture = *state;
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    request.url = fixture->base;
    request.deadline_ns = UINT64_MAX;
    assert_int_equal(muster_http_start(&request, fixture->test.env.http, on_done), MUSTER_OK);
    muster_http_cancel(&request);
    muster_http_cancel(&request);
    assert_int_equal(outcome.count, 0);
    test_env_run_until(&fixture->test.env, test_env_is_true, &outcome.is_done);
    test_env_turn(&fixture->test.env, 5);

    assert_int_equal(outcome.count, 1);
    assert_int_equal(outcome.rc, MUSTER_CANCELLED);
    muster_http_request_fini(&request);
}

static void malformed_requests_never_start(void **state)
{
    struct fixture *fixture = *state;
    static const struct muster_http_header bad_name = {.name = "a b", .value = "x"};
    static const struct muster_http_header bad_value = {.name = "a", .value = "x\r\nEvil: 1"};
    struct outcome outcome = {.count = 0};
    struct muster_http_request request;

    muster_http_request_init(&request, &outcome);
    request.url = "gopher://x/";
    assert_int_equal(muster_http_start(&request, fixture->test.env.http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    request.url = "http://x/";
    request.method = "GET /";
    assert_int_equal(muster_http_start(&request, fixture->test.env.http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    request.method = "GET";
    request.headers = &bad_name;
    request.header_count = 1;
    assert_int_equal(muster_http_start(&request, fixture->test.env.http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    request.headers = &bad_value;
    assert_int_equal(muster_http_start(&request, fixture->test.env.http, on_done),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(request.error.text, "header a"));
    test_env_turn(&fixture->test.env, 3);
    assert_int_equal(outcome.count, 0);
    muster_http_request_fini(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_is_fetched, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_may_be_started_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refused_connection_is_unavailable_and_names_the_host,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_name_that_does_not_exist_is_unavailable, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_cancelled_request_is_told_so_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(malformed_requests_never_start, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("http client", tests, NULL, NULL);
}
