/* Base64 of gRPC's "-bin" metadata (RFC 4648 4): written without padding, read with and without. */
#include "net/stream/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t muster_base64_encoded_bytes(size_t bytes)
{
    size_t rest = bytes % 3;

    return bytes / 3 * 4 + (rest == 0 ? 0 : rest + 1);
}

size_t muster_base64_encode(const void *bytes, size_t size, char *out)
{
    const uint8_t *in = bytes;
    size_t written = 0;

    for (size_t at = 0; at < size; at += 3) {
        size_t left = size - at;
        uint32_t group = (uint32_t)in[at] << 16;

        if (left > 1)
            group |= (uint32_t)in[at + 1] << 8;
        if (left > 2)
            group |= in[at + 2];
        out[written++] = alphabet[group >> 18];
        out[written++] = alphabet[group >> 12 & 63];
        if (left > 1)
            out[written++] = alphabet[group >> 6 & 63];
        if (left > 2)
            out[written++] = alphabet[group & 63];
    }
    return written;
}

size_t muster_base64_decoded_bytes_max(size_t length)
{
    return length / 4 * 3 + 3;
}

static int character_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

enum muster_rc muster_base64_decode(const char *text, size_t length, void *out, size_t *ret_size)
{
    uint8_t *bytes = out;
    uint32_t group = 0;
    unsigned bits = 0;
    size_t written = 0;

    /* Padding fills up to four characters; elsewhere a '=' is outside the alphabet. */
    if (length % 4 == 0) {
        for (int i = 0; i < 2 && length > 0 && text[length - 1] == '='; i++)
            length--;
    }
    if (length % 4 == 1) /* six bits are not a byte */
        return MUSTER_INVALID_ARGUMENT;
    for (size_t i = 0; i < length; i++) {
        int value = character_value(text[i]);

        if (value < 0)
            return MUSTER_INVALID_ARGUMENT;
        group = group << 6 | (uint32_t)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            bytes[written++] = (uint8_t)(group >> bits);
        }
    }
    *ret_size = written;
    return MUSTER_OK;
}
