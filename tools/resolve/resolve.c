/* muster resolve: ask a resolver everything it knows, and show it. The questions are asked one
 * after the other with one deadline for all; with --watch the command stays and prints changes.
 * explain.c records what the resolver looks at, show.c prints. */
#include "common/command.h"

#include "resolve/resolve.h"
#include "resolve/resolver_env.h"

#include <muster/platforms.h>

#include <signal.h>
#include <string.h>

struct settings {
    const char *resolver;
    uint64_t timeout_ns;
    uint64_t interval_ns;
    uint64_t changes_max;
    const char *log_level;
    bool is_json;
    bool is_watching;
    bool is_explaining;
};

static const struct muster_option rows[] = {
    {.name = "resolver",
     .letter = 'r',
     .variable = "MUSTER_RESOLVER",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, resolver),
     .fallback = "auto:",
     .check = command_check_resolver,
     .value = "URI",
     .help = "Resolver to ask: auto: (the first whose platform the environment shows), tf_config:, "
             "static:worker=host:port,host:port;ps=…, slurm:, sagemaker:, torchrun:, jax:, "
             "openmpi:, pmi:, file:PATH, dns:_service._tcp.domain, dns:host:port, union:URI|URI … "
             "Options follow it, as in static:worker=a:1?task_type=worker&task_id=0. "
             "docs/resolvers.md lists all resolvers with their options."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, timeout_ns),
     .fallback = "60",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "Time limit for all answers together."},
    {.name = "watch",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_watching),
     .help = "Then report every task that is added, removed or moved, until SIGTERM or SIGINT."},
    {.name = "interval",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, interval_ns),
     .fallback = "0",
     .unit = "s",
     .help = "With --watch: time between two queries (0: the resolver decides)."},
    {.name = "changes",
     .kind = MUSTER_OPTION_NUMBER,
     .offset = offsetof(struct settings, changes_max),
     .fallback = "0",
     .unit = "changes",
     .help = "With --watch: exit after this many changes (0: never)."},
    {.name = "explain",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_explaining),
     .help = "Show on standard error every variable, file and request that was read, with --json "
             "as one JSON object each; secrets are not shown."},
    COMMAND_LOG_ROW(struct settings, "warn"),
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one JSON object, and one per change."},
};

const struct muster_options resolve_options = {
    .command = "muster resolve",
    .usage = "[--resolver URI] [--watch] [--explain] [--json]",
    .about = "Show the cluster of this process as a resolver sees it, and the source of each fact. "
             "Exit code 3: the platform's data are malformed or missing, 4: it cannot be reached "
             "in time, 5: it denies access.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

#define DEVICES_WITHIN_NS (5 * MUSTER_NS_PER_S) /* workers are asked for their devices */

struct asking {
    struct muster_env *env;
    struct muster_resolver *resolver;
    const struct settings *settings;
    struct muster_cluster_spec *spec; /* as printed */
    struct muster_error error;
    uint64_t deadline_ns; /* of all questions together */
    bool is_done;
    bool is_closed;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct asking *asking = resolve->data;

    asking->error = resolve->error;
    asking->error.rc = rc;
    asking->is_done = true;
}

/* Ask and wait. False: asking->error says why. */
static bool ask_resolver(struct asking *asking, struct muster_resolve *resolve)
{
    struct muster_loop *loop = asking->env->loop;

    asking->is_done = false;
    resolve->data = asking;
    resolve->deadline_ns = asking->deadline_ns;
    if (muster_resolve_start(resolve, asking->resolver, on_answer) != MUSTER_OK) {
        /* The resolver is open, so only a deadline that has passed is refused. */
        muster_error_set(&asking->error, MUSTER_DEADLINE_EXCEEDED,
                         "the answers before have used up the time limit; give a longer --timeout");
        return false;
    }
    while (!asking->is_done)
        muster_loop_turn(loop, UINT64_MAX);
    return asking->error.rc == MUSTER_OK;
}

static bool add_cluster(struct asking *asking, struct muster_json *answer)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    bool is_added;

    if (!ask_resolver(asking, &resolve))
        return false;
    is_added = muster_json_set(answer, "cluster_spec",
                               resolve_spec_json(asking->env, resolve.cluster_spec));
    asking->spec = resolve.cluster_spec;
    return is_added;
}

