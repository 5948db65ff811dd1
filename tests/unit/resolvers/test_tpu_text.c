/* Which TPU is meant, its endpoints, times, discovery documents. */
#include "resolvers/task_address.h"
#include "resolvers/tpu_text.h"

#include "assertion_count.h"
#include "test_env.h"
#include "test_vars.h"

#include <string.h>

static void times_are_read_to_the_second(void **state)
{
    static const struct {
        const char *text;
        bool is_time;
        uint64_t seconds;
    } rows[] = {
        {"1970-01-01T00:00:00Z", true, 0},
        {"2024-05-01T10:00:00.123Z", true, 1714557600},
        {"2024-02-29T23:59:59", true, 1709251199},
        {"2000-03-01T00:00:01.9", true, 951868801},
        {"2024-13-01T00:00:00Z", false, 0},
        {"2024-05-01 10:00:00", false, 0},
        {"2024-05-01T1:00:00", false, 0},
        {"2024", false, 0},
        {"", false, 0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t ns = 7;

        assert_int_equal(muster_tpu_time_parse(rows[i].text, &ns), rows[i].is_time);
        if (rows[i].is_time)
            assert_int_equal(ns, rows[i].seconds * MUSTER_NS_PER_S);
    }
}

static void endpoints_have_schemes_ports_and_brackets_or_not(void **state)
{
    static const char list[] = "grpc://10.0.0.1:8470,10.0.0.2,grpc://[fd00::1]:9,fd00::2,host.x:1";
    static const struct {
        const char *host;
        uint16_t port;
        const char *text;
    } expected[] = {{"10.0.0.1", 8470, "10.0.0.1:8470"},
                    {"10.0.0.2", 8470, "10.0.0.2:8470"},
                    {"fd00::1", 9, "[fd00::1]:9"},
                    {"fd00::2", 8470, "[fd00::2]:8470"},
                    {"host.x", 1, "host.x:1"}};
    struct muster_tpu_endpoint *endpoints = NULL;
    struct muster_error error = {0};
    struct test_env test;
    size_t count = 0;
    char text[300];
    (void)state;
    test_env_open(&test);

    assert_int_equal(muster_tpu_endpoints_parse(test.env.mem, list, &endpoints, &count, &error),
                     MUSTER_OK);

    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(endpoints[i].host, expected[i].host);
        assert_int_equal(endpoints[i].port, expected[i].port);
        assert_true(
            muster_task_address_format(endpoints[i].host, endpoints[i].port, sizeof(text), text));
        assert_string_equal(text, expected[i].text);
    }
    muster_mem_free(test.env.mem, endpoints);
    test_env_close(&test);
}

static void bad_endpoints_are_named(void **state)
{
    static const char *const rows[][2] = {
        {"grpc://", "'grpc://'"},      {"10.0.0.1:", "'10.0.0.1:'"},
        {"a:70000", "a:70000"},        {"a:1,,b:2", "''"},
        {"[fd00::1", "[fd00::1"},      {"a:1,b:x,c", "'b:x'"},
        {"grpc://a b:1", "'grpc://a"}, {"a/b:1", "a/b"},
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_endpoint *endpoints = NULL;
        struct muster_error error = {0};
        size_t count = 0;

        fail_if(muster_tpu_endpoints_parse(test.env.mem, rows[i][0], &endpoints, &count, &error) !=
                        MUSTER_INVALID_ARGUMENT ||
                    strstr(error.text, rows[i][1]) == NULL,
                "%s: %s", rows[i][0], error.text);
    }
    test_env_close(&test);
}

