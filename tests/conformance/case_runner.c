/* case_runner FILE...: run files of recorded behaviour; a line per failed case, then the counts. */
#include "cases.h"

#include <muster/http.h>
#include <muster/stream.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

case_fn *case_handler(const char *kind)
{
    static const struct {
        const char *kind;
        case_fn *handler;
    } plain[] = {
        {"ClusterSpec", case_cluster_spec},
        {"CommunicationOptions", case_communication},
        {"Server", case_server},
        {"auto_shard", case_auto_shard},
        {"batch_size_of", case_batching},
        {"cluster_rules", case_cluster_rules},
        {"create_local_server", case_server},
        {"global_batch", case_batching},
        {"legacy_rebatch", case_batching},
        {"packing", case_packing},
        {"rebatch", case_batching},
        {"strategy_batches", case_batching},
        {"strategy_cluster", case_strategy},
    };

    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (strcmp(kind, plain[i].kind) == 0)
            return plain[i].handler;
    return case_resolver_find(kind) != NULL ? case_resolver : NULL;
}

void case_fail(struct case_run *run, const char *fmt, ...)
{
    va_list args;

    if (run->is_failed)
        return;
    run->is_failed = true;
    va_start(args, fmt);
    vsnprintf(run->reason, sizeof(run->reason), fmt, args);
    va_end(args);
}

static const char *variable_get(struct muster_vars *vars, const char *name)
{
    struct case_run *run = MUSTER_CONTAINER_OF(vars, struct case_run, vars);

    return json_string_value(json_object_get(run->variables, name));
}

bool case_set_variable(struct case_run *run, const char *name, const json_t *value)
{
    if (value == NULL || json_is_null(value))
        json_object_del(run->variables, name);
    else if (!json_is_string(value) ||
             json_object_set_new(run->variables, name, json_deep_copy(value)) != 0)
        return false;
    return true;
}

/* The variables are the case's own; everything else is the real world. */
static void run_handler(struct case_run *run, case_fn *handler)
{
    static const struct muster_vars_ops vars_ops = {.get = variable_get};
    const json_t *env = json_object_get(run->one, "env");
    struct muster_vars *real = run->env->vars;

    run->vars.ops = &vars_ops;
    run->variables = json_is_object(env) ? json_deep_copy(env) : json_object();
    run->env->vars = &run->vars;
    handler(run);
    run->env->vars = real;
    json_decref(run->variables);
}

static void run_case(struct case_run *run)
{
    const json_t *written = run->one;
    const char *kind = case_text(json_object_get(run->one, "kind"));
    struct case_cloud *cloud = NULL;
    case_fn *handler;
    json_t *filled;

    if (kind == NULL)
        kind = case_text(json_object_get(run->one, "resolver"));
    handler = kind != NULL ? case_handler(kind) : NULL;
    if (handler == NULL) {
        case_fail(run, "not built");
        return;
    }
    filled = case_cloud_open(run, &cloud);
    if (filled != NULL) {
        run->one = filled;
        run_handler(run, handler);
        run->one = written;
        json_decref(filled);
    }
    case_cloud_close(run, cloud);
}

struct counts {
    unsigned passed;
    unsigned failed;
};

static void run_file(struct muster_env *env, const char *path, struct counts *counts)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    const json_t *cases = json_object_get(root, "cases");
    const char *area = case_text(json_object_get(root, "area"));

    if (!json_is_array(cases)) {
        printf("%s: FAILED: no case file: %s\n", path, root == NULL ? error.text : "no \"cases\"");
        counts->failed++;
    }
    for (size_t i = 0; i < json_array_size(cases); i++) {
        struct case_run run = {.env = env, .one = json_array_get(cases, i)};
        const char *name = case_text(json_object_get(run.one, "name"));

        run_case(&run);
        if (run.is_failed)
            printf("%s/%s: FAILED: %s\n", area != NULL ? area : path, name != NULL ? name : "?",
                   run.reason);
        counts->passed += !run.is_failed;
        counts->failed += run.is_failed;
    }
    json_decref(root);
}

static bool http_is_closed;

static void on_http_closed(struct muster_http *http)
{
    (void)http;
    http_is_closed = true;
}

static void close_http(struct muster_env *env)
{
    muster_http_close(env->http, on_http_closed);
    while (!http_is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
}

int main(int argc, char **argv)
{
    struct counts counts = {0};
    struct muster_env *env = NULL;
    bool is_registry = argc == 2 && strcmp(argv[1], "--strategy-registry") == 0;
    int code = 0;

    if (argc == 2 && strcmp(argv[1], "--strategy-task") == 0)
        return case_strategy_task();
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        printf("usage: case_runner FILE...\n\nRun files of recorded behaviour. Prints a line per "
               "failed case and closes with 'N passed, N failed';\nexit code 1 if any failed.\n");
        return argc < 2 ? 2 : 0;
    }
    if (muster_env_system_open(NULL, &env) != MUSTER_OK ||
        muster_net_system_open(env, &env->net) != MUSTER_OK ||
        muster_http_curl_open(env, NULL, &env->http, NULL) != MUSTER_OK) {
        fprintf(stderr, "case_runner: no environment\n");
        return 1;
    }
    if (is_registry)
        code = case_strategy_serve(env);
    for (int i = 1; i < argc && !is_registry; i++)
        run_file(env, argv[i], &counts);
    close_http(env);
    muster_net_system_close(env->net);
    muster_env_system_close(env);
    if (is_registry)
        return code;
    printf("%u passed, %u failed\n", counts.passed, counts.failed);
    return counts.failed > 0 ? 1 : 0;
}
