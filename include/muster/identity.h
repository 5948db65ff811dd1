/* Who a peer is, by a certificate that was verified. */
#ifndef MUSTER_IDENTITY_H
#define MUSTER_IDENTITY_H

#include <muster/base.h>

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

MUSTER_END

#endif
