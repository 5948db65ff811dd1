/* TLS: a peer's identity from its verified certificate, options of contexts, and a job's own
 * authority. */
#ifndef MUSTER_TLS_H
#define MUSTER_TLS_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

/** Names of a verified certificate. Borrowed from the connection that it came over. */
struct muster_identity {
    const char *spiffe_id; /* "spiffe://trust.domain/path"; NULL: none */
    const char *const *dns_names;
    size_t dns_name_count;
    const char *subject; /* "CN=worker-3,O=example" (RFC 2253); may be empty */
};

/**
 * Does one of the identity's names match pattern? Names of the certificate count in the order of
 * gRPC A43: the SPIFFE id, else the DNS names, else the subject. A `*` at one end of pattern
 * stands for any text ("spiffe://example.org/job/7/" followed by a star); a lone `*` matches every
 * identity. DNS names are compared without regard to case.
 *
 * Errors:  false for identity NULL (a peer that showed no certificate).
 */
MUSTER_API bool muster_identity_matches(const struct muster_identity *identity,
                                        const char *pattern);

/** The name that stands for the identity in logs and texts: the SPIFFE id, else the first DNS name,
 * else the subject; "nobody" for NULL. Borrowed. */
MUSTER_API const char *muster_identity_name(const struct muster_identity *identity);

/* TLS 1.2 and 1.3: a credential says who we are, whom we trust, and what is demanded of peers. */

struct muster_tls;

enum muster_tls_version {
    MUSTER_TLS_VERSION_DEFAULT, /* 1.2 */
    MUSTER_TLS_VERSION_1_2,
    MUSTER_TLS_VERSION_1_3,
};

/** Each of certificate, key and roots comes as a file or as PEM text, not both. Texts and arrays
 * are copied by open. */
struct muster_tls_options {
    const char *cert_file, *cert_pem; /* our certificate, then its issuers; servers need one */
    const char *key_file, *key_pem;   /* its private key, PKCS 8 or traditional, no pass phrase */
    const char *ca_file, *ca_pem;     /* the roots that we trust; none: the system's */
    bool is_peer_required;            /* a server demands a certificate of its clients (mTLS) */
    enum muster_tls_version version_min;
    /** Patterns of muster_identity_matches, one of which a peer's certificate must satisfy. For a
     * client they stand instead of the comparison with the name that it dialled; none: that
     * comparison. For a server they demand a certificate of its clients, as is_peer_required does;
     * none: any certificate under the roots. */
    const char *const *peer_names;
    size_t peer_name_count;
    uint64_t reload_interval_ns; /* how often the files are looked at; 0: 60 s, UINT64_MAX: never */
};

/**
 * Load a credential for any number of channels and servers. Files are looked at again from time
 * to time, and handshakes that begin after a change use what the files hold then; open
 * connections go on. What cannot be used is logged and the former is kept.
 *
 * Owns:    borrows env until the last connection is closed; gives *ret_tls.
 * Errors:  NOT_FOUND, PERMISSION_DENIED (a file; the text names it), INVALID_ARGUMENT (no PEM, no
 *          regular file, a key that does not belong to the certificate, a file and a text of one kind),
 *          RESOURCE_EXHAUSTED.
 * Thread:  loop only.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tls_open(
    struct muster_env *env, const struct muster_tls_options *options, struct muster_tls **ret_tls,
    struct muster_error *ret_error);

/** One more share of tls, to be closed as well. Returns tls. */
MUSTER_API struct muster_tls *muster_tls_share(struct muster_tls *tls);

/** Others hold a share: channels, servers, connections that are not closed. */
MUSTER_API bool muster_tls_is_shared(const struct muster_tls *tls);

/** Gives up the caller's share: channels, servers and connections that use it keep theirs. NULL
 * is accepted. */
MUSTER_API void muster_tls_close(struct muster_tls *tls);

/** Look at the files now. OK also when nothing has changed. Errors as muster_tls_open, and
 * FAILED_PRECONDITION (a new certificate that has expired); then the former is kept. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tls_reload(struct muster_tls *tls,
                                                              struct muster_error *ret_error);

/** Wall clock, s since 1970, at which our certificate ends; 0 without one. */
MUSTER_API uint64_t muster_tls_expires_s(const struct muster_tls *tls);

/* A certificate authority in memory: for a job whose tasks shall know each other, and for tests. */

struct muster_tls_authority;

/** Names and key that a certificate is made for. */
struct muster_tls_subject {
    const char *name;      /* CN, at most 64 characters */
    const char *spiffe_id; /* NULL: none */
    const char *alt_names; /* "DNS:localhost,IP:127.0.0.1"; NULL: none */
    uint64_t life_s;       /* from now; begins five minutes ago, for clocks that differ */
};

/** A new authority with an EC P-256 key that never leaves the process. Borrows env. Gives. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tls_authority_new(
    struct muster_env *env, const char *name, struct muster_tls_authority **ret_authority);

#define MUSTER_TLS_SECRET_BYTES_MIN 32

/** The authority whose key follows from secret and name (HKDF-SHA-256, docs/tls.md): the same in every
 * process that has both, though each signs a certificate of its own with it; what one issues, all who
 * trust any of them accept. Who has the secret can issue anything: it must be random, and kept.
 * Borrows env. Gives. Errors: INVALID_ARGUMENT (a shorter secret), RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tls_authority_derive(
    struct muster_env *env, const char *name, const void *secret, size_t secret_bytes,
    struct muster_tls_authority **ret_authority);
MUSTER_API void muster_tls_authority_free(struct muster_tls_authority *authority);

/** Its own certificate, PEM: what its subjects trust. Borrowed. */
MUSTER_API const char *muster_tls_authority_pem(const struct muster_tls_authority *authority);

/** A certificate for both ends of connections and its new EC P-256 key, joined in one PEM text.
 * Gives. Errors: INVALID_ARGUMENT (names that no certificate can carry), RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tls_authority_issue(
    struct muster_tls_authority *authority, const struct muster_tls_subject *subject,
    char **ret_pem, struct muster_error *ret_error);

MUSTER_END

#endif
