/* A launcher whose tasks have just reported, for tests that include tools/run/report/activity.c before it. */
#ifndef MUSTER_LAUNCHER_SCENE_H
#define MUSTER_LAUNCHER_SCENE_H

#include "launcher_tasks.h"
#include "test_env.h"

#include <stdlib.h>

enum { TASKS = 4 };

struct scene {
    struct test_env test;
    struct run run;
    struct run_task tasks[TASKS];
};

/* Tasks that have just reported a collective call behind step 2. NULL: no memory. */
static struct scene *scene_open(uint32_t task_count)
{
    struct scene *scene = calloc(1, sizeof(*scene));

    if (scene == NULL)
        return NULL;
    test_env_open(&scene->test);
    scene->run =
        (struct run){.env = &scene->test.env, .tasks = scene->tasks, .task_count = task_count};
    for (uint32_t i = 0; i < task_count; i++) {
        struct run_task *task = &scene->tasks[i];

        task->run = &scene->run;
        task->state = RUN_TASK_RUNNING;
        task->step = 2;
        task->lives = task->activity.life = 1;
        task->activity.heard_ns = muster_loop_now_ns(scene->test.env.loop);
        snprintf(task->name, sizeof(task->name), "worker:%u", i);
        snprintf(task->activity.state, sizeof(task->activity.state), "collective");
    }
    return scene;
}

static void task_waits(struct run_task *task, const char *other)
{
    snprintf(task->activity.waits_for, sizeof(task->activity.waits_for), "%s", other);
}

static int tear_down(void **state)
{
    struct scene *scene = *state;

    test_env_close(&scene->test);
    free(scene);
    return 0;
}

#endif
