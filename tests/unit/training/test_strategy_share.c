/* The first begin of a new job: all have one member's tensors, whole, and who has registered others is
 * told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE  4u
#define LARGE ((size_t)9 << 20) /* several pieces, the last one short */
#define PARTS 20u               /* more than pieces in a batch */

static struct job_stage stage;

/* The tensors that a member registers, and the outcome. */
struct plan {
    const char *name;
    uint64_t counts[SIZE]; /* of the first tensor */
    unsigned giver;        /* whose values all have in the end */
    unsigned odd;          /* bits: ranks that are refused */
    const char *text;
};

static void fill_values(int64_t *values, size_t count, unsigned rank)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (int64_t)(i % 5 == 0 ? 7 : i + 1000 * rank); /* partly alike */
}

static void check_state(const int64_t *values, size_t count, unsigned rank)
{
    for (size_t i = 0; i < count; i++)
        JOB_CHECK(values[i] == (int64_t)(i % 5 == 0 ? 7 : i + 1000 * rank));
}

static void be_one(unsigned rank, void *data)
{
    const struct plan *plan = data;
    int64_t values[8], second[3];
    const struct muster_tensor tensors[] = {
        {.data = values, .count = plan->counts[rank], .dtype = MUSTER_I64},
        {.data = second, .count = 3, .dtype = MUSTER_I64}};
    struct muster_strategy *strategy = job_strategy_open();
    uint64_t step = 0;
    int64_t sum = 1;
    enum muster_rc rc;

    fill_values(values, 8, rank);
    fill_values(second, 3, rank);
    JOB_CHECK(muster_strategy_register(strategy, "first", &tensors[0]) == MUSTER_OK);
    JOB_CHECK(muster_strategy_register(strategy, "second", &tensors[1]) == MUSTER_OK);
    rc = muster_strategy_begin(strategy, &step, NULL);
    if ((plan->odd >> rank & 1) != 0) {
        if (rc != MUSTER_INVALID_ARGUMENT ||
            strstr(muster_strategy_error(strategy)->text, plan->text) == NULL)
            job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
        check_state(values, 8, rank);
        check_state(second, 3, rank);
        JOB_CHECK(muster_strategy_begin(strategy, &step, NULL) == MUSTER_INVALID_ARGUMENT);
        JOB_CHECK(muster_strategy_commit(strategy) == MUSTER_INVALID_ARGUMENT);
    } else {
        if (rc != MUSTER_OK)
            job_check(false, muster_strategy_error(strategy)->text, __FILE__, __LINE__);
        check_state(values, plan->counts[rank], plan->giver);
        check_state(second, 3, plan->giver);
        job_sum(strategy, &sum);
        job_commit(strategy);
        JOB_CHECK(job_begin(strategy) == 2);
        job_commit(strategy);
    }
    muster_strategy_close(strategy);
}

