/* Certificates of an authority: for whom, for what and for how long they are; and traces of its key. */
#include "test_env.h"

#include <stdio.h>
#include <string.h>

#include <muster/tls.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "assertion_count.h"
#include "net/tls/crypto.h"
#include "net/tls/openssl.h"
#include "openssl_memory.h"
#include "secret_stack.h"

#define NOW_S      1900000000u
#define PEMS_BYTES 4096
#define YEAR_S     (365u * 24 * 3600)

/* A host whose clock stands. */
static uint64_t clock_wall_ns(struct muster_host *host)
{
    (void)host;
    return NOW_S * MUSTER_NS_PER_S;
}

static const struct muster_host_ops clock_ops = {.wall_ns = clock_wall_ns};
static struct muster_host clock_host = {.ops = &clock_ops};

struct scene {
    struct test_env test;
    struct muster_env env;
    struct muster_tls_authority *authority;
    struct muster_error error;
    char chain[PEMS_BYTES],
        roots[PEMS_BYTES]; /* each of two certificates; the first with its key */
};

static int set_up(void **state)
{
    static struct scene scene;

    memset(&scene, 0, sizeof(scene));
    test_env_open(&scene.test);
    scene.env = scene.test.env;
    scene.env.host = &clock_host;
    assert_int_equal(muster_tls_authority_new(&scene.env, "job", &scene.authority), MUSTER_OK);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    muster_tls_authority_free(scene->authority);
    muster_tls_authority_free(NULL);
    test_env_close(&scene->test);
    return 0;
}

/* Gives. */
static X509 *read_cert(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);

    BIO_free(bio);
    assert_non_null(cert);
    return cert;
}

static X509 *cert_issue(struct scene *scene, const struct muster_tls_subject *subject)
{
    char *pem = NULL;
    X509 *cert;

    fail_if(muster_tls_authority_issue(scene->authority, subject, &pem, &scene->error) != MUSTER_OK,
            "%s", scene->error.text);
    cert = read_cert(pem);
    muster_mem_free(scene->env.mem, pem);
    return cert;
}

static time_t seconds_of(const ASN1_TIME *at)
{
    struct tm parts;

    assert_int_equal(ASN1_TIME_to_tm(at, &parts), 1);
    return timegm(&parts);
}

static bool is_critical(X509 *cert, int nid)
{
    int at = X509_get_ext_by_NID(cert, nid, -1);

    return at >= 0 && X509_EXTENSION_get_critical(X509_get_ext(cert, at)) == 1;
}

