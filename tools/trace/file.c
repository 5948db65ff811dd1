/* One file of the flight recorder: a header and an event per line (docs/trace.md).
 *
 * A file may come from another version, be cut short by a full disk, or be something else: every
 * line is checked, and an error names the file and the line. Numbers are kept as decimal text,
 * since JSON integers end at 2^63. */
#include "trace/trace.h"

#include <muster/env.h>
#include <muster/json.h>

#include "common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)256 << 20) /* far above 8,192 events; it is read as a whole */
#define FORMAT         1

static enum muster_rc refuse_file(const struct trace_file *file, struct muster_error *ret_error)
{
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "%s is not a file of muster's flight recorder: its first line is not "
                            "the header {\"muster_trace\":%d,…}",
                            file->path, FORMAT);
}

static char *text_copy(const struct muster_json *value)
{
    const char *text = muster_json_text(value);
    char *copy = text != NULL ? strdup(text) : NULL;

    if (text != NULL && copy == NULL)
        output_no_memory();
    return copy;
}

static uint64_t number_of(const struct muster_json *object, const char *name)
{
    int64_t number = muster_json_integer(muster_json_member(object, name));

    return number > 0 ? (uint64_t)number : 0;
}

static enum muster_rc read_header(struct trace_file *file, const struct muster_json *header,
                                  struct muster_error *ret_error)
{
    const struct muster_json *clock = muster_json_member(header, "clock");
    const struct muster_json *rank = muster_json_member(header, "rank");
    int64_t format = muster_json_integer(muster_json_member(header, "muster_trace"));

    if (format > FORMAT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s has format %lld of the flight recorder, and this muster reads "
                                "format %d; use the muster that wrote it",
                                file->path, (long long)format, FORMAT);
    file->job = text_copy(muster_json_member(header, "job"));
    file->task = text_copy(muster_json_member(header, "task"));
    file->host = text_copy(muster_json_member(header, "host"));
    file->incarnation = text_copy(muster_json_member(header, "incarnation"));
    file->error = text_copy(muster_json_member(header, "error"));
    file->rank = muster_json_kind(rank) == MUSTER_JSON_INTEGER ? muster_json_integer(rank) : -1;
    file->pid = muster_json_integer(muster_json_member(header, "pid"));
    file->monotonic_ns = number_of(clock, "monotonic_ns");
    file->wall_ns = number_of(clock, "wall_ns");
    file->emitted = number_of(header, "emitted");
    file->event_count = (size_t)number_of(header, "events");
    if (format != FORMAT || file->job == NULL || file->task == NULL || file->host == NULL ||
        file->incarnation == NULL || file->wall_ns == 0 || file->emitted < file->event_count)
        return refuse_file(file, ret_error);
    return MUSTER_OK;
}

/* Numbers above INT64_MAX come as texts. Both forms become decimal text, which merge.c prints. */
static bool copy_number(const struct muster_json *value, char **ret_text)
{
    if (muster_json_kind(value) == MUSTER_JSON_TEXT)
        *ret_text = text_copy(value);
    else if (muster_json_kind(value) != MUSTER_JSON_INTEGER || muster_json_integer(value) < 0 ||
             asprintf(ret_text, "%lld", (long long)muster_json_integer(value)) < 0)
        *ret_text = NULL;
    return *ret_text != NULL && **ret_text != '\0' &&
           strspn(*ret_text, "0123456789") == strlen(*ret_text);
}

static bool read_event(const struct muster_json *line, struct trace_event *event)
{
    static const char *const names[] = {"a", "b", "c"};
    bool is_good = true;

    event->time_ns = number_of(line, "time_ns");
    event->kind = text_copy(muster_json_member(line, "kind"));
    event->text = text_copy(muster_json_member(line, "text"));
    for (size_t i = 0; i < 3; i++)
        is_good = copy_number(muster_json_member(line, names[i]), &event->numbers[i]) && is_good;
    return is_good && event->time_ns > 0 && event->kind != NULL;
}

/* *at goes after the line. NULL: there is none, or it has no end. */
static struct muster_json *parse_line(const char **at, const char *end)
{
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    struct muster_json *line = NULL;

    if (newline == NULL ||
        muster_json_parse(*at, (size_t)(newline - *at), &line, NULL) != MUSTER_OK)
        return NULL;
    *at = newline + 1;
    return line;
}

/* The header announces the number of events; the room is bounded by the bytes that are there, so
 * that a wrong number allocates little. */
static enum muster_rc read_events(struct trace_file *file, const char *at, const char *end,
                                  struct muster_error *ret_error)
{
    size_t announced = file->event_count, room = (size_t)(end - at) / 8 + 1; /* of a line */

    file->event_count = 0;
    file->events = calloc(announced < room ? announced + 1 : room, sizeof(file->events[0]));
    if (file->events == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "%s: out of memory",
                                file->path);
    while (file->event_count < announced && at < end) {
        struct muster_json *line = parse_line(&at, end);
        bool is_good;

        if (line == NULL && memchr(at, '\n', (size_t)(end - at)) == NULL)
            break;
        file->events[file->event_count].line = file->event_count + 2;
        is_good = read_event(line, &file->events[file->event_count++]);
        muster_json_free(line);
        if (!is_good)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s, line %zu is not an event of the flight recorder",
                                    file->path, file->event_count + 1);
    }
    if (file->event_count < announced)
        return muster_error_set(ret_error, MUSTER_DATA_LOSS,
                                "%s is cut short: %zu of %zu events are there", file->path,
                                file->event_count, announced);
    if (at < end)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s has more lines than its header tells, from line %zu on; give "
                                "each file by itself",
                                file->path, announced + 2);
    return MUSTER_OK;
}

/* The recorder is a ring: its oldest event may have been written anew while another thread dumped,
 * so events are put in order by time, those of one time as in the file. */
static int compare_events(const void *a, const void *b)
{
    const struct trace_event *left = a, *right = b;

    if (left->time_ns != right->time_ns)
        return left->time_ns < right->time_ns ? -1 : 1;
    return left->line < right->line ? -1 : left->line > right->line;
}

enum muster_rc trace_file_read(const char *path, struct trace_file *file,
                               struct muster_error *ret_error)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_json *header;
    const char *at;
    char *text = NULL;
    size_t bytes = 0;
    enum muster_rc rc;

    *file = (struct trace_file){.path = path};
    errno = 0;
    rc = muster_files_read(muster_files_system(), mem, path, FILE_BYTES_MAX, &text, &bytes);
    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "cannot read %s: %s", path,
                                errno != 0 ? strerror(errno) : muster_rc_text(rc));
    at = text;
    header = parse_line(&at, text + bytes);
    rc = header != NULL ? read_header(file, header, ret_error) : refuse_file(file, ret_error);
    muster_json_free(header);
    if (rc == MUSTER_OK)
        rc = read_events(file, at, text + bytes, ret_error);
    muster_mem_free(mem, text);
    if (rc == MUSTER_OK)
        qsort(file->events, file->event_count, sizeof(file->events[0]), compare_events);
    return rc;
}

void trace_file_free(struct trace_file *file)
{
    for (size_t i = 0; file->events != NULL && i < file->event_count; i++) {
        struct trace_event *event = &file->events[i];

        free(event->kind);
        free(event->text);
        for (size_t k = 0; k < 3; k++)
            free(event->numbers[k]);
    }
    free(file->events);
    free(file->job);
    free(file->task);
    free(file->host);
    free(file->incarnation);
    free(file->error);
    *file = (struct trace_file){.path = NULL};
}
