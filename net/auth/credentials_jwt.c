/* Signed assertions (RFC 7515, RFC 7519): header, claims and an RS256 signature, joined by dots.
 * credentials_exchange.c sends one for a token; the key and the result are secrets, which the
 * caller forgets. */
#include "net/auth/credentials_jwt.h"

#include <muster/json.h>
#include <string.h>

#include "net/stream/base64.h"
#include "net/tls/crypto.h"
#include "runtime/value/text.h"

/* RFC 4648 5 without padding, as RFC 7515 2 demands: the common alphabet with two characters
 * changed. */
static bool add_base64url(struct muster_text *text, const void *bytes, size_t size)
{
    char *encoded = muster_mem_alloc(text->mem, muster_base64_encoded_bytes(size));
    size_t count;

    if (encoded == NULL)
        return false;
    count = muster_base64_encode(bytes, size, encoded);
    for (size_t i = 0; i < count; i++) {
        if (encoded[i] == '+')
            encoded[i] = '-';
        else if (encoded[i] == '/')
            encoded[i] = '_';
    }
    muster_text_add(text, encoded, count);
    muster_mem_free(text->mem, encoded);
    return true;
}

/* Takes object, also on failure. */
static bool add_json(struct muster_text *text, struct muster_json *object)
{
    char *line = NULL;
    bool is_added = object != NULL &&
                    muster_json_format(object, false, text->mem, &line) == MUSTER_OK &&
                    add_base64url(text, line, strlen(line));

    muster_mem_free(text->mem, line);
    muster_json_free(object);
    return is_added;
}

static bool add_header(struct muster_text *text, const struct muster_jwt *jwt)
{
    struct muster_json *header = muster_json_object_new();
    bool is_set =
        muster_json_set(header, "alg", muster_json_text_new("RS256")) &&
        muster_json_set(header, "typ", muster_json_text_new("JWT")) &&
        (jwt->key_id == NULL || muster_json_set(header, "kid", muster_json_text_new(jwt->key_id)));

    /* add_json comes first because it frees the object, whatever could be set. */
    return add_json(text, header) && is_set;
}

static bool add_claims(struct muster_text *text, const struct muster_jwt *jwt)
{
    struct muster_json *claims = muster_json_object_new();
    int64_t now_s = (int64_t)(jwt->wall_ns / MUSTER_NS_PER_S);
    bool is_set =
        muster_json_set(claims, "iss", muster_json_text_new(jwt->issuer)) &&
        muster_json_set(claims, "scope", muster_json_text_new(jwt->scope)) &&
        muster_json_set(claims, "aud", muster_json_text_new(jwt->audience)) &&
        muster_json_set(claims, "iat", muster_json_integer_new(now_s)) &&
        muster_json_set(claims, "exp", muster_json_integer_new(now_s + MUSTER_JWT_LIFE_S));

    return add_json(text, claims) && is_set;
}

enum muster_rc muster_jwt_sign(const struct muster_jwt *jwt, struct muster_mem *mem,
                               char **ret_text, struct muster_error *ret_error)
{
    struct muster_text text;
    uint8_t *signature = NULL;
    size_t signature_bytes = 0, count;
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    muster_text_init(&text, mem);
    if (add_header(&text, jwt)) {
        muster_text_add(&text, ".", 1);
        if (add_claims(&text, jwt) && !text.is_failed)
            rc = MUSTER_OK;
    }
    if (rc == MUSTER_OK)
        rc = muster_crypto_sign_rs256(jwt->key_pem, text.bytes, text.count, mem, &signature,
                                      &signature_bytes, ret_error);
    else
        (void)muster_error_set(ret_error, rc, "no memory");
    if (rc == MUSTER_OK) {
        muster_text_add(&text, ".", 1);
        rc = add_base64url(&text, signature, signature_bytes)
                 ? muster_text_take(&text, ret_text, &count)
                 : MUSTER_RESOURCE_EXHAUSTED;
        if (rc != MUSTER_OK)
            (void)muster_error_set(ret_error, rc, "no memory");
    }
    muster_mem_free(mem, signature);
    muster_text_fini(&text);
    return rc;
}
