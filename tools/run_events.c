/* What happened to the members, told once for all of them and in plain words. */
#include "run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

#define GATHER_NS     (300 * MUSTER_NS_PER_MS) /* members report the same change within this time */
#define DEATH_WAIT_NS (2 * MUSTER_NS_PER_S)    /* for the members' word on a death */

void run_tell(struct run *run, const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    char *line = NULL;
    int length = -1;

    if (run->settings.is_quiet)
        return;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) >= 0)
        length = asprintf(&line, "[muster] %s\n", text);
    va_end(args);
    free(text);
    if (length < 0)
        return;
    run_progress_clear(run);
    run_sink_write(run->err, line, (size_t)length);
    free(line);
}

static struct run_task *task_of_name(struct run *run, const char *name)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (strcmp(run->tasks[i].name, name) == 0)
            return &run->tasks[i];
    }
    return NULL;
}

/* The names in epoch->lost, one after the other. */
struct lost {
    char names[sizeof(((struct run_epoch *)NULL)->lost)];
    char *rest;
};

static struct lost lost_of(const struct run_epoch *epoch)
{
    struct lost lost = {.rest = NULL};

    memcpy(lost.names, epoch->lost, sizeof(lost.names));
    return lost;
}

static const char *next_lost(struct lost *lost)
{
    return strtok_r(lost->rest == NULL ? lost->names : NULL, " ", &lost->rest);
}

/* --- deaths */

/* One change can lose a worker and take its next life in: first the death is told. */
static void tell_rejoin(struct run_task *task)
{
    if (!task->is_rejoin_untold || task->is_death_untold)
        return;
    task->is_rejoin_untold = false;
    run_tell(task->run, "%s rejoined in %.0f ms, epoch %lld", task->name, task->catch_up_ms,
             (long long)task->rejoin_epoch);
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
    else if (run->is_misuse)
        snprintf(next, sizeof(next), ", not started again");
    else if (task->state == RUN_TASK_FAILED)
        snprintf(next, sizeof(next), ", it has no restart left");
    else
        snprintf(next, sizeof(next), ", restart %llu of %llu", (unsigned long long)task->restarts,
                 (unsigned long long)run->settings.restarts_max);
    task->is_death_untold = false;
    muster_timer_stop(&task->death_timer);
    run_tell(run, "%s %s%s%s", task->name, run_task_death(task->death_status, how, sizeof(how)),
             step, next);
    tell_rejoin(task);
}

static void on_death_unexplained(struct muster_timer *timer)
{
    tell_death(timer->data);
}

static bool others_run(const struct run_task *task)
{
    const struct run *run = task->run;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *other = &run->tasks[i];

        if (other != task && other->state == RUN_TASK_RUNNING)
            return true;
    }
    return false;
}

bool run_events_are_expected(const struct run_task *task)
{
    return task->run->epoch_last > 0 && others_run(task);
}

/* Told in a later turn, when the decision about it is known. */
void run_events_on_death(struct run_task *task)
{
    struct muster_loop *loop = task->run->env->loop;
    bool is_waiting = run_events_are_expected(task);

    task->is_death_untold = true;
    task->death_status = task->wait_status;
    task->death_step = task->step;
    muster_timer_start(&task->death_timer, loop,
                       muster_loop_after_ns(loop, is_waiting ? DEATH_WAIT_NS : 0));
}

/* --- changes of view */

