/* Cases of kind ClusterSpec, and clusters as cases write them. */
#include "cases.h"

#include <muster/cluster_spec.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum muster_rc read_def(struct muster_cluster_spec_builder *builder, const json_t *jobs,
                               struct muster_error *ret_error)
{
    const char *index;
    json_t *address;

    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        const char *name = case_text(json_object_get(job, "name"));

        muster_cluster_spec_builder_add_job(builder, name != NULL ? name : "");
        json_object_foreach(json_object_get(job, "tasks"), index, address)
        {
            if (case_text(address) == NULL)
                return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "address is not a text");
            muster_cluster_spec_builder_add_task(builder, (int32_t)strtol(index, NULL, 10),
                                                 case_text(address));
        }
    }
    return MUSTER_OK;
}

static enum muster_rc read_cluster_def(struct case_run *run, const json_t *def,
                                       struct muster_cluster_spec **ret_spec,
                                       struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, run->env->mem, true);
    rc = read_def(&builder, json_object_get(def, "job"), ret_error);
    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_build(&builder, ret_spec);
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

/* A copy through the wire form. */
static enum muster_rc copy_cluster(struct case_run *run, const json_t *cluster,
                                   struct muster_cluster_spec **ret_spec,
                                   struct muster_error *ret_error)
{
    struct muster_cluster_spec *original = NULL;
    enum muster_rc rc = case_read_cluster(run, cluster, &original, ret_error);
    void *bytes = NULL;
    size_t size = 0;

    if (rc != MUSTER_OK)
        return rc;
    rc = muster_cluster_spec_pack(original, run->env->mem, &bytes, &size);
    if (rc == MUSTER_OK)
        rc = muster_cluster_spec_unpack(run->env->mem, bytes, size, ret_spec, ret_error);
    muster_mem_free(run->env->mem, bytes);
    muster_cluster_spec_unref(original);
    return rc;
}

enum muster_rc case_read_cluster(struct case_run *run, const json_t *cluster,
                                 struct muster_cluster_spec **ret_spec,
                                 struct muster_error *ret_error)
{
    const json_t *def = json_object_get(cluster, "cluster_def");
    const json_t *original = json_object_get(cluster, "cluster_spec_of");
    enum muster_rc rc;
    char *text;

    if (json_object_size(cluster) == 1 && def != NULL)
        return read_cluster_def(run, def, ret_spec, ret_error);
    if (json_object_size(cluster) == 1 && original != NULL)
        return copy_cluster(run, original, ret_spec, ret_error);
    text = json_dumps(cluster, JSON_ENCODE_ANY);
    if (text == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT, "no cluster");
    rc = muster_cluster_spec_parse(run->env->mem, text, strlen(text), ret_spec, ret_error);
    free(text);
    return rc;
}

json_t *case_cluster_dict(struct case_run *run, const struct muster_cluster_spec *spec)
{
    json_t *dict = NULL;
    char *text = NULL;

    if (muster_cluster_spec_format(spec, run->env->mem, &text) == MUSTER_OK)
        dict = json_loads(text, 0, NULL);
    muster_mem_free(run->env->mem, text);
    return dict;
}

json_t *case_cluster_def(const struct muster_cluster_spec *spec)
{
    json_t *def = json_array();

    for (size_t i = 0; i < spec->def_count; i++) {
        const struct muster_cluster_job *job = &spec->defs[i];
        json_t *tasks = json_object();

        for (size_t k = 0; k < job->task_count; k++) {
            char index[16];

            snprintf(index, sizeof(index), "%d", job->tasks[k].index);
            json_object_set_new(tasks, index, json_string(job->tasks[k].address));
        }
        json_array_append_new(def, json_pack("{s:s, s:o}", "name", job->name, "tasks", tasks));
    }
    return def;
}

struct spec_call {
    struct case_run *run;
    const struct muster_cluster_spec *spec;
    const json_t *call;
    const char *job; /* argument job_name */
    struct case_outcome *outcome;
};

