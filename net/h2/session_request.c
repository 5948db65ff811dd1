/* Checks that find a malformed request (RFC 9113 8.1.1, 8.2, 8.3). Each request carries, as bits,
 * what its headers have said so far. net/h2/session_events.c passes header by header and resets the
 * stream at the first fault. A server that lets such requests pass can be used for request
 * smuggling: a proxy and the server behind it then disagree about where a request ends. */
#include "net/h2/session_request.h"

#include <nghttp2/nghttp2.h>
#include <string.h>
#include <strings.h>

enum {
    HAS_METHOD = 1 << 0,
    HAS_SCHEME = 1 << 1,
    HAS_PATH = 1 << 2,
    HAS_AUTHORITY = 1 << 3,
    HAS_HOST = 1 << 4,
    HAS_CONTENT_LENGTH = 1 << 5,
    HAS_REGULAR = 1 << 6, /* no pseudo-header may follow */
    IS_CONNECT = 1 << 7,
    IS_OPTIONS = 1 << 8,
    IS_HTTP = 1 << 9,      /* the scheme is http or https */
    IS_ABSOLUTE = 1 << 10, /* the path begins with a slash */
    IS_ASTERISK = 1 << 11,
    IS_IN_BODY = 1 << 12, /* the first block is complete */
};

struct text {
    const uint8_t *at;
    size_t bytes;
};

static bool is_text(struct text text, const char *wanted)
{
    return text.bytes == strlen(wanted) && memcmp(text.at, wanted, text.bytes) == 0;
}

/* A second copy of a pseudo-header makes a request malformed (RFC 9113 8.3), and so does an empty
 * one. The same holds here for host and content-length, of which two would contradict each
 * other. */
static bool mark_seen(struct muster_h2_request *request, unsigned wanted, struct text value)
{
    bool is_first = (request->marks & wanted) == 0;

    request->marks |= (uint16_t)wanted;
    return is_first && value.bytes > 0;
}

static bool take_method(struct muster_h2_request *request, struct text value)
{
    if (is_text(value, "CONNECT"))
        request->marks |= IS_CONNECT;
    if (is_text(value, "OPTIONS"))
        request->marks |= IS_OPTIONS;
    return mark_seen(request, HAS_METHOD, value) &&
           nghttp2_check_method(value.at, value.bytes) != 0;
}

static bool take_path(struct muster_h2_request *request, struct text value)
{
    if (value.bytes > 0 && value.at[0] == '/')
        request->marks |= IS_ABSOLUTE;
    if (is_text(value, "*"))
        request->marks |= IS_ASTERISK;
    return mark_seen(request, HAS_PATH, value) && nghttp2_check_path(value.at, value.bytes) != 0;
}

/* RFC 3986 3.1. The schemes of HTTP are noted: only for these must a path be absolute. */
static bool take_scheme(struct muster_h2_request *request, struct text value)
{
    if ((value.bytes == 4 || value.bytes == 5) &&
        strncasecmp((const char *)value.at, "https", value.bytes) == 0)
        request->marks |= IS_HTTP;
    for (size_t i = 0; i < value.bytes; i++) {
        uint8_t c = value.at[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

        if (!is_letter && (i == 0 || strchr("0123456789+-.", c) == NULL || c == '\0'))
            return false;
    }
    return mark_seen(request, HAS_SCHEME, value);
}

/* Nothing here is chosen by the authority, so any visible characters will do: etcd's client 3.4
 * sends a whole URL. */
static bool is_authority(struct text value)
{
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] <= ' ' || value.at[i] >= 0x7f)
            return false;
    }
    return true;
}

/* Pseudo-headers come before all others, never in trailers, and there are no others than these (RFC
 * 9113 8.3). */
static bool take_pseudo(struct muster_h2_request *request, struct text name, struct text value)
{
    if ((request->marks & (HAS_REGULAR | IS_IN_BODY)) != 0)
        return false;
    if (is_text(name, ":path"))
        return take_path(request, value);
    if (is_text(name, ":method"))
        return take_method(request, value);
    if (is_text(name, ":scheme"))
        return take_scheme(request, value);
    return is_text(name, ":authority") && mark_seen(request, HAS_AUTHORITY, value) &&
           is_authority(value);
}

static bool take_content_length(struct muster_h2_request *request, struct text value)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < value.bytes; i++) {
        uint8_t c = value.at[i];

        if (c < '0' || c > '9' || sum > (UINT64_MAX - 9) / 10)
            return false;
        sum = sum * 10 + (uint64_t)(c - '0');
    }
    request->content_bytes = sum;
    return mark_seen(request, HAS_CONTENT_LENGTH, value);
}

