/* Cases of resolvers: construction, then calls on one object. */
#include "cases.h"

#include <muster/sagemaker_resolver.h>
#include <muster/slurm_resolver.h>
#include <muster/union_resolver.h>

#include <stdlib.h>
#include <string.h>

#define ANSWER_WITHIN_NS (30 * MUSTER_NS_PER_S)

struct resolver_call {
    struct case_run *run;
    struct muster_resolver *resolver;
    const json_t *call;
    struct case_outcome *outcome;
};

/* Ask and wait. */

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct case_outcome *outcome = resolve->data;

    outcome->rc = rc;
    outcome->error = resolve->error;
    resolve->data = NULL;
}

static bool ask(struct resolver_call *call, struct muster_resolve *resolve)
{
    struct muster_loop *loop = call->run->env->loop;
    const json_t *task_id = case_argument(call->call, "task_id");

    resolve->query.task_type = case_text(case_argument(call->call, "task_type"));
    resolve->query.rpc_layer = case_text(case_argument(call->call, "rpc_layer"));
    resolve->query.has_task_id = json_is_integer(task_id);
    resolve->query.task_id = json_integer_value(task_id);
    resolve->deadline_ns = muster_loop_after_ns(loop, ANSWER_WITHIN_NS);
    resolve->data = call->outcome;
    call->outcome->rc = muster_resolve_start(resolve, call->resolver, on_answer);
    if (call->outcome->rc != MUSTER_OK)
        return false;
    while (resolve->data != NULL)
        muster_loop_turn(loop, UINT64_MAX);
    return call->outcome->rc == MUSTER_OK;
}

static void call_cluster_spec(struct resolver_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};

    if (!ask(call, &resolve))
        return;
    call->outcome->value = case_cluster_dict(call->run, resolve.cluster_spec);
    muster_cluster_spec_unref(resolve.cluster_spec);
}

static void call_cluster_def(struct resolver_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};

    if (!ask(call, &resolve))
        return;
    call->outcome->value = case_cluster_def(resolve.cluster_spec);
    muster_cluster_spec_unref(resolve.cluster_spec);
}

static void call_master(struct resolver_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER};

    if (!ask(call, &resolve))
        return;
    call->outcome->value = json_string(resolve.master);
    muster_mem_free(call->run->env->mem, resolve.master);
}

static void call_num_accelerators(struct resolver_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS};

    if (!ask(call, &resolve))
        return;
    call->outcome->value = json_object();
    for (size_t i = 0; i < resolve.accelerators.kind_count; i++)
        json_object_set_new(call->outcome->value, resolve.accelerators.kinds[i].kind,
                            json_integer(resolve.accelerators.kinds[i].count));
}

/* Properties. */

static void take_text(struct resolver_call *call, char *text)
{
    call->outcome->value = text != NULL ? json_string(text) : NULL;
    muster_mem_free(call->run->env->mem, text);
}

static void call_task_type(struct resolver_call *call)
{
    char *text = NULL;

    call->outcome->rc = muster_resolver_task_type(call->resolver, &text, &call->outcome->error);
    take_text(call, text);
}

static void call_rpc_layer(struct resolver_call *call)
{
    char *text = NULL;

    call->outcome->rc = muster_resolver_rpc_layer(call->resolver, &text, &call->outcome->error);
    take_text(call, text);
}

static void call_task_id(struct resolver_call *call)
{
    bool is_set = false;
    int64_t id = 0;

    call->outcome->rc =
        muster_resolver_task_id(call->resolver, &is_set, &id, &call->outcome->error);
    if (call->outcome->rc == MUSTER_OK && is_set)
        call->outcome->value = json_integer(id);
}

static void call_environment(struct resolver_call *call)
{
    const char *environment = muster_resolver_environment(call->resolver);

    call->outcome->value = environment != NULL ? json_string(environment) : NULL;
}

static void call_set_task_type(struct resolver_call *call)
{
    call->outcome->rc = muster_resolver_set_task_type(
        call->resolver, case_text(case_argument(call->call, "value")));
}

static void call_set_rpc_layer(struct resolver_call *call)
{
    call->outcome->rc = muster_resolver_set_rpc_layer(
        call->resolver, case_text(case_argument(call->call, "value")));
}

