/* How long the members stood still after a death: from the moment when the launcher saw it to the
 * next operation that each of them delivered, and how much of it they needed to learn of it. All
 * times are of this host's monotonic clock; of a death on another host the launcher knows only what
 * its own workers say. */
#include "run/report/recovery.h"

static uint64_t ns_of(const struct muster_json *report, const char *name)
{
    int64_t value = muster_json_integer(muster_json_member(report, name));

    return value > 0 ? (uint64_t)value : 0;
}

void run_recovery_note(struct run_epoch *epoch, const struct muster_json *report)
{
    uint64_t detected_ns = ns_of(report, "detected_ns"), opened_ns = ns_of(report, "opened_ns");

    if (detected_ns == 0)
        return;
    epoch->awaited++;
    if (epoch->detected_ns == 0 || detected_ns < epoch->detected_ns)
        epoch->detected_ns = detected_ns;
    if (opened_ns > epoch->ended_ns)
        epoch->ended_ns = opened_ns;
}

struct run_epoch *run_recovery_on_delivered(struct run_task *task, const struct muster_json *report)
{
    struct run_events *events = task->run->events;
    uint64_t number = ns_of(report, "epoch"), delivered_ns = ns_of(report, "delivered_ns");

    for (size_t i = 0; i < RUN_EPOCHS_MAX; i++) {
        struct run_epoch *epoch = &events->epochs[i];

        if (!epoch->is_open || epoch->epoch != number)
            continue;
        epoch->delivered++;
        if (delivered_ns > epoch->ended_ns)
            epoch->ended_ns = delivered_ns;
        return epoch;
    }
    return NULL;
}

bool run_recovery_is_known(const struct run_epoch *epoch)
{
    return epoch->delivered >= epoch->awaited;
}

/* The death is of a life before the one that the view has lost, which was left out alive. */
static bool is_death_of_former_life(const struct run_epoch *epoch, const struct run_task *task)
{
    return task->joined_ns > task->died_ns && (uint64_t)task->join_epoch < epoch->epoch;
}

/* The first death of those that the view has lost, as this launcher saw it; 0: it saw none. */
static uint64_t death_ns(const struct run_epoch *epoch)
{
    const struct run *run = epoch->run;
    uint64_t first_ns = 0;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (task->died_ns != 0 && run_names_contain(epoch->lost, task->name) &&
            !is_death_of_former_life(epoch, task) && (first_ns == 0 || task->died_ns < first_ns))
            first_ns = task->died_ns;
    }
    return first_ns;
}

/* The recovery is counted from the death, or from its detection if that came first, to the last
 * delivery. */
void run_recovery_settle(struct run_epoch *epoch)
{
    uint64_t died_ns = death_ns(epoch);
    uint64_t from_ns = epoch->detected_ns;

    epoch->detection_ms = -1;
    if (epoch->detected_ns == 0)
        return; /* recovery_ms stays as the workers reported it */
    if (died_ns != 0 && died_ns < from_ns)
        from_ns = died_ns; /* a dying worker may be noticed before its process has ended */
    if (died_ns != 0)
        epoch->detection_ms = (double)(epoch->detected_ns - from_ns) / (double)MUSTER_NS_PER_MS;
    if (epoch->ended_ns > from_ns)
        epoch->recovery_ms = (double)(epoch->ended_ns - from_ns) / (double)MUSTER_NS_PER_MS;
}
