/* Names to addresses and services, against a name server of the test's own. */
#include "name_server.h"
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include "net/stream/dns.h"

struct fixture {
    struct test_env test;
    struct muster_dns *dns;
    struct name_server server;
};

struct lookup {
    struct muster_lookup lookup;
    unsigned done_count;
    enum muster_rc rc;
};

struct service {
    struct muster_dns_srv srv;
    unsigned done_count;
    enum muster_rc rc;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct muster_dns_options options = {.timeout_ms = 600, .tries = 2};

    memset(&fixture, 0, sizeof(fixture));
    test_env_open(&fixture.test);
    name_server_open(&fixture.server, &fixture.test.env);
    options.servers = fixture.server.address;
    assert_int_equal(muster_dns_open(&fixture.test.env, &options, &fixture.dns), MUSTER_OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_dns_close(fixture->dns);
    name_server_close(&fixture->server);
    test_env_close(&fixture->test);
    return 0;
}

static void on_lookup(struct muster_lookup *request, enum muster_rc rc)
{
    struct lookup *lookup = request->data;

    lookup->done_count++;
    lookup->rc = rc;
}

static bool is_lookup_done(void *data)
{
    return ((struct lookup *)data)->done_count > 0;
}

static void lookup_start(struct fixture *fixture, struct lookup *lookup, const char *host,
                         uint64_t deadline_ns)
{
    memset(lookup, 0, sizeof(*lookup));
    lookup->lookup.data = lookup;
    lookup->lookup.done = on_lookup;
    lookup->lookup.port = 2222;
    assert_int_equal(muster_dns_lookup(fixture->dns, &lookup->lookup, host, deadline_ns),
                     MUSTER_OK);
    assert_int_equal(lookup->done_count, 0);
}

static enum muster_rc look_up(struct fixture *fixture, struct lookup *lookup, const char *host)
{
    lookup_start(fixture, lookup, host, UINT64_MAX);
    test_env_run_until(&fixture->test.env, is_lookup_done, lookup);
    assert_int_equal(lookup->done_count, 1);
    return lookup->rc;
}

static bool has_address(const struct lookup *lookup, const char *text)
{
    char formatted[MUSTER_ADDRESS_TEXT_BYTES];
    size_t i;

    for (i = 0; i < lookup->lookup.address_count; i++)
        if (strcmp(muster_address_format(&lookup->lookup.addresses[i], formatted), text) == 0)
            return true;
    return false;
}

static void name_gives_all_its_addresses_with_the_port(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    assert_int_equal(look_up(fixture, &lookup, "worker.example.org"), MUSTER_OK);

    assert_int_equal(lookup.lookup.address_count, 3);
    assert_true(has_address(&lookup, "10.1.2.3:2222"));
    assert_true(has_address(&lookup, "10.1.2.4:2222"));
    assert_true(has_address(&lookup, "[2001:db8::7]:2222"));
}

static void ip_text_answers_itself_without_a_query(void **state)
{
    static const struct {
        const char *host, *formatted;
    } rows[] = {
        {"10.0.0.9", "10.0.0.9:2222"},
        {"::1", "[::1]:2222"},
        {"fe80::1%3", "[fe80::1%3]:2222"},
    };
    struct fixture *fixture = *state;
    struct lookup lookup;
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(look_up(fixture, &lookup, rows[i].host), MUSTER_OK);
        assert_int_equal(lookup.lookup.address_count, 1);
        assert_true(has_address(&lookup, rows[i].formatted));
    }
    assert_int_equal(fixture->server.query_count, 0);
}

/* "unix:2222" would be the address of a socket's file. */
static void a_host_named_unix_is_looked_up(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    assert_int_equal(look_up(fixture, &lookup, "unix"), MUSTER_OK);

    assert_int_equal(lookup.lookup.address_count, 3);
    assert_true(has_address(&lookup, "10.1.2.3:2222"));
    assert_true(fixture->server.query_count > 0);
}

static void localhost_needs_no_name_server(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    assert_int_equal(look_up(fixture, &lookup, "localhost"), MUSTER_OK);

    assert_true(has_address(&lookup, "127.0.0.1:2222"));
    assert_int_equal(fixture->server.query_count, 0);
}

static void unknown_name_is_not_found_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    fixture->server.mood = SAYS_NO_SUCH_NAME;
    assert_int_equal(look_up(fixture, &lookup, "nosuch.example.org"), MUSTER_NOT_FOUND);

    assert_int_equal(lookup.lookup.error.rc, MUSTER_NOT_FOUND);
    assert_non_null(strstr(lookup.lookup.error.text, "nosuch.example.org"));
}

static void failing_and_silent_servers_are_unavailable_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    fixture->server.mood = FAILS;
    assert_int_equal(look_up(fixture, &lookup, "db.example.org"), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(lookup.lookup.error.text, "db.example.org"));

    fixture->server.mood = IS_SILENT;
    assert_int_equal(look_up(fixture, &lookup, "db.example.org"), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(lookup.lookup.error.text, "db.example.org"));
}

static void lookup_ends_at_its_deadline_and_the_late_answer_hurts_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct muster_loop *loop = fixture->test.env.loop;
    struct lookup lookup, next;

    fixture->server.mood = IS_SILENT;
    lookup_start(fixture, &lookup, "slow.example.org",
                 muster_loop_after_ns(loop, MUSTER_NS_PER_MS));
    test_env_run_until(&fixture->test.env, is_lookup_done, &lookup);
    assert_int_equal(lookup.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(lookup.lookup.error.text, "slow.example.org"));
    memset(&lookup, 0x5a, sizeof(lookup)); /* the request is the caller's again */
    fixture->server.mood = ANSWERS;

    assert_int_equal(look_up(fixture, &next, "fast.example.org"), MUSTER_OK);
}