static void call_set_task_id(struct resolver_call *call)
{
    const json_t *id = case_argument(call->call, "value");

    muster_resolver_set_task_id(call->resolver, json_is_integer(id), json_integer_value(id));
}

static void call_set_env(struct resolver_call *call)
{
    const char *name = case_text(case_argument(call->call, "name"));

    if (name == NULL || !case_set_variable(call->run, name, case_argument(call->call, "value")))
        call->outcome->rc = MUSTER_INVALID_ARGUMENT;
}

static void call_get_env(struct resolver_call *call)
{
    const char *name = case_text(case_argument(call->call, "name"));
    const char *value = name != NULL ? muster_vars_get(call->run->env->vars, name) : NULL;

    call->outcome->value = value != NULL ? json_string(value) : NULL;
}

static void call_task_info(struct resolver_call *call)
{
    struct case_outcome type = {0};
    struct resolver_call of_type = {call->run, call->resolver, call->call, &type};

    call_task_type(&of_type);
    call_task_id(call);
    if (type.rc != MUSTER_OK)
        call->outcome->rc = type.rc;
    call->outcome->value = json_pack("[o?, o?]", type.value, call->outcome->value);
}

static const struct {
    const char *name;
    void (*make)(struct resolver_call *call);
} resolver_calls[] = {
    {"cluster_spec", call_cluster_spec},
    {"cluster_def", call_cluster_def},
    {"master", call_master},
    {"num_accelerators", call_num_accelerators},
    {"task_type", call_task_type},
    {"task_id", call_task_id},
    {"rpc_layer", call_rpc_layer},
    {"environment", call_environment},
    {"set_task_type", call_set_task_type},
    {"set_task_id", call_set_task_id},
    {"set_rpc_layer", call_set_rpc_layer},
    {"set_env", call_set_env},
    {"get_env", call_get_env},
    {"get_task_info", call_task_info},
};

static void make_call(struct case_run *run, struct muster_resolver *resolver, const json_t *one)
{
    const char *name = case_text(json_object_get(one, "call"));
    struct case_outcome outcome = {0};
    struct resolver_call call = {run, resolver, one, &outcome};

    for (size_t i = 0; i < sizeof(resolver_calls) / sizeof(resolver_calls[0]); i++) {
        if (name != NULL && strcmp(resolver_calls[i].name, name) == 0) {
            resolver_calls[i].make(&call);
            case_judge(run, name, one, &outcome);
            return;
        }
    }
    case_fail(run, "call %s: not built", name != NULL ? name : "?");
}

static void on_closed(struct muster_resolver *resolver)
{
    *(bool *)resolver->data = true;
}

/* Judge the construction, make the calls, close. resolver is NULL when the construction failed. */
static void run_calls(struct case_run *run, struct muster_resolver *resolver,
                      struct case_outcome *outcome)
{
    const json_t *calls = case_calls(run);
    bool is_closed = false;

    if (case_judge_construct(run, outcome)) {
        for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++)
            make_call(run, resolver, json_array_get(calls, i));
    }
    if (resolver == NULL)
        return;
    resolver->data = &is_closed;
    muster_resolver_close(resolver, on_closed);
    while (!is_closed)
        muster_loop_turn(run->env->loop, UINT64_MAX);
}

/* Arguments. */

/* The names in "devices" of the case. */
struct device_list {
    const json_t *names;
    const char **array;
};

static void list_devices(void *data, const char *const **ret_names, size_t *ret_count)
{
    struct device_list *list = data;
    size_t count = json_array_size(list->names);

    free(list->array);
    list->array = calloc(count + 1, sizeof(list->array[0]));
    for (size_t i = 0; list->array != NULL && i < count; i++)
        list->array[i] = json_string_value(json_array_get(list->names, i));
    *ret_names = list->array;
    *ret_count = list->array != NULL ? count : 0;
}

static bool is_text_or_null(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_string(value);
}

/* What all resolvers take. */
static enum muster_rc read_common(struct case_run *run, struct muster_resolver_options *options,
                                  struct device_list *list, struct muster_error *ret_error)
{
    const json_t *task_type = case_argument(run->one, "task_type");
    const json_t *rpc_layer = case_argument(run->one, "rpc_layer");
    const json_t *environment = case_argument(run->one, "environment");
    const json_t *task_id = case_argument(run->one, "task_id");

