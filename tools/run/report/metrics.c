/* The metrics of a running job. */
#include "run/report/metrics.h"

#include "jobs/metrics_text.h"
#include "run/report/activity.h"
#include "run/report/health.h"
#include "run/report/history.h"

#include <muster/base.h>

#define SECONDS(ns) ((double)(ns) / (double)MUSTER_NS_PER_S)

struct counter_row {
    enum run_count count;
    const char *label; /* its value */
};

static const struct counter_row time_rows[] = {
    {RUN_COUNT_START_NS, "start"},     {RUN_COUNT_BEGIN_NS, "begin"},
    {RUN_COUNT_COMPUTE_NS, "compute"}, {RUN_COUNT_COLLECTIVE_NS, "collective"},
    {RUN_COUNT_OUTSIDE_NS, "outside"}, {RUN_COUNT_CLOSE_NS, "close"},
};
static const struct counter_row wire_rows[] = {
    {RUN_COUNT_SHM_BYTES, "shm"},
    {RUN_COUNT_TCP_BYTES, "tcp"},
    {RUN_COUNT_NCCL_BYTES, "nccl"},
};

static void write_info(struct metrics_text *text, const struct run *run)
{
    char version[32], rank[24];

    snprintf(version, sizeof(version), "%d.%d.%d", MUSTER_VERSION_MAJOR, MUSTER_VERSION_MINOR,
             MUSTER_VERSION_PATCH);
    snprintf(rank, sizeof(rank), "%llu", (unsigned long long)run->settings.node_rank);
    metrics_text_family(text, METRICS_INFO, "muster_run", "",
                        "The job, and which launcher this is.");
    metrics_text_sample(text, 1, 3, "job", run->settings.job_name, "node_rank", rank, "version",
                        version);
}

static void write_gauge(struct metrics_text *text, const char *name, const char *unit,
                        const char *help, double value)
{
    metrics_text_family(text, METRICS_GAUGE, name, unit, help);
    metrics_text_sample(text, value, 0);
}

static void write_job(struct metrics_text *text, const struct run *run)
{
    struct muster_error why;

    write_gauge(text, "muster_run_start_time_seconds", "seconds", "When the job began, Unix time.",
                SECONDS(run->began_wall_ns));
    write_gauge(text, "muster_run_healthy", "", "1: /healthz answers 200.",
                run_health_check(run, &why) == MUSTER_OK &&
                    run_health_check_checkpoints(run, &why) == MUSTER_OK);
    write_gauge(text, "muster_run_step", "", "The last committed step.",
                (double)run->progress.step);
    write_gauge(text, "muster_run_view", "", "The number of the view.", (double)run->epoch_last);
    write_gauge(text, "muster_run_members", "", "Members of the view, on all machines.",
                (double)run->progress.members);
    metrics_text_family(text, METRICS_COUNTER, "muster_run_rejoins", "",
                        "Workers that came back and got the state of the others.");
    metrics_text_sample(text, (double)run->rejoins, 0);
    metrics_text_family(text, METRICS_GAUGE, "muster_run_value", "",
                        "What the program has reported last, by name.");
    for (size_t i = 0; i < run->progress.values.count; i++)
        metrics_text_sample(text, run->progress.values.at[i].value, 1, "name",
                            run->progress.values.at[i].name);
}

static void write_checkpoints(struct metrics_text *text, const struct run *run)
{
    metrics_text_family(text, METRICS_COUNTER, "muster_run_checkpoints", "",
                        "Checkpoints that are whole, and those that were given up.");
    metrics_text_sample(text, (double)run->checkpoints_saved, 1, "outcome", "saved");
    metrics_text_sample(text, (double)run->checkpoints_failed, 1, "outcome", "failed");
    if (run->checkpoints_saved == 0)
        return;
    write_gauge(text, "muster_run_checkpoint_step", "", "The step of the last whole checkpoint.",
                (double)run->checkpoint_step);
    write_gauge(text, "muster_run_checkpoint_time_seconds", "seconds",
                "When the last whole checkpoint was complete, Unix time.",
                SECONDS(run->checkpoint_wall_ns));
    write_gauge(text, "muster_run_checkpoint_duration_seconds", "seconds",
                "How long the last whole checkpoint took, beside the steps.",
                SECONDS(run->checkpoint_duration_ns));
}

static void write_recoveries(struct metrics_text *text, const struct run_history *history)
{
    metrics_text_family(text, METRICS_COUNTER, "muster_run_recoveries", "",
                        "Changes of view after a loss, by the verdict on the operation that was "
                        "under way (none: there was none).");
    for (size_t i = 0; i < RUN_VERDICTS; i++)
        metrics_text_sample(text, (double)history->recoveries[i].count, 1, "verdict",
                            history->recoveries[i].verdict);
    metrics_text_family(text, METRICS_HISTOGRAM, "muster_run_recovery_seconds", "seconds",
                        "How long the members stood still after a loss.");
    for (size_t i = 0; i < RUN_VERDICTS; i++)
        metrics_text_histogram(text, "verdict", history->recoveries[i].verdict,
                               run_recovery_bounds_s, RUN_RECOVERY_BOUNDS,
                               history->recoveries[i].buckets, history->recoveries[i].sum_s);
}

