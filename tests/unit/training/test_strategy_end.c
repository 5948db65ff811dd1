/* The ends of a member: whatever it was doing, the others go on without it, and its launcher is told
 * what it needs to start it again, or not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_role.h>

#include "job_stage.h"
#include "test_env.h"

#define SIZE  3u
#define STEPS 4

static struct job_stage stage;

/* How one member ends: everything from open to the end. */
struct end {
    const char *name;
    void (*run)(struct muster_strategy *strategy);
    const char *told, *untold; /* NULL: anything */
};

static int64_t give_one(struct muster_strategy *strategy)
{
    int64_t value = 1;

    job_sum(strategy, &value);
    return value;
}

/* Those who stay: in the end they are one less. */
static void go_on(unsigned rank, void *data)
{
    struct muster_strategy *strategy = job_strategy_open();
    int64_t sum = 0;

    (void)rank;
    (void)data;
    for (uint64_t step = 1; step <= STEPS; step++) {
        JOB_CHECK(job_begin(strategy) == step);
        sum = give_one(strategy);
        JOB_CHECK(sum == muster_strategy_contributors(strategy));
        job_commit(strategy);
    }
    JOB_CHECK(sum == SIZE - 1 && muster_strategy_size(strategy) == SIZE - 1);
    muster_strategy_close(strategy);
}

static void start_others(void)
{
    job_stage_start(&stage, 0, go_on, NULL);
    job_stage_start(&stage, 2, go_on, NULL);
}

static void check_told(const struct end *end)
{
    job_stage_told(&stage);
    if ((end->told != NULL && strstr(stage.told, end->told) == NULL) ||
        (end->untold != NULL && strstr(stage.told, end->untold) != NULL))
        fail_msg("%s: %s", end->name, stage.told);
}

/* --- with close, or abandoned --- */

static void step_once(struct muster_strategy *strategy)
{
    assert_int_equal(job_begin(strategy), 1);
    assert_int_equal(give_one(strategy), SIZE);
}

static void close_behind_commit(struct muster_strategy *strategy)
{
    step_once(strategy);
    job_commit(strategy);
    muster_strategy_close(strategy);
}

static void close_behind_begin(struct muster_strategy *strategy)
{
    step_once(strategy);
    job_commit(strategy);
    assert_int_equal(job_begin(strategy), 2);
    muster_strategy_close(strategy);
}

static void close_before_commit(struct muster_strategy *strategy)
{
    step_once(strategy);
    muster_strategy_close(strategy);
}

static void close_behind_a_failure(struct muster_strategy *strategy)
{
    const struct muster_tensor nothing = {.count = 1, .dtype = MUSTER_I64};

    step_once(strategy);
    assert_int_equal(muster_strategy_all_reduce(strategy, &nothing, 1, MUSTER_SUM),
                     MUSTER_INVALID_ARGUMENT);
    job_commit(strategy);
    muster_strategy_close(strategy);
}

/* Its own process has refused the call, without the group. */
static void close_behind_a_refused_first_call(struct muster_strategy *strategy)
{
    const struct muster_communication_options nccl = {.implementation = MUSTER_COMMUNICATION_NCCL};
    int64_t one = 1;
    const struct muster_tensor tensor = {.data = &one, .count = 1, .dtype = MUSTER_I64};

    assert_int_equal(job_begin(strategy), 1);
    assert_int_equal(muster_strategy_all_reduce_with(strategy, &tensor, 1, MUSTER_SUM, &nccl),
                     MUSTER_INVALID_ARGUMENT);
    muster_strategy_close(strategy);
}

/* An earlier failure is over for a program that has begun again. */
static void close_behind_a_failure_that_was_overcome(struct muster_strategy *strategy)
{
    const struct muster_tensor nothing = {.count = 1, .dtype = MUSTER_I64};

    assert_int_equal(job_begin(strategy), 1);
    assert_int_equal(muster_strategy_all_reduce(strategy, &nothing, 1, MUSTER_SUM),
                     MUSTER_INVALID_ARGUMENT);
    step_once(strategy);
    job_commit(strategy);
    muster_strategy_close(strategy);
}

static void abandon_as(struct muster_strategy *strategy, const char *text, const char *expected)
{
    uint64_t step;

    step_once(strategy);
    muster_strategy_abandon(strategy, text);
    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_CANCELLED);
    assert_string_equal(muster_strategy_error(strategy)->text, expected);
    assert_int_equal(muster_strategy_commit(strategy), MUSTER_CANCELLED);
    assert_int_equal(muster_strategy_barrier(strategy), MUSTER_CANCELLED);
    muster_strategy_abandon(strategy, "again");
    muster_strategy_close(strategy);
}

static void abandon_with_a_reason(struct muster_strategy *strategy)
{
    abandon_as(strategy, "no disk", "abandoned: no disk");
}

static void abandon_without_words(struct muster_strategy *strategy)
{
    abandon_as(strategy, "", "abandoned: the program said so");
}

static void abandon_without_text(struct muster_strategy *strategy)
{
    abandon_as(strategy, NULL, "abandoned: the program said so");
}

#define RESULT    "{\"report\":\"result\",\"steps\":1,"
#define ABANDONED "{\"report\":\"abandoned\",\"step\":"

