/* Answers of stream.c itself: of a network that is missing, or that does not know its host. */
#include "test_env.h"

#include <string.h>

#include <muster/stream.h>

#include "net/stream/net_internal.h"

static bool has_every_address(struct muster_net *net, const struct muster_address *address)
{
    (void)net;
    (void)address;
    return true;
}

static void a_network_that_does_not_know_its_host_says_so(void **state)
{
    static const struct muster_net_ops no_ops = {0};
    struct muster_net blind = {.ops = &no_ops};
    static const struct {
        bool is_missing;
        enum muster_rc rc;
        const char *text;
    } rows[] = {
        {false, MUSTER_UNIMPLEMENTED, "this network does not know the addresses of its host"},
        {true, MUSTER_INVALID_ARGUMENT, NULL},
    };
    struct muster_address peer, found[MUSTER_INTERFACE_ADDRESSES_MAX];
    size_t count = 7;

    (void)state;
    assert_int_equal(muster_address_parse("127.0.0.1:1", &peer, NULL), MUSTER_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_net *net = rows[i].is_missing ? NULL : &blind;
        struct muster_error source = {.rc = MUSTER_OK}, interface = {.rc = MUSTER_OK};

        assert_int_equal(muster_net_find_source(net, &peer, found, &source), rows[i].rc);
        assert_int_equal(muster_net_find_interface(net, "eth0", found, &count, &interface),
                         rows[i].rc);
        assert_int_equal(source.rc, rows[i].rc);
        assert_string_equal(source.text, interface.text);
        if (rows[i].text != NULL)
            assert_string_equal(source.text, rows[i].text);
        assert_int_equal(count, 7);
        assert_false(muster_net_has_address(net, &peer));
    }
}

static void an_address_is_the_hosts_when_its_network_says_so(void **state)
{
    static const struct muster_net_ops ops = {.has_address = has_every_address};
    struct muster_net net = {.ops = &ops};
    struct muster_address address;

    (void)state;
    assert_int_equal(muster_address_parse("127.0.0.1:1", &address, NULL), MUSTER_OK);
    assert_true(muster_net_has_address(&net, &address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_that_does_not_know_its_host_says_so),
        cmocka_unit_test(an_address_is_the_hosts_when_its_network_says_so),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
