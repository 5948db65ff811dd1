/* Where a member listens: told, by the resolver, or towards the registry, on a host of our making. */
#include "test_env.h"
#include "test_vars.h"

#include <stdio.h>
#include <string.h>

#include <muster/stream.h>

#include "training/address.h"

/* This host: 10.0.0.1, fd00::1, eth1 with 10.1.0.1; the route to others leaves from 10.0.0.1,
 * fd00::1, to those of 10.1 from 10.1.0.1. */

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
    assert_true(peer->family == MUSTER_ADDRESS_IPV4 || peer->family == MUSTER_ADDRESS_IPV6);
    if (peer->family == MUSTER_ADDRESS_IPV4 && peer->ip[0] == 192)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "no route");
    if (peer->family == MUSTER_ADDRESS_IPV4 && peer->ip[0] == 198)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED, "no routes here");
    if (muster_address_is_loopback(peer))
        *ret_source = address_of(peer->family == MUSTER_ADDRESS_IPV6 ? "[::1]:0" : "127.0.0.1:0");
    else if (peer->family == MUSTER_ADDRESS_IPV6)
        *ret_source = address_of("[fd00::1]:7");
    else
        *ret_source = address_of(peer->ip[1] == 1 ? "10.1.0.1:7" : "10.0.0.1:7");
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
static uint64_t question_ns, passed_ns; /* a question takes so long; all of them until now */

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
        const char *name, *addresses[3];
    } names[] = {{"node0", {"127.0.1.1:0"}},
                 {"node1", {"10.1.0.1:0"}},
                 {"nodes", {"10.9.9.9:0", "127.0.1.1:0", "10.1.0.1:0"}},
                 {"away", {"10.9.9.9:0"}},
                 {"registry", {"10.0.0.9:0"}},
                 {"registry6", {"[fd00::9]:0"}},
                 {"registries", {"192.0.2.1:0", "10.1.0.9:0", "10.0.0.9:0"}},
                 {"unreachable", {"192.0.2.1:0", "192.0.2.2:0"}},
                 {"unrouted", {"198.0.0.1:0"}},
                 {"late", {"10.0.0.9:0"}}};
    struct muster_loop *loop = MUSTER_CONTAINER_OF(net, struct host_net, net)->loop;
    bool is_early = strcmp(host, "late") == 0 && questions < 2;

    questions++;
    assert_in_range(deadline_ns, muster_loop_now_ns(loop) + 9 * MUSTER_NS_PER_S,
                    muster_loop_now_ns(loop) + 10 * MUSTER_NS_PER_S);
    passed_ns += question_ns;
    for (size_t i = 0; !is_early && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, host) != 0)
            continue;
        for (size_t k = 0; k < 3 && names[i].addresses[k] != NULL; k++)
            lookup->addresses[lookup->address_count++] = address_of(names[i].addresses[k]);
    }
    if (lookup->address_count == 0)
        (void)muster_error_set(&lookup->error, MUSTER_NOT_FOUND, "no name %s", host);
    muster_task_init(&lookup->task, on_answer, lookup);
    muster_task_post(&lookup->task, loop);
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
    const char *host_key; /* of the launcher */
    bool is_shared;       /* members with other keys are reached at loopback addresses, too */
};

#define UNREACHABLE(registry)                                                                      \
    "the registry at " registry " cannot be reached, and the route to it tells which address of "  \
    "this host the others reach: "

/* Without a variable; with MUSTER_LISTEN; under a launcher, which may tell the address of the task. */
#define PLAIN(name_, registry_, ...)                                                               \
    {                                                                                              \
        name_, registry_, {{0}}, __VA_ARGS__                                                       \
    }
#define LISTEN(name_, registry_, listen_, ...)                                                     \
    {                                                                                              \
        name_, registry_, {{"MUSTER_LISTEN", listen_}}, __VA_ARGS__                                \
    }
#define LAUNCHED(name_, registry_, task_address_, ...)                                             \
    {                                                                                              \
        name_, registry_, {{"MUSTER_INCARNATION", "1"}, {"MUSTER_TASK_ADDRESS", task_address_}},   \
            __VA_ARGS__                                                                            \
    }

