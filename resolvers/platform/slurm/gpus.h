/* The number of GPUs of this node. */
#ifndef MUSTER_RESOLVERS_SLURM_GPUS_H
#define MUSTER_RESOLVERS_SLURM_GPUS_H

#include <muster/command.h>
#include <muster/platforms.h>

struct muster_slurm_gpus;
typedef void muster_slurm_gpus_fn(struct muster_slurm_gpus *gpus, enum muster_rc rc);

/** Once known, it stays: set_gpus may change the variable that told it. */
struct muster_slurm_gpus {
    bool is_known;
    bool is_asking;
    uint32_t count;
    const char *source; /* static */
    struct muster_error error;
    /* private */
    muster_slurm_gpus_fn *done;
    struct muster_mem *mem;
    struct muster_command command;
};

/** Take the count from options or variables; else is_known stays false until asked. Errors:
 * INVALID_ARGUMENT (a variable is malformed), and those of options->count_gpus. */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_gpus_init(
    struct muster_slurm_gpus *gpus, struct muster_env *env,
    const struct muster_slurm_resolver_options *options, muster_slurm_gpus_fn *done,
    struct muster_error *ret_error);
/**
 * Run nvidia-smi, unless it runs; `done` comes when it has ended.
 *
 * Errors:  returned, with gpus->error: NOT_FOUND (no such tool: no GPUs, is_known is set), and those
 *          of muster_command_start; by done UNAVAILABLE (the tool failed), DEADLINE_EXCEEDED,
 *          CANCELLED.
 */
MUSTER_MUST_CHECK enum muster_rc muster_slurm_gpus_ask(struct muster_slurm_gpus *gpus,
                                                       struct muster_env *env);
void muster_slurm_gpus_cancel(struct muster_slurm_gpus *gpus);

#endif
