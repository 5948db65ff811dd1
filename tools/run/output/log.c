/* The launcher's own log. Its lines share standard error with what workers print.
 *
 * A line goes out whole: text, or one JSON object with --log-format json. Before it the progress
 * line is taken off the terminal. A line for which memory lacks is cut instead of lost; an error is
 * written even before the log is open. */
#include "run/output/log.h"

#include "common/output.h"
#include "run/output/console.h"
#include "run/output/output.h"

#include <muster/json.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {
    [MUSTER_LOG_ERROR] = "error", [MUSTER_LOG_WARN] = "warn",   [MUSTER_LOG_INFO] = "info",
    [MUSTER_LOG_DEBUG] = "debug", [MUSTER_LOG_TRACE] = "trace",
};

/* The run whose log is open, for errors of parts that do not know it. */
static struct run *logging;

void run_log_open(struct run *run)
{
    struct run_output *output = run->output;

    output->log_level = MUSTER_LOG_INFO;
    if (run->settings.log_level != NULL &&
        muster_log_level_parse(run->settings.log_level, &output->log_level) != MUSTER_OK)
        output->log_level = MUSTER_LOG_INFO; /* the options' table has checked it */
    output->is_log_json = strcmp(run->settings.log_format, "json") == 0;
    logging = run;
}

/* RFC 3339 in UTC with milliseconds, as the members' own log has it. */
static void format_time(const struct run *run, char *text, size_t bytes)
{
    uint64_t wall_ns = muster_host_wall_ns(run->env->host);
    time_t seconds = (time_t)(wall_ns / MUSTER_NS_PER_S);
    struct tm parts;
    size_t length;

    gmtime_r(&seconds, &parts);
    length = strftime(text, bytes, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + length, bytes - length, ".%03uZ",
             (unsigned)(wall_ns % MUSTER_NS_PER_S / MUSTER_NS_PER_MS));
}

/* On a terminal the time of day is enough. */
static void format_short_time(const struct run *run, char *text, size_t bytes)
{
    time_t seconds = (time_t)(muster_host_wall_ns(run->env->host) / MUSTER_NS_PER_S);
    struct tm parts;

    if (localtime_r(&seconds, &parts) == NULL || strftime(text, bytes, "%H:%M:%S", &parts) == 0)
        text[0] = '\0';
}

static struct muster_json *field_value(const struct muster_field *field)
{
    switch (field->kind) {
    case MUSTER_FIELD_TEXT:
        return muster_json_text_new(field->text);
    case MUSTER_FIELD_U64:
        return muster_json_integer_new((int64_t)field->u64);
    case MUSTER_FIELD_I64:
        return muster_json_integer_new(field->i64);
    case MUSTER_FIELD_F64:
        return muster_json_real_new(field->f64);
    }
    return NULL;
}

/* False: memory lacks, and nothing was written. */
static bool write_record(struct run *run, const struct muster_json *record)
{
    char *line = NULL;
    size_t length;

    if (muster_json_format(record, false, run->env->mem, &line) != MUSTER_OK)
        return false;
    length = strlen(line);
    line[length] = '\n'; /* in place of the NUL: sinks take a count */
    run_sink_write(run->output->err, line, length + 1);
    muster_mem_free(run->env->mem, line);
    return true;
}

/* Bytes that are not UTF-8, which JSON has no word for, become '?'. */
static struct muster_json *text_value(char *text)
{
    struct muster_json *value = muster_json_text_new(text);

