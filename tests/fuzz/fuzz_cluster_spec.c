/* Text and wire form of a cluster: whatever comes in, and back again. */
#include <muster/cluster_spec.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* A spec that was read must survive both ways out. */
static void check_spec(struct muster_cluster_spec *spec)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_cluster_spec *again = NULL;
    char *text = NULL;
    void *wire = NULL;
    size_t wire_size = 0;

    if (muster_cluster_spec_format(spec, mem, &text) != MUSTER_OK ||
        muster_cluster_spec_parse(mem, text, strlen(text), &again, NULL) != MUSTER_OK ||
        !muster_cluster_spec_is_equal(spec, again))
        abort();
    muster_cluster_spec_unref(again);
    again = NULL;
    if (muster_cluster_spec_pack(spec, mem, &wire, &wire_size) != MUSTER_OK ||
        muster_cluster_spec_unpack(mem, wire, wire_size, &again, NULL) != MUSTER_OK ||
        !muster_cluster_spec_is_equal(spec, again))
        abort();
    muster_cluster_spec_unref(again);
    muster_cluster_spec_unref(spec);
    muster_mem_free(mem, wire);
    muster_mem_free(mem, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_cluster_spec *spec = NULL;

    if (muster_cluster_spec_parse(mem, (const char *)bytes, size, &spec, NULL) == MUSTER_OK)
        check_spec(spec);
    if (muster_cluster_spec_unpack(mem, bytes, size, &spec, NULL) == MUSTER_OK)
        check_spec(spec);
    return 0;
}
