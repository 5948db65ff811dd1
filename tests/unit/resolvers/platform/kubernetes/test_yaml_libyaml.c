/* YAML as JSON values: what becomes what, and what is refused. */
#include "resolvers/platform/kubernetes/yaml.h"

#include "careful_mem.h"
#include "test_env.h"

#include <dlfcn.h>
#include <string.h>
#include <yaml.h>

static bool is_without_memory; /* for libyaml */

/* Stands before the library's, which takes its memory from malloc. */
int yaml_parser_initialize(yaml_parser_t *parser)
{
    int (*initialize)(yaml_parser_t *) = NULL;

    if (is_without_memory)
        return 0;
    *(void **)&initialize = dlsym(RTLD_NEXT, "yaml_parser_initialize");
    return initialize(parser);
}

static struct muster_json *parse_yaml(const char *text)
{
    struct muster_json *root = NULL;
    struct muster_error error = {0};

    if (muster_yaml_parse(text, strlen(text), &root, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return root;
}

static void mappings_and_sequences_keep_their_order(void **state)
{
    struct muster_json *root = parse_yaml("b: 1\na:\n- x\n- {k: v, l: [1, 2]}\n");
    char *text = NULL;
    (void)state;

    assert_int_equal(muster_json_format(root, false, careful_mem(), &text), MUSTER_OK);

    assert_string_equal(text, "{\"b\":\"1\",\"a\":[\"x\",{\"k\":\"v\",\"l\":[\"1\",\"2\"]}]}");
    muster_mem_free(careful_mem(), text);
    muster_json_free(root);
}

static void plain_words_become_values_and_quoted_ones_stay_text(void **state)
{
    struct muster_json *root =
        parse_yaml("[null, ~, true, False, 007, 1.5, yes, \"true\", 'null', \"\"]");
    static const enum muster_json_kind kinds[] = {
        MUSTER_JSON_NULL, MUSTER_JSON_NULL, MUSTER_JSON_BOOL, MUSTER_JSON_BOOL, MUSTER_JSON_TEXT,
        MUSTER_JSON_TEXT, MUSTER_JSON_TEXT, MUSTER_JSON_TEXT, MUSTER_JSON_TEXT, MUSTER_JSON_TEXT};
    (void)state;

    assert_int_equal(muster_json_count(root), sizeof(kinds) / sizeof(kinds[0]));
    for (size_t i = 0; i < muster_json_count(root); i++)
        assert_int_equal(muster_json_kind(muster_json_at(root, i)), kinds[i]);
    assert_true(muster_json_is_true(muster_json_at(root, 2)));
    assert_string_equal(muster_json_text(muster_json_at(root, 4)), "007");
    muster_json_free(root);
}

static void json_is_yaml_and_nothing_is_null(void **state)
{
    struct muster_json *root = parse_yaml("{\"a\": {\"b\": [true, \"x\\u00e9\"]}}");
    const struct muster_json *list = muster_json_member(muster_json_member(root, "a"), "b");
    (void)state;

    assert_string_equal(muster_json_text(muster_json_at(list, 1)), "x\xc3\xa9");
    muster_json_free(root);
    root = parse_yaml("# only a comment\n");
    assert_int_equal(muster_json_kind(root), MUSTER_JSON_NULL);
    muster_json_free(root);
}

static void what_is_refused_is_named_with_its_place(void **state)
{
    static const struct {
        const char *yaml;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {"a: [1, 2", MUSTER_INVALID_ARGUMENT, "line 2"},
        {"a: 1\n b: 2\n", MUSTER_INVALID_ARGUMENT, "line 2"},
        {"a: &x 1\nb: *x\n", MUSTER_INVALID_ARGUMENT, "line 2, column 4: an alias"},
        {"[1]: 2\n", MUSTER_INVALID_ARGUMENT, "not a scalar"},
        {"a: 1\n---\nb: 2\n", MUSTER_INVALID_ARGUMENT, "second document"},
        {"a: \"x\\0y\"\n", MUSTER_INVALID_ARGUMENT, "NUL"},
        {"a: \xff\xfe\n", MUSTER_INVALID_ARGUMENT, "YAML"},
        {"- - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - - "
         "- - "
         "- - - - - - - - - - - - - - - - - - - - - x\n",
         MUSTER_RESOURCE_EXHAUSTED, "64 levels"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_json *root = NULL;
        struct muster_error error = {0};

        if (muster_yaml_parse(rows[i].yaml, strlen(rows[i].yaml), &root, &error) != rows[i].rc ||
            strstr(error.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s", i, error.text);
        assert_null(root);
    }
}

static void without_memory_nothing_is_parsed(void **state)
{
    struct muster_json *root = NULL;
    struct muster_error error = {0};
    (void)state;

    is_without_memory = true;
    assert_int_equal(muster_yaml_parse("a: 1", 4, &root, &error), MUSTER_RESOURCE_EXHAUSTED);
    is_without_memory = false;
    assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_null(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mappings_and_sequences_keep_their_order),
        cmocka_unit_test(plain_words_become_values_and_quoted_ones_stay_text),
        cmocka_unit_test(json_is_yaml_and_nothing_is_null),
        cmocka_unit_test(what_is_refused_is_named_with_its_place),
        cmocka_unit_test(without_memory_nothing_is_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
