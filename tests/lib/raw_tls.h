/* A peer that speaks TLS by OpenSSL as loosely as a case wants, and tells what it has seen. */
#ifndef MUSTER_TEST_RAW_TLS_H
#define MUSTER_TEST_RAW_TLS_H

#include <muster/address.h>
#include <muster/env.h>
#include <openssl/ssl.h>

#include "fake_authority.h"

#define RAW_TLS_HELLO_BYTES 2048

/** NULL and 0: whatever OpenSSL has, TLS 1.0 and keys of any length included. */
struct raw_tls_options {
    bool is_server;
    const struct fake_cert *cert; /* NULL: none; issuers may follow in cert_pem */
    int version_min, version_max; /* TLS1_2_VERSION */
    const char *ciphers;          /* of TLS 1.2 and before */
    const char *ciphersuites;     /* of TLS 1.3 */
    const char *groups;
    const char *protocols;   /* ALPN: a client offers them ("h2,other"), a server answers by the
                              * whole text, whatever was offered */
    const char *server_name; /* a client's SNI */
    SSL_SESSION *session;    /* which a client resumes */
    bool asks_for_cert;      /* a server takes any, or none */
    bool has_own_field;      /* a server has a finite field for DHE */
    bool has_no_tickets;     /* a client asks for none: sessions of TLS 1.2 have ids */
    unsigned ticket_count;   /* that a server of TLS 1.3 gives to a client */
};

struct raw_tls {
    SSL_CTX *context;
    SSL *ssl; /* NULL: nobody is there */
    int listen_fd, fd;
    bool is_shaken, is_over;
    char reason[160]; /* why it is over, as OpenSSL says it */
    uint8_t heard[256];
    size_t heard_count;
    SSL_SESSION *session; /* the last that it was given */
    unsigned session_count;
    uint8_t hello[RAW_TLS_HELLO_BYTES]; /* a server: the client's, from its version on */
    size_t hello_count;
    unsigned alerts[256]; /* how often the peer sent the alert of that number */
    struct raw_tls_options options;
};

/** Blocks of memory that OpenSSL holds, once a policy is set. */
long raw_tls_block_count(void);

/** All libraries of this process behave as if openssl.cnf said so; before any of them is used. lax:
 * everything that OpenSSL can is allowed; otherwise what distributions allow. */
void raw_tls_set_policy(bool is_lax);

/** Borrows the certificate until fini. Fails the case where OpenSSL does. */
void raw_tls_init(struct raw_tls *raw, const struct raw_tls_options *options);
void raw_tls_fini(struct raw_tls *raw);

/** Ends the connection; its sessions stay good. */
void raw_tls_hang_up(struct raw_tls *raw);

/** One of them begins. take: a connected descriptor, which is duplicated. */
void raw_tls_listen(struct raw_tls *raw, struct muster_address *ret_address);
void raw_tls_connect(struct raw_tls *raw, const struct muster_address *address);
void raw_tls_take(struct raw_tls *raw, int fd);

/** Do all that can be done without waiting. */
void raw_tls_step(struct raw_tls *raw);
/** Ask for another handshake (TLS 1.2). */
void raw_tls_renegotiate(struct raw_tls *raw);
/** Encrypted, as application data. */
void raw_tls_say(struct raw_tls *raw, const void *bytes, size_t count);
/** Turn the loop and the peer until is_done; after 60 s the case fails. */
void raw_tls_run_until(struct raw_tls *raw, struct muster_env *env, bool (*is_done)(void *data),
                       void *data);

/** An extension of the hello that was heard; NULL: it is not there. */
const uint8_t *raw_tls_hello_extension(const struct raw_tls *raw, unsigned type, size_t *ret_count);
/** The list of its ciphers, two bytes each. */
const uint8_t *raw_tls_hello_ciphers(const struct raw_tls *raw, size_t *ret_count);

#endif
