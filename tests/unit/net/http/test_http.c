/* The part that all providers share: redirects, the tracer, the log, and memory that runs out. */
#include "cloud_fixture.h"

#include <muster/credentials.h>
#include <stdio.h>
#include <string.h>

#define SEEN_MAX 8

struct seen {
    struct muster_http_tracer tracer;
    size_t count;
    struct {
        char method[8], url[160], source[16], error[64];
        int status;
        uint32_t attempt;
        enum muster_rc rc;
    } list[SEEN_MAX];
};

static struct seen seen;

static void on_exchange(struct muster_http_tracer *tracer,
                        const struct muster_http_exchange *exchange)
{
    struct seen *list = tracer->data;
    size_t i = list->count++;

    if (i >= SEEN_MAX)
        return;
    snprintf(list->list[i].method, sizeof(list->list[i].method), "%s", exchange->method);
    snprintf(list->list[i].url, sizeof(list->list[i].url), "%s", exchange->url);
    snprintf(list->list[i].source, sizeof(list->list[i].source), "%s", exchange->source);
    snprintf(list->list[i].error, sizeof(list->list[i].error), "%.60s", exchange->error);
    list->list[i].status = exchange->status;
    list->list[i].attempt = exchange->attempt;
    list->list[i].rc = exchange->rc;
}

static struct cloud_caller caller; /* of the case, which may make it */

static int tear_down(void **state)
{
    muster_http_call_fini(&caller.call);
    return cloud_fixture_tear_down(state);
}

static int set_up(void **state)
{
    static struct cloud_fixture fixture;

    cloud_fixture_open(&fixture, NULL);
    seen = (struct seen){.tracer = {.data = &seen, .on_exchange = on_exchange}};
    fixture.env->http->tracer = &seen.tracer;
    *state = &fixture;
    return 0;
}

/* Redirects. */

static void a_redirect_is_followed_on_the_same_server(void **state)
{
    struct cloud_fixture *fixture = *state;
    static const struct muster_http_header header = {.name = "Authorization", .value = "Bearer t"};

    cloud_fixture_script(fixture,
                         "[{\"match\": {\"path\": \"/a\"}, \"response\": {\"status\": 302, "
                         "\"headers\": {\"Location\": \"b?x=1\"}}}, {\"match\": {\"path\": "
                         "\"/b\"}, \"response\": {\"body\": \"here\"}}]");
    cloud_caller_init(fixture, &caller, "/a");
    caller.call.request.headers = &header;
    caller.call.request.header_count = 1;
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);

    assert_string_equal(caller.call.request.answer, "here");
    assert_string_equal(
        fake_cloud_request_header(fake_cloud_request(fixture->cloud, 1), "authorization"),
        "Bearer t");
    assert_int_equal(seen.count, 2);
}

/* A second cloud is the other host. */
static void credentials_never_cross_to_another_host(void **state)
{
    static const struct muster_http_header secrets[] = {
        {.name = "Authorization", .value = "Bearer hush"},
        {.name = "Cookie", .value = "hush"},
        {.name = "X-Auth-Token", .value = "hush"},
        {.name = "X-Goog-Api-Key", .value = "hush"},
        {.name = "Accept", .value = "text/plain"},
    };
    struct cloud_fixture *fixture = *state;
    struct fake_cloud *other = NULL;
    char script[256];

    assert_int_equal(fake_cloud_open(fixture->env, NULL, &other, NULL), MUSTER_OK);
    fake_cloud_say(other, "GET", NULL, 200, "there");
    snprintf(script, sizeof(script),
             "[{\"response\": {\"status\": 307, \"headers\": {\"Location\": \"%s/x\"}}}]",
             fake_cloud_base(other));
    cloud_fixture_script(fixture, script);
    for (size_t i = 0; i < 6; i++) {
        bool is_secret = i != 4;

        cloud_caller_init(fixture, &caller, "/");
        caller.call.request.headers = i < 5 ? &secrets[i] : NULL;
        caller.call.request.header_count = i < 5 ? 1 : 0;
        caller.call.request.has_credentials = i == 5;
        assert_int_equal(cloud_caller_run(fixture, &caller),
                         is_secret ? MUSTER_FAILED_PRECONDITION : MUSTER_OK);
        if (is_secret)
            assert_non_null(
                strstr(caller.call.request.error.text, "where credentials must not go"));
        muster_http_call_fini(&caller.call);
    }
    assert_int_equal(fake_cloud_counts(other)->requests, 1);
    fake_cloud_close_wait(other);
}

