/* The TPU mesh as a value (TensorFlow's tpu.topology.Topology): devices by task, and the way back
 * from a place to its device. One block of memory holds both tables. Input comes off the wire, so
 * every count and coordinate is checked before memory or an index is taken from it. */
#include <muster/tpu.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NO_DEVICE UINT32_MAX /* all bits set: memset fills the table with it */

static enum muster_rc check_mesh(const struct muster_tpu_topology_options *options,
                                 uint32_t *ret_mesh_size, struct muster_error *ret_error)
{
    uint64_t size = 1;

    if (options->mesh_rank != MUSTER_TPU_MESH_RANK)
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "mesh_shape of a TPU topology must have 4 elements (x, y, z, core), not %zu",
            options->mesh_rank);
    for (size_t i = 0; i < MUSTER_TPU_MESH_RANK; i++) {
        if (options->mesh_shape[i] < 1)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "mesh_shape[%zu] of a TPU topology is %" PRId32
                                    "; every dimension must be at least 1",
                                    i, options->mesh_shape[i]);
        size *= (uint64_t)options->mesh_shape[i];
        if (size > MUSTER_TPU_MESH_SIZE_MAX)
            return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                    "a TPU mesh of more than %" PRIu32 " positions is refused",
                                    MUSTER_TPU_MESH_SIZE_MAX);
    }
    *ret_mesh_size = (uint32_t)size;
    return MUSTER_OK;
}

/* The product is 64 bits wide: counts of a message may be hostile, and memory is taken by them. */
static enum muster_rc check_counts(const struct muster_tpu_topology_options *options,
                                   uint32_t mesh_size, struct muster_error *ret_error)
{
    uint64_t device_count;

    if (options->num_tasks < 0 || options->num_tpu_devices_per_task < 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a TPU topology of %" PRId32 " tasks with %" PRId32
                                " devices each: counts must not be negative",
                                options->num_tasks, options->num_tpu_devices_per_task);
    device_count = (uint64_t)options->num_tasks * (uint64_t)options->num_tpu_devices_per_task;
    if (options->device_coordinate_count != device_count * MUSTER_TPU_MESH_RANK)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a TPU topology of %" PRId32 " tasks with %" PRId32
                                " devices each needs %" PRIu64 " device coordinates, not %zu",
                                options->num_tasks, options->num_tpu_devices_per_task,
                                device_count * MUSTER_TPU_MESH_RANK,
                                options->device_coordinate_count);
    if (device_count > mesh_size)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a TPU mesh of %" PRIu32 " positions cannot hold %" PRIu64
                                " devices",
                                mesh_size, device_count);
    return MUSTER_OK;
}

/* False: outside the mesh. */
static bool position_of(const struct muster_tpu_topology *topology,
                        const struct muster_tpu_coordinates *at, uint32_t *ret_position)
{
    uint32_t position = 0;

    for (size_t i = 0; i < MUSTER_TPU_MESH_RANK; i++) {
        if (at->at[i] < 0 || at->at[i] >= topology->mesh_shape.at[i])
            return false;
        position = position * (uint32_t)topology->mesh_shape.at[i] + (uint32_t)at->at[i];
    }
    *ret_position = position;
    return true;
}

/* Enter every device at its place in the mesh. */
static enum muster_rc place_devices(struct muster_tpu_topology *topology,
                                    struct muster_error *ret_error)
{
    uint32_t device_count = topology->num_tasks * topology->num_tpu_devices_per_task;

    for (uint32_t i = 0; i < device_count; i++) {
        const int32_t *at = topology->devices[i].at;
        uint32_t task = i / topology->num_tpu_devices_per_task;
        uint32_t device = i % topology->num_tpu_devices_per_task;
        uint32_t position;

        if (!position_of(topology, &topology->devices[i], &position))
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "TPU device %" PRIu32 " of task %" PRIu32 " lies at (%" PRId32
                                    ", %" PRId32 ", %" PRId32 ", %" PRId32 "), outside the mesh",
                                    device, task, at[0], at[1], at[2], at[3]);
        if (topology->device_at[position] != NO_DEVICE)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "TPU device %" PRIu32 " of task %" PRIu32 " lies at (%" PRId32
                                    ", %" PRId32 ", %" PRId32 ", %" PRId32
                                    "), where another one is",
                                    device, task, at[0], at[1], at[2], at[3]);
        topology->device_at[position] = i;
    }
    return MUSTER_OK;
}

enum muster_rc muster_tpu_topology_new(struct muster_mem *mem,
                                       const struct muster_tpu_topology_options *options,
                                       struct muster_tpu_topology **ret_topology,
                                       struct muster_error *ret_error)
{
    static const struct muster_tpu_topology_options none = {0};

    if (options == NULL)
        options = &none;
    struct muster_tpu_topology *topology;
    struct muster_tpu_coordinates *devices;
    uint32_t mesh_size = 0, device_count;
    enum muster_rc rc = check_mesh(options, &mesh_size, ret_error);

