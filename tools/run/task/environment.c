/* The environment of a worker: ours, torchrun's names, TF_CONFIG, and muster's own
 * (docs/protocol.md).
 *
 * It is built anew for each life, before fork, so that the child has only to exec. Names of our own
 * replace inherited ones; the rest is passed on as it is. */
#include "run/task/environment.h"

#include "common/output.h"
#include "run/output/output.h"
#include "run/registry/registry.h"
#include "run/registry/tls.h"
#include "run/state/worker_fds.h"
#include "run/task/places.h"

#include <muster/strategy.h>

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_MAX 80 /* more than there are; add_variable asserts it */

struct builder {
    char *own[OWN_MAX]; /* "NAME=value" */
    size_t count;
    bool is_tls_replaced; /* what we were started with of MUSTER_TLS_* is for another job */
};

static void add_variable(struct builder *builder, const char *name, const char *fmt, ...)
    MUSTER_PRINTF(3, 4);
static void add_variable(struct builder *builder, const char *name, const char *fmt, ...)
{
    va_list args;
    char *value = NULL;
    char *whole = NULL;

    va_start(args, fmt);
    MUSTER_ASSERT(builder->count < OWN_MAX);
    if (vasprintf(&value, fmt, args) < 0 || asprintf(&whole, "%s=%s", name, value) < 0)
        output_no_memory();
    va_end(args);
    free(value);
    builder->own[builder->count++] = whole;
}

/* Absolute, also where nothing has that name yet. */
static void add_path(struct builder *builder, const char *name, const char *path)
{
    char *where = path[0] == '/' ? NULL : getcwd(NULL, 0);

    if (where != NULL)
        add_variable(builder, name, "%s/%s", where, path);
    else
        add_variable(builder, name, "%s", path);
    free(where);
}

static void add_settings_of_libraries(struct builder *builder, const struct run_settings *settings)
{
    /* With slots a job of one worker computes with the bits of one with several. */
    bool is_fixed = settings->worker_count > 1 || settings->constant_batch > 0;

    if (is_fixed && getenv("OMP_NUM_THREADS") == NULL)
        add_variable(builder, "OMP_NUM_THREADS", "1");
    if (getenv("PYTHONUNBUFFERED") == NULL)
        add_variable(builder, "PYTHONUNBUFFERED",
                     "1"); /* lines come when they are printed, not at the end */
}

static void add_torchrun(struct builder *builder, const struct run_task *task)
{
    const struct run_settings *settings = &task->run->settings;
    uint64_t restarts = settings->is_gang ? task->run->gang_restarts : task->restarts;

    add_variable(builder, "RANK", "%u", task->rank);
    add_variable(builder, "LOCAL_RANK", "%u", task->local_rank);
    add_variable(builder, "WORLD_SIZE", "%u", settings->world_size);
    add_variable(builder, "LOCAL_WORLD_SIZE", "%u", settings->worker_count);
    add_variable(builder, "GROUP_RANK", "%llu", (unsigned long long)settings->node_rank);
    add_variable(builder, "GROUP_WORLD_SIZE", "%u", settings->nodes_max);
    add_variable(builder, "ROLE_NAME", "default");
    add_variable(builder, "ROLE_RANK", "%u", task->rank);
    add_variable(builder, "ROLE_WORLD_SIZE", "%u", settings->world_size);
    if (settings->master_addr != NULL)
        add_variable(builder, "MASTER_ADDR", "%s", settings->master_addr);
    else if (settings->nodes_max == 1)
        add_variable(builder, "MASTER_ADDR", "127.0.0.1");
    if (settings->master_addr != NULL || settings->nodes_max == 1)
        add_variable(builder, "MASTER_PORT", "%u", task->run->master_port);
    add_variable(builder, "TORCHELASTIC_RESTART_COUNT", "%llu", (unsigned long long)restarts);
    add_variable(builder, "TORCHELASTIC_MAX_RESTARTS", "%llu",
                 (unsigned long long)settings->restarts_max);
    add_variable(builder, "TORCHELASTIC_RUN_ID", "%s", settings->job_name);
}

