/* PodLists and watch events of an API server. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/platform/kubernetes/pods.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_kubernetes_pods pods;
    struct muster_kubernetes_event event;
    struct muster_error error = {.rc = MUSTER_OK};

    muster_kubernetes_pods_init(&pods, muster_mem_system());
    if (muster_kubernetes_pods_add_page(&pods, (const char *)bytes, size, &error) == MUSTER_OK) {
        muster_kubernetes_pods_sort(&pods);
        for (size_t i = 1; i < pods.count; i++) {
            if (strcmp(pods.pods[i - 1].name, pods.pods[i].name) > 0)
                abort();
        }
    } else if (error.text[0] == '\0') {
        abort();
    }
    muster_kubernetes_pods_fini(&pods);
    if (muster_kubernetes_event_parse((const char *)bytes, size, &event, NULL) == MUSTER_OK &&
        memchr(event.resource_version, '\0', sizeof(event.resource_version)) == NULL)
        abort();
    return 0;
}
