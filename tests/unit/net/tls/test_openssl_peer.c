/* Certificates of every wrong kind, before our client and our server. */
#include <stdio.h>
#include <string.h>

#include "net/tls/openssl.h"
#include "tests/lib/raw_meeting.h"
#include "tests/lib/wrong_certs.h"

static struct wrong_certs certs;

/* One of our sides meets the certificate of the row, which a peer that checks nothing shows. */
static bool is_right(enum wrong_certs_judge judge, const struct wrong_certs_row *row,
                     const struct muster_tls_options *options)
{
    const char *name = row->dialled != NULL ? row->dialled : WRONG_CERTS_NAME;
    bool is_server = judge == WRONG_CERTS_SERVER;
    struct raw_meeting meeting;
    struct fake_cert cert;
    bool is_right;

    wrong_certs_make(&certs, row, &cert);
    raw_meeting_start(&meeting, is_server,
                      &(struct raw_tls_options){.cert = &cert, .protocols = "h2"}, options,
                      is_server ? NULL : name);
    is_right = wrong_certs_is_right(row, judge, meeting.ours->rc, meeting.ours->error.text);
    raw_meeting_close(&meeting);
    fake_cert_fini(&cert);
    return is_right;
}

static void a_client_refuses_every_wrong_certificate(void **state)
{
    const struct muster_tls_options options = {.ca_pem = fake_authority_pem(certs.root)};
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    size_t index = 0;

    (void)state;
    while ((row = wrong_certs_next(WRONG_CERTS_CLIENT, &index)) != NULL)
        fault_count += !is_right(WRONG_CERTS_CLIENT, row, &options);

    assert_int_equal(fault_count, 0);
}

static void a_server_refuses_every_wrong_certificate(void **state)
{
    struct fake_cert own;
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    size_t index = 0;

    (void)state;
    assert_true(fake_cert_init(&own, certs.root, &(struct fake_cert_options){.name = "server"}));
    while ((row = wrong_certs_next(WRONG_CERTS_SERVER, &index)) != NULL)
        fault_count += !is_right(WRONG_CERTS_SERVER, row,
                                 &(struct muster_tls_options){
                                     .cert_pem = own.cert_pem,
                                     .key_pem = own.key_pem,
                                     .ca_pem = fake_authority_pem(certs.root),
                                     .is_peer_required = true,
                                 });
    fake_cert_fini(&own);

    assert_int_equal(fault_count, 0);
}

/* The first rows of the table end in each of the ways that a certificate is judged. */
static void a_judgement_leaves_nothing_behind(void **state)
{
    const struct muster_tls_options options = {.ca_pem = fake_authority_pem(certs.root)};
    const struct wrong_certs_row *row;
    size_t index = 0;

    (void)state;
    while ((row = wrong_certs_next(WRONG_CERTS_CLIENT, &index)) != NULL) {
        long before;

        if (row->leaf.rsa_bits != 0 || row->issuers[0].rsa_bits != 0)
            continue; /* a key may be made meanwhile */
        (void)is_right(WRONG_CERTS_CLIENT, row, &options);
        before = raw_tls_block_count();
        (void)is_right(WRONG_CERTS_CLIENT, row, &options);
        if (raw_tls_block_count() != before)
            fail_msg("a certificate %s: %ld blocks", row->name, raw_tls_block_count() - before);
    }
}

