/* Lanes with priority: whose frames leave first. */
#include "group_ring.h"

#include <string.h>

#define OPS       6
#define ELEMENTS  1000 /* direct: a frame to each other member */
#define TURNS_MAX 3000

static struct group_ring ring;
static struct muster_op ops[2][OPS];
static int32_t values[2][OPS][ELEMENTS];
static unsigned done_count[2];
static uint32_t order[2][OPS]; /* lanes as they ended */

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    uint32_t member = *(uint32_t *)op->data;

    assert_int_equal(rc, MUSTER_OK);
    order[member][done_count[member]++] = op->lane;
}

static void open_two(void)
{
    const struct muster_plan_parameters plan = {.chunk_bytes = 64 << 10,
                                                .direct_max_bytes = 8 << 10};

    group_ring_open_plan(&ring, 2, &plan);
    group_ring_wait_for_links(&ring);
    memset(done_count, 0, sizeof(done_count));
}

/* One operation on each lane from 0 on, before the loop turns. */
static void run_all(void)
{
    static uint32_t members[2] = {0, 1};

    for (uint32_t member = 0; member < 2; member++)
        for (uint32_t lane = 0; lane < OPS; lane++) {
            const struct muster_tensor tensor = {values[member][lane], ELEMENTS, MUSTER_I32};
            struct muster_op *op = &ops[member][lane];

            memset(op, 0, sizeof(*op));
            op->data = &members[member];
            op->lane = lane;
            op->deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
            for (size_t i = 0; i < ELEMENTS; i++)
                values[member][lane][i] = (int32_t)(lane + member + i);
            assert_int_equal(muster_all_reduce_start(op, ring.members[member].group, &tensor,
                                                     MUSTER_SUM, on_done),
                             MUSTER_OK);
        }
    for (unsigned turns = 0; done_count[0] < OPS || done_count[1] < OPS; turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > TURNS_MAX)
            fail_msg("the members hang");
    }
    for (uint32_t member = 0; member < 2; member++)
        for (uint32_t lane = 0; lane < OPS; lane++)
            for (size_t i = 0; i < ELEMENTS; i++)
                assert_int_equal(values[member][lane][i], 2 * (lane + i) + 1);
}

static void set_priority(uint32_t lane, uint8_t priority)
{
    for (uint32_t member = 0; member < 2; member++)
        assert_int_equal(muster_group_set_priority(ring.members[member].group, lane, priority),
                         MUSTER_OK);
}

static void assert_order(const uint32_t expected[OPS])
{
    for (uint32_t member = 0; member < 2; member++)
        assert_memory_equal(order[member], expected, OPS * sizeof(*expected));
}

static void lanes_of_one_priority_end_as_they_were_started(void **state)
{
    (void)state;
    open_two();
    run_all();
    assert_order((const uint32_t[OPS]){0, 1, 2, 3, 4, 5});
}

static void a_lane_of_higher_priority_overtakes(void **state)
{
    (void)state;
    open_two();
    set_priority(3, 1);
    set_priority(5, 200);
    run_all();
    assert_order((const uint32_t[OPS]){5, 3, 0, 1, 2, 4});
}

static void a_priority_lasts_over_a_change_of_view(void **state)
{
    (void)state;
    open_two();
    set_priority(4, 1);
    group_ring_change(&ring, UINT32_MAX);
    run_all();
    assert_order((const uint32_t[OPS]){4, 0, 1, 2, 3, 5});
}

static void there_are_64_lanes(void **state)
{
    (void)state;
    open_two();
    assert_int_equal(muster_group_set_priority(ring.members[0].group, 64, 1),
                     MUSTER_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_RING_CASE(lanes_of_one_priority_end_as_they_were_started),
        GROUP_RING_CASE(a_lane_of_higher_priority_overtakes),
        GROUP_RING_CASE(a_priority_lasts_over_a_change_of_view),
        GROUP_RING_CASE(there_are_64_lanes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
