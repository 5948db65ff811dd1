/* Where a node listens, what it tells the others, and members that it cannot reach. */
#include "node_stand.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

static struct node_stand stand; /* of the case that runs */

/* --- The port --- */

static struct muster_address address_of(const char *text)
{
    struct muster_address address;

    assert_int_equal(muster_address_parse(text, &address, NULL), MUSTER_OK);
    return address;
}

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    (void)listener;
    muster_stream_close(stream, NULL);
}

/* No port of an address that this host does not have can be had. */
static void only_a_port_that_is_taken_is_passed_over(void **state)
{
    struct muster_node_options options = {.listen = address_of("192.0.2.1:4000"),
                                          .listen_port_last = 4001};

    (void)state;
    node_stand_open(&stand);

    assert_int_not_equal(node_stand_try_node(&stand, options), MUSTER_OK);
    assert_non_null(strstr(stand.error.text, "192.0.2.1:4000"));
    node_stand_close(&stand);
}

/* Two ports in a row that are taken; the second is the last. */
struct taken {
    struct muster_listener *listeners[2];
    struct muster_address first;
};

static void take_ports(struct taken *taken)
{
    struct muster_net *net = stand.pair.env->net;
    struct muster_address address = address_of("127.0.0.1:0");

    for (;;) {
        assert_int_equal(
            muster_listener_open(net, &address, NULL, on_accept, NULL, &taken->listeners[0], NULL),
            MUSTER_OK);
        taken->first = *muster_listener_address(taken->listeners[0]);
        address.port = (uint16_t)(taken->first.port + 1);
        if (muster_listener_open(net, &address, NULL, on_accept, NULL, &taken->listeners[1],
                                 NULL) == MUSTER_OK)
            return;
        muster_listener_close(taken->listeners[0], NULL);
        address.port = 0;
    }
}

