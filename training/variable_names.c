/* The names of all variables MUSTER_* that any part of muster reads, so that a misspelt one is told. The names of other
 * programs are left alone: Kubernetes sets MUSTER_SERVICE_HOST and the like for a service called muster. */
#include "training/variable_names.h"

#include <muster/env.h>
#include <muster/strategy.h>

#include "runtime/options/options_internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PREFIX           "MUSTER_"
#define NAME_BYTES       128 /* longer names are cut where they are told */
#define TYPING_ERROR_MAX 2   /* letters that are wrong, lacking, too many or swapped */

/* Sorted. tests/lib/check_variables.py compares them with the source. */
static const char *const names[] = {
    "MUSTER_BENCH_JOIN_FILE",
    "MUSTER_BENCH_RECOVER_FILE",
    "MUSTER_BINARY_DIR", /* of the tests */
    "MUSTER_CHECKPOINT_DIR",
    "MUSTER_CHECKPOINT_EVERY",
    "MUSTER_CHECKPOINT_KEEP",
    "MUSTER_CLUSTER",
    "MUSTER_CONSTANT_BATCH",
    "MUSTER_COORDINATOR_LISTEN",
    "MUSTER_CUDA_LIBRARY",
    "MUSTER_DEVICES",
    "MUSTER_DEVICE_TIMEOUT_S",
    "MUSTER_EVICT_AFTER_S",
    "MUSTER_HOST_KEY",
    "MUSTER_INCARNATION",
    "MUSTER_JOB",
    "MUSTER_KILL",
    "MUSTER_LISTEN",
    "MUSTER_LOG_FORMAT",
    "MUSTER_LOG_LEVEL",
    "MUSTER_MIN_MEMBERS",
    "MUSTER_MIN_MEMBERS_START",
    "MUSTER_MIN_MEMBERS_TIMEOUT_S",
    "MUSTER_NCCL_LIBRARY",
    "MUSTER_NODE_RANK",
    "MUSTER_PARAMS_LISTEN",
    "MUSTER_PARAMS_SERVER",
    "MUSTER_PREEMPTION",
    "MUSTER_READ_MEMORY",
    "MUSTER_REGISTRY",
    "MUSTER_REGISTRY_CA_FILE",
    "MUSTER_REGISTRY_CERT_FILE",
    "MUSTER_REGISTRY_KEY_FILE",
    "MUSTER_REGISTRY_LISTEN",
    "MUSTER_REGISTRY_PASSWORD_FILE",
    "MUSTER_REGISTRY_PEERS",
    "MUSTER_REGISTRY_USER",
    "MUSTER_REJOIN",
    "MUSTER_REPLICAS",
    "MUSTER_REPORT_FD",
    "MUSTER_REPRODUCIBLE",
    "MUSTER_RESOLVER",
    "MUSTER_RESTART_COUNT",
    "MUSTER_SOURCE_DIR", /* of the tests */
    "MUSTER_STEP_PLACE",
    "MUSTER_STRANGERS", /* of the tests */
    "MUSTER_STRIPES",
    "MUSTER_TASK_ADDRESS",
    "MUSTER_TLS_CA_FILE",
    "MUSTER_TLS_CERT_FILE",
    "MUSTER_TLS_DATA",
    "MUSTER_TLS_KEY_FILE",
    "MUSTER_TLS_PEERS",
    "MUSTER_TLS_RELOAD_MS",
    "MUSTER_TLS_SECRET_FILE",
    "MUSTER_TRACE",
    "MUSTER_TRACE_DIR",
    "MUSTER_TUNE_FILE",
    "MUSTER_UNKNOWN_VARIABLES",
    "MUSTER_WIRE",
    "MUSTER_ZEROCOPY",
};
#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

/* MUSTER_TEST_… belongs to tests. */
static bool is_of_others(const char *name, const char *value)
{
    const char *port = strstr(name, "_PORT");

    return strncmp(name, PREFIX "TEST_", sizeof(PREFIX "TEST_") - 1) == 0 ||
           strstr(name, "_SERVICE_HOST") != NULL || strstr(name, "_SERVICE_PORT") != NULL ||
           (port != NULL && (port[5] == '_' || strstr(value, "://") != NULL));
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < NAME_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The launcher has told of the names between commas. */
static bool is_told(struct muster_env *env, const char *name)
{
    const char *told = muster_vars_get(env->vars, "MUSTER_UNKNOWN_VARIABLES");
    size_t length = strlen(name);

    while (told != NULL && *told != '\0') {
        size_t word = strcspn(told, ",");

        if (word == length && strncmp(told, name, length) == 0)
            return true;
        told += word + (told[word] == ',');
    }
    return false;
}

void muster_strategy_find_unknown_variables(struct muster_env *env, void *data,
                                            muster_unknown_variable_fn *on_unknown)
{
    const char *entry;

    for (size_t i = 0; env->vars != NULL && (entry = muster_vars_at(env->vars, i)) != NULL; i++) {
        size_t length = strcspn(entry, "=");
        size_t own = length - (sizeof(PREFIX) - 1);
        char name[NAME_BYTES];

        if (strncmp(entry, PREFIX, sizeof(PREFIX) - 1) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)length, entry);
        if (is_known(name) || is_of_others(name, entry + length) || is_told(env, name))
            continue;
        /* A short name is near to many: FOO is not a misspelt JOB. */
        on_unknown(
            data, name,
            muster_options_nearest_within(name, names, NAME_COUNT,
                                          own / 2 < TYPING_ERROR_MAX ? own / 2 : TYPING_ERROR_MAX));
    }
}

static void on_unknown(void *data, const char *name, const char *nearest)
{
    struct muster_env *env = data;

    if (nearest != NULL)
        MUSTER_LOG(env, WARN, "unknown_variable", "name", name, "did_you_mean", nearest);
    else
        MUSTER_LOG(env, WARN, "unknown_variable", "name", name);
}

void muster_training_tell_unknown_variables(struct muster_env *env)
{
    static atomic_flag was_logged = ATOMIC_FLAG_INIT; /* by whichever strategy opens first */

    if (!atomic_flag_test_and_set(&was_logged))
        muster_strategy_find_unknown_variables(env, env, on_unknown);
}