/* Rounded up, and never 0, which would mean the default. */
static uint64_t whole_seconds(uint64_t span_ns)
{
    uint64_t seconds = span_ns / MUSTER_NS_PER_S + (span_ns % MUSTER_NS_PER_S != 0);

    return seconds > 0 ? seconds : 1;
}

static void add_tls(struct builder *builder, const struct run_task *task)
{
    struct run_tls_shown shown;

    if (task->run->tls == NULL)
        return;
    run_tls_show(task, &shown);
    add_variable(builder, "MUSTER_TLS_CERT_FILE", "%s", shown.cert);
    add_variable(builder, "MUSTER_TLS_CA_FILE", "%s", shown.ca);
    add_variable(builder, "MUSTER_TLS_PEERS", "%s", shown.peers);
    add_variable(builder, "MUSTER_TLS_DATA", "%s", task->run->settings.tls_data);
    add_variable(builder, "MUSTER_TLS_RELOAD_MS", "%llu",
                 (unsigned long long)(shown.reload_ns / MUSTER_NS_PER_MS));
    if (!shown.is_registry_of_job)
        return;
    add_variable(builder, "MUSTER_REGISTRY_CERT_FILE", "%s", shown.cert);
    add_variable(builder, "MUSTER_REGISTRY_KEY_FILE", "%s", shown.cert);
    add_variable(builder, "MUSTER_REGISTRY_CA_FILE", "%s", shown.ca);
    add_variable(builder, "MUSTER_REGISTRY_PEERS", "%s", shown.registry);
}

/* The address at which the worker listens. A resolver's address has one port, so of several workers
 * each gets the host alone. */
static void add_address(struct builder *builder, const struct run_settings *settings)
{
    struct muster_endpoint own;
    const char *scheme = strstr(settings->place.address, "://");
    const char *address = scheme != NULL ? scheme + 3 : settings->place.address;

    if (settings->listen_text[0] != '\0')
        add_variable(builder, "MUSTER_LISTEN", "%s", settings->listen_text);
    if (address[0] == '\0' || muster_endpoint_parse(address, UINT16_MAX, &own, NULL) != MUSTER_OK)
        return;
    if (settings->worker_count == 1)
        add_variable(builder, "MUSTER_TASK_ADDRESS", "%s", address);
    else
        add_variable(builder, "MUSTER_TASK_ADDRESS", strchr(own.host, ':') != NULL ? "[%s]" : "%s",
                     own.host);
}

/* Where the flight recorder is written: what the user has set stays, unless an option says it. */
static void add_trace(struct builder *builder, const struct run_task *task)
{
    char made[1024], path[PATH_MAX];

    if (task->run->trace_dir[0] != '\0') {
        add_variable(builder, "MUSTER_TRACE", "always");
        add_variable(builder, "MUSTER_TRACE_DIR", "%s", task->run->trace_dir);
        return;
    }
    if (task->run->settings.log_dir == NULL || getenv("MUSTER_TRACE_DIR") != NULL)
        return;
    run_output_make_dir(task, made, sizeof(made));
    if (realpath(made, path) != NULL)
        add_variable(builder, "MUSTER_TRACE_DIR", "%s", path);
}

/* The workers watch the metadata server, if this process was told to. */
static bool watches_metadata(void)
{
    const char *text = getenv("MUSTER_PREEMPTION");

    return text != NULL && (strcmp(text, "gce") == 0 || strstr(text, ",gce") != NULL ||
                            strncmp(text, "gce,", 4) == 0);
}

