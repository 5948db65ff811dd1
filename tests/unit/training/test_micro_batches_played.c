/* Micro-batches on a node that the case plays: slots, sums whose bits are the same for any members, and what comes of
 * steps that fail. The case plays what the other members send. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <muster/micro_batches.h>

#include "assertion_count.h"
#include "played_node.h"
#include "training/micro/tree.h"

#define SLOTS    11u
#define ELEMENTS 3u

static struct muster_micro_batches *micro;

static float value_of(uint32_t slot, uint32_t element)
{
    return (float)(slot % 5 + 1) * (slot % 2 == 0 ? 3e-5f : -117.3f) + 1.0f / (float)(slot + 3) +
           (float)element;
}

static void slot_fill(uint32_t slot, float *ret_values)
{
    for (uint32_t i = 0; i < ELEMENTS; i++)
        ret_values[i] += value_of(slot, i);
}

/* A member sends the nodes of its range, one after the other. */
static void nodes_play(struct muster_micro_range range, float (*ret_nodes)[ELEMENTS])
{
    struct muster_micro_sum sum = {.slot_count = SLOTS};

    for (uint32_t slot = range.first; slot < range.first + range.count; slot++) {
        memset(ret_nodes[sum.depth], 0, sizeof(ret_nodes[0]));
        slot_fill(slot, ret_nodes[sum.depth]);
        muster_micro_sum_push(&sum, (struct muster_micro_node){slot, 0});
        while (muster_micro_sum_fold(&sum))
            for (uint32_t i = 0; i < ELEMENTS; i++)
                ret_nodes[sum.depth - 1][i] += ret_nodes[sum.depth][i];
    }
}

/* The sum of one member that has all slots. */
static const float *sum_expected(void)
{
    static float nodes[MUSTER_MICRO_NODES_MAX][ELEMENTS];

    nodes_play((struct muster_micro_range){0, SLOTS}, nodes);
    return nodes[0];
}

/* The part of a member of a value: zeroes behind its elements. */
static void part_copy(float *to, const float *value, uint64_t part_count, uint32_t part)
{
    for (uint64_t i = 0; i < part_count; i++)
        to[i] = part * part_count + i < ELEMENTS ? value[part * part_count + i] : 0;
}

/* This member's part of the nodes of each member, one behind the other. */
static void nodes_exchange(const struct played_op *op, uint32_t own)
{
    uint32_t size = muster_strategy_size(played.strategy);
    uint64_t part_count = (ELEMENTS + size - 1) / size;
    uint64_t node_max = op->output.count / size / part_count;

    for (uint32_t rank = 0; rank < size; rank++) {
        float nodes[MUSTER_MICRO_NODES_MAX][ELEMENTS] = {{0}}, part[ELEMENTS];
        struct muster_micro_range range = muster_micro_range_of(SLOTS, rank, size);
        float *to = (float *)op->output.data + rank * node_max * part_count;

        nodes_play(range, nodes);
        for (uint64_t i = 0; i < node_max; i++)
            part_copy(to + i * part_count, nodes[i], part_count, own);
        if (rank != own)
            continue;
        for (uint32_t i = 0; i < muster_micro_nodes(SLOTS, range, NULL); i++)
            for (uint32_t other = 0; other < size; other++) {
                part_copy(part, nodes[i], part_count, other);
                assert_memory_equal((float *)op->tensor.data + (other * node_max + i) * part_count,
                                    part, part_count * sizeof(part[0]));
            }
    }
}

static void members_play(struct played_op *op)
{
    uint32_t size = muster_strategy_size(played.strategy);
    uint32_t own = muster_strategy_rank(played.strategy);
    float part[ELEMENTS];

    if (strcmp(op->kind, "all_to_all") == 0) {
        nodes_exchange(op, own);
        return;
    }
    part_copy(part, sum_expected(), op->tensor.count, own);
    assert_memory_equal(op->tensor.data, part, op->tensor.count * sizeof(part[0]));
    for (uint32_t rank = 0; rank < size; rank++)
        part_copy((float *)op->output.data + rank * op->tensor.count, sum_expected(),
                  op->tensor.count, rank);
}

static void micro_open(struct muster_strategy *strategy, uint32_t slot_count)
{
    const struct muster_micro_batches_options options = {
        .slot_count = slot_count, .dtype = MUSTER_F32, .element_count = ELEMENTS};
    struct muster_error error;

    assert_int_equal(muster_micro_batches_open(strategy, &options, &micro, &error), MUSTER_OK);
}

