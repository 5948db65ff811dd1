/* Operations of a strategy and of its splits among four members: every rank runs the same script and
 * checks its own results. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/strategy_exchange.h>
#include <muster/strategy_request.h>

#include "job_stage.h"
#include "test_env.h"
#include "training/strategy_internal.h"

#define SIZE  4u
#define COUNT 5u
#define MANY  70u /* more than operations in flight */

/* One member's run of the script. */
struct script {
    unsigned rank;
    struct muster_strategy *strategy;
    struct muster_strategy_split *halves; /* ranks 0 and 2, 1 and 3 */
    struct muster_strategy_split *heads;  /* ranks 0 … 2; rank 3 is in none */
};

static uint32_t half_of(void *data, const struct muster_member *member)
{
    (void)data;
    return member->task_index % 2;
}

static uint32_t head_of(void *data, const struct muster_member *member)
{
    (void)data;
    return member->task_index < 3 ? 7 : MUSTER_COLOR_MAX + 1;
}

static struct muster_tensor of_ints(int64_t *values, uint64_t count)
{
    return (struct muster_tensor){.data = values, .count = count, .dtype = MUSTER_I64};
}

#define OK(call)              JOB_RC(script->strategy, (call), MUSTER_OK, "")
#define FAILS(call, rc, text) JOB_RC(script->strategy, (call), (rc), (text))

static void fill_values(int64_t *values, unsigned rank)
{
    for (unsigned i = 0; i < COUNT; i++)
        values[i] = (int64_t)(rank + 1) * (i + 1);
}

/* --- of all members --- */

static void reduce_all(const struct script *script)
{
    static const struct {
        enum muster_reduction reduction;
        int64_t expected; /* of 1, 2, 3, 4 */
    } rows[] = {{MUSTER_SUM, 10}, {MUSTER_MIN, 1}, {MUSTER_MAX, 4}, {MUSTER_PROD, 24}};
    int64_t values[COUNT];
    const struct muster_tensor tensor = of_ints(values, COUNT);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fill_values(values, script->rank);
        OK(muster_strategy_all_reduce(script->strategy, &tensor, 1, rows[i].reduction));
        JOB_CHECK(values[0] == rows[i].expected);
        JOB_CHECK(rows[i].reduction == MUSTER_PROD || values[4] == 5 * rows[i].expected);
        JOB_CHECK(muster_strategy_contributors(script->strategy) == SIZE);
        JOB_CHECK(muster_strategy_result(script->strategy)->contributor_count == SIZE);
    }
}

static void reduce_weighted(const struct script *script)
{
    double values[2] = {script->rank, 1};
    const struct muster_tensor tensor = {.data = values, .count = 2, .dtype = MUSTER_F64};

    OK(muster_strategy_all_reduce_weighted(script->strategy, &tensor, 1, script->rank));
    JOB_CHECK(values[0] > 14.0 / 6 - 1e-9 && values[0] < 14.0 / 6 + 1e-9);
    JOB_CHECK(values[1] > 1 - 1e-9 && values[1] < 1 + 1e-9);
    JOB_CHECK(muster_strategy_result(script->strategy)->total_weight == 6);
}

/* More tensors than operations that are in flight at a time, alone and in packs. */
static void reduce_many(const struct script *script)
{
    static const uint64_t packs[] = {0, 256};
    int64_t values[MANY];
    struct muster_tensor tensors[MANY];

    for (size_t k = 0; k < sizeof(packs) / sizeof(packs[0]); k++) {
        const struct muster_communication_options options = {.bytes_per_pack = packs[k]};

        for (unsigned i = 0; i < MANY; i++) {
            values[i] = i * (script->rank + 1);
            tensors[i] = of_ints(&values[i], 1);
        }
        OK(muster_strategy_all_reduce_with(script->strategy, tensors, MANY, MUSTER_SUM, &options));
        for (unsigned i = 0; i < MANY; i++)
            JOB_CHECK(values[i] == 10 * i);
    }
}

