/* Reports to the launcher: one JSON object per line, each in one write so that lines never mix. A
 * step never waits for a launcher that does not read: what the next report says anew is dropped
 * then, and the rest is kept until there is room, or until the end. */
#include "training/report.h"

#include "runtime/system/host_place.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 2048  /* below PIPE_BUF: a write of one line is atomic */
#define KEPT_BYTES 65536 /* some hundred lines: changes of the membership while nobody reads */

struct muster_report {
    struct muster_mem *mem;
    struct muster_host_place *place; /* of this worker in its launcher's memory, or NULL */
    int fd;           /* -1: nobody listens */
    uint64_t dropped; /* lines that nobody will read */
    size_t kept_bytes;
    char kept[KEPT_BYTES]; /* whole lines that wait for room, oldest first */
};

/* A line under construction; text beyond LINE_BYTES makes it invalid, and it is dropped whole. */
struct line {
    char text[LINE_BYTES];
    size_t length;
    bool is_cut;
};

static void MUSTER_PRINTF(2, 3) line_add(struct line *line, const char *fmt, ...)
{
    size_t room = sizeof(line->text) - line->length;
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(line->text + line->length, room, fmt, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room)
        line->is_cut = true;
    else
        line->length += (size_t)length;
    MUSTER_ASSERT(line->length < sizeof(line->text));
}

/* Names of tasks come from resolvers and members, so they are no safer than texts. */
static void add_escaped(struct line *line, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\')
            line_add(line, "\\%c", c);
        else if (c < 0x20)
            line_add(line, "\\u%04x", c);
        else
            line_add(line, "%c", c);
    }
}

static void add_text(struct line *line, const char *name, const char *text)
{
    line_add(line, ",\"%s\":\"", name);
    add_escaped(line, text, strlen(text));
    line_add(line, "\"");
}

/* "a b" becomes ["a","b"]; words do not begin with a space. */
static void add_words(struct line *line, const char *name, const char *words)
{
    const char *comma = "";

    line_add(line, ",\"%s\":[", name);
    while (*words != '\0') {
        size_t length = strcspn(words, " ");

        line_add(line, "%s\"", comma);
        add_escaped(line, words, length);
        line_add(line, "\"");
        comma = ",";
        words += length;
        words += strspn(words, " ");
    }
    line_add(line, "]");
}

static void add_values(struct line *line, const struct muster_report_values *values)
{
    line_add(line, ",\"values\":{");
    for (size_t i = 0; i < values->count; i++) {
        line_add(line, "%s\"%s\":", i > 0 ? "," : "", values->at[i].name);
        if (isfinite(values->at[i].value))
            line_add(line, "%.9g", values->at[i].value);
        else
            line_add(line, "null");
    }
    line_add(line, "}");
}

/* A line is shorter than PIPE_BUF, so it is written whole or not at all; anything else means that
 * the reader is gone. */
static void write_line(struct muster_report *report, const char *text, size_t length)
{
    ssize_t written;

    do
        written = write(report->fd, text, length);
    while (written < 0 && errno == EINTR);
    if (written != (ssize_t)length) { /* the launcher is gone, or has half a line: no more of it */
        report->fd = -1;
        report->kept_bytes = 0;
    }
}

/* There is room for a whole line, so that writing it waits for nobody; or nobody reads any more. */
static bool has_room(const struct muster_report *report, int timeout_ms)
{
    struct pollfd room = {.fd = report->fd, .events = POLLOUT};

    return poll(&room, 1, timeout_ms) ==
           1; /* nobody waits for a descriptor that is closed, either */
}

static void write_kept(struct muster_report *report)
{
    while (report->kept_bytes > 0 && has_room(report, 0)) {
        const char *end = memchr(report->kept, '\n', report->kept_bytes);
        size_t length = (size_t)(end - report->kept) + 1;

        MUSTER_ASSERT(end != NULL); /* whole lines are kept */
        write_line(report, report->kept, length);
        if (report->fd < 0)
            return;
        report->kept_bytes -= length;
        memmove(report->kept, report->kept + length, report->kept_bytes);
    }
}

