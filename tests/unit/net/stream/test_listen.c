/* Where to listen: texts, and the addresses of this host that they mean. */
#include "test_env.h"

#include <string.h>
#include <unistd.h>

#include <muster/stream.h>

#define SECOND_NS MUSTER_NS_PER_S

static void text_becomes_host_and_ports(void **state)
{
    static const struct {
        const char *text, *host;
        enum muster_address_family family;
        uint16_t first, last;
        uint32_t count;
        bool is_wildcard;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1", MUSTER_ADDRESS_IPV4, 0, 0, 0, false},
        {"10.0.0.1:0", "10.0.0.1", MUSTER_ADDRESS_IPV4, 0, 0, 0, false},
        {"10.0.0.1:5000", "10.0.0.1", MUSTER_ADDRESS_IPV4, 5000, 5000, 1, false},
        {"10.0.0.1:5000-5003", "10.0.0.1", MUSTER_ADDRESS_IPV4, 5000, 5003, 4, false},
        {"[fd00::1]", "fd00::1", MUSTER_ADDRESS_IPV6, 0, 0, 0, false},
        {"fd00::1", "fd00::1", MUSTER_ADDRESS_IPV6, 0, 0, 0, false},
        {"[fd00::1]:1-65535", "fd00::1", MUSTER_ADDRESS_IPV6, 1, 65535, 65535, false},
        {"[fe80::1%3]:5", "fe80::1%3", MUSTER_ADDRESS_IPV6, 5, 5, 1, false},
        {"[fe80::1%eth0]:5", "fe80::1%eth0", MUSTER_ADDRESS_NONE, 5, 5, 1, false},
        {"eth0:5000-5000", "eth0", MUSTER_ADDRESS_NONE, 5000, 5000, 1, false},
        {"node1.example.org", "node1.example.org", MUSTER_ADDRESS_NONE, 0, 0, 0, false},
        {"0.0.0.0:7", "0.0.0.0", MUSTER_ADDRESS_IPV4, 7, 7, 1, true},
        {"[::]:7", "::", MUSTER_ADDRESS_IPV6, 7, 7, 1, true},
        {"::", "::", MUSTER_ADDRESS_IPV6, 0, 0, 0, true},
        {":5000-5003", "", MUSTER_ADDRESS_NONE, 5000, 5003, 4, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_listen listen;
        struct muster_error error = {.rc = MUSTER_OK};

        print_message("%s\n", rows[i].text);
        assert_int_equal(muster_listen_parse(rows[i].text, &listen, &error), MUSTER_OK);
        assert_string_equal(listen.host, rows[i].host);
        assert_int_equal(listen.address.family, rows[i].family);
        assert_int_equal(listen.port_first, rows[i].first);
        assert_int_equal(listen.port_last, rows[i].last);
        assert_int_equal(muster_listen_port_count(&listen), rows[i].count);
        assert_int_equal(muster_listen_is_wildcard(&listen), rows[i].is_wildcard);
    }
}

static void bad_text_is_refused_with_the_form(void **state)
{
    static const char *const texts[] = {"",
                                        "5000",
                                        "10.0.0.1:",
                                        "10.0.0.1:x",
                                        "10.0.0.1:65536",
                                        "10.0.0.1:-",
                                        "10.0.0.1:5-",
                                        "10.0.0.1:5-4",
                                        "10.0.0.1:0-4",
                                        "10.0.0.1:5-6-7",
                                        "[fd00::1",
                                        "[fd00::1]5000",
                                        "[]:5",
                                        "[eth0]:5",
                                        "unix:/there",
                                        "a b",
                                        "1.2.3.400",
                                        "10.0.0.1:5-99999",
                                        "http://10.0.0.1",
                                        "fd00::1::2"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct muster_listen listen;
        struct muster_error error = {.rc = MUSTER_OK};

        print_message("%s\n", texts[i]);
        assert_int_equal(muster_listen_parse(texts[i], &listen, &error), MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, texts[i]));
        assert_non_null(strstr(error.text, "ADDRESS[:PORT[-PORT]]"));
    }
}

static int set_up(void **state)
{
    static struct test_env test;

    test_env_open(&test);
    assert_int_equal(muster_net_system_open(&test.env, &test.env.net), MUSTER_OK);
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    struct test_env *test = *state;

    muster_net_system_close(test->env.net);
    test_env_close(test);
    return 0;
}

static enum muster_rc listen_find(struct muster_env *env, const char *text,
                                  struct muster_address *ret_address,
                                  struct muster_error *ret_error)
{
    struct muster_listen listen;

    assert_int_equal(muster_listen_parse(text, &listen, ret_error), MUSTER_OK);
    return muster_listen_find(env, &listen, MUSTER_ADDRESS_NONE,
                              muster_loop_after_ns(env->loop, 30 * SECOND_NS), ret_address,
                              ret_error);
}

static void host_and_interface_become_an_address_of_this_host(void **state)
{
    static const struct {
        const char *text, *found;
    } rows[] = {{"127.0.0.1:7", "127.0.0.1:7"},
                {"lo:7-9", "127.0.0.1:7"},
                {"localhost:7", "127.0.0.1:7"},
                {"[::1%lo]:7", "[::1]:7"}};
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};
        struct muster_address address;
        char text[MUSTER_ADDRESS_TEXT_BYTES];

        print_message("%s\n", rows[i].text);
        assert_int_equal(listen_find(&test->env, rows[i].text, &address, &error), MUSTER_OK);
        assert_string_equal(muster_address_format(&address, text), rows[i].found);
    }
}

static void what_is_not_of_this_host_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *named;
    } rows[] = {{"192.0.2.1:0", "192.0.2.1 must be an address of this host"},
                {"[2001:db8::1]:0", "2001:db8::1 must be an address of this host"},
                {"[fe80::1%nosuch0]:0", "nosuch0"},
                {"no-such-host.invalid:0", "no-such-host.invalid must be"}};
    struct test_env *test = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_error error = {.rc = MUSTER_OK};
        struct muster_address address;

        assert_int_not_equal(listen_find(&test->env, rows[i].text, &address, &error), MUSTER_OK);
        print_message("%s: %s\n", rows[i].text, error.text);
        assert_non_null(strstr(error.text, rows[i].named));
    }
}

/* The lowest one: what is left open takes it. */
static int free_descriptor(void)
{
    int fd = dup(STDERR_FILENO);

    assert_true(fd >= 0);
    close(fd);
    return fd;
}

static void source_of_a_connection_to_this_host_is_the_address_itself(void **state)
{
    struct muster_address peer, source;
    struct muster_error error;
    struct test_env *test = *state;
    int descriptor = free_descriptor();

    assert_int_equal(muster_address_parse("127.0.0.1:2379", &peer, &error), MUSTER_OK);

    assert_int_equal(muster_net_find_source(test->env.net, &peer, &source, &error), MUSTER_OK);

    assert_int_equal(free_descriptor(), descriptor);
    peer.port = 0;
    assert_true(muster_address_is_equal(&peer, &source));
    peer.family = MUSTER_ADDRESS_UNIX;
    assert_int_equal(muster_net_find_source(test->env.net, &peer, &source, &error),
                     MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_host_and_ports),
        cmocka_unit_test(bad_text_is_refused_with_the_form),
        CASE(host_and_interface_become_an_address_of_this_host),
        CASE(what_is_not_of_this_host_is_refused_by_name),
        CASE(source_of_a_connection_to_this_host_is_the_address_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
