/* Pods as tasks, against a played API server. */
#include <muster/platforms.h>

#include <muster/resolver.h>

#include "careful_mem.h"
#include "cloud_fixture.h"
#include "torture.h"
#include "resolver_ask.h"

#include <stdio.h>
#include <string.h>

#define POD(name, ip)                                                                              \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ml\"},\"status\":{\"phase\":"            \
    "\"Running\",\"hostIP\":\"" ip "\",\"podIP\":\"fd00::7\"}}"
#define LIST(items)        "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[" items "]}"
#define ANSWER(path, body) "[{\"match\":{\"path\":\"" path "\"},\"response\":{\"body\":" body "}}]"

static struct muster_resolver *open_resolver(struct cloud_fixture *f,
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

static void list_devices(void *data, const char *const **ret_names, size_t *ret_count)
{
    static const char *const names[] = {"/job:worker/replica:0/task:0/device:GPU:0",
                                        "/job:worker/replica:0/task:1/device:GPU:0",
                                        "/job:worker/replica:0/task:1/device:GPU:1"};

    (void)data;
    *ret_names = names;
    *ret_count = 3;
}

static void without_an_own_task_all_devices_are_counted(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver = open_resolver(
        f, (struct muster_kubernetes_resolver_options){.common.list_devices = list_devices});

    assert_string_equal(ask_accelerators(resolver), "{\"GPU\":3}");
    assert_null(fake_cloud_request(f->cloud, 0));

    close_resolver(resolver);
}

static void pods_become_tasks_in_the_order_of_their_names(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver *resolver;

    cloud_fixture_script(
        f, ANSWER("/api/v1/pods", LIST(POD("w-2", "10.0.0.2") "," POD("w-10", "10.0.0.10"))));
    resolver = open_resolver(f, (struct muster_kubernetes_resolver_options){0});

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"10.0.0.10:8470\",\"10.0.0.2:8470\"]}");
    assert_string_equal(muster_json_text(muster_json_member(fake_cloud_request(f->cloud, 0)->query,
                                                            "labelSelector")),
                        "job-name=tensorflow");
    assert_string_equal(ask_master(resolver, NULL, -1), "");
    assert_string_equal(ask_master(resolver, "worker", 1), "grpc://10.0.0.2:8470");
    assert_says(ask_master(resolver, "worker", 2), "NOT_FOUND", NULL);

    close_resolver(resolver);
}

static void jobs_selectors_namespace_and_pod_addresses_can_be_chosen(void **state)
{
    struct cloud_fixture *f = *state;
    static const char *const workers[] = {"app=a", "app in (b,c)"}, *const servers[] = {"app=p"};
    static const struct muster_kubernetes_job jobs[] = {{"worker", workers, 2}, {"ps", servers, 1}};
    struct muster_resolver *resolver;

    cloud_fixture_script(
        f,
        "[{\"match\":{\"path\":\"/api/v1/namespaces/ml/pods\",\"query\":{\"labelSelector\":"
        "\"app in (b,c)\"}},\"response\":{\"body\":" LIST(POD("b", "10.0.0.1") "," POD(
            "a", "10.0.0.2")) "}},"
                              "{\"match\":{\"path\":\"/api/v1/namespaces/ml/"
                              "pods\"},\"response\":{\"body\":" LIST(POD("z", "10.0.0.3")) "}}]");
    resolver = open_resolver(
        f, (struct muster_kubernetes_resolver_options){.jobs = jobs,
                                                       .job_count = 2,
                                                       .port = 99,
                                                       .name_space = "ml",
                                                       .address = MUSTER_KUBERNETES_POD_IP});

    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"[fd00::7]:99\",\"[fd00::7]:99\",\"[fd00::7]:99\"],"
                        "\"ps\":[\"[fd00::7]:99\"]}");

    close_resolver(resolver);
}

