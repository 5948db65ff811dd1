/* Deaths, joins and changes of view, each reported once for all members and in plain words.
 *
 * Every member of a view reports the same change, and the launcher sees the deaths themselves: a
 * change waits for GATHER_NS, or until all its members have reported, so that one line says what
 * happened, in which operation, and how long it took. Views are told in the order of their numbers,
 * a death before the next join of the same task. Nothing depends on these lines; restarts do not
 * wait for them. */
#include "run/report/events.h"

#include "common/output.h"
#include "run/output/log.h"
#include "run/registry/roll.h"
#include "run/report/anew.h"
#include "run/report/history.h"
#include "run/report/recovery.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Members report the same change within this time. */
#define GATHER_NS        (300 * MUSTER_NS_PER_MS)
#define DELIVERY_WAIT_NS MUSTER_NS_PER_S       /* for the members' next operation */
#define DEATH_WAIT_NS    (2 * MUSTER_NS_PER_S) /* for the members' word on a death */

/* --- deaths */

static void epochs_tell_before(struct run *run, uint64_t number);

/* One change of view can lose a worker and take in its next life, so a join waits until the death
 * before it is told. */
static void tell_join(struct run_task *task)
{
    if (!task->is_join_untold || task->is_death_untold)
        return;
    task->is_join_untold = false;
    run_history_on_rejoin(task);
    run_log(task->run, MUSTER_LOG_INFO, task->is_again ? "rejoined" : "joined",
            RUN_FIELDS(MUSTER_FIELD("task", task->name), MUSTER_FIELD("view", task->join_epoch),
                       MUSTER_FIELD("catch_up_ms", task->catch_up_ms)),
            "%s %s in %.0f ms, view %lld", task->name, task->is_again ? "rejoined" : "joined",
            task->catch_up_ms, (long long)task->join_epoch);
}

static void tell_death(struct run_task *task)
{
    struct run *run = task->run;
    char how[64];
    char step[40] = "";
    char next[64] = "";

    if (task->death_step > 0)
        snprintf(step, sizeof(step), " at step %llu", (unsigned long long)task->death_step);
    if (run->settings.is_gang && run->failed == NULL)
        snprintf(next, sizeof(next), ", all workers start again (%llu of %llu)",
                 (unsigned long long)run->gang_restarts,
                 (unsigned long long)run->settings.restarts_max);
    else if (run->is_misuse || task->is_refused)
        snprintf(next, sizeof(next), ", not started again");
    else if (task->state == RUN_TASK_FAILED)
        snprintf(next, sizeof(next), ", it has no restart left");
    else
        snprintf(next, sizeof(next), ", restart %llu of %llu", (unsigned long long)task->restarts,
                 (unsigned long long)run->settings.restarts_max);
    task->is_death_untold = false;
    muster_timer_stop(&task->death_timer);
    run_task_death(task->death_status, how, sizeof(how));
    run_log(run, MUSTER_LOG_WARN, "died",
            RUN_FIELDS(MUSTER_FIELD("tasks", task->name), MUSTER_FIELD("how", how),
                       MUSTER_FIELD("step", task->death_step),
                       MUSTER_FIELD("restarts", task->restarts)),
            "%s %s%s%s", task->name, how, step, next);
    tell_join(task);
}

/* The members have not explained the death in time. A view that lost the task may be open, and wait
 * for more reports: it is told first, since it names the step and the operation. */
static void on_death_unexplained(struct muster_timer *timer)
{
    struct run_task *task = timer->data;
    struct run *run = task->run;

    for (size_t i = 0; i < RUN_EPOCHS_MAX; i++)
        if (run->events->epochs[i].is_open &&
            run_names_contain(run->events->epochs[i].lost, task->name))
            epochs_tell_before(run, run->events->epochs[i].epoch + 1);
    if (task->is_death_untold)
        tell_death(task);
}

/* A death is reported by members that were in a view with the task; without one it is told at once.
 */
bool run_events_are_expected(const struct run_task *task)
{
    const struct run *run = task->run;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *other = &run->tasks[i];

        if (other != task && other->state == RUN_TASK_RUNNING && other->member_from > 0)
            return true;
    }
    return false;
}

