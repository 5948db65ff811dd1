/* Variables of a launcher read as numbers and addresses: what the readers of all launchers share.
 * Errors name the variable, because its value is the user's or the launcher's. */
#include "resolvers/platform/launcher/world_resolver.h"

#include "resolvers/spec/spec_internal.h"

#include <stdio.h>
#include <string.h>

enum muster_rc muster_world_number(struct muster_vars *vars, const char *name, uint32_t *ret_value,
                                   const char **ret_source, struct muster_error *ret_error)
{
    const char *text = muster_vars_get(vars, name);
    int64_t value = 0;

    if (text == NULL)
        return MUSTER_OK;
    if (!muster_integer_parse(text, &value) || value < 0 || value >= UINT32_MAX)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be a whole number from 0 on, got %.60s", name, text);
    *ret_value = (uint32_t)value;
    *ret_source = name;
    return MUSTER_OK;
}

enum muster_rc muster_world_check(const struct muster_world *world, struct muster_error *ret_error)
{
    if (world->rank >= world->size)
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s=%u is outside %s=%u: ranks go from 0 to one below the size",
                                world->rank_source, world->rank, world->size_source, world->size);
    return MUSTER_OK;
}

enum muster_rc muster_world_set_coordinator(struct muster_world *world, const char *host,
                                            uint32_t port, struct muster_error *ret_error)
{
    bool is_bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
    int length = snprintf(world->coordinator, sizeof(world->coordinator),
                          is_bare_ipv6 ? "[%s]:%u" : "%s:%u", host, port);

    if (host[0] == '\0' || port == 0 || port > UINT16_MAX ||
        (size_t)length >= sizeof(world->coordinator))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "'%.60s' with port %u is not an address of a coordinator", host,
                                port);
    return MUSTER_OK;
}
