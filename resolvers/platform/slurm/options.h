/* The options of a Slurm resolver: a copy of its own. */
#ifndef MUSTER_RESOLVERS_SLURM_OPTIONS_H
#define MUSTER_RESOLVERS_SLURM_OPTIONS_H

#include <muster/platforms.h>

struct muster_slurm_options {
    struct muster_slurm_resolver_options values; /* defaults filled in; `common` is not copied */
    /* private */
    struct muster_mem *mem;
    struct muster_slurm_job *jobs;
    struct muster_slurm_node *nodes;
    char *texts;
};

/** Copies. Errors: INVALID_ARGUMENT (a job or node without a name, too many GPUs),
 * RESOURCE_EXHAUSTED. */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_options_init(
    struct muster_slurm_options *options, struct muster_mem *mem,
    const struct muster_slurm_resolver_options *given, struct muster_error *ret_error);
/** All zero is accepted. */
void muster_slurm_options_fini(struct muster_slurm_options *options);

#endif
