/* The environment variables by which a launcher describes a member, checked. */
#include "training/variables.h"

#include <muster/env.h>
#include <muster/micro_batches.h>
#include <muster/replicas.h>

#include "collective/board/system.h"
#include "training/device_list.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The limits keep sums of nanoseconds far below 64 bits, and numbers within their fields. */
#define SECONDS_MAX   1000000000
#define STRIPES_MAX   8
#define NODE_RANK_MAX 1000000

/* The launcher knows a process by one incarnation, and its return is one. Writers and readers of
 * both: whatever threads open and close strategies; read-modify-write operations decide between
 * them, so one alone wins. The order is sequentially consistent; nothing but the flags themselves
 * is read. */
static atomic_flag is_incarnation_taken = ATOMIC_FLAG_INIT; /* a strategy is open as that member */
static atomic_bool has_returned;                            /* stays true */

/* A whole number; *ret_value stays when the variable is not set. */
static enum muster_rc read_number(struct muster_env *env, const char *name, uint64_t max,
                                  uint64_t *ret_value, struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, name);
    char *end = NULL;
    uint64_t value;

    if (text == NULL || *text == '\0')
        return MUSTER_OK;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *text < '0' || *text > '9' || *end != '\0' || value > max)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be a whole number up to %llu, got %s", name,
                                (unsigned long long)max, text);
    *ret_value = value;
    return MUSTER_OK;
}

/* Seconds, also fractions; *ret_ns is 0 when the variable is not set. */
static enum muster_rc read_seconds(struct muster_env *env, const char *name, uint64_t *ret_ns,
                                   struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, name);
    char *end = NULL;
    double seconds = text == NULL || *text == '\0' ? 0 : strtod(text, &end);
    double ns = seconds * (double)MUSTER_NS_PER_S;

    if (end != NULL && (*end != '\0' || !(ns >= 1 && seconds <= SECONDS_MAX)))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be seconds from 0.000000001 to 1000000000, got %s", name,
                                text);
    *ret_ns = (uint64_t)ns;
    return MUSTER_OK;
}

static enum muster_rc read_incarnation(struct muster_env *env,
                                       struct muster_incarnation *ret_incarnation,
                                       struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, "MUSTER_INCARNATION");

    memset(ret_incarnation, 0, sizeof(*ret_incarnation));
    if (text == NULL || *text == '\0' ||
        muster_incarnation_parse(text, ret_incarnation) == MUSTER_OK)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "MUSTER_INCARNATION must be 32 hexadecimal digits, got %s", text);
}

static enum muster_rc read_host_key(struct muster_env *env, const char **ret_key,
                                    struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, "MUSTER_HOST_KEY");

    if (text != NULL && strlen(text) >= MUSTER_HOST_KEY_BYTES)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_HOST_KEY must be shorter than %d bytes, got %.80s…",
                                MUSTER_HOST_KEY_BYTES, text);
    *ret_key = text != NULL && *text != '\0' ? text : NULL;
    return MUSTER_OK;
}

/* Both count in the first view only: the values of its leader are used by all members. */
static enum muster_rc read_plan(struct muster_env *env, struct muster_plan_parameters *ret_plan,
                                struct muster_error *ret_error)
{
    const char *path = muster_vars_get(env->vars, "MUSTER_TUNE_FILE");
    const char *reproducible = muster_vars_get(env->vars, "MUSTER_REPRODUCIBLE");
    struct muster_error why;
    enum muster_rc rc;

    if (path != NULL && *path != '\0') {
        rc = muster_plan_parameters_read(env->files, env->mem, path, ret_plan, &why);
        if (rc != MUSTER_OK)
            return muster_error_set(ret_error, rc, "MUSTER_TUNE_FILE=%s", why.text);
    }
    if (reproducible == NULL || *reproducible == '\0' || strcmp(reproducible, "no") == 0)
        return MUSTER_OK;
    ret_plan->is_reproducible = true;
    return strcmp(reproducible, "view") == 0
               ? MUSTER_OK
               : muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                  "MUSTER_REPRODUCIBLE must be view or no, got %s", reproducible);
}

