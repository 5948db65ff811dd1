/* The checkpoints of a run, at its end. */
#include "run/report/saved.h"

#include "run/output/log.h"

#include <muster/checkpoint.h>
#include <muster/json.h>

#include <stdio.h>
#include <string.h>

void run_saved_on_folder(struct run *run, const char *folder)
{
    if (folder != NULL && strlen(folder) < sizeof(run->program_checkpoint_dir))
        strcpy(run->program_checkpoint_dir, folder);
}

const char *run_saved_folder(const struct run *run)
{
    if (run->settings.checkpoint_dir != NULL)
        return run->settings.checkpoint_dir;
    return run->program_checkpoint_dir[0] != '\0' ? run->program_checkpoint_dir : NULL;
}

/* Its manifest alone does not tell: all bytes are read. */
static bool is_whole(struct run *run, const struct muster_checkpoint_name *name)
{
    const char *folder = run_saved_folder(run);
    struct muster_checkpoint *checkpoint = NULL;
    struct muster_error error;
    enum muster_rc rc;

    run_tell(run, "reads the checkpoint of step %llu in %s, to see whether it is whole",
             (unsigned long long)name->step, folder);
    rc = muster_checkpoint_open(run->env->mem, folder, name, &checkpoint, &error);
    if (rc == MUSTER_OK)
        rc = muster_checkpoint_verify(checkpoint, &error);
    muster_checkpoint_close(checkpoint);
    return rc == MUSTER_OK;
}

static bool has_unsaved(const struct run *run, const struct run_outcome *outcome)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run_outcome_is_final(outcome, &run->tasks[i]) && run->tasks[i].unsaved[0] != '\0')
            return true;
    return false;
}

/* A job that could not begin with its newest checkpoint ends with an earlier step than that one has: such a checkpoint
 * says nothing of this run, unless other members have gone on. So does one of the same step, if its worker could not
 * save that. A run that was stopped knows its last step by reports alone, which may be late. */
static bool is_suspect(struct run *run, const struct run_outcome *outcome, uint64_t step)
{
    char job[MUSTER_JOB_NAME_BYTES];

    if (step < outcome->steps)
        return false;
    return has_unsaved(run, outcome) || (outcome->results > 0 && step > outcome->steps &&
                                         !muster_checkpoint_is_in_use(run_saved_folder(run), job));
}

static enum muster_rc newest_find(struct run *run, const struct run_outcome *outcome,
                                  uint64_t *ret_step, struct muster_error *ret_error)
{
    struct muster_checkpoint_entry *entries = NULL;
    size_t count = 0;
    uint64_t step = 0;
    enum muster_rc rc =
        muster_checkpoint_list(run->env->mem, run_saved_folder(run), &entries, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count && step == 0; i++)
        if (entries[i].has_manifest &&
            (!is_suspect(run, outcome, entries[i].name.step) || is_whole(run, &entries[i].name)))
            step = entries[i].name.step;
    muster_mem_free(run->env->mem, entries);
    *ret_step = step;
    return MUSTER_OK;
}

/* Looked for once, when all workers of this launcher have ended. */
static const struct run_saved *newest_look(struct run *run, const struct run_outcome *outcome)
{
    struct run_saved *saved = &run->saved;

    if (!saved->is_known && run_saved_folder(run) != NULL)
        saved->rc = newest_find(run, outcome, &saved->step, &saved->error);
    saved->is_known = true;
    return saved;
}

const struct run_task *run_saved_find_lost(struct run *run, const struct run_outcome *outcome)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (run_outcome_is_final(outcome, task) && task->unsaved[0] != '\0' &&
            task->unsaved_step > newest_look(run, outcome)->step)
            return task;
    }
    return NULL;
}

/* Told with --quiet, too: the training has to be repeated from the newest checkpoint on, or its last steps are. */
static void tell_lost(struct run *run, const struct run_task *task)
{
    const char *folder = run_saved_folder(run);
    uint64_t step = run->saved.step;
    char text[2 * MUSTER_ERROR_TEXT_BYTES + 512], rest[160];
    int length;

    if (folder == NULL)
        (void)snprintf(rest, sizeof(rest), "mend that where the program saves, and start it again");
    else if (step > 0)
        (void)snprintf(rest, sizeof(rest),
                       "mend that, and start the same command again: it goes on after step %llu",
                       (unsigned long long)step);
    else
        (void)snprintf(rest, sizeof(rest),
                       "mend that, and start the same command again: it begins with step 1");
    length = snprintf(text, sizeof(text),
                      "muster run: THE LAST CHECKPOINT FAILED, exit code of this run %d\n"
                      "  step       %llu\n"
                      "  reason     %s: %s\n"
                      "  directory  %.400s\n"
                      "  remedy     %s\n",
                      run->exit_code, (unsigned long long)task->unsaved_step, task->name,
                      task->unsaved, folder != NULL ? folder : "(chosen by the program)", rest);
    MUSTER_ASSERT(length > 0 && (size_t)length < sizeof(text));
    run_log_report(run, "not_saved",
                   RUN_FIELDS(MUSTER_FIELD("step", task->unsaved_step),
                              MUSTER_FIELD("saved_step", step), MUSTER_FIELD("task", task->name),
                              MUSTER_FIELD("reason", task->unsaved),
                              MUSTER_FIELD("exit_code", run->exit_code)),
                   text);
}

