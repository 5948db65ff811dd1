/* Host lists, tasks per node and GPU lists with any text in them. */
#include <stdlib.h>
#include <string.h>

#include <muster/platforms.h>

#include "resolvers/platform/slurm/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_hosts(const char *text)
{
    struct muster_slurm_hosts hosts;
    struct muster_error error = {0};

    if (muster_slurm_hosts_parse(&hosts, muster_mem_system(), text, &error) != MUSTER_OK) {
        if (error.text[0] == '\0')
            abort();
        return;
    }
    if (hosts.count > MUSTER_SLURM_HOSTS_MAX)
        abort();
    for (size_t i = 0; i < hosts.count; i++) {
        if (strlen(hosts.names[i]) > 255 || strpbrk(hosts.names[i], "[], \n\t") != NULL)
            abort();
    }
    muster_slurm_hosts_fini(&hosts);
}

static void read_numbers(const char *text)
{
    uint32_t *counts = NULL;
    size_t count = 0;
    uint32_t gpus = 0;

    if (muster_slurm_counts_parse(muster_mem_system(), text, &counts, &count, NULL) == MUSTER_OK &&
        count > MUSTER_SLURM_HOSTS_MAX)
        abort();
    muster_mem_free(muster_mem_system(), counts);
    if (muster_slurm_gpus_count(text, &gpus) && gpus > MUSTER_SLURM_NODE_GPUS_MAX)
        abort();
    if (muster_cuda_devices_count(text) > MUSTER_SLURM_NODE_GPUS_MAX ||
        muster_gpu_lines_count(text) > MUSTER_SLURM_NODE_GPUS_MAX)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = strndup((const char *)bytes, size);

    if (text == NULL)
        abort();
    read_hosts(text);
    read_numbers(text);
    free(text);
    return 0;
}
