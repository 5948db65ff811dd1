/* How the run ended: for people, and as one JSON object for programs (--json).
 *
 * It is written after the last worker has ended and all events are told, from the state of the run
 * alone. The keys of the object are an interface (docs/summary.md): a key may be added, and none
 * changes its meaning. */
#include "run/report/summary.h"

#include "common/output.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/report/anew.h"
#include "run/report/preemption.h"
#include "run/report/saved.h"
#include "run/state/outcome.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(const struct run *run)
{
    return (double)(muster_loop_now_ns(run->env->loop) - run->started_ns) / (double)MUSTER_NS_PER_S;
}

/* --- text */

static const double *find_value(const struct run_values *values, const char *name)
{
    for (size_t i = 0; values != NULL && i < values->count; i++) {
        if (strcmp(values->at[i].name, name) == 0)
            return &values->at[i].value;
    }
    return NULL;
}

static const char *plural_of(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* A report of several lines, which comes out whole. */
struct report {
    char *text;
    size_t bytes;
    FILE *file;
};

static void report_begin(struct report *report)
{
    *report = (struct report){.text = NULL};
    report->file = open_memstream(&report->text, &report->bytes);
    if (report->file == NULL)
        output_no_memory();
}

static void report_end(struct report *report, struct run *run, const char *event,
                       const struct muster_field *fields, size_t count)
{
    fclose(report->file);
    run_log_report(run, event, fields, count, report->text);
    free(report->text);
}

/* Whoever relies on the result must not miss it: told with --quiet, too. */
static void print_difference(struct run *run, const struct run_outcome *outcome)
{
    struct report report;

    report_begin(&report);
    fprintf(report.file,
            "muster run: WEIGHTS DIFFER between workers after step %llu, exit code of this run "
            "%d\n",
            (unsigned long long)outcome->steps, run->exit_code);
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run_outcome_is_final(outcome, &run->tasks[i]))
            fprintf(report.file, "  %s %s\n", run->tasks[i].name, run->tasks[i].digest);
    }
    report_end(&report, run, "weights_differ",
               RUN_FIELDS(MUSTER_FIELD("step", outcome->steps),
                          MUSTER_FIELD("exit_code", run->exit_code)));
}

static void tell_weights(struct run *run, const struct run_outcome *outcome)
{
    if (outcome->is_identical && run->settings.nodes_max > 1)
        run_tell(run, "weights byte-identical on %u worker%s of this machine (%llu in the job)",
                 outcome->results, plural_of(outcome->results),
                 (unsigned long long)run->progress.members);
    else if (outcome->is_identical)
        run_tell(run, "weights byte-identical on %u worker%s", outcome->results,
                 plural_of(outcome->results));
    else if (outcome->is_stateless)
        run_tell(run, "no state is registered: whether weights are the same is not known");
    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (run_outcome_is_final(outcome, task) && !outcome->is_stateless)
            run_tell(run, "  %s %s", task->name, task->digest);
        else if (task->has_result && !run_outcome_is_final(outcome, task))
            run_tell(run, "  %s had left after step %llu", task->name,
                     (unsigned long long)task->steps);
    }
}

/* "2 kills survived": nobody has survived those of a job that had to begin anew. */
static void describe_kills(const struct run *run, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "%llu kill%s", (unsigned long long)run->kills,
                                     plural_of(run->kills));

    if (run->anew_count == 0) {
        snprintf(text + length, bytes - length, " survived");
        return;
    }
    length += (size_t)snprintf(text + length, bytes - length,
                               ", the job had to begin anew when it stood at step");
    for (size_t i = 0; i < run->anew_count && length + 24 < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s %llu", i > 0 ? "," : "",
                                   (unsigned long long)run->anew_at[i]);
}