static void give_from_each_root(const struct script *script)
{
    int64_t values[COUNT];
    const struct muster_tensor tensor = of_ints(values, COUNT);

    for (uint32_t root = 0; root < SIZE; root++) {
        fill_values(values, script->rank);
        OK(muster_strategy_broadcast(script->strategy, &tensor, root));
        JOB_CHECK(values[0] == root + 1 && values[4] == 5 * (root + 1));
        fill_values(values, script->rank);
        OK(muster_strategy_reduce(script->strategy, &tensor, MUSTER_SUM, root));
        JOB_CHECK(values[0] == (script->rank == root ? 10 : script->rank + 1));
    }
    FAILS(muster_strategy_broadcast(script->strategy, &tensor, SIZE), MUSTER_INVALID_ARGUMENT,
          "broadcast: there is no rank 4, the last is 3");
    FAILS(muster_strategy_reduce(script->strategy, &tensor, MUSTER_SUM, SIZE),
          MUSTER_INVALID_ARGUMENT, "reduce: there is no rank 4");
}

static void gather_and_exchange(const struct script *script)
{
    int64_t input[SIZE], output[SIZE];
    const struct muster_tensor one = of_ints(input, 1), all = of_ints(input, SIZE);
    const struct muster_tensor gathered = of_ints(output, SIZE);

    for (unsigned i = 0; i < SIZE; i++)
        input[i] = 10 * script->rank + i;
    OK(muster_strategy_all_gather(script->strategy, &one, &gathered));
    for (unsigned i = 0; i < SIZE; i++)
        JOB_CHECK(output[i] == 10 * i);
    OK(muster_strategy_all_to_all(script->strategy, &all, &gathered));
    for (unsigned i = 0; i < SIZE; i++)
        JOB_CHECK(output[i] == 10 * i + script->rank);
    OK(muster_strategy_barrier(script->strategy));
}

static void exchange_parts(const struct script *script)
{
    struct muster_strategy *strategy = script->strategy;
    int64_t input[SIZE], output[SIZE] = {-1, -1, -1, -1}, rank = script->rank;
    const struct muster_tensor one = of_ints(input, 1), all = of_ints(input, SIZE);
    const struct muster_tensor own = of_ints(output, 1), whole = of_ints(output, SIZE);
    bool is_root = script->rank == 2;

    for (unsigned i = 0; i < SIZE; i++)
        input[i] = 10 * rank + i;
    OK(muster_strategy_reduce_scatter(strategy, &all, &own, MUSTER_SUM));
    JOB_CHECK(output[0] == 60 + 4 * rank);
    JOB_CHECK(muster_strategy_contributors(strategy) == SIZE);
    OK(muster_strategy_scatter(strategy, is_root ? &all : NULL, &own, 2));
    JOB_CHECK(output[0] == 20 + rank);
    OK(muster_strategy_gather(strategy, &one, is_root ? &whole : NULL, 2));
    for (unsigned i = 0; i < SIZE; i++)
        JOB_CHECK(output[i] == (is_root ? 10 * (int64_t)i : i == 0 ? 20 + rank : -1));
}

static void exchange_uneven_parts(const struct script *script)
{
    struct muster_strategy *strategy = script->strategy;
    int64_t input[6], output[12], rank = script->rank;
    const uint64_t counts[SIZE] = {0, 1, 2, 3}, own = script->rank;
    const uint64_t others[SIZE] = {own, own, own, own};
    const struct muster_parts from = {
        .data = input, .counts = counts, .part_count = SIZE, .dtype = MUSTER_I64};
    const struct muster_parts gathered = {
        .data = output, .counts = counts, .part_count = SIZE, .dtype = MUSTER_I64};
    const struct muster_parts to = {
        .data = output, .counts = others, .part_count = SIZE, .dtype = MUSTER_I64};
    const struct muster_tensor part = of_ints(input, own), sum = of_ints(output, own);
    struct muster_parts few = from;

    few.part_count = 3;
    for (unsigned i = 0; i < 6; i++)
        input[i] = 10 * rank + i;
    OK(muster_strategy_all_gather_uneven(strategy, &part, &gathered));
    JOB_CHECK(output[0] == 10 && output[1] == 20 && output[2] == 21 && output[5] == 32);
    OK(muster_strategy_reduce_scatter_uneven(strategy, &from, &sum, MUSTER_SUM));
    JOB_CHECK(rank == 0 || output[0] == 60 + 4 * (rank * (rank - 1) / 2));
    OK(muster_strategy_all_to_all_uneven(strategy, &from, &to));
    JOB_CHECK(rank != 3 || (output[0] == 3 && output[3] == 13 && output[11] == 35));
    FAILS(muster_strategy_reduce_scatter_uneven(strategy, &few, &sum, MUSTER_SUM),
          MUSTER_INVALID_ARGUMENT, "there must be a count for each of 4 members, got 3");
}

