/* The TPU cores that a cluster's devices show: how many, on how many hosts. */
#ifndef MUSTER_TPU_SYSTEM_H
#define MUSTER_TPU_SYSTEM_H

#include <muster/base.h>
#include <muster/cluster_spec.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

/** TensorFlow's TPUSystemMetadata. */
struct muster_tpu_system {
    uint32_t num_cores;
    uint32_t num_hosts;
    uint32_t num_of_cores_per_host;
    /** Sorted by job, replica, task, kind and index; texts and array are owned. */
    char **devices;
    size_t device_count;
    /* private */
    struct muster_mem *mem;
};

/**
 * Count device names ("/job:worker/replica:0/task:1/device:TPU:0").
 *
 * Owns:    copies names; *ret_system is to be given to muster_tpu_system_fini.
 * Errors:  FAILED_PRECONDITION names two hosts with different numbers of cores; RESOURCE_EXHAUSTED.
 * Source:  tensorflow/python/tpu/tpu_system_metadata.py
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_system_init(
    struct muster_tpu_system *ret_system, struct muster_mem *mem, const char *const *names,
    size_t count, struct muster_error *ret_error);
/** All zero is accepted. */
MUSTER_API void muster_tpu_system_fini(struct muster_tpu_system *system);

/**
 * The job whose tasks hold the TPU: of a local master ("", "local") none, NULL; without a cluster
 * "tpu_worker"; else the only job, or the one beside "coordinator".
 *
 * Owns:    *ret_job is static, or borrowed from spec, which may be NULL.
 * Errors:  INVALID_ARGUMENT: a job is called tpu_worker, which is reserved; no single job is left.
 * Source:  tensorflow/python/tpu/tpu_system_metadata.py, master_job
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_system_master_job(
    const char *master, const struct muster_cluster_spec *spec, const char **ret_job,
    struct muster_error *ret_error);

MUSTER_END

#endif