/* The last member of this launcher has died, so no further report on the deaths before it will
 * come. Whether one that was called wrongly is started again is known when the others had time to end the same way. */
static void deaths_hurry(struct run *run)
{
    struct muster_loop *loop = run->env->loop;

    for (uint32_t i = 0; i < run->task_count; i++) {
        struct run_task *task = &run->tasks[i];
        uint64_t wait_ns = task->misuse_code != 0 ? RUN_MISUSE_WAIT_NS : 0;

        if (task->is_death_untold)
            muster_timer_start(&task->death_timer, loop, task->ended_ns + wait_ns);
    }
}

/* Told in a later turn, when the decision about it is known. */
void run_events_on_death(struct run_task *task)
{
    struct muster_loop *loop = task->run->env->loop;

    if (task->is_death_untold) /* of its life before: this one ended before the members spoke */
        tell_death(task);
    task->is_death_untold = true;
    task->is_loss_owed = task->has_reported;
    task->death_status = task->wait_status;
    task->death_begun_step = task->begun_step;
    task->death_step = run_task_last_step(task);
    muster_timer_start(&task->death_timer, loop, muster_loop_after_ns(loop, DEATH_WAIT_NS));
    if (!run_events_are_expected(task))
        deaths_hurry(task->run);
}

/* --- changes of view */

static void tell_join_elsewhere(struct run *run, const struct run_epoch *epoch, const char *name,
                                const char *event)
{
    run_log(run, MUSTER_LOG_INFO, event,
            RUN_FIELDS(MUSTER_FIELD("task", name), MUSTER_FIELD("view", epoch->epoch),
                       MUSTER_FIELD("members", epoch->members)),
            "%s %s, view %llu with %llu members", name, event, (unsigned long long)epoch->epoch,
            (unsigned long long)epoch->members);
}

/* Joins of tasks of other launchers. Tasks of this one report themselves how long they took to
 * catch up. */
static void tell_joined_elsewhere(struct run *run, const struct run_epoch *epoch)
{
    struct run_names joined;

    for (const char *name = run_names_first(&joined, epoch->joined); name != NULL;
         name = run_names_next(&joined)) {
        if (run_task_find(run, name) == NULL)
            tell_join_elsewhere(run, epoch, name,
                                run_roll_add(run->roll, name) ? "joined" : "rejoined");
    }
}

/* The summary takes median and maximum of these; beyond RUN_RECOVERIES_MAX none is kept. */
static void keep_recovery(struct run *run, const struct run_epoch *epoch, bool is_recovery)
{
    if (epoch->recovery_ms <= 0 || !is_recovery)
        return;
    if (run->recovery_count < RUN_RECOVERIES_MAX)
        run->recoveries_ms[run->recovery_count++] = epoch->recovery_ms;
    if (epoch->detection_ms >= 0 && run->detection_count < RUN_RECOVERIES_MAX)
        run->detections_ms[run->detection_count++] = epoch->detection_ms;
}

/* A view names the step and the operation of the members that are left. A lost member may have begun the next step
 * already: then its part of that operation was done long before, and its death has not interrupted the operation. */
static void epoch_correct_step(const struct run *run, struct run_epoch *epoch)
{
    struct run_names lost;
    uint64_t begun_step = 0;

    if (epoch->op[0] != '\0' && strcasecmp(epoch->verdict, "adopt") != 0)
        return;
    for (const char *name = run_names_first(&lost, epoch->lost); name != NULL;
         name = run_names_next(&lost)) {
        const struct run_task *task = run_task_find(run, name);

        if (task == NULL || !task->is_death_untold || task->death_begun_step <= epoch->step)
            return;
        if (begun_step == 0 || task->death_begun_step < begun_step)
            begun_step = task->death_begun_step;
    }
    if (begun_step == 0)
        return;
    epoch->step = begun_step;
    epoch->op[0] = epoch->phase[0] = epoch->verdict[0] = '\0';
}

