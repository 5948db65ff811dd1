/* Listing pods page by page, and whom the API server's kubeconfig names. */
#include <muster/platforms.h>

#include "cloud_fixture.h"
#include "resolver_ask.h"

#include <string.h>

#define POD(name, ip)                                                                              \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ml\"},\"status\":{\"phase\":"            \
    "\"Running\",\"hostIP\":\"" ip "\",\"podIP\":\"fd00::7\"}}"
#define LIST(items)        "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[" items "]}"
#define ANSWER(path, body) "[{\"match\":{\"path\":\"" path "\"},\"response\":{\"body\":" body "}}]"

static struct muster_resolver *open_list(struct cloud_fixture *f,
                                         struct muster_kubernetes_resolver_options options)
{
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};

    if (options.location == MUSTER_KUBERNETES_AUTO && options.api_server == NULL)
        options.api_server = fake_cloud_base(f->cloud);
    if (muster_kubernetes_resolver_open(f->env, &options, &resolver, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return resolver;
}

static void pages_are_followed_and_begun_anew_when_their_mark_expires(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;

    cloud_fixture_script(
        f,
        "[{\"match\":{\"query_absent\":[\"continue\"]},\"times\":1,\"response\":{\"body\":"
        "{\"metadata\":{\"continue\":\"old\"},\"items\":[" POD(
            "x", "10.0.0.9") "]}}},"
                             "{\"match\":{\"query\":{\"continue\":\"old\"}},\"response\":{"
                             "\"status\":410,\"body\":{}}},"
                             "{\"match\":{\"query_absent\":[\"continue\"]},\"response\":{\"body\":"
                             "{\"metadata\":{\"continue\":\"m&1\"},\"items\":[" POD(
                                 "b", "10.0.0.2") "]}}},"
                                                  "{\"match\":{\"query\":{\"continue\":\"m&1\"}},"
                                                  "\"response\":{\"body\":" LIST(
                                                      POD("a", "10.0.0.1")) "}}]");
    resolver = open_list(f, (struct muster_kubernetes_resolver_options){0});

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"10.0.0.1:8470\",\"10.0.0.2:8470\"]}");

    close_resolver(resolver);
}

static void pages_without_end_are_given_up(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;

    cloud_fixture_script(f, ANSWER("/api/v1/pods", "{\"metadata\":{\"continue\":\"more\"},"
                                                   "\"items\":[]}"));
    resolver = open_list(f, (struct muster_kubernetes_resolver_options){0});

    assert_says(ask_cluster(resolver), "RESOURCE_EXHAUSTED", "without end", NULL);

    close_resolver(resolver);
}

/* Twice for each selector: three times is the most for one. */
static void each_selector_may_begin_anew_as_often_as_the_first(void **state)
{
    struct cloud_fixture *f = *state;
    static const char *const workers[] = {"a", "b"};
    static const struct muster_kubernetes_job jobs[] = {{"worker", workers, 2}};
    struct muster_resolver *resolver;

    cloud_fixture_script(
        f, "[{\"match\":{\"query\":{\"continue\":\"x\",\"labelSelector\":\"a\"}},\"times\":2,"
           "\"response\":{\"status\":410}},"
           "{\"match\":{\"query\":{\"continue\":\"x\",\"labelSelector\":\"b\"}},\"times\":2,"
           "\"response\":{\"status\":410}},"
           "{\"match\":{\"query\":{\"continue\":\"x\"}},\"response\":{\"body\":" LIST(
               POD("p", "10.0.0.1")) "}},"
                                     "{\"response\":{\"body\":{\"metadata\":{\"continue\":\"x\"},"
                                     "\"items\":[]}}}]");
    resolver =
        open_list(f, (struct muster_kubernetes_resolver_options){.jobs = jobs, .job_count = 1});

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"10.0.0.1:8470\",\"10.0.0.1:8470\"]}");

    close_resolver(resolver);
}

static void a_user_with_a_password_alone_is_told_what_to_use(void **state)
{
    struct cloud_fixture *f = *state;
    static const char text[] = "current-context: c\n"
                               "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
                               "clusters: [{name: k, cluster: {server: '{{base}}'}}]\n"
                               "users: [{name: u, user: {username: me, password: s3cret}}]\n";
    struct muster_kubernetes_resolver_options options = {.location = MUSTER_KUBERNETES_OFF_CLUSTER};
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};

    options.kubeconfig = cloud_fixture_write(f, "config", text);

    assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                     MUSTER_UNIMPLEMENTED);
    assert_says(error.text, "context 'c'", "token", "client certificate", NULL);
    assert_null(strstr(error.text, "s3cret"));
}

/* Base64 of PEM texts without anything in them. */
#define CERTIFICATE                                                                                \
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
#define KEY "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCi0tLS0tRU5EIFBSSVZBVEUgS0VZLS0tLS0K"

/* It would not be sent: the certificate is what the server asks for. */
static void a_password_beside_a_certificate_is_passed_over(void **state)
{
    struct cloud_fixture *f = *state;
    static const char *const certificates[] = {
        "client-certificate: cert, client-key: key",
        "client-certificate-data: " CERTIFICATE ", client-key-data: " KEY,
    };

    for (size_t i = 0; i < sizeof(certificates) / sizeof(certificates[0]); i++) {
        struct muster_kubernetes_resolver_options options = {
            .location = MUSTER_KUBERNETES_OFF_CLUSTER};
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};
        char text[512];

        snprintf(text, sizeof(text),
                 "current-context: c\n"
                 "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
                 "clusters: [{name: k, cluster: {server: '{{base}}'}}]\n"
                 "users: [{name: u, user: {username: me, password: s3cret, %s}}]\n",
                 certificates[i]);
        options.kubeconfig = cloud_fixture_write(f, "config", text);

        if (muster_kubernetes_resolver_open(f->env, &options, &resolver, &error) != MUSTER_OK)
            fail_msg("%s: %s", certificates[i], error.text);
        close_resolver(resolver);
    }
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pages_are_followed_and_begun_anew_when_their_mark_expires),
        CASE(pages_without_end_are_given_up),
        CASE(each_selector_may_begin_anew_as_often_as_the_first),
        CASE(a_user_with_a_password_alone_is_told_what_to_use),
        CASE(a_password_beside_a_certificate_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
