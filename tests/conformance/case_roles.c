/* Cases of kinds cluster_rules and CommunicationOptions. */
#include "cases.h"

#include <string.h>

#include <muster/collective.h>
#include <muster/strategy_role.h>

/* --- cluster_rules --- */

static void call_is_chief(const struct muster_strategy_role *role, struct case_outcome *outcome)
{
    bool is_chief = false;

    outcome->rc = muster_strategy_role_is_chief(role, &is_chief, &outcome->error);
    if (outcome->rc == MUSTER_OK)
        outcome->value = json_boolean(is_chief);
}

static void call_worker_count(const struct muster_strategy_role *role, struct case_outcome *outcome)
{
    uint32_t count = 0;

    outcome->rc = muster_strategy_role_worker_count(role, &count, &outcome->error);
    if (outcome->rc == MUSTER_OK)
        outcome->value = json_integer(count);
}

static void call_id_in_cluster(const struct muster_strategy_role *role,
                               struct case_outcome *outcome)
{
    uint32_t id = 0;

    outcome->rc = muster_strategy_role_id_in_cluster(role, &id, &outcome->error);
    if (outcome->rc == MUSTER_OK)
        outcome->value = json_integer(id);
}

static void call_collective_leader(const struct muster_strategy_role *role,
                                   struct case_outcome *outcome)
{
    const char *leader = NULL;

    outcome->rc = muster_strategy_role_collective_leader(role, &leader, &outcome->error);
    if (outcome->rc == MUSTER_OK)
        outcome->value = json_string(leader);
}

static void call_coordination_leader(const struct muster_strategy_role *role,
                                     struct case_outcome *outcome)
{
    const char *leader = NULL;

    outcome->rc = muster_strategy_role_coordination_leader(role, &leader, &outcome->error);
    if (outcome->rc == MUSTER_OK)
        outcome->value = json_string(leader);
}

static const struct {
    const char *name;
    void (*make)(const struct muster_strategy_role *role, struct case_outcome *outcome);
} role_calls[] = {
    {"is_chief", call_is_chief},
    {"worker_count", call_worker_count},
    {"id_in_cluster", call_id_in_cluster},
    {"collective_leader", call_collective_leader},
    {"coordination_leader", call_coordination_leader},
};

static void make_role_call(struct case_run *run, const struct muster_strategy_role *role,
                           const json_t *call)
{
    const char *name = case_text(json_object_get(call, "call"));
    struct case_outcome outcome = {0};

    for (size_t i = 0; i < sizeof(role_calls) / sizeof(role_calls[0]); i++) {
        if (name != NULL && strcmp(role_calls[i].name, name) == 0) {
            role_calls[i].make(role, &outcome);
            case_judge(run, name, call, &outcome);
            return;
        }
    }
    case_fail(run, "call %s: not built", name != NULL ? name : "?");
}

void case_cluster_rules(struct case_run *run)
{
    const json_t *calls = case_calls(run);
    struct muster_cluster_spec *cluster = NULL;
    const json_t *task_id = case_argument(run->one, "task_id");
    struct muster_strategy_role role = {
        .task_type = case_text(case_argument(run->one, "task_type")),
        .task_id = json_is_integer(task_id) ? json_integer_value(task_id) : -1, /* not known */
    };
    struct muster_error error = {0};

    if (case_read_cluster(run, case_argument(run->one, "cluster"), &cluster, &error) != MUSTER_OK) {
        case_fail(run, "the cluster cannot be read: %s", error.text);
        return;
    }
    role.cluster = cluster;
    for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++)
        make_role_call(run, &role, json_array_get(calls, i));
    muster_cluster_spec_unref(cluster);
}

/* --- CommunicationOptions --- */

static enum muster_rc read_communication(const json_t *text,
                                         struct muster_communication_options *ret_options,
                                         struct muster_error *ret_error)
{
    const json_t *bytes = json_object_get(text, "bytes_per_pack");
    const json_t *timeout = json_object_get(text, "timeout_seconds");
    const char *name = case_text(json_object_get(text, "implementation"));
    struct muster_communication_options options = {
        .timeout_ns = (uint64_t)(json_number_value(timeout) * (double)MUSTER_NS_PER_S),
    };
    enum muster_rc rc = MUSTER_OK;

    if (json_integer_value(bytes) < 0) /* a size in C has no sign */
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "bytes_per_pack is negative");
    options.bytes_per_pack = (uint64_t)json_integer_value(bytes);
    if (name != NULL)
        rc = muster_communication_parse(name, &options.implementation, ret_error);
    if (rc == MUSTER_OK)
        *ret_options = options;
    return rc;
}

static json_t *show_communication(const struct muster_communication_options *options)
{
    return json_pack(
        "{s:I, s:o, s:s}", "bytes_per_pack", (json_int_t)options->bytes_per_pack, "timeout_seconds",
        options->timeout_ns == 0 ? json_null()
                                 : json_real((double)options->timeout_ns / (double)MUSTER_NS_PER_S),
        "implementation", muster_communication_name(options->implementation));
}

void case_communication(struct case_run *run)
{
    const json_t *calls = case_calls(run);
    struct muster_communication_options options, other;
    struct case_outcome outcome = {0};

    outcome.rc = read_communication(case_argument(run->one, "options"), &options, &outcome.error);
    if (!case_judge_construct(run, &outcome))
        return;
    for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++) {
        const json_t *call = json_array_get(calls, i);
        const char *name = case_text(json_object_get(call, "call"));

        outcome = (struct case_outcome){.rc = MUSTER_OK};
        if (name != NULL && strcmp(name, "merge") == 0) {
            outcome.rc = read_communication(case_argument(call, "other"), &other, &outcome.error);
            if (outcome.rc == MUSTER_OK)
                options = muster_communication_merge(&options, &other);
        }
        if (outcome.rc == MUSTER_OK)
            outcome.value = show_communication(&options);
        case_judge(run, name != NULL ? name : "?", call, &outcome);
    }
}
