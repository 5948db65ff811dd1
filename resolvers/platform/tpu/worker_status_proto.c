/* The wire form of a worker's devices: tensorflow.GetStatusResponse. */
#include "resolvers/platform/tpu/worker_status.h"

#include "proto/guard.h"
#include "proto/worker.pb-c.h"

void muster_worker_status_devices_free(struct muster_mem *mem, char **devices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        muster_mem_free(mem, devices[i]);
    muster_mem_free(mem, devices);
}

static enum muster_rc copy_names(struct muster_mem *mem,
                                 const Tensorflow__GetStatusResponse *message, char ***ret_devices,
                                 struct muster_error *ret_error)
{
    size_t count = message->n_device_attributes;
    char **devices = muster_mem_alloc_zero(mem, count, sizeof(devices[0]));

    for (size_t i = 0; devices != NULL && i < count; i++) {
        devices[i] = muster_mem_strdup(mem, message->device_attributes[i]->name);
        if (devices[i] == NULL) {
            muster_worker_status_devices_free(mem, devices, i);
            devices = NULL;
        }
    }
    if (devices == NULL)
        return muster_error_set(ret_error, MUSTER_RESOURCE_EXHAUSTED, "no memory");
    *ret_devices = devices;
    return MUSTER_OK;
}

enum muster_rc muster_worker_status_unpack(struct muster_mem *mem, const void *bytes, size_t size,
                                           char ***ret_devices, size_t *ret_count,
                                           struct muster_error *ret_error)
{
    /* A host has some dozens of devices: an answer with more elements is not a worker's. */
    static const struct muster_proto_limits limits = {.depth_max = 5, .elements_max = 65536};
    Tensorflow__GetStatusResponse *message = NULL;
    enum muster_rc rc = muster_proto_unpack(mem, &tensorflow__get_status_response__descriptor,
                                            bytes, size, &limits, &message, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    rc = copy_names(mem, message, ret_devices, ret_error);
    if (rc == MUSTER_OK)
        *ret_count = message->n_device_attributes;
    muster_proto_free(message);
    return rc;
}
