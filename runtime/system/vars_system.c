/* The process's environment variables. */
#include <muster/env.h>

#include <stdlib.h>

static const char *system_get(struct muster_vars *vars, const char *name)
{
    (void)vars;
    return getenv(name);
}

struct muster_vars *muster_vars_system(void)
{
    static const struct muster_vars_ops ops = {.get = system_get};
    static struct muster_vars vars = {.ops = &ops};

    return &vars;
}