static const struct row rows[] = {
    PLAIN("towards the registry", "10.0.0.9:2379", "", false, "10.0.0.1:0", .rc = 0),
    PLAIN("towards a name under TLS", "https://registry:2379", "", false, "10.0.0.1:0", .rc = 0),
    PLAIN("towards IPv6", "[fd00::9]:2379", "", false, "[fd00::1]:0", .rc = 0),
    PLAIN("towards a name with IPv6", "registry6:2379", "", false, "[fd00::1]:0", .rc = 0),
    PLAIN("a registry of this host", "127.0.0.1:2379", "", false, "127.0.0.1:0", .rc = 0),
    PLAIN("a registry of this host, IPv6", "[::1]:2379", "", false, "[::1]:0", .rc = 0),
    PLAIN("a registry at a path", "unix:/run/registry", "", false, "127.0.0.1:0", .rc = 0),
    PLAIN("of several registries the one away", "127.0.0.1:2379,10.0.0.9:2379", "", false,
          "10.0.0.1:0", .rc = 0),
    PLAIN("of several registries one has a route", "192.0.2.1:2379,nobody:2379,registry:2379", "",
          false, "10.0.0.1:0", .rc = 0),
    PLAIN("a name that comes late", "late:2379", "", false, "10.0.0.1:0", .rc = 0),
    PLAIN("no route", "192.0.2.1:2379", "", false, UNREACHABLE("192.0.2.1:2379") "no route",
          .rc = MUSTER_UNAVAILABLE),
    PLAIN("no such name", "nobody:2379", "", false, UNREACHABLE("nobody:2379") "no name nobody",
          .rc = MUSTER_UNAVAILABLE),
    PLAIN("the first of several sources", "10.1.0.9:1,10.0.0.9:1", "", false, "10.1.0.1:0",
          .rc = 0),
    PLAIN("away before this host", "10.0.0.9:1,127.0.0.1:1", "", false, "10.0.0.1:0", .rc = 0),
    PLAIN("a path before away", "unix:/r,10.1.0.9:1", "", false, "10.1.0.1:0", .rc = 0),
    PLAIN("a path behind away", "10.1.0.9:1,unix:/r", "", false, "10.1.0.1:0", .rc = 0),
    PLAIN("this host twice", "127.0.0.1:1,[::1]:1", "", false, "127.0.0.1:0", .rc = 0),
    PLAIN("a name with several addresses", "registries:1", "", false, "10.1.0.1:0", .rc = 0),
    PLAIN("a name that leads nowhere", "unreachable:1", "", false,
          UNREACHABLE("unreachable:1") "no route", .rc = MUSTER_UNAVAILABLE),
    PLAIN("the last one's error", "192.0.2.1:1,nobody:1", "", false,
          UNREACHABLE("192.0.2.1:1,nobody:1") "no name nobody", .rc = MUSTER_UNAVAILABLE),
    PLAIN("a network that knows no routes", "198.0.0.1:1", "", false,
          UNREACHABLE("198.0.0.1:1") "no routes here", .rc = MUSTER_UNIMPLEMENTED),
    PLAIN("another host key on this host", "127.0.0.1:1", "", false, "127.0.0.1:0", .host_key = "k",
          .is_shared = true),
    PLAIN("another host key", "10.0.0.9:1", "", false, "10.0.0.1:0", .host_key = "k"),
    PLAIN("the resolver's, of a name with several", "10.0.0.9:1", "nodes:2222", true,
          "10.1.0.1:2222", .is_wish = true),
    PLAIN("the resolver's, of a name with several, as the registry", "127.0.0.1:1", "nodes:2222",
          true, "127.0.1.1:2222", .is_wish = true),
    PLAIN("the resolver's, not here, as an address", "10.0.0.9:1", "10.9.9.9:2222", true,
          "10.0.0.1:0", .rc = 0),
    PLAIN("the resolver's, unknown", "10.0.0.9:1", "nobody:7", true, "10.0.0.1:0", .rc = 0),
    PLAIN("the resolver's, a path", "10.0.0.9:1", "unix:/r", true, "10.0.0.1:0", .rc = 0),
    PLAIN("the resolver's, no endpoint", "10.0.0.9:1", "a b:c", true, "10.0.0.1:0", .rc = 0),
    PLAIN("the resolver's, without a port", "10.0.0.9:1", "node1", true, "10.1.0.1:0", .rc = 0),
    LISTEN("told nowhere", "10.0.0.9:1", "", "", true, "10.0.0.1:0", .rc = 0),
    LISTEN("as told, of loopback", "127.0.0.1:1", "127.0.0.1:5", "", true, "127.0.0.1:5",
           .port_last = 5, .host_key = "k", .is_shared = true),
    LISTEN("as told, of loopback, the registry away", "192.0.2.1:1", "127.0.0.1:5", "", true,
           UNREACHABLE("192.0.2.1:1") "no route", .rc = MUSTER_UNAVAILABLE),
    LISTEN("as told, a name, the registry nowhere", "192.0.2.1:1", "eth1", "", true,
           UNREACHABLE("192.0.2.1:1") "no route", .rc = MUSTER_UNAVAILABLE),
    LISTEN("everywhere, the registry nowhere", "192.0.2.1:1", "0.0.0.0:5", "", true,
           UNREACHABLE("192.0.2.1:1") "no route", .rc = MUSTER_UNAVAILABLE),
    PLAIN("the resolver's own", "10.0.0.9:1", "10.1.0.1:2222", true, "10.1.0.1:2222",
          .is_wish = true),
    PLAIN("the resolver's own, shared", "10.0.0.9:1", "10.1.0.1:2222", false, "10.1.0.1:0",
          .rc = 0),
    PLAIN("the resolver's name", "10.0.0.9:1", "node1:2222", true, "10.1.0.1:2222",
          .is_wish = true),
    PLAIN("the resolver's, with a scheme", "10.0.0.9:1", "grpc://node1:7", true, "10.1.0.1:7",
          .is_wish = true),
    PLAIN("the resolver's, IPv6", "10.0.0.9:1", "[fd00::1]:7", true, "[fd00::1]:7",
          .is_wish = true),
    PLAIN("the resolver's, not here", "10.0.0.9:1", "away:2222", true, "10.0.0.1:0", .rc = 0),
    PLAIN("the resolver's, of loopback", "10.0.0.9:1", "node0:2222", true, "10.0.0.1:0", .rc = 0),
    PLAIN("the resolver's, of loopback, as the registry", "127.0.0.1:1", "127.0.0.1:2222", true,
          "127.0.0.1:2222", .is_wish = true),
    LAUNCHED("a launcher's TF_CONFIG is not for members", "10.0.0.9:1", NULL, "10.1.0.1:2222", true,
             "10.0.0.1:0", .rc = 0),
    LAUNCHED("a launcher's resolver", "10.0.0.9:1", "10.1.0.1:7", "127.0.0.1:2222", true,
             "10.1.0.1:7", .is_wish = true),
    LAUNCHED("a launcher's resolver, several workers", "10.0.0.9:1", "10.1.0.1", "", true,
             "10.1.0.1:0", .rc = 0),
    LAUNCHED("a launcher's resolver, several workers, IPv6", "10.0.0.9:1", "[fd00::1]", "", true,
             "[fd00::1]:0", .rc = 0),
    LISTEN("as told", "192.0.2.1:1", "10.1.0.1:5000-5003", "node1:1", true, "10.1.0.1:5000",
           .port_last = 5003),
    LISTEN("as told, an interface", "10.0.0.9:1", "eth1", "", true, "10.1.0.1:0", .rc = 0),
    LISTEN("as told, an interface, IPv6", "[fd00::9]:1", "eth1:5", "", true, "[fd00::1]:5",
           .port_last = 5),
    LISTEN("everywhere", "10.0.0.9:1", "0.0.0.0:5-6", "", true, "0.0.0.0:5", "10.0.0.1:0", 6,
           .is_wish = false),
    LISTEN("everywhere, the resolver's", "10.0.0.9:1", ":5-6", "node1:7", true, "0.0.0.0:5",
           "10.1.0.1:0", 6, .is_wish = false),
    LISTEN("everywhere, IPv6", "[fd00::9]:1", ":5", "", true, "[::]:5", "[fd00::1]:0", 5,
           .is_wish = false),
    LISTEN("everywhere, both", "10.0.0.9:1", "[::]", "", true, "[::]:0", "10.0.0.1:0", .rc = 0),
    LISTEN("everywhere, but not there", "[fd00::9]:1", "0.0.0.0", "", true,
           "MUSTER_LISTEN=0.0.0.0 must be [::] here: the other members and the registry are "
           "reached by "
           "IPv6",
           .rc = MUSTER_INVALID_ARGUMENT),
    LISTEN("not of this host", "10.0.0.9:1", "10.2.0.1", "", true,
           "MUSTER_LISTEN=10.2.0.1 must be an address of this host", .rc = MUSTER_INVALID_ARGUMENT),
    LISTEN("no such interface", "10.0.0.9:1", "eth9", "", true,
           "MUSTER_LISTEN=eth9 must be an address, a host name or a network interface of this "
           "host: no "
           "name eth9",
           .rc = MUSTER_NOT_FOUND),
    LISTEN("no address", "10.0.0.9:1", "10.1.0.1:x", "", true,
           "MUSTER_LISTEN=10.1.0.1:x: a port must be a number from 0 to 65535; write "
           "ADDRESS[:PORT[-PORT]], such as 10.0.0.1, eth0:5000-5099 or [::]:5000",
           .rc = MUSTER_INVALID_ARGUMENT),
};