    if (!is_text_or_null(task_type) || !is_text_or_null(rpc_layer) || !is_text_or_null(environment))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "an argument is no text");
    list->names = json_object_get(run->one, "devices");
    *options = (struct muster_resolver_options){
        .task_type = case_text(task_type),
        .rpc_layer = case_text(rpc_layer),
        .environment = case_text(environment),
        .has_task_id = json_is_integer(task_id),
        .task_id = json_integer_value(task_id),
        .list_devices = list_devices,
        .list_devices_data = list,
    };
    return MUSTER_OK;
}

static enum muster_rc read_accelerators(const json_t *map, struct muster_accelerators *accelerators)
{
    const char *kind;
    json_t *count;

    json_object_foreach((json_t *)(uintptr_t)map, kind, count)
    {
        size_t at = accelerators->kind_count;

        if (at == MUSTER_ACCELERATOR_KINDS_MAX || !json_is_integer(count) ||
            strlen(kind) >= MUSTER_ACCELERATOR_KIND_TEXT_BYTES)
            return MUSTER_INVALID_ARGUMENT;
        memcpy(accelerators->kinds[at].kind, kind, strlen(kind) + 1);
        accelerators->kinds[at].count = json_integer_value(count);
        accelerators->kind_count++;
    }
    return MUSTER_OK;
}

/* A value of the wrong type has no place in these options: it becomes NULL, which the resolver
 * refuses. */
static enum muster_rc read_static(struct case_run *run,
                                  struct muster_static_resolver_options *options,
                                  struct device_list *list, struct muster_error *ret_error)
{
    const json_t *cluster = case_argument(run->one, "cluster_spec");
    const json_t *master = case_argument(run->one, "master");
    enum muster_rc rc = read_common(run, &options->common, list, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    options->master = master != NULL ? case_text(master) : "";
    if (case_argument(run->one, "environment") == NULL)
        options->common.environment = "";
    rc = read_accelerators(case_argument(run->one, "num_accelerators"), &options->accelerators);
    if (rc != MUSTER_OK || json_object_get(cluster, "not_a_cluster_spec") != NULL)
        return rc;
    return case_read_cluster(run, cluster, &options->cluster_spec, ret_error);
}

static enum muster_rc open_simple(struct case_run *run, struct device_list *list,
                                  struct muster_resolver **ret_resolver,
                                  struct muster_error *ret_error)
{
    struct muster_static_resolver_options options = {.cluster_spec = NULL};
    enum muster_rc rc = read_static(run, &options, list, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_static_resolver_open(run->env, &options, ret_resolver, ret_error);
    muster_cluster_spec_unref(options.cluster_spec);
    return rc;
}

void case_simple_resolver(struct case_run *run)
{
    struct muster_resolver *resolver = NULL;
    struct case_outcome outcome = {0};
    struct device_list list = {0};

    outcome.rc = open_simple(run, &list, &resolver, &outcome.error);
    run_calls(run, resolver, &outcome);
    free(list.array);
}

/* What is no resolver becomes NULL, which the union refuses. */
static enum muster_rc open_member(struct case_run *run, const json_t *member,
                                  struct muster_resolver **ret_resolver,
                                  struct muster_error *ret_error)
{
    const char *kind = case_text(json_object_get(member, "resolver"));
    struct case_run own = {.env = run->env, .one = member};
    struct device_list none = {0};

