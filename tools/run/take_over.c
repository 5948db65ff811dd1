/* A successor takes over the workers of a launcher that was killed (--resume). */
#include "run/take_over.h"

#include "run/output/log.h"
#include "run/output/output.h"
#include "run/output/spool.h"
#include "run/resume/table.h"
#include "run/task/child.h"
#include "run/task/keeper.h"
#include "run/task/preempt.h"
#include "run/task/task.h"

#include <signal.h>
#include <unistd.h>

#define SWEEPING_ROUNDS 5000 /* of 1 ms: far more than a keeper needs */

/* The keeper sweeps behind its worker, and ends by itself. */
static void end_life(const struct run_task *task, int keeper, int worker_pid)
{
    kill(worker_pid, SIGKILL);
    for (int i = 0; keeper != 0 && i < SWEEPING_ROUNDS; i++) {
        usleep(1000);
        keeper = run_keeper_find(task, &worker_pid);
    }
    if (keeper != 0)
        kill(-keeper, SIGKILL);
}

/* Lives that were begun while the table could not be written: nobody knows who they are, so they
 * cannot go on, and without a launcher they would wait for ever. */
static void end_lives_beyond_table(struct run_task *task)
{
    unsigned lives = task->lives;

    for (;;) {
        int worker_pid = 0, keeper;

        task->lives++;
        keeper = run_keeper_find(task, &worker_pid);
        if (worker_pid == 0)
            break;
        if (keeper != 0) {
            run_tell(task->run,
                     "%s (pid %d) is ended, and not taken over: it was started while the table of "
                     "this run could not be written",
                     task->name, worker_pid);
            end_life(task, keeper, worker_pid);
        }
        run_spool_remove_life(task);
    }
    task->lives = lives;
}

/* A worker that has ended meanwhile is still RUNNING here, but not watched. */
static void take_over_task(struct run_task *task)
{
    struct run *run = task->run;
    int worker_pid = 0;
    int keeper;
    bool has_end;

    end_lives_beyond_table(task);
    if (task->collected == task->lives)
        return;
    keeper = run_keeper_find(task, &worker_pid);
    if (worker_pid == 0) { /* its launcher died before it could start it */
        run_spool_remove_life(task);
        task->lives--;
        run_task_restore(task, RUN_TASK_WAITING);
        return;
    }
    run_task_restore(task, RUN_TASK_RUNNING);
    task->worker_pid = worker_pid;
    task->started_ns = 0; /* long ago: this life counts as no short one */
    if (!run_output_open_logs(task, true))
        task->output->out.log_fd = task->output->err.log_fd = -1;
    (void)run_keeper_wait_status(task, &has_end); /* its keeper may still be sweeping */
    if (keeper != 0 && !has_end)
        run_tell(run, "%s (pid %d) taken over", task->name, worker_pid);
    run_child_adopt(task, keeper);
}

/* A task whose keeper was gone, or could not be watched: its end is collected like any other. */
static bool has_task_ended(const struct run_task *task)
{
    return task->state == RUN_TASK_RUNNING && !task->is_watched;
}

/* Nothing is started while all end, be it that the predecessor had begun that, or the end of an
 * earlier task has; a gang starts its tasks itself once all have ended. */
static void go_on_with_task(struct run_task *task)
{
    if (has_task_ended(task))
        run_task_on_exit(task);
    else if (task->run->state == RUN_STATE_RUNNING &&
             (task->state == RUN_TASK_NEW || task->state == RUN_TASK_WAITING))
        run_task_start_again(task);
}

/* First all workers are found, as decisions look at all of them; then the end that the predecessor
 * had begun goes on; then each task does. */
void run_take_over(struct run *run)
{
    enum run_state state = run->state;

    /* The predecessor has said why; whoever reads only this launcher's output must not wonder. */
    if (state == RUN_STATE_LEAVING || state == RUN_STATE_STOPPING)
        run_log_error("the launcher before this one had begun to end the job: no worker is started "
                      "again; its output says why");
    run_restore(run, RUN_STATE_RUNNING);
    for (uint32_t i = 0; i < run->task_count; i++)
        take_over_task(&run->tasks[i]);
    if (state == RUN_STATE_REGROUPING || state == RUN_STATE_STOPPING)
        run_task_go_on_ending(run, state == RUN_STATE_REGROUPING);
    if (state == RUN_STATE_LEAVING || state == RUN_STATE_RUNNING)
        run_preempt_go_on(run, state);
    for (uint32_t i = 0; i < run->task_count && run->state != RUN_STATE_DONE; i++)
        go_on_with_task(&run->tasks[i]);
    run_table_save(run);
    run_task_check(run);
}
