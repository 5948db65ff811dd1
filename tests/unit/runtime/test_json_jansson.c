/* JSON: limits, error positions, reading, building, writing. */
#include "test_env.h"

#include <math.h>
#include <string.h>

#include <muster/json.h>

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    test_env_close(*state);
    return 0;
}

static struct muster_env *env_of(void **state)
{
    return &((struct test_env *)*state)->env;
}

static struct muster_error error;

static struct muster_json *parse(const char *text)
{
    struct muster_json *root = NULL;

    assert_int_equal(muster_json_parse(text, strlen(text), NULL, &root, &error), MUSTER_OK);
    return root;
}

static void values_are_read_by_kind(void **state)
{
    struct muster_json *root = parse("{\"a\":[1,2.5,\"x\",true,null],\"b\":{\"c\":-3}}");
    const struct muster_json *a = muster_json_get(root, "a");
    int64_t integer = 0;
    double number = 0;
    bool flag = false;

    (void)state;
    assert_int_equal(muster_json_count(a), 5);
    assert_true(muster_json_integer(muster_json_at(a, 0), &integer) && integer == 1);
    assert_true(muster_json_number(muster_json_at(a, 0), &number) && number == 1.0);
    assert_true(muster_json_number(muster_json_at(a, 1), &number) && number == 2.5);
    assert_false(muster_json_integer(muster_json_at(a, 1), &integer));
    assert_string_equal(muster_json_text(muster_json_at(a, 2)), "x");
    assert_true(muster_json_bool(muster_json_at(a, 3), &flag) && flag);
    assert_int_equal(muster_json_kind(muster_json_at(a, 4)), MUSTER_JSON_NULL);
    assert_true(muster_json_integer(muster_json_get(muster_json_get(root, "b"), "c"), &integer) &&
                integer == -3);
    muster_json_free(root);
}

static void absent_values_read_as_absent(void **state)
{
    struct muster_json *root = parse("[]");
    const struct muster_json *none = muster_json_get(muster_json_at(root, 3), "x");
    int64_t integer = 0;

    (void)state;
    assert_null(none);
    assert_null(muster_json_text(none));
    assert_false(muster_json_integer(none, &integer));
    assert_int_equal(muster_json_count(none), 0);
    muster_json_free(root);
    muster_json_free(NULL);
}

static void errors_name_line_and_column(void **state)
{
    struct muster_json *root = NULL;
    const char text[] = "{\n  \"a\": nil\n}";

    (void)state;
    assert_int_equal(muster_json_parse(text, strlen(text), NULL, &root, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_memory_equal(error.text, "line 2 column ", 14);
    assert_null(root);
    assert_int_equal(muster_json_parse("", 0, NULL, &root, &error), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_json_parse("1 2", 3, NULL, &root, &error), MUSTER_INVALID_ARGUMENT);
}

static void limits_of_size_and_depth_are_named(void **state)
{
    struct muster_json_limits limits = {.bytes_max = 10, .depth_max = 2};
    struct muster_json *root = NULL;

    (void)state;
    assert_int_equal(muster_json_parse("[1,2,3,4,5]", 11, &limits, &root, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "JSON text of 11 bytes is larger than 10");
    assert_int_equal(muster_json_parse("[[[1]]]", 7, &limits, &root, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_json_parse("[\"[[\\\"[\"]", 9, &limits, &root, &error), MUSTER_OK);
    muster_json_free(root);
}

static void deep_nesting_is_refused_by_default(void **state)
{
    static char deep[4000];
    struct muster_json *root = NULL;

    (void)state;
    memset(deep, '[', sizeof(deep));
    assert_int_equal(muster_json_parse(deep, sizeof(deep), NULL, &root, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
}

static void members_come_in_the_order_of_the_text(void **state)
{
    struct muster_json *root = parse("{\"z\":1,\"a\":2,\"m\":3}");
    struct muster_json_iter iter = {.key = NULL};
    char keys[8] = "";

    (void)state;
    while (muster_json_next(root, &iter))
        strcat(keys, iter.key);
    assert_string_equal(keys, "zam");
    muster_json_free(root);
}

static void a_built_value_is_written_in_each_style(void **state)
{
    struct muster_env *env = env_of(state);
    struct muster_json *root = muster_json_new_object();
    struct muster_json *list = muster_json_new_array();
    const char *expected[] = {"{\"n\":2,\"list\":[\"x\",null,true]}",
                              "{\n  \"n\": 2,\n  \"list\": [\n    \"x\",\n    null,\n    "
                              "true\n  ]\n}",
                              "{\"list\":[\"x\",null,true],\"n\":2}"};

    assert_int_equal(muster_json_set(root, "n", muster_json_new_integer(2)), MUSTER_OK);
    assert_int_equal(muster_json_append(list, muster_json_new_text("x")), MUSTER_OK);
    assert_int_equal(muster_json_append(list, muster_json_new_real((double)NAN)), MUSTER_OK);
    assert_int_equal(muster_json_append(list, muster_json_new_bool(true)), MUSTER_OK);
    assert_int_equal(muster_json_append(list, muster_json_new_text("\xff")),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_json_set(root, "list", list), MUSTER_OK);
    for (int style = MUSTER_JSON_LINE; style <= MUSTER_JSON_SORTED; style++) {
        char *text = NULL;
        size_t bytes = 0;

        assert_int_equal(
            muster_json_format(root, (enum muster_json_style)style, env->mem, &text, &bytes),
            MUSTER_OK);
        assert_string_equal(text, expected[style]);
        assert_int_equal(bytes, strlen(text));
        muster_mem_free(env->mem, text);
    }
    muster_json_free(root);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(values_are_read_by_kind),
        CASE(absent_values_read_as_absent),
        CASE(errors_name_line_and_column),
        CASE(limits_of_size_and_depth_are_named),
        CASE(deep_nesting_is_refused_by_default),
        CASE(members_come_in_the_order_of_the_text),
        CASE(a_built_value_is_written_in_each_style),
    };

    return cmocka_run_group_tests_name("json_jansson", cases, NULL, NULL);
}
