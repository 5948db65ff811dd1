/* Tensors on the devices of this member: made, written, read, and copied from the first replica to the others. */
#include <muster/replicas.h>

#include <inttypes.h>
#include <string.h>

#include "training/replicas.h"
#include "training/replicas_memory.h"

/* --- Memory --- */

static enum muster_rc check_device(struct muster_strategy *strategy, uint32_t device,
                                   enum muster_dtype dtype, uint64_t count)
{
    uint32_t devices = strategy->replica_count * strategy->logical_device_count;
    size_t bytes = muster_dtype_bytes(dtype);

    if (device >= devices)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "tensor_new: this member has %" PRIu32 " devices, got %" PRIu32,
                                devices, device);
    if (bytes == 0 || count > SIZE_MAX / 2 / bytes)
        return muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                "tensor_new: %" PRIu64 " x %s: not a type, or too many", count,
                                muster_dtype_name(dtype));
    return MUSTER_OK;
}

enum muster_rc muster_replicas_tensor_new(struct muster_strategy *strategy, uint32_t device,
                                          enum muster_dtype dtype, uint64_t count,
                                          struct muster_tensor *ret_tensor)
{
    int gpu = muster_replicas_device_gpu(strategy, device);
    struct muster_tensor tensor = {.dtype = dtype, .count = count};
    struct muster_device_memory *memory = NULL;
    struct muster_error why = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_strategy_check(strategy, "tensor_new");

    if (rc == MUSTER_OK)
        rc = check_device(strategy, device, dtype, count);
    if (rc == MUSTER_OK && gpu == MUSTER_NO_GPU)
        return muster_strategy_tensor_new(strategy, dtype, count, ret_tensor);
    if (rc == MUSTER_OK)
        rc = muster_strategy_memory_open(strategy, "tensor_new", gpu, &memory);
    if (rc != MUSTER_OK)
        return rc;
    rc = muster_device_memory_new(memory, (size_t)count * muster_dtype_bytes(dtype), &tensor.data,
                                  &why);
    if (rc != MUSTER_OK)
        return muster_error_set(&strategy->error, rc, "tensor_new on device %d: %s", gpu, why.text);
    *ret_tensor = tensor;
    return MUSTER_OK;
}

void muster_replicas_tensor_free(struct muster_strategy *strategy, struct muster_tensor *tensor)
{
    struct muster_device_look look;
    int gpu;

    if (muster_strategy_check(strategy, "tensor_free") != MUSTER_OK)
        return;
    look = muster_device_look_of(strategy->env);
    gpu = muster_device_look_at(&look, tensor->data);
    if (gpu < 0) {
        muster_strategy_tensor_free(strategy, tensor);
        return;
    }
    for (size_t i = 0; i < strategy->memory_count; i++)
        if (muster_device_memory_ordinal(strategy->memories[i].memory) == gpu)
            muster_device_memory_free(strategy->memories[i].memory, tensor->data);
    tensor->data = NULL;
}

/* --- Bytes --- */

/* The program does not say which replica's tensor it is. */
static struct muster_replicas_copy copy_of(const struct muster_tensor *tensor)
{
    return (struct muster_replicas_copy){.data = tensor->data,
                                         .bytes = tensor->count * muster_dtype_bytes(tensor->dtype),
                                         .replica = MUSTER_REPLICA_UNKNOWN};
}

enum muster_rc muster_replicas_write(struct muster_strategy *strategy,
                                     const struct muster_tensor *tensor, const void *from)
{
    struct muster_replicas_copy copy = copy_of(tensor);
    enum muster_rc rc = muster_strategy_check(strategy, "write");

    copy.is_written = true;
    if (rc == MUSTER_OK)
        rc = muster_replicas_bring(strategy, "write", &copy, 1);
    if (rc != MUSTER_OK || copy.bytes == 0)
        return rc;
    memcpy(copy.host, from, (size_t)copy.bytes);
    return muster_replicas_give(strategy, "write", &copy, 1);
}

enum muster_rc muster_replicas_read(struct muster_strategy *strategy,
                                    const struct muster_tensor *tensor, void *to)
{
    struct muster_replicas_copy copy = copy_of(tensor);
    enum muster_rc rc = muster_strategy_check(strategy, "read");

    copy.is_read = true;
    if (rc == MUSTER_OK)
        rc = muster_replicas_bring(strategy, "read", &copy, 1);
    if (rc == MUSTER_OK && copy.bytes > 0)
        memcpy(to, copy.host, (size_t)copy.bytes);
    return rc;
}

enum muster_rc muster_replicas_mirror(struct muster_strategy *strategy,
                                      const struct muster_tensor *tensors, size_t count)
{
    struct muster_tensor others[MUSTER_REPLICAS_MAX];
    enum muster_rc rc = muster_strategy_check(strategy, "mirror");

    for (size_t i = 0; i < count * strategy->replica_count && rc == MUSTER_OK; i++)
        if (tensors[i].count != tensors[i % count].count ||
            tensors[i].dtype != tensors[i % count].dtype)
            rc = muster_error_set(&strategy->error, MUSTER_INVALID_ARGUMENT,
                                  "mirror: tensor %zu of local replica %zu: %s x %" PRIu64
                                  ", of replica 0 %s x %" PRIu64,
                                  i % count, i / count, muster_dtype_name(tensors[i].dtype),
                                  tensors[i].count, muster_dtype_name(tensors[i % count].dtype),
                                  tensors[i % count].count);
    for (size_t i = 0; i < count && rc == MUSTER_OK; i++) {
        for (uint32_t replica = 1; replica < strategy->replica_count; replica++)
            others[replica - 1] = tensors[replica * count + i];
        rc = muster_replicas_spread(strategy, "mirror", &tensors[i], others,
                                    strategy->replica_count - 1);
    }
    return rc;
}