static void tell_training(struct run *run, const struct run_outcome *outcome)
{
    const double *accuracy = find_value(outcome->values, "accuracy");
    char slowest[64] = "", kills[160];
    const struct muster_field done[] = {
        MUSTER_FIELD("steps", outcome->steps), MUSTER_FIELD("seconds", seconds_of(run)),
        MUSTER_FIELD("accuracy", accuracy != NULL ? *accuracy : 0.0)};

    if (accuracy != NULL)
        run_log(run, MUSTER_LOG_INFO, "done", RUN_FIELDS(done[0], done[1], done[2]),
                "done: test accuracy %.1f %% after %llu steps in %.1f s", *accuracy * 100,
                (unsigned long long)outcome->steps, seconds_of(run));
    else
        run_log(run, MUSTER_LOG_INFO, "done", RUN_FIELDS(done[0], done[1]),
                "done: %llu steps in %.1f s", (unsigned long long)outcome->steps, seconds_of(run));
    if (run->recovery_count > 0)
        snprintf(slowest, sizeof(slowest), ", slowest recovery %.1f ms", outcome->recovery_max_ms);
    describe_kills(run, kills, sizeof(kills));
    run_tell(run, "%s, %llu step%s lost%s, %llu survivor%s restarted", kills,
             (unsigned long long)outcome->steps_lost, plural_of(outcome->steps_lost), slowest,
             (unsigned long long)run->survivors_restarted, plural_of(run->survivors_restarted));
    run_saved_tell(run, outcome);
    if (!outcome->is_different)
        tell_weights(run, outcome);
}

/* Beyond how it ended; NULL: nothing is known. */
static const char *failure_reason(const struct run *run)
{
    if (run->is_misuse)
        return "it ended so at once, before it reported anything, as programs do that were called "
               "wrongly: not started again";
    if (run->failed->is_refused)
        return run->failed->refusal;
    if (run_outcome_is_foreign(run))
        return "no worker has opened a strategy before its end, see the output; only if these "
               "programs do not use muster, give --restart all";
    return NULL;
}

/* The report gives what a person needs to find the fault without the other logs: the place, the
 * end, the last output. */
static void print_failure(struct run *run)
{
    const struct run_task *task = run->failed;
    const struct run_task_output *output = task->output;
    unsigned kept =
        output->last_line_count < RUN_LAST_LINES ? output->last_line_count : RUN_LAST_LINES;
    time_t seconds = (time_t)(task->ended_wall_ns / MUSTER_NS_PER_S);
    char host[128] = "?";
    char when[64] = "?";
    char how[64];
    struct report report;
    struct tm parts;

    if (task->worker_pid == 0)
        return; /* it never started, which was told */
    gethostname(host, sizeof(host) - 1);
    if (localtime_r(&seconds, &parts) != NULL)
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S %z", &parts);
    report_begin(&report);
    run_task_death(task->wait_status, how, sizeof(how));
    fprintf(report.file,
            "muster run: first failure\n"
            "  task       %s (rank %u)\n"
            "  host       %s\n"
            "  pid        %d\n"
            "  ended      %s, exit code of this run %d\n"
            "  time       %s\n"
            "  restarts   %llu of %llu used\n",
            task->name, task->rank, host, task->worker_pid, how, run->exit_code, when,
            (unsigned long long)(run->settings.is_gang ? run->gang_restarts : task->restarts),
            (unsigned long long)run->settings.restarts_max);
    if (failure_reason(run) != NULL)
        fprintf(report.file, "  reason     %s\n", failure_reason(run));
    if (task->trace_file != NULL)
        fprintf(report.file, "  flight recorder: %s; look at it with `muster trace %s`\n",
                task->trace_file, task->trace_file);
    if (kept > 0)
        fprintf(report.file, "  last output\n");
    for (unsigned i = 0; i < kept; i++)
        fprintf(report.file, "    %s\n",
                output->last_lines[(output->last_line_count - kept + i) % RUN_LAST_LINES]);
    report_end(&report, run, "first_failure",
               RUN_FIELDS(MUSTER_FIELD("task", task->name), MUSTER_FIELD("rank", task->rank),
                          MUSTER_FIELD("host", host), MUSTER_FIELD("pid", task->worker_pid),
                          MUSTER_FIELD("how", how), MUSTER_FIELD("exit_code", run->exit_code)));
}

