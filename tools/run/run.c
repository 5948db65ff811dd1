/* muster run: opens the parts, turns the loop until the last worker has ended, closes the parts.
 *
 * The parts are opened from the registry upwards, as each needs those before it. Closing a part
 * that was not opened has no effect, so one path of closing serves every failure. The table of
 * struct run_control is the only way back from a part to this file. */
#include "run/run.h"

#include "common/command.h"
#include "common/output.h"
#include "run/claim/claim.h"
#include "run/options/folders.h"
#include "run/options/options.h"
#include "run/options/variables.h"
#include "run/output/log.h"
#include "run/output/output.h"
#include "run/output/spool.h"
#include "run/registry/preempt.h"
#include "run/registry/registry.h"
#include "run/registry/roll.h"
#include "run/registry/sweep.h"
#include "run/registry/tls.h"
#include "run/registry/weights.h"
#include "run/report/events.h"
#include "run/report/preemption.h"
#include "run/report/progress.h"
#include "run/report/publish.h"
#include "run/report/saved.h"
#include "run/report/status.h"
#include "run/report/summary.h"
#include "run/resume/resume.h"
#include "run/resume/table.h"
#include "run/signals.h"
#include "run/state/outcome.h"
#include "run/state/resume.h"
#include "run/take_over.h"
#include "run/task/child.h"
#include "run/task/descendants.h"
#include "run/task/collect.h"
#include "run/task/dying.h"
#include "run/task/guard.h"
#include "run/task/places.h"
#include "run/task/preempt.h"
#include "run/task/preload.h"
#include "run/task/ports.h"
#include "run/task/task.h"
#include "run/task/terminal.h"

#include <muster/strategy.h>
#include <muster/strategy_preemption.h>
#include <muster/stream.h>

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A task that came back after the others had finished is not a failure. But if no task finished on
 * time, the first late one is reported as the failure. */
static void blame_late_task(struct run *run)
{
    struct run_task *first = NULL;

    for (uint32_t i = 0; i < run->task_count; i++) {
        struct run_task *task = &run->tasks[i];

        if (task->state == RUN_TASK_LEFT && !task->is_too_late)
            return;
        if (first == NULL && task->is_too_late)
            first = task;
    }
    if (first == NULL || run->failed != NULL || run->settings.nodes_max > 1)
        return;
    first->wait_status = first->death_status;
    run->failed = first;
    run->failed_code = run_task_exit_code(first->wait_status);
}

/* No worker runs or is to be started: decide the exit code, and leave the loop. */
static void run_finish(struct run *run)
{
    struct run_outcome outcome;
    bool has_failed = false;

    if (run->state == RUN_STATE_DONE)
        return;
    run_move(run, RUN_STATE_DONE);
    blame_late_task(run);
    for (uint32_t i = 0; i < run->task_count; i++)
        has_failed = has_failed || run->tasks[i].state != RUN_TASK_LEFT;
    if (run->fatal_code != 0)
        run->exit_code = run->fatal_code;
    else if (run_preemption_find(run) != NULL)
        run->exit_code = MUSTER_EXIT_PREEMPTED;
    else if (run->failed != NULL)
        run->exit_code = run->failed_code;
    else if (has_failed)
        run->exit_code = run->stop_signal != 0 ? EXIT_SIGNAL + run->stop_signal : EXIT_OTHER;
    run_outcome_gather(run, &outcome);
    if (run->exit_code == EXIT_OK && outcome.is_different)
        run->exit_code = EXIT_DIFFERENT;
    if (run->exit_code == EXIT_OK &&
        (run_saved_find_lost(run, &outcome) != NULL || run_saved_is_missing(run, &outcome)))
        run->exit_code = EXIT_OTHER;
    if (run->exit_code == EXIT_OK && run_outcome_is_idle(run))
        run->exit_code = EXIT_OTHER;
    if (run->exit_code == EXIT_OK &&
        (run_outcome_find_skipper(run) != NULL || run_outcome_find_left_out(run) != NULL))
        run->exit_code = EXIT_OTHER;
    if (run->exit_code == EXIT_OK && run->stop_signal == 0 && run_outcome_is_undone(run))
        run->exit_code = EXIT_OTHER;
    if (run->exit_code == EXIT_OK && run->stop_signal == 0 &&
        run_outcome_find_unfinished(run, &outcome) != NULL)
        run->exit_code = EXIT_OTHER;
    if (run->exit_code == EXIT_OK && run_outcome_find_runaway(run) != NULL)
        run->exit_code = EXIT_OTHER;
    muster_timer_stop(&run->grace_timer);
    muster_timer_stop(&run->preemption_timer);
    muster_timer_stop(&run->preemption_tell_timer);
    run_preempt_key_close(run);
    muster_loop_stop(run->env->loop);
}

