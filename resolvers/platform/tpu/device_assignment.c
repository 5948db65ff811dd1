/* TPU cores for the logical cores of replicas: as given, or laid out in the mesh (TensorFlow's
 * tpu.device_assignment). Orders and tie-breaks are TensorFlow's: a model that was laid out there
 * finds the same cores here. */
#include <muster/tpu.h>

#include "resolvers/platform/tpu/ring.h"

#include <inttypes.h>
#include <string.h>

#define RANK MUSTER_TPU_MESH_RANK
#define CORE (MUSTER_TPU_MESH_RANK - 1) /* the dimension of the cores of one chip */

/* One build: what was asked for, checked, and what follows from it. */
struct device_layout {
    const struct muster_tpu_topology *topology;
    struct muster_tpu_coordinates shape;  /* cores of a replica */
    struct muster_tpu_coordinates stride; /* between them */
    struct muster_tpu_coordinates room;   /* replicas that fit along each dimension */
    struct muster_tpu_coordinates blocks; /* replicas used along each dimension */
    uint32_t num_replicas;
    uint32_t num_cores; /* per replica */
    struct muster_tpu_coordinates *cores;
};

static uint64_t count_cells(const struct muster_tpu_coordinates *shape)
{
    uint64_t result = 1;

    for (size_t i = 0; i < RANK; i++)
        result *= (uint64_t)shape->at[i];
    return result;
}

/* An assignment whose cores are still to be filled in. */
static enum muster_rc assignment_alloc(struct muster_mem *mem, struct muster_tpu_topology *topology,
                                       uint32_t num_replicas, uint32_t num_cores,
                                       struct muster_tpu_device_assignment **ret_assignment,
                                       struct muster_tpu_coordinates **ret_cores,
                                       struct muster_error *ret_error)
{
    size_t count = (size_t)num_replicas * num_cores;
    struct muster_tpu_device_assignment *assignment = NULL;

    if (count <= SIZE_MAX / sizeof(**ret_cores) - 1)
        assignment =
            muster_mem_alloc_zero(mem, 1, sizeof(*assignment) + count * sizeof(**ret_cores));
    if (assignment == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED,
                                "no memory for a TPU device assignment of %zu cores", count);
    assignment->mem = mem;
    assignment->ref_count = 1;
    assignment->topology = muster_tpu_topology_ref(topology);
    assignment->num_replicas = num_replicas;
    assignment->num_cores_per_replica = num_cores;
    *ret_cores = (struct muster_tpu_coordinates *)(void *)(assignment + 1);
    assignment->cores = *ret_cores;
    *ret_assignment = assignment;
    return MUSTER_OK;
}

enum muster_rc muster_tpu_device_assignment_new(
    struct muster_mem *mem, struct muster_tpu_topology *topology,
    const struct muster_tpu_coordinates *cores, uint32_t num_replicas,
    uint32_t num_cores_per_replica, struct muster_tpu_device_assignment **ret_assignment,
    struct muster_error *ret_error)
{
    struct muster_tpu_device_assignment *assignment = NULL;
    struct muster_tpu_coordinates *copy = NULL;
    size_t count = (size_t)num_replicas * num_cores_per_replica;
    enum muster_rc rc = MUSTER_OK;

    if (count == 0)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "a TPU device assignment of %" PRIu32 " replicas with %" PRIu32
                                " cores each: both must be at least 1",
                                num_replicas, num_cores_per_replica);
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++)
        rc = muster_tpu_topology_find(topology, &cores[i], NULL, NULL, ret_error);
    if (rc != MUSTER_OK) {
        if (ret_error != NULL)
            ret_error->rc = MUSTER_INVALID_ARGUMENT;
        return MUSTER_INVALID_ARGUMENT;
    }
    rc = assignment_alloc(mem, topology, num_replicas, num_cores_per_replica, &assignment, &copy,
                          ret_error);
    if (rc != MUSTER_OK)
        return rc;
    memcpy(copy, cores, count * sizeof(cores[0]));
    *ret_assignment = assignment;
    return MUSTER_OK;
}