static void the_argument_wins_then_gke_then_the_name_then_the_config(void **state)
{
    static const char config[] = "{\"tpu_node_name\":\"cfg\",\"project\":\"cp\",\"zone\":\"cz\"}";
    static const struct {
        struct muster_tpu_target_options options;
        const char *gke, *name, *config;
        enum muster_tpu_target_kind kind;
        const char *is_named, *project, *zone;
    } rows[] = {
        {{.tpu = "a"}, "10.0.0.1:1", "n", config, MUSTER_TPU_TARGET_NODE, "a", NULL, NULL},
        {{.tpu = ""},
         "10.0.0.1:1",
         "n",
         config,
         MUSTER_TPU_TARGET_ENDPOINTS,
         "10.0.0.1:1",
         NULL,
         NULL},
        {{0}, NULL, "n", config, MUSTER_TPU_TARGET_NODE, "n", NULL, NULL},
        {{.zone = "own"}, NULL, NULL, config, MUSTER_TPU_TARGET_NODE, "cfg", "cp", "own"},
        {{.tpu = "local"}, NULL, NULL, NULL, MUSTER_TPU_TARGET_LOCAL, "local", NULL, NULL},
        {{.tpu = "projects/p/locations/z/nodes/x"},
         NULL,
         NULL,
         NULL,
         MUSTER_TPU_TARGET_NODE,
         "projects/p/locations/z/nodes/x",
         "p",
         "z"},
        {{.tpu = "localhost:1", .is_tf1 = true},
         NULL,
         "n",
         NULL,
         MUSTER_TPU_TARGET_OPAQUE,
         "localhost:1",
         NULL,
         NULL},
        {{.tpu = "", .is_tf1 = true}, NULL, "n", NULL, MUSTER_TPU_TARGET_OPAQUE, "", NULL, NULL},
        {{.tpu = "localhost:1"},
         NULL,
         NULL,
         NULL,
         MUSTER_TPU_TARGET_NODE,
         "localhost:1",
         NULL,
         NULL},
    };
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct test_var list[] = {
            {rows[i].gke != NULL ? "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS" : "UNUSED_1", rows[i].gke},
            {rows[i].name != NULL ? "TPU_NAME" : "UNUSED_2", rows[i].name},
            {rows[i].config != NULL ? "TPU_CONFIG" : "UNUSED_3", rows[i].config},
            {NULL, NULL}};
        struct muster_tpu_target target;
        struct muster_error error = {0};
        struct test_vars vars;

        test_vars_init(&vars, list);
        test.env.vars = &vars.vars;
        fail_if(muster_tpu_target_init(&target, &test.env, &rows[i].options, &error) != MUSTER_OK,
                "row %zu: %s", i, error.text);
        assert_int_equal(target.kind, rows[i].kind);
        assert_string_equal(target.name, rows[i].is_named);
        assert_string_equal(target.project != NULL ? target.project : "",
                            rows[i].project != NULL ? rows[i].project : "");
        assert_string_equal(target.zone != NULL ? target.zone : "",
                            rows[i].zone != NULL ? rows[i].zone : "");
        muster_tpu_target_fini(&target);
    }
    test_env_close(&test);
}

static void what_names_no_tpu_is_told(void **state)
{
    static const struct test_var rows[][2] = {
        {{NULL, NULL}},
        {{"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", ""}, {NULL, NULL}},
        {{"TPU_CONFIG", "{}"}, {NULL, NULL}},
        {{"TPU_CONFIG", "{\"tpu_node_name\""}, {NULL, NULL}},
        {{"TPU_CONFIG", "[]"}, {NULL, NULL}},
    };
    static const struct muster_tpu_target_options none;
    struct test_env test;
    (void)state;
    test_env_open(&test);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_target target;
        struct muster_error error = {0};
        struct test_vars vars;

        test_vars_init(&vars, rows[i]);
        test.env.vars = &vars.vars;
        assert_int_equal(muster_tpu_target_init(&target, &test.env, &none, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "TPU_CONFIG"));
    }
    test_env_close(&test);
}

static void a_discovery_document_leads_to_the_node(void **state)
{
    static const char good[] =
        "{\"rootUrl\":\"https://x/\",\"servicePath\":\"s/\",\"resources\":{\"projects\":{"
        "\"resources\":{\"locations\":{\"resources\":{\"nodes\":{\"methods\":{\"get\":{\"path\":"
        "\"v2/{+name}:get\"}}}}}}}}}";
    static const char *const bad[] = {"{}", "", "{\"rootUrl\":\"https://x/\"}"};
    struct muster_error error = {0};
    struct test_env test;
    char *url = NULL;
    (void)state;
    test_env_open(&test);

    assert_int_equal(muster_tpu_discovery_parse(test.env.mem, good, strlen(good),
                                                "projects/p/locations/z/nodes/n", &url, &error),
                     MUSTER_OK);
    assert_string_equal(url, "https://x/s/v2/projects/p/locations/z/nodes/n:get");
    muster_mem_free(test.env.mem, url);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(
            muster_tpu_discovery_parse(test.env.mem, bad[i], strlen(bad[i]), "n", &url, &error),
            MUSTER_INVALID_ARGUMENT);

    url = muster_tpu_discovery_url_format(test.env.mem, "h/{api}/{apiVersion}/{api}", "v1");
    assert_string_equal(url, "h/tpu/v1/tpu");
    muster_mem_free(test.env.mem, url);
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read_to_the_second),
        cmocka_unit_test(endpoints_have_schemes_ports_and_brackets_or_not),
        cmocka_unit_test(bad_endpoints_are_named),
        cmocka_unit_test(the_argument_wins_then_gke_then_the_name_then_the_config),
        cmocka_unit_test(what_names_no_tpu_is_told),
        cmocka_unit_test(a_discovery_document_leads_to_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
