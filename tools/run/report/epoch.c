/* Losses and the interrupted operation of a change of view, put into words.
 *
 * A member that is lost has died, left, given up, or was left out alive. The launcher knows the
 * fate of its own tasks better than the members do; of a task of another launcher only their reason
 * tells. */
#include "run/report/epoch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add_text(char *text, size_t bytes, const char *fmt, ...) MUSTER_PRINTF(3, 4);
static void add_text(char *text, size_t bytes, const char *fmt, ...)
{
    size_t length = strlen(text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(text + length, bytes - length, fmt, args);
    va_end(args);
}

/* The members' reason says that the task has left: "worker:2 left", followed by a comma or nothing.
 */
bool run_epoch_has_left(const struct run_epoch *epoch, const char *name)
{
    char word[64];
    const char *at;

    snprintf(word, sizeof(word), "%s left", name);
    at = strstr(epoch->reason, word);
    return at != NULL && (at[strlen(word)] == '\0' || at[strlen(word)] == ',');
}

/* The loss is of a life before the present one, and its death has been told: the present life
 * joined later, or not yet. */
bool run_epoch_is_of_former_life(const struct run_epoch *epoch, const struct run_task *task)
{
    return task->lives > 1 && !task->is_death_untold &&
           (task->member_from == 0 || task->member_from >= epoch->epoch);
}

/* The task had done its work, or wished to go: there was nothing to recover from. */
bool run_epoch_is_leave(const struct run_epoch *epoch, const char *name)
{
    const struct run_task *task = run_task_find(epoch->run, name);

    if (task == NULL)
        return run_epoch_has_left(epoch, name);
    return !task->is_death_untold && !task->is_loss_owed &&
           !run_epoch_is_of_former_life(epoch, task) && !task->is_abandoned &&
           (task->state == RUN_TASK_LEFT || run_epoch_has_left(epoch, name));
}

/* Why the others left it out although it lives, from "worker:1 lost (silent), worker:2 left". */
static void describe_exclusion(const struct run_epoch *epoch, const char *name, char *how,
                               size_t bytes)
{
    char word[64];
    const char *why;

    snprintf(word, sizeof(word), "%s lost (", name);
    why = strstr(epoch->reason, word);
    why = why != NULL ? why + strlen(word) : "";
    if (strncmp(why, "process ended", strlen("process ended")) == 0)
        snprintf(how, bytes,
                 "left out (its process has ended)"); /* told before it is reaped here */
    else if (why[0] == '\0' || strncmp(why, "silent)", strlen("silent)")) == 0)
        snprintf(how, bytes,
                 "left out although its process lives (the others did not hear from it)");
    else
        snprintf(how, bytes, "left out although its process lives (%.*s)", (int)strcspn(why, ")"),
                 why);
}

/* "killed by SIGKILL", "left", …. False: the death was told before the members spoke of it. */
static bool describe_loss(const struct run_epoch *epoch, const char *name, char *how, size_t bytes)
{
    struct run_task *task = run_task_find(epoch->run, name);

    if (task == NULL) {
        snprintf(how, bytes, "%s", run_epoch_is_leave(epoch, name) ? "left" : "lost");
    } else if (task->is_death_untold) {
        run_task_death(task->death_status, how, bytes);
        task->is_death_untold = false;
        muster_timer_stop(&task->death_timer);
    } else if (task->is_loss_owed) {
        task->is_loss_owed = false;
        return false;
    } else if (run_epoch_is_of_former_life(epoch, task)) {
        return false;
    } else if (run_epoch_is_leave(epoch, name)) {
        snprintf(how, bytes, "left");
    } else if (task->is_abandoned) {
        snprintf(how, bytes, "gave up");
    } else { /* its process lives */
        describe_exclusion(epoch, name, how, bytes);
    }
    if (task != NULL)
        task->is_loss_owed = false;
    return true;
}

unsigned run_epoch_describe_lost(struct run_epoch *epoch, char *text, size_t bytes,
                                 unsigned *ret_left)
{
    struct run_names lost;
    char how[200];
    unsigned count = 0;

    *ret_left = 0;
    text[0] = '\0';
    for (const char *name = run_names_first(&lost, epoch->lost); name != NULL;
         name = run_names_next(&lost)) {
        *ret_left += run_epoch_is_leave(epoch, name);
        if (describe_loss(epoch, name, how, sizeof(how)))
            add_text(text, bytes, "%s%s %s", text[0] != '\0' ? ", " : "", name, how);
        count++;
    }
    return count;
}

/* The operation is named as the members do, "all_reduce #812 of step 150", and its outcome by the
 * verdict that all of them share. */
void run_epoch_describe_operation(const struct run_epoch *epoch, unsigned lost, char *text,
                                  size_t bytes)
{
    static const struct {
        const char *verdict;
        const char *one;
        const char *many;
    } verdicts[] = {
        {"adopt", "completed with its part", "completed with their parts"},
        {"retry", "retried without it", "retried without them"},
        {"aborted", "aborted on all members", "aborted on all members"},
    };
    const char *number = strchr(epoch->op, '#');

    text[0] = '\0';
    if (epoch->op[0] == '\0')
        return;
    if (number != NULL) /* "all_reduce #812 of step 150" */
        add_text(text, bytes, ", operation %.*s (%.*s, ", (int)strspn(number + 1, "0123456789"),
                 number + 1, (int)strcspn(epoch->op, " #"), epoch->op);
    else
        add_text(text, bytes, ", operation %s (", epoch->op);
    add_text(text, bytes, "%s phase)", epoch->phase[0] != '\0' ? epoch->phase : "start");
    for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
        if (strcasecmp(epoch->verdict, verdicts[i].verdict) == 0) {
            add_text(text, bytes, " %s", lost > 1 ? verdicts[i].many : verdicts[i].one);
            return;
        }
    }
    add_text(text, bytes, " interrupted");
}

/* Workers with a result have finished, and those of a preempted job have stopped; they leave one by one, which is no
 * event worth a line. */
bool run_epoch_are_lost_done(const struct run_epoch *epoch)
{
    struct run_names lost;

    for (const char *name = run_names_first(&lost, epoch->lost); name != NULL;
         name = run_names_next(&lost)) {
        const struct run_task *task = run_task_find(epoch->run, name);

        if (task != NULL ? !(task->has_result || task->is_preempted) || task->is_loss_owed ||
                               run_epoch_is_of_former_life(epoch, task)
                         : !run_epoch_has_left(epoch, name))
            return false;
    }
    return true;
}

/* The launcher may hear of a death from the members before it has reaped the process. */
bool run_epoch_are_deaths_known(const struct run_epoch *epoch)
{
    struct run_names lost;

    for (const char *name = run_names_first(&lost, epoch->lost); name != NULL;
         name = run_names_next(&lost)) {
        const struct run_task *task = run_task_find(epoch->run, name);

        if (task != NULL && task->state == RUN_TASK_RUNNING && !task->is_death_untold &&
            !run_epoch_is_of_former_life(epoch, task) && !run_epoch_is_leave(epoch, name))
            return false;
    }
    return true;
}
