/* JSON for handlers of signals: numbers, escapes, broken UTF-8, and a buffer that is too small. */
#include "runtime/report/trace_text.h"

#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

static void check_quoted(const char *more, const char *expected)
{
    char bytes[64];
    struct muster_trace_text text = {.bytes = bytes, .room = sizeof(bytes)};

    muster_trace_text_add_quoted(&text, more);
    fail_if(text.length != strlen(expected) || memcmp(bytes, expected, text.length) != 0,
            "got %.*s instead of %s", (int)text.length, bytes, expected);
}

static void quoted_text_is_json(void **state)
{
    static const struct {
        const char *more, *expected;
    } rows[] = {
        {"", "\"\""},
        {"a b~\x7f", "\"a b~\x7f\""},
        {"\"\\", "\"\\\"\\\\\""},
        {"\x01\x09\x0a\x1f", "\"\\u0001\\u0009\\u000a\\u001f\""},
        {NULL, "null"},
        /* the first and the last character of each length */
        {"\xc2\x80\xdf\xbf", "\"\xc2\x80\xdf\xbf\""},
        {"\xe0\xa0\x80\xef\xbf\xbf", "\"\xe0\xa0\x80\xef\xbf\xbf\""},
        {"\xed\x9f\xbf\xee\x80\x80", "\"\xed\x9f\xbf\xee\x80\x80\""},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_quoted(rows[i].more, rows[i].expected);
}

static void bytes_that_are_not_utf8_become_question_marks(void **state)
{
    static const struct {
        const char *more, *expected;
    } rows[] = {
        {"\x80x", "\"?x\""},                /* continues nothing */
        {"\xc1\xbfx", "\"??x\""},           /* longer than needed: 2 bytes, */
        {"\xe0\x9f\xbfx", "\"???x\""},      /* 3 bytes, */
        {"\xf0\x8f\xbf\xbfx", "\"????x\""}, /* 4 bytes */
        {"\xed\xa0\x80x", "\"???x\""},      /* a surrogate */
        {"\xf4\x90\x80\x80x", "\"????x\""}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80x", "\"????x\""}, /* begins no character */
        {"\xc2x", "\"?x\""},                /* cut after one byte, */
        {"\xe1\x80x", "\"??x\""},           /* two, */
        {"\xf1\x80\x80x", "\"???x\""},      /* three, */
        {"\xf1\x80\x80", "\"???\""},        /* and at the end */
        {"\xc2\xc2\x80", "\"?\xc2\x80\""},  /* a whole one follows */
        {"\xe1\x80\xc0", "\"???\""},        /* the last byte begins one */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_quoted(rows[i].more, rows[i].expected);
}

static void numbers_above_the_signed_are_quoted(void **state)
{
    static const struct {
        uint64_t number;
        const char *expected;
    } rows[] = {
        {0, "0"},
        {9, "9"},
        {10, "10"},
        {INT64_MAX, "9223372036854775807"},
        {(uint64_t)INT64_MAX + 1, "\"9223372036854775808\""},
        {UINT64_MAX, "\"18446744073709551615\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char bytes[32];
        struct muster_trace_text text = {.bytes = bytes, .room = sizeof(bytes)};

        muster_trace_text_add_number(&text, rows[i].number);
        assert_int_equal(text.length, strlen(rows[i].expected));
        assert_memory_equal(bytes, rows[i].expected, text.length);
    }
}

static void text_beyond_the_room_is_cut(void **state)
{
    for (size_t room = 0; room <= 8; room++) {
        char bytes[9] = "--------";
        struct muster_trace_text text = {.bytes = bytes, .room = room};

        muster_trace_text_add(&text, "abc");
        muster_trace_text_add_quoted(&text, "\xc2\x80");
        muster_trace_text_add_number(&text, 7);

        assert_int_equal(text.length, room);
        assert_memory_equal(bytes, "abc\"\xc2\x80\"7", room);
        if (room < 8)
            assert_int_equal(bytes[room], '-');
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quoted_text_is_json),
        cmocka_unit_test(bytes_that_are_not_utf8_become_question_marks),
        cmocka_unit_test(numbers_above_the_signed_are_quoted),
        cmocka_unit_test(text_beyond_the_room_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
