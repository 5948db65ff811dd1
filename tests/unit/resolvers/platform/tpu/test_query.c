/* One question to a TPU, step by step, against a played API. */
#include <muster/tpu.h>

#include "cloud_fixture.h"
#include "torture.h"
#include "resolvers/platform/tpu/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_closed;

static void on_closed(struct muster_tpu_client *client)
{
    (void)client;
    is_closed = true;
}

static void on_query(struct muster_tpu_query *query, enum muster_rc rc)
{
    (void)rc;
    *(bool *)query->data = true;
}

/* Whoever serves the discovery document has no business with our rights. */
static void the_token_goes_to_the_api_and_not_to_the_discovery_server(void **state)
{
    struct muster_tpu_client_options options = {
        .tpu = "n", .project = "p", .zone = "z", .access_token = "t0ken"};
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};
    struct muster_tpu_client *client = NULL;
    struct muster_error error = {0};
    struct cloud_fixture f;
    bool is_done = false;
    char url[300];
    (void)state;
    cloud_fixture_open(&f, NULL);
    cloud_fixture_script(
        &f, "[{\"match\":{\"path\":\"/discovery/tpu/v1\"},\"response\":{\"body\":{"
            "\"rootUrl\":\"{{base}}/\",\"resources\":{\"projects\":{\"resources\":{\"locations\":{"
            "\"resources\":{\"nodes\":{\"methods\":{\"get\":{\"path\":\"v1/{+name}\"}}}}}}}}}}},"
            "{\"match\":{\"path\":\"/v1/projects/p/locations/z/nodes/n\"},\"response\":{\"body\":{"
            "\"state\":\"READY\"}}}]");
    snprintf(url, sizeof(url), "%s/discovery/{api}/{apiVersion}", fake_cloud_base(f.cloud));
    options.discovery_url = url;
    assert_int_equal(muster_tpu_client_open(f.env, &options, &client, &error), MUSTER_OK);
    query.data = &is_done;
    query.deadline_ns = cloud_fixture_in_s(&f, 30);

    assert_int_equal(muster_tpu_query_start(&query, client, on_query), MUSTER_OK);
    test_env_run_until(f.env, test_env_is_true, &is_done);

    assert_int_equal(query.rc, MUSTER_OK);
    assert_string_equal(query.node->state, "READY");
    assert_int_equal(fake_cloud_counts(f.cloud)->requests, 2);
    assert_null(fake_cloud_request_header(fake_cloud_request(f.cloud, 0), "authorization"));
    assert_string_equal(fake_cloud_request_header(fake_cloud_request(f.cloud, 1), "authorization"),
                        "Bearer t0ken");
    muster_tpu_node_unref(query.node);
    is_closed = false;
    muster_tpu_client_close(client, on_closed);
    test_env_run_until(f.env, test_env_is_true, &is_closed);
    cloud_fixture_close(&f);
}

static struct muster_tpu_client *open_client(struct cloud_fixture *f, const char *zone)
{
    struct muster_tpu_client_options options = {.tpu = "n",
                                                .project = "example.com:p",
                                                .zone = zone,
                                                .api_endpoint = fake_cloud_base(f->cloud),
                                                .is_anonymous = true};
    struct muster_tpu_client *client = NULL;

    assert_int_equal(muster_tpu_client_open(f->env, &options, &client, NULL), MUSTER_OK);
    return client;
}

static void close_client(struct cloud_fixture *f, struct muster_tpu_client *client)
{
    is_closed = false;
    muster_tpu_client_close(client, on_closed);
    test_env_run_until(f->env, test_env_is_true, &is_closed);
}

/* The version stands in the node; the name is known without asking anybody. */
static void a_question_about_one_text_answers_that_text(void **state)
{
    static const struct {
        enum muster_tpu_what what;
        const char *text;
        size_t requests;
    } rows[] = {
        {MUSTER_TPU_RUNTIME_VERSION, "tpu-vm-2", 1},
        {MUSTER_TPU_RESOURCE_NAME, "projects/example.com:p/locations/z/nodes/n", 0},
    };
    struct muster_tpu_client *client;
    struct cloud_fixture f;
    (void)state;

    cloud_fixture_open(&f, NULL);
    cloud_fixture_script(
        &f,
        "[{\"match\":{\"path\":\"/v1/projects/example.com:p/locations/z/nodes/n\"},\"response\":{"
        "\"body\":{\"state\":\"READY\",\"runtimeVersion\":\"tpu-vm-2\"}}}]");
    client = open_client(&f, "z");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_done = false;
        struct muster_tpu_query query = {.data = &is_done, .what = rows[i].what};

        query.deadline_ns = cloud_fixture_in_s(&f, 30);
        fake_cloud_forget_requests(f.cloud);
        assert_int_equal(muster_tpu_query_start(&query, client, on_query), MUSTER_OK);
        test_env_run_until(f.env, test_env_is_true, &is_done);
        assert_int_equal(query.rc, MUSTER_OK);
        assert_string_equal(query.text, rows[i].text);
        assert_null(fake_cloud_request(f.cloud, rows[i].requests));
        muster_mem_free(f.env->mem, query.text);
    }
    close_client(&f, client);
    cloud_fixture_close(&f);
}

