/* Cluster descriptions from JSON and to JSON, in the form of TF_CONFIG's "cluster": an object from
 * job to a list of addresses, or to an object from index to address. Resolvers of files, variables
 * and URIs all read it here. */
#include "resolvers/spec/spec_internal.h"

#include <ctype.h>
#include <stdio.h>

/* The texts that Python's int() takes, because TensorFlow reads indices and counts with it: blanks
 * at both ends, a sign, and '_' between digits. */
bool muster_integer_parse(const char *text, int64_t *ret_value)
{
    bool is_negative;
    bool is_digit_needed = true;
    uint64_t value = 0;

    while (isspace((unsigned char)*text))
        text++;
    is_negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    for (; isdigit((unsigned char)*text) || (*text == '_' && !is_digit_needed); text++) {
        is_digit_needed = *text == '_';
        if (is_digit_needed)
            continue;
        if (value > ((uint64_t)INT64_MAX - 9) / 10) /* the next digit could overflow */
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    while (isspace((unsigned char)*text))
        text++;
    if (is_digit_needed || *text != '\0')
        return false;
    *ret_value = is_negative ? -(int64_t)value : (int64_t)value;
    return true;
}

static enum muster_rc add_task(struct muster_cluster_spec_builder *builder, const char *what,
                               const char *job, int64_t index, const struct muster_json *address,
                               struct muster_error *ret_error)
{
    const char *text = muster_json_text(address);

    if (text == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: the address of task %lld of job '%s' must be text, got %s",
                                what, (long long)index, job, muster_json_kind_name(address));
    if (index < INT32_MIN || index > INT32_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: task index %lld of job '%s' is out of range", what,
                                (long long)index, job);
    muster_cluster_spec_builder_add_task(builder, (int32_t)index, text);
    return MUSTER_OK;
}

/* A job as an object from index to address: {"0": "a:1", "3": "b:1"}. */
static enum muster_rc add_sparse_job(struct muster_cluster_spec_builder *builder, const char *what,
                                     const char *job, const struct muster_json *tasks,
                                     struct muster_error *ret_error)
{
    struct muster_json_walk walk;
    enum muster_rc rc = MUSTER_OK;

    for (bool more = muster_json_walk_first(&walk, tasks); more && rc == MUSTER_OK;
         more = muster_json_walk_next(&walk)) {
        int64_t index;

        if (!muster_integer_parse(walk.name, &index))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "%s: '%s' is not a task index in job '%s'", what, walk.name,
                                    job);
        rc = add_task(builder, what, job, index, walk.value, ret_error);
    }
    return rc;
}

/* A job as a list of addresses, or as an object from index to address. */
static enum muster_rc add_job(struct muster_cluster_spec_builder *builder, const char *what,
                              const char *job, const struct muster_json *tasks,
                              struct muster_error *ret_error)
{
    enum muster_json_kind kind = muster_json_kind(tasks);
    enum muster_rc rc = MUSTER_OK;

    muster_cluster_spec_builder_add_job(builder, job);
    if (kind == MUSTER_JSON_OBJECT)
        return add_sparse_job(builder, what, job, tasks, ret_error);
    if (kind != MUSTER_JSON_ARRAY)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s: job '%s' must be a list of addresses or an object from index "
                                "to address, got %s",
                                what, job, muster_json_kind_name(tasks));
    for (size_t i = 0; i < muster_json_count(tasks) && rc == MUSTER_OK; i++)
        rc = add_task(builder, what, job, (int64_t)i, muster_json_at(tasks, i), ret_error);
    return rc;
}

enum muster_rc muster_cluster_spec_from_json(struct muster_mem *mem,
                                             const struct muster_json *value, const char *what,
                                             struct muster_cluster_spec **ret_spec,
                                             struct muster_error *ret_error)
{
    struct muster_cluster_spec_builder builder;
    struct muster_json_walk walk;
    enum muster_rc rc = MUSTER_OK;

    if (muster_json_kind(value) != MUSTER_JSON_OBJECT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be an object from job to addresses, got %s", what,
                                muster_json_kind_name(value));
    muster_cluster_spec_builder_init(&builder, mem, false);
    for (bool more = muster_json_walk_first(&walk, value); more && rc == MUSTER_OK;
         more = muster_json_walk_next(&walk))
        rc = add_job(&builder, what, walk.name, walk.value, ret_error);
    if (rc == MUSTER_OK) {
        rc = muster_cluster_spec_build(&builder, ret_spec);
        if (rc != MUSTER_OK)
            muster_error_set(ret_error, rc, "no memory for the cluster in %s", what);
    }
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

enum muster_rc muster_cluster_spec_parse(struct muster_mem *mem, const char *text, size_t size,
                                         struct muster_cluster_spec **ret_spec,
                                         struct muster_error *ret_error)
{
    struct muster_json *root = NULL;
    enum muster_rc rc;

    if (size > MUSTER_CLUSTER_SPEC_BYTES_MAX)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "a cluster text of %zu bytes is above the limit of %zu", size,
                                MUSTER_CLUSTER_SPEC_BYTES_MAX);
    rc = muster_json_parse(text, size, &root, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_cluster_spec_from_json(mem, root, "the cluster", ret_spec, ret_error);
    muster_json_free(root);
    return rc;
}

/* A job with gaps between its indices needs the longer form. */
static struct muster_json *job_to_json(const struct muster_cluster_job *job)
{
    bool is_dense = muster_cluster_job_is_dense(job);
    struct muster_json *tasks = is_dense ? muster_json_array_new() : muster_json_object_new();

    for (size_t i = 0; i < job->task_count; i++) {
        struct muster_json *address = muster_json_text_new(job->tasks[i].address);
        char index[16];
        bool is_added;

        snprintf(index, sizeof(index), "%d", job->tasks[i].index);
        is_added =
            is_dense ? muster_json_append(tasks, address) : muster_json_set(tasks, index, address);
        if (!is_added) {
            muster_json_free(tasks);
            return NULL;
        }
    }
    return tasks;
}

enum muster_rc muster_cluster_spec_format(const struct muster_cluster_spec *spec,
                                          struct muster_mem *mem, char **ret_text)
{
    struct muster_json *root = muster_json_object_new();
    enum muster_rc rc = MUSTER_RESOURCE_EXHAUSTED;

    for (size_t i = 0; i < spec->job_count; i++) {
        if (!muster_json_set(root, spec->jobs[i]->name, job_to_json(spec->jobs[i])))
            goto out;
    }
    rc = muster_json_format(root, false, mem, ret_text);
out:
    muster_json_free(root);
    return rc;
}