/* From each member to the next, first in pairs and then all at once. */
static void pass_messages(const struct script *script)
{
    struct muster_strategy *strategy = script->strategy;
    int64_t own = 7 + script->rank, got = -1;
    const struct muster_tensor output = of_ints(&own, 1), input = of_ints(&got, 1);
    uint32_t next = (script->rank + 1) % SIZE, before = (script->rank + 3) % SIZE;

    if (script->rank % 2 == 0)
        OK(muster_strategy_send(strategy, &output, next));
    else
        OK(muster_strategy_receive(strategy, &input, before));
    JOB_CHECK(got == (script->rank % 2 == 0 ? -1 : 6 + (int64_t)script->rank));
    OK(muster_strategy_exchange(strategy, &output, next, &input, before));
    JOB_CHECK(got == 7 + (int64_t)before);
    FAILS(muster_strategy_send(strategy, &output, script->rank), MUSTER_INVALID_ARGUMENT,
          "is this member itself");
    FAILS(muster_strategy_receive(strategy, &input, SIZE), MUSTER_INVALID_ARGUMENT,
          "receive: there is no rank 4, the last is 3");
}

/* A refusal here needs no other member: all go on. */
static void refuse_bad_tensors(const struct script *script)
{
    int64_t values[2 * SIZE];
    const struct muster_tensor good = of_ints(values, 1), nothing = of_ints(NULL, 1);
    const struct muster_tensor list[] = {good, nothing};
    const struct muster_tensor short_one = of_ints(values + 1, SIZE - 1);
    const struct muster_tensor flags = {.data = values, .count = 1, .dtype = MUSTER_BOOL};

    FAILS(muster_strategy_broadcast(script->strategy, &nothing, 0), MUSTER_INVALID_ARGUMENT,
          "broadcast of tensor 0: unknown type, or data NULL");
    FAILS(muster_strategy_all_gather(script->strategy, &good, &short_one), MUSTER_INVALID_ARGUMENT,
          "all_gather of i64 x 1 into i64 x 3 on 4 members");
    FAILS(muster_strategy_all_reduce_with(
              script->strategy, list, 2, MUSTER_SUM,
              &(struct muster_communication_options){.bytes_per_pack = 64}),
          MUSTER_INVALID_ARGUMENT, "all_reduce of 2 tensors");
    FAILS(muster_strategy_all_reduce(script->strategy, &flags, 1, MUSTER_SUM),
          MUSTER_INVALID_ARGUMENT, "all_reduce of tensor 0: sum of bool has no meaning");
    FAILS(muster_strategy_reduce(script->strategy, &flags, MUSTER_SUM, 0), MUSTER_INVALID_ARGUMENT,
          "reduce of tensor 0: sum of bool has no meaning");
    FAILS(muster_strategy_reduce_scatter(script->strategy, &flags, &flags, MUSTER_SUM),
          MUSTER_INVALID_ARGUMENT, "reduce_scatter of tensor 0: sum of bool has no meaning");
    FAILS(muster_strategy_reduce_scatter(script->strategy, &good, &short_one, MUSTER_SUM),
          MUSTER_INVALID_ARGUMENT, "reduce_scatter of i64 x 1 into i64 x 3 on 4 members");
    FAILS(muster_strategy_gather(script->strategy, &good, &good, script->rank),
          MUSTER_INVALID_ARGUMENT, "gather of i64 x 1 into i64 x 1 on 4 members");
    FAILS(muster_strategy_scatter(script->strategy, NULL, &good, script->rank),
          MUSTER_INVALID_ARGUMENT, "scatter of i64 x 0 into i64 x 1 on 4 members");
    FAILS(muster_strategy_all_reduce_with(
              script->strategy, &good, 1, MUSTER_SUM,
              &(struct muster_communication_options){.implementation = MUSTER_COMMUNICATION_NCCL}),
          MUSTER_INVALID_ARGUMENT, "communication NCCL, and the tensors are in host memory");
}