static void https_never_leads_to_http(void **state)
{
    struct cloud_fixture *fixture = *state;
    const struct fake_cloud_options options = {.is_tls = true};
    struct fake_cloud *secure = NULL;
    struct muster_http_tls tls = {.ca_file = NULL};
    char script[256];

    assert_int_equal(fake_cloud_open(fixture->env, &options, &secure, NULL), MUSTER_OK);
    snprintf(script, sizeof(script),
             "[{\"response\": {\"status\": 301, \"headers\": {\"Location\": \"%s/\"}}}]",
             fake_cloud_base(fixture->cloud));
    assert_int_equal(fake_cloud_script(secure, script, NULL), MUSTER_OK);
    tls.ca_pem = fake_cloud_identity(secure)->ca_pem;
    cloud_caller_init(fixture, &caller, "/");
    caller.call.request.url = fake_cloud_base(secure);
    caller.call.request.tls = &tls;

    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(caller.call.request.error.text, "from https to http"));
    assert_int_equal(cloud_fixture_request_count(fixture), 0);
    fake_cloud_close_wait(secure);
}

static void redirects_end(void **state)
{
    struct cloud_fixture *fixture = *state;

    cloud_fixture_script(fixture, "[{\"response\": {\"status\": 302, \"headers\": "
                                  "{\"Location\": \"/\"}}}]");
    cloud_caller_init(fixture, &caller, "/");
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(caller.call.request.error.text, "more than 5 redirects"));
    assert_int_equal(cloud_fixture_request_count(fixture), 6);

    caller.call.request.redirects_max = MUSTER_HTTP_REDIRECTS_NONE;
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    assert_int_equal(caller.call.request.status, 302);
}

static void a_redirected_post_becomes_what_the_standard_says(void **state)
{
    static const struct {
        int status;
        const char *method, *body;
    } rows[] = {{301, "GET", ""},
                {302, "GET", ""},
                {303, "GET", ""},
                {307, "POST", "data"},
                {308, "POST", "data"}};
    struct cloud_fixture *fixture = *state;
    char script[256];

    for (size_t i = 0; i < 5; i++) {
        const struct fake_cloud_request *last;

        fake_cloud_forget_script(fixture->cloud);
        snprintf(script, sizeof(script),
                 "[{\"match\": {\"path\": \"/a\"}, \"response\": {\"status\": %d, \"headers\": "
                 "{\"Location\": \"/b\"}}}, {\"response\": {}}]",
                 rows[i].status);
        cloud_fixture_script(fixture, script);
        cloud_caller_init(fixture, &caller, "/a");
        caller.call.request.method = "POST";
        caller.call.request.body = "data";
        caller.call.request.body_bytes = 4;
        assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
        last = fake_cloud_request(fixture->cloud, cloud_fixture_request_count(fixture) - 1);
        assert_string_equal(last->path, "/b");
        assert_string_equal(last->method, rows[i].method);
        assert_string_equal(last->body, rows[i].body);
        muster_http_call_fini(&caller.call);
    }
}

/* The tracer. */

