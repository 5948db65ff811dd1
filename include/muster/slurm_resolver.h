/* The cluster of a Slurm job step (TensorFlow's SlurmClusterResolver). */
#ifndef MUSTER_SLURM_RESOLVER_H
#define MUSTER_SLURM_RESOLVER_H

#include <muster/resolver.h>

MUSTER_BEGIN

#define MUSTER_SLURM_PORT_BASE     8888
#define MUSTER_SLURM_HOSTS_MAX     65536
#define MUSTER_SLURM_NODE_GPUS_MAX 1024

/** How many of the step's tasks belong to a job of the cluster. */
struct muster_slurm_job {
    const char *name;
    uint32_t task_count;
};

/** How many tasks run on a node. */
struct muster_slurm_node {
    const char *host;
    uint32_t task_count;
};

/** Count the GPUs of this node, in place of the tool nvidia-smi. */
typedef enum muster_rc muster_slurm_count_gpus_fn(void *data, uint32_t *ret_count,
                                                  struct muster_error *ret_error);
/** devices: "2,3", for CUDA_VISIBLE_DEVICES of this process. */
typedef void muster_slurm_set_gpus_fn(void *data, const char *devices);

struct muster_slurm_resolver_options {
    struct muster_resolver_options common; /* rpc_layer NULL: "grpc"; "": none */
    const struct muster_slurm_job *jobs;   /* count 0: "worker" has SLURM_STEP_NUM_TASKS */
    size_t job_count;
    const struct muster_slurm_node *nodes; /* count 0: as SLURM_STEP_NODELIST says */
    size_t node_count;
    uint32_t tasks_per_node; /* on each of SLURM_STEP_NODELIST; 0: SLURM_STEP_TASKS_PER_NODE */
    uint16_t port_base;      /* of the first task of each node; 0: MUSTER_SLURM_PORT_BASE */
    bool has_gpus_per_node;  /* else they are found */
    bool has_gpus_per_task;  /* else gpus_per_node shared by the tasks of the fullest node */
    uint32_t gpus_per_node;
    uint32_t gpus_per_task;
    muster_slurm_count_gpus_fn *count_gpus; /* NULL: nvidia-smi, when no variable tells */
    muster_slurm_set_gpus_fn *set_gpus;     /* with each cluster; NULL: nothing is set */
    void *gpu_data;                         /* of both */
};

/**
 * The step's tasks, node by node sorted by name, cut into jobs sorted by name.
 *
 * This process is the task of its node and local id (SLURMD_NODENAME, SLURM_LOCALID) where both are
 * set, else the SLURM_PROCID-th; it is known, and replaces what was set, from the first cluster
 * question on. GPUs of a node: CUDA_VISIBLE_DEVICES, SLURM_STEP_GPUS, SLURM_JOB_GPUS,
 * SLURM_GPUS_ON_NODE, count_gpus or the tool nvidia-smi; no such tool is no GPU. The library never
 * changes the environment: set_gpus may.
 *
 * Owns:    gives; options are copied.
 * Errors:  FAILED_PRECONDITION names the variable that is missing; INVALID_ARGUMENT the one that is
 *          malformed, tasks that do not add up, more GPUs than a node has; RESOURCE_EXHAUSTED. A
 *          question: also UNAVAILABLE (the tool failed).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_slurm_resolver_open(
    struct muster_env *env, const struct muster_slurm_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/** "2,3": the GPUs that the last answer gives to this process, for CUDA_VISIBLE_DEVICES; NULL:
 * none, or nothing was asked, or another resolver. Borrowed until the next question. */
MUSTER_API const char *muster_slurm_resolver_visible_devices(
    const struct muster_resolver *resolver);

MUSTER_END

#endif
