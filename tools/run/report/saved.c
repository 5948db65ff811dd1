/* The checkpoints of a run, at its end. */
#include "run/report/saved.h"

#include "run/output/log.h"

#include <muster/checkpoint.h>
#include <muster/json.h>

#include <stdio.h>

/* The step of the newest checkpoint with a manifest; 0: none. */
static enum muster_rc newest_find(struct run *run, uint64_t *ret_step,
                                  struct muster_error *ret_error)
{
    struct muster_checkpoint_entry *entries = NULL;
    size_t count = 0;
    uint64_t step = 0;
    enum muster_rc rc = muster_checkpoint_list(run->env->mem, run->settings.checkpoint_dir,
                                               &entries, &count, ret_error);

    if (rc != MUSTER_OK)
        return rc;
    for (size_t i = 0; i < count && step == 0; i++)
        step = entries[i].has_manifest ? entries[i].name.step : 0;
    muster_mem_free(run->env->mem, entries);
    *ret_step = step;
    return MUSTER_OK;
}

/* 0: none, or the folder cannot be read. */
static uint64_t newest_step(struct run *run)
{
    struct muster_error error;
    uint64_t step = 0;

    return newest_find(run, &step, &error) == MUSTER_OK ? step : 0;
}

const struct run_task *run_saved_find_lost(struct run *run, const struct run_outcome *outcome)
{
    uint64_t step = run->settings.checkpoint_dir != NULL ? newest_step(run) : 0;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (run_outcome_is_final(outcome, task) && task->unsaved[0] != '\0' &&
            task->unsaved_step > step)
            return task;
    }
    return NULL;
}

/* Told with --quiet, too: the training has to be repeated from the newest checkpoint on, or its last steps are. */
static void tell_lost(struct run *run, const struct run_task *task)
{
    const char *folder = run->settings.checkpoint_dir;
    uint64_t step = folder != NULL ? newest_step(run) : 0;
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
    return run->settings.checkpoint_dir != NULL && outcome->steps > 0 &&
           newest_step(run) < outcome->steps;
}

static void tell_missing(struct run *run, uint64_t last_step)
{
    const char *folder = run->settings.checkpoint_dir;
    struct muster_error error;
    uint64_t step = 0;
    enum muster_rc rc = newest_find(run, &step, &error);

    if (rc != MUSTER_OK && rc != MUSTER_NOT_FOUND)
        run_log(
            run, MUSTER_LOG_WARN, "not_saved",
            RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("reason", error.text),
                       MUSTER_FIELD("exit_code", run->exit_code)),
            "step %llu may not be saved: %s; look there before you start the same command again, "
            "exit code of this run %d",
            (unsigned long long)last_step, error.text, run->exit_code);
    else if (step != 0)
        run_log(run, MUSTER_LOG_WARN, "not_saved",
                RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("saved_step", step),
                           MUSTER_FIELD("exit_code", run->exit_code)),
                "step %llu is not saved: the newest checkpoint in %s is of step %llu, with which "
                "the same command goes on; exit code of this run %d",
                (unsigned long long)last_step, folder, (unsigned long long)step, run->exit_code);
    else
        run_log(
            run, MUSTER_LOG_WARN, "not_saved",
            RUN_FIELDS(MUSTER_FIELD("step", last_step), MUSTER_FIELD("exit_code", run->exit_code)),
            "step %llu is not saved: %s has no checkpoint, and the same command begins with "
            "step 1; exit code of this run %d",
            (unsigned long long)last_step, folder, run->exit_code);
}

void run_saved_tell(struct run *run, const struct run_outcome *outcome)
{
    const char *folder = run->settings.checkpoint_dir;
    const struct run_task *lost = run_saved_find_lost(run, outcome);

    if (lost != NULL)
        tell_lost(run, lost);
    else if (run_saved_is_missing(run, outcome))
        tell_missing(run, outcome->steps);
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
