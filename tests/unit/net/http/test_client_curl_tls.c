/* The client on curl and TLS: who is believed, under which name, HTTP/2, and the way through a proxy. */
#include "cloud_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int set_up_tls(void **state)
{
    return cloud_fixture_set_up_with(state, &(struct fake_cloud_options){.is_tls = true});
}

static int set_up_http1_tls(void **state)
{
    return cloud_fixture_set_up_with(
        state, &(struct fake_cloud_options){.is_tls = true, .is_http1_only = true});
}

static int set_up_expired(void **state)
{
    return cloud_fixture_set_up_with(
        state, &(struct fake_cloud_options){.is_tls = true, .is_expired = true});
}

static int set_up_mutual(void **state)
{
    return cloud_fixture_set_up_with(
        state, &(struct fake_cloud_options){.is_tls = true, .wants_client = true});
}

/* Another client instead of the fixture's, which is returned. */
static struct muster_http *open_another(struct cloud_fixture *fixture,
                                        const struct muster_http_curl_options *options)
{
    struct muster_http *before = fixture->env->http;

    assert_int_equal(muster_http_curl_open(fixture->env, options, &fixture->env->http, NULL),
                     MUSTER_OK);
    return before;
}

static void close_another(struct cloud_fixture *fixture, struct muster_http *before)
{
    cloud_fixture_close_http(fixture, fixture->env->http);
    fixture->env->http = before;
}

/* TLS. */

static void http2_is_spoken_where_it_is_offered(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    fake_cloud_say(fixture->cloud, "POST", "/h", 200, "yes");
    request->method = "POST";
    request->url = cloud_fixture_url(fixture, "/h");
    request->body = "ping";
    request->body_bytes = 4;

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_string_equal(request->answer, "yes");
    assert_true(fake_cloud_request(fixture->cloud, 0)->is_h2);
    assert_string_equal(fake_cloud_request(fixture->cloud, 0)->body, "ping");
}

static void http1_is_spoken_where_nothing_else_is_offered(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    fake_cloud_say(fixture->cloud, "GET", "/h", 200, "yes");
    request->url = cloud_fixture_url(fixture, "/h");

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_string_equal(request->answer, "yes");
    assert_false(fake_cloud_request(fixture->cloud, 0)->is_h2);
}

static void a_server_of_an_unknown_authority_is_not_believed(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    static const struct muster_http_tls system_authorities = {.ca_file = NULL};

    request->url = cloud_fixture_url(fixture, "/");
    request->tls = &system_authorities;

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(request->error.text, "certificate does not hold"));
    assert_int_equal(cloud_fixture_request_count(fixture), 0);
}

/* Opening it would wait for a writer. */
static void a_pipe_holds_no_authorities(void **state)
{
    struct cloud_fixture *fixture = *state;
    const char *path = cloud_fixture_write(fixture, "pipe", "");
    const struct muster_http_tls tls = {.ca_file = path};
    struct muster_http_request request;

    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    muster_http_request_init(&request, NULL);
    request.url = cloud_fixture_url(fixture, "/");
    request.tls = &tls;
    request.deadline_ns = cloud_fixture_in_s(fixture, 30);

    assert_int_equal(muster_http_start(&request, fixture->env->http, cloud_outcome_on_done),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(request.error.text, path));
    assert_non_null(strstr(request.error.text, "must be a regular file"));
    muster_http_request_fini(&request);
}

/* A cluster that was made anew has an authority of the same name. */
static void a_server_of_an_authority_of_the_same_name_is_not_believed(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    struct fake_identity *other = fake_identity_new(&(struct fake_identity_options){false, NULL});
    struct muster_http_tls tls = {.ca_pem = other->ca_pem};

    request->url = cloud_fixture_url(fixture, "/");
    request->tls = &tls;

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(request->error.text, "certificate does not hold"));
    assert_int_equal(cloud_fixture_request_count(fixture), 0);
    fake_identity_free(other);
}