/* The members of the next step, this one among them. */
static void members_are(uint64_t epoch, uint32_t members)
{
    played_commit(played.strategy);
    played_enter();
    played_view(epoch, members, 0, 0, 0, NULL);
    played_leave();
    played_begin_unnoted(played.strategy);
}

/* The slots of this member, filled; returns how many. */
static uint32_t slots_fill(void)
{
    struct muster_dataset_shares shares;
    struct muster_tensor tensor;
    uint32_t slot, count = 0;

    assert_int_equal(muster_micro_batches_begin(micro, &shares), MUSTER_OK);
    assert_int_equal(shares.total, SLOTS);
    while (muster_micro_batches_next(micro, &slot, &tensor)) {
        static const float zero[ELEMENTS];

        assert_int_equal(slot, shares.first + count++);
        assert_int_equal(tensor.count, ELEMENTS);
        assert_memory_equal(tensor.data, zero, sizeof(zero));
        slot_fill(slot, tensor.data);
    }
    assert_int_equal(count, shares.count);
    return count;
}

static void sum_check(void)
{
    struct muster_tensor sum;

    played.on_op = members_play;
    assert_int_equal(muster_micro_batches_sum(micro, &sum), MUSTER_OK);
    assert_int_equal(sum.count, ELEMENTS);
    assert_memory_equal(sum.data, sum_expected(), ELEMENTS * sizeof(float));
    memset(sum.data, 0x55, ELEMENTS * sizeof(float)); /* it is the program's until the next begin */
}

static int set_up(void **state)
{
    played_open();
    *state = played_strategy();
    return 0;
}

/* A member of a job that was asked for steps in 8 slots. */
static int set_up_constant(void **state)
{
    setenv("MUSTER_CONSTANT_BATCH", "8", 1);
    (void)set_up(state);
    unsetenv("MUSTER_CONSTANT_BATCH");
    return 0;
}

static int tear_down(void **state)
{
    muster_micro_batches_close(micro);
    micro = NULL;
    return played_tear_down(state);
}

static void the_bits_of_a_sum_are_the_same_for_any_members(void **state)
{
    static const struct {
        uint32_t members, slots; /* this one's */
        const char *journal;
    } rows[] = {
        /* 3-6 of 0-2, 3-6, 7-10: the nodes 3, (4, 5) and 6, and an element of each for each member */
        {7, 4, "all_to_all 9 x f32 into 9\ntouch\nall_gather 1 x f32 into 3\ntouch\n"},
        {6, 5, NULL},
        {2, 11, "all_to_all 3 x f32 into 3\ntouch\nall_gather 3 x f32 into 3\ntouch\n"},
        {0xff, 1, "all_to_all 16 x f32 into 16\ntouch\nall_gather 1 x f32 into 8\ntouch\n"},
        {0xffffe, 0, NULL},
        {7, 4, NULL},
        {0xe, 3, NULL}, /* as many members, and another rank */
    };

    (void)state;
    micro_open(played.strategy, SLOTS);
    played_begin_unnoted(played.strategy);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        members_are(2 + i, rows[i].members);
        assert_int_equal(slots_fill(), rows[i].slots);
        sum_check();
        if (rows[i].journal != NULL)
            played_expect(rows[i].journal);
    }
}

static void end_aborted(struct played_op *op)
{
    op->rc = MUSTER_ABORTED;
    (void)strcpy(op->op->error.text, "worker:2 is gone");
}

static void abort_gather(struct played_op *op)
{
    if (strcmp(op->kind, "all_gather") == 0)
        end_aborted(op);
    else
        members_play(op);
}

/* Each half of the sum may be the one that a death ends. */
static void a_step_that_was_aborted_begins_again_with_the_members_that_are_left(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_tensor sum;

    micro_open(strategy, SLOTS);
    played_begin_unnoted(strategy);
    assert_int_equal(slots_fill(), 4);
    played.on_op = end_aborted;
    played_expect_error(strategy, muster_micro_batches_sum(micro, &sum), MUSTER_ABORTED,
                        "micro_batches_sum: worker:2 is gone");
    assert_int_equal(played_count_lines("all_gather"), 0);
    assert_int_equal(slots_fill(), 4);
    played.on_op = abort_gather;
    played_expect_error(strategy, muster_micro_batches_sum(micro, &sum), MUSTER_ABORTED,
                        "micro_batches_sum: worker:2 is gone");
    assert_int_equal(played_count_lines("all_gather"), 1);
    played_enter();
    played_view(2, 3, 0, 0, 0, NULL);
    played_leave();
    played_begin_unnoted(strategy);
    assert_int_equal(slots_fill(), 6);
    sum_check();
}

