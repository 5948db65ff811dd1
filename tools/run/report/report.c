/* Lines of JSON that workers write on MUSTER_REPORT_FD (docs/protocol.md).
 *
 * Workers may be of another version, or written by hand, so nothing here trusts a report: unknown
 * kinds and fields are passed over, numbers below 0 count as 0, and a line that is not JSON is
 * dropped. */
#include "run/report/report.h"

#include "run/output/log.h"
#include "run/registry/roll.h"
#include "run/report/activity.h"
#include "run/report/anew.h"
#include "run/report/checkpoints.h"
#include "run/report/events.h"
#include "run/report/progress.h"
#include "run/report/recovery.h"
#include "run/report/saved.h"

#include <stdlib.h>
#include <string.h>

/* The newest value of each name is kept, in the order in which the names came first. */
static void read_values(struct run_values *values, const struct muster_json *map)
{
    struct muster_json_walk walk;

    for (bool more = muster_json_walk_first(&walk, map); more;
         more = muster_json_walk_next(&walk)) {
        enum muster_json_kind kind = muster_json_kind(walk.value);
        size_t at = 0;

        if (kind != MUSTER_JSON_INTEGER && kind != MUSTER_JSON_REAL)
            continue;
        while (at < values->count && strcmp(values->at[at].name, walk.name) != 0)
            at++;
        if (at == RUN_VALUES_MAX || strlen(walk.name) >= RUN_VALUE_NAME_BYTES)
            continue;
        strcpy(values->at[at].name, walk.name);
        values->at[at].value = muster_json_number(walk.value);
        if (at == values->count)
            values->count++;
    }
}

static uint64_t number_of(const struct muster_json *report, const char *name)
{
    int64_t value = muster_json_integer(muster_json_member(report, name));

    return value > 0 ? (uint64_t)value : 0;
}

static void note_epoch(struct run *run, const struct muster_json *report)
{
    uint64_t epoch = number_of(report, "epoch");

    if (run->epoch_first == 0)
        run->epoch_first = epoch;
    if (epoch > run->epoch_last)
        run->epoch_last = epoch;
}

/* A member that lags behind reports older steps: the step of the job only grows. */
static void on_progress(struct run_task *task, const struct muster_json *report)
{
    struct run_progress *progress = &task->run->progress;

    if (!task->has_committed)
        run_roll_add(task->run->roll, task->name);
    task->has_committed = true;
    task->took_part = true;
    task->step = number_of(report, "step");
    if (task->step < progress->step)
        return;
    progress->step = task->step;
    progress->epoch = number_of(report, "epoch");
    progress->members = number_of(report, "members");
    if (progress->members > task->run->members_max)
        task->run->members_max = progress->members;
    progress->is_changed = true;
    read_values(&progress->values, muster_json_member(report, "values"));
    run_progress_on_report(task->run);
    run_events_on_step(task->run);
}

static void on_result(struct run_task *task, const struct muster_json *report)
{
    const char *digest = muster_json_text(muster_json_member(report, "digest"));

    task->has_result = task->run->has_results = true;
    task->undone_step = 0;
    task->steps = number_of(report, "steps");
    task->took_part = task->took_part || task->steps > 0;
    if (task->steps > task->step)
        task->step = task->steps;
    task->steps_lost = number_of(report, "steps_lost");
    snprintf(task->digest, sizeof(task->digest), "%s", digest != NULL ? digest : "");
    read_values(&task->results, muster_json_member(report, "values"));
}

/* The reason is told at once: the death, or an end with 0, comes later and does not know it. */
static void on_abandoned(struct run_task *task, const struct muster_json *report)
{
    const char *why = muster_json_text(muster_json_member(report, "reason"));

    task->is_abandoned = true;
    run_tell(task->run, "%s gives up in step %llu: %s", task->name,
             (unsigned long long)number_of(report, "step"), why != NULL ? why : "");
}

static void on_unclosed(struct run_task *task, const struct muster_json *report)
{
    task->is_unclosed = true;
    task->left_step = number_of(report, "step");
    task->is_in_step = muster_json_is_true(muster_json_member(report, "in_step"));
    task->last_step = number_of(report, "last_step");
}

/* Its state is not what all have made from now on: the run fails, however it ends, unless the job begins anew. */
static void on_skipped(struct run_task *task, const struct muster_json *report)
{
    uint64_t step = number_of(report, "step");

    if (task->skipped_step != 0)
        return;
    task->skipped_step = step;
    run_log(task->run, MUSTER_LOG_WARN, "skipped",
            RUN_FIELDS(MUSTER_FIELD("task", task->name), MUSTER_FIELD("step", step)),
            "%s committed step %llu without an operation that others waited for: all members must "
            "call the "
            "same operations in a step",
            task->name, (unsigned long long)step);
}

