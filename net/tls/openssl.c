/* One generation of a credential as OpenSSL holds it: certificate, key, roots, and the versions and
 * ciphers that are allowed. net/tls/tls.c makes a new one when its files have changed; connections
 * keep the one that they began with. The BIO that carries the engine's bytes is here too. */
#include "net/tls/openssl.h"

#include "net/tls/crypto.h"
#include "net/tls/roots.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define HELLO_BYTES_MAX 16384u /* browsers send 2 KiB */
#define TICKET_COUNT    1 /* a client resumes a session once; OpenSSL would send two */
#define SESSION_LIFE_S  3600 /* a stolen session key is worth no more than an hour */
#define SOME_BYTES      4096 /* about what a certificate takes */
/* Cipher suites that HTTP/2 allows under TLS 1.2 (RFC 9113 9.2.2): forward secrecy and AEAD. */
#define CIPHERS_1_2 "ECDHE+AESGCM:ECDHE+CHACHA20"
#define CIPHERS_1_3 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
/* RFC 8446 9.1 demands P-256 and recommends X25519, the fastest; P-384 is for those who must have
 * it. */
#define GROUPS "X25519:P-256:P-384"

/* Without this OpenSSL would ask the terminal. */
static int refuse_pass_phrase(char *out, int room, int is_writing, void *data)
{
    (void)out;
    (void)room;
    (void)is_writing;
    (void)data;
    return -1;
}

/* Memory was lacking for what OpenSSL has noted, and forgets now, or lacks still: decoders do not
 * note it. */
static bool has_lacked_memory(void)
{
    bool was_lacking = ERR_peek_error() != 0 && muster_crypto_is_starved();
    void *some = OPENSSL_malloc(SOME_BYTES);

    OPENSSL_free(some);
    return was_lacking || some == NULL;
}

/* OpenSSL looks at extensions when it first needs them, and where memory lacks for that it takes
 * the certificate for unusable ever after: so it looks now, while that can be told. Without memory
 * a key is one of an unknown kind, or of another kind, of which it knows no strength. */
static bool is_usable(X509 *cert)
{
    EVP_PKEY *key = X509_get0_pubkey(cert);

    return X509_check_purpose(cert, -1, 0) == 1 && key != NULL &&
           EVP_PKEY_get_security_bits(key) > 0;
}

/* A certificate that is usable when it is read again was unusable for lack of memory. */
static void cert_examine(struct muster_tls_context *context, X509 *cert)
{
    X509 *again = is_usable(cert) ? NULL : X509_dup(cert);

    context->is_starved |= again != NULL && is_usable(again);
    context->is_starved |= has_lacked_memory();
    X509_free(again);
}

/* A lack of memory looks like bad material to OpenSSL, but the operator must not be told to mend
 * files that are good. */
static enum muster_rc refuse_material(struct muster_tls_context *context,
                                      struct muster_error *ret_error, const char *name,
                                      const char *what)
{
    context->is_starved |= has_lacked_memory();
    if (context->is_starved)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "%.100s cannot be used: no memory", name);
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "%.100s: %s", name, what);
}

/* 0, which reads as "never expires", for a time that cannot be read: the peer will judge it. */
static uint64_t seconds_of(const ASN1_TIME *at)
{
    struct tm parts;

    if (ASN1_TIME_to_tm(at, &parts) != 1)
        return 0;
    return (uint64_t)timegm(&parts);
}

static bool has_cert(const char *pem, int bytes)
{
    BIO *bio = BIO_new_mem_buf(pem, bytes);
    X509 *cert = bio != NULL ? PEM_read_bio_X509(bio, NULL, refuse_pass_phrase, NULL) : NULL;
    bool is_found = cert != NULL;

    X509_free(cert);
    BIO_free(bio);
    return is_found;
}

/* The next certificate of a file. NULL: the file ends, or memory lacks (is_starved). OpenSSL does not always note the
 * lack; a certificate that is found at the second attempt says so. */
