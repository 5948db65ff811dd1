/* URLs: RFC 3986 as far as http and https need it. No text of an error quotes more than the host,
 * because path and query may hold secrets. Anything doubtful is refused rather than
 * guessed, because curl reads the same text again, and two readings of one URL lead to two
 * servers. */
#include "net/http/url.h"

#include <muster/http.h>

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/value/hex.h"

#define PORT_HTTP      80 /* RFC 9110 4.2.1 */
#define PORT_HTTPS     443 /* RFC 9110 4.2.2 */
#define HOST_BYTES_MAX 253 /* of a name in DNS, as text (RFC 1035 2.3.4) */

static bool is_unreserved(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7f)
            return false;
    return true;
}

/* The length of "scheme:" without the colon (RFC 3986 3.1), or 0. */
static size_t scheme_length(const char *text)
{
    size_t length = 0;

    if (!((text[0] | 0x20) >= 'a' && (text[0] | 0x20) <= 'z'))
        return 0;
    while (is_unreserved(text[length]) || text[length] == '+')
        length++;
    return text[length] == ':' ? length : 0;
}

static enum muster_rc parse_port(const char *text, size_t length, struct muster_http_url *url,
                                 struct muster_error *ret_error)
{
    uint32_t port = 0;
    bool is_number = true;

    if (length == 0) /* "host:" is the scheme's own port (RFC 3986 3.2.3) */
        return MUSTER_OK;
    for (size_t i = 0; is_number && i < length; i++) {
        is_number = text[i] >= '0' && text[i] <= '9' && port <= UINT16_MAX;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    if (!is_number || port == 0 || port > UINT16_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "url: the port after host %.*s must be a number from 1 to 65535",
                                (int)url->host_length, url->host);
    url->has_port = true;
    url->port = (uint16_t)port;
    return MUSTER_OK;
}

/* A percent sign within brackets begins the zone of a link-local address (RFC 6874). */
static bool is_host_text(const char *host, size_t length, bool is_bracketed)
{
    if (length == 0 || length > HOST_BYTES_MAX)
        return false;
    for (size_t i = 0; i < length; i++)
        if (is_bracketed
                ? (strchr("0123456789abcdefABCDEF:.%", host[i]) == NULL && !is_unreserved(host[i]))
                : !is_unreserved(host[i]))
            return false;
    return true;
}

/* "host", "host:port", "[v6]:port". A user name before an '@' is refused: it would be a secret in a
 * text that is logged, or make "https://good.example@bad.example" look like the former (RFC 3986
 * 7.6). */
static enum muster_rc parse_authority(const char *text, size_t length, struct muster_http_url *url,
                                      struct muster_error *ret_error)
{
    const char *end = text + length;
    const char *rest;
    bool is_bracketed = length > 0 && text[0] == '[';

    if (memchr(text, '@', length) != NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "url: must be without a user name and password");
    if (is_bracketed) {
        rest = memchr(text, ']', length);
        url->host = text + 1;
        url->host_length = rest == NULL ? 0 : (size_t)(rest - text) - 1;
        rest = rest == NULL ? end : rest + 1;
    } else {
        rest = memchr(text, ':', length);
        rest = rest == NULL ? end : rest;
        url->host = text;
        url->host_length = (size_t)(rest - text);
    }
    if (!is_host_text(url->host, url->host_length, is_bracketed))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "url: the host must be a name or an IP address, IPv6 in brackets");
    if (rest == end)
        return MUSTER_OK;
    if (*rest != ':')
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "url: after host %.*s only :port or a path may follow",
                                (int)url->host_length, url->host);
    return parse_port(rest + 1, (size_t)(end - rest) - 1, url, ret_error);
}

enum muster_rc muster_http_url_parse(const char *text, struct muster_http_url *ret_url,
                                     struct muster_error *ret_error)
{
    struct muster_http_url url = {.port = PORT_HTTP};
    enum muster_rc rc;
    size_t length;

    if (strlen(text) > MUSTER_HTTP_URL_BYTES_MAX || !is_printable(text))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "url: must be at most %u bytes without blanks and control characters",
            MUSTER_HTTP_URL_BYTES_MAX);
    if (strncasecmp(text, "https://", 8) == 0) {
        url.is_https = true;
        url.port = PORT_HTTPS;
        text += 8;
    } else if (strncasecmp(text, "http://", 7) == 0) {
        text += 7;
    } else {
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "url: must begin with http:// or https://");
    }
    length = strcspn(text, "/?#");
    rc = parse_authority(text, length, &url, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    url.path = text + length;
    url.path_length = strcspn(url.path, "?#");
    if (url.path[url.path_length] == '?') {
        url.query = url.path + url.path_length + 1;
        url.query_length = strcspn(url.query, "#");
    }
    *ret_url = url;
    return MUSTER_OK;
}

