/* gRPC status on the wire: the grpc-status number, the coding of grpc-message, and what HTTP and
 * HTTP/2 codes stand for when the peer sends no status. Both sides use it; it is pure. */
#include "net/grpc/status.h"
#include "net/h2/h2_code.h"

#include <string.h>

enum muster_rc muster_grpc_status_parse(const char *text, size_t length)
{
    unsigned value = 0;

    /* PROTOCOL-HTTP2.md: a number that is not known counts as UNKNOWN. */
    if (length == 0 || length > 2)
        return MUSTER_UNKNOWN;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return MUSTER_UNKNOWN;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    return value <= MUSTER_UNAUTHENTICATED ? (enum muster_rc)value : MUSTER_UNKNOWN;
}

/* The table of PROTOCOL-HTTP2.md, "Errors". */
enum muster_rc muster_rc_from_h2_code(uint32_t code)
{
    switch (code) {
    case MUSTER_H2_REFUSED_STREAM:
        return MUSTER_UNAVAILABLE;
    case MUSTER_H2_CANCEL:
        return MUSTER_CANCELLED;
    case MUSTER_H2_ENHANCE_YOUR_CALM:
        return MUSTER_RESOURCE_EXHAUSTED;
    case MUSTER_H2_INADEQUATE_SECURITY:
        return MUSTER_PERMISSION_DENIED;
    case MUSTER_H2_STREAM_CLOSED:
    case MUSTER_H2_HTTP_1_1_REQUIRED:
        return MUSTER_UNKNOWN;
    default:
        return code <= MUSTER_H2_CONNECT_ERROR ? MUSTER_INTERNAL : MUSTER_UNKNOWN;
    }
}

/* The table of http-grpc-status-mapping.md: proxies answer so in place of a server. */
enum muster_rc muster_rc_from_http_status(int status)
{
    switch (status) {
    case 400:
    case 431:
        return MUSTER_INTERNAL;
    case 401:
        return MUSTER_UNAUTHENTICATED;
    case 403:
        return MUSTER_PERMISSION_DENIED;
    case 404:
        return MUSTER_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return MUSTER_UNAVAILABLE;
    default:
        return MUSTER_UNKNOWN;
    }
}

/* PROTOCOL-HTTP2.md, Percent-Byte-Unencoded: printable ASCII but the percent sign itself. */
static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c <= 0x7e && c != '%';
}

size_t muster_grpc_message_encode(const char *text, char *out, size_t out_bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t length = 0;

    MUSTER_ASSERT(out_bytes > 0);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        /* A sequence is written whole or not at all, or the reader would see another byte. */
        size_t need = is_plain(c) ? 1 : 3;

        if (length + need + 1 > out_bytes)
            break;
        if (need == 1) {
            out[length++] = (char)c;
        } else {
            out[length++] = '%';
            out[length++] = digits[c >> 4];
            out[length++] = digits[c & 15];
        }
    }
    out[length] = '\0';
    return length;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

/* The byte that "%XY" stands for, or -1. */
static int sequence_value(const char *text, size_t length)
{
    int high, low;

    if (length < 3 || text[0] != '%')
        return -1;
    high = digit_value(text[1]);
    low = digit_value(text[2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Broken sequences stay as they are: a text for people must not be lost to an error of its sender
 * (PROTOCOL-HTTP2.md). */
size_t muster_grpc_message_decode(const char *text, size_t length, char *out, size_t out_bytes)
{
    size_t written = 0;

    MUSTER_ASSERT(out_bytes > 0);
    for (size_t at = 0; at < length && written + 1 < out_bytes;) {
        int value = sequence_value(text + at, length - at);

        out[written++] = value >= 0 ? (char)value : text[at];
        at += value >= 0 ? 3 : 1;
    }
    out[written] = '\0';
    return written;
}