static X509 *next_cert(struct muster_tls_context *context, BIO *bio)
{
    char *rest = NULL;
    int bytes = (int)BIO_get_mem_data(bio, &rest);
    X509 *cert = PEM_read_bio_X509(bio, NULL, refuse_pass_phrase, NULL);

    if (cert != NULL) {
        cert_examine(context, cert);
        return cert;
    }
    context->is_starved |= has_lacked_memory() || has_cert(rest, bytes);
    context->is_starved |= has_lacked_memory();
    return NULL;
}

/* The file holds the leaf first, then its issuers up to the root, as TLS sends them (RFC 8446
 * 4.4.2). */
static bool use_chain(struct muster_tls_context *context, BIO *bio)
{
    X509 *cert = next_cert(context, bio);
    bool is_used = cert != NULL && SSL_CTX_use_certificate(context->ssl, cert) == 1;

    if (is_used)
        context->expires_s = seconds_of(X509_get0_notAfter(cert));
    X509_free(cert);
    while (is_used && (cert = next_cert(context, bio)) != NULL) {
        if (SSL_CTX_add0_chain_cert(context->ssl, cert) != 1) {
            X509_free(cert);
            return false;
        }
    }
    return is_used && !context->is_starved;
}

static EVP_PKEY *read_key(const struct muster_tls_material *material)
{
    BIO *bio = BIO_new_mem_buf(material->key_pem, -1);
    EVP_PKEY *key =
        bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, refuse_pass_phrase, NULL);

    BIO_free(bio);
    return key;
}

static enum muster_rc use_cert(struct muster_tls_context *context,
                               const struct muster_tls_material *material,
                               struct muster_error *ret_error)
{
    BIO *bio = BIO_new_mem_buf(material->cert_pem, -1);
    EVP_PKEY *key;
    bool is_used = bio != NULL && use_chain(context, bio);
    bool fits;

    BIO_free(bio);
    if (!is_used)
        return refuse_material(
            context, ret_error, material->cert_name,
            "holds no certificate in PEM that can be used (BEGIN CERTIFICATE; RSA keys "
            "need 2,048 bits, elliptic ones 224)");
    key = read_key(material);
    /* A key that can be read at the second attempt was good: memory lacked for a moment. */
    if (key == NULL && (key = read_key(material)) != NULL)
        context->is_starved = true;
    if (key == NULL)
        return refuse_material(context, ret_error, material->key_name,
                               "holds no private key in PEM, or one with a pass phrase");
    fits = SSL_CTX_use_PrivateKey(context->ssl, key) == 1;
    EVP_PKEY_free(key);
    if (!fits || SSL_CTX_check_private_key(context->ssl) != 1) {
        context->is_starved |= has_lacked_memory();
        if (context->is_starved)
            return refuse_material(context, ret_error, material->key_name, "");
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the private key in %.80s does not belong to the certificate in "
                                "%.80s",
                                material->key_name, material->cert_name);
    }
    context->has_cert = true;
    return MUSTER_OK;
}

static enum muster_rc use_roots(struct muster_tls_context *context,
                                const struct muster_tls_material *material,
                                struct muster_error *ret_error)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context->ssl);
    BIO *bio = BIO_new_mem_buf(material->ca_pem, -1);
    X509 *cert;
    size_t count = 0;
    bool is_whole = bio != NULL;

    while (is_whole && (cert = next_cert(context, bio)) != NULL) {
        is_whole = X509_STORE_add_cert(store, cert) == 1;
        count += is_whole;
        X509_free(cert);
    }
    BIO_free(bio);
    if (!is_whole || count == 0)
        return refuse_material(context, ret_error, material->ca_name,
                               "holds no certificate in PEM to trust");
    (void)snprintf(context->ca_name, sizeof(context->ca_name), "%s",
                   material->is_ca_text ? "the roots that were given" : material->ca_name);
    return MUSTER_OK;
}