static void an_authority_signs_leaves_and_nothing_else(void **state)
{
    struct scene *scene = *state;
    X509 *ca = read_cert(muster_tls_authority_pem(scene->authority));

    assert_int_equal(X509_get_version(ca), X509_VERSION_3);
    assert_int_equal(X509_check_ca(ca), 1);
    assert_int_equal(X509_get_pathlen(ca), 0);
    assert_int_equal(X509_get_key_usage(ca), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
    assert_true(is_critical(ca, NID_basic_constraints) && is_critical(ca, NID_key_usage));
    assert_non_null(X509_get0_subject_key_id(ca));
    assert_int_equal(X509_verify(ca, X509_get0_pubkey(ca)), 1);
    assert_int_equal(seconds_of(X509_get0_notBefore(ca)), NOW_S - 300);
    assert_int_equal(seconds_of(X509_get0_notAfter(ca)), NOW_S + 10 * YEAR_S);
    X509_free(ca);
}

static void a_leaf_is_for_both_ends_and_signs_nothing(void **state)
{
    struct scene *scene = *state;
    const struct muster_tls_subject subject = {.name = "x", .life_s = 77};
    X509 *ca = read_cert(muster_tls_authority_pem(scene->authority));
    X509 *cert = cert_issue(scene, &subject);

    assert_int_equal(X509_get_version(cert), X509_VERSION_3);
    assert_int_equal(X509_check_ca(cert), 0);
    assert_int_equal(X509_get_key_usage(cert), KU_DIGITAL_SIGNATURE);
    assert_int_equal(X509_get_extended_key_usage(cert), XKU_SSL_SERVER | XKU_SSL_CLIENT);
    assert_true(is_critical(cert, NID_basic_constraints) && is_critical(cert, NID_key_usage));
    assert_int_equal(X509_check_issued(ca, cert), X509_V_OK); /* by name and by key's name */
    assert_non_null(X509_get0_authority_key_id(cert));
    assert_int_equal(X509_verify(cert, X509_get0_pubkey(ca)), 1);
    assert_int_equal(X509_get_signature_nid(cert), NID_ecdsa_with_SHA256);
    assert_int_equal(seconds_of(X509_get0_notBefore(cert)), NOW_S - 300);
    assert_int_equal(seconds_of(X509_get0_notAfter(cert)), NOW_S + 77);
    X509_free(cert);
    X509_free(ca);
}

/* An environment without a host has no clock. */
static void without_another_clock_the_system_s_counts(void **state)
{
    struct scene *scene = *state;
    const struct muster_tls_subject subject = {.name = "x", .life_s = 3600};
    X509 *cert;

    scene->env.host = NULL;
    cert = cert_issue(scene, &subject);

    assert_int_equal(X509_cmp_current_time(X509_get0_notBefore(cert)), -1);
    assert_int_equal(X509_cmp_current_time(X509_get0_notAfter(cert)), 1);
    X509_free(cert);
}

#define CERTS 32 /* a bit is the same in all of them by chance once in 4 thousand million times */

/* CA/Browser Forum 7.1: at least 64 bits that nobody can foretell. */
static void no_two_serial_numbers_or_keys_are_the_same(void **state)
{
    struct scene *scene = *state;
    const struct muster_tls_subject subject = {.name = "x", .life_s = 60};
    X509 *certs[CERTS];
    int bits_max = 0, bits_min = 127;
    bool has_even = false;

    for (size_t i = 0; i < CERTS; i++) {
        BIGNUM *serial;

        certs[i] = cert_issue(scene, &subject);
        serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certs[i]), NULL);
        assert_false(BN_is_negative(serial));
        assert_in_range(BN_num_bits(serial), 64, 127);
        bits_max = BN_num_bits(serial) > bits_max ? BN_num_bits(serial) : bits_max;
        bits_min = BN_num_bits(serial) < bits_min ? BN_num_bits(serial) : bits_min;
        has_even = has_even || !BN_is_odd(serial);
        BN_free(serial);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(ASN1_INTEGER_cmp(X509_get0_serialNumber(certs[i]),
                                                  X509_get0_serialNumber(certs[k])),
                                 0);
            assert_int_not_equal(
                EVP_PKEY_eq(X509_get0_pubkey(certs[i]), X509_get0_pubkey(certs[k])), 1);
        }
    }
    assert_true(bits_max > 120 && bits_min < 127 && has_even);
    for (size_t i = 0; i < CERTS; i++)
        X509_free(certs[i]);
}

/* "URI:a, DNS:b": as OpenSSL prints them. */
static void check_names(X509 *cert, const char *expected)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    BIO *bio = BIO_new(BIO_s_mem());
    char text[512];
    int length;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        assert_true(i == 0 || BIO_puts(bio, ", ") > 0);
        assert_int_equal(GENERAL_NAME_print(bio, sk_GENERAL_NAME_value(names, i)), 1);
    }
    length = BIO_read(bio, text, sizeof(text) - 1);
    text[length > 0 ? length : 0] = '\0';
    assert_string_equal(text, expected);
    BIO_free(bio);
    GENERAL_NAMES_free(names);
}

static void a_leaf_has_the_names_that_were_asked_for(void **state)
{
    static const struct {
        const char *spiffe_id, *alt_names, *names;
    } rows[] = {
        {NULL, NULL, ""},
        {"spiffe://muster/job/j/task/1", NULL, "URI:spiffe://muster/job/j/task/1"},
        {NULL, "DNS:localhost,IP:127.0.0.1", "DNS:localhost, IP Address:127.0.0.1"},
        {"spiffe://a/b", "DNS:localhost", "URI:spiffe://a/b, DNS:localhost"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_tls_subject subject = {.name = "who",
                                                   .spiffe_id = rows[i].spiffe_id,
                                                   .alt_names = rows[i].alt_names,
                                                   .life_s = 60};
        X509 *cert = cert_issue(*state, &subject);
        char name[64];

        check_names(cert, rows[i].names);
        assert_int_equal(X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName,
                                                   name, sizeof(name)),
                         3);
        assert_string_equal(name, "who");
        X509_free(cert);
    }
}

