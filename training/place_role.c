/* The part of this process in its cluster: the rules of tf.distribute on what resolvers tell. */
#include "training/place_role.h"

#include <string.h>

/* TensorFlow 1's name of the chief; muster's resolvers, and older operators of Kubernetes, still tell it. */
static const char *rename_job(const char *job)
{
    return strcmp(job, "master") == 0 ? "chief" : job;
}

static bool is_aside(const char *job)
{
    return strcmp(job, "coordinator") == 0;
}

/* The place of an index among those of its job, which may have gaps. */
static int64_t position_of(const struct muster_cluster_spec *cluster, const char *job_name,
                           int64_t index)
{
    const struct muster_cluster_job *job = muster_cluster_spec_job(cluster, job_name);

    for (size_t i = 0; job != NULL && i < job->task_count; i++)
        if (job->tasks[i].index == index)
            return (int64_t)i;
    return index;
}

/* The cluster in the words of the rules, numbered without gaps. Two jobs that become one (chief and
 * master) are one with two tasks, which the rules refuse. */
static enum muster_rc adapt_cluster(struct muster_mem *mem,
                                    const struct muster_cluster_spec *cluster,
                                    struct muster_cluster_spec **ret_cluster)
{
    const struct muster_cluster_job *master = muster_cluster_spec_job(cluster, "master");
    struct muster_cluster_spec_builder builder;
    enum muster_rc rc;

    muster_cluster_spec_builder_init(&builder, mem, false);
    for (size_t i = 0; i < cluster->job_count; i++) {
        const struct muster_cluster_job *job = cluster->jobs[i];
        int32_t index = 0;

        if (is_aside(job->name) ||
            (job == master && muster_cluster_spec_job(cluster, "chief") != NULL))
            continue;
        muster_cluster_spec_builder_add_job(&builder, rename_job(job->name));
        for (size_t k = 0; k < job->task_count; k++)
            muster_cluster_spec_builder_add_task(&builder, index++, job->tasks[k].address);
        if (strcmp(job->name, "chief") != 0 || master == NULL)
            continue;
        for (size_t k = 0; k < master->task_count; k++)
            muster_cluster_spec_builder_add_task(&builder, index++, master->tasks[k].address);
    }
    rc = muster_cluster_spec_build(&builder, ret_cluster);
    muster_cluster_spec_builder_fini(&builder);
    return rc;
}

static void describe_tasks(struct muster_replica_place *place,
                           const struct muster_cluster_spec *cluster)
{
    const char *name;

    for (size_t i = 0; (name = muster_strategy_role_training_job(i)) != NULL; i++) {
        const struct muster_cluster_job *job = muster_cluster_spec_job(cluster, name);

        if (job == NULL || job->task_count == 0)
            continue;
        if (strcmp(name, "worker") != 0)
            place->chief_job = name;
        place->is_sparse = place->is_sparse || !muster_cluster_job_is_dense(job);
    }
}

enum muster_rc muster_replica_place_set_role(struct muster_replica_place *place,
                                             struct muster_mem *mem,
                                             const struct muster_strategy_role *role,
                                             struct muster_error *ret_error)
{
    struct muster_strategy_role adapted = {.task_type = rename_job(role->task_type)};
    struct muster_cluster_spec *cluster = NULL;
    uint32_t count = 0, id = 0;
    bool is_chief = false;
    enum muster_rc rc = adapt_cluster(mem, role->cluster, &cluster);

    if (rc != MUSTER_OK)
        return muster_error_set(ret_error, rc, "%s", muster_rc_text(rc));
    adapted.cluster = cluster;
    adapted.task_id = position_of(role->cluster, role->task_type, role->task_id);
    rc = muster_strategy_role_worker_count(&adapted, &count, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_role_id_in_cluster(&adapted, &id, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_strategy_role_is_chief(&adapted, &is_chief, ret_error);
    muster_cluster_spec_unref(cluster);
    if (rc != MUSTER_OK)
        return rc;
    describe_tasks(place, role->cluster);
    place->expected_count = count;
    place->id_in_cluster = id;
    place->is_chief = is_chief;
    place->is_alone = strcmp(role->task_type, "evaluator") == 0;
    return MUSTER_OK;
}
