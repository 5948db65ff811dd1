/* Matching of names from certificates against patterns: this decides who may do something. */
#include <muster/tls.h>

#include <string.h>
#include <strings.h>

#include "net/tls/name_pattern.h"

/* One kind of name counts, the most specific that the certificate has. If others did as well, an
 * issuer of SPIFFE IDs could put a DNS name beside one and so make it pass another rule. The
 * subject counts only without alternative names (RFC 6125 6.4.4). */
bool muster_identity_matches(const struct muster_identity *identity, const char *pattern)
{
    if (identity == NULL)
        return false;
    if (identity->spiffe_id != NULL)
        return muster_name_matches(identity->spiffe_id, pattern, strncmp);
    for (size_t i = 0; i < identity->dns_name_count; i++)
        if (muster_name_matches(identity->dns_names[i], pattern, strncasecmp))
            return true;
    return identity->dns_name_count == 0 &&
           muster_name_matches(identity->subject, pattern, strncmp);
}

const char *muster_identity_name(const struct muster_identity *identity)
{
    if (identity == NULL)
        return "nobody";
    if (identity->spiffe_id != NULL)
        return identity->spiffe_id;
    return identity->dns_name_count > 0 ? identity->dns_names[0] : identity->subject;
}
