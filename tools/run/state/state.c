/* States of a run and of its tasks, and the moves between them.
 *
 * run_move and run_task_move are the only ways to change a state, so that a wrong move aborts where
 * it is made; only a successor, which finds a state in a table, restores one without a move. */
#include "common/command.h"
#include "run/state/run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define BIT(state) (1u << (state))

void run_move(struct run *run, enum run_state to)
{
    static const unsigned allowed[] = {
        [RUN_STATE_RUNNING] = BIT(RUN_STATE_REGROUPING) | BIT(RUN_STATE_LEAVING) |
                              BIT(RUN_STATE_STOPPING) | BIT(RUN_STATE_DONE),
        [RUN_STATE_LEAVING] = BIT(RUN_STATE_STOPPING) | BIT(RUN_STATE_DONE),
        [RUN_STATE_REGROUPING] =
            BIT(RUN_STATE_RUNNING) | BIT(RUN_STATE_STOPPING) | BIT(RUN_STATE_DONE),
        [RUN_STATE_STOPPING] = BIT(RUN_STATE_DONE),
        [RUN_STATE_DONE] = 0,
    };

    MUSTER_ASSERT((allowed[run->state] & BIT(to)) != 0);
    run->state = to;
}

void run_restore(struct run *run, enum run_state state)
{
    MUSTER_ASSERT(state <= RUN_STATE_DONE);
    run->state = state;
}

bool run_is_ending(const struct run *run)
{
    return run->state == RUN_STATE_STOPPING || run->state == RUN_STATE_DONE;
}

void run_task_move(struct run_task *task, enum run_task_state to)
{
    static const unsigned allowed[] = {
        [RUN_TASK_NEW] = BIT(RUN_TASK_WAITING) | BIT(RUN_TASK_RUNNING) | BIT(RUN_TASK_FAILED),
        /* WAITING again: a successor starts the wait of its predecessor anew. */
        [RUN_TASK_WAITING] = BIT(RUN_TASK_RUNNING) | BIT(RUN_TASK_FAILED) | BIT(RUN_TASK_WAITING),
        [RUN_TASK_RUNNING] = BIT(RUN_TASK_LEFT) | BIT(RUN_TASK_FAILED) | BIT(RUN_TASK_WAITING),
        /* A gang restart starts finished and failed tasks again. */
        [RUN_TASK_LEFT] = BIT(RUN_TASK_WAITING),
        [RUN_TASK_FAILED] = BIT(RUN_TASK_WAITING),
    };

    MUSTER_ASSERT((allowed[task->state] & BIT(to)) != 0);
    task->state = to;
}

void run_task_restore(struct run_task *task, enum run_task_state state)
{
    MUSTER_ASSERT(state <= RUN_TASK_FAILED);
    task->state = state;
}

struct run_task *run_task_find(const struct run *run, const char *name)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (strcmp(run->tasks[i].name, name) == 0)
            return &run->tasks[i];
    return NULL;
}

uint32_t run_task_count(const struct run *run, enum run_task_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->task_count; i++)
        count += run->tasks[i].state == state;
    return count;
}

int run_task_exit_code(int wait_status)
{
    return WIFSIGNALED(wait_status) ? EXIT_SIGNAL + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

const char *run_task_death(int wait_status, char *text, size_t bytes)
{
    const char *name = WIFSIGNALED(wait_status) ? sigabbrev_np(WTERMSIG(wait_status)) : NULL;

    if (!WIFSIGNALED(wait_status))
        snprintf(text, bytes, "exited with code %d", WEXITSTATUS(wait_status));
    else if (WTERMSIG(wait_status) == SIGXFSZ)
        snprintf(text, bytes, "killed by SIGXFSZ (file size limit: ulimit -f)");
    else if (name != NULL)
        snprintf(text, bytes, "killed by SIG%s", name);
    else
        snprintf(text, bytes, "killed by signal %d", WTERMSIG(wait_status));
    return text;
}