static void the_authorities_of_ssl_cert_file_are_believed(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    static const struct muster_http_tls defaults = {.ca_file = NULL};
    struct muster_http *before = fixture->env->http;
    struct muster_error error;

    fake_cloud_say(fixture->cloud, "GET", "/", 200, "yes");
    cloud_fixture_set_var(fixture, "SSL_CERT_FILE",
                          cloud_fixture_write(fixture, "ca.pem", fixture->tls.ca_pem));
    muster_http_close(before, NULL);
    assert_int_equal(muster_http_curl_open(fixture->env, NULL, &fixture->env->http, &error),
                     MUSTER_OK);
    request->url = cloud_fixture_url(fixture, "/");
    request->tls = &defaults;

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_string_equal(request->answer, "yes");
}

static void an_expired_certificate_is_named(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    request->url = cloud_fixture_url(fixture, "/");

    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAUTHENTICATED);
    assert_non_null(strstr(request->error.text, "certificate has expired"));
    assert_non_null(strstr(request->error.text, fake_cloud_base(fixture->cloud)));
}

static void verification_is_skipped_only_when_a_kubeconfig_says_so(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    static const struct muster_http_tls insecure = {.is_insecure_skip_verify = true};

    fake_cloud_say(fixture->cloud, "GET", "/", 200, "yes");
    request->url = cloud_fixture_url(fixture, "/");
    request->tls = &insecure;
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);

    /* A verified request must not ride on the unverified connection. */
    request->tls = &fixture->tls;
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAUTHENTICATED);
}

static void a_server_is_verified_under_another_name_if_asked(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    struct muster_http_tls tls = fixture->tls;

    fake_cloud_say(fixture->cloud, "GET", "/v", 200, "yes");
    request->url = cloud_fixture_url(fixture, "/v");
    request->tls = &tls;
    tls.server_name = "localhost";
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_string_equal(request->answer, "yes");
    assert_string_equal(fake_cloud_request_header(fake_cloud_request(fixture->cloud, 0), "host"),
                        fake_cloud_hostport(fixture->cloud));
    tls.server_name = "elsewhere.test";
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAUTHENTICATED);
}

static void a_client_certificate_opens_a_door_that_is_shut_without(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    const struct fake_identity *identity = fake_cloud_identity(fixture->cloud);
    struct muster_http_tls tls = {.ca_pem = identity->ca_pem,
                                  .cert_pem = identity->client_cert_pem,
                                  .key_pem = identity->client_key_pem};

    fake_cloud_say(fixture->cloud, "GET", "/", 200, "welcome");
    request->url = cloud_fixture_url(fixture, "/");
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_UNAVAILABLE);
    request->tls = &tls;
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_string_equal(request->answer, "welcome");
}

static void certificates_may_come_from_files(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    const struct fake_identity *identity = fake_cloud_identity(fixture->cloud);
    char ca[256], cert[256], key[256];
    struct muster_http_tls tls = {.ca_file = ca, .cert_file = cert, .key_file = key};

    strcpy(ca, cloud_fixture_write(fixture, "ca.pem", identity->ca_pem));
    strcpy(cert, cloud_fixture_write(fixture, "cert.pem", identity->client_cert_pem));
    strcpy(key, cloud_fixture_write(fixture, "key.pem", identity->client_key_pem));
    fake_cloud_say(fixture->cloud, "GET", "/", 200, "welcome");
    request->url = cloud_fixture_url(fixture, "/");
    request->tls = &tls;
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);

    tls.ca_file = "/no/such/file";
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(request->error.text, "trusted authorities cannot be used"));
}

/* The system's file takes 16 ms to read. The first request finds out how the server speaks, the
 * second goes to those who speak like that; from then on nobody looks at the file. */
