/* Incarnations: text forms and comparison. */
#include "test_env.h"

#include <string.h>

#include <muster/incarnation.h>

static void hexadecimal_reads_back(void **state)
{
    static const char text[] = "0123456789abcdef00ff10a0f9000001";
    const struct muster_incarnation incarnation = {.bytes = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab,
                                                             0xcd, 0xef, 0x00, 0xff, 0x10, 0xa0,
                                                             0xf9, 0x00, 0x00, 0x01}};
    struct muster_incarnation back = {.bytes = {0}}, upper = {.bytes = {0}};
    char shown[MUSTER_INCARNATION_TEXT_BYTES + 1];

    (void)state;
    shown[MUSTER_INCARNATION_TEXT_BYTES] = 'x';
    assert_ptr_equal(muster_incarnation_format(&incarnation, shown), shown);
    assert_string_equal(shown, text);
    assert_int_equal(shown[MUSTER_INCARNATION_TEXT_BYTES], 'x'); /* beyond it nothing is written */
    assert_int_equal(muster_incarnation_parse(text, &back), MUSTER_OK);
    assert_memory_equal(back.bytes, incarnation.bytes, sizeof(back.bytes));
    assert_int_equal(muster_incarnation_parse("0123456789ABCDEF00FF10A0F9000001", &upper),
                     MUSTER_OK);
    assert_memory_equal(upper.bytes, incarnation.bytes, sizeof(upper.bytes));
}

/* All of it counts. */
static void a_difference_of_one_byte_is_one(void **state)
{
    struct muster_incarnation a = {.bytes = {7}}, b = a;

    (void)state;
    assert_true(muster_incarnation_is_equal(&a, &b));
    for (size_t i = 0; i < sizeof(b.bytes); i++) {
        b.bytes[i] ^= 1;
        assert_false(muster_incarnation_is_equal(&a, &b));
        b.bytes[i] ^= 1;
    }
}

static void text_of_another_form_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "ab",
        "ab0100000000000000000000000000f",
        "ab0100000000000000000000000000f00",
        "00000000000000000000000000000000",
    };
    struct muster_incarnation incarnation = {.bytes = {7}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(muster_incarnation_parse(rows[i], &incarnation), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(incarnation.bytes[0], 7);
}

/* In the place of each digit every byte beside the digits, and some far away. */
static void other_characters_than_digits_are_refused(void **state)
{
    static const char others[] = "/:@G`g \t-~\x80\xff";
    char text[MUSTER_INCARNATION_TEXT_BYTES] = "ab0100000000000000000000000000f0";
    struct muster_incarnation incarnation = {.bytes = {7}};

    (void)state;
    for (size_t at = 0; at < sizeof(text) - 1; at++) {
        char digit = text[at];

        for (const char *other = others; *other != '\0'; other++) {
            text[at] = *other;
            assert_int_equal(muster_incarnation_parse(text, &incarnation), MUSTER_INVALID_ARGUMENT);
        }
        text[at] = digit;
    }
    assert_int_equal(incarnation.bytes[0], 7);
    assert_int_equal(muster_incarnation_parse(text, &incarnation), MUSTER_OK);
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
        cmocka_unit_test(a_difference_of_one_byte_is_one),
        cmocka_unit_test(text_of_another_form_is_refused),
        cmocka_unit_test(other_characters_than_digits_are_refused),
        cmocka_unit_test(only_all_zero_is_none),
    };

    return cmocka_run_group_tests_name("incarnation", cases, NULL, NULL);
}
