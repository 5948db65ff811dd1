/* Handshakes: who gets in, and what the others are told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/tls/stream_internal.h"
#include "tests/lib/fake_authority.h"
#include "tests/lib/tls_pair.h"
#include "tests/lib/torture.h"

#define DAY_S  (24L * 3600)
#define SPIFFE "spiffe://test/job/a/task/1"

static struct fake_authority *authority, *other;

enum trust { TRUST_AUTHORITY, TRUST_OTHER };
enum show { SHOW_NOTHING, SHOW_OURS, SHOW_FOREIGN };

struct row {
    const char *name;
    struct fake_cert_options server; /* its certificate; without a name: the sound one */
    enum trust trust;                /* of the client */
    const char *server_name;         /* NULL: localhost */
    const char *server_accepts, *client_accepts;
    enum show show; /* of the client; anything but nothing: the server demands it */
    bool is_demanded;
    const char *client_alt_names;
    enum muster_rc client_rc, server_rc;
    const char *client_text, *server_text;
};

#define SERVER(...)                                                                                \
    {                                                                                              \
        .name = "server-1", .alt_names = "DNS:localhost,IP:127.0.0.1", __VA_ARGS__                 \
    }

static const struct row rows[] = {
    {.name = "a name of the certificate"},
    {.name = "another name",
     .server_name = "elsewhere.test",
     .client_rc = MUSTER_UNAUTHENTICATED,
     .client_text = "is for DNS:localhost, IP Address:127.0.0.1, not for \"elsewhere.test\"",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "refuses our certificate"},
    {.name = "expired",
     .server = SERVER(.from_s = -10 * DAY_S, .until_s = -DAY_S),
     .client_rc = MUSTER_UNAUTHENTICATED,
     .client_text = "before this host's clock: renew it, or set the clock of the peer or of this "
                    "host, if they differ",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "our certificate has expired, 1 d ago by this host's clock: renew it"},
    {.name = "not valid yet",
     .server = SERVER(.from_s = 10 * 60, .until_s = DAY_S),
     .client_rc = MUSTER_UNAUTHENTICATED,
     .client_text = "ahead of this host's clock: set the clock of the peer or of this host, as "
                    "they differ by so much or more",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "refuses our certificate, which is not valid for another "},
    {.name = "a young one under another name",
     .server = SERVER(.from_s = -3 * 3600 - 120, .until_s = DAY_S),
     .server_name = "elsewhere.test",
     .client_rc = MUSTER_UNAUTHENTICATED,
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "the peer refuses our certificate, and its log says why: it became valid 3 h 2 "
                    "min ago by this host's clock; if the peer's clock is further behind, set "
                    "that one"},
    {.name = "another authority",
     .trust = TRUST_OTHER,
     .client_rc = MUSTER_UNAUTHENTICATED,
     .client_text = "its issuer CN=authority is not trusted by the roots that were given",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "does not trust the issuer of our certificate"},
    {.name = "a client with a certificate", .show = SHOW_OURS, .is_demanded = true},
    {.name = "a client without one",
     .is_demanded = true,
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "the client showed no certificate"},
    {.name = "a client of another authority",
     .show = SHOW_FOREIGN,
     .is_demanded = true,
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "the client's certificate CN=client: its issuer CN=other is not trusted"},
    {.name = "a SPIFFE id that is accepted",
     .show = SHOW_OURS,
     .is_demanded = true,
     .client_alt_names = "URI:" SPIFFE,
     .server_accepts = "spiffe://test/job/a/*"},
    {.name = "a SPIFFE id of another job",
     .show = SHOW_OURS,
     .is_demanded = true,
     .client_alt_names = "URI:" SPIFFE,
     .server_accepts = "spiffe://test/job/b/*",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "the peer is " SPIFFE ", which is none of the accepted names"},
    {.name = "a client without one, of a server that accepts names only",
     .server_accepts = "spiffe://test/job/a/*",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "the client showed no certificate"},
    {.name = "another name, of a server that accepts names only",
     .show = SHOW_OURS,
     .client_alt_names = "URI:" SPIFFE,
     .server_accepts = "spiffe://test/job/b/*",
     .server_rc = MUSTER_UNAUTHENTICATED,
     .server_text = "the peer is " SPIFFE ", which is none of the accepted names"},
    {.name = "a server by its SPIFFE id, whatever was dialled",
     .server = {.name = "s", .alt_names = "URI:" SPIFFE},
     .server_name = "10.0.0.1",
     .client_accepts = SPIFFE},
    {.name = "a server of another SPIFFE id",
     .server = {.name = "s", .alt_names = "URI:" SPIFFE},
     .client_accepts = "spiffe://test/job/a/task/2",
     .client_rc = MUSTER_UNAUTHENTICATED,
     .client_text = "none of the accepted names",
     .server_rc = MUSTER_UNAUTHENTICATED},
};

