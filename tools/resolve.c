/* muster resolve: ask a resolver everything it knows, and show it. */
#include "commands.h"

#include <muster/json.h>
#include <muster/resolver.h>

#include <string.h>

struct settings {
    const char *resolver;
    uint64_t timeout_ns;
    bool is_json;
};

static const struct muster_option rows[] = {
    {.name = "resolver",
     .letter = 'r',
     .variable = "MUSTER_RESOLVER",
     .kind = MUSTER_OPTION_TEXT,
     .offset = offsetof(struct settings, resolver),
     .fallback = "auto:",
     .value = "URI",
     .help = "Who is asked: tf_config: (the variable TF_CONFIG), "
             "static:worker=host:port,host:port;ps=…, "
             "static:{JSON}, or auto: (the first whose mark is in the environment)."},
    {.name = "timeout",
     .kind = MUSTER_OPTION_DURATION,
     .offset = offsetof(struct settings, timeout_ns),
     .fallback = "60",
     .unit = "s",
     .min = MUSTER_NS_PER_MS,
     .help = "How long to wait for answers."},
    {.name = "json",
     .kind = MUSTER_OPTION_FLAG,
     .offset = offsetof(struct settings, is_json),
     .help = "Print one JSON object."},
};

const struct muster_options resolve_options = {
    .command = "muster resolve",
    .usage = "[--resolver URI] [--json]",
    .about = "Show the cluster that this process is in, as a resolver sees it from here.",
    .rows = rows,
    .row_count = sizeof(rows) / sizeof(rows[0]),
};

struct asking {
    struct muster_env *env;
    struct muster_resolver *resolver;
    const struct settings *settings;
    struct muster_error error;
    bool is_done;
    bool is_closed;
};

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct asking *asking = resolve->data;

    if (rc != MUSTER_OK)
        asking->error = resolve->error;
    asking->is_done = true;
}

/* Ask and wait. False: asking->error says why. */
static bool ask(struct asking *asking, struct muster_resolve *resolve)
{
    struct muster_loop *loop = asking->env->loop;

    asking->is_done = false;
    resolve->data = asking;
    resolve->deadline_ns = muster_loop_after_ns(loop, asking->settings->timeout_ns);
    if (muster_resolve_start(resolve, asking->resolver, on_answer) != MUSTER_OK)
        return false;
    while (!asking->is_done)
        muster_loop_turn(loop, UINT64_MAX);
    return asking->error.rc == MUSTER_OK;
}

static struct muster_json *parse_text(const char *text)
{
    struct muster_json *value = NULL;

    if (muster_json_parse(text, strlen(text), &value, NULL) != MUSTER_OK)
        return NULL;
    return value;
}

static bool add_cluster(struct asking *asking, struct muster_json *answer)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};
    char *text = NULL;
    bool is_added = false;

    if (!ask(asking, &resolve))
        return false;
    if (muster_cluster_spec_format(resolve.cluster_spec, asking->env->mem, &text) == MUSTER_OK)
        is_added = muster_json_set(answer, "cluster_spec", parse_text(text));
    muster_mem_free(asking->env->mem, text);
    muster_cluster_spec_unref(resolve.cluster_spec);
    return is_added;
}

static bool add_master(struct asking *asking, struct muster_json *answer)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER};
    bool is_added;

    if (!ask(asking, &resolve))
        return false;
    is_added = muster_json_set(answer, "master", muster_json_text_new(resolve.master));
    muster_mem_free(asking->env->mem, resolve.master);
    return is_added;
}

static bool add_accelerators(struct asking *asking, struct muster_json *answer)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS};
    struct muster_json *map = muster_json_object_new();

    if (!ask(asking, &resolve)) {
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

/* All keys of the answer, or NULL with asking->error. */
static struct muster_json *ask_all(struct asking *asking)
{
    struct muster_json *answer = muster_json_object_new();

    if (add_cluster(asking, answer) && add_master(asking, answer) &&
        add_properties(asking, answer) && add_accelerators(asking, answer) &&
        muster_json_set(answer, "resolver",
                        muster_json_text_new(muster_resolver_name(asking->resolver))))
        return answer;
    muster_json_free(answer);
    if (asking->error.rc == MUSTER_OK)
        muster_error_set(&asking->error, MUSTER_RESOURCE_EXHAUSTED, "no memory for the answer");
    return NULL;
}

static void print_plain(struct muster_env *env, const struct muster_json *answer)
{
    struct muster_json_walk walk;

    for (bool more = muster_json_walk_first(&walk, answer); more;
         more = muster_json_walk_next(&walk)) {
        const char *text = muster_json_text(walk.value);
        char *dumped = NULL;

        if (text == NULL && muster_json_format(walk.value, false, env->mem, &dumped) == MUSTER_OK)
            text = dumped;
        if (muster_json_kind(walk.value) == MUSTER_JSON_NULL)
            text = "none";
        if (text != NULL && text[0] == '\0')
            text = "(local)";
        printf("%-17s %s\n", walk.name, text != NULL ? text : "");
        muster_mem_free(env->mem, dumped);
    }
}

static int print_answer(struct muster_env *env, const struct muster_json *answer, bool is_json)
{
    char *text = NULL;

    if (!is_json) {
        print_plain(env, answer);
        return EXIT_OK;
    }
    if (muster_json_format(answer, false, env->mem, &text) != MUSTER_OK)
        return EXIT_OTHER;
    printf("%s\n", text);
    muster_mem_free(env->mem, text);
    return EXIT_OK;
}

static void on_closed(struct muster_resolver *resolver)
{
    ((struct asking *)resolver->data)->is_closed = true;
}

static int resolve_in(struct muster_env *env, const struct settings *settings)
{
    struct asking asking = {.env = env, .settings = settings};
    struct muster_json *answer;
    int code;

    if (muster_resolver_open(env, settings->resolver, NULL, &asking.resolver, &asking.error) !=
        MUSTER_OK)
        return command_fail("resolve", &asking.error);
    answer = ask_all(&asking);
    code = answer != NULL ? print_answer(env, answer, settings->is_json)
                          : command_fail("resolve", &asking.error);
    muster_json_free(answer);
    asking.resolver->data = &asking;
    muster_resolver_close(asking.resolver, on_closed);
    while (!asking.is_closed)
        muster_loop_turn(env->loop, UINT64_MAX);
    return code;
}

int command_resolve(int argc, char **argv)
{
    struct settings settings = {.is_json = false};
    struct muster_env *env = NULL;
    int code = EXIT_OK;

    if (!command_parse_all(&resolve_options, argc, argv, &settings, &code))
        return code;
    if (muster_env_system_open(NULL, &env) != MUSTER_OK) {
        fprintf(stderr, "muster resolve: no event loop\n");
        return EXIT_OTHER;
    }
    code = resolve_in(env, &settings);
    muster_env_system_close(env);
    return code;
}