static void the_others_go_on_without_who_closes_or_abandons(void **state)
{
    static const struct end ends[] = {
        {"behind commit", close_behind_commit, RESULT, ABANDONED},
        {"behind begin", close_behind_begin, RESULT, ABANDONED},
        {"before commit", close_before_commit,
         ABANDONED "1,\"reason\":\"closed in step 1 before its commit\"}", RESULT},
        {"behind a failure", close_behind_a_failure,
         ABANDONED "1,\"reason\":\"closed in step 1 after a failed operation: all_reduce of "
                   "tensor 0: ",
         RESULT},
        {"a refused first call", close_behind_a_refused_first_call,
         ABANDONED "1,\"reason\":\"closed in step 1 after a failed operation: all_reduce: "
                   "communication NCCL",
         RESULT},
        {"a failure overcome", close_behind_a_failure_that_was_overcome, RESULT, ABANDONED},
        {"abandoned", abandon_with_a_reason, ABANDONED "1,\"reason\":\"no disk\"}", RESULT},
        {"no words", abandon_without_words, ABANDONED "1,\"reason\":\"the program said so\"}",
         "again"},
        {"no text", abandon_without_text, ABANDONED "1,\"reason\":\"the program said so\"}",
         RESULT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        job_stage_open(&stage, 1, SIZE);
        start_others();
        ends[i].run(job_strategy_open());
        job_stage_join(&stage);
        check_told(&ends[i]);
        job_stage_close(&stage);
    }
}

/* --- without close --- */

static void exit_behind_commit(struct muster_strategy *strategy)
{
    job_begin(strategy);
    give_one(strategy);
    job_commit(strategy);
}

static void exit_behind_begin(struct muster_strategy *strategy)
{
    exit_behind_commit(strategy);
    job_begin(strategy);
}

static void exit_before_commit(struct muster_strategy *strategy)
{
    exit_behind_begin(strategy);
    give_one(strategy);
}

static void exit_after_abandoning(struct muster_strategy *strategy)
{
    exit_behind_commit(strategy);
    muster_strategy_abandon(strategy, "no disk");
}

static struct muster_strategy *left_open; /* no leak: the program ends */

static void run_end(unsigned rank, void *data)
{
    const struct end *end = data;

    (void)rank;
    left_open = job_strategy_open();
    end->run(left_open);
}

#define UNCLOSED "{\"report\":\"unclosed\",\"step\":"

static void the_others_go_on_without_who_ends_without_close(void **state)
{
    static struct end ends[] = {
        {"behind commit", exit_behind_commit, UNCLOSED "1,\"in_step\":false}", ABANDONED},
        {"behind begin", exit_behind_begin, UNCLOSED "2,\"in_step\":true}", ABANDONED},
        {"before commit", exit_before_commit,
         ABANDONED "2,\"reason\":\"the program ended without muster_strategy_close\"}", UNCLOSED},
        {"abandoned", exit_after_abandoning, ABANDONED "1,\"reason\":\"no disk\"}", UNCLOSED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        job_stage_open(&stage, 0, SIZE);
        job_stage_start_told(&stage, 1, run_end, &ends[i]);
        job_stage_start(&stage, 2, go_on, NULL);
        go_on(0, NULL);
        job_stage_join(&stage);
        check_told(&ends[i]);
        job_stage_close(&stage);
    }
}

/* --- before it was a member --- */

/* The others do not come: nobody is told of a result, and close does not wait for them. */
static void who_was_no_member_yet_leaves_at_once(void **state)
{
    struct muster_strategy *strategy;

    (void)state;
    job_stage_open(&stage, 0, SIZE);
    strategy = job_strategy_open();
    muster_strategy_close(strategy);
    assert_null(strstr(job_stage_told(&stage), "\"report\":\"result\""));
    assert_null(strstr(job_stage_told(&stage), ABANDONED));
    job_stage_close(&stage);
}

/* Its launcher has started it again, and all the others are done. */
static void who_returns_to_a_job_that_is_over_is_told_so(void **state)
{
    struct muster_strategy *strategy;
    uint64_t step;

    (void)state;
    job_stage_open(&stage, 0, 1);
    strategy = job_strategy_open();
    job_begin(strategy);
    job_commit(strategy);
    muster_strategy_close(strategy);
    setenv("MUSTER_INCARNATION", "0123456789abcdef0123456789abcdef", 1);
    setenv("MUSTER_REJOIN", "1", 1);
    strategy = job_strategy_open();
    unsetenv("MUSTER_INCARNATION");
    unsetenv("MUSTER_REJOIN");

    assert_int_equal(muster_strategy_begin(strategy, &step, NULL), MUSTER_OUT_OF_RANGE);
    assert_int_equal(muster_strategy_error(strategy)->rc, MUSTER_OUT_OF_RANGE);
    assert_true(muster_strategy_error(strategy)->text[0] != '\0');
    assert_int_equal(muster_strategy_rank(strategy), MUSTER_RANK_NOBODY);
    assert_false(muster_strategy_should_checkpoint(strategy));
    assert_non_null(strstr(job_stage_told(&stage), "{\"report\":\"over\"}"));
    assert_null(strstr(stage.told, "{\"report\":\"refused\""));
    muster_strategy_close(strategy);
    job_stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on_without_who_closes_or_abandons),
        cmocka_unit_test(the_others_go_on_without_who_ends_without_close),
        cmocka_unit_test(who_was_no_member_yet_leaves_at_once),
        cmocka_unit_test(who_returns_to_a_job_that_is_over_is_told_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
