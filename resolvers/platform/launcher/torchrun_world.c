/* The variables of torchrun ("Environment Variables" of its page), which `muster run` sets too.
 * MASTER_ADDR is the host of rank 0, where its store listens. */
#include "resolvers/platform/launcher/world_resolver.h"

#include <string.h>

enum muster_rc muster_torchrun_world_read(struct muster_vars *vars, struct muster_world *ret_world,
                                          struct muster_error *ret_error)
{
    const char *host = muster_vars_get(vars, "MASTER_ADDR");
    struct muster_world *world = ret_world;
    const char *port_source = NULL;
    uint32_t port = 0;
    enum muster_rc rc =
        muster_world_number(vars, "RANK", &world->rank, &world->rank_source, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_world_number(vars, "WORLD_SIZE", &world->size, &world->size_source, ret_error);
    if (rc == MUSTER_OK)
        rc = muster_world_number(vars, "MASTER_PORT", &port, &port_source, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (world->rank_source == NULL || world->size_source == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s is not set: start this program with `muster run -n N -- "
                                "PROGRAM` or torchrun, or name another resolver",
                                world->rank_source == NULL ? "RANK" : "WORLD_SIZE");
    if (host != NULL && port_source != NULL) {
        rc = muster_world_set_coordinator(world, host, port, ret_error);
        if (rc != MUSTER_OK)
            return rc;
        world->coordinator_source = "MASTER_ADDR, MASTER_PORT";
        world->is_coordinator_first = true;
    }
    return muster_world_check(world, ret_error);
}
