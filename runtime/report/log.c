/* The log: filtering by level, and the sink that writes lines of text or JSON to a file. */
#include <muster/env.h>
#include <muster/log.h>
#include <muster/trace.h>

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "runtime/value/text.h"

static const char *const level_names[] = {
    [MUSTER_LOG_ERROR] = "error", [MUSTER_LOG_WARN] = "warn",   [MUSTER_LOG_INFO] = "info",
    [MUSTER_LOG_DEBUG] = "debug", [MUSTER_LOG_TRACE] = "trace",
};

struct file_log {
    struct muster_log log;
    struct muster_mem *mem;
    FILE *file;
    bool is_json;
    struct muster_text line; /* kept between records */
};

static bool is_traced(const struct muster_env *env, enum muster_log_level level)
{
    return env->trace != NULL && level <= MUSTER_LOG_WARN;
}

static bool is_logged(const struct muster_env *env, enum muster_log_level level)
{
    return env->log != NULL && level <= env->log->level_max;
}

bool muster_log_wants(const struct muster_env *env, enum muster_log_level level)
{
    return is_logged(env, level) || is_traced(env, level);
}

/* Warnings and errors also go to the flight recorder, whatever the level of the log. */
void muster_log_write(const struct muster_env *env, enum muster_log_level level, const char *event,
                      const struct muster_field *fields, size_t count)
{
    uint64_t wall_ns;

    if (is_traced(env, level))
        muster_trace_emit_text(env, "logged", event, level, 0, 0);
    if (!is_logged(env, level))
        return;
    wall_ns = env->host == NULL ? 0 : muster_host_wall_ns(env->host);
    env->log->ops->write(env->log, level, wall_ns, event, fields, count);
}

enum muster_rc muster_log_level_parse(const char *text, enum muster_log_level *ret_level)
{
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcasecmp(text, level_names[i]) == 0) {
            *ret_level = (enum muster_log_level)i;
            return MUSTER_OK;
        }
    }
    return MUSTER_INVALID_ARGUMENT;
}

/* RFC 3339 in UTC with milliseconds. */
static void add_time(struct muster_text *line, uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / MUSTER_NS_PER_S);
    unsigned ms = (unsigned)(wall_ns % MUSTER_NS_PER_S / MUSTER_NS_PER_MS);
    struct tm parts;
    char text[32];

    gmtime_r(&seconds, &parts);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    muster_text_add_format(line, "%s.%03uZ", text, ms);
}

/* A text that is plain needs no quotes in a text line: "key=value" stays greppable. */
static bool is_plain(const char *text)
{
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7F || strchr("\"\\=", *text))
            return false;
    }
    return true;
}

static void add_value(struct muster_text *line, const struct muster_field *field, bool is_json)
{
    switch (field->kind) {
    case MUSTER_FIELD_TEXT:
        if (field->text == NULL)
            muster_text_add_string(line, "null");
        else if (!is_json && is_plain(field->text))
            muster_text_add_string(line, field->text);
        else
            muster_text_add_json(line, field->text);
        break;
    case MUSTER_FIELD_U64:
        muster_text_add_format(line, "%" PRIu64, field->u64);
        break;
    case MUSTER_FIELD_I64:
        muster_text_add_format(line, "%" PRId64, field->i64);
        break;
    case MUSTER_FIELD_F64:
        muster_text_add_json_number(line, field->f64);
        break;
    }
}

static void add_json_record(struct muster_text *line, enum muster_log_level level, uint64_t wall_ns,
                            const char *event, const struct muster_field *fields, size_t count)
{
    muster_text_add_string(line, "{\"time\":\"");
    add_time(line, wall_ns);
    muster_text_add_format(line, "\",\"level\":\"%s\",\"event\":", level_names[level]);
    muster_text_add_json(line, event);
    for (size_t i = 0; i < count; i++) {
        muster_text_add(line, ",", 1);
        muster_text_add_json(line, fields[i].name);
        muster_text_add(line, ":", 1);
        add_value(line, &fields[i], true);
    }
    muster_text_add_string(line, "}\n");
}

static void add_text_record(struct muster_text *line, enum muster_log_level level, uint64_t wall_ns,
                            const char *event, const struct muster_field *fields, size_t count)
{
    add_time(line, wall_ns);
    muster_text_add_format(line, " %-5s %s", level_names[level], event);
    for (size_t i = 0; i < count; i++) {
        muster_text_add_format(line, " %s=", fields[i].name);
        add_value(line, &fields[i], false);
    }
    muster_text_add(line, "\n", 1);
}

/* One fwrite per record, so that lines of several processes do not mix within. */
static void file_write(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                       const char *event, const struct muster_field *fields, size_t count)
{
    struct file_log *ours = (struct file_log *)log;

    muster_text_clear(&ours->line);
    if (ours->is_json)
        add_json_record(&ours->line, level, wall_ns, event, fields, count);
    else
        add_text_record(&ours->line, level, wall_ns, event, fields, count);
    if (ours->line.is_failed) /* no memory: the record is lost, the program goes on */
        return;
    fwrite(ours->line.bytes, 1, ours->line.count, ours->file);
    fflush(ours->file);
}

enum muster_rc muster_log_file_open(struct muster_mem *mem, FILE *file, bool is_json,
                                    enum muster_log_level level_max, struct muster_log **ret_log)
{
    static const struct muster_log_ops ops = {.write = file_write};
    struct file_log *ours = muster_mem_alloc_zero(mem, 1, sizeof(*ours));

    if (ours == NULL)
        return MUSTER_RESOURCE_EXHAUSTED;
    ours->log.ops = &ops;
    ours->log.level_max = level_max;
    ours->mem = mem;
    ours->file = file;
    ours->is_json = is_json;
    muster_text_init(&ours->line, mem);
    *ret_log = &ours->log;
    return MUSTER_OK;
}

void muster_log_file_close(struct muster_log *log)
{
    struct file_log *ours = (struct file_log *)log;

    if (log == NULL)
        return;
    muster_text_fini(&ours->line);
    muster_mem_free(ours->mem, ours);
}