static bool line_finish(struct muster_report *report, struct line *line)
{
    line_add(line, "}\n");
    if (line->is_cut || report->fd < 0)
        return false;
    write_kept(report);
    return report->fd >= 0;
}

/* A later report says it anew: it is not kept. */
static void send_news(struct muster_report *report, struct line *line)
{
    if (!line_finish(report, line))
        return;
    if (report->kept_bytes == 0 && has_room(report, 0))
        write_line(report, line->text, line->length);
    else
        report->dropped++;
}

/* Kept in order: a line that could be written at once must not pass lines that wait. */
static void send_line(struct muster_report *report, struct line *line)
{
    if (!line_finish(report, line))
        return;
    if (report->kept_bytes == 0 && has_room(report, 0)) {
        write_line(report, line->text, line->length);
    } else if (report->kept_bytes + line->length <= sizeof(report->kept)) {
        memcpy(report->kept + report->kept_bytes, line->text, line->length);
        report->kept_bytes += line->length;
    } else {
        report->dropped++;
    }
}

void muster_report_drain(struct muster_report *report)
{
    while (report->kept_bytes > 0) /* nothing is kept for a reader who is gone */
        if (has_room(report, -1))
            write_kept(report);
}

void muster_report_values_set(struct muster_report_values *values, const char *name, double value)
{
    char clean[MUSTER_REPORT_NAME_BYTES];
    size_t i, length = 0;

    for (; *name != '\0' && length < sizeof(clean) - 1; name++)
        clean[length++] =
            *name == '"' || *name == '\\' || (unsigned char)*name < 0x20 ? '_' : *name;
    clean[length] = '\0';
    MUSTER_ASSERT(values->count <= MUSTER_REPORT_VALUES_MAX);
    for (i = 0; i < values->count && strcmp(values->at[i].name, clean) != 0; i++)
        ;
    if (i == MUSTER_REPORT_VALUES_MAX)
        return;
    memcpy(values->at[i].name, clean, length + 1);
    values->at[i].value = value;
    if (i == values->count)
        values->count++;
}

enum muster_rc muster_report_open(struct muster_env *env, struct muster_report **ret_report,
                                  struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, "MUSTER_REPORT_FD");
    struct muster_report *report;
    char *end = NULL;
    long fd = -1;

    if (text != NULL && *text != '\0') {
        fd = strtol(text, &end, 10);
        if (*end != '\0' || fd < 0 || fd > 1 << 20)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "MUSTER_REPORT_FD must be the number of an open descriptor, "
                                    "got %s; unset it",
                                    text);
    }
    report = muster_mem_alloc_zero(env->mem, 1, sizeof(*report));
    if (report == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "out of memory");
    report->mem = env->mem;
    report->fd = (int)fd;
    report->place = muster_host_place_open(muster_vars_get(env->vars, "MUSTER_STEP_PLACE"));
    muster_host_place_hold(report->place);
    *ret_report = report;
    return MUSTER_OK;
}

const int *muster_report_descriptor(const struct muster_report *report)
{
    return &report->fd;
}

void muster_report_close(struct muster_report *report)
{
    if (report == NULL)
        return;
    muster_report_drain(report);
    muster_host_place_close(report->place);
    muster_mem_free(report->mem, report);
}

void muster_report_place(struct muster_report *report, uint64_t begun_step, uint64_t committed_step)
{
    if (report->place == NULL)
        return;
    atomic_store_explicit(&report->place->begun_step, begun_step, memory_order_relaxed);
    atomic_store_explicit(&report->place->committed_step, committed_step, memory_order_relaxed);
}