static bool add_master(struct asking *asking, struct muster_json *answer)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER};
    bool is_added;

    if (!ask_resolver(asking, &resolve))
        return false;
    is_added = muster_json_set(answer, "master", muster_json_text_new(resolve.master));
    muster_mem_free(asking->env->mem, resolve.master);
    return is_added;
}

/* Workers that cannot be asked for their devices do not hide where they are: {} and a warning. */
static bool is_left_out(enum muster_rc rc)
{
    return rc == MUSTER_UNAVAILABLE || rc == MUSTER_DEADLINE_EXCEEDED || rc == MUSTER_UNIMPLEMENTED;
}

/* The warning goes to people and, as "warnings", to programs that read --json. */
static bool add_warning(const struct muster_error *error, struct muster_json *answer)
{
    struct muster_json *warnings = muster_json_object_new();

    fprintf(stderr, "muster resolve: warning: num_accelerators is not known: %s (%s)\n",
            error->text, muster_rc_name(error->rc));
    if (muster_json_set(warnings, "num_accelerators", muster_json_text_new(error->text)))
        return muster_json_set(answer, "warnings", warnings);
    muster_json_free(warnings);
    return false;
}

/* Devices have a shorter limit of their own, because they are the one answer for which others than
 * the platform are asked. */
static bool add_accelerators(struct asking *asking, struct muster_json *answer)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS};
    struct muster_json *map = muster_json_object_new();
    uint64_t whole_ns = asking->deadline_ns;
    uint64_t devices_ns = muster_loop_after_ns(asking->env->loop, DEVICES_WITHIN_NS);
    bool is_known;

    asking->deadline_ns = devices_ns < whole_ns ? devices_ns : whole_ns;
    is_known = ask_resolver(asking, &resolve);
    asking->deadline_ns = whole_ns;
    if (!is_known && (!is_left_out(asking->error.rc) || !add_warning(&asking->error, answer))) {
        muster_json_free(map);
        return false;
    }
    for (size_t i = 0; i < resolve.accelerators.kind_count; i++) {
        if (!muster_json_set(map, resolve.accelerators.kinds[i].kind,
                             muster_json_integer_new(resolve.accelerators.kinds[i].count))) {
            muster_json_free(map);
            return false;
        }
    }
    return muster_json_set(answer, "num_accelerators", map);
}

static bool add_text(struct asking *asking, struct muster_json *answer, const char *name,
                     enum muster_rc rc, char *text)
{
    bool is_added = rc == MUSTER_OK && muster_json_set(answer, name, muster_json_text_new(text));

    muster_mem_free(asking->env->mem, text);
    return is_added;
}

static bool add_properties(struct asking *asking, struct muster_json *answer)
{
    char *task_type = NULL;
    char *rpc_layer = NULL;
    bool has_id = false;
    int64_t id = 0;

    enum muster_rc rc = muster_resolver_task_type(asking->resolver, &task_type, &asking->error);
    if (!add_text(asking, answer, "task_type", rc, task_type))
        return false;
    if (muster_resolver_task_id(asking->resolver, &has_id, &id, &asking->error) != MUSTER_OK ||
        !muster_json_set(answer, "task_id",
                         has_id ? muster_json_integer_new(id) : muster_json_null_new()))
        return false;
    rc = muster_resolver_rpc_layer(asking->resolver, &rpc_layer, &asking->error);
    return add_text(asking, answer, "rpc_layer", rc, rpc_layer);
}

static bool add_world_size(struct asking *asking, struct muster_json *answer)
{
    bool is_set = false;
    uint32_t size = 0;

    return muster_resolver_world_size(asking->resolver, &is_set, &size, &asking->error) ==
               MUSTER_OK &&
           muster_json_set(answer, "world_size",
                           is_set ? muster_json_integer_new(size) : muster_json_null_new());
}

/* The key of each fact in the answer. */
static const char *const fact_names[] = {
    [MUSTER_FACT_CLUSTER_SPEC] = "cluster_spec",
    [MUSTER_FACT_MASTER] = "master",
    [MUSTER_FACT_TASK_TYPE] = "task_type",
    [MUSTER_FACT_TASK_ID] = "task_id",
    [MUSTER_FACT_RPC_LAYER] = "rpc_layer",
    [MUSTER_FACT_NUM_ACCELERATORS] = "num_accelerators",
    [MUSTER_FACT_WORLD_SIZE] = "world_size",
};

