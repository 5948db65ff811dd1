/* A kubeconfig, and any YAML: a secret that was read must not show in an error. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/kubeconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_mem *mem = muster_mem_system();
    struct muster_kubeconfig_file file = {
        .path = "/k/config", .text = (const char *)bytes, .size = size};
    struct muster_kubeconfig config;
    struct muster_error error = {.rc = MUSTER_OK};
    enum muster_rc rc = muster_kubeconfig_parse(mem, &file, 1, NULL, &config, &error);

    if (rc == MUSTER_OK) {
        if (config.server == NULL || config.context == NULL)
            abort();
        muster_kubeconfig_fini(&config);
    } else if (error.rc != rc || error.text[0] == '\0' || strstr(error.text, "s3cret") != NULL) {
        abort();
    }
    return 0;
}