bool muster_http_url_is_same_origin(const struct muster_http_url *a,
                                    const struct muster_http_url *b)
{
    return a->is_https == b->is_https && a->port == b->port && a->host_length == b->host_length &&
           strncasecmp(a->host, b->host, a->host_length) == 0;
}

/* Resolving. */

/* RFC 3986 5.2.4 in place, on a path that begins with '/'. Returns the new length. */
static size_t remove_dot_segments(char *path)
{
    char *out = path;
    const char *in = path;

    while (*in == '/') {
        size_t length = 1 + strcspn(in + 1, "/");
        bool is_last = in[length] == '\0';
        bool is_dot = length == 2 && in[1] == '.';
        bool is_up = length == 3 && in[1] == '.' && in[2] == '.';

        if (is_up)
            while (out > path && *--out != '/')
                continue;
        if (!is_dot && !is_up) {
            memmove(out, in, length);
            out += length;
        } else if (is_last) {
            *out++ = '/';
        }
        in += length;
    }
    *out = '\0';
    return (size_t)(out - path);
}

static void add_origin(struct muster_text *text, const struct muster_http_url *url)
{
    bool is_v6 = memchr(url->host, ':', url->host_length) != NULL;

    muster_text_add_format(text, "%s://%s%.*s%s", url->is_https ? "https" : "http",
                           is_v6 ? "[" : "", (int)url->host_length, url->host, is_v6 ? "]" : "");
    if (url->has_port)
        muster_text_add_format(text, ":%u", url->port);
}

/* The path of a relative reference: its own, or merged with base's (RFC 3986 5.2.3). The dots go
 * from the joined path, so that "../" cannot lead above the root. */