static void call_as_dict(struct spec_call *call)
{
    call->outcome->value = case_cluster_dict(call->run, call->spec);
}

static void call_jobs(struct spec_call *call)
{
    call->outcome->value = json_array();
    for (size_t i = 0; i < call->spec->job_count; i++)
        json_array_append_new(call->outcome->value, json_string(call->spec->jobs[i]->name));
}

static void call_as_cluster_def(struct spec_call *call)
{
    call->outcome->value = case_cluster_def(call->spec);
}

static json_t *hex_of(const unsigned char *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    char *text = calloc(size + 1, 2);
    json_t *value;

    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    value = json_string(text);
    free(text);
    return value;
}

static unsigned nibble_of(char digit)
{
    const char *found = strchr("0123456789abcdef", digit);

    return found != NULL ? (unsigned)(found - "0123456789abcdef") & 15u : 0;
}

/* The same length and the same jobs in the same order: only the order inside protobuf's maps
 * differs, which has no meaning and which no serializer promises. */
static bool is_same_message(struct case_run *run, const struct muster_cluster_spec *spec,
                            const char *hex, size_t size)
{
    struct muster_cluster_spec *other = NULL;
    unsigned char *bytes;
    bool is_same = false;

    if (hex == NULL || strlen(hex) != 2 * size || strspn(hex, "0123456789abcdef") != 2 * size)
        return false;
    bytes = malloc(size + 1);
    if (bytes == NULL)
        return false;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(nibble_of(hex[2 * i]) << 4 | nibble_of(hex[2 * i + 1]));
    if (muster_cluster_spec_unpack(run->env->mem, bytes, size, &other, NULL) == MUSTER_OK) {
        json_t *own_def = case_cluster_def(spec);
        json_t *other_def = case_cluster_def(other);

        is_same = case_values_are_equal(own_def, other_def);
        json_decref(own_def);
        json_decref(other_def);
    }
    muster_cluster_spec_unref(other);
    free(bytes);
    return is_same;
}

static void call_serialized(struct spec_call *call)
{
    const json_t *expected = json_object_get(json_object_get(call->call, "expect"), "value");
    struct muster_mem *mem = call->run->env->mem;
    void *bytes = NULL;
    size_t size = 0;

    call->outcome->rc = muster_cluster_spec_pack(call->spec, mem, &bytes, &size);
    if (call->outcome->rc != MUSTER_OK)
        return;
    call->outcome->value = hex_of(bytes, size);
    if (!case_values_are_equal(call->outcome->value, expected) &&
        is_same_message(call->run, call->spec, case_text(expected), size)) {
        json_decref(call->outcome->value);
        call->outcome->value = json_deep_copy(expected);
    }
    muster_mem_free(mem, bytes);
}

static void call_is_true(struct spec_call *call)
{
    call->outcome->value = json_boolean(!muster_cluster_spec_is_empty(call->spec));
}

static void call_num_tasks(struct spec_call *call)
{
    size_t count = 0;

    call->outcome->rc =
        muster_cluster_spec_num_tasks(call->spec, call->job, &count, &call->outcome->error);
    if (call->outcome->rc == MUSTER_OK)
        call->outcome->value = json_integer((json_int_t)count);
}

static void call_task_indices(struct spec_call *call)
{
    struct muster_mem *mem = call->run->env->mem;
    int32_t *indices = NULL;
    size_t count = 0;

    call->outcome->rc = muster_cluster_spec_task_indices(call->spec, call->job, mem, &indices,
                                                         &count, &call->outcome->error);
    if (call->outcome->rc != MUSTER_OK)
        return;
    call->outcome->value = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(call->outcome->value, json_integer(indices[i]));
    muster_mem_free(mem, indices);
}

