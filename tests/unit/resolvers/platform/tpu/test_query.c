/* One question to a TPU, step by step, against a played API. */
#include <muster/tpu.h>

#include "cloud_fixture.h"

#include <stdio.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_goes_to_the_api_and_not_to_the_discovery_server),
        cmocka_unit_test(a_question_about_one_text_answers_that_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
