/* A certificate authority in memory, by OpenSSL: a job without certificates of its own makes one,
 * and issues a certificate to each of its tasks. Its key never leaves the process. */
#include <muster/tls.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "net/tls/crypto.h"
#include "net/tls/openssl.h"

#define SERIAL_BITS      127 /* random, so that none comes twice (RFC 5280 4.1.2.2) */
#define BACKDATE_S       300 /* for hosts whose clocks are late */
#define AUTHORITY_LIFE_S (10L * 365 * 24 * 3600) /* longer than any job */
#define NAMES_BYTES      1024

struct muster_tls_authority {
    struct muster_env *env;
    X509 *cert;
    EVP_PKEY *key;
    char *pem;
};

/* The fields that are the same in every certificate of ours. */
struct plan {
    const char *name;
    const char *alt_names; /* NULL: none */
    long life_s;
    bool is_authority;
};

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    bool is_added;

    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    is_added = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

/* RFC 5280 4.2.1. pathlen:0 keeps an issued certificate from issuing others; each task is a server
 * to some peers and a client to others, so it has both uses. */
static bool add_extensions(X509 *cert, X509 *issuer, const struct plan *plan)
{
    if (plan->is_authority)
        return add_extension(cert, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
               add_extension(cert, issuer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
               add_extension(cert, issuer, NID_subject_key_identifier, "hash");
    return add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(cert, issuer, NID_authority_key_identifier, "keyid") &&
           (plan->alt_names == NULL ||
            add_extension(cert, issuer, NID_subject_alt_name, plan->alt_names));
}

static bool set_serial(X509 *cert)
{
    BIGNUM *serial = BN_new();
    bool is_set = serial != NULL &&
                  BN_rand(serial, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
                  BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert)) != NULL;

    BN_free(serial);
    return is_set;
}

static bool set_dates(X509 *cert, const struct muster_env *env, long life_s)
{
    time_t now = (time_t)muster_tls_now_s(env);
    time_t *from = now != 0 ? &now : NULL;

    return X509_time_adj_ex(X509_getm_notBefore(cert), 0, -BACKDATE_S, from) != NULL &&
           X509_time_adj_ex(X509_getm_notAfter(cert), 0, life_s, from) != NULL;
}

/* issuer NULL: signed by its own key. */
static X509 *make_cert(const struct muster_env *env, EVP_PKEY *key, const struct plan *plan,
                       X509 *issuer, EVP_PKEY *issuer_key)
{
    X509 *cert = X509_new();
    X509_NAME *subject = cert != NULL ? X509_get_subject_name(cert) : NULL;

    if (cert == NULL)
        return NULL;
    if (X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
        set_dates(cert, env, plan->life_s) &&
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)plan->name,
                                   -1, -1, 0) == 1 &&
        X509_set_issuer_name(cert, issuer != NULL ? X509_get_subject_name(issuer) : subject) == 1 &&
        X509_set_pubkey(cert, key) == 1 &&
        add_extensions(cert, issuer != NULL ? issuer : cert, plan) &&
        X509_sign(cert, issuer_key, EVP_sha256()) != 0)
        return cert;
    X509_free(cert);
    return NULL;
}

/* key NULL: the certificate alone. The text goes through OpenSSL's secure memory, which is wiped
 * when it is freed, because it may hold a key. Gives. */
static char *pem_of(struct muster_mem *mem, X509 *cert, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    char *bytes = NULL;
    char *pem = NULL;

    if (bio != NULL && PEM_write_bio_X509(bio, cert) == 1 &&
        (key == NULL || PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1)) {
        long count = BIO_get_mem_data(bio, &bytes);

        pem = count > 0 ? muster_mem_strndup(mem, bytes, (size_t)count) : NULL;
    }
    BIO_free(bio);
    return pem;
}

/* Takes key; NULL: there was no memory for one. */
static enum muster_rc authority_open(struct muster_env *env, const char *name, EVP_PKEY *key,
                                     struct muster_tls_authority **ret_authority)
{
    const struct plan plan = {.name = name, .life_s = AUTHORITY_LIFE_S, .is_authority = true};
    struct muster_tls_authority *authority = muster_mem_alloc_zero(env->mem, 1, sizeof(*authority));

