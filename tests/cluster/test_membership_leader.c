/* Whole nodes: leaders that die during a change, rival leaders, false suspicion, and what becomes of
 * the operation under way. */
#include "tests/sim/train_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "cluster/store/store.h"

/* Committed views: the key is written once per epoch. */
static uint64_t views_committed(const struct train_job *job)
{
    static const char key[] = "/muster/job/view";
    struct muster_bytes name = {key, sizeof(key) - 1};
    struct muster_registry_record record;

    if (muster_registry_store_find(job->store, name, &record) != MUSTER_OK)
        return 0;
    return (uint64_t)record.version;
}

static bool is_swapped(void *data)
{
    return views_committed(data) == 2;
}

/* Four members on one host, the registry on another; worker 3 has just been killed. */
static void start_with_a_death(struct train_job *job, uint64_t seed)
{
    train_job_start(job, seed, 4, 1);
    assert_int_equal(views_committed(job), 1);
    sim_kill(job->workers[3].process);
}

/* How long the leader takes from the death to the swap, in this seed. */
static uint64_t measure_swap(uint64_t seed)
{
    struct train_job job;
    uint64_t begin_ns, span_ns;

    start_with_a_death(&job, seed);
    begin_ns = sim_world_now_ns(job.world);
    assert_true(sim_run_until(job.world, is_swapped, &job, MUSTER_NS_PER_S));
    span_ns = sim_world_now_ns(job.world) - begin_ns;
    train_job_close(&job);
    return span_ns;
}

static void assert_two_remain(struct train_job *job)
{
    train_job_assert_trains(job);
    for (unsigned i = 1; i < 3; i++) {
        assert_int_equal(job->workers[i].members, 2);
        assert_int_equal(job->workers[i].epoch, views_committed(job));
        assert_int_equal(job->workers[i].exclusions + job->workers[i].restores, 0);
    }
}

static void the_next_rank_leads_when_the_leader_dies_before_its_swap(void **state)
{
    (void)state;
    for (uint64_t seed = 200; seed < 205; seed++) {
        uint64_t span_ns = measure_swap(seed);
        struct train_job job;

        start_with_a_death(&job, seed);
        sim_run_for(job.world, span_ns / 5 * (seed - 200) / 2);
        sim_kill(job.workers[0].process);
        assert_two_remain(&job);

        assert_int_equal(views_committed(&job), 2); /* one change for both deaths */
        train_job_close(&job);
    }
}

static void the_committed_view_stands_when_the_leader_dies_after_its_swap(void **state)
{
    (void)state;
    for (uint64_t seed = 210; seed < 215; seed++) {
        struct train_job job;

        start_with_a_death(&job, seed);
        assert_true(sim_run_until(job.world, is_swapped, &job, MUSTER_NS_PER_S));
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(job.workers[i].epoch, 1); /* nobody knows it yet, the leader neither */
        sim_kill(job.workers[0].process);
        assert_two_remain(&job);

        assert_int_equal(views_committed(&job), 3);
        train_job_close(&job);
    }
}

static void at_any_moment_of_its_change_the_leader_may_die(void **state)
{
    uint64_t span_ns = measure_swap(220);
    unsigned before = 0, after = 0;

    (void)state;
    for (uint64_t part = 0; part <= 15; part++) {
        struct train_job job;

        start_with_a_death(&job, 220);
        sim_run_for(job.world, span_ns * part / 10);
        sim_kill(job.workers[0].process);
        assert_two_remain(&job);

        before += views_committed(&job) == 2;
        after += views_committed(&job) == 3;
        train_job_close(&job);
    }
    assert_int_equal(before + after, 16);
    assert_true(before > 0 && after > 0);
}

/* Cut from the others but not from the registry, the leader leaves them out and they leave out it. */
static void of_rival_leaders_the_swap_picks_one(void **state)
{
    (void)state;
    for (uint64_t seed = 230; seed < 234; seed++) {
        struct train_job job;

        train_job_start(&job, seed, 4, 4);
        for (unsigned i = 1; i < 4; i++)
            sim_cut(job.world, job.hosts[0], job.hosts[i], SIM_BOTH_WAYS);
        train_job_run_for(&job, 20 * MUSTER_NS_PER_S);
        assert_int_equal(views_committed(&job), 2);
        assert_int_equal(job.workers[0].exclusions + job.workers[1].exclusions, 1);
        assert_int_equal(job.workers[0].epoch + job.workers[1].epoch, 3); /* one in each */

        for (unsigned i = 1; i < 4; i++)
            sim_heal(job.world, job.hosts[0], job.hosts[i]);
        train_job_assert_trains(&job);
        assert_int_equal(job.workers[0].members, 4);
        train_job_close(&job);
    }
}