bool run_saved_is_missing(struct run *run, const struct run_outcome *outcome)
{
    return run_saved_folder(run) != NULL && outcome->steps > 0 &&
           newest_look(run, outcome)->step < outcome->steps;
}

static void tell_missing(struct run *run, const struct run_outcome *outcome)
{
    const char *cause = outcome->results == 0
                            ? "; no worker has closed its strategy, which saves the last step"
                            : "";
    uint64_t last_step = outcome->steps;
    const char *folder = run_saved_folder(run);
    const char *reason = run->saved.error.text;
    enum muster_rc rc = run->saved.rc;
    uint64_t step = run->saved.step;

    if (rc != MUSTER_OK && rc != MUSTER_NOT_FOUND)
        run_log(
            run, MUSTER_LOG_WARN, "not_saved",
            RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("reason", reason),
                       MUSTER_FIELD("exit_code", run->exit_code)),
            "step %llu may not be saved: %s; look there before you start the same command again, "
            "exit code of this run %d",
            (unsigned long long)last_step, reason, run->exit_code);
    else if (step != 0)
        run_log(run, MUSTER_LOG_WARN, "not_saved",
                RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("saved_step", step),
                           MUSTER_FIELD("exit_code", run->exit_code)),
                "step %llu is not saved: the newest checkpoint in %s is of step %llu, with which "
                "the same command goes on%s; exit code of this run %d",
                (unsigned long long)last_step, folder, (unsigned long long)step, cause,
                run->exit_code);
    else
        run_log(
            run, MUSTER_LOG_WARN, "not_saved",
            RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("exit_code", run->exit_code)),
            "step %llu is not saved: %s has no checkpoint, and the same command begins with "
            "step 1%s; exit code of this run %d",
            (unsigned long long)last_step, folder, cause, run->exit_code);
}

void run_saved_tell_unused(struct run *run)
{
    bool is_used = run->settings.checkpoint_dir == NULL;

    for (uint32_t i = 0; i < run->task_count; i++)
        is_used = is_used || run->tasks[i].uses_muster;
    if (!is_used && run->exit_code == 0)
        run_log(run, MUSTER_LOG_WARN, "nothing_saved", RUN_NO_FIELDS,
                "nothing is saved in %s: no worker has opened a strategy; if the program does not "
                "use muster, leave --checkpoint-dir out, and let it save by itself",
                run->settings.checkpoint_dir);
}

/* A member had left out an operation of the others. */
static bool is_partial(const struct run *run)
{
    return run_outcome_find_skipper(run) != NULL || run_outcome_find_left_out(run) != NULL;
}

void run_saved_tell(struct run *run, const struct run_outcome *outcome)
{
    const char *folder = run_saved_folder(run);
    const struct run_task *lost = run_saved_find_lost(run, outcome);

    if (lost != NULL)
        tell_lost(run, lost);
    else if (run_saved_is_missing(run, outcome))
        tell_missing(run, outcome);
    else if (folder != NULL && outcome->steps > 0 && is_partial(run))
        run_log(run, MUSTER_LOG_WARN, "saved_partial",
                RUN_FIELDS(MUSTER_FIELD("step", outcome->steps), MUSTER_FIELD("directory", folder)),
                "step %llu is saved in %s with a state that is not that of all: delete "
                "%s/checkpoint-%012llu-* before you start the same command again, which would "
                "begin with it",
                (unsigned long long)outcome->steps, folder, folder,
                (unsigned long long)outcome->steps);
    else if (folder != NULL && outcome->steps > 0)
        run_tell(run, "step %llu is saved in %s", (unsigned long long)outcome->steps, folder);
}

struct muster_json *run_saved_json(struct run *run, const struct run_outcome *outcome)
{
    const struct run_task *task = run_saved_find_lost(run, outcome);
    uint64_t step = task != NULL ? task->unsaved_step : outcome->steps;
    struct muster_json *object;

    if (task == NULL && !run_saved_is_missing(run, outcome))
        return muster_json_null_new();
    object = muster_json_object_new();
    if (muster_json_set(object, "step", muster_json_integer_new((int64_t)step)) &&
        muster_json_set(object, "task",
                        task != NULL ? muster_json_text_new(task->name) : muster_json_null_new()) &&
        muster_json_set(
            object, "reason",
            muster_json_text_new(task != NULL ? task->unsaved : "the directory does not have it")))
        return object;
    muster_json_free(object);
    return NULL;
}
