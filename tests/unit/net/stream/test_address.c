/* Address and endpoint text. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include <muster/address.h>

#define PATH_107                                                                                   \
    "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"                                \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void address_text_comes_back_in_its_canonical_form(void **state)
{
    static const struct {
        const char *text, *formatted;
        enum muster_address_family family;
    } rows[] = {
        {"1.2.3.4:80", "1.2.3.4:80", MUSTER_ADDRESS_IPV4},
        {"0.0.0.0:0", "0.0.0.0:0", MUSTER_ADDRESS_IPV4},
        {"255.255.255.255:65535", "255.255.255.255:65535", MUSTER_ADDRESS_IPV4},
        {"[::1]:80", "[::1]:80", MUSTER_ADDRESS_IPV6},
        {"[0:0:0:0:0:0:0:1]:00080", "[::1]:80", MUSTER_ADDRESS_IPV6},
        {"[2001:DB8::A]:1", "[2001:db8::a]:1", MUSTER_ADDRESS_IPV6},
        {"[fe80::1%3]:80", "[fe80::1%3]:80", MUSTER_ADDRESS_IPV6},
        {"[::ffff:1.2.3.4]:9", "[::ffff:1.2.3.4]:9", MUSTER_ADDRESS_IPV6},
        {"[fe80::1%4294967295]:65535", "[fe80::1%4294967295]:65535", MUSTER_ADDRESS_IPV6},
        {"unix:/run/muster.sock", "unix:/run/muster.sock", MUSTER_ADDRESS_UNIX},
        {"unix:///run/muster.sock", "unix:/run/muster.sock", MUSTER_ADDRESS_UNIX},
        {"unix://////run/x", "unix:/run/x", MUSTER_ADDRESS_UNIX},
        {"unix:relative", "unix:relative", MUSTER_ADDRESS_UNIX},
        {"unix:@abstract", "unix:@abstract", MUSTER_ADDRESS_UNIX},
        {"unix:" PATH_107, "unix:" PATH_107, MUSTER_ADDRESS_UNIX},
    };
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    struct muster_address address, again;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_address_parse(rows[i].text, &address, NULL), MUSTER_OK);
        assert_int_equal(address.family, rows[i].family);
        assert_string_equal(muster_address_format(&address, text), rows[i].formatted);
        assert_int_equal(muster_address_parse(text, &again, NULL), MUSTER_OK);
        assert_true(muster_address_is_equal(&address, &again));
    }
}

static void malformed_address_is_refused_with_a_text_that_names_it(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "empty"},
        {"1.2.3.4", "port is missing"},
        {"1.2.3.4:", "not a port"},
        {"1.2.3.4:65536", "65536"},
        {"1.2.3.4:+1", "not a port"},
        {"1.2.3.4: 1", "not a port"},
        {"1.2.3.4:99999999999", "not a port"},
        {"1.2.3:80", "not an IP address"},
        {"1.2.3.04:80", "not an IP address"},
        {"256.1.1.1:80", "not an IP address"},
        {"localhost:80", "not an IP address"},
        {":80", "not an IP address"},
        {"::1", "needs brackets"},
        {"::1:80", "needs brackets"},
        {"[::1]", "port is missing"},
        {"[::1]80", "only :port"},
        {"[::1:80", "']' is missing"},
        {"[]:80", "not an IPv6"},
        {"[1.2.3.4]:80", "not an IPv6"},
        {"[fe80::1%eth0]:80", "numeric zone"},
        {"[fe80::1%]:80", "numeric zone"},
        {"[fe80::1%4294967296]:80", "numeric zone"},
        {"[1:2:3:4:5:6:7:8:9]:80", "not an IPv6"},
        {"unix:", "path is missing"},
        {"unix:@", "path is missing"},
        {"unix:" PATH_107 "a", "at most 107"},
    };
    struct muster_error error;
    struct muster_address address;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(&address, 0x5a, sizeof(address));
        assert_int_equal(muster_address_parse(rows[i].text, &address, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_int_equal(error.rc, MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].says) == NULL)
            fail_msg("\"%s\" says \"%s\", not \"%s\"", rows[i].text, error.text, rows[i].says);
        assert_int_equal(address.port, 0x5a5a);
    }
}

static void endpoint_splits_host_and_port(void **state)
{
    static const struct {
        const char *text;
        uint16_t default_port;
        const char *host;
        uint16_t port;
        enum muster_address_family family;
    } rows[] = {
        {"worker-0.example.org:2222", 0, "worker-0.example.org", 2222, MUSTER_ADDRESS_NONE},
        {"worker_0", 7, "worker_0", 7, MUSTER_ADDRESS_NONE},
        {"123456789012:5", 0, "123456789012", 5, MUSTER_ADDRESS_NONE},
        {"example.org.:5", 0, "example.org.", 5, MUSTER_ADDRESS_NONE},
        {"1.2.3.4:80", 0, "1.2.3.4", 80, MUSTER_ADDRESS_IPV4},
        {"1.2.3.4", 80, "1.2.3.4", 80, MUSTER_ADDRESS_IPV4},
        {"[::1]:80", 9, "::1", 80, MUSTER_ADDRESS_IPV6},
        {"[::1]", 9, "::1", 9, MUSTER_ADDRESS_IPV6},
        {"::1", 9, "::1", 9, MUSTER_ADDRESS_IPV6},
        {"fe80::1%2", 9, "fe80::1%2", 9, MUSTER_ADDRESS_IPV6},
        {"localhost:0", 9, "localhost", 0, MUSTER_ADDRESS_NONE},
        {"unix:/x", 9, "", 0, MUSTER_ADDRESS_UNIX},
    };
    struct muster_endpoint endpoint;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_endpoint_parse(rows[i].text, rows[i].default_port, &endpoint, NULL),
                         MUSTER_OK);
        assert_string_equal(endpoint.host, rows[i].host);
        assert_int_equal(endpoint.port, rows[i].port);
        assert_int_equal(endpoint.address.family, rows[i].family);
        if (rows[i].family != MUSTER_ADDRESS_NONE)
            assert_int_equal(endpoint.address.port, rows[i].port);
    }
}

static void malformed_endpoint_is_refused_with_a_text_that_names_it(void **state)
{
    static const struct {
        const char *text;
        uint16_t default_port;
        const char *says;
    } rows[] = {
        {"", 1, "empty"},
        {"host", 0, "port is missing"},
        {"::1", 0, "port is missing"},
        {":80", 1, "host is missing"},
        {"host:", 1, "not a port"},
        {"host:http", 1, "http"},
        {"ho st:1", 0, "neither"},
        {"-host:1", 0, "neither"},
        {"host-:1", 0, "neither"},
        {"a..b:1", 0, "neither"},
        {".:1", 0, "neither"},
        {"1.2.3.400:1", 0, "neither"},
        {"1.2.3:1", 0, "neither"},
        {"h\303\266st:1", 0, "neither"},
        {"http://host:1", 0, "neither"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1", 0, "neither"},
        {"[host]:1", 0, "not an IPv6"},
        {"unix:", 1, "path is missing"},
    };
    struct muster_error error;
    struct muster_endpoint endpoint;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(
            muster_endpoint_parse(rows[i].text, rows[i].default_port, &endpoint, &error),
            MUSTER_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].says) == NULL)
            fail_msg("\"%s\" says \"%s\", not \"%s\"", rows[i].text, error.text, rows[i].says);
    }
}

static void very_long_text_is_refused_or_cut_in_the_message(void **state)
{
    static char text[4096];
    struct muster_error error;
    struct muster_endpoint endpoint;

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    assert_int_equal(muster_endpoint_parse(text, 1, &endpoint, &error), MUSTER_INVALID_ARGUMENT);
    assert_true(strlen(error.text) > 0);
    memset(text, ':', sizeof(text) - 1);
    assert_int_equal(muster_endpoint_parse(text, 1, &endpoint, &error), MUSTER_INVALID_ARGUMENT);
}

static void equality_looks_at_every_part(void **state)
{
    static const char *const texts[] = {"1.2.3.4:1", "1.2.3.4:2",     "1.2.3.5:1",
                                        "[::1]:1",   "[fe80::1%1]:1", "[fe80::1%2]:1",
                                        "unix:/a",   "unix:/b",       "unix:@a"};
    struct muster_address a, b;
    size_t i, k;

    (void)state;
    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        for (k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            assert_int_equal(muster_address_parse(texts[i], &a, NULL), MUSTER_OK);
            assert_int_equal(muster_address_parse(texts[k], &b, NULL), MUSTER_OK);
            assert_int_equal(muster_address_is_equal(&a, &b), i == k);
        }
}

static void loopback_is_told_apart(void **state)
{
    static const struct {
        const char *text;
        bool is_loopback;
    } rows[] = {
        {"127.0.0.1:1", true},
        {"127.9.9.9:1", true},
        {"128.0.0.1:1", false},
        {"[::1]:1", true},
        {"[::2]:1", false},
        {"[::ffff:127.0.0.1]:1", true},
        {"[::ffff:10.0.0.1]:1", false},
        {"unix:/x", true},
        {"0.0.0.0:1", false},
    };
    struct muster_address address = {.family = MUSTER_ADDRESS_NONE};
    size_t i;

    (void)state;
    assert_false(muster_address_is_loopback(&address));
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_address_parse(rows[i].text, &address, NULL), MUSTER_OK);
        assert_int_equal(muster_address_is_loopback(&address), rows[i].is_loopback);
    }
}

static void a_cause_leaves_out_the_endpoint_that_is_named_already(void **state)
{
    static const struct {
        const char *text, *endpoints, *cause;
    } rows[] = {
        {"connect to 10.0.0.1:1: refused", "10.0.0.1:1", "refused"},
        {"connect to 10.0.0.1:1: refused", "https://10.0.0.1:1", "refused"},
        {"connect to 10.0.0.2:1: refused", "10.0.0.1:1,10.0.0.2:1", "refused"},
        {"connect to 10.0.0.1:1: refused", "10.0.0.1:1,10.0.0.2:1", "refused"},
        {"connect to [::1]:1: refused", "[::1]:1", "refused"},
        {"connect to 10.0.0.1:1: refused", "10.0.0.1:12", "connect to 10.0.0.1:1: refused"},
        {"connect to 10.0.0.1:1: refused", "110.0.0.1:1", "connect to 10.0.0.1:1: refused"},
        {"connect to 127.0.0.1:1: refused", "localhost:1", "connect to 127.0.0.1:1: refused"},
        {"no connection to 10.0.0.1:1: refused", "10.0.0.1:1", "refused"},
        {"no connection to 10.0.0.2:1: refused", "10.0.0.1:1",
         "no connection to 10.0.0.2:1: refused"},
        {"connect to 10.0.0.1:1", "10.0.0.1:1", "connect to 10.0.0.1:1"},
        {"connect to : ", "", "connect to : "},
        {"refused", "10.0.0.1:1", "refused"},
        {"", "", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(muster_endpoint_cause(rows[i].text, rows[i].endpoints), rows[i].cause);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_text_comes_back_in_its_canonical_form),
        cmocka_unit_test(malformed_address_is_refused_with_a_text_that_names_it),
        cmocka_unit_test(endpoint_splits_host_and_port),
        cmocka_unit_test(malformed_endpoint_is_refused_with_a_text_that_names_it),
        cmocka_unit_test(very_long_text_is_refused_or_cut_in_the_message),
        cmocka_unit_test(equality_looks_at_every_part),
        cmocka_unit_test(loopback_is_told_apart),
        cmocka_unit_test(a_cause_leaves_out_the_endpoint_that_is_named_already),
    };

    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