static void epoch_tell(struct run *run, struct run_epoch *epoch)
{
    char who[600];
    char operation[200];
    char step[40] = "";
    char after[64] = "";
    unsigned lost, left;
    bool is_recovery;

    MUSTER_ASSERT(epoch->is_open);
    epoch->is_open = false;
    if (epoch->epoch > run->epoch_told)
        run->epoch_told = epoch->epoch;
    muster_timer_stop(&epoch->timer);
    if (epoch->lost[0] != '\0' && run_epoch_are_lost_done(epoch))
        return; /* workers that have finished leave one by one: no news */
    epoch_correct_step(run, epoch);
    run_recovery_settle(epoch);
    lost = run_epoch_describe_lost(epoch, who, sizeof(who), &left);
    is_recovery = lost > left;
    run_history_on_view(run, epoch, is_recovery, who);
    run_epoch_describe_operation(epoch, lost, operation, sizeof(operation));
    if (epoch->step > 0)
        snprintf(step, sizeof(step), " at step %llu", (unsigned long long)epoch->step);
    if (epoch->recovery_ms > 0 && is_recovery)
        snprintf(after, sizeof(after), " after %.1f ms", epoch->recovery_ms);
    if (epoch->recovery_ms > 0 && is_recovery && epoch->detection_ms >= 0)
        snprintf(after + strlen(after), sizeof(after) - strlen(after), " (detection %.1f ms)",
                 epoch->detection_ms);
    keep_recovery(run, epoch, is_recovery);
    if (lost > 0 && who[0] != '\0')
        run_log(
            run, is_recovery ? MUSTER_LOG_WARN : MUSTER_LOG_INFO, is_recovery ? "died" : "left",
            RUN_FIELDS(MUSTER_FIELD("tasks", epoch->lost), MUSTER_FIELD("how", who),
                       MUSTER_FIELD("step", epoch->step), MUSTER_FIELD("op", epoch->op),
                       MUSTER_FIELD("phase", epoch->phase), MUSTER_FIELD("verdict", epoch->verdict),
                       MUSTER_FIELD("view", epoch->epoch), MUSTER_FIELD("members", epoch->members),
                       MUSTER_FIELD("recovery_ms", is_recovery ? epoch->recovery_ms : 0.0)),
            "%s%s%s, view %llu with %llu member%s%s", who, step, operation,
            (unsigned long long)epoch->epoch, (unsigned long long)epoch->members,
            epoch->members == 1 ? "" : "s", after);
    else if (lost > 0 ||
             epoch->epoch == run->epoch_first) /* the loss is told already, with its step */
        run_log(
            run, MUSTER_LOG_INFO, "view",
            RUN_FIELDS(MUSTER_FIELD("view", epoch->epoch), MUSTER_FIELD("members", epoch->members),
                       MUSTER_FIELD("recovery_ms", epoch->recovery_ms)),
            "view %llu with %llu member%s%s%s", (unsigned long long)epoch->epoch,
            (unsigned long long)epoch->members, epoch->members == 1 ? "" : "s", after, operation);
    tell_joined_elsewhere(run, epoch);
    for (uint32_t i = 0; i < run->task_count; i++)
        tell_join(&run->tasks[i]);
}

/* Tell the open views with smaller numbers, in the order of these. The slots are few, so the next
 * one is searched for each time. */
static void epochs_tell_before(struct run *run, uint64_t number)
{
    for (;;) {
        struct run_epoch *first = NULL;

        for (size_t i = 0; i < RUN_EPOCHS_MAX; i++) {
            struct run_epoch *epoch = &run->events->epochs[i];

            if (epoch->is_open && epoch->epoch < number &&
                (first == NULL || epoch->epoch < first->epoch))
                first = epoch;
        }
        if (first == NULL)
            return;
        epoch_tell(run, first);
    }
}

/* Deaths on this host are known soon, so a view waits for them, and for the next operations, but
 * not for ever. */
