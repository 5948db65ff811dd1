/* The log of a stop: how often it tells who is waited for, and what it says. */
#include "tools/run/task/preempt.c"

#include "test_env.h"

static struct {
    struct test_env test;
    struct run run;
    struct run_task task;
} scene;

static char told[512];
static size_t told_fields;
static const char *waited;

/* --- The launcher's other parts */

void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
{
    va_list args;

    (void)run;
    (void)level;
    (void)event;
    (void)fields;
    told_fields = count;
    va_start(args, fmt);
    (void)vsnprintf(told, sizeof(told), fmt, args);
    va_end(args);
}

bool run_preemption_waits(const struct run *run, char *ret_text, size_t bytes)
{
    (void)run;
    (void)snprintf(ret_text, bytes, "%s", waited);
    return waited[0] != '\0';
}

void run_task_leave_all(struct run *run)
{
    run->state = RUN_STATE_LEAVING;
}

void run_task_end_all(struct run *run, int signal)
{
    (void)run;
    (void)signal;
}

void run_preempt_key_open(struct run *run, const char *cause)
{
    (void)run;
    (void)cause;
}

bool run_table_save(struct run *run)
{
    (void)run;
    return true;
}

/* --- The scene */

static void scene_open(uint64_t grace_ns)
{
    waited = "worker:1 (computing, after step 7)";
    test_env_open(&scene.test);
    scene.task = (struct run_task){.state = RUN_TASK_RUNNING, .member_from = 1};
    scene.run = (struct run){.env = &scene.test.env,
                             .state = RUN_STATE_RUNNING,
                             .tasks = &scene.task,
                             .task_count = 1,
                             .settings = {.preemption_grace_ns = grace_ns}};
    muster_timer_init(&scene.run.preemption_timer, NULL, &scene.run);
    muster_timer_init(&scene.run.preemption_tell_timer, NULL, &scene.run);
}

static void scene_close(void)
{
    muster_timer_stop(&scene.run.preemption_timer);
    muster_timer_stop(&scene.run.preemption_tell_timer);
    test_env_close(&scene.test);
}

/* The timer was started since then. */
static void assert_told_after_ms(uint64_t since_ns, uint64_t ms)
{
    assert_true(muster_timer_is_started(&scene.run.preemption_tell_timer));
    assert_in_range(scene.run.preemption_tell_timer.due_ns - ms * MUSTER_NS_PER_MS, since_ns,
                    muster_loop_now_ns(scene.test.env.loop));
}

static void a_wait_is_told_now_and_then_however_short_the_time_is(void **state)
{
    static const struct {
        uint64_t grace_ms, told_after_ms;
    } rows[] = {{10, 1000}, {4000, 1000}, {12000, 3000}, {20000, 5000}, {900000, 5000}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t since_ns;

        scene_open(rows[i].grace_ms * MUSTER_NS_PER_MS);
        since_ns = muster_loop_now_ns(scene.test.env.loop);

        assert_true(run_preempt_begin(&scene.run, SIGTERM));
        assert_told_after_ms(since_ns, rows[i].told_after_ms);

        scene_close();
    }
}

static void a_wait_without_a_limit_is_told_every_5_s_until_there_is_one(void **state)
{
    uint64_t since_ns;

    (void)state;
    scene_open(10 * MUSTER_NS_PER_MS);
    since_ns = muster_loop_now_ns(scene.test.env.loop);

    assert_true(run_preempt_ask(&scene.run, "SIGUSR1"));
    assert_told_after_ms(since_ns, 5000);
    assert_true(run_preempt_begin(&scene.run, SIGTERM));
    assert_told_after_ms(since_ns, 1000);

    scene_close();
}

#define STOPS "the members stop, and wait for worker:1 (computing, after step 7); "

static void the_time_that_is_left_is_told_where_there_is_a_limit(void **state)
{
    struct muster_timer *grace = &scene.run.preemption_timer;

    (void)state;
    scene_open(1000 * MUSTER_NS_PER_S);
    assert_true(run_preempt_ask(&scene.run, "SIGUSR1"));
    waits_tell(&scene.run);
    assert_string_equal(told, STOPS "no time limit");
    assert_int_equal(told_fields, 1);

    assert_true(run_preempt_begin(&scene.run, SIGTERM));
    waits_tell(&scene.run);
    assert_non_null(strstr(told, " s of 1000 s left (--preemption-grace)"));
    assert_int_equal(told_fields, 2);

    grace->due_ns = 0; /* over, and not told yet */
    waits_tell(&scene.run);
    assert_string_equal(told, STOPS "0 s of 1000 s left (--preemption-grace)");
    assert_int_equal(told_fields, 2);
    scene_close();
}

static void less_than_a_second_is_not_0(void **state)
{
    (void)state;
    assert_true(seconds_of(500 * MUSTER_NS_PER_MS) == 0.5);
    assert_true(seconds_of(2 * MUSTER_NS_PER_S) == 2.0);
    assert_true(seconds_of(14960 * MUSTER_NS_PER_MS) == 15.0);
}

static void a_late_stop_names_those_that_have_not_stopped_and_no_cause(void **state)
{
    (void)state;
    scene_open(300 * MUSTER_NS_PER_MS);

    on_grace_over(&scene.run.preemption_timer);
    assert_string_equal(told, "the workers have not stopped within 0.3 s (--preemption-grace); not "
                              "stopped: worker:1 (computing, after step 7): SIGTERM to those that "
                              "still run");

    waited = "";
    on_grace_over(&scene.run.preemption_timer);
    assert_string_equal(told, "the workers have not stopped within 0.3 s (--preemption-grace): "
                              "SIGTERM to those that still run");
    scene_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_told_now_and_then_however_short_the_time_is),
        cmocka_unit_test(a_wait_without_a_limit_is_told_every_5_s_until_there_is_one),
        cmocka_unit_test(the_time_that_is_left_is_told_where_there_is_a_limit),
        cmocka_unit_test(less_than_a_second_is_not_0),
        cmocka_unit_test(a_late_stop_names_those_that_have_not_stopped_and_no_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
