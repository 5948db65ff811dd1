/* Where a member listens: told, by the resolver, or towards the registry, on a host of our making. */
#include "test_env.h"
#include "test_vars.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "training/address.h"

/* This host: 10.0.0.1, fd00::1, eth1 with 10.1.0.1; the route to others leaves from 10.0.0.1, fd00::1. */

static struct muster_address address_of(const char *text)
{
    struct muster_address address;

    assert_int_equal(muster_address_parse(text, &address, NULL), MUSTER_OK);
    return address;
}

static enum muster_rc host_find_source(struct muster_net *net, const struct muster_address *peer,
                                       struct muster_address *ret_source,
                                       struct muster_error *ret_error)
{
    (void)net;
    if (peer->family == MUSTER_ADDRESS_IPV4 && peer->ip[0] == 192)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no route");
    if (muster_address_is_loopback(peer))
        *ret_source = address_of(peer->family == MUSTER_ADDRESS_IPV6 ? "[::1]:0" : "127.0.0.1:0");
    else
        *ret_source =
            address_of(peer->family == MUSTER_ADDRESS_IPV6 ? "[fd00::1]:0" : "10.0.0.1:0");
    return MUSTER_OK;
}

static enum muster_rc host_find_interface(
    struct muster_net *net, const char *name,
    struct muster_address ret_addresses[MUSTER_INTERFACE_ADDRESSES_MAX], size_t *ret_count,
    struct muster_error *ret_error)
{
    (void)net;
    if (strcmp(name, "eth1") != 0)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND, "there is no %s", name);
    ret_addresses[0] = address_of("10.1.0.1:0");
    ret_addresses[1] = address_of("[fd00::1]:0");
    *ret_count = 2;
    return MUSTER_OK;
}

static bool host_has_address(struct muster_net *net, const struct muster_address *address)
{
    static const char *const own[] = {"127.0.0.1:0", "127.0.1.1:0", "10.0.0.1:0",
                                      "10.1.0.1:0",  "[::1]:0",     "[fd00::1]:0"};
    struct muster_address any_port = *address;

    (void)net;
    any_port.port = 0;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        struct muster_address mine = address_of(own[i]);

        if (muster_address_is_equal(&mine, &any_port))
            return true;
    }
    return false;
}

static void on_answer(struct muster_task *task)
{
    struct muster_lookup *lookup = task->data;

    lookup->done(lookup, lookup->error.rc);
}

/* "late" is known from the third question on. */
static unsigned questions;

static enum muster_rc host_lookup(struct muster_net *net, struct muster_lookup *lookup,
                                  const char *host, uint64_t deadline_ns);

static const struct muster_net_ops host_ops = {
    .lookup = host_lookup,
    .find_source = host_find_source,
    .find_interface = host_find_interface,
    .has_address = host_has_address,
};

struct host_net {
    struct muster_net net;
    struct muster_loop *loop;
};

static enum muster_rc host_lookup(struct muster_net *net, struct muster_lookup *lookup,
                                  const char *host, uint64_t deadline_ns)
{
    static const struct {
        const char *name, *address;
    } names[] = {{"node0", "127.0.1.1:0"},   {"node1", "10.1.0.1:0"},      {"away", "10.9.9.9:0"},
                 {"registry", "10.0.0.9:0"}, {"registry6", "[fd00::9]:0"}, {"late", "10.0.0.9:0"}};
    bool is_early = strcmp(host, "late") == 0 && ++questions < 3;

    (void)deadline_ns;
    for (size_t i = 0; !is_early && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, host) != 0)
            continue;
        lookup->addresses[0] = address_of(names[i].address);
        lookup->address_count = 1;
    }
    if (lookup->address_count == 0)
        (void)muster_error_set(&lookup->error, MUSTER_NOT_FOUND, "no name %s", host);
    muster_task_init(&lookup->task, on_answer, lookup);
    muster_task_post(&lookup->task, MUSTER_CONTAINER_OF(net, struct host_net, net)->loop);
    return MUSTER_OK;
}

