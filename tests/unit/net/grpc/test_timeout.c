/* The grpc-timeout header. */
#include "test_env.h"

#include <string.h>

#include "net/grpc/timeout.h"

static void timeouts_are_parsed(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } rows[] = {
        {"1n", 1},
        {"250m", 250000000},
        {"3S", 3000000000},
        {"2M", 120000000000},
        {"1H", 3600000000000},
        {"7u", 7000},
        {"00000001S", 1000000000},
        {"99999999H", UINT64_MAX},
        {"0n", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t ns = 42;

        assert_int_equal(muster_grpc_timeout_parse(rows[i].text, strlen(rows[i].text), &ns),
                         MUSTER_OK);
        assert_true(ns == rows[i].ns);
    }
}

static void malformed_timeouts_are_refused(void **state)
{
    static const char *const rows[] = {"",   "S",   "1",    "100000000S", "1s",
                                       "1x", "-1S", "1.5S", " 1S",        "1S "};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t ns = 42;

        assert_int_equal(muster_grpc_timeout_parse(rows[i], strlen(rows[i]), &ns),
                         MUSTER_INVALID_ARGUMENT);
        assert_true(ns == 42);
    }
}

static void a_formatted_timeout_is_never_shorter(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } rows[] = {
        {1, "1n"},
        {99999999, "99999999n"},
        {100000001, "100001u"},
        {1000000000, "1000000u"},
        {MUSTER_NS_PER_S * 3600 * 24, "86400000m"},
        {MUSTER_NS_PER_S * 3600 * 24 * 365, "31536000S"},
        {UINT64_MAX, "5124096H"},
    };
    char text[MUSTER_GRPC_TIMEOUT_TEXT_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t length = muster_grpc_timeout_format(rows[i].ns, text);
        uint64_t back = 0;

        if (rows[i].ns != UINT64_MAX) {
            assert_int_equal(muster_grpc_timeout_parse(text, length, &back), MUSTER_OK);
            assert_true(back >= rows[i].ns);
        }
        assert_int_equal(length, strlen(text));
        if (strcmp(text, rows[i].text) != 0)
            fail_msg("%s, expected %s", text, rows[i].text);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest grpc_timeout[] = {
        CASE(timeouts_are_parsed),
        CASE(malformed_timeouts_are_refused),
        CASE(a_formatted_timeout_is_never_shorter),
    };

    return cmocka_run_group_tests(grpc_timeout, NULL, NULL);
}
