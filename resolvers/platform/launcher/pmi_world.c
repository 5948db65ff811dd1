/* The variables of PMI (MPICH, Intel MPI, srun --mpi=pmi2) and PMIx: no address at all. */
#include "resolvers/platform/launcher/world_resolver.h"

enum muster_rc muster_pmi_world_read(struct muster_vars *vars, struct muster_world *ret_world,
                                     struct muster_error *ret_error)
{
    /* The last one that is set counts. PMIx has no variable for the size (a client asks its
     * server), so those of the launchers stand in for it. */
    static const char *const ranks[] = {"PMIX_RANK", "PMI_RANK"};
    static const char *const sizes[] = {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    struct muster_world *world = ret_world;
    enum muster_rc rc = MUSTER_OK;

    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]) && rc == MUSTER_OK; i++)
        rc = muster_world_number(vars, ranks[i], &world->rank, &world->rank_source, ret_error);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && rc == MUSTER_OK; i++)
        rc = muster_world_number(vars, sizes[i], &world->size, &world->size_source, ret_error);
    if (rc != MUSTER_OK)
        return rc;
    if (world->rank_source == NULL)
        return muster_error_set(ret_error, MUSTER_FAILED_PRECONDITION,
                                "neither PMI_RANK nor PMIX_RANK is set: start this program with "
                                "mpiexec, or name another resolver");
    return world->size_source != NULL ? muster_world_check(world, ret_error) : MUSTER_OK;
}
