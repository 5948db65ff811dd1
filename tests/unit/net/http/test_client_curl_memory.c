/* HTTP requests and look-ups while each allocation of ours, of curl and of c-ares fails in turn: each ends once, with
 * its answer or with an error that says why, and the next one is served. */
#include "careful_mem.h"
#include "cloud_fixture.h"
#include "name_server.h"
#include "torture.h"

#include <dlfcn.h>
#include <string.h>

#include <ares.h>
#include <curl/curl.h>
#include <openssl/ssl.h>
#include <muster/http.h>

#include "net/stream/dns.h"

#define RUNS_MAX 60
#define BODY     "some bytes"

struct row {
    const char *name;
    const char *method, *path;
    const char *server_name; /* to verify; NULL: the URL's */
    bool is_tls;
    bool is_of_curl; /* its memory fails, else ours */
};

/* --- Requests --- */

struct scene {
    const struct row *row;
    struct torture *torture;
    struct cloud_fixture fixture;
    struct muster_mem_limited mem;
    struct muster_env env; /* of the client */
    struct muster_http_call call;
    unsigned done_count;
    enum muster_rc rc;
    bool is_closed;
};

static struct scene scene;

static void scene_open(const struct row *row)
{
    const struct fake_cloud_options options = {.is_tls = row->is_tls};
    struct muster_error error;

    scene = (struct scene){.row = row};
    cloud_fixture_open(&scene.fixture, &options);
    cloud_fixture_script(&scene.fixture,
                         "[{\"match\": {\"path\": \"/moved\"}, \"response\": {\"status\": 302, "
                         "\"headers\": {\"Location\": \"/plain\"}}},"
                         " {\"match\": {\"path\": \"/busy\"}, \"times\": 1, \"response\": "
                         "{\"status\": 503, \"headers\": {\"Retry-After\": \"0\"}}},"
                         " {\"match\": {}, \"response\": {\"status\": 200, \"headers\": "
                         "{\"X-Mark\": \"here\"}, \"body\": \"" BODY "\"}}]");
    muster_mem_limited_init(&scene.mem, careful_mem(), 0);
    scene.env = *scene.fixture.env;
    scene.env.mem = &scene.mem.mem;
    assert_int_equal(muster_http_curl_open(&scene.env, NULL, &scene.env.http, &error), MUSTER_OK);
}

static void on_http_closed(struct muster_http *http)
{
    (void)http;
    scene.is_closed = true;
}

static void scene_close(void)
{
    muster_http_close(scene.env.http, on_http_closed);
    test_env_run_until(scene.fixture.env, test_env_is_true, &scene.is_closed);
    cloud_fixture_close(&scene.fixture);
    assert_int_equal(muster_mem_limited_fini(&scene.mem), 0);
}

static void on_call(struct muster_http_call *call, enum muster_rc rc)
{
    (void)call;
    scene.done_count++;
    scene.rc = rc;
}

static bool is_call_done(void *data)
{
    (void)data;
    return scene.done_count > 0;
}

static void check_answer(const struct muster_http_request *request)
{
    bool has_body = strcmp(scene.row->method, "HEAD") != 0;

    assert_int_equal(request->status, 200);
    assert_string_equal(muster_http_response_header(request, "x-mark"), "here");
    assert_int_equal(request->answer_bytes, has_body ? strlen(BODY) : 0);
    if (has_body)
        assert_string_equal(request->answer, BODY);
}

/* Asks once, checks the answer, and gives the code. */
static enum muster_rc call_ask(struct muster_error *ret_error)
{
    static const struct muster_http_header header = {"X-Question", "why"};
    struct muster_http_request *request = &scene.call.request;
    struct muster_http_tls tls = scene.fixture.tls;

    muster_http_call_init(&scene.call, NULL);
    scene.done_count = 0;
    tls.server_name = scene.row->server_name;
    request->method = scene.row->method;
    request->url = cloud_fixture_url(&scene.fixture, scene.row->path);
    request->headers = &header;
    request->header_count = 1;
    request->tls = &tls;
    request->is_direct = true;
    request->deadline_ns = cloud_fixture_in_s(&scene.fixture, 30);
    if (strcmp(scene.row->method, "POST") == 0) {
        request->body = "question";
        request->body_bytes = 8;
    }
    scene.rc = muster_http_call_start(&scene.call, &scene.env, on_call);
    if (scene.rc == MUSTER_OK) {
        assert_int_equal(scene.done_count, 0);
        test_env_run_until(scene.fixture.env, is_call_done, NULL);
        test_env_turn(scene.fixture.env, 3);
        assert_int_equal(scene.done_count, 1);
    }
    if (scene.rc == MUSTER_OK)
        check_answer(request);
    *ret_error = request->error;
    muster_http_call_fini(&scene.call);
    return scene.rc;
}

