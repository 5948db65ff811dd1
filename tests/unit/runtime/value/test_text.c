/* Growing text: JSON escapes, numbers, lack of memory. */
#include "assertion_count.h"
#include "secret_mem.h"
#include "test_env.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/value/text.h"

static void a_json_string_is_escaped_and_is_utf8(void **state)
{
#define BAD "\xEF\xBF\xBD"
    static const char *const rows[][2] = {
        {"", "\"\""},
        {" a~", "\" a~\""},
        {"\"\\/", "\"\\\"\\\\/\""},
        {"\n\t\r\b", "\"\\n\\t\\u000d\\u0008\""},
        {"\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\""},
        /* the first and the last character of each length */
        {"\xc2\x80\xdf\xbf", "\"\xc2\x80\xdf\xbf\""},
        {"\xe0\xa0\x80\xef\xbf\xbf", "\"\xe0\xa0\x80\xef\xbf\xbf\""},
        {"\xed\x9f\xbf\xee\x80\x80", "\"\xed\x9f\xbf\xee\x80\x80\""},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
        /* what is none */
        {"\x80x", "\"" BAD "x\""},
        {"\xbfx", "\"" BAD "x\""},
        {"\xc1\xbfx", "\"" BAD BAD "x\""},                 /* longer than needed: 2 bytes, */
        {"\xe0\x9f\xbfx", "\"" BAD BAD BAD "x\""},         /* 3 bytes, */
        {"\xf0\x8f\xbf\xbfx", "\"" BAD BAD BAD BAD "x\""}, /* 4 bytes */
        {"\xed\xa0\x80x", "\"" BAD BAD BAD "x\""},         /* a surrogate */
        {"\xf4\x90\x80\x80x", "\"" BAD BAD BAD BAD "x\""}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80x", "\"" BAD BAD BAD BAD "x\""}, /* begins no character */
        {"\xffx", "\"" BAD "x\""},
        {"\xc2x", "\"" BAD "x\""},                 /* cut after one byte, */
        {"\xe1\x80x", "\"" BAD BAD "x\""},         /* two, */
        {"\xf1\x80\x80x", "\"" BAD BAD BAD "x\""}, /* three, */
        {"\xf1\x80\x80", "\"" BAD BAD BAD "\""},   /* and at the end */
        {"\xc2\xc2\x80", "\"" BAD "\xc2\x80\""},   /* a whole one follows */
        {"\xe1\x80\xc0", "\"" BAD BAD BAD "\""},   /* the last byte begins one */
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_text text;

        muster_text_init(&text, test_env_of(state)->mem);
        muster_text_add_json(&text, rows[i][0]);
        fail_if(strcmp(text.bytes, rows[i][1]) != 0, "row %zu: %s", i, text.bytes);
        muster_text_fini(&text);
    }
}

static void numbers_have_as_many_digits_as_they_need(void **state)
{
    static const struct {
        double number;
        const char *text;
    } rows[] = {
        {0.1, "0.1"},
        {-5, "-5"},
        {5210.0, "5210"},
        {1e300, "1e+300"},
        {3.438, "3.438"},
        {1.0 / 3, "0.3333333333333333"},    /* 16 */
        {0.1 + 0.2, "0.30000000000000004"}, /* 17 */
        {123456789012345678.0, "1.2345678901234568e+17"},
        {4.9e-324, "4.94065645841247e-324"},
    };
    const double others[] = {(double)INFINITY, -(double)INFINITY, (double)NAN};
    struct muster_text text;

    muster_text_init(&text, test_env_of(state)->mem);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        muster_text_clear(&text);
        muster_text_add_json_number(&text, rows[i].number);
        assert_string_equal(text.bytes, rows[i].text);
        assert_true(strtod(text.bytes, NULL) == rows[i].number);
    }
    for (size_t i = 0; i < 3; i++) {
        muster_text_clear(&text);
        assert_string_equal(text.bytes, "");
        muster_text_add_json_number(&text, others[i]);
        assert_string_equal(text.bytes, "null");
    }
    muster_text_fini(&text);
}

