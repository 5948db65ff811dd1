/* --explain: the environment of a resolver, recorded. Each part of env that looks at the outside is
 * replaced by one that calls the real part and tells on standard error what came back, so resolvers
 * need no code for it. */
#include "resolve/resolve.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define VALUE_SHOWN_MAX 100 /* TF_CONFIG of a large job fills screens */

/* Secrets are known by their names, as in AWS_SECRET_ACCESS_KEY. People paste this output into bug
 * reports: a value too few is shown rather than one too many. */
static bool is_secret(const char *name)
{
    static const char *const words[] = {"TOKEN",   "SECRET", "PASSWORD", "CREDENTIAL",
                                        "PRIVATE", "APIKEY", "API_KEY",  "ACCESS_KEY"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasestr(name, words[i]) != NULL)
            return true;
    }
    return false;
}

/* A URL may carry a key, or somebody's password. */
static bool has_secret(const char *value)
{
    static const char *const words[] = {"key=", "token=", "secret=", "password=", "sig=", "@"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(value, "://") != NULL && strcasestr(value, words[i]) != NULL)
            return true;
    }
    return false;
}

/* Resolvers read a variable at each question; it is told once. With more names than there is room
 * for, the rest are told each time. */
static bool is_first_time(struct resolve_explain *explain, const char *name)
{
    for (size_t i = 0; i < explain->seen_count; i++) {
        if (strcmp(explain->seen[i], name) == 0)
            return false;
    }
    if (explain->seen_count < sizeof(explain->seen) / sizeof(explain->seen[0]))
        explain->seen[explain->seen_count++] = name; /* names are constants of resolvers */
    return true;
}

/* Lines of JSON. Takes line; what there is no memory for is left out. */

static struct muster_json *line_new(const char *what)
{
    struct muster_json *line = muster_json_object_new();

    (void)!muster_json_set(line, "explain", muster_json_text_new(what));
    return line;
}

static void add_text(struct muster_json *line, const char *name, const char *value)
{
    (void)!muster_json_set(line, name, muster_json_text_new(value));
}

static void add_number(struct muster_json *line, const char *name, int64_t value)
{
    (void)!muster_json_set(line, name, muster_json_integer_new(value));
}

static void line_print(struct muster_json *line)
{
    char *text = NULL;

    if (muster_json_format(line, false, muster_mem_system(), &text) == MUSTER_OK)
        fprintf(stderr, "%s\n", text);
    muster_mem_free(muster_mem_system(), text);
    muster_json_free(line);
}

/* Variables. */

static void print_variable(const char *name, const char *value, bool is_shown)
{
    if (value == NULL)
        fprintf(stderr, "variable  %s is not set\n", name);
    else if (!is_shown)
        fprintf(stderr, "variable  %s is set (not shown)\n", name);
    else
        fprintf(stderr, "variable  %s=%.*s%s\n", name, VALUE_SHOWN_MAX, value,
                strlen(value) > VALUE_SHOWN_MAX ? " …" : "");
}

static const char *get_variable(struct muster_vars *vars, const char *name)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(vars, struct resolve_explain, vars);
    const char *value = muster_vars_get(explain->real_vars, name);
    bool is_shown = value != NULL && !is_secret(name) && !has_secret(value);
    struct muster_json *line;

    if (!is_first_time(explain, name))
        return value;
    if (!explain->is_json) {
        print_variable(name, value, is_shown);
        return value;
    }
    line = line_new("variable");
    add_text(line, "name", name);
    (void)!muster_json_set(line, "is_set", muster_json_bool_new(value != NULL));
    if (is_shown)
        add_text(line, "value", value);
    line_print(line);
    return value;
}

/* Files. */

static void tell_file(const struct resolve_explain *explain, const char *path, const char *error,
                      size_t bytes)
{
    struct muster_json *line;

    if (!explain->is_json && error != NULL)
        fprintf(stderr, "file      %s: %s\n", path, error);
    else if (!explain->is_json)
        fprintf(stderr, "file      %s: %zu bytes\n", path, bytes);
    if (!explain->is_json)
        return;
    line = line_new("file");
    add_text(line, "path", path);
    if (error != NULL)
        add_text(line, "error", error);
    else
        add_number(line, "bytes", (int64_t)bytes);
    line_print(line);
}

static enum muster_rc read_file(struct muster_files *files, struct muster_mem *mem,
                                const char *path, size_t limit_bytes, char **ret_text,
                                size_t *ret_bytes)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(files, struct resolve_explain, files);
    enum muster_rc rc =
        muster_files_read(explain->real_files, mem, path, limit_bytes, ret_text, ret_bytes);

    tell_file(explain, path, rc == MUSTER_OK ? NULL : muster_rc_text(rc),
              rc == MUSTER_OK ? *ret_bytes : 0);
    return rc;
}