/* The failpoint of a worker on this machine that did not die of it. */
static bool is_unreached(const struct run *run, const struct run_kill *kill)
{
    return !kill->is_reached && kill->rank >= run->settings.rank_first &&
           kill->rank < run->settings.rank_first + run->task_count;
}

static void print_unreached(struct run *run)
{
    for (size_t i = 0; i < run->settings.kill_count; i++) {
        const struct run_kill *kill = &run->settings.kills[i];

        if (is_unreached(run, kill))
            run_log_error("--kill worker:%u@%s was never reached: there was no such "
                          "point in the first life of worker:%u",
                          kill->rank, kill->point, kill->rank);
    }
}

/* Programs that do not use muster are judged by their exit codes alone. */
static void tell_part(struct run *run)
{
    uint32_t count = run_outcome_took_part(run);

    if (run_outcome_is_idle(run)) {
        run_log_error("0 of %u task%s took part: no worker of this launcher has committed a step, "
                      "exit code of this run %d",
                      run->task_count, plural_of(run->task_count), run->exit_code);
    } else if (count > 0 && run->settings.nodes_max > 1) {
        run_tell(run, "%u of %u task%s of this machine took part, in a job of up to %llu members",
                 count, run->task_count, plural_of(run->task_count),
                 (unsigned long long)run->members_max);
    } else if (count > 0) {
        run_tell(run, "%u of %u task%s took part", count, run->task_count,
                 plural_of(run->task_count));
    }
}

/* Tasks that ended with 0 and without close, while the others had more to do or in the middle of a
 * step. */
static void tell_unclosed(struct run *run, const struct run_outcome *outcome)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (!run_outcome_has_left_early(outcome, task))
            continue;
        run_log(run, MUSTER_LOG_WARN, "left_early",
                RUN_FIELDS(MUSTER_FIELD("task", task->name), MUSTER_FIELD("step", task->left_step)),
                "%s left %s step %llu with exit code 0%s", task->name,
                task->is_in_step ? "in" : "after", (unsigned long long)task->left_step,
                task->is_silent && task->is_place_known ? ", by _exit and without close"
                : task->is_silent  ? " as last reported, by _exit and without close"
                : task->is_in_step ? ", without commit or close"
                                   : ", before the job's end");
    }
}

static void tell_skipped(struct run *run)
{
    const struct run_task *task = run_outcome_find_skipper(run);

    if (task != NULL)
        run_log_error("the result is not that of all: %s committed step %llu without an operation "
                      "that others "
                      "waited for, exit code of this run %d",
                      task->name, (unsigned long long)task->skipped_step, run->exit_code);
}

static void tell_left_out(struct run *run)
{
    const struct run_task *task = run_outcome_find_left_out(run);

    if (task != NULL)
        run_log_error("the result is not that of all: %s called an operation in step %llu that a "
                      "member that had already left did not call, exit code of this run %d",
                      task->name, (unsigned long long)task->left_out_step, run->exit_code);
}

static void tell_runaway(struct run *run)
{
    const struct run_task *task = run_outcome_find_runaway(run);

    if (task != NULL)
        run_log_error("%s has not done its work: processes that it had started still ran when it "
                      "ended with 0, before it opened a strategy, exit code of this run %d",
                      task->name, run->exit_code);
}

/* Nobody here knows what the program does behind its loop. */
static void tell_unfinished(struct run *run, const struct run_outcome *outcome)
{
    const struct run_task *task = run_outcome_find_unfinished(run, outcome);

    if (task != NULL && run->stop_signal == 0)
        run_log_error("the end of rank 0 may be missing: %s died after the last step, %llu, before "
                      "it closed, and the others have finished; what rank 0 does after its loop "
                      "(an export, a print) may not be done, exit code of this run %d; %s",
                      task->name, (unsigned long long)task->undone_step, run->exit_code,
                      run_saved_folder(run) != NULL
                          ? "if that step is saved, start the same command again for it"
                          : "no checkpoint has its state: start the same command again, which "
                            "goes on from what the program has saved by itself, or begins anew");
}

