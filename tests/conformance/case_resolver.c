/* Cases of resolvers: construction, then calls on one object. */
#include "cases.h"

#include <muster/resolver.h>

#include <stdlib.h>
#include <string.h>

#define ANSWER_WITHIN_NS (30 * MUSTER_NS_PER_S)

/* Ask and wait. */

static void on_answer(struct muster_resolve *resolve, enum muster_rc rc)
{
    struct case_outcome *outcome = resolve->data;

    outcome->rc = rc;
    outcome->error = resolve->error;
    resolve->data = NULL;
}

static bool ask_call(struct case_call *call, struct muster_resolve *resolve)
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

static void call_cluster_spec(struct case_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};

    if (!ask_call(call, &resolve))
        return;
    call->outcome->value = case_cluster_dict(call->run, resolve.cluster_spec);
    muster_cluster_spec_unref(resolve.cluster_spec);
}

static void call_cluster_def(struct case_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_CLUSTER_SPEC};

    if (!ask_call(call, &resolve))
        return;
    call->outcome->value = case_cluster_def(resolve.cluster_spec);
    muster_cluster_spec_unref(resolve.cluster_spec);
}

static void call_master(struct case_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_MASTER};

    if (!ask_call(call, &resolve))
        return;
    call->outcome->value = json_string(resolve.master);
    muster_mem_free(call->run->env->mem, resolve.master);
}

static void call_num_accelerators(struct case_call *call)
{
    struct muster_resolve resolve = {.what = MUSTER_RESOLVE_NUM_ACCELERATORS};

    if (!ask_call(call, &resolve))
        return;
    call->outcome->value = json_object();
    for (size_t i = 0; i < resolve.accelerators.kind_count; i++)
        json_object_set_new(call->outcome->value, resolve.accelerators.kinds[i].kind,
                            json_integer(resolve.accelerators.kinds[i].count));
}

/* Properties. */

static void take_text(struct case_call *call, char *text)
{
    call->outcome->value = text != NULL ? json_string(text) : NULL;
    muster_mem_free(call->run->env->mem, text);
}

static void call_task_type(struct case_call *call)
{
    char *text = NULL;

    call->outcome->rc = muster_resolver_task_type(call->resolver, &text, &call->outcome->error);
    take_text(call, text);
}

static void call_rpc_layer(struct case_call *call)
{
    char *text = NULL;

    call->outcome->rc = muster_resolver_rpc_layer(call->resolver, &text, &call->outcome->error);
    take_text(call, text);
}

static void call_task_id(struct case_call *call)
{
    bool is_set = false;
    int64_t id = 0;

    call->outcome->rc =
        muster_resolver_task_id(call->resolver, &is_set, &id, &call->outcome->error);
    if (call->outcome->rc == MUSTER_OK && is_set)
        call->outcome->value = json_integer(id);
}

static void call_environment(struct case_call *call)
{
    const char *environment = muster_resolver_environment(call->resolver);

    call->outcome->value = environment != NULL ? json_string(environment) : NULL;
}

static void call_set_task_type(struct case_call *call)
{
    call->outcome->rc = muster_resolver_set_task_type(
        call->resolver, case_text(case_argument(call->call, "value")));
}

static void call_set_rpc_layer(struct case_call *call)
{
    call->outcome->rc = muster_resolver_set_rpc_layer(
        call->resolver, case_text(case_argument(call->call, "value")));
}

static void call_set_task_id(struct case_call *call)
{
    const json_t *id = case_argument(call->call, "value");

    muster_resolver_set_task_id(call->resolver, json_is_integer(id), json_integer_value(id));
}

static void call_set_env(struct case_call *call)
{
    const char *name = case_text(case_argument(call->call, "name"));

    if (name == NULL || !case_set_variable(call->run, name, case_argument(call->call, "value")))
        call->outcome->rc = MUSTER_INVALID_ARGUMENT;
}

static void call_get_env(struct case_call *call)
{
    const char *name = case_text(case_argument(call->call, "name"));
    const char *value = name != NULL ? muster_vars_get(call->run->env->vars, name) : NULL;

    call->outcome->value = value != NULL ? json_string(value) : NULL;
}

static void call_task_info(struct case_call *call)
{
    struct case_outcome type = {0};
    struct case_call of_type = {call->run, call->resolver, call->call, &type};

    call_task_type(&of_type);
    call_task_id(call);
    if (type.rc != MUSTER_OK)
        call->outcome->rc = type.rc;
    call->outcome->value = json_pack("[o?, o?]", type.value, call->outcome->value);
}

