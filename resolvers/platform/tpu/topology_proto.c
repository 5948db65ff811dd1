/* The wire form of a TPU topology: tensorflow.tpu.TopologyProto. */
#include <muster/tpu.h>

#include "proto/guard.h"
#include "proto/tpu_topology.pb-c.h"

enum muster_rc muster_tpu_topology_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                          struct muster_tpu_topology **ret_topology,
                                          struct muster_error *ret_error)
{
    static const struct muster_proto_limits limits = {.depth_max = 2}; /* and its feature */
    struct muster_tpu_topology_options options;
    Tensorflow__Tpu__TopologyProto *message = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &tensorflow__tpu__topology_proto__descriptor,
                                            bytes, size, &limits, &message, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    options = (struct muster_tpu_topology_options){
        .mesh_shape = message->mesh_shape,
        .mesh_rank = message->n_mesh_shape,
        .num_tasks = message->num_tasks,
        .num_tpu_devices_per_task = message->num_tpu_devices_per_task,
        .device_coordinates = message->device_coordinates,
        .device_coordinate_count = message->n_device_coordinates,
    };
    if (message->tpu_hardware_feature != NULL)
        options.embedding_feature =
            (enum muster_tpu_embedding_feature)message->tpu_hardware_feature->embedding_feature;
    rc = muster_tpu_topology_new(mem, &options, ret_topology, ret_error);
    muster_proto_free(message);
    return rc;
}

enum muster_rc muster_tpu_topology_pack(const struct muster_tpu_topology *topology,
                                        struct muster_mem *mem, void **ret_bytes, size_t *ret_size)
{
    Tensorflow__Tpu__TopologyProto message = TENSORFLOW__TPU__TOPOLOGY_PROTO__INIT;
    Tensorflow__Tpu__TPUHardwareFeature feature = TENSORFLOW__TPU__TPUHARDWARE_FEATURE__INIT;
    struct muster_tpu_coordinates mesh_shape = topology->mesh_shape;

    message.n_mesh_shape = MUSTER_TPU_MESH_RANK;
    message.mesh_shape = mesh_shape.at;
    message.num_tasks = (int32_t)topology->num_tasks;
    message.num_tpu_devices_per_task = (int32_t)topology->num_tpu_devices_per_task;
    message.n_device_coordinates =
        (size_t)topology->num_tasks * topology->num_tpu_devices_per_task * MUSTER_TPU_MESH_RANK;
    message.device_coordinates = (int32_t *)(uintptr_t)topology->devices;
    if (topology->embedding_feature != MUSTER_TPU_EMBEDDING_UNSUPPORTED) {
        feature.embedding_feature =
            (Tensorflow__Tpu__TPUHardwareFeature__EmbeddingFeature)topology->embedding_feature;
        message.tpu_hardware_feature = &feature;
    }
    return muster_proto_pack(mem, &message, ret_bytes, ret_size);
}
