/* Reports of what workers do: kept per task, added up over its lives, and put into words.
 *
 * A worker reports every 250 ms, whatever its program does (docs/protocol.md). Its counters begin
 * at 0 in each life; the sum over the lives only grows, as a Prometheus counter must. From the same
 * reports follows who waits for whom, and whether the job stands still. */
#include "run/report/activity.h"

#include <string.h>
#include <sys/wait.h>

#include <muster/strategy_preemption.h>

/* A job is called stuck after these; shorter stops are part of every change of view, and of uneven
 * steps. */
#define STUCK_VIEW_NS (1 * MUSTER_NS_PER_S)
#define STUCK_OP_NS   (30 * MUSTER_NS_PER_S)

struct count_name {
    const char *group; /* NULL: a member of the report itself */
    const char *name;
};

static const struct count_name count_names[RUN_COUNTS] = {
    [RUN_COUNT_START_NS] = {"spent_ns", "start"},
    [RUN_COUNT_BEGIN_NS] = {"spent_ns", "begin"},
    [RUN_COUNT_COMPUTE_NS] = {"spent_ns", "compute"},
    [RUN_COUNT_COLLECTIVE_NS] = {"spent_ns", "collective"},
    [RUN_COUNT_OUTSIDE_NS] = {"spent_ns", "outside"},
    [RUN_COUNT_CLOSE_NS] = {"spent_ns", "close"},
    [RUN_COUNT_SHM_BYTES] = {"sent_bytes", "shm"},
    [RUN_COUNT_TCP_BYTES] = {"sent_bytes", "tcp"},
    [RUN_COUNT_NCCL_BYTES] = {"sent_bytes", "nccl"},
    [RUN_COUNT_WAITING_NS] = {NULL, "waiting_ns"},
    [RUN_COUNT_STEPS] = {NULL, "steps"},
};

uint64_t run_counter_sum(const struct run_counter *counter)
{
    return counter->before + counter->now;
}

static uint64_t number_of(const struct muster_json *object, const char *name)
{
    int64_t value = muster_json_integer(muster_json_member(object, name));

    return value > 0 ? (uint64_t)value : 0;
}

/* Copy a text of the report, "" if it has none. Returns whether it is another text than before. */
static bool text_copy(char *to, size_t bytes, const struct muster_json *report, const char *name)
{
    const char *text = muster_json_text(muster_json_member(report, name));
    char before[RUN_STANDS_BYTES];

    snprintf(before, sizeof(before), "%s", to);
    snprintf(to, bytes, "%s", text != NULL ? text : "");
    return strcmp(before, to) != 0;
}

static void counter_close(struct run_counter *counter)
{
    counter->before += counter->now;
    counter->now = 0;
}

/* The counters of the life before are complete: what it reported last is added to the sum. */
static void life_begin(struct run_activity *activity, unsigned life)
{
    if (activity->life == life)
        return;
    activity->life = life;
    for (size_t i = 0; i < RUN_COUNTS; i++)
        counter_close(&activity->counts[i]);
    for (size_t i = 0; i < activity->wait_count; i++)
        counter_close(&activity->waits[i].ns);
}

static void wait_note(struct run_activity *activity, const char *task, uint64_t ns)
{
    size_t i = 0;

    MUSTER_ASSERT(activity->wait_count <= RUN_WAITS_MAX);
    while (i < activity->wait_count && strcmp(activity->waits[i].task, task) != 0)
        i++;
    if (i == RUN_WAITS_MAX)
        return; /* the workers name their 8 longest; these 32 came first */
    if (i == activity->wait_count) {
        activity->waits[i] = (struct run_wait){.ns = {.before = 0}};
        snprintf(activity->waits[i].task, sizeof(activity->waits[i].task), "%s", task);
        activity->wait_count++;
    }
    if (ns > activity->waits[i].ns.now)
        activity->waits[i].ns.now = ns;
}

static void counts_read(struct run_activity *activity, const struct muster_json *report)
{
    struct muster_json_walk walk;

    for (size_t i = 0; i < RUN_COUNTS; i++) {
        const struct count_name *at = &count_names[i];
        const struct muster_json *group =
            at->group != NULL ? muster_json_member(report, at->group) : report;

        activity->counts[i].now = number_of(group, at->name);
    }
    for (bool more = muster_json_walk_first(&walk, muster_json_member(report, "waited_ns")); more;
         more = muster_json_walk_next(&walk)) {
        int64_t ns = muster_json_integer(walk.value);

        wait_note(activity, walk.name, ns > 0 ? (uint64_t)ns : 0);
    }
}

/* Reports of progress come at most every 50 ms: a program that stands still after one has gone
 * further. */
static void step_note(struct run_task *task)
{
    struct run_progress *progress = &task->run->progress;

    if (task->activity.step > task->step)
        task->step = task->activity.step;
    if (task->step > progress->step) {
        progress->step = task->step;
        progress->is_changed = true;
    }
}

