/* Files of the flight recorder as one trace in Chrome's JSON (Trace Event Format), by the clocks
 * that each file tells.
 *
 * Each file has its monotonic and its wall clock of one moment; the events of all files are put on
 * the wall clock, so traces of several hosts are as exact as their clocks agree. The JSON is
 * written by hand: microseconds with three decimals are exact, which a double is not. */
#include "trace/trace.h"

#include <muster/json.h>

#include "common/output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Threads of each process. */
enum { THREAD_STEPS = 1, THREAD_OPERATIONS, THREAD_MEMBERSHIP, THREADS };

struct merge {
    FILE *out;
    uint64_t start_wall_ns; /* of the earliest event: 0 µs */
    bool has_any;           /* an entry: a comma comes before the next */
};

/* A slice that has begun on a thread. */
struct slice {
    const struct trace_event *start; /* NULL: none is open */
    const char *name;
};

/* A life in the trace. */
struct life {
    struct merge *merge;
    const struct trace_file *file;
    size_t pid; /* from 1: pids of several hosts may be equal */
    struct slice slices[THREADS];
};

static uint64_t wall_ns_of(const struct trace_file *file, uint64_t time_ns)
{
    return file->wall_ns + (time_ns - file->monotonic_ns); /* modulo 2^64: earlier ones, too */
}

static void print_text(FILE *out, const char *text)
{
    struct muster_json *value = muster_json_text_new(text);
    char *quoted = NULL;

    if (muster_json_format(value, false, muster_mem_system(), &quoted) != MUSTER_OK)
        output_no_memory(); /* what was parsed is UTF-8 */
    fputs(quoted, out);
    muster_mem_free(muster_mem_system(), quoted);
    muster_json_free(value);
}