static void all_have_the_tensors_of_the_first_of_most(void **state)
{
    static struct plan plans[] = {
        {"all alike", {8, 8, 8, 8}, 0, 0, NULL},
        {"the last differs",
         {8, 8, 8, 5},
         0,
         1u << 3,
         "worker:3 differs from 3 of 4 members; compared with the state of worker:0: "},
        {"the first differs", {5, 8, 8, 8}, 1, 1u << 0, "compared with the state of worker:1: "},
        {"two sides", {8, 5, 8, 5}, 0, 1u << 1 | 1u << 3, "differs from 2 of 4 members"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        struct plan *plan = &plans[i];

        job_stage_open(&stage, 1, SIZE);
        for (unsigned rank = 0; rank < SIZE; rank++)
            if (rank != 1)
                job_stage_start(&stage, rank, be_one, plan);
        be_one(1, plan);
        job_stage_join(&stage);
        if ((plan->odd >> 1 & 1) != 0)
            assert_non_null(strstr(job_stage_told(&stage), "{\"report\":\"refused\",\"why\":"));
        else
            assert_null(strstr(job_stage_told(&stage), "{\"report\":\"refused\""));
        job_stage_close(&stage);
    }
}

/* --- large states --- */

struct large {
    int64_t *values;
    int64_t parts[PARTS][2];
    uint8_t flags[3];
};

static void register_large(struct muster_strategy *strategy, struct large *large)
{
    const struct muster_tensor tensor = {
        .data = large->values, .count = LARGE / sizeof(int64_t), .dtype = MUSTER_I64};
    const struct muster_tensor flags = {.data = large->flags, .count = 3, .dtype = MUSTER_U8};
    char name[16];

    JOB_CHECK(muster_strategy_register(strategy, "flags", &flags) == MUSTER_OK);
    JOB_CHECK(muster_strategy_register(strategy, "large", &tensor) == MUSTER_OK);
    for (unsigned i = 0; i < PARTS; i++) {
        const struct muster_tensor part = {
            .data = large->parts[i], .count = 2, .dtype = MUSTER_I64};

        snprintf(name, sizeof(name), "part%u", i);
        JOB_CHECK(muster_strategy_register(strategy, name, &part) == MUSTER_OK);
    }
}

/* alike: bits of the parts that are the same on all. */
static void fill_large(struct large *large, unsigned rank, unsigned alike)
{
    fill_values(large->values, LARGE / sizeof(int64_t), rank);
    memset(large->flags, (int)rank, sizeof(large->flags));
    for (unsigned i = 0; i < PARTS; i++)
        fill_values(large->parts[i], 2, (alike >> i & 1) != 0 ? 99 : rank);
}

static void check_large(const struct large *large, unsigned rank, unsigned alike)
{
    check_state(large->values, LARGE / sizeof(int64_t), rank);
    for (size_t i = 0; i < sizeof(large->flags); i++)
        JOB_CHECK(large->flags[i] == rank);
    for (unsigned i = 0; i < PARTS; i++)
        check_state(large->parts[i], 2, (alike >> i & 1) != 0 ? 99 : rank);
}

static void be_one_with_much(unsigned rank, void *data)
{
    const unsigned *alike = data;
    struct large large = {.values = malloc(LARGE)};
    struct muster_strategy *strategy = job_strategy_open();

    JOB_CHECK(large.values != NULL);
    fill_large(&large, rank, *alike);
    register_large(strategy, &large);
    JOB_CHECK(job_begin(strategy) == 1);
    check_large(&large, 0, *alike);
    JOB_CHECK(strategy->shared_bytes == LARGE + sizeof(large.parts) + sizeof(large.flags));
    JOB_CHECK(!strategy->is_torn && strategy->begin == MUSTER_STRATEGY_BEGIN_OUTSIDE);
    job_commit(strategy);
    muster_strategy_close(strategy);
    free(large.values);
}

static void large_states_are_given_in_pieces_without_what_is_alike(void **state)
{
    static unsigned rows[] = {0, 1, 0xfffff, 0x5555f};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        job_stage_open(&stage, 0, 3);
        for (unsigned rank = 1; rank < 3; rank++)
            job_stage_start(&stage, rank, be_one_with_much, &rows[i]);
        be_one_with_much(0, &rows[i]);
        job_stage_close(&stage);
    }
}

/* --- the giver dies --- */

#define DEATHS 4u

struct death {
    unsigned rank;   /* who dies … */
    unsigned moment; /* … behind so many messages of the shared memory */
};

/* All of the survivors' tensors are one rank's, whole. */
static void survive_death(unsigned rank, void *data)
{
    const struct death *death = data;
    struct large large = {.values = malloc(LARGE)};
    struct muster_strategy *strategy;
    unsigned giver;

    if (rank == death->rank) {
        char kill[64];

        snprintf(kill, sizeof(kill), "step=0,chunk=%u", death->moment);
        setenv("MUSTER_KILL", kill, 1);
    }
    strategy = job_strategy_open();
    unsetenv("MUSTER_KILL");
    JOB_CHECK(large.values != NULL);
    fill_large(&large, rank, 0);
    register_large(strategy, &large);
    JOB_CHECK(job_begin(strategy) == 1);
    giver = (unsigned)(large.values[1] / 1000);
    JOB_CHECK(giver < 3);
    check_large(&large, giver, 0);
    job_sum(strategy, &large.values[1]);
    JOB_CHECK(large.values[1] ==
              (int64_t)muster_strategy_size(strategy) * (int64_t)(1 + 1000 * giver));
    job_commit(strategy);
    muster_strategy_close(strategy);
    free(large.values);
}

static void when_the_giver_dies_all_have_another_s_state_whole(void **state)
{
    unsigned killed_count = 0;

    (void)state;
    for (unsigned i = 0; i < DEATHS; i++) {
        static struct death death;

        death = (struct death){.rank = 0, .moment = i * i * 3};
        job_stage_open(&stage, 2, 3);
        for (unsigned rank = 0; rank < 2; rank++)
            job_stage_start(&stage, rank, survive_death, &death);
        survive_death(2, &death);
        killed_count += job_stage_join_killed(&stage, 0);
        job_stage_close(&stage);
    }
    assert_true(killed_count >= DEATHS - 1); /* the last moment may come too late */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_have_the_tensors_of_the_first_of_most),
        cmocka_unit_test(large_states_are_given_in_pieces_without_what_is_alike),
        cmocka_unit_test(when_the_giver_dies_all_have_another_s_state_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
