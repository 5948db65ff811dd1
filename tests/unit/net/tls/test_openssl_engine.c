/* One connection with a peer that does not do as it should: protocols, sessions to resume, further
 * handshakes. */
#include <stdio.h>
#include <string.h>

#include "tests/lib/raw_meeting.h"

#define DAY_NS (24 * UINT64_C(3600) * MUSTER_NS_PER_S)
#define SPIFFE "spiffe://test/job/a/task/1"
#define OTHERS "spiffe://test/job/b/*"
#define NOT_US "none of the accepted names (\"" OTHERS "\")"

static struct fake_authority *authority;
static struct fake_cert server_cert, client_cert;

static const struct muster_tls_options *server_options(bool is_peer_required)
{
    static struct muster_tls_options options;

    options = (struct muster_tls_options){.cert_pem = server_cert.cert_pem,
                                          .key_pem = server_cert.key_pem,
                                          .ca_pem = fake_authority_pem(authority),
                                          .is_peer_required = is_peer_required};
    return &options;
}

static const struct muster_tls_options *client_options(void)
{
    static struct muster_tls_options options;

    options = (struct muster_tls_options){.cert_pem = client_cert.cert_pem,
                                          .key_pem = client_cert.key_pem,
                                          .ca_pem = fake_authority_pem(authority)};
    return &options;
}

/* Protocols (RFC 7301). */

struct protocol_row {
    const char *name;
    bool is_server;        /* ours is */
    const char *protocols; /* of the peer; NULL: none at all */
    const char *words;     /* of the refusal; NULL: it is none */
    bool is_told;          /* the peer hears an alert that says so */
};

static void connections_have_a_protocol_in_common(void **state)
{
    static const struct protocol_row rows[] = {
        {"a client of h2", true, "h2", NULL, false},
        {"a client of h2 among others", true, "http/1.1,h2", NULL, false},
        {"a client of no protocol", true, NULL, "the client names no protocol (ALPN)", true},
        {"a client of another", true, "http/1.1", "speaks none of this server's protocols", true},
        {"a client of one that begins alike", true, "h", "speaks none of this", true},
        {"a client of one that goes on", true, "h2c", "speaks none of this", true},
        {"a server of h2", false, "h2", NULL, false},
        {"a server of no protocol", false, NULL, "the server chose no protocol (ALPN)", false},
        {"a server of another", false, "http/1.1", "TLS: bad extension", false},
        {"a server of one that begins alike", false, "h", "TLS: bad extension", false},
        {"a server of one that goes on", false, "h2c", "TLS: bad extension", false},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const struct protocol_row *row = &rows[i / 2];
        int version = i % 2 == 0 ? TLS1_2_VERSION : TLS1_3_VERSION;
        const struct raw_tls_options raw = {.protocols = row->protocols,
                                            .cert = row->is_server ? NULL : &server_cert,
                                            .version_min = version,
                                            .version_max = version};
        struct raw_meeting meeting;

        raw_meeting_start(&meeting, row->is_server, &raw,
                          row->is_server ? server_options(false) : client_options(), "localhost");

        if (meeting.ours->rc != (row->words != NULL ? MUSTER_UNAVAILABLE : MUSTER_OK) ||
            (row->words != NULL && strstr(meeting.ours->error.text, row->words) == NULL))
            fail_msg("%s: %s %s", row->name, muster_rc_name(meeting.ours->rc),
                     meeting.ours->error.text);
        if (row->words == NULL)
            assert_string_equal(muster_tls_stream_protocol(meeting.ours->stream), "h2");
        if (row->is_told != (meeting.raw.alerts[SSL_AD_NO_APPLICATION_PROTOCOL] > 0))
            fail_msg("%s: is told by an alert: %d", row->name, !row->is_told);
        raw_meeting_close(&meeting);
    }
}

static void on_never(struct muster_tls_handshake *handshake, enum muster_rc rc)
{
    (void)handshake, (void)rc;
    fail_msg("a handshake has begun");
}