static struct muster_tls *open_tls(struct tls_pair *pair, struct muster_tls_options *options,
                                   const char *accepts)
{
    struct muster_tls *tls = NULL;
    struct muster_error error;

    options->peer_names = accepts != NULL ? &accepts : NULL;
    options->peer_name_count = accepts != NULL ? 1 : 0;
    if (muster_tls_open(&pair->test.env, options, &tls, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    return tls;
}

static struct muster_tls *open_server(struct tls_pair *pair, const struct row *row)
{
    static const struct fake_cert_options sound = SERVER(.is_authority = false);
    struct fake_cert cert;
    struct muster_tls *tls;

    assert_true(fake_cert_init(&cert, authority, row->server.name != NULL ? &row->server : &sound));
    tls = open_tls(pair,
                   &(struct muster_tls_options){.cert_pem = cert.cert_pem,
                                                .key_pem = cert.key_pem,
                                                .ca_pem = fake_authority_pem(authority),
                                                .is_peer_required = row->is_demanded},
                   row->server_accepts);
    fake_cert_fini(&cert);
    return tls;
}

static struct muster_tls *open_client(struct tls_pair *pair, const struct row *row)
{
    struct fake_cert cert = {.cert_pem = NULL};
    struct muster_tls *tls;

    if (row->show != SHOW_NOTHING)
        assert_true(fake_cert_init(
            &cert, row->show == SHOW_OURS ? authority : other,
            &(struct fake_cert_options){.name = "client", .alt_names = row->client_alt_names}));
    tls = open_tls(pair,
                   &(struct muster_tls_options){
                       .cert_pem = cert.cert_pem,
                       .key_pem = cert.key_pem,
                       .ca_pem = fake_authority_pem(row->trust == TRUST_OTHER ? other : authority)},
                   row->client_accepts);
    fake_cert_fini(&cert);
    return tls;
}

/* Our two sides: their credentials, and the streams between them. */
struct meeting {
    struct tls_pair pair;
    struct muster_tls *server, *client;
};

static const struct row mutual = {
    .show = SHOW_OURS, .is_demanded = true, .client_alt_names = "URI:" SPIFFE};

static void meeting_open(struct meeting *meeting, const struct row *row)
{
    tls_pair_open(&meeting->pair);
    meeting->server = open_server(&meeting->pair, row);
    meeting->client = open_client(&meeting->pair, row);
}

/* Both have shaken hands when this returns. */
static void meeting_start(struct meeting *meeting, const struct row *row)
{
    meeting_open(meeting, row);
    tls_pair_shake(&meeting->pair, meeting->client, meeting->server,
                   row->server_name != NULL ? row->server_name : "localhost", NULL);
}

static void meeting_close(struct meeting *meeting)
{
    muster_tls_close(meeting->server);
    muster_tls_close(meeting->client);
    tls_pair_close(&meeting->pair);
}

static void side_check(const struct row *row, const char *who, const struct tls_side *side,
                       enum muster_rc rc, const char *text)
{
    if (side->rc != rc || side->done_count != 1)
        fail_msg("%s: %s ended %s (%s), not %s", row->name, who, muster_rc_name(side->rc),
                 side->error.text, muster_rc_name(rc));
    if (text != NULL && strstr(side->error.text, text) == NULL)
        fail_msg("%s: %s says \"%s\", not \"%s\"", row->name, who, side->error.text, text);
}

static void certificates_are_judged(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct meeting meeting;

        meeting_start(&meeting, row);

        side_check(row, "the client", &meeting.pair.client, row->client_rc, row->client_text);
        side_check(row, "the server", &meeting.pair.server, row->server_rc, row->server_text);
        meeting_close(&meeting);
    }
}

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    *(enum muster_rc *)read->data = rc;
}

static bool is_over(void *data)
{
    return *(const enum muster_rc *)data != MUSTER_OK;
}