/* One rank calls with another count: all are told, and begin the step again. */
static void differ_in_shape(const struct script *script)
{
    static const uint64_t packs[] = {0, 256};
    int64_t values[4] = {1, 1, 1, 1};
    uint64_t count = script->rank == 2 ? 2 : 1;
    const struct muster_tensor list[] = {of_ints(values, count), of_ints(values + 2, count)};

    for (size_t i = 0; i < sizeof(packs) / sizeof(packs[0]); i++) {
        const struct muster_communication_options options = {.bytes_per_pack = packs[i]};

        FAILS(muster_strategy_all_reduce_with(script->strategy, list, 2, MUSTER_SUM, &options),
              MUSTER_INVALID_ARGUMENT, "all_reduce: ");
        JOB_CHECK(values[0] == 1);
        JOB_CHECK(job_begin(script->strategy) == 2);
    }
}

/* --- requests --- */

static void count_completion(struct muster_request *request, enum muster_rc rc)
{
    JOB_CHECK(rc == MUSTER_OK);
    ++*(unsigned *)request->data;
}

/* All send before any of them receives, and reduce meanwhile. */
static void request_several(const struct script *script)
{
    struct muster_strategy *strategy = script->strategy;
    int64_t own = 7 + script->rank, got = -1, input[SIZE], part = -1;
    const struct muster_tensor output = of_ints(&own, 1), received = of_ints(&got, 1);
    const struct muster_tensor all = of_ints(input, SIZE), one = of_ints(&part, 1);
    unsigned count = 0;
    struct muster_request requests[] = {
        {.kind = MUSTER_REQUEST_SEND, .input = &output, .rank = (script->rank + 1) % SIZE},
        {.kind = MUSTER_REQUEST_REDUCE_SCATTER, .input = &all, .output = &one},
        {.kind = MUSTER_REQUEST_RECEIVE, .output = &received, .rank = (script->rank + 3) % SIZE},
        {.kind = MUSTER_REQUEST_BARRIER, .split = script->halves},
    };

    for (unsigned i = 0; i < SIZE; i++)
        input[i] = i;
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        requests[i].data = &count;
        requests[i].done = count_completion;
        OK(muster_request_start(&requests[i], strategy));
        JOB_CHECK(count == 0);
    }
    OK(muster_strategy_barrier(strategy));
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
        OK(muster_request_wait(&requests[i]));
    JOB_CHECK(count == 4 && got == 7 + (script->rank + 3) % SIZE && part == 4 * script->rank);
    JOB_CHECK(requests[1].result.contributor_count == SIZE);
}

/* Rank 0 wants no more of it before rank 3 has called: it ends on all, and the step begins again. */
static void cancel_one(const struct script *script)
{
    struct muster_strategy *strategy = script->strategy;
    int64_t value = script->rank, word = 0;
    const struct muster_tensor tensor = of_ints(&value, 1), told = of_ints(&word, 1);
    struct muster_request request = {.kind = MUSTER_REQUEST_ALL_REDUCE, .output = &tensor};

    if (script->rank == 3)
        OK(muster_strategy_receive(strategy, &told, 0));
    OK(muster_request_start(&request, strategy));
    if (script->rank == 0)
        muster_request_cancel(&request);
    FAILS(muster_request_wait(&request), script->rank == 0 ? MUSTER_CANCELLED : MUSTER_ABORTED,
          "all_reduce: ");
    JOB_CHECK(value == script->rank);
    if (script->rank == 0)
        OK(muster_strategy_send(strategy, &told, 3));
    JOB_CHECK(job_begin(strategy) == 2);
    OK(muster_strategy_all_reduce(strategy, &tensor, 1, MUSTER_SUM));
    JOB_CHECK(value == 6);
}

/* --- of a split --- */

static void check_places(const struct script *script)
{
    JOB_CHECK(muster_strategy_split_size(script->halves) == 2);
    JOB_CHECK(muster_strategy_split_rank(script->halves) == script->rank / 2);
    JOB_CHECK(muster_strategy_split_size(script->heads) == (script->rank < 3 ? 3 : 0));
    JOB_CHECK(script->rank == 3 || muster_strategy_split_rank(script->heads) == script->rank);
}

