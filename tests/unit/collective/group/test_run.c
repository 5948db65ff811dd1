/* A run by itself: what its description tells apart, and how many of a lane may be under way. */
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#include "collective/group/group_internal.h"

#define OPS      1000
#define ELEMENTS 1024 /* 4 KiB: direct */

static void calls_that_differ_in_anything_have_different_descriptions(void **state)
{
    const struct muster_op_call usual = {
        .kind = MUSTER_OP_ALL_REDUCE, .dtype = MUSTER_F32, .count = 8};
    struct muster_op_call others[] = {usual, usual, usual, usual, usual, usual};
    char text[MUSTER_DESCRIPTION_TEXT_BYTES], usual_text[MUSTER_DESCRIPTION_TEXT_BYTES];

    (void)state;
    others[0].kind = MUSTER_OP_BROADCAST;
    others[1].reduction = MUSTER_MAX;
    others[2].dtype = MUSTER_I32;
    others[3].count = 9;
    others[4].kind = MUSTER_OP_ALL_GATHER;
    others[4].part_count = 4;
    others[5].kind = MUSTER_OP_BROADCAST;
    others[5].root.incarnation.bytes[3] = 1;
    muster_call_describe(&usual, usual_text, sizeof(usual_text));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_not_equal(muster_call_hash(&usual), muster_call_hash(&others[i]));
        assert_string_not_equal(muster_call_describe(&others[i], text, sizeof(text)), usual_text);
    }
    assert_int_not_equal(muster_call_hash(&others[0]), muster_call_hash(&others[5]));
}

/* The same part of another number of members is the same call. */
static void a_description_outlives_a_change_of_view(void **state)
{
    const struct muster_op_call of_3 = {.kind = MUSTER_OP_ALL_GATHER, .part_count = 4, .count = 12};
    const struct muster_op_call of_2 = {.kind = MUSTER_OP_ALL_GATHER, .part_count = 4, .count = 8};

    (void)state;
    assert_int_equal(muster_call_hash(&of_3), muster_call_hash(&of_2));
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    assert_int_equal(rc, MUSTER_OK);
    ++*(unsigned *)op->data;
}

static void start_op(struct group_ring *ring, uint32_t member, struct muster_op *ops, float *values,
                     unsigned *done)
{
    for (size_t i = 0; i < OPS; i++) {
        struct muster_tensor tensor = {&values[i * ELEMENTS], ELEMENTS, MUSTER_F32};

        ops[i].data = done;
        ops[i].deadline_ns = muster_loop_after_ns(ring->test.env.loop, 60 * MUSTER_NS_PER_S);
        assert_int_equal(muster_all_reduce_start(&ops[i], ring->members[member].group, &tensor,
                                                 MUSTER_SUM, on_done),
                         MUSTER_OK);
    }
}

/* An operation under way holds its input here, and at the other side a frame that came early. */
static void a_lane_has_a_bounded_number_of_operations_under_way(void **state)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = 64 << 10,
                                                .direct_max_bytes = 8 << 10};
    struct muster_op *ops = calloc(2 * OPS, sizeof(*ops));
    float *values = calloc((size_t)2 * OPS * ELEMENTS, sizeof(*values));
    struct group_ring ring;
    unsigned done[2] = {0, 0};
    size_t held;

    (void)state;
    group_ring_open_plan(&ring, 2, &plan);
    group_ring_turn(&ring, 20);
    held = ring.test.mem.held_bytes;
    start_op(&ring, 0, ops, values, &done[0]);
    group_ring_turn(&ring, 200);
    assert_true(ring.test.mem.held_bytes - held < OPS * ELEMENTS * sizeof(float) / 2);
    assert_int_equal(done[0], 0);

    start_op(&ring, 1, ops + OPS, values + (size_t)OPS * ELEMENTS, &done[1]);
    for (unsigned i = 0; i < 20000 && done[0] + done[1] < 2 * OPS; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    assert_int_equal(done[0] + done[1], 2 * OPS);
    group_ring_close(&ring);
    free(values);
    free(ops);
}

struct told {
    struct muster_wire *wire;
    unsigned done_count;
};

static void on_done_and_told(struct muster_op *op, enum muster_rc rc)
{
    struct told *told = op->data;

    assert_int_equal(rc, MUSTER_OK);
    assert_true(muster_wire_is_idle(told->wire));
    told->done_count++;
}

static void start_told(struct group_ring *ring, uint32_t member, struct muster_op *op,
                       struct told *told, float *values)
{
    const struct muster_tensor tensor = {values, ELEMENTS, MUSTER_F32};

    *told = (struct told){.wire = ring->members[member].wire};
    op->data = told;
    op->deadline_ns = muster_loop_after_ns(ring->test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(muster_all_reduce_start(op, ring->members[member].group, &tensor, MUSTER_SUM,
                                             on_done_and_told),
                     MUSTER_OK);
}

/* The program may compute for long in its callback, or after it. Who starts last finds all that it
 * needs, then the other's last chunk and COMPLETE come together. */
static void who_is_done_has_told_those_who_wait_for_it(void **state)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = 64 << 10, .direct_max_bytes = 1};
    static float values[2 * ELEMENTS];
    static struct group_ring ring;
    struct told told[2];
    struct muster_op ops[2] = {{.lane = 0}};

    (void)state;
    group_ring_open_plan(&ring, 2, &plan);
    start_told(&ring, 1, &ops[1], &told[1], values);
    group_ring_turn(&ring, 20);
    start_told(&ring, 0, &ops[0], &told[0], values + ELEMENTS);
    for (unsigned i = 0; i < 20000 && told[0].done_count + told[1].done_count < 2; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);

    assert_int_equal(told[0].done_count, 1);
    assert_int_equal(told[1].done_count, 1);
    group_ring_close(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_differ_in_anything_have_different_descriptions),
        cmocka_unit_test(a_description_outlives_a_change_of_view),
        cmocka_unit_test(a_lane_has_a_bounded_number_of_operations_under_way),
        cmocka_unit_test(who_is_done_has_told_those_who_wait_for_it),
    };

    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