static void what_the_server_says_becomes_a_clear_error(void **state)
{
    static const struct {
        const char *response;
        const char *prefix;
        const char *word;
    } rows[] = {
        {"{\"body\":{\"items\":[{\"metadata\":{\"name\":\"p-1\",\"namespace\":\"ml\"},"
         "\"status\":{\"phase\":\"Pending\"}}]}}",
         "FAILED_PRECONDITION", "p-1"},
        {"{\"body\":{\"items\":[{\"metadata\":{\"name\":\"p-1\"},\"status\":{\"phase\":"
         "\"Running\"}}]}}",
         "FAILED_PRECONDITION", "hostIP"},
        {"{\"body\":{\"items\":[{\"metadata\":{\"name\":\"p-1\"},\"status\":{\"phase\":"
         "\"Running\",\"hostIP\":\"10.0.0.1 x\"}}]}}",
         "INVALID_ARGUMENT", "10.0.0.1 x"},
        {"{\"status\":403,\"body\":{\"kind\":\"Status\",\"message\":\"pods is forbidden\"}}",
         "PERMISSION_DENIED", "pods is forbidden"},
        {"{\"status\":404,\"body\":{}}", "NOT_FOUND", "404"},
        {"{\"body\":\"<html>no API here</html>\"}", "INVALID_ARGUMENT", "list of pods"},
        {"{\"body\":{\"kind\":\"Status\"}}", "INVALID_ARGUMENT", "items"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_resolver *resolver;
        struct cloud_fixture f;
        char script[1024];

        cloud_fixture_open(&f, NULL);
        snprintf(script, sizeof(script), "[{\"response\":%s}]", rows[i].response);
        cloud_fixture_script(&f, script);
        resolver = open_resolver(&f, (struct muster_kubernetes_resolver_options){0});
        assert_says(ask_cluster(resolver), rows[i].prefix, rows[i].word, NULL);
        close_resolver(resolver);
        cloud_fixture_close(&f);
    }
}

/* A pod's files and variables, its API server over TLS, a token that was rotated. */
static void within_a_cluster_a_rotated_token_is_read_again(void **state)
{
    struct fake_cloud_options tls = {.is_tls = true};
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    char token[512], ca[512];
    const char *answer;
    (void)state;
    cloud_fixture_open(&f, &tls);
    snprintf(token, sizeof(token), "%s", cloud_fixture_write(&f, "token", "first\n"));
    snprintf(ca, sizeof(ca), "%s",
             cloud_fixture_write(&f, "ca.crt", fake_cloud_identity(f.cloud)->ca_pem));
    cloud_fixture_set_var(&f, "KUBERNETES_SERVICE_HOST", "127.0.0.1");
    cloud_fixture_set_var(&f, "KUBERNETES_SERVICE_PORT",
                          strrchr(fake_cloud_base(f.cloud), ':') + 1);
    cloud_fixture_script(
        &f,
        "[{\"match\":{\"headers\":{\"Authorization\":\"Bearer first\"}},\"times\":1,"
        "\"response\":{\"body\":" LIST(POD(
            "a", "10.0.0.1")) "}},"
                              "{\"match\":{\"headers\":{\"Authorization\":\"Bearer second\"}},"
                              "\"response\":{\"body\":" LIST(POD(
                                  "a", "10.0.0.2")) "}},"
                                                    "{\"response\":{\"status\":401,\"body\":{}}}]");
    resolver = open_resolver(
        &f, (struct muster_kubernetes_resolver_options){
                .location = MUSTER_KUBERNETES_WITHIN_CLUSTER, .token_file = token, .ca_file = ca});

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");
    cloud_fixture_write(&f, "token", "second\n");
    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.2:8470\"]}");
    cloud_fixture_write(&f, "token", "third-secret\n");
    fake_cloud_forget_script(f.cloud);
    cloud_fixture_script(&f, "[{\"response\":{\"status\":401,\"body\":{}}}]");
    answer = ask_cluster(resolver);
    assert_says(answer, "UNAUTHENTICATED", NULL);
    assert_null(strstr(answer, "secret"));

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

/* A file that cannot be read for want of memory is told as one that cannot be read. */
static void run_within_cluster(struct torture *torture, const void *data)
{
    struct fake_cloud_options tls = {.is_tls = true};
    struct muster_kubernetes_resolver_options options = {.location =
                                                             MUSTER_KUBERNETES_WITHIN_CLUSTER};
    struct muster_resolver *resolver = NULL;
    struct cloud_fixture f;
    char token[512], ca[512];
    enum muster_rc rc;

    (void)data;
    cloud_fixture_open(&f, &tls);
    snprintf(token, sizeof(token), "%s", cloud_fixture_write(&f, "token", "first\n"));
    snprintf(ca, sizeof(ca), "%s",
             cloud_fixture_write(&f, "ca.crt", fake_cloud_identity(f.cloud)->ca_pem));
    cloud_fixture_set_var(&f, "KUBERNETES_SERVICE_HOST", "127.0.0.1");
    cloud_fixture_set_var(&f, "KUBERNETES_SERVICE_PORT", "1");
    options.token_file = token;
    options.ca_file = ca;
    torture_arm_limited(torture, &f.test.mem);
    rc = muster_kubernetes_resolver_open(f.env, &options, &resolver, NULL);
    torture_disarm(torture);
    if (torture->refused > 0)
        assert_true(rc == MUSTER_RESOURCE_EXHAUSTED || rc == MUSTER_FAILED_PRECONDITION);
    else
        assert_int_equal(rc, MUSTER_OK);
    if (rc == MUSTER_OK)
        close_resolver(resolver);
    cloud_fixture_close(&f);
}

static void without_memory_no_server_is_found_within_a_cluster(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "within", .run = run_within_cluster});
}

