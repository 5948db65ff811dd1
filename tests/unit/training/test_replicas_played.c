/* Replicas on a node that the case plays: which operations a sum of slices makes, and what comes of those that end
 * ABORTED. The case plays the other members, who have the rows that this one has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/replica.h>
#include <muster/replicas.h>
#include <muster/slices.h>

#include "assertion_count.h"
#include "played_node.h"

#define ROW_COUNT 100u

static unsigned aborts;          /* operations that end so, from the first on */
static uint32_t members_then;    /* bits; who is there in the view after each; 0: no new view */
static const char *abort_kind;   /* of these alone; NULL: of any */
static unsigned lost_in_the_sum; /* members that do not contribute to a sum of the whole */

static const uint64_t indices[] = {7, 3};
static const float values[] = {1, 2, 3, 4};
static const struct muster_slices rows = {indices, values, 2, 2, MUSTER_F32};

static void end_op(struct played_op *op)
{
    static uint64_t epoch;
    size_t bytes = op->tensor.count * muster_dtype_bytes(op->tensor.dtype);

    if (aborts > 0 && (abort_kind == NULL || strcmp(op->kind, abort_kind) == 0)) {
        aborts--;
        op->rc = MUSTER_ABORTED;
        (void)strcpy(op->op->error.text, "the view has changed");
        epoch = played.view->epoch + 1;
        if (members_then != 0)
            played_view(epoch, members_then, 0, 0, 0, NULL);
        return;
    }
    if (strcmp(op->kind, "all_reduce") == 0) {
        op->op->result.contributor_count -= lost_in_the_sum;
        if (lost_in_the_sum > 0)
            played_view(played.view->epoch + 1, members_then, 0, 0, 0, NULL);
        lost_in_the_sum = 0;
        return;
    }
    for (uint64_t at = 0; at + op->tensor.count <= op->output.count && bytes > 0;
         at += op->tensor.count)
        memcpy((uint8_t *)op->output.data + at * muster_dtype_bytes(op->tensor.dtype),
               op->tensor.data, bytes);
}

static int set_up(void **state)
{
    played_open();
    *state = played_strategy();
    aborts = lost_in_the_sum = members_then = 0;
    abort_kind = NULL;
    played_begin_unnoted(*state);
    played.on_op = end_op;
    return 0;
}

static void sum_check(struct muster_strategy *strategy, uint32_t replicas)
{
    static const struct muster_slices_options options = {.row_count = ROW_COUNT};
    struct muster_slices_sum sum;
    const float *seen;

    assert_int_equal(muster_replicas_sum_slices(strategy, &rows, MUSTER_SUM, &options, &sum),
                     MUSTER_OK);
    assert_int_equal(sum.replica_count, replicas);
    assert_int_equal(sum.slices.count, 2);
    assert_int_equal(sum.slices.indices[0], 3);
    seen = sum.slices.values;
    fail_if(seen[0] < 3 * (float)replicas || seen[0] > 3 * (float)replicas, "%g", (double)seen[0]);
    muster_slices_sum_free(&sum);
}

#define COUNTS "all_gather 8 x u64 into "
#define ROWS   "all_gather_uneven 32 x u8 into "

static void rows_are_told_then_gathered(void **state)
{
    sum_check(*state, 3);
    played_expect(COUNTS "24\ntouch\n" ROWS "96\ntouch\n");
}

static void a_loss_is_tried_again_among_those_that_are_left(void **state)
{
    members_then = 3;
    aborts = 1;
    sum_check(*state, 2);
    assert_int_equal(played_count_lines(COUNTS "24\n"), 1);
    assert_int_equal(played_count_lines(COUNTS "16\n"), 1);
    assert_int_equal(played_count_lines(ROWS "64\n"), 1);
}

static void a_loss_between_counts_and_rows_is_tried_again_from_the_counts(void **state)
{
    members_then = 6;
    aborts = 1;
    abort_kind = "all_gather_uneven";
    sum_check(*state, 2);
    assert_int_equal(played_count_lines(COUNTS "16\n"), 1);
    assert_int_equal(played_count_lines(ROWS "64\n"), 1);
}

/* The try was of the view after the loss already, and another member's, of the view before it, has ended both. */
static void a_try_that_another_has_ended_is_tried_again(void **state)
{
    played_enter();
    played_view(2, 3, 0, 0, 0, NULL);
    played_leave();
    aborts = 1;
    members_then = 3;
    sum_check(*state, 2);
    assert_int_equal(played_count_lines(COUNTS "16\n"), 2);
    played_commit(*state);
    played_begin_unnoted(
        *state); /* this member knows of the loss, another may not when it begins */
    aborts = 1;
    sum_check(*state, 2);
    played_commit(*state);
    played_begin_unnoted(*state);
    aborts = 1;
    played.journal[0] = '\0';
    assert_int_equal(
        muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, NULL, &(struct muster_slices_sum){0}),
        MUSTER_ABORTED);
}

