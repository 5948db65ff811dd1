/* Versions, ciphers, groups and keys that are never spoken, even where the policy of the system
 * allows all of them. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/lib/raw_meeting.h"

#define NO_VERSION "the peer speaks no version of TLS that is allowed here"
#define NO_CIPHER  "no cipher in common"
#define AES_128    "ECDHE-ECDSA-AES128-GCM-SHA256"
#define AES_256    "ECDHE-ECDSA-AES256-GCM-SHA384"
#define CHACHA     "ECDHE-ECDSA-CHACHA20-POLY1305"
#define V(n)       .version_min = TLS1_##n##_VERSION, .version_max = TLS1_##n##_VERSION

static struct fake_authority *authority;
static struct fake_cert elliptic, rsa; /* of our server, or of a peer's */

static bool is_1_3(const struct raw_meeting *meeting)
{
    return SSL_version(meeting->raw.ssl) == TLS1_3_VERSION;
}

/* Servers of ours. */

struct client_row {
    const char *name;
    struct raw_tls_options raw; /* what it offers */
    enum muster_tls_version version_min;
    bool is_rsa;
    const char *words;  /* of the refusal; NULL: it is served */
    const char *cipher; /* that is chosen; NULL: any */
};

static const struct client_row client_rows[] = {
    {.name = "of any version", .raw = {.version_min = 0}, .cipher = "TLS_AES_128_GCM_SHA256"},
    {.name = "of TLS 1.0",
     .raw = {.version_min = TLS1_VERSION, .version_max = TLS1_VERSION},
     .words = NO_VERSION},
    {.name = "of TLS 1.1", .raw = {V(1)}, .words = NO_VERSION},
    {.name = "of TLS 1.2", .raw = {V(2)}},
    {.name = "of TLS 1.3", .raw = {V(3)}},
    {.name = "of TLS 1.2 where it is asked", .raw = {V(2)}, .version_min = MUSTER_TLS_VERSION_1_2},
    {.name = "of TLS 1.2 where 1.3 is demanded",
     .raw = {V(2)},
     .version_min = MUSTER_TLS_VERSION_1_3,
     .words = NO_VERSION},
    {.name = "of TLS 1.3 where it is demanded",
     .raw = {V(3)},
     .version_min = MUSTER_TLS_VERSION_1_3},

    {.name = "of AES 128", .raw = {V(2), .ciphers = AES_128}, .cipher = AES_128},
    {.name = "of AES 256", .raw = {V(2), .ciphers = AES_256}, .cipher = AES_256},
    {.name = "of ChaCha20", .raw = {V(2), .ciphers = CHACHA}, .cipher = CHACHA},
    {.name = "of AES 128 by RSA",
     .raw = {V(2), .ciphers = "ECDHE-RSA-AES128-GCM-SHA256"},
     .is_rsa = true},
    {.name = "of ChaCha20 by RSA",
     .raw = {V(2), .ciphers = "ECDHE-RSA-CHACHA20-POLY1305"},
     .is_rsa = true},
    {.name = "that would rather have ChaCha20",
     .raw = {V(2), .ciphers = CHACHA ":" AES_128},
     .cipher = AES_128},
    {.name = "that would rather have ChaCha20 in TLS 1.3",
     .raw = {V(3), .ciphersuites = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"},
     .cipher = "TLS_AES_128_GCM_SHA256"},
    {.name = "of CBC", .raw = {V(2), .ciphers = "ECDHE-ECDSA-AES128-SHA256"}, .words = NO_CIPHER},
    {.name = "of CBC and SHA-1",
     .raw = {V(2), .ciphers = "ECDHE-ECDSA-AES256-SHA"},
     .words = NO_CIPHER},
    {.name = "of CCM", .raw = {V(2), .ciphers = "ECDHE-ECDSA-AES128-CCM"}, .words = NO_CIPHER},
    {.name = "of ARIA",
     .raw = {V(2), .ciphers = "ECDHE-ECDSA-ARIA128-GCM-SHA256"},
     .words = NO_CIPHER},
    {.name = "of no encryption",
     .raw = {V(2), .ciphers = "ECDHE-ECDSA-NULL-SHA"},
     .words = NO_CIPHER},
    {.name = "that asks for no certificate",
     .raw = {V(2), .ciphers = "AECDH-AES128-SHA"},
     .words = NO_CIPHER},
    {.name = "of no encryption and no certificate",
     .raw = {V(2), .ciphers = "AECDH-NULL-SHA"},
     .words = NO_CIPHER},
    {.name = "without forward secrecy",
     .raw = {V(2), .ciphers = "AES128-GCM-SHA256"},
     .is_rsa = true,
     .words = NO_CIPHER},
    {.name = "of CBC without forward secrecy",
     .raw = {V(2), .ciphers = "AES256-SHA"},
     .is_rsa = true,
     .words = NO_CIPHER},
    {.name = "of no encryption by RSA",
     .raw = {V(2), .ciphers = "NULL-SHA256"},
     .is_rsa = true,
     .words = NO_CIPHER},
    {.name = "of finite fields",
     .raw = {V(2), .ciphers = "DHE-RSA-AES128-GCM-SHA256"},
     .is_rsa = true,
     .words = NO_CIPHER},
    {.name = "of all but ours",
     .raw = {V(2), .ciphers = "ALL:eNULL:!ECDHE"},
     .is_rsa = true,
     .words = NO_CIPHER},
    {.name = "of CCM in TLS 1.3",
     .raw = {V(3), .ciphersuites = "TLS_AES_128_CCM_SHA256:TLS_AES_128_CCM_8_SHA256"},
     .words = NO_CIPHER},

    {.name = "of X25519", .raw = {V(3), .groups = "X25519"}},
    {.name = "of P-256", .raw = {V(3), .groups = "P-256"}},
    {.name = "of P-384", .raw = {V(3), .groups = "P-384"}},
    {.name = "of P-521", .raw = {V(3), .groups = "P-521"}, .words = "no suitable key share"},
    {.name = "of X448", .raw = {V(3), .groups = "X448"}, .words = "no suitable key share"},
    {.name = "of a finite field",
     .raw = {V(3), .groups = "ffdhe2048"},
     .words = "no suitable key share"},
    {.name = "of P-521 in TLS 1.2", .raw = {V(2), .groups = "P-521"}, .words = NO_CIPHER},
};

static struct muster_tls *open_server(struct raw_meeting *meeting, const struct client_row *row)
{
    const struct fake_cert *cert = row->is_rsa ? &rsa : &elliptic;

    return raw_meeting_tls(meeting, &(struct muster_tls_options){.cert_pem = cert->cert_pem,
                                                                 .key_pem = cert->key_pem,
                                                                 .version_min = row->version_min});
}

static void a_server_serves_what_is_strong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(client_rows) / sizeof(client_rows[0]); i++) {
        const struct client_row *row = &client_rows[i];
        struct raw_tls_options raw = row->raw;
        const struct muster_error *error;
        struct raw_meeting meeting;
        struct muster_tls *tls;

        raw.protocols = "h2";
        raw_meeting_open(&meeting, true, &raw);
        tls = open_server(&meeting, row);
        raw_meeting_shake(&meeting, tls, NULL, NULL);

        error = &meeting.ours->error;
        if (meeting.ours->rc != (row->words != NULL ? MUSTER_UNAVAILABLE : MUSTER_OK) ||
            (row->words != NULL && strstr(error->text, row->words) == NULL))
            fail_msg("a client %s: %s %s", row->name, muster_rc_name(meeting.ours->rc),
                     error->text);
        if (row->cipher != NULL)
            assert_string_equal(SSL_get_cipher_name(meeting.raw.ssl), row->cipher);
        raw_meeting_close(&meeting);
    }
}

