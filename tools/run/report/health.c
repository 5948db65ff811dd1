/* The health of the job, for /healthz, the metrics and the status record: whether it trains, and if
 * not, why; and whether its steps are saved. The most lasting reason comes first. */
#include "run/report/health.h"

#include "run/report/activity.h"
#include "run/report/preemption.h"

#include <stdio.h>

/* A death in the middle of a checkpoint is an everyday failure; the next one is saved. */
#define CHECKPOINT_FAILURES_MAX 3u

static enum muster_rc health_refuse(struct muster_error *ret_error, const char *why)
{
    return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s", why);
}

static enum muster_rc health_refuse_stop(const struct run *run, struct muster_error *ret_error)
{
    char waited[184]; /* as much as the text has room for */

    if (!run_preemption_waits(run, waited, sizeof(waited)))
        return health_refuse(ret_error, "the job is preempted: its members stop");
    return muster_error_set(ret_error, MUSTER_UNAVAILABLE,
                            "the job is preempted: its members stop, and wait for %s", waited);
}

enum muster_rc run_health_check(const struct run *run, struct muster_error *ret_error)
{
    char why[400];

    if (run->failed != NULL)
        return muster_error_set(ret_error, MUSTER_UNAVAILABLE, "%s has failed: the job ends",
                                run->failed->name);
    if (run->state == RUN_STATE_STOPPING || run->stop_signal != 0)
        return health_refuse(ret_error, "the job is being ended");
    if (run->state == RUN_STATE_LEAVING)
        return health_refuse_stop(run, ret_error);
    if (run->state == RUN_STATE_REGROUPING)
        return health_refuse(ret_error, "all workers start again");
    if (run->state == RUN_STATE_DONE)
        return MUSTER_OK; /* all have ended with 0, or failed is set */
    if (run_task_count(run, RUN_TASK_FAILED) > 0) {
        snprintf(why, sizeof(why), "%u of %u workers have failed and have no restart left",
                 run_task_count(run, RUN_TASK_FAILED), run->task_count);
        return health_refuse(ret_error, why);
    }
    if (run->progress.members > 0 && run->progress.members < run->settings.members_min &&
        run_task_count(run, RUN_TASK_LEFT) == 0) {
        snprintf(why, sizeof(why), "%llu members, and --min-members is %llu",
                 (unsigned long long)run->progress.members,
                 (unsigned long long)run->settings.members_min);
        return health_refuse(ret_error, why);
    }
    if (run_activity_is_stuck(run, why, sizeof(why)))
        return health_refuse(ret_error, why);
    return MUSTER_OK;
}

/* The reason is the last part, as it may be cut. */
enum muster_rc run_health_check_checkpoints(const struct run *run, struct muster_error *ret_error)
{
    unsigned long long failures = run->checkpoints_failed_since;
    const char *why = run->checkpoint_failure;
    char last[64] = "none is whole yet", count[32] = "";
    bool is_lasting = failures >= CHECKPOINT_FAILURES_MAX;

    if (failures == 0)
        return MUSTER_OK;
    if (run->checkpoint_step != 0)
        snprintf(last, sizeof(last), "the last whole one is of step %llu",
                 (unsigned long long)run->checkpoint_step);
    if (failures > 1)
        snprintf(count, sizeof(count), ", %llu in a row", failures);
    return muster_error_set(ret_error, is_lasting ? MUSTER_UNAVAILABLE : MUSTER_OK,
                            "the checkpoint of step %llu failed%s; %s; %s",
                            (unsigned long long)run->checkpoint_failed_step, count, last,
                            why[0] != '\0' ? why : "the log of the workers has the reason");
}
