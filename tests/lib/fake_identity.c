/* Certificates by OpenSSL, on P-256 keys, which are quick to make. */
#include "fake_identity.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_S (24L * 3600)

struct issuer {
    X509 *cert;
    EVP_PKEY *key;
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

/* issuer NULL: signed by itself. */
static X509 *make_cert(EVP_PKEY *key, const char *name, long serial, bool is_expired,
                       const struct issuer *issuer, const char *alt_names)
{
    X509 *cert = X509_new();
    X509_NAME *subject = X509_get_subject_name(cert);

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial);
    X509_gmtime_adj(X509_getm_notBefore(cert), -30 * DAY_S);
    X509_gmtime_adj(X509_getm_notAfter(cert), is_expired ? -DAY_S : 30 * DAY_S);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, issuer != NULL ? X509_get_subject_name(issuer->cert) : subject);
    X509_set_pubkey(cert, key);
    add_extension(cert, issuer != NULL ? issuer->cert : cert, NID_basic_constraints,
                  issuer != NULL ? "critical,CA:FALSE" : "critical,CA:TRUE");
    if (issuer == NULL)
        add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (alt_names != NULL)
        add_extension(cert, issuer != NULL ? issuer->cert : cert, NID_subject_alt_name, alt_names);
    if (X509_sign(cert, issuer != NULL ? issuer->key : key, EVP_sha256()) == 0) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

static void add_names(char *out, size_t room, const char *names)
{
    char *copy = names != NULL ? strdup(names) : NULL;
    char *rest = copy;
    char *name;

    snprintf(out, room, "DNS:localhost,IP:127.0.0.1,IP:::1");
    while (rest != NULL && (name = strsep(&rest, ",")) != NULL)
        snprintf(out + strlen(out), room - strlen(out), ",DNS:%s", name);
    free(copy);
}

static bool make_all(struct fake_identity *identity, const struct fake_identity_options *options,
                     const struct issuer *ca, EVP_PKEY *server_key, EVP_PKEY *client_key)
{
    char names[512];
    X509 *server, *client;
    bool is_made;

    add_names(names, sizeof(names), options->dns_names);
    server = make_cert(server_key, "fake-cloud", 2, options->is_expired, ca, names);
    client = make_cert(client_key, "fake-client", 3, false, ca, NULL);
    is_made = server != NULL && client != NULL;
    if (is_made) {
        identity->ca_pem = cert_text(ca->cert);
        identity->server_cert_pem = cert_text(server);
        identity->server_key_pem = key_text(server_key);
        identity->client_cert_pem = cert_text(client);
        identity->client_key_pem = key_text(client_key);
    }
    X509_free(server);
    X509_free(client);
    return is_made;
}

struct fake_identity *fake_identity_new(const struct fake_identity_options *options)
{
    struct fake_identity *identity = calloc(1, sizeof(*identity));
    struct issuer ca = {.key = EVP_EC_gen("P-256")};
    EVP_PKEY *server_key = EVP_EC_gen("P-256");
    EVP_PKEY *client_key = EVP_EC_gen("P-256");
    bool is_made = false;

    if (ca.key != NULL && server_key != NULL && client_key != NULL)
        ca.cert = make_cert(ca.key, "fake-authority", 1, false, NULL, NULL);
    if (ca.cert != NULL && identity != NULL)
        is_made = make_all(identity, options, &ca, server_key, client_key);
    X509_free(ca.cert);
    EVP_PKEY_free(ca.key);
    EVP_PKEY_free(server_key);
    EVP_PKEY_free(client_key);
    if (is_made)
        return identity;
    fake_identity_free(identity);
    return NULL;
}

void fake_identity_free(struct fake_identity *identity)
{
    if (identity == NULL)
        return;
    free(identity->ca_pem);
    free(identity->server_cert_pem);
    free(identity->server_key_pem);
    free(identity->client_cert_pem);
    free(identity->client_key_pem);
    free(identity);
}

bool fake_rsa_key_new(char **ret_private_pem, char **ret_public_pem)
{
    EVP_PKEY *key = EVP_RSA_gen(2048);
    BIO *bio = BIO_new(BIO_s_mem());

    if (key == NULL || bio == NULL)
        return false;
    *ret_private_pem = key_text(key);
    PEM_write_bio_PUBKEY(bio, key);
    *ret_public_pem = text_of(bio);
    EVP_PKEY_free(key);
    return true;
}

bool fake_rsa_is_signed(const char *public_pem, const char *text, unsigned long text_bytes,
                        const unsigned char *signature, unsigned long signature_bytes)
{
    BIO *bio = BIO_new_mem_buf(public_pem, -1);
    EVP_PKEY *key = PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_signed;

    is_signed = EVP_DigestVerifyInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
                EVP_DigestVerify(context, signature, signature_bytes, (const unsigned char *)text,
                                 text_bytes) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    BIO_free(bio);
    return is_signed;
}
