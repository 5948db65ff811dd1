/* gRPC A18: with keepalive on, the kernel gives a connection up that does not acknowledge. */
#include "rpc_fixture.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#define FDS_MAX 1024

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct rpc_fixture));
    return 0;
}

/* The connected sockets of this process that have this timeout: of one end, then of the other. */
static unsigned count_sockets(unsigned timeout_ms)
{
    unsigned count = 0;

    for (int fd = 0; fd < FDS_MAX; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer), value_bytes = sizeof(unsigned);
        unsigned value = 0;

        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.ss_family == AF_INET &&
            getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &value_bytes) == 0)
            count += value == timeout_ms;
    }
    return count;
}

static void both_ends_set_their_keepalive_timeout(void **state)
{
    static const struct muster_channel_options channel = {
        .keepalive_interval_ns = 60 * MUSTER_NS_PER_S, .keepalive_timeout_ns = 7 * MUSTER_NS_PER_S};
    static const struct muster_rpc_server_options server = {.keepalive_timeout_ns =
                                                                9 * MUSTER_NS_PER_S};

    rpc_fixture_open(*state, &server, &channel);
    assert_int_equal(rpc_fixture_ask(*state, "Unary", "x").rc, MUSTER_OK);

    assert_int_equal(count_sockets(7000), 1);
    assert_int_equal(count_sockets(9000), 1);
}

static void a_channel_without_keepalive_leaves_it_to_the_kernel(void **state)
{
    rpc_fixture_open(*state, NULL, NULL);
    assert_int_equal(rpc_fixture_ask(*state, "Unary", "x").rc, MUSTER_OK);

    assert_int_equal(count_sockets(0), 1);
    assert_int_equal(count_sockets(20000), 1); /* the server's default */
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, rpc_scene_tear_down)
    const struct CMUnitTest timeouts[] = {
        CASE(both_ends_set_their_keepalive_timeout),
        CASE(a_channel_without_keepalive_leaves_it_to_the_kernel),
    };

    return cmocka_run_group_tests(timeouts, NULL, NULL);
}