static void ones_for_zeros(struct muster_tpu_coordinates *shape)
{
    static const struct muster_tpu_coordinates zeros = {0};

    if (memcmp(shape, &zeros, sizeof(zeros)) == 0)
        *shape = (struct muster_tpu_coordinates){{1, 1, 1, 1}};
}

static enum muster_rc check_shape(struct device_layout *layout, struct muster_error *ret_error)
{
    for (size_t i = 0; i < RANK; i++) {
        int32_t shape = layout->shape.at[i], stride = layout->stride.at[i];
        int32_t mesh = layout->topology->mesh_shape.at[i];

        if (shape < 1 || stride < 1)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "computation_shape[%zu] is %" PRId32
                                    " and computation_stride[%zu] is %" PRId32
                                    "; both must be at least 1",
                                    i, shape, i, stride);
        if ((int64_t)shape * stride > mesh)
            return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                    "a computation of %" PRId32 " cores with stride %" PRId32
                                    " does not fit into the mesh, which has %" PRId32
                                    " places along dimension %zu",
                                    shape, stride, mesh, i);
        layout->room.at[i] = mesh / (shape * stride) * stride;
    }
    layout->num_cores = (uint32_t)count_cells(&layout->shape);
    return MUSTER_OK;
}

static enum muster_rc check_room(const struct device_layout *layout, struct muster_error *ret_error)
{
    const struct muster_tpu_topology *topology = layout->topology;
    uint64_t room = count_cells(&layout->room);
    uint64_t devices = (uint64_t)topology->num_tasks * topology->num_tpu_devices_per_task;

    if (topology->missing_device_count > 0 && count_cells(&layout->stride) != 1)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%" PRIu32 " TPU devices are missing in the mesh: "
                                "computation_stride must be 1 there",
                                topology->missing_device_count);
    if (topology->missing_device_count > 0 && devices / layout->num_cores < room)
        room = devices / layout->num_cores;
    if (layout->num_replicas > room)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%" PRIu32 " replicas of %" PRIu32
                                " cores were asked for, but the TPU mesh has room for %" PRIu64,
                                layout->num_replicas, layout->num_cores, room);
    return MUSTER_OK;
}

/* The smallest number whose exponent-th power is at least value. */
static int32_t ceil_root(uint32_t value, unsigned exponent)
{
    for (int32_t root = 1;; root++) {
        uint64_t power = 1;

        for (unsigned i = 0; i < exponent && power < value; i++)
            power *= (uint64_t)root;
        if (power >= value)
            return root;
    }
}

/* Choose how many replicas lie along each dimension: near a cube, the dimension with the least room
 * first, among equals the cores of one chip first, then x, y, z. */
static void choose_blocks(struct device_layout *layout)
{
    static const size_t by_preference[RANK] = {CORE, 0, 1, 2};
    bool is_chosen[RANK] = {false};
    uint32_t remaining = layout->num_replicas;

    for (unsigned dims_left = RANK; dims_left > 0; dims_left--) {
        size_t best = RANK;
        int32_t size;

        for (size_t k = 0; k < RANK; k++) {
            size_t i = by_preference[k];

            if (!is_chosen[i] && (best == RANK || layout->room.at[i] < layout->room.at[best]))
                best = i;
        }
        size = ceil_root(remaining, dims_left);
        if (size > layout->room.at[best])
            size = layout->room.at[best];
        layout->blocks.at[best] = size;
        is_chosen[best] = true;
        remaining = (remaining + (uint32_t)size - 1) / (uint32_t)size;
    }
}

/* A ring needs a neighbour on both sides of every replica: the mesh is filled without gaps, and no
 * chip is shared by two replicas. */
static bool is_ring_possible(const struct device_layout *layout)
{
    return layout->shape.at[CORE] == layout->topology->mesh_shape.at[CORE] &&
           count_cells(&layout->stride) == 1 && layout->num_replicas == count_cells(&layout->room);
}

/* Devices of a mesh with gaps, in task order. */
static void fill_in_task_order(struct device_layout *layout)
{
    size_t count = (size_t)layout->num_replicas * layout->num_cores;

    memcpy(layout->cores, layout->topology->devices, count * sizeof(layout->cores[0]));
}

