/* The base of the registry client: choice of the endpoint, waits between attempts, the end of
 * closing. The other files of the client call it, and it calls none of them. */
#include "cluster/client/registry_client_internal.h"

#include <string.h>

#include "runtime/value/backoff.h"

/* gRPC's growth and jitter of waits (doc/connection-backoff.md), in permille. */
#define BACKOFF_GROWTH 1600
#define BACKOFF_JITTER 200

const char *muster_registry_without_scheme(const char *endpoint)
{
    static const char *const schemes[] = {"http://", "https://", "etcd://"};

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strncmp(endpoint, schemes[i], strlen(schemes[i])) == 0)
            return endpoint + strlen(schemes[i]);
    }
    return endpoint;
}

const char *muster_registry_variable(const struct muster_registry *registry, const char *name)
{
    struct muster_vars *vars = registry->env->vars;
    const char *value = vars != NULL ? muster_vars_get(vars, name) : NULL;

    return value != NULL && value[0] != '\0' ? value : NULL;
}

void muster_registry_leave_endpoint(struct muster_registry *registry, size_t endpoint)
{
    MUSTER_ASSERT(endpoint < registry->channel_count);
    /* Many calls fail together when an endpoint goes; only the first of them moves on. */
    if (registry->current != endpoint || registry->channel_count < 2)
        return;
    registry->current = (endpoint + 1) % registry->channel_count;
    MUSTER_LOG(registry->env, DEBUG, "registry_endpoint_left", "endpoint", endpoint, "next",
               registry->current);
}

uint64_t muster_registry_backoff(struct muster_registry *registry, uint64_t *backoff_ns)
{
    uint64_t base_ns = registry->options.backoff_base_ns;
    uint64_t max_ns = registry->options.backoff_max_ns;
    /* A caller may set the base alone, above the default of the maximum: then each wait is the
     * base. */
    const struct muster_backoff backoff = {.first_ns = base_ns,
                                           .max_ns = max_ns > base_ns ? max_ns : base_ns,
                                           .growth_permille = BACKOFF_GROWTH,
                                           .jitter_permille = BACKOFF_JITTER};

    return muster_backoff_next(&backoff, backoff_ns, registry->env->rng);
}

/* The close callback comes in a turn of its own, after every part that could still touch the
 * client. */
void muster_registry_check_closed(struct muster_registry *registry)
{
    if (registry->is_closing && registry->channels_open == 0 &&
        muster_list_is_empty(&registry->requests) && muster_list_is_empty(&registry->watches) &&
        muster_list_is_empty(&registry->snapshots) && !registry->auth.is_asking)
        muster_task_post(&registry->close_task, registry->env->loop);
}
