/* The job as this launcher knows it, as one JSON object: the page's data and the record in the
 * registry. */
#include "run/report/status_json.h"

#include "common/command.h"
#include "run/registry/registry.h"
#include "run/report/activity.h"
#include "run/report/health.h"
#include "run/report/preemption.h"

#include <string.h>
#include <unistd.h>

#include <muster/strategy_preemption.h>

static struct muster_json *number_new(uint64_t value)
{
    return muster_json_integer_new((int64_t)value);
}

static struct muster_json *text_or_null(const char *text)
{
    return muster_json_text_new(text[0] != '\0' ? text : NULL);
}

static const char *host_name(void)
{
    static char name[256];

    if (name[0] == '\0' && gethostname(name, sizeof(name) - 1) != 0)
        strcpy(name, "unknown");
    return name;
}

static struct muster_json *counts_of(const struct run_activity *activity)
{
    static const struct {
        enum run_count count;
        const char *name;
    } rows[] = {
        {RUN_COUNT_COMPUTE_NS, "compute_ns"}, {RUN_COUNT_COLLECTIVE_NS, "collective_ns"},
        {RUN_COUNT_WAITING_NS, "waiting_ns"}, {RUN_COUNT_BEGIN_NS, "begin_ns"},
        {RUN_COUNT_OUTSIDE_NS, "outside_ns"}, {RUN_COUNT_SHM_BYTES, "shm_bytes"},
        {RUN_COUNT_TCP_BYTES, "tcp_bytes"},   {RUN_COUNT_NCCL_BYTES, "nccl_bytes"},
    };
    struct muster_json *object = muster_json_object_new();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!muster_json_set(object, rows[i].name,
                             number_new(run_counter_sum(&activity->counts[rows[i].count]))))
            break;
    return object;
}

static struct muster_json *waited_of(const struct run_activity *activity)
{
    struct muster_json *object = muster_json_object_new();

    for (size_t i = 0; i < activity->wait_count; i++)
        if (!muster_json_set(object, activity->waits[i].task,
                             number_new(run_counter_sum(&activity->waits[i].ns))))
            break;
    return object;
}

static struct muster_json *member_of(const struct run_task *task)
{
    const struct run_activity *activity = &task->activity;
    struct muster_json *object = muster_json_object_new();

    if (muster_json_set(object, "task", muster_json_text_new(task->name)) &&
        muster_json_set(object, "rank",
                        number_new(activity->is_member ? activity->rank : task->rank)) &&
        muster_json_set(object, "host", muster_json_text_new(host_name())) &&
        muster_json_set(object, "pid", number_new((uint64_t)task->worker_pid)) &&
        muster_json_set(object, "state", muster_json_text_new(run_activity_state(task))) &&
        muster_json_set(object, "waits_for", text_or_null(run_activity_waits_for(task))) &&
        muster_json_set(object, "op", text_or_null(activity->op)) &&
        muster_json_set(object, "step", number_new(task->step)) &&
        muster_json_set(object, "restarts", number_new(task->lives > 0 ? task->lives - 1 : 0)) &&
        muster_json_set(object, "counts", counts_of(activity)) &&
        muster_json_set(object, "waited_ns", waited_of(activity)))
        return object;
    muster_json_free(object);
    return NULL;
}

static struct muster_json *members_of(const struct run *run)
{
    struct muster_json *members = muster_json_array_new();

    for (uint32_t i = 0; i < run->task_count; i++)
        if (!muster_json_append(members, member_of(&run->tasks[i])))
            break;
    return members;
}

static struct muster_json *values_of(const struct run *run)
{
    struct muster_json *values = muster_json_object_new();

    for (size_t i = 0; i < run->progress.values.count; i++)
        (void)muster_json_set(values, run->progress.values.at[i].name, /* NAN has no word there */
                              muster_json_real_new(run->progress.values.at[i].value));
    return values;
}

static const char *state_of(const struct run *run, bool is_healthy)
{
    if (run->state == RUN_STATE_DONE && run->exit_code == MUSTER_EXIT_PREEMPTED &&
        run_preemption_find(run) != NULL)
        return "preempted";
    if (run->state == RUN_STATE_DONE)
        return run->exit_code == EXIT_OK ? "ended" : "failed";
    if (run->state == RUN_STATE_LEAVING || run->state == RUN_STATE_STOPPING || run->failed != NULL)
        return "ending";
    return is_healthy ? "running" : "waiting";
}

struct muster_json *run_status_json(const struct run *run, const char *url)
{
    struct muster_json *object = muster_json_object_new();
    struct muster_error why = {.rc = MUSTER_OK};
    struct muster_error unsaved = {.text = ""};
    bool is_healthy = run_health_check(run, &why) == MUSTER_OK;
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);

    (void)!run_health_check_checkpoints(run, &unsaved); /* a warning has a text, too */
    if (muster_json_set(object, "job", muster_json_text_new(run->settings.job_name)) &&
        muster_json_set(object, "node_rank", number_new(run->settings.node_rank)) &&
        muster_json_set(object, "machines", number_new(run->settings.nodes_max)) &&
        muster_json_set(object, "host", muster_json_text_new(host_name())) &&
        muster_json_set(object, "pid", number_new((uint64_t)run->pid)) &&
        muster_json_set(object, "status", text_or_null(url)) &&
        muster_json_set(object, "registry", muster_json_text_new(run_registry_endpoint(run))) &&
        muster_json_set(object, "state", muster_json_text_new(state_of(run, is_healthy))) &&
        muster_json_set(object, "reason", text_or_null(is_healthy ? "" : why.text)) &&
        muster_json_set(object, "checkpoints", text_or_null(unsaved.text)) &&
        muster_json_set(object, "elapsed_ms",
                        number_new(run->started_ns > 0 && now_ns > run->started_ns
                                       ? (now_ns - run->started_ns) / MUSTER_NS_PER_MS
                                       : 0)) &&
        muster_json_set(object, "view", number_new(run->epoch_last)) &&
        muster_json_set(object, "members_in_view", number_new(run->progress.members)) &&
        muster_json_set(object, "step", number_new(run->progress.step)) &&
        muster_json_set(object, "restarts", number_new(run->restarts)) &&
        muster_json_set(object, "values", values_of(run)) &&
        muster_json_set(object, "members", members_of(run)))
        return object;
    muster_json_free(object);
    return NULL;
}