static void outside_of_a_cluster_and_without_files_the_remedy_is_named(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_kubernetes_resolver_options options = {
        .location = MUSTER_KUBERNETES_WITHIN_CLUSTER, .token_file = "/nonexistent/token"};
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};

    assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_says(error.text, "not within", "KUBERNETES_SERVICE_HOST", "kubeconfig", NULL);
    cloud_fixture_set_var(f, "KUBERNETES_SERVICE_HOST", "10.0.0.1");
    cloud_fixture_set_var(f, "KUBERNETES_SERVICE_PORT", "443");
    assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_says(error.text, "cannot read", "/nonexistent/token", NULL);
    options.location = MUSTER_KUBERNETES_OFF_CLUSTER;
    options.kubeconfig = "/nonexistent/config";
    assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                     MUSTER_NOT_FOUND);
    assert_says(error.text, "no kubeconfig", "/nonexistent/config", NULL);
    options.location = MUSTER_KUBERNETES_OFF_CLUSTER + 1;
    assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_says(error.text, "unknown location", NULL);
    assert_null(resolver);
}

/* The mount is there before what belongs into it. */
static void within_a_cluster_an_empty_file_is_named(void **state)
{
    static const struct {
        const char *token, *ca;
        const char *text;
    } rows[] = {{"", "PEM", "/token is empty"}, {"t", "", "/ca.crt is empty"}};
    struct cloud_fixture *f = *state;

    cloud_fixture_set_var(f, "KUBERNETES_SERVICE_HOST", "127.0.0.1");
    cloud_fixture_set_var(f, "KUBERNETES_SERVICE_PORT", "1");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_kubernetes_resolver_options options = {.location =
                                                                 MUSTER_KUBERNETES_WITHIN_CLUSTER};
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};
        char token[512], ca[512];

        snprintf(token, sizeof(token), "%s", cloud_fixture_write(f, "token", rows[i].token));
        snprintf(ca, sizeof(ca), "%s", cloud_fixture_write(f, "ca.crt", rows[i].ca));
        options.token_file = token;
        options.ca_file = ca;
        assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                         MUSTER_FAILED_PRECONDITION);
        assert_says(error.text, "the service account", rows[i].text, NULL);
    }
}

/* Paths in the kubeconfig start in its folder. */
static void a_kubeconfig_with_client_certificate_opens_the_door(void **state)
{
    static const char text[] =
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: '{{base}}', certificate-authority: ca}}]\n"
        "users: [{name: u, user: {client-certificate: cert, client-key: key}}]\n";
    struct fake_cloud_options tls = {.is_tls = true, .wants_client = true};
    const struct fake_identity *identity;
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    cloud_fixture_open(&f, &tls);
    identity = fake_cloud_identity(f.cloud);
    cloud_fixture_write(&f, "ca", identity->ca_pem);
    cloud_fixture_write(&f, "cert", identity->client_cert_pem);
    cloud_fixture_write(&f, "key", identity->client_key_pem);
    cloud_fixture_script(&f, ANSWER("/api/v1/pods", LIST(POD("a", "10.0.0.1"))));
    resolver = open_resolver(&f, (struct muster_kubernetes_resolver_options){
                                     .location = MUSTER_KUBERNETES_OFF_CLUSTER,
                                     .kubeconfig = cloud_fixture_write(&f, "config", text)});

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