/* A name that ends one and begins another would make somebody of anybody. */
static void names_that_would_be_several_are_refused(void **state)
{
    static char too_long[1100], just_fits[1020]; /* with "URI:" and the NUL 1,024 */
    const struct {
        const char *name, *spiffe_id, *alt_names;
        bool is_issued;
    } rows[] = {
        {"a comma", "spiffe://a/b,URI:spiffe://a/c", NULL, false},
        {"a semicolon", "spiffe://a/b;DNS:x", NULL, false},
        {"a line's end", "spiffe://a/b\nDNS:x", NULL, false},
        {"too many bytes", too_long, NULL, false},
        {"too many bytes for two", just_fits, "DNS:a", false},
        {"as many as fit", just_fits, NULL, true},
        {"an unknown kind of name", NULL, "KIND:a", false},
        {"an address that is none", NULL, "IP:1.2.3", false},
    };
    struct scene *scene = *state;

    memset(too_long, 'a', sizeof(too_long) - 1);
    memset(just_fits, 'a', sizeof(just_fits) - 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct muster_tls_subject subject = {.name = "who",
                                                   .spiffe_id = rows[i].spiffe_id,
                                                   .alt_names = rows[i].alt_names,
                                                   .life_s = 60};
        char *pem = NULL;
        enum muster_rc rc =
            muster_tls_authority_issue(scene->authority, &subject, &pem, &scene->error);

        fail_if(rc != (rows[i].is_issued ? MUSTER_OK : MUSTER_INVALID_ARGUMENT), "%s: %s",
                rows[i].name, scene->error.text);
        assert_true((pem != NULL) == rows[i].is_issued);
        assert_true(rows[i].is_issued || strstr(scene->error.text, "\"who\"") != NULL);
        assert_int_equal(ERR_peek_error(), 0);
        muster_mem_free(scene->env.mem, pem);
    }
}

/* The key, as HKDF gives it (RFC 5869): 32 of its 40 bytes. */
static void derive_bytes(const uint8_t *secret, size_t secret_bytes, uint8_t ret_bytes[32])
{
    static const char salt[] = "muster tls authority 1";
    uint8_t key[32], info[] = {'j', 1};

    assert_int_equal(muster_crypto_hmac_sha256(salt, sizeof(salt) - 1, secret, secret_bytes, key),
                     MUSTER_OK);
    assert_int_equal(muster_crypto_hmac_sha256(key, sizeof(key), info, sizeof(info), ret_bytes),
                     MUSTER_OK);
}

static uint8_t secret[40];

static void authority_derive(void *data)
{
    struct scene *scene = data;

    assert_int_equal(
        muster_tls_authority_derive(&scene->env, "j", secret, sizeof(secret), &scene->authority),
        MUSTER_OK);
}

static void a_derived_key_is_not_left_on_the_stack(void **state)
{
    struct scene *scene = *state;
    struct secret_stack stack;
    uint8_t drawn[32];

    for (size_t i = 0; i < sizeof(secret); i++)
        secret[i] = (uint8_t)(i * 7 + 1);
    muster_tls_authority_free(scene->authority);
    secret_stack_run(&stack, authority_derive, scene);
    derive_bytes(secret, sizeof(secret), drawn);

    assert_false(secret_stack_holds(&stack, drawn, sizeof(drawn)));
    secret_stack_free(&stack);
}

/* Whichever of OpenSSL's allocations fails: an authority, a certificate or a file of them is whole, or none. */

static enum muster_rc derive_one(struct scene *scene)
{
    struct muster_tls_authority *authority = NULL;
    enum muster_rc rc =
        muster_tls_authority_derive(&scene->env, "j", secret, sizeof(secret), &authority);

    assert_true((authority != NULL) == (rc == MUSTER_OK));
    assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
    muster_tls_authority_free(authority);
    return rc;
}

static enum muster_rc issue_one(struct scene *scene)
{
    const struct muster_tls_subject subject = {
        .name = "x", .spiffe_id = "spiffe://a/b", .alt_names = "DNS:c", .life_s = 60};
    char *pem = NULL;
    enum muster_rc rc = muster_tls_authority_issue(scene->authority, &subject, &pem, &scene->error);

    assert_true((pem != NULL) == (rc == MUSTER_OK));
    assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED);
    assert_true(rc == MUSTER_OK || strstr(scene->error.text, "no memory") != NULL);
    muster_mem_free(scene->env.mem, pem);
    return rc;
}

/* A leaf with its issuer (where there is one), and two roots: all of them, or an error. */
static enum muster_rc load_files(struct scene *scene, const char *chain_pem)
{
    const struct muster_tls_material material = {.cert_pem = chain_pem,
                                                 .key_pem = chain_pem,
                                                 .ca_pem = scene->roots,
                                                 .cert_name = "chain",
                                                 .key_name = "chain",
                                                 .ca_name = "roots"};
    struct muster_tls_context *context = NULL;
    STACK_OF(X509) *chain = NULL;
    enum muster_rc rc = muster_tls_context_new(scene->env.mem, &material, &context, &scene->error);

