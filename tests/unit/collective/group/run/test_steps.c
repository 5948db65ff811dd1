/* Plans of steps over real frames: right on all members, little memory, nothing for the late. */
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#include "collective/group/group_internal.h"

struct seat {
    struct muster_op op;
    int64_t *values;
    bool is_done;
};

static struct group_ring ring;
static struct seat seats[GROUP_RING_MAX];

static const enum muster_algorithm algorithms[] = {
    MUSTER_ALGORITHM_RING, MUSTER_ALGORITHM_HALVING, MUSTER_ALGORITHM_DOUBLE_TREE,
    MUSTER_ALGORITHM_BLOCKS, MUSTER_ALGORITHM_TWO_LEVEL};

#define ALGORITHM_COUNT (sizeof(algorithms) / sizeof(algorithms[0]))

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    if (rc != MUSTER_OK)
        fail_msg("%s", op->error.text);
    seat->is_done = true;
}

static void open_ring(enum muster_algorithm algorithm, uint32_t n, uint32_t chunk_bytes,
                      uint32_t per_host)
{
    const struct muster_plan_parameters parameters = {
        .chunk_bytes = chunk_bytes, .direct_max_bytes = 1, .forced = algorithm};

    memset(seats, 0, sizeof(seats));
    group_ring_open_hosts(&ring, n, &parameters, per_host);
}

static void start_member(uint32_t member, uint64_t count, enum muster_reduction reduction)
{
    struct seat *seat = &seats[member];
    struct muster_tensor tensor = {.count = count, .dtype = MUSTER_I64};

    seat->values = malloc(count * sizeof(*seat->values));
    for (uint64_t i = 0; i < count; i++)
        seat->values[i] = (int64_t)(i * 31 + (member + 1) * 1000);
    tensor.data = seat->values;
    seat->is_done = false;
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    assert_int_equal(
        muster_all_reduce_start(&seat->op, ring.members[member].group, &tensor, reduction, on_done),
        MUSTER_OK);
}

static void finish_all(uint32_t n)
{
    for (unsigned turns = 0;; turns++) {
        bool are_done = true;

        for (uint32_t member = 0; member < n; member++)
            are_done = are_done && seats[member].is_done;
        if (are_done)
            return;
        assert_true(turns < 20000);
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    }
}

static void check_values(uint32_t n, uint64_t count, enum muster_reduction reduction)
{
    int64_t offsets = 500 * (int64_t)n * ((int64_t)n + 1);

    for (uint32_t member = 0; member < n; member++) {
        for (uint64_t i = 0; i < count; i++) {
            int64_t sum = (int64_t)(n * i * 31) + offsets;

            assert_true(seats[member].values[i] == (reduction == MUSTER_MEAN ? sum / n : sum));
        }
        free(seats[member].values);
    }
}

static void all_members_have_the_sum_whatever_the_algorithm(void **state)
{
    static const uint64_t counts[] = {1, 7, 100, 1009, 20000};

    (void)state;
    for (size_t a = 0; a < ALGORITHM_COUNT; a++)
        for (uint32_t n = 2; n <= 9; n += 1 + n / 4) {
            open_ring(algorithms[a], n, 1024, 2);
            assert_string_equal(muster_group_algorithm(ring.members[0].group, MUSTER_OP_ALL_REDUCE,
                                                       1000, MUSTER_I64),
                                muster_algorithm_name(algorithms[a]));
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                enum muster_reduction reduction = i % 2 == 0 ? MUSTER_SUM : MUSTER_MEAN;

                for (uint32_t member = 0; member < n; member++)
                    start_member(n - 1 - member, counts[i], reduction);
                finish_all(n);
                check_values(n, counts[i], reduction);
            }
            group_ring_close(&ring);
        }
}

