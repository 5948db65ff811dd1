/* JSON values: what is accepted, how it reads back. */
#include <muster/json.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static struct muster_json *parse_json(const char *text)
{
    struct muster_json *root = NULL;

    assert_int_equal(muster_json_parse(text, strlen(text), &root, NULL), MUSTER_OK);
    return root;
}

static void members_come_in_the_order_of_the_text(void **state)
{
    struct muster_json *root = parse_json(" {\"z\": 1, \"a\": [true, null, 2.5, \"t\"]}\n");
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
    struct muster_json *root = parse_json("[]");
    struct muster_json_walk walk;
    (void)state;

    assert_int_equal(muster_json_kind(muster_json_member(muster_json_at(root, 0), "x")),
                     MUSTER_JSON_NULL);
    assert_null(muster_json_text(NULL));
    assert_int_equal(muster_json_count(NULL), 0);
    assert_int_equal(muster_json_integer(NULL), 0);
    assert_true(muster_json_number(NULL) == 0);
    assert_false(muster_json_is_true(NULL));
    assert_string_equal(muster_json_kind_name(NULL), "null");
    assert_false(muster_json_walk_first(&walk, root));
    assert_false(muster_json_walk_first(&walk, NULL));

    muster_json_free(root);
}

static void a_name_that_is_repeated_counts_last_or_is_refused(void **state)
{
    static const char text[] = "{\"a\": [{\"b\": 1, \"b\": 2}]}";
    struct muster_json *root = parse_json(text);
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

/* A value of every kind, as text and as it reads back. */
static void every_kind_of_value_reads_back(void **state)
{
    static const struct {
        const char *text;
        enum muster_json_kind kind;
        const char *kind_name;
        int64_t integer;
        double number;
        const char *string;
        size_t count;
        bool is_true;
    } rows[] = {
        {"null", MUSTER_JSON_NULL, "null", 0, 0, NULL, 0, false},
        {"true", MUSTER_JSON_BOOL, "true or false", 0, 0, NULL, 0, true},
        {"false", MUSTER_JSON_BOOL, "true or false", 0, 0, NULL, 0, false},
        {"-3", MUSTER_JSON_INTEGER, "number", -3, -3, NULL, 0, false},
        {"2.5", MUSTER_JSON_REAL, "number", 0, 2.5, NULL, 0, false},
        {"\"t\"", MUSTER_JSON_TEXT, "text", 0, 0, "t", 0, false},
        {"[1,2,3]", MUSTER_JSON_ARRAY, "list", 0, 0, NULL, 3, false},
        {"{\"a\":1,\"b\":2}", MUSTER_JSON_OBJECT, "object", 0, 0, NULL, 2, false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_json *value = parse_json(rows[i].text);
        char *text = NULL;

        assert_int_equal(muster_json_kind(value), rows[i].kind);
        assert_string_equal(muster_json_kind_name(value), rows[i].kind_name);
        assert_int_equal(muster_json_integer(value), rows[i].integer);
        assert_true(muster_json_number(value) == rows[i].number);
        assert_int_equal(muster_json_text(value) != NULL, rows[i].string != NULL);
        if (rows[i].string != NULL)
            assert_string_equal(muster_json_text(value), rows[i].string);
        assert_int_equal(muster_json_count(value), rows[i].count);
        assert_int_equal(muster_json_is_true(value), rows[i].is_true);
        assert_int_equal(muster_json_format(value, false, muster_mem_system(), &text), MUSTER_OK);
        assert_string_equal(text, rows[i].text);
        muster_mem_free(muster_mem_system(), text);
        muster_json_free(value);
    }
}

static struct muster_json *built_values(void)
{
    struct muster_json *root = muster_json_object_new();
    struct muster_json *list = muster_json_array_new();

    assert_true(muster_json_append(list, muster_json_integer_new(-3)));
    assert_true(muster_json_append(list, muster_json_text_new("a\"b")));
    assert_true(muster_json_append(list, muster_json_text_new(NULL)));
    assert_true(muster_json_set(root, "list", list));
    assert_false(muster_json_set(root, "real", muster_json_real_new((double)INFINITY)));
    assert_false(muster_json_append(list, NULL));
    assert_false(muster_json_append(NULL, muster_json_null_new()));
    assert_false(muster_json_set(NULL, "x", muster_json_null_new()));
    assert_true(muster_json_set(root, "yes", muster_json_bool_new(true)));
    assert_true(muster_json_set(root, "no", muster_json_bool_new(false)));
    assert_true(muster_json_set(root, "none", muster_json_null_new()));
    assert_true(muster_json_set(root, "empty", muster_json_array_new()));
    assert_true(muster_json_set(root, "bare", muster_json_object_new()));
    list = muster_json_array_new();
    assert_true(muster_json_append(list, muster_json_object_new()));
    assert_true(muster_json_append(list, muster_json_array_new()));
    assert_true(muster_json_set(root, "inner", list));
    return root;
}

static void built_values_are_written_on_one_line_or_indented(void **state)
{
    static const char *const expected[] = {
        "{\"list\":[-3,\"a\\\"b\",null],\"yes\":true,\"no\":false,\"none\":null,\"empty\":[],"
        "\"bare\":{},\"inner\":[{},[]]}",
        "{\n  \"list\": [\n    -3,\n    \"a\\\"b\",\n    null\n  ],\n  \"yes\": true,\n"
        "  \"no\": false,\n  \"none\": null,\n  \"empty\": [],\n  \"bare\": {},\n"
        "  \"inner\": [\n    {},\n    []\n  ]\n}"};
    struct muster_json *root = built_values();
    (void)state;

    for (unsigned is_pretty = 0; is_pretty < 2; is_pretty++) {
        char *text = NULL;

        assert_int_equal(muster_json_format(root, is_pretty != 0, muster_mem_system(), &text),
                         MUSTER_OK);
        assert_string_equal(text, expected[is_pretty]);
        muster_mem_free(muster_mem_system(), text);
    }
    muster_json_free(root);
    muster_json_free(NULL);
}

static void a_list_in_a_list_is_indented_by_its_depth(void **state)
{
    struct muster_json *root = parse_json("[[[1,2]],[{\"a\":{\"b\":[3]}}]]");
    char *text = NULL;
    (void)state;

    assert_int_equal(muster_json_format(root, true, muster_mem_system(), &text), MUSTER_OK);
    assert_string_equal(text, "[\n  [\n    [\n      1,\n      2\n    ]\n  ],\n"
                              "  [\n    {\n      \"a\": {\n        \"b\": [\n"
                              "          3\n        ]\n      }\n    }\n  ]\n]");
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(root);
}

/* A real number stays one for who reads it. */
static void real_numbers_are_written_as_such(void **state)
{
    static const struct {
        double number;
        const char *text;
    } rows[] = {
        {3, "3.0"},       {-0.5, "-0.5"},        {0, "0.0"}, {1e22, "1e+22"}, {1e-7, "1e-07"},
        {3.438, "3.438"}, {1.5e300, "1.5e+300"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_json *value = muster_json_real_new(rows[i].number);
        char *text = NULL;

        assert_int_equal(muster_json_format(value, false, muster_mem_system(), &text), MUSTER_OK);
        assert_string_equal(text, rows[i].text);
        muster_mem_free(muster_mem_system(), text);
        muster_json_free(value);
    }
    assert_null(muster_json_real_new((double)NAN));
    assert_null(muster_json_real_new(-(double)INFINITY));
}

static char around_block[512], *const only_block = around_block + 128;

static void *take_only_block(struct muster_mem *mem, void *old, size_t bytes)
{
    (void)mem;
    assert_true(old == NULL || old == only_block);
    assert_true(bytes <= 256);
    return bytes > 0 ? only_block : NULL;
}

/* Around the number there may be anything: an e that lies there is not an exponent. */
static void only_the_number_itself_is_looked_at(void **state)
{
    static const struct muster_mem_ops ops = {take_only_block};
    struct muster_mem mem = {&ops};
    struct muster_json *root = muster_json_array_new();
    char *text = NULL;
    (void)state;

    memset(around_block, 'e', sizeof(around_block));
    assert_true(muster_json_append(root, muster_json_real_new(3)));
    assert_int_equal(muster_json_format(root, false, &mem, &text), MUSTER_OK);
    assert_string_equal(text, "[3.0]");
    muster_mem_free(&mem, text);
    muster_json_free(root);
}

static void what_cannot_be_written_is_told(void **state)
{
    struct muster_json *value = muster_json_real_new(3);
    struct muster_mem_limited mem;
    char *text = NULL;
    (void)state;

    muster_mem_limited_init(&mem, muster_mem_system(), 1);
    assert_int_equal(muster_json_format(value, false, &mem.mem, &text), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_json_format(NULL, false, &mem.mem, &text), MUSTER_RESOURCE_EXHAUSTED);
    assert_null(text);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    muster_json_free(value);
}

static void a_text_that_cannot_grow_is_freed(void **state)
{
    struct muster_json *value = muster_json_array_new();
    struct muster_mem_limited mem;
    char *text = NULL;
    (void)state;

    for (int64_t i = 0; i < 100; i++)
        assert_true(muster_json_append(value, muster_json_integer_new(1000000 + i)));
    muster_mem_limited_init(&mem, muster_mem_system(), 400);
    assert_int_equal(muster_json_format(value, false, &mem.mem, &text), MUSTER_RESOURCE_EXHAUSTED);
    assert_null(text);
    assert_int_equal(muster_mem_limited_fini(&mem), 0);
    muster_json_free(value);
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
    memset(text, '{', sizeof(text));
    assert_int_equal(muster_json_parse(text, MUSTER_JSON_DEPTH_MAX + 1, &root, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    memset(text, '[', sizeof(text));
    text[0] = text[sizeof(text) - 1] = '"';
    text[1] = '\\';
    text[2] = '"';
    assert_int_equal(muster_json_parse(text, sizeof(text), &root, &error), MUSTER_OK);

    muster_json_free(root);
}

static void the_deepest_allowed_nesting_is_read(void **state)
{
    static const char *const pairs[] = {"[]", "{}"};
    char text[16 * MUSTER_JSON_DEPTH_MAX];
    (void)state;

    for (size_t i = 0; i < 2; i++) { /* and beside each other, once more so deep */
        char *at = text;

        *at++ = '[';
        for (unsigned twice = 0; twice < 2; twice++) {
            for (unsigned depth = 1; depth < MUSTER_JSON_DEPTH_MAX; depth++) {
                *at++ = pairs[i][0];
                if (i == 1 && depth < MUSTER_JSON_DEPTH_MAX - 1)
                    at = stpcpy(at, "\"]\":");
            }
            for (unsigned depth = 1; depth < MUSTER_JSON_DEPTH_MAX; depth++)
                *at++ = pairs[i][1];
            *at++ = twice == 0 ? ',' : ']';
        }
        *at = '\0';
        muster_json_free(parse_json(text));
    }
}

static void brackets_in_strings_do_not_close(void **state)
{
    char text[5 * (MUSTER_JSON_DEPTH_MAX + 1) + 1], *at = text;
    struct muster_json *root = NULL;
    (void)state;

    for (unsigned i = 0; i <= MUSTER_JSON_DEPTH_MAX; i++)
        at = stpcpy(at, "[\"]\",");
    assert_int_equal(muster_json_parse(text, (size_t)(at - text), &root, NULL),
                     MUSTER_RESOURCE_EXHAUSTED);
}

/* A bracket that closes nothing does not make up for one that opens. */
static void depth_is_counted_from_the_ground(void **state)
{
    char text[MUSTER_JSON_DEPTH_MAX + 8] = "]]]";
    struct muster_json *root = NULL;
    (void)state;

    memset(text + 3, '[', MUSTER_JSON_DEPTH_MAX + 1);
    assert_int_equal(muster_json_parse(text, MUSTER_JSON_DEPTH_MAX + 4, &root, NULL),
                     MUSTER_RESOURCE_EXHAUSTED);
}

static void the_size_is_bounded_to_the_byte(void **state)
{
    char *text = muster_mem_alloc(muster_mem_system(), MUSTER_JSON_BYTES_MAX + 1);
    struct muster_json *root = NULL;
    struct muster_error error;
    (void)state;

    memset(text, ' ', MUSTER_JSON_BYTES_MAX + 1);
    text[0] = '1';
    assert_int_equal(muster_json_parse(text, MUSTER_JSON_BYTES_MAX, &root, &error), MUSTER_OK);
    muster_json_free(root);
    assert_int_equal(muster_json_parse(text, MUSTER_JSON_BYTES_MAX + 1, &root, &error),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_string_equal(error.text, "JSON of 16777217 bytes is larger than 16777216");
    muster_mem_free(muster_mem_system(), text);
}

static size_t malloc_left;

static void *malloc_some(size_t bytes)
{
    if (malloc_left == 0)
        return NULL;
    malloc_left--;
    return malloc(bytes);
}

/* Jansson says so of most allocations, and of the others that the text is wrong. */
static void lack_of_memory_is_told_from_bad_text(void **state)
{
    static const char text[] = "[1, \"text\", 2.5, {}]";
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;
    struct muster_json *root = NULL;
    struct muster_error error;
    unsigned told = 0, refused = 0;
    (void)state;

    for (size_t left = 0; rc != MUSTER_OK; left++) {
        malloc_left = left;
        json_set_alloc_funcs(malloc_some, free);
        rc = muster_json_parse(text, strlen(text), &root, &error);
        json_set_alloc_funcs(malloc, free);
        refused += rc != MUSTER_OK;
        told += rc == MUSTER_RESOURCE_EXHAUSTED;
        if (rc == MUSTER_RESOURCE_EXHAUSTED)
            assert_string_equal(error.text, "no memory to parse JSON");
        assert_true((root == NULL) == (rc != MUSTER_OK));
    }
    assert_true(refused > 5 && told > refused / 2);
    muster_json_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_in_the_order_of_the_text),
        cmocka_unit_test(what_is_missing_reads_as_null),
        cmocka_unit_test(every_kind_of_value_reads_back),
        cmocka_unit_test(a_name_that_is_repeated_counts_last_or_is_refused),
        cmocka_unit_test(bad_text_is_named_with_its_place),
        cmocka_unit_test(what_stands_in_bad_text_is_not_told),
        cmocka_unit_test(deep_nesting_is_refused_but_not_in_strings),
        cmocka_unit_test(the_deepest_allowed_nesting_is_read),
        cmocka_unit_test(brackets_in_strings_do_not_close),
        cmocka_unit_test(depth_is_counted_from_the_ground),
        cmocka_unit_test(the_size_is_bounded_to_the_byte),
        cmocka_unit_test(lack_of_memory_is_told_from_bad_text),
        cmocka_unit_test(built_values_are_written_on_one_line_or_indented),
        cmocka_unit_test(a_list_in_a_list_is_indented_by_its_depth),
        cmocka_unit_test(real_numbers_are_written_as_such),
        cmocka_unit_test(only_the_number_itself_is_looked_at),
        cmocka_unit_test(what_cannot_be_written_is_told),
        cmocka_unit_test(a_text_that_cannot_grow_is_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
