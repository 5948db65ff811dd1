/* Replicas: copies of the model that compute side by side, one or several in each member, as tf.distribute has
 * them. A member has as many as its strategy was opened with (replica_count, devices), one for each device that it
 * computes on, and members may differ. Replicas are numbered through all members, in the order of their ranks.
 *
 * Values may be in the memory of the host or of any device, each by itself: those of a replica usually on its own
 * device. They are reduced in host memory, on all members, whatever their numbers of replicas and devices, so that
 * calls have what calls on host memory have: an outcome when a member dies, and the host's bits. Copies come after what
 * the devices' streams hold at the call, and are done when it returns. Errors, of all calls on device memory:
 * UNAVAILABLE (a device has failed: this member ends, and the others go on), RESOURCE_EXHAUSTED, and INVALID_ARGUMENT
 * where the members have agreed on communication NCCL and this one has several replicas.
 *
 * Calls below take the values of all replicas of this member at once, in their order. Instead each replica may call
 * for itself, on a thread of its own, inside muster_replicas_run (replica.h). Calls that need other members are made in
 * a step, by all members in the same order. docs/training.md, "Several replicas in one process". */
#ifndef MUSTER_REPLICAS_H
#define MUSTER_REPLICAS_H

#include <muster/base.h>
#include <muster/collective.h>
#include <muster/dataset.h>
#include <muster/status.h>
#include <muster/strategy.h>

#include <string.h>

MUSTER_BEGIN

#define MUSTER_REPLICAS_MAX        256u /* in one member */
#define MUSTER_LOGICAL_DEVICES_MAX 4096u
#define MUSTER_DEVICE_TEXT_BYTES   128u
#define MUSTER_DIMENSIONS_MAX      8u

/* Which replicas there are. */

/** The number of replicas of this member; muster_strategy_num_replicas_in_sync counts those of all members. */
MUSTER_API uint32_t muster_replicas_local(const struct muster_strategy *strategy);
/** The number of this member's first replica among those of all, from 0; the others follow. As of begin; before
 * the first one as if all members had as many replicas as this one. */
MUSTER_API uint32_t muster_replicas_first(const struct muster_strategy *strategy);
/** TensorFlow's name of a device of this member, "/job:worker/replica:0/task:1/device:CPU:0". Devices are counted
 * through: replica 1 with 2 logical devices has 2 and 3. One on a GPU is "…/device:GPU:2", by the GPU's number in
 * this process. A program alone is the job "localhost". */
MUSTER_API void muster_replicas_device_name(const struct muster_strategy *strategy, uint32_t device,
                                            char ret_text[MUSTER_DEVICE_TEXT_BYTES]);

/* The devices of this member, counted as above. */

#define MUSTER_NO_GPU (-1)

/** The GPU of a device, by its number in this process; MUSTER_NO_GPU: the device is a CPU. */
MUSTER_API int muster_replicas_device_gpu(const struct muster_strategy *strategy, uint32_t device);
/** Name the program's stream (CUstream; NULL: the default one) on a device: copies of that device come after the work
 * that the stream holds at the call, and so do begin and commit. Where a GPU is named more than once in `devices`, what
 * may be of any of them (the variable of assign, the result of reduce, tensors that are read, written or replicated)
 * comes after all their streams. Borrowed until the next call, or close.
 * INVALID_ARGUMENT (the device is a CPU, or does not exist), FAILED_PRECONDITION (another call is under way). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_set_stream(
    struct muster_strategy *strategy, uint32_t device, void *stream);

/**
 * A tensor of zeroes on a device: in its memory, or where that is a CPU muster_strategy_tensor_new. For programs that
 * have no allocator of their own; the calls below take memory of others as well.
 *
 * Owns:    gives; muster_replicas_tensor_free before close, and not while it is registered.
 * Errors:  INVALID_ARGUMENT (no such device, or type), RESOURCE_EXHAUSTED, UNAVAILABLE (the device cannot be opened),
 *          FAILED_PRECONDITION (another call is under way).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_tensor_new(
    struct muster_strategy *strategy, uint32_t device, enum muster_dtype dtype, uint64_t count,
    struct muster_tensor *ret_tensor);
/** Free a tensor of muster_replicas_tensor_new, and set its data to NULL. Data NULL is accepted. */
MUSTER_API void muster_replicas_tensor_free(struct muster_strategy *strategy,
                                            struct muster_tensor *tensor);