void muster_report_progress(struct muster_report *report, uint64_t step, uint64_t epoch,
                            uint32_t member_count, const struct muster_report_values *values)
{
    struct line line = {.length = 0};

    line_add(&line,
             "{\"report\":\"progress\",\"step\":%" PRIu64 ",\"epoch\":%" PRIu64
             ",\"members\":%" PRIu32,
             step, epoch, member_count);
    add_values(&line, values);
    send_news(report, &line);
}

void muster_report_view(struct muster_report *report, const struct muster_report_view *view)
{
    struct line line = {.length = 0};

    line_add(&line,
             "{\"report\":\"view\",\"epoch\":%" PRIu64 ",\"members\":%" PRIu32 ",\"step\":%" PRIu64,
             view->epoch, view->member_count, view->step);
    add_words(&line, "lost", view->lost);
    add_words(&line, "joined", view->joined);
    if (view->reason != NULL && view->reason[0] != '\0')
        add_text(&line, "reason", view->reason);
    if (view->recovery_ms >= 0)
        line_add(&line, ",\"recovery_ms\":%.3f,\"detected_ns\":%" PRIu64 ",\"opened_ns\":%" PRIu64,
                 view->recovery_ms, view->detected_ns, view->opened_ns);
    if (view->op != NULL) {
        add_text(&line, "op", view->op);
        add_text(&line, "phase", view->phase);
        add_text(&line, "verdict", view->verdict);
    }
    send_line(report, &line);
}

static void add_spent(struct line *line, const struct muster_report_activity *at)
{
    line_add(line, ",\"spent_ns\":{");
    for (unsigned state = 0; state < MUSTER_ACTIVITY_STATES; state++)
        line_add(
            line, "%s\"%s\":%" PRIu64, state > 0 ? "," : "",
            muster_activity_state_name((enum muster_activity_state)state),
            muster_activity_spent_ns(at->activity, (enum muster_activity_state)state, at->now_ns));
    line_add(line, "},\"sent_bytes\":{");
    for (unsigned wire = 0; wire < MUSTER_ACTIVITY_WIRES; wire++)
        line_add(line, "%s\"%s\":%" PRIu64, wire > 0 ? "," : "",
                 muster_activity_wire_name((enum muster_activity_wire)wire),
                 at->activity->sent_bytes[wire]);
    line_add(line, "},\"waiting_ns\":%" PRIu64 ",\"waited_ns\":{", at->activity->waiting_ns);
    for (uint32_t i = 0; i < at->activity->wait_count; i++) {
        const struct muster_activity_wait *wait = &at->activity->waits[i];

        line_add(line, "%s\"", i > 0 ? "," : "");
        add_escaped(line, wait->task, strlen(wait->task));
        line_add(line, "\":%" PRIu64, wait->ns);
    }
    line_add(line, "}");
}

void muster_report_activity(struct muster_report *report, const struct muster_report_activity *at)
{
    struct line line = {.length = 0};

    if (report->fd < 0)
        return;
    line_add(&line,
             "{\"report\":\"activity\",\"state\":\"%s\",\"for_ns\":%" PRIu64 ",\"step\":%" PRIu64
             ",\"epoch\":%" PRIu64 ",\"members\":%" PRIu32 ",\"steps\":%" PRIu64,
             muster_activity_state_name(at->activity->state), at->now_ns - at->activity->since_ns,
             at->step, at->epoch, at->member_count, at->activity->steps);
    if (at->is_member)
        line_add(&line, ",\"rank\":%" PRIu32, at->rank);
    if (at->waits_for[0] != '\0') {
        add_text(&line, "waits_for", at->waits_for);
        add_text(&line, "op", at->op);
    }
    if (at->stands_for[0] != '\0')
        add_text(&line, "stands_for", at->stands_for);
    add_spent(&line, at);
    if (report->dropped > 0)
        line_add(&line, ",\"dropped\":%" PRIu64, report->dropped);
    send_news(report, &line);
}

