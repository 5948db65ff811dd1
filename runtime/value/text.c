/* Growing text and its JSON escapes. The first lack of memory is remembered and later calls do
 * nothing, so that a caller checks once, at muster_text_take. */
#include "runtime/value/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/value/utf8.h"

#define CAPACITY_MIN 256u /* most log lines and URLs fit without growing */

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

/* RFC 8259 7. DEL is escaped too: a terminal that shows the text would act on it. */
void muster_text_add_json(struct muster_text *text, const char *string)
{
    const unsigned char *at = (const unsigned char *)string;

    muster_text_add(text, "\"", 1);
    while (*at != '\0') {
        size_t length = muster_utf8_length(at);

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

/* 17 digits name any double, but most need only 15, and 0.1 is better to read than
 * 0.10000000000000001. */
void muster_text_add_json_number(struct muster_text *text, double number)
{
    char digits[32];
    char *comma;

    if (!isfinite(number)) {
        muster_text_add_string(text, "null");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    comma = strchr(digits, ','); /* the decimal point of some locales */
    if (comma != NULL)
        *comma = '.';
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