/* With the place from which the same command goes on. */
static void tell_stop(struct run *run, const struct run_outcome *outcome)
{
    run_tell(run, "ended by SIG%s after %llu steps in %.1f s", sigabbrev_np(run->stop_signal),
             (unsigned long long)outcome->steps, seconds_of(run));
    run_saved_tell(run, outcome);
}

/* A program that does not use muster knows nothing of the option. */
static void tell_unused_batch(struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].uses_muster)
            return;
    if (run->settings.constant_batch > 0 && run->exit_code == 0)
        run_log(run, MUSTER_LOG_WARN, "batch_not_constant",
                RUN_FIELDS(MUSTER_FIELD("slots", run->settings.constant_batch)),
                "--constant-batch %llu has done nothing: no worker has opened a strategy; if the "
                "program does not use muster, leave it out",
                (unsigned long long)run->settings.constant_batch);
}

void run_summary_print(struct run *run)
{
    struct run_outcome outcome;

    run_outcome_gather(run, &outcome);
    if (run_preemption_tell(run))
        ;
    else if (outcome.results > 0)
        tell_training(run, &outcome);
    else if (run->stop_signal != 0 && outcome.steps > 0)
        tell_stop(run, &outcome);
    else if (run->restarts > 0 && run->exit_code == 0)
        run_tell(run, "all workers ended with 0 after %llu restart%s in %.1f s",
                 (unsigned long long)run->restarts, plural_of(run->restarts), seconds_of(run));
    if (outcome.results == 0 && run->stop_signal == 0 && run_preemption_find(run) == NULL &&
        ((run->failed != NULL && run->failed->is_too_late) || run_saved_is_missing(run, &outcome)))
        run_saved_tell(run, &outcome);
    if (outcome.results == 0 && outcome.steps == 0 && run_preemption_find(run) == NULL) {
        run_saved_tell_unused(run);
        tell_unused_batch(run);
    }
    tell_unclosed(run, &outcome);
    tell_skipped(run);
    tell_left_out(run);
    tell_unfinished(run, &outcome);
    tell_runaway(run);
    if (run_outcome_is_undone(run) && run->stop_signal == 0)
        run_log_error(
            "no worker has done the job's work: those with the most steps have ended with 0 "
            "without close, exit code of this run %d",
            run->exit_code);
    if (run_preemption_find(run) == NULL || !run_outcome_is_idle(run)) /* it had not begun */
        tell_part(run);
    print_unreached(run);
    if (outcome.is_different)
        print_difference(run, &outcome);
    if (run->failed != NULL)
        print_failure(run);
}

/* --- JSON */

static struct muster_json *number_new(uint64_t value)
{
    return muster_json_integer_new((int64_t)value);
}

static struct muster_json *real_or_null(bool is_known, double value)
{
    return is_known && isfinite(value) ? muster_json_real_new(value) : muster_json_null_new();
}

static struct muster_json *digests_of(const struct run *run, const struct run_outcome *outcome)
{
    struct muster_json *digests = muster_json_array_new();

    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run_outcome_is_final(outcome, &run->tasks[i]) && !outcome->is_stateless &&
            !muster_json_append(digests, muster_json_text_new(run->tasks[i].digest)))
            return digests;
    }
    return digests;
}

static struct muster_json *unreached_of(const struct run *run)
{
    struct muster_json *kills = muster_json_array_new();
    char text[96];

    for (size_t i = 0; i < run->settings.kill_count; i++) {
        const struct run_kill *kill = &run->settings.kills[i];

        snprintf(text, sizeof(text), "worker:%u@%s", kill->rank, kill->point);
        if (is_unreached(run, kill) && !muster_json_append(kills, muster_json_text_new(text)))
            break;
    }
    return kills;
}

