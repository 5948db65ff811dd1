/* What the results of the workers say together. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static void sort_recoveries(struct run *run, struct run_outcome *outcome)
{
    size_t count = run->recovery_count;

    if (count == 0)
        return;
    qsort(run->recoveries_ms, count, sizeof(double), compare_doubles);
    outcome->recovery_max_ms = run->recoveries_ms[count - 1];
    outcome->recovery_median_ms =
        (run->recoveries_ms[(count - 1) / 2] + run->recoveries_ms[count / 2]) / 2;
}

bool run_outcome_is_final(const struct run_outcome *outcome, const struct run_task *task)
{
    return task->has_result && task->steps == outcome->steps;
}

void run_outcome_gather(struct run *run, struct run_outcome *ret_outcome)
{
    struct run_outcome outcome = {.results = 0};
    const char *digest = NULL;
    bool is_same = true;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (!task->has_result)
            continue;
        outcome.steps = task->steps > outcome.steps ? task->steps : outcome.steps;
        outcome.steps_lost =
            task->steps_lost > outcome.steps_lost ? task->steps_lost : outcome.steps_lost;
    }
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
    outcome.is_identical = is_same && outcome.results > 0;
    outcome.is_different = !is_same;
    sort_recoveries(run, &outcome);
    *ret_outcome = outcome;
}
