/* The variables of JAX (jax.distributed.initialize): each is optional there, because its caller may
 * pass the value instead, so one of them is enough here. */
#include "resolvers/platform/launcher/world_resolver.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* "host:port"; process 0 listens there. strtoul(3) would take a sign or blanks before the digits,
 * which no dialled address can have. */
static enum muster_rc read_coordinator(struct muster_vars *vars, struct muster_world *world,
                                       struct muster_error *ret_error)
{
    static const char name[] = "JAX_COORDINATOR_ADDRESS";
    const char *text = muster_vars_get(vars, name);
    const char *colon = text != NULL ? strrchr(text, ':') : NULL;
    char *end = NULL;
    unsigned long port;

    if (text == NULL)
        return MUSTER_OK;
    port = colon != NULL && isdigit((unsigned char)colon[1]) ? strtoul(colon + 1, &end, 10) : 0;
    if (colon == NULL || colon == text || port == 0 || *end != '\0' || port > UINT16_MAX ||
        strlen(text) >= sizeof(world->coordinator))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                "%s must be host:port, got %.80s", name, text);
    memcpy(world->coordinator, text, strlen(text) + 1);
    world->coordinator_source = name;
    world->is_coordinator_first = true;
    return MUSTER_OK;
}

enum muster_rc muster_jax_world_read(struct muster_vars *vars, struct muster_world *ret_world,
                                     struct muster_error *ret_error)
{
    struct muster_world *world = ret_world;
    enum muster_rc rc = read_coordinator(vars, world, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_world_number(vars, "JAX_PROCESS_ID", &world->rank, &world->rank_source,
                                 ret_error);
    if (rc == MUSTER_OK)
        rc = muster_world_number(vars, "JAX_PROCESS_COUNT", &world->size, &world->size_source,
                                 ret_error);
    if (rc == MUSTER_OK) /* wins over JAX_PROCESS_COUNT */
        rc = muster_world_number(vars, "JAX_NUM_PROCESSES", &world->size, &world->size_source,
                                 ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (world->coordinator_source == NULL && world->rank_source == NULL &&
        world->size_source == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "no variable of JAX is set: set JAX_COORDINATOR_ADDRESS, "
                                "JAX_NUM_PROCESSES and JAX_PROCESS_ID, or name another resolver");
    if (world->rank_source != NULL && world->size_source != NULL)
        return muster_world_check(world, ret_error);
    return MUSTER_OK;
}
