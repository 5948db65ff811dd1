/* Pages of instances, and instances, of the Compute Engine API. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/platform/gce/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_gce_instances instances;
    struct muster_error error = {.rc = MUSTER_OK};
    char ip[48];

    muster_gce_instances_init(&instances, muster_mem_system());
    if (muster_gce_instances_add_page(&instances, (const char *)bytes, size, &error) != MUSTER_OK &&
        error.text[0] == '\0')
        abort();
    for (size_t i = 0; i < instances.count; i++) {
        if (instances.names[i][0] == '\0' || strchr(instances.names[i], '/') != NULL)
            abort();
    }
    muster_gce_instances_fini(&instances);
    if (muster_gce_instance_ip((const char *)bytes, size, sizeof(ip), ip, NULL) == MUSTER_OK &&
        memchr(ip, '\0', sizeof(ip)) == NULL)
        abort();
    return 0;
}
