/* TF_CONFIG with any text in it: every question is answered, once, with a value or an error. */
#include <muster/resolver.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static char *config;

static const char *get_config(struct muster_vars *vars, const char *name)
{
    (void)vars;
    return strcmp(name, "TF_CONFIG") == 0 ? config : NULL;
}

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    int *answers = resolve->data;

    *answers += 1;
    if (rc == MUSTER_OK) {
        muster_cluster_spec_unref(resolve->cluster_spec);
        muster_mem_free(muster_mem_system(), resolve->master);
    }
}

static void ask_resolver(struct muster_env *env, struct muster_resolver *resolver,
                         enum muster_resolve_what what)
{
    int answers = 0;
    struct muster_resolve resolve = {.what = what, .data = &answers, .deadline_ns = UINT64_MAX};

    if (muster_resolve_start(&resolve, resolver, on_answer) != MUSTER_OK)
        abort();
    muster_loop_turn(env->loop, 0);
    muster_loop_turn(env->loop, 0);
    if (answers != 1)
        abort();
}

static void ask_properties(struct muster_env *env, struct muster_resolver *resolver)
{
    char *text = NULL;
    bool is_set;
    int64_t id;

    if (muster_resolver_task_type(resolver, &text, NULL) == MUSTER_OK)
        muster_mem_free(env->mem, text);
    text = NULL;
    if (muster_resolver_rpc_layer(resolver, &text, NULL) == MUSTER_OK)
        muster_mem_free(env->mem, text);
    if (muster_resolver_task_id(resolver, &is_set, &id, NULL) != MUSTER_OK)
        return;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const struct muster_vars_ops ops = {.get = get_config};
    static struct muster_vars vars = {.ops = &ops};
    static struct muster_env *env;
    struct muster_resolver *resolver = NULL;

    if (env == NULL && muster_env_system_open(NULL, &env) != MUSTER_OK)
        abort();
    env->vars = &vars;
    config = strndup((const char *)bytes, size);
    if (config == NULL ||
        muster_resolver_open(env, "tf_config:", NULL, &resolver, NULL) != MUSTER_OK)
        abort();
    ask_resolver(env, resolver, MUSTER_RESOLVE_CLUSTER_SPEC);
    ask_resolver(env, resolver, MUSTER_RESOLVE_MASTER);
    ask_resolver(env, resolver, MUSTER_RESOLVE_NUM_ACCELERATORS);
    ask_properties(env, resolver);
    muster_resolver_close(resolver, NULL);
    muster_loop_turn(env->loop, 0);
    free(config);
    return 0;
}
