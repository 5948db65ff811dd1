/* Questions to a cluster description. All are pure; texts in the answers belong to the description.
 * Errors name the job or the task, because a user's mistake in a cluster shows first here. */
#include <muster/cluster_spec.h>

#include <stdlib.h>
#include <string.h>

static bool jobs_are_equal(const struct muster_cluster_job *a, const struct muster_cluster_job *b)
{
    if (a->task_count != b->task_count || strcmp(a->name, b->name) != 0)
        return false;
    for (size_t i = 0; i < a->task_count; i++) {
        if (a->tasks[i].index != b->tasks[i].index ||
            strcmp(a->tasks[i].address, b->tasks[i].address) != 0)
            return false;
    }
    return true;
}

/* by_name is sorted, so the order in which jobs were added does not count. */
bool muster_cluster_spec_is_equal(const struct muster_cluster_spec *a,
                                  const struct muster_cluster_spec *b)
{
    if (a == b)
        return true;
    if (a->job_count != b->job_count)
        return false;
    for (size_t i = 0; i < a->job_count; i++) {
        if (!jobs_are_equal(a->by_name[i], b->by_name[i]))
            return false;
    }
    return true;
}

bool muster_cluster_spec_is_empty(const struct muster_cluster_spec *spec)
{
    return spec->job_count == 0;
}

static int compare_name_to_job(const void *key, const void *element)
{
    const struct muster_cluster_job *const *job = element;

    return strcmp(key, (*job)->name);
}

const struct muster_cluster_job *muster_cluster_spec_job(const struct muster_cluster_spec *spec,
                                                         const char *name)
{
    const struct muster_cluster_job **found;

    if (name == NULL || spec->job_count == 0)
        return NULL;
    found = bsearch(name, spec->by_name, spec->job_count, sizeof(spec->by_name[0]),
                    compare_name_to_job);
    return found != NULL ? *found : NULL;
}

/* Indices are distinct and sorted: a job that begins with 0 and ends with count - 1 has no gap. */
bool muster_cluster_job_is_dense(const struct muster_cluster_job *job)
{
    return job->task_count > 0 && job->tasks[0].index == 0 &&
           (size_t)job->tasks[job->task_count - 1].index == job->task_count - 1;
}

static int compare_index_to_task(const void *key, const void *element)
{
    const struct muster_cluster_task *task = element;
    const int64_t *index = key;

    return (*index > task->index) - (*index < task->index);
}

const char *muster_cluster_job_address(const struct muster_cluster_job *job, int64_t index)
{
    const struct muster_cluster_task *task;

    if (job->task_count == 0)
        return NULL;
    task =
        bsearch(&index, job->tasks, job->task_count, sizeof(job->tasks[0]), compare_index_to_task);
    return task != NULL ? task->address : NULL;
}

/* As muster_cluster_spec_job, with an error that names the job. */
static enum muster_rc find_job(const struct muster_cluster_spec *spec, const char *name,
                               const struct muster_cluster_job **ret_job,
                               struct muster_error *ret_error)
{
    const struct muster_cluster_job *job = muster_cluster_spec_job(spec, name);

    if (job == NULL && name == NULL)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND, "no job is named");
    if (job == NULL)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "the cluster has no job '%s'; name one of its jobs, or start it",
                                name);
    *ret_job = job;
    return MUSTER_OK;
}

enum muster_rc muster_cluster_spec_num_tasks(const struct muster_cluster_spec *spec,
                                             const char *job, size_t *ret_count,
                                             struct muster_error *ret_error)
{
    const struct muster_cluster_job *found = NULL;
    enum muster_rc rc = find_job(spec, job, &found, ret_error);

    if (rc == MUSTER_OK)
        *ret_count = found->task_count;
    return rc;
}

enum muster_rc muster_cluster_spec_task_indices(const struct muster_cluster_spec *spec,
                                                const char *job, struct muster_mem *mem,
                                                int32_t **ret_indices, size_t *ret_count,
                                                struct muster_error *ret_error)
{
    const struct muster_cluster_job *found = NULL;
    enum muster_rc rc = find_job(spec, job, &found, ret_error);
    int32_t *indices;

    if (rc != MUSTER_OK)
        return rc;
    indices = muster_mem_alloc(mem, found->task_count * sizeof(indices[0]));
    if (indices == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for %zu indices",
                                found->task_count);
    for (size_t i = 0; i < found->task_count; i++)
        indices[i] = found->tasks[i].index;
    *ret_indices = indices;
    *ret_count = found->task_count;
    return MUSTER_OK;
}

enum muster_rc muster_cluster_spec_job_tasks(const struct muster_cluster_spec *spec,
                                             const char *job, struct muster_mem *mem,
                                             const char ***ret_addresses, size_t *ret_count,
                                             struct muster_error *ret_error)
{
    const struct muster_cluster_job *found = NULL;
    enum muster_rc rc = find_job(spec, job, &found, ret_error);
    const char **addresses;
    size_t count = 0;

    if (rc != MUSTER_OK)
        return rc;
    /* One place per index up to the highest; tasks with negative indices have none. */
    if (found->task_count > 0 && found->tasks[found->task_count - 1].index >= 0)
        count = (size_t)found->tasks[found->task_count - 1].index + 1;
    addresses = muster_mem_alloc_zero(mem, count, sizeof(addresses[0]));
    if (addresses == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for the %zu places of job '%s'", count, job);
    for (size_t i = 0; i < found->task_count; i++) {
        if (found->tasks[i].index >= 0)
            addresses[found->tasks[i].index] = found->tasks[i].address;
    }
    *ret_addresses = addresses;
    *ret_count = count;
    return MUSTER_OK;
}

enum muster_rc muster_cluster_spec_task_address(const struct muster_cluster_spec *spec,
                                                const char *job, int64_t index,
                                                const char **ret_address,
                                                struct muster_error *ret_error)
{
    const struct muster_cluster_job *found = NULL;
    enum muster_rc rc = find_job(spec, job, &found, ret_error);
    const char *address;

    if (rc != MUSTER_OK)
        return rc;
    address = muster_cluster_job_address(found, index);
    if (address == NULL)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "job '%s' has no task %lld (it has %zu in all); name one that is "
                                "there, or start it",
                                job, (long long)index, found->task_count);
    *ret_address = address;
    return MUSTER_OK;
}
