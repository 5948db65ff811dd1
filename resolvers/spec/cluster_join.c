/* The clusters of several resolvers as one (TensorFlow's UnionClusterResolver.cluster_spec). Jobs
 * stand in the order in which the members name them first. Lists of addresses follow each other;
 * but where a member gives a job by index, all members' indices of that job stay, and none may come
 * twice. */
#include "resolvers/spec/spec_internal.h"

struct cluster_join {
    struct muster_cluster_spec *const *specs;
    size_t spec_count;
    struct muster_cluster_spec_builder builder;
};

/* The address of the task in the first of the clusters before `end` that has it; NULL: none has. */
static const char *find_task(const struct cluster_join *join, size_t end, const char *name,
                             int32_t index)
{
    for (size_t i = 0; i < end; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(join->specs[i], name);
        const char *address = job != NULL ? muster_cluster_job_address(job, index) : NULL;

        if (address != NULL)
            return address;
    }
    return NULL;
}

/* Whether no member before `at` has the job: else it was joined with that member's jobs already. */
static bool is_first(const struct cluster_join *join, size_t at, const char *name)
{
    for (size_t i = 0; i < at; i++) {
        if (muster_cluster_spec_job(join->specs[i], name) != NULL)
            return false;
    }
    return true;
}

/* Whether a member gives the job by index: then all keep their indices. A job without tasks has no
 * form. */
static bool is_by_index(const struct cluster_join *join, const char *name)
{
    for (size_t i = 0; i < join->spec_count; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(join->specs[i], name);

        if (job != NULL && job->task_count > 0 && !muster_cluster_job_is_dense(job))
            return true;
    }
    return false;
}

static enum muster_rc add_by_index(struct cluster_join *join, const char *name,
                                   struct muster_error *ret_error)
{
    for (size_t i = 0; i < join->spec_count; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(join->specs[i], name);

        for (size_t k = 0; job != NULL && k < job->task_count; k++) {
            const struct muster_cluster_task *task = &job->tasks[k];
            const char *other = find_task(join, i, name, task->index);

            if (other != NULL)
                return muster_error_set(ret_error, MUSTER_ALREADY_EXISTS,
                                        "two members have task %d of job '%s': '%.60s' and "
                                        "'%.60s'; give each its own index",
                                        task->index, name, other, task->address);
            muster_cluster_spec_builder_add_task(&join->builder, task->index, task->address);
        }
    }
    return MUSTER_OK;
}

static void add_in_order(struct cluster_join *join, const char *name)
{
    int32_t index = 0;

    for (size_t i = 0; i < join->spec_count; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(join->specs[i], name);

        for (size_t k = 0; job != NULL && k < job->task_count; k++)
            muster_cluster_spec_builder_add_task(&join->builder, index++, job->tasks[k].address);
    }
}

static enum muster_rc add_jobs(struct cluster_join *join, size_t at, struct muster_error *ret_error)
{
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < join->specs[at]->job_count && rc == MUSTER_OK; i++) {
        const char *name = join->specs[at]->jobs[i]->name;

        if (!is_first(join, at, name))
            continue;
        muster_cluster_spec_builder_add_job(&join->builder, name);
        if (is_by_index(join, name))
            rc = add_by_index(join, name, ret_error);
        else
            add_in_order(join, name);
    }
    return rc;
}

enum muster_rc muster_cluster_spec_join(struct muster_mem *mem,
                                        struct muster_cluster_spec *const *specs, size_t spec_count,
                                        struct muster_cluster_spec **ret_spec,
                                        struct muster_error *ret_error)
{
    struct cluster_join join = {.specs = specs, .spec_count = spec_count};
    enum muster_rc rc = MUSTER_OK;

    muster_cluster_spec_builder_init(&join.builder, mem, false);
    for (size_t i = 0; i < spec_count && rc == MUSTER_OK; i++)
        rc = add_jobs(&join, i, ret_error);
    if (rc == MUSTER_OK && muster_cluster_spec_build(&join.builder, ret_spec) != MUSTER_OK)
        rc = muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory for a cluster");
    muster_cluster_spec_builder_fini(&join.builder);
    return rc;
}