/* The engine's BIO: OpenSSL asks for bytes and hands bytes out, and nothing is kept in between. A
 * BIO over memory would copy every byte once more. */

/* OpenSSL makes room for as much as a ClientHello says that it has, 128 KiB, before it has come.
 * OpenSSL itself refuses bytes that are not a handshake. */
static bool is_hello_too_large(const uint8_t hello[MUSTER_TLS_HELLO_BYTES])
{
    size_t record = (size_t)hello[3] << 8 | hello[4];
    size_t message = (size_t)hello[6] << 16 | (size_t)hello[7] << 8 | hello[8];

    return hello[0] == SSL3_RT_HANDSHAKE &&
           (record < SSL3_HM_HEADER_LENGTH || message > HELLO_BYTES_MAX);
}

/* False: the client's first message is refused. */
static bool hello_watch(struct muster_tls_engine *engine, const char *bytes, size_t count)
{
    while (count > 0 && engine->hello_count < MUSTER_TLS_HELLO_BYTES) {
        engine->hello[engine->hello_count++] = (uint8_t)*bytes++;
        count--;
        if (engine->options.is_server && engine->hello_count == MUSTER_TLS_HELLO_BYTES &&
            is_hello_too_large(engine->hello)) {
            (void)muster_error_set(&engine->error, MUSTER_RESOURCE_EXHAUSTED,
                                   "TLS: a ClientHello must have at most %u bytes, and its first "
                                   "record the whole length",
                                   HELLO_BYTES_MAX);
            return false;
        }
    }
    return true;
}

static int bio_read(BIO *bio, char *bytes, int count)
{
    struct muster_tls_engine *engine = BIO_get_data(bio);
    size_t got = engine->options.pull(engine->options.data, bytes, (size_t)count);

    BIO_clear_retry_flags(bio);
    if (!hello_watch(engine, bytes, got))
        return -1;
    if (got > 0)
        return (int)got;
    BIO_set_retry_read(bio);
    return -1;
}

static int bio_write(BIO *bio, const char *bytes, int count)
{
    struct muster_tls_engine *engine = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (engine->options.push(engine->options.data, bytes, (size_t)count))
        return count;
    engine->has_failed_push = true;
    return -1;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "muster");

    if (method == NULL)
        return NULL;
    (void)BIO_meth_set_read(method, bio_read);
    (void)BIO_meth_set_write(method, bio_write);
    (void)BIO_meth_set_ctrl(method, bio_control);
    (void)BIO_meth_set_create(method, bio_create);
    return method;
}

/* Renegotiation and compression have no use and a history of attacks (CVE-2009-3555,
 * CVE-2012-4929). Buffers are released because a server has thousands of idle connections. Sessions
 * are kept by net/tls/openssl_engine.c, not by OpenSSL. Security level 2 refuses keys below 112
 * bits of strength. */
static bool ssl_set_up(SSL_CTX *ssl, enum muster_tls_version version_min)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ssl, 1);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_BOTH | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_set_timeout(ssl, SESSION_LIFE_S);
    SSL_CTX_set_security_level(ssl, 2);
    return SSL_CTX_set_min_proto_version(
               ssl, version_min == MUSTER_TLS_VERSION_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(ssl, CIPHERS_1_2) == 1 &&
           SSL_CTX_set_ciphersuites(ssl, CIPHERS_1_3) == 1 &&
           SSL_CTX_set1_groups_list(ssl, GROUPS) == 1 &&
           SSL_CTX_set_num_tickets(ssl, TICKET_COUNT) == 1 &&
           SSL_CTX_set_session_id_context(ssl, (const unsigned char *)"muster", 6) == 1;
}

/* OpenSSL looks at SSL_CERT_FILE and SSL_CERT_DIR, and at the paths of the distribution for which it was built. */
static enum muster_rc use_system_roots(struct muster_tls_context *context,
                                       const struct muster_tls_material *material,
                                       struct muster_error *ret_error)
{
    const char *const known[] = {X509_get_default_cert_file(), X509_get_default_cert_dir(), NULL};
    const char *file = NULL;