/* Clients of ours. */

struct server_row {
    const char *name;
    struct raw_tls_options raw;
    enum muster_tls_version version_min;
    const char *words; /* of the refusal, which is the server's: they have nothing in common */
    bool is_1_3;       /* they agree on it */
};

#define NOT_OURS "the peer allows none of our versions of TLS"
#define NOT_MET  "no cipher in common"

static const struct server_row server_rows[] = {
    {.name = "of any version", .raw = {.version_min = 0}, .is_1_3 = true},
    {.name = "of TLS 1.0",
     .raw = {.version_min = TLS1_VERSION, .version_max = TLS1_VERSION},
     .words = NOT_OURS},
    {.name = "of TLS 1.1", .raw = {V(1)}, .words = NOT_OURS},
    {.name = "of TLS 1.2", .raw = {V(2)}},
    {.name = "of TLS 1.2 where it is asked", .raw = {V(2)}, .version_min = MUSTER_TLS_VERSION_1_2},
    {.name = "of TLS 1.2 where 1.3 is demanded",
     .raw = {V(2)},
     .version_min = MUSTER_TLS_VERSION_1_3,
     .words = NOT_OURS},
    {.name = "of TLS 1.3 where it is demanded",
     .raw = {V(3)},
     .version_min = MUSTER_TLS_VERSION_1_3,
     .is_1_3 = true},
    {.name = "of ChaCha20", .raw = {V(2), .ciphers = CHACHA}},
    {.name = "of CBC", .raw = {V(2), .ciphers = "ECDHE-ECDSA-AES128-SHA256"}, .words = NOT_MET},
    {.name = "of CCM", .raw = {V(2), .ciphers = "ECDHE-ECDSA-AES128-CCM"}, .words = NOT_MET},
    {.name = "of no encryption",
     .raw = {V(2), .ciphers = "ECDHE-ECDSA-NULL-SHA"},
     .words = NOT_MET},
    {.name = "without a certificate",
     .raw = {V(2), .ciphers = "AECDH-AES128-SHA"},
     .words = NOT_MET},
    {.name = "without forward secrecy",
     .raw = {V(2), .ciphers = "AES128-GCM-SHA256", .cert = &rsa},
     .words = NOT_MET},
    {.name = "of finite fields",
     .raw = {V(2), .ciphers = "DHE-RSA-AES128-GCM-SHA256", .cert = &rsa, .has_own_field = true},
     .words = NOT_MET},
    {.name = "of P-521", .raw = {V(3), .groups = "P-521"}, .words = NOT_MET},
};

