/* An authority with a server and a client; RSA keys of service accounts. */
#include "fake_identity.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_authority.h"

#define DAY_S (24L * 3600)

static char *text_of(BIO *bio)
{
    char *bytes = NULL;
    long count = BIO_get_mem_data(bio, &bytes);
    char *text = count > 0 ? strndup(bytes, (size_t)count) : NULL;

    BIO_free(bio);
    return text;
}

static char *key_text(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());

    PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
    return text_of(bio);
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

struct fake_identity *fake_identity_new(const struct fake_identity_options *options)
{
    char names[512];
    struct fake_identity *identity = calloc(1, sizeof(*identity));
    struct fake_authority *authority = fake_authority_new("fake-authority");
    const struct fake_cert_options server_options = {
        .name = "fake-cloud",
        .alt_names = names,
        .from_s = -30 * DAY_S,
        .until_s = options->is_expired ? -DAY_S : 30 * DAY_S,
    };
    struct fake_cert server = {.cert_pem = NULL}, client = {.cert_pem = NULL};
    bool is_made;

    add_names(names, sizeof(names), options->dns_names);
    is_made =
        identity != NULL && authority != NULL &&
        fake_cert_init(&server, authority, &server_options) &&
        fake_cert_init(&client, authority, &(struct fake_cert_options){.name = "fake-client"});
    if (is_made)
        *identity = (struct fake_identity){
            .ca_pem = strdup(fake_authority_pem(authority)),
            .server_cert_pem = server.cert_pem,
            .server_key_pem = server.key_pem,
            .client_cert_pem = client.cert_pem,
            .client_key_pem = client.key_pem,
        };
    fake_authority_free(authority);
    if (is_made)
        return identity;
    fake_cert_fini(&server);
    fake_cert_fini(&client);
    free(identity);
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