static struct muster_json *times_of(bool is_known, double median_ms, double max_ms)
{
    struct muster_json *recovery = muster_json_object_new();

    if (!muster_json_set(recovery, "median", real_or_null(is_known, median_ms)) ||
        !muster_json_set(recovery, "max", real_or_null(is_known, max_ms))) {
        muster_json_free(recovery);
        return NULL;
    }
    return recovery;
}

static struct muster_json *values_of(const struct run_outcome *outcome)
{
    struct muster_json *values = muster_json_object_new();

    for (size_t i = 0; outcome->values != NULL && i < outcome->values->count; i++) {
        if (!muster_json_set(values, outcome->values->at[i].name,
                             muster_json_real_new(outcome->values->at[i].value)))
            continue; /* infinite or not a number: JSON has no word for it */
    }
    return values;
}

static struct muster_json *tasks_of(const struct run *run, const struct run_outcome *outcome)
{
    struct muster_json *tasks = muster_json_array_new();

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];
        struct muster_json *one = muster_json_object_new();

        if (!muster_json_set(one, "task", muster_json_text_new(task->name)) ||
            !muster_json_set(one, "rank", number_new(task->rank)) ||
            !muster_json_set(one, "restarts", number_new(task->lives > 0 ? task->lives - 1 : 0)) ||
            !muster_json_set(one, "exit_code",
                             number_new((uint64_t)run_task_exit_code(task->wait_status))) ||
            (task->has_result &&
             (!muster_json_set(one, "steps", number_new(task->steps)) ||
              !muster_json_set(one, "digest", muster_json_text_new(task->digest)))) ||
            (run_outcome_has_left_early(outcome, task) &&
             !muster_json_set(one, task->is_in_step ? "left_in_step" : "left_after_step",
                              number_new(task->left_step))) ||
            (task->undone_step != 0 &&
             !muster_json_set(one, "died_after_step", number_new(task->undone_step))) ||
            (task->skipped_step != 0 &&
             !muster_json_set(one, "skipped_step", number_new(task->skipped_step))) ||
            (task->left_out_step != 0 &&
             !muster_json_set(one, "left_out_step", number_new(task->left_out_step))) ||
            (task->trace_file != NULL &&
             !muster_json_set(one, "trace", muster_json_text_new(task->trace_file)))) {
            muster_json_free(one);
            one = NULL;
        }
        if (!muster_json_append(tasks, one))
            break;
    }
    return tasks;
}

static struct muster_json *failure_of(const struct run *run)
{
    struct muster_json *failure = muster_json_object_new();
    char how[64];

    if (run->failed == NULL) {
        muster_json_free(failure);
        return muster_json_null_new();
    }
    if (!muster_json_set(failure, "task", muster_json_text_new(run->failed->name)) ||
        !muster_json_set(failure, "pid", muster_json_integer_new(run->failed->worker_pid)) ||
        !muster_json_set(failure, "exit_code", muster_json_integer_new(run->failed_code)) ||
        !muster_json_set(
            failure, "how",
            muster_json_text_new(run_task_death(run->failed->wait_status, how, sizeof(how)))) ||
        !muster_json_set(failure, "reason", muster_json_text_new(failure_reason(run))) ||
        !muster_json_set(failure, "trace", muster_json_text_new(run->failed->trace_file))) {
        muster_json_free(failure);
        return NULL;
    }
    return failure;
}

static struct muster_json *summary_of(struct run *run)
{
    struct muster_json *root = muster_json_object_new();
    struct run_outcome outcome;
    const double *accuracy;
    bool is_whole;

