/* Texts that describe the slice of a TPU VM, from variables or the metadata server. Pure. */
#ifndef MUSTER_RESOLVERS_TPU_VM_TEXT_H
#define MUSTER_RESOLVERS_TPU_VM_TEXT_H

#include <muster/cluster_spec.h>
#include <muster/mem.h>
#include <muster/status.h>

#define MUSTER_TPU_VM_HOSTS_MAX  65536
#define MUSTER_TPU_VM_SLICES_MAX 65536

/** One text and where it comes from ("TPU_WORKER_ID"); value NULL or "": not told. Borrowed. */
struct muster_tpu_vm_text {
    const char *value;
    const char *source;
};

/** All texts. */
struct muster_tpu_vm_texts {
    struct muster_tpu_vm_text hosts; /* "a,b:8476": names or addresses, ports do not count */
    bool are_endpoints;              /* hosts are "x:y:ip,…" of worker-network-endpoints */
    struct muster_tpu_vm_text worker_id;
    struct muster_tpu_vm_text num_slices;
    struct muster_tpu_vm_text slice_id;
    struct muster_tpu_vm_text coordinator; /* "host:port" of several slices */
};

/** One slice, and its place among several. */
struct muster_tpu_vm {
    struct muster_mem *mem;
    char **addresses; /* "host:port" of this slice's workers; NULL: not told */
    size_t count;
    bool has_worker_id;
    uint32_t worker_id; /* within the slice */
    uint32_t num_slices;
    uint32_t slice_id;
    char *coordinator; /* host of the coordinator, IPv6 in brackets; NULL: not told */
};

/**
 * Read the texts of a slice. Workers listen on `port`; of several on one host the second has the
 * port after it.
 *
 * Owns:    gives what fini releases, on success.
 * Errors:  INVALID_ARGUMENT (malformed, or a number outside), FAILED_PRECONDITION (several slices,
 *          and not told which is ours), RESOURCE_EXHAUSTED; each names the source.
 * Source:  JAX, cloud_tpu_cluster.py
 */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_vm_init(struct muster_tpu_vm *vm,
                                                    struct muster_mem *mem,
                                                    const struct muster_tpu_vm_texts *texts,
                                                    uint16_t port, struct muster_error *ret_error);
/** All zero is accepted. */
void muster_tpu_vm_fini(struct muster_tpu_vm *vm);

/** The place among the tasks of all slices; false: not told. */
bool muster_tpu_vm_task_id(const struct muster_tpu_vm *vm, int64_t *ret_id);
/** The workers of this slice at their places among all. Gives a reference. Errors:
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_tpu_vm_cluster(const struct muster_tpu_vm *vm,
                                                       const char *job,
                                                       struct muster_cluster_spec **ret_spec,
                                                       struct muster_error *ret_error);

/** The value of `key` in the attribute tpu-env, lines of KEY: 'value'; cut to bytes. False: there
 * is none. */
bool muster_tpu_env_find(const char *tpu_env, const char *key, size_t bytes, char *ret_value);

#endif