static void a_client_takes_what_is_strong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(server_rows) / sizeof(server_rows[0]); i++) {
        const struct server_row *row = &server_rows[i];
        struct raw_tls_options raw = row->raw;
        const struct muster_error *error;
        struct raw_meeting meeting;

        raw.protocols = "h2";
        raw.cert = raw.cert != NULL ? raw.cert : &elliptic;
        raw_meeting_start(&meeting, false, &raw,
                          &(struct muster_tls_options){.ca_pem = fake_authority_pem(authority),
                                                       .version_min = row->version_min},
                          "localhost");

        error = &meeting.ours->error;
        if (meeting.ours->rc != (row->words != NULL ? MUSTER_UNAVAILABLE : MUSTER_OK) ||
            (row->words != NULL && strstr(error->text, row->words) == NULL))
            fail_msg("a server %s: %s %s", row->name, muster_rc_name(meeting.ours->rc),
                     error->text);
        if (row->words == NULL)
            assert_int_equal(is_1_3(&meeting), row->is_1_3);
        raw_meeting_close(&meeting);
    }
}

/* The hello of our clients, byte by byte. */

struct hello_row {
    const char *name;
    enum muster_tls_version version_min;
    const char *server_name;
    const char *ciphers;
    size_t cipher_bytes;
    struct {
        unsigned type;
        const char *bytes; /* NULL: it is not there */
        size_t count;
    } extensions[4];
};

#define BYTES(text) text, sizeof(text) - 1
#define SUITES_1_3  "\x13\x01\x13\x02\x13\x03"
/* AES 256 and 128, ChaCha20, each by ECDSA and RSA; then "no renegotiation was insecure". */
#define SUITES_1_2 "\xc0\x2c\xc0\x30\xc0\x2b\xc0\x2f\xcc\xa9\xcc\xa8\x00\xff"
#define X25519_P256_P384                                                                           \
    {                                                                                              \
        TLSEXT_TYPE_supported_groups, BYTES("\0\6\0\x1d\0\x17\0\x18")                              \
    }
#define H2                                                                                         \
    {                                                                                              \
        TLSEXT_TYPE_application_layer_protocol_negotiation, BYTES("\0\3\2h2")                      \
    }

static const struct hello_row hello_rows[] = {
    {"to a name",
     MUSTER_TLS_VERSION_DEFAULT,
     "localhost",
     BYTES(SUITES_1_3 SUITES_1_2),
     {{TLSEXT_TYPE_server_name, BYTES("\0\x0c\0\0\x09localhost")},
      {TLSEXT_TYPE_supported_versions, BYTES("\4\3\4\3\3")},
      X25519_P256_P384,
      H2}},
    {"to an address",
     MUSTER_TLS_VERSION_DEFAULT,
     "127.0.0.1",
     BYTES(SUITES_1_3 SUITES_1_2),
     {{TLSEXT_TYPE_server_name, NULL, 0},
      {TLSEXT_TYPE_supported_versions, BYTES("\4\3\4\3\3")},
      X25519_P256_P384,
      H2}},
    {"of TLS 1.3 alone",
     MUSTER_TLS_VERSION_1_3,
     "localhost",
     BYTES(SUITES_1_3 "\x00\xff"),
     {{TLSEXT_TYPE_server_name, BYTES("\0\x0c\0\0\x09localhost")},
      {TLSEXT_TYPE_supported_versions, BYTES("\2\3\4")},
      X25519_P256_P384,
      H2}},
};

