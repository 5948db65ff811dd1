/* Connections within a host are not paced by BBR, connections to other hosts are. Cases that need a kernel with BBR
 * are skipped without one. */
#include "torture.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "net/stream/net_internal.h"
#include "net/stream/socket_internal.h"

#define NAME_BYTES 16

static int socket_with(const char *congestion)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) == 0)
        return fd;
    close(fd);
    skip();
    return -1;
}

static bool has_congestion(int fd, const char *wanted)
{
    char name[NAME_BYTES + 1] = "";
    socklen_t length = NAME_BYTES;

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
    return strcmp(name, wanted) == 0;
}

static void bbr_is_replaced_before_a_socket_connects(void **state)
{
    int fd = socket_with("bbr");

    (void)state;

    assert_true(muster_socket_pacing_stop(fd));

    assert_true(has_congestion(fd, "reno"));
    close(fd);
}

static void what_does_not_pace_stays(void **state)
{
    int fd = socket_with("reno");

    (void)state;

    assert_false(muster_socket_pacing_stop(fd));

    assert_true(has_congestion(fd, "reno"));
    close(fd);
}

/* A socket without a peer stands for one whose peer is elsewhere: a test has no second host. */
static void peer_of_another_host_is_sent_to_with_bbr(void **state)
{
    int fd = socket_with("bbr");

    (void)state;
    assert_true(muster_socket_pacing_stop(fd));

    muster_socket_pacing_decide(fd);

    assert_true(has_congestion(fd, "bbr"));
    close(fd);
}

/* --- Both ends of a connection --- */

struct fixture {
    struct test_env test;
    struct muster_listener *listener;
    struct muster_stream *accepted;
    struct muster_connect connect;
    unsigned close_count;
};

static void on_accept(struct muster_listener *listener, struct muster_stream *stream)
{
    ((struct fixture *)listener->data)->accepted = stream;
}

static void on_connected(struct muster_connect *connect, enum muster_rc rc)
{
    (void)connect;
    assert_int_equal(rc, MUSTER_OK);
}

static bool is_met(void *data)
{
    struct fixture *fixture = data;

    return fixture->accepted != NULL && fixture->connect.stream != NULL;
}

static void on_closed(struct muster_stream *stream)
{
    ((struct fixture *)stream->data)->close_count++;
}

static void on_listener_closed(struct muster_listener *listener)
{
    ((struct fixture *)listener->data)->close_count++;
}

static bool is_closed(void *data)
{
    return ((struct fixture *)data)->close_count == 3;
}

static int set_up(void **state)
{
    static struct fixture fixture;

    memset(&fixture, 0, sizeof(fixture));
    test_env_open(&fixture.test);
    assert_int_equal(muster_net_system_open(&fixture.test.env, &fixture.test.env.net), MUSTER_OK);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    muster_net_system_close(fixture->test.env.net);
    test_env_close(&fixture->test);
    return 0;
}

static void ends_meet(struct fixture *fixture, struct muster_address address)
{
    struct muster_error error;

    address.port = 0;
    assert_int_equal(muster_listener_open(fixture->test.env.net, &address, NULL, on_accept, fixture,
                                          &fixture->listener, &error),
                     MUSTER_OK);
    assert_int_equal(muster_connect_start(&fixture->connect, fixture->test.env.net,
                                          muster_listener_address(fixture->listener), NULL,
                                          UINT64_MAX, on_connected),
                     MUSTER_OK);
    test_env_run_until(&fixture->test.env, is_met, fixture);
}

static void ends_close(struct fixture *fixture)
{
    fixture->accepted->data = fixture->connect.stream->data = fixture;
    muster_stream_close(fixture->accepted, on_closed);
    muster_stream_close(fixture->connect.stream, on_closed);
    muster_listener_close(fixture->listener, on_listener_closed);
    test_env_run_until(&fixture->test.env, is_closed, fixture);
}

static bool is_bbr_the_default(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_bbr;

    assert_true(fd >= 0);
    is_bbr = has_congestion(fd, "bbr");
    close(fd);
    return is_bbr;
}

static void check_ends(struct fixture *fixture, struct muster_address address)
{
    if (!is_bbr_the_default())
        skip();
    ends_meet(fixture, address);

    assert_false(has_congestion(muster_stream_socket_of(fixture->accepted)->watch.fd, "bbr"));
    assert_false(has_congestion(muster_stream_socket_of(fixture->connect.stream)->watch.fd, "bbr"));
    ends_close(fixture);
}

static void loopback_is_not_paced(void **state)
{
    struct muster_address address;

    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    check_ends(*state, address);
}

/* An address of a card of this host, by which connections stay within the host. */
static void own_address_is_not_paced(void **state)
{
    struct muster_address address = {.family = MUSTER_ADDRESS_NONE};
    struct ifaddrs *interfaces = NULL;

    assert_int_equal(getifaddrs(&interfaces), 0);
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET &&
            (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0)
            address = muster_sockaddr_to_address(
                (const union muster_sockaddr *)(const void *)at->ifa_addr,
                sizeof(struct sockaddr_in));
    }
    freeifaddrs(interfaces);
    if (address.family == MUSTER_ADDRESS_NONE)
        skip();
    check_ends(*state, address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bbr_is_replaced_before_a_socket_connects),
        cmocka_unit_test(what_does_not_pace_stays),
        cmocka_unit_test(peer_of_another_host_is_sent_to_with_bbr),
        cmocka_unit_test_setup_teardown(loopback_is_not_paced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(own_address_is_not_paced, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
