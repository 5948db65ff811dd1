/* Cases of kind strategy_cluster: every task is a process of its own (case_strategy_task.c), with its TF_CONFIG, and a
 * registry is another one. What each task has seen is compared key by key. */
#include "cases.h"

#include <muster/address.h>
#include <muster/registry_server.h>
#include <muster/stream.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TASKS_MAX     4
#define VARIABLES_MAX 1024

extern char **environ;

/** Another run of this program. */
struct child {
    pid_t pid;
    int to, from; /* its standard input and output */
};

/* --- Processes --- */

/* The environment without what a launcher has put there; `own` are appended. Gives (the array alone). */
static char **make_environment(char **own)
{
    static const char *const unset[] = {"MUSTER_", "TF_CONFIG=", "RANK=", "WORLD_SIZE="};
    char **variables = calloc(VARIABLES_MAX, sizeof(*variables));
    size_t count = 0;

    for (char **variable = environ; *variable != NULL && count < VARIABLES_MAX - 8; variable++) {
        bool is_kept = true;

        for (size_t i = 0; i < sizeof(unset) / sizeof(unset[0]); i++)
            is_kept = is_kept && strncmp(*variable, unset[i], strlen(unset[i])) != 0;
        if (is_kept)
            variables[count++] = *variable;
    }
    for (; *own != NULL; own++)
        variables[count++] = *own;
    return variables;
}

/* Each end closes with its process: a child that hangs up shows as an end of its output. */
static bool child_start(const char *role, char **own, struct child *ret_child)
{
    char *argv[] = {(char *)(uintptr_t) "case_runner", (char *)(uintptr_t)role, NULL};
    posix_spawn_file_actions_t actions;
    char **variables = make_environment(own);
    int to[2], from[2];
    bool is_started = false;

    if (pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0) {
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
        is_started =
            posix_spawn(&ret_child->pid, "/proc/self/exe", &actions, NULL, argv, variables) == 0;
        posix_spawn_file_actions_destroy(&actions);
        close(to[0]);
        close(from[1]);
        ret_child->to = to[1];
        ret_child->from = from[0];
    }
    free(variables);
    return is_started;
}

static void child_tell(struct child *child, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    if (text != NULL && write(child->to, text, strlen(text)) < 0)
        perror("case_runner: a task does not listen");
    free(text);
    close(child->to);
    child->to = -1;
}

