/* One port for HTTP/2 and peer links: the first four bytes decide. */
#include "test_env.h"
#include "torture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/stream/net_internal.h"
#include "net/link/port.h"

struct fixture {
    struct test_env test;
    struct muster_rpc_server *server;
    struct muster_port *port;
    struct muster_stream *peer; /* what on_peer was given */
    bool is_port_closed, is_server_closed, is_peer_closed;
    int fd; /* the client */
};

static void on_peer(struct muster_port *port, struct muster_stream *stream)
{
    struct fixture *fixture = muster_port_data(port);

    assert_null(fixture->peer);
    fixture->peer = stream;
}

static void on_port_closed(struct muster_port *port)
{
    ((struct fixture *)muster_port_data(port))->is_port_closed = true;
}

static void on_server_closed(struct muster_rpc_server *server)
{
    ((struct fixture *)muster_rpc_server_data(server))->is_server_closed = true;
}

static void on_peer_closed(struct muster_stream *stream)
{
    ((struct fixture *)stream->data)->is_peer_closed = true;
}

static void client_dial(struct fixture *fixture)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(muster_port_address(fixture->port), &sockaddr);

    fixture->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fixture->fd, &sockaddr.any, length), 0);
}

static void open_fixture(struct fixture *fixture, bool has_server)
{
    struct muster_address address;
    struct muster_error error;

    memset(fixture, 0, sizeof(*fixture));
    test_env_open(&fixture->test);
    assert_int_equal(muster_net_system_open(&fixture->test.env, &fixture->test.env.net), MUSTER_OK);
    if (has_server) {
        assert_int_equal(muster_rpc_server_open(&fixture->test.env, NULL, &fixture->server),
                         MUSTER_OK);
        muster_rpc_server_set_data(fixture->server, fixture);
    }
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_port_open(&fixture->test.env, &address, fixture->server, on_peer,
                                      fixture, &fixture->port, &error),
                     MUSTER_OK);
    client_dial(fixture);
}

static int set_up(void **state)
{
    static struct fixture fixture;

    open_fixture(&fixture, true);
    *state = &fixture;
    return 0;
}

static int set_up_without_server(void **state)
{
    static struct fixture fixture;

    open_fixture(&fixture, false);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    if (!fixture->is_port_closed && fixture->port != NULL)
        muster_port_close(fixture->port, on_port_closed);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_port_closed);
    if (fixture->peer != NULL) {
        fixture->peer->data = fixture;
        muster_stream_close(fixture->peer, on_peer_closed);
        test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_peer_closed);
    }
    if (fixture->server != NULL) {
        muster_rpc_server_close(fixture->server, 0, on_server_closed);
        test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_server_closed);
    }
    close(fixture->fd);
    muster_net_system_close(fixture->test.env.net);
    test_env_close(&fixture->test);
    return 0;
}

