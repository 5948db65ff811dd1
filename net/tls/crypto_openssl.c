/* Signatures and digests by OpenSSL, for the parts of muster that need no TLS: tokens of service
 * accounts, proofs between peers, checksums. OpenSSL reports a lack of memory badly, so most of the
 * care here is to tell it from a bad key or a bad configuration. */
#include "net/tls/crypto.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

/* Every call asks again, because OpenSSL itself remembers what it has done, and a second time costs
 * little. */
static bool openssl_set_up(void)
{
    EVP_MD *digest;

    if (OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS | OPENSSL_INIT_ADD_ALL_CIPHERS |
                                OPENSSL_INIT_ADD_ALL_DIGESTS | OPENSSL_INIT_LOAD_CONFIG,
                            NULL) != 1 ||
        OPENSSL_init_ssl(OPENSSL_INIT_LOAD_SSL_STRINGS, NULL) != 1 ||
        OSSL_LIB_CTX_get0_global_default() == NULL)
        return false;
    digest = EVP_MD_fetch(NULL, "SHA2-256", NULL); /* the providers are there, too */
    EVP_MD_free(digest);
    return digest != NULL;
}

/* An empty queue means that there was not even memory to queue an error. */
bool muster_crypto_is_starved(void)
{
    unsigned long code = ERR_get_error();
    bool is_starved = code == 0;

    for (; code != 0; code = ERR_get_error())
        is_starved = is_starved || ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
    return is_starved;
}

enum muster_rc muster_crypto_check(struct muster_error *ret_error)
{
    if (openssl_set_up())
        return MUSTER_OK;
    if (muster_crypto_is_starved())
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "OpenSSL cannot be initialised: no memory");
    return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                            "OpenSSL cannot be initialised: see its configuration, openssl.cnf");
}

/* Without this OpenSSL would ask the terminal. */
static int refuse_pass_phrase(char *out, int room, int is_writing, void *data)
{
    (void)out;
    (void)room;
    (void)is_writing;
    (void)data;
    return -1;
}

static EVP_PKEY *read_key(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key =
        bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, refuse_pass_phrase, NULL);

    BIO_free(bio);
    return key;
}

/* OpenSSL tells the length of the signature first, by a call without room for it. */
static enum muster_rc sign_with_key(EVP_PKEY *key, const void *bytes, size_t size,
                                    struct muster_mem *mem, uint8_t **ret_signature,
                                    size_t *ret_signature_bytes)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint8_t *signature = NULL;
    size_t room = 0;
    enum muster_rc rc = MUSTER_INTERNAL;

    if (context != NULL && EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
        EVP_DigestSign(context, NULL, &room, bytes, size) == 1) {
        signature = muster_mem_alloc(mem, room);
        if (signature == NULL)
            rc = MUSTER_RESOURCE_EXHAUSTED;
        else if (EVP_DigestSign(context, signature, &room, bytes, size) == 1)
            rc = MUSTER_OK;
    }
    EVP_MD_CTX_free(context);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem, signature);
        return rc;
    }
    *ret_signature = signature;
    *ret_signature_bytes = room;
    return MUSTER_OK;
}

enum muster_rc muster_crypto_sign_rs256(const char *key_pem, const void *bytes, size_t size,
                                        struct muster_mem *mem, uint8_t **ret_signature,
                                        size_t *ret_signature_bytes, struct muster_error *ret_error)
{
    EVP_PKEY *key;
    enum muster_rc rc = muster_crypto_check(ret_error);

    if (rc != MUSTER_OK)
        return rc;
    ERR_clear_error(); /* errors of earlier calls must not be taken for ours */
    key = read_key(key_pem);
    if (key == NULL && muster_crypto_is_starved())
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "the private key cannot be read: no memory");
    if (key == NULL || !EVP_PKEY_is_a(key, "RSA") ||
        EVP_PKEY_get_bits(key) < MUSTER_CRYPTO_RSA_BITS_MIN) {
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "the private key is not an RSA key in PEM of %d bits or more",
                              MUSTER_CRYPTO_RSA_BITS_MIN);
    } else {
        rc = sign_with_key(key, bytes, size, mem, ret_signature, ret_signature_bytes);
        if (rc != MUSTER_OK)
            (void)muster_error_set(ret_error, rc, "the signature cannot be made");
    }
    EVP_PKEY_free(key);
    ERR_clear_error();
    return rc;
}

enum muster_rc muster_sha256_init(struct muster_sha256 *sum)
{
    enum muster_rc rc = muster_crypto_check(NULL);

    sum->impl = NULL;
    if (rc != MUSTER_OK)
        return rc;
    sum->impl = EVP_MD_CTX_new();
    if (sum->impl == NULL || EVP_DigestInit_ex(sum->impl, EVP_sha256(), NULL) != 1) {
        muster_sha256_fini(sum, NULL);
        ERR_clear_error();
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    return MUSTER_OK;
}

void muster_sha256_update(struct muster_sha256 *sum, const void *bytes, size_t size)
{
    int is_done;

    MUSTER_ASSERT(sum->impl != NULL);
    is_done = EVP_DigestUpdate(sum->impl, bytes, size);
    /* SHA-256 keeps all it needs in the context, so that a lack of memory cannot come here; it
     * refuses only to go on after its end. */
    MUSTER_ASSERT(is_done == 1);
}

void muster_sha256_fini(struct muster_sha256 *sum, uint8_t *ret_digest)
{
    if (sum->impl != NULL && ret_digest != NULL)
        (void)EVP_DigestFinal_ex(sum->impl, ret_digest, NULL);
    EVP_MD_CTX_free(sum->impl);
    sum->impl = NULL;
}

/* HMAC makes a context of its own for each call, so only memory can fail. */
enum muster_rc muster_crypto_hmac_sha256(const void *key, size_t key_bytes, const void *bytes,
                                         size_t size, uint8_t ret_mac[MUSTER_SHA256_BYTES])
{
    enum muster_rc rc = muster_crypto_check(NULL);

    if (rc != MUSTER_OK)
        return rc;
    if (HMAC(EVP_sha256(), key, (int)key_bytes, bytes, size, ret_mac, NULL) != NULL)
        return MUSTER_OK;
    ERR_clear_error();
    return MUSTER_RESOURCE_EXHAUSTED;
}

bool muster_crypto_is_equal(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}