static void on_gathered(struct muster_timer *timer)
{
    struct run_epoch *epoch = timer->data;
    struct muster_loop *loop = epoch->run->env->loop;

    if ((!run_epoch_are_deaths_known(epoch) && epoch->waits < DEATH_WAIT_NS / GATHER_NS) ||
        (!run_recovery_is_known(epoch) && epoch->waits < DELIVERY_WAIT_NS / GATHER_NS)) {
        epoch->waits++;
        muster_timer_start(timer, loop, muster_loop_after_ns(loop, GATHER_NS));
        return;
    }
    epochs_tell_before(epoch->run, epoch->epoch + 1);
}

/* The slot of that view; else a free one; else that of the oldest view, which is told to make room.
 */
static struct run_epoch *epoch_find(struct run *run, uint64_t number)
{
    struct run_epoch *oldest = NULL;

    for (size_t i = 0; i < RUN_EPOCHS_MAX; i++) {
        if (run->events->epochs[i].is_open && run->events->epochs[i].epoch == number)
            return &run->events->epochs[i];
    }
    for (size_t i = 0; i < RUN_EPOCHS_MAX; i++) {
        if (!run->events->epochs[i].is_open)
            return &run->events->epochs[i];
        if (oldest == NULL || run->events->epochs[i].epoch < oldest->epoch)
            oldest = &run->events->epochs[i];
    }
    epoch_tell(run, oldest);
    return oldest;
}

static void copy_text(char *to, size_t bytes, const struct muster_json *report, const char *name)
{
    const char *text = muster_json_text(muster_json_member(report, name));

    if (text != NULL && to[0] == '\0')
        snprintf(to, bytes, "%s", text);
}

/* Each member may be the first to report a loss; the task may then start again. */
static void note_losses(struct run *run, const struct muster_json *report, uint64_t epoch)
{
    const struct muster_json *lost = muster_json_member(report, "lost");

    for (size_t i = 0; i < muster_json_count(lost); i++) {
        const char *name = muster_json_text(muster_json_at(lost, i));
        struct run_task *task = name != NULL ? run_task_find(run, name) : NULL;

        if (name != NULL)
            run_roll_add(run->roll, name);
        if (task != NULL)
            run->control->on_loss_told(task, epoch);
    }
}

static void epoch_open(struct run *run, struct run_epoch *epoch, uint64_t number,
                       const struct muster_json *report)
{
    struct muster_loop *loop = run->env->loop;

    MUSTER_ASSERT(!epoch->is_open && number > 0);
    *epoch = (struct run_epoch){.run = run, .is_open = true, .epoch = number};
    epoch->members = (uint64_t)muster_json_integer(muster_json_member(report, "members"));
    muster_timer_init(&epoch->timer, on_gathered, epoch);
    muster_timer_start(&epoch->timer, loop, muster_loop_after_ns(loop, GATHER_NS));
}

void run_events_look(struct run_epoch *epoch)
{
    if (epoch->reports >= epoch->members && run_epoch_are_deaths_known(epoch) &&
        run_recovery_is_known(epoch))
        epochs_tell_before(epoch->run, epoch->epoch + 1);
}

/* One that joins by the change which lost a member has seen neither its death nor its step. */
static bool view_has_witness(const struct run_epoch *epoch, const struct muster_json *report)
{
    return epoch->lost[0] == '\0' || muster_json_count(muster_json_member(report, "lost")) > 0;
}