static void check_row(const struct row *row, struct muster_env *env)
{
    struct muster_replica_place place = {.is_sole = row->is_sole};
    struct muster_node_options node = {.registry = row->registry, .host_key = row->host_key};
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
        assert_string_equal(error.text, row->listen);
        assert_int_equal(error.rc, rc);
        return;
    }
    assert_string_equal(muster_address_format(&node.listen, text), row->listen);
    assert_string_equal(muster_address_format(&node.reach, text),
                        row->reach != NULL ? row->reach : "none");
    assert_int_equal(node.listen_port_last, row->port_last);
    assert_int_equal(node.is_listen_port_wish, row->is_wish);
    assert_int_equal(node.is_loopback_shared, row->is_shared);
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
        check_row(&rows[i], &test.env);
        test.env.net = NULL;
        test_env_close(&test);
    }
}

/* Asked again later and later: 20 ms, 40 ms, 80 ms … */
static void a_registry_is_asked_for_again_until_the_deadline(void **state)
{
    static const struct {
        const char *registry;
        uint64_t timeout_ns;
        enum muster_rc rc;
        unsigned least, most; /* questions */
    } asked[] = {
        {"nobody:1", 100 * MUSTER_NS_PER_MS, MUSTER_UNAVAILABLE, 2, 4},
        {"nobody:1", 0, MUSTER_UNAVAILABLE, 1, 1},
        {"late:1", 60 * MUSTER_NS_PER_S, MUSTER_OK, 3, 3},
        {"nobody:1,no endpoint", 60 * MUSTER_NS_PER_S, MUSTER_INVALID_ARGUMENT, 1, 1},
        {"nobody:1,198.0.0.1:1", 60 * MUSTER_NS_PER_S, MUSTER_UNIMPLEMENTED, 1, 1},
        {"unrouted:1", 60 * MUSTER_NS_PER_S, MUSTER_UNIMPLEMENTED, 1, 1},
    };
    static const struct test_var none[] = {{NULL, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        struct muster_replica_place place = {.is_sole = true};
        struct muster_node_options node = {.registry = asked[i].registry};
        struct muster_error error = {.rc = MUSTER_OK};
        struct host_net host = {.net = {.ops = &host_ops}};
        struct test_env test;
        struct test_vars vars;

        test_env_open(&test);
        test_vars_init(&vars, none);
        test.env.vars = &vars.vars;
        test.env.net = &host.net;
        host.loop = test.env.loop;
        questions = 0;
        assert_int_equal(
            muster_training_find_address(&test.env, &place, asked[i].timeout_ns, &node, &error),
            asked[i].rc);
        assert_in_range(questions, asked[i].least, asked[i].most);
        test.env.net = NULL;
        test_env_close(&test);
    }
}

static const struct muster_loop_ops *system_ops;

static uint64_t shifted_now_ns(const struct muster_loop *loop)
{
    return system_ops->now_ns(loop) + passed_ns;
}

static unsigned waits_told;

static void count_waits(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                        const char *event, const struct muster_field *fields, size_t count)
{
    (void)log;
    (void)level;
    (void)wall_ns;
    (void)fields;
    (void)count;
    waits_told += strcmp(event, "waits_for_registry") == 0;
}

/* The log tells of a search that takes a while, but not again and again. */
static void a_long_search_is_told_once(void **state)
{
    static const struct {
        uint64_t question_ns, timeout_ns;
        unsigned told;
    } searches[] = {{MUSTER_NS_PER_S, MUSTER_NS_PER_S, 0},
                {2 * MUSTER_NS_PER_S, 9 * MUSTER_NS_PER_S, 1}};
    static const struct muster_log_ops log_ops = {.write = count_waits};
    static const struct test_var none[] = {{NULL, NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(searches) / sizeof(searches[0]); i++) {
        struct muster_log log = {.ops = &log_ops, .level_max = MUSTER_LOG_WARN};
        struct muster_replica_place place = {.is_sole = true};
        struct muster_node_options node = {.registry = "nobody:1"};
        struct muster_error error = {.rc = MUSTER_OK};
        struct host_net host = {.net = {.ops = &host_ops}};
        struct muster_loop_ops shifted_ops;
        struct test_env test;
        struct test_vars vars;

        test_env_open(&test);
        test_vars_init(&vars, none);
        test.env.vars = &vars.vars;
        test.env.net = &host.net;
        test.env.log = &log;
        host.loop = test.env.loop;
        system_ops = test.env.loop->ops;
        shifted_ops = *system_ops;
        shifted_ops.now_ns = shifted_now_ns;
        test.env.loop->ops = &shifted_ops;
        question_ns = searches[i].question_ns;
        waits_told = 0;
        assert_int_equal(muster_training_find_address(&test.env, &place, searches[i].timeout_ns, &node,
                                                      &error),
                         MUSTER_UNAVAILABLE);
        assert_int_equal(waits_told, searches[i].told);
        question_ns = passed_ns = 0;
        test.env.loop->ops = system_ops;
        test.env.net = NULL;
        test.env.log = NULL;
        test_env_close(&test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_is_told_or_the_resolvers_or_towards_the_registry),
        cmocka_unit_test(a_registry_is_asked_for_again_until_the_deadline),
        cmocka_unit_test(a_long_search_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
