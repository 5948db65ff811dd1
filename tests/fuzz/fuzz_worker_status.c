/* A worker's list of devices: what was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include "proto/guard.h"
#include "proto/worker.pb-c.h"
#include "resolvers/platform/tpu/worker_status.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void write_again(char **devices, size_t count, void **ret_wire, size_t *ret_size)
{
    Tensorflow__GetStatusResponse response = TENSORFLOW__GET_STATUS_RESPONSE__INIT;
    Tensorflow__DeviceAttributes *all = calloc(count + 1, sizeof(*all));
    Tensorflow__DeviceAttributes **list = calloc(count + 1, sizeof(*list));

    if (all == NULL || list == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        tensorflow__device_attributes__init(&all[i]);
        all[i].name = devices[i];
        list[i] = &all[i];
    }
    response.n_device_attributes = count;
    response.device_attributes = list;
    if (muster_proto_pack(muster_mem_system(), &response, ret_wire, ret_size) != MUSTER_OK)
        abort();
    free(all);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_mem *mem = muster_mem_system();
    char **devices = NULL, **again = NULL;
    size_t count = 0, count_again = 0, wire_size = 0;
    void *wire = NULL;

    if (muster_worker_status_unpack(mem, bytes, size, &devices, &count, NULL) != MUSTER_OK)
        return 0;
    write_again(devices, count, &wire, &wire_size);
    if (muster_worker_status_unpack(mem, wire, wire_size, &again, &count_again, NULL) !=
            MUSTER_OK ||
        count_again != count)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (strcmp(devices[i], again[i]) != 0)
            abort();
    }
    muster_worker_status_devices_free(mem, devices, count);
    muster_worker_status_devices_free(mem, again, count_again);
    muster_mem_free(mem, wire);
    return 0;
}
