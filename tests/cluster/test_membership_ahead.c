/* Joiners that fetch before they are admitted, in the simulated world. Each case is a story of a training job. */
#include "tests/sim/train_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "cluster/node/node_internal.h"

#define CHUNKS 24 /* of the state that no step changes: more than the least that is fetched ahead */

static void job_open_of(struct train_job *job, uint64_t seed, uint32_t tasks, unsigned hosts,
                        size_t chunks)
{
    train_job_open(job, seed, hosts);
    job->frozen_count = chunks * MUSTER_STATE_CHUNK_BYTES / sizeof(int64_t);
    job->is_by_parts = true;
    job->expected_count = tasks;
    for (uint32_t task = 0; task < tasks; task++)
        train_job_start_task(job, task);
    train_job_assert_trains(job);
}

static void job_open(struct train_job *job, uint64_t seed, uint32_t tasks, unsigned hosts)
{
    job_open_of(job, seed, tasks, hosts, CHUNKS);
}

/* A job of which the last task has died, and its successor. */
static struct train_worker *start_joiner(struct train_job *job, uint32_t tasks)
{
    sim_kill(job->workers[tasks - 1].process);
    train_job_say_dead(job, &job->workers[tasks - 1]);
    train_job_assert_trains(job);
    return train_job_start_task(job, tasks - 1);
}

static bool is_ahead(void *data)
{
    const struct train_worker *joiner = data;
    uint64_t bytes;

    return joiner->node != NULL && joiner->epoch == 0 &&
           muster_node_is_fetching(joiner->node, &bytes) && bytes > 0;
}

static bool is_caught_up(void *data)
{
    return ((struct train_worker *)data)->restores > 0;
}

static bool has_ended_ahead(void *data)
{
    return !is_ahead(data);
}

static void little_is_left_for_the_members_to_wait_for(void **state)
{
    struct train_worker *joiner;
    struct train_job job;
    uint64_t begun_ns;

    (void)state;
    job_open(&job, 1, 4, 1);
    joiner = start_joiner(&job, 4);
    assert_true(sim_run_until(job.world, is_ahead, joiner, 20 * MUSTER_NS_PER_S));
    assert_int_equal(job.workers[0].epoch, 2);
    begun_ns = muster_loop_now_ns(joiner->env->loop);
    assert_true(sim_run_until(job.world, has_ended_ahead, joiner, 20 * MUSTER_NS_PER_S));
    assert_true(muster_loop_now_ns(joiner->env->loop) - begun_ns >=
                (CHUNKS / 4 - 2) * MUSTER_NS_PER_MS); /* four in a millisecond */

    assert_true(sim_run_until(job.world, is_caught_up, joiner, 20 * MUSTER_NS_PER_S));
    assert_true(joiner->node->training.catch_up.bytes_fetched <= MUSTER_STATE_CHUNK_BYTES);
    /* It can serve the next one without hashing it all. */
    assert_true(muster_state_hashes_is_known(&joiner->node->training.chunks, CHUNKS));
    train_job_assert_trains(&job);
    train_job_close(&job);
}

static void steps_that_do_not_say_what_they_change_delay_nobody(void **state)
{
    struct train_worker *joiner;
    struct train_job job;

    (void)state;
    job_open(&job, 2, 3, 1);
    job.is_by_parts = false;
    joiner = start_joiner(&job, 3);
    assert_true(sim_run_until(job.world, is_caught_up, joiner, 2 * MUSTER_NS_PER_S));

    assert_int_equal(joiner->node->training.catch_up.bytes_fetched,
                     CHUNKS * MUSTER_STATE_CHUNK_BYTES + COUNT * sizeof(int64_t));
    train_job_assert_trains(&job);
    train_job_close(&job);
}

static bool has_begun_ahead(void *data)
{
    const struct train_worker *joiner = data;

    return joiner->node != NULL && joiner->node->training.is_ahead;
}

/* A round that has taken long may have missed much. */
static void a_second_round_brings_what_the_first_has_missed(void **state)
{
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct train_worker *joiner;
        struct train_job job;

        job_open_of(&job, 7, 2, 1, 31 + more); /* 8 MiB, with the part that changes, or more */
        joiner = start_joiner(&job, 2);
        assert_true(sim_run_until(job.world, is_caught_up, joiner, 20 * MUSTER_NS_PER_S));

        assert_int_equal(joiner->node->training.ahead_rounds, 1 + more);
        train_job_close(&job);
    }
}

/* The others have nothing for it, and it does not wait for the dead one. */
static void a_member_that_dies_meanwhile_is_not_waited_for(void **state)
{
    struct train_worker *joiner;
    struct train_job job;

    (void)state;
    job_open(&job, 6, 4, 4);
    job.is_by_parts = false;
    joiner = start_joiner(&job, 4);
    assert_true(sim_run_until(job.world, has_begun_ahead, joiner, 20 * MUSTER_NS_PER_S));
    sim_kill(job.workers[1].process);
    train_job_say_dead(&job, &job.workers[1]);

    train_job_assert_trains_within(&job, 5 * MUSTER_NS_PER_S);
    train_job_close(&job);
}

