/* The flight recorder: a ring of events in one block. */
#include <muster/env.h>
#include <muster/trace.h>

#include <assert.h>
#include <inttypes.h>

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

void muster_trace_emit(const struct muster_env *env, const char *kind, uint64_t a, uint64_t b,
                       uint64_t c)
{
    struct muster_trace *trace = env->trace;

    if (trace == NULL)
        return;
    trace->events[trace->emitted++ % trace->capacity] = (struct muster_trace_event){
        .time_ns = muster_loop_now_ns(env->loop), .kind = kind, .a = a, .b = b, .c = c};
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

void muster_trace_dump(const struct muster_trace *trace, FILE *file)
{
    for (size_t i = 0; i < muster_trace_count(trace); i++) {
        const struct muster_trace_event *event = muster_trace_at(trace, i);

        fprintf(file,
                "{\"time_ns\":%" PRIu64 ",\"kind\":\"%s\",\"a\":%" PRIu64 ",\"b\":%" PRIu64
                ",\"c\":%" PRIu64 "}\n",
                event->time_ns, event->kind, event->a, event->b, event->c);
    }
}