    if (!material->is_root_named && muster_tls_roots_first(known) == NULL)
        file = muster_tls_roots_find(NULL);
    (void)snprintf(context->ca_name, sizeof(context->ca_name), "the system's roots");
    if (SSL_CTX_set_default_verify_paths(context->ssl) != 1 ||
        (file != NULL && SSL_CTX_load_verify_file(context->ssl, file) != 1))
        return refuse_material(context, ret_error, context->ca_name,
                               "OpenSSL does not know where they are");
    return MUSTER_OK;
}

static enum muster_rc context_fill(struct muster_tls_context *context,
                                   const struct muster_tls_material *material,
                                   struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    ERR_clear_error();
    if (material->cert_pem != NULL)
        rc = use_cert(context, material, ret_error);
    context->is_starved |= has_lacked_memory(); /* where a chain ended */
    if (rc == MUSTER_OK && material->ca_pem != NULL) {
        rc = use_roots(context, material, ret_error);
        context->is_starved |= has_lacked_memory();
    } else if (rc == MUSTER_OK) {
        rc = use_system_roots(context, material, ret_error);
    }
    ERR_clear_error();
    if (rc == MUSTER_OK && context->is_starved)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                              "TLS: no memory for a certificate");
    return rc;
}

static enum muster_rc context_make(struct muster_mem *mem,
                                   const struct muster_tls_material *material,
                                   struct muster_tls_context **ret_context,
                                   struct muster_error *ret_error)
{
    struct muster_tls_context *context = muster_mem_alloc_zero(mem, 1, sizeof(*context));
    enum muster_rc rc;

    if (context == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "TLS: no memory");
    context->mem = mem;
    context->refs = 1;
    ERR_clear_error();
    context->ssl = SSL_CTX_new(TLS_method());
    context->bio = bio_method();
    if (context->ssl == NULL || context->bio == NULL ||
        !ssl_set_up(context->ssl, material->version_min))
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                              "OpenSSL gives no context: no memory, or its configuration "
                              "(openssl.cnf) forbids TLS 1.2 and 1.3");
    else
        rc = context_fill(context, material, ret_error);
    if (rc != MUSTER_OK) {
        ERR_clear_error();
        muster_tls_context_free(context);
        return rc;
    }
    muster_tls_openssl_keep_sessions(context->ssl);
    *ret_context = context;
    return MUSTER_OK;
}

/* OpenSSL does without an algorithm that it had no memory for, and then refuses what needs it: what
 * was refused is shown to another one. */
enum muster_rc muster_tls_context_new(struct muster_mem *mem,
                                      const struct muster_tls_material *material,
                                      struct muster_tls_context **ret_context,
                                      struct muster_error *ret_error)
{
    enum muster_rc rc = muster_crypto_check(ret_error);

    if (rc == MUSTER_OK)
        rc = context_make(mem, material, ret_context, ret_error);
    return rc == MUSTER_INVALID_ARGUMENT ? context_make(mem, material, ret_context, ret_error) : rc;
}

/* The loop's thread alone counts, so the count is plain. */
struct muster_tls_context *muster_tls_context_ref(struct muster_tls_context *context)
{
    MUSTER_ASSERT(context->refs > 0);
    context->refs++;
    return context;
}

void muster_tls_context_free(struct muster_tls_context *context)
{
    if (context == NULL)
        return;
    MUSTER_ASSERT(context->refs > 0);
    if (--context->refs > 0)
        return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->bio);
    muster_mem_free(context->mem, context);
}

bool muster_tls_context_has_cert(const struct muster_tls_context *context)
{
    return context->has_cert;
}

uint64_t muster_tls_context_expires_s(const struct muster_tls_context *context)
{
    return context->expires_s;
}