static void client_say(struct fixture *fixture, const char *text)
{
    assert_int_equal(send(fixture->fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* Returns how many bytes the client has got next; 0 or -1 at the end. */
static ssize_t client_hear(struct fixture *fixture, void *buffer, size_t bytes)
{
    ssize_t count;

    while ((count = recv(fixture->fd, buffer, bytes, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
        test_env_turn(&fixture->test.env, 1);
    return count;
}

static void expect_hang_up(struct fixture *fixture)
{
    char byte;

    assert_true(client_hear(fixture, &byte, 1) <= 0);
    assert_null(fixture->peer);
}

static bool has_peer(void *data)
{
    return ((struct fixture *)data)->peer != NULL;
}

static void peer_link_is_handed_on_with_its_first_bytes(void **state)
{
    struct fixture *fixture = *state;
    char buffer[16];
    size_t count = 0;

    client_say(fixture, "MS");
    test_env_turn(&fixture->test.env, 5);
    assert_null(fixture->peer);
    client_say(fixture, "TRhello");
    test_env_run_until(&fixture->test.env, has_peer, fixture);
    while (count < 9)
        count += muster_stream_take_now(fixture->peer, buffer + count, sizeof(buffer) - count);

    assert_memory_equal(buffer, "MSTRhello", 9);
}

static void http2_is_answered_by_the_rpc_server(void **state)
{
    struct fixture *fixture = *state;
    uint8_t header[9];

    client_say(fixture, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_int_equal(send(fixture->fd, "\0\0\0\4\0\0\0\0\0", 9, MSG_NOSIGNAL), 9);

    assert_true(client_hear(fixture, header, sizeof(header)) > 3);
    assert_int_equal(header[3], 4); /* RFC 9113 3.4: SETTINGS comes first */
    assert_null(fixture->peer);
}

/* A client under TLS takes HTTP/2's first frame for what it is: plain text. */
static void tls_is_answered_in_plain_text_by_a_server_without_it(void **state)
{
    struct fixture *fixture = *state;
    uint8_t header[9];

    client_say(fixture, "\x16\x03\x01\x01\x01\x01");

    assert_true(client_hear(fixture, header, sizeof(header)) > 3);
    assert_int_equal(header[0], 0);
    assert_int_equal(header[3], 4);
}

static void http2_without_a_server_is_refused(void **state)
{
    client_say(*state, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

    expect_hang_up(*state);
}

static void anything_else_is_refused(void **state)
{
    client_say(*state, "GET / HTTP/1.1\r\n\r\n");

    expect_hang_up(*state);
}

static void early_end_is_dropped_and_the_next_connection_is_served(void **state)
{
    struct fixture *fixture = *state;

    client_say(fixture, "MST");
    assert_int_equal(shutdown(fixture->fd, SHUT_WR), 0);
    expect_hang_up(fixture);
    close(fixture->fd);
    client_dial(fixture);
    client_say(fixture, "MSTR");

    test_env_run_until(&fixture->test.env, has_peer, fixture);
}

static void close_hangs_up_on_those_who_have_not_spoken(void **state)
{
    struct fixture *fixture = *state;

    client_say(fixture, "MS");
    test_env_turn(&fixture->test.env, 5);
    muster_port_close(fixture->port, on_port_closed);
    fixture->port = NULL;
    assert_false(fixture->is_port_closed);
    test_env_run_until(&fixture->test.env, test_env_is_true, &fixture->is_port_closed);

    expect_hang_up(fixture);
}

/* --- No memory --- */

static char told[256]; /* the reasons that were logged */

static void write_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                      const char *event, const struct muster_field *fields, size_t count)
{
    size_t length = strlen(told);

    (void)log;
    (void)level;
    (void)wall_ns;
    (void)event;
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "reason") == 0)
            (void)snprintf(told + length, sizeof(told) - length, "%s;", fields[i].text);
}

/* Answered, handed on, or hung up. */
static bool is_decided(void *data)
{
    struct fixture *fixture = data;
    char byte;

    return fixture->peer != NULL || recv(fixture->fd, &byte, 1, MSG_DONTWAIT) >= 0 ||
           errno != EAGAIN;
}

static void run_connection(struct torture *torture, const void *data)
{
    static const struct muster_log_ops ops = {.write = write_log};
    struct muster_log log = {.ops = &ops, .level_max = MUSTER_LOG_DEBUG};
    static struct fixture fixture;
    void *state = &fixture;

    told[0] = '\0';
    open_fixture(&fixture, true);
    fixture.test.env.log = &log;
    torture_arm_limited(torture, &fixture.test.mem);
    client_say(&fixture, data);
    test_env_run_until(&fixture.test.env, is_decided, &fixture);
    torture_disarm(torture);

    assert_null(strstr(told, "silent"));
    if (torture->refused == 0)
        assert_string_equal(told, "");
    if (fixture.peer == NULL) { /* the next one is served */
        close(fixture.fd);
        client_dial(&fixture);
        client_say(&fixture, "MSTR");
        test_env_run_until(&fixture.test.env, has_peer, &fixture);
    }
    fixture.test.env.log = NULL;
    (void)tear_down(&state);
}

static void who_is_turned_away_for_lack_of_memory_is_not_called_silent(void **state)
{
    static const struct torture_scenario scenarios[] = {
        {.name = "a link", .run = run_connection, .data = "MSTR"},
        {.name = "a call", .run = run_connection, .data = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
    };

    (void)state;
    torture_run_all(scenarios, sizeof(scenarios) / sizeof(scenarios[0]));
}

#define CASE(name)       cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define SERVERLESS(name) cmocka_unit_test_setup_teardown(name, set_up_without_server, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(peer_link_is_handed_on_with_its_first_bytes),
        CASE(http2_is_answered_by_the_rpc_server),
        CASE(tls_is_answered_in_plain_text_by_a_server_without_it),
        SERVERLESS(http2_without_a_server_is_refused),
        CASE(anything_else_is_refused),
        CASE(early_end_is_dropped_and_the_next_connection_is_served),
        CASE(close_hangs_up_on_those_who_have_not_spoken),
        cmocka_unit_test_teardown(who_is_turned_away_for_lack_of_memory_is_not_called_silent,
                                  torture_tell),
    };

    return cmocka_run_group_tests_name("port", tests, NULL, NULL);
}
