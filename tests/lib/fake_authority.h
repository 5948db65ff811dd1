/* A certificate authority in memory: issues what a test asks for, sound or not. */
#ifndef MUSTER_FAKE_AUTHORITY_H
#define MUSTER_FAKE_AUTHORITY_H

#include <stdbool.h>

struct fake_authority;

#define FAKE_CERT_NONE "none" /* for what would be there otherwise */

/** '^' stands for a NUL byte in name and alt_names. Extensions are written as in openssl.cnf. */
struct fake_cert_options {
    const char *name;      /* CN of the subject */
    const char *alt_names; /* "DNS:localhost,IP:127.0.0.1,URI:spiffe://a/b"; NULL: none */
    long from_s, until_s;  /* from now; both 0: 30 days before and after */
    bool is_timeless;      /* 1970 to 2100: for simulated clocks */
    bool is_authority;
    const char *basic;                       /* constraints instead of those of is_authority */
    const char *key_usage;                   /* instead of that of is_authority */
    const char *extended_usage, *name_limit; /* extended key usage, name constraints; NULL: none */
    const char *digest;                      /* NULL: SHA-256 */
    unsigned rsa_bits;                       /* 0: P-256 */
    bool has_unknown_critical;               /* an extension that nobody knows */
};

/** Gives; NULL when OpenSSL fails. */
struct fake_authority *fake_authority_new(const char *name);
/** One that another has issued, as sound as options make it. */
struct fake_authority *fake_authority_issue(const struct fake_authority *issuer,
                                            const struct fake_cert_options *options);
void fake_authority_free(struct fake_authority *authority);
/** Its own certificate in PEM. Borrowed. */
const char *fake_authority_pem(const struct fake_authority *authority);

struct fake_cert {
    char *cert_pem, *key_pem;
};

/** authority NULL: signed by itself. On a new key. False: OpenSSL failed. */
bool fake_cert_init(struct fake_cert *cert, const struct fake_authority *authority,
                    const struct fake_cert_options *options);
void fake_cert_fini(struct fake_cert *cert);

/** For a main: a new authority and two certificates of it. False: OpenSSL failed. */
bool fake_certs_init(struct fake_authority **ret_authority, struct fake_cert *one,
                     const struct fake_cert_options *options_of_one, struct fake_cert *other,
                     const struct fake_cert_options *options_of_other);
void fake_certs_fini(struct fake_authority *authority, struct fake_cert *one,
                     struct fake_cert *other);

#endif
