/* The count of the checkpoints of the job. */
#include "run/report/checkpoints.h"

#include <stdio.h>

#include <muster/env.h>

static uint64_t number_of(const struct muster_json *report, const char *name)
{
    int64_t value = muster_json_integer(muster_json_member(report, name));

    return value > 0 ? (uint64_t)value : 0;
}

static void checkpoint_fail(struct run *run, uint64_t step, const char *why)
{
    if (step <= run->checkpoint_failed_step)
        return;
    run->checkpoints_failed++;
    run->checkpoints_failed_since++;
    run->checkpoint_failed_step = step;
    (void)snprintf(run->checkpoint_failure, sizeof(run->checkpoint_failure), "%s",
                   why != NULL ? why : "");
}

/* Each member tells of its end, perhaps after others have told of the next one: the first word on a step counts. */
void run_checkpoints_on_report(struct run *run, const struct muster_json *report)
{
    uint64_t step = number_of(report, "step");

    if (!muster_json_is_true(muster_json_member(report, "saved"))) {
        checkpoint_fail(run, step, muster_json_text(muster_json_member(report, "why")));
        return;
    }
    if (step <= run->checkpoint_step)
        return;
    run->checkpoints_saved++;
    if (step > run->checkpoint_failed_step)
        run->checkpoints_failed_since = 0;
    run->checkpoint_step = step;
    run->checkpoint_wall_ns = muster_host_wall_ns(run->env->host);
    run->checkpoint_duration_ns = number_of(report, "duration_ns");
}

void run_checkpoints_forget(struct run *run)
{
    run->checkpoint_step = run->checkpoint_failed_step = run->checkpoints_failed_since = 0;
    run->checkpoint_failure[0] = '\0';
}
