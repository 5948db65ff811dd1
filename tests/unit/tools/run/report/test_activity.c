/* The waits of tasks for each other, from the reports of all. */
#include "tools/run/report/activity.c"

#include "launcher_scene.h"

/* Each task waits for the next one; the last one computes. */
static int set_up(void **state)
{
    struct scene *scene = scene_open(TASKS);

    for (uint32_t i = 0; scene != NULL && i + 1 < TASKS; i++)
        task_waits(&scene->tasks[i], scene->tasks[i + 1].name);
    *state = scene;
    return scene != NULL ? 0 : -1;
}

static void a_task_waits_for_the_end_of_the_chain(void **state)
{
    struct scene *scene = *state;

    for (uint32_t i = 0; i + 1 < TASKS; i++)
        assert_string_equal(run_activity_waits_for(&scene->tasks[i]), "worker:3");
    assert_string_equal(run_activity_waits_for(&scene->tasks[TASKS - 1]), "");
}

static void the_chain_ends_at_a_task_whose_report_is_old(void **state)
{
    static const struct {
        const char *name;
        enum run_task_state state;
        unsigned lives;
        const char *reported;
    } rows[] = {
        {"it is not running", RUN_TASK_WAITING, 1, "collective"},
        {"the report is of another life", RUN_TASK_RUNNING, 2, "collective"},
        {"it has not reported", RUN_TASK_RUNNING, 1, ""},
    };
    struct scene *scene = *state;
    struct run_task *task = &scene->tasks[1];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        print_message("%s\n", rows[i].name);
        task->state = rows[i].state;
        task->lives = rows[i].lives;
        snprintf(task->activity.state, sizeof(task->activity.state), "%s", rows[i].reported);
        assert_string_equal(run_activity_waits_for(&scene->tasks[0]), "worker:1");
        assert_string_equal(run_activity_waits_for(task), "");
    }
}

static void a_circle_of_waits_has_an_end(void **state)
{
    struct scene *scene = *state;
    struct run_task *last = &scene->tasks[TASKS - 1];

    snprintf(last->activity.waits_for, sizeof(last->activity.waits_for), "worker:0");
    for (uint32_t i = 0; i < TASKS; i++)
        assert_string_equal(run_activity_waits_for(&scene->tasks[i]),
                            scene->tasks[i].activity.waits_for);
}

static void a_task_that_is_unknown_here_ends_the_chain(void **state)
{
    struct scene *scene = *state;

    snprintf(scene->tasks[1].activity.waits_for, sizeof(scene->tasks[1].activity.waits_for),
             "worker:9");
    assert_string_equal(run_activity_waits_for(&scene->tasks[0]), "worker:9");
}

static void a_task_that_has_stopped_with_its_job_has_not_failed(void **state)
{
    static const struct {
        bool is_preempted;
        int code;
        const char *shown;
    } rows[] = {{true, MUSTER_EXIT_PREEMPTED, "preempted"},
                {true, 1, "failed"}, /* it could not save */
                {false, MUSTER_EXIT_PREEMPTED, "failed"}};
    struct run_task *task = &((struct scene *)*state)->tasks[0];

    task->state = RUN_TASK_FAILED;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        task->is_preempted = rows[i].is_preempted;
        task->wait_status = W_EXITCODE(rows[i].code, 0);
        assert_string_equal(run_activity_state(task), rows[i].shown);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_task_waits_for_the_end_of_the_chain),
        CASE(the_chain_ends_at_a_task_whose_report_is_old),
        CASE(a_circle_of_waits_has_an_end),
        CASE(a_task_that_is_unknown_here_ends_the_chain),
        CASE(a_task_that_has_stopped_with_its_job_has_not_failed),
    };

    return cmocka_run_group_tests_name("activity", tests, NULL, NULL);
}
