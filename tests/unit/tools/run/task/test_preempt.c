/* The log of a stop: how often it tells who is waited for, and what it says. */
#include "tools/run/task/preempt.c"

#include "test_env.h"

static struct {
    struct test_env test;
    struct run run;
    struct run_task task;
} scene;

/* --- The launcher's other parts */

void run_log(struct run *run, enum muster_log_level level, const char *event,
             const struct muster_field *fields, size_t count, const char *fmt, ...)
{
    (void)run;
    (void)level;
    (void)event;
    (void)fields;
    (void)count;
    (void)fmt;
}

bool run_preemption_waits(const struct run *run, char *ret_text, size_t bytes)
{
    (void)run;
    (void)snprintf(ret_text, bytes, "worker:1");
    return true;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_is_told_now_and_then_however_short_the_time_is),
        cmocka_unit_test(a_wait_without_a_limit_is_told_every_5_s_until_there_is_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
