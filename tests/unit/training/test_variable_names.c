/* Variables whose names nobody reads: told with the name that is nearest, once. */
#include "training/variable_names.h"

#include <stdio.h>
#include <string.h>

#include <muster/log.h>
#include <muster/strategy.h>

#include "assertion_count.h"
#include "test_env.h"

/* --- An environment, and what is told of it --- */

struct listed {
    struct muster_vars vars;
    const char *const *entries; /* "NAME=value", ends with NULL */
};

static const char *listed_get(struct muster_vars *vars, const char *name)
{
    const struct listed *listed = MUSTER_CONTAINER_OF(vars, struct listed, vars);
    size_t length = strlen(name);

    for (size_t i = 0; listed->entries[i] != NULL; i++)
        if (strncmp(listed->entries[i], name, length) == 0 && listed->entries[i][length] == '=')
            return listed->entries[i] + length + 1;
    return NULL;
}

static const char *listed_at(struct muster_vars *vars, size_t index)
{
    return MUSTER_CONTAINER_OF(vars, struct listed, vars)->entries[index];
}

static const struct muster_vars_ops listed_ops = {.get = listed_get, .at = listed_at};

static char told[512];

static void tell_name(const char *name, const char *nearest)
{
    size_t length = strlen(told);

    (void)snprintf(told + length, sizeof(told) - length, "%s>%s ", name,
                   nearest != NULL ? nearest : "");
}

static void on_unknown(void *data, const char *name, const char *nearest)
{
    (void)data;
    tell_name(name, nearest);
}

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    (void)log, (void)wall_ns;
    assert_int_equal(level, MUSTER_LOG_WARN);
    assert_string_equal(event, "unknown_variable");
    tell_name(fields[0].text, count > 1 ? fields[1].text : NULL);
}

/* --- Cases --- */

static void names_that_nobody_reads_are_found(void **state)
{
    static const struct {
        const char *entries[4];
        const char *told;
    } rows[] = {
        {{"PATH=/bin", "MUSTER_WIRE=tcp", "MUSTER_MIN_MEMBERS_TIMEOUT_S=3"}, ""},
        {{"MUSTER_WRIE=tcp"}, "MUSTER_WRIE>MUSTER_WIRE "},
        {{"MUSTER_MIN_MEMBER=2"}, "MUSTER_MIN_MEMBER>MUSTER_MIN_MEMBERS "},
        {{"MUSTER_CHECKPOINT_DRI=x"}, "MUSTER_CHECKPOINT_DRI>MUSTER_CHECKPOINT_DIR "},
        {{"MUSTER_EXPERIMENT=a", "MUSTER_=", "MUSTER_FOO=1"},
         "MUSTER_EXPERIMENT> MUSTER_> MUSTER_FOO> "},
        {{"MUSTER_LOG_LVELS=1", "XMUSTER_JOB=a", "MUSTER_JBO=b"},
         "MUSTER_LOG_LVELS>MUSTER_LOG_LEVEL MUSTER_JBO>MUSTER_JOB "},
        {{"MUSTER_TEST_GRACE_S=1", "MUSTER_SOURCE_DIR=/", "MUSTER_BINARY_DIR=/"}, ""},
        {{"MUSTER_SERVICE_HOST=10.0.0.1", "MUSTER_PORT=tcp://10.0.0.1:1",
          "MUSTER_REGISTRY_PORT_2379_TCP_ADDR=10.0.0.1"},
         ""},
        {{"MUSTER_SERVICE_PORT_GRPC=1", "MUSTER_PORT=80"}, "MUSTER_PORT> "},
    };
    struct listed listed = {.vars = {.ops = &listed_ops}};
    struct muster_env *env = test_env_of(state);

    env->vars = &listed.vars;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        listed.entries = rows[i].entries;
        told[0] = '\0';

        muster_strategy_find_unknown_variables(env, NULL, on_unknown);

        fail_if(strcmp(told, rows[i].told) != 0, "row %zu: '%s'", i, told);
    }
}

static void a_long_name_is_cut_and_near_to_none(void **state)
{
    static char entry[300];
    const char *entries[] = {entry, NULL};
    struct listed listed = {.vars = {.ops = &listed_ops}, .entries = entries};

    memset(entry, 'A', sizeof(entry) - 1);
    memcpy(entry, "MUSTER_", 7);
    test_env_of(state)->vars = &listed.vars;
    told[0] = '\0';

    muster_strategy_find_unknown_variables(test_env_of(state), NULL, on_unknown);

    assert_int_equal(strlen(told), 127 + 2);
}

/* Those of a simulated host. */
static void variables_that_cannot_be_listed_are_not_looked_at(void **state)
{
    static const struct muster_vars_ops ops = {.get = listed_get};
    struct muster_vars vars = {.ops = &ops};
    struct muster_env *env = test_env_of(state);

    told[0] = '\0';
    env->vars = &vars;
    muster_strategy_find_unknown_variables(env, NULL, on_unknown);
    env->vars = NULL;
    muster_strategy_find_unknown_variables(env, NULL, on_unknown);
    assert_string_equal(told, "");
}

static void a_process_tells_once_and_not_what_its_launcher_has_told(void **state)
{
    static const char *const entries[] = {"MUSTER_WRIE=tcp",
                                          "MUSTER_UNKNOWN_VARIABLES=MUSTER_WRI,MUSTER_EXPERIMENT",
                                          "MUSTER_EXPERIMENT=a", "MUSTER_EXPERIMENTS=a", NULL};
    static const struct muster_log_ops ops = {.write = on_log};
    struct muster_log log = {.ops = &ops, .level_max = MUSTER_LOG_WARN};
    struct listed listed = {.vars = {.ops = &listed_ops}, .entries = entries};
    struct muster_env *env = test_env_of(state);

    told[0] = '\0';
    env->vars = &listed.vars;
    env->log = &log;

    muster_training_tell_unknown_variables(env);
    muster_training_tell_unknown_variables(env);

    assert_string_equal(told, "MUSTER_WRIE>MUSTER_WIRE MUSTER_EXPERIMENTS> ");
    env->log = NULL;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_env_set_up, test_env_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(names_that_nobody_reads_are_found),
        CASE(a_long_name_is_cut_and_near_to_none),
        CASE(variables_that_cannot_be_listed_are_not_looked_at),
        CASE(a_process_tells_once_and_not_what_its_launcher_has_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
