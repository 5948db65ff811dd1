/* The small HTTP/1.1 server: health, metrics, pages. */
#include "test_env.h"

#include <errno.h>
#include <muster/http.h>
#include <string.h>
#include <unistd.h>

#include "net/stream/net_internal.h"

#define ANSWER_MAX 8192

struct fixture {
    struct test_env test;
    struct muster_http_server *server;
    struct muster_address address;
    bool is_closed;
    char answer[ANSWER_MAX];
};

static void on_closed(struct muster_http_server *server)
{
    ((struct fixture *)muster_http_server_data(server))->is_closed = true;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct muster_error error;

    memset(&fixture, 0, sizeof(fixture));
    test_env_open(&fixture.test);
    assert_int_equal(muster_metrics_open(fixture.test.env.mem, &fixture.test.env.metrics),
                     MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &fixture.address, NULL), MUSTER_OK);
    assert_int_equal(
        muster_http_server_open(&fixture.test.env, &fixture.address, &fixture.server, &error),
        MUSTER_OK);
    muster_http_server_set_data(fixture.server, &fixture);
    fixture.address = *muster_http_server_address(fixture.server);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_http_server_close(fixture->server, on_closed);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_closed);
    muster_metrics_close(fixture->test.env.metrics);
    test_env_close(&fixture->test);
    return 0;
}

static int client_dial(const struct fixture *fixture)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(&fixture->address, &sockaddr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, &sockaddr.any, length), 0);
    return fd;
}

/* Sends request and returns everything the server answers until it hangs up. */
static const char *client_ask(struct fixture *fixture, const char *request)
{
    int fd = client_dial(fixture);
    size_t length = 0;
    ssize_t count;

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    while ((count = recv(fd, fixture->answer + length, ANSWER_MAX - 1 - length, MSG_DONTWAIT)) !=
           0) {
        if (count < 0 && errno == ECONNRESET)
            break;
        if (count < 0) {
            assert_int_equal(errno, EAGAIN);
            test_env_turn(&fixture->test.env, 1);
            continue;
        }
        length += (size_t)count;
        assert_true(length < ANSWER_MAX - 1);
    }
    fixture->answer[length] = '\0';
    close(fd);
    return fixture->answer;
}

static const char *get_page(struct fixture *fixture, const char *path)
{
    char request[256];

    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             path);
    return client_ask(fixture, request);
}

static void expect_part(const char *answer, const char *part)
{
    if (strstr(answer, part) == NULL)
        fail_msg("\"%s\" is not in:\n%s", part, answer);
}

static void echo_header(struct muster_http_page *page, struct muster_http_reply *reply)
{
    const char *accept = muster_http_reply_request_header(reply, "accept");

    (void)page;
    muster_http_reply_add_header(reply, "Content-Security-Policy", "default-src 'none'");
    muster_http_reply_printf(reply, "%s|%s", accept != NULL ? accept : "none",
                             muster_http_reply_request_header(reply, "X-Absent") == NULL ? ""
                                                                                         : "?");
}

static void pages_read_headers_and_add_their_own(void **state)
{
    struct fixture *fixture = *state;
    struct muster_http_page page = {.path = "/echo", .on_request = echo_header};
    const char *answer;

    assert_int_equal(muster_http_page_add(fixture->server, &page), MUSTER_OK);
    answer = client_ask(
        fixture, "GET /echo HTTP/1.1\r\nHost: x\r\nAccept: text/x\r\nConnection: close\r\n\r\n");

    expect_part(answer, "\r\nContent-Security-Policy: default-src 'none'\r\n");
    expect_part(answer, "\r\n\r\ntext/x|");
    muster_http_page_remove(&page);
}

static void healthy_process_says_ok(void **state)
{
    const char *answer = get_page(*state, "/healthz");

    expect_part(answer, "HTTP/1.1 200 ");
    expect_part(answer, "\r\n\r\nok\n");
}

static enum muster_rc check_fine(struct muster_health_check *check, struct muster_error *ret_error)
{
    (void)check;
    (void)ret_error;
    return MUSTER_OK;
}

static enum muster_rc check_text(struct muster_health_check *check, struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s", (const char *)check->data);
}

static enum muster_rc check_bare(struct muster_health_check *check, struct muster_error *ret_error)
{
    (void)check;
    (void)ret_error;
    return MUSTER_DEADLINE_EXCEEDED;
}

static void failed_checks_are_listed_with_their_reasons(void **state)
{
    char reason[] = "no answer for 3 s";
    struct muster_health_check checks[] = {
        {.name = "disk", .check = check_fine},
        {.name = "registry", .check = check_text, .data = reason},
        {.name = "peers", .check = check_bare},
    };
    struct fixture *fixture = *state;
    const char *answer;
    size_t i;

    for (i = 0; i < 3; i++)
        muster_health_check_add(fixture->server, &checks[i]);
    answer = get_page(fixture, "/healthz");
    expect_part(answer, "HTTP/1.1 503 ");
    expect_part(answer, "\r\n\r\nregistry: no answer for 3 s\npeers: deadline exceeded\n");

    for (i = 0; i < 3; i++)
        muster_health_check_remove(&checks[i]);
    expect_part(get_page(fixture, "/healthz"), "HTTP/1.1 200 ");
}

static enum muster_rc check_warn(struct muster_health_check *check, struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_OK, "%s", (const char *)check->data);
}