static void add_text(char *text, size_t bytes, const char *fmt, ...) MUSTER_PRINTF(3, 4);
static void add_text(char *text, size_t bytes, const char *fmt, ...)
{
    size_t length = strlen(text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(text + length, bytes - length, fmt, args);
    va_end(args);
}

/* A worker of another launcher that the members say has left. */
static bool has_left_elsewhere(const struct run_epoch *epoch, const char *name)
{
    char word[64];
    const char *at;

    snprintf(word, sizeof(word), "%s left", name);
    at = strstr(epoch->reason, word);
    return at != NULL && (at[strlen(word)] == '\0' || at[strlen(word)] == ',');
}

/* "worker:1 and worker:2 killed by SIGKILL"; names are separated by blanks in epoch->lost. Returns
 * how many. */
static unsigned describe_lost(struct run *run, const struct run_epoch *epoch, char *text,
                              size_t bytes)
{
    struct lost lost = lost_of(epoch);
    const char *name;
    unsigned count = 0;

    text[0] = '\0';
    while ((name = next_lost(&lost)) != NULL) {
        struct run_task *task = task_of_name(run, name);
        char how[64] = "lost";

        if (task != NULL && task->is_death_untold) {
            run_task_death(task->death_status, how, sizeof(how));
            task->is_death_untold = false;
            muster_timer_stop(&task->death_timer);
        } else if (task != NULL ? task->state == RUN_TASK_LEFT : has_left_elsewhere(epoch, name)) {
            snprintf(how, sizeof(how), "left");
        }
        add_text(text, bytes, "%s%s %s", count > 0 ? ", " : "", name, how);
        count++;
    }
    return count;
}

static void describe_operation(const struct run_epoch *epoch, unsigned lost, char *text,
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

static bool are_done(struct run *run, const struct run_epoch *epoch)
{
    struct lost lost = lost_of(epoch);
    const char *name;

    while ((name = next_lost(&lost)) != NULL) {
        const struct run_task *task = task_of_name(run, name);

        if (task != NULL ? !task->has_result : !has_left_elsewhere(epoch, name))
            return false;
    }
    return true;
}

static void tell_epoch(struct run *run, struct run_epoch *epoch)
{
    char who[600];
    char operation[200];
    char step[40] = "";
    char after[40] = "";
    unsigned lost;

    epoch->is_open = false;
    muster_timer_stop(&epoch->timer);
    if (epoch->lost[0] != '\0' && are_done(run, epoch))
        return; /* workers that have finished leave one by one: no news */
    lost = describe_lost(run, epoch, who, sizeof(who));
    describe_operation(epoch, lost, operation, sizeof(operation));
    if (epoch->step > 0)
        snprintf(step, sizeof(step), " at step %llu", (unsigned long long)epoch->step);
    if (epoch->recovery_ms > 0)
        snprintf(after, sizeof(after), " after %.1f ms", epoch->recovery_ms);
    if (epoch->recovery_ms > 0 && lost > 0 && run->recovery_count < RUN_RECOVERIES_MAX)
        run->recoveries_ms[run->recovery_count++] = epoch->recovery_ms;
    if (lost > 0)
        run_tell(run, "%s%s%s, epoch %llu with %llu member%s%s", who, step, operation,
                 (unsigned long long)epoch->epoch, (unsigned long long)epoch->members,
                 epoch->members == 1 ? "" : "s", after);
    else if (epoch->epoch == 1)
        run_tell(run, "epoch 1 with %llu member%s", (unsigned long long)epoch->members,
                 epoch->members == 1 ? "" : "s");
    for (uint32_t i = 0; i < run->task_count; i++)
        tell_rejoin(&run->tasks[i]);
}

/* In the order of their numbers. */
static void tell_epochs_before(struct run *run, uint64_t number)
{
    for (;;) {
        struct run_epoch *first = NULL;

        for (size_t i = 0; i < sizeof(run->epochs) / sizeof(run->epochs[0]); i++) {
            struct run_epoch *epoch = &run->epochs[i];

            if (epoch->is_open && epoch->epoch < number &&
                (first == NULL || epoch->epoch < first->epoch))
                first = epoch;
        }
        if (first == NULL)
            return;
        tell_epoch(run, first);
    }
}

/* The launcher may hear of a death from the members before it has reaped the process. */
static bool are_deaths_known(struct run *run, const struct run_epoch *epoch)
{
    struct lost lost = lost_of(epoch);
    const char *name;

    while ((name = next_lost(&lost)) != NULL) {
        const struct run_task *task = task_of_name(run, name);

        if (task != NULL && task->state == RUN_TASK_RUNNING && !task->is_death_untold)
            return false;
    }
    return true;
}

static void on_gathered(struct muster_timer *timer)
{
    struct run_epoch *epoch = timer->data;
    struct muster_loop *loop = epoch->run->env->loop;

    if (!are_deaths_known(epoch->run, epoch) && epoch->waits < DEATH_WAIT_NS / GATHER_NS) {
        epoch->waits++;
        muster_timer_start(timer, loop, muster_loop_after_ns(loop, GATHER_NS));
        return;
    }
    tell_epochs_before(epoch->run, epoch->epoch + 1);
}

static struct run_epoch *epoch_of(struct run *run, uint64_t number)
{
    size_t count = sizeof(run->epochs) / sizeof(run->epochs[0]);
    struct run_epoch *oldest = NULL;

    for (size_t i = 0; i < count; i++) {
        if (run->epochs[i].is_open && run->epochs[i].epoch == number)
            return &run->epochs[i];
    }
    for (size_t i = 0; i < count; i++) {
        if (!run->epochs[i].is_open)
            return &run->epochs[i];
        if (oldest == NULL || run->epochs[i].epoch < oldest->epoch)
            oldest = &run->epochs[i];
    }
    tell_epoch(run, oldest);
    return oldest;
}

static void copy_text(char *to, size_t bytes, const struct muster_json *report, const char *name)
{
    const char *text = muster_json_text(muster_json_member(report, name));

    if (text != NULL && to[0] == '\0')
        snprintf(to, bytes, "%s", text);
}

/* A joiner knows nobody who was lost: the first that does says who, and at which step. */
static void copy_lost(struct run_epoch *epoch, const struct muster_json *report)
{
    const struct muster_json *lost = muster_json_member(report, "lost");

    if (epoch->lost[0] != '\0' || muster_json_count(lost) == 0)
        return;
    epoch->step = 0;
    for (size_t i = 0; i < muster_json_count(lost); i++) {
        const char *name = muster_json_text(muster_json_at(lost, i));

        if (name != NULL)
            add_text(epoch->lost, sizeof(epoch->lost), "%s%s", i > 0 ? " " : "", name);
    }
}

static void note_losses(struct run *run, const struct muster_json *report, uint64_t epoch)
{
    const struct muster_json *lost = muster_json_member(report, "lost");

    for (size_t i = 0; i < muster_json_count(lost); i++) {
        const char *name = muster_json_text(muster_json_at(lost, i));
        struct run_task *task = name != NULL ? task_of_name(run, name) : NULL;

        if (task != NULL)
            run_task_on_loss_told(task, epoch);
    }
}

static void open_epoch(struct run *run, struct run_epoch *epoch, uint64_t number,
                       const struct muster_json *report)
{
    struct muster_loop *loop = run->env->loop;

    *epoch = (struct run_epoch){.run = run, .is_open = true, .epoch = number};
    epoch->members = (uint64_t)muster_json_integer(muster_json_member(report, "members"));
    muster_timer_init(&epoch->timer, on_gathered, epoch);
    muster_timer_start(&epoch->timer, loop, muster_loop_after_ns(loop, GATHER_NS));
    if (number > run->epoch_told)
        run->epoch_told = number;
}

void run_events_on_view(struct run_task *task, const struct muster_json *report)
{
    struct run *run = task->run;
    int64_t number = muster_json_integer(muster_json_member(report, "epoch"));
    int64_t step = muster_json_integer(muster_json_member(report, "step"));
    double recovery_ms = muster_json_number(muster_json_member(report, "recovery_ms"));
    struct run_epoch *epoch;

    if (number <= 0)
        return;
    note_losses(run, report, (uint64_t)number);
    epoch = epoch_of(run, (uint64_t)number);
    if (!epoch->is_open) {
        if ((uint64_t)number <= run->epoch_told)
            return; /* told already; a late member's word changes nothing */
        open_epoch(run, epoch, (uint64_t)number, report);
    }
    epoch->reports++;
    copy_lost(epoch, report);
    if (step > 0 &&
        (uint64_t)step > epoch->step) /* who had not begun it yet names the one before */
        epoch->step = (uint64_t)step;
    if (recovery_ms > epoch->recovery_ms)
        epoch->recovery_ms = recovery_ms;
    copy_text(epoch->op, sizeof(epoch->op), report, "op");
    copy_text(epoch->phase, sizeof(epoch->phase), report, "phase");
    copy_text(epoch->verdict, sizeof(epoch->verdict), report, "verdict");
    copy_text(epoch->reason, sizeof(epoch->reason), report, "reason");
    if (epoch->reports >= epoch->members && are_deaths_known(run, epoch))
        tell_epochs_before(run, epoch->epoch + 1);
}

void run_events_on_rejoined(struct run_task *task, const struct muster_json *report)
{
    int64_t epoch = muster_json_integer(muster_json_member(report, "epoch"));
    double catch_up_ms = muster_json_number(muster_json_member(report, "catch_up_ms"));

    task->run->rejoins++;
    tell_epochs_before(task->run, epoch > 0 ? (uint64_t)epoch : 0);
    task->is_rejoin_untold = true;
    task->rejoin_epoch = epoch;
    task->catch_up_ms = catch_up_ms;
    tell_rejoin(task);
}

void run_events_init(struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        muster_timer_init(&run->tasks[i].death_timer, on_death_unexplained, &run->tasks[i]);
}

void run_events_flush(struct run *run)
{
    tell_epochs_before(run, UINT64_MAX);
    for (uint32_t i = 0; i < run->task_count; i++) {
        if (run->tasks[i].is_death_untold)
            tell_death(&run->tasks[i]);
    }
}