static void every_exchange_is_traced_without_secrets(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_credentials *credentials = NULL;
    char expected[160];

    cloud_fixture_script(fixture, "[{\"times\": 1, \"response\": {\"status\": 503}}, "
                                  "{\"response\": {\"body\": \"x\"}}]");
    assert_int_equal(muster_credentials_bearer_open(fixture->env, "hush", &credentials, NULL),
                     MUSTER_OK);
    cloud_caller_init(fixture, &caller, "/p?labelSelector=a&access_token=hush");
    caller.call.credentials = credentials;
    caller.call.request.source = "tpu";
    assert_int_equal(cloud_caller_run(fixture, &caller), MUSTER_OK);
    cloud_fixture_close_credentials(fixture, credentials);

    assert_int_equal(seen.count, 2);
    snprintf(expected, sizeof(expected), "%s/p?labelSelector=a&access_token=***",
             fake_cloud_base(fixture->cloud));
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(seen.list[i].method, "GET");
        assert_string_equal(seen.list[i].url, expected);
        assert_string_equal(seen.list[i].source, "tpu");
        assert_int_equal(seen.list[i].attempt, i);
        assert_int_equal(seen.list[i].status, i == 0 ? 503 : 200);
    }
}

struct log {
    struct muster_log log;
    size_t count;
    bool has_secret;
};

static void log_write(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                      const char *event, const struct muster_field *fields, size_t count)
{
    struct log *ours = MUSTER_CONTAINER_OF(log, struct log, log);

    (void)level;
    (void)wall_ns;
    (void)event;
    ours->count++;
    for (size_t i = 0; i < count; i++)
        if (fields[i].kind == MUSTER_FIELD_TEXT && fields[i].text != NULL &&
            strstr(fields[i].text, "hush") != NULL)
            ours->has_secret = true;
}

static void no_secret_comes_into_the_log_whatever_fails(void **state)
{
    static const struct muster_log_ops ops = {.write = log_write};
    static const struct muster_http_header header = {.name = "X-Api-Key", .value = "hush"};
    static const char *const responses[] = {
        "{\"status\": 401, \"body\": \"hush\"}",
        "{\"status\": 503, \"body\": {\"message\": \"hush\"}}",
        "{\"close\": true}",
        ("{\"status\": 302, \"headers\": {\"Location\": "
         "\"http://hush:hush@127.0.0.1:1/?key=hush\"}}"),
        "{\"status\": 302, \"headers\": {\"Location\": \"/?token=hush#hush\"}}",
        "{\"raw\": \"hush\\r\\n\\r\\n\"}",
        "{\"body\": \"hush\", \"truncate\": 2}",
    };
    struct cloud_fixture *fixture = *state;
    struct log log = {.log = {.ops = &ops, .level_max = MUSTER_LOG_TRACE}};
    struct muster_credentials *credentials = NULL;
    char script[256];

    fixture->env->log = &log.log;
    assert_int_equal(muster_credentials_bearer_open(fixture->env, "hush", &credentials, NULL),
                     MUSTER_OK);
    for (size_t i = 0; i < sizeof(responses) / sizeof(responses[0]); i++) {
        fake_cloud_forget_script(fixture->cloud);
        snprintf(script, sizeof(script), "[{\"response\": %s}]", responses[i]);
        cloud_fixture_script(fixture, script);
        cloud_caller_init(fixture, &caller, "/?access_token=hush");
        caller.call.credentials = credentials;
        caller.call.request.headers = &header;
        caller.call.request.header_count = 1;
        caller.call.retry.attempts_max = 2;
        (void)!cloud_caller_run(fixture, &caller);
        assert_null(strstr(caller.call.request.error.text, "hush"));
        muster_http_call_fini(&caller.call);
    }
    assert_true(log.count >= 7);
    assert_false(log.has_secret);
    fixture->env->log = NULL;
    cloud_fixture_close_credentials(fixture, credentials);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_redirect_is_followed_on_the_same_server),
        T(credentials_never_cross_to_another_host),
        T(https_never_leads_to_http),
        T(redirects_end),
        T(a_redirected_post_becomes_what_the_standard_says),
        T(every_exchange_is_traced_without_secrets),
        T(no_secret_comes_into_the_log_whatever_fails),
    };

    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
