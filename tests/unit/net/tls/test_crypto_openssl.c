/* Digests and signatures against the standards' examples, and keys that are refused. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include "fake_identity.h"
#include "net/tls/crypto.h"
#include "openssl_memory.h"

static void check_hex(const uint8_t digest[MUSTER_SHA256_BYTES], const char *expected)
{
    char text[2 * MUSTER_SHA256_BYTES + 1];

    for (size_t i = 0; i < MUSTER_SHA256_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, expected);
}

/* FIPS 180-4's examples (NIST, "SHA256.pdf"). */
static void digests_are_those_of_the_standard(void **state)
{
    static const struct {
        const char *text, *digest;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t cut = 0; cut <= strlen(rows[i].text); cut++) { /* in two pieces */
            struct muster_sha256 sum;
            uint8_t digest[MUSTER_SHA256_BYTES];

            assert_int_equal(muster_sha256_init(&sum), MUSTER_OK);
            muster_sha256_update(&sum, rows[i].text, cut);
            muster_sha256_update(&sum, rows[i].text + cut, strlen(rows[i].text) - cut);
            muster_sha256_fini(&sum, digest);
            muster_sha256_fini(&sum, digest); /* again: nothing is left to say */
            check_hex(digest, rows[i].digest);
        }
    }
}

static void a_digest_that_is_not_wanted_any_more_is_dropped(void **state)
{
    struct muster_sha256 sum;

    (void)state;
    assert_int_equal(muster_sha256_init(&sum), MUSTER_OK);
    muster_sha256_update(&sum, "a", 1);
    muster_sha256_fini(&sum, NULL);

    assert_null(sum.impl);
}

