/* Which TPU device of which task sits where in the mesh: an immutable, counted value. */
#ifndef MUSTER_TPU_TOPOLOGY_H
#define MUSTER_TPU_TOPOLOGY_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>

MUSTER_BEGIN

#define MUSTER_TPU_MESH_RANK     4 /* x, y, z, core */
#define MUSTER_TPU_MESH_SIZE_MAX (UINT32_C(1) << 22)
/* Room for any device name of a job whose name has at most 255 bytes, with its NUL. */
#define MUSTER_TPU_DEVICE_NAME_BYTES 320

/** tensorflow.tpu.TPUHardwareFeature.EmbeddingFeature. */
enum muster_tpu_embedding_feature {
    MUSTER_TPU_EMBEDDING_UNSUPPORTED = 0,
    MUSTER_TPU_EMBEDDING_V1 = 1,
    MUSTER_TPU_EMBEDDING_V2 = 2,
};

/** Position in the mesh, or a shape or stride of it. */
struct muster_tpu_coordinates {
    int32_t at[MUSTER_TPU_MESH_RANK]; /* x, y, z, core */
};

/** What a topology is made of. */
struct muster_tpu_topology_options {
    const int32_t *mesh_shape; /* of mesh_rank elements; borrowed during the call */
    size_t mesh_rank;
    int32_t num_tasks;
    int32_t num_tpu_devices_per_task;
    const int32_t *device_coordinates; /* [task][device][dimension]; borrowed during the call */
    size_t device_coordinate_count;    /* num_tasks * num_tpu_devices_per_task * mesh_rank */
    enum muster_tpu_embedding_feature embedding_feature;
};

/** Read-only once made. */
struct muster_tpu_topology {
    struct muster_tpu_coordinates mesh_shape;
    uint32_t num_tasks;
    uint32_t num_tpu_devices_per_task;
    enum muster_tpu_embedding_feature embedding_feature;
    const struct muster_tpu_coordinates *devices; /* [task][device] */
    uint32_t missing_device_count;                /* mesh positions that hold no device */
    /* private */
    struct muster_mem *mem;
    uint32_t ref_count;
    uint32_t *device_at; /* mesh position -> index into devices, or UINT32_MAX */
};

/**
 * A topology of plain numbers.
 *
 * Shape:   device_coordinates is [num_tasks][num_tpu_devices_per_task][mesh_rank], row-major.
 * Owns:    gives a reference.
 * Errors:  INVALID_ARGUMENT: the rank is not 4, a mesh dimension is below 1, a count is negative,
 * the number of coordinates does not fit, a device lies outside the mesh, or two share a place;
 *          RESOURCE_EXHAUSTED: a mesh above MUSTER_TPU_MESH_SIZE_MAX positions, or no memory.
 * Source:  tf.tpu.experimental.Topology
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_new(
    struct muster_mem *mem, const struct muster_tpu_topology_options *options,
    struct muster_tpu_topology **ret_topology, struct muster_error *ret_error);
/** Shares. */
MUSTER_API struct muster_tpu_topology *muster_tpu_topology_ref(
    struct muster_tpu_topology *topology);
/** NULL is accepted. */
MUSTER_API void muster_tpu_topology_unref(struct muster_tpu_topology *topology);

/** A serialized tensorflow.tpu.TopologyProto. Gives a reference. Errors: as
 * muster_tpu_topology_new; INVALID_ARGUMENT: malformed bytes. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_unpack(
    struct muster_mem *mem, const void *bytes, size_t size,
    struct muster_tpu_topology **ret_topology, struct muster_error *ret_error);
/** The wire form. Gives *ret_bytes, from mem. Errors: RESOURCE_EXHAUSTED. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_pack(
    const struct muster_tpu_topology *topology, struct muster_mem *mem, void **ret_bytes,
    size_t *ret_size);

/** Where a device sits. Borrowed; NULL when there is no such task or device. */
MUSTER_API const struct muster_tpu_coordinates *muster_tpu_topology_device(
    const struct muster_tpu_topology *topology, uint32_t task, uint32_t device);
/** The task, and the ordinal within it, of the device at a place; each output may be NULL. Errors:
 * INVALID_ARGUMENT: outside the mesh; NOT_FOUND: no device sits there. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_find(
    const struct muster_tpu_topology *topology, const struct muster_tpu_coordinates *at,
    uint32_t *ret_task, uint32_t *ret_device, struct muster_error *ret_error);

enum muster_tpu_device_kind {
    MUSTER_TPU_DEVICE_CPU, /* of the host that the TPU device belongs to */
    MUSTER_TPU_DEVICE_TPU,
};
/**
 * The name of the device at a place: "/job:J/task:T/device:TPU:D" or "/job:J/task:T/device:CPU:0",
 * without the job part when job is NULL.
 *
 * Owns:    borrows job; writes at most name_bytes to ret_name.
 * Errors:  as muster_tpu_topology_find; OUT_OF_RANGE: the name does not fit.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_topology_device_name(
    const struct muster_tpu_topology *topology, const struct muster_tpu_coordinates *at,
    enum muster_tpu_device_kind kind, const char *job, size_t name_bytes, char *ret_name,
    struct muster_error *ret_error);

MUSTER_END

#endif
