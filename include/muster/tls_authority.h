/* A certificate authority in memory: for a job whose tasks shall know each other, and for tests. */
#ifndef MUSTER_TLS_AUTHORITY_H
#define MUSTER_TLS_AUTHORITY_H

#include <muster/base.h>
#include <muster/env.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_tls_authority;

/** What a certificate says. */
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
