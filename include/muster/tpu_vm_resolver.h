/* The TPU VMs of a slice as tasks: Google's variables, or the metadata server (as JAX finds them). */
#ifndef MUSTER_TPU_VM_RESOLVER_H
#define MUSTER_TPU_VM_RESOLVER_H

#include <muster/resolver.h>

MUSTER_BEGIN

#define MUSTER_TPU_VM_PORT             8470
#define MUSTER_TPU_VM_COORDINATOR_PORT 8482 /* of several slices, as JAX has it */

/** Everything is borrowed during the call. */
struct muster_tpu_vm_resolver_options {
    struct muster_resolver_options common; /* task_type NULL: "worker"; rpc_layer NULL: "grpc",
                                              "": none */
    uint16_t port; /* of every worker; 0: 8470. Of several on one host the second has port + 1 */
    uint16_t coordinator_port; /* 0: 8482 */
};

/**
 * The workers of this slice, by TPU_PROCESS_ADDRESSES or TPU_WORKER_HOSTNAMES, else by the metadata
 * server, unless TPU_SKIP_MDS_QUERY is set. Of several slices (MEGASCALE_NUM_SLICES) the tasks of
 * this one are at their places among all; the addresses of the others are not known.
 *
 * MASTER is task 0 of the slice; of several slices the coordinator's host with the coordinator's
 * port, not the one of MEGASCALE_COORDINATOR_ADDRESS, which belongs to the TPU runtime.
 * muster_resolver_task_id and _world_size tell what the variables say, or else the last answer of
 * the metadata server: nothing before the first question.
 *
 * Owns:    gives; borrows env (http, vars, rng) until closed.
 * Errors:  returned RESOURCE_EXHAUSTED. Questions: FAILED_PRECONDITION (a variable is missing),
 *          INVALID_ARGUMENT (one is malformed), NOT_FOUND (no TPU VM), and those of the metadata
 *          server: UNAVAILABLE, DEADLINE_EXCEEDED.
 * Source:  JAX, cloud_tpu_cluster.py
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_vm_resolver_open(
    struct muster_env *env, const struct muster_tpu_vm_resolver_options *options,
    struct muster_resolver **ret_resolver, struct muster_error *ret_error);

MUSTER_END

#endif
