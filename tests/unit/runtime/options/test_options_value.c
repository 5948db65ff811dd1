/* Values of options: what each kind reads, to the last bound, and what it says of other text. */
#include "runtime/options/options_internal.h"

#include "test_env.h"

#include <string.h>

static void durations_and_sizes_are_read_with_their_suffix(void **state)
{
    static const struct {
        const char *text, *unit; /* unit "B": a size */
        uint64_t value;
    } rows[] = {
        {"0", NULL, 0},
        {"7", NULL, 7 * MUSTER_NS_PER_S},
        {"7", "ms", 7 * MUSTER_NS_PER_MS},
        {"7ns", "ms", 7},
        {"7us", NULL, 7 * MUSTER_NS_PER_US},
        {"7ms", NULL, 7 * MUSTER_NS_PER_MS},
        {"7s", "ms", 7 * MUSTER_NS_PER_S},
        {"7m", NULL, 420 * MUSTER_NS_PER_S},
        {"7h", NULL, 25200 * MUSTER_NS_PER_S},
        {"1.5", NULL, 1500 * MUSTER_NS_PER_MS},
        {"1.5h", NULL, 5400 * MUSTER_NS_PER_S},
        {"9.", NULL, 9 * MUSTER_NS_PER_S},
        {"0.4ns", NULL, 0}, /* rounded */
        {"0.5ns", NULL, 1},
        {"1.4ns", NULL, 1},
        {"1.6ns", NULL, 2},
        {"18446744073709551614ns", NULL, UINT64_MAX - 1},
        {"0", "B", 0},
        {"65536", "B", 65536},
        {"3K", "B", 3 << 10},
        {"3KiB", "B", 3 << 10},
        {"3M", "B", 3 << 20},
        {"3MiB", "B", 3 << 20},
        {"3G", "B", UINT64_C(3) << 30},
        {"3GiB", "B", UINT64_C(3) << 30},
        {"1.5K", "B", 1536},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool is_size = rows[i].unit != NULL && rows[i].unit[0] == 'B';
        uint64_t value = 99;

        assert_int_equal(is_size ? muster_bytes_parse(rows[i].text, &value)
                                 : muster_duration_parse(rows[i].text, rows[i].unit, &value),
                         MUSTER_OK);
        assert_int_equal(value, rows[i].value);
    }
}

static void other_text_is_neither_duration_nor_size(void **state)
{
    static const char *const rows[] = {
        "",
        "s",
        ".5",
        "-1",
        "+1",
        " 1",
        "1 s",
        "1S",
        "1e3",
        "0x10",
        "1.2.3",
        "1..2",
        "1d",
        "1kb",
        "1Ki",
        "1k",
        "18446744073709551616",
        "20000000000000G",
        "99999999999999999999h",
        "/1",
        ":1",
    };
    uint64_t value = 99;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_duration_parse(rows[i], NULL, &value), MUSTER_INVALID_ARGUMENT);
        assert_int_equal(muster_bytes_parse(rows[i], &value), MUSTER_INVALID_ARGUMENT);
    }
    assert_int_equal(muster_duration_parse("18446744073709551615ns", NULL, &value),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_duration_parse("1", "K", &value), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_bytes_parse("1s", &value), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(value, 99);
}

/* --- One row of each kind --- */

struct settings {
    uint64_t before; /* to be seen when an offset is wrong */
    union {
        bool flag;
        const char *text;
        uint64_t number;
        double real;
    } value;
};

static bool begins_with_a(const char *text, struct muster_error *ret_error)
{
    if (text[0] != 'a')
        muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "\"%s\" does not begin with a", text);
    return text[0] == 'a';
}

#define AT(...)                                                                                    \
    {                                                                                              \
        .offset = offsetof(struct settings, value), __VA_ARGS__                                    \
    }

static const struct muster_option flag_row = AT(.kind = MUSTER_OPTION_FLAG);
static const struct muster_option text_row = AT(.kind = MUSTER_OPTION_TEXT);
static const struct muster_option checked_row =
    AT(.kind = MUSTER_OPTION_TEXT, .check = begins_with_a);
static const struct muster_option choice_row =
    AT(.kind = MUSTER_OPTION_CHOICE, .choices = "auto|shm|tcp");
static const struct muster_option real_row = AT(.kind = MUSTER_OPTION_REAL);
static const struct muster_option any_row = AT(.kind = MUSTER_OPTION_NUMBER);
static const struct muster_option number_row =
    AT(.kind = MUSTER_OPTION_NUMBER, .min = 1024, .max = 65536);
