/* The assertion by which a service account asks for a token (RFC 7523; RFC 7519). */
#ifndef MUSTER_NET_CREDENTIALS_JWT_H
#define MUSTER_NET_CREDENTIALS_JWT_H

#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_JWT_LIFE_S 3600

/** All texts are borrowed during the call. */
struct muster_jwt {
    const char *issuer;
    const char *scope;
    const char *audience;
    const char *key_id;  /* or NULL */
    const char *key_pem; /* RSA */
    uint64_t wall_ns;    /* now */
};

/** Header, claims (iss, scope, aud, iat, exp an hour later) and RS256 signature, each in base64url. Gives.
 * Errors: INVALID_ARGUMENT (key), RESOURCE_EXHAUSTED, INTERNAL. */
MUSTER_MUST_CHECK enum muster_rc muster_jwt_sign(const struct muster_jwt *jwt,
                                                 struct muster_mem *mem, char **ret_text,
                                                 struct muster_error *ret_error);

#endif