static void slots_that_were_begun_are_forgotten_by_begin(void **state)
{
    struct muster_dataset_shares shares;
    struct muster_tensor tensor;
    uint32_t slot;

    micro_open(*state, SLOTS);
    played_begin_unnoted(*state);
    assert_int_equal(muster_micro_batches_begin(micro, &shares), MUSTER_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(muster_micro_batches_next(micro, &slot, &tensor));
        memset(tensor.data, 0x7f, ELEMENTS * sizeof(float));
    }
    assert_int_equal(slots_fill(), 4);
    sum_check();
}

static void the_last_slot_may_be_the_last_call(void **state)
{
    struct muster_dataset_shares shares;
    struct muster_tensor tensor;
    uint32_t slot;

    micro_open(*state, SLOTS);
    played_begin_unnoted(*state);
    members_are(2, 3); /* the last of 5-10 completes a node */
    assert_int_equal(muster_micro_batches_begin(micro, &shares), MUSTER_OK);
    for (uint32_t i = 0; i < shares.count; i++) {
        assert_true(muster_micro_batches_next(micro, &slot, &tensor));
        slot_fill(slot, tensor.data);
    }
    sum_check();
}

/* Gradients on a device are reduced by NCCL, and these are in host memory. */
static void sums_go_over_the_network_whatever_the_communication_is(void **state)
{
    micro_open(*state, SLOTS);
    played_begin_unnoted(*state);
    played.strategy->communication.implementation = MUSTER_COMMUNICATION_NCCL;
    slots_fill();
    sum_check();
}

static void calls_out_of_turn_are_refused(void **state)
{
    struct muster_strategy *strategy = *state;
    struct muster_dataset_shares shares;
    struct muster_tensor tensor;
    uint32_t slot;

    micro_open(strategy, SLOTS);
    assert_int_equal(muster_micro_batches_begin(micro, &shares), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_micro_batches_sum(micro, &tensor), MUSTER_FAILED_PRECONDITION);
    assert_false(muster_micro_batches_next(micro, &slot, &tensor));
    played_begin_unnoted(strategy);
    assert_int_equal(muster_micro_batches_sum(micro, &tensor), MUSTER_FAILED_PRECONDITION);
    assert_int_equal(muster_micro_batches_begin(micro, &shares), MUSTER_OK);
    assert_true(muster_micro_batches_next(micro, &slot, &tensor));
    played_expect_error(strategy, muster_micro_batches_sum(micro, &tensor),
                        MUSTER_FAILED_PRECONDITION,
                        "micro_batches_sum: 1 of 4 slots are filled; call "
                        "muster_micro_batches_next until it returns false");
    played_expect("");
}

static void options_that_cannot_be_are_refused(void **state)
{
    static const struct {
        struct muster_micro_batches_options options;
        const char *error;
    } rows[] = {
        {{0, MUSTER_F32, 1},
         "the micro-batches of a step must be 1 to 65536, got 0, and MUSTER_CONSTANT_BATCH is not "
         "set; give a number, or start the job with muster run --constant-batch SLOTS"},
        {{65537, MUSTER_F32, 1}, "the micro-batches of a step must be 1 to 65536, got 65537"},
        {{4, MUSTER_BOOL, 1}, "dtype must be a type that can be summed, got bool"},
        {{4, MUSTER_F32, 0}, "element_count must be above 0 and fit into memory, got 0"},
        {{4, MUSTER_F32, UINT64_MAX / 4},
         "element_count must be above 0 and fit into memory, got 4611"},
    };
    struct muster_error error;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(muster_micro_batches_open(*state, &rows[i].options, &micro, &error),
                         MUSTER_INVALID_ARGUMENT);
        fail_if(strstr(error.text, rows[i].error) == NULL, "%s", error.text);
        assert_int_equal(played_count_told("refused"), i + 1); /* another life would ask the same */
    }
    assert_null(micro);
}

