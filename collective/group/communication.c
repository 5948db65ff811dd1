/* Communication options as values. */
#include <muster/view.h>

#include <stddef.h>
#include <strings.h>

static const char *const names[] = {
    [MUSTER_COMMUNICATION_AUTO] = "AUTO",
    [MUSTER_COMMUNICATION_RING] = "RING",
    [MUSTER_COMMUNICATION_NCCL] = "NCCL",
};

#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

const char *muster_communication_name(enum muster_communication implementation)
{
    return (size_t)implementation < NAME_COUNT ? names[implementation] : "unknown";
}

enum muster_rc muster_communication_parse(const char *text,
                                          enum muster_communication *ret_implementation,
                                          struct muster_error *ret_error)
{
    for (size_t i = 0; i < NAME_COUNT; i++)
        if (strcasecmp(names[i], text) == 0) {
            *ret_implementation = (enum muster_communication)i;
            return MUSTER_OK;
        }
    return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                            "communication '%.40s': use one of AUTO, RING, NCCL", text);
}

struct muster_communication_options muster_communication_merge(
    const struct muster_communication_options *under,
    const struct muster_communication_options *over)
{
    struct muster_communication_options merged = {.timeout_ns = 0};

    if (under != NULL)
        merged = *under;
    if (over == NULL)
        return merged;
    if (over->implementation != MUSTER_COMMUNICATION_AUTO)
        merged.implementation = over->implementation;
    if (over->bytes_per_pack != 0)
        merged.bytes_per_pack = over->bytes_per_pack;
    if (over->timeout_ns != 0)
        merged.timeout_ns = over->timeout_ns;
    return merged;
}