/* There are 64 bytes for them, and a length stands before each. */
static void protocols_that_cannot_be_named_are_not_served(void **state)
{
    char full[65], beyond[66];
    const char *const rows[] = {",h2", "h2,,other", beyond};
    struct raw_meeting meeting;
    struct muster_tls *tls;

    (void)state;
    memset(full, 'x', sizeof(full));
    memset(beyond, 'x', sizeof(beyond));
    full[63] = beyond[64] = '\0';
    raw_meeting_open(&meeting, true, &(struct raw_tls_options){.protocols = "h2"});
    tls = raw_meeting_tls(&meeting, server_options(false));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_tls_handshake_options options = {.is_server = true,
                                                             .protocols = rows[i]};
        struct muster_tls_handshake handshake;

        assert_int_equal(muster_tls_handshake_start(&handshake, tls, meeting.ours->inner, &options,
                                                    UINT64_MAX, on_never),
                         MUSTER_RESOURCE_EXHAUSTED);
        meeting.ours->inner = NULL; /* it is taken */
        raw_meeting_again(&meeting);
    }
    tls_pair_start(&meeting.pair, meeting.ours, tls,
                   &(struct muster_tls_handshake_options){.is_server = true, .protocols = full},
                   60 * MUSTER_NS_PER_S);
    muster_tls_handshake_cancel(&meeting.ours->handshake);
    tls_pair_wait(&meeting.pair, meeting.ours);
    raw_meeting_close(&meeting);
}

/* Sessions: our client and our server. */

struct reunion {
    struct tls_pair pair;
    struct muster_tls *clients[2], *servers[2]; /* the second of each: made anew of the same */
    struct muster_tls_sessions *sessions;
};

static struct muster_tls *open_tls(struct muster_env *env, const struct muster_tls_options *options)
{
    struct muster_tls *tls = NULL;

    assert_int_equal(muster_tls_open(env, options, &tls, NULL), MUSTER_OK);
    return tls;
}

static void reunion_open(struct reunion *reunion)
{
    struct muster_env *env = &reunion->pair.test.env;

    tls_pair_open(&reunion->pair);
    for (size_t i = 0; i < 2; i++) {
        reunion->clients[i] = open_tls(env, client_options());
        reunion->servers[i] = open_tls(env, server_options(true));
    }
    reunion->sessions = muster_tls_sessions_new(env->mem);
}

static void reunion_close(struct reunion *reunion)
{
    muster_tls_sessions_free(reunion->sessions);
    for (size_t i = 0; i < 2; i++) {
        muster_tls_close(reunion->clients[i]);
        muster_tls_close(reunion->servers[i]);
    }
    tls_pair_close(&reunion->pair);
}

struct visit {
    const char *name; /* of the server; NULL: there is no further visit */
    unsigned client, server;
    bool is_resumed;
};

/* A server of ours is visited, and the ticket that it gives is taken. */
static void reunion_meet(struct reunion *reunion, const struct visit *visit)
{
    char byte;

    tls_pair_again(&reunion->pair);
    tls_pair_shake(&reunion->pair, reunion->clients[visit->client], reunion->servers[visit->server],
                   visit->name, reunion->sessions);
    if (reunion->pair.client.rc == MUSTER_OK)
        assert_int_equal(muster_stream_take_now(reunion->pair.client.stream, &byte, 1), 0);
}