static bool run_fail(const char *format, ...) MUSTER_PRINTF(1, 2);
static bool run_fail(const char *format, ...)
{
    char text[MUSTER_ERROR_TEXT_BYTES];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    run_log_error("%s", text);
    return false;
}

/* Each worker costs three pipes and a pidfd here. The workers get the limit as it was. */
static void raise_descriptor_limit(struct run *run)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &run->descriptors);
    limit = run->descriptors;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Ports that were free just now: MASTER_PORT, and those of the cluster in TF_CONFIG. */
static bool open_ports(struct run *run)
{
    const struct run_settings *settings = &run->settings;
    uint16_t *ports = calloc(settings->worker_count + 1u, sizeof(ports[0]));
    char *cluster = NULL;
    size_t bytes = 0;
    FILE *file;

    if (ports == NULL)
        return run_fail("no memory");
    if (!run_ports_find(run->env->rng, ports, settings->worker_count + 1u)) {
        int sys = errno;

        free(ports);
        return run_fail("no free port on 127.0.0.1: %s", strerror(sys));
    }
    run->master_port = settings->master_port != 0 ? (uint16_t)settings->master_port
                                                  : ports[settings->worker_count];
    file = settings->nodes_max == 1 ? open_memstream(&cluster, &bytes) : NULL;
    if (file != NULL) {
        fputs("{\"worker\": [", file);
        for (uint32_t i = 0; i < settings->worker_count; i++)
            fprintf(file, "%s\"127.0.0.1:%u\"", i > 0 ? ", " : "", ports[i]);
        fputs("]}", file);
        fclose(file);
    }
    run->tf_cluster = cluster;
    free(ports);
    return true;
}

/* The output of workers may get lost, but not the summary that was asked for. */
static void close_output(struct run *run)
{
    int error = 0;

    if (!run_output_close(run, &error) && run->settings.json != NULL &&
        strcmp(run->settings.json, "-") == 0) {
        if (error == 0 || error == EPIPE) /* not told yet */
            output_tell_lost("the summary", STDOUT_FILENO, error != 0 ? error : ETIMEDOUT);
        if (run->exit_code == EXIT_OK)
            run->exit_code = EXIT_OTHER;
    }
}

static bool open_tasks(struct run *run)
{
    run->tasks = calloc(run->settings.worker_count, sizeof(run->tasks[0]));
    if (run->tasks == NULL)
        return run_fail("no memory");
    run->task_count = run->settings.worker_count;
    for (uint32_t i = 0; i < run->task_count; i++) {
        run_task_init(&run->tasks[i], run, i);
        run_output_open_task(&run->tasks[i]);
    }
    return true;
}

static void close_tasks(struct run *run)
{
    for (uint32_t i = 0; run->tasks != NULL && i < run->task_count; i++) {
        run_output_close_task(&run->tasks[i]);
        free(run->tasks[i].trace_file);
    }
    free(run->tasks);
}

