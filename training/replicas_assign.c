/* Variables that replicas update, and the logical devices of a replica. */
#include <muster/replicas.h>

#include <inttypes.h>
#include <string.h>

#include "collective/kernel/kernels.h"
#include "training/replicas.h"
#include "training/replicas/shape.h"
#include "training/replicas_memory.h"
#include "training/strategy_call.h"

/* --- Variables --- */

static enum muster_rc check_update(struct muster_strategy *strategy,
                                   const struct muster_tensor *variable,
                                   const struct muster_tensor *values,
                                   enum muster_aggregation aggregation)
{
    struct muster_shaped_tensor shaped = muster_shaped_vector(variable);
    struct muster_error why;
    uint64_t count;

    if (aggregation <= MUSTER_AGGREGATION_NONE ||
        aggregation > MUSTER_AGGREGATION_ONLY_FIRST_REPLICA)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "assign: an update by replicas needs an aggregation, got %d",
                                (int)aggregation);
    if (muster_shape_count(&shaped, &count, &why) != MUSTER_OK)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "assign: the variable: %s", why.text);
    for (uint32_t i = 0; i < strategy->replica_count; i++) {
        shaped = muster_shaped_vector(&values[i]);
        if (values[i].dtype != variable->dtype || values[i].count != variable->count ||
            muster_shape_count(&shaped, &count, &why) != MUSTER_OK)
            return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                    "assign: the value of local replica %" PRIu32
                                    " is %s x %" PRIu64 ", the variable %s x %" PRIu64
                                    " (NULL and not aligned are refused, too)",
                                    i, muster_dtype_name(values[i].dtype), values[i].count,
                                    muster_dtype_name(variable->dtype), variable->count);
    }
    return MUSTER_OK;
}

/* The first replica's, wherever it is. */
static enum muster_rc read_tensor(struct muster_strategy *strategy, const char *name,
                                  const struct muster_tensor *tensor, void *to)
{
    struct muster_replicas_copy copy = {.data = tensor->data,
                                        .bytes = tensor->count * muster_dtype_bytes(tensor->dtype),
                                        .is_read = true};
    enum muster_rc rc = muster_replicas_bring(strategy, name, &copy, 1);

    if (rc == MUSTER_OK && copy.bytes > 0)
        memcpy(to, copy.host, (size_t)copy.bytes);
    return rc;
}

/* The variable may be on a device. */
static enum muster_rc update_variable(struct muster_strategy *strategy,
                                      const struct muster_tensor *variable,
                                      const struct muster_tensor *total, bool is_added)
{
    struct muster_replicas_copy copy = {.data = variable->data,
                                        .bytes = total->count * muster_dtype_bytes(total->dtype),
                                        .replica = MUSTER_REPLICA_UNKNOWN,
                                        .is_read = is_added,
                                        .is_written = true};
    enum muster_rc rc = muster_replicas_bring(strategy, "assign", &copy, 1);

    if (rc != MUSTER_OK)
        return rc;
    if (is_added)
        muster_kernel_reduce(total->dtype, MUSTER_SUM, copy.host, total->data,
                             (size_t)total->count);
    else
        memcpy(copy.host, total->data, (size_t)copy.bytes);
    return muster_replicas_give(strategy, "assign", &copy, 1);
}

/* One value of all replicas, in memory that is given. */
static enum muster_rc aggregate_values(struct muster_strategy *strategy,
                                       const struct muster_tensor *values,
                                       enum muster_aggregation aggregation,
                                       struct muster_tensor *total)
{
    struct muster_shaped_tensor shaped[MUSTER_REPLICAS_MAX];
    size_t bytes = (size_t)total->count * muster_dtype_bytes(total->dtype);

    total->data = muster_mem_alloc(strategy->env->mem, bytes);
    if (total->data == NULL)
        return muster_error_set(&strategy->error, MUSTER_RESOURCE_EXHAUSTED,
                                "assign: out of memory");
    if (aggregation == MUSTER_AGGREGATION_ONLY_FIRST_REPLICA)
        return read_tensor(strategy, "assign", &values[0], total->data);
    for (uint32_t i = 0; i < strategy->replica_count; i++)
        shaped[i] = muster_shaped_vector(&values[i]);
    return muster_replicas_reduce(strategy, shaped, MUSTER_AXIS_NONE,
                                  aggregation == MUSTER_AGGREGATION_SUM ? MUSTER_SUM : MUSTER_MEAN,
                                  total);
}

enum muster_rc muster_replicas_assign(struct muster_strategy *strategy,
                                      const struct muster_tensor *variable,
                                      const struct muster_tensor *values,
                                      enum muster_aggregation aggregation, bool is_added)
{
    struct muster_tensor total = *variable;
    struct muster_error why;
    enum muster_rc rc = muster_strategy_check_step(strategy, "assign");

