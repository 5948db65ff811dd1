/* Authorities: what one issues, and who has the same secret, is accepted. */
#include <stdio.h>
#include <string.h>

#include <muster/tls.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "tests/lib/tls_pair.h"
#include "tests/lib/torture.h"

#define POINT_TEXT_BYTES (2 * 65 + 1)

static uint8_t secret[MUSTER_TLS_SECRET_BYTES_MIN], other_secret[MUSTER_TLS_SECRET_BYTES_MIN + 1];

/* The public key in the authority's certificate, uncompressed, in hexadecimal. */
static void public_key(const struct muster_tls_authority *authority, char out[POINT_TEXT_BYTES])
{
    BIO *bio = BIO_new_mem_buf(muster_tls_authority_pem(authority), -1);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    uint8_t point[65];
    size_t count = 0;

    assert_non_null(cert);
    assert_int_equal(EVP_PKEY_get_octet_string_param(X509_get0_pubkey(cert),
                                                     OSSL_PKEY_PARAM_PUB_KEY, point, sizeof(point),
                                                     &count),
                     1);
    assert_int_equal(count, sizeof(point));
    for (size_t i = 0; i < count; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", point[i]);
    X509_free(cert);
    BIO_free(bio);
}

static struct muster_tls_authority *authority_derive(struct muster_env *env, const char *name,
                                                     const void *bytes, size_t count)
{
    struct muster_tls_authority *authority = NULL;

    assert_int_equal(muster_tls_authority_derive(env, name, bytes, count, &authority), MUSTER_OK);
    return authority;
}

/* Bytes 0 to 31 and "job", worked out apart from OpenSSL: HKDF-SHA-256 with the salt "muster tls
 * authority 1" gives 40 bytes; modulo the order of P-256 less one, and one more. Another version of
 * muster with another key could not take part. */
static void the_key_of_a_secret_and_a_job_never_changes(void **state)
{
    static const char expected[] = "04d96f101472f462e31aa9ae17994c686c5e9f6f5ee9504f12a3c1155cafe95"
                                   "efa3d5a5b4baa8711b28affea23ac35"
                                   "2117a2ccc353f6fd2a5cd6fa7fde2adc9bc8";
    struct test_env test;
    struct muster_tls_authority *authority;
    char text[POINT_TEXT_BYTES];

    (void)state;
    test_env_open(&test);
    authority = authority_derive(&test.env, "job", secret, sizeof(secret));
    public_key(authority, text);
    assert_string_equal(text, expected);
    muster_tls_authority_free(authority);
    test_env_close(&test);
}

static struct muster_tls *credential_open(struct muster_env *env,
                                          struct muster_tls_authority *authority, const char *who)
{
    const char *patterns[] = {"spiffe://muster/job/j/*"};
    const struct muster_tls_subject subject = {.name = "x", .spiffe_id = who, .life_s = 60};
    struct muster_tls_options options = {.ca_pem = muster_tls_authority_pem(authority),
                                         .is_peer_required = true,
                                         .peer_names = patterns,
                                         .peer_name_count = 1};
    struct muster_tls *tls = NULL;
    struct muster_error error;
    char *pem = NULL;

    assert_int_equal(muster_tls_authority_issue(authority, &subject, &pem, &error), MUSTER_OK);
    options.cert_pem = options.key_pem = pem;
    if (muster_tls_open(env, &options, &tls, &error) != MUSTER_OK)
        fail_msg("%s", error.text);
    muster_mem_free(env->mem, pem);
    return tls;
}

/* Both ends by authorities of their own; MUSTER_OK: they let each other in. */
static enum muster_rc ends_meet(const char *const names[2], const void *const secrets[2],
                                const size_t counts[2])
{
    struct tls_pair pair;
    struct muster_tls_authority *authorities[2];
    struct muster_tls *ends[2];
    enum muster_rc rc;

    tls_pair_open(&pair);
    for (int i = 0; i < 2; i++) {
        authorities[i] = authority_derive(&pair.test.env, names[i], secrets[i], counts[i]);
        ends[i] = credential_open(&pair.test.env, authorities[i], "spiffe://muster/job/j/task/1");
    }
    assert_string_not_equal(muster_tls_authority_pem(authorities[0]),
                            muster_tls_authority_pem(authorities[1]));
    tls_pair_shake(&pair, ends[0], ends[1], "nobody", NULL);
    rc = pair.client.rc != MUSTER_OK ? pair.client.rc : pair.server.rc;
    for (int i = 0; i < 2; i++) {
        muster_tls_close(ends[i]);
        muster_tls_authority_free(authorities[i]);
    }
    tls_pair_close(&pair);
    return rc;
}

/* Only the key tells authorities of one name and another secret apart. */
static void certificates_of_any_copy_and_of_no_other_are_accepted(void **state)
{
    static const struct {
        const char *name, *names[2];
        const void *secrets[2];
        size_t counts[2];
        enum muster_rc rc;
    } rows[] = {
        {"a copy", {"j", "j"}, {secret, secret}, {32, 32}, MUSTER_OK},
        {"another job", {"j", "k"}, {secret, secret}, {32, 32}, MUSTER_UNAUTHENTICATED},
        {"another secret", {"j", "j"}, {secret, other_secret}, {32, 32}, MUSTER_UNAUTHENTICATED},
        {"a longer secret",
         {"j", "j"},
         {other_secret, other_secret},
         {32, 33},
         MUSTER_UNAUTHENTICATED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum muster_rc rc = ends_meet(rows[i].names, rows[i].secrets, rows[i].counts);

        if (rc != rows[i].rc)
            fail_msg("%s: %s", rows[i].name, muster_rc_name(rc));
    }
}

static void a_short_secret_is_refused(void **state)
{
    struct test_env test;
    struct muster_tls_authority *authority = NULL;

    (void)state;
    test_env_open(&test);
    assert_int_equal(
        muster_tls_authority_derive(&test.env, "j", secret, sizeof(secret) - 1, &authority),
        MUSTER_INVALID_ARGUMENT);
    assert_null(authority);
    test_env_close(&test);
}

static void run_derive(struct torture *torture, const void *data)
{
    struct muster_tls_authority *authority = NULL;
    struct test_env test;
    enum muster_rc rc;

    (void)data;
    test_env_open(&test);
    torture_arm_limited(torture, &test.mem);
    rc = muster_tls_authority_derive(&test.env, "j", secret, sizeof(secret), &authority);
    torture_disarm(torture);
    assert_int_equal(rc, torture->refused > 0 ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_OK);
    muster_tls_authority_free(authority);
    test_env_close(&test);
}

static void whatever_allocation_fails_nothing_is_lost(void **state)
{
    (void)state;
    torture_run(&(struct torture_scenario){.name = "derive", .run = run_derive});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_key_of_a_secret_and_a_job_never_changes),
        cmocka_unit_test(certificates_of_any_copy_and_of_no_other_are_accepted),
        cmocka_unit_test(a_short_secret_is_refused),
        cmocka_unit_test_teardown(whatever_allocation_fails_nothing_is_lost, torture_tell),
    };

    for (size_t i = 0; i < sizeof(secret); i++)
        secret[i] = (uint8_t)i;
    memcpy(other_secret, secret, sizeof(secret));
    other_secret[0] ^= 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
