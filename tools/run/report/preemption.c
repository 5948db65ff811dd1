/* The words on a preempted run at its end. */
#include "run/report/preemption.h"

#include "run/output/log.h"

const struct run_task *run_preemption_find(const struct run *run)
{
    const struct run_task *best = NULL;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (task->is_preempted && (best == NULL || (task->is_saved && !best->is_saved)))
            best = task;
    }
    return best;
}

bool run_preemption_tell(struct run *run)
{
    const struct run_task *task = run_preemption_find(run);
    const char *folder = run->settings.checkpoint_dir;

    if (task == NULL)
        return false;
    if (task->is_saved && folder != NULL)
        run_tell(
            run,
            "preempted after step %llu, which is saved in %s: the same command goes on from there",
            (unsigned long long)task->step, folder);
    else if (task->is_saved) /* where, the program has said to its members alone */
        run_tell(run,
                 "preempted after step %llu, which is saved in the program's own folder: the same "
                 "command goes on from there",
                 (unsigned long long)task->step);
    else
        run_tell(run, "preempted after step %llu; nothing is saved",
                 (unsigned long long)task->step);
    return true;
}

struct muster_json *run_preemption_json(const struct run *run)
{
    const struct run_task *task = run_preemption_find(run);
    struct muster_json *object;

    if (task == NULL)
        return muster_json_null_new();
    object = muster_json_object_new();
    if (muster_json_set(object, "step", muster_json_integer_new((int64_t)task->step)) &&
        muster_json_set(object, "saved", muster_json_bool_new(task->is_saved)))
        return object;
    muster_json_free(object);
    return NULL;
}
