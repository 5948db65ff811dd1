/* Options behind the colon of a resolver's URI. */
#include "resolvers/uri_options.h"

#include "test_env.h"

#include <string.h>

struct values {
    struct muster_resolver_options common;
    const char *text;
    int64_t number;
    bool flag;
};

static const struct muster_uri_row rows[] = {
    {"text", MUSTER_URI_TEXT, offsetof(struct values, text), 0, 0},
    {"number", MUSTER_URI_NUMBER, offsetof(struct values, number), 1, 100},
    {"flag", MUSTER_URI_FLAG, offsetof(struct values, flag), 0, 0},
    MUSTER_URI_COMMON(struct values, common),
};
static const struct muster_uri_table table = {"scheme", rows, sizeof(rows) / sizeof(rows[0])};

static void every_kind_is_read(void **state)
{
    struct muster_uri_options options;
    struct values values = {.text = "default", .number = 7};
    struct test_env test;
    (void)state;

    test_env_open(&test);
    options.mem = test.env.mem;

    assert_int_equal(muster_uri_options_parse(&options,
                                              "text=a%26b%3D&number=42&flag=yes&task_type=w&"
                                              "task_id=3&rpc_layer=grpc&environment=",
                                              &table, &values, NULL),
                     MUSTER_OK);
    assert_string_equal(values.text, "a&b=");
    assert_int_equal(values.number, 42);
    assert_true(values.flag);
    assert_string_equal(values.common.task_type, "w");
    assert_true(values.common.has_task_id);
    assert_int_equal(values.common.task_id, 3);
    assert_string_equal(values.common.rpc_layer, "grpc");
    assert_string_equal(values.common.environment, "");
    muster_uri_options_fini(&options);
    test_env_close(&test);
}

static void what_is_not_named_keeps_its_default(void **state)
{
    struct muster_uri_options options;
    struct values values = {.text = "default", .number = 7};
    struct test_env test;
    (void)state;

    test_env_open(&test);
    options.mem = test.env.mem;

    assert_int_equal(muster_uri_options_parse(&options, "", &table, &values, NULL), MUSTER_OK);
    assert_string_equal(values.text, "default");
    assert_int_equal(values.number, 7);
    assert_null(values.common.task_type);
    muster_uri_options_fini(&options);
    test_env_close(&test);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *culprit;
    } cases[] = {
        {"color=red", "'color'"},
        {"color=red", "number, flag"},
        {"number=0", "1 to 100"},
        {"number=101", "number=101"},
        {"number=many", "number=many"},
        {"number=", "number="},
        {"flag=maybe", "flag=maybe"},
        {"text", "name=value"},
        {"=x", "name=value"},
        {"text=%4", "%"},
        {"text=%00", "%"},
        {"task_id=x", "task_id=x"},
    };
    struct test_env test;
    (void)state;

    test_env_open(&test);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct muster_uri_options options = {.mem = test.env.mem};
        struct values values = {.number = 7};
        struct muster_error error = {0};

        assert_int_equal(muster_uri_options_parse(&options, cases[i].text, &table, &values, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, cases[i].culprit));
        assert_non_null(strstr(error.text, "scheme"));
        assert_int_equal(values.number, 7);
        muster_uri_options_fini(&options);
    }
    test_env_close(&test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read),
        cmocka_unit_test(what_is_not_named_keeps_its_default),
        cmocka_unit_test(what_is_wrong_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
