/* Members that die and come back: what those who live on see of it, what their launchers are told, and
 * what a member finds that comes late. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE      3u
#define STEPS_MAX 100000000u /* others take their time */

static struct job_stage stage;

/* The state of a member: one more in each committed step, and what every step has summed up. */
struct replica {
    struct muster_strategy *strategy;
    int64_t steps;
    int64_t noise[3]; /* differs at the start */
    uint64_t step;
    bool is_restored;
};

static void replica_open(struct replica *replica, int64_t noise)
{
    const struct muster_tensor steps = {.data = &replica->steps, .count = 1, .dtype = MUSTER_I64};
    const struct muster_tensor rest = {.data = replica->noise, .count = 3, .dtype = MUSTER_I64};

    memset(replica, 0, sizeof(*replica));
    replica->steps = noise;
    for (int i = 0; i < 3; i++)
        replica->noise[i] = noise * (i + 1);
    replica->strategy = job_strategy_open();
    JOB_CHECK(muster_strategy_register(replica->strategy, "steps", &steps) == MUSTER_OK);
    JOB_CHECK(muster_strategy_register(replica->strategy, "noise", &rest) == MUSTER_OK);
}

static void replica_begin(struct replica *replica)
{
    if (muster_strategy_begin(replica->strategy, &replica->step, &replica->is_restored) !=
        MUSTER_OK)
        job_check(false, muster_strategy_error(replica->strategy)->text, __FILE__, __LINE__);
    JOB_CHECK(replica->steps == (int64_t)replica->step - 1);
    for (int i = 0; i < 3; i++)
        JOB_CHECK(replica->noise[i] == 0);
}

/* How many have taken part. */
static int64_t replica_work(struct replica *replica)
{
    int64_t sum = 1;

    job_sum(replica->strategy, &sum);
    JOB_CHECK(sum == muster_strategy_contributors(replica->strategy));
    JOB_CHECK(sum == muster_strategy_size(replica->strategy) ||
              muster_strategy_result(replica->strategy)->is_interrupted);
    replica->steps++;
    job_commit(replica->strategy);
    return sum;
}

static int64_t replica_step(struct replica *replica)
{
    replica_begin(replica);
    return replica_work(replica);
}

static void replica_close(struct replica *replica)
{
    muster_strategy_close(replica->strategy);
}

/* --- the scripts of the others --- */

#define STEP_OF_DEATH 2

static void die_at_once(unsigned rank, void *data)
{
    struct replica replica;

    (void)data;
    setenv("MUSTER_KILL", "step=2,chunk=0", 1);
    replica_open(&replica, rank);
    for (;;)
        replica_step(&replica);
}

/* The death is known; the next one may come. */
struct turnstile {
    int pipe_ends[2];
};

static void turnstile_open(struct turnstile *turnstile)
{
    assert_int_equal(pipe(turnstile->pipe_ends), 0);
}

static void turnstile_close(struct turnstile *turnstile)
{
    close(turnstile->pipe_ends[0]);
    close(turnstile->pipe_ends[1]);
}

static void let_pass(const struct turnstile *turnstile)
{
    JOB_CHECK(write(turnstile->pipe_ends[1], "x", 1) == 1);
}

static void wait_to_pass(const struct turnstile *turnstile)
{
    char byte;

    JOB_CHECK(read(turnstile->pipe_ends[0], &byte, 1) == 1);
}

/* Until somebody has died, and until all are there again; then some steps more. */
static void live_through(struct replica *replica, const struct turnstile *turnstile)
{
    uint64_t steps = 0;

    while (replica_step(replica) == SIZE)
        JOB_CHECK(++steps <= STEPS_MAX);
    JOB_CHECK(replica->step >= STEP_OF_DEATH);
    if (turnstile != NULL)
        let_pass(turnstile);
    while (replica_step(replica) < SIZE)
        JOB_CHECK(++steps <= STEPS_MAX);
}

/* All close behind the same step: the first in which all were there again, and ten more. */
static void finish_replica(struct replica *replica)
{
    for (int i = 0; i < 10; i++)
        JOB_CHECK(replica_step(replica) == SIZE);
    JOB_CHECK(muster_strategy_size(replica->strategy) == SIZE);
    replica_close(replica);
}

