/* Targets of channels. */
#include "assertion_count.h"
#include "test_env.h"

#include <string.h>

#include "net/grpc/client/target.h"

static void targets_become_endpoints_and_an_authority(void **state)
{
    static const struct {
        const char *text;
        size_t count;
        const char *host; /* of the last endpoint */
        uint16_t port;
        const char *authority;
    } rows[] = {
        {"localhost:50051", 1, "localhost", 50051, "localhost:50051"},
        {"dns:localhost:1", 1, "localhost", 1, "localhost:1"},
        {"dns:///a.example:2", 1, "a.example", 2, "a.example:2"},
        {"a:1,b:2,c:3", 3, "c", 3, "a:1"},
        {"ipv4:1.2.3.4:80,5.6.7.8:81", 2, "5.6.7.8", 81, "1.2.3.4:80"},
        {"ipv6:[::1]:80", 1, "::1", 80, "[::1]:80"},
        {"host", 1, "host", 443, "host"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_rpc_target target;
        struct muster_error error;

        print_message("row: %s\n", rows[i].text);
        assert_int_equal(muster_rpc_target_parse(rows[i].text, &target, &error), MUSTER_OK);
        assert_int_equal(target.count, rows[i].count);
        assert_string_equal(target.endpoints[target.count - 1].host, rows[i].host);
        assert_int_equal(target.endpoints[target.count - 1].port, rows[i].port);
        assert_string_equal(target.authority, rows[i].authority);
    }
}

static void unix_sockets_have_three_spellings(void **state)
{
    static const struct {
        const char *text, *path;
    } rows[] = {{"unix:/run/x", "/run/x"}, {"unix:///run/x", "/run/x"}, {"unix-abstract:x", "@x"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_rpc_target target;

        assert_int_equal(muster_rpc_target_parse(rows[i].text, &target, NULL), MUSTER_OK);
        assert_int_equal(target.endpoints[0].address.family, MUSTER_ADDRESS_UNIX);
        assert_string_equal(target.endpoints[0].address.path, rows[i].path);
        assert_string_equal(target.authority, "localhost");
    }
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *says;
        enum muster_rc rc;
    } rows[] = {
        {"", "must not be empty", MUSTER_INVALID_ARGUMENT},
        {"a:1,,b:2", "must not be empty, got \"a:1,,b:2\"", MUSTER_INVALID_ARGUMENT},
        {"a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", "at most 16 addresses", MUSTER_INVALID_ARGUMENT},
        {"xds:///a", "dns, ipv4, ipv6, unix or unix-abstract, got \"xds:///a\"",
         MUSTER_UNIMPLEMENTED},
        {"dns://8.8.8.8/a:1", "must be dns:///HOST:PORT", MUSTER_UNIMPLEMENTED},
    };
    struct muster_rpc_target target;
    struct muster_error error;
    char endless[600];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_rpc_target_parse(rows[i].text, &target, &error), rows[i].rc);
        fail_if(strstr(error.text, rows[i].says) == NULL, "%s: %s", rows[i].text, error.text);
    }
    memset(endless, 'h', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    assert_int_equal(muster_rpc_target_parse(endless, &target, &error), MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "got 599"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test(name)
    const struct CMUnitTest rpc_target[] = {
        CASE(targets_become_endpoints_and_an_authority),
        CASE(unix_sockets_have_three_spellings),
        CASE(mistakes_are_named),
    };

    return cmocka_run_group_tests(rpc_target, NULL, NULL);
}