static enum muster_rc add_path(struct muster_text *text, const struct muster_http_url *base,
                               const char *reference, size_t length, struct muster_mem *mem)
{
    size_t keep = base->path_length;
    size_t at = 0;
    char *path = muster_mem_alloc(mem, keep + length + 2);

    if (path == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    if (length > 0 && reference[0] == '/')
        keep = 0;
    else if (length > 0)
        while (keep > 0 && base->path[keep - 1] != '/')
            keep--;
    if (keep == 0 && (length == 0 || reference[0] != '/'))
        path[at++] = '/';
    memcpy(path + at, base->path, keep);
    memcpy(path + at + keep, reference, length);
    path[at + keep + length] = '\0';
    muster_text_add(text, path, remove_dot_segments(path));
    muster_mem_free(mem, path);
    return MUSTER_OK;
}

/* RFC 3986 5.2.2, from the most to the least that a reference may say by itself. */
static enum muster_rc build_resolved(struct muster_text *text, const struct muster_http_url *base,
                                     const char *reference, struct muster_mem *mem)
{
    size_t length = strcspn(reference, "#");
    size_t path_length = strcspn(reference, "?#");
    enum muster_rc rc;

    if (scheme_length(reference) > 0) {
        muster_text_add(text, reference, length);
        return MUSTER_OK;
    }
    if (reference[0] == '/' && reference[1] == '/') {
        muster_text_add_string(text, base->is_https ? "https:" : "http:");
        muster_text_add(text, reference, length);
        return MUSTER_OK;
    }
    add_origin(text, base);
    rc = add_path(text, base, reference, path_length, mem);
    if (rc != MUSTER_OK)
        return rc;
    if (length > path_length) {
        muster_text_add(text, reference + path_length, length - path_length);
    } else if (path_length == 0 && base->query != NULL) {
        muster_text_add(text, "?", 1);
        muster_text_add(text, base->query, base->query_length);
    }
    return MUSTER_OK;
}

enum muster_rc muster_http_url_resolve(const char *base_text, const char *reference,
                                       struct muster_mem *mem, char **ret_url,
                                       struct muster_error *ret_error)
{
    struct muster_http_url base, result;
    struct muster_text text;
    size_t count;
    char *url = NULL;
    enum muster_rc rc = muster_http_url_parse(base_text, &base, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (strlen(reference) > MUSTER_HTTP_URL_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "url: a redirect must be at most %u bytes",
                                MUSTER_HTTP_URL_BYTES_MAX);
    muster_text_init(&text, mem);
    rc = build_resolved(&text, &base, reference, mem);
    if (rc == MUSTER_OK)
        rc = muster_text_take(&text, &url, &count);
    muster_text_fini(&text);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "url: no memory");
    rc = muster_http_url_parse(url, &result, ret_error);
    if (rc != MUSTER_OK) {
        muster_mem_free(mem, url);
        return rc;
    }
    *ret_url = url;
    return MUSTER_OK;
}

/* Hiding. */

bool muster_http_is_secret_header(const char *name)
{
    static const char *const words[] = {"authorization", "cookie", "token", "api-key"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasestr(name, words[i]) != NULL)
            return true;
    return false;
}

/* A part of the name is enough: hiding "keyboard" costs less than showing "apiKey". */
static bool is_secret_name(const char *name, size_t length)
{
    static const char *const words[] = {"token",     "key",    "secret", "passw",
                                        "signature", "sig",    "code",   "assertion",
                                        "cred",      "bearer", "auth",   "jwt"};

    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
        for (size_t at = 0; at + strlen(words[w]) <= length; at++)
            if (strncasecmp(name + at, words[w], strlen(words[w])) == 0)
                return true;
    return false;
}

/* `out` always has its NUL, and what does not fit is dropped. */
static void add_cut(char *out, size_t room, size_t *at, const char *bytes, size_t count)
{
    MUSTER_ASSERT(*at < room);
    if (count > room - 1 - *at)
        count = room - 1 - *at;
    memcpy(out + *at, bytes, count);
    *at += count;
    out[*at] = '\0';
}

/* One "name=value" of a query. A name with an escape in it is not decoded, and hidden to be
 * safe. */
static void add_parameter(char *out, size_t room, size_t *at, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    size_t name_length = equals == NULL ? length : (size_t)(equals - text);

    if (equals != NULL && (is_secret_name(text, name_length) || memchr(text, '%', name_length))) {
        add_cut(out, room, at, text, name_length + 1);
        add_cut(out, room, at, "***", 3);
    } else {
        add_cut(out, room, at, text, length);
    }
}

static char *redact_url(const char *text, bool has_query, char *out, size_t room)
{
    const char *authority = strstr(text, "://");
    size_t path_end = strcspn(text, "?#");
    size_t at = 0, start = 0;

    if (authority != NULL && authority < text + path_end) {
        const char *host = authority + 3;
        size_t length = strcspn(host, "/?#");

        for (size_t i = length; i > 0; i--)
            if (host[i - 1] == '@') { /* what stands before it may be a password */
                add_cut(out, room, &at, text, (size_t)(host - text));
                start = (size_t)(host - text) + i;
                break;
            }
    }
    add_cut(out, room, &at, text + start, path_end - start);
    text += path_end;
    if (*text != '?' || !has_query)
        return out;
    do {
        size_t length = strcspn(text + 1, "&;#");

        add_cut(out, room, &at, text, 1);
        add_parameter(out, room, &at, text + 1, length);
        text += 1 + length;
    } while (*text == '&' || *text == ';');
    return out;
}

char *muster_http_url_redact(const char *text, char *out, size_t room)
{
    out[0] = '\0';
    return redact_url(text, true, out, room);
}

char *muster_http_url_redact_short(const char *text, char *out, size_t room)
{
    out[0] = '\0';
    return redact_url(text, false, out, room);
}

void muster_http_redact_secret(char *text, const char *secret)
{
    size_t length = secret == NULL ? 0 : strlen(secret);

    /* Shorter ones would be found in ordinary words. */
    if (length < 4)
        return;
    while ((text = strstr(text, secret)) != NULL) {
        memset(text, '*', length);
        text += length;
    }
}

/* Escapes. */

void muster_http_url_add_encoded(struct muster_text *text, const char *raw, const char *keep)
{
    for (; *raw != '\0'; raw++) {
        if (is_unreserved(*raw) || strchr(keep, *raw) != NULL)
            muster_text_add(text, raw, 1);
        else
            muster_text_add_format(text, "%%%02X", (unsigned)(unsigned char)*raw);
    }
}

bool muster_http_url_decode(const char *encoded, size_t length, bool is_form, char *out)
{
    for (size_t i = 0; i < length; i++) {
        char c = encoded[i];

        if (c == '%') {
            int high = i + 2 < length ? muster_hex_digit(encoded[i + 1]) : -1;
            int low = i + 2 < length ? muster_hex_digit(encoded[i + 2]) : -1;

            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && is_form) {
            c = ' ';
        }
        *out++ = c;
    }
    *out = '\0';
    return true;
}
