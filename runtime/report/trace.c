/* The flight recorder: two rings of events in one block. Events of every step have a ring of their
 * own, so that they never push out the rare ones: changes of the membership, warnings. */
#include <muster/env.h>
#include <muster/trace.h>

#include <stdatomic.h>

#include "runtime/report/trace_text.h"
#include "runtime/value/assert.h"

#define RARE_SHARE 8u  /* slots for frequent events per slot for a rare one */
#define RARE_MIN   16u /* slots for rare events, at least */

struct slot {
    uint64_t number; /* of the event: counts over both rings */
    struct muster_trace_event event;
};

struct ring {
    uint64_t emitted; /* ever; the slot of the next event is emitted % capacity */
    uint32_t capacity;
    struct slot *slots;
};

struct muster_trace {
    struct muster_mem *mem;
    struct ring often, rare;
    struct slot slots[];
};

#define TRACES_MAX    8u  /* open at a time that a failed assertion prints; others are left out */
#define ASSERT_EVENTS 64u /* newest ones that a failed assertion prints of each trace */

/* Written by the threads that open and close traces, read by the thread whose assertion fails; a
 * slot is claimed and given back by compare and exchange, sequentially consistent. */
static _Atomic(struct muster_trace *) open_traces[TRACES_MAX];

static void trace_report_all(void)
{
    for (size_t i = 0; i < TRACES_MAX; i++) {
        const struct muster_trace *trace = atomic_load(&open_traces[i]);
        size_t count = trace != NULL ? muster_trace_count(trace) : 0;
        size_t first = count > ASSERT_EVENTS ? count - ASSERT_EVENTS : 0;

        for (size_t index = first; index < count; index++) {
            char line[MUSTER_TRACE_LINE_BYTES];

            fwrite(line, 1, muster_trace_format(muster_trace_at(trace, index), line), stderr);
        }
    }
}

/* Exchange the first slot that holds `from`; a table that is full leaves the trace out. */
static void trace_exchange_slot(struct muster_trace *from, struct muster_trace *to)
{
    for (size_t i = 0; i < TRACES_MAX; i++) {
        struct muster_trace *expected = from;

        if (atomic_compare_exchange_strong(&open_traces[i], &expected, to))
            return;
    }
}

enum muster_rc muster_trace_open(struct muster_mem *mem, uint32_t capacity,
                                 struct muster_trace **ret_trace)
{
    uint32_t rare = capacity / RARE_SHARE > RARE_MIN ? capacity / RARE_SHARE : RARE_MIN;
    struct muster_trace *trace;

    if (capacity == 0)
        return MUSTER_INVALID_ARGUMENT;
    trace =
        muster_mem_alloc(mem, sizeof(*trace) + ((size_t)capacity + rare) * sizeof(trace->slots[0]));
    if (trace == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    trace->mem = mem;
    trace->often = (struct ring){.capacity = capacity, .slots = trace->slots};
    trace->rare = (struct ring){.capacity = rare, .slots = trace->slots + capacity};
    trace_exchange_slot(NULL, trace);
    muster_assert_set_report(trace_report_all);
    *ret_trace = trace;
    return MUSTER_OK;
}

/* The slot is given back first: a failing assertion in another thread must not print a trace that
 * is being freed. */
void muster_trace_close(struct muster_trace *trace)
{
    if (trace == NULL)
        return;
    trace_exchange_slot(trace, NULL);
    muster_mem_free(trace->mem, trace);
}

static void ring_add(struct muster_trace *trace, struct ring *ring,
                     const struct muster_trace_event *event)
{
    ring->slots[ring->emitted % ring->capacity] =
        (struct slot){.number = muster_trace_emitted(trace), .event = *event};
    /* A handler of signals in this thread that reads the ring finds the event whole or not at
     * all. */
    atomic_signal_fence(memory_order_release);
    ring->emitted++;
}

void muster_trace_emit_at(const struct muster_env *env, uint64_t time_ns, const char *kind,
                          const char *text, uint64_t a, uint64_t b, uint64_t c)
{
    const struct muster_trace_event event = {
        .time_ns = time_ns, .kind = kind, .text = text, .a = a, .b = b, .c = c};

    if (env->trace != NULL)
        ring_add(env->trace, &env->trace->often, &event);
}

void muster_trace_emit_text(const struct muster_env *env, const char *kind, const char *text,
                            uint64_t a, uint64_t b, uint64_t c)
{
    struct muster_trace_event event = {.kind = kind, .text = text, .a = a, .b = b, .c = c};

    if (env->trace == NULL)
        return;
    event.time_ns = muster_loop_clock_ns(env->loop);
    ring_add(env->trace, &env->trace->rare, &event);
}

void muster_trace_emit(const struct muster_env *env, const char *kind, uint64_t a, uint64_t b,
                       uint64_t c)
{
    muster_trace_emit_text(env, kind, NULL, a, b, c);
}

uint64_t muster_trace_emitted(const struct muster_trace *trace)
{
    return trace->often.emitted + trace->rare.emitted;
}

static size_t ring_count(const struct ring *ring)
{
    return ring->emitted < ring->capacity ? (size_t)ring->emitted : ring->capacity;
}

static const struct slot *ring_at(const struct ring *ring, size_t index)
{
    return &ring->slots[(ring->emitted - ring_count(ring) + index) % ring->capacity];
}

size_t muster_trace_count(const struct muster_trace *trace)
{
    return ring_count(&trace->often) + ring_count(&trace->rare);
}

/* The number of rare events among the first `index` of both rings together: the smallest number
 * such that the others are all older than the next rare one. */
static size_t rare_before(const struct muster_trace *trace, size_t index)
{
    size_t often = ring_count(&trace->often), rare = ring_count(&trace->rare);
    size_t low = index > often ? index - often : 0, high = index < rare ? index : rare;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ring_at(&trace->rare, middle)->number <
            ring_at(&trace->often, index - middle - 1)->number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct muster_trace_event *muster_trace_at(const struct muster_trace *trace, size_t index)
{
    size_t rare = rare_before(trace, index), often = index - rare;

    MUSTER_ASSERT(index < muster_trace_count(trace));
    if (often == ring_count(&trace->often) ||
        (rare < ring_count(&trace->rare) &&
         ring_at(&trace->rare, rare)->number < ring_at(&trace->often, often)->number))
        return &ring_at(&trace->rare, rare)->event;
    return &ring_at(&trace->often, often)->event;
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
