/* Nodes and discovery documents of the TPU API, endpoint lists, times. */
#include <stdlib.h>
#include <string.h>

#include "resolvers/spec/task_address.h"
#include "resolvers/platform/tpu/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_node(const char *text, size_t size)
{
    static const struct muster_tpu_recovery recovery;
    struct muster_tpu_node *node = NULL;
    struct muster_error error = {.rc = MUSTER_OK};

    if (muster_tpu_node_parse(muster_mem_system(), text, size, &node, &error) == MUSTER_OK)
        (void)muster_tpu_node_is_recoverable(node, &recovery, UINT64_C(1714557600000000000));
    else if (error.text[0] == '\0')
        abort();
    muster_tpu_node_unref(node);
}

static void read_endpoints(const char *text)
{
    struct muster_tpu_endpoint *endpoints = NULL, *again = NULL;
    size_t count = 0, count_again = 0;
    char formatted[300];

    if (muster_tpu_endpoints_parse(muster_mem_system(), text, &endpoints, &count, NULL) !=
        MUSTER_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        if (!muster_task_address_format(endpoints[i].host, endpoints[i].port, sizeof(formatted),
                                        formatted) ||
            muster_tpu_endpoints_parse(muster_mem_system(), formatted, &again, &count_again,
                                       NULL) != MUSTER_OK ||
            strcmp(again->host, endpoints[i].host) != 0 || again->port != endpoints[i].port)
            abort();
        muster_mem_free(muster_mem_system(), again);
    }
    muster_mem_free(muster_mem_system(), endpoints);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char *text = malloc(size + 1), *url = NULL;
    uint64_t ns;

    if (text == NULL)
        return 0;
    memcpy(text, bytes, size);
    text[size] = '\0';
    read_node(text, size);
    read_endpoints(text);
    (void)muster_tpu_time_parse(text, &ns);
    if (muster_tpu_discovery_parse(muster_mem_system(), text, size, "projects/p", &url, NULL) ==
        MUSTER_OK)
        muster_mem_free(muster_mem_system(), url);
    free(text);
    return 0;
}
