/* Endpoints, times and discovery documents of Cloud TPU. */
#include "resolvers/spec/task_address.h"
#include "resolvers/platform/tpu/text.h"

#include "assertion_count.h"
#include "test_env.h"
#include "torture.h"

#include <stdio.h>
#include <string.h>

static void times_are_read_to_the_second(void **state)
{
    static const struct {
        const char *text;
        uint64_t seconds;
    } rows[] = {
        {"1970-01-01T00:00:00", 0},
        {"1970-02-28T23:59:59", 5097599},
        {"1970-03-01T00:00:00", 5097600},
        {"1972-02-29T12:00:00", 68212800},
        {"1999-12-31T23:59:59", 946684799},
        {"2000-01-01T00:00:00", 946684800},
        {"2000-02-29T00:00:00", 951782400},
        {"2000-12-31T01:02:03", 978224523},
        {"2001-01-01T00:00:00", 978307200},
        {"2023-01-15T06:07:08", 1673762828},
        {"2023-02-15T06:07:08", 1676441228},
        {"2023-03-15T06:07:08", 1678860428},
        {"2023-04-15T06:07:08", 1681538828},
        {"2023-05-15T06:07:08", 1684130828},
        {"2023-06-15T06:07:08", 1686809228},
        {"2023-07-15T06:07:08", 1689401228},
        {"2023-08-15T06:07:08", 1692079628},
        {"2023-09-15T06:07:08", 1694758028},
        {"2023-10-15T06:07:08", 1697350028},
        {"2023-11-15T06:07:08", 1700028428},
        {"2023-12-15T06:07:08", 1702620428},
        {"2024-02-29T23:59:59", 1709251199},
        {"2099-12-31T23:59:59", 4102444799},
        {"2100-02-28T00:00:00", 4107456000},
        {"2100-03-01T00:00:00", 4107542400},
        {"2399-12-31T00:00:00", 13569379200},
        {"2400-02-29T00:00:00", 13574563200},
        {"2400-03-01T09:08:07", 13574682487},
        {"2024-05-01T10:00:00.123Z", 1714557600},
        {"2016-12-31T23:59:60Z", 1483228800}, /* a leap second */
        {"2000-03-01T00:00:01.9", 951868801},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t ns = 7;

        assert_true(muster_tpu_time_parse(rows[i].text, &ns));
        fail_if(ns != rows[i].seconds * MUSTER_NS_PER_S, "%s: %llu", rows[i].text,
                (unsigned long long)ns);
    }
}

static void what_is_no_time_is_told(void **state)
{
    static const char *const rows[] = {
        "1969-12-31T23:59:59", "2024-00-01T00:00:00",
        "2024-13-01T00:00:00", "2024-01-00T00:00:00",
        "2024-01-32T00:00:00", "2024-01-01T24:00:00",
        "2024-01-01T00:60:00", "2024-01-01T00:00:61",
        "2024-05-01 10:00:00", "2024-05-01T1:00:00",
        "2024:05-01T10:00:00", "2024-05-01T10-00:00",
        "2024-05-01T10:00:0",  "2024-05-01T10:00:",
        "2024-05-01T10:00:xx", "2024",
        "-024-05-01T10:00:00", "",
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t ns = 7;

        fail_if(muster_tpu_time_parse(rows[i], &ns), "%s was taken", rows[i]);
        assert_int_equal(ns, 7);
    }
}