    if (value == NULL) /* perhaps memory was lacking for a moment */
        value = muster_json_text_new(text);
    if (value != NULL)
        return value;
    for (char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    return muster_json_text_new(text);
}

/* False: memory lacks. */
static bool write_json(struct run *run, enum muster_log_level level, const char *event,
                       const struct muster_field *fields, size_t count, char *text)
{
    struct muster_json *record = muster_json_object_new();
    bool is_written;
    char when[40];

    format_time(run, when, sizeof(when));
    is_written = muster_json_set(record, "time", muster_json_text_new(when)) &&
                 muster_json_set(record, "level", muster_json_text_new(level_names[level])) &&
                 muster_json_set(record, "event", muster_json_text_new(event));
    for (size_t i = 0; is_written && i < count; i++)
        if (!muster_json_set(record, fields[i].name, field_value(&fields[i])))
            continue; /* infinite: JSON has no word for it */
    is_written = is_written && muster_json_set(record, "text", text_value(text)) &&
                 write_record(run, record);
    muster_json_free(record);
    return is_written;
}

void run_log_output(struct run_task *task, const char *stream, const char *line, size_t length)
{
    struct run *run = task->run;
    struct muster_json *record = NULL;
    struct muster_json *parsed = NULL;
    char *text = strndup(line, length);
    char when[40];

    if (text == NULL)
        output_no_memory();
    record = muster_json_object_new();
    if (length > 0 && line[0] == '{' && muster_json_parse(line, length, &parsed, NULL) != MUSTER_OK)
        parsed = NULL;
    format_time(run, when, sizeof(when));
    if (!muster_json_set(record, "time", muster_json_text_new(when)) ||
        !muster_json_set(record, "level", muster_json_text_new("info")) ||
        !muster_json_set(record, "event", muster_json_text_new("output")) ||
        !muster_json_set(record, "task", muster_json_text_new(task->name)) ||
        !muster_json_set(record, "stream", muster_json_text_new(stream)) ||
        !muster_json_set(record, parsed != NULL ? "record" : "text",
                         parsed != NULL ? parsed : text_value(text)) ||
        !write_record(run, record))
        output_no_memory(); /* output of a worker must not be lost in silence */
    muster_json_free(record);
    free(text);
}

/* A text for people, cut where memory lacks for it. */
struct run_text {
    char *whole;
    char cut[512];
};

static char *text_format(struct run_text *text, const char *fmt, va_list args) MUSTER_PRINTF(2, 0);
static char *text_format(struct run_text *text, const char *fmt, va_list args)
{
    va_list again;

    va_copy(again, args);
    if (vasprintf(&text->whole, fmt, args) < 0) {
        text->whole = NULL;
        vsnprintf(text->cut, sizeof(text->cut), fmt, again);
    }
    va_end(again);
    return text->whole != NULL ? text->whole : text->cut;
}

static char *text_line(struct run_text *text, const char *fmt, ...) MUSTER_PRINTF(2, 3);
static char *text_line(struct run_text *text, const char *fmt, ...)
{
    va_list args;
    char *line;

    va_start(args, fmt);
    line = text_format(text, fmt, args);
    va_end(args);
    return line;
}

static void write_text(struct run *run, const char *text)
{
    char when[40];
    struct run_text whole;
    const char *line;

    if (run->output->is_terminal)
        format_short_time(run, when, sizeof(when));
    else
        format_time(run, when, sizeof(when));
    line = text_line(&whole, "%s [muster] %s\n", when, text);
    run_sink_write(run->output->err, line, strlen(line));
    free(whole.whole);
}

static void log_write(struct run *run, enum muster_log_level level, const char *event,
                      const struct muster_field *fields, size_t count, char *text)
{
    if (run->settings.is_quiet || run->output == NULL || level > run->output->log_level)
        return;
    run_console_clear(run);
    if (!run->output->is_log_json || !write_json(run, level, event, fields, count, text))
        write_text(run, text);
}

void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
{
    va_list args;
    struct run_text text;

    va_start(args, fmt);
    log_write(run, level, event, fields, count, text_format(&text, fmt, args));
    va_end(args);
    free(text.whole);
}

void run_tell(struct run *run, const char *fmt, ...)
{
    va_list args;
    struct run_text text;

    va_start(args, fmt);
    log_write(run, MUSTER_LOG_INFO, "note", NULL, 0, text_format(&text, fmt, args));
    va_end(args);
    free(text.whole);
}

void run_log_error(const char *fmt, ...)
{
    va_list args;
    struct run_text text;
    char *line;

    va_start(args, fmt);
    line = text_format(&text, fmt, args);
    va_end(args);
    if (logging != NULL)
        run_console_clear(logging);
    if (logging == NULL || logging->output == NULL || !logging->output->is_log_json ||
        !write_json(logging, MUSTER_LOG_ERROR, "error", NULL, 0, line))
        fprintf(stderr, "muster run: %s\n", line);
    free(text.whole);
}

void run_log_report(struct run *run, const char *event, const struct muster_field *fields,
                    size_t count, char *text)
{
    run_console_clear(run);
    if (!run->output->is_log_json || !write_json(run, MUSTER_LOG_ERROR, event, fields, count, text))
        run_sink_write(run->output->err, text, strlen(text));
}
