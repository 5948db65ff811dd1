/* A job of which no member was left, and that has begun anew: what its members had done so far is
 * lost, but for what the program itself has kept. */
#include "run/report/anew.h"

#include "run/output/log.h"
#include "run/report/checkpoints.h"
#include "run/state/outcome.h"

#include <stdio.h>

static const char *plural_of(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* Tasks that run have reported from the new beginning already, or will do so. */
static void forget_steps(struct run *run)
{
    run->progress.step = 0;
    run_checkpoints_forget(run);
    for (uint32_t i = 0; i < run->task_count; i++)
        run->tasks[i].skipped_step = run->tasks[i].left_out_step = 0;
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].state != RUN_TASK_RUNNING)
            run->tasks[i].step = 0;
}

/* The first view of all is not news, nor is one that another member has reported. */
bool run_anew_is_news(const struct run *run, uint64_t epoch)
{
    return epoch > run->epoch_first && epoch > run->epoch_anew;
}

void run_anew_on_view(struct run *run, uint64_t epoch, uint64_t members)
{
    uint64_t step = run_outcome_committed(run);

    MUSTER_ASSERT(run_anew_is_news(run, epoch));
    run->epoch_anew = epoch;
    run->steps_undone += step;
    run->anew_step = step;
    if (run->anew_count < RUN_ANEW_MAX)
        run->anew_at[run->anew_count++] = step;
    forget_steps(run);
    run_log(run, MUSTER_LOG_WARN, "began_anew",
            RUN_FIELDS(MUSTER_FIELD("view", epoch), MUSTER_FIELD("members", members),
                       MUSTER_FIELD("step", step)),
            "the job begins anew, for none of its members was left: it stood at step %llu as last "
            "reported, %llu step%s lost unless a checkpoint has them, view %llu with %llu member%s",
            (unsigned long long)step, (unsigned long long)step, plural_of(step),
            (unsigned long long)epoch, (unsigned long long)members, plural_of(members));
    run->control->on_changed(run);
}

/* Each member says so; the first one counts. */
void run_anew_on_restored(struct run *run, const struct muster_json *report)
{
    uint64_t epoch = (uint64_t)muster_json_integer(muster_json_member(report, "view"));
    uint64_t step = (uint64_t)muster_json_integer(muster_json_member(report, "step"));
    uint64_t kept;
    char lost[48] = "";

    if (epoch <= run->epoch_restored)
        return;
    run->epoch_restored = epoch;
    kept = epoch != run->epoch_anew ? 0 : step < run->anew_step ? step : run->anew_step;
    run->steps_undone -= kept < run->steps_undone ? kept : run->steps_undone;
    if (epoch == run->epoch_anew)
        (void)snprintf(lost, sizeof(lost), ": %llu step%s lost",
                       (unsigned long long)(run->anew_step - kept),
                       plural_of(run->anew_step - kept));
    run_log(run, MUSTER_LOG_INFO, "restored",
            RUN_FIELDS(MUSTER_FIELD("view", epoch), MUSTER_FIELD("step", step)),
            "the job begins with the checkpoint of step %llu, view %llu%s",
            (unsigned long long)step, (unsigned long long)epoch, lost);
}

struct muster_json *run_anew_steps(const struct run *run)
{
    struct muster_json *steps = muster_json_array_new();

    for (size_t i = 0; i < run->anew_count; i++)
        if (!muster_json_append(steps, muster_json_integer_new((int64_t)run->anew_at[i])))
            break;
    return steps;
}