static void check_hello(const struct hello_row *row, const struct raw_tls *raw)
{
    size_t count = 0;
    const uint8_t *bytes = raw_tls_hello_ciphers(raw, &count);

    if (count != row->cipher_bytes || memcmp(bytes, row->ciphers, count) != 0)
        fail_msg("a hello %s: %zu bytes of other ciphers", row->name, count);
    for (size_t i = 0; i < 4; i++) {
        unsigned type = row->extensions[i].type;

        count = 0;
        bytes = raw_tls_hello_extension(raw, type, &count);
        if ((bytes == NULL) != (row->extensions[i].bytes == NULL) ||
            count != row->extensions[i].count ||
            (count > 0 && memcmp(bytes, row->extensions[i].bytes, count) != 0))
            fail_msg("a hello %s: %zu bytes of extension %u", row->name, count, type);
    }
}

/* Pairs of bytes, the number of SHA-1 (RFC 8446 4.2.3) among them. */
static bool offers_sha1(const struct raw_tls *raw)
{
    size_t count = 0;
    const uint8_t *bytes = raw_tls_hello_extension(raw, TLSEXT_TYPE_signature_algorithms, &count);

    assert_true(bytes != NULL && count > 2 && count % 2 == 0);
    for (size_t i = 2; i < count; i += 2)
        if (bytes[i] == TLSEXT_hash_sha1)
            return true;
    return false;
}

static void a_hello_offers_what_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(hello_rows) / sizeof(hello_rows[0]); i++) {
        const struct hello_row *row = &hello_rows[i];
        struct raw_meeting meeting;

        raw_meeting_start(&meeting, false,
                          &(struct raw_tls_options){.cert = &elliptic, .protocols = "h2"},
                          &(struct muster_tls_options){.ca_pem = fake_authority_pem(authority),
                                                       .version_min = row->version_min},
                          row->server_name);

        check_hello(row, &meeting.raw);
        assert_false(offers_sha1(&meeting.raw));
        raw_meeting_close(&meeting);
    }
}

/* A peer says these nine bytes, the first of them before the others, and goes. */
static void begin_with(struct raw_meeting *meeting, struct muster_tls *tls, const char *words,
                       size_t first)
{
    const struct muster_tls_handshake_options options = {
        .is_server = meeting->is_server, .server_name = "localhost", .protocols = "h2"};
    struct tls_pair *pair = &meeting->pair;
    int fd = pair->fds[meeting->is_server ? 0 : 1];

    tls_pair_start(pair, meeting->ours, tls, &options, 60 * MUSTER_NS_PER_S);
    assert_int_equal(send(fd, words, first, MSG_NOSIGNAL), first);
    test_env_turn(&pair->test.env, 3);
    if (first < 9)
        assert_int_equal(send(fd, words + first, 9 - first, MSG_NOSIGNAL), 9 - first);
    (void)shutdown(fd, SHUT_WR); /* it may have been refused already */
    tls_pair_wait(pair, meeting->ours);
}

