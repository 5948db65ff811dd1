/* Calls under TLS: kinds, sizes, identities, refusals, resumption, a port of several protocols. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/stream/net_internal.h"
#include "net/link/port.h"
#include "net/grpc/client/channel_internal.h"
#include "net/tls/stream.h"
#include "tests/lib/assertion_count.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/rpc_fixture.h"

#define SPIFFE "spiffe://test/job/a/task/1"

static struct fake_authority *authority;
static struct fake_cert server_cert, client_cert;

struct secured {
    struct rpc_fixture fixture;
    struct muster_tls *server, *client;
};

static struct muster_tls *open_tls(struct muster_env *env, const struct fake_cert *cert,
                                   bool is_peer_required)
{
    const struct muster_tls_options options = {
        .cert_pem = cert != NULL ? cert->cert_pem : NULL,
        .key_pem = cert != NULL ? cert->key_pem : NULL,
        .ca_pem = fake_authority_pem(authority),
        .is_peer_required = is_peer_required,
    };
    struct muster_tls *tls = NULL;
    struct muster_error error;

    if (muster_tls_open(env, &options, &tls, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return tls;
}

/* A channel that its case may open again. */
static void secured_dial(struct secured *secured, struct muster_tls *tls, const char *server_name)
{
    const struct muster_channel_options options = {.tls = tls, .tls_server_name = server_name};

    rpc_fixture_redial(&secured->fixture, &options);
}

/* The fixture opens without TLS (its environment comes with it), and then again. */
static void secured_open(struct secured *secured, bool is_peer_required)
{
    struct rpc_fixture *fixture = &secured->fixture;

    rpc_fixture_open(fixture, NULL, NULL);
    rpc_fixture_hang_up(fixture);
    rpc_fixture_stop_serving(fixture, 0);
    secured->server = open_tls(fixture->env, &server_cert, is_peer_required);
    secured->client = open_tls(fixture->env, is_peer_required ? &client_cert : NULL, false);
    rpc_fixture_serve(fixture, &(struct muster_rpc_server_options){.tls = secured->server});
    secured_dial(secured, secured->client, NULL);
}

static void secured_close(struct secured *secured)
{
    muster_tls_close(secured->server);
    muster_tls_close(secured->client);
    rpc_fixture_close(&secured->fixture);
}

static void secured_ask(struct secured *secured, struct rpc_probe *probe, const char *method,
                        const char *text)
{
    memset(probe, 0, sizeof(*probe));
    rpc_probe_ask(probe, &secured->fixture, method, text);
}

static void calls_of_every_kind_work(void **state)
{
    struct secured secured;
    struct rpc_probe probe;

    (void)state;
    secured_open(&secured, false);
    secured_ask(&secured, &probe, "Unary", "hello");
    assert_int_equal(probe.rc, MUSTER_OK);
    assert_string_equal(probe.messages, "hello");
    secured_ask(&secured, &probe, "Source", "3");
    assert_string_equal(probe.messages, "0,1,2");
    secured_ask(&secured, &probe, "Sink", "12345");
    assert_string_equal(probe.messages, "5");
    secured_ask(&secured, &probe, "Bidi", "ping");
    assert_string_equal(probe.messages, "ping");
    secured_ask(&secured, &probe, "Fail", "5 not here");

    assert_int_equal(probe.rc, MUSTER_NOT_FOUND);
    secured_close(&secured);
}

static void large_messages_pass_both_ways(void **state)
{
    static char text[3 << 20];
    struct secured secured;
    struct rpc_probe probe;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    secured_open(&secured, false);
    secured_ask(&secured, &probe, "Unary", text);
    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(probe.message_bytes, sizeof(text) - 1);
    secured_ask(&secured, &probe, "Large", "4000000");
    assert_int_equal(probe.message_bytes, 4000000);
    secured_close(&secured);
}

