/* Matching of names from certificates against patterns. */
#include <muster/identity.h>

#include <string.h>
#include <strings.h>

typedef int compare_fn(const char *left, const char *right, size_t count);

static bool matches(const char *name, const char *pattern, compare_fn *compare)
{
    size_t length = strlen(pattern);
    size_t name_length = strlen(name);

    if (length > 0 && pattern[length - 1] == '*')
        return name_length >= length - 1 && compare(name, pattern, length - 1) == 0;
    if (pattern[0] == '*')
        return name_length >= length - 1 &&
               compare(name + name_length - (length - 1), pattern + 1, length - 1) == 0;
    return name_length == length && compare(name, pattern, length) == 0;
}

bool muster_identity_matches(const struct muster_identity *identity, const char *pattern)
{
    if (identity == NULL)
        return false;
    if (identity->spiffe_id != NULL)
        return matches(identity->spiffe_id, pattern, strncmp);
    for (size_t i = 0; i < identity->dns_name_count; i++)
        if (matches(identity->dns_names[i], pattern, strncasecmp))
            return true;
    return identity->dns_name_count == 0 && matches(identity->subject, pattern, strncmp);
}

const char *muster_identity_name(const struct muster_identity *identity)
{
    if (identity == NULL)
        return "nobody";
    if (identity->spiffe_id != NULL)
        return identity->spiffe_id;
    return identity->dns_name_count > 0 ? identity->dns_names[0] : identity->subject;
}
