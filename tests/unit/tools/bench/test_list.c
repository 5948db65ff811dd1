/* Lists of numbers and sizes in options. */
#include "tools/bench/list.c"

#include "test_env.h"

static char refusal[800];

int command_refuse(const char *command, const char *format, ...)
{
    int length = snprintf(refusal, sizeof(refusal), "%s: ", command);
    va_list args;

    va_start(args, format);
    vsnprintf(refusal + length, sizeof(refusal) - (size_t)length, format, args);
    va_end(args);
    return EXIT_USAGE;
}

static const struct bench_list_rule numbers = {
    .command = "muster bench", .option = "--members", .min = 2, .max = 64};
static const struct bench_list_rule sizes = {.command = "muster bench",
                                             .option = "--bytes",
                                             .is_sizes = true,
                                             .min = 4,
                                             .max = 1 << 20,
                                             .multiple = 4,
                                             .count_max = 3};

static void each_word_is_a_value(void **state)
{
    static const struct {
        const struct bench_list_rule *rule;
        const char *text;
        size_t count;
        uint64_t first, last;
    } rows[] = {
        {&numbers, "2", 1, 2, 2},     {&numbers, "64,3,2", 3, 64, 2},
        {&sizes, "4", 1, 4, 4},       {&sizes, "64K,1M", 2, 65536, 1 << 20},
        {&sizes, "4,8,12", 3, 4, 12},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bench_list list;

        print_message("%s\n", rows[i].text);
        assert_true(bench_list_parse(rows[i].rule, rows[i].text, &list));
        assert_int_equal(list.count, rows[i].count);
        assert_int_equal(list.values[0], rows[i].first);
        assert_int_equal(list.values[list.count - 1], rows[i].last);
    }
}

#define COMMA "--members must have a value on both sides of each comma, got none in "

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const struct bench_list_rule *rule;
        const char *text, *refusal;
    } rows[] = {
        {&numbers, "", COMMA},
        {&numbers, ",2", COMMA ",2"},
        {&numbers, "2,,3", COMMA "2,,3"},
        {&numbers, "2,", COMMA "2,"},
        {&numbers, "2,x", "--members must hold numbers, got 'x' in 2,x"},
        {&numbers, "2x", "--members must hold numbers, got '2x' in 2x"},
        {&numbers, "-2", "--members must hold numbers, got '-2' in -2"},
        {&numbers, "1", "--members must hold values from 2 to 64, got '1' in 1"},
        {&numbers, "65", "--members must hold values from 2 to 64, got '65' in 65"},
        {&numbers, "99999999999999999999",
         "--members must hold values from 2 to 64, got '99999999999999999999' in "
         "99999999999999999999"},
        {&sizes, "4Q", "--bytes must hold sizes such as 65536, 64K, 1M or 2G, got '4Q' in 4Q"},
        {&sizes, "6",
         "--bytes must hold multiples of 4 bytes, the size of an element, got '6' in 6"},
        {&sizes, "4,4,4,4", "--bytes must have at most 3 values, got more in 4,4,4,4"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bench_list list;

        print_message("%s\n", rows[i].text);
        refusal[0] = '\0';
        assert_false(bench_list_parse(rows[i].rule, rows[i].text, &list));
        assert_memory_equal(refusal, "muster bench: ", strlen("muster bench: "));
        assert_string_equal(refusal + strlen("muster bench: "), rows[i].refusal);
    }
}

static void a_list_is_bounded(void **state)
{
    struct bench_list list;
    char text[600];

    (void)state;
    memset(text, '0', sizeof(text));
    text[511] = '\0';
    assert_false(bench_list_parse(&numbers, text, &list)); /* a number of 511 digits */
    assert_non_null(strstr(refusal, "from 2 to 64"));
    text[511] = '0';
    text[512] = '\0';
    assert_false(bench_list_parse(&numbers, text, &list));
    assert_non_null(strstr(refusal, "at most 511 characters"));
    for (size_t i = 0; i < 2 * (BENCH_LIST_MAX + 1); i += 2)
        memcpy(text + i, "2,", 2);
    text[2 * BENCH_LIST_MAX - 1] = '\0';
    assert_true(bench_list_parse(&numbers, text, &list));
    assert_int_equal(list.count, BENCH_LIST_MAX);
    text[2 * BENCH_LIST_MAX - 1] = ',';
    text[2 * BENCH_LIST_MAX + 1] = '\0';
    assert_false(bench_list_parse(&numbers, text, &list));
    assert_non_null(strstr(refusal, "at most 64 values"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_word_is_a_value),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_list_is_bounded),
    };

    return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