    run_outcome_gather(run, &outcome);
    accuracy = find_value(outcome.values, "accuracy");
    is_whole =
        muster_json_set(root, "exit_code", muster_json_integer_new(run->exit_code)) &&
        (accuracy == NULL || muster_json_set(root, "accuracy", real_or_null(true, *accuracy))) &&
        muster_json_set(root, "steps", number_new(outcome.steps)) &&
        muster_json_set(root, "kills", number_new(run->kills)) &&
        muster_json_set(root, "kills_unreached", unreached_of(run)) &&
        muster_json_set(root, "restarts", number_new(run->restarts)) &&
        muster_json_set(root, "rejoins", number_new(run->rejoins)) &&
        muster_json_set(root, "steps_lost", number_new(outcome.steps_lost)) &&
        muster_json_set(root, "begun_anew_at", run_anew_steps(run)) &&
        muster_json_set(root, "preempted", run_preemption_json(run)) &&
        muster_json_set(root, "not_saved", run_saved_json(run, &outcome)) &&
        muster_json_set(root, "epochs", number_new(run->epoch_last)) &&
        muster_json_set(root, "views", number_new(run->epoch_last)) &&
        muster_json_set(root, "joins", number_new(run->joins)) &&
        muster_json_set(root, "recovery_ms",
                        times_of(run->recovery_count > 0, outcome.recovery_median_ms,
                                 outcome.recovery_max_ms)) &&
        muster_json_set(root, "detection_ms",
                        times_of(run->detection_count > 0, outcome.detection_median_ms,
                                 outcome.detection_max_ms)) &&
        muster_json_set(root, "recovery_ms_max",
                        real_or_null(run->recovery_count > 0, outcome.recovery_max_ms)) &&
        muster_json_set(root, "identical",
                        outcome.results > 0 && !outcome.is_stateless
                            ? muster_json_bool_new(outcome.is_identical)
                            : muster_json_null_new()) &&
        muster_json_set(root, "digests", digests_of(run, &outcome)) &&
        muster_json_set(root, "survivors_restarted", number_new(run->survivors_restarted)) &&
        muster_json_set(root, "workers", number_new(run->task_count)) &&
        muster_json_set(root, "took_part", number_new(run_outcome_took_part(run))) &&
        muster_json_set(root, "machines", number_new(run->settings.nodes_max)) &&
        muster_json_set(root, "machines_identical",
                        outcome.is_identical ? number_new(run->machines_same)
                                             : muster_json_null_new()) &&
        muster_json_set(root, "members_max", number_new(run->members_max)) &&
        muster_json_set(root, "seconds", muster_json_real_new(seconds_of(run))) &&
        muster_json_set(root, "job", muster_json_text_new(run->settings.job_name)) &&
        muster_json_set(root, "values", values_of(&outcome)) &&
        muster_json_set(root, "tasks", tasks_of(run, &outcome)) &&
        muster_json_set(root, "first_failure", failure_of(run));
    if (is_whole)
        return root;
    muster_json_free(root);
    return NULL;
}

static bool write_text(struct run *run, char *text)
{
    const char *path = run->settings.json;
    size_t length = strlen(text);
    enum muster_rc rc;
    int error;

    text[length] = '\n'; /* in place of the NUL: files take a count */
    if (strcmp(path, "-") == 0) {
        run_sink_write(run->output->out, text, length + 1);
        return true;
    }
    rc = muster_files_write(run->env->files, path, text, length + 1);
    error = errno;
    if (rc == MUSTER_OK)
        return true;
    run_log_error("cannot write the summary to %s: %s", path, output_error_text(error));
    return false;
}

bool run_summary_write(struct run *run)
{
    struct muster_json *root;
    char *text = NULL;
    bool is_written = false;

    if (run->settings.json == NULL)
        return true;
    root = summary_of(run);
    if (root != NULL && muster_json_format(root, false, run->env->mem, &text) == MUSTER_OK)
        is_written = write_text(run, text);
    else
        run_log_error("cannot write the summary: no memory");
    muster_mem_free(run->env->mem, text);
    muster_json_free(root);
    return is_written;
}
