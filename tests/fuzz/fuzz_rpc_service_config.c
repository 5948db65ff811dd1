/* gRPC's service config, as an operator or a name server would hand it to a channel. */
#include <stdlib.h>
#include <string.h>

#include "net/grpc/client/method_policy.h"
#include "net/grpc/client/retry.h"
#include "net/grpc/client/service_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* An accepted configuration can be used: policies are whole, or refused by name. */
static void use_config(const struct muster_service_config *config)
{
    struct muster_channel_options options = {.authority = NULL};
    struct muster_method_policy_table table;
    struct muster_error error = {.rc = MUSTER_OK};

    muster_service_config_apply(config, &options);
    for (size_t i = 0; i < options.method_policy_count; i++) {
        if (muster_retry_policy_check(&options.method_policies[i].retry, NULL) != MUSTER_OK)
            abort();
    }
    if (muster_method_policy_table_init(&table, muster_mem_system(), options.method_policies,
                                        options.method_policy_count, &error) != MUSTER_OK) {
        if (error.text[0] == '\0')
            abort();
        return;
    }
    if (options.method_policy_count > 0 &&
        muster_method_policy_table_find(&table, options.method_policies[0].method) == NULL)
        abort();
    muster_method_policy_table_fini(&table, muster_mem_system());
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct muster_service_config config;
    struct muster_error error = {.rc = MUSTER_OK};
    char *text = muster_mem_strndup(muster_mem_system(), (const char *)bytes, size);

    if (text == NULL)
        return 0;
    if (muster_service_config_init(&config, muster_mem_system(), text, &error) == MUSTER_OK) {
        use_config(&config);
        muster_service_config_fini(&config);
    } else if (error.text[0] == '\0') {
        abort();
    }
    muster_mem_free(muster_mem_system(), text);
    return 0;
}