    if (rc == MUSTER_OK)
        rc = check_update(strategy, variable, values, aggregation);
    if (rc == MUSTER_OK && is_added &&
        muster_reduction_check(variable->dtype, MUSTER_SUM, &why) != MUSTER_OK)
        rc = muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT, "assign: %s", why.text);
    if (rc != MUSTER_OK)
        return rc;
    rc = aggregate_values(strategy, values, aggregation, &total);
    if (rc == MUSTER_OK && total.count > 0)
        rc = update_variable(strategy, variable, &total, is_added);
    muster_mem_free(strategy->env->mem, total.data);
    return rc;
}

/* --- Logical devices --- */

static enum muster_rc check_logical(struct muster_strategy *strategy, const char *name, int64_t id)
{
    if (id >= 0 && id < strategy->logical_device_count)
        return MUSTER_OK;
    return muster_error_set(
        &strategy->error, MUSTER_INVALID_ARGUMENT,
        "%s: a replica has %" PRIu32 " logical devices, so the id must be 0 to %" PRIu32
        ", got %" PRId64 "; set logical_device_count in the options of the strategy",
        name, strategy->logical_device_count, strategy->logical_device_count - 1, id);
}

enum muster_rc muster_replicas_assign_to_logical_device(struct muster_strategy *strategy,
                                                        uint32_t replica, int64_t id,
                                                        uint32_t *ret_device)
{
    enum muster_rc rc = muster_strategy_check(strategy, "assign_to_logical_device");

    if (rc == MUSTER_OK)
        rc = check_logical(strategy, "assign_to_logical_device", id);
    if (rc != MUSTER_OK)
        return rc;
    if (replica >= strategy->replica_count)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "assign_to_logical_device: this member has %" PRIu32
                                " replicas, got %" PRIu32,
                                strategy->replica_count, replica);
    *ret_device = replica * strategy->logical_device_count + (uint32_t)id;
    return MUSTER_OK;
}

static enum muster_rc check_partition(struct muster_strategy *strategy,
                                      const struct muster_shaped_tensor *tensor,
                                      const uint64_t *partition, uint32_t partition_count)
{
    uint64_t parts = 1;

    if (partition_count != tensor->dimension_count || partition_count > MUSTER_DIMENSIONS_MAX)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "split_to_logical_devices: the partition must have a number for "
                                "each of the %" PRIu32 " dimensions, at most %u, got %" PRIu32,
                                tensor->dimension_count, MUSTER_DIMENSIONS_MAX, partition_count);
    for (uint32_t i = 0; i < partition_count; i++)
        parts = partition[i] > MUSTER_LOGICAL_DEVICES_MAX ? 0 : parts * partition[i];
    if (parts == strategy->logical_device_count)
        return MUSTER_OK;
    return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                            "split_to_logical_devices: the product of the partition must be the "
                            "%" PRIu32 " logical devices of a replica, got %" PRIu64,
                            strategy->logical_device_count, parts);
}

enum muster_rc muster_replicas_split_to_logical_devices(struct muster_strategy *strategy,
                                                        const struct muster_shaped_tensor *tensor,
                                                        const uint64_t *partition,
                                                        uint32_t partition_count, int64_t id,
                                                        struct muster_tensor_part *ret_part)
{
    enum muster_rc rc = muster_strategy_check(strategy, "split_to_logical_devices");

    if (rc == MUSTER_OK)
        rc = check_partition(strategy, tensor, partition, partition_count);
    if (rc == MUSTER_OK)
        rc = check_logical(strategy, "split_to_logical_devices", id);
    if (rc == MUSTER_OK)
        *ret_part = muster_shape_split(tensor, partition, (uint64_t)id);
    return rc;
}

void muster_tensor_part_read(const struct muster_shaped_tensor *tensor,
                             const struct muster_tensor_part *part, void *into)
{
    muster_shape_read_part(tensor, part, into);
}

enum muster_rc muster_replicas_replicate_to_logical_devices(struct muster_strategy *strategy,
                                                            const struct muster_tensor *tensor,
                                                            const struct muster_tensor *copies)
{
    enum muster_rc rc = muster_strategy_check(strategy, "replicate_to_logical_devices");

    for (uint32_t i = 0; rc == MUSTER_OK && i < strategy->logical_device_count; i++)
        if (copies[i].dtype != tensor->dtype || copies[i].count != tensor->count)
            rc = muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                  "replicate_to_logical_devices: copy %" PRIu32
                                  " must be %s x %" PRIu64 ", got %s x %" PRIu64,
                                  i, muster_dtype_name(tensor->dtype), tensor->count,
                                  muster_dtype_name(copies[i].dtype), copies[i].count);
    return rc == MUSTER_OK ? muster_replicas_spread(strategy, "replicate_to_logical_devices",
                                                    tensor, copies, strategy->logical_device_count)
                           : rc;
}