static void refusals_name_what_is_wrong(void **state)
{
    struct secured secured;
    struct rpc_probe probe;

    (void)state;
    secured_open(&secured, true);
    secured_dial(&secured, secured.client, "elsewhere.test");
    secured_ask(&secured, &probe, "Unary", "a");
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(probe.text, "not for \"elsewhere.test\""));
    muster_tls_close(secured.client);
    secured.client = open_tls(secured.fixture.env, NULL, false);
    secured_dial(&secured, secured.client, NULL);
    secured_ask(&secured, &probe, "Unary", "a");
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    if (strstr(probe.text, "the server demands a certificate of ours") == NULL)
        fail_msg("%s", probe.text);
    assert_int_equal(secured.fixture.started, 0);
    secured_close(&secured);
}

/* Without a name of its own the channel wants the server of its authority. */
static void the_authority_names_the_server(void **state)
{
    static const struct {
        const char *authority, *text; /* NULL: the call is answered */
    } rows[] = {
        {"localhost", NULL},
        {"localhost:1", NULL},
        {"elsewhere.test", "not for \"elsewhere.test\""},
        {"elsewhere.test:1", "not for \"elsewhere.test\""},
    };
    struct muster_channel_options options = {.authority = "localhost:port"};
    struct muster_channel *channel = NULL;
    struct muster_error error;
    struct secured secured;

    (void)state;
    secured_open(&secured, false);
    options.tls = secured.client;
    assert_int_equal(
        muster_channel_open(secured.fixture.env, "localhost:1", &options, &channel, &error),
        MUSTER_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char target[MUSTER_ADDRESS_TEXT_BYTES];
        struct rpc_probe probe;

        options.authority = rows[i].authority;
        rpc_fixture_hang_up(&secured.fixture);
        rpc_fixture_dial(&secured.fixture, muster_address_format(&secured.fixture.address, target),
                         &options);
        secured_ask(&secured, &probe, "Unary", "a");
        print_message("%s: %s\n", rows[i].authority, probe.text);
        assert_int_equal(probe.rc, rows[i].text == NULL ? MUSTER_OK : MUSTER_UNAVAILABLE);
        if (rows[i].text != NULL)
            assert_non_null(strstr(probe.text, rows[i].text));
    }
    secured_close(&secured);
}

/* Counts the events of the server that tells of a disagreement about TLS. */
struct mismatch_log {
    struct muster_log log;
    unsigned plain_text_clients, tls_clients;
};

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct mismatch_log *mismatches = MUSTER_CONTAINER_OF(log, struct mismatch_log, log);

    (void)level, (void)wall_ns, (void)fields, (void)count;
    mismatches->plain_text_clients += strcmp(event, "client_speaks_plain_text") == 0;
    mismatches->tls_clients += strcmp(event, "client_speaks_tls") == 0;
}

static const struct muster_log_ops mismatch_log_ops = {.write = on_log};

static void check_mismatch(struct secured *secured, const char *words)
{
    struct rpc_probe probe;

    secured_ask(secured, &probe, "Unary", "a");
    assert_int_equal(probe.rc, MUSTER_UNAVAILABLE);
    if (strstr(probe.text, words) == NULL)
        fail_msg("%s", probe.text);
    assert_int_equal(muster_channel_error(secured->fixture.channel)->rc,
                     MUSTER_FAILED_PRECONDITION);
}

static void plain_text_to_a_server_under_tls_is_told_on_both_sides(void **state)
{
    struct mismatch_log log = {.log = {.ops = &mismatch_log_ops, .level_max = MUSTER_LOG_WARN}};
    struct secured secured;

    (void)state;
    secured_open(&secured, false);
    secured.fixture.env->log = &log.log;
    for (unsigned i = 0; i < 2; i++) {
        secured_dial(&secured, NULL, NULL);
        check_mismatch(&secured, "the peer speaks TLS, and this side speaks plain text");
    }

    assert_int_equal(log.plain_text_clients, 1); /* one host */
    assert_int_equal(log.tls_clients, 0);
    secured.fixture.env->log = NULL;
    secured_close(&secured);
}

