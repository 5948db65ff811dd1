/* The process's environment variables. */
#include <muster/env.h>

#include <stdlib.h>

extern char **environ;

static const char *system_get(struct muster_vars *vars, const char *name)
{
    (void)vars;
    return getenv(name);
}

/* The caller walks from 0, so no index is behind the NULL that ends the list. */
static const char *system_at(struct muster_vars *vars, size_t index)
{
    (void)vars;
    return environ != NULL ? environ[index] : NULL;
}

struct muster_vars *muster_vars_system(void)
{
    static const struct muster_vars_ops ops = {.get = system_get, .at = system_at};
    static struct muster_vars vars = {.ops = &ops};

    return &vars;
}
