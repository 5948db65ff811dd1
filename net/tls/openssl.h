/* Shared by the files that speak to OpenSSL's TLS. Only they include this header. */
#ifndef MUSTER_NET_TLS_OPENSSL_H
#define MUSTER_NET_TLS_OPENSSL_H

#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "net/tls/tls_internal.h"

#define MUSTER_TLS_HELLO_BYTES 9

#define MUSTER_TLS_NAMES_MAX 64 /* DNS names of a certificate that are kept */

struct muster_tls_context {
    struct muster_mem *mem;
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    bool has_cert;
    bool is_starved; /* while it was made: a certificate is missing, or cannot be used */
    uint64_t expires_s;
    uint32_t refs;
    char ca_name[80]; /* what the roots came from, for texts */
};

/** Owns its names. */
struct muster_tls_peer {
    struct muster_identity identity;
    char *spiffe_id;
    char *dns_names[MUSTER_TLS_NAMES_MAX];
    char *subject;
    bool is_known;
};

struct muster_tls_engine {
    struct muster_tls_engine_options options;
    struct muster_tls_context *context;
    SSL *ssl;
    struct muster_error error;
    struct muster_tls_peer peer;
    unsigned char protocols[64]; /* wire form */
    unsigned protocols_bytes;
    char protocol[32];
    char server_name[256];
    bool has_failed_push;
    bool is_shaken;
    /* The peer's first bytes: the headers of its first record and message. */
    uint8_t hello[MUSTER_TLS_HELLO_BYTES];
    size_t hello_count;
};

/* net/tls/openssl.c */
struct muster_tls_context *muster_tls_context_ref(struct muster_tls_context *context);

/* net/tls/openssl_derive.c */
#define MUSTER_TLS_CURVE "P-256" /* of all keys that we make */
/** The same for the same secret and name. Gives; NULL: no memory. */
EVP_PKEY *muster_tls_openssl_derive(const char *name, const void *secret, size_t secret_bytes);

/* net/tls/openssl_engine.c */

/** Clients keep the sessions that servers give them; servers pick a protocol. */
void muster_tls_openssl_keep_sessions(SSL_CTX *ssl);

/* net/tls/openssl_peer.c: judging the peer's certificate. */

/** SSL_verify_cb: records why a certificate is refused in the engine's error. */
int muster_tls_openssl_verify(int is_ok, X509_STORE_CTX *store);
/** Check what a resumed session has skipped, and read the names for the owner. */
enum muster_rc muster_tls_openssl_accept(struct muster_tls_engine *engine);
void muster_tls_openssl_peer_fini(struct muster_tls_peer *peer, struct muster_mem *mem);
/** "Nov 22 05:47:30 2026 GMT". */
void muster_tls_openssl_time(const ASN1_TIME *time, char *out, size_t room);
/** Seconds from now, by the engine's clock; negative: it has passed. 0: it cannot be read. */
int64_t muster_tls_openssl_until_s(const struct muster_tls_engine *engine, const ASN1_TIME *time);
/** "3 d 4 h", "9 min 10 s": its two largest units, whatever the sign. */
#define MUSTER_TLS_SPAN_BYTES 64
const char *muster_tls_openssl_span(int64_t seconds, char out[MUSTER_TLS_SPAN_BYTES]);

/* net/tls/openssl_error.c */

/** Fill engine->error, unless it says something already, from OpenSSL's queue. */
void muster_tls_openssl_explain(struct muster_tls_engine *engine, int ssl_error);

#endif
