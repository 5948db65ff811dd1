/* Each allocation of OpenSSL, jansson and libevent fails in turn: what they were asked for ends in an
 * error or is done, once, and can be asked for again. */
#include <muster/http.h>
#include <muster/json.h>
#include <muster/tls.h>

#include "fake_authority.h"
#include "tls_pair.h"
#include "torture.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <jansson.h>
#include <openssl/crypto.h>

#include "net/stream/net_internal.h"

#define RUNS_MAX 40
#define END_NS   (5 * MUSTER_NS_PER_S) /* who never gets memory again ends then */

static struct fake_authority *authority;
static struct fake_cert cert;

/* --- JSON --- */

static void run_json(struct torture *torture, const void *data)
{
    static const char text[] = "{\"a\": [1, 2.5, \"three\", null], \"b\": {\"c\": \"\\u00e4\"}}";
    struct muster_json *root = NULL;
    struct muster_error error = {.text = ""};
    enum muster_rc rc;

    (void)data;
    torture_arm_library(torture);
    rc = muster_json_parse(text, strlen(text), &root, &error);
    torture_disarm(torture);

    assert_true(rc == MUSTER_OK ? root != NULL : error.text[0] != '\0');
    if (torture->fail_at == 1) /* amid a token jansson calls it invalid */
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
    muster_json_free(root);
}

/* --- The loop --- */

static void on_expire(struct muster_timer *timer)
{
    *(bool *)timer->data = true;
}

static void on_wake(struct muster_wake *wake)
{
    *(bool *)muster_wake_data(wake) = true;
}

static void on_ready(struct muster_fd_watch *watch, unsigned ready)
{
    assert_int_equal(ready, MUSTER_FD_READ);
    *(bool *)watch->data = true;
    muster_fd_watch_close(watch);
}

/* Memory comes back. */
static void disarm_at_last(struct torture *torture)
{
    if (torture->refused > 3)
        torture_disarm(torture);
}

/* A watch that is open already is not lost when it is updated. */
static void run_watch(struct torture *torture, const void *data)
{
    bool is_ready = false;
    struct muster_fd_watch watch = {.on_ready = on_ready, .data = &is_ready};
    struct test_env test;
    int fds[2];

    (void)data;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    watch.fd = fds[0];
    test_env_open(&test);
    assert_int_equal(muster_fd_watch_open(&watch, test.env.loop), MUSTER_OK);
    torture_arm_library(torture);
    muster_fd_watch_update(&watch, MUSTER_FD_READ);
    while (!is_ready && torture->refused > 0 && torture->is_armed) {
        muster_loop_turn(test.env.loop, UINT64_MAX);
        disarm_at_last(torture);
    }
    torture_disarm(torture);
    test_env_run_until(&test.env, test_env_is_true, &is_ready);
    test_env_close(&test);
    close(fds[0]);
    close(fds[1]);
}

/* The caller's base is what turns it. */
static void run_joined_loop(struct torture *torture, const void *data)
{
    struct event_base *base = event_base_new();
    struct muster_loop *loop = NULL;
    bool is_expired = false;
    struct muster_timer timer;

    (void)data;
    assert_non_null(base);
    assert_int_equal(muster_loop_open(muster_mem_system(), base, &loop), MUSTER_OK);
    muster_timer_init(&timer, on_expire, &is_expired);
    torture_arm_library(torture);
    muster_timer_start(&timer, loop, muster_loop_after_ns(loop, MUSTER_NS_PER_MS));
    while (!is_expired) {
        assert_int_equal(event_base_loop(base, EVLOOP_ONCE), 0); /* it has something to wait for */
        disarm_at_last(torture);
    }
    torture_disarm(torture);
    muster_loop_close(loop);
    event_base_free(base);
}

static void run_loop(struct torture *torture, const void *data)
{
    bool is_expired = false, is_awake = false;
    struct muster_env *env = NULL;
    struct muster_wake *wake = NULL;
    struct muster_timer timer;

    (void)data;
    torture_arm_library(torture);
    if (muster_env_system_open(NULL, &env) == MUSTER_OK) {
        muster_timer_init(&timer, on_expire, &is_expired);
        muster_timer_start(&timer, env->loop, muster_loop_now_ns(env->loop));
        if (muster_wake_open(env->mem, env->loop, on_wake, &is_awake, &wake) == MUSTER_OK) {
            muster_wake_signal(wake);
            test_env_run_until(env, test_env_is_true, &is_awake);
        }
        test_env_run_until(env, test_env_is_true, &is_expired);
        muster_wake_close(wake);
    }
    torture_disarm(torture);
    muster_env_system_close(env);
}

/* --- TLS --- */

