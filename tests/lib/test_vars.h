/* Environment variables of a test case: a fixed list instead of the process's. */
#ifndef MUSTER_TEST_VARS_H
#define MUSTER_TEST_VARS_H

#include <muster/env.h>

struct test_var {
    const char *name;
    const char *value;
};

struct test_vars {
    struct muster_vars vars;
    const struct test_var *list; /* ends with a NULL name */
};

/** Use as env->vars = &vars->vars. Borrows list. */
void test_vars_init(struct test_vars *vars, const struct test_var *list);

#endif
