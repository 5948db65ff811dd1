/* Resolvers of single platforms, with their options: GCE, Kubernetes, Slurm, SageMaker, and the union of several. */
#ifndef MUSTER_PLATFORMS_H
#define MUSTER_PLATFORMS_H

#include <muster/resolver.h>

MUSTER_BEGIN

/* The instances of a Compute Engine instance group as tasks (TensorFlow's GCEClusterResolver). */

/** Everything is borrowed during the call. */
struct muster_gce_resolver_options {
    struct muster_resolver_options common; /* task_type NULL: "worker", and it cannot be set later;
                                              has_task_id false: task 0; rpc_layer NULL: "grpc", "":
                                              none */
    bool has_no_task_id;                   /* of no task: master is "" unless one is asked for */
    const char *project;                   /* NULL: that of the metadata server */
    const char *zone;                      /* NULL: that of the metadata server */
    const char *instance_group;            /* required */
    uint16_t port;                         /* of every task; required */
    const char *api_endpoint;              /* base URL; NULL: https://compute.googleapis.com */
    const char *access_token;              /* NULL: Application Default Credentials */
    bool is_anonymous;                     /* no credentials at all */
};

/**
 * The running instances, by their internal addresses sorted as text (10.0.0.10 comes before
 * 10.0.0.2): one job. Listed anew at each question, instances side by side.
 *
 * Owns:    gives; borrows env (http, files, vars, host, rng) until closed.
 * Errors:  returned INVALID_ARGUMENT: no group or port, malformed credentials; NOT_FOUND and
 *          PERMISSION_DENIED: the file of the credentials. Questions: as the API answers
 *          (UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND …), UNAVAILABLE, INVALID_ARGUMENT.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_gce_resolver_open(
    struct muster_env *env, const struct muster_gce_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/* The pods of a Kubernetes cluster as tasks (TensorFlow's KubernetesClusterResolver). */

#define MUSTER_KUBERNETES_PORT     8470
#define MUSTER_KUBERNETES_SELECTOR "job-name=tensorflow"
#define MUSTER_KUBERNETES_PODS_MAX 100000 /* of one selector; more are RESOURCE_EXHAUSTED */

/** Where the API server is found. */
enum muster_kubernetes_location {
    MUSTER_KUBERNETES_AUTO, /* within the cluster where its variables are set, else off it */
    MUSTER_KUBERNETES_WITHIN_CLUSTER, /* KUBERNETES_SERVICE_HOST and the service account */
    MUSTER_KUBERNETES_OFF_CLUSTER,    /* a kubeconfig */
};

/** Which address of a pod is its task's. */
enum muster_kubernetes_address {
    MUSTER_KUBERNETES_HOST_IP, /* of its node, as TensorFlow does */
    MUSTER_KUBERNETES_POD_IP,
};

/** One job and the label selectors of its pods; pods of several stand one after the other. */
struct muster_kubernetes_job {
    const char *name;
    const char *const *selectors; /* "job-name=a", "app=t,role in (a,b)" */
    size_t selector_count;
};

/** Everything is borrowed during the call. All zero: TensorFlow's defaults. */
struct muster_kubernetes_resolver_options {
    struct muster_resolver_options common;    /* common.rpc_layer NULL: "grpc"; "": none */
    const struct muster_kubernetes_job *jobs; /* none: "worker" of MUSTER_KUBERNETES_SELECTOR */
    size_t job_count;
    uint16_t port; /* of every task; 0: MUSTER_KUBERNETES_PORT */
    enum muster_kubernetes_location location;
    enum muster_kubernetes_address address;
    const char *name_space; /* NULL: all namespaces, which needs the right to list them */
    const char *kubeconfig; /* path; NULL: KUBECONFIG, else ~/.kube/config */
    const char *context;    /* NULL: the current one */
    const char *api_server; /* base URL to use instead of any location */
    const char *token;      /* with api_server */
    const char *token_file; /* NULL: the service account's */
    const char *ca_file;    /* NULL: the service account's, or with api_server the system's */
};

/**
 * Pods by label selectors, sorted by name as text (pod-10 comes before pod-2), listed anew at each
 * question; each must be in phase Running. A watch follows the API server's own.
 *
 * Owns:    gives; borrows env (http, files, vars, rng) until closed.
 * Errors:  returned FAILED_PRECONDITION: not within a cluster; NOT_FOUND: no kubeconfig, or no such
 *          context; INVALID_ARGUMENT: malformed configuration; UNIMPLEMENTED: exec plug-ins, basic
 *          authentication. Questions: FAILED_PRECONDITION names the pod that is not Running;
 *          UNAUTHENTICATED, PERMISSION_DENIED and others as the API server answers; UNAVAILABLE.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_kubernetes_resolver_open(
    struct muster_env *env, const struct muster_kubernetes_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/* The cluster of a Slurm job step (TensorFlow's SlurmClusterResolver). */

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

/* The cluster of an Amazon SageMaker training job (TensorFlow's SageMakerClusterResolver). */

#define MUSTER_SAGEMAKER_PORT 2223

struct muster_sagemaker_resolver_options {
    struct muster_resolver_options common;
    uint16_t port; /* of every task; 0: MUSTER_SAGEMAKER_PORT */
};

/** The variables SM_HOSTS and SM_CURRENT_HOST, read anew at each question: one job, "worker", of
 * the hosts sorted by name. Gives. Questions: FAILED_PRECONDITION where one of them is not set. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_sagemaker_resolver_open(
    struct muster_env *env, const struct muster_sagemaker_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/* Several resolvers as one: their clusters joined (TensorFlow's UnionResolver). */

#define MUSTER_UNION_MEMBERS_MAX 64

struct muster_union_resolver_options {
    struct muster_resolver_options common; /* environment must be NULL: the first member's counts */
    struct muster_resolver **members;      /* the array is borrowed during the call */
    size_t member_count;
};

/**
 * Every cluster question goes to all members at once; their jobs are joined.
 *
 * The tasks of a job that several members have stand one after the other, in the order of the
 * members. If one member gives the job by index, all do, and an index given twice is an error. What
 * the union itself does not know (task, rpc_layer, master, accelerators) the first member answers.
 *
 * Owns:    takes the members, also on failure; they are closed with the union.
 * Errors:  INVALID_ARGUMENT (no member, a NULL member, an environment), RESOURCE_EXHAUSTED. A
 *          cluster question: ALREADY_EXISTS (an index given twice), and what a member answers.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_union_resolver_open(
    struct muster_env *env, const struct muster_union_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

MUSTER_END

#endif