static void a_file_of_authorities_is_not_read_for_each_connection(void **state)
{
    static const struct muster_http_tls as_the_client = {.ca_file = NULL};
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;
    const struct muster_http_curl_options options = {
        .ca_file =
            cloud_fixture_write(fixture, "ca.pem", fake_cloud_identity(fixture->cloud)->ca_pem)};
    struct muster_http *before = open_another(fixture, &options);

    cloud_fixture_script(fixture, "[{\"match\":{},\"response\":{\"headers\":{\"Connection\":"
                                  "\"close\"},\"body\":\"yes\"}}]");
    request->url = cloud_fixture_url(fixture, "/");
    request->tls = &as_the_client;
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);

    cloud_fixture_write(fixture, "ca.pem", "no longer a certificate");
    assert_int_equal(cloud_fixture_ask(fixture, request), MUSTER_OK);
    assert_int_equal(fake_cloud_counts(fixture->cloud)->connections, 3);

    close_another(fixture, before);
}

/* Proxies. */

/* A client that read the variables as they are now answers one request. */
static enum muster_rc ask_anew(struct cloud_fixture *fixture, struct muster_http_request *request,
                               const struct muster_http_curl_options *options)
{
    struct muster_http *before = open_another(fixture, options);
    enum muster_rc rc = cloud_fixture_ask(fixture, request);

    close_another(fixture, before);
    return rc;
}

static void https_goes_through_the_proxy_unless_told_otherwise(void **state)
{
    static const struct muster_http_curl_options ignoring = {.is_proxy_ignored = true};
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    fake_cloud_say(fixture->cloud, "GET", "/", 200, "direct");
    cloud_fixture_set_var(fixture, "HTTPS_PROXY", "http://127.0.0.1:1");
    request->url = cloud_fixture_url(fixture, "/");
    assert_int_equal(ask_anew(fixture, request, NULL), MUSTER_UNAVAILABLE);
    assert_int_equal(fake_cloud_counts(fixture->cloud)->connections, 0);

    assert_int_equal(ask_anew(fixture, request, &ignoring), MUSTER_OK);
    request->is_direct = true;
    assert_int_equal(ask_anew(fixture, request, NULL), MUSTER_OK);
    request->is_direct = false;
    cloud_fixture_set_var(fixture, "NO_PROXY", "example.test,127.0.0.1");
    assert_int_equal(ask_anew(fixture, request, NULL), MUSTER_OK);
}

static void plain_http_never_goes_through_a_proxy(void **state)
{
    struct cloud_fixture *fixture = *state;
    struct muster_http_request *request = &fixture->request;

    fake_cloud_say(fixture->cloud, "GET", "/", 200, "direct");
    cloud_fixture_set_var(fixture, "HTTPS_PROXY", "http://127.0.0.1:1");
    cloud_fixture_set_var(fixture, "https_proxy", "http://127.0.0.1:1");
    cloud_fixture_set_var(fixture, "http_proxy", "http://127.0.0.1:1");
    request->url = cloud_fixture_url(fixture, "/");
    assert_int_equal(ask_anew(fixture, request, NULL), MUSTER_OK);
    assert_string_equal(request->answer, "direct");
}

#define T(name, prepare) cmocka_unit_test_setup_teardown(name, prepare, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(http2_is_spoken_where_it_is_offered, set_up_tls),
        T(http1_is_spoken_where_nothing_else_is_offered, set_up_http1_tls),
        T(a_server_of_an_unknown_authority_is_not_believed, set_up_tls),
        T(a_pipe_holds_no_authorities, set_up_tls),
        T(a_server_of_an_authority_of_the_same_name_is_not_believed, set_up_tls),
        T(the_authorities_of_ssl_cert_file_are_believed, set_up_tls),
        T(an_expired_certificate_is_named, set_up_expired),
        T(verification_is_skipped_only_when_a_kubeconfig_says_so, set_up_expired),
        T(a_server_is_verified_under_another_name_if_asked, set_up_tls),
        T(a_client_certificate_opens_a_door_that_is_shut_without, set_up_mutual),
        T(certificates_may_come_from_files, set_up_mutual),
        T(a_file_of_authorities_is_not_read_for_each_connection, set_up_http1_tls),
        T(https_goes_through_the_proxy_unless_told_otherwise, set_up_tls),
        T(plain_http_never_goes_through_a_proxy, cloud_fixture_set_up),
    };

    return cmocka_run_group_tests_name("http client tls", tests, NULL, NULL);
}
