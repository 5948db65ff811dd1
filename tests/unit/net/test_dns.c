/* Names to addresses and services, against a name server of the test's own. */
#include "test_env.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/dns.h"

#define TYPE_A     1
#define TYPE_AAAA  28
#define TYPE_SRV   33
#define PACKET_MAX 512

/* How the name server answers. */
enum mood { ANSWERS, SAYS_NO_SUCH_NAME, FAILS, IS_SILENT };

struct fixture {
    struct test_env test;
    struct muster_dns *dns;
    struct muster_fd_watch watch; /* the name server's socket */
    enum mood mood;
    unsigned query_count;
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

/* The name server: RFC 1035 4.1, one question per packet. */

struct packet {
    uint8_t bytes[PACKET_MAX];
    size_t count;
};

static void put16(struct packet *packet, unsigned value)
{
    assert_true(packet->count + 2 <= PACKET_MAX);
    packet->bytes[packet->count++] = (uint8_t)(value >> 8);
    packet->bytes[packet->count++] = (uint8_t)value;
}

static void put_bytes(struct packet *packet, const void *bytes, size_t count)
{
    assert_true(packet->count + count <= PACKET_MAX);
    memcpy(packet->bytes + packet->count, bytes, count);
    packet->count += count;
}

/* A record whose name is the question's. */
static void put_record(struct packet *packet, unsigned type, const void *data, size_t bytes)
{
    put16(packet, 0xc00c);
    put16(packet, type);
    put16(packet, 1);
    put16(packet, 0);
    put16(packet, 60);
    put16(packet, (unsigned)bytes);
    put_bytes(packet, data, bytes);
    packet->bytes[7]++;
}

static void put_service(struct packet *packet, unsigned priority, unsigned weight, unsigned port,
                        const char *label)
{
    struct packet data = {.count = 0};

    put16(&data, priority);
    put16(&data, weight);
    put16(&data, port);
    data.bytes[data.count++] = (uint8_t)strlen(label);
    put_bytes(&data, label, strlen(label));
    data.bytes[data.count++] = 0;
    put_record(packet, TYPE_SRV, data.bytes, data.count);
}

static void put_answers(struct packet *packet, unsigned type)
{
    static const uint8_t first[4] = {10, 1, 2, 3}, second[4] = {10, 1, 2, 4};
    static const uint8_t third[16] = {0x20, 0x01, 0x0d, 0xb8, [15] = 7};

    if (type == TYPE_A) {
        put_record(packet, TYPE_A, first, 4);
        put_record(packet, TYPE_A, second, 4);
    } else if (type == TYPE_AAAA) {
        put_record(packet, TYPE_AAAA, third, 16);
    } else if (type == TYPE_SRV) {
        put_service(packet, 20, 1, 2382, "late");
        put_service(packet, 10, 1, 2380, "light");
        put_service(packet, 10, 9, 2379, "heavy");
    }
}

static void on_query(struct muster_fd_watch *watch, unsigned ready)
{
    struct fixture *fixture = watch->data;
    struct sockaddr_in from;
    socklen_t length = sizeof(from);
    struct packet packet = {.count = 0};
    ssize_t count =
        recvfrom(watch->fd, packet.bytes, PACKET_MAX, 0, (struct sockaddr *)&from, &length);
    size_t at = 12;
    unsigned type;

    (void)ready;
    assert_true(count > 16);
    fixture->query_count++;
    if (fixture->mood == IS_SILENT)
        return;
    while (packet.bytes[at] != 0)
        at += packet.bytes[at] + 1u;
    type = (unsigned)packet.bytes[at + 1] << 8 | packet.bytes[at + 2];
    packet.count = at + 5;
    packet.bytes[2] = 0x81; /* an answer, recursion as asked for */
    packet.bytes[3] = fixture->mood == SAYS_NO_SUCH_NAME ? 0x83
                      : fixture->mood == FAILS           ? 0x82
                                                         : 0x80;
    memset(packet.bytes + 6, 0, 6);
    if (fixture->mood == ANSWERS)
        put_answers(&packet, type);
    assert_int_equal(
        sendto(watch->fd, packet.bytes, packet.count, 0, (struct sockaddr *)&from, length),
        (ssize_t)packet.count);
}

static int set_up(void **state)
{
    static struct fixture fixture;
    struct muster_dns_options options = {.timeout_ms = 20, .tries = 2};
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    char servers[32];

    memset(&fixture, 0, sizeof(fixture));
    test_env_open(&fixture.test);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fixture.watch.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fixture.watch.fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(getsockname(fixture.watch.fd, (struct sockaddr *)&address, &length), 0);
    fixture.watch.data = &fixture;
    fixture.watch.on_ready = on_query;
    fixture.watch.wanted = MUSTER_FD_READ;
    assert_int_equal(muster_fd_watch_open(&fixture.watch, fixture.test.env.loop), MUSTER_OK);
    snprintf(servers, sizeof(servers), "127.0.0.1:%u", ntohs(address.sin_port));
    options.servers = servers;
    assert_int_equal(muster_dns_open(&fixture.test.env, &options, &fixture.dns), MUSTER_OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_dns_close(fixture->dns);
    muster_fd_watch_close(&fixture->watch);
    close(fixture->watch.fd);
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

static void start(struct fixture *fixture, struct lookup *lookup, const char *host,
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
    start(fixture, lookup, host, UINT64_MAX);
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
    assert_int_equal(fixture->query_count, 0);
}

static void localhost_needs_no_name_server(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    assert_int_equal(look_up(fixture, &lookup, "localhost"), MUSTER_OK);

    assert_true(has_address(&lookup, "127.0.0.1:2222"));
    assert_int_equal(fixture->query_count, 0);
}

static void unknown_name_is_not_found_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    fixture->mood = SAYS_NO_SUCH_NAME;
    assert_int_equal(look_up(fixture, &lookup, "nosuch.example.org"), MUSTER_NOT_FOUND);

    assert_int_equal(lookup.lookup.error.rc, MUSTER_NOT_FOUND);
    assert_non_null(strstr(lookup.lookup.error.text, "nosuch.example.org"));
}

static void failing_and_silent_servers_are_unavailable_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    fixture->mood = FAILS;
    assert_int_equal(look_up(fixture, &lookup, "db.example.org"), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(lookup.lookup.error.text, "db.example.org"));

    fixture->mood = IS_SILENT;
    assert_int_equal(look_up(fixture, &lookup, "db.example.org"), MUSTER_UNAVAILABLE);
    assert_non_null(strstr(lookup.lookup.error.text, "db.example.org"));
}

static void lookup_ends_at_its_deadline_and_the_late_answer_hurts_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct muster_loop *loop = fixture->test.env.loop;
    struct lookup lookup, next;

    fixture->mood = IS_SILENT;
    start(fixture, &lookup, "slow.example.org", muster_loop_after_ns(loop, MUSTER_NS_PER_MS));
    test_env_run_until(&fixture->test.env, is_lookup_done, &lookup);
    assert_int_equal(lookup.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(lookup.lookup.error.text, "slow.example.org"));
    memset(&lookup, 0x5a, sizeof(lookup)); /* the request is the caller's again */
    fixture->mood = ANSWERS;

    assert_int_equal(look_up(fixture, &next, "fast.example.org"), MUSTER_OK);
}

static void cancelled_lookup_calls_back_once_and_later(void **state)
{
    struct fixture *fixture = *state;
    struct lookup lookup;

    start(fixture, &lookup, "any.example.org", UINT64_MAX);
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
        start(fixture, &lookups[i], host, UINT64_MAX);
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

    fixture->mood = IS_SILENT;
    start(fixture, &lookup, "slow.example.org", UINT64_MAX);
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
    fixture->mood = SAYS_NO_SUCH_NAME;
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