/* The file wins over a token beside it, as with kubectl. */
static void a_kubeconfig_with_a_token_file_sends_what_stands_there(void **state)
{
    static const char text[] =
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: '{{base}}', certificate-authority: ca}}]\n"
        "users: [{name: u, user: {tokenFile: token, token: old}}]\n";
    struct fake_cloud_options tls = {.is_tls = true};
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    cloud_fixture_open(&f, &tls);
    cloud_fixture_write(&f, "ca", fake_cloud_identity(f.cloud)->ca_pem);
    cloud_fixture_write(&f, "token", "from-file\n");
    cloud_fixture_script(&f, ANSWER("/api/v1/pods", LIST(POD("a", "10.0.0.1"))));
    resolver = open_resolver(&f, (struct muster_kubernetes_resolver_options){
                                     .location = MUSTER_KUBERNETES_OFF_CLUSTER,
                                     .kubeconfig = cloud_fixture_write(&f, "config", text)});

    assert_string_equal(ask_cluster(resolver), "{\"worker\":[\"10.0.0.1:8470\"]}");
    assert_string_equal(fake_cloud_request_header(fake_cloud_request(f.cloud, 0), "authorization"),
                        "Bearer from-file");

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

/* Each is a request per question. */
static void too_many_selectors_are_refused(void **state)
{
    struct cloud_fixture *f = *state;
    static const char *selectors[257];
    static const struct {
        size_t count;
        enum muster_rc rc;
    } rows[] = {{0, MUSTER_INVALID_ARGUMENT}, {256, MUSTER_OK}, {257, MUSTER_INVALID_ARGUMENT}};

    for (size_t i = 0; i < 257; i++)
        selectors[i] = "a=b";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_kubernetes_job job = {
            .name = "worker", .selectors = selectors, .selector_count = rows[i].count};
        const struct muster_kubernetes_resolver_options options = {
            .api_server = fake_cloud_base(f->cloud), .jobs = &job, .job_count = 1};
        struct muster_resolver *resolver = NULL;
        struct muster_error error = {0};

        assert_int_equal(muster_kubernetes_resolver_open(f->env, &options, &resolver, &error),
                         rows[i].rc);
        if (rows[i].rc == MUSTER_OK)
            close_resolver(resolver);
        else
            assert_says(error.text, "a Kubernetes resolver must have 1 to 256 label selectors",
                        NULL);
    }
}

static void a_server_that_cannot_prove_itself_gets_no_token(void **state)
{
    struct fake_cloud_options tls = {.is_tls = true};
    struct muster_resolver *resolver;
    struct cloud_fixture f;
    (void)state;
    cloud_fixture_open(&f, &tls);
    resolver = open_resolver(&f, (struct muster_kubernetes_resolver_options){.token = "s3cret"});

    assert_says(ask_cluster(resolver), "UNAUTHENTICATED", "certificate", NULL);
    assert_int_equal(fake_cloud_counts(f.cloud)->requests, 0);

    close_resolver(resolver);
    cloud_fixture_close(&f);
}

/* Watching. */

struct told {
    char text[1024];
    size_t count;
    size_t wanted;
    bool is_enough;
    bool is_closed;
};

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                      const struct muster_cluster_diff *diff)
{
    struct told *told = watch->data;
    char *text = NULL;

    (void)diff;
    assert_int_equal(muster_cluster_spec_format(spec, careful_mem(), &text), MUSTER_OK);
    snprintf(told->text, sizeof(told->text), "%s", text);
    muster_mem_free(careful_mem(), text);
    told->is_enough = ++told->count >= told->wanted;
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    struct told *told = watch->data;

    told->is_closed = true;
}

static bool has_open_stream(void *data)
{
    struct cloud_fixture *f = data;

    return fake_cloud_counts(f->cloud)->answers_open > 0;
}

/* The server holds one stream open, from `version` on; a blank line is no event. */
struct streaming {
    struct cloud_fixture *f;
    const char *version;
};

static bool is_streaming(void *data)
{
    struct streaming *streaming = data;
    const struct fake_cloud *cloud = streaming->f->cloud;
    const char *version = NULL;

    for (size_t i = fake_cloud_counts(cloud)->requests; i-- > 0 && version == NULL;)
        version = muster_json_text(
            muster_json_member(fake_cloud_request(cloud, i)->query, "resourceVersion"));
    return version != NULL && strcmp(version, streaming->version) == 0 &&
           fake_cloud_push(streaming->f->cloud, "\n") == 1;
}

