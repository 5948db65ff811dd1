/* The result of the run, from the results of its workers: how many took part, whether those with
 * the most steps have the same weights, and how long the job stood still after losses. Nothing is
 * decided here; run.c and the summary read it. */
#include "run/state/outcome.h"

#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* The median of an even count is the mean of the two in the middle. */
static void sort_times(double *times, size_t count, double *ret_median, double *ret_max)
{
    if (count == 0)
        return;
    qsort(times, count, sizeof(double), compare_doubles);
    *ret_max = times[count - 1];
    *ret_median = (times[(count - 1) / 2] + times[count / 2]) / 2;
}

uint32_t run_outcome_took_part(const struct run *run)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->task_count; i++)
        count += run->tasks[i].took_part;
    return count;
}

bool run_outcome_has_begun(const struct run *run)
{
    return run_outcome_took_part(run) > 0;
}

bool run_outcome_is_idle(const struct run *run)
{
    bool uses_muster = false;

    for (uint32_t i = 0; i < run->task_count; i++)
        uses_muster = uses_muster || run->tasks[i].uses_muster;
    return uses_muster && !run_outcome_has_begun(run);
}

/* One death says little: the worker may not have come to its first report. Two without any report
 * are programs that do not use muster. */
bool run_outcome_is_foreign(const struct run *run)
{
    uint32_t dead = 0;

    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run->tasks[i].uses_muster)
            return false;
        dead += run->tasks[i].restarts > 0 || run->tasks[i].state == RUN_TASK_FAILED;
    }
    return dead > 1 && !run->settings.is_gang && !run->is_misuse;
}

/* The library tells of its activity from open to close; its last report is of close. */
bool run_outcome_is_silent(const struct run_task *task)
{
    bool is_open = task->activity.life == task->lives && task->activity.state[0] != '\0' &&
                   strcmp(task->activity.state, "close") != 0;

    return is_open && task->wait_status == 0 && task->has_committed && !task->has_result &&
           !task->is_unclosed && !task->is_too_late;
}

/* The task is not done, for sure or as far as is known. */
static bool has_left_its_work(const struct run_task *task)
{
    return task->state == RUN_TASK_LEFT && task->wait_status == 0 && !task->is_too_late &&
           !task->has_result && task->is_unclosed &&
           (task->is_in_step || task->is_silent || task->left_step < task->last_step);
}

/* Close, or an end with 0 behind a commit, says that the work is done: after so many steps. */
static bool has_ended_its_work(const struct run_task *task, uint64_t steps)
{
    bool is_unclosed = task->is_unclosed && !task->is_in_step && !task->is_silent &&
                       task->left_step >= task->last_step;

    return task->state == RUN_TASK_LEFT && !task->is_too_late &&
           ((task->has_result && task->steps >= steps) ||
            (is_unclosed && task->wait_status == 0 && task->left_step >= steps));
}

bool run_outcome_is_undone(const struct run *run)
{
    bool is_undone = false;
    uint64_t steps = 0;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (!has_left_its_work(task))
            continue;
        is_undone = true;
        steps = task->step > steps ? task->step : steps;
    }
    for (uint32_t i = 0; i < run->task_count && is_undone; i++)
        is_undone = !has_ended_its_work(&run->tasks[i], steps);
    return is_undone;
}

const struct run_task *run_outcome_find_skipper(const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].skipped_step != 0)
            return &run->tasks[i];
    return NULL;
}

const struct run_task *run_outcome_find_left_out(const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].left_out_step != 0)
            return &run->tasks[i];
    return NULL;
}

const struct run_task *run_outcome_find_runaway(const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].has_left_others)
            return &run->tasks[i];
    return NULL;
}

/* Ranks of a view are in the order of the tasks: the first one here that has done the last step was
 * rank 0 of it, if the job's first tasks are here. */
const struct run_task *run_outcome_find_unfinished(const struct run *run,
                                                   const struct run_outcome *outcome)
{
    if (run->settings.rank_first > 0 || outcome->results == 0)
        return NULL;
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run->tasks[i].undone_step >= outcome->steps)
            return &run->tasks[i];
        if (run_outcome_is_final(outcome, &run->tasks[i]))
            return NULL;
    }
    return NULL;
}

bool run_outcome_has_left_early(const struct run_outcome *outcome, const struct run_task *task)
{
    return task->state == RUN_TASK_LEFT && task->is_unclosed && !task->has_result &&
           task->wait_status == 0 &&
           (task->is_in_step || task->is_silent || task->left_step < outcome->steps ||
            task->left_step < task->last_step);
}

bool run_outcome_is_final(const struct run_outcome *outcome, const struct run_task *task)
{
    return task->has_result && task->steps == outcome->steps;
}

uint64_t run_outcome_committed(const struct run *run)
{
    uint64_t steps = run->progress.step;

    for (uint32_t i = 0; i < run->task_count; i++)
        steps = run->tasks[i].step > steps ? run->tasks[i].step : steps;
    return steps;
}

/* Two passes: the largest number of steps must be known before the weights after that step are
 * compared. A machine elsewhere with other weights (weights.c) makes the outcome different, too. */
void run_outcome_gather(struct run *run, struct run_outcome *ret_outcome)
{
    struct run_outcome outcome = {.results = 0};
    const char *digest = NULL;
    bool is_same = true;
    bool has_result = false;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (!task->has_result)
            continue;
        has_result = true;
        outcome.steps = task->steps > outcome.steps ? task->steps : outcome.steps;
        outcome.steps_lost =
            task->steps_lost > outcome.steps_lost ? task->steps_lost : outcome.steps_lost;
    }
    if (!has_result)
        outcome.steps = run_outcome_committed(run);
    outcome.steps_lost += run->steps_undone;
    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (!run_outcome_is_final(&outcome, task))
            continue;
        if (outcome.results++ == 0) {
            digest = task->digest;
            outcome.values = &task->results;
        }
        is_same = is_same && strcmp(digest, task->digest) == 0;
    }
    is_same = is_same && !run->is_different_elsewhere;
    outcome.is_stateless = is_same && outcome.results > 0 && digest[0] == '\0';
    outcome.is_identical = is_same && outcome.results > 0 && !outcome.is_stateless;
    outcome.is_different = !is_same;
    sort_times(run->recoveries_ms, run->recovery_count, &outcome.recovery_median_ms,
               &outcome.recovery_max_ms);
    sort_times(run->detections_ms, run->detection_count, &outcome.detection_median_ms,
               &outcome.detection_max_ms);
    *ret_outcome = outcome;
}
