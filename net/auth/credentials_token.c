/* A token server's answer, read: the token and how long it lasts. It serves all kinds of
 * credentials: OAuth 2.0 has access_token and expires_in (RFC 6749 5.1), Google's IAM has
 * accessToken and expireTime. */
#include "net/http/credentials_internal.h"

#include <stdlib.h>
#include <string.h>

#include "net/http/retry.h"

#define LIFE_S_DEFAULT 300 /* RFC 6749 5.1: expires_in is only recommended */
/* A token that lasts longer than a year is a mistake of its server. */
#define LIFE_S_MAX (366 * 24 * 3600)

/* A number, or a number as text: some servers write the latter. NaN fails both comparisons. */
static bool read_seconds(const struct muster_json *value, int64_t *ret_s)
{
    const char *text = muster_json_text(value);
    double number = muster_json_number(value);
    char *end;

    if (text != NULL) {
        number = strtod(text, &end);
        if (end == text || *end != '\0')
            return false;
    } else if (muster_json_kind(value) != MUSTER_JSON_INTEGER &&
               muster_json_kind(value) != MUSTER_JSON_REAL) {
        return false;
    }
    if (!(number >= 0 && number <= LIFE_S_MAX))
        return false;
    *ret_s = (int64_t)number;
    return true;
}

static enum muster_rc read_lifetime(const struct muster_json *root, uint64_t wall_ns,
                                    uint64_t *ret_lifetime_ns, struct muster_error *ret_error)
{
    const struct muster_json *expires_in = muster_json_member(root, "expires_in");
    const char *expire_time = muster_json_text(muster_json_member(root, "expireTime"));
    int64_t seconds = LIFE_S_DEFAULT;

    if (expire_time != NULL) {
        if (muster_http_timestamp_parse(expire_time, wall_ns, ret_lifetime_ns) == MUSTER_OK)
            return MUSTER_OK;
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the token server's expireTime is not a time");
    }
    if (muster_json_kind(expires_in) != MUSTER_JSON_NULL && !read_seconds(expires_in, &seconds))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the token server's expires_in is not a number of seconds");
    *ret_lifetime_ns = (uint64_t)seconds * MUSTER_NS_PER_S;
    return MUSTER_OK;
}

enum muster_rc muster_token_answer_read(const struct muster_json *root, uint64_t wall_ns,
                                        const char **ret_token, uint64_t *ret_lifetime_ns,
                                        struct muster_error *ret_error)
{
    const char *token = muster_json_text(muster_json_member(root, "access_token"));
    const char *type = muster_json_text(muster_json_member(root, "token_type"));
    uint64_t lifetime_ns = 0;
    enum muster_rc rc;

    if (token == NULL)
        token = muster_json_text(muster_json_member(root, "accessToken"));
    /* It becomes part of a header, so a line feed in it could add others. */
    if (token == NULL || !muster_token_is_valid(token))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the token server's answer holds no usable access_token");
    if (type != NULL && strcasecmp(type, "Bearer") != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the token server's token_type is not Bearer");
    rc = read_lifetime(root, wall_ns, &lifetime_ns, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    *ret_token = token;
    *ret_lifetime_ns = lifetime_ns;
    return MUSTER_OK;
}