static void the_launcher_says_how_many_slots_there_are(void **state)
{
    static const uint32_t rows[] = {0, 8};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (i > 0) {
            (void)tear_down(state);
            (void)set_up_constant(state);
        }
        micro_open(*state, rows[i]);
        assert_int_equal(muster_micro_batches_slot_count(micro), 8);
        assert_int_equal(played.strategy->tensors[0].tensor.count, 8);
        played_begin_unnoted(*state);
    }
}

static void there_may_be_as_many_slots_as_the_header_says(void **state)
{
    micro_open(*state, MUSTER_MICRO_SLOTS_MAX);
    assert_int_equal(muster_micro_batches_slot_count(micro), 65536);
}

static void another_number_of_slots_than_the_launchers_is_refused(void **state)
{
    const struct muster_micro_batches_options options = {16, MUSTER_F32, 1};
    struct muster_error error;

    assert_int_equal(muster_micro_batches_open(*state, &options, &micro, &error),
                     MUSTER_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "the micro-batches of a step must be 8, as MUSTER_CONSTANT_BATCH (muster "
                        "run --constant-batch) says, got 16 from this program; give both the same "
                        "number, or the program none (0 in C, None in Python)");
    assert_int_equal(played_count_told("refused"), 1);
    assert_null(micro);
}

/* Else its next death would be its last: the launcher starts nobody again who is refused. */
static void a_refusal_is_taken_back_when_the_program_asks_for_another_number(void **state)
{
    const struct muster_micro_batches_options options = {16, MUSTER_F32, 1};
    struct muster_error error;

    assert_int_equal(muster_micro_batches_open(*state, &options, &micro, &error),
                     MUSTER_INVALID_ARGUMENT);
    micro_open(*state, 8);

    assert_int_equal(played_count_told("refused"), 2);
    assert_non_null(strstr(played_told(), "{\"report\":\"refused\",\"why\":\"\"}"));
    played_begin_unnoted(*state);
    assert_int_equal(played_count_told("refused"), 2);
}

static void a_number_of_the_launcher_that_cannot_be_is_refused_by_open(void **state)
{
    struct muster_strategy *strategy = NULL;
    struct muster_error error;

    *state = NULL;
    played_open();
    setenv("MUSTER_CONSTANT_BATCH", "8x", 1);
    assert_int_equal(muster_strategy_open(NULL, &strategy, &error), MUSTER_INVALID_ARGUMENT);
    unsetenv("MUSTER_CONSTANT_BATCH");
    assert_string_equal(error.text, "MUSTER_CONSTANT_BATCH must be a number of slots from 1 to "
                                    "65536, got 8x; or unset it");
    assert_null(strategy);
}

static void who_has_no_slots_in_a_job_of_slots_begins_no_step(void **state)
{
    static const char text[] =
        "MUSTER_CONSTANT_BATCH is 8, and this program has not opened micro-batches; call "
        "muster_micro_batches_open (in Python strategy.micro_batches, or Elastic(slots=None)) "
        "before the first begin, or run without --constant-batch";
    uint64_t step = 99;

    for (unsigned i = 0; i < 2; i++) { /* it has failed for good */
        played_expect_error(*state, muster_strategy_begin(*state, &step, NULL),
                            MUSTER_FAILED_PRECONDITION, text);
        assert_int_equal(step, 99);
    }
    assert_int_equal(played_count_lines("give up: "), 1);
    assert_int_equal(played_count_told("refused"), 1); /* no other life of it would go better */
    assert_non_null(strstr(played_told(), text));
}

/* An evaluator has no batch. */
static void who_does_not_train_needs_no_slots(void **state)
{
    (void)strcpy(played.strategy->place.task_type, "evaluator");
    played_begin_unnoted(*state);
    played_commit(*state);
    assert_int_equal(played_count_told("refused"), 0);
}

static void a_strategy_has_one_number_of_slots(void **state)
{
    const struct muster_micro_batches_options options = {8, MUSTER_F32, 1};
    struct muster_micro_batches *other = NULL;
    struct muster_error error;

    micro_open(*state, SLOTS);
    assert_int_equal(muster_micro_batches_open(*state, &options, &other, &error),
                     MUSTER_ALREADY_EXISTS);
    assert_string_equal(error.text, "the steps of this strategy are in micro-batches already");
}

