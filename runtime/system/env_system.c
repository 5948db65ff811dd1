/* The real environment: its parts, opened in one order and closed in the other. */
#include <muster/env.h>

enum muster_rc muster_env_system_open(const struct muster_env_system_options *options,
                                      struct muster_env **ret_env)
{
    struct event_base *base = options == NULL ? NULL : options->base;
    struct muster_mem *mem =
        options == NULL || options->mem == NULL ? muster_mem_system() : options->mem;
    struct muster_env *env = muster_mem_alloc_zero(mem, 1, sizeof(*env));
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    if (env == NULL)
        return rc;
    env->mem = mem;
    env->files = muster_files_system();
    env->vars = muster_vars_system();
    env->rng = muster_rng_system();
    rc = muster_loop_open(mem, base, &env->loop);
    if (rc != MUSTER_OK)
        goto fail;
    rc = muster_host_system_open(mem, env->loop, &env->host);
    if (rc != MUSTER_OK)
        goto fail;
    *ret_env = env;
    return MUSTER_OK;
fail:
    muster_env_system_close(env);
    return rc;
}

/* The host watches processes on the loop, so it goes first. */
void muster_env_system_close(struct muster_env *env)
{
    if (env == NULL)
        return;
    muster_host_system_close(env->host);
    muster_loop_close(env->loop);
    muster_mem_free(env->mem, env);
}