static const struct muster_option duration_row =
    AT(.kind = MUSTER_OPTION_DURATION, .unit = "ms", .min = 1500 * MUSTER_NS_PER_MS,
       .max = 7200 * MUSTER_NS_PER_S);
static const struct muster_option tiny_row = AT(.kind = MUSTER_OPTION_DURATION, .min = 1, .max = 7);
static const struct muster_option bytes_row =
    AT(.kind = MUSTER_OPTION_BYTES, .min = 1000, .max = 1 << 20);
static const struct muster_option many_row =
    AT(.kind = MUSTER_OPTION_BYTES, .min = 3 << 10, .max = 0);
static const struct muster_option none_row = AT(.kind = (enum muster_option_kind)99);

static void a_value_is_stored_or_refused_with_the_reason(void **state)
{
    static const struct {
        const struct muster_option *row;
        const char *text;
        const char *error; /* NULL: it is stored */
        uint64_t number;
    } rows[] = {
        {&flag_row, "true", NULL, true},
        {&flag_row, "TRUE", NULL, true},
        {&flag_row, "yes", NULL, true},
        {&flag_row, "on", NULL, true},
        {&flag_row, "1", NULL, true},
        {&flag_row, "false", NULL, false},
        {&flag_row, "No", NULL, false},
        {&flag_row, "off", NULL, false},
        {&flag_row, "0", NULL, false},
        {&flag_row, "2", "must be true or false, got \"2\"", 0},
        {&flag_row, "", "must be true or false, got \"\"", 0},
        {&any_row, "0", NULL, 0},
        {&any_row, "18446744073709551614", NULL, UINT64_MAX - 1},
        {&any_row, "18446744073709551615",
         "must be at most 18446744073709551614, got \"18446744073709551615\"", 0},
        {&any_row, "", "must be a whole number, got \"\"", 0},
        {&any_row, "1x", "must be a whole number, got \"1x\"", 0},
        {&any_row, "x", "must be a whole number, got \"x\"", 0},
        {&any_row, "/", "must be a whole number, got \"/\"", 0},
        {&any_row, " 1", "must be a whole number, got \" 1\"", 0},
        {&any_row, "+1", "must be a whole number, got \"+1\"", 0},
        {&any_row, "010", NULL, 10},
        {&any_row, "9", NULL, 9},
        {&number_row, "1023", "must be at least 1024, got \"1023\"", 0},
        {&number_row, "1024", NULL, 1024},
        {&number_row, "65536", NULL, 65536},
        {&number_row, "65537", "must be at most 65536, got \"65537\"", 0},
        {&duration_row, "1499", "must be at least 1500ms, got \"1499\"", 0},
        {&duration_row, "1500", NULL, 1500 * MUSTER_NS_PER_MS},
        {&duration_row, "2h", NULL, 7200 * MUSTER_NS_PER_S},
        {&duration_row, "121m", "must be at most 2h, got \"121m\"", 0},
        {&duration_row, "1d", "must be a duration such as 10s or 250ms, got \"1d\"", 0},
        {&tiny_row, "0", "must be at least 1ns, got \"0\"", 0},
        {&tiny_row, "8ns", "must be at most 7ns, got \"8ns\"", 0},
        {&bytes_row, "999", "must be at least 1000, got \"999\"", 0},
        {&bytes_row, "1000", NULL, 1000},
        {&bytes_row, "1M", NULL, 1 << 20},
        {&bytes_row, "1048577", "must be at most 1M, got \"1048577\"", 0},
        {&bytes_row, "1m", "must be a size such as 65536, 64K or 1M, got \"1m\"", 0},
        {&many_row, "3071", "must be at least 3K, got \"3071\"", 0},
        {&many_row, "8G", NULL, UINT64_C(8) << 30},
        {&text_row, "", "must have a value, got \"\"; give it one, or leave it out", 0},
        {&checked_row, "", "must have a value, got \"\"; give it one, or leave it out", 0},
        {&checked_row, "b", "\"b\" does not begin with a", 0},
        {&choice_row, "", "must be one of auto|shm|tcp, got \"\"", 0},
        {&choice_row, "aut", "must be one of auto|shm|tcp, got \"aut\"", 0},
        {&choice_row, "auto|shm", "must be one of auto|shm|tcp, got \"auto|shm\"", 0},
        {&choice_row, "tcpx", "must be one of auto|shm|tcp, got \"tcpx\"", 0},
        {&choice_row, "Tcp", "must be one of auto|shm|tcp, got \"Tcp\"", 0},
        {&real_row, "", "must be a number, got \"\"", 0},
        {&real_row, "x", "must be a number, got \"x\"", 0},
        {&real_row, "1.5x", "must be a number, got \"1.5x\"", 0},
        {&real_row, " 1", "must be a number, got \" 1\"", 0},
        {&real_row, "inf", "must be a number, got \"inf\"", 0},
        {&real_row, "1e400", "must be a number, got \"1e400\"", 0},
        {&none_row, "x", "must have a kind of enum muster_option_kind in its table, got 99", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct settings settings = {.before = 5, .value = {.number = 0}};
        struct muster_error error = {.text = ""};
        char expected[256] = "";
        enum muster_rc rc = rows[i].error == NULL ? MUSTER_OK : MUSTER_INVALID_ARGUMENT;

        if (rows[i].error != NULL)
            snprintf(expected, sizeof(expected), "--name: %s", rows[i].error);
        assert_int_equal(
            muster_option_store(rows[i].row, "--name", rows[i].text, &settings, &error), rc);
        assert_int_equal(error.rc, rc);
        assert_string_equal(error.text, expected);
        assert_int_equal(settings.before, 5);
        if (rc != MUSTER_OK) {
            assert_int_equal(settings.value.number, 0); /* nothing is stored */
            continue;
        }
        if (rows[i].row == &flag_row)
            assert_int_equal(settings.value.flag, rows[i].number);
        else
            assert_int_equal(settings.value.number, rows[i].number);
    }
}

static void text_and_real_numbers_are_stored(void **state)
{
    static const struct {
        const struct muster_option *row;
        const char *text;
    } rows[] = {{&text_row, "any"},
                {&checked_row, "any"},
                {&choice_row, "auto"},
                {&choice_row, "shm"},
                {&choice_row, "tcp"}};
    struct settings settings;
    struct muster_error error;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            muster_option_store(rows[i].row, "--name", rows[i].text, &settings, &error), MUSTER_OK);
        assert_ptr_equal(settings.value.text, rows[i].text);
    }
    assert_int_equal(muster_option_store(&real_row, "--name", "-1.5e2", &settings, &error),
                     MUSTER_OK);
    assert_true(settings.value.real == -150);
    assert_int_equal(muster_option_store(&real_row, "--name", "x", &settings, NULL),
                     MUSTER_INVALID_ARGUMENT);
}

