/* Growing text: JSON escapes, numbers, lack of memory. */
#include "assertion_count.h"
#include "test_env.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/text.h"

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

static void broken_utf8_becomes_replacement_characters(void **state)
{
    struct row {
        const char *name, *bytes, *expected;
    } rows[] = {
        {"two bytes", "\xc3\xa9", "\"\xc3\xa9\""},
        {"overlong", "\xc0\xaf", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"surrogate", "\xed\xa0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"cut", "\xf0\x9f\x98", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"four bytes", "\xf0\x9f\x98\x80", "\"\xf0\x9f\x98\x80\""},
        {"control", "\x01\x7f", "\"\\u0001\\u007f\""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_text text;

        muster_text_init(&text, env_of(state)->mem);
        muster_text_add_json(&text, rows[i].bytes);
        fail_if(strcmp(text.bytes, rows[i].expected) != 0, "%s: %s", rows[i].name, text.bytes);
        muster_text_fini(&text);
    }
}

static void numbers_read_back_exactly(void **state)
{
    const double numbers[] = {0.1, 1.0 / 3, 1e300, -5, 5210.0, 4.9e-324};
    struct muster_text text;

    muster_text_init(&text, env_of(state)->mem);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        muster_text_clear(&text);
        muster_text_add_json_number(&text, numbers[i]);
        assert_true(strtod(text.bytes, NULL) == numbers[i]);
    }
    muster_text_clear(&text);
    muster_text_add_json_number(&text, (double)INFINITY);
    assert_string_equal(text.bytes, "null");
    muster_text_fini(&text);
}

static void long_text_grows_and_is_handed_over(void **state)
{
    struct muster_env *env = env_of(state);
    struct muster_text text;
    char *bytes = NULL;
    size_t count = 0;

    muster_text_init(&text, env->mem);
    for (int i = 0; i < 1000; i++)
        muster_text_add_format(&text, "%03d", i);
    assert_int_equal(muster_text_take(&text, &bytes, &count), MUSTER_OK);

    assert_int_equal(count, 3000);
    assert_memory_equal(bytes + 2997, "999", 4);
    assert_null(text.bytes);
    muster_mem_free(env->mem, bytes);
}

static void lack_of_memory_is_told_at_the_end(void **state)
{
    struct test_env *test = *state;
    struct muster_text text;
    char *bytes = NULL;
    size_t count = 0;

    muster_text_init(&text, test->env.mem);
    test->mem.fail_at = 1;
    muster_text_add_string(&text, "lost");
    muster_text_add_string(&text, "lost too");
    assert_int_equal(muster_text_take(&text, &bytes, &count), MUSTER_RESOURCE_EXHAUSTED);
    muster_text_fini(&text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(broken_utf8_becomes_replacement_characters),
        CASE(numbers_read_back_exactly),
        CASE(long_text_grows_and_is_handed_over),
        CASE(lack_of_memory_is_told_at_the_end),
    };

    return cmocka_run_group_tests_name("text", cases, NULL, NULL);
}
