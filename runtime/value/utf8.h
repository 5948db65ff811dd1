/* The length of a character in UTF-8. Header only, because a handler of signals uses it too. */
#ifndef MUSTER_RUNTIME_UTF8_H
#define MUSTER_RUNTIME_UTF8_H

#include <stddef.h>

/** Bytes of the character that begins at `at`, or 0 if no character does (RFC 3629 4):
 * overlong forms, surrogates and numbers beyond U+10FFFF are none. A NUL is a character of its own,
 * so a text that ends with one is never read beyond it. */
static inline size_t muster_utf8_length(const unsigned char *at)
{
    size_t length;

    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xC2 || at[0] > 0xF4)
        return 0;
    length = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
        (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F))
        return 0;
    return length;
}

#endif
