/* Shared by the files of TLS: the credential, its generations, and the engine of one connection.
 * Free of OpenSSL: behind muster_tls_context and muster_tls_engine stand net/tls/openssl*.c. */
#ifndef MUSTER_NET_TLS_INTERNAL_H
#define MUSTER_NET_TLS_INTERNAL_H

#include <muster/address.h>
#include <muster/tls.h>

struct muster_tls_context; /* one generation of certificate, key and roots */
struct muster_tls_engine;  /* the TLS state of one connection; moves no bytes by itself */
struct muster_tls_sessions;

/** The material of a credential: PEM text, and where it came from (for texts of errors). */
struct muster_tls_material {
    const char *cert_pem, *key_pem, *ca_pem; /* NULL: none */
    const char *cert_name, *key_name, *ca_name;
    bool is_ca_text;    /* ca_pem comes from the program, not from a file */
    bool is_root_named; /* the environment says where the system's roots are */
    enum muster_tls_version version_min;
};

struct muster_tls {
    struct muster_env *env;
    struct muster_tls_options options; /* owns what it points to */
    uint32_t refs;
    struct muster_tls_context *context;
    uint64_t material_hash;
    uint64_t reload_interval_ns;
    struct muster_timer reload_timer;
    uint64_t refusal_logged_ns; /* 0: never */
};

/* tls.c */
/** A server has failed a handshake. A refused certificate is a warning for the operator, once in a
 * second; any other failure is logged at DEBUG. */
void muster_tls_log_refusal(struct muster_tls *tls, const struct muster_address *peer,
                            const struct muster_error *error);
/** s since 1970 by the environment's clock; 0: it has none, ask the system. */
uint64_t muster_tls_now_s(const struct muster_env *env);

/* net/tls/openssl.c: generations. */
MUSTER_MUST_CHECK enum muster_rc muster_tls_context_new(struct muster_mem *mem,
                                                        const struct muster_tls_material *material,
                                                        struct muster_tls_context **ret_context,
                                                        struct muster_error *ret_error);
void muster_tls_context_free(struct muster_tls_context *context);
bool muster_tls_context_has_cert(const struct muster_tls_context *context);
uint64_t muster_tls_context_expires_s(const struct muster_tls_context *context);

/* net/tls/openssl_engine.c */

enum muster_tls_step {
    MUSTER_TLS_DONE,
    MUSTER_TLS_HUNGRY, /* needs bytes that pull did not have */
    MUSTER_TLS_ENDED,  /* the peer said that it sends no more */
    MUSTER_TLS_FAILED, /* see muster_tls_engine_error */
};

struct muster_tls_engine_options {
    struct muster_mem *mem;
    bool is_server;
    bool is_peer_required;
    const char *server_name; /* of a client: name or address that the certificate must be for … */
    const char *other_name;  /* … or this DNS name, if not NULL */
    const char *protocols;   /* ALPN, "h2" or "h2,other"; one of them is demanded */
    const char *const *peer_names;
    size_t peer_name_count;
    uint64_t now_s;
    struct muster_tls_sessions *sessions; /* of a client; NULL: nothing is resumed */
    void *data;
    /** Up to count bytes that the peer has sent; 0: none now. */
    size_t (*pull)(void *data, void *bytes, size_t count);
    /** Takes bytes for the peer. False: no memory. */
    bool (*push)(void *data, const void *bytes, size_t count);
    /** The peer has sent a message of its own after the handshake (RFC 8446 4.6). False: too many
     * came, which ends the connection. */
    bool (*take_control)(void *data);
};

/** Borrows what options point to until close, but server_name and protocols. Gives. */
MUSTER_MUST_CHECK enum muster_rc muster_tls_engine_open(
    struct muster_tls_context *context, const struct muster_tls_engine_options *options,
    struct muster_tls_engine **ret_engine, struct muster_error *ret_error);
void muster_tls_engine_close(struct muster_tls_engine *engine);
enum muster_tls_step muster_tls_engine_handshake(struct muster_tls_engine *engine);
enum muster_tls_step muster_tls_engine_read(struct muster_tls_engine *engine, void *bytes,
                                            size_t count, size_t *ret_count);
/** All of count bytes, or FAILED. */
enum muster_tls_step muster_tls_engine_write(struct muster_tls_engine *engine, const void *bytes,
                                             size_t count);
/** Pushes close_notify. */
void muster_tls_engine_end(struct muster_tls_engine *engine);
const struct muster_error *muster_tls_engine_error(const struct muster_tls_engine *engine);
/** The peer has said a byte. */
bool muster_tls_engine_has_heard(const struct muster_tls_engine *engine);
/** The peer's verified names; NULL: it showed no certificate. */
const struct muster_identity *muster_tls_engine_identity(const struct muster_tls_engine *engine);
/** The protocol that both agreed upon. */
const char *muster_tls_engine_protocol(const struct muster_tls_engine *engine);
bool muster_tls_engine_is_resumed(const struct muster_tls_engine *engine);
/** RFC 5705, RFC 8446 7.5: key material that only the two ends of this connection know.
 * FAILED_PRECONDITION: TLS 1.2 without the extended master secret. */
MUSTER_MUST_CHECK enum muster_rc muster_tls_engine_export(struct muster_tls_engine *engine,
                                                          const char *label, uint8_t *ret_key,
                                                          size_t key_bytes);

/** The sessions that a client keeps to resume its next connections to the same name: at most 2.
 * Gives; NULL: no memory. */
struct muster_tls_sessions *muster_tls_sessions_new(struct muster_mem *mem);
void muster_tls_sessions_free(struct muster_tls_sessions *sessions);

#endif
