/* SM_HOSTS with any text in it: a configuration or an error. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/platform/plain/sagemaker_hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = strndup((const char *)bytes, size);
    struct muster_sagemaker_hosts hosts = {.hosts = text, .current = "algo-1", .port = 2223};
    struct muster_json *config = NULL;
    struct muster_error error = {0};
    enum muster_rc rc;

    if (text == NULL)
        abort();
    rc = muster_sagemaker_hosts_parse(muster_mem_system(), &hosts, &config, &error);
    if ((rc == MUSTER_OK) != (config != NULL) || (rc != MUSTER_OK && error.text[0] == '\0'))
        abort();
    muster_json_free(config);
    free(text);
    return 0;
}