static void cancelled_lookup_calls_back_once_and_later(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    lookup_start(fixture, &lookup, "any.example.org", UINT64_MAX);
    muster_dns_lookup_cancel(fixture->dns, &lookup.lookup);
    muster_dns_lookup_cancel(fixture->dns, &lookup.lookup);
    assert_int_equal(lookup.done_count, 0);
    test_env_run_until(&fixture->test.env, is_lookup_done, &lookup);
    muster_dns_lookup_cancel(fixture->dns, &lookup.lookup);
    test_env_turn(&fixture->test.env, 5);

    assert_int_equal(lookup.done_count, 1);
    assert_int_equal(lookup.rc, MUSTER_CANCELLED);
}

static void many_lookups_run_at_once(void **state)
{
    enum { LOOKUPS = 20 };
    struct fixture *fixture = *state;
    static struct lookup lookups[LOOKUPS];
    char host[32];
    unsigned i;

    for (i = 0; i < LOOKUPS; i++) {
        snprintf(host, sizeof(host), "worker-%u.example.org", i);
        lookup_start(fixture, &lookups[i], host, UINT64_MAX);
    }
    for (i = 0; i < LOOKUPS; i++) {
        test_env_run_until(&fixture->test.env, is_lookup_done, &lookups[i]);
        assert_int_equal(lookups[i].rc, MUSTER_OK);
        assert_int_equal(lookups[i].lookup.address_count, 3);
    }
}

static void close_forgets_queries_whose_requests_have_ended(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    fixture->server.mood = IS_SILENT;
    lookup_start(fixture, &lookup, "slow.example.org", UINT64_MAX);
    muster_dns_lookup_cancel(fixture->dns, &lookup.lookup);
    test_env_run_until(&fixture->test.env, is_lookup_done, &lookup);
    /* tear_down closes with the query still known to the resolver library; a leak would show. */
}

static void on_services(struct muster_dns_srv *srv, enum muster_rc rc)
{
    struct service *service = srv->data;

    service->done_count++;
    service->rc = rc;
}

static bool is_service_done(void *data)
{
    return ((struct service *)data)->done_count > 0;
}

static void services_come_by_priority_then_weight(void **state)
{
    struct fixture *fixture = *state;
    static struct service service;

    memset(&service, 0, sizeof(service));
    service.srv.data = &service;
    assert_int_equal(muster_dns_srv_start(&service.srv, fixture->dns,
                                          "_etcd-server._tcp.example.org", UINT64_MAX, on_services),
                     MUSTER_OK);
    test_env_run_until(&fixture->test.env, is_service_done, &service);

    assert_int_equal(service.rc, MUSTER_OK);
    assert_int_equal(service.srv.service_count, 3);
    assert_string_equal(service.srv.services[0].target, "heavy");
    assert_int_equal(service.srv.services[0].port, 2379);
    assert_string_equal(service.srv.services[1].target, "light");
    assert_string_equal(service.srv.services[2].target, "late");
}

static void unknown_service_is_not_found_and_named(void **state)
{
    struct fixture *fixture = *state;
    static struct service service;

    memset(&service, 0, sizeof(service));
    service.srv.data = &service;
    fixture->server.mood = SAYS_NO_SUCH_NAME;
    assert_int_equal(muster_dns_srv_start(&service.srv, fixture->dns, "_x._tcp.example.org",
                                          UINT64_MAX, on_services),
                     MUSTER_OK);
    test_env_run_until(&fixture->test.env, is_service_done, &service);

    assert_int_equal(service.rc, MUSTER_NOT_FOUND);
    assert_non_null(strstr(service.srv.error.text, "_x._tcp.example.org"));
}

static void lookup_through_the_net_refuses_what_is_no_host(void **state)
{
    struct fixture *fixture = *state;
    struct muster_net *net;
    struct lookup lookup;

    assert_int_equal(muster_net_system_open(&fixture->test.env, &net), MUSTER_OK);
    lookup.lookup.data = &lookup;
    lookup.done_count = 0;
    assert_int_equal(muster_lookup_start(&lookup.lookup, net, "", 1, UINT64_MAX, on_lookup),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_lookup_start(&lookup.lookup, net, "host:80", 1, UINT64_MAX, on_lookup),
                     MUSTER_INVALID_ARGUMENT);
    assert_int_equal(
        muster_lookup_start(&lookup.lookup, net, "127.0.0.1", 80, UINT64_MAX, on_lookup),
        MUSTER_OK);
    test_env_run_until(&fixture->test.env, is_lookup_done, &lookup);

    assert_true(has_address(&lookup, "127.0.0.1:80"));
    muster_net_system_close(net);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(name_gives_all_its_addresses_with_the_port),
        CASE(ip_text_answers_itself_without_a_query),
        CASE(a_host_named_unix_is_looked_up),
        CASE(localhost_needs_no_name_server),
        CASE(unknown_name_is_not_found_and_named),
        CASE(failing_and_silent_servers_are_unavailable_and_named),
        CASE(lookup_ends_at_its_deadline_and_the_late_answer_hurts_nobody),
        CASE(cancelled_lookup_calls_back_once_and_later),
        CASE(many_lookups_run_at_once),
        CASE(close_forgets_queries_whose_requests_have_ended),
        CASE(services_come_by_priority_then_weight),
        CASE(unknown_service_is_not_found_and_named),
        CASE(lookup_through_the_net_refuses_what_is_no_host),
    };

    return cmocka_run_group_tests_name("dns", tests, NULL, NULL);
}