static void slots_are_fixed_before_the_first_begin(void **state)
{
    const struct muster_micro_batches_options options = {8, MUSTER_F32, 1};
    struct muster_error error;

    played_begin_unnoted(*state);
    assert_int_equal(muster_micro_batches_open(*state, &options, &micro, &error),
                     MUSTER_FAILED_PRECONDITION);
    fail_if(strstr(error.text, "register") == NULL, "%s", error.text);
}

/* Every block that open takes, then those of begin: nothing is leaked, and a later call goes well. */
static void without_memory_nothing_is_kept(void **state)
{
    const struct muster_micro_batches_options options = {SLOTS, MUSTER_F32, ELEMENTS};
    struct muster_error error;
    unsigned refused = 0;
    size_t blocks = played_blocks();

    for (;; refused++) {
        enum muster_rc rc;

        played.fail_at = refused + 1;
        rc = muster_micro_batches_open(*state, &options, &micro, &error);
        played.fail_at = 0;
        if (rc == MUSTER_OK)
            break;
        assert_int_equal(rc, MUSTER_RESOURCE_EXHAUSTED);
        fail_if(played_blocks() > blocks + 1, "%u: %s", refused,
                error.text); /* room of the register */
    }
    assert_true(refused >= 3);
    played_begin_unnoted(*state);
    slots_fill();
    sum_check();
}

/* 3 nodes of 2^49 elements, and packed again: more than any host can map, and the heap has no such block. */
static void partial_sums_beyond_the_memory_are_refused_by_begin(void **state)
{
    const struct muster_micro_batches_options options = {SLOTS, MUSTER_F32, 1ull << 49};
    struct muster_dataset_shares shares;
    struct muster_tensor tensor;
    struct muster_error error;
    uint32_t slot;

    assert_int_equal(muster_micro_batches_open(*state, &options, &micro, &error), MUSTER_OK);
    played_begin_unnoted(*state);
    for (unsigned i = 0; i < 2; i++) {
        played.refused_bytes = 6 * ((1ull << 49) + 1) * sizeof(float) + 64 +
                               sizeof(void *); /* aligned by collective/board/tensor.c */
        assert_int_equal(muster_micro_batches_begin(micro, &shares), MUSTER_RESOURCE_EXHAUSTED);
        played.refused_bytes = 0;
        fail_if(strstr(muster_strategy_error(*state)->text, "a tensor of 3377699720527878 x f32") ==
                    NULL,
                "%s", muster_strategy_error(*state)->text);
        assert_false(muster_micro_batches_next(micro, &slot, &tensor));
        assert_int_equal(muster_micro_batches_sum(micro, &tensor), MUSTER_FAILED_PRECONDITION);
    }
}

#define CASE(name)          cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define CASE_CONSTANT(name) cmocka_unit_test_setup_teardown(name, set_up_constant, tear_down)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(the_bits_of_a_sum_are_the_same_for_any_members),
        CASE(a_step_that_was_aborted_begins_again_with_the_members_that_are_left),
        CASE(slots_that_were_begun_are_forgotten_by_begin),
        CASE(the_last_slot_may_be_the_last_call),
        CASE(sums_go_over_the_network_whatever_the_communication_is),
        CASE(calls_out_of_turn_are_refused),
        CASE(options_that_cannot_be_are_refused),
        CASE_CONSTANT(the_launcher_says_how_many_slots_there_are),
        CASE_CONSTANT(another_number_of_slots_than_the_launchers_is_refused),
        CASE_CONSTANT(a_refusal_is_taken_back_when_the_program_asks_for_another_number),
        cmocka_unit_test_teardown(a_number_of_the_launcher_that_cannot_be_is_refused_by_open,
                                  played_tear_down),
        CASE_CONSTANT(who_has_no_slots_in_a_job_of_slots_begins_no_step),
        CASE_CONSTANT(who_does_not_train_needs_no_slots),
        CASE(there_may_be_as_many_slots_as_the_header_says),
        CASE(a_strategy_has_one_number_of_slots),
        CASE(slots_are_fixed_before_the_first_begin),
        CASE(without_memory_nothing_is_kept),
        CASE(partial_sums_beyond_the_memory_are_refused_by_begin),
    };

    return cmocka_run_group_tests(cases, NULL, NULL);
}
