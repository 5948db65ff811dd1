/* Variables MUSTER_* that this command is started with: refused, passed on to workers, or without effect, and then
 * told. */
#include "run/options/variables.h"

#include "run/output/log.h"

#include <muster/strategy.h>

#include <stdlib.h>

/* Options whose default is the variable by which workers get the value. */
static const char *const defaults[] = {"MUSTER_JOB", "MUSTER_MIN_MEMBERS",
                                       "MUSTER_MIN_MEMBERS_TIMEOUT_S"};

/* Each worker gets its own value of these, or none. */
static const struct replaced {
    const char *name, *option;
} replaced[] = {
    {"MUSTER_NODE_RANK", "--node-rank"}, {"MUSTER_MIN_MEMBERS_START", "--nnodes MIN:MAX"},
    {"MUSTER_RESOLVER", "--resolver"},   {"MUSTER_TASK_ADDRESS", "--listen"},
    {"MUSTER_KILL", "--kill"},
};

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && *value != '\0';
}

/* A launcher above this one has set its variables for this process. */
static bool is_worker(void)
{
    return is_set("MUSTER_INCARNATION");
}

void run_variables_drop_outer(void)
{
    for (size_t i = 0; is_worker() && i < sizeof(defaults) / sizeof(defaults[0]); i++)
        unsetenv(defaults[i]);
}

static void on_unknown(void *data, const char *name, const char *nearest)
{
    if (nearest != NULL)
        run_log(data, MUSTER_LOG_WARN, "unknown_variable",
                RUN_FIELDS(MUSTER_FIELD("name", name), MUSTER_FIELD("did_you_mean", nearest)),
                "%s is not a variable of muster and has no effect on it; did you mean %s?", name,
                nearest);
    else
        run_log(data, MUSTER_LOG_WARN, "unknown_variable", RUN_FIELDS(MUSTER_FIELD("name", name)),
                "%s is not a variable of muster and has no effect on it", name);
}

static void tell_replaced(struct run *run)
{
    for (size_t i = 0; !is_worker() && i < sizeof(replaced) / sizeof(replaced[0]); i++)
        if (is_set(replaced[i].name))
            run_log(run, MUSTER_LOG_WARN, "variable_replaced",
                    RUN_FIELDS(MUSTER_FIELD("name", replaced[i].name),
                               MUSTER_FIELD("option", replaced[i].option)),
                    "%s has no effect on 'muster run' and its workers; use %s instead",
                    replaced[i].name, replaced[i].option);
}

bool run_variables_check(struct run *run)
{
    struct muster_error error = {0};

    if (muster_strategy_check_variables(run->env, &error) != MUSTER_OK) {
        run_log_error("%s", error.text);
        return false;
    }
    muster_strategy_find_unknown_variables(run->env, run, on_unknown);
    tell_replaced(run);
    return true;
}