/* In whatever pieces it comes. */
static void text_of_every_length_is_handed_over_whole(void **state)
{
    static const size_t lengths[] = {0, 1, 254, 255, 256, 257, 511, 512, 513, 3000};
    struct muster_env *env = test_env_of(state);
    char expected[3001];

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t j = 0; j < 3; j++) {
            struct muster_text text;
            char *bytes = NULL;
            size_t count = 99;

            memset(expected, 'a' + (int)j, lengths[i]);
            expected[lengths[i]] = '\0';
            muster_text_init(&text, env->mem);
            if (j == 0)
                muster_text_add(&text, expected, lengths[i]);
            else if (j == 1)
                muster_text_add_format(&text, "%s", expected);
            else
                for (size_t at = 0; at < lengths[i]; at++)
                    muster_text_add_string(&text, "c");
            assert_int_equal(text.count, lengths[i]);
            assert_int_equal(muster_text_take(&text, &bytes, i % 2 == 0 ? &count : NULL),
                             MUSTER_OK);
            assert_int_equal(count, i % 2 == 0 ? lengths[i] : 99);
            assert_string_equal(bytes, expected);
            assert_null(text.bytes);
            assert_int_equal(text.count, 0);
            muster_mem_free(env->mem, bytes);
            assert_int_equal(muster_text_take(&text, &bytes, NULL), MUSTER_OK); /* it is empty */
            assert_string_equal(bytes, "");
            muster_mem_free(env->mem, bytes);
        }
    }
}

static void a_cleared_text_keeps_its_memory(void **state)
{
    struct test_env *test = *state;
    size_t blocks = test->mem.block_count;
    struct muster_text text;
    uint64_t count;

    muster_text_init(&text, test->env.mem);
    muster_text_clear(&text);
    assert_null(text.bytes);
    muster_text_add_string(&text, "first");
    count = test->mem.alloc_count;
    muster_text_clear(&text);
    assert_string_equal(text.bytes, "");
    muster_text_add_string(&text, "second");
    assert_string_equal(text.bytes, "second");
    assert_int_equal(test->mem.alloc_count, count);
    muster_text_fini(&text);
    assert_null(text.bytes);
    assert_int_equal(test->mem.block_count, blocks);
}

/* A text may hold a token. */
static void what_text_has_held_is_wiped(void **state)
{
    static const char secret[] = "a bearer's token";
    struct secret_mem memory;
    struct muster_text text;

    secret_mem_init(&memory, test_env_of(state)->mem, secret, strlen(secret));
    muster_text_init(&text, &memory.mem);
    muster_text_add_string(&text, secret);
    assert_true(secret_mem_is_held(&memory));
    for (unsigned i = 0; i < 1000; i++)
        muster_text_add_format(&text, "%u", i); /* it moves */
    muster_text_fini(&text);
    assert_int_equal(memory.leaked_count, 0);
}

static void lack_of_memory_is_told_at_the_end(void **state)
{
    struct test_env *test = *state;
    struct muster_text text;
    char *bytes = NULL;
    size_t count = 0;

    for (unsigned i = 0; i < 4; i++) {
        size_t blocks = test->mem.block_count;

        muster_text_init(&text, test->env.mem);
        if (i % 2 == 1)
            muster_text_add_string(&text, "kept");
        test->mem.fail_at = 1;
        for (unsigned j = 0; j < 200 && i < 2; j++)
            muster_text_add_string(&text, "lost");
        for (unsigned j = 0; j < 200 && i >= 2; j++)
            muster_text_add_format(&text, "%s", "lost");
        assert_int_equal(test->mem.fail_at, 0);
        assert_true(text.is_failed);
        assert_int_equal(muster_text_take(&text, &bytes, &count), MUSTER_RESOURCE_EXHAUSTED);
        muster_text_add_string(&text, "lost too");
        assert_int_equal(muster_text_take(&text, &bytes, &count), MUSTER_RESOURCE_EXHAUSTED);
        assert_null(bytes);

        muster_text_clear(&text); /* as if it was new */
        muster_text_add_string(&text, "again");
        assert_string_equal(text.bytes, "again");
        muster_text_fini(&text);
        assert_int_equal(test->mem.block_count, blocks);
    }
}

static void text_that_is_too_long_for_any_memory_is_refused(void **state)
{
    struct muster_text text;
    char *bytes = NULL;

    muster_text_init(&text, test_env_of(state)->mem);
    muster_text_add(&text, "", SIZE_MAX);
    assert_true(text.is_failed);
    muster_text_clear(&text);
    muster_text_add(&text, "", SIZE_MAX / 2);
    assert_true(text.is_failed);
    muster_text_clear(&text);
    muster_text_add_format(&text, "a%ls", L"\x7fffffff"); /* the C library refuses */
    assert_true(text.is_failed);
    assert_int_equal(muster_text_take(&text, &bytes, NULL), MUSTER_RESOURCE_EXHAUSTED);
    muster_text_fini(&text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(a_json_string_is_escaped_and_is_utf8),
        CASE(numbers_have_as_many_digits_as_they_need),
        CASE(text_of_every_length_is_handed_over_whole),
        CASE(a_cleared_text_keeps_its_memory),
        CASE(what_text_has_held_is_wiped),
        CASE(lack_of_memory_is_told_at_the_end),
        CASE(text_that_is_too_long_for_any_memory_is_refused),
    };

    return cmocka_run_group_tests_name("text", cases, NULL, NULL);
}