void run_activity_on_report(struct run_task *task, const struct muster_json *report)
{
    struct run_activity *activity = &task->activity;
    uint64_t now_ns = muster_loop_now_ns(task->run->env->loop);
    uint64_t for_ns = number_of(report, "for_ns");

    life_begin(activity, task->lives);
    activity->heard_ns = now_ns;
    activity->begun_ns = for_ns < now_ns ? now_ns - for_ns : 0;
    (void)text_copy(activity->state, sizeof(activity->state), report, "state");
    if (text_copy(activity->stands_for, sizeof(activity->stands_for), report, "stands_for") &&
        activity->stood_ns == 0)
        activity->stood_ns = now_ns;
    if (activity->stands_for[0] == '\0')
        activity->stood_ns = 0;
    if (text_copy(activity->waits_for, sizeof(activity->waits_for), report, "waits_for"))
        activity->waited_ns = now_ns;
    (void)text_copy(activity->op, sizeof(activity->op), report, "op");
    activity->step = number_of(report, "step");
    step_note(task);
    activity->epoch = number_of(report, "epoch");
    activity->members = number_of(report, "members");
    activity->is_member = muster_json_member(report, "rank") != NULL;
    activity->rank = number_of(report, "rank");
    if (activity->epoch > task->run->epoch_last)
        task->run->epoch_last = activity->epoch;
    counts_read(activity, report);
}

/* --- In words */

/* A report of a life before says nothing about the process that runs now. */
static bool is_current(const struct run_task *task)
{
    return task->state == RUN_TASK_RUNNING && task->activity.life == task->lives &&
           task->activity.state[0] != '\0';
}

uint64_t run_activity_silent_ns(const struct run_task *task)
{
    uint64_t now_ns = muster_loop_now_ns(task->run->env->loop);

    return is_current(task) && now_ns > task->activity.heard_ns ? now_ns - task->activity.heard_ns
                                                                : 0;
}

static const char *running_state(const struct run_task *task)
{
    static const struct {
        const char *reported, *shown;
    } names[] = {
        {"start", "starting"},        {"compute", "computing"}, {"collective", "collective"},
        {"outside", "between_steps"}, {"close", "leaving"},
    };
    const struct run_activity *activity = &task->activity;

    if (!is_current(task))
        return "running"; /* it has not reported: perhaps a program that does not use muster */
    if (run_activity_silent_ns(task) > RUN_SILENCE_MAX_NS)
        return "silent";
    if (activity->stands_for[0] != '\0' || activity->waits_for[0] != '\0')
        return "waiting";
    if (strcmp(activity->state, "begin") == 0)
        return activity->is_member ? "beginning" : "joining";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i].reported, activity->state) == 0)
            return names[i].shown;
    return "running";
}

const char *run_activity_state(const struct run_task *task)
{
    switch (task->state) {
    case RUN_TASK_NEW:
        return "starting";
    case RUN_TASK_WAITING:
        return "restarting";
    case RUN_TASK_RUNNING:
        return running_state(task);
    case RUN_TASK_LEFT:
        return "ended";
    case RUN_TASK_FAILED:
        return task->is_preempted && task->wait_status == W_EXITCODE(MUSTER_EXIT_PREEMPTED, 0)
                   ? "preempted"
                   : "failed";
    }
    return "unknown";
}

const char *run_activity_waits_for(const struct run_task *task)
{
    const struct run_task *at = task;
    const char *awaited = "";

    if (!is_current(task))
        return "";
    if (task->activity.waits_for[0] == '\0')
        return task->activity.stands_for;
    /* A chain longer than the tasks is a circle of reports of different times. */
    for (uint32_t i = 0; i <= task->run->task_count; i++) {
        if (at == NULL || !is_current(at) || at->activity.waits_for[0] == '\0' ||
            run_activity_silent_ns(at) > RUN_SILENCE_MAX_NS)
            return awaited;
        awaited = at->activity.waits_for;
        at = run_task_find(task->run, awaited);
    }
    return task->activity.waits_for;
}

/* The members are on their way to a new view, which takes much less than this time. */
static bool is_stuck_in_view(const struct run_task *task, uint64_t now_ns, char *why, size_t bytes)
{
    const struct run_activity *activity = &task->activity;

    if (activity->stood_ns == 0 || now_ns - activity->stood_ns < STUCK_VIEW_NS)
        return false;
    snprintf(why, bytes, "%s has waited %llu s for %s", task->name,
             (unsigned long long)((now_ns - activity->stood_ns) / MUSTER_NS_PER_S),
             activity->stands_for);
    return true;
}

/* Another member has not started the operation for so long, or not answered, and it was the same one all the time. */
static bool is_stuck_in_op(const struct run_task *task, uint64_t now_ns, char *why, size_t bytes)
{
    const struct run_activity *activity = &task->activity;

    if (activity->waits_for[0] == '\0' || now_ns - activity->begun_ns < STUCK_OP_NS ||
        now_ns - activity->waited_ns < STUCK_OP_NS)
        return false;
    snprintf(why, bytes, "%s has waited %llu s for %s in %s", task->name,
             (unsigned long long)((now_ns - activity->begun_ns) / MUSTER_NS_PER_S),
             run_activity_waits_for(task), activity->op);
    return true;
}

bool run_activity_is_stuck(const struct run *run, char *ret_why, size_t bytes)
{
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (!is_current(task))
            continue;
        if (run_activity_silent_ns(task) > RUN_SILENCE_MAX_NS) {
            snprintf(ret_why, bytes, "%s has not reported for %llu s", task->name,
                     (unsigned long long)(run_activity_silent_ns(task) / MUSTER_NS_PER_S));
            return true;
        }
        if (is_stuck_in_view(task, now_ns, ret_why, bytes) ||
            is_stuck_in_op(task, now_ns, ret_why, bytes))
            return true;
    }
    return false;
}