static void an_abort_without_a_loss_is_the_programs_to_know(void **state)
{
    struct muster_slices_sum sum;

    for (uint32_t then = 0; then < 8; then += 7) {
        aborts = 1;
        members_then = then;
        played_expect_error(*state,
                            muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, NULL, &sum),
                            MUSTER_ABORTED, "sum_slices: the view has changed");
        assert_int_equal(aborts, 0);
    }
}

static void losses_without_end_are_not_tried_for_ever(void **state)
{
    struct muster_slices_sum sum;

    members_then = 3;
    aborts = 1000;
    assert_int_equal(muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, NULL, &sum),
                     MUSTER_ABORTED);
    assert_in_range(1000 - aborts, 50, 200);
}

/* 6 rows of 10: the larger tensor. Without a member the sum is not of the replicas that were counted. */
static void a_sum_of_the_whole_without_a_member_is_tried_again(void **state)
{
    static const struct muster_slices_options options = {.row_count = 10, .dense_percent = 10};
    struct muster_slices_sum sum;
    const float *seen;

    members_then = 3;
    lost_in_the_sum = 1;
    assert_int_equal(muster_replicas_sum_slices(*state, &rows, MUSTER_MEAN, &options, &sum),
                     MUSTER_OK);
    assert_int_equal(played_count_lines("all_reduce 20 x f32 sum\n"), 2);
    assert_int_equal(sum.replica_count, 2);
    assert_true(sum.is_dense);
    seen = sum.slices.values;
    fail_if(seen[7] < 2 || seen[7] > 2, "%g",
            (double)seen[7]); /* 4 of this one, as the case plays it */
    muster_slices_sum_free(&sum);
}

/* The first member, or all, tell this in place of what they should. */
static uint64_t told_word, told_number;
static bool is_told_by_all;

static void tell_wrongly(struct played_op *op)
{
    end_op(op);
    for (uint64_t at = told_word; strcmp(op->kind, "all_gather") == 0 &&
                                  at < (is_told_by_all ? op->output.count : op->tensor.count);
         at += op->tensor.count)
        ((uint64_t *)op->output.data)[at] = told_number;
    if (strcmp(op->kind, "all_gather") == 0)
        return;
    if (strcmp(op->kind, "all_gather_uneven") == 0)
        ((uint64_t *)op->output.data)[0] = ROW_COUNT; /* its index */
}

static void expect_text(const struct muster_strategy *strategy, const char *text)
{
    const char *error = muster_strategy_error(strategy)->text;

    fail_if(strstr(error, text) == NULL, "%s", error);
}

static void numbers_of_others_are_not_trusted(void **state)
{
    static const struct muster_slices_options options = {.row_count = ROW_COUNT,
                                                         .is_concatenated = true};
    static const struct {
        uint64_t word, number;
        const char *error;
    } told[] = {{0, UINT64_MAX / 2,
                 "tells 9223372036854775807 rows of 1 replicas, which cannot be"},
                {0, UINT64_MAX, "tells 18446744073709551615 rows of 1 replicas"},
                {0, SIZE_MAX / 4 / 40, "the member in place 1 tells 2 rows of 1 replicas"},
                {1, 0, "the member in place 0 tells 2 rows of 0 replicas, which cannot be"},
                {1, 257, "tells 2 rows of 257 replicas"},
                {2, 3, "members differ: the one in place 1 has rows of f32 x 2"},
                {3, MUSTER_F64, "members differ: the one in place 1 has rows of f32 x 2"},
                {0, 2, "index 100 of row 0 must be below the 100 rows of the tensor"}},
      shapes[] = {{0, 99, "gather: 99 is not a type"},
                  {1, 9, "values differ beyond their axis, or in its number"},
                  {2, 2, "values differ beyond their axis, or in its number"},
                  {2, UINT64_MAX, "values differ beyond their axis, or in its number"},
                  {3, UINT64_MAX, "gather: a tensor must fit into memory"},
                  {3, UINT64_MAX / 8, "gather: a tensor must fit into memory"},
                  {4, 3, "values differ beyond their axis, or in its number"}};
    struct muster_shaped_tensor value = {.data = (void *)(uintptr_t)values, .dtype = MUSTER_F32},
                                whole;
    struct muster_slices_sum sum;

    value.dimension_count = 2;
    value.dimensions[0] = value.dimensions[1] = 2;
    played.on_op = tell_wrongly;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        told_word = told[i].word;
        told_number = told[i].number;
        assert_int_equal(muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, &options, &sum),
                         MUSTER_INVALID_ARGUMENT);
        expect_text(*state, told[i].error);
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        told_word = shapes[i].word;
        told_number = shapes[i].number;
        assert_int_equal(muster_replicas_gather(*state, &value, 0, &whole),
                         MUSTER_INVALID_ARGUMENT);
        expect_text(*state, shapes[i].error);
    }
    value.dimensions[0] = 0;
    told_word = 4;
    told_number = UINT64_MAX;
    assert_int_equal(muster_replicas_gather(*state, &value, 1, &whole), MUSTER_INVALID_ARGUMENT);
    expect_text(*state, "gather: the axis is too long");
    is_told_by_all = true;
    told_word = 2;
    told_number = 3;
    assert_int_equal(muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, &options, &sum),
                     MUSTER_INVALID_ARGUMENT);
    expect_text(*state, "the one in place 0 has rows of f32 x 3");
    is_told_by_all = false;
}