/* By force, or by a rule for shared memory. */
static void steps_run_beside_boards(void **state)
{
    struct muster_plan_parameters parameters = {.chunk_bytes = 1024, .row_count = 1};

    (void)state;
    parameters.rows[0] = (struct muster_plan_row){.kind = MUSTER_OP_ALL_REDUCE,
                                                  .wire = MUSTER_WIRE_SHM,
                                                  .algorithm = MUSTER_ALGORITHM_HALVING,
                                                  .bytes_max = 80000};
    group_ring_has_boards = true;
    memset(seats, 0, sizeof(seats));
    group_ring_open_hosts(&ring, 3, &parameters, 0);
    group_ring_turn(&ring, 50);
    assert_string_equal(
        muster_group_algorithm(ring.members[0].group, MUSTER_OP_ALL_REDUCE, 10000, MUSTER_I64),
        "halving");
    assert_string_equal(
        muster_group_algorithm(ring.members[0].group, MUSTER_OP_ALL_REDUCE, 10001, MUSTER_I64),
        "flat");
    for (uint64_t count = 10000; count <= 10001; count++) {
        for (uint32_t member = 0; member < 3; member++)
            start_member(member, count, MUSTER_SUM);
        finish_all(3);
        check_values(3, count, MUSTER_SUM);
    }
    group_ring_close(&ring);
    group_ring_has_boards = false;
}

/* Nothing but START and small messages comes before an operation has been started. */
static void a_late_member_keeps_little_of_what_the_others_send(void **state)
{
    const uint64_t count = 200000; /* 1.6 MB */

    (void)state;
    for (size_t a = 1; a < ALGORITHM_COUNT; a++) {
        open_ring(algorithms[a], 4, 64 << 10, 2);
        for (uint32_t member = 1; member < 4; member++)
            start_member(member, count, MUSTER_SUM);
        group_ring_turn(&ring, 300);

        assert_true(ring.members[0].group->early_bytes < 64 << 10);
        start_member(0, count, MUSTER_SUM);
        finish_all(4);
        check_values(4, count, MUSTER_SUM);
        group_ring_close(&ring);
    }
}

#define STEADY_ROUNDS 4u
#define ROUNDS_MAX    60u

/* Everything comes out of the pool. How many messages wait at a time depends on how the kernel runs the members, so the
 * pool may grow once more in a late round, but not in each. */
static void a_steady_operation_allocates_nothing(void **state)
{
    (void)state;
    for (size_t a = 1; a < ALGORITHM_COUNT; a++) {
        size_t held = 0;
        unsigned steady = 0;

        open_ring(algorithms[a], 4, 4 << 10, 2);
        for (unsigned round = 0; round < ROUNDS_MAX && steady < STEADY_ROUNDS; round++) {
            for (uint32_t member = 0; member < 4; member++)
                start_member(member, 9000, MUSTER_SUM);
            finish_all(4);
            check_values(4, 9000, MUSTER_SUM);
            group_ring_turn(&ring, 20);
            steady = ring.test.mem.held_bytes == held ? steady + 1 : 0;
            held = ring.test.mem.held_bytes;
        }
        assert_int_equal(steady, STEADY_ROUNDS);
        group_ring_close(&ring);
    }
}

static void a_message_that_no_plan_knows_breaks_the_link(void **state)
{
    struct muster_frame_header header = {.channel = MUSTER_FRAME_COLLECTIVE,
                                         .type = MUSTER_FRAME_STEP,
                                         .epoch = 1,
                                         .chunk = 3,
                                         .phase = 9};

    (void)state;
    open_ring(MUSTER_ALGORITHM_HALVING, 2, 1024, 0);
    group_ring_turn(&ring, 20);
    start_member(0, 100, MUSTER_SUM);
    header.descriptor = ((struct muster_run *)seats[0].op.impl)->descriptor;
    muster_wire_send(ring.members[1].wire, 0, &header, NULL, NULL);
    for (unsigned i = 0; i < 500 && ring.members[0].suspect_count == 0; i++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);

    assert_int_equal(ring.members[0].suspect_count, 1);
    group_ring_kill(&ring, 1);
    group_ring_change(&ring, UINT32_MAX);
    group_ring_turn(&ring, 20);
    assert_true(seats[0].is_done);
    assert_true(seats[0].values[1] == 1031);
    group_ring_close(&ring);
    free(seats[0].values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_have_the_sum_whatever_the_algorithm),
        cmocka_unit_test(steps_run_beside_boards),
        cmocka_unit_test(a_late_member_keeps_little_of_what_the_others_send),
        cmocka_unit_test(a_steady_operation_allocates_nothing),
        cmocka_unit_test(a_message_that_no_plan_knows_breaks_the_link),
    };

    return cmocka_run_group_tests_name("run_steps", tests, NULL, NULL);
}
