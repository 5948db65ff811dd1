/* The flight recorder: fixed rings of small events, written always, read after something went
 * wrong (docs/trace.md). */
#ifndef MUSTER_TRACE_H
#define MUSTER_TRACE_H

#include <stdio.h>

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_env;
struct muster_trace;

/** kind and text are static. muster_trace_kind_find tells what the three numbers of a kind mean. */
struct muster_trace_event {
    uint64_t time_ns; /* the loop's clock: monotonic */
    const char *kind; /* "view_entered" */
    const char *text; /* the name of an operation or of a state, or NULL */
    uint64_t a, b, c;
};

/** The meaning of the numbers of one kind of event; an empty name: not used. */
struct muster_trace_kind {
    const char *name;
    const char *numbers[3]; /* of a, b and c */
    const char *text;       /* of the text, or "" */
    const char *meaning;    /* for people */
};
/** All kinds that muster emits, in the order of docs/trace.md. Static. */
MUSTER_API const struct muster_trace_kind *muster_trace_kinds(size_t *ret_count);
/** NULL: not a kind that muster emits. */
MUSTER_API const struct muster_trace_kind *muster_trace_kind_find(const char *name);

/** capacity: events of steps; an eighth as many others, and at least 16, are kept besides. Takes all
 * memory at once. Gives. Errors: INVALID_ARGUMENT (capacity 0), RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_trace_open(struct muster_mem *mem,
                                                              uint32_t capacity,
                                                              struct muster_trace **ret_trace);
MUSTER_API void muster_trace_close(struct muster_trace *trace);

/** A rare event: only rare ones overwrite it. env->trace NULL: nothing. kind must be static text. */
MUSTER_API void muster_trace_emit(const struct muster_env *env, const char *kind, uint64_t a,
                                  uint64_t b, uint64_t c);
/** The same, with a static text or NULL. */
MUSTER_API void muster_trace_emit_text(const struct muster_env *env, const char *kind,
                                       const char *text, uint64_t a, uint64_t b, uint64_t c);
/** An event of every step, in the larger ring, at a time just read from the loop's clock. */
MUSTER_API void muster_trace_emit_at(const struct muster_env *env, uint64_t time_ns,
                                     const char *kind, const char *text, uint64_t a, uint64_t b,
                                     uint64_t c);

/** Events ever emitted; those beyond the capacity are gone. */
MUSTER_API uint64_t muster_trace_emitted(const struct muster_trace *trace);
/** Events still held, oldest first. */
MUSTER_API size_t muster_trace_count(const struct muster_trace *trace);
MUSTER_API const struct muster_trace_event *muster_trace_at(const struct muster_trace *trace,
                                                            size_t index);

#define MUSTER_TRACE_LINE_BYTES 320
/** One event as a JSON object and a newline, in line, without a NUL; its length. A number above
 * INT64_MAX is written as a text, as many readers of JSON have no such integers. Safe in a handler of
 * signals. */
MUSTER_API size_t muster_trace_format(const struct muster_trace_event *event,
                                      char line[MUSTER_TRACE_LINE_BYTES]);
/** One JSON object per line, oldest first. */
MUSTER_API void muster_trace_dump(const struct muster_trace *trace, FILE *file);

MUSTER_END

#endif