    if (rc == MUSTER_OK)
        rc = check_counts(options, mesh_size, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    device_count = (uint32_t)options->num_tasks * (uint32_t)options->num_tpu_devices_per_task;
    topology = muster_mem_alloc_zero(mem, 1,
                                     sizeof(*topology) + device_count * sizeof(*devices) +
                                         mesh_size * sizeof(topology->device_at[0]));
    if (topology == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for a TPU mesh of %" PRIu32 " positions", mesh_size);
    devices = (struct muster_tpu_coordinates *)(void *)(topology + 1);
    topology->mem = mem;
    topology->ref_count = 1;
    topology->num_tasks = (uint32_t)options->num_tasks;
    topology->num_tpu_devices_per_task = (uint32_t)options->num_tpu_devices_per_task;
    topology->embedding_feature = options->embedding_feature;
    topology->missing_device_count = mesh_size - device_count;
    memcpy(topology->mesh_shape.at, options->mesh_shape, sizeof(topology->mesh_shape.at));
    if (device_count > 0)
        memcpy(devices, options->device_coordinates, device_count * sizeof(*devices));
    topology->devices = devices;
    topology->device_at = (uint32_t *)(void *)(devices + device_count);
    memset(topology->device_at, 0xff, mesh_size * sizeof(topology->device_at[0]));
    rc = place_devices(topology, ret_error);
    if (rc != MUSTER_OK) {
        muster_tpu_topology_unref(topology);
        return rc;
    }
    *ret_topology = topology;
    return MUSTER_OK;
}

struct muster_tpu_topology *muster_tpu_topology_ref(struct muster_tpu_topology *topology)
{
    MUSTER_ASSERT(topology->ref_count > 0);
    topology->ref_count++;
    return topology;
}

void muster_tpu_topology_unref(struct muster_tpu_topology *topology)
{
    if (topology == NULL)
        return;
    MUSTER_ASSERT(topology->ref_count > 0);
    if (--topology->ref_count == 0)
        muster_mem_free(topology->mem, topology);
}

const struct muster_tpu_coordinates *muster_tpu_topology_device(
    const struct muster_tpu_topology *topology, uint32_t task, uint32_t device)
{
    if (task >= topology->num_tasks || device >= topology->num_tpu_devices_per_task)
        return NULL;
    return &topology->devices[task * topology->num_tpu_devices_per_task + device];
}

enum muster_rc muster_tpu_topology_find(const struct muster_tpu_topology *topology,
                                        const struct muster_tpu_coordinates *at, uint32_t *ret_task,
                                        uint32_t *ret_device, struct muster_error *ret_error)
{
    uint32_t position, index;

    if (!position_of(topology, at, &position))
        return muster_error_set(
            ret_error, MUSTER_INVALID_ARGUMENT,
            "(%" PRId32 ", %" PRId32 ", %" PRId32 ", %" PRId32
            ") lies outside the TPU mesh of %" PRId32 "x%" PRId32 "x%" PRId32 "x%" PRId32,
            at->at[0], at->at[1], at->at[2], at->at[3], topology->mesh_shape.at[0],
            topology->mesh_shape.at[1], topology->mesh_shape.at[2], topology->mesh_shape.at[3]);
    index = topology->device_at[position];
    if (index == NO_DEVICE)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "no TPU device sits at (%" PRId32 ", %" PRId32 ", %" PRId32
                                ", %" PRId32 ")",
                                at->at[0], at->at[1], at->at[2], at->at[3]);
    if (ret_task != NULL)
        *ret_task = index / topology->num_tpu_devices_per_task;
    if (ret_device != NULL)
        *ret_device = index % topology->num_tpu_devices_per_task;
    return MUSTER_OK;
}

enum muster_rc muster_tpu_topology_device_name(const struct muster_tpu_topology *topology,
                                               const struct muster_tpu_coordinates *at,
                                               enum muster_tpu_device_kind kind, const char *job,
                                               size_t name_bytes, char *ret_name,
                                               struct muster_error *ret_error)
{
    char device_name[MUSTER_TPU_DEVICE_NAME_BYTES];
    uint32_t task, device;
    int length;
    enum muster_rc rc = muster_tpu_topology_find(topology, at, &task, &device, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    length = snprintf(device_name, sizeof(device_name), "%s%s/task:%" PRIu32 "/device:%s:%" PRIu32,
                      job != NULL ? "/job:" : "", job != NULL ? job : "", task,
                      kind == MUSTER_TPU_DEVICE_TPU ? "TPU" : "CPU",
                      kind == MUSTER_TPU_DEVICE_TPU ? device : 0);
    if (length < 0 || (size_t)length >= sizeof(device_name) || (size_t)length >= name_bytes)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "the device name of task %" PRIu32 " does not fit into %zu bytes",
                                task, name_bytes);
    memcpy(ret_name, device_name, (size_t)length + 1);
    return MUSTER_OK;
}
