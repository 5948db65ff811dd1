/* Options behind the colon of a resolver's URI. */
#include "resolvers/core/uri_options.h"

#include "test_env.h"

#include <stdio.h>
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
    struct test_env *test = *state;
    struct muster_uri_options options;
    struct values values = {.text = "default", .number = 7};

    options.mem = test->env.mem;

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
}

static void what_is_not_named_keeps_its_default(void **state)
{
    struct test_env *test = *state;
    struct muster_uri_options options;
    struct values values = {.text = "default", .number = 7};

    options.mem = test->env.mem;

    assert_int_equal(muster_uri_options_parse(&options, "", &table, &values, NULL), MUSTER_OK);
    assert_string_equal(values.text, "default");
    assert_int_equal(values.number, 7);
    assert_null(values.common.task_type);
    muster_uri_options_fini(&options);
}

static void what_is_wrong_is_named(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *text, *culprit;
    } cases[] = {
        {"color=red", "'color'"},
        {"color=red", "number, flag"},
        {"number=0", "1 to 100"},
        {"number=101", "number must be a whole number from 1 to 100, got 101"},
        {"number=many", "number must be a whole number from 1 to 100, got many"},
        {"number=", "number must be a whole number from 1 to 100, got "},
        {"flag=maybe", "flag must be true or false, got maybe"},
        {"text", "name=value"},
        {"=x", "name=value"},
        {"text=%4", "%"},
        {"text=%00", "%"},
        {"task_id=x", "task_id must be a whole number from "},
        {"task_id=-2147483649", "-2147483648 to 2147483647"},
        {"task_id=2147483648", "-2147483648 to 2147483647"},
        {"text=a?b=c", "write %3F"},
        {"text=%", "'%' must be followed by two hexadecimal digits"},
        {"text=%g1", "'%' must be followed by"},
        {"text=% 1", "'%' must be followed by"},
        {"text=%+1", "'%' must be followed by"},
        {"text=%1g", "'%' must be followed by"},
        {"flag=", "flag must be true or false, got "},
        {"number=1&color=red",
         "there is no option 'color' (options: text, number, flag, task_type"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct muster_uri_options options = {.mem = test->env.mem};
        struct values values = {.number = 7};
        struct muster_error error = {0};

        assert_int_equal(muster_uri_options_parse(&options, cases[i].text, &table, &values, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, cases[i].culprit));
        assert_non_null(strstr(error.text, "scheme"));
        assert_true(values.number == 7 || values.number == 1);
        muster_uri_options_fini(&options);
    }
}

static void values_reach_up_to_their_limits(void **state)
{
    struct test_env *test = *state;
    static const struct {
        const char *text;
        int64_t number, task_id;
    } cases[] = {
        {"number=1", 1, -1},          {"number=100", 100, -1},
        {"task_id=0", 7, 0},          {"task_id=2147483647", 7, INT32_MAX},
        {"?number=5", 5, -1},         {"&&number=5&&", 5, -1},
        {"number=5&number=6", 6, -1}, {"task_id=1&number=2", 2, 1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct muster_uri_options options = {.mem = test->env.mem};
        struct values values = {.number = 7};

        assert_int_equal(muster_uri_options_parse(&options, cases[i].text, &table, &values, NULL),
                         MUSTER_OK);
        assert_int_equal(values.number, cases[i].number);
        assert_int_equal(values.common.has_task_id ? values.common.task_id : -1, cases[i].task_id);
        muster_uri_options_fini(&options);
        muster_uri_options_fini(&options);
    }
}

static void a_flag_is_one_of_eight_words(void **state)
{
    struct test_env *test = *state;
    static const char *const words[][2] = {
        {"false", "true"}, {"no", "yes"}, {"0", "1"}, {"False", "True"}};

    for (size_t i = 0; i < 8; i++) {
        struct muster_uri_options options = {.mem = test->env.mem};
        struct values values = {.flag = i % 2 == 0};
        char text[20];

        snprintf(text, sizeof(text), "flag=%s", words[i / 2][i % 2]);
        assert_int_equal(muster_uri_options_parse(&options, text, &table, &values, NULL),
                         MUSTER_OK);
        assert_int_equal(values.flag, i % 2 == 1);
        muster_uri_options_fini(&options);
    }
}

static void without_memory_no_option_is_read(void **state)
{
    struct test_env *test = *state;
    struct values values = {.number = 7};
    struct muster_uri_options options;
    struct muster_error error = {.text = ""};

    options.mem = test->env.mem;
    test->mem.fail_at = 1;

    assert_int_equal(muster_uri_options_parse(&options, "number=1", &table, &values, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "no memory for options");
    assert_int_equal(values.number, 7);
    muster_uri_options_fini(&options);
}

static void texts_are_decoded_in_place(void **state)
{
    static const struct {
        const char *text, *decoded; /* NULL: refused */
    } cases[] = {
        {"", ""},         {"a", "a"},      {"%41%6a%6A", "Ajj"}, {"a%20b%2Fc", "a b/c"},
        {"%2541", "%41"}, {"%ff", "\xff"}, {"%00", NULL},        {"%", NULL},
        {"%4", NULL},     {"a%4", NULL},   {"%4x", NULL},        {"%x4", NULL},
        {"% 4", NULL},    {"%-1", NULL},   {"100%25", "100%"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[20];

        strcpy(text, cases[i].text);
        assert_int_equal(muster_uri_decode(text), cases[i].decoded != NULL);
        if (cases[i].decoded != NULL)
            assert_string_equal(text, cases[i].decoded);
    }
}

static void a_stop_counts_outside_of_brackets_only(void **state)
{
    static const struct {
        const char *text, *stops;
        int at; /* -1: something is not closed */
    } cases[] = {
        {"a|b", "|", 1},        {"ab", "|", 2},
        {"", "|", 0},           {"a?b|c", "|?", 1},
        {"(a|b)|c", "|", 5},    {"((a|b)|c)|d", "|", 9},
        {"(a|b", "|", -1},      {"a)|b", "|", 2},
        {"{a|b}|c", "|", 5},    {"{{a|}|b}|c", "|", 8},
        {"{a|b", "|", -1},      {"a}|b", "|", 2},
        {"{\"}|\"}|c", "|", 6}, {"{\"\\\"}|\"}|c", "|", 8},
        {"{\"a", "|", -1},      {"{\"a\\", "|", -1},
        {"\"a|b\"", "|", 2},    {"(\"a)|b\"", "|", 4},
        {"({)}|b", "|", 4},     {"({", "|", -1},
        {"({|", "|", -1},       {"a\"b|c\"", "|", 3},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *found = muster_uri_find(cases[i].text, cases[i].stops);

        if (cases[i].at < 0)
            assert_null(found);
        else
            assert_ptr_equal(found, cases[i].text + cases[i].at);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_kind_is_read),
        CASE(what_is_not_named_keeps_its_default),
        CASE(what_is_wrong_is_named),
        CASE(values_reach_up_to_their_limits),
        CASE(a_flag_is_one_of_eight_words),
        CASE(without_memory_no_option_is_read),
        cmocka_unit_test(texts_are_decoded_in_place),
        cmocka_unit_test(a_stop_counts_outside_of_brackets_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
