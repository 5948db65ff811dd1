/* JSON values: what is accepted, how it reads back. */
#include <muster/json.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct muster_json *parsed(const char *text)
{
    struct muster_json *root = NULL;

    assert_int_equal(muster_json_parse(text, strlen(text), &root, NULL), MUSTER_OK);
    return root;
}

static void members_come_in_the_order_of_the_text(void **state)
{
    struct muster_json *root = parsed(" {\"z\": 1, \"a\": [true, null, 2.5, \"t\"]}\n");
    struct muster_json_walk walk;
    (void)state;

    assert_true(muster_json_walk_first(&walk, root));
    assert_string_equal(walk.name, "z");
    assert_int_equal(muster_json_integer(walk.value), 1);
    assert_true(muster_json_walk_next(&walk));
    assert_string_equal(walk.name, "a");
    assert_int_equal(muster_json_count(walk.value), 4);
    assert_string_equal(muster_json_text(muster_json_at(walk.value, 3)), "t");
    assert_false(muster_json_walk_next(&walk));

    muster_json_free(root);
}

static void what_is_missing_reads_as_null(void **state)
{
    struct muster_json *root = parsed("[]");
    (void)state;

    assert_int_equal(muster_json_kind(muster_json_member(muster_json_at(root, 0), "x")),
                     MUSTER_JSON_NULL);
    assert_null(muster_json_text(NULL));
    assert_int_equal(muster_json_count(NULL), 0);

    muster_json_free(root);
}

static void a_name_that_is_repeated_counts_last_or_is_refused(void **state)
{
    static const char text[] = "{\"a\": [{\"b\": 1, \"b\": 2}]}";
    struct muster_json *root = parsed(text);
    struct muster_json *unique = NULL;
    struct muster_error error;
    (void)state;

    assert_int_equal(muster_json_integer(
                         muster_json_member(muster_json_at(muster_json_member(root, "a"), 0), "b")),
                     2);
    assert_int_equal(muster_json_parse_unique(text, sizeof(text) - 1, &unique, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "duplicate"));
    assert_int_equal(muster_json_parse_unique("{\"a\": 1}", 8, &unique, &error), MUSTER_OK);
    assert_int_equal(muster_json_integer(muster_json_member(unique, "a")), 1);

    muster_json_free(unique);
    muster_json_free(root);
}

static void bad_text_is_named_with_its_place(void **state)
{
    static const char *const rows[] = {"",          " ",   "{'a': 1}",
                                       "{\"a\": 1", "1 2", "{\"a\": \"\\u0000\"}"};
    struct muster_error error;
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_json *root = NULL;

        assert_int_equal(muster_json_parse(rows[i], strlen(rows[i]), &root, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "line"));
        assert_null(root);
    }
}

/* Credential files are JSON. */
static void what_stands_in_bad_text_is_not_told(void **state)
{
    static const char *const rows[] = {
        "{\"private_key\" \"secret\"}", "{\"a\": secret}", "{secret", "[\"secret\" 1]",
        "{\"a\": \"\\secret\"}",        "\"secret"};
    struct muster_error error;
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_json *root = NULL;

        assert_int_equal(muster_json_parse(rows[i], strlen(rows[i]), &root, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_null(strstr(error.text, "secret"));
        assert_non_null(strstr(error.text, "line 1"));
    }
}

static void built_values_are_written_on_one_line(void **state)
{
    struct muster_json *root = muster_json_object_new();
    struct muster_json *list = muster_json_array_new();
    char *text = NULL;
    (void)state;

    assert_true(muster_json_append(list, muster_json_integer_new(-3)));
    assert_true(muster_json_append(list, muster_json_text_new("a\"b")));
    assert_true(muster_json_append(list, muster_json_text_new(NULL)));
    assert_true(muster_json_set(root, "list", list));
    assert_false(muster_json_set(root, "real", muster_json_real_new((double)INFINITY)));
    assert_true(muster_json_set(root, "yes", muster_json_bool_new(true)));
    assert_int_equal(muster_json_format(root, false, muster_mem_system(), &text), MUSTER_OK);

    assert_string_equal(text, "{\"list\":[-3,\"a\\\"b\",null],\"yes\":true}");
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(root);
}

static void deep_nesting_is_refused_but_not_in_strings(void **state)
{
    char text[2 * MUSTER_JSON_DEPTH_MAX + 8];
    struct muster_json *root = NULL;
    struct muster_error error;
    (void)state;

    memset(text, '[', sizeof(text));
    assert_int_equal(muster_json_parse(text, MUSTER_JSON_DEPTH_MAX + 1, &root, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "JSON is nested deeper than 64");
    text[0] = text[sizeof(text) - 1] = '"';
    text[1] = '\\';
    text[2] = '"';
    assert_int_equal(muster_json_parse(text, sizeof(text), &root, &error), MUSTER_OK);

    muster_json_free(root);
}

static void the_deepest_allowed_nesting_is_read(void **state)
{
    char text[2 * MUSTER_JSON_DEPTH_MAX + 1] = "";
    (void)state;

    memset(text, '[', MUSTER_JSON_DEPTH_MAX);
    memset(text + MUSTER_JSON_DEPTH_MAX, ']', MUSTER_JSON_DEPTH_MAX);
    muster_json_free(parsed(text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_in_the_order_of_the_text),
        cmocka_unit_test(what_is_missing_reads_as_null),
        cmocka_unit_test(a_name_that_is_repeated_counts_last_or_is_refused),
        cmocka_unit_test(bad_text_is_named_with_its_place),
        cmocka_unit_test(what_stands_in_bad_text_is_not_told),
        cmocka_unit_test(deep_nesting_is_refused_but_not_in_strings),
        cmocka_unit_test(the_deepest_allowed_nesting_is_read),
        cmocka_unit_test(built_values_are_written_on_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