static void print_micros(FILE *out, uint64_t ns)
{
    fprintf(out, "%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
}

static void begin_entry(struct merge *merge)
{
    fputs(merge->has_any ? ",\n" : "\n", merge->out);
    merge->has_any = true;
}

/* Perfetto shows names in place of numbers. */
static void print_name(struct life *life, const char *what, int thread, const char *name)
{
    FILE *out = life->merge->out;

    begin_entry(life->merge);
    fprintf(out,
            "{\"ph\":\"M\",\"pid\":%zu,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", life->pid,
            thread, what);
    print_text(out, name);
    fputs("}}", out);
}

/* Numbers as JSON members, after comma if there are any. Gives the comma for what follows. */
static const char *print_members(FILE *out, const struct trace_event *event, const char *comma)
{
    const struct muster_trace_kind *kind = muster_trace_kind_find(event->kind);
    static const char *const plain[] = {"a", "b", "c"};

    for (size_t i = 0; i < 3; i++) {
        const char *name = kind != NULL ? kind->numbers[i] : plain[i];

        if (name[0] == '\0')
            continue;
        /* what a reader's integers may not hold stays a text */
        fprintf(out, strlen(event->numbers[i]) < 19 ? "%s\"%s\":%s" : "%s\"%s\":\"%s\"", comma,
                name, event->numbers[i]);
        comma = ",";
    }
    if (event->text != NULL) {
        fprintf(out, "%s\"%s\":", comma,
                kind != NULL && kind->text[0] != '\0' ? kind->text : "text");
        print_text(out, event->text);
        comma = ",";
    }
    return comma;
}

static void print_place(struct life *life, int thread, uint64_t time_ns)
{
    fprintf(life->merge->out, ",\"pid\":%zu,\"tid\":%d,\"ts\":", life->pid, thread);
    print_micros(life->merge->out, wall_ns_of(life->file, time_ns) - life->merge->start_wall_ns);
}

static void print_instant(struct life *life, int thread, const struct trace_event *event)
{
    FILE *out = life->merge->out;

    begin_entry(life->merge);
    fputs("{\"ph\":\"i\",\"s\":\"t\",\"name\":", out);
    print_text(out, event->kind);
    print_place(life, thread, event->time_ns);
    fputs(",\"args\":{", out);
    print_members(out, event, "");
    fputs("}}", out);
}

/* result: the event that ended it, or NULL: it was under way when the file was written. */
static void end_slice(struct life *life, int thread, uint64_t end_ns,
                      const struct trace_event *result)
{
    struct slice *slice = &life->slices[thread];
    const struct trace_event *start = slice->start;
    FILE *out = life->merge->out;

    if (start == NULL)
        return;
    slice->start = NULL;
    begin_entry(life->merge);
    fputs("{\"ph\":\"X\",\"name\":", out);
    print_text(out, slice->name);
    print_place(life, thread, start->time_ns);
    fputs(",\"dur\":", out);
    print_micros(out, end_ns > start->time_ns ? end_ns - start->time_ns : 0);
    fputs(",\"args\":{", out);
    print_members(out, start, "");
    if (result != NULL) {
        fprintf(out, ",\"sequence\":%s,\"result\":", result->numbers[1]);
        print_text(out, result->text != NULL ? result->text : "");
    }
    fputs("}}", out);
}

static void begin_slice(struct life *life, int thread, const struct trace_event *event,
                        const char *name)
{
    MUSTER_ASSERT(thread > 0 && thread < THREADS);
    end_slice(life, thread, event->time_ns, NULL); /* a step that is begun again */
    life->slices[thread] = (struct slice){.start = event, .name = name};
}

static void print_event(struct life *life, const struct trace_event *event)
{
    if (strcmp(event->kind, "begin_waited") == 0)
        begin_slice(life, THREAD_STEPS, event, "begin");
    else if (strcmp(event->kind, "step_begun") == 0)
        begin_slice(life, THREAD_STEPS, event, "step");
    else if (strcmp(event->kind, "step_committed") == 0)
        end_slice(life, THREAD_STEPS, event->time_ns, NULL);
    else if (strcmp(event->kind, "op_started") == 0)
        begin_slice(life, THREAD_OPERATIONS, event,
                    event->text != NULL ? event->text : "operation");
    else if (strcmp(event->kind, "op_completed") == 0)
        end_slice(life, THREAD_OPERATIONS, event->time_ns, event);
    else if (strncmp(event->kind, "op_", 3) == 0)
        print_instant(life, THREAD_OPERATIONS, event);
    else
        print_instant(life, THREAD_MEMBERSHIP, event);
}

static void print_process(struct life *life)
{
    const struct trace_file *file = life->file;
    FILE *out = life->merge->out;
    char *name = NULL;

    if (asprintf(&name, "%s (%s, %.8s)", file->task, file->host, file->incarnation) < 0)
        output_no_memory();
    print_name(life, "process_name", 0, name);
    free(name);
    begin_entry(life->merge);
    fprintf(out,
            "{\"ph\":\"M\",\"pid\":%zu,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{"
            "\"sort_index\":%zu}}",
            life->pid, life->pid);
    print_name(life, "thread_name", THREAD_STEPS, "steps");
    print_name(life, "thread_name", THREAD_OPERATIONS, "operations");
    print_name(life, "thread_name", THREAD_MEMBERSHIP, "membership");
}

/* The facts of the header, at the moment when the file was written. */
static void print_end(struct life *life)
{
    const struct trace_file *file = life->file;
    FILE *out = life->merge->out;

    begin_entry(life->merge);
    fputs("{\"ph\":\"i\",\"s\":\"p\",\"name\":", out);
    print_text(out, file->error != NULL ? "ended in an error" : "ended");
    print_place(life, THREAD_MEMBERSHIP, file->monotonic_ns);
    fprintf(out, ",\"args\":{\"job\":");
    print_text(out, file->job);
    fprintf(out,
            ",\"rank\":%" PRId64 ",\"pid\":%" PRId64 ",\"overwritten_events\":%" PRIu64
            ",\"incarnation\":",
            file->rank, file->pid, file->emitted - file->event_count);
    print_text(out, file->incarnation);
    if (file->error != NULL) {
        fputs(",\"error\":", out);
        print_text(out, file->error);
    }
    fputs("}}", out);
}

static void print_life(struct merge *merge, const struct trace_file *file, size_t pid)
{
    struct life life = {.merge = merge, .file = file, .pid = pid};

    print_process(&life);
    for (size_t i = 0; i < file->event_count; i++)
        print_event(&life, &file->events[i]);
    for (int thread = 0; thread < THREADS; thread++)
        end_slice(&life, thread, file->monotonic_ns, NULL);
    print_end(&life);
}

/* By task, its lives by time. */
static int compare_files(const void *a, const void *b)
{
    const struct trace_file *left = *(const struct trace_file *const *)a;
    const struct trace_file *right = *(const struct trace_file *const *)b;
    int order = strcmp(left->job, right->job);

    if (order == 0)
        order = strverscmp(left->task, right->task);
    if (order != 0)
        return order;
    return left->wall_ns < right->wall_ns ? -1 : left->wall_ns > right->wall_ns;
}

/* A file that is given twice would show its life twice, which looks like two processes. */
static enum muster_rc check_twins(const struct trace_file *const *sorted, size_t count,
                                  struct muster_error *ret_error)
{
    for (size_t i = 1; i < count; i++)
        if (compare_files(&sorted[i - 1], &sorted[i]) == 0 &&
            strcmp(sorted[i - 1]->incarnation, sorted[i]->incarnation) == 0)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s and %s are the same file of %s; give one of them",
                                    sorted[i - 1]->path, sorted[i]->path, sorted[i]->task);
    return MUSTER_OK;
}

/* The earliest moment of any file is 0, so that no time is negative. */
static uint64_t find_start(const struct trace_file *files, size_t count)
{
    uint64_t start_ns = UINT64_MAX;

    for (size_t i = 0; i < count; i++) {
        uint64_t first_ns =
            files[i].event_count > 0 ? files[i].events[0].time_ns : files[i].monotonic_ns;
        uint64_t wall_ns = wall_ns_of(
            &files[i], first_ns < files[i].monotonic_ns ? first_ns : files[i].monotonic_ns);

        start_ns = wall_ns < start_ns ? wall_ns : start_ns;
    }
    return start_ns;
}

enum muster_rc trace_merge(const struct trace_file *files, size_t count, FILE *out,
                           struct muster_error *ret_error)
{
    struct merge merge = {.out = out, .start_wall_ns = find_start(files, count)};
    const struct trace_file **sorted = calloc(count, sizeof(sorted[0]));
    enum muster_rc rc;

    if (sorted == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < count; i++)
        sorted[i] = &files[i];
    qsort(sorted, count, sizeof(sorted[0]), compare_files);
    rc = check_twins(sorted, count, ret_error);
    if (rc == MUSTER_OK) {
        fprintf(out,
                "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"start_wall_ns\":\"%" PRIu64
                "\"},\"traceEvents\":[",
                merge.start_wall_ns);
        for (size_t i = 0; i < count; i++)
            print_life(&merge, sorted[i], i + 1);
        fputs("\n]}\n", out);
    }
    free(sorted);
    return rc;
}