static void wait_streaming(struct cloud_fixture *f, const char *version)
{
    struct streaming streaming = {f, version};

    test_env_run_until(f->env, is_streaming, &streaming);
}

#define HELD(version)                                                                              \
    "{\"match\":{\"query\":{\"watch\":\"true\",\"resourceVersion\":\"" version                     \
    "\"}},\"response\":{\"hold\":true,\"chunks\":[]}}"
#define LISTED(version, items)                                                                     \
    "{\"match\":{\"query_absent\":[\"watch\"]},\"response\":{\"body\":{\"metadata\":"              \
    "{\"resourceVersion\":\"" version "\"},\"items\":[" items "]}}}"

static void wait_told(struct cloud_fixture *f, struct told *told, size_t wanted)
{
    told->wanted = wanted;
    told->is_enough = told->count >= wanted;
    test_env_run_until(f->env, test_env_is_true, &told->is_enough);
}

static void name_pod(struct cloud_fixture *f, const char *script)
{
    fake_cloud_forget_script(f->cloud);
    cloud_fixture_script(f, script);
}

static void a_watch_tells_what_the_server_tells_and_outlives_its_streams(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver_watch watch = {.on_change = on_change,
                                          .interval_ns = 3600 * MUSTER_NS_PER_S,
                                          .settle_ns = MUSTER_NS_PER_MS};
    struct muster_resolver *resolver;
    struct told told = {.count = 0};

    resolver = open_resolver(f, (struct muster_kubernetes_resolver_options){0});
    name_pod(f, "[" HELD("7") "," LISTED("7", POD("a", "10.0.0.1")) "]");
    watch.data = &told;

    assert_int_equal(muster_resolver_watch_open(&watch, resolver), MUSTER_OK);
    wait_told(f, &told, 1);
    assert_string_equal(told.text, "{\"worker\":[\"10.0.0.1:8470\"]}");

    /* An event in two pieces. */
    wait_streaming(f, "7");
    name_pod(f, "[" LISTED("8", POD("a", "10.0.0.2")) "]");
    fake_cloud_push(f->cloud, "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"resourceVer");
    fake_cloud_push(f->cloud, "sion\":\"8\"}}}\n");
    wait_told(f, &told, 2);
    assert_string_equal(told.text, "{\"worker\":[\"10.0.0.2:8470\"]}");

    /* The version is too old: listed anew, and watched from there. */
    name_pod(f, "[" HELD("20") "," LISTED("20", POD("a", "10.0.0.3")) "]");
    fake_cloud_push(f->cloud, "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n");
    wait_told(f, &told, 3);
    assert_string_equal(told.text, "{\"worker\":[\"10.0.0.3:8470\"]}");

    /* The connection breaks: the stream goes on from the last version it told. */
    wait_streaming(f, "20");
    fake_cloud_push(f->cloud, "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{"
                              "\"resourceVersion\":\"31\"}}}\n");
    name_pod(f, "[" HELD("31") "," LISTED("40", POD("a", "10.0.0.4")) "]");
    fake_cloud_cut(f->cloud);
    wait_streaming(f, "31");
    fake_cloud_push(f->cloud, "{\"type\":\"ADDED\",\"object\":{}}\n");
    wait_told(f, &told, 4);
    assert_string_equal(told.text, "{\"worker\":[\"10.0.0.4:8470\"]}");

    muster_resolver_watch_close(&watch, on_watch_closed);
    test_env_run_until(f->env, test_env_is_true, &told.is_closed);
    close_resolver(resolver);
}

static void a_uri_names_selectors_and_the_rest(void **state)
{
    struct cloud_fixture *f = *state;
    static const char selectors[] =
        "kubernetes:selector=worker:app=a;worker:app%3Db;ps:app=c&port=5&namespace=n&address=pod"
        "&rpc_layer=&api_server=";
    static const struct {
        const char *uri;
        const char *word;
    } bad[] = {
        {"kubernetes:selector=worker&api_server=http://x", "job:label=value"},
        {"kubernetes:selector=worker:&api_server=http://x", "job:label=value"},
        {"kubernetes:selector=:a&api_server=http://x", "job:label=value"},
        {"kubernetes:selector=worker;a:b&api_server=http://x", "job:label=value"},
        {"kubernetes:selector=a:b;c:d;a:e&api_server=http://x", "together"},
        {"kubernetes:location=moon", "within, off or auto"},
        {"kubernetes:address=moon&api_server=http://x", "host or pod"},
    };
    static const char *const labels[] = {"app=a", "app=b", "app=c"};
    struct muster_resolver *resolver = NULL;
    struct muster_error error = {0};
    char uri[512];

    cloud_fixture_script(f, ANSWER("/api/v1/namespaces/n/pods", LIST(POD("z", "10.0.0.3"))));
    snprintf(uri, sizeof(uri), "%s%s", selectors, fake_cloud_base(f->cloud));

    assert_int_equal(muster_resolver_open(f->env, uri, NULL, &resolver, &error), MUSTER_OK);
    assert_string_equal(ask_cluster(resolver),
                        "{\"worker\":[\"[fd00::7]:5\",\"[fd00::7]:5\"],\"ps\":[\"[fd00::7]:5\"]}");
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
        assert_string_equal(muster_json_text(muster_json_member(
                                fake_cloud_request(f->cloud, i)->query, "labelSelector")),
                            labels[i]);
    close_resolver(resolver);

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(muster_resolver_open(f->env, bad[i].uri, NULL, &resolver, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_says(error.text, "", bad[i].word, NULL);
    }
}

/* Its last request may still be open. */
static void a_resolver_can_be_closed_right_after_its_watch(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolver_watch watch = {.on_change = on_change};
    struct muster_resolver *resolver;
    struct told told = {.count = 0};

    resolver = open_resolver(f, (struct muster_kubernetes_resolver_options){0});
    name_pod(f, "[" HELD("7") "," LISTED("7", POD("a", "10.0.0.1")) "]");
    watch.data = &told;
    assert_int_equal(muster_resolver_watch_open(&watch, resolver), MUSTER_OK);
    wait_streaming(f, "7");

    muster_resolver_watch_close(&watch, on_watch_closed);
    close_resolver(resolver);

    test_env_run_until(f->env, test_env_is_true, &told.is_closed);
}

static void ignore_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    (void)resolve;
    (void)rc;
}

static void closing_gives_up_an_open_question(void **state)
{
    struct cloud_fixture *f = *state;
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    struct muster_resolver *resolver;

    cloud_fixture_script(f, "[{\"response\":{\"hang\":true}}]");
    resolver = open_resolver(f, (struct muster_kubernetes_resolver_options){.token = "t"});
    resolve.deadline_ns = muster_loop_after_ns(f->env->loop, 30 * MUSTER_NS_PER_S);
    resolve.data = NULL;

    assert_int_equal(muster_resolve_start(&resolve, resolver, ignore_answer), MUSTER_OK);
    test_env_run_until(f->env, has_open_stream, f);
    close_resolver(resolver);

    assert_int_equal(resolve.rc, MUSTER_CANCELLED);
}

#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, cloud_fixture_set_up, cloud_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pods_become_tasks_in_the_order_of_their_names),
        CASE(without_an_own_task_all_devices_are_counted),
        CASE(jobs_selectors_namespace_and_pod_addresses_can_be_chosen),
        cmocka_unit_test(what_the_server_says_becomes_a_clear_error),
        cmocka_unit_test(within_a_cluster_a_rotated_token_is_read_again),
        cmocka_unit_test(without_memory_no_server_is_found_within_a_cluster),
        CASE(outside_of_a_cluster_and_without_files_the_remedy_is_named),
        CASE(within_a_cluster_an_empty_file_is_named),
        cmocka_unit_test(a_kubeconfig_with_client_certificate_opens_the_door),
        cmocka_unit_test(a_kubeconfig_with_a_token_file_sends_what_stands_there),
        CASE(too_many_selectors_are_refused),
        cmocka_unit_test(a_server_that_cannot_prove_itself_gets_no_token),
        CASE(a_watch_tells_what_the_server_tells_and_outlives_its_streams),
        CASE(a_uri_names_selectors_and_the_rest),
        CASE(a_resolver_can_be_closed_right_after_its_watch),
        CASE(closing_gives_up_an_open_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