    if (authority == NULL) {
        EVP_PKEY_free(key);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    authority->env = env;
    authority->key = key;
    if (authority->key != NULL)
        authority->cert = make_cert(env, authority->key, &plan, NULL, authority->key);
    if (authority->cert != NULL)
        authority->pem = pem_of(env->mem, authority->cert, NULL);
    ERR_clear_error();
    if (authority->pem == NULL) {
        muster_tls_authority_free(authority);
        return MUSTER_RESOURCE_EXHAUSTED;
    }
    *ret_authority = authority;
    return MUSTER_OK;
}

enum muster_rc muster_tls_authority_new(struct muster_env *env, const char *name,
                                        struct muster_tls_authority **ret_authority)
{
    enum muster_rc rc = muster_crypto_check(NULL);

    return rc != MUSTER_OK ? rc
                           : authority_open(env, name, EVP_EC_gen(MUSTER_TLS_CURVE), ret_authority);
}

enum muster_rc muster_tls_authority_derive(struct muster_env *env, const char *name,
                                           const void *secret, size_t secret_bytes,
                                           struct muster_tls_authority **ret_authority)
{
    enum muster_rc rc = muster_crypto_check(NULL);

    if (secret_bytes < MUSTER_TLS_SECRET_BYTES_MIN)
        return MUSTER_INVALID_ARGUMENT;
    if (rc != MUSTER_OK)
        return rc;
    return authority_open(env, name, muster_tls_openssl_derive(name, secret, secret_bytes),
                          ret_authority);
}

void muster_tls_authority_free(struct muster_tls_authority *authority)
{
    if (authority == NULL)
        return;
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key);
    muster_mem_free(authority->env->mem, authority->pem);
    muster_mem_free(authority->env->mem, authority);
}

const char *muster_tls_authority_pem(const struct muster_tls_authority *authority)
{
    return authority->pem;
}

/* The names in OpenSSL's own notation, "URI:…,DNS:…". A comma within the SPIFFE ID would begin
 * another name there, so an ID with one is refused. */
static bool join_names(const struct muster_tls_subject *subject, char out[NAMES_BYTES])
{
    bool has_both = subject->spiffe_id != NULL && subject->alt_names != NULL;
    int length = snprintf(out, NAMES_BYTES, "%s%s%s%s", subject->spiffe_id != NULL ? "URI:" : "",
                          subject->spiffe_id != NULL ? subject->spiffe_id : "", has_both ? "," : "",
                          subject->alt_names != NULL ? subject->alt_names : "");

    return length >= 0 && length < NAMES_BYTES &&
           (subject->spiffe_id == NULL || strpbrk(subject->spiffe_id, ",;\n") == NULL);
}

static char *issue_pem(struct muster_tls_authority *authority, const struct plan *plan,
                       bool *ret_is_starved)
{
    EVP_PKEY *key;
    X509 *cert = NULL;
    char *pem = NULL;

    ERR_clear_error();
    key = EVP_EC_gen(MUSTER_TLS_CURVE);
    if (key != NULL)
        cert = make_cert(authority->env, key, plan, authority->cert, authority->key);
    if (cert != NULL)
        pem = pem_of(authority->env->mem, cert, key);
    *ret_is_starved = muster_crypto_is_starved() || cert != NULL;
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return pem;
}

enum muster_rc muster_tls_authority_issue(struct muster_tls_authority *authority,
                                          const struct muster_tls_subject *subject, char **ret_pem,
                                          struct muster_error *ret_error)
{
    char names[NAMES_BYTES];
    struct plan plan = {.name = subject->name, .life_s = (long)subject->life_s};
    bool has_names = join_names(subject, names), is_starved = false;
    char *pem = NULL;

    plan.alt_names = has_names && names[0] != '\0' ? names : NULL;
    if (has_names)
        pem = issue_pem(authority, &plan, &is_starved);
    /* For want of memory OpenSSL may say that it knows no such thing: at the second attempt it does. */
    if (has_names && pem == NULL && !is_starved)
        pem = issue_pem(authority, &plan, &is_starved);
    if (pem == NULL)
        return muster_error_set(
            ret_error, is_starved ? MUSTER_RESOURCE_EXHAUSTED : MUSTER_INVALID_ARGUMENT,
            "no certificate can be issued for \"%.64s\" (%.100s)%s", subject->name,
            subject->spiffe_id != NULL ? subject->spiffe_id : "no identity",
            is_starved ? ": no memory" : "");
    *ret_pem = pem;
    return MUSTER_OK;
}