static void a_repeated_option_has_a_last_value(void **state)
{
    static const struct muster_option row = {.kind = MUSTER_OPTION_TEXTS, .check = begins_with_a};
    struct guarded {
        struct muster_option_texts texts;
        const char *after;
    } guarded = {.after = "kept"};
    struct muster_error error;

    (void)state;
    assert_int_equal(muster_option_store(&row, "--name", "b", &guarded, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, "--name: \"b\" does not begin with a");
    assert_int_equal(guarded.texts.count, 0);
    for (size_t i = 0; i < MUSTER_OPTION_TEXTS_MAX; i++) {
        assert_int_equal(muster_option_store(&row, "--name", "a", &guarded, &error), MUSTER_OK);
        assert_int_equal(guarded.texts.count, i + 1);
        assert_string_equal(guarded.texts.values[i], "a");
    }
    assert_int_equal(muster_option_store(&row, "--name", "a", &guarded, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "--name: must be given 32 times at most, got \"a\" beyond that");
    assert_int_equal(guarded.texts.count, MUSTER_OPTION_TEXTS_MAX);
    assert_string_equal(guarded.after, "kept");
}

static void long_text_is_cut_in_errors(void **state)
{
    char text[100], expected[128];
    struct settings settings;
    struct muster_error error;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    snprintf(expected, sizeof(expected), "--name: must be a number, got \"%.80s\"", text);
    assert_int_equal(muster_option_store(&real_row, "--name", text, &settings, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_and_sizes_are_read_with_their_suffix),
        cmocka_unit_test(other_text_is_neither_duration_nor_size),
        cmocka_unit_test(a_value_is_stored_or_refused_with_the_reason),
        cmocka_unit_test(text_and_real_numbers_are_stored),
        cmocka_unit_test(a_repeated_option_has_a_last_value),
        cmocka_unit_test(long_text_is_cut_in_errors),
    };

    return cmocka_run_group_tests_name("options_value", tests, NULL, NULL);
}
