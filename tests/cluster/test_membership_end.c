/* How training jobs of whole nodes end: leaving, closing, waiting in vain, refusal. */
#include "tests/sim/train_job.h"

#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void below_min_members_the_survivors_wait(void **state)
{
    struct train_job job;

    (void)state;
    train_job_open(&job, 11, 1);
    job.expected_count = job.min_members = 3;
    for (uint32_t task = 0; task < 3; task++)
        train_job_start_task(&job, task);
    train_job_assert_trains(&job);

    sim_kill(job.workers[2].process);
    train_job_run_for(&job, 3 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].epoch, 1);
    train_job_start_task(&job, 2);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 2);
    assert_false(job.workers[0].is_failed);
    train_job_close(&job);
}

static void below_min_members_for_too_long_the_job_is_told(void **state)
{
    struct train_job job;

    (void)state;
    train_job_open(&job, 12, 1);
    job.expected_count = job.min_members = 3;
    for (uint32_t task = 0; task < 3; task++)
        train_job_start_task(&job, task);
    train_job_assert_trains(&job);

    sim_kill(job.workers[2].process);
    train_job_run_for(&job, 12 * MUSTER_NS_PER_S);

    assert_true(job.workers[0].is_failed && job.workers[1].is_failed);
    assert_int_equal(job.workers[0].error.rc, MUSTER_ABORTED);
    train_job_close(&job);
}

static void a_joiner_with_another_tensor_shape_is_refused_by_name(void **state)
{
    struct train_job job;
    struct train_worker *odd;

    (void)state;
    train_job_start(&job, 13, 2, 1);
    odd = &job.workers[job.worker_count];
    odd->has_other_shape = true;
    train_job_start_task(&job, 2);
    train_job_run_for(&job, 5 * MUSTER_NS_PER_S);

    assert_true(odd->is_failed);
    assert_int_equal(odd->error.rc, MUSTER_INVALID_ARGUMENT);
    assert_non_null(strstr(odd->error.text, "weights"));
    sim_kill(odd->process);
    train_job_assert_trains(&job);
    train_job_close(&job);
}

static void on_left(struct muster_node *node, void *data)
{
    struct train_worker *worker = data;

    (void)node;
    worker->is_left = true;
}

static void worker_leave(struct train_worker *worker)
{
    sim_enter(worker->process);
    muster_timer_stop(&worker->timer);
    muster_node_leave(worker->node, true,
                      muster_loop_after_ns(worker->env->loop, 5 * MUSTER_NS_PER_S), on_left,
                      worker);
    sim_leave(worker->process);
}

static void a_leaver_goes_and_the_others_train_on(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 14, 3, 1);

    worker_leave(&job.workers[0]);
    train_job_run_for(&job, 7 * MUSTER_NS_PER_S);
    assert_true(job.workers[0].is_left);
    sim_kill(job.workers[0].process);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[1].members, 2);
    assert_int_equal(job.workers[1].aborts, 0);
    train_job_close(&job);
}

static void on_closed(struct muster_node *node, void *data)
{
    struct train_worker *worker = data;

    (void)node;
    muster_mem_free(worker->env->mem, worker->state);
    muster_mem_free(worker->env->mem, worker->gradient);
    muster_mem_free(worker->env->mem, worker->frozen);
    worker->is_closed = true;
}

static bool are_all_left(void *data)
{
    struct train_job *job = data;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (train_job_is_alive(&job->workers[i]) && !job->workers[i].is_left)
            return false;
    return true;
}

static bool are_all_closed(void *data)
{
    struct train_job *job = data;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (train_job_is_alive(&job->workers[i]) && !job->workers[i].is_closed)
            return false;
    return true;
}

static void all_leave_close_and_leak_nothing(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 15, 3, 1);
    sim_kill(job.workers[1].process);
    train_job_start_task(&job, 1);
    train_job_assert_trains(&job);

    for (unsigned i = 0; i < job.worker_count; i++)
        if (train_job_is_alive(&job.workers[i]))
            worker_leave(&job.workers[i]);
    assert_true(sim_run_until(job.world, are_all_left, &job, 8 * MUSTER_NS_PER_S));
    for (unsigned i = 0; i < job.worker_count; i++)
        if (train_job_is_alive(&job.workers[i])) {
            sim_enter(job.workers[i].process);
            muster_node_close(job.workers[i].node, on_closed, &job.workers[i]);
            sim_leave(job.workers[i].process);
        }
    assert_true(sim_run_until(job.world, are_all_closed, &job, MUSTER_NS_PER_S));
    sim_run_for(job.world, 10 * MUSTER_NS_PER_MS);
    for (unsigned i = 0; i < job.worker_count; i++)
        if (train_job_is_alive(&job.workers[i]))
            sim_exit(job.workers[i].process);
    assert_int_equal(sim_world_close(job.world), 0);
    muster_registry_store_close(job.store);
}

static void who_waits_too_long_names_the_missing_tasks(void **state)
{
    struct train_job job;

    (void)state;
    train_job_open(&job, 16, 1);
    job.expected_count = 4;
    job.start_timeout_ns = 3 * MUSTER_NS_PER_S;
    train_job_start_task(&job, 0);
    train_job_start_task(&job, 2);

    train_job_run_for(&job, 4 * MUSTER_NS_PER_S);

    assert_true(job.workers[0].is_failed);
    assert_int_equal(job.workers[0].error.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(job.workers[0].error.text, "worker:1, worker:3"));
    train_job_close(&job);
}

