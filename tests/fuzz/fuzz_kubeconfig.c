/* A kubeconfig, and any YAML: a secret that was read must not show in an error. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/platform/kubernetes/kubeconfig.h"

#define SECRET "s3cret"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* It stands at one place, a user's token: the search also puts it where names stand. */
static bool is_secret(const uint8_t *bytes, size_t size)
{
    static const char mark[] = "  user: {token: " SECRET;
    const uint8_t *token = memmem(bytes, size, mark, sizeof(mark) - 1);
    const uint8_t *first = memmem(bytes, size, SECRET, sizeof(SECRET) - 1);
    const uint8_t *behind;

    if (token == NULL)
        return false;
    behind = token + sizeof(mark) - 1;
    return first == behind - (sizeof(SECRET) - 1) &&
           memmem(behind, size - (size_t)(behind - bytes), SECRET, sizeof(SECRET) - 1) == NULL;
}

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
    } else if (error.rc != rc || error.text[0] == '\0') {
        abort();
    } else if (strstr(error.text, SECRET) != NULL && is_secret(bytes, size)) {
        abort();
    }
    return 0;
}