struct row {
    const char *name, *registry;
    struct test_var vars[4];
    const char *resolver; /* the address of this task; "": not told */
    bool is_sole;
    const char *listen; /* what comes out, or what the error says */
    const char *reach;  /* NULL: where it listens */
    uint16_t port_last;
    bool is_wish;
    enum muster_rc rc;
};

#define LAUNCHER                                                                                   \
    {                                                                                              \
        "MUSTER_INCARNATION", "1"                                                                  \
    }

static const struct row rows[] = {
    {"towards the registry", "10.0.0.9:2379", {{0}}, "", false, "10.0.0.1:0", .rc = 0},
    {"towards a name under TLS", "https://registry:2379", {{0}}, "", false, "10.0.0.1:0", .rc = 0},
    {"towards IPv6", "[fd00::9]:2379", {{0}}, "", false, "[fd00::1]:0", .rc = 0},
    {"towards a name with IPv6", "registry6:2379", {{0}}, "", false, "[fd00::1]:0", .rc = 0},
    {"a registry of this host", "127.0.0.1:2379", {{0}}, "", false, "127.0.0.1:0", .rc = 0},
    {"a registry of this host, IPv6", "[::1]:2379", {{0}}, "", false, "[::1]:0", .rc = 0},
    {"a registry at a path", "unix:/run/registry", {{0}}, "", false, "127.0.0.1:0", .rc = 0},
    {"of several registries the one away",
     "127.0.0.1:2379,10.0.0.9:2379",
     {{0}},
     "",
     false,
     "10.0.0.1:0",
     .rc = 0},
    {"of several registries one has a route",
     "192.0.2.1:2379,nobody:2379,registry:2379",
     {{0}},
     "",
     false,
     "10.0.0.1:0",
     .rc = 0},
    {"a name that comes late", "late:2379", {{0}}, "", false, "10.0.0.1:0", .rc = 0},
    {"no route", "192.0.2.1:2379", {{0}}, "", false, "no route", .rc = MUSTER_UNAVAILABLE},
    {"no such name", "nobody:2379", {{0}}, "", false, "nobody", .rc = MUSTER_UNAVAILABLE},
    {"the resolver's own",
     "10.0.0.9:1",
     {{0}},
     "10.1.0.1:2222",
     true,
     "10.1.0.1:2222",
     .is_wish = true},
    {"the resolver's own, shared",
     "10.0.0.9:1",
     {{0}},
     "10.1.0.1:2222",
     false,
     "10.1.0.1:0",
     .rc = 0},
    {"the resolver's name",
     "10.0.0.9:1",
     {{0}},
     "node1:2222",
     true,
     "10.1.0.1:2222",
     .is_wish = true},
    {"the resolver's, with a scheme",
     "10.0.0.9:1",
     {{0}},
     "grpc://node1:7",
     true,
     "10.1.0.1:7",
     .is_wish = true},
    {"the resolver's, IPv6",
     "10.0.0.9:1",
     {{0}},
     "[fd00::1]:7",
     true,
     "[fd00::1]:7",
     .is_wish = true},
    {"the resolver's, not here", "10.0.0.9:1", {{0}}, "away:2222", true, "10.0.0.1:0", .rc = 0},
    {"the resolver's, of loopback", "10.0.0.9:1", {{0}}, "node0:2222", true, "10.0.0.1:0", .rc = 0},
    {"the resolver's, of loopback, as the registry",
     "127.0.0.1:1",
     {{0}},
     "127.0.0.1:2222",
     true,
     "127.0.0.1:2222",
     .is_wish = true},
    {"a launcher's TF_CONFIG is not for members",
     "10.0.0.9:1",
     {LAUNCHER},
     "10.1.0.1:2222",
     true,
     "10.0.0.1:0",
     .rc = 0},
    {"a launcher's resolver",
     "10.0.0.9:1",
     {LAUNCHER, {"MUSTER_TASK_ADDRESS", "10.1.0.1:7"}},
     "127.0.0.1:2222",
     true,
     "10.1.0.1:7",
     .is_wish = true},
    {"a launcher's resolver, several workers",
     "10.0.0.9:1",
     {LAUNCHER, {"MUSTER_TASK_ADDRESS", "10.1.0.1"}},
     "",
     true,
     "10.1.0.1:0",
     .rc = 0},
    {"a launcher's resolver, several workers, IPv6",
     "10.0.0.9:1",
     {LAUNCHER, {"MUSTER_TASK_ADDRESS", "[fd00::1]"}},
     "",
     true,
     "[fd00::1]:0",
     .rc = 0},
    {"as told",
     "192.0.2.1:1",
     {{"MUSTER_LISTEN", "10.1.0.1:5000-5003"}},
     "node1:1",
     true,
     "10.1.0.1:5000",
     .port_last = 5003},
    {"as told, an interface",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", "eth1"}},
     "",
     true,
     "10.1.0.1:0",
     .rc = 0},
    {"as told, an interface, IPv6",
     "[fd00::9]:1",
     {{"MUSTER_LISTEN", "eth1:5"}},
     "",
     true,
     "[fd00::1]:5",
     .port_last = 5},
    {"everywhere",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", "0.0.0.0:5-6"}},
     "",
     true,
     "0.0.0.0:5",
     "10.0.0.1:0",
     6,
     .is_wish = false},
    {"everywhere, the resolver's",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", ":5-6"}},
     "node1:7",
     true,
     "0.0.0.0:5",
     "10.1.0.1:0",
     6,
     .is_wish = false},
    {"everywhere, IPv6",
     "[fd00::9]:1",
     {{"MUSTER_LISTEN", ":5"}},
     "",
     true,
     "[::]:5",
     "[fd00::1]:0",
     5,
     .is_wish = false},
    {"everywhere, both",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", "[::]"}},
     "",
     true,
     "[::]:0",
     "10.0.0.1:0",
     .rc = 0},
    {"everywhere, but not there",
     "[fd00::9]:1",
     {{"MUSTER_LISTEN", "0.0.0.0"}},
     "",
     true,
     "[::]",
     .rc = MUSTER_INVALID_ARGUMENT},
    {"not of this host",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", "10.2.0.1"}},
     "",
     true,
     "10.2.0.1",
     .rc = MUSTER_INVALID_ARGUMENT},
    {"no such interface",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", "eth9"}},
     "",
     true,
     "eth9",
     .rc = MUSTER_NOT_FOUND},
    {"no address",
     "10.0.0.9:1",
     {{"MUSTER_LISTEN", "10.1.0.1:x"}},
     "",
     true,
     "MUSTER_LISTEN",
     .rc = MUSTER_INVALID_ARGUMENT},
};