/* Its exit status is 0, or what it said does not count. */
static json_t *child_end(struct child *child)
{
    json_error_t error;
    json_t *said;
    int status = -1;

    if (child->to >= 0)
        close(child->to);
    said = json_loadfd(child->from, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    close(child->from);
    waitpid(child->pid, &status, 0);
    if (status == 0)
        return said;
    json_decref(said);
    return NULL;
}

/* --- The registry --- */

static void on_server_closed(struct muster_registry_server *server)
{
    *(bool *)muster_registry_server_data(server) = true;
}

static bool has_hung_up(int fd)
{
    struct pollfd watched = {.fd = fd};

    return poll(&watched, 1, 0) == 1;
}

int case_strategy_serve(struct muster_env *env)
{
    const struct muster_registry_store_options store_options = {.path = NULL};
    const struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
    struct muster_registry_server *server = NULL;
    struct muster_registry_store *store = NULL;
    struct muster_error error = {.rc = MUSTER_OK};
    char endpoint[MUSTER_ADDRESS_TEXT_BYTES];
    bool is_closed = false;

    if (muster_registry_store_open(env->mem, &store_options, &store, &error) != MUSTER_OK ||
        muster_registry_server_open(env, store, &options, &server, &error) != MUSTER_OK) {
        fprintf(stderr, "case_runner: no registry: %s\n", error.text);
        return 1;
    }
    muster_registry_server_set_data(server, &is_closed);
    muster_address_format(muster_registry_server_address(server), endpoint);
    printf("\"%s\"\n", endpoint);
    fflush(stdout);
    while (!has_hung_up(STDIN_FILENO))
        muster_loop_turn(env->loop, 10 * MUSTER_NS_PER_MS);
    muster_registry_server_close(server, 0, on_server_closed);
    while (!is_closed)
        muster_loop_turn(env->loop, MUSTER_NS_PER_MS);
    for (int i = 0; i < 4; i++)
        muster_loop_turn(env->loop, 0);
    muster_registry_store_close(store);
    return 0;
}

/* The text of its first line: its address. */
static bool registry_start(struct child *registry, char *address, size_t bytes)
{
    char *const none[] = {NULL};
    size_t length = 0;

    if (!child_start("--strategy-registry", (char **)(uintptr_t)none, registry))
        return false;
    while (length + 1 < bytes && read(registry->from, address + length, 1) == 1 &&
           address[length] != '\n')
        length++;
    address[length] = '\0';
    if (length < 3)
        return false;
    memmove(address, address + 1, length - 2); /* without its quotes */
    address[length - 2] = '\0';
    return true;
}

/* --- A case --- */

/* The cluster with ports that the kernel finds. */
static json_t *free_ports(const json_t *value)
{
    json_t *copy, *member;
    const char *name, *text = json_string_value(value);
    size_t i;

    if (text != NULL && strstr(text, "{{free") != NULL)
        return json_sprintf("%.*s0", (int)(strstr(text, "{{free") - text), text);
    if (json_is_array(value)) {
        copy = json_array();
        json_array_foreach((json_t *)(uintptr_t)value, i, member)
            json_array_append_new(copy, free_ports(member));
        return copy;
    }
    if (!json_is_object(value))
        return json_deep_copy(value);
    copy = json_object();
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
        json_object_set_new(copy, name, free_ports(member));
    return copy;
}

static bool is_cluster_of_one(const json_t *cluster)
{
    const char *name;
    json_t *tasks;
    size_t count = 0;

    json_object_foreach((json_t *)(uintptr_t)cluster, name, tasks) count +=
        json_array_size(tasks) + json_object_size(tasks);
    return count <= 1;
}

/* "TF_CONFIG={…}" of a task. Gives; NULL: the case has no cluster, and no variable. */
static char *make_config(const json_t *cluster, const json_t *task)
{
    json_t *described;
    char *text, *variable;

    if (!json_is_object(cluster))
        return NULL;
    described = json_pack("{s:o}", "cluster", free_ports(cluster));
    if (json_is_object(task))
        json_object_set(described, "task", (json_t *)(uintptr_t)task);
    text = json_dumps(described, JSON_COMPACT);
    variable = text != NULL ? malloc(strlen(text) + 16) : NULL;
    if (variable != NULL)
        sprintf(variable, "TF_CONFIG=%s", text);
    free(text);
    json_decref(described);
    return variable;
}

/* registry NULL: the task is told of none. */
static bool task_start(const json_t *args, const json_t *task, const char *registry,
                       struct child *ret_child)
{
    char *config = make_config(json_object_get(args, "cluster"), task);
    char *own[5] = {(char *)(uintptr_t) "MUSTER_LOG_LEVEL=error",
                    (char *)(uintptr_t) "MUSTER_TRACE=off"};
    char variable[160];
    size_t count = 2;
    bool is_started;

    if (config != NULL)
        own[count++] = config;
    if (registry != NULL) {
        snprintf(variable, sizeof(variable), "MUSTER_REGISTRY=%s", registry);
        own[count++] = variable;
    }
    own[count] = NULL;
    is_started = child_start("--strategy-task", own, ret_child);
    free(config);
    return is_started;
}

static enum muster_rc rc_of(const char *name)
{
    for (int rc = MUSTER_OK; rc <= MUSTER_UNAUTHENTICATED; rc++)
        if (name != NULL && strcmp(muster_rc_name((enum muster_rc)rc), name) == 0)
            return (enum muster_rc)rc;
    return MUSTER_INTERNAL;
}

/* One key of what a task has seen: {"ok"} and {"error"} are outcomes, all else is a value. */
static void judge_key(struct case_run *run, size_t task, const char *key, const json_t *expected,
                      json_t *seen)
{
    const json_t *error = json_object_get(seen, "error");
    struct case_outcome outcome = {.rc = MUSTER_OK};
    json_t *expectation;
    char where[128];

    snprintf(where, sizeof(where), "task %zu, %s", task, key);
    if (error != NULL) {
        outcome.rc = rc_of(case_text(json_object_get(error, "status")));
        muster_error_set(&outcome.error, outcome.rc, "%s",
                         case_text(json_object_get(error, "text")) != NULL
                             ? case_text(json_object_get(error, "text"))
                             : "no text");
    } else {
        outcome.value = json_incref(seen);
    }
    expectation = json_is_object(expected) && (json_object_get(expected, "error") != NULL ||
                                               json_object_get(expected, "ok") != NULL)
                      ? json_deep_copy(expected)
                      : json_pack("{s:{s:O}}", "expect", "value", expected);
    case_judge(run, where, expectation, &outcome);
    json_decref(expectation);
}

static void judge_task(struct case_run *run, size_t task, const json_t *observed, json_t *seen)
{
    const char *key;
    json_t *expected;

    if (seen == NULL) {
        case_fail(run, "task %zu did not end in order", task);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)observed, key, expected)
    {
        json_t *value = json_object_get(seen, key);

        if (value == NULL)
            case_fail(run, "task %zu, %s: not seen", task, key);
        else
            judge_key(run, task, key, expected, value);
    }
}

static void run_tasks(struct case_run *run, const char *registry)
{
    const json_t *args = json_object_get(run->one, "args");
    const json_t *start = json_object_get(args, "start");
    const json_t *tasks = json_object_get(run->one, "tasks");
    size_t count = json_array_size(start);
    struct child children[TASKS_MAX];
    size_t started = 0;

    if (count > TASKS_MAX || count != json_array_size(tasks)) {
        case_fail(run, "%zu tasks, and %zu that were observed", count, json_array_size(tasks));
        return;
    }
    while (started < count &&
           task_start(args, json_array_get(start, started), registry, &children[started]))
        child_tell(&children[started++], args);
    if (started < count)
        case_fail(run, "task %zu cannot be started", started);
    for (size_t i = 0; i < started; i++) {
        json_t *seen = child_end(&children[i]);

        judge_task(run, i, json_object_get(json_array_get(tasks, i), "observed"), seen);
        json_decref(seen);
    }
}

void case_strategy(struct case_run *run)
{
    struct child registry = {.to = -1, .from = -1};
    char address[128] = "";

    if (is_cluster_of_one(case_argument(run->one, "cluster"))) {
        run_tasks(run, NULL);
        return;
    }
    if (registry_start(&registry, address, sizeof(address)))
        run_tasks(run, address);
    else
        case_fail(run, "no registry for the tasks");
    json_decref(child_end(&registry));
}
