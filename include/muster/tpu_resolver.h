/* The workers of a Cloud TPU as tasks (TensorFlow's TPUClusterResolver). */
#ifndef MUSTER_TPU_RESOLVER_H
#define MUSTER_TPU_RESOLVER_H

#include <muster/resolver.h>
#include <muster/tpu_client.h>

MUSTER_BEGIN

#define MUSTER_TPU_JOB "worker"

/** Starts a server for job `coordinator_name` in this process. *ret_port: where it listens. */
typedef enum muster_rc muster_tpu_start_server_fn(void *data, uint16_t *ret_port,
                                                  struct muster_error *ret_error);

/** Everything is borrowed during the call. All zero: as TensorFlow's TPUClusterResolver(). */
struct muster_tpu_resolver_options {
    struct muster_resolver_options
        common; /* task_type, here or set later, is the job of the workers,
                                              unless it names the coordinator; NULL: job_name;
                                              has_task_id false: task 0 */
    struct muster_tpu_client_options client;
    const char *job_name;            /* NULL: MUSTER_TPU_JOB; the contrib form calls it so too */
    const char *coordinator_name;    /* NULL: no such job */
    const char *coordinator_address; /* NULL: start_server, at this machine's address */
    muster_tpu_start_server_fn *start_server; /* called once, by the first question that needs it */
    void *start_server_data;
};

/**
 * The workers of a node that is READY, by the API, by grpc:// addresses, or by the environment.
 * "local" is the TPU of this machine: an empty cluster. Master URLs are always grpc://.
 *
 * NUM_ACCELERATORS is the number of TPU cores of each host: of common.list_devices, or of the
 * workers themselves (tensorflow.WorkerService.GetStatus).
 *
 * Owns:    gives; borrows env (http, net, files, vars, host, rng) until closed.
 * Errors:  returned as muster_tpu_client_open, and INVALID_ARGUMENT: a coordinator without address
 *          and without start_server. Questions: FAILED_PRECONDITION: not READY, hosts with
 *          different numbers of cores; UNAVAILABLE: no worker answers; those of a query.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_resolver_open(
    struct muster_env *env, const struct muster_tpu_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

/** Another resolver of the same options; the started server is shared. Gives. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_resolver_copy(
    struct muster_resolver *resolver, struct muster_resolver **ret_resolver,
    struct muster_error *ret_error);

/** Its client: state, health, version, waiting. Borrowed. */
MUSTER_API struct muster_tpu_client *muster_tpu_resolver_client(struct muster_resolver *resolver);
/** "worker", or what the task type was set to. Borrowed. */
MUSTER_API const char *muster_tpu_resolver_job_name(const struct muster_resolver *resolver);
/** "/job:worker/task:0", cut to bytes. Returns ret_text. */
MUSTER_API char *muster_tpu_resolver_leader(const struct muster_resolver *resolver, size_t bytes,
                                            char *ret_text);

MUSTER_END

#endif
