/* Certificates by OpenSSL, on P-256 keys, which are quick to make. */
#include "fake_authority.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MONTH_S (30L * 24 * 3600)

struct fake_authority {
    X509 *cert;
    EVP_PKEY *key;
    char *pem;
};

static char *text_of(BIO *bio)
{
    char *bytes = NULL;
    long count = BIO_get_mem_data(bio, &bytes);
    char *text = count > 0 ? strndup(bytes, (size_t)count) : NULL;

    BIO_free(bio);
    return text;
}

static char *cert_text(X509 *cert)
{
    BIO *bio = BIO_new(BIO_s_mem());

    PEM_write_bio_X509(bio, cert);
    return text_of(bio);
}

static char *key_text(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());

    PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
    return text_of(bio);
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    if (extension != NULL)
        X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
}

static void set_dates(X509 *cert, const struct fake_cert_options *options)
{
    bool is_usual = options->from_s == 0 && options->until_s == 0;

    X509_gmtime_adj(X509_getm_notBefore(cert), is_usual ? -MONTH_S : options->from_s);
    X509_gmtime_adj(X509_getm_notAfter(cert), is_usual ? MONTH_S : options->until_s);
    if (options->is_timeless) {
        ASN1_TIME_set_string_X509(X509_getm_notBefore(cert), "19700101000000Z");
        ASN1_TIME_set_string_X509(X509_getm_notAfter(cert), "21000101000000Z");
    }
}

static X509 *make_cert(EVP_PKEY *key, const struct fake_authority *authority,
                       const struct fake_cert_options *options)
{
    static atomic_long serial = 1;
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);
    X509 *issuer = authority != NULL ? authority->cert : cert;

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), atomic_fetch_add(&serial, 1));
    set_dates(cert, options);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)options->name,
                               -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    X509_set_pubkey(cert, key);
    add_extension(cert, issuer, NID_basic_constraints,
                  options->is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    if (options->is_authority)
        add_extension(cert, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (options->alt_names != NULL)
        add_extension(cert, issuer, NID_subject_alt_name, options->alt_names);
    if (X509_sign(cert, authority != NULL ? authority->key : key, EVP_sha256()) == 0) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

struct fake_authority *fake_authority_new(const char *name)
{
    const struct fake_cert_options options = {
        .name = name, .is_timeless = true, .is_authority = true};
    struct fake_authority *authority = calloc(1, sizeof(*authority));

    if (authority == NULL)
        return NULL;
    authority->key = EVP_EC_gen("P-256");
    if (authority->key != NULL)
        authority->cert = make_cert(authority->key, NULL, &options);
    if (authority->cert != NULL)
        authority->pem = cert_text(authority->cert);
    if (authority->pem == NULL) {
        fake_authority_free(authority);
        return NULL;
    }
    return authority;
}

void fake_authority_free(struct fake_authority *authority)
{
    if (authority == NULL)
        return;
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key);
    free(authority->pem);
    free(authority);
}

const char *fake_authority_pem(const struct fake_authority *authority)
{
    return authority->pem;
}

bool fake_cert_init(struct fake_cert *cert, const struct fake_authority *authority,
                    const struct fake_cert_options *options)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x509 = key != NULL ? make_cert(key, authority, options) : NULL;

    *cert = (struct fake_cert){.cert_pem = NULL};
    if (x509 != NULL) {
        cert->cert_pem = cert_text(x509);
        cert->key_pem = key_text(key);
    }
    X509_free(x509);
    EVP_PKEY_free(key);
    return cert->cert_pem != NULL && cert->key_pem != NULL;
}

void fake_cert_fini(struct fake_cert *cert)
{
    free(cert->cert_pem);
    free(cert->key_pem);
    *cert = (struct fake_cert){.cert_pem = NULL};
}