/* All hashes are forgotten again and again while the joiner fetches. */
static void steps_that_say_it_now_and_then_end_in_the_same_state(void **state)
{
    (void)state;
    for (uint64_t interval = 1; interval < 12; interval += 2) {
        struct train_job job;

        job_open(&job, 30 + interval, 3, 1 + (unsigned)(interval / 2 % 2));
        job.whole_step_interval = interval;
        (void)start_joiner(&job, 3);
        train_job_assert_trains(&job);
        train_job_close(&job);
    }
}

/* The joiner, the leader, or another member that serves it is killed between its first chunk and its first steps. */
static void a_kill_while_a_joiner_fetches_ahead_stops_nobody(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 45; seed++) {
        struct train_worker *joiner, *victim;
        struct train_job job;

        job_open(&job, 100 + seed, 4, seed % 2 == 0 ? 1 : 4);
        joiner = start_joiner(&job, 4);
        assert_true(sim_run_until(job.world, is_ahead, joiner, 20 * MUSTER_NS_PER_S));
        sim_run_for(job.world, seed / 3 * 800 * MUSTER_NS_PER_US);
        victim = seed % 3 == 0 ? joiner : &job.workers[seed % 3 - 1];
        sim_kill(victim->process);
        train_job_say_dead(&job, victim);

        train_job_assert_trains(&job);
        assert_int_equal(job.workers[2].members, 3);
        (void)train_job_start_task(&job, victim->task);
        train_job_assert_trains(&job);
        train_job_close(&job);
    }
}

/* A large state takes longer than members may take to admit somebody. */
static void time_that_is_spent_ahead_is_no_time_of_waiting(void **state)
{
    struct train_worker *joiner;
    struct train_job job;

    (void)state;
    job_open(&job, 5, 3, 1);
    joiner = start_joiner(&job, 3);
    assert_true(sim_run_until(job.world, is_ahead, joiner, 20 * MUSTER_NS_PER_S));
    sim_enter(joiner->process);
    joiner->node->start.deadline_ns = 0;
    muster_timer_start(&joiner->node->start.timer, joiner->env->loop, 0);
    sim_leave(joiner->process);

    train_job_assert_trains(&job);
    assert_false(joiner->is_failed);
    assert_true(joiner->node->start.deadline_ns > 0);
    train_job_close(&job);
}

static void two_joiners_fetch_ahead_together(void **state)
{
    (void)state;
    for (uint64_t seed = 200; seed < 205; seed++) {
        struct train_worker *first, *second;
        struct train_job job;

        job_open(&job, seed, 4, 1);
        sim_kill(job.workers[3].process);
        train_job_assert_trains(&job);
        second = start_joiner(&job, 3);
        first = train_job_start_task(&job, 3);
        assert_true(sim_run_until(job.world, is_ahead, first, 20 * MUSTER_NS_PER_S) ||
                    second->restores > 0);

        train_job_assert_trains(&job);
        assert_int_equal(job.workers[0].members, 4);
        train_job_close(&job);
    }
}

/* Its own state was of another job: nothing is left of it. */
static void when_all_members_die_the_joiner_begins_anew(void **state)
{
    struct train_worker *joiner;
    struct train_job job;

    (void)state;
    job_open(&job, 3, 3, 1);
    joiner = start_joiner(&job, 3);
    assert_true(sim_run_until(job.world, is_ahead, joiner, 20 * MUSTER_NS_PER_S));
    for (uint32_t task = 0; task < 2; task++) {
        sim_kill(job.workers[task].process);
        (void)train_job_start_task(&job, task);
    }

    train_job_assert_trains_within(&job, 5 * MUSTER_NS_PER_S);
    assert_int_equal(joiner->restores, 0);
    assert_int_equal(joiner->members, 3);
    train_job_close(&job);
}

static bool has_failed(void *data)
{
    return ((struct train_worker *)data)->is_failed;
}

static void a_joiner_with_other_tensors_is_never_admitted(void **state)
{
    struct train_worker *joiner;
    struct train_job job;

    (void)state;
    job_open(&job, 4, 3, 1);
    joiner = start_joiner(&job, 3);
    joiner->has_other_shape = true;
    assert_true(sim_run_until(job.world, has_failed, joiner, 20 * MUSTER_NS_PER_S));

    assert_int_equal(joiner->error.rc, MUSTER_INVALID_ARGUMENT);
    assert_int_equal(job.workers[0].epoch, 2);
    sim_kill(joiner->process);
    train_job_assert_trains(&job);
    train_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_is_left_for_the_members_to_wait_for),
        cmocka_unit_test(steps_that_do_not_say_what_they_change_delay_nobody),
        cmocka_unit_test(a_second_round_brings_what_the_first_has_missed),
        cmocka_unit_test(a_member_that_dies_meanwhile_is_not_waited_for),
        cmocka_unit_test(steps_that_say_it_now_and_then_end_in_the_same_state),
        cmocka_unit_test(a_kill_while_a_joiner_fetches_ahead_stops_nobody),
        cmocka_unit_test(time_that_is_spent_ahead_is_no_time_of_waiting),
        cmocka_unit_test(two_joiners_fetch_ahead_together),
        cmocka_unit_test(when_all_members_die_the_joiner_begins_anew),
        cmocka_unit_test(a_joiner_with_other_tensors_is_never_admitted),
    };

    return cmocka_run_group_tests_name("membership_ahead", tests, NULL, NULL);
}
