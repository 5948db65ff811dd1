/* Growing text and its JSON escapes. */
#include "runtime/value/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 256u

void muster_text_init(struct muster_text *text, struct muster_mem *mem)
{
    *text = (struct muster_text){.mem = mem};
}

/* A text may hold a token, so memory is wiped before it is given back. */
static void bytes_free(struct muster_text *text)
{
    if (text->bytes != NULL)
        explicit_bzero(text->bytes, text->count);
    muster_mem_free(text->mem, text->bytes);
}

void muster_text_fini(struct muster_text *text)
{
    bytes_free(text);
    muster_text_init(text, text->mem);
}

void muster_text_clear(struct muster_text *text)
{
    text->count = 0;
    text->is_failed = false;
    if (text->bytes != NULL)
        text->bytes[0] = '\0';
}

/* Room for `count` more bytes and the NUL. */
static bool text_reserve(struct muster_text *text, size_t count)
{
    size_t capacity = text->capacity < CAPACITY_MIN ? CAPACITY_MIN : text->capacity;
    char *bytes;

    if (text->is_failed || count >= SIZE_MAX / 2 - text->count) {
        text->is_failed = true;
        return false;
    }
    if (text->count + count < text->capacity)
        return true;
    while (capacity <= text->count + count)
        capacity *= 2;
    bytes = muster_mem_alloc(text->mem, capacity);
    if (bytes == NULL) {
        text->is_failed = true;
        return false;
    }
    if (text->count > 0)
        memcpy(bytes, text->bytes, text->count);
    bytes_free(text);
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void muster_text_add(struct muster_text *text, const char *bytes, size_t count)
{
    if (!text_reserve(text, count))
        return;
    if (count > 0)
        memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
    text->bytes[text->count] = '\0';
}

void muster_text_add_string(struct muster_text *text, const char *string)
{
    muster_text_add(text, string, strlen(string));
}

/* The length is measured first: the room is reserved once, and nothing is cut. */
void muster_text_add_format(struct muster_text *text, const char *fmt, ...)
{
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0 || !text_reserve(text, (size_t)length)) {
        text->is_failed = true;
        return;
    }
    va_start(args, fmt);
    vsnprintf(text->bytes + text->count, (size_t)length + 1, fmt, args);
    va_end(args);
    text->count += (size_t)length;
}

/* Length of the UTF-8 sequence at `at` (RFC 3629 4), 0 when it is none. The NUL ends every
 * sequence. */
static size_t utf8_length(const unsigned char *at)
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

void muster_text_add_json(struct muster_text *text, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;

    muster_text_add(text, "\"", 1);
    while (*at != '\0') {
        size_t length = utf8_length(at);

        if (length == 0)
            muster_text_add_string(text, "\xEF\xBF\xBD");
        else if (*at == '"' || *at == '\\')
            muster_text_add_format(text, "\\%c", *at);
        else if (*at == '\n')
            muster_text_add_string(text, "\\n");
        else if (*at == '\t')
            muster_text_add_string(text, "\\t");
        else if (*at < 0x20 || *at == 0x7F)
            muster_text_add_format(text, "\\u%04x", *at);
        else
            muster_text_add(text, (const char *)at, length);
        at += length == 0 ? 1 : length;
    }
    muster_text_add(text, "\"", 1);
}

void muster_text_add_json_number(struct muster_text *text, double number)
{
    char digits[32];

    if (!isfinite(number)) {
        muster_text_add_string(text, "null");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    for (char *comma = strchr(digits, ','); comma != NULL; comma = NULL)
        *comma = '.'; /* the locale's */
    muster_text_add_string(text, digits);
}

enum muster_rc muster_text_take(struct muster_text *text, char **ret_bytes, size_t *ret_count)
{
    MUSTER_ASSERT(text->mem != NULL);
    muster_text_add(text, "", 0);
    if (text->is_failed)
        return MUSTER_RESOURCE_EXHAUSTED;
    *ret_bytes = text->bytes;
    if (ret_count != NULL)
        *ret_count = text->count;
    muster_text_init(text, text->mem);
    return MUSTER_OK;
}