static void a_session_is_resumed_where_it_was_made(void **state)
{
    static const struct {
        const char *name;
        struct visit visits[4];
    } rows[] = {
        {"the same", {{"a.test", 0, 0, false}, {"a.test", 0, 0, true}, {"a.test", 0, 0, true}}},
        {"another name",
         {{"a.test", 0, 0, false}, {"b.test", 0, 0, false}, {"b.test", 0, 0, true}}},
        {"the first name again, after another",
         {{"a.test", 0, 0, false}, {"b.test", 0, 0, false}, {"a.test", 0, 0, false}}},
        {"a name in capitals", {{"a.test", 0, 0, false}, {"A.test", 0, 0, false}}},
        {"an address instead of a name",
         {{"a.test", 0, 0, false}, {"127.0.0.1", 0, 0, false}, {"127.0.0.1", 0, 0, true}}},
        {"another credential of the client",
         {{"a.test", 0, 0, false}, {"a.test", 1, 0, false}, {"a.test", 1, 0, true}}},
        {"the first credential of the client again, after another",
         {{"a.test", 0, 0, false}, {"a.test", 1, 0, false}, {"a.test", 0, 0, false}}},
        {"another credential of the server",
         {{"a.test", 0, 0, false}, {"a.test", 0, 1, false}, {"a.test", 0, 1, true}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct reunion reunion;

        reunion_open(&reunion);
        for (const struct visit *visit = rows[i].visits; visit->name != NULL; visit++) {
            struct tls_pair *pair = &reunion.pair;

            reunion_meet(&reunion, visit);
            assert_int_equal(pair->client.rc, MUSTER_OK);
            assert_int_equal(pair->server.rc, MUSTER_OK);
            if (muster_tls_stream_is_resumed(pair->client.stream) != visit->is_resumed ||
                muster_tls_stream_is_resumed(pair->server.stream) != visit->is_resumed)
                fail_msg("%s: the visit %zu is%s resumed", rows[i].name, visit - rows[i].visits,
                         visit->is_resumed ? " not" : "");
            assert_string_equal(muster_tls_stream_identity(pair->server.stream)->spiffe_id, SPIFFE);
        }
        reunion_close(&reunion);
    }
}

/* A host whose clock a case sets. */
struct clock_host {
    struct muster_host host;
    uint64_t wall_ns;
};

static uint64_t clock_wall_ns(struct muster_host *host)
{
    return MUSTER_CONTAINER_OF(host, struct clock_host, host)->wall_ns;
}

static const struct muster_host_ops clock_ops = {.wall_ns = clock_wall_ns};

/* The rules and the clock of now hold for a session that was made before. */
static void whoever_resumes_is_judged_again(void **state)
{
    static const char *const others[] = {OTHERS};
    static const struct {
        const char *name;
        bool is_server; /* that judges anew */
        bool is_later;  /* by forty days; otherwise its rules are others */
        const char *words;
    } rows[] = {
        {"the server's rules", true, false, "is " SPIFFE ", which is " NOT_US},
        {"the client's rules", false, false, "is a.test, which is " NOT_US},
        {"the server's clock", true, true, "the client's certificate of a resumed session expired"},
        {"the client's clock", false, true,
         "the server's certificate of a resumed session expired"},
    };
    static const struct visit visit = {.name = "a.test"};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct clock_host later = {.host = {&clock_ops}};
        const struct tls_side *judge;
        struct reunion reunion;
        struct muster_env late;
        struct muster_tls *tls;

        reunion_open(&reunion);
        reunion_meet(&reunion, &visit);
        late = reunion.pair.test.env;
        later.wall_ns = muster_host_wall_ns(late.host) + 40 * DAY_NS;
        late.host = &later.host;
        tls = rows[i].is_server ? reunion.servers[0] : reunion.clients[0];
        if (rows[i].is_later) {
            tls->env = &late;
        } else {
            tls->options.peer_names = others;
            tls->options.peer_name_count = 1;
        }
        reunion_meet(&reunion, &visit);
        judge = rows[i].is_server ? &reunion.pair.server : &reunion.pair.client;

        if (judge->rc != MUSTER_UNAUTHENTICATED || strstr(judge->error.text, rows[i].words) == NULL)
            fail_msg("%s: %s %s", rows[i].name, muster_rc_name(judge->rc), judge->error.text);
        tls->options.peer_names = NULL;
        tls->options.peer_name_count = 0;
        tls_pair_again(&reunion.pair);
        tls->env = &reunion.pair.test.env;
        reunion_close(&reunion);
    }
}

/* It was made a moment ago, or in this second. */
static bool is_month_left(const char *text)
{
    return strstr(text, "another 29 d 23 h: set the clock of the peer") != NULL ||
           strstr(text, "another 30 d: set the clock of the peer") != NULL;
}

/* The clock of the environment says what has expired, not the system's. */
static void certificates_are_judged_by_the_clock_of_the_environment(void **state)
{
    static const struct visit visit = {.name = "a.test"};

    (void)state;
    for (int days = -40; days <= 40; days += 40) {
        struct clock_host other = {.host = {&clock_ops}};
        enum muster_rc rc = days == 0 ? MUSTER_OK : MUSTER_UNAUTHENTICATED;
        const char *words = days < 0   ? " ahead of this host's clock: set the clock "
                            : days > 0 ? " before this host's clock: renew it, or set the clock "
                                       : "";
        const char *server_words =
            days > 0 ? "our certificate has expired, but by this host's clock it is valid for "
                       "another "
                     : "";
        struct reunion reunion;
        struct muster_env env;

        reunion_open(&reunion);
        env = reunion.pair.test.env;
        other.wall_ns = muster_host_wall_ns(env.host) + (uint64_t)(days * (int64_t)DAY_NS);
        env.host = &other.host;
        reunion.clients[0]->env = &env;
        reunion_meet(&reunion, &visit);

        assert_int_equal(reunion.pair.client.rc, rc);
        if (strstr(reunion.pair.client.error.text, words) == NULL ||
            strstr(reunion.pair.server.error.text, server_words) == NULL ||
            (days > 0) != is_month_left(reunion.pair.server.error.text))
            fail_msg("%s | %s", reunion.pair.client.error.text, reunion.pair.server.error.text);
        tls_pair_again(&reunion.pair);
        reunion.clients[0]->env = &reunion.pair.test.env;
        reunion_close(&reunion);
    }
}

/* A peer that resumes, or gives sessions. */

static void a_server_keeps_no_sessions_itself(void **state)
{
    static const struct {
        const char *name;
        int version;
        bool has_no_tickets, is_resumed;
    } rows[] = {
        {"by a ticket of TLS 1.2", TLS1_2_VERSION, false, true},
        {"by an id of TLS 1.2", TLS1_2_VERSION, true, false},
        {"by a ticket of TLS 1.3", TLS1_3_VERSION, false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct raw_tls_options raw = {.protocols = "h2",
                                            .cert = &client_cert,
                                            .version_min = rows[i].version,
                                            .version_max = rows[i].version,
                                            .has_no_tickets = rows[i].has_no_tickets};
        struct raw_meeting meeting;

        raw_meeting_start(&meeting, true, &raw, server_options(true), NULL);
        assert_int_equal(meeting.ours->rc, MUSTER_OK);
        meeting.raw.options.session = meeting.raw.session;
        raw_meeting_again(&meeting);
        raw_meeting_shake(&meeting, meeting.tls, NULL, NULL);

        assert_int_equal(meeting.ours->rc, MUSTER_OK);
        if (muster_tls_stream_is_resumed(meeting.ours->stream) != rows[i].is_resumed)
            fail_msg("%s", rows[i].name);
        assert_string_equal(muster_tls_stream_identity(meeting.ours->stream)->spiffe_id, SPIFFE);
        raw_meeting_close(&meeting);
    }
}

/* RFC 8446 C.4: each is used once. */
static void a_client_keeps_two_tickets(void **state)
{
    struct raw_tls_options raw = {.cert = &server_cert, .protocols = "h2", .ticket_count = 1};

    (void)state;
    for (; raw.ticket_count <= 3; raw.ticket_count++) {
        struct muster_tls_sessions *sessions;
        struct raw_meeting meeting;
        struct muster_tls *tls;
        unsigned resumed_count = 0;
        char byte;

        raw_meeting_open(&meeting, false, &raw);
        tls = raw_meeting_tls(&meeting, client_options());
        sessions = muster_tls_sessions_new(meeting.pair.test.env.mem);
        for (unsigned i = 0; i < 4; i++) {
            raw_meeting_shake(&meeting, tls, "a.test", sessions);
            assert_int_equal(meeting.ours->rc, MUSTER_OK);
            resumed_count += muster_tls_stream_is_resumed(meeting.ours->stream);
            assert_int_equal(muster_stream_take_now(meeting.ours->stream, &byte, 1), 0);
            SSL_CTX_set_num_tickets(meeting.raw.context, 0);
            raw_meeting_again(&meeting);
        }

        assert_int_equal(resumed_count, raw.ticket_count < 2 ? raw.ticket_count : 2);
        muster_tls_sessions_free(sessions);
        raw_meeting_close(&meeting);
    }
}

/* Two tickets for one name; then one for another name, or by another credential, which leaves the
 * older ones nowhere: their peer was judged by other rules. */
static void tickets_of_another_name_or_credential_are_forgotten(void **state)
{
    static const struct raw_tls_options raw = {
        .cert = &server_cert, .protocols = "h2", .ticket_count = 2};

    (void)state;
    for (unsigned by_name = 0; by_name < 2; by_name++) {
        static const bool is_resumed[] = {false, false, true, false};
        struct muster_tls_sessions *sessions;
        struct raw_meeting meeting;
        struct muster_tls *first, *second;
        char byte;

        raw_meeting_open(&meeting, false, &raw);
        first = raw_meeting_tls(&meeting, client_options());
        assert_int_equal(
            muster_tls_open(&meeting.pair.test.env, client_options(), &second, NULL), MUSTER_OK);
        sessions = muster_tls_sessions_new(meeting.pair.test.env.mem);
        for (unsigned i = 0; i < 4; i++) {
            SSL_CTX_set_num_tickets(meeting.raw.context, i == 0 ? 2 : i == 1 ? 1 : 0);
            raw_meeting_shake(&meeting, i == 0 || by_name == 1 ? first : second,
                              i == 0 || by_name == 0 ? "a.test" : "b.test", sessions);
            assert_int_equal(meeting.ours->rc, MUSTER_OK);
            if (muster_tls_stream_is_resumed(meeting.ours->stream) != is_resumed[i])
                fail_msg("%s: visit %u", by_name == 1 ? "name" : "credential", i);
            assert_int_equal(muster_stream_take_now(meeting.ours->stream, &byte, 1), 0);
            raw_meeting_again(&meeting);
        }
        muster_tls_sessions_free(sessions);
        muster_tls_close(second);
        raw_meeting_close(&meeting);
    }
}

/* Further handshakes (TLS 1.2). */

struct hearing {
    struct raw_meeting *meeting;
    struct muster_stream_read read;
    enum muster_rc rc;
    bool is_over;
    char bytes[4];
};

static void on_read(struct muster_stream_read *read, enum muster_rc rc)
{
    struct hearing *hearing = read->data;

    hearing->rc = rc;
    hearing->is_over = true;
}

static bool is_heard_or_told(void *data)
{
    const struct hearing *hearing = data;

    return hearing->is_over || hearing->meeting->raw.is_over;
}

static void renegotiation_is_refused(void **state)
{
    (void)state;
    for (int is_server = 0; is_server < 2; is_server++) {
        const struct raw_tls_options raw = {.protocols = "h2",
                                            .cert = is_server ? NULL : &server_cert,
                                            .version_max = TLS1_2_VERSION};
        struct raw_meeting meeting;
        struct hearing hearing = {.meeting = &meeting};

        raw_meeting_start(&meeting, is_server, &raw,
                          is_server ? server_options(false) : client_options(), "localhost");
        hearing.read.data = &hearing;
        assert_int_equal(muster_stream_receive_into(&hearing.read, meeting.ours->stream,
                                                    hearing.bytes, 4, 4, on_read),
                         MUSTER_OK);
        raw_tls_say(&meeting.raw, "ab", 2);
        raw_tls_renegotiate(&meeting.raw);
        raw_tls_run_until(&meeting.raw, &meeting.pair.test.env, is_heard_or_told, &hearing);

        assert_int_equal(meeting.raw.alerts[SSL_AD_NO_RENEGOTIATION], 1);
        assert_string_equal(meeting.raw.reason, "no renegotiation");
        assert_false(hearing.is_over); /* it is a warning: ours goes on */
        assert_int_equal(hearing.read.bytes_done, 2);
        assert_memory_equal(hearing.bytes, "ab", 2);
        (void)muster_stream_receive_recall(&hearing.read, meeting.ours->stream);
        raw_meeting_close(&meeting);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_have_a_protocol_in_common),
        cmocka_unit_test(protocols_that_cannot_be_named_are_not_served),
        cmocka_unit_test(a_session_is_resumed_where_it_was_made),
        cmocka_unit_test(whoever_resumes_is_judged_again),
        cmocka_unit_test(certificates_are_judged_by_the_clock_of_the_environment),
        cmocka_unit_test(a_server_keeps_no_sessions_itself),
        cmocka_unit_test(a_client_keeps_two_tickets),
        cmocka_unit_test(tickets_of_another_name_or_credential_are_forgotten),
        cmocka_unit_test(renegotiation_is_refused),
    };
    const struct fake_cert_options server = {
        .name = "server", .alt_names = "DNS:a.test,DNS:b.test,DNS:localhost,IP:127.0.0.1"};
    const struct fake_cert_options client = {.name = "client", .alt_names = "URI:" SPIFFE};
    int failed_count;

    raw_tls_set_policy(true);
    if (!fake_certs_init(&authority, &server_cert, &server, &client_cert, &client))
        return 1;
    failed_count = cmocka_run_group_tests_name("tls_openssl_engine", tests, NULL, NULL);
    fake_certs_fini(authority, &server_cert, &client_cert);
    return failed_count;
}
