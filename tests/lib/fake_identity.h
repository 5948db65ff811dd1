/* Certificates made at run time: an authority, a server of loopback (sound or expired), a client. */
#ifndef MUSTER_FAKE_IDENTITY_H
#define MUSTER_FAKE_IDENTITY_H

#include <stdbool.h>

struct fake_identity_options {
    bool is_expired;       /* the server's certificate ended a day ago */
    const char *dns_names; /* further names of the server, "a.test,b.test"; NULL: none */
};

/** Texts are PEM. The server is localhost, 127.0.0.1 and ::1. */
struct fake_identity {
    char *ca_pem;
    char *server_cert_pem, *server_key_pem;
    char *client_cert_pem, *client_key_pem; /* "CN=fake-client" of the same authority */
};

/** Gives; NULL when OpenSSL fails. */
struct fake_identity *fake_identity_new(const struct fake_identity_options *options);
void fake_identity_free(struct fake_identity *identity);

/** A new RSA key of 2048 bits (PKCS 8 PEM, for service accounts) and its public half. False: OpenSSL failed.
 * The texts are the caller's (free). */
bool fake_rsa_key_new(char **ret_private_pem, char **ret_public_pem);
/** Is signature RS256 of text under that public key? */
bool fake_rsa_is_signed(const char *public_pem, const char *text, unsigned long text_bytes,
                        const unsigned char *signature, unsigned long signature_bytes);

#endif