/* Sources of the facts that are known. */
static bool add_sources(struct asking *asking, struct muster_json *answer)
{
    struct muster_json *sources = muster_json_object_new();

    for (size_t i = 0; i < sizeof(fact_names) / sizeof(fact_names[0]); i++) {
        const char *source = muster_resolver_source(asking->resolver, (enum muster_fact)i);

        if (muster_json_kind(muster_json_member(answer, fact_names[i])) == MUSTER_JSON_NULL)
            continue;
        if (!muster_json_set(sources, fact_names[i], muster_json_text_new(source))) {
            muster_json_free(sources);
            return false;
        }
    }
    return muster_json_set(answer, "sources", sources);
}

static bool add_visible_devices(struct asking *asking, struct muster_json *answer)
{
    const char *devices = muster_slurm_resolver_visible_devices(asking->resolver);

    return devices == NULL ||
           muster_json_set(answer, "visible_devices", muster_json_text_new(devices));
}

/* All keys of the answer, or NULL with asking->error. The cluster comes first: some resolvers know
 * their own task only after they have seen it (dns, slurm). Sources come last, when all is
 * known. */
static struct muster_json *ask_all(struct asking *asking)
{
    struct muster_json *answer = muster_json_object_new();

    if (add_cluster(asking, answer) && add_master(asking, answer) &&
        add_properties(asking, answer) && add_accelerators(asking, answer) &&
        add_visible_devices(asking, answer) && add_world_size(asking, answer) &&
        muster_json_set(answer, "resolver",
                        muster_json_text_new(muster_resolver_name(asking->resolver))) &&
        muster_json_set(answer, "reason",
                        muster_json_text_new(muster_resolver_reason(asking->resolver))) &&
        add_sources(asking, answer))
        return answer;
    muster_json_free(answer);
    if (asking->error.rc == MUSTER_OK)
        muster_error_set(&asking->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the answer");
    return NULL;
}

/* A platform that is not there, or contradicts itself, is bad input here. */
static int fail_command(const struct muster_error *error)
{
    int code = command_exit_of(error->rc);

    fprintf(stderr, "muster resolve: %s (%s)\n",
            error->text[0] != '\0' ? error->text : muster_rc_text(error->rc),
            muster_rc_name(error->rc));
    return error->rc == MUSTER_FAILED_PRECONDITION || error->rc == MUSTER_ALREADY_EXISTS
               ? EXIT_BAD_INPUT
               : code;
}

/* Watching. */

struct watching {
    struct asking *asking;
    struct muster_resolver_watch watch;
    struct muster_wake *wake;
    uint64_t told;
    bool is_stopped;
    bool is_closed;
};

/* The signal handler's only way to the loop: a handler gets no argument of ours, and waking is
 * async-signal-safe. */
static struct muster_wake *stop_wake;

static void on_signal(int number)
{
    (void)number;
    muster_wake_signal(stop_wake);
}

static void on_stop(struct muster_wake *wake)
{
    ((struct watching *)muster_wake_data(wake))->is_stopped = true;
}

static void on_change(struct muster_resolver_watch *watch, struct muster_cluster_spec *spec,
                      const struct muster_cluster_diff *diff)
{
    struct watching *watching = watch->data;
    struct asking *asking = watching->asking;
    const struct settings *settings = asking->settings;
    struct muster_cluster_diff since_printed;

    (void)diff; /* the first one speaks of a cluster that is already printed */
    if (muster_cluster_diff_init(&since_printed, asking->env->mem, asking->spec, spec) != MUSTER_OK)
        return;
    if (since_printed.change_count > 0) {
        if (!resolve_print_change(asking->env, spec, &since_printed, settings->is_json))
            watching->is_stopped = true; /* a signal may have said so before */
        watching->told++;
    }
    muster_cluster_diff_fini(&since_printed);
    muster_cluster_spec_unref(asking->spec);
    asking->spec = muster_cluster_spec_ref(spec);
    if (settings->changes_max > 0 && watching->told >= settings->changes_max)
        watching->is_stopped = true;
}

static void on_watch_closed(struct muster_resolver_watch *watch)
{
    ((struct watching *)watch->data)->is_closed = true;
}

static void set_signals(void (*handler)(int))
{
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
}

/* Until a signal comes; each failure is told once. */
static void follow_changes(struct watching *watching)
{
    struct muster_loop *loop = watching->asking->env->loop;
    enum muster_rc told_rc = MUSTER_OK;

    stop_wake = watching->wake;
    set_signals(on_signal);
    while (!watching->is_stopped) {
        muster_loop_turn(loop, UINT64_MAX);
        if (watching->watch.error.rc != told_rc && watching->watch.error.rc != MUSTER_OK)
            fprintf(stderr, "muster resolve: %s\n", watching->watch.error.text);
        told_rc = watching->watch.error.rc;
    }
    set_signals(SIG_DFL);
    muster_resolver_watch_close(&watching->watch, on_watch_closed);
    while (!watching->is_closed)
        muster_loop_turn(loop, UINT64_MAX);
}

static int fail_watch(enum muster_rc rc)
{
    fprintf(stderr, "muster resolve: the cluster cannot be watched: %s\n", muster_rc_text(rc));
    return EXIT_OTHER;
}

static int watch_all(struct asking *asking)
{
    struct watching watching = {.asking = asking};
    enum muster_rc rc =
        muster_wake_open(asking->env->mem, asking->env->loop, on_stop, &watching, &watching.wake);

    if (rc != MUSTER_OK)
        return fail_watch(rc);
    watching.watch = (struct muster_resolver_watch){
        .data = &watching, .on_change = on_change, .interval_ns = asking->settings->interval_ns};
    rc = muster_resolver_watch_open(&watching.watch, asking->resolver);
    if (rc == MUSTER_OK)
        follow_changes(&watching);
    muster_wake_close(watching.wake);
    return rc == MUSTER_OK ? EXIT_OK : fail_watch(rc);
}

static void on_closed(struct muster_resolver *resolver)
{
    ((struct asking *)resolver->data)->is_closed = true;
}

static void close_resolver(struct asking *asking)
{
    asking->resolver->data = asking;
    muster_resolver_close(asking->resolver, on_closed);
    while (!asking->is_closed)
        muster_loop_turn(asking->env->loop, UINT64_MAX);
}

static int resolve_in(struct muster_env *env, const struct settings *settings)
{
    struct asking asking = {.env = env,
                            .settings = settings,
                            .deadline_ns = muster_loop_after_ns(env->loop, settings->timeout_ns)};
    struct muster_json *answer;
    int code = EXIT_OK;

    if (muster_resolver_open(env, settings->resolver, NULL, &asking.resolver, &asking.error) !=
        MUSTER_OK)
        return fail_command(&asking.error);
    answer = ask_all(&asking);
    if (answer == NULL)
        code = fail_command(&asking.error);
    else if (!resolve_print(env, answer, settings->is_json))
        code = EXIT_OTHER;
    muster_json_free(answer);
    if (code == EXIT_OK && settings->is_watching)
        code = watch_all(&asking);
    muster_cluster_spec_unref(asking.spec);
    close_resolver(&asking);
    return code;
}

static int explain_in(struct muster_env *env, const struct settings *settings)
{
    struct resolve_explain explain;
    int code;

    if (!settings->is_explaining)
        return resolve_in(env, settings);
    resolve_explain_init(&explain, env, settings->is_json);
    code = resolve_in(env, settings);
    resolve_explain_fini(&explain, env);
    return code;
}

static int resolve_logged(struct muster_env *env, const struct settings *settings)
{
    enum muster_log_level level = MUSTER_LOG_WARN;
    struct muster_log *log = NULL;
    int code;

    if (muster_log_level_parse(settings->log_level, &level) == MUSTER_OK &&
        muster_log_file_open(env->mem, stderr, settings->is_json, level, &log) == MUSTER_OK)
        env->log = log;
    code = explain_in(env, settings);
    env->log = NULL;
    muster_log_file_close(log);
    return code;
}

int command_resolve(int argc, char **argv)
{
    struct settings settings = {.is_json = false};
    struct muster_error error = {0};
    struct muster_env *env = NULL;
    int code = EXIT_OK;

    if (!command_parse_all(&resolve_options, argc, argv, &settings, &code))
        return code;
    if (resolver_env_open(&env, &error) != MUSTER_OK)
        return command_fail("resolve", &error);
    code = resolve_logged(env, &settings);
    resolver_env_close(env);
    return code;
}