static const struct case_call_kind resolver_calls[] = {
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
    {"get_master", call_master},
    {NULL, NULL},
};

static const struct case_call_kind *find_call(const struct case_call_kind *kinds, const char *name)
{
    while (kinds->name != NULL && (name == NULL || strcmp(kinds->name, name) != 0))
        kinds++;
    return kinds->name != NULL ? kinds : NULL;
}

static void make_call(struct case_run *run, struct muster_resolver *resolver, const json_t *one)
{
    const char *name = case_text(json_object_get(one, "call"));
    struct case_outcome outcome = {0};
    struct case_call call = {run, resolver, one, &outcome};

    const struct case_call_kind *kind = find_call(resolver_calls, name);

    if (kind == NULL && strcmp(muster_resolver_name(resolver), "tpu") == 0)
        kind = find_call(case_tpu_calls, name);
    if (kind != NULL) {
        kind->make(&call);
        case_judge(run, name, one, &outcome);
        return;
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

enum muster_rc case_read_port(const json_t *port, uint16_t fallback, uint16_t *ret_port,
                              struct muster_error *ret_error)
{
    const char *text = json_string_value(port);
    char *end = NULL;
    long long number = text != NULL ? strtoll(text, &end, 10) : json_integer_value(port);

    if (port == NULL || json_is_null(port)) {
        *ret_port = fallback;
        return MUSTER_OK;
    }
    if ((text == NULL && !json_is_integer(port)) ||
        (text != NULL && (end == text || *end != '\0')) || number < 1 || number > UINT16_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a port of the case must be a number from 1 to 65535, or its text");
    *ret_port = (uint16_t)number;
    return MUSTER_OK;
}

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

/* Options that all resolvers take. */
enum muster_rc case_read_common(struct case_run *run, struct muster_resolver_options *options,
                                struct muster_error *ret_error)
{
    const json_t *task_type = case_argument(run->one, "task_type");
    const json_t *rpc_layer = case_argument(run->one, "rpc_layer");
    const json_t *environment = case_argument(run->one, "environment");
    const json_t *task_id = case_argument(run->one, "task_id");

    if (!is_text_or_null(task_type) || !is_text_or_null(rpc_layer) || !is_text_or_null(environment))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "an argument is not a text");
    *options = (struct muster_resolver_options){
        .task_type = case_text(task_type),
        .rpc_layer = case_text(rpc_layer),
        .environment = case_text(environment),
        .has_task_id = json_is_integer(task_id),
        .task_id = json_integer_value(task_id),
    };
    return MUSTER_OK;
}

/* One row per class: `resolver` (or `kind`) of a case or of a union's member. */
static const struct {
    const char *name;
    case_open_fn *open;
} classes[] = {
    {"SimpleClusterResolver", case_open_simple},
    {"TFConfigClusterResolver", case_open_tf_config},
    {"UnionResolver", case_open_union},
    {"UnionClusterResolver", case_open_union},
    {"SageMakerClusterResolver", case_open_sagemaker},
    {"SlurmClusterResolver", case_open_slurm},
    {"GCEClusterResolver", case_open_gce},
    {"TPUClusterResolver", case_open_tpu},
    {"TPUClient", case_open_tpu},
    {"KubernetesClusterResolver", case_open_kubernetes},
};

case_open_fn *case_resolver_find(const char *class_name)
{
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (strcmp(classes[i].name, class_name) == 0)
            return classes[i].open;
    }
    return NULL;
}

void case_resolver(struct case_run *run)
{
    const char *kind = case_text(json_object_get(run->one, "kind"));
    const char *resolver_class = case_text(json_object_get(run->one, "resolver"));
    case_open_fn *open = case_resolver_find(kind != NULL ? kind : resolver_class);
    struct muster_resolver_options common;
    struct muster_resolver *resolver = NULL;
    struct case_outcome outcome = {0};
    struct device_list list = {0};

    outcome.rc = case_read_common(run, &common, &outcome.error);
    list.names = json_object_get(run->one, "devices");
    common.list_devices = list_devices;
    common.list_devices_data = &list;
    if (outcome.rc == MUSTER_OK)
        outcome.rc = open(run, &common, &resolver, &outcome.error);
    run_calls(run, resolver, &outcome);
    free(list.array);
}