static void tls_to_a_plain_server_is_told_on_both_sides(void **state)
{
    struct mismatch_log log = {.log = {.ops = &mismatch_log_ops, .level_max = MUSTER_LOG_WARN}};
    struct secured secured;

    (void)state;
    secured_open(&secured, false);
    secured.fixture.env->log = &log.log;
    rpc_fixture_hang_up(&secured.fixture);
    rpc_fixture_stop_serving(&secured.fixture, 0);
    rpc_fixture_serve(&secured.fixture, NULL);
    for (unsigned i = 0; i < 2; i++) {
        secured_dial(&secured, secured.client, NULL);
        check_mismatch(&secured, "the peer speaks plain text, and this side speaks TLS");
    }

    assert_int_equal(log.tls_clients, 1); /* one host */
    assert_int_equal(log.plain_text_clients, 0);
    secured.fixture.env->log = NULL;
    secured_close(&secured);
}

static void on_probe(struct muster_dial_probe *probe)
{
    *(bool *)probe->data = true;
}

/* A server that knows TLS takes the constant hello for a client's, so it answers with a hello. */
static void a_probe_is_answered_by_a_hello(void **state)
{
    struct secured secured;
    struct muster_dial_probe probe;
    struct muster_error why;
    bool is_done = false;

    (void)state;
    secured_open(&secured, true);
    probe.data = &is_done;
    (void)muster_error_set(&why, MUSTER_UNAVAILABLE, "closed");
    assert_int_equal(muster_dial_probe_start(&probe, secured.fixture.env, &secured.fixture.address,
                                             false, &why, on_probe),
                     MUSTER_OK);
    test_env_run_until(secured.fixture.env, test_env_is_true, &is_done);

    assert_int_equal(probe.error.rc, MUSTER_FAILED_PRECONDITION);
    assert_int_equal(probe.answer[0], 0x16);
    secured_close(&secured);
}

static void a_server_without_a_certificate_does_not_listen(void **state)
{
    struct secured secured;
    struct muster_rpc_server *server = NULL;
    struct muster_address address;
    struct muster_error error;

    (void)state;
    secured_open(&secured, false);
    assert_int_equal(
        muster_rpc_server_open(secured.fixture.env,
                               &(struct muster_rpc_server_options){.tls = secured.client}, &server),
        MUSTER_OK);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_rpc_server_listen(server, &address, NULL, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "set cert_file"));
    muster_rpc_server_close(server, 0, NULL);
    test_env_turn(secured.fixture.env, 5);
    secured_close(&secured);
}

static struct muster_rpc_subchannel *subchannel_of(const struct secured *secured)
{
    return MUSTER_CONTAINER_OF(secured->fixture.channel->subchannels.next,
                               struct muster_rpc_subchannel, node);
}

static bool is_resumed(const struct secured *secured)
{
    return muster_tls_stream_is_resumed(
        muster_h2_session_stream(subchannel_of(secured)->current->session.h2));
}

static void a_channel_resumes_its_session(void **state)
{
    struct secured secured;
    struct rpc_probe probe;

    (void)state;
    secured_open(&secured, true);
    secured_ask(&secured, &probe, "Unary", "a");
    assert_int_equal(probe.rc, MUSTER_OK);
    assert_false(is_resumed(&secured));
    muster_h2_session_drain(subchannel_of(&secured)->current->session.h2, "");
    while (subchannel_of(&secured)->current != NULL)
        muster_loop_turn(secured.fixture.env->loop, UINT64_MAX);
    secured_ask(&secured, &probe, "Unary", "b");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_true(is_resumed(&secured));
    secured_close(&secured);
}

static void on_whoami(struct muster_rpc *rpc, struct muster_bytes message)
{
    const char *name = muster_identity_name(muster_rpc_identity(rpc));

    (void)message;
    assert_int_equal(muster_rpc_send(rpc, name, strlen(name)), MUSTER_OK);
    muster_rpc_finish(rpc, MUSTER_OK, NULL);
}