    if (rc == MUSTER_OK) {
        assert_int_equal(SSL_CTX_get0_chain_certs(context->ssl, &chain), 1);
        assert_int_equal(sk_X509_num(chain), chain_pem != NULL ? 1 : -1);
        assert_int_equal(
            sk_X509_OBJECT_num(X509_STORE_get0_objects(SSL_CTX_get_cert_store(context->ssl))), 2);
    } else {
        assert_true(rc == MUSTER_RESOURCE_EXHAUSTED || rc == MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(scene->error.text, "no memory"));
    }
    muster_tls_context_free(context);
    return rc;
}

static enum muster_rc load_chain(struct scene *scene)
{
    return load_files(scene, scene->chain);
}

static enum muster_rc load_roots(struct scene *scene)
{
    return load_files(scene, NULL);
}

static void join_pems(char out[PEMS_BYTES], const char *first, const char *second)
{
    assert_in_range(snprintf(out, PEMS_BYTES, "%s%s", first, second), 1, PEMS_BYTES - 1);
}

static void want_of_memory_leaves_nothing_behind(void **state)
{
    /* A fault shows at two neighbours at least. A key is read with thousands, of which some must do. */
    static const struct {
        enum muster_rc (*use)(struct scene *scene);
        uint64_t step;
    } rows[] = {{derive_one, 7}, {issue_one, 2}, {load_roots, 2}, {load_chain, 28}};
    static const struct muster_tls_subject subject = {.name = "x", .life_s = 60};
    struct scene *scene = *state;
    struct muster_tls_authority *other;
    char *pem;

    assert_int_equal(muster_tls_authority_new(&scene->env, "other", &other), MUSTER_OK);
    assert_int_equal(muster_tls_authority_issue(scene->authority, &subject, &pem, NULL), MUSTER_OK);
    join_pems(scene->chain, pem, muster_tls_authority_pem(scene->authority));
    join_pems(scene->roots, muster_tls_authority_pem(scene->authority),
              muster_tls_authority_pem(other));
    muster_mem_free(scene->env.mem, pem);
    muster_tls_authority_free(other);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t count, held;
        unsigned failed_count = 0;

        assert_int_equal(rows[i].use(scene), MUSTER_OK);
        held = openssl_memory_held();
        openssl_memory_fail_at(0);
        assert_int_equal(rows[i].use(scene), MUSTER_OK);
        count = openssl_memory_count();
        assert_int_equal(openssl_memory_held(), held);
        for (uint64_t at = 1; at <= count; at += rows[i].step) {
            openssl_memory_fail_at(at);
            failed_count += rows[i].use(scene) != MUSTER_OK;
            (void)openssl_memory_has_failed();
            assert_int_equal(ERR_peek_error(), 0);
        }
        assert_true(failed_count > 10);
        assert_int_equal(rows[i].use(scene), MUSTER_OK);
    }
}

/* In texts of errors: cut to fit. */
static void a_time_is_written_for_people(void **state)
{
    static const char whole[] = "Mar 17 17:46:40 2030 GMT";
    ASN1_TIME *time = ASN1_TIME_set(NULL, NOW_S);
    char text[64];

    (void)state;
    for (size_t room = 1; room <= sizeof(whole) + 1; room++) {
        size_t length = room - 1 < strlen(whole) ? room - 1 : strlen(whole);

        memset(text, 'x', sizeof(text));
        muster_tls_openssl_time(time, text, room);
        assert_int_equal(strlen(text), length);
        assert_memory_equal(text, whole, length);
        assert_int_equal(text[room], 'x');
    }
    ASN1_TIME_free(time);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(an_authority_signs_leaves_and_nothing_else),
        CASE(a_leaf_is_for_both_ends_and_signs_nothing),
        CASE(without_another_clock_the_system_s_counts),
        CASE(no_two_serial_numbers_or_keys_are_the_same),
        CASE(a_leaf_has_the_names_that_were_asked_for),
        CASE(names_that_would_be_several_are_refused),
        CASE(a_time_is_written_for_people),
        CASE(a_derived_key_is_not_left_on_the_stack),
        CASE(want_of_memory_leaves_nothing_behind),
    };

    if (!openssl_memory_take_over())
        return 1;
    return cmocka_run_group_tests_name("tls_authority_certs", tests, NULL, NULL);
}
