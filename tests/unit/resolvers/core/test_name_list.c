/* Names one behind the other in a text of limited length. */
#include "resolvers/core/name_list.h"

#include "test_env.h"

#include <string.h>

static void names_stand_as_long_as_a_count_of_the_others_has_room(void **state)
{
    static const struct {
        size_t bytes;
        const char *separator, *names, *text; /* the names are single letters */
    } rows[] = {
        {40, ", ", "", "old"},
        {40, ", ", "a", "a"},
        {40, " + ", "abc", "a + b + c"},
        {27, ", ", "abc", "a, b and 1 more"},
        {27, ", ", "abcd", "a, b and 2 more"},
        {28, ", ", "abcd", "a, b, c and 1 more"},
        {22, ", ", "a", "a"},
        {21, ", ", "a", " and 1 more"},
        {21, ", ", "abcdefghijk", " and 11 more"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[42] = "old";
        struct muster_name_list list = {
            .text = text, .bytes = rows[i].bytes, .separator = rows[i].separator};

        text[rows[i].bytes] = '#';
        for (const char *name = rows[i].names; *name != '\0'; name++)
            muster_name_list_add(&list, (const char[]){*name, '\0'});
        assert_string_equal(text, rows[i].text);
        assert_int_equal(text[rows[i].bytes], '#');
    }
}

static void a_long_name_is_left_out_with_all_behind_it(void **state)
{
    char text[40];
    struct muster_name_list list = {.text = text, .bytes = sizeof(text), .separator = ", "};
    (void)state;

    muster_name_list_add(&list, "one");
    muster_name_list_add(&list, "a name of twenty-four ...");
    muster_name_list_add(&list, "x");

    assert_string_equal(text, "one and 2 more");
    assert_int_equal(list.left_out, 2);
    assert_int_equal(list.length, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_as_long_as_a_count_of_the_others_has_room),
        cmocka_unit_test(a_long_name_is_left_out_with_all_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
