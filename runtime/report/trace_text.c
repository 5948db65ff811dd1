/* JSON in a handler of signals: no libc beyond moving bytes, no locale, no allocation. */
#include "runtime/report/trace_text.h"

#include "runtime/value/utf8.h"

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

/* Most readers of JSON hold numbers in 64 bits with a sign, or in a double: a larger one is
 * quoted. */
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

/* Errors and names are UTF-8 as a rule; a byte that begins or continues no character becomes '?',
 * so that the line can be parsed whatever there was. */
void muster_trace_text_add_quoted(struct muster_trace_text *text, const char *more)
{
    const unsigned char *at = (const unsigned char *)more;

    if (more == NULL) {
        muster_trace_text_add(text, "null");
        return;
    }
    add_byte(text, '"');
    while (*at != '\0') {
        size_t length = muster_utf8_length(at);

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
