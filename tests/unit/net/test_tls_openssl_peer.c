/* Certificates of every wrong kind, before our client and our server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tests/lib/raw_tls.h"
#include "tests/lib/tls_pair.h"
#include "tests/lib/wrong_certs.h"

static struct wrong_certs certs;

struct meeting {
    struct tls_pair pair;
    struct tls_side *ours;
    struct raw_tls raw;
    struct muster_tls *tls;
};

static bool is_met(void *data)
{
    const struct meeting *meeting = data;

    return meeting->ours->done_count > 0;
}

/* One of our sides meets the certificate, which a peer that checks nothing shows. */
static void meet(struct meeting *meeting, const struct muster_tls_options *options,
                 const struct muster_tls_handshake_options *handshake, const struct fake_cert *cert)
{
    struct tls_pair *pair = &meeting->pair;

    tls_pair_open(pair);
    meeting->ours = handshake->is_server ? &pair->server : &pair->client;
    raw_tls_init(&meeting->raw, &(struct raw_tls_options){.is_server = !handshake->is_server,
                                                          .cert = cert,
                                                          .protocol = "h2"});
    raw_tls_take(&meeting->raw, pair->fds[handshake->is_server ? 0 : 1]);
    assert_int_equal(muster_tls_open(&pair->test.env, options, &meeting->tls, NULL), MUSTER_OK);
    tls_pair_start(pair, meeting->ours, meeting->tls, handshake, 60 * MUSTER_NS_PER_S);
    raw_tls_run_until(&meeting->raw, &pair->test.env, is_met, meeting);
}

static bool is_right(struct meeting *meeting, const struct wrong_certs_row *row,
                     enum wrong_certs_judge judge)
{
    const struct tls_side *ours = meeting->ours;
    bool is_right = wrong_certs_is_right(row, judge, ours->rc, ours->error.text);

    muster_tls_close(meeting->tls);
    raw_tls_fini(&meeting->raw);
    tls_pair_close(&meeting->pair);
    return is_right;
}

static void a_client_refuses_every_wrong_certificate(void **state)
{
    const struct muster_tls_options options = {.ca_pem = fake_authority_pem(certs.root)};
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    size_t index = 0;

    (void)state;
    while ((row = wrong_certs_next(WRONG_CERTS_CLIENT, &index)) != NULL) {
        const struct muster_tls_handshake_options handshake = {
            .server_name = row->dialled != NULL ? row->dialled : WRONG_CERTS_NAME,
            .protocols = "h2"};
        struct meeting meeting;
        struct fake_cert cert;

        wrong_certs_make(&certs, row, &cert);
        meet(&meeting, &options, &handshake, &cert);
        fault_count += !is_right(&meeting, row, WRONG_CERTS_CLIENT);
        fake_cert_fini(&cert);
    }

    assert_int_equal(fault_count, 0);
}

static void a_server_refuses_every_wrong_certificate(void **state)
{
    static const struct muster_tls_handshake_options handshake = {.is_server = true,
                                                                  .protocols = "h2"};
    struct fake_cert own;
    const struct wrong_certs_row *row;
    unsigned fault_count = 0;
    size_t index = 0;

    (void)state;
    assert_true(fake_cert_init(&own, certs.root, &(struct fake_cert_options){.name = "server"}));
    while ((row = wrong_certs_next(WRONG_CERTS_SERVER, &index)) != NULL) {
        const struct muster_tls_options options = {.cert_pem = own.cert_pem,
                                                   .key_pem = own.key_pem,
                                                   .ca_pem = fake_authority_pem(certs.root),
                                                   .is_peer_required = true};
        struct meeting meeting;
        struct fake_cert cert;

        wrong_certs_make(&certs, row, &cert);
        meet(&meeting, &options, &handshake, &cert);
        fault_count += !is_right(&meeting, row, WRONG_CERTS_SERVER);
        fake_cert_fini(&cert);
    }
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