static void endpoints_have_schemes_ports_and_brackets_or_not(void **state)
{
    struct test_env *test = *state;
    static const char list[] = "grpc://10.0.0.1:8471,10.0.0.2,grpc://[fd00::1]:9,fd00::2,host.x:1,"
                               "[fd00::3],b:65535,c:010,";
    static const struct {
        const char *host;
        uint16_t port;
        const char *text;
    } expected[] = {{"10.0.0.1", 8471, "10.0.0.1:8471"},
                    {"10.0.0.2", 8470, "10.0.0.2:8470"},
                    {"fd00::1", 9, "[fd00::1]:9"},
                    {"fd00::2", 8470, "[fd00::2]:8470"},
                    {"host.x", 1, "host.x:1"},
                    {"fd00::3", 8470, "[fd00::3]:8470"},
                    {"b", 65535, "b:65535"},
                    {"c", 10, "c:10"}};
    struct muster_tpu_endpoint *endpoints = NULL;
    struct muster_error error = {0};
    size_t count = 0;
    char text[300];

    assert_int_equal(muster_tpu_endpoints_parse(test->env.mem, list, &endpoints, &count, &error),
                     MUSTER_OK);

    assert_int_equal(count, 8);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(endpoints[i].host, expected[i].host);
        assert_int_equal(endpoints[i].port, expected[i].port);
        assert_true(
            muster_task_address_format(endpoints[i].host, endpoints[i].port, sizeof(text), text));
        assert_string_equal(text, expected[i].text);
    }
    muster_mem_free(test->env.mem, endpoints);
}

#define A80 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void bad_endpoints_are_named(void **state)
{
    struct test_env *test = *state;
    static const char *const rows[][2] = {
        {"grpc://", "grpc://"},
        {"", ""},
        {"10.0.0.1:", "10.0.0.1:"},
        {"a:70000", "a:70000"},
        {"a:65536", "a:65536"},
        {"a:0", "a:0"},
        {"a:+1", "a:+1"},
        {"a: 1", "a: 1"},
        {"a:1x", "a:1x"},
        {"a:1,,b:2", ""},
        {"[fd00::1", "[fd00::1"},
        {"[fd00::1]9", "[fd00::1]9"},
        {"[fd00::1]:x", "[fd00::1]:x"},
        {"[]:1", "[]:1"},
        {"a:1,b:x,c", "b:x"},
        {"a:1,b:2,c:", "c:"},
        {"grpc://a b:1", "grpc://a b:1"},
        {"http://a:1", "http://a:1"},
        {"grpc:/xa:1", "grpc:/xa:1"},
        {"a/b:1", "a/b:1"},
        {"a:1," A80 "/x", A80},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tpu_endpoint *endpoints = NULL;
        struct muster_error error = {0};
        size_t count = 7;
        char expected[160];

        snprintf(expected, sizeof(expected),
                 "'%s' is not a TPU endpoint of the form grpc://host:port", rows[i][1]);
        assert_int_equal(
            muster_tpu_endpoints_parse(test->env.mem, rows[i][0], &endpoints, &count, &error),
            MUSTER_INVALID_ARGUMENT);
        assert_string_equal(error.text, expected);
        assert_null(endpoints);
        assert_int_equal(count, 7);
    }
}

static void a_host_has_at_most_255_characters(void **state)
{
    struct test_env *test = *state;
    struct muster_tpu_endpoint *endpoints = NULL;
    size_t count = 0;
    char text[258];

    memset(text, 'a', sizeof(text));

    text[256] = '\0';
    assert_int_equal(muster_tpu_endpoints_parse(test->env.mem, text, &endpoints, &count, NULL),
                     MUSTER_INVALID_ARGUMENT);
    text[255] = '\0';
    assert_int_equal(muster_tpu_endpoints_parse(test->env.mem, text, &endpoints, &count, NULL),
                     MUSTER_OK);
    assert_int_equal(strlen(endpoints[0].host), 255);
    muster_mem_free(test->env.mem, endpoints);
}

#define GET(path)                                                                                  \
    "\"resources\":{\"projects\":{\"resources\":{\"locations\":{\"resources\":{\"nodes\":{"        \
    "\"methods\":{\"get\":{\"path\":" path "}}}}}}}}"

