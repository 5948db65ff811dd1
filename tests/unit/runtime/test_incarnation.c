/* Incarnations: text forms and comparison. */
#include "test_env.h"

#include <string.h>

#include <muster/incarnation.h>

static void hexadecimal_reads_back(void **state)
{
    struct muster_incarnation incarnation = {.bytes = {0xab, 0x01, [15] = 0xf0}};
    struct muster_incarnation back = {.bytes = {0}};
    char text[MUSTER_INCARNATION_TEXT_BYTES];

    (void)state;
    assert_string_equal(muster_incarnation_format(&incarnation, text),
                        "ab0100000000000000000000000000f0");
    assert_int_equal(muster_incarnation_parse(text, &back), MUSTER_OK);
    assert_true(muster_incarnation_is_equal(&incarnation, &back));
    assert_int_equal(muster_incarnation_parse("AB0100000000000000000000000000F0", &back),
                     MUSTER_OK);
}

static void text_that_is_no_incarnation_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "ab",
        "ab0100000000000000000000000000f",
        "ab0100000000000000000000000000f00",
        "ab0100000000000000000000000000fg",
        "00000000000000000000000000000000",
    };
    struct muster_incarnation incarnation = {.bytes = {7}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_incarnation_parse(rows[i], &incarnation), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(incarnation.bytes[0], 7);
}

static void only_all_zero_is_none(void **state)
{
    struct muster_incarnation incarnation = {.bytes = {0}};

    (void)state;
    assert_true(muster_incarnation_is_zero(&incarnation));
    incarnation.bytes[15] = 1;
    assert_false(muster_incarnation_is_zero(&incarnation));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(hexadecimal_reads_back),
        cmocka_unit_test(text_that_is_no_incarnation_is_refused),
        cmocka_unit_test(only_all_zero_is_none),
    };

    return cmocka_run_group_tests_name("incarnation", cases, NULL, NULL);
}