/* Each client has shaken hands with success, and reads. */
static void a_reader_is_told_what_ended_the_connection(void **state)
{
    static const char record[] = "\x17\x03\x03\x00\x20"
                                 "0123456789abcdef0123456789abcdef";
    static const struct {
        struct row row;
        const char *bytes; /* that nobody encrypted, from the server's side; NULL: none */
        bool is_cut;       /* without close_notify */
        const char *text;
    } ends[] = {
        /* In TLS 1.3 a client learns after its handshake what the server wants. */
        {{.name = "a certificate is demanded", .is_demanded = true},
         NULL,
         false,
         "the server demands a certificate of ours"},
        {{.name = "a cut"}, NULL, true, "close_notify"},
        {{.name = "a forged record"}, record, false, "bad record mac"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct muster_stream_read read = {.is_eof = true};
        enum muster_rc rc = MUSTER_OK;
        const struct muster_error *error;
        struct meeting meeting;
        char byte;

        meeting_start(&meeting, &ends[i].row);
        assert_int_equal(meeting.pair.client.rc, MUSTER_OK);
        read.data = &rc;
        assert_int_equal(
            muster_stream_receive_into(&read, meeting.pair.client.stream, &byte, 1, 1, on_read),
            MUSTER_OK);
        if (ends[i].bytes != NULL)
            assert_int_equal(
                send(meeting.pair.fds[1], ends[i].bytes, sizeof(record) - 1, MSG_NOSIGNAL),
                sizeof(record) - 1);
        if (ends[i].is_cut)
            assert_int_equal(shutdown(meeting.pair.fds[1], SHUT_WR), 0);
        test_env_run_until(&meeting.pair.test.env, is_over, &rc);

        error = muster_stream_error(meeting.pair.client.stream);
        if (rc != MUSTER_UNAVAILABLE || read.is_eof || error == NULL ||
            strstr(error->text, ends[i].text) == NULL)
            fail_msg("%s: %s, %s", ends[i].row.name, muster_rc_name(rc),
                     error != NULL ? error->text : "no text");
        meeting_close(&meeting);
    }
}

static void the_names_of_a_peer_are_known(void **state)
{
    const struct row row = {.show = SHOW_OURS,
                            .is_demanded = true,
                            .client_alt_names = "DNS:a.test,URI:" SPIFFE ",DNS:b.test"};
    const struct muster_identity *identity;
    struct meeting meeting;

    (void)state;
    meeting_start(&meeting, &row);
    identity = muster_tls_stream_identity(meeting.pair.server.stream);

    assert_string_equal(identity->spiffe_id, SPIFFE);
    assert_int_equal(identity->dns_name_count, 2);
    assert_string_equal(identity->dns_names[1], "b.test");
    assert_string_equal(identity->subject, "CN=client");
    assert_string_equal(muster_tls_stream_protocol(meeting.pair.server.stream), "h2");
    identity = muster_tls_stream_identity(meeting.pair.client.stream);
    assert_string_equal(identity->dns_names[0], "localhost");
    assert_string_equal(muster_identity_name(identity), "localhost");
    meeting_close(&meeting);
}

/* Shakes hands twice, the second time with a session of the first, and that name. */
static void meeting_repeat(struct meeting *meeting, const struct row *row, const char *server_name)
{
    struct tls_pair *pair = &meeting->pair;
    struct muster_tls_sessions *sessions;
    char byte;

    meeting_open(meeting, row);
    sessions = muster_tls_sessions_new(pair->test.env.mem);
    tls_pair_shake(pair, meeting->client, meeting->server, "localhost", sessions);
    assert_false(muster_tls_stream_is_resumed(pair->client.stream));
    assert_int_equal(muster_stream_take_now(pair->client.stream, &byte, 1), 0); /* the ticket */
    tls_pair_again(pair);
    tls_pair_shake(pair, meeting->client, meeting->server, server_name, sessions);
    muster_tls_sessions_free(sessions);
}

static void a_session_is_resumed_with_its_names(void **state)
{
    struct meeting meeting;

    (void)state;
    meeting_repeat(&meeting, &mutual, "localhost");

    assert_int_equal(meeting.pair.client.rc, MUSTER_OK);
    assert_true(muster_tls_stream_is_resumed(meeting.pair.client.stream));
    assert_true(muster_tls_stream_is_resumed(meeting.pair.server.stream));
    assert_string_equal(muster_tls_stream_identity(meeting.pair.server.stream)->spiffe_id, SPIFFE);
    assert_string_equal(muster_tls_stream_identity(meeting.pair.client.stream)->dns_names[0],
                        "localhost");
    meeting_close(&meeting);
}

static void a_session_of_another_name_is_not_resumed(void **state)
{
    struct meeting meeting;

    (void)state;
    meeting_repeat(&meeting, &(struct row){.name = "sound"}, "elsewhere.test");

    assert_int_equal(meeting.pair.client.rc, MUSTER_UNAUTHENTICATED);
    meeting_close(&meeting);
}

static void both_ends_export_the_same_key(void **state)
{
    struct meeting meeting;
    uint8_t keys[3][32];

    (void)state;
    meeting_start(&meeting, &(struct row){.name = "sound"});
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(muster_tls_stream_export(i == 0 ? meeting.pair.client.stream
                                                         : meeting.pair.server.stream,
                                                  i < 2 ? "EXPORTER-a" : "EXPORTER-b", keys[i], 32),
                         MUSTER_OK);

    assert_memory_equal(keys[0], keys[1], 32);
    assert_memory_not_equal(keys[0], keys[2], 32);
    meeting_close(&meeting);
}

/* Peers that are not what they should be: the case holds the other descriptor. */

struct strange {
    struct tls_pair pair;
    struct muster_tls *tls;
    int fd; /* a second name of the peer's descriptor */
};

static void strange_open(struct strange *strange)
{
    tls_pair_open(&strange->pair);
    strange->tls = open_server(&strange->pair, &(struct row){.name = "sound"});
    strange->fd = dup(strange->pair.fds[0]);
    assert_true(strange->fd >= 0);
    tls_pair_start(&strange->pair, &strange->pair.server, strange->tls,
                   &(struct muster_tls_handshake_options){.is_server = true, .protocols = "h2"},
                   200 * MUSTER_NS_PER_MS);
}

static void strange_close(struct strange *strange)
{
    muster_tls_close(strange->tls);
    close(strange->fd);
    tls_pair_close(&strange->pair);
}

static void strange_clients_are_refused(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    static const uint8_t fatal[] = {0x15, 3, 1, 0, 2, 2};
    static char garbage[512];
    static const struct {
        const char *name, *bytes;
        size_t count;
        bool is_ended;
        enum muster_rc rc;
        const char *text;
        bool is_alerted; /* the alert tells the client what it has dialled */
    } clients[] = {
        {"silent", "\x16\x03\x01", 3, false, MUSTER_DEADLINE_EXCEEDED,
         "did not finish the TLS handshake in time", false},
        {"plain text", text, sizeof(text) - 1, false, MUSTER_FAILED_PRECONDITION,
         "the peer speaks plain text", true},
        {"garbage", garbage, sizeof(garbage), false, MUSTER_UNAVAILABLE, "", false},
        {"an end within the handshake", "", 0, true, MUSTER_UNAVAILABLE, "within the TLS handshake",
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (char)(i * 37 + 11);
    for (size_t i = 0; i < sizeof(clients) / sizeof(clients[0]); i++) {
        struct strange strange;
        const struct tls_side *server = &strange.pair.server;
        uint8_t heard[16];

        strange_open(&strange);
        assert_int_equal(send(strange.fd, clients[i].bytes, clients[i].count, MSG_NOSIGNAL),
                         clients[i].count);
        if (clients[i].is_ended)
            assert_int_equal(shutdown(strange.fd, SHUT_WR), 0);
        tls_pair_wait(&strange.pair, server);

        if (server->rc != clients[i].rc || strstr(server->error.text, clients[i].text) == NULL)
            fail_msg("%s: %s, %s", clients[i].name, muster_rc_name(server->rc), server->error.text);
        if (clients[i].is_alerted) {
            assert_int_equal(recv(strange.fd, heard, sizeof(heard), 0), sizeof(fatal) + 1);
            assert_memory_equal(heard, fatal, sizeof(fatal));
        }
        strange_close(&strange);
    }
}

static void a_cancelled_handshake_is_called_back_once(void **state)
{
    struct strange strange;

    (void)state;
    strange_open(&strange);
    muster_tls_handshake_cancel(&strange.pair.server.handshake);
    muster_tls_handshake_cancel(&strange.pair.server.handshake);
    assert_int_equal(strange.pair.server.done_count, 0);
    tls_pair_wait(&strange.pair, &strange.pair.server);
    test_env_turn(&strange.pair.test.env, 20);

    assert_int_equal(strange.pair.server.done_count, 1);
    assert_int_equal(strange.pair.server.rc, MUSTER_CANCELLED);
    strange_close(&strange);
}

/* Much, both ways at once. */

#define BULK_BYTES (9u << 20)

struct bulk {
    struct muster_stream_write write;
    struct muster_stream_read read;
    struct iovec iov[3];
    uint8_t *sent, *received;
    bool is_sent, is_received;
};

static void on_bulk_sent(struct muster_stream_write *write, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    ((struct bulk *)write->data)->is_sent = true;
}

static void on_bulk_received(struct muster_stream_read *read, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    ((struct bulk *)read->data)->is_received = true;
}

static void bulk_start(struct bulk *bulk, struct muster_stream *stream, unsigned salt)
{
    bulk->sent = malloc(BULK_BYTES);
    bulk->received = malloc(BULK_BYTES);
    for (size_t i = 0; i < BULK_BYTES; i++)
        bulk->sent[i] = (uint8_t)((i * 2654435761u + salt) >> 9);
    bulk->write.data = bulk->read.data = bulk;
    bulk->iov[0] = (struct iovec){.iov_base = bulk->sent, .iov_len = 9};
    bulk->iov[1] = (struct iovec){.iov_base = bulk->sent + 9, .iov_len = BULK_BYTES - 1000};
    bulk->iov[2] = (struct iovec){.iov_base = bulk->sent + BULK_BYTES - 991, .iov_len = 991};
    assert_int_equal(muster_stream_submit(&bulk->write, stream, bulk->iov, 3, on_bulk_sent),
                     MUSTER_OK);
    assert_int_equal(muster_stream_receive_into(&bulk->read, stream, bulk->received, BULK_BYTES,
                                                BULK_BYTES, on_bulk_received),
                     MUSTER_OK);
}

static void bulk_end(struct bulk *bulk)
{
    free(bulk->sent);
    free(bulk->received);
}

static void much_passes_both_ways_at_once(void **state)
{
    struct bulk up = {.is_sent = false}, down = {.is_sent = false};
    bool *const ends[] = {&up.is_sent, &down.is_sent, &up.is_received, &down.is_received};
    struct meeting meeting;

    (void)state;
    meeting_start(&meeting, &(struct row){.name = "sound"});
    bulk_start(&up, meeting.pair.client.stream, 1);
    bulk_start(&down, meeting.pair.server.stream, 2);
    for (size_t i = 0; i < 4; i++)
        test_env_run_until(&meeting.pair.test.env, test_env_is_true, ends[i]);

    assert_memory_equal(up.sent, down.received, BULK_BYTES);
    assert_memory_equal(down.sent, up.received, BULK_BYTES);
    bulk_end(&up);
    bulk_end(&down);
    meeting_close(&meeting);
}

/* Whichever allocation of ours fails, both ends hear of it once, and nothing is lost. */
static void run_handshake(struct torture *torture, const void *data)
{
    const struct muster_tls_handshake_options server = {.is_server = true, .protocols = "h2"};
    const struct muster_tls_handshake_options client = {.server_name = "localhost",
                                                        .protocols = "h2"};
    struct meeting meeting;
    struct tls_pair *pair = &meeting.pair;
    bool is_ok;

    (void)data;
    meeting_open(&meeting, &mutual);
    tls_pair_start(pair, &pair->client, meeting.client, &client, 60 * MUSTER_NS_PER_S);
    tls_pair_start(pair, &pair->server, meeting.server, &server, 60 * MUSTER_NS_PER_S);
    torture_arm_limited(torture, &pair->test.mem);
    tls_pair_wait(pair, &pair->client);
    tls_pair_wait(pair, &pair->server);
    torture_disarm(torture);
    is_ok = pair->client.rc == MUSTER_OK && pair->server.rc == MUSTER_OK;
    assert_int_equal(is_ok, torture->refused == 0);
    meeting_close(&meeting);
}

static void want_of_memory_ends_the_handshake(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "handshake", .run = run_handshake});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_are_judged),
        cmocka_unit_test(a_reader_is_told_what_ended_the_connection),
        cmocka_unit_test(the_names_of_a_peer_are_known),
        cmocka_unit_test(a_session_is_resumed_with_its_names),
        cmocka_unit_test(a_session_of_another_name_is_not_resumed),
        cmocka_unit_test(both_ends_export_the_same_key),
        cmocka_unit_test(strange_clients_are_refused),
        cmocka_unit_test(a_cancelled_handshake_is_called_back_once),
        cmocka_unit_test(much_passes_both_ways_at_once),
        cmocka_unit_test_teardown(want_of_memory_ends_the_handshake, torture_tell),
    };
    int failed_count;

    authority = fake_authority_new("authority");
    other = fake_authority_new("other");
    failed_count = cmocka_run_group_tests_name("tls_handshake", tests, NULL, NULL);
    fake_authority_free(authority);
    fake_authority_free(other);
    return failed_count;
}