/* Rings of replicas, and within each replica a ring of chips. */
static void fill_in_rings(struct device_layout *layout)
{
    int32_t cores_per_chip = layout->topology->mesh_shape.at[CORE];

    for (uint32_t r = 0; r < layout->num_replicas; r++) {
        struct muster_tpu_ring_place outer = muster_tpu_ring_place(layout->blocks.at, r);

        for (uint32_t c = 0; c < layout->num_cores; c++) {
            uint32_t chip = c / (uint32_t)cores_per_chip;
            struct muster_tpu_ring_place inner = muster_tpu_ring_place(layout->shape.at, chip);
            int32_t *at = layout->cores[(size_t)r * layout->num_cores + c].at;

            for (size_t i = 0; i < CORE; i++)
                at[i] = outer.at[i] * layout->shape.at[i] + inner.at[i];
            at[CORE] = (int32_t)(c % (uint32_t)cores_per_chip);
        }
    }
}

/* Where replica r begins: cores of a chip vary fastest, then x, y, z. */
static struct muster_tpu_coordinates block_offset(const struct device_layout *layout, uint32_t r)
{
    static const size_t fastest_first[RANK] = {CORE, 0, 1, 2};
    struct muster_tpu_coordinates offset;

    for (size_t k = 0; k < RANK; k++) {
        size_t i = fastest_first[k];
        int32_t position = (int32_t)(r % (uint32_t)layout->blocks.at[i]);
        int32_t stride = layout->stride.at[i];

        offset.at[i] = position / stride * (layout->shape.at[i] * stride) + position % stride;
        r /= (uint32_t)layout->blocks.at[i];
    }
    return offset;
}

static void fill_in_mesh_order(struct device_layout *layout)
{
    for (uint32_t r = 0; r < layout->num_replicas; r++) {
        struct muster_tpu_coordinates offset = block_offset(layout, r);

        for (uint32_t c = 0; c < layout->num_cores; c++) {
            int32_t *at = layout->cores[(size_t)r * layout->num_cores + c].at;
            uint32_t rest = c;

            for (size_t i = RANK; i-- > 0;) {
                at[i] = offset.at[i] +
                        (int32_t)(rest % (uint32_t)layout->shape.at[i]) * layout->stride.at[i];
                rest /= (uint32_t)layout->shape.at[i];
            }
        }
    }
}

enum muster_rc muster_tpu_device_assignment_build(
    struct muster_mem *mem, struct muster_tpu_topology *topology,
    const struct muster_tpu_device_assignment_options *options,
    struct muster_tpu_device_assignment **ret_assignment, struct muster_error *ret_error)
{
    static const struct muster_tpu_device_assignment_options none = {0};

    if (options == NULL)
        options = &none;
    struct device_layout layout = {
        .topology = topology,
        .shape = options->computation_shape,
        .stride = options->computation_stride,
        .num_replicas = options->num_replicas > 0 ? options->num_replicas : 1,
    };
    bool is_whole = topology->missing_device_count == 0;
    enum muster_rc rc;

    ones_for_zeros(&layout.shape);
    ones_for_zeros(&layout.stride);
    rc = check_shape(&layout, ret_error);
    if (rc == MUSTER_OK)
        rc = check_room(&layout, ret_error);
    if (rc == MUSTER_OK && options->order == MUSTER_TPU_DEVICE_ORDER_RING &&
        !(is_whole && is_ring_possible(&layout)))
        rc = muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                              "ring order needs a whole mesh that is filled with replicas of whole "
                              "chips without stride; ask for order AUTO");
    if (rc == MUSTER_OK)
        rc = assignment_alloc(mem, topology, layout.num_replicas, layout.num_cores, ret_assignment,
                              &layout.cores, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    choose_blocks(&layout);
    if (!is_whole)
        fill_in_task_order(&layout);
    else if (options->order != MUSTER_TPU_DEVICE_ORDER_MESH && is_ring_possible(&layout))
        fill_in_rings(&layout);
    else
        fill_in_mesh_order(&layout);
    return MUSTER_OK;
}

struct muster_tpu_device_assignment *muster_tpu_device_assignment_ref(
    struct muster_tpu_device_assignment *assignment)
{
    MUSTER_ASSERT(assignment->ref_count > 0);
    assignment->ref_count++;
    return assignment;
}