static void a_handler_knows_who_calls(void **state)
{
    static const struct muster_rpc_method whoami = {
        .path = "/test.Echo/Whoami", .on_message = on_whoami, .is_unary = true};
    struct secured secured;
    struct rpc_probe probe;

    (void)state;
    secured_open(&secured, true);
    assert_int_equal(muster_rpc_server_add(secured.fixture.server, &whoami, 1, NULL), MUSTER_OK);
    secured_ask(&secured, &probe, "Whoami", "");

    assert_string_equal(probe.messages, SPIFFE);
    secured_close(&secured);
}

static void a_server_closes_amid_handshakes(void **state)
{
    struct secured secured;
    struct rpc_probe probe;

    (void)state;
    memset(&probe, 0, sizeof(probe));
    secured_open(&secured, false);
    rpc_probe_begin(&probe, &secured.fixture, "Unary");
    for (unsigned turns = 0; turns < 6; turns++)
        muster_loop_turn(secured.fixture.env->loop, 0);
    rpc_fixture_stop_serving(&secured.fixture, 0);
    rpc_fixture_hang_up(&secured.fixture);
    assert_int_equal(probe.done, 1);
    secured_close(&secured);
}

/* Connections that are made and never say a word. */
#define SILENT_COUNT 1500

static int silent_connect(const struct muster_address *address)
{
    union muster_sockaddr sockaddr;
    socklen_t length = muster_sockaddr_from(address, &sockaddr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &sockaddr.any, length), 0);
    return fd;
}

static void silent_clients_do_not_keep_others_out(void **state)
{
    static int fds[SILENT_COUNT];
    struct rlimit limit;
    struct secured secured;
    struct rpc_probe probe;
    char byte;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < 2 * SILENT_COUNT + 100 || setrlimit(RLIMIT_NOFILE, &limit) != 0)
        skip_with_reason("more open files are not allowed (ulimit -Hn)");
    secured_open(&secured, false);
    for (size_t i = 0; i < SILENT_COUNT; i++) {
        fds[i] = silent_connect(&secured.fixture.address);
        test_env_turn(secured.fixture.env, 1);
    }
    secured_ask(&secured, &probe, "Unary", "still here");

    assert_int_equal(probe.rc, MUSTER_OK);
    assert_int_equal(recv(fds[0], &byte, 1, MSG_DONTWAIT), 0); /* the oldest was sent away */
    assert_int_equal(recv(fds[SILENT_COUNT - 1], &byte, 1, MSG_DONTWAIT), -1);
    for (size_t i = 0; i < SILENT_COUNT; i++)
        close(fds[i]);
    secured_close(&secured);
}

static void on_port_closed(struct muster_port *port)
{
    *(bool *)muster_port_data(port) = true;
}

static void a_port_takes_tls(void **state)
{
    struct secured secured;
    struct rpc_probe probe;
    struct muster_port *port = NULL;
    struct muster_address address;
    struct muster_address before;
    bool is_closed = false;

    (void)state;
    secured_open(&secured, false);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_port_open(secured.fixture.env, &address, secured.fixture.server, NULL,
                                      &is_closed, &port, NULL),
                     MUSTER_OK);
    before = secured.fixture.address;
    secured.fixture.address = *muster_port_address(port);
    secured_dial(&secured, secured.client, NULL);
    secured_ask(&secured, &probe, "Unary", "by the port");
    assert_string_equal(probe.messages, "by the port");
    secured_dial(&secured, NULL, NULL);
    check_mismatch(&secured, "the peer speaks TLS, and this side speaks plain text");
    secured.fixture.address = before;
    muster_port_close(port, on_port_closed);
    test_env_run_until(secured.fixture.env, test_env_is_true, &is_closed);
    secured_close(&secured);
}

/* A server that speaks plain text and ends a hello of TLS without a word. */
struct curt_server {
    struct muster_listener *listener;
    struct curt_guest {
        struct muster_stream *stream;
        struct muster_stream_read read;
        struct muster_stream_write write;
        uint8_t first[64];
    } guests[16];
    unsigned count;
};

