/* Whole nodes in the simulated world: registry, links, groups, catch-up. Each case is a story of a training job. */
#include "tests/sim/train_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void first_view_comes_when_all_tasks_are_there(void **state)
{
    struct train_job job;

    (void)state;
    train_job_open(&job, 1, 2);
    job.expected_count = 3;
    train_job_start_task(&job, 0);
    train_job_start_task(&job, 1);
    sim_run_for(job.world, 2 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].epoch, 0);

    train_job_start_task(&job, 2);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 1);
    train_job_close(&job);
}

static bool has_any_entered(void *data)
{
    const struct train_job *job = data;

    for (unsigned i = 0; i < job->worker_count; i++)
        if (job->workers[i].epoch > 0)
            return true;
    return false;
}

/* Links come after the view: no link of the dead may ever have been there. */
static void who_dies_as_the_first_view_begins_is_missed_at_once(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 110; seed++) {
        struct train_job job;

        train_job_open(&job, seed, 1);
        job.expected_count = 3;
        for (uint32_t task = 0; task < 3; task++)
            train_job_start_task(&job, task);
        assert_true(sim_run_until(job.world, has_any_entered, &job, 20 * MUSTER_NS_PER_S));
        sim_run_for(job.world, (seed - 100) * 50 * MUSTER_NS_PER_US);

        sim_kill(job.workers[seed % 3].process);
        train_job_assert_trains_within(&job, 2 * MUSTER_NS_PER_S);
        train_job_close(&job);
    }
}

static void a_killed_worker_is_left_out_and_its_successor_joins(void **state)
{
    struct train_job job;
    struct train_worker *again;

    (void)state;
    train_job_start(&job, 2, 3, 1);

    sim_kill(job.workers[2].process);
    train_job_assert_trains(&job);
    assert_int_equal(job.workers[0].members, 2);
    again = train_job_start_task(&job, 2);
    train_job_assert_trains(&job);

    assert_int_equal(again->restores, 1);
    assert_int_equal(again->members, 3);
    train_job_close(&job);
}

/* The others may have begun the next one, and nothing is lost with that. */
static void a_joiner_makes_the_leader_begin_no_operation_again(void **state)
{
    (void)state;
    for (uint64_t seed = 60; seed < 70; seed++) {
        struct train_job job;
        struct train_worker *again;
        unsigned second_tries;

        train_job_start(&job, seed, 3, 2);
        job.pace_ns = 20 * MUSTER_NS_PER_US; /* nearly always inside an operation */
        sim_kill(job.workers[2].process);
        train_job_assert_trains(&job);
        second_tries = job.workers[0].second_tries;

        again = train_job_start_task(&job, 2);
        train_job_assert_trains(&job);

        assert_int_equal(again->restores, 1);
        assert_int_equal(job.workers[0].second_tries, second_tries);
        train_job_close(&job);
    }
}

static void the_death_of_the_leader_is_settled_by_the_next_rank(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 3, 4, 1);

    sim_kill(job.workers[0].process);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[1].members, 3);
    assert_int_equal(job.workers[1].epoch, 2);
    train_job_close(&job);
}

static void several_deaths_leave_the_living_in_one_view(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 4, 5, 2);

    sim_kill(job.workers[1].process);
    sim_kill(job.workers[0].process);
    sim_kill(job.workers[4].process);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[2].members, 2);
    train_job_close(&job);
}

static void a_lost_host_is_suspected_and_left_out(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 5, 3, 3);

    sim_crash(job.hosts[1]);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[0].members, 2);
    train_job_close(&job);
}

static void the_excluded_but_alive_catches_up_in_the_same_process(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 6, 3, 3);

    sim_pause(job.workers[1].process);
    train_job_run_for(&job, 8 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].members, 2);
    sim_resume(job.workers[1].process);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[1].exclusions, 1);
    assert_int_equal(job.workers[1].restores, 1);
    assert_int_equal(job.workers[0].members, 3);
    train_job_close(&job);
}

static void a_worker_paused_on_the_same_host_is_waited_for(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 7, 3, 1);

    sim_pause(job.workers[1].process);
    train_job_run_for(&job, 8 * MUSTER_NS_PER_S);
    sim_resume(job.workers[1].process);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 1);
    train_job_close(&job);
}

/* For longer than it is waited for: the others go on, and it comes back as a joiner. The leader too.
 */
static void a_worker_paused_for_too_long_is_left_out_and_comes_back(void **state)
{
    (void)state;
    for (unsigned task = 0; task < 3; task++) {
        struct train_job job;

        train_job_start(&job, 20 + task, 3, 1);
        sim_pause(job.workers[task].process);
        train_job_run_for(&job, 29 * MUSTER_NS_PER_S);
        assert_int_equal(job.workers[(task + 1) % 3].epoch, 1);
        train_job_run_for(&job, 3 * MUSTER_NS_PER_S);
        assert_int_equal(job.workers[(task + 1) % 3].members, 2);

        sim_resume(job.workers[task].process);
        train_job_assert_trains(&job);
        assert_int_equal(job.workers[task].restores, 1);
        assert_int_equal(job.workers[task].members, 3);
        train_job_close(&job);
    }
}

static void training_goes_on_while_the_registry_is_away(void **state)
{
    struct train_job job;
    uint64_t before;

    (void)state;
    train_job_start(&job, 8, 3, 1);
    before = train_job_highest_step(&job);

    sim_kill(job.registry);
    train_job_run_for(&job, 15 * MUSTER_NS_PER_S);
    assert_true(train_job_highest_step(&job) > before + 100);
    train_job_run_registry(&job);
    train_job_run_for(&job, 5 * MUSTER_NS_PER_S);
    sim_kill(job.workers[1].process);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[0].epoch, 2);
    train_job_close(&job);
}