static void add_muster(struct builder *builder, const struct run_task *task)
{
    const struct run_settings *settings = &task->run->settings;
    char incarnation[MUSTER_INCARNATION_TEXT_BYTES], place[RUN_PLACE_BYTES];
    uint64_t restarts = task->lives > 0 ? task->lives - 1 : 0;

    add_variable(builder, "MUSTER_REGISTRY", "%s", run_registry_endpoint(task->run));
    add_variable(builder, "MUSTER_JOB", "%s", settings->job_name);
    add_address(builder, settings);
    add_variable(builder, "MUSTER_INCARNATION", "%s",
                 muster_incarnation_format(&task->incarnation, incarnation));
    add_variable(builder, "MUSTER_RESTART_COUNT", "%llu", (unsigned long long)restarts);
    /* Without a view there is nothing to come back to: an older one in the registry is of a job that is over. */
    add_variable(builder, "MUSTER_REJOIN", "%d",
                 restarts > 0 && settings->world_size > 1 && !settings->is_gang &&
                     task->run->epoch_first > 0);
    add_variable(builder, "MUSTER_NODE_RANK", "%llu", (unsigned long long)settings->node_rank);
    add_variable(builder, "MUSTER_REPORT_FD", "%d", RUN_REPORT_FD);
    if (run_places_name(task, place))
        add_variable(builder, "MUSTER_STEP_PLACE", "%s", place);
    if (settings->log_level != NULL)
        add_variable(builder, "MUSTER_LOG_LEVEL", "%s", settings->log_level);
    add_variable(builder, "MUSTER_LOG_FORMAT", "%s", settings->log_format);
    add_variable(builder, "MUSTER_MIN_MEMBERS", "%llu", (unsigned long long)settings->members_min);
    if (settings->members_min_start > 0)
        add_variable(builder, "MUSTER_MIN_MEMBERS_START", "%u", settings->members_min_start);
    if (settings->checkpoint_dir != NULL) {
        add_path(builder, "MUSTER_CHECKPOINT_DIR", settings->checkpoint_dir);
        add_variable(builder, "MUSTER_CHECKPOINT_EVERY", "%s",
                     settings->checkpoint_every != NULL ? settings->checkpoint_every : "10m");
        add_variable(builder, "MUSTER_CHECKPOINT_KEEP", "%llu",
                     (unsigned long long)settings->checkpoint_keep);
    }
    if (settings->constant_batch > 0)
        add_variable(builder, "MUSTER_CONSTANT_BATCH", "%llu",
                     (unsigned long long)settings->constant_batch);
    add_variable(builder, "MUSTER_MIN_MEMBERS_TIMEOUT_S", "%llu",
                 (unsigned long long)whole_seconds(settings->members_min_timeout_ns));
    if (settings->preemption_grace_ns > 0)
        add_variable(builder, "MUSTER_PREEMPTION", "launcher:%d%s", (int)task->run->pid,
                     watches_metadata() ? ",gce" : "");
    if (settings->tune_file != NULL)
        add_path(builder, "MUSTER_TUNE_FILE", settings->tune_file);
    if (strcmp(settings->reproducible, "no") != 0)
        add_variable(builder, "MUSTER_REPRODUCIBLE", "%s", settings->reproducible);
    if (settings->stripes != 0)
        add_variable(builder, "MUSTER_STRIPES", "%llu", (unsigned long long)settings->stripes);
    for (size_t i = 0; i < settings->kill_count; i++) {
        if (settings->kills[i].rank == task->rank && task->lives == 1)
            add_variable(builder, "MUSTER_KILL", "%s", settings->kills[i].point);
    }
    if (task->run->tf_cluster != NULL)
        add_variable(builder, "TF_CONFIG",
                     "{\"cluster\": %s, \"task\": {\"type\": \"worker\", \"index\": %u}}",
                     task->run->tf_cluster, task->rank);
}

/* Ours replaces what we were started with. A launcher above this one meant some variables for this
 * process alone, such as its failpoint or its report descriptor: they are not passed on. */
