/* Rules of tf.distribute's clusters: tensorflow/python/distribute/multi_worker_util.py. */
#include <muster/strategy_role.h>

#include <string.h>

enum job {
    JOB_CHIEF,
    JOB_WORKER,
    JOB_PS,
    JOB_EVALUATOR,
    JOB_COUNT,
};

static const struct job_rule {
    const char *name;
    const char *first_task;
    bool is_single; /* a cluster has one such task at most */
} jobs[JOB_COUNT] = {
    [JOB_CHIEF] = {"chief", "/job:chief/replica:0/task:0", true},
    [JOB_WORKER] = {"worker", "/job:worker/replica:0/task:0", false},
    [JOB_PS] = {"ps", "/job:ps/replica:0/task:0", false},
    [JOB_EVALUATOR] = {"evaluator", "/job:evaluator/replica:0/task:0", true},
};

/* By rank, as muster_member_compare orders members. */
static const char *const training_jobs[] = {"chief", "master", "worker"};

const char *muster_strategy_role_training_job(size_t position)
{
    return position < sizeof(training_jobs) / sizeof(training_jobs[0]) ? training_jobs[position]
                                                                       : NULL;
}

/* JOB_COUNT: no job has this name. */
static enum job job_find(const char *name)
{
    unsigned i = 0;

    while (i < JOB_COUNT && strcmp(jobs[i].name, name) != 0)
        i++;
    return (enum job)i;
}

static bool cluster_has(const struct muster_cluster_spec *cluster, enum job job)
{
    return muster_cluster_spec_job(cluster, jobs[job].name) != NULL;
}

static size_t count_tasks(const struct muster_cluster_spec *cluster, enum job job)
{
    const struct muster_cluster_job *found = muster_cluster_spec_job(cluster, jobs[job].name);

    return found != NULL ? found->task_count : 0;
}

static enum muster_rc check_cluster(const struct muster_cluster_spec *cluster,
                                    struct muster_error *ret_error)
{
    for (size_t i = 0; i < cluster->job_count; i++) {
        const struct muster_cluster_job *job = cluster->jobs[i];
        enum job known = job_find(job->name);

        if (known == JOB_COUNT)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the jobs of a cluster must be chief, worker, ps or evaluator, "
                                    "got '%.80s'; rename it",
                                    job->name);
        if (jobs[known].is_single && job->task_count > 1)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "the job '%s' must have one task, got %zu; remove the others",
                                    job->name, job->task_count);
    }
    return MUSTER_OK;
}

/* An evaluator need not be listed: it takes no part in the cluster's work. The id is compared with the
 * number of tasks, as TensorFlow does, so numbers with gaps are refused. */
static enum muster_rc check_task(const struct muster_strategy_role *role, int64_t task_id,
                                 struct muster_error *ret_error)
{
    enum muster_rc rc = check_cluster(role->cluster, ret_error);
    enum job job;

    if (rc != MUSTER_OK || role->task_type == NULL)
        return rc;
    job = job_find(role->task_type);
    if (job == JOB_COUNT)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the task type must be chief, worker, ps or evaluator, got '%.80s'",
                                role->task_type);
    if (!cluster_has(role->cluster, job) && job == JOB_EVALUATOR)
        return MUSTER_OK;
    if (!cluster_has(role->cluster, job))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the task is %s:%lld, but the cluster has no job '%s'",
                                role->task_type, (long long)task_id, role->task_type);
    if (task_id < 0 || (uint64_t)task_id >= count_tasks(role->cluster, job))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the task is %s:%lld, but the job has %zu tasks, counted from 0",
                                role->task_type, (long long)task_id,
                                count_tasks(role->cluster, job));
    return MUSTER_OK;
}

/* As check_task, and the task is one that trains. */
static enum muster_rc check_training(const struct muster_strategy_role *role, int64_t task_id,
                                     enum job *ret_job, struct muster_error *ret_error)
{
    enum muster_rc rc = check_task(role, task_id, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    if (role->task_type == NULL)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the task type is not known; name it: chief, worker or evaluator");
    *ret_job = job_find(role->task_type);
    if (*ret_job != JOB_PS)
        return MUSTER_OK;
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "a ps task does not train: open strategies in chief, worker and "
                            "evaluator tasks");
}

enum muster_rc muster_strategy_role_is_chief(const struct muster_strategy_role *role,
                                             bool *ret_is_chief, struct muster_error *ret_error)
{
    enum muster_rc rc = check_task(role, role->task_id, ret_error);
    enum job job;

    if (rc != MUSTER_OK)
        return rc;
    job = role->task_type != NULL ? job_find(role->task_type) : JOB_COUNT;
    *ret_is_chief =
        job == JOB_CHIEF || job == JOB_EVALUATOR ||
        (job == JOB_WORKER && role->task_id == 0 && !cluster_has(role->cluster, JOB_CHIEF));
    return MUSTER_OK;
}

enum muster_rc muster_strategy_role_worker_count(const struct muster_strategy_role *role,
                                                 uint32_t *ret_count,
                                                 struct muster_error *ret_error)
{
    enum job job;
    enum muster_rc rc = check_training(role, 0, &job, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    *ret_count = job == JOB_EVALUATOR ? 1
                                      : (uint32_t)(count_tasks(role->cluster, JOB_CHIEF) +
                                                   count_tasks(role->cluster, JOB_WORKER));
    return MUSTER_OK;
}

enum muster_rc muster_strategy_role_id_in_cluster(const struct muster_strategy_role *role,
                                                  uint32_t *ret_id, struct muster_error *ret_error)
{
    enum job job;
    enum muster_rc rc = check_training(role, role->task_id, &job, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    *ret_id = (uint32_t)role->task_id;
    if (job == JOB_WORKER)
        *ret_id += (uint32_t)count_tasks(role->cluster, JOB_CHIEF);
    return MUSTER_OK;
}

enum muster_rc muster_strategy_role_collective_leader(const struct muster_strategy_role *role,
                                                      const char **ret_leader,
                                                      struct muster_error *ret_error)
{
    enum muster_rc rc;

    if (muster_cluster_spec_is_empty(
            role->cluster)) { /* local: nobody to lead, whatever the task */
        *ret_leader = "";
        return MUSTER_OK;
    }
    rc = check_task(role, role->task_id, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (role->task_type != NULL && job_find(role->task_type) == JOB_EVALUATOR)
        *ret_leader = "";
    else if (cluster_has(role->cluster, JOB_CHIEF))
        *ret_leader = jobs[JOB_CHIEF].first_task;
    else if (cluster_has(role->cluster, JOB_WORKER))
        *ret_leader = jobs[JOB_WORKER].first_task;
    else
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "the cluster has neither a chief nor workers");
    return MUSTER_OK;
}

enum muster_rc muster_strategy_role_coordination_leader(const struct muster_strategy_role *role,
                                                        const char **ret_leader,
                                                        struct muster_error *ret_error)
{
    static const enum job order[] = {JOB_PS, JOB_CHIEF, JOB_WORKER};

    if (muster_cluster_spec_is_empty(role->cluster)) {
        *ret_leader = "";
        return MUSTER_OK;
    }
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        if (!cluster_has(role->cluster, order[i]))
            continue;
        *ret_leader = jobs[order[i]].first_task;
        return MUSTER_OK;
    }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "the cluster has neither ps nor chief nor workers");
}