/* Each call of strategy_exchange.h between the two members of a half. */
static void exchange_in_halves(const struct script *script)
{
    struct muster_strategy_split *split = script->halves;
    int64_t half = script->rank % 2, place = script->rank / 2, input[2], output[2] = {-1, -1};
    const struct muster_tensor both = of_ints(input, 2), one = of_ints(input, 1);
    const struct muster_tensor own = of_ints(output, 1), whole = of_ints(output, 2);
    const uint64_t ones[] = {1, 1};
    const struct muster_parts from = {input, ones, 2, MUSTER_I64},
                              to = {output, ones, 2, MUSTER_I64};
    uint32_t other = 1 - (uint32_t)place;

    input[0] = 10 * script->rank;
    input[1] = input[0] + 1;
    OK(muster_strategy_split_reduce_scatter(split, &both, &own, MUSTER_SUM));
    JOB_CHECK(output[0] == 20 * half + 20 + 2 * place);
    OK(muster_strategy_split_gather(split, &one, place == 1 ? &whole : NULL, 1));
    JOB_CHECK(place == 0 || (output[0] == 10 * half && output[1] == 10 * half + 20));
    OK(muster_strategy_split_scatter(split, place == 1 ? &both : NULL, &own, 1));
    JOB_CHECK(output[0] == 10 * half + 20 + place);
    OK(muster_strategy_split_all_gather_uneven(split, &one, &to));
    JOB_CHECK(output[0] == 10 * half && output[1] == 10 * half + 20);
    OK(muster_strategy_split_reduce_scatter_uneven(split, &from, &own, MUSTER_MAX));
    JOB_CHECK(output[0] == 10 * half + 20 + place);
    OK(muster_strategy_split_all_to_all_uneven(split, &from, &to));
    JOB_CHECK(output[0] == 10 * half + place && output[1] == 10 * half + 20 + place);
    if (place == 0)
        OK(muster_strategy_split_send(split, &one, other));
    else
        OK(muster_strategy_split_receive(split, &own, other));
    JOB_CHECK(place == 0 || output[0] == 10 * half);
    FAILS(muster_strategy_split_gather(split, &one, &whole, 2), MUSTER_INVALID_ARGUMENT,
          "gather: there is no rank 2, the last is 1");
}

static void work_in_halves(const struct script *script)
{
    struct muster_strategy_split *split = script->halves;
    unsigned half = script->rank % 2, place = script->rank / 2;
    int64_t values[COUNT], output[2];
    const struct muster_tensor tensor = of_ints(values, COUNT), pair = of_ints(values, 2);
    const struct muster_tensor one = of_ints(values, 1), parts = of_ints(output, 2);
    const struct muster_tensor list[] = {of_ints(values, 1), of_ints(values + 1, 1)};

    fill_values(values, script->rank);
    OK(muster_strategy_split_all_reduce(split, &tensor, 1, MUSTER_SUM));
    JOB_CHECK(values[0] == (half == 0 ? 1 + 3 : 2 + 4));
    JOB_CHECK(muster_strategy_contributors(script->strategy) == 2);
    fill_values(values, script->rank);
    OK(muster_strategy_split_all_reduce(split, list, 2, MUSTER_MAX));
    JOB_CHECK(values[0] == half + 3 && values[1] == 2 * (half + 3));
    fill_values(values, script->rank);
    OK(muster_strategy_split_broadcast(split, &tensor, 1));
    JOB_CHECK(values[0] == half + 3);
    fill_values(values, script->rank);
    OK(muster_strategy_split_reduce(split, &tensor, MUSTER_SUM, 1));
    JOB_CHECK(values[0] == (place == 1 ? (half == 0 ? 4 : 6) : script->rank + 1));
    values[0] = script->rank;
    OK(muster_strategy_split_all_gather(split, &one, &parts));
    JOB_CHECK(output[0] == half && output[1] == half + 2);
    values[0] = 10 * script->rank;
    values[1] = 10 * script->rank + 1;
    OK(muster_strategy_split_all_to_all(split, &pair, &parts));
    JOB_CHECK(output[0] == 10 * half + place && output[1] == 10 * (half + 2) + place);
    OK(muster_strategy_split_barrier(split));
    exchange_in_halves(script);
    FAILS(muster_strategy_split_broadcast(split, &tensor, 2), MUSTER_INVALID_ARGUMENT,
          "broadcast: there is no rank 2, the last is 1");
    FAILS(muster_strategy_split_reduce(split, &tensor, MUSTER_SUM, 2), MUSTER_INVALID_ARGUMENT,
          "reduce: there is no rank 2");
}