static enum muster_rc open_both(struct muster_env *env, struct muster_tls **ret_server,
                                struct muster_tls **ret_client)
{
    const struct muster_tls_options server = {.cert_pem = cert.cert_pem,
                                              .key_pem = cert.key_pem,
                                              .ca_pem = fake_authority_pem(authority)};
    const struct muster_tls_options client = {.ca_pem = fake_authority_pem(authority)};
    struct muster_error error = {.text = ""};
    enum muster_rc rc = muster_tls_open(env, &server, ret_server, &error);

    if (rc == MUSTER_OK)
        rc = muster_tls_open(env, &client, ret_client, &error);
    if (rc != MUSTER_OK &&
        (rc != MUSTER_RESOURCE_EXHAUSTED || strstr(error.text, "memory") == NULL))
        fail_msg("%s: %s", muster_rc_name(rc), error.text);
    return rc;
}

static bool shake_hands(struct tls_pair *pair, struct muster_tls *server, struct muster_tls *client)
{
    pair->client.done_count = pair->server.done_count = 0;
    tls_pair_shake(pair, client, server, "localhost", NULL);
    return pair->client.rc == MUSTER_OK && pair->server.rc == MUSTER_OK;
}

static void check_handshake(struct tls_pair *pair, struct muster_tls *server,
                            struct muster_tls *client)
{
    if (!shake_hands(pair, server, client))
        fail_msg("%s; %s", pair->client.error.text, pair->server.error.text);
}

/* OpenSSL goes without an algorithm, or an extension, that it had no memory for, and nothing shows that until
 * a handshake fails. */
static void run_tls_open(struct torture *torture, const void *data)
{
    struct muster_tls *server = NULL, *client = NULL;
    struct tls_pair pair;
    enum muster_rc rc;

    (void)data;
    tls_pair_open(&pair);
    torture_arm_library(torture);
    rc = open_both(&pair.test.env, &server, &client);
    torture_disarm(torture);
    if (rc == MUSTER_OK && !shake_hands(&pair, server, client)) {
        assert_true(torture->refused > 0);
        assert_true(pair.client.error.text[0] != '\0' || pair.server.error.text[0] != '\0');
        muster_tls_close(server);
        muster_tls_close(client);
        tls_pair_again(&pair);
        assert_int_equal(open_both(&pair.test.env, &server, &client), MUSTER_OK);
        check_handshake(&pair, server, client);
    }
    muster_tls_close(server);
    muster_tls_close(client);
    tls_pair_close(&pair);
}

static void run_tls_handshake(struct torture *torture, const void *data)
{
    const struct muster_tls_handshake_options client_options = {.server_name = "localhost",
                                                                .protocols = "h2"};
    const struct muster_tls_handshake_options server_options = {.is_server = true,
                                                                .protocols = "h2"};
    struct muster_tls *server = NULL, *client = NULL;
    struct tls_pair pair;

    (void)data;
    tls_pair_open(&pair);
    assert_int_equal(open_both(&pair.test.env, &server, &client), MUSTER_OK);
    tls_pair_start(&pair, &pair.client, client, &client_options, END_NS);
    tls_pair_start(&pair, &pair.server, server, &server_options, END_NS);
    torture_arm_library(torture);
    tls_pair_wait(&pair, &pair.client);
    tls_pair_wait(&pair, &pair.server);
    torture_disarm(torture);
    assert_int_equal(pair.client.done_count, 1);
    assert_int_equal(pair.server.done_count, 1);

    tls_pair_again(&pair);
    check_handshake(&pair, server, client);
    muster_tls_close(server);
    muster_tls_close(client);
    tls_pair_close(&pair);
}

/* --- The HTTP server --- */

#define PAGE         "a page of a status"
#define ANSWER_MAX   2048
#define ANSWER_TURNS 40 /* both sides are of this process: more than it takes */

struct visit {
    struct test_env test;
    struct muster_http_server *server;
    int fd;
    char answer[ANSWER_MAX];
    size_t bytes;
    bool is_closed;
};

static void on_page(struct muster_http_page *page, struct muster_http_reply *reply)
{
    const char *mark = muster_http_reply_query(reply, "mark");

    (void)page;
    muster_http_reply_add_header(reply, "X-Mark", mark != NULL ? mark : "none");
    muster_http_reply_printf(reply, "%s", PAGE);
}

/* Until the server hangs up. */
static bool is_visit_over(void *data)
{
    struct visit *visit = data;
    ssize_t count;

    while ((count = recv(visit->fd, visit->answer + visit->bytes, ANSWER_MAX - 1 - visit->bytes,
                         MSG_DONTWAIT)) > 0)
        visit->bytes += (size_t)count;
    visit->answer[visit->bytes] = '\0';
    return count == 0 || errno == ECONNRESET;
}