static bool is_replaced(const struct builder *builder, const char *name, size_t length)
{
    static const char *const never[] = {
        "MUSTER_KILL",         "MUSTER_REPORT_FD",  "MUSTER_INCARNATION", "MUSTER_RESOLVER",
        "MUSTER_TASK_ADDRESS", "MUSTER_PREEMPTION", "MUSTER_STEP_PLACE"};
    static const char tls[] = "MUSTER_TLS_";

    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        if (strlen(never[i]) == length && strncmp(name, never[i], length) == 0)
            return true;
    }
    if (strncmp(name, tls, sizeof(tls) - 1) == 0 && builder->is_tls_replaced)
        return true;
    for (size_t i = 0; i < builder->count; i++) {
        if (strncmp(name, builder->own[i], length) == 0 && builder->own[i][length] == '=')
            return true;
    }
    return false;
}

/* A worker may change its directory: the files that this process was told of stay the same ones. */
static void add_inherited_paths(struct builder *builder)
{
    static const char *const names[] = {
        "MUSTER_CHECKPOINT_DIR",     "MUSTER_TRACE_DIR",         "MUSTER_TUNE_FILE",
        "MUSTER_TLS_CERT_FILE",      "MUSTER_TLS_KEY_FILE",      "MUSTER_TLS_CA_FILE",
        "MUSTER_REGISTRY_CERT_FILE", "MUSTER_REGISTRY_KEY_FILE", "MUSTER_REGISTRY_CA_FILE"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *path = getenv(names[i]);

        if (path != NULL && path[0] != '\0' && path[0] != '/' &&
            !is_replaced(builder, names[i], strlen(names[i])))
            add_path(builder, names[i], path);
    }
}

/* The inherited variables that the builder does not replace, and then its own. */
static char **builder_finish(struct builder *builder)
{
    size_t inherited = 0;
    size_t count = 0;
    char **all;

    while (environ[inherited] != NULL)
        inherited++;
    all = calloc(inherited + builder->count + 1, sizeof(all[0]));
    if (all == NULL)
        output_no_memory();
    for (size_t i = 0; i < inherited; i++) {
        const char *entry = environ[i];

        if (!is_replaced(builder, entry, strcspn(entry, "=")) &&
            (all[count++] = strdup(entry)) == NULL)
            output_no_memory();
    }
    memcpy(all + count, builder->own, builder->count * sizeof(all[0]));
    return all;
}

static void on_unknown_variable(void *data, const char *name, const char *nearest)
{
    FILE *names = data;

    (void)nearest;
    fprintf(names, "%s%s", ftell(names) > 0 ? "," : "", name);
}

/* This process has told of them, or the launcher above it; its workers need not do so again. */
static void add_unknown(struct builder *builder, const struct run *run)
{
    const char *told = getenv("MUSTER_UNKNOWN_VARIABLES");
    char *text = NULL;
    size_t bytes = 0;
    FILE *names = open_memstream(&text, &bytes);

    if (names == NULL)
        output_no_memory();
    if (told != NULL)
        fputs(told, names);
    muster_strategy_find_unknown_variables(run->env, names, on_unknown_variable);
    if (fclose(names) != 0)
        output_no_memory();
    if (bytes > 0)
        add_variable(builder, "MUSTER_UNKNOWN_VARIABLES", "%s", text);
    free(text);
}

char **run_environment_new(const struct run_task *task)
{
    struct builder builder = {.count = 0};

    add_torchrun(&builder, task);
    add_settings_of_libraries(&builder, &task->run->settings);
    add_muster(&builder, task);
    add_trace(&builder, task);
    add_tls(&builder, task);
    add_unknown(&builder, task->run);
    builder.is_tls_replaced = task->run->tls != NULL;
    add_inherited_paths(&builder);
    return builder_finish(&builder);
}

char **run_environment_new_plain(const struct run *run)
{
    struct builder builder = {.count = 0};

    add_settings_of_libraries(&builder, &run->settings);
    return builder_finish(&builder);
}

void run_environment_free(char **environment)
{
    for (size_t i = 0; environment[i] != NULL; i++)
        free(environment[i]);
    free(environment);
}