/* Every stream of the world in turn: the control links' and the data links' are resumed. */
static void the_loss_of_any_one_stream_costs_no_epoch(void **state)
{
    (void)state;
    for (unsigned hosts = 1; hosts <= 3; hosts += 2) {
        for (size_t stream = 0, count = 1; stream < count; stream++) {
            struct train_job job;

            train_job_start(&job, 240, 3, hosts);
            count = sim_stream_count(job.world);
            sim_reset_stream(job.world, stream);
            sim_run_for(job.world, MUSTER_NS_PER_S);
            train_job_assert_trains(&job);
            assert_int_equal(views_committed(&job), 1);
            train_job_close(&job);
        }
    }
}

/* Nobody answers the attempts to resume its links, nor refuses them: silence counts from its last
 * word all the same. */
static void who_dies_behind_a_cut_is_left_out_within_the_suspicion_time(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct train_job job;

        train_job_start(&job, 240, 3, 3);
        sim_run_for(job.world, 2 * MUSTER_NS_PER_S);
        for (unsigned k = 0; k < 3; k++)
            if (k != i)
                sim_cut(job.world, job.hosts[i], job.hosts[k], SIM_BOTH_WAYS);
        for (size_t stream = 0; stream < sim_stream_count(job.world); stream++)
            sim_reset_stream(job.world, stream);
        sim_run_for(job.world, 100 * MUSTER_NS_PER_MS);
        assert_int_equal(views_committed(&job), 1);
        sim_kill(job.workers[i].process);
        assert_true(sim_run_until(job.world, is_swapped, &job, 1200 * MUSTER_NS_PER_MS));
        train_job_close(&job);
    }
}

/* Suspected falsely, for it stands still; left out, and back with the others' state. */
static void who_stands_still_on_another_host_comes_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct train_job job;

        train_job_start(&job, 240, 3, 3);
        sim_run_for(job.world, 2 * MUSTER_NS_PER_S);
        sim_pause(job.workers[i].process);
        train_job_run_for(&job, 4 * MUSTER_NS_PER_S);
        sim_resume(job.workers[i].process);
        train_job_assert_trains(&job);
        for (unsigned k = 0; k < 3; k++) {
            assert_int_equal(job.workers[k].members, 3);
            assert_int_equal(job.workers[k].exclusions, k == i);
            assert_int_equal(job.workers[k].restores, k == i);
        }
        train_job_close(&job);
    }
}

/* With the dead one's share or without: train_job_assert_trains compares the survivors' states. */
static void an_interrupted_operation_is_adopted_or_retried_by_all(void **state)
{
    unsigned adopts = 0, retries = 0;

    (void)state;
    for (uint32_t part = 0; part < 30; part++) {
        struct train_job job;

        train_job_start(&job, 250, 4, 2);
        job.pace_ns = 50 * MUSTER_NS_PER_US; /* nearly always inside an operation */
        sim_run_for(job.world, 10 * MUSTER_NS_PER_MS + part * 20 * MUSTER_NS_PER_US);
        sim_kill_within(job.workers[part % 4].process, part % 3);
        sim_run_for(job.world, 50 * MUSTER_NS_PER_MS);
        train_job_assert_trains(&job);
        for (unsigned i = 0; i < 4; i++) {
            adopts += job.workers[i].adopts;
            retries += job.workers[i].second_tries;
            assert_int_equal(job.workers[i].aborts, 0);
        }
        train_job_close(&job);
    }
    assert_true(adopts > 0 && retries > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_rank_leads_when_the_leader_dies_before_its_swap),
        cmocka_unit_test(the_committed_view_stands_when_the_leader_dies_after_its_swap),
        cmocka_unit_test(at_any_moment_of_its_change_the_leader_may_die),
        cmocka_unit_test(of_rival_leaders_the_swap_picks_one),
        cmocka_unit_test(the_loss_of_any_one_stream_costs_no_epoch),
        cmocka_unit_test(who_dies_behind_a_cut_is_left_out_within_the_suspicion_time),
        cmocka_unit_test(who_stands_still_on_another_host_comes_back),
        cmocka_unit_test(an_interrupted_operation_is_adopted_or_retried_by_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