static void check(const struct row *row, struct muster_env *env)
{
    struct muster_place place = {.is_sole = row->is_sole};
    struct muster_node_options node = {.registry = row->registry};
    struct muster_error error = {.rc = MUSTER_OK};
    char text[MUSTER_ADDRESS_TEXT_BYTES];
    enum muster_rc rc;

    print_message("%s\n", row->name);
    questions = 0;
    snprintf(place.address, sizeof(place.address), "%s", row->resolver);

    rc = muster_training_find_address(
        env, &place, strcmp(row->registry, "late:2379") == 0 ? 60 * MUSTER_NS_PER_S : 1, &node,
        &error);

    assert_int_equal(rc, row->rc);
    if (rc != MUSTER_OK) {
        print_message("  %s\n", error.text);
        assert_non_null(strstr(error.text, row->listen));
        return;
    }
    assert_string_equal(muster_address_format(&node.listen, text), row->listen);
    assert_string_equal(muster_address_format(&node.reach, text),
                        row->reach != NULL ? row->reach : "none");
    assert_int_equal(node.listen_port_last, row->port_last);
    assert_int_equal(node.is_listen_port_wish, row->is_wish);
}

static void address_is_told_or_the_resolvers_or_towards_the_registry(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct test_vars vars;
        struct host_net host = {.net = {.ops = &host_ops}};

        test_env_open(&test);
        test_vars_init(&vars, rows[i].vars);
        test.env.vars = &vars.vars;
        test.env.net = &host.net;
        host.loop = test.env.loop;
        check(&rows[i], &test.env);
        test.env.net = NULL;
        test_env_close(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_is_told_or_the_resolvers_or_towards_the_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