static void call_job_tasks(struct spec_call *call)
{
    struct muster_mem *mem = call->run->env->mem;
    const char **addresses = NULL;
    size_t count = 0;

    call->outcome->rc = muster_cluster_spec_job_tasks(call->spec, call->job, mem, &addresses,
                                                      &count, &call->outcome->error);
    if (call->outcome->rc != MUSTER_OK)
        return;
    call->outcome->value = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(call->outcome->value,
                              addresses[i] != NULL ? json_string(addresses[i]) : json_null());
    muster_mem_free(mem, addresses);
}

static void call_task_address(struct spec_call *call)
{
    const json_t *index = case_argument(call->call, "task_index");
    const char *address = NULL;

    call->outcome->rc = muster_cluster_spec_task_address(
        call->spec, call->job, json_integer_value(index), &address, &call->outcome->error);
    if (call->outcome->rc == MUSTER_OK)
        call->outcome->value = json_string(address);
}

static bool read_other(struct spec_call *call, struct muster_cluster_spec **ret_other)
{
    call->outcome->rc = case_read_cluster(call->run, case_argument(call->call, "other"), ret_other,
                                          &call->outcome->error);
    return call->outcome->rc == MUSTER_OK;
}

/* A value that is not a cluster equals no cluster, as in Python. */
static void call_equals(struct spec_call *call)
{
    struct muster_cluster_spec *other = NULL;

    if (read_other(call, &other))
        call->outcome->value = json_boolean(muster_cluster_spec_is_equal(call->spec, other));
    else
        call->outcome->value = json_false();
    call->outcome->rc = MUSTER_OK;
    muster_cluster_spec_unref(other);
}

static void call_merged_with(struct spec_call *call)
{
    struct muster_cluster_spec *other = NULL;
    struct muster_cluster_spec *merged = NULL;

    if (!read_other(call, &other))
        return;
    call->outcome->rc = muster_cluster_spec_merge(call->run->env->mem, call->spec, other, &merged);
    if (call->outcome->rc == MUSTER_OK)
        call->outcome->value = json_pack("{s:o, s:o}", "cluster_def", case_cluster_def(merged),
                                         "as_dict", case_cluster_dict(call->run, merged));
    muster_cluster_spec_unref(merged);
    muster_cluster_spec_unref(other);
}

static const struct {
    const char *name;
    void (*make)(struct spec_call *call);
} spec_calls[] = {
    {"as_dict", call_as_dict},
    {"jobs", call_jobs},
    {"as_cluster_def", call_as_cluster_def},
    {"serialized", call_serialized},
    {"is_true", call_is_true},
    {"num_tasks", call_num_tasks},
    {"task_indices", call_task_indices},
    {"job_tasks", call_job_tasks},
    {"task_address", call_task_address},
    {"equals", call_equals},
    {"merged_with", call_merged_with},
};

static void make_call(struct case_run *run, const struct muster_cluster_spec *spec,
                      const json_t *one)
{
    const char *name = case_text(json_object_get(one, "call"));
    struct case_outcome outcome = {0};
    struct spec_call call = {.run = run, .spec = spec, .call = one, .outcome = &outcome};

    call.job = case_text(case_argument(one, "job_name"));
    for (size_t i = 0; i < sizeof(spec_calls) / sizeof(spec_calls[0]); i++) {
        if (name != NULL && strcmp(spec_calls[i].name, name) == 0) {
            spec_calls[i].make(&call);
            case_judge(run, name, one, &outcome);
            return;
        }
    }
    case_fail(run, "call %s: not built", name != NULL ? name : "?");
}

void case_cluster_spec(struct case_run *run)
{
    struct muster_cluster_spec *spec = NULL;
    struct case_outcome outcome = {0};
    const json_t *calls = case_calls(run);

    outcome.rc = case_read_cluster(run, case_argument(run->one, "cluster"), &spec, &outcome.error);
    if (case_judge_construct(run, &outcome)) {
        for (size_t i = 0; i < json_array_size(calls) && !run->is_failed; i++)
            make_call(run, spec, json_array_get(calls, i));
    }
    muster_cluster_spec_unref(spec);
}