void muster_report_rejoined(struct muster_report *report, uint64_t epoch, double catch_up_ms,
                            uint64_t from_step)
{
    struct line line = {.length = 0};

    line_add(&line,
             "{\"report\":\"rejoined\",\"epoch\":%" PRIu64
             ",\"catch_up_ms\":%.3f,\"from_step\":%" PRIu64,
             epoch, catch_up_ms, from_step);
    send_line(report, &line);
}

void muster_report_restored(struct muster_report *report, uint64_t epoch, uint64_t step)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"restored\",\"view\":%" PRIu64 ",\"step\":%" PRIu64, epoch, step);
    send_line(report, &line);
}

void muster_report_refused(struct muster_report *report, const char *why)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"refused\"");
    add_text(&line, "why", why);
    send_line(report, &line);
}

void muster_report_delivered(struct muster_report *report, uint64_t epoch, uint64_t delivered_ns)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"delivered\",\"epoch\":%" PRIu64 ",\"delivered_ns\":%" PRIu64,
             epoch, delivered_ns);
    send_line(report, &line);
}

void muster_report_dying(struct muster_report *report, uint64_t at_ns)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"dying\",\"at_ns\":%" PRIu64, at_ns);
    send_line(report, &line);
}

void muster_report_abandoned(struct muster_report *report, uint64_t step, const char *why)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"abandoned\",\"step\":%" PRIu64, step);
    add_text(&line, "reason", why);
    send_line(report, &line);
}

void muster_report_unclosed(struct muster_report *report, uint64_t step, bool is_in_step,
                            uint64_t last_step)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"unclosed\",\"step\":%" PRIu64 ",\"in_step\":%s", step,
             is_in_step ? "true" : "false");
    if (last_step != 0)
        line_add(&line, ",\"last_step\":%" PRIu64, last_step);
    send_line(report, &line);
}

void muster_report_unsaved(struct muster_report *report, uint64_t step, const char *why)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"unsaved\",\"step\":%" PRIu64, step);
    add_text(&line, "why", why);
    send_line(report, &line);
}

void muster_report_checkpoint_dir(struct muster_report *report, const char *folder)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"checkpoint_dir\"");
    add_text(&line, "folder", folder);
    send_line(report, &line);
}

void muster_report_checkpoint(struct muster_report *report, uint64_t step, uint64_t duration_ns,
                              const char *why)
{
    struct line line = {.length = 0};

    line_add(&line,
             "{\"report\":\"checkpoint\",\"step\":%" PRIu64 ",\"duration_ns\":%" PRIu64
             ",\"saved\":%s",
             step, duration_ns, why == NULL ? "true" : "false");
    if (why != NULL)
        add_text(&line, "why", why);
    send_line(report, &line);
}

void muster_report_preempted(struct muster_report *report, uint64_t step, bool is_saved)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"preempted\",\"step\":%" PRIu64 ",\"saved\":%s", step,
             is_saved ? "true" : "false");
    send_line(report, &line);
}

void muster_report_skipped(struct muster_report *report, uint64_t step)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"skipped\",\"step\":%" PRIu64, step);
    send_line(report, &line);
}

void muster_report_left_out(struct muster_report *report, uint64_t step, const char *why)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"left_out\",\"step\":%" PRIu64, step);
    add_text(&line, "why", why);
    send_line(report, &line);
}

void muster_report_over(struct muster_report *report)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"over\"");
    send_line(report, &line);
}

void muster_report_result(struct muster_report *report, const struct muster_report_result *result,
                          const struct muster_report_values *values)
{
    struct line line = {.length = 0};

    line_add(&line, "{\"report\":\"result\",\"steps\":%" PRIu64 ",\"steps_lost\":%" PRIu64,
             result->steps, result->steps_lost);
    add_text(&line, "digest", result->digest);
    add_values(&line, values);
    send_line(report, &line);
}