static void a_time_is_told_as_far_as_there_is_room(void **state)
{
    static const struct {
        const char *time;
        size_t room;
        const char *text;
    } rows[] = {
        {"20261122054730Z", 64, "Nov 22 05:47:30 2026 GMT"},
        {"21000101000000Z", 25, "Jan  1 00:00:00 2100 GMT"},
        {"21000101000000Z", 7, "Jan  1"},
        {"21000101000000Z", 1, ""},
        {"99", 64, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ASN1_TIME *time = ASN1_STRING_type_new(V_ASN1_GENERALIZEDTIME);
        char text[65];

        memset(text, 'x', sizeof(text));
        assert_int_equal(ASN1_STRING_set(time, rows[i].time, -1), 1);
        muster_tls_openssl_time(time, text, rows[i].room);

        assert_string_equal(text, rows[i].text);
        assert_int_equal(text[rows[i].room], 'x');
        ASN1_STRING_free(time);
    }
}

static void a_span_is_told_by_its_two_largest_units(void **state)
{
    static const struct {
        int64_t seconds;
        const char *text;
    } rows[] = {
        {0, "0 s"},
        {59, "59 s"},
        {-60, "1 min"},
        {61, "1 min 1 s"},
        {3600 + 59, "1 h"},
        {-3600 - 60, "1 h 1 min"},
        {3 * 86400 + 4 * 3600 + 120, "3 d 4 h"},
        {400 * 86400, "400 d"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[MUSTER_TLS_SPAN_BYTES];

        assert_string_equal(muster_tls_openssl_span(rows[i].seconds, text), rows[i].text);
    }
}

/* More than MUSTER_TLS_NAMES_MAX: the first are known. */
static void of_many_names_the_first_are_known(void **state)
{
    char names[2048] = "DNS:localhost";
    const struct muster_tls_options options = {.ca_pem = fake_authority_pem(certs.root)};
    const struct muster_identity *identity;
    struct raw_meeting meeting;
    struct fake_cert cert;

    (void)state;
    for (unsigned i = 1; i < MUSTER_TLS_NAMES_MAX + 2; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), ",DNS:host-%u.test", i);
    assert_true(
        fake_cert_init(&cert, certs.root,
                       &(struct fake_cert_options){.name = FAKE_CERT_NONE, .alt_names = names}));
    raw_meeting_start(&meeting, false, &(struct raw_tls_options){.cert = &cert, .protocols = "h2"},
                      &options, "host-65.test");

    assert_int_equal(meeting.ours->rc, MUSTER_OK);
    identity = muster_tls_stream_identity(meeting.ours->stream);
    assert_int_equal(identity->dns_name_count, MUSTER_TLS_NAMES_MAX);
    assert_string_equal(identity->dns_names[0], "localhost");
    assert_string_equal(identity->dns_names[MUSTER_TLS_NAMES_MAX - 1], "host-63.test");
    assert_string_equal(identity->subject, "");
    assert_null(identity->spiffe_id);
    raw_meeting_close(&meeting);
    fake_cert_fini(&cert);
}

/* 64 times a character of nine bytes where subjects are written down: more than the 511 bytes that
 * were compared once. */
static void a_long_subject_is_compared_whole(void **state)
{
    char name[64 * 3 + 1] = "", subject[600] = "CN=", cut[512];
    const struct {
        const char *name, *pattern;
        bool is_accepted;
    } rows[] = {
        {"the whole subject", subject, true},
        {"its first 511 characters", cut, false},
    };

    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        strcat(name, "\xe2\x82\xac");
        strcat(subject, "\\E2\\82\\AC");
    }
    snprintf(cut, sizeof(cut), "%.511s", subject);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_tls_options options = {.ca_pem = fake_authority_pem(certs.root),
                                                   .peer_names = &rows[i].pattern,
                                                   .peer_name_count = 1};
        struct raw_meeting meeting;
        struct fake_cert cert;

        assert_true(fake_cert_init(&cert, certs.root, &(struct fake_cert_options){.name = name}));
        raw_meeting_start(&meeting, false,
                          &(struct raw_tls_options){.cert = &cert, .protocols = "h2"}, &options,
                          WRONG_CERTS_NAME);

        if ((meeting.ours->rc == MUSTER_OK) != rows[i].is_accepted)
            fail_msg("%s: %s", rows[i].name, meeting.ours->error.text);
        raw_meeting_close(&meeting);
        fake_cert_fini(&cert);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_refuses_every_wrong_certificate),
        cmocka_unit_test(a_server_refuses_every_wrong_certificate),
        cmocka_unit_test(a_judgement_leaves_nothing_behind),
        cmocka_unit_test(a_time_is_told_as_far_as_there_is_room),
        cmocka_unit_test(a_span_is_told_by_its_two_largest_units),
        cmocka_unit_test(of_many_names_the_first_are_known),
        cmocka_unit_test(a_long_subject_is_compared_whole),
    };
    int failed_count;

    raw_tls_set_policy(true);
    wrong_certs_open(&certs);
    failed_count = cmocka_run_group_tests_name("tls_openssl_peer", tests, NULL, NULL);
    wrong_certs_close(&certs);
    return failed_count;
}