static void live_on(unsigned rank, void *data)
{
    struct replica replica;

    replica_open(&replica, rank);
    live_through(&replica, data);
    finish_replica(&replica);
}

static void come_late(unsigned rank, void *data)
{
    struct replica replica;

    (void)rank;
    wait_to_pass(data);
    setenv("RANK", "2", 1);
    replica_open(&replica, 77);
    replica_begin(&replica);
    JOB_CHECK(replica.is_restored && replica.step > STEP_OF_DEATH);
    JOB_CHECK(replica_work(&replica) == SIZE);
    finish_replica(&replica);
}

/* --- cases --- */

static void check_told_in_order(const char *const *texts, size_t count)
{
    const char *at = job_stage_told(&stage);

    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(at, texts[i]);

        if (found == NULL)
            fail_msg("not told (in this order): %s\nof %s", texts[i], stage.told);
        at = found + 1;
    }
}

static void the_living_go_on_and_their_launcher_is_told(void **state)
{
    static const char *const texts[] = {
        "{\"report\":\"view\",\"epoch\":1,\"members\":3,\"step\":0,\"lost\":[],\"joined\":[]",
        "\"members\":2,\"step\":",
        "\"lost\":[\"worker:2\"],\"joined\":[],",
        "\"recovery_ms\":",
        "{\"report\":\"delivered\",\"epoch\":",
        "\"members\":3,",
        "\"lost\":[],\"joined\":[\"worker:2\"]",
        "{\"report\":\"result\",\"steps\":",
        "\"steps_lost\":0,",
    };
    struct turnstile turnstile;
    struct replica replica;

    (void)state;
    turnstile_open(&turnstile);
    job_stage_open(&stage, 0, SIZE);
    job_stage_start(&stage, 1, live_on, NULL);
    job_stage_start(&stage, 2, die_at_once, NULL);
    job_stage_start(&stage, 3, come_late, &turnstile);
    replica_open(&replica, 0);
    live_through(&replica, &turnstile);
    assert_true(muster_strategy_epoch(replica.strategy) >= 3);
    finish_replica(&replica);
    assert_true(job_stage_join_killed(&stage, 2));
    job_stage_join(&stage);

    check_told_in_order(texts, sizeof(texts) / sizeof(texts[0]));
    assert_null(strstr(stage.told, "\"detected_ns\":0")); /* they are of the clock */
    assert_null(strstr(stage.told, "\"opened_ns\":0"));
    job_stage_close(&stage);
    turnstile_close(&turnstile);
}

static void who_comes_late_has_the_state_of_the_others(void **state)
{
    static const char *const texts[] = {
        "{\"report\":\"rejoined\",\"epoch\":",
        "{\"report\":\"result\",\"steps\":",
    };
    struct turnstile turnstile;
    char from_step[64];
    struct replica replica;

    (void)state;
    turnstile_open(&turnstile);
    job_stage_open(&stage, 2, SIZE);
    job_stage_start(&stage, 0, live_on, &turnstile);
    job_stage_start(&stage, 1, live_on, NULL);
    job_stage_start(&stage, 2, die_at_once, NULL);
    wait_to_pass(&turnstile);
    replica_open(&replica, 77);
    replica_begin(&replica);
    assert_true(replica.is_restored);
    assert_true(replica.step > STEP_OF_DEATH);
    assert_int_equal(muster_strategy_rank(replica.strategy), 2);
    assert_int_equal(muster_strategy_size(replica.strategy), SIZE);
    snprintf(from_step, sizeof(from_step), "\"from_step\":%llu}", (unsigned long long)replica.step);
    replica_work(&replica);
    replica_begin(&replica);
    assert_false(replica.is_restored);
    replica_work(&replica);
    for (int i = 0; i < 9; i++)
        assert_int_equal(replica_step(&replica), SIZE);
    replica_close(&replica);
    assert_true(job_stage_join_killed(&stage, 2));
    job_stage_join(&stage);

    check_told_in_order(texts, sizeof(texts) / sizeof(texts[0]));
    assert_non_null(strstr(stage.told, from_step));
    job_stage_close(&stage);
    turnstile_close(&turnstile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_living_go_on_and_their_launcher_is_told),
        cmocka_unit_test(who_comes_late_has_the_state_of_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