/* RFC 4231 4.2, 4.3, 4.7. */
static void macs_are_those_of_the_standard(void **state)
{
    static const struct {
        size_t key_bytes;
        int key_byte; /* -1: "Jefe" */
        const char *text, *mac;
    } rows[] = {
        {20, 0x0b, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {4, -1, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {131, 0xaa, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t key[131], mac[MUSTER_SHA256_BYTES];

        memset(key, rows[i].key_byte, sizeof(key));
        if (rows[i].key_byte < 0)
            memcpy(key, "Jefe", 4);
        assert_int_equal(muster_crypto_hmac_sha256(key, rows[i].key_bytes, rows[i].text,
                                                   strlen(rows[i].text), mac),
                         MUSTER_OK);
        check_hex(mac, rows[i].mac);
    }
}

static void secrets_are_compared_whole(void **state)
{
    uint8_t a[40], b[40];

    (void)state;
    memset(a, 5, sizeof(a));
    memcpy(b, a, sizeof(b));
    assert_true(muster_crypto_is_equal(a, b, sizeof(a)));
    for (size_t bit = 0; bit < 8 * sizeof(a); bit++) {
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(muster_crypto_is_equal(a, b, sizeof(a)));
        assert_true(muster_crypto_is_equal(a, b, bit / 8)); /* no byte behind the end counts */
        b[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Keys. */

/* The text of the key, behind pass_phrase unless that is NULL. Takes key, gives. */
static char *pem_of(EVP_PKEY *key, const char *pass_phrase)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes = NULL, *pem;
    long count;

    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(
                         bio, key, pass_phrase != NULL ? EVP_aes_128_cbc() : NULL, pass_phrase,
                         pass_phrase != NULL ? (int)strlen(pass_phrase) : 0, NULL, NULL),
                     1);
    count = BIO_get_mem_data(bio, &bytes);
    pem = strndup(bytes, (size_t)count);
    BIO_free(bio);
    EVP_PKEY_free(key);
    return pem;
}

static void a_signature_is_of_the_key_and_of_all_bytes(void **state)
{
    static const char text[] = "what is signed";
    struct test_env test;
    char *private_pem = NULL, *public_pem = NULL;
    uint8_t *signature = NULL;
    size_t count = 0;

    (void)state;
    test_env_open(&test);
    assert_true(fake_rsa_key_new(&private_pem, &public_pem)); /* of 2,048 bits: just enough */
    assert_int_equal(muster_crypto_sign_rs256(private_pem, text, strlen(text), test.env.mem,
                                              &signature, &count, NULL),
                     MUSTER_OK);

    assert_int_equal(count, 256);
    assert_true(fake_rsa_is_signed(public_pem, text, strlen(text), signature, count));
    assert_false(fake_rsa_is_signed(public_pem, text, strlen(text) - 1, signature, count));
    muster_mem_free(test.env.mem, signature);
    free(private_pem);
    free(public_pem);
    test_env_close(&test);
}

/* A key of a good length, which cannot make RS256 signatures. */
static EVP_PKEY *make_pss_key(void)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "RSA-PSS", NULL);
    EVP_PKEY *key = NULL;

    assert_int_equal(EVP_PKEY_keygen_init(context), 1);
    assert_int_equal(EVP_PKEY_CTX_set_rsa_keygen_bits(context, 2048), 1);
    assert_int_equal(EVP_PKEY_generate(context, &key), 1);
    EVP_PKEY_CTX_free(context);
    return key;
}

static void keys_that_do_not_serve_are_refused_without_their_text(void **state)
{
    struct {
        const char *name;
        char *pem;
    } rows[] = {
        {"too short", pem_of(EVP_RSA_gen(2040), NULL)},
        {"for another signature", pem_of(make_pss_key(), NULL)},
        {"an elliptic one", pem_of(EVP_EC_gen("P-256"), NULL)},
        {"behind a pass phrase", pem_of(EVP_RSA_gen(2048), "phrase")},
        {"behind an empty pass phrase", pem_of(EVP_RSA_gen(2048), "")},
        {"none", strdup("hush")},
        {"nothing", strdup("")},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct test_env test;
        struct muster_error error = {.text = ""};
        uint8_t *signature = NULL;
        size_t count = 0;
        char piece[17] = "hush";

        test_env_open(&test);
        fail_if(muster_crypto_sign_rs256(rows[i].pem, "a", 1, test.env.mem, &signature, &count,
                                         &error) != MUSTER_INVALID_ARGUMENT ||
                    signature != NULL ||
                    strstr(error.text, "not an RSA key in PEM of 2048 bits") == NULL,
                "%s: %s", rows[i].name, error.text);
        if (strlen(rows[i].pem) > 200)
            (void)snprintf(piece, sizeof(piece), "%.16s", rows[i].pem + 100);
        assert_null(strstr(error.text, piece));
        assert_int_equal(ERR_peek_error(), 0); /* of somebody else's call */
        test_env_close(&test);
        free(rows[i].pem);
    }
}

static void without_memory_nothing_is_signed(void **state)
{
    struct test_env test;
    struct muster_error error = {.rc = MUSTER_OK};
    char *private_pem = NULL, *public_pem = NULL;
    uint8_t *signature = NULL;
    size_t count = 0;

    (void)state;
    test_env_open(&test);
    assert_true(fake_rsa_key_new(&private_pem, &public_pem));
    test.mem.fail_at = 1;

    assert_int_equal(
        muster_crypto_sign_rs256(private_pem, "a", 1, test.env.mem, &signature, &count, &error),
        MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(error.rc, MUSTER_RESOURCE_EXHAUSTED);
    assert_null(signature);
    free(private_pem);
    free(public_pem);
    test_env_close(&test);
}

/* Whichever allocation of OpenSSL's fails. */

#define ALLOCATIONS_MAX 60 /* the last ones: OpenSSL reads a key with thousands */

static char *private_pem;
static uint8_t expected[256];

static enum muster_rc sign_bytes(struct muster_env *env)
{
    struct muster_error error = {.rc = MUSTER_OK};
    uint8_t *signature = NULL;
    size_t count = 0;
    enum muster_rc rc =
        muster_crypto_sign_rs256(private_pem, "a", 1, env->mem, &signature, &count, &error);

    assert_int_equal(error.rc, rc);
    assert_true((signature != NULL) == (rc == MUSTER_OK));
    assert_true((error.text[0] == '\0') == (rc == MUSTER_OK));
    if (rc == MUSTER_OK && expected[0] == 0)
        memcpy(expected, signature, sizeof(expected));
    if (rc == MUSTER_OK) /* of one key and text there is one signature */
        assert_memory_equal(signature, expected, sizeof(expected));
    muster_mem_free(env->mem, signature);
    return rc;
}

static enum muster_rc add_up(struct muster_env *env)
{
    struct muster_sha256 sum;
    uint8_t digest[MUSTER_SHA256_BYTES];
    enum muster_rc rc = muster_sha256_init(&sum);

    (void)env;
    if (rc != MUSTER_OK) {
        assert_null(sum.impl);
        return rc;
    }
    muster_sha256_fini(&sum, digest);
    check_hex(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    return MUSTER_OK;
}

static enum muster_rc compute_hmac(struct muster_env *env)
{
    uint8_t key[20], mac[MUSTER_SHA256_BYTES] = {0};
    enum muster_rc rc;

    (void)env;
    memset(key, 0x0b, sizeof(key));
    rc = muster_crypto_hmac_sha256(key, sizeof(key), "Hi There", 8, mac);
    check_hex(mac, rc == MUSTER_OK
                       ? "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
                       : "0000000000000000000000000000000000000000000000000000000000000000");
    return rc;
}

static void want_of_memory_is_told(void **state)
{
    static enum muster_rc (*const rows[])(struct muster_env * env) = {sign_bytes, add_up,
                                                                      compute_hmac};
    char *public_pem = NULL;

    (void)state;
    assert_true(fake_rsa_key_new(&private_pem, &public_pem));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned failed_count = 0;
        uint64_t count, held;
        struct test_env test;

        test_env_open(&test);
        assert_int_equal(rows[i](&test.env), MUSTER_OK);
        openssl_memory_fail_at(0);
        assert_int_equal(rows[i](&test.env), MUSTER_OK);
        count = openssl_memory_count();
        held = openssl_memory_held();
        assert_int_equal(rows[i](&test.env), MUSTER_OK);
        assert_int_equal(openssl_memory_held(), held);
        for (uint64_t at = count > ALLOCATIONS_MAX ? count - ALLOCATIONS_MAX : 1; at <= count;
             at++) {
            enum muster_rc rc;

            openssl_memory_fail_at(at);
            rc = rows[i](&test.env);
            assert_true(openssl_memory_has_failed() || rc == MUSTER_OK);
            failed_count += rc != MUSTER_OK;
            assert_true(rc == MUSTER_OK || rc == MUSTER_RESOURCE_EXHAUSTED ||
                        rc == MUSTER_INTERNAL || rc == MUSTER_INVALID_ARGUMENT);
            assert_int_equal(ERR_peek_error(), 0);
            assert_int_equal(openssl_memory_held(), held);
        }
        assert_true(failed_count > 0);
        test_env_close(&test);
    }
    free(private_pem);
    free(public_pem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_those_of_the_standard),
        cmocka_unit_test(a_digest_that_is_not_wanted_any_more_is_dropped),
        cmocka_unit_test(macs_are_those_of_the_standard),
        cmocka_unit_test(secrets_are_compared_whole),
        cmocka_unit_test(a_signature_is_of_the_key_and_of_all_bytes),
        cmocka_unit_test(keys_that_do_not_serve_are_refused_without_their_text),
        cmocka_unit_test(without_memory_nothing_is_signed),
        cmocka_unit_test(want_of_memory_is_told),
    };

    if (!openssl_memory_take_over())
        return 1;
    return cmocka_run_group_tests_name("crypto_openssl", tests, NULL, NULL);
}