static void on_settings_sent(struct muster_stream_write *write, enum muster_rc rc)
{
    (void)write, (void)rc; /* the client ends the connection */
}

static void on_first_bytes(struct muster_stream_read *read, enum muster_rc rc)
{
    static char settings[] = "\0\0\0\4\0\0\0\0\0";
    static const struct iovec answer = {settings, sizeof(settings) - 1};
    struct curt_guest *guest = read->data;

    if (rc != MUSTER_OK)
        return;
    if (guest->first[0] != 0x16) {
        assert_int_equal(
            muster_stream_submit(&guest->write, guest->stream, &answer, 1, on_settings_sent),
            MUSTER_OK);
        return;
    }
    muster_stream_close(guest->stream, NULL);
    guest->stream = NULL;
}

static void on_guest(struct muster_listener *listener, struct muster_stream *stream)
{
    struct curt_server *server = listener->data;
    struct curt_guest *guest = &server->guests[server->count++];

    assert_true(server->count < sizeof(server->guests) / sizeof(server->guests[0]));
    guest->stream = stream;
    guest->read.data = guest;
    assert_int_equal(muster_stream_receive_into(&guest->read, stream, guest->first, 1,
                                                sizeof(guest->first), on_first_bytes),
                     MUSTER_OK);
}

static void a_plain_server_that_ends_a_handshake_without_a_word_is_told(void **state)
{
    struct curt_server server = {.count = 0};
    struct muster_address address, before;
    struct secured secured;

    (void)state;
    secured_open(&secured, false);
    assert_int_equal(muster_address_parse("127.0.0.1:0", &address, NULL), MUSTER_OK);
    assert_int_equal(muster_listener_open(secured.fixture.env->net, &address, NULL, on_guest,
                                          &server, &server.listener, NULL),
                     MUSTER_OK);
    before = secured.fixture.address;
    secured.fixture.address = *muster_listener_address(server.listener);
    secured_dial(&secured, secured.client, NULL);
    check_mismatch(&secured, "the peer speaks plain text, and this side speaks TLS");

    rpc_fixture_hang_up(&secured.fixture);
    secured.fixture.address = before;
    for (unsigned i = 0; i < server.count; i++)
        if (server.guests[i].stream != NULL)
            muster_stream_close(server.guests[i].stream, NULL);
    muster_listener_close(server.listener, NULL);
    test_env_turn(secured.fixture.env, 5);
    secured_close(&secured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_every_kind_work),
        cmocka_unit_test(large_messages_pass_both_ways),
        cmocka_unit_test(refusals_name_what_is_wrong),
        cmocka_unit_test(the_authority_names_the_server),
        cmocka_unit_test(plain_text_to_a_server_under_tls_is_told_on_both_sides),
        cmocka_unit_test(tls_to_a_plain_server_is_told_on_both_sides),
        cmocka_unit_test(a_plain_server_that_ends_a_handshake_without_a_word_is_told),
        cmocka_unit_test(a_probe_is_answered_by_a_hello),
        cmocka_unit_test(a_server_without_a_certificate_does_not_listen),
        cmocka_unit_test(a_channel_resumes_its_session),
        cmocka_unit_test(a_handler_knows_who_calls),
        cmocka_unit_test(a_server_closes_amid_handshakes),
        cmocka_unit_test(silent_clients_do_not_keep_others_out),
        cmocka_unit_test(a_port_takes_tls),
    };
    int failed_count;

    authority = fake_authority_new("authority");
    if (!fake_cert_init(&server_cert, authority,
                        &(struct fake_cert_options){.name = "server",
                                                    .alt_names = "DNS:localhost,IP:127.0.0.1"}) ||
        !fake_cert_init(&client_cert, authority,
                        &(struct fake_cert_options){.name = "client", .alt_names = "URI:" SPIFFE}))
        return 1;
    failed_count = cmocka_run_group_tests_name("rpc_tls", tests, NULL, NULL);
    fake_cert_fini(&server_cert);
    fake_cert_fini(&client_cert);
    fake_authority_free(authority);
    return failed_count;
}