static void an_error_of_an_operation_is_the_calls(void **state)
{
    struct muster_slices_sum sum;
    struct muster_shaped_tensor value = {.data = (void *)(uintptr_t)values, .dtype = MUSTER_F32},
                                whole;
    float result = 9;
    const struct muster_tensor into = {.data = &result, .count = 1, .dtype = MUSTER_F32};

    value.dimension_count = 1;
    value.dimensions[0] = 1;
    played.start_rc = MUSTER_RESOURCE_EXHAUSTED;
    assert_int_equal(muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, NULL, &sum),
                     MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_replicas_gather(*state, &value, 0, &whole), MUSTER_RESOURCE_EXHAUSTED);
    assert_int_equal(muster_replicas_reduce(*state, &value, 0, MUSTER_SUM, &into),
                     MUSTER_RESOURCE_EXHAUSTED);
    fail_if(result < 9 || result > 9, "%g", (double)result);
}

/* Every block that a call takes: nothing is leaked, and a later call goes well. */
static void without_memory_nothing_is_kept(void **state)
{
    struct muster_shaped_tensor value = {.data = (void *)(uintptr_t)values, .dtype = MUSTER_F32},
                                whole;
    struct muster_slices_sum sum;
    size_t blocks = played_blocks();
    enum muster_rc rc;

    value.dimension_count = 2;
    value.dimensions[0] = value.dimensions[1] = 2;
    for (int is_gather = 0; is_gather < 2; is_gather++) {
        unsigned refused = 0;

        for (;; refused++) {
            played.fail_at = refused + 1;
            rc = is_gather ? muster_replicas_gather(*state, &value, 1, &whole)
                           : muster_replicas_sum_slices(*state, &rows, MUSTER_SUM, NULL, &sum);
            played.fail_at = 0;
            if (rc == MUSTER_OK)
                break;
            assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
            assert_int_equal(played_blocks(), blocks);
        }
        assert_true(refused > 3);
        if (is_gather)
            muster_replicas_free(*state, &whole);
        else
            muster_slices_sum_free(&sum);
        assert_int_equal(played_blocks(), blocks);
    }
}

static enum muster_rc run_nothing(struct muster_replica *replica)
{
    (void)replica;
    return MUSTER_OK;
}

static enum muster_rc run_again(struct muster_replica *replica)
{
    *(enum muster_rc *)replica->data = muster_replicas_run(replica->strategy, run_nothing, NULL);
    return MUSTER_OK;
}

static void a_run_within_a_run_is_refused(void **state)
{
    enum muster_rc rc = MUSTER_OK;

    assert_int_equal(muster_replicas_run(*state, run_again, &rc), MUSTER_OK);
    assert_int_equal(rc, MUSTER_FAILED_PRECONDITION);
    assert_string_equal(muster_strategy_error(*state)->text,
                        "run: a run is under way: call it outside of the replicas' work");
    assert_int_equal(muster_replicas_run(*state, run_nothing, NULL), MUSTER_OK);
}

static enum muster_rc close_amid_run(struct muster_replica *replica)
{
    return muster_strategy_close_checked(replica->strategy, replica->data);
}

static void a_run_is_not_closed_under_its_replicas(void **state)
{
    struct muster_error error = {.rc = MUSTER_OK};

    assert_int_equal(muster_replicas_run(*state, close_amid_run, &error),
                     MUSTER_FAILED_PRECONDITION);
    assert_string_equal(
        error.text, "close: a run of the replicas is under way: call it when that has returned");
    assert_int_equal(muster_replicas_run(*state, run_nothing, NULL), MUSTER_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, played_tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(rows_are_told_then_gathered),
        CASE(a_loss_is_tried_again_among_those_that_are_left),
        CASE(a_loss_between_counts_and_rows_is_tried_again_from_the_counts),
        CASE(a_try_that_another_has_ended_is_tried_again),
        CASE(an_abort_without_a_loss_is_the_programs_to_know),
        CASE(losses_without_end_are_not_tried_for_ever),
        CASE(a_sum_of_the_whole_without_a_member_is_tried_again),
        CASE(numbers_of_others_are_not_trusted),
        CASE(an_error_of_an_operation_is_the_calls),
        CASE(without_memory_nothing_is_kept),
        CASE(a_run_within_a_run_is_refused),
        CASE(a_run_is_not_closed_under_its_replicas),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
