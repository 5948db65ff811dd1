/* URLs of the HTTP client: taken apart, resolved against each other, shown without secrets. Pure.
 */
#ifndef MUSTER_NET_HTTP_URL_H
#define MUSTER_NET_HTTP_URL_H

#include <muster/mem.h>
#include <muster/status.h>

#include "runtime/value/text.h"

/** The parts of an absolute http or https URL; texts are borrowed from it and not terminated. */
struct muster_http_url {
    bool is_https;
    bool has_port;
    uint16_t port;    /* 80 or 443 when the text has none */
    const char *host; /* of an IPv6 address without its brackets */
    size_t host_length;
    const char *path; /* begins with '/', or is empty */
    size_t path_length;
    const char *query; /* without '?'; NULL: none */
    size_t query_length;
};

/** Errors: INVALID_ARGUMENT (another scheme, no host, a user name, a bad port, blanks or control
 * characters, more than MUSTER_HTTP_URL_BYTES_MAX bytes); the text of the error holds no part of
 * the URL but its scheme and host. */
MUSTER_MUST_CHECK enum muster_rc muster_http_url_parse(const char *text,
                                                       struct muster_http_url *ret_url,
                                                       struct muster_error *ret_error);

/** Same scheme, host (in any case) and port (RFC 6454 4). */
bool muster_http_url_is_same_origin(const struct muster_http_url *a,
                                    const struct muster_http_url *b);

/** The URL that `reference`, absolute or relative, means from `base` (RFC 3986 5.2); a fragment is
 * dropped. Gives. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_http_url_resolve(const char *base, const char *reference,
                                                         struct muster_mem *mem, char **ret_url,
                                                         struct muster_error *ret_error);

/** The URL for people, cut to room: without user name and fragment, and with "***" for the values
 * of query parameters whose names speak of a secret (token, key, secret, password, signature, ...).
 * Returns out. */
char *muster_http_url_redact(const char *text, char *out, size_t room);

/** As redact, and without any query: for error texts. */
char *muster_http_url_redact_short(const char *text, char *out, size_t room);

/** Does a header of this name carry a secret: a token, a cookie, a key? */
bool muster_http_is_secret_header(const char *name);

/** Overwrite every occurrence of secret (4 bytes or more; NULL or shorter: none) in text with '*'.
 */
void muster_http_redact_secret(char *text, const char *secret);

/** Percent-encode: unreserved characters (RFC 3986 2.3) and those of `keep` stay ("/" for a path).
 */
void muster_http_url_add_encoded(struct muster_text *text, const char *raw, const char *keep);

/** Decode %XX (a '+' too, when is_form) of length bytes into out, which has room for length + 1;
 * false for a broken escape or a NUL. */
bool muster_http_url_decode(const char *encoded, size_t length, bool is_form, char *out);

#endif