/* The length of the name decides first, because most headers are none of these. The last five, and
 * te with anything but "trailers", speak of an HTTP/1.1 connection and are forbidden (RFC 9113
 * 8.2.2). */
static bool take_regular(struct muster_h2_request *request, struct text name, struct text value)
{
    switch (name.bytes) {
    case 2:
        return !is_text(name, "te") ||
               (value.bytes == 8 && strncasecmp((const char *)value.at, "trailers", 8) == 0);
    case 4:
        return !is_text(name, "host") ||
               (mark_seen(request, HAS_HOST, value) && is_authority(value));
    case 14:
        return !is_text(name, "content-length") || take_content_length(request, value);
    case 7:
        return !is_text(name, "upgrade");
    case 10:
        return !is_text(name, "connection") && !is_text(name, "keep-alive");
    case 16:
        return !is_text(name, "proxy-connection");
    case 17:
        return !is_text(name, "transfer-encoding");
    default:
        return true;
    }
}

static bool has_capital(struct text name)
{
    for (size_t i = 0; i < name.bytes; i++) {
        if (name.at[i] >= 'A' && name.at[i] <= 'Z')
            return true;
    }
    return false;
}

enum muster_h2_header_verdict muster_h2_request_header(struct muster_h2_request *request,
                                                       const uint8_t *name, size_t name_bytes,
                                                       const uint8_t *value, size_t value_bytes)
{
    struct text name_text = {name, name_bytes}, value_text = {value, value_bytes};
    bool is_pseudo = name_bytes > 0 && name[0] == ':';
    bool is_name = nghttp2_check_header_name(name, name_bytes) != 0;
    bool is_good;

    /* Capitals are forbidden (RFC 9113 8.2.1); other bad bytes nghttp2 forgives in regular headers
     * by leaving the header out, and so does this, because real clients send them. */
    if (!is_pseudo)
        request->marks |= HAS_REGULAR;
    if (!is_name && (is_pseudo || has_capital(name_text)))
        return MUSTER_H2_HEADER_MALFORMED;
    if (!is_name || (!is_pseudo && nghttp2_check_header_value_rfc9113(value, value_bytes) == 0))
        return MUSTER_H2_HEADER_IGNORED;
    is_good = is_pseudo ? take_pseudo(request, name_text, value_text)
                        : take_regular(request, name_text, value_text);
    return is_good ? MUSTER_H2_HEADER_TAKEN : MUSTER_H2_HEADER_MALFORMED;
}

/* RFC 9113 8.3.1; CONNECT names an authority and nothing else (RFC 9113 8.5). */
static bool is_complete(unsigned marks)
{
    const unsigned needed = HAS_METHOD | HAS_SCHEME | HAS_PATH;
    bool has_place = (marks & (HAS_AUTHORITY | HAS_HOST)) != 0;
    bool has_path =
        (marks & IS_ABSOLUTE) != 0 || ((marks & IS_OPTIONS) != 0 && (marks & IS_ASTERISK) != 0);

    if ((marks & IS_CONNECT) != 0)
        return (marks & (HAS_SCHEME | HAS_PATH)) == 0 && (marks & HAS_AUTHORITY) != 0;
    return (marks & needed) == needed && has_place && ((marks & IS_HTTP) == 0 || has_path);
}

/* A body that differs from its content-length makes the request malformed (RFC 9113 8.1.1). CONNECT
 * is a tunnel, of which the length says nothing. */
static bool has_length(const struct muster_h2_request *request)
{
    return (request->marks & HAS_CONTENT_LENGTH) != 0 && (request->marks & IS_CONNECT) == 0;
}

bool muster_h2_request_headers(struct muster_h2_request *request, bool is_end)
{
    bool are_trailers = (request->marks & IS_IN_BODY) != 0;

    request->marks |= IS_IN_BODY;
    if (are_trailers ? !is_end : !is_complete(request->marks))
        return false;
    return !is_end || muster_h2_request_end(request);
}

bool muster_h2_request_data(struct muster_h2_request *request, size_t count)
{
    request->received_bytes += count;
    return !has_length(request) || request->received_bytes <= request->content_bytes;
}

bool muster_h2_request_end(const struct muster_h2_request *request)
{
    return !has_length(request) || request->received_bytes == request->content_bytes;
}