/* The member that left cannot be asked any more: neither its result nor this one's is that of all. */
static void on_left_out(struct run_task *task, const struct muster_json *report)
{
    const char *why = muster_json_text(muster_json_member(report, "why"));

    if (task->left_out_step == 0)
        run_log(task->run, MUSTER_LOG_WARN, "left_out",
                RUN_FIELDS(MUSTER_FIELD("task", task->name),
                           MUSTER_FIELD("step", number_of(report, "step"))),
                "%s called an operation in step %llu that a member that had already left did not "
                "call: all members must call the same operations in a step",
                task->name, (unsigned long long)number_of(report, "step"));
    task->left_out_step = number_of(report, "step");
    task->is_refused = true;
    snprintf(task->refusal, sizeof(task->refusal), "%s", why != NULL ? why : "");
}

static void on_delivered(struct run_task *task, const struct muster_json *report)
{
    struct run_epoch *epoch = run_recovery_on_delivered(task, report);

    if (epoch != NULL)
        run_events_look(epoch);
}

static void on_trace(struct run_task *task, const struct muster_json *report)
{
    const char *path = muster_json_text(muster_json_member(report, "file"));

    free(task->trace_file);
    task->trace_file = path != NULL ? strdup(path) : NULL;
}

/* The job had ended when this worker came back; run.c decides whether that is a failure. */
static void on_over(struct run_task *task)
{
    task->is_too_late = true;
    run_log(task->run, MUSTER_LOG_WARN, "too_late", RUN_FIELDS(MUSTER_FIELD("task", task->name)),
            "%s came back too late: the others have finished", task->name);
}

/* The others cannot work with this worker, for example because its plan differs: no other life
 * would change that. An empty reason takes it back: the program has asked for something else. */
static void on_refused(struct run_task *task, const struct muster_json *report)
{
    const char *why = muster_json_text(muster_json_member(report, "why"));

    task->is_refused = why == NULL || why[0] != '\0';
    snprintf(task->refusal, sizeof(task->refusal), "%s", why != NULL ? why : "");
}

static void on_preempted(struct run_task *task, const struct muster_json *report)
{
    task->is_preempted = true;
    task->is_saved = muster_json_is_true(muster_json_member(report, "saved"));
    if (number_of(report, "step") > task->step)
        task->step = number_of(report, "step");
    task->run->control->on_preempted(task);
}

/* The work is done, and lost unless another member saves it: the end tells. */
static void on_unsaved(struct run_task *task, const struct muster_json *report)
{
    const char *why = muster_json_text(muster_json_member(report, "why"));

    task->unsaved_step = number_of(report, "step");
    snprintf(task->unsaved, sizeof(task->unsaved), "%s",
             why != NULL && why[0] != '\0' ? why : "no reason is known");
}

static void on_report(struct run_task *task, const struct muster_json *report)
{
    const char *kind = muster_json_text(muster_json_member(report, "report"));

    if (kind == NULL)
        return;
    if (!task->has_reported)
        task->run->control->on_opened(task);
    task->has_reported = task->uses_muster = true;
    if (strcmp(kind, "activity") !=
        0) /* before it is a member, a worker may know views of former runs */
        note_epoch(task->run, report);
    if (strcmp(kind, "progress") == 0)
        on_progress(task, report);
    else if (strcmp(kind, "activity") == 0)
        run_activity_on_report(task, report);
    else if (strcmp(kind, "view") == 0)
        run_events_on_view(task, report);
    else if (strcmp(kind, "restored") == 0)
        run_anew_on_restored(task->run, report);
    else if (strcmp(kind, "rejoined") == 0)
        run_events_on_joined(task, report);
    else if (strcmp(kind, "result") == 0)
        on_result(task, report);
    else if (strcmp(kind, "delivered") == 0)
        on_delivered(task, report);
    else if (strcmp(kind, "dying") == 0)
        task->dying_ns = number_of(report, "at_ns");
    else if (strcmp(kind, "abandoned") == 0)
        on_abandoned(task, report);
    else if (strcmp(kind, "unclosed") == 0)
        on_unclosed(task, report);
    else if (strcmp(kind, "trace") == 0)
        on_trace(task, report);
    else if (strcmp(kind, "skipped") == 0)
        on_skipped(task, report);
    else if (strcmp(kind, "left_out") == 0)
        on_left_out(task, report);
    else if (strcmp(kind, "over") == 0)
        on_over(task);
    else if (strcmp(kind, "preempted") == 0)
        on_preempted(task, report);
    else if (strcmp(kind, "checkpoint_dir") == 0)
        run_saved_on_folder(task->run, muster_json_text(muster_json_member(report, "folder")));
    else if (strcmp(kind, "checkpoint") == 0)
        run_checkpoints_on_report(task->run, report);
    else if (strcmp(kind, "unsaved") == 0)
        on_unsaved(task, report);
    else if (strcmp(kind, "refused") == 0)
        on_refused(task, report);
}

/* A malformed line is a mistake of the worker, and not a reason to stop. */
void run_report_line(void *data, const char *line, size_t length)
{
    struct run_stream *stream = data;
    struct muster_json *report = NULL;

    if (muster_json_parse(line, length, &report, NULL) != MUSTER_OK)
        return;
    on_report(stream->task, report);
    muster_json_free(report);
}