/** Copy from host memory (`from`, tensor->count elements) to a tensor in host or device memory, after the work on its
 * device's stream; done on return. Borrows both during the call. Not within muster_replicas_run.
 * Errors: UNAVAILABLE, RESOURCE_EXHAUSTED, FAILED_PRECONDITION (another call is under way). */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_write(
    struct muster_strategy *strategy, const struct muster_tensor *tensor, const void *from);
/** Copy a tensor to host memory (`to`, room for tensor->count elements); otherwise as muster_replicas_write. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_read(struct muster_strategy *strategy,
                                                                 const struct muster_tensor *tensor,
                                                                 void *to);
/**
 * Give each of `count` tensors of the first local replica to all other local replicas, whose tensors follow as for
 * all_reduce. The training state is registered, and restored by begin, for the first replica alone: this brings it to
 * the others, in the first step and after each begin that has restored the state.
 *
 * Errors:  INVALID_ARGUMENT (tensors that differ between replicas), UNAVAILABLE, RESOURCE_EXHAUSTED,
 *          FAILED_PRECONDITION (another call is under way).
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_mirror(
    struct muster_strategy *strategy, const struct muster_tensor *tensors, size_t count);

/* Values of all replicas. */

/** A tensor with dimensions; the elements of the last one lie side by side. No dimensions: one element. */
struct muster_shaped_tensor {
    void *data; /* as of struct muster_tensor; also in device memory */
    enum muster_dtype dtype;
    uint32_t dimension_count;
    uint64_t dimensions[MUSTER_DIMENSIONS_MAX];
};
/** A tensor of one dimension. */
static inline struct muster_shaped_tensor muster_shaped_vector(const struct muster_tensor *tensor)
{
    struct muster_shaped_tensor shaped;

    memset(&shaped, 0, sizeof(shaped));
    shaped.data = tensor->data;
    shaped.dtype = tensor->dtype;
    shaped.dimension_count = 1;
    shaped.dimensions[0] = tensor->count;
    return shaped;
}

/** No axis: values are reduced over the replicas only. */
#define MUSTER_AXIS_NONE INT32_MIN

/**
 * Reduce one value of each replica to one value, which every member gets. With an axis it also reduces over that
 * dimension of each value, whose extent may differ between replicas. MEAN divides by the number of replicas that
 * contributed, or with an axis by the sum of their extents. Where that is 0 the result is NaN, or for integers the
 * error INVALID_ARGUMENT. Negative axes count from the last one.
 *
 * Shape:   values: muster_replicas_local ones. result: the elements of a value, without the axis.
 * Owns:    borrows all during the call. result may be the first value's memory.
 * Errors:  INVALID_ARGUMENT (no such axis, shapes that differ, an axis with another reduction than SUM and MEAN),
 *          otherwise as muster_strategy_all_reduce.
 * Source:  tf.distribute.Strategy.reduce.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_reduce(
    struct muster_strategy *strategy, const struct muster_shaped_tensor *values, int32_t axis,
    enum muster_reduction reduction, const struct muster_tensor *result);

/**
 * Reduce each of `count` tensors, such as gradients, over all replicas, and give the result to all. tensors: those of
 * the first replica of this member, then those of the next one. SUM and others reduce within the member in the order of
 * replicas, then over the members. MEAN is for floats only: the mean of the members' means, weighted by their numbers
 * of replicas.
 *
 * Errors:  as muster_strategy_all_reduce; inputs are then as they were, too. INVALID_ARGUMENT: tensors that differ
 *          between replicas, or a MEAN of integers.
 * Source:  tf.distribute.ReplicaContext.all_reduce.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_all_reduce(
    struct muster_strategy *strategy, const struct muster_tensor *tensors, size_t count,
    enum muster_reduction reduction);

/**
 * Join the values of all replicas along an axis, in the order of replicas; every member has the whole. Extents of
 * the axis may differ, also 0; the others are equal.
 *
 * Owns:    gives *ret_whole, in the host's memory: muster_replicas_free.
 * Errors:  INVALID_ARGUMENT (no such axis, shapes or types that differ: on all members alike, the text names both),
 *          RESOURCE_EXHAUSTED, ABORTED (a member has gone: begin the step again), otherwise as
 *          muster_strategy_all_gather.
 * Source:  tf.distribute.Strategy.gather.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_gather(
    struct muster_strategy *strategy, const struct muster_shaped_tensor *values, int32_t axis,
    struct muster_shaped_tensor *ret_whole);
/** Free a value that muster_replicas_gather has given. Data NULL is accepted. */
MUSTER_API void muster_replicas_free(struct muster_strategy *strategy,
                                     struct muster_shaped_tensor *whole);