static void warnings_stand_behind_ok_and_behind_what_has_failed(void **state)
{
    char warning[] = "90 % full", reason[] = "gone";
    struct muster_health_check disk = {.name = "disk", .check = check_warn, .data = warning};
    struct muster_health_check peers = {.name = "peers", .check = check_text, .data = reason};
    struct fixture *fixture = *state;
    const char *answer;

    muster_health_check_add(fixture->server, &disk);
    answer = get_page(fixture, "/healthz");
    expect_part(answer, "HTTP/1.1 200 ");
    expect_part(answer, "\r\n\r\nok\ndisk: 90 % full\n");

    muster_health_check_add(fixture->server, &peers);
    answer = get_page(fixture, "/healthz");
    expect_part(answer, "HTTP/1.1 503 ");
    expect_part(answer, "\r\n\r\npeers: gone\ndisk: 90 % full\n");
    muster_health_check_remove(&disk);
    muster_health_check_remove(&peers);
}

static void metrics_are_shown_as_prometheus_text(void **state)
{
    struct fixture *fixture = *state;
    struct muster_metric metric;
    const char *answer;

    muster_metric_init(&metric, fixture->test.env.metrics, MUSTER_COUNTER,
                       "muster_test_bytes_total", "Bytes of this test.", NULL);
    muster_metric_add(&metric, 42);
    answer = get_page(fixture, "/metrics");

    expect_part(answer, "HTTP/1.1 200 ");
    expect_part(answer, "Content-Type: text/plain; version=0.0.4");
    expect_part(answer, "\nmuster_test_bytes_total 42\n");
    muster_metric_fini(&metric);
}

static void show_query(struct muster_http_page *page, struct muster_http_reply *reply)
{
    const char *name = muster_http_reply_query(reply, "name");

    (*(unsigned *)page->data)++;
    muster_http_reply_set_status(reply, 202);
    muster_http_reply_set_type(reply, "text/html; charset=utf-8");
    muster_http_reply_printf(reply, "<p>%s", name != NULL ? name : "nobody");
    muster_http_reply_add(reply, "</p>", 4);
}

static void added_page_answers_until_it_is_removed(void **state)
{
    struct fixture *fixture = *state;
    unsigned count = 0;
    struct muster_http_page page = {.path = "/", .on_request = show_query, .data = &count};
    struct muster_http_page rival = page;
    const char *answer;

    assert_int_equal(muster_http_page_add(fixture->server, &page), MUSTER_OK);
    assert_int_equal(muster_http_page_add(fixture->server, &rival), MUSTER_ALREADY_EXISTS);
    answer = get_page(fixture, "/?other=1&name=a%20b");
    expect_part(answer, "HTTP/1.1 202 ");
    expect_part(answer, "Content-Type: text/html");
    expect_part(answer, "\r\n\r\n<p>a b</p>");
    expect_part(get_page(fixture, "/"), "<p>nobody</p>");

    muster_http_page_remove(&page);
    expect_part(get_page(fixture, "/"), "HTTP/1.1 404 ");
    assert_int_equal(count, 2);
}

static void unknown_path_is_404(void **state)
{
    expect_part(get_page(*state, "/nothing"), "HTTP/1.1 404 ");
    expect_part(get_page(*state, "/healthz/../secret"), "HTTP/1.1 404 ");
}

static void head_has_the_length_but_no_body(void **state)
{
    const char *answer =
        client_ask(*state, "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

    expect_part(answer, "HTTP/1.1 200 ");
    expect_part(answer, "Content-Length: 3\r\n");
    assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

static void other_methods_are_not_implemented(void **state)
{
    expect_part(client_ask(*state, "POST /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                   "Content-Length: 0\r\n\r\n"),
                "HTTP/1.1 501 ");
}

static void nonsense_is_a_bad_request(void **state)
{
    expect_part(client_ask(*state, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), " 400 ");
}

static void headers_without_end_are_cut_off(void **state)
{
    static char request[32 * 1024];

    memset(request, 'a', sizeof(request) - 1);
    memcpy(request, "GET / HTTP/1.1\r\nx: ", 19);
    (void)client_ask(*state, request);
}

static void close_cuts_an_idle_connection(void **state)
{
    struct fixture *fixture = *state;
    int fd = client_dial(fixture);

    test_env_turn(&fixture->test.env, 5);
    /* tear_down closes the server; a leak of the connection would show. */
    close(fd);
}

static void taken_address_is_refused_by_name(void **state)
{
    struct fixture *fixture = *state;
    struct muster_http_server *second;
    struct muster_error error;
    char text[MUSTER_ADDRESS_TEXT_BYTES];

    assert_int_equal(
        muster_http_server_open(&fixture->test.env, &fixture->address, &second, &error),
        MUSTER_ALREADY_EXISTS);
    assert_non_null(strstr(error.text, muster_address_format(&fixture->address, text)));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pages_read_headers_and_add_their_own),
        CASE(healthy_process_says_ok),
        CASE(failed_checks_are_listed_with_their_reasons),
        CASE(warnings_stand_behind_ok_and_behind_what_has_failed),
        CASE(metrics_are_shown_as_prometheus_text),
        CASE(added_page_answers_until_it_is_removed),
        CASE(unknown_path_is_404),
        CASE(head_has_the_length_but_no_body),
        CASE(other_methods_are_not_implemented),
        CASE(nonsense_is_a_bad_request),
        CASE(headers_without_end_are_cut_off),
        CASE(close_cuts_an_idle_connection),
        CASE(taken_address_is_refused_by_name),
    };

    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
