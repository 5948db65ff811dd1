/* The event tls_peer_refused, and its reason. */
#include "refusal_log.h"

#include <stdio.h>
#include <string.h>

static void on_log(struct muster_log *log, enum muster_log_level level, uint64_t wall_ns,
                   const char *event, const struct muster_field *fields, size_t count)
{
    struct refusal_log *refusals = MUSTER_CONTAINER_OF(log, struct refusal_log, log);

    (void)level, (void)wall_ns;
    if (refusals->is_told || strcmp(event, "tls_peer_refused") != 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, "reason") == 0)
            (void)snprintf(refusals->reason, sizeof(refusals->reason), "%s", fields[i].text);
    refusals->is_told = true;
}

void refusal_log_init(struct refusal_log *refusals)
{
    static const struct muster_log_ops ops = {.write = on_log};

    *refusals = (struct refusal_log){.log = {.ops = &ops, .level_max = MUSTER_LOG_WARN}};
}
