/* The flight recorder: a ring of events in one block. */
#include <muster/env.h>
#include <muster/trace.h>

#include <assert.h>
#include <stdatomic.h>

#include "runtime/trace_text.h"

struct muster_trace {
    struct muster_mem *mem;
    uint64_t emitted; /* ever; the slot of the next event is emitted % capacity */
    uint32_t capacity;
    struct muster_trace_event events[];
};

enum muster_rc muster_trace_open(struct muster_mem *mem, uint32_t capacity,
                                 struct muster_trace **ret_trace)
{
    struct muster_trace *trace;

    if (capacity == 0)
        return MUSTER_INVALID_ARGUMENT;
    trace = muster_mem_alloc(mem, sizeof(*trace) + (size_t)capacity * sizeof(trace->events[0]));
    if (trace == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    trace->mem = mem;
    trace->emitted = 0;
    trace->capacity = capacity;
    *ret_trace = trace;
    return MUSTER_OK;
}

void muster_trace_close(struct muster_trace *trace)
{
    if (trace != NULL)
        muster_mem_free(trace->mem, trace);
}

void muster_trace_emit_at(const struct muster_env *env, uint64_t time_ns, const char *kind,
                          const char *text, uint64_t a, uint64_t b, uint64_t c)
{
    struct muster_trace *trace = env->trace;

    if (trace == NULL)
        return;
    trace->events[trace->emitted % trace->capacity] = (struct muster_trace_event){
        .time_ns = time_ns, .kind = kind, .text = text, .a = a, .b = b, .c = c};
    /* A handler of signals in this thread that reads the ring finds the event whole or not at all. */
    atomic_signal_fence(memory_order_release);
    trace->emitted++;
}

void muster_trace_emit_text(const struct muster_env *env, const char *kind, const char *text,
                            uint64_t a, uint64_t b, uint64_t c)
{
    if (env->trace != NULL)
        muster_trace_emit_at(env, muster_loop_clock_ns(env->loop), kind, text, a, b, c);
}

void muster_trace_emit(const struct muster_env *env, const char *kind, uint64_t a, uint64_t b,
                       uint64_t c)
{
    muster_trace_emit_text(env, kind, NULL, a, b, c);
}

uint64_t muster_trace_emitted(const struct muster_trace *trace)
{
    return trace->emitted;
}

size_t muster_trace_count(const struct muster_trace *trace)
{
    return trace->emitted < trace->capacity ? (size_t)trace->emitted : trace->capacity;
}

const struct muster_trace_event *muster_trace_at(const struct muster_trace *trace, size_t index)
{
    uint64_t first = trace->emitted - muster_trace_count(trace);

    assert(index < muster_trace_count(trace));
    return &trace->events[(first + index) % trace->capacity];
}

size_t muster_trace_format(const struct muster_trace_event *event,
                           char line[MUSTER_TRACE_LINE_BYTES])
{
    /* Kinds and texts are our own: together they stay below 150 bytes. */
    struct muster_trace_text text = {.bytes = line, .room = MUSTER_TRACE_LINE_BYTES - 2};

    muster_trace_text_add(&text, "{\"time_ns\":");
    muster_trace_text_add_number(&text, event->time_ns);
    muster_trace_text_add(&text, ",\"a\":");
    muster_trace_text_add_number(&text, event->a);
    muster_trace_text_add(&text, ",\"b\":");
    muster_trace_text_add_number(&text, event->b);
    muster_trace_text_add(&text, ",\"c\":");
    muster_trace_text_add_number(&text, event->c);
    muster_trace_text_add(&text, ",\"kind\":");
    muster_trace_text_add_quoted(&text, event->kind);
    if (event->text != NULL) {
        muster_trace_text_add(&text, ",\"text\":");
        muster_trace_text_add_quoted(&text, event->text);
    }
    line[text.length] = '}';
    line[text.length + 1] = '\n';
    return text.length + 2;
}

void muster_trace_dump(const struct muster_trace *trace, FILE *file)
{
    char line[MUSTER_TRACE_LINE_BYTES];

    for (size_t i = 0; i < muster_trace_count(trace); i++)
        fwrite(line, 1, muster_trace_format(muster_trace_at(trace, i), line), file);
}