enum muster_rc muster_training_read_log(struct muster_env *env, enum muster_log_level *ret_level,
                                        bool *ret_is_json, struct muster_error *ret_error)
{
    const char *level = muster_vars_get(env->vars, "MUSTER_LOG_LEVEL");
    const char *format = muster_vars_get(env->vars, "MUSTER_LOG_FORMAT");

    *ret_level = MUSTER_LOG_WARN;
    *ret_is_json = format != NULL && strcmp(format, "json") == 0;
    if (level != NULL && *level != '\0' && muster_log_level_parse(level, ret_level) != MUSTER_OK)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_LOG_LEVEL: must be one of error|warn|info|debug|trace, "
                                "got \"%.80s\"",
                                level);
    if (format != NULL && *format != '\0' && !*ret_is_json && strcmp(format, "text") != 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_LOG_FORMAT: must be one of text|json, got \"%.80s\"",
                                format);
    return MUSTER_OK;
}

enum muster_rc muster_training_read_device_timeout(struct muster_env *env, uint64_t *ret_ns,
                                                   struct muster_error *ret_error)
{
    return read_seconds(env, "MUSTER_DEVICE_TIMEOUT_S", ret_ns, ret_error);
}

enum muster_rc muster_training_read_constant_batch(struct muster_env *env, uint32_t *ret_slots,
                                                   struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, "MUSTER_CONSTANT_BATCH");
    bool is_set = text != NULL && *text != '\0';
    uint64_t slots = 0;
    enum muster_rc rc =
        read_number(env, "MUSTER_CONSTANT_BATCH", MUSTER_MICRO_SLOTS_MAX, &slots, NULL);

    if (rc != MUSTER_OK || (is_set && slots == 0))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "MUSTER_CONSTANT_BATCH must be a number of slots from 1 to %u, got "
                                "%.80s; or unset it",
                                MUSTER_MICRO_SLOTS_MAX, text);
    *ret_slots = (uint32_t)slots;
    return MUSTER_OK;
}

enum muster_rc muster_training_read_trace(struct muster_env *env,
                                          enum muster_training_trace *ret_trace,
                                          struct muster_error *ret_error)
{
    static const char *const names[] = {[MUSTER_TRAINING_TRACE_FAILURE] = "failure",
                                        [MUSTER_TRAINING_TRACE_ALWAYS] = "always",
                                        [MUSTER_TRAINING_TRACE_OFF] = "off"};
    const char *text = muster_vars_get(env->vars, "MUSTER_TRACE");

    *ret_trace = MUSTER_TRAINING_TRACE_FAILURE;
    if (text == NULL || *text == '\0')
        return MUSTER_OK;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        *ret_trace = (enum muster_training_trace)i;
        if (strcmp(text, names[i]) == 0)
            return MUSTER_OK;
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "MUSTER_TRACE must be failure, always or off, got %s", text);
}