static enum muster_rc write_file(struct muster_files *files, const char *path, const void *bytes,
                                 size_t count)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(files, struct resolve_explain, files);

    tell_file(explain, path, "is written", 0);
    return muster_files_write(explain->real_files, path, bytes, count);
}

static bool is_special_file(struct muster_files *files, const char *path)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(files, struct resolve_explain, files);

    return muster_files_is_special(explain->real_files, path);
}

static size_t count_files(struct muster_files *files, const char *pattern)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(files, struct resolve_explain, files);
    size_t count = muster_files_count(explain->real_files, pattern);
    struct muster_json *line;

    if (!explain->is_json) {
        fprintf(stderr, "file      %s: %zu found\n", pattern, count);
        return count;
    }
    line = line_new("file");
    add_text(line, "path", pattern);
    add_number(line, "count", (int64_t)count);
    line_print(line);
    return count;
}

/* Requests. */

/* The error without the request, which stands before it. */
static const char *exchange_cause(const struct muster_http_exchange *exchange)
{
    size_t length = strlen(exchange->method);
    const char *end = strstr(exchange->error, ": ");

    return end != NULL && strncmp(exchange->error, exchange->method, length) == 0 &&
                   exchange->error[length] == ' '
               ? end + 2
               : exchange->error;
}

static void print_exchange(const struct muster_http_exchange *exchange)
{
    fprintf(stderr, "request   %s%s%s %s -> ", exchange->source,
            exchange->source[0] != '\0' ? ": " : "", exchange->method, exchange->url);
    if (exchange->status != 0)
        fprintf(stderr, "%d, %zu bytes", exchange->status, exchange->answer_bytes);
    else
        fprintf(stderr, "%s", muster_rc_name(exchange->rc));
    if (exchange->error[0] != '\0')
        fprintf(stderr, " (%s)", exchange_cause(exchange));
    fprintf(stderr, ", %.1f ms, attempt %u\n", (double)exchange->duration_ns * 1e-6,
            exchange->attempt + 1);
}

/* Each attempt is an exchange of its own, so retries show. */
static void show_exchange(struct muster_http_tracer *tracer,
                          const struct muster_http_exchange *exchange)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(tracer, struct resolve_explain, tracer);
    struct muster_json *line;

    if (!explain->is_json) {
        print_exchange(exchange);
        return;
    }
    line = line_new("request");
    add_text(line, "source", exchange->source);
    add_text(line, "method", exchange->method);
    add_text(line, "url", exchange->url);
    add_number(line, "status", exchange->status);
    add_number(line, "bytes", (int64_t)exchange->answer_bytes);
    (void)!muster_json_set(line, "duration_ms",
                           muster_json_real_new((double)exchange->duration_ns * 1e-6));
    add_number(line, "attempt", (int64_t)exchange->attempt + 1);
    add_text(line, "rc", muster_rc_name(exchange->rc));
    if (exchange->error[0] != '\0')
        add_text(line, "error", exchange_cause(exchange));
    line_print(line);
}

/* The log: exchanges are told already; everything else goes through, down to what is looked at. */
static void write_record(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                         const char *event, const struct muster_field *fields, size_t count)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(log, struct resolve_explain, log);

    if (strcmp(event, "http_exchange") != 0)
        explain->real_log->ops->write(explain->real_log, level, wall_ns, event, fields, count);
}

void resolve_explain_init(struct resolve_explain *explain, struct muster_env *env, bool is_json)
{
    static const struct muster_vars_ops vars_ops = {.get = get_variable};
    static const struct muster_files_ops files_ops = {.read = read_file,
                                                      .write = write_file,
                                                      .is_special = is_special_file,
                                                      .count = count_files};
    static const struct muster_log_ops log_ops = {.write = write_record};

    *explain = (struct resolve_explain){
        .vars = {.ops = &vars_ops},
        .files = {.ops = &files_ops},
        .tracer = {.on_exchange = show_exchange},
        .log = {.ops = &log_ops, .level_max = MUSTER_LOG_DEBUG},
        .real_vars = env->vars,
        .real_files = env->files,
        .real_log = env->log,
        .is_json = is_json,
    };
    env->vars = &explain->vars;
    env->files = &explain->files;
    if (env->log != NULL) {
        if (env->log->level_max > explain->log.level_max)
            explain->log.level_max = env->log->level_max;
        env->log = &explain->log;
    }
    if (env->http != NULL)
        env->http->tracer = &explain->tracer;
}

void resolve_explain_fini(struct resolve_explain *explain, struct muster_env *env)
{
    env->vars = explain->real_vars;
    env->files = explain->real_files;
    env->log = explain->real_log;
}