static void a_port_that_is_taken_is_passed_over_or_named(void **state)
{
    enum { ANY, FIRST, SECOND, NONE };
    static const struct {
        const char *name;
        bool is_second_free;
        unsigned last; /* of the range: ports behind the first; 0: no range */
        bool is_wish;
        int port; /* that it gets */
        enum muster_rc rc;
    } rows[] = {
        {"one", false, 0, false, NONE, MUSTER_ALREADY_EXISTS},
        {"one, as a wish", false, 0, true, ANY, MUSTER_OK},
        {"a range", false, 1, false, NONE, MUSTER_UNAVAILABLE},
        {"a range, as a wish", false, 1, true, NONE, MUSTER_UNAVAILABLE},
        {"a range with a free one", true, 1, false, SECOND, MUSTER_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_node_options options = {.is_listen_port_wish = rows[i].is_wish};
        struct taken taken;
        enum muster_rc rc;
        char text[80];

        node_stand_open(&stand);
        take_ports(&taken);
        if (rows[i].is_second_free)
            muster_listener_close(taken.listeners[1], NULL);
        options.listen = taken.first;
        if (rows[i].last > 0)
            options.listen_port_last = (uint16_t)(taken.first.port + rows[i].last);
        rc = node_stand_try_node(&stand, options);

        if (rc != rows[i].rc)
            fail_msg("%s: %s '%s'", rows[i].name, muster_rc_name(rc), stand.error.text);
        if (rc == MUSTER_UNAVAILABLE) {
            (void)snprintf(text, sizeof(text), "all 2 ports of the range 127.0.0.1:%u-%u are taken",
                           taken.first.port, taken.first.port + 1u);
            assert_non_null(strstr(stand.error.text, text));
        }
        if (rc == MUSTER_OK) {
            const struct muster_address *got = muster_node_address(stand.node);

            assert_true(got->port > 0 && got->port != taken.first.port);
            if (rows[i].port == SECOND)
                assert_int_equal(got->port, taken.first.port + 1);
            node_stand_close_node(&stand);
        }
        muster_listener_close(taken.listeners[0], NULL);
        if (!rows[i].is_second_free)
            muster_listener_close(taken.listeners[1], NULL);
        node_stand_close(&stand);
    }
}

static void the_others_are_told_where_it_is_reached(void **state)
{
    static const struct {
        const char *listen, *reach, *told; /* without the port */
    } rows[] = {
        {NULL, NULL, "127.0.0.1:"},
        {"127.0.0.2:0", NULL, "127.0.0.2:"},
        {NULL, "10.1.2.3:0", "10.1.2.3:"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_node_options options = {.env = NULL};
        const struct muster_member *member;
        char text[MUSTER_ADDRESS_TEXT_BYTES];

        if (rows[i].listen != NULL)
            options.listen = address_of(rows[i].listen);
        if (rows[i].reach != NULL)
            options.reach = address_of(rows[i].reach);
        node_stand_open(&stand);
        assert_int_equal(node_stand_try_node(&stand, options), MUSTER_OK);
        node_stand_wait(&stand);

        assert_string_equal(stand.told, "view:1 ");
        member = &muster_node_view(stand.node)->members[0];
        muster_address_format(&member->address, text);
        assert_memory_equal(text, rows[i].told, strlen(rows[i].told));
        assert_int_equal(member->address.port, muster_node_address(stand.node)->port);
        assert_true(member->address.port > 0);
        node_stand_end(&stand);
    }
}

/* --- Members --- */

static void members_are_reached_from_both_sides_or_not_counted(void **state)
{
    static const struct {
        const char *name, *reach; /* of this process; NULL: at loopback */
        const char *host, *address;
        bool is_loopback_shared, is_in_view;
        const char *told, *text;
    } rows[] = {
        {"on this host", NULL, NODE_STAND_HOST, "127.0.0.1:9", false, false, "view:2 ", ""},
        {"both of this host, one is reached from outside", "10.0.0.1:0", NODE_STAND_HOST,
         "127.0.0.1:9", false, false, "view:2 ", ""},
        {"both reached from outside", "10.0.0.1:0", "there", "10.0.0.7:9", false, false, "view:2 ",
         ""},
        {"this one at loopback only", NULL, "there", "10.0.0.7:9", false, false, "failed:3 ",
         "worker:0 would be reached at 127.0.0.1:"},
        {"and what it is not reached by", NULL, "there", "10.0.0.7:9", false, false, "failed:3 ",
         "but worker:1 (10.0.0.7:9) is on another host"},
        {"the other at loopback only", "10.0.0.1:0", "there", "127.0.0.1:9", false, false,
         "view:1 ", ""},
        {"a member at loopback only", "10.0.0.1:0", "there", "127.0.0.1:9", false, true,
         "failed:3 ", "worker:1 of job job is reached at 127.0.0.1:9 of another host only"},
        {"loopback addresses that are shared", NULL, "there", "127.0.0.1:9", true, false, "view:2 ",
         ""},
        {"a socket's name", "10.0.0.1:0", "there", "unix:/nowhere", false, false, "view:2 ", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_member member = node_stand_other(rows[i].host, rows[i].address);
        struct muster_node_options options = {.is_loopback_shared = rows[i].is_loopback_shared};

        node_stand_open(&stand);
        node_stand_put_record(&stand, &member);
        if (rows[i].is_in_view)
            node_stand_put_view(&stand, &member);
        if (rows[i].reach != NULL)
            options.reach = address_of(rows[i].reach);
        assert_int_equal(node_stand_try_node(&stand, options), MUSTER_OK);
        node_stand_wait(&stand);

        if (strcmp(stand.told, rows[i].told) != 0 || strstr(stand.error.text, rows[i].text) == NULL)
            fail_msg("%s: '%s' %s", rows[i].name, stand.told, stand.error.text);
        node_stand_end(&stand);
    }
}

/* It goes on with those that it has. */
static void a_member_is_not_ended_by_who_comes_from_afar(void **state)
{
    const struct muster_member member = node_stand_other("there", "10.0.0.7:9");

    (void)state;
    node_stand_begin(&stand);
    assert_string_equal(stand.told, "view:1 ");
    node_stand_put_record(&stand, &member);
    assert_int_equal(registry_pair_range(&stand.pair, NODE_STAND_FOLDER, MUSTER_REGISTRY_PREFIX),
                     MUSTER_OK);
    test_env_turn(stand.pair.env, 20);

    assert_string_equal(stand.told, "view:1 ");
}

TEST_SET_UP(tear_down, node_stand_end(&stand))
#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest node_reach[] = {
        cmocka_unit_test(only_a_port_that_is_taken_is_passed_over),
        cmocka_unit_test(a_port_that_is_taken_is_passed_over_or_named),
        cmocka_unit_test(the_others_are_told_where_it_is_reached),
        cmocka_unit_test(members_are_reached_from_both_sides_or_not_counted),
        CASE(a_member_is_not_ended_by_who_comes_from_afar),
    };

    return cmocka_run_group_tests(node_reach, NULL, NULL);
}