enum muster_rc muster_training_read_variables(struct muster_env *env,
                                              struct muster_node_options *node,
                                              struct muster_error *ret_error)
{
    uint64_t min_members = 0, min_start = 0, timeout_s = 0, rejoin = 0, stripes = 0, node_rank = 0,
             replicas = 0;
    enum muster_rc rc = read_incarnation(env, &node->incarnation, ret_error);

    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_MIN_MEMBERS", UINT32_MAX, &min_members, ret_error);
    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_MIN_MEMBERS_START", UINT32_MAX, &min_start, ret_error);
    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_MIN_MEMBERS_TIMEOUT_S", SECONDS_MAX, &timeout_s, ret_error);
    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_REJOIN", 1, &rejoin, ret_error);
    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_STRIPES", STRIPES_MAX, &stripes, ret_error);
    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_NODE_RANK", NODE_RANK_MAX, &node_rank, ret_error);
    if (rc == MUSTER_OK)
        rc = read_number(env, "MUSTER_REPLICAS", MUSTER_REPLICAS_MAX, &replicas, ret_error);
    if (rc == MUSTER_OK)
        rc = read_seconds(env, "MUSTER_EVICT_AFTER_S", &node->evict_after_ns, ret_error);
    if (rc == MUSTER_OK)
        rc = read_host_key(env, &node->host_key, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_board_system_check_wire(env, ret_error);
    if (rc == MUSTER_OK)
        rc = read_plan(env, &node->plan, ret_error);
    if (muster_vars_get(env->vars, "MUSTER_NODE_RANK") != NULL)
        node->machine = (uint32_t)node_rank + 1;
    node->is_return = rejoin != 0;
    node->stripe_count = (uint32_t)stripes;
    node->replica_count = (uint32_t)replicas;
    node->min_members = (uint32_t)min_members;
    node->min_members_start = (uint32_t)min_start;
    node->min_members_timeout_ns = timeout_s * MUSTER_NS_PER_S;
    return rc;
}

/* Reads one of the words between commas. */
static bool read_notice(struct muster_training_notices *notices, const char *word, size_t length)
{
    static const char launcher[] = "launcher:";
    size_t prefix = sizeof(launcher) - 1;
    char *end = NULL;
    long pid;

    if (length == 3 && memcmp(word, "gce", 3) == 0) {
        notices->has_metadata = true;
        return true;
    }
    notices->has_signals = true;
    if (length == 7 && memcmp(word, "signals", 7) == 0)
        return true;
    if (length <= prefix || memcmp(word, launcher, prefix) != 0)
        return false;
    pid = strtol(word + prefix, &end, 10);
    notices->launcher = (pid_t)pid;
    return pid > 0 && pid <= INT_MAX && end == word + length;
}

enum muster_rc muster_training_read_notices(struct muster_env *env,
                                            struct muster_training_notices *ret_notices,
                                            struct muster_error *ret_error)
{
    const char *text = muster_vars_get(env->vars, "MUSTER_PREEMPTION");
    struct muster_training_notices notices = {.has_signals = false};

    for (const char *word = text; word != NULL && *word != '\0';) {
        size_t length = strcspn(word, ",");

        if (!read_notice(&notices, word, length))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "MUSTER_PREEMPTION must be signals, gce, or signals,gce, got "
                                    "%.80s; or unset it",
                                    text);
        word += length + (word[length] == ',');
    }
    *ret_notices = notices;
    return MUSTER_OK;
}

/* For programs that want to refuse bad settings before they load their data. */
enum muster_rc muster_strategy_check_variables(struct muster_env *env,
                                               struct muster_error *ret_error)
{
    struct muster_node_options node = {.env = env};
    enum muster_log_level level;
    enum muster_training_trace trace;
    struct muster_training_notices notices;
    uint64_t device_timeout_ns;
    uint32_t constant_batch;
    bool is_json;
    enum muster_rc rc = muster_training_read_log(env, &level, &is_json, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_training_read_trace(env, &trace, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_training_read_notices(env, &notices, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_device_list_check(env, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_training_read_device_timeout(env, &device_timeout_ns, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_training_read_constant_batch(env, &constant_batch, ret_error);
    return rc != MUSTER_OK ? rc : muster_training_read_variables(env, &node, ret_error);
}

/* The launcher knows this process by one incarnation, so only one strategy at a time can be that
 * member. A second one after the first has closed is not a restart: is_return counts once. */
enum muster_rc muster_training_take_incarnation(struct muster_node_options *node,
                                                bool *ret_is_taken, struct muster_error *ret_error)
{
    static const struct muster_incarnation none;

    if (muster_incarnation_is_equal(&node->incarnation, &none))
        return MUSTER_OK;
    if (atomic_flag_test_and_set(&is_incarnation_taken))
        return muster_error_set(
            ret_error, MUSTER_FAILED_PRECONDITION,
            "a strategy is open in this process, which its launcher (MUSTER_INCARNATION) knows as "
            "one member: end that one first (muster_strategy_close), or start more workers");
    *ret_is_taken = true;
    node->is_return = node->is_return && !atomic_exchange(&has_returned, true);
    return MUSTER_OK;
}

void muster_training_give_incarnation(void)
{
    atomic_flag_clear(&is_incarnation_taken);
}