static void visit_send(struct visit *visit, const char *text)
{
    assert_int_equal(send(visit->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void visit_dial(struct visit *visit)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(muster_http_server_address(visit->server), &sockaddr);

    visit->bytes = 0;
    visit->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(visit->fd, &sockaddr.any, length), 0);
}

static bool is_answer_whole(const struct visit *visit)
{
    return strstr(visit->answer, "HTTP/1.1 200 ") != NULL &&
           strstr(visit->answer, "X-Mark: here\r\n") != NULL &&
           strstr(visit->answer, "\r\n\r\n" PAGE) != NULL;
}

static void check_visit(struct visit *visit)
{
    visit_dial(visit);
    visit_send(visit, "GET /page?mark=here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    test_env_run_until(&visit->test.env, is_visit_over, visit);
    assert_true(is_answer_whole(visit));
    close(visit->fd);
}

static void on_server_closed(struct muster_http_server *server)
{
    ((struct visit *)muster_http_server_data(server))->is_closed = true;
}

/* It serves, or does not open. Only its opening: 2.1.12 crashes when it accepts without memory. */
static void run_http_server(struct torture *torture, const void *data)
{
    struct muster_http_page page = {.path = "/page", .on_request = on_page};
    struct muster_error error = {.text = ""};
    struct visit visit = {.server = NULL};
    struct muster_address any;
    enum muster_rc rc;

    (void)data;
    test_env_open(&visit.test);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    torture_arm_library(torture);
    rc = muster_http_server_open(&visit.test.env, &any, &visit.server, &error);
    torture_disarm(torture);

    assert_true(rc == MUSTER_OK || (rc == MUSTER_RESOURCE_EXHAUSTED && torture->refused > 0));
    if (rc == MUSTER_OK) {
        muster_http_server_set_data(visit.server, &visit);
        assert_int_equal(muster_http_page_add(visit.server, &page), MUSTER_OK);
        check_visit(&visit);
        muster_http_server_close(visit.server, on_server_closed);
        test_env_run_until(&visit.test.env, test_env_is_true, &visit.is_closed);
    }
    assert_true(rc == MUSTER_OK || strstr(error.text, "memory") != NULL);
    test_env_close(&visit.test);
}

static void visit_open(struct visit *visit, struct muster_http_page *page)
{
    struct muster_address any;
    struct muster_error error;

    *visit = (struct visit){.server = NULL};
    test_env_open(&visit->test);
    assert_int_equal(muster_metrics_open(visit->test.env.mem, &visit->test.env.metrics), MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &any, NULL), MUSTER_OK);
    assert_int_equal(muster_http_server_open(&visit->test.env, &any, &visit->server, &error),
                     MUSTER_OK);
    muster_http_server_set_data(visit->server, visit);
    assert_int_equal(muster_http_page_add(visit->server, page), MUSTER_OK);
}

static void visit_close(struct visit *visit)
{
    muster_http_server_close(visit->server, on_server_closed);
    test_env_run_until(&visit->test.env, test_env_is_true, &visit->is_closed);
    muster_metrics_close(visit->test.env.metrics);
    test_env_close(&visit->test);
}

static bool has_page(void *data)
{
    return is_visit_over(data) || is_answer_whole(data);
}

static enum muster_rc check_fine(struct muster_health_check *check, struct muster_error *ret_error)
{
    (void)check;
    (void)ret_error;
    return MUSTER_OK;
}

struct question {
    const char *name, *text;
    const char *expected; /* part of the answer with memory */
};

/* An answer without a part of what it must have is not sent as one that is complete. */
static void check_answer(const struct question *question, const char *answer)
{
    static const char *const headers[] = {
        "\r\nContent-Type: ", "\r\nContent-Length: ", "\r\nCache-Control: no-store\r\n",
        "\r\nX-Content-Type-Options: nosniff\r\n"};

    if (strstr(answer, question->expected) == NULL)
        fail_msg("%s", answer);
    for (size_t i = 0; i < 4 && strstr(answer, " 200 ") != NULL; i++)
        if (strstr(answer, headers[i]) == NULL)
            fail_msg("%s is not in %s", headers[i] + 2, answer);
}

/* libevent takes a line that it has no memory for as one that is not complete, and waits: until the idle
 * limit, or until the visitor leaves. */
static void visit_wait(struct visit *visit, struct torture *torture)
{
    for (unsigned i = 0; i < ANSWER_TURNS && !is_visit_over(visit); i++) {
        test_env_turn(&visit->test.env, 1);
        disarm_at_last(torture);
    }
    torture_disarm(torture);
    (void)shutdown(visit->fd, SHUT_WR); /* it may have been hung up already */
    test_env_run_until(&visit->test.env, is_visit_over, visit);
}

/* The connection is there: 2.1.12 crashes when it accepts one without memory. */
static void run_http_answer(struct torture *torture, const void *data)
{
    const struct question *question = data;
    struct muster_http_page page = {.path = "/page", .on_request = on_page};
    struct muster_health_check check = {.name = "disk", .check = check_fine};
    struct muster_metric metric;
    struct visit visit;

    visit_open(&visit, &page);
    muster_health_check_add(visit.server, &check);
    muster_metric_init(&metric, visit.test.env.metrics, MUSTER_COUNTER, "muster_test_visits_total",
                       "Visits of this test.", NULL);
    muster_metric_add(&metric, 42);
    visit_dial(&visit);
    visit_send(&visit, "GET /page?mark=here HTTP/1.1\r\nHost: x\r\n\r\n");
    test_env_run_until(&visit.test.env, has_page, &visit);
    assert_true(is_answer_whole(&visit));

    visit.bytes = 0;
    torture_arm_library(torture);
    visit_send(&visit, question->text);
    visit_wait(&visit, torture);
    close(visit.fd);
    if (torture->refused == 0 || strstr(visit.answer, " 200 ") != NULL)
        check_answer(question, visit.answer);
    check_visit(&visit);
    muster_metric_fini(&metric);
    visit_close(&visit);
}

/* The request is in flight: half of it is there. */
static void run_http_close(struct torture *torture, const void *data)
{
    struct muster_http_page page = {.path = "/page", .on_request = on_page};
    struct visit visit;

    (void)data;
    visit_open(&visit, &page);
    visit_dial(&visit);
    visit_send(&visit, "GET /page?mark=here HTTP/1.1\r\nHost: x");
    test_env_turn(&visit.test.env, ANSWER_TURNS);
    torture_arm_library(torture);
    visit_send(&visit, "\r\nAccept: ");
    test_env_turn(&visit.test.env, 1);
    muster_http_server_close(visit.server, on_server_closed);
    test_env_run_until(&visit.test.env, test_env_is_true, &visit.is_closed);
    torture_disarm(torture);
    assert_true(is_visit_over(&visit));
    assert_int_equal(visit.bytes, 0);
    close(visit.fd);
    muster_metrics_close(visit.test.env.metrics);
    test_env_close(&visit.test);
}

static void an_http_server_without_memory_answers_the_next_visit(void **state)
{
    static const struct question questions[] = {
        {"http, a page", "GET /page?mark=here HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
         "X-Mark: here\r\n"},
        {"http, metrics", "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
         "\nmuster_test_visits_total 42\n"},
        {"http, health", "HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 200 "},
        {"http, absent", "GET /absent HTTP/1.0\r\n\r\n", "HTTP/1.0 404 "},
        {"http, no request", "what is this\r\n\r\n", ""},
        {"http, a method", "DELETE /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
         "HTTP/1.1 501 "},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_http_answer, questions);
}

static void want_of_memory_in_a_library_is_an_error(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {"json", run_json, NULL, 0, 0},
        {"loop", run_loop, NULL, 0, 0},
        {"watch", run_watch, NULL, 0, 0},
        {"joined loop", run_joined_loop, NULL, 0, 0},
        {"http server", run_http_server, NULL, 0, 0},
        {"http server, closing", run_http_close, NULL, 0, 0},
        {"tls, opening", run_tls_open, NULL, 0, RUNS_MAX},
        {"tls, handshake", run_tls_handshake, NULL, 0, RUNS_MAX},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

/* --- */

static void *openssl_malloc(size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return bytes == 0 ? NULL : torture_malloc(bytes);
}

static void *openssl_realloc(void *ptr, size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    if (bytes > 0)
        return torture_library_realloc(ptr, bytes);
    torture_free(ptr);
    return NULL;
}

static void openssl_free(void *ptr, const char *file, int line)
{
    (void)file;
    (void)line;
    torture_free(ptr);
}

static void on_libevent(int severity, const char *text)
{
    (void)severity;
    (void)text; /* it has no memory, and says so */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(want_of_memory_in_a_library_is_an_error, torture_tell),
        cmocka_unit_test_teardown(an_http_server_without_memory_answers_the_next_visit,
                                  torture_tell),
    };
    const struct fake_cert_options options = {
        .name = "memory", .alt_names = "DNS:localhost", .is_timeless = true};
    int failed;

    assert_int_equal(CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free), 1);
    json_set_alloc_funcs(torture_malloc, torture_free);
    event_set_log_callback(on_libevent);
    event_set_mem_functions(torture_malloc, torture_library_realloc, torture_free);
    authority = fake_authority_new("memory-authority");
    assert_true(authority != NULL && fake_cert_init(&cert, authority, &options));
    failed = cmocka_run_group_tests_name("library_memory", tests, NULL, NULL);
    fake_cert_fini(&cert);
    fake_authority_free(authority);
    return failed;
}
