/* A TopologyProto from a TPU worker: what was read must survive the way out. */
#include <stdlib.h>
#include <string.h>

#include <muster/tpu.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_tpu_topology *topology = NULL, *again = NULL;
    void *wire = NULL;
    size_t wire_size = 0;

    if (muster_tpu_topology_unpack(mem, bytes, size, &topology, NULL) != MUSTER_OK)
        return 0;
    if (muster_tpu_topology_pack(topology, mem, &wire, &wire_size) != MUSTER_OK ||
        muster_tpu_topology_unpack(mem, wire, wire_size, &again, NULL) != MUSTER_OK ||
        again->num_tasks != topology->num_tasks ||
        again->missing_device_count != topology->missing_device_count)
        abort();
    muster_tpu_topology_unref(again);
    muster_tpu_topology_unref(topology);
    muster_mem_free(mem, wire);
    return 0;
}
