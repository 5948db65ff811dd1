/* The flight recorder: a fixed ring of small events, written always, read after something went
 * wrong. */
#ifndef MUSTER_TRACE_H
#define MUSTER_TRACE_H

#include <stdio.h>

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

struct muster_env;
struct muster_trace;

/** kind is static text ("view_committed"); the three numbers name epoch, operation and detail by
 * its kind. */
struct muster_trace_event {
    uint64_t time_ns;
    const char *kind;
    uint64_t a, b, c;
};

/** Gives. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_trace_open(struct muster_mem *mem,
                                                              uint32_t capacity,
                                                              struct muster_trace **ret_trace);
MUSTER_API void muster_trace_close(struct muster_trace *trace);

/** Overwrites the oldest event when full. env->trace NULL: nothing. kind must be static text. */
MUSTER_API void muster_trace_emit(const struct muster_env *env, const char *kind, uint64_t a,
                                  uint64_t b, uint64_t c);

/** Events still held, oldest first. */
MUSTER_API size_t muster_trace_count(const struct muster_trace *trace);
MUSTER_API const struct muster_trace_event *muster_trace_at(const struct muster_trace *trace,
                                                            size_t index);
/** One JSON object per line. */
MUSTER_API void muster_trace_dump(const struct muster_trace *trace, FILE *file);

MUSTER_END

#endif
