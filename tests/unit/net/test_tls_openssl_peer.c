/* Certificates of every wrong kind, before our client and our server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

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
    struct muster_tls *tls;
    bool is_right;

    wrong_certs_make(&certs, row, &cert);
    raw_meeting_open(&meeting, is_server,
                     &(struct raw_tls_options){.cert = &cert, .protocols = "h2"});
    tls = raw_meeting_tls(&meeting, options);
    raw_meeting_shake(&meeting, tls, is_server ? NULL : name, NULL);
    is_right = wrong_certs_is_right(row, judge, meeting.ours->rc, meeting.ours->error.text);
    muster_tls_close(tls);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_refuses_every_wrong_certificate),
        cmocka_unit_test(a_server_refuses_every_wrong_certificate),
    };
    int failed_count;

    raw_tls_set_policy(true);
    wrong_certs_open(&certs);
    failed_count = cmocka_run_group_tests_name("tls_openssl_peer", tests, NULL, NULL);
    wrong_certs_close(&certs);
    return failed_count;
}