void run_events_on_view(struct run_task *task, const struct muster_json *report)
{
    struct run *run = task->run;
    int64_t number = muster_json_integer(muster_json_member(report, "epoch"));
    int64_t step = muster_json_integer(muster_json_member(report, "step"));
    double recovery_ms = muster_json_number(muster_json_member(report, "recovery_ms"));
    const char *reason = muster_json_text(muster_json_member(report, "reason"));
    struct run_epoch *epoch;

    if (number <= 0)
        return;
    if (task->member_from == 0)
        task->member_from = (uint64_t)number;
    note_losses(run, report, (uint64_t)number);
    if (reason != NULL && strcmp(reason, MUSTER_VIEW_ANEW) == 0 &&
        run_anew_is_news(run, (uint64_t)number)) {
        run_events_flush(run); /* the deaths that ended the job come before its new beginning */
        run_anew_on_view(run, (uint64_t)number,
                         (uint64_t)muster_json_integer(muster_json_member(report, "members")));
    }
    epoch = epoch_find(run, (uint64_t)number);
    if (!epoch->is_open) {
        if ((uint64_t)number <= run->epoch_told)
            return; /* told already, or what came after it: a late member's word changes nothing */
        epoch_open(run, epoch, (uint64_t)number, report);
    }
    epoch->reports++;
    run_recovery_note(epoch, report);
    if (run_names_copy(epoch->lost, muster_json_member(report, "lost")))
        epoch->step = 0; /* of a member that knows */
    run_names_copy(epoch->joined, muster_json_member(report, "joined"));
    if (step > 0 && (uint64_t)step > epoch->step && view_has_witness(epoch, report))
        epoch->step = (uint64_t)step;
    if (recovery_ms > epoch->recovery_ms)
        epoch->recovery_ms = recovery_ms;
    copy_text(epoch->op, sizeof(epoch->op), report, "op");
    copy_text(epoch->phase, sizeof(epoch->phase), report, "phase");
    copy_text(epoch->verdict, sizeof(epoch->verdict), report, "verdict");
    copy_text(epoch->reason, sizeof(epoch->reason), report, "reason");
    run_events_look(epoch);
}

void run_events_on_joined(struct run_task *task, const struct muster_json *report)
{
    int64_t epoch = muster_json_integer(muster_json_member(report, "epoch"));
    double catch_up_ms = muster_json_number(muster_json_member(report, "catch_up_ms"));

    task->is_again = !run_roll_add(task->run->roll, task->name);
    task->run->rejoins += task->is_again;
    task->run->joins += !task->is_again;
    epochs_tell_before(task->run, epoch > 0 ? (uint64_t)epoch : 0);
    task->is_join_untold = true;
    task->join_epoch = epoch;
    task->joined_ns = muster_loop_clock_ns(task->run->env->loop);
    task->catch_up_ms = catch_up_ms;
    tell_join(task);
}

static void tell_close(struct run_task *task)
{
    struct run *run = task->run;
    const struct run_progress *progress = &run->progress;

    task->is_close_told = true;
    run_log(run, MUSTER_LOG_INFO, "left",
            RUN_FIELDS(MUSTER_FIELD("tasks", task->name), MUSTER_FIELD("how", "closed"),
                       MUSTER_FIELD("step", task->steps), MUSTER_FIELD("view", progress->epoch),
                       MUSTER_FIELD("members", progress->members),
                       MUSTER_FIELD("recovery_ms", 0.0)),
            "%s closed after step %llu and has left, view %llu with %llu member%s goes on",
            task->name, (unsigned long long)task->steps, (unsigned long long)progress->epoch,
            (unsigned long long)progress->members, progress->members == 1 ? "" : "s");
}

void run_events_on_step(struct run *run)
{
    for (uint32_t i = 0; run->has_results && i < run->task_count; i++) {
        struct run_task *task = &run->tasks[i];

        if (task->has_result && !task->is_close_told && task->steps < run->progress.step)
            tell_close(task);
    }
}

void run_events_open(struct run *run)
{
    MUSTER_ASSERT(run->events == NULL);
    run->events = calloc(1, sizeof(*run->events));
    if (run->events == NULL)
        output_no_memory();
    for (uint32_t i = 0; i < run->task_count; i++)
        muster_timer_init(&run->tasks[i].death_timer, on_death_unexplained, &run->tasks[i]);
}

void run_events_close(struct run *run)
{
    if (run->events == NULL)
        return;
    for (size_t i = 0; i < RUN_EPOCHS_MAX; i++)
        if (run->events->epochs[i].is_open)
            muster_timer_stop(&run->events->epochs[i].timer);
    free(run->events);
    run->events = NULL;
}

/* Nothing is waited for any more: the run ends, or the job begins anew. */
void run_events_flush(struct run *run)
{
    epochs_tell_before(run, UINT64_MAX);
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run->tasks[i].is_death_untold)
            tell_death(&run->tasks[i]);
    }
}