/* Curl takes the lack of memory for other things: "could not resolve host". */
static void check_error(enum muster_rc rc, const struct muster_error *error)
{
    if (scene.row->is_of_curl && rc == MUSTER_UNAVAILABLE)
        assert_true(error->text[0] != '\0');
    else if (rc != MUSTER_OK &&
             (rc != MUSTER_RESOURCE_EXHAUSTED || strstr(error->text, "memory") == NULL))
        fail_msg("%s: %s", muster_rc_name(rc), error->text);
}

static void run_request(struct torture *torture, const void *data)
{
    struct muster_error error;
    enum muster_rc rc;

    scene_open(data);
    scene.torture = torture;
    if (scene.row->is_of_curl)
        torture_arm_library(torture);
    else
        torture_arm_limited(torture, &scene.mem);
    rc = call_ask(&error);
    torture_disarm(torture);

    check_error(rc, &error);
    assert_true(rc == MUSTER_OK || torture->refused > 0);
    rc = call_ask(&error);
    if (rc != MUSTER_OK)
        fail_msg("the next one: %s", error.text);
    scene_close();
}

static void a_request_ends_once_and_the_next_is_served(void **state)
{
    static const struct row rows[] = {
        {"get", "GET", "/plain", NULL, false, false},
        {"get, curl's memory", "GET", "/plain", NULL, false, true},
        {"post", "POST", "/plain", NULL, false, false},
        {"post, curl's memory", "POST", "/plain", NULL, false, true},
        {"head, curl's memory", "HEAD", "/plain", NULL, false, true},
        {"redirect", "GET", "/moved", NULL, false, false},
        {"redirect, curl's memory", "GET", "/moved", NULL, false, true},
        {"again", "GET", "/busy", NULL, false, false},
        {"again, curl's memory", "GET", "/busy", NULL, false, true},
        {"tls", "GET", "/plain", NULL, true, false},
        {"tls, curl's memory", "GET", "/plain", NULL, true, true},
        {"another name", "GET", "/plain", "localhost", true, false},
        {"another name, curl's memory", "GET", "/plain", "localhost", true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        torture_run(&(struct torture_scenario){rows[i].name, run_request, &rows[i], 0, RUNS_MAX});
}

/* --- Opening and closing --- */

static void run_opening(struct torture *torture, const void *data)
{
    const bool *is_of_curl = data;
    struct muster_error error = {.text = ""};
    struct muster_http *http = NULL;
    struct test_env test;
    enum muster_rc rc;

    test_env_open(&test);
    if (*is_of_curl)
        torture_arm_library(torture);
    else
        torture_arm_limited(torture, &test.mem);
    rc = muster_http_curl_open(&test.env, NULL, &http, &error);
    torture_disarm(torture);

    assert_int_equal(rc,
                     torture->refused > 0 && http == NULL ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    assert_true(rc == MUSTER_OK || strstr(error.text, "memory") != NULL);
    scene.is_closed = false;
    if (http != NULL) {
        muster_http_close(http, on_http_closed);
        test_env_run_until(&test.env, test_env_is_true, &scene.is_closed);
    }
    test_env_close(&test);
}

static void a_client_opens_or_says_why(void **state)
{
    static const bool is_of_curl[] = {false, true};
    static const struct torture_scenario scenarios[] = {
        {.name = "opening", .run = run_opening, .data = &is_of_curl[0]},
        {.name = "opening, curl's memory", .run = run_opening, .data = &is_of_curl[1]},
    };

    (void)state;
    torture_run_all(scenarios, 2);
}

/* --- Look-ups --- */

struct name_row {
    const char *name;
    bool is_srv, is_of_ares;
};

/* A look-up of one kind or the other. */
struct inquiry {
    struct muster_lookup lookup;
    struct muster_dns_srv srv;
    unsigned done_count;
    enum muster_rc rc;
    struct muster_error error;
    size_t count; /* of what was found */
};

static struct inquiry inquiry;

static void on_lookup(struct muster_lookup *lookup, enum muster_rc rc)
{
    inquiry.done_count++;
    inquiry.rc = rc;
    inquiry.error = lookup->error;
    inquiry.count = lookup->address_count;
}

static void on_srv(struct muster_dns_srv *srv, enum muster_rc rc)
{
    inquiry.done_count++;
    inquiry.rc = rc;
    inquiry.error = srv->error;
    inquiry.count = srv->service_count;
}

static bool is_inquiry_done(void *data)
{
    (void)data;
    return inquiry.done_count > 0;
}

static void inquiry_start(struct test_env *test, struct muster_dns *dns, bool is_srv)
{
    memset(&inquiry, 0, sizeof(inquiry));
    inquiry.lookup.done = on_lookup;
    if (is_srv)
        inquiry.rc =
            muster_dns_srv_start(&inquiry.srv, dns, "_s._tcp.example.org", UINT64_MAX, on_srv);
    else
        inquiry.rc = muster_dns_lookup(dns, &inquiry.lookup, "host.example.org", UINT64_MAX);
    if (inquiry.rc != MUSTER_OK)
        return;
    assert_int_equal(inquiry.done_count, 0);
    test_env_run_until(&test->env, is_inquiry_done, NULL);
    test_env_turn(&test->env, 3);
    assert_int_equal(inquiry.done_count, 1);
}

static void run_name(struct torture *torture, const void *data)
{
    const struct name_row *row = data;
    struct muster_dns_options options = {.timeout_ms = 20, .tries = 2};
    struct muster_mem_limited mem;
    struct name_server server;
    struct muster_dns *dns = NULL;
    struct muster_env env;
    struct test_env test;

    test_env_open(&test);
    name_server_open(&server, &test.env);
    options.servers = server.address;
    muster_mem_limited_init(&mem, careful_mem(), 0);
    env = test.env;
    env.mem = &mem.mem;
    assert_int_equal(muster_dns_open(&env, &options, &dns), MUSTER_OK);
    if (row->is_of_ares)
        torture_arm_library(torture);
    else
        torture_arm_limited(torture, &mem);
    inquiry_start(&test, dns, row->is_srv);
    torture_disarm(torture);

    if (inquiry.rc == MUSTER_OK) /* c-ares forgets addresses that it has no memory for */
        assert_in_range(inquiry.count, row->is_of_ares && torture->refused > 0 ? 1 : 3, 3);
    else if (row->is_of_ares && inquiry.rc == MUSTER_UNAVAILABLE) /* it has sent nothing */
        assert_true(inquiry.error.text[0] != '\0');
    else if (inquiry.rc != MUSTER_RESOURCE_EXHAUSTED ||
             (inquiry.done_count > 0 && strstr(inquiry.error.text, "memory") == NULL))
        fail_msg("%s: %s", muster_rc_name(inquiry.rc), inquiry.error.text);
    inquiry_start(&test, dns, row->is_srv);
    assert_int_equal(inquiry.rc, MUSTER_OK);
    assert_int_equal(inquiry.count, 3);
    muster_dns_close(dns);
    name_server_close(&server);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    test_env_close(&test);
}

static void a_name_is_found_or_memory_lacks(void **state)
{
    static const struct name_row rows[] = {
        {"addresses", false, false},
        {"addresses, memory of c-ares", false, true},
        {"services", true, false},
        {"services, memory of c-ares", true, true},
    };

    (void)state;
    TORTURE_RUN_ROWS(run_name, rows);
}

/* --- */

static char *library_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = torture_malloc(bytes);

    if (copy != NULL)
        memcpy(copy, text, bytes);
    return copy;
}

/* 7.88 frees a name twice when its cache of TLS sessions has no memory: that cache has some. */
static int (*session_keep)(SSL *ssl, SSL_SESSION *session);

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    bool was_armed = scene.torture->is_armed;
    int result;

    torture_disarm(scene.torture);
    result = session_keep(ssl, session);
    scene.torture->is_armed = was_armed;
    return result;
}

/* curl calls this one. */
__attribute__((visibility("default"))) void SSL_CTX_sess_set_new_cb(
    SSL_CTX *context, int (*keep)(SSL *ssl, SSL_SESSION *session))
{
    void (*set)(SSL_CTX *, int (*)(SSL *, SSL_SESSION *)) =
        (void (*)(SSL_CTX *, int (*)(SSL *, SSL_SESSION *)))(uintptr_t)dlsym(
            RTLD_NEXT, "SSL_CTX_sess_set_new_cb");

    session_keep = keep;
    set(context, on_session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_request_ends_once_and_the_next_is_served, torture_tell),
        cmocka_unit_test_teardown(a_client_opens_or_says_why, torture_tell),
        cmocka_unit_test_teardown(a_name_is_found_or_memory_lacks, torture_tell),
    };
    int failed;

    assert_int_equal(curl_global_init_mem(CURL_GLOBAL_DEFAULT, torture_malloc, torture_free,
                                          torture_library_realloc, library_strdup, torture_calloc),
                     CURLE_OK);
    assert_int_equal(ares_library_init_mem(ARES_LIB_INIT_ALL, torture_malloc, torture_free,
                                           torture_library_realloc),
                     ARES_SUCCESS);
    failed = cmocka_run_group_tests_name("http_client_memory", tests, NULL, NULL);
    ares_library_cleanup();
    curl_global_cleanup();
    return failed;
}