static const char node_path[] = "/v1/projects/p/locations/z/nodes/n";

/* The client asks for node n of project p in zone z, whose workers' version service is the played cloud's, too. */
static struct muster_tpu_client_options options_of(const struct cloud_fixture *f)
{
    return (struct muster_tpu_client_options){
        .tpu = "n",
        .project = "p",
        .zone = "z",
        .api_endpoint = fake_cloud_base(f->cloud),
        .is_anonymous = true,
        .version_port = (uint16_t)strtoul(strrchr(fake_cloud_base(f->cloud), ':') + 1, NULL, 10)};
}

static enum muster_rc ask_client(struct cloud_fixture *f, struct muster_tpu_client *client,
                                 struct muster_tpu_query *query)
{
    bool is_done = false;
    enum muster_rc rc;

    query->data = &is_done;
    query->deadline_ns = cloud_fixture_in_s(f, 30);
    rc = muster_tpu_query_start(query, client, on_query);
    if (rc != MUSTER_OK)
        return rc;
    test_env_run_until(f->env, test_env_is_true, &is_done);
    return query->rc;
}

static void the_version_service_is_asked_and_told(void **state)
{
    static const struct {
        const char *tpu, *script;
        struct muster_tpu_query query;
        const char *text;
        size_t requests;
    } rows[] = {
        {"grpc://127.0.0.1:1,grpc://127.0.0.1:2",
         "[{\"match\":{\"method\":\"GET\",\"path\":\"/requestversion\"},\"response\":{\"body\":{"
         "\"currentVersion\":\"2.9.1\"}}}]",
         {.what = MUSTER_TPU_RUNTIME_VERSION},
         "2.9.1",
         1},
        {"local", NULL, {.what = MUSTER_TPU_RUNTIME_VERSION}, NULL, 0},
        /* Another version is what may make it healthy. */
        {"n",
         "[{\"match\":{\"path\":\"/v1/projects/p/locations/z/nodes/n\"},\"response\":{\"body\":{"
         "\"state\":\"READY\",\"health\":\"UNHEALTHY_TENSORFLOW\",\"networkEndpoints\":[{"
         "\"ipAddress\":\"127.0.0.1\",\"port\":8470}]}}},{\"match\":{\"method\":\"POST\",\"path\":"
         "\"/requestversion/2.9\"},\"response\":{\"body\":\"\"}}]",
         {.what = MUSTER_TPU_CONFIGURE_VERSION, .version = "2.9"},
         NULL,
         2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_query query = rows[i].query;
        struct muster_tpu_client *client = NULL;
        struct muster_tpu_client_options options;
        struct cloud_fixture f;

        cloud_fixture_open(&f, NULL);
        if (rows[i].script != NULL)
            cloud_fixture_script(&f, rows[i].script);
        options = options_of(&f);
        options.tpu = rows[i].tpu;
        assert_int_equal(muster_tpu_client_open(f.env, &options, &client, NULL), MUSTER_OK);

        if (ask_client(&f, client, &query) != MUSTER_OK)
            fail_msg("%s: %s", rows[i].tpu, query.error.text);
        if (rows[i].text != NULL)
            assert_string_equal(query.text, rows[i].text);
        else
            assert_null(query.text);
        assert_int_equal(fake_cloud_counts(f.cloud)->requests, rows[i].requests);
        muster_mem_free(f.env->mem, query.text);
        close_client(&f, client);
        cloud_fixture_close(&f);
    }
}

static bool has_request(void *data)
{
    return fake_cloud_counts(((struct cloud_fixture *)data)->cloud)->requests > 0;
}

static void cancel_ends_a_request_that_is_open(void **state)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};
    struct muster_tpu_client *client;
    struct cloud_fixture f;
    bool is_done = false;

    (void)state;
    cloud_fixture_open(&f, NULL);
    cloud_fixture_script(&f, "[{\"response\":{\"hang\":true}}]");
    client = open_client(&f, "z");
    query.data = &is_done;
    query.deadline_ns = cloud_fixture_in_s(&f, 30);
    assert_int_equal(muster_tpu_query_start(&query, client, on_query), MUSTER_OK);
    test_env_run_until(f.env, has_request, &f);
    muster_tpu_query_cancel(&query);
    test_env_run_until(f.env, test_env_is_true, &is_done);

    assert_int_equal(query.rc, MUSTER_CANCELLED);
    close_client(&f, client);
    cloud_fixture_close(&f);
}

