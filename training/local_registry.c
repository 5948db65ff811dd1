/* The registry of a process that trains alone, so that it trains by the same code as a member. */
#include "training/local_registry.h"

#include <string.h>

static const char *vars_get(struct muster_vars *vars, const char *name)
{
    static const char *const hidden[] = {"MUSTER_REGISTRY", "MUSTER_LISTEN", "MUSTER_MIN_MEMBERS",
                                         "MUSTER_TASK_ADDRESS"};
    struct muster_local_registry *local =
        MUSTER_CONTAINER_OF(vars, struct muster_local_registry, vars);

    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
        if (strncmp(name, hidden[i], strlen(hidden[i])) == 0)
            return NULL;
    return muster_vars_get(local->outer_vars, name);
}

enum muster_rc muster_local_registry_open(struct muster_local_registry *local,
                                          struct muster_env *env, struct muster_error *ret_error)
{
    static const struct muster_vars_ops vars_ops = {.get = vars_get};
    const struct muster_registry_store_options store_options = {.path = NULL};
    const struct muster_registry_server_options options = {.listen = "127.0.0.1:0"};
    enum muster_rc rc;

    MUSTER_ASSERT(local->env == NULL); /* all zero */
    local->env = env;
    local->outer_vars = env->vars;
    local->vars.ops = &vars_ops;
    env->vars = &local->vars;
    rc = muster_registry_store_open(env->mem, &store_options, &local->store, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_registry_server_open(env, local->store, &options, &local->server, ret_error);
    if (rc != MUSTER_OK) {
        local->is_closed = true; /* what the server had begun goes in turns of the loop */
        return rc;
    }
    muster_registry_server_set_data(local->server, local);
    muster_address_format(muster_registry_server_address(local->server), local->endpoint);
    return MUSTER_OK;
}

static void on_closed(struct muster_registry_server *server)
{
    struct muster_local_registry *local = muster_registry_server_data(server);

    local->is_closed = true;
}

void muster_local_registry_stop(struct muster_local_registry *local)
{
    MUSTER_ASSERT(local->server != NULL && !local->is_closed);
    muster_registry_server_close(local->server, muster_loop_now_ns(local->env->loop), on_closed);
    local->server = NULL;
}

void muster_local_registry_free(struct muster_local_registry *local)
{
    if (local->env == NULL)
        return;
    MUSTER_ASSERT(local->server == NULL);
    muster_registry_store_close(local->store);
    local->env->vars = local->outer_vars;
    local->env = NULL;
}
