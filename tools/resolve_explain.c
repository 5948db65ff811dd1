/* --explain: the environment of a resolver, recorded. */
#include "resolve.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define VALUE_SHOWN_MAX 100

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

static const char *get_variable(struct muster_vars *vars, const char *name)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(vars, struct resolve_explain, vars);
    const char *value = muster_vars_get(explain->real_vars, name);

    if (!is_first_time(explain, name))
        return value;
    if (value == NULL)
        fprintf(stderr, "variable  %s is not set\n", name);
    else if (is_secret(name))
        fprintf(stderr, "variable  %s is set (not shown)\n", name);
    else
        fprintf(stderr, "variable  %s=%.*s%s\n", name, VALUE_SHOWN_MAX, value,
                strlen(value) > VALUE_SHOWN_MAX ? " …" : "");
    return value;
}

static enum muster_rc read_file(struct muster_files *files, struct muster_mem *mem,
                                const char *path, size_t limit_bytes, char **ret_text,
                                size_t *ret_bytes)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(files, struct resolve_explain, files);
    enum muster_rc rc =
        muster_files_read(explain->real_files, mem, path, limit_bytes, ret_text, ret_bytes);

    if (rc == MUSTER_OK)
        fprintf(stderr, "file      %s: %zu bytes\n", path, *ret_bytes);
    else
        fprintf(stderr, "file      %s: %s\n", path, muster_rc_text(rc));
    return rc;
}

static enum muster_rc write_file(struct muster_files *files, const char *path, const void *bytes,
                                 size_t count)
{
    struct resolve_explain *explain = MUSTER_CONTAINER_OF(files, struct resolve_explain, files);

    fprintf(stderr, "file      %s is written\n", path);
    return muster_files_write(explain->real_files, path, bytes, count);
}

static void show_exchange(struct muster_http_tracer *tracer,
                          const struct muster_http_exchange *exchange)
{
    (void)tracer;
    fprintf(stderr, "request   %s %s -> ", exchange->method, exchange->url);
    if (exchange->status != 0)
        fprintf(stderr, "%d, %zu bytes", exchange->status, exchange->answer_bytes);
    else
        fprintf(stderr, "%s", muster_rc_name(exchange->rc));
    if (exchange->error[0] != '\0')
        fprintf(stderr, " (%s)", exchange->error);
    fprintf(stderr, ", %.1f ms%s\n", (double)exchange->duration_ns * 1e-6,
            exchange->attempt > 0 ? ", again" : "");
}

enum muster_rc resolve_explain_init(struct resolve_explain *explain, struct muster_env *env)
{
    static const struct muster_vars_ops vars_ops = {.get = get_variable};
    static const struct muster_files_ops files_ops = {.read = read_file, .write = write_file};
    enum muster_rc rc;

    *explain = (struct resolve_explain){
        .vars = {.ops = &vars_ops},
        .files = {.ops = &files_ops},
        .tracer = {.on_exchange = show_exchange},
        .real_vars = env->vars,
        .real_files = env->files,
    };
    rc = muster_log_file_open(env->mem, stderr, false, MUSTER_LOG_DEBUG, &explain->log);
    if (rc != MUSTER_OK)
        return rc;
    env->vars = &explain->vars;
    env->files = &explain->files;
    env->log = explain->log;
    if (env->http != NULL)
        env->http->tracer = &explain->tracer;
    return MUSTER_OK;
}

void resolve_explain_fini(struct resolve_explain *explain, struct muster_env *env)
{
    env->vars = explain->real_vars;
    env->files = explain->real_files;
    env->log = NULL;
    muster_log_file_close(explain->log);
}