/* The credentials say what helps; the API was not asked. */
static void without_a_token_the_credentials_are_to_blame(void **state)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};
    struct muster_tpu_client *client = NULL;
    struct muster_tpu_client_options options;
    struct cloud_fixture f;

    (void)state;
    cloud_fixture_open(&f, NULL);
    cloud_fixture_set_var(&f, "GCE_METADATA_HOST", "{{hostport}}");
    cloud_fixture_script(&f, "[{\"match\":{\"path\":\"/computeMetadata/v1/\"},\"response\":{"
                             "\"headers\":{\"Metadata-Flavor\":\"Google\"},\"body\":\"\"}},"
                             "{\"response\":{\"status\":404,\"headers\":{\"Metadata-Flavor\":"
                             "\"Google\"},\"body\":\"\"}}]");
    options = options_of(&f);
    options.is_anonymous = false;
    assert_int_equal(muster_tpu_client_open(f.env, &options, &client, NULL), MUSTER_OK);

    assert_int_not_equal(ask_client(&f, client, &query), MUSTER_OK);
    if (strstr(query.error.text, "no service account") == NULL ||
        strstr(query.error.text, "the API does not tell") != NULL)
        fail_msg("%s", query.error.text);
    for (size_t i = 0; i < fake_cloud_counts(f.cloud)->requests; i++)
        assert_null(strstr(fake_cloud_request(f.cloud, i)->target, node_path));
    close_client(&f, client);
    cloud_fixture_close(&f);
}

/* Nothing is lost to the query when its memory ends before its first request; its texts grow once. */
static void run_query(struct torture *torture, const void *data)
{
    struct muster_tpu_query query = {.what = MUSTER_TPU_NODE};
    struct muster_tpu_client_options options;
    struct muster_tpu_client *client = NULL;
    struct cloud_fixture f;
    char project[301];
    bool is_done = false;
    enum muster_rc rc;

    (void)data;
    memset(project, 'p', sizeof(project) - 1);
    project[sizeof(project) - 1] = '\0';
    cloud_fixture_open(&f, NULL);
    cloud_fixture_script(&f, "[{\"response\":{\"body\":{\"state\":\"READY\"}}}]");
    options = options_of(&f);
    options.project = project;
    assert_int_equal(muster_tpu_client_open(f.env, &options, &client, NULL), MUSTER_OK);
    query.data = &is_done;
    query.deadline_ns = cloud_fixture_in_s(&f, 30);
    torture_arm_limited(torture, &f.test.mem);
    rc = muster_tpu_query_start(&query, client, on_query);
    torture_disarm(torture);
    if (rc == MUSTER_OK) {
        test_env_run_until(f.env, test_env_is_true, &is_done);
        rc = query.rc;
    }
    if (torture->refused > 0) {
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        assert_int_equal(fake_cloud_counts(f.cloud)->requests, 0);
        rc = ask_client(&f, client, &query);
    }
    assert_int_equal(rc, MUSTER_OK);
    muster_tpu_node_unref(query.node);
    close_client(&f, client);
    cloud_fixture_close(&f);
}

static void without_memory_nothing_is_asked(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "query", .run = run_query});
}

/* 8475 may be taken here, so that no case can serve there. */
static void the_version_service_has_its_usual_port(void **state)
{
    static const uint16_t ports[][2] = {{0, MUSTER_TPU_VERSION_PORT}, {1, 1}, {9000, 9000}};
    struct cloud_fixture f;

    (void)state;
    cloud_fixture_open(&f, NULL);
    for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
        struct muster_tpu_client_options options = options_of(&f);
        struct muster_tpu_client *client = NULL;

        options.version_port = ports[i][0];
        assert_int_equal(muster_tpu_client_open(f.env, &options, &client, NULL), MUSTER_OK);
        assert_int_equal(client->version_port, ports[i][1]);
        close_client(&f, client);
    }
    cloud_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_goes_to_the_api_and_not_to_the_discovery_server),
        cmocka_unit_test(a_question_about_one_text_answers_that_text),
        cmocka_unit_test(the_version_service_is_asked_and_told),
        cmocka_unit_test(cancel_ends_a_request_that_is_open),
        cmocka_unit_test(without_a_token_the_credentials_are_to_blame),
        cmocka_unit_test(without_memory_nothing_is_asked),
        cmocka_unit_test(the_version_service_has_its_usual_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
