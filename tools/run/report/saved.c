/* The checkpoints of a run, at its end. */
#include "run/report/saved.h"

#include "run/output/log.h"

#include <muster/checkpoint.h>

/* The step of the newest checkpoint with a manifest; 0: none, or the folder cannot be read. */
static uint64_t newest_step(struct run *run)
{
    struct muster_checkpoint_entry *entries = NULL;
    struct muster_error error;
    size_t count = 0;
    uint64_t step = 0;

    if (muster_checkpoint_list(run->env->mem, run->settings.checkpoint_dir, &entries, &count,
                               &error) != MUSTER_OK)
        return 0;
    for (size_t i = 0; i < count && step == 0; i++)
        step = entries[i].has_manifest ? entries[i].name.step : 0;
    muster_mem_free(run->env->mem, entries);
    return step;
}

void run_saved_tell(struct run *run, uint64_t last_step)
{
    const char *folder = run->settings.checkpoint_dir;
    uint64_t step = folder != NULL ? newest_step(run) : 0;

    if (folder == NULL || last_step == 0)
        return;
    if (step == last_step)
        run_tell(run, "step %llu is saved in %s", (unsigned long long)step, folder);
    else if (step != 0)
        run_log(run, MUSTER_LOG_WARN, "not_saved",
                RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("saved_step", step)),
                "step %llu is not saved: the newest checkpoint in %s is of step %llu",
                (unsigned long long)last_step, folder, (unsigned long long)step);
    else
        run_log(run, MUSTER_LOG_WARN, "not_saved", RUN_FIELDS(MUSTER_FIELD("step", last_step)),
                "step %llu is not saved: %s has no checkpoint", (unsigned long long)last_step,
                folder);
}
