/* Which TPU core computes which logical core of which replica: an immutable, counted value. */
#ifndef MUSTER_TPU_DEVICE_ASSIGNMENT_H
#define MUSTER_TPU_DEVICE_ASSIGNMENT_H

#include <muster/base.h>
#include <muster/mem.h>
#include <muster/status.h>
#include <muster/tpu_topology.h>

MUSTER_BEGIN

/** Read-only once made. */
struct muster_tpu_device_assignment {
    struct muster_tpu_topology *topology; /* shares */
    uint32_t num_replicas;
    uint32_t num_cores_per_replica;
    const struct muster_tpu_coordinates *cores; /* [replica][logical core] */
    /* private */
    struct muster_mem *mem;
    uint32_t ref_count;
};

/** How replicas follow each other in the mesh. */
enum muster_tpu_device_order {
    MUSTER_TPU_DEVICE_ORDER_AUTO, /* RING where it is possible, else MESH */
    MUSTER_TPU_DEVICE_ORDER_RING, /* neighbouring replicas sit next to each other */
    MUSTER_TPU_DEVICE_ORDER_MESH, /* core, x, y, z: the first varies fastest */
};

/** What a build asks for. A shape of all zeros stands for all ones. */
struct muster_tpu_device_assignment_options {
    struct muster_tpu_coordinates computation_shape; /* cores of one replica along each dimension */
    struct muster_tpu_coordinates computation_stride; /* their distance along each dimension */
    uint32_t num_replicas;                            /* 0: 1 */
    enum muster_tpu_device_order order;
};

/**
 * An assignment as given.
 *
 * Shape:   cores is [num_replicas][num_cores_per_replica].
 * Owns:    borrows cores during the call; shares topology; gives a reference.
 * Errors:  INVALID_ARGUMENT: no replica, no core, or a place without a device; RESOURCE_EXHAUSTED.
 * Source:  tf.tpu.experimental.DeviceAssignment
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_new(
    struct muster_mem *mem, struct muster_tpu_topology *topology,
    const struct muster_tpu_coordinates *cores, uint32_t num_replicas,
    uint32_t num_cores_per_replica, struct muster_tpu_device_assignment **ret_assignment,
    struct muster_error *ret_error);

/**
 * Lay num_replicas blocks of computation_shape cores into the mesh, as close to a cube as possible.
 *
 * A topology with missing devices is filled in task order; a stride is not possible there.
 * Owns:    shares topology; gives a reference.
 * Errors:  INVALID_ARGUMENT: a shape or stride below 1 or larger than the mesh, more replicas than
 *          fit, or an order that the mesh does not allow; RESOURCE_EXHAUSTED.
 * Source:  tf.tpu.experimental.DeviceAssignment.build
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_build(
    struct muster_mem *mem, struct muster_tpu_topology *topology,
    const struct muster_tpu_device_assignment_options *options,
    struct muster_tpu_device_assignment **ret_assignment, struct muster_error *ret_error);

/** Shares. */
MUSTER_API struct muster_tpu_device_assignment *muster_tpu_device_assignment_ref(
    struct muster_tpu_device_assignment *assignment);
/** NULL is accepted. */
MUSTER_API void muster_tpu_device_assignment_unref(struct muster_tpu_device_assignment *assignment);

/** Where a logical core of a replica sits. Borrowed; NULL when there is no such replica or core. */
MUSTER_API const struct muster_tpu_coordinates *muster_tpu_device_assignment_coordinates(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core);

/** Ordinal, within its task, of the TPU device that computes a logical core. Errors: OUT_OF_RANGE:
 * no such replica or core. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_tpu_ordinal(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core,
    uint32_t *ret_ordinal, struct muster_error *ret_error);

/** Name of the TPU device that computes a logical core, or of its host's CPU; see
 * muster_tpu_topology_device_name. Errors: OUT_OF_RANGE: no such replica or core, or no room. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_device_name(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core,
    enum muster_tpu_device_kind kind, const char *job, size_t name_bytes, char *ret_name,
    struct muster_error *ret_error);

/**
 * The replicas whose logical core is computed by a task, in rising order.
 *
 * Owns:    writes at most capacity numbers to ret_replicas; *ret_count is how many there are.
 * Errors:  NOT_FOUND: none; OUT_OF_RANGE: more than capacity (nothing is written but *ret_count).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_tpu_device_assignment_lookup_replicas(
    const struct muster_tpu_device_assignment *assignment, uint32_t task, uint32_t logical_core,
    size_t capacity, uint32_t *ret_replicas, size_t *ret_count, struct muster_error *ret_error);

MUSTER_END

#endif
