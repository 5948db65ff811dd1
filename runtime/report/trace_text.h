/* JSON put together in a buffer by functions that a handler of signals may call. */
#ifndef MUSTER_RUNTIME_TRACE_TEXT_H
#define MUSTER_RUNTIME_TRACE_TEXT_H

#include <muster/base.h>

/** Text beyond room is cut; length never exceeds room. */
struct muster_trace_text {
    char *bytes;
    size_t room, length;
};

void muster_trace_text_add(struct muster_trace_text *text, const char *more);
/** Decimal; above INT64_MAX in quotation marks. */
void muster_trace_text_add_number(struct muster_trace_text *text, uint64_t number);
/** Escaped and in quotation marks; NULL gives null. */
void muster_trace_text_add_quoted(struct muster_trace_text *text, const char *more);

#endif