void muster_tpu_device_assignment_unref(struct muster_tpu_device_assignment *assignment)
{
    if (assignment == NULL)
        return;
    MUSTER_ASSERT(assignment->ref_count > 0);
    if (--assignment->ref_count > 0)
        return;
    muster_tpu_topology_unref(assignment->topology);
    muster_mem_free(assignment->mem, assignment);
}

const struct muster_tpu_coordinates *muster_tpu_device_assignment_coordinates(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core)
{
    if (replica >= assignment->num_replicas || logical_core >= assignment->num_cores_per_replica)
        return NULL;
    return &assignment->cores[(size_t)replica * assignment->num_cores_per_replica + logical_core];
}

static enum muster_rc find_core(const struct muster_tpu_device_assignment *assignment,
                                uint32_t replica, uint32_t logical_core,
                                const struct muster_tpu_coordinates **ret_at,
                                struct muster_error *ret_error)
{
    *ret_at = muster_tpu_device_assignment_coordinates(assignment, replica, logical_core);
    if (*ret_at == NULL)
        return muster_error_set(
            ret_error, MUSTER_OUT_OF_RANGE,
            "no logical core %" PRIu32 " of replica %" PRIu32
            ": the TPU device assignment has %" PRIu32 " replicas of %" PRIu32 " cores",
            logical_core, replica, assignment->num_replicas, assignment->num_cores_per_replica);
    return MUSTER_OK;
}

enum muster_rc muster_tpu_device_assignment_tpu_ordinal(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core,
    uint32_t *ret_ordinal, struct muster_error *ret_error)
{
    const struct muster_tpu_coordinates *at;
    enum muster_rc rc = find_core(assignment, replica, logical_core, &at, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    return muster_tpu_topology_find(assignment->topology, at, NULL, ret_ordinal, ret_error);
}

enum muster_rc muster_tpu_device_assignment_device_name(
    const struct muster_tpu_device_assignment *assignment, uint32_t replica, uint32_t logical_core,
    enum muster_tpu_device_kind kind, const char *job, size_t name_bytes, char *ret_name,
    struct muster_error *ret_error)
{
    const struct muster_tpu_coordinates *at;
    enum muster_rc rc = find_core(assignment, replica, logical_core, &at, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    return muster_tpu_topology_device_name(assignment->topology, at, kind, job, name_bytes,
                                           ret_name, ret_error);
}

/* Does this task compute the logical core of the replica? */
static bool is_on_task(const struct muster_tpu_device_assignment *assignment, uint32_t replica,
                       uint32_t logical_core, uint32_t task)
{
    const struct muster_tpu_coordinates *at =
        muster_tpu_device_assignment_coordinates(assignment, replica, logical_core);
    uint32_t owner;

    return at != NULL &&
           muster_tpu_topology_find(assignment->topology, at, &owner, NULL, NULL) == MUSTER_OK &&
           owner == task;
}

enum muster_rc muster_tpu_device_assignment_lookup_replicas(
    const struct muster_tpu_device_assignment *assignment, uint32_t task, uint32_t logical_core,
    size_t capacity, uint32_t *ret_replicas, size_t *ret_count, struct muster_error *ret_error)
{
    size_t count = 0;

    for (uint32_t r = 0; r < assignment->num_replicas; r++)
        count += is_on_task(assignment, r, logical_core, task);
    if (count == 0)
        return muster_error_set(ret_error, MUSTER_NOT_FOUND,
                                "no replica computes its logical core %" PRIu32 " on task %" PRIu32,
                                logical_core, task);
    *ret_count = count;
    if (count > capacity)
        return muster_error_set(ret_error, MUSTER_OUT_OF_RANGE,
                                "%zu replicas compute their logical core %" PRIu32
                                " on task %" PRIu32 "; there is room for %zu",
                                count, logical_core, task, capacity);
    count = 0;
    for (uint32_t r = 0; r < assignment->num_replicas; r++) {
        if (is_on_task(assignment, r, logical_core, task))
            ret_replicas[count++] = r;
    }
    return MUSTER_OK;
}
