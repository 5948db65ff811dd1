/* The variables of Open MPI's mpirun. It gives no address of rank 0; JAX's OmpiCluster derives a
 * coordinator from the launcher's own URI, and this file follows it, so that programs of both agree
 * on one address. */
#include "resolvers/platform/launcher/world_resolver.h"

#include <stdlib.h>
#include <string.h>

#define HNP_URI       "OMPI_MCA_orte_hnp_uri"
#define PORT_FIRST    61440 /* the last 4096 ports, as JAX chooses */
#define PORT_COUNT    4096
#define JOB_ID_FACTOR 4096 /* job ids are multiples of it */

/* The launcher's own port is taken, so another one is derived from the job id: all tasks find the
 * same, and two jobs on a machine seldom do. */
bool muster_hnp_uri_parse(const char *uri, char *ret_host, size_t host_bytes, uint32_t *ret_port)
{
    static const struct {
        const char *prefix, *ends;
    } forms[] = {{"tcp://", ",:"}, {"tcp6://[", ",]"}};
    char *end = NULL;
    unsigned long long job_id = strtoull(uri, &end, 10);

    if (end == uri || *end != '.' || *uri < '0' || *uri > '9')
        return false;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *host = strstr(uri, forms[i].prefix);
        size_t length;

        if (host == NULL)
            continue;
        host += strlen(forms[i].prefix);
        length = strcspn(host, forms[i].ends);
        if (length == 0 || host[length] == '\0' || length >= host_bytes)
            return false;
        memcpy(ret_host, host, length);
        ret_host[length] = '\0';
        *ret_port = (uint32_t)(job_id / JOB_ID_FACTOR % PORT_COUNT) + PORT_FIRST;
        return true;
    }
    return false;
}

/* The machine of the launcher, which need not be the one of rank 0: so is_coordinator_first stays
 * false. */
static enum muster_rc read_coordinator(struct muster_vars *vars, struct muster_world *world,
                                       struct muster_error *ret_error)
{
    const char *uri = muster_vars_get(vars, HNP_URI);
    char host[256];
    uint32_t port;

    if (uri == NULL)
        return MUSTER_OK;
    if (!muster_hnp_uri_parse(uri, host, sizeof(host), &port))
        return muster_error_set(ret_error, MUSTER_INVALID_ARGUMENT,
                                HNP_URI " must be an address such as "
                                        "1531576320.0;tcp://10.0.0.1:34911, got %.80s",
                                uri);
    world->coordinator_source = HNP_URI;
    return muster_world_set_coordinator(world, host, port, ret_error);
}

enum muster_rc muster_openmpi_world_read(struct muster_vars *vars, struct muster_world *ret_world,
                                         struct muster_error *ret_error)
{
    struct muster_world *world = ret_world;
    enum muster_rc rc = muster_world_number(vars, "OMPI_COMM_WORLD_RANK", &world->rank,
                                            &world->rank_source, ret_error);

    if (rc == MUSTER_OK)
        rc = muster_world_number(vars, "OMPI_COMM_WORLD_SIZE", &world->size, &world->size_source,
                                 ret_error);
    if (rc == MUSTER_OK)
        rc = read_coordinator(vars, world, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (world->rank_source == NULL || world->size_source == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "%s is not set: start this program with mpirun, or name another "
                                "resolver",
                                world->rank_source == NULL ? "OMPI_COMM_WORLD_RANK"
                                                           : "OMPI_COMM_WORLD_SIZE");
    return muster_world_check(world, ret_error);
}
