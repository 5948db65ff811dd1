/* Deaths and leaves of workers, in words: told once, when it is known what follows from them. */
#include "tools/run/report/epoch.c"
#include "tools/run/report/events.c"
#include "tools/run/report/names.c"

#include "launcher_tasks.h"
#include "test_env.h"

#include <sys/wait.h>

enum { TASKS = 3 };

static char told[2048];

static struct {
    struct test_env test;
    struct run run;
    struct run_task tasks[TASKS];
} scene;

/* --- The launcher's other parts */

void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
{
    size_t length = strlen(told);
    va_list args;

    (void)run;
    (void)level;
    (void)fields;
    (void)count;
    length += (size_t)snprintf(told + length, sizeof(told) - length, "%s: ", event);
    va_start(args, fmt);
    vsnprintf(told + length, sizeof(told) - length, fmt, args);
    va_end(args);
    strcat(told, "\n");
}

void run_history_on_rejoin(struct run_task *task)
{
    (void)task;
}

void run_history_on_view(struct run *run, const struct run_epoch *epoch, bool is_recovery,
                         const char *who)
{
    (void)run;
    (void)epoch;
    (void)is_recovery;
    (void)who;
}

bool run_roll_add(struct run_roll *roll, const char *name)
{
    (void)roll;
    (void)name;
    return false;
}

void run_recovery_settle(struct run_epoch *epoch)
{
    (void)epoch;
}

void run_recovery_note(struct run_epoch *epoch, const struct muster_json *report)
{
    (void)epoch;
    (void)report;
}

bool run_recovery_is_known(const struct run_epoch *epoch)
{
    (void)epoch;
    return true;
}

bool run_anew_is_news(const struct run *run, uint64_t epoch)
{
    (void)run;
    (void)epoch;
    return false;
}

void run_anew_on_view(struct run *run, uint64_t epoch, uint64_t members)
{
    (void)run;
    (void)epoch;
    (void)members;
    fail();
}

const char *run_task_death(int wait_status, char *text, size_t bytes)
{
    snprintf(text, bytes, "exited with code %d", WEXITSTATUS(wait_status));
    return text;
}

static void on_loss_told(struct run_task *task, uint64_t view)
{
    (void)task;
    (void)view;
}

static const struct run_control control = {.on_loss_told = on_loss_told};

/* --- A run whose workers run */

static int set_up(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof(scene));
    told[0] = '\0';
    test_env_open(&scene.test);
    scene.run = (struct run){
        .env = &scene.test.env, .control = &control, .tasks = scene.tasks, .task_count = TASKS};
    scene.run.settings.restarts_max = 3;
    for (uint32_t i = 0; i < TASKS; i++) {
        scene.tasks[i] = (struct run_task){.run = &scene.run, .rank = i, .lives = 1};
        scene.tasks[i].state = RUN_TASK_RUNNING;
        snprintf(scene.tasks[i].name, sizeof(scene.tasks[i].name), "worker:%u", i);
    }
    run_events_open(&scene.run);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    run_events_close(&scene.run);
    for (uint32_t i = 0; i < TASKS; i++)
        muster_timer_stop(&scene.tasks[i].death_timer);
    test_env_close(&scene.test);
    return 0;
}

/* It ends with 2 before it has reported anything, and would be started again. */
static void end_at_once(uint32_t i, int misuse_code)
{
    struct run_task *task = &scene.tasks[i];

    task->wait_status = W_EXITCODE(2, 0);
    task->misuse_code = misuse_code;
    task->ended_ns = muster_loop_now_ns(scene.test.env.loop);
    run_events_on_death(task);
    task->state = RUN_TASK_WAITING;
    task->restarts++;
}

static void a_death_without_members_is_told_in_the_next_turn(void **state)
{
    (void)state;
    end_at_once(0, 0);
    assert_string_equal(told, "");
    test_env_turn(&scene.test.env, 2);
    assert_string_equal(told, "died: worker:0 exited with code 2, restart 1 of 3\n");
}

static void a_death_is_told_with_the_step_that_it_had_begun(void **state)
{
    (void)state;
    scene.tasks[0].step = 4;
    end_at_once(0, 0);
    test_env_turn(&scene.test.env, 2);
    assert_string_equal(told, "died: worker:0 exited with code 2 at step 4, restart 1 of 3\n");

    told[0] = '\0';
    scene.tasks[1].step = 4;
    scene.tasks[1].begun_step = 5;
    end_at_once(1, 0);
    test_env_turn(&scene.test.env, 2);
    assert_string_equal(told, "died: worker:1 exited with code 2 at step 5, restart 1 of 3\n");
}

