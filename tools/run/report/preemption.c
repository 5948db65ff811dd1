/* The words on a preempted run: for whom it waits, and at its end. */
#include "run/report/preemption.h"

#include "run/output/log.h"
#include "run/report/activity.h"
#include "run/report/saved.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 4u
#define SILENT_NS (3 * MUSTER_NS_PER_S)

const struct run_task *run_preemption_find(const struct run *run)
{
    const struct run_task *best = NULL;

    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];

        if (task->is_preempted && (best == NULL || (task->is_saved && !best->is_saved)))
            best = task;
    }
    return best;
}

/* --- The wait --- */

struct waited {
    char *text;
    size_t bytes, length;
    uint32_t count;
};

static void waited_add(struct waited *waited, const char *name, const char *what)
{
    size_t room = waited->bytes - waited->length;
    int length;

    if (waited->count++ >= NAMES_MAX)
        return;
    length = snprintf(waited->text + waited->length, room, "%s%s%s", waited->count > 1 ? ", " : "",
                      name, what);
    waited->length += length > 0 && (size_t)length < room ? (size_t)length : 0;
}

static bool waited_end(struct waited *waited)
{
    if (waited->count > NAMES_MAX)
        (void)snprintf(waited->text + waited->length, waited->bytes - waited->length,
                       " and %u more", waited->count - NAMES_MAX);
    return waited->count > 0;
}

static void task_add(struct waited *waited, const struct run_task *task)
{
    char what[96];

    if (task->is_preempted)
        (void)snprintf(what, sizeof(what), " (stopped, its process still runs)");
    else
        (void)snprintf(what, sizeof(what), " (%s, after step %llu)", run_activity_state(task),
                       (unsigned long long)task->step);
    waited_add(waited, task->name, what);
}

/* A member of another launcher, for whom those of this one wait. */
static void elsewhere_find(struct waited *waited, const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count && waited->count == 0; i++) {
        const char *name = run_activity_waits_for(&run->tasks[i]);

        if (name[0] != '\0')
            waited_add(waited, name, "");
    }
}

/* Reports come several times a second, up to close. A process that was stopped, or gets no processor, says nothing, and
 * may have said last that it waits. */
static void silent_find(struct waited *waited, const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++) {
        const struct run_task *task = &run->tasks[i];
        uint64_t silent_ns = run_activity_silent_ns(task);
        char what[96];

        if (task->state != RUN_TASK_RUNNING || task->is_preempted || silent_ns < SILENT_NS ||
            strcmp(task->activity.state, "close") == 0)
            continue;
        (void)snprintf(what, sizeof(what), " (silent for %llu s, after step %llu)",
                       (unsigned long long)(silent_ns / MUSTER_NS_PER_S),
                       (unsigned long long)task->step);
        waited_add(waited, task->name, what);
    }
}

static void busy_find(struct waited *waited, const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].state == RUN_TASK_RUNNING && !run->tasks[i].is_preempted &&
            strcmp(run_activity_state(&run->tasks[i]), "waiting") != 0)
            task_add(waited, &run->tasks[i]);
}

/* Tasks that wait are named last: most wait for one that has not come to the step's end, and end together with it. */
bool run_preemption_waits(const struct run *run, char *ret_text, size_t bytes)
{
    struct waited waited = {.text = ret_text, .bytes = bytes};

    ret_text[0] = '\0';
    silent_find(&waited, run);
    if (waited.count == 0)
        busy_find(&waited, run);
    if (waited.count == 0)
        elsewhere_find(&waited, run);
    for (uint32_t i = 0; i < run->task_count && waited.count == 0; i++)
        if (run->tasks[i].state == RUN_TASK_RUNNING)
            task_add(&waited, &run->tasks[i]);
    return waited_end(&waited);
}

/* --- At its end --- */

bool run_preemption_tell(struct run *run)
{
    const struct run_task *task = run_preemption_find(run);
    const char *folder = run_saved_folder(run);

    if (task == NULL)
        return false;
    if (task->is_saved && folder != NULL)
        run_tell(
            run,
            "preempted after step %llu, which is saved in %s: the same command goes on from there",
            (unsigned long long)task->step, folder);
    else if (task->is_saved) /* where, the program has said to its members alone */
        run_tell(run,
                 "preempted after step %llu, which is saved in the program's own folder: the same "
                 "command goes on from there",
                 (unsigned long long)task->step);
    else
        run_tell(run, "preempted after step %llu; nothing is saved",
                 (unsigned long long)task->step);
    return true;
}

struct muster_json *run_preemption_json(const struct run *run)
{
    const struct run_task *task = run_preemption_find(run);
    struct muster_json *object;

    if (task == NULL)
        return muster_json_null_new();
    object = muster_json_object_new();
    if (muster_json_set(object, "step", muster_json_integer_new((int64_t)task->step)) &&
        muster_json_set(object, "saved", muster_json_bool_new(task->is_saved)))
        return object;
    muster_json_free(object);
    return NULL;
}