/* A successor takes the facts of its predecessor from the table. */
static bool recall_table(struct run *run)
{
    const char *why = NULL;

    if (run->resume == NULL || !run->resume->is_resumed)
        return true;
    if (run_table_load(run, &why))
        return true;
    run_log_error("--resume %s %s", run->resume->dir, why);
    return false;
}

static bool open_places(struct run *run)
{
    run_table_open(run);
    if (run->resume != NULL && !run_spool_open(run))
        return run_fail("the directory of --resumable cannot be watched: %s", strerror(errno));
    if (!run_trace_dir_open(run) || !run_checkpoint_dir_open(run))
        return false;
    return (run->resume != NULL && run->resume->is_resumed) ||
           (run_listen_has_ports(&run->settings, &run->exit_code) && run_log_dir_open(run) &&
            open_ports(run));
}

/* The run began when its first launcher did: a successor counts from there, by the wall clock, as
 * far as its monotonic clock reaches back. */
static void start_clock(struct run *run)
{
    uint64_t now_ns = muster_loop_now_ns(run->env->loop);
    uint64_t wall_ns = muster_host_wall_ns(run->env->host);
    uint64_t age_ns = 0;

    if (run->began_wall_ns == 0)
        run->began_wall_ns = wall_ns;
    else if (wall_ns > run->began_wall_ns)
        age_ns = wall_ns - run->began_wall_ns;
    run->started_ns = age_ns < now_ns ? now_ns - age_ns : 0;
}

static bool has_started_any(const struct run *run)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (run->tasks[i].worker_pid != 0 || run->tasks[i].state == RUN_TASK_WAITING)
            return true;
    return false;
}

/* Logs without --log-dir go to a temporary directory, which people are told; without a worker it is
 * removed. */
static void start_all(struct run *run)
{
    bool is_temporary = run->settings.log_dir == NULL && run->log_dir[0] != '\0';

    run_task_start_all(run);
    if (is_temporary && has_started_any(run))
        run_tell(run, "logs are in %s", run->log_dir);
    else if (is_temporary)
        run_output_remove_logs(run);
}

static void run_open_loop(struct run *run)
{
    run_sweep_open(run);
    start_clock(run);
    run_terminal_open(run);
    run_preload_open(run);
    if (run->resume != NULL && run->resume->is_resumed)
        run_take_over(run);
    else
        start_all(run);
    if (run->state != RUN_STATE_DONE)
        muster_loop_run(run->env->loop);
    run_preload_close(run);
    run_progress_stop(run);
    run_events_flush(run);
    run_weights_compare(run);
    run_summary_print(run);
    if (!run_summary_write(run) && run->exit_code == EXIT_OK)
        run->exit_code = EXIT_OTHER;
    run_table_save(run);
    run_spool_close(run);
}

static void run_with_signals(struct run *run)
{
    if (!run_signals_open(run)) {
        run->exit_code = EXIT_OTHER;
        run_fail("cannot handle signals: %s", strerror(errno));
        return;
    }
    run_events_open(run);
    run_publish_open(run);
    run_places_open(run);
    run_dying_open(run);
    run_open_loop(run);
    run_dying_close(run);
    run_places_close(run);
    run_publish_close(run);
    run_events_close(run);
    run_signals_close(run);
}

/* The client of the registry, and the parts that are idle until it answers. */
static bool open_registry(struct run *run, struct muster_error *ret_error)
{
    if (!run_tls_open(run, ret_error) || !run_registry_open(run, ret_error))
        return false;
    run_weights_open(run);
    run_roll_share(run->roll, run);
    return true;
}

