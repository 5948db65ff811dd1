/* Certificates by OpenSSL, mostly on P-256 keys, which are quick to make. */
#include "fake_authority.h"

#include <assert.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MONTH_S         (30L * 24 * 3600)
#define RSA_LENGTHS_MAX 4
#define NUL_MARK        '^' /* in names */

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

/* A new key; RSA ones of a length are made once, for they take long. */
static EVP_PKEY *make_key(unsigned rsa_bits)
{
    static struct {
        unsigned bits;
        EVP_PKEY *key;
    } made[RSA_LENGTHS_MAX];
    size_t i = 0;

    if (rsa_bits == 0)
        return EVP_EC_gen("P-256");
    while (made[i].bits != 0 && made[i].bits != rsa_bits)
        i++;
    assert(i < RSA_LENGTHS_MAX - 1);
    if (made[i].key == NULL)
        made[i].key = EVP_RSA_gen(rsa_bits);
    made[i].bits = rsa_bits;
    if (made[i].key != NULL)
        EVP_PKEY_up_ref(made[i].key);
    return made[i].key;
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    if (value == NULL || strcmp(value, FAKE_CERT_NONE) == 0)
        return;
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert(extension != NULL);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
}

static void put_nul(unsigned char *bytes, int count)
{
    for (int i = 0; i < count; i++)
        if (bytes[i] == NUL_MARK)
            bytes[i] = '\0';
}

static void put_nul_in_alt_names(X509 *cert)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

        if (name->type == GEN_DNS || name->type == GEN_URI || name->type == GEN_EMAIL)
            put_nul(name->d.ia5->data, name->d.ia5->length);
    }
    X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_REPLACE);
    GENERAL_NAMES_free(names);
}

static void set_subject(X509 *cert, const char *name)
{
    unsigned char *bytes;
    int count = (int)strlen(name);

    if (strcmp(name, FAKE_CERT_NONE) == 0)
        return;
    bytes = (unsigned char *)strdup(name);
    put_nul(bytes, count);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8, bytes, count, -1,
                               0);
    free(bytes);
}

static void add_unknown_critical(X509 *cert)
{
    ASN1_OBJECT *id = OBJ_txt2obj("1.3.6.1.4.1.55555.1", 1); /* an enterprise that nobody has */
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    X509_EXTENSION *extension;

    ASN1_OCTET_STRING_set(value, (const unsigned char *)"\x05", 2); /* ASN.1 NULL: 05 00 */
    extension = X509_EXTENSION_create_by_OBJ(NULL, id, 1, value);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(value);
    ASN1_OBJECT_free(id);
}

static void add_extensions(X509 *cert, X509 *issuer, const struct fake_cert_options *options)
{
    const char *basic = options->is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE";
    const char *usage = options->is_authority ? "critical,keyCertSign,cRLSign" : NULL;

    add_extension(cert, issuer, NID_basic_constraints,
                  options->basic != NULL ? options->basic : basic);
    add_extension(cert, issuer, NID_key_usage,
                  options->key_usage != NULL ? options->key_usage : usage);
    add_extension(cert, issuer, NID_ext_key_usage, options->extended_usage);
    add_extension(cert, issuer, NID_name_constraints, options->name_limit);
    add_extension(cert, issuer, NID_subject_alt_name, options->alt_names);
    if (options->alt_names != NULL && strchr(options->alt_names, NUL_MARK) != NULL)
        put_nul_in_alt_names(cert);
    if (options->has_unknown_critical)
        add_unknown_critical(cert);
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
    X509 *issuer = authority != NULL ? authority->cert : cert;
    const char *digest = options->digest != NULL ? options->digest : "SHA256";

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), atomic_fetch_add(&serial, 1));
    set_dates(cert, options);
    set_subject(cert, options->name);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    X509_set_pubkey(cert, key);
    add_extensions(cert, issuer, options);
    if (X509_sign(cert, authority != NULL ? authority->key : key, EVP_get_digestbyname(digest)) ==
        0) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

struct fake_authority *fake_authority_issue(const struct fake_authority *issuer,
                                            const struct fake_cert_options *options)
{
    struct fake_authority *authority = calloc(1, sizeof(*authority));

    if (authority == NULL)
        return NULL;
    authority->key = make_key(options->rsa_bits);
    if (authority->key != NULL)
        authority->cert = make_cert(authority->key, issuer, options);
    if (authority->cert != NULL)
        authority->pem = cert_text(authority->cert);
    if (authority->pem == NULL) {
        fake_authority_free(authority);
        return NULL;
    }
    return authority;
}

struct fake_authority *fake_authority_new(const char *name)
{
    const struct fake_cert_options options = {
        .name = name, .is_timeless = true, .is_authority = true};

    return fake_authority_issue(NULL, &options);
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
    EVP_PKEY *key = make_key(options->rsa_bits);
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

bool fake_certs_init(struct fake_authority **ret_authority, struct fake_cert *one,
                     const struct fake_cert_options *options_of_one, struct fake_cert *other,
                     const struct fake_cert_options *options_of_other)
{
    *ret_authority = fake_authority_new("authority");
    return fake_cert_init(one, *ret_authority, options_of_one) &&
           fake_cert_init(other, *ret_authority, options_of_other);
}

void fake_certs_fini(struct fake_authority *authority, struct fake_cert *one,
                     struct fake_cert *other)
{
    fake_cert_fini(one);
    fake_cert_fini(other);
    fake_authority_free(authority);
}
