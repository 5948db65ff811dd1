/* The tasks that a job which stops waits for, from their reports. */
#include "tools/run/report/preemption.c"

#include "tools/run/report/activity.c"

#include "launcher_scene.h"

const char *run_saved_folder(const struct run *run)
{
    return run->settings.checkpoint_dir;
}

void run_tell(struct run *run, const char *format, ...)
{
    (void)run;
    (void)format;
}

static int set_up(void **state)
{
    *state = scene_open(3);
    return *state != NULL ? 0 : -1;
}

static void assert_waits(const struct scene *scene, const char *expected)
{
    char text[200];

    assert_true(run_preemption_waits(&scene->run, text, sizeof(text)));
    assert_string_equal(text, expected);
}

static void tasks_that_wait_are_not_waited_for(void **state)
{
    struct scene *scene = *state;

    assert_waits(scene, "worker:0 (collective, after step 2), worker:1 (collective, after step 2), "
                        "worker:2 (collective, after step 2)");
    task_waits(&scene->tasks[0], "worker:1");
    task_waits(&scene->tasks[2], "worker:1");
    assert_waits(scene, "worker:1 (collective, after step 2)");
    task_waits(&scene->tasks[1], "worker:9"); /* of another launcher */
    assert_waits(scene, "worker:9");
}

/* It was stopped when it waited, and the others have come to the call since. */
static void a_task_that_says_nothing_is_waited_for_by_all(void **state)
{
    struct scene *scene = *state;

    task_waits(&scene->tasks[1], "worker:0");
    scene->tasks[1].activity.heard_ns -= 4 * MUSTER_NS_PER_S;
    assert_waits(scene, "worker:1 (silent for 4 s, after step 2)");
    scene->tasks[1].is_preempted = true;
    assert_waits(scene, "worker:0 (collective, after step 2), worker:2 (collective, after step 2)");
}

/* A task reports no more behind its close, and works on. */
static void a_task_that_has_closed_is_not_silent(void **state)
{
    struct scene *scene = *state;

    snprintf(scene->tasks[1].activity.state, sizeof(scene->tasks[1].activity.state), "close");
    scene->tasks[1].activity.heard_ns -= 4 * MUSTER_NS_PER_S;
    assert_waits(scene, "worker:0 (collective, after step 2), worker:1 (leaving, after step 2), "
                        "worker:2 (collective, after step 2)");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(tasks_that_wait_are_not_waited_for),
        CASE(a_task_that_says_nothing_is_waited_for_by_all),
        CASE(a_task_that_has_closed_is_not_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
