/* Hosts and ports as task addresses. */
#include "resolvers/spec/task_address.h"

#include "test_env.h"

#include <string.h>

static void an_ipv6_address_stands_in_brackets(void **state)
{
    static const struct {
        const char *host;
        const char *text;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1:65535"},
        {"fd00::1", "[fd00::1]:65535"},
        {"fe80::1%eth0", "[fe80::1%eth0]:65535"},
        {"worker-0.example", "worker-0.example:65535"},
    };
    char text[64];
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(muster_task_address_format(rows[i].host, 65535, sizeof(text), text));
        assert_string_equal(text, rows[i].text);
    }
}

static void what_is_no_host_or_does_not_fit_is_refused(void **state)
{
    static const char *const hosts[] = {"",          "a b", "10.0.0.1/x", "a@b",
                                        "[fd00::1]", "a\n", "a,b",        "fd00::1234"};
    char text[16] = "untouched";
    (void)state;

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        assert_false(muster_task_address_format(hosts[i], 1, sizeof(text), text));
        assert_string_equal(text, "untouched");
    }
    assert_true(muster_task_address_format("1.2.3.4", 65535, sizeof(text), text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ipv6_address_stands_in_brackets),
        cmocka_unit_test(what_is_no_host_or_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
