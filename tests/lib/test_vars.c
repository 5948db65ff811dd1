/* Environment variables from a list. */
#include "test_vars.h"

#include <string.h>

static const char *vars_get(struct muster_vars *vars, const char *name)
{
    const struct test_vars *self = MUSTER_CONTAINER_OF(vars, struct test_vars, vars);

    for (const struct test_var *var = self->list; var->name != NULL; var++)
        if (strcmp(var->name, name) == 0)
            return var->value;
    return NULL;
}

void test_vars_init(struct test_vars *vars, const struct test_var *list)
{
    static const struct muster_vars_ops ops = {.get = vars_get};

    vars->vars.ops = &ops;
    vars->list = list;
}
