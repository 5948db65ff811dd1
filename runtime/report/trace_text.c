/* JSON in a handler of signals: no libc beyond moving bytes, no locale, no allocation. */
#include "runtime/report/trace_text.h"

static void add_byte(struct muster_trace_text *text, char byte)
{
    if (text->length < text->room)
        text->bytes[text->length++] = byte;
}

void muster_trace_text_add(struct muster_trace_text *text, const char *more)
{
    for (; *more != '\0'; more++)
        add_byte(text, *more);
}

void muster_trace_text_add_number(struct muster_trace_text *text, uint64_t number)
{
    bool is_large = number > INT64_MAX;
    char digits[20];
    size_t count = 0;

    do
        digits[count++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    if (is_large)
        add_byte(text, '"');
    while (count > 0)
        add_byte(text, digits[--count]);
    if (is_large)
        add_byte(text, '"');
}

/* Errors and names come as UTF-8 as a rule; a byte that begins or continues no character becomes '?',
 * so that the line can be parsed whatever there was. Returns the length of the character. */
static size_t utf8_length(const unsigned char *at)
{
    size_t length = at[0] < 0x80                    ? 1
                    : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                    : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                    : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                    : 0;

    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

static void add_escaped(struct muster_trace_text *text, unsigned char byte)
{
    static const char digits[] = "0123456789abcdef";

    if (byte == '"' || byte == '\\') {
        add_byte(text, '\\');
        add_byte(text, (char)byte);
    } else if (byte < 0x20) {
        muster_trace_text_add(text, "\\u00");
        add_byte(text, digits[byte >> 4]);
        add_byte(text, digits[byte & 15]);
    } else {
        add_byte(text, (char)byte);
    }
}

void muster_trace_text_add_quoted(struct muster_trace_text *text, const char *more)
{
    const unsigned char *at = (const unsigned char *)more;

    if (more == NULL) {
        muster_trace_text_add(text, "null");
        return;
    }
    add_byte(text, '"');
    while (*at != '\0') {
        size_t length = utf8_length(at);

        if (length == 0)
            add_byte(text, '?');
        else if (length == 1)
            add_escaped(text, *at);
        for (size_t i = 0; length > 1 && i < length; i++)
            add_byte(text, (char)at[i]);
        at += length > 0 ? length : 1;
    }
    add_byte(text, '"');
}