static void without_a_registry_the_start_fails_and_says_so(void **state)
{
    struct train_job job;

    (void)state;
    train_job_open(&job, 17, 1);
    sim_run_for(job.world, 10 * MUSTER_NS_PER_MS);
    sim_kill(job.registry);
    job.expected_count = 1;
    job.start_timeout_ns = 3 * MUSTER_NS_PER_S;
    train_job_start_task(&job, 0);

    train_job_run_for(&job, 4 * MUSTER_NS_PER_S);

    assert_true(job.workers[0].is_failed);
    assert_int_equal(job.workers[0].error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(job.workers[0].error.text, "registry"));
    train_job_close(&job);
}

static void when_who_had_the_state_is_dead_the_joiner_is_told(void **state)
{
    struct train_job job;
    struct train_worker *joiner;

    (void)state;
    train_job_start(&job, 23, 2, 2);
    sim_kill(job.workers[1].process);
    train_job_say_dead(&job, &job.workers[1]);
    train_job_assert_trains(&job);
    joiner = train_job_start_task(&job, 1);
    while (joiner->epoch == 0 && sim_failure(job.world) == NULL)
        sim_run_for(job.world, MUSTER_NS_PER_US * 10);
    sim_kill(job.workers[0].process);
    train_job_run_for(&job, 10 * MUSTER_NS_PER_S);
    assert_false(joiner->is_failed); /* silence alone proves nothing */

    train_job_say_dead(&job, &job.workers[0]);
    sim_run_for(job.world, MUSTER_NS_PER_S);

    assert_true(joiner->is_failed);
    assert_int_equal(joiner->error.rc, MUSTER_UNAVAILABLE);
    assert_non_null(strstr(joiner->error.text, "state is lost"));
    train_job_close(&job);
}

/* Each is killed in the moment that it is told so. */
static void who_is_told_that_it_has_left_has_no_record_any_more(void **state)
{
    for (uint64_t seed = 0; seed < 5; seed++) {
        struct train_job job;

        (void)state;
        train_job_start(&job, 30 + seed, 3, 3);
        for (unsigned i = 0; i < 3; i++)
            worker_leave(&job.workers[i]);
        for (unsigned i = 0; i < 3; i++) {
            while (!job.workers[i].is_left)
                sim_run_for(job.world, 10 * MUSTER_NS_PER_US);
            sim_kill(job.workers[i].process);
        }
        train_job_start_task(&job, 0);
        train_job_start_task(&job, 1);
        train_job_run_for(&job, 3 * MUSTER_NS_PER_S);
        assert_int_equal(job.workers[3].epoch, 0);
        train_job_start_task(&job, 2);
        train_job_assert_trains(&job);

        assert_int_equal(job.workers[5].restores, 0);
        train_job_close(&job);
    }
}

static void a_joiner_of_idle_members_is_told_whom_it_waited_for(void **state)
{
    struct train_job job;
    struct train_worker *joiner;

    (void)state;
    train_job_start(&job, 40, 3, 3);
    job.idle_in_step = train_job_highest_step(&job) + 50;
    train_job_run_for(&job, 5 * MUSTER_NS_PER_S);
    sim_kill(job.workers[2].process);
    train_job_say_dead(&job, &job.workers[2]);
    joiner = train_job_start_task(&job, 2);
    sim_run_for(job.world, 9 * 60 * MUSTER_NS_PER_S);
    assert_true(joiner->epoch > 0);
    assert_false(joiner->is_failed);
    sim_run_for(job.world, 2 * 60 * MUSTER_NS_PER_S);

    assert_true(joiner->is_failed);
    assert_int_equal(joiner->error.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(joiner->error.text, "worker:0"));
    assert_non_null(strstr(joiner->error.text, "has not committed"));
    assert_int_equal(job.workers[0].members, 2);
    train_job_close(&job);
}

/* Left out while it stood still; when it goes on, those who did it are gone, and nobody says that they
 * are dead. */
static void who_was_left_out_does_not_wait_for_the_silent_without_an_end(void **state)
{
    struct train_job job;
    struct train_worker *out;

    (void)state;
    train_job_open(&job, 41, 3);
    job.expected_count = 3;
    job.start_timeout_ns = 20 * MUSTER_NS_PER_S;
    for (uint32_t task = 0; task < 3; task++)
        train_job_start_task(&job, task);
    train_job_assert_trains(&job);
    out = &job.workers[2];
    sim_pause(out->process);
    train_job_run_for(&job, 60 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].members, 2);
    sim_kill(job.workers[0].process);
    sim_kill(job.workers[1].process);
    sim_resume(out->process);
    train_job_run_for(&job, 15 * MUSTER_NS_PER_S);
    assert_int_equal(out->exclusions, 1);
    assert_false(out->is_failed);
    train_job_run_for(&job, 10 * MUSTER_NS_PER_S);

    assert_true(out->is_failed);
    assert_int_equal(out->error.rc, MUSTER_DEADLINE_EXCEEDED);
    assert_non_null(strstr(out->error.text, "did not admit"));
    train_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(below_min_members_the_survivors_wait),
        cmocka_unit_test(below_min_members_for_too_long_the_job_is_told),
        cmocka_unit_test(a_joiner_with_another_tensor_shape_is_refused_by_name),
        cmocka_unit_test(a_leaver_goes_and_the_others_train_on),
        cmocka_unit_test(all_leave_close_and_leak_nothing),
        cmocka_unit_test(who_waits_too_long_names_the_missing_tasks),
        cmocka_unit_test(without_a_registry_the_start_fails_and_says_so),
        cmocka_unit_test(when_who_had_the_state_is_dead_the_joiner_is_told),
        cmocka_unit_test(who_is_told_that_it_has_left_has_no_record_any_more),
        cmocka_unit_test(a_joiner_of_idle_members_is_told_whom_it_waited_for),
        cmocka_unit_test(who_was_left_out_does_not_wait_for_the_silent_without_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