static void a_discovery_document_leads_to_the_node(void **state)
{
    struct test_env *test = *state;
    static const char lacks[] = "the discovery document of the TPU API names no rootUrl or no "
                                "projects.locations.nodes.get";
    static const struct {
        const char *text, *url, *error; /* one of the two */

    } rows[] = {
        {"{\"rootUrl\":\"https://x/\",\"servicePath\":\"s/\"," GET("\"v2/{+name}:get\"") "}",
         "https://x/s/v2/p/n:get", NULL},
        {"{\"rootUrl\":\"https://x/\"," GET("\"{+name}/{+name}\"") "}", "https://x/p/n/p/n", NULL},
        {"{\"rootUrl\":\"https://x/\",\"servicePath\":7," GET("\"{+name}\"") "}", "https://x/p/n",
         NULL},
        {"{\"rootUrl\":\"https://x/\"," GET("\"v2/{name}\"") "}", NULL, lacks},
        {"{\"rootUrl\":\"https://x/\"," GET("7") "}", NULL, lacks},
        {"{" GET("\"{+name}\"") "}", NULL, lacks},
        {"{\"rootUrl\":\"https://x/\"}", NULL, lacks},
        {"{}", NULL, lacks},
        {"[]", NULL, lacks},
        {"", NULL, "the discovery document of the TPU API: "},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.text = ""};
        char *url = NULL;
        enum muster_rc rc = muster_tpu_discovery_parse(test->env.mem, rows[i].text,
                                                       strlen(rows[i].text), "p/n", &url, &error);

        assert_int_equal(rc, rows[i].url != NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
        if (rows[i].url != NULL)
            assert_string_equal(url, rows[i].url);
        else
            assert_memory_equal(error.text, rows[i].error, strlen(rows[i].error));
        muster_mem_free(test->env.mem, url);
    }
}

static void a_discovery_url_has_places_for_api_and_version(void **state)
{
    struct test_env *test = *state;
    static const char *const rows[][2] = {{"h/{api}/{apiVersion}/{api}", "h/tpu/v1/tpu"},
                                          {"h", "h"},
                                          {"", ""},
                                          {"{apiVersion}", "v1"}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *url = muster_tpu_discovery_url_format(test->env.mem, rows[i][0], "v1");

        assert_string_equal(url, rows[i][1]);
        muster_mem_free(test->env.mem, url);
    }
}

static void parse_all(struct torture *torture, const void *data)
{
    static const char document[] = "{\"rootUrl\":\"r/\"," GET("\"{+name}\"") "}";
    struct muster_tpu_endpoint *endpoints = NULL;
    struct muster_error error = {.rc = MUSTER_OK}, bad = {.rc = MUSTER_OK};
    struct test_env test;
    char *url, *found = NULL;
    size_t count = 0;
    (void)data;
    test_env_open(&test);

    torture_arm_limited(torture, &test.mem);
    if (muster_tpu_endpoints_parse(test.env.mem, "a:1,b", &endpoints, &count, &error) == MUSTER_OK)
        assert_int_equal(endpoints[1].port, 8470);
    url = muster_tpu_discovery_url_format(test.env.mem, "{api}/{apiVersion}", "v1");
    if (url != NULL)
        assert_string_equal(url, "tpu/v1");
    if (muster_tpu_discovery_parse(test.env.mem, document, sizeof(document) - 1, "n", &found,
                                   &bad) == MUSTER_OK)
        assert_string_equal(found, "r/n");
    torture_disarm(torture);

    assert_int_equal(error.rc, endpoints != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(bad.rc, found != NULL ? MUSTER_OK : MUSTER_RESOURCE_EXHAUSTED);
    assert_true(torture->refused == 0 || endpoints == NULL || url == NULL || found == NULL);
    muster_mem_free(test.env.mem, endpoints);
    muster_mem_free(test.env.mem, url);
    muster_mem_free(test.env.mem, found);
    test_env_close(&test);
}

static void without_memory_nothing_is_parsed_in_part(void **state)
{
    static const struct torture_scenario scenario = {.name = "parse", .run = parse_all};
    (void)state;

    torture_run(&scenario);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read_to_the_second),
        cmocka_unit_test(what_is_no_time_is_told),
        CASE(endpoints_have_schemes_ports_and_brackets_or_not),
        CASE(bad_endpoints_are_named),
        CASE(a_host_has_at_most_255_characters),
        CASE(a_discovery_document_leads_to_the_node),
        CASE(a_discovery_url_has_places_for_api_and_version),
        cmocka_unit_test(without_memory_nothing_is_parsed_in_part),
    };
    return cmocka_run_group_tests(tests, NULL, torture_tell);
}