/* OpenSSL would make room for all of it at once. */
static void a_client_hello_without_measure_is_refused_by_its_first_bytes(void **state)
{
    static const struct {
        const char *name;
        const char
            *words;   /* type, version and length of the record; type and length of the hello */
        size_t first; /* bytes that come before the others */
        bool is_refused, is_from_server;
    } rows[] = {
        {"16,385 bytes", "\x16\x03\x01\x40\x00\x01\x00\x40\x01", 4, true, false},
        {"16,385 bytes at once", "\x16\x03\x01\x40\x00\x01\x00\x40\x01", 9, true, false},
        {"16,385 bytes, the last of these later", "\x16\x03\x01\x40\x00\x01\x00\x40\x01", 8, true,
         false},
        {"16,384 bytes", "\x16\x03\x01\x40\x00\x01\x00\x40\x00", 4, false, false},
        {"65,536 bytes", "\x16\x03\x01\x40\x00\x01\x01\x00\x00", 4, true, false},
        {"256 bytes", "\x16\x03\x01\x40\x00\x01\x00\x01\x00", 4, false, false},
        {"a record of one byte", "\x16\x03\x01\x00\x01\x01\x16\x03\x01", 4, true, false},
        {"a record of three bytes", "\x16\x03\x01\x00\x03\x01\x00\x01\x16", 4, true, false},
        {"a record of four bytes", "\x16\x03\x01\x00\x04\x01\x00\x01\x00", 4, false, false},
        {"a record of 256 bytes", "\x16\x03\x01\x01\x00\x01\x00\x01\x00", 4, false, false},
        {"another kind of record", "\x15\x03\x01\x00\x02\x01\x7f\xff\xff", 4, false, false},
        {"a server's record of one byte", "\x16\x03\x03\x00\x01\x02\x16\x03\x03", 4, false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_tls_options options = {.cert_pem = elliptic.cert_pem,
                                                   .key_pem = elliptic.key_pem};
        enum muster_rc rc = rows[i].is_refused ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_UNAVAILABLE;
        struct raw_meeting meeting;
        struct muster_tls *tls;

        raw_meeting_open(&meeting, !rows[i].is_from_server,
                         &(struct raw_tls_options){.protocols = NULL});
        tls = raw_meeting_tls(&meeting, &options);
        begin_with(&meeting, tls, rows[i].words, rows[i].first);

        if (meeting.ours->rc != rc ||
            (strstr(meeting.ours->error.text, "must have at most 16384 bytes") != NULL) !=
                rows[i].is_refused)
            fail_msg("%s: %s %s", rows[i].name, muster_rc_name(meeting.ours->rc),
                     meeting.ours->error.text);
        raw_meeting_close(&meeting);
    }
}

/* Tickets. */

static void a_server_gives_one_ticket_for_an_hour(void **state)
{
    static const struct client_row row = {.name = "usual"};
    struct raw_meeting meeting;
    struct muster_tls *tls;

    (void)state;
    raw_meeting_open(&meeting, true, &(struct raw_tls_options){.protocols = "h2"});
    tls = open_server(&meeting, &row);
    raw_meeting_shake(&meeting, tls, NULL, NULL);

    assert_int_equal(meeting.raw.session_count, 1);
    assert_int_equal(SSL_SESSION_get_ticket_lifetime_hint(meeting.raw.session), 3600);
    raw_meeting_close(&meeting);
}

/* Loading. */

static void weak_keys_are_not_shown(void **state)
{
    static const struct fake_cert_options rows[] = {
        {.name = "RSA 1024", .rsa_bits = 1024},
        {.name = "SHA-1", .digest = "SHA1"},
    };
    struct raw_meeting meeting;

    (void)state;
    raw_meeting_open(&meeting, true, &(struct raw_tls_options){.protocols = "h2"});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_tls *tls = NULL;
        struct muster_error error;
        struct fake_cert weak;

        assert_true(fake_cert_init(&weak, authority, &rows[i]));
        assert_int_equal(muster_tls_open(&meeting.pair.test.env,
                                         &(struct muster_tls_options){.cert_pem = weak.cert_pem,
                                                                      .key_pem = weak.key_pem},
                                         &tls, &error),
                         MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "RSA keys need 2,048 bits"));
        fake_cert_fini(&weak);
    }
    raw_meeting_close(&meeting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_serves_what_is_strong),
        cmocka_unit_test(a_client_takes_what_is_strong),
        cmocka_unit_test(a_hello_offers_what_is_named),
        cmocka_unit_test(a_client_hello_without_measure_is_refused_by_its_first_bytes),
        cmocka_unit_test(a_server_gives_one_ticket_for_an_hour),
        cmocka_unit_test(weak_keys_are_not_shown),
    };
    const struct fake_cert_options usual = {.name = "server",
                                            .alt_names = "DNS:localhost,IP:127.0.0.1"};
    struct fake_cert_options long_key = usual;
    int failed_count;

    raw_tls_set_policy(true);
    long_key.rsa_bits = 2048;
    if (!fake_certs_init(&authority, &elliptic, &usual, &rsa, &long_key))
        return 1;
    failed_count = cmocka_run_group_tests_name("tls_openssl", tests, NULL, NULL);
    fake_certs_fini(authority, &elliptic, &rsa);
    return failed_count;
}