/* Variables that replicas update. */

/** How the values that the replicas give for a variable become one. Source: tf.VariableAggregation. */
enum muster_aggregation {
    MUSTER_AGGREGATION_NONE, /* INVALID_ARGUMENT: an update by replicas needs one */
    MUSTER_AGGREGATION_SUM,
    MUSTER_AGGREGATION_MEAN,
    /* This member's first replica decides here, as in TensorFlow: members may end with different values. */
    MUSTER_AGGREGATION_ONLY_FIRST_REPLICA,
};

/**
 * Set a variable, which all replicas of this member share, to the aggregate of their values; or add the
 * aggregate to it (is_added).
 *
 * Shape:   values: muster_replicas_local ones, each as the variable.
 * Owns:    borrows all during the call.
 * Errors:  INVALID_ARGUMENT (no aggregation, values that do not fit the variable), otherwise as
 *          muster_replicas_reduce. The variable is then as it was.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_assign(
    struct muster_strategy *strategy, const struct muster_tensor *variable,
    const struct muster_tensor *values, enum muster_aggregation aggregation, bool is_added);

/* Data of replicas. */

/**
 * Take the next batch of each local replica, in a step: muster_dataset_next of a dataset that was opened with
 * replicas_per_worker = muster_replicas_local, and with the shard of muster_strategy_input_context. A member that has
 * read all of its part gets batches without records until all members have read theirs. So all members make the same
 * number of steps. Where members have different numbers of replicas, or may die, use muster_dataset_next_shares with
 * muster_replicas_first, _local and muster_strategy_num_replicas_in_sync, which divides each step anew.
 *
 * Owns:    ret_batches: muster_replicas_local ones, the strategy's or the dataset's until the next call, or close of
 *          either.
 * Errors:  OUT_OF_RANGE (the parts of all members are read), INVALID_ARGUMENT (replicas_per_worker), as
 *          muster_dataset_next; DATA_LOSS also where another member cannot read on. Otherwise as
 *          muster_strategy_all_reduce; after ABORTED the batches of this step are missing here.
 * Source:  tf.distribute.Strategy.experimental_distribute_dataset.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_next_batches(
    struct muster_strategy *strategy, struct muster_dataset *dataset,
    struct muster_dataset_batch *ret_batches);

/* Logical devices: those over which one replica divides its tensors. */

/** Where a part of a tensor begins, and how far it reaches, in each dimension. */
struct muster_tensor_part {
    uint64_t first[MUSTER_DIMENSIONS_MAX], extent[MUSTER_DIMENSIONS_MAX];
};

/**
 * The device of this member (muster_replicas_device_name) that is logical device `id` of a local replica.
 *
 * Errors:  INVALID_ARGUMENT: the replica is beyond muster_replicas_local, or the id not 0 to logical_device_count - 1
 *          of the options; the text has both numbers.
 * Source:  tf.distribute's experimental_assign_to_logical_device.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_assign_to_logical_device(
    struct muster_strategy *strategy, uint32_t replica, int64_t id, uint32_t *ret_device);

/**
 * The part that logical device `id` has when the tensor is split. Dimension i is cut into partition[i] parts: parts of
 * the rounded-up size first, then the rest, then empty ones. Devices are counted along the last dimension first.
 *
 * Errors:  INVALID_ARGUMENT: partition_count is not the number of dimensions; the parts are not as many as logical
 *          devices; no such device.
 * Source:  tf.distribute's experimental_split_to_logical_devices.
 */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_split_to_logical_devices(
    struct muster_strategy *strategy, const struct muster_shaped_tensor *tensor,
    const uint64_t *partition, uint32_t partition_count, int64_t id,
    struct muster_tensor_part *ret_part);
/** Copy that part to `into`, which has room for its elements. Both are in the host's memory. */
MUSTER_API void muster_tensor_part_read(const struct muster_shaped_tensor *tensor,
                                        const struct muster_tensor_part *part, void *into);

/** Copy a tensor to those of all logical devices of a replica, logical_device_count ones. INVALID_ARGUMENT: they
 * differ in type or count. Source: tf.distribute's experimental_replicate_to_logical_devices. */
MUSTER_API MUSTER_MUST_CHECK enum muster_rc muster_replicas_replicate_to_logical_devices(
    struct muster_strategy *strategy, const struct muster_tensor *tensor,
    const struct muster_tensor *copies);

MUSTER_END

#endif
