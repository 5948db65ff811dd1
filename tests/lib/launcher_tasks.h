/* The launcher's look-up of a task, for tests that play its other parts. */
#ifndef MUSTER_LAUNCHER_TASKS_H
#define MUSTER_LAUNCHER_TASKS_H

#include "run/state/run.h"
#include "run/state/task.h"

#include <string.h>

struct run_task *run_task_find(const struct run *run, const char *name)
{
    for (uint32_t i = 0; i < run->task_count; i++)
        if (strcmp(run->tasks[i].name, name) == 0)
            return &run->tasks[i];
    return NULL;
}

#endif