    if (!json_is_object(member))
        return MUSTER_OK;
    if (kind == NULL || strcmp(kind, "SimpleClusterResolver") != 0)
        return muster_error_set(ret_error, MUSTER_UNIMPLEMENTED, "member '%s': not built", kind);
    return open_simple(&own, &none, ret_resolver, ret_error);
}

void case_union_resolver(struct case_run *run)
{
    const json_t *given = case_argument(run->one, "resolvers");
    struct muster_resolver *members[MUSTER_UNION_MEMBERS_MAX] = {NULL};
    struct muster_union_resolver_options options = {.members = members};
    struct muster_resolver *resolver = NULL;
    struct case_outcome outcome = {0};
    struct device_list list = {0};

    outcome.rc = read_common(run, &options.common, &list, &outcome.error);
    for (size_t i = 0; i < json_array_size(given) && outcome.rc == MUSTER_OK; i++)
        outcome.rc = open_member(run, json_array_get(given, i), &members[options.member_count++],
                                 &outcome.error);
    if (outcome.rc == MUSTER_OK)
        outcome.rc = muster_union_resolver_open(run->env, &options, &resolver, &outcome.error);
    run_calls(run, resolver, &outcome);
    free(list.array);
}

void case_sagemaker_resolver(struct case_run *run)
{
    const json_t *port = case_argument(run->one, "port");
    struct muster_sagemaker_resolver_options options = {.port = 0};
    struct muster_resolver *resolver = NULL;
    struct case_outcome outcome = {0};
    struct device_list list = {0};

    outcome.rc = read_common(run, &options.common, &list, &outcome.error);
    if (port != NULL)
        options.port = (uint16_t)(json_is_string(port) ? atoi(json_string_value(port))
                                                       : json_integer_value(port));
    if (outcome.rc == MUSTER_OK)
        outcome.rc = muster_sagemaker_resolver_open(run->env, &options, &resolver, &outcome.error);
    run_calls(run, resolver, &outcome);
    free(list.array);
}

void case_tf_config_resolver(struct case_run *run)
{
    struct muster_resolver_options options;
    struct muster_resolver *resolver = NULL;
    struct case_outcome outcome = {0};
    struct device_list list = {0};

    outcome.rc = read_common(run, &options, &list, &outcome.error);
    if (outcome.rc == MUSTER_OK)
        outcome.rc = muster_tf_config_resolver_open(run->env, &options, &resolver, &outcome.error);
    run_calls(run, resolver, &outcome);
    free(list.array);
}

#define CASE_PAIRS_MAX 64

/* {"worker": 4, "ps": 1}; texts belong to the case. */
static size_t read_jobs(const json_t *map, struct muster_slurm_job *jobs)
{
    size_t count = 0;
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, name, value)
    {
        if (count < CASE_PAIRS_MAX)
            jobs[count++] = (struct muster_slurm_job){name, (uint32_t)json_integer_value(value)};
    }
    return count;
}

static void set_gpus(void *data, const char *devices)
{
    json_t *value = json_string(devices);

    case_set_variable(data, "CUDA_VISIBLE_DEVICES", value);
    json_decref(value);
}

static void read_gpus(struct case_run *run, struct muster_slurm_resolver_options *options)
{
    const json_t *per_node = case_argument(run->one, "gpus_per_node");
    const json_t *per_task = case_argument(run->one, "gpus_per_task");
    const json_t *auto_set = case_argument(run->one, "auto_set_gpu");

    options->has_gpus_per_node = json_is_integer(per_node);
    options->has_gpus_per_task = json_is_integer(per_task);
    options->gpus_per_node = (uint32_t)json_integer_value(per_node);
    options->gpus_per_task = (uint32_t)json_integer_value(per_task);
    if (auto_set == NULL || json_is_true(auto_set))
        options->set_gpus = set_gpus;
    options->gpu_data = run;
}

void case_slurm_resolver(struct case_run *run)
{
    const json_t *tasks = case_argument(run->one, "tasks_per_node");
    struct muster_slurm_job jobs[CASE_PAIRS_MAX];
    struct muster_slurm_job counts[CASE_PAIRS_MAX];
    struct muster_slurm_node nodes[CASE_PAIRS_MAX];
    struct muster_slurm_resolver_options options = {.jobs = jobs, .nodes = nodes};
    struct muster_resolver *resolver = NULL;
    struct case_outcome outcome = {0};
    struct device_list list = {0};

    outcome.rc = read_common(run, &options.common, &list, &outcome.error);
    options.job_count = read_jobs(case_argument(run->one, "jobs"), jobs);
    options.node_count = read_jobs(tasks, counts);
    for (size_t i = 0; i < options.node_count; i++)
        nodes[i] = (struct muster_slurm_node){counts[i].name, counts[i].task_count};
    options.tasks_per_node = (uint32_t)json_integer_value(tasks);
    options.port_base = (uint16_t)json_integer_value(case_argument(run->one, "port_base"));
    if (json_is_null(case_argument(run->one, "rpc_layer")))
        options.common.rpc_layer = "";
    read_gpus(run, &options);
    if (outcome.rc == MUSTER_OK)
        outcome.rc = muster_slurm_resolver_open(run->env, &options, &resolver, &outcome.error);
    run_calls(run, resolver, &outcome);
    free(list.array);
}