static void a_death_while_the_registry_is_away_waits_for_it(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 9, 3, 1);

    sim_kill(job.registry);
    sim_run_for(job.world, MUSTER_NS_PER_S);
    sim_kill(job.workers[0].process);
    train_job_run_for(&job, 3 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[1].epoch, 1);
    train_job_run_registry(&job);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[1].epoch, 2);
    train_job_close(&job);
}

static void on_one_host_successors_see_that_all_are_dead(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 10, 2, 1);
    sim_kill(job.workers[0].process);
    sim_kill(job.workers[1].process);
    train_job_start_task(&job, 0);
    train_job_start_task(&job, 1);
    train_job_assert_trains(&job);
    assert_int_equal(job.workers[2].epoch, 2);
    train_job_close(&job);
}

static void when_all_are_dead_their_successors_begin_anew(void **state)
{
    struct train_job job;

    (void)state;
    train_job_start(&job, 10, 2, 2);
    sim_kill(job.workers[0].process);
    sim_kill(job.workers[1].process);
    train_job_start_task(&job, 0);
    train_job_start_task(&job, 1);
    train_job_run_for(&job, 15 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[2].epoch, 0); /* leases have run out: nobody is sure yet */

    train_job_say_dead(&job, &job.workers[0]);
    sim_run_for(job.world, MUSTER_NS_PER_S);
    assert_int_equal(job.workers[2].epoch, 0);
    train_job_say_dead(&job, &job.workers[1]);
    train_job_assert_trains(&job);

    assert_int_equal(job.workers[2].restores, 0);
    train_job_close(&job);
}

static void two_workers_that_never_reach_each_other_do_not_stop_the_job(void **state)
{
    struct train_job job;
    uint64_t epoch;

    (void)state;
    train_job_start(&job, 24, 4, 4);
    job.pace_ns = 200 * MUSTER_NS_PER_MS;
    sim_cut(job.world, job.hosts[2], job.hosts[3], SIM_BOTH_WAYS);
    train_job_run_for(&job, 30 * MUSTER_NS_PER_S);
    epoch = job.workers[0].epoch;
    assert_int_equal(job.workers[0].members, 3);
    assert_true(job.workers[2].epoch == epoch || job.workers[3].epoch == epoch);

    train_job_run_for(&job, 60 * MUSTER_NS_PER_S);
    assert_int_equal(job.workers[0].epoch, epoch);
    sim_heal(job.world, job.hosts[2], job.hosts[3]);
    train_job_assert_trains(&job);
    assert_int_equal(job.workers[0].members, 4);
    train_job_close(&job);
}

static void a_joiner_whom_the_members_have_outrun_joins_again(void **state)
{
    struct train_job job;
    struct train_worker *again;

    (void)state;
    train_job_start(&job, 22, 3, 3);
    sim_kill(job.workers[2].process);
    train_job_say_dead(&job, &job.workers[2]);
    train_job_assert_trains(&job);
    job.pace_ns = 300 * MUSTER_NS_PER_US;
    job.alone_from_step = train_job_highest_step(&job) + 1;
    job.alone_until_step = job.alone_from_step + 3000;
    again = train_job_start_task(&job, 2);
    train_job_assert_trains(&job);

    assert_true(job.workers[0].epoch > 5); /* admitted and left out, until the members waited */
    assert_false(again->is_failed);
    assert_int_equal(again->exclusions, 0);
    train_job_close(&job);
}

static void a_slower_death_inside_a_turn_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct train_job job;

        train_job_start(&job, 100 + seed, 4, 1 + (unsigned)(seed % 2));
        job.pace_ns = 100 * MUSTER_NS_PER_US;
        sim_run_for(job.world, 10 * MUSTER_NS_PER_MS);
        sim_kill_within(job.workers[seed % 4].process, (uint32_t)seed * 2);
        sim_run_for(job.world, 50 * MUSTER_NS_PER_MS);
        train_job_assert_trains(&job);
        assert_int_equal(job.workers[(seed + 1) % 4].members, 3);
        train_job_close(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_view_comes_when_all_tasks_are_there),
        cmocka_unit_test(who_dies_as_the_first_view_begins_is_missed_at_once),
        cmocka_unit_test(a_killed_worker_is_left_out_and_its_successor_joins),
        cmocka_unit_test(a_joiner_makes_the_leader_begin_no_operation_again),
        cmocka_unit_test(the_death_of_the_leader_is_settled_by_the_next_rank),
        cmocka_unit_test(several_deaths_leave_the_living_in_one_view),
        cmocka_unit_test(a_lost_host_is_suspected_and_left_out),
        cmocka_unit_test(the_excluded_but_alive_catches_up_in_the_same_process),
        cmocka_unit_test(a_worker_paused_on_the_same_host_is_waited_for),
        cmocka_unit_test(a_worker_paused_for_too_long_is_left_out_and_comes_back),
        cmocka_unit_test(training_goes_on_while_the_registry_is_away),
        cmocka_unit_test(a_death_while_the_registry_is_away_waits_for_it),
        cmocka_unit_test(on_one_host_successors_see_that_all_are_dead),
        cmocka_unit_test(when_all_are_dead_their_successors_begin_anew),
        cmocka_unit_test(two_workers_that_never_reach_each_other_do_not_stop_the_job),
        cmocka_unit_test(a_joiner_whom_the_members_have_outrun_joins_again),
        cmocka_unit_test(a_slower_death_inside_a_turn_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