static void write_tasks(struct metrics_text *text, const struct run *run)
{
    metrics_text_family(text, METRICS_COUNTER, "muster_worker_restarts", "",
                        "Starts of the task after its first.");
    for (uint32_t i = 0; i < run->task_count; i++)
        metrics_text_sample(text, run->tasks[i].lives > 0 ? run->tasks[i].lives - 1.0 : 0, 1,
                            "task", run->tasks[i].name);
    metrics_text_family(text, METRICS_GAUGE, "muster_worker_state", "",
                        "1 for what the task does now (docs/monitoring.md).");
    for (uint32_t i = 0; i < run->task_count; i++)
        metrics_text_sample(text, 1, 2, "task", run->tasks[i].name, "state",
                            run_activity_state(&run->tasks[i]));
    metrics_text_family(text, METRICS_GAUGE, "muster_worker_step", "",
                        "The last step that the task has committed.");
    for (uint32_t i = 0; i < run->task_count; i++)
        metrics_text_sample(text, (double)run->tasks[i].step, 1, "task", run->tasks[i].name);
    metrics_text_family(text, METRICS_COUNTER, "muster_worker_steps", "",
                        "Steps that the task has committed, in all its lives.");
    for (uint32_t i = 0; i < run->task_count; i++)
        metrics_text_sample(
            text, (double)run_counter_sum(&run->tasks[i].activity.counts[RUN_COUNT_STEPS]), 1,
            "task", run->tasks[i].name);
}

static void write_times(struct metrics_text *text, const struct run *run)
{
    metrics_text_family(text, METRICS_COUNTER, "muster_worker_time_seconds", "seconds",
                        "Where the time of the task went.");
    for (uint32_t i = 0; i < run->task_count; i++)
        for (size_t k = 0; k < sizeof(time_rows) / sizeof(time_rows[0]); k++)
            metrics_text_sample(
                text, SECONDS(run_counter_sum(&run->tasks[i].activity.counts[time_rows[k].count])),
                2, "task", run->tasks[i].name, "activity", time_rows[k].label);
    metrics_text_family(text, METRICS_COUNTER, "muster_worker_waiting_seconds", "seconds",
                        "Of the time in collectives: until the last member had started it, too.");
    for (uint32_t i = 0; i < run->task_count; i++)
        metrics_text_sample(
            text, SECONDS(run_counter_sum(&run->tasks[i].activity.counts[RUN_COUNT_WAITING_NS])), 1,
            "task", run->tasks[i].name);
    metrics_text_family(text, METRICS_COUNTER, "muster_worker_waited_seconds", "seconds",
                        "The same by the member that came last.");
    for (uint32_t i = 0; i < run->task_count; i++)
        for (size_t k = 0; k < run->tasks[i].activity.wait_count; k++)
            metrics_text_sample(text, SECONDS(run_counter_sum(&run->tasks[i].activity.waits[k].ns)),
                                2, "task", run->tasks[i].name, "for",
                                run->tasks[i].activity.waits[k].task);
    metrics_text_family(text, METRICS_GAUGE, "muster_worker_waits", "",
                        "1 while the task waits for another one, or for a change of view.");
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run_activity_waits_for(&run->tasks[i])[0] != '\0')
            metrics_text_sample(text, 1, 2, "task", run->tasks[i].name, "for",
                                run_activity_waits_for(&run->tasks[i]));
}

static void write_bytes(struct metrics_text *text, const struct run *run)
{
    metrics_text_family(text, METRICS_COUNTER, "muster_worker_sent_bytes", "bytes",
                        "Bytes of tensors and sums that the task gave to the others, by wire.");
    for (uint32_t i = 0; i < run->task_count; i++)
        for (size_t k = 0; k < sizeof(wire_rows) / sizeof(wire_rows[0]); k++)
            metrics_text_sample(
                text, (double)run_counter_sum(&run->tasks[i].activity.counts[wire_rows[k].count]),
                2, "task", run->tasks[i].name, "wire", wire_rows[k].label);
}

void run_metrics_write(const struct run *run, struct muster_http_reply *reply)
{
    struct metrics_text text;

    metrics_text_begin(&text, reply);
    write_info(&text, run);
    write_job(&text, run);
    write_checkpoints(&text, run);
    write_recoveries(&text, run->history);
    write_tasks(&text, run);
    write_times(&text, run);
    write_bytes(&text, run);
    metrics_text_end(&text);
}
