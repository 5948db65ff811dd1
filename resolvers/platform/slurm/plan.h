/* Tasks of a Slurm step placed on nodes, jobs and GPUs: a cluster and the own task. Pure. */
#ifndef MUSTER_RESOLVERS_SLURM_PLAN_H
#define MUSTER_RESOLVERS_SLURM_PLAN_H

#include <muster/cluster_spec.h>
#include <muster/platforms.h>

/** Facts of the step. All is borrowed. */
struct muster_slurm_step {
    const struct muster_slurm_node *nodes; /* in any order, each host once */
    size_t node_count;
    const struct muster_slurm_job *jobs; /* in any order, each name once */
    size_t job_count;
    uint16_t port_base;
    uint32_t gpus_per_node;
    bool has_gpus_per_task;
    uint32_t gpus_per_task;
    int64_t rank;          /* SLURM_PROCID */
    const char *node_name; /* of this process; NULL: told by the rank alone */
    int64_t local_id;      /* of this process on its node; below 0: told by the rank alone */
};

struct muster_slurm_plan {
    struct muster_cluster_spec *cluster_spec; /* gives a reference */
    const char *task_type;                    /* of this process; belongs to cluster_spec */
    int64_t task_id;
    uint32_t gpus_per_task;
    char *gpus; /* of this process: "2,3"; NULL: none; gives */
};

/** Errors: INVALID_ARGUMENT (tasks do not add up, more GPUs than a node has, ports above 65535, a
 * rank outside), RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_plan_init(struct muster_slurm_plan *plan,
                                                        struct muster_mem *mem,
                                                        const struct muster_slurm_step *step,
                                                        struct muster_error *ret_error);
/** The checks alone. */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_step_check(const struct muster_slurm_step *step,
                                                         struct muster_error *ret_error);
/** The tasks of all nodes. */
uint64_t muster_slurm_step_task_count(const struct muster_slurm_step *step);
void muster_slurm_plan_fini(struct muster_slurm_plan *plan, struct muster_mem *mem);

#endif