static int run_in(struct run *run)
{
    struct muster_error error = {0};

    run_output_open(run);
    run_progress_open(run);
    muster_timer_init(&run->grace_timer, NULL, run);
    muster_timer_init(&run->preemption_timer, NULL, run);
    muster_timer_init(&run->preemption_tell_timer, NULL, run);
    run->exit_code = EXIT_OK;
    run->roll = run_roll_new();
    if (!run_variables_check(run)) {
        run->exit_code = EXIT_USAGE;
    } else if (!open_tasks(run)) {
        run->exit_code = EXIT_OTHER;
    } else if (!recall_table(run)) {
        run->exit_code = EXIT_BAD_INPUT;
    } else if (!open_registry(run, &error)) {
        run_log_error("%s", error.text);
        run->exit_code = command_exit_of(error.rc);
    } else if (!run_claim_take(run, &run->exit_code) || !run_former_confirm(run, &run->exit_code)) {
        ; /* told */
    } else if (!open_places(run)) {
        run->exit_code = run->exit_code != EXIT_OK ? run->exit_code : EXIT_OTHER;
    } else if (run_status_open(run, &run->exit_code)) {
        run_with_signals(run);
    }
    run_status_close(run);
    run_sweep_close(run);
    run_former_close(run);
    run_claim_close(run);
    run_registry_close(run);
    run_weights_close(run);
    run_tls_close(run);
    run_spool_close(run);
    run_table_close(run);
    close_output(run);
    close_tasks(run);
    free(run->tf_cluster);
    run_roll_free(run->roll);
    return run->exit_code;
}

static int open_and_run(struct run *run)
{
    int code = EXIT_OTHER;
    enum muster_rc rc = muster_env_system_open(NULL, &run->env);

    if (rc != MUSTER_OK) {
        run_fail("no event loop: %s", muster_rc_text(rc));
        return EXIT_OTHER;
    }
    rc = muster_net_system_open(run->env, &run->env->net);
    if (rc == MUSTER_OK) {
        code = run_in(run);
        muster_net_system_close(run->env->net);
    } else {
        run_fail("no network: %s", muster_rc_text(rc));
    }
    muster_env_system_close(run->env);
    return code;
}

static bool open_resume(struct run *run, struct run_resume *resume, int argc, char **argv,
                        int *ret_exit)
{
    const char *dir = run->settings.resume;

    if (dir == NULL && run->settings.resumable == NULL)
        return true;
    run->resume = resume;
    if (dir == NULL)
        return run_resume_begin(resume, run->settings.resumable, argc, argv, ret_exit);
    return run_resume_recall(resume, dir, &argv, &argc, ret_exit) &&
           run_settings_read(&run->settings, argc, argv, ret_exit);
}

static void on_place_held(struct run *run, uint64_t launcher)
{
    run_guard_claim(run, launcher);
}

static void kill_all(struct run *run)
{
    run_task_signal_all(run, SIGKILL);
}

static const struct run_control control = {.on_exit = run_task_on_exit,
                                           .on_opened = run_dying_watch,
                                           .on_dying = run_task_note_dying,
                                           .on_loss_told = run_task_on_loss_told,
                                           .on_preempted = run_preempt_on_stopped,
                                           .on_place_held = on_place_held,
                                           .on_preloaded = run_task_on_preloaded,
                                           .on_changed = run_table_changed,
                                           .on_all_ended = run_finish,
                                           .end_all = run_task_end_all,
                                           .kill_all = kill_all};

/* The guard is forked first, while there is little to inherit. As a subreaper this process adopts
 * the orphans of its workers, which it can then end. */
int command_run(int argc, char **argv)
{
    struct run_resume resume = {.lock_fd = -1};
    struct run *run = calloc(1, sizeof(*run));
    int code = EXIT_OTHER;

    if (run == NULL)
        output_no_memory();
    if (run_settings_read(&run->settings, argc, argv, &code) &&
        open_resume(run, &resume, argc, argv, &code)) {
        run->control = &control;
        run->pid = getpid();
        run->guard_fd = run->resume == NULL ? run_guard_start(run, &run->guard_pid) : -1;
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        raise_descriptor_limit(run);
        code = open_and_run(run);
        run_guard_stop(run->guard_fd, run->guard_pid);
        run_descendants_kill();
    }
    run_resume_end(&resume);
    free(run);
    return code;
}