/* A member without a group in a split is told so, and disturbs nobody. */
static void stand_aside(const struct script *script)
{
    static const char text[] = "of a split: this member has no group in it";
    struct muster_strategy_split *split = script->heads;
    int64_t values[2] = {0};
    const struct muster_tensor one = of_ints(values, 1), other = of_ints(values + 1, 1);
    const struct muster_parts parts = {.data = values, .dtype = MUSTER_I64};
    const enum muster_rc rc = MUSTER_FAILED_PRECONDITION;

    FAILS(muster_strategy_split_all_reduce(split, &one, 1, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_split_broadcast(split, &one, 0), rc, text);
    FAILS(muster_strategy_split_reduce(split, &one, MUSTER_SUM, 0), rc, text);
    FAILS(muster_strategy_split_all_gather(split, &one, &other), rc, text);
    FAILS(muster_strategy_split_all_to_all(split, &one, &other), rc, text);
    FAILS(muster_strategy_split_barrier(split), rc, text);
    FAILS(muster_strategy_split_reduce_scatter(split, &one, &other, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_split_gather(split, &one, &other, 0), rc, text);
    FAILS(muster_strategy_split_scatter(split, &one, &other, 0), rc, text);
    FAILS(muster_strategy_split_all_gather_uneven(split, &one, &parts), rc, text);
    FAILS(muster_strategy_split_reduce_scatter_uneven(split, &parts, &one, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_split_all_to_all_uneven(split, &parts, &parts), rc, text);
    FAILS(muster_strategy_split_send(split, &one, 0), rc, text);
    FAILS(muster_strategy_split_receive(split, &one, 0), rc, text);
    FAILS(
        muster_strategy_split_exchange(split, NULL, MUSTER_SPLIT_NOBODY, NULL, MUSTER_SPLIT_NOBODY),
        rc, text);
}

/* A pipeline of three: what comes from the one before goes to the one behind. */
static void pass_on(const struct script *script)
{
    struct muster_strategy_split *split = script->heads;
    int64_t own = 100 + script->rank, got = -1;
    const struct muster_tensor output = of_ints(&own, 1), input = of_ints(&got, 1);
    uint32_t to = script->rank < 2 ? script->rank + 1 : MUSTER_SPLIT_NOBODY;
    uint32_t from = script->rank > 0 ? script->rank - 1 : MUSTER_SPLIT_NOBODY;

    OK(muster_strategy_split_exchange(split, &output, to, &input, from));
    JOB_CHECK(got == (script->rank > 0 ? 99 + (int64_t)script->rank : -1));
    OK(muster_strategy_split_exchange(split, NULL, MUSTER_SPLIT_NOBODY, NULL, MUSTER_SPLIT_NOBODY));
    FAILS(muster_strategy_split_exchange(split, &output, 3, &input, MUSTER_SPLIT_NOBODY),
          MUSTER_INVALID_ARGUMENT, "exchange: there is no rank 3, the last is 2");
    FAILS(muster_strategy_split_exchange(split, &output, MUSTER_SPLIT_NOBODY, &input, 3),
          MUSTER_INVALID_ARGUMENT, "exchange: there is no rank 3, the last is 2");
}

/* --- the script --- */

static void make_splits(struct script *script)
{
    struct muster_strategy_split *none = NULL;

    OK(muster_strategy_split(script->strategy, half_of, NULL, &script->halves));
    OK(muster_strategy_split(script->strategy, head_of, NULL, &script->heads));
    FAILS(muster_strategy_split(script->strategy, NULL, NULL, &none), MUSTER_INVALID_ARGUMENT,
          "split: color must be a function, got NULL");
    JOB_CHECK(none == NULL);
    JOB_CHECK(muster_strategy_split_size(script->halves) == 0); /* before the first begin */
    JOB_CHECK(muster_strategy_split_rank(script->halves) == 0);
}

static void refuse_before_begin(const struct script *script)
{
    static const char text[] = ": call begin first";
    int64_t values[2] = {0};
    const struct muster_tensor one = of_ints(values, 1), other = of_ints(values + 1, 1);
    const struct muster_parts parts = {.data = values, .dtype = MUSTER_I64};
    struct muster_strategy *strategy = script->strategy;
    const enum muster_rc rc = MUSTER_FAILED_PRECONDITION;

    FAILS(muster_strategy_all_reduce(strategy, &one, 1, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_all_reduce_weighted(strategy, &one, 1, 1), rc, text);
    FAILS(muster_strategy_broadcast(strategy, &one, 0), rc, text);
    FAILS(muster_strategy_reduce(strategy, &one, MUSTER_SUM, 0), rc, text);
    FAILS(muster_strategy_all_gather(strategy, &one, &other), rc, text);
    FAILS(muster_strategy_all_to_all(strategy, &one, &other), rc, text);
    FAILS(muster_strategy_barrier(strategy), rc, text);
    FAILS(muster_strategy_reduce_scatter(strategy, &one, &other, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_gather(strategy, &one, &other, 0), rc, text);
    FAILS(muster_strategy_scatter(strategy, &one, &other, 0), rc, text);
    FAILS(muster_strategy_all_gather_uneven(strategy, &one, &parts), rc, text);
    FAILS(muster_strategy_reduce_scatter_uneven(strategy, &parts, &one, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_all_to_all_uneven(strategy, &parts, &parts), rc, text);
    FAILS(muster_strategy_send(strategy, &one, 1), rc, text);
    FAILS(muster_strategy_exchange(strategy, &one, 1, &other, 1), rc, text);
    FAILS(muster_strategy_split_barrier(script->halves), rc, text);
    FAILS(muster_strategy_split_all_reduce(script->halves, &one, 1, MUSTER_SUM), rc, text);
    FAILS(muster_strategy_split_exchange(script->halves, &one, 1, &one, 1), rc, text);
}

static void run_script(unsigned rank, void *data)
{
    struct script own = {.rank = rank, .strategy = job_strategy_open()}, *script = &own;

    (void)data;
    make_splits(script);
    refuse_before_begin(script);
    JOB_CHECK(job_begin(own.strategy) == 1);
    reduce_all(script);
    reduce_weighted(script);
    reduce_many(script);
    give_from_each_root(script);
    gather_and_exchange(script);
    exchange_parts(script);
    exchange_uneven_parts(script);
    pass_messages(script);
    refuse_bad_tensors(script);
    job_commit(own.strategy);
    JOB_CHECK(job_begin(own.strategy) == 2);
    differ_in_shape(script);
    request_several(script);
    cancel_one(script);
    check_places(script);
    work_in_halves(script);
    if (rank == 3)
        stand_aside(script);
    else
        pass_on(script);
    OK(muster_strategy_barrier(
        own.strategy)); /* who has sent may not know yet that it has arrived */
    job_commit(own.strategy);
    refuse_before_begin(script);
    muster_strategy_close(own.strategy);
}

static void every_rank_has_its_result(void **state)
{
    static struct job_stage stage;
    static const unsigned ours[] = {0, 3};

    (void)state;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        job_stage_open(&stage, ours[i], SIZE);
        for (unsigned rank = 0; rank < SIZE; rank++)
            if (rank != ours[i])
                job_stage_start(&stage, rank, run_script, NULL);
        run_script(ours[i], NULL);
        job_stage_close(&stage);
    }
}

static void splits_are_bounded(void **state)
{
    static struct job_stage stage;
    struct muster_strategy_split *split = NULL;
    struct muster_strategy *strategy;

    (void)state;
    job_stage_open(&stage, 0, 1);
    strategy = job_strategy_open();
    for (unsigned i = 0; i < MUSTER_SPLITS_MAX; i++)
        assert_int_equal(muster_strategy_split(strategy, half_of, NULL, &split), MUSTER_OK);
    split = NULL;

    assert_int_equal(muster_strategy_split(strategy, half_of, NULL, &split),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_null(split);
    assert_int_equal(strategy->split_count, MUSTER_SPLITS_MAX);
    muster_strategy_close(strategy);
    job_stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_its_result),
        cmocka_unit_test(splits_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