static void a_restart_is_not_said_and_taken_back_when_all_were_called_wrongly(void **state)
{
    (void)state;
    end_at_once(0, 2);
    test_env_turn(&scene.test.env, 2);
    end_at_once(1, 2);
    test_env_turn(&scene.test.env, 2);
    assert_string_equal(told, "");

    scene.run.is_misuse = true; /* as the third one ends so, too */
    run_events_flush(&scene.run);

    assert_string_equal(told, "died: worker:0 exited with code 2, not started again\n"
                              "died: worker:1 exited with code 2, not started again\n");
}

static bool is_told(void *data)
{
    (void)data;
    return told[0] != '\0';
}

static void one_that_alone_was_called_wrongly_is_told_when_it_starts_again(void **state)
{
    (void)state;
    end_at_once(0, 2);
    test_env_run_until(&scene.test.env, is_told, NULL);
    assert_string_equal(told, "died: worker:0 exited with code 2, restart 1 of 3\n");
}

static void close_behind(uint32_t i, uint64_t steps)
{
    scene.tasks[i].has_result = scene.run.has_results = true;
    scene.tasks[i].steps = steps;
}

static void one_that_closes_has_left_when_the_others_go_on(void **state)
{
    (void)state;
    scene.run.progress = (struct run_progress){.step = 50, .epoch = 2, .members = 2};
    run_events_on_step(&scene.run);
    close_behind(1, 50);
    run_events_on_step(&scene.run);
    assert_string_equal(told, "");

    scene.run.progress.step = 51;
    run_events_on_step(&scene.run);
    run_events_on_step(&scene.run);

    assert_string_equal(told, "left: worker:1 closed after step 50 and has left, view 2 with 2 "
                              "members goes on\n");
}

static void report_view(uint32_t i, const char *lost, unsigned step)
{
    struct muster_json *report;
    struct muster_error error;
    char text[128];

    snprintf(text, sizeof(text),
             "{\"epoch\":2,\"members\":4,\"lost\":[%s],\"joined\":[],\"step\":%u}", lost, step);
    assert_int_equal(muster_json_parse(text, strlen(text), &report, &error), MUSTER_OK);
    run_events_on_view(&scene.tasks[i], report);
    muster_json_free(report);
}

/* Whoever speaks first: one view has lost it and taken in its next life, which stands at the next step. */
static void the_step_of_a_death_is_told_by_those_that_saw_it(void **state)
{
    (void)state;
    report_view(0, "\"worker:2\"", 149);
    report_view(2, "", 151);
    report_view(1, "\"worker:2\"", 150);
    assert_int_equal(epoch_find(&scene.run, 2)->step, 150);

    run_events_close(&scene.run);
    run_events_open(&scene.run);
    report_view(2, "", 151);
    report_view(1, "\"worker:2\"", 150);
    assert_int_equal(epoch_find(&scene.run, 2)->step, 150);
}

static void report_adopted(uint32_t i, const char *verdict)
{
    struct muster_json *report;
    struct muster_error error;
    char text[256];

    snprintf(text, sizeof(text),
             "{\"epoch\":2,\"members\":2,\"lost\":[\"worker:2\"],\"joined\":[],\"step\":149,"
             "\"op\":\"all_gather 149/1\",\"phase\":\"complete\",\"verdict\":\"%s\"}",
             verdict);
    assert_int_equal(muster_json_parse(text, strlen(text), &report, &error), MUSTER_OK);
    run_events_on_view(&scene.tasks[i], report);
    muster_json_free(report);
}

/* The others had not begun its step yet: they name the one before, in which all of them have what it gave. */
static void a_death_before_the_first_operation_of_a_step_is_one_of_that_step(void **state)
{
    static const struct {
        uint64_t begun_step;
        const char *verdict, *text;
    } rows[] = {
        {150, "adopt", "died: worker:2 exited with code 3 at step 150, view 2 with 2 members\n"},
        {0, "adopt",
         "died: worker:2 exited with code 3 at step 149, operation all_gather 149/1 "
         "(complete phase) completed with its part, view 2 with 2 members\n"},
        {149, "retry",
         "died: worker:2 exited with code 3 at step 149, operation all_gather 149/1 "
         "(complete phase) retried without it, view 2 with 2 members\n"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tear_down(state);
        set_up(state);
        scene.tasks[0].member_from = 1;
        scene.tasks[2].begun_step = rows[i].begun_step;
        scene.tasks[2].wait_status = W_EXITCODE(3, 0);
        run_events_on_death(&scene.tasks[2]);

        report_adopted(0, rows[i].verdict);
        report_adopted(1, rows[i].verdict);

        assert_string_equal(told, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_death_without_members_is_told_in_the_next_turn, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_death_is_told_with_the_step_that_it_had_begun, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_restart_is_not_said_and_taken_back_when_all_were_called_wrongly, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            one_that_alone_was_called_wrongly_is_told_when_it_starts_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_step_of_a_death_is_told_by_those_that_saw_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_death_before_the_first_operation_of_a_step_is_one_of_that_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_closes_has_left_when_the_others_go_on, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
