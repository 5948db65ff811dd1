/* Splits: operations of some members at a time, and one change of view for all of them. */
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#include <muster/collective.h>

#define DATA_LANE   8u  /* members of one column: task index % 2 */
#define TENSOR_LANE 12u /* members of one row: task index / 2 */
#define COUNT_MAX   500
#define TURNS_MAX   3000

struct seat {
    struct muster_op op;
    int32_t values[COUNT_MAX * 4];
    unsigned done_count;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct seat seats[2][GROUP_RING_MAX]; /* of the data and the tensor lane */

static uint32_t column_of(void *data, const struct muster_member *member)
{
    (void)data;
    return member->task_index % 2;
}

static uint32_t row_of(void *data, const struct muster_member *member)
{
    (void)data;
    return member->task_index / 2;
}

static const struct muster_split data_split = {
    .lane = DATA_LANE, .lane_count = 4, .color = column_of};
static const struct muster_split tensor_split = {
    .lane = TENSOR_LANE, .lane_count = 2, .color = row_of};

static const uint32_t lanes[] = {DATA_LANE + 1, TENSOR_LANE};

static uint32_t color_of(size_t split, uint32_t member)
{
    return split == 0 ? member % 2 : member / 2;
}

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

static void split_member(uint32_t member)
{
    assert_int_equal(muster_group_split(ring.members[member].group, &data_split), MUSTER_OK);
    assert_int_equal(muster_group_split(ring.members[member].group, &tensor_split), MUSTER_OK);
}

static void open_ring(uint32_t n)
{
    group_ring_open(&ring, n);
    for (uint32_t member = 0; member < n; member++)
        split_member(member);
}

static int32_t value_at(size_t split, uint32_t member, uint64_t i)
{
    return (int32_t)(1000 * (split + 1) + 100 * member + i % 89);
}

static struct muster_op *prepare_call(size_t split, uint32_t member, uint64_t count)
{
    struct seat *seat = &seats[split][member];

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.lane = lanes[split];
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
    for (uint64_t i = 0; i < count; i++)
        seat->values[i] = value_at(split, member, i);
    return &seat->op;
}

static void start_sum(size_t split, uint32_t member, uint64_t count)
{
    struct muster_op *op = prepare_call(split, member, count);
    const struct muster_tensor tensor = {seats[split][member].values, count, MUSTER_I32};

    assert_int_equal(
        muster_all_reduce_start(op, ring.members[member].group, &tensor, MUSTER_SUM, on_done),
        MUSTER_OK);
}

static bool are_done(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++)
        if (group_ring_is_living(&ring, member) &&
            (seats[0][member].done_count == 0 || seats[1][member].done_count == 0))
            return false;
    return true;
}

static void run_until_done(uint32_t n)
{
    for (unsigned turns = 0; !are_done(n); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        if (turns > TURNS_MAX)
            fail_msg("the members hang");
    }
}

/* without: bit r = member r did not contribute. */
static int32_t sum_at(size_t split, uint32_t color, uint32_t n, unsigned without, uint64_t i)
{
    int32_t sum = 0;

    for (uint32_t member = 0; member < n; member++)
        if (color_of(split, member) == color && (without >> member & 1) == 0)
            sum += value_at(split, member, i);
    return sum;
}

static void check_sum(size_t split, uint32_t member, uint32_t n, unsigned without, uint64_t count)
{
    const struct seat *seat = &seats[split][member];

    assert_int_equal(seat->done_count, 1);
    assert_int_equal(seat->rc, MUSTER_OK);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(seat->values[i], sum_at(split, color_of(split, member), n, without, i));
}

static void members_of_one_color_reduce_among_themselves(void **state)
{
    static const uint64_t counts[] = {0, 5, COUNT_MAX};

    (void)state;
    for (uint32_t n = 1; n <= 6; n++)
        for (size_t c = 0; c < 3; c++) {
            open_ring(n);
            for (uint32_t member = 0; member < n; member++)
                for (size_t split = 0; split < 2; split++)
                    start_sum(split, member, counts[c]);
            run_until_done(n);
            for (uint32_t member = 0; member < n; member++)
                for (size_t split = 0; split < 2; split++)
                    check_sum(split, member, n, 0, counts[c]);
            group_ring_close(&ring);
        }
}

static void a_color_waits_for_no_other(void **state)
{
    (void)state;
    open_ring(4);
    for (unsigned again = 0; again < 3; again++) {
        start_sum(0, 0, 7);
        start_sum(0, 2, 7);
        for (unsigned turns = 0; turns < 200; turns++)
            if (seats[0][0].done_count + seats[0][2].done_count < 2)
                muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        check_sum(0, 0, 4, 0, 7);
    }
    assert_int_equal(seats[0][2].rc, MUSTER_OK);
    assert_int_equal(muster_group_lane_size(ring.members[2].group, DATA_LANE), 2);
    assert_int_equal(muster_group_lane_rank(ring.members[2].group, DATA_LANE), 1);
    assert_int_equal(muster_group_lane_rank(ring.members[2].group, TENSOR_LANE), 0);
    assert_int_equal(muster_group_lane_size(ring.members[2].group, 0), 4);
    assert_int_equal(muster_group_lane_rank(ring.members[2].group, 0), 2);
}

static void parts_are_counted_within_the_color(void **state)
{
    (void)state;
    open_ring(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++) {
            struct muster_op *op = prepare_call(split, member, 60);
            int32_t *values = seats[split][member].values;
            const struct muster_tensor input = {values, 60, MUSTER_I32};
            const struct muster_tensor output = {values + COUNT_MAX, 120, MUSTER_I32};

            assert_int_equal(
                muster_all_gather_start(op, ring.members[member].group, &input, &output, on_done),
                MUSTER_OK);
        }
    run_until_done(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++)
            for (uint32_t i = 0; i < 120; i++) {
                uint32_t other = split == 0 ? member % 2 + i / 60 * 2 : member / 2 * 2 + i / 60;

                assert_int_equal(seats[split][member].values[COUNT_MAX + i],
                                 value_at(split, other, i % 60));
            }
}

/* The elements that the member at place `from` of a color has for the one at place `to`. */
static uint64_t uneven_count(uint32_t from, uint32_t to)
{
    return 20 * (from + 1) + 10 * to;
}

static void start_uneven(size_t split, uint32_t member)
{
    struct muster_op *op = prepare_call(split, member, COUNT_MAX);
    int32_t *values = seats[split][member].values;
    uint32_t place = muster_group_lane_rank(ring.members[member].group, op->lane);
    const uint64_t sent[] = {uneven_count(place, 0), uneven_count(place, 1)};
    const uint64_t received[] = {uneven_count(0, place), uneven_count(1, place)};
    const struct muster_parts input = {values, sent, 2, MUSTER_I32};
    const struct muster_parts output = {values + COUNT_MAX, received, 2, MUSTER_I32};

    assert_int_equal(
        muster_all_to_all_uneven_start(op, ring.members[member].group, &input, &output, on_done),
        MUSTER_OK);
}

static void exchanges_stay_within_the_color(void **state)
{
    (void)state;
    open_ring(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++)
            start_uneven(split, member);
    run_until_done(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++) {
            const int32_t *at = seats[split][member].values + COUNT_MAX;
            uint32_t place = split == 0 ? member / 2 : member % 2;

            assert_int_equal(seats[split][member].rc, MUSTER_OK);
            for (uint32_t from = 0; from < 2; from++) {
                uint32_t other = split == 0 ? member % 2 + from * 2 : member / 2 * 2 + from;
                uint64_t first = place == 0 ? 0 : uneven_count(from, 0);

                for (uint64_t i = 0; i < uneven_count(from, place); i++)
                    assert_int_equal(*at++, value_at(split, other, first + i));
            }
        }
}

static void a_root_is_a_member_of_the_color(void **state)
{
    (void)state;
    open_ring(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++) {
            struct muster_op *op = prepare_call(split, member, 100);
            const struct muster_tensor tensor = {seats[split][member].values, 100, MUSTER_I32};
            uint32_t root = split == 0 ? member % 2 + 2 : member / 2 * 2 + 1;

            assert_int_equal(
                muster_broadcast_start(op, ring.members[member].group, &tensor, 3 - root, on_done),
                MUSTER_INVALID_ARGUMENT);
            assert_int_equal(
                muster_broadcast_start(op, ring.members[member].group, &tensor, root, on_done),
                MUSTER_OK);
        }
    run_until_done(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++)
            assert_int_equal(seats[split][member].values[99],
                             value_at(split, split == 0 ? member % 2 + 2 : member / 2 * 2 + 1, 99));
}

/* Frames of a lane that is not split here yet wait. */
static void who_splits_late_has_missed_nothing(void **state)
{
    (void)state;
    group_ring_open(&ring, 4);
    for (uint32_t member = 0; member < 3; member++) {
        split_member(member);
        for (size_t split = 0; split < 2; split++)
            start_sum(split, member, COUNT_MAX);
    }
    group_ring_turn(&ring, 50);
    split_member(3);
    for (size_t split = 0; split < 2; split++)
        start_sum(split, 3, COUNT_MAX);
    run_until_done(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++)
            check_sum(split, member, 4, 0, COUNT_MAX);
}

static void members_of_one_color_that_differ_are_told_and_the_others_go_on(void **state)
{
    (void)state;
    open_ring(4);
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2; split++)
            start_sum(split, member, split == 0 && member == 3 ? 8 : 9);
    run_until_done(4);
    for (uint32_t member = 0; member < 4; member++) {
        check_sum(1, member, 4, 0, 9);
        assert_int_equal(seats[0][member].rc,
                         member % 2 == 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
    }
    assert_non_null(strstr(seats[0][1].op.error.text, "rank 3 (worker:3)"));
}

/* --- Deaths --- */

static unsigned adopted_count, retried_count;

static void check_survivor(size_t split, uint32_t member, uint32_t victim, uint64_t count)
{
    bool is_concerned = color_of(split, member) == color_of(split, victim);
    uint32_t contributors = seats[split][member].op.result.contributor_count;

    assert_int_equal(contributors, is_concerned ? contributors : 2);
    check_sum(split, member, 4, contributors == 2 ? 0 : 1u << victim, count);
    adopted_count += is_concerned && contributors == 2;
    retried_count += is_concerned && contributors == 1;
}

/* Returns whether the k-th point exists. */
static bool play_scene(uint32_t victim, unsigned k, uint64_t count, bool is_stopped)
{
    bool has_cut;

    open_ring(4);
    ring.members[victim].cut_at = k;
    ring.is_stopped_at_cut = is_stopped;
    for (uint32_t member = 0; member < 4; member++)
        for (size_t split = 0; split < 2 && group_ring_is_living(&ring, member); split++)
            start_sum((split + member) % 2, member, count); /* in either order */
    for (unsigned turns = 0; !ring.has_cut && !are_done(4) && turns < TURNS_MAX; turns++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    has_cut = ring.has_cut;
    if (has_cut) {
        if (!is_stopped)
            group_ring_turn(&ring, 12);
        group_ring_kill(&ring, victim);
        group_ring_change(&ring, UINT32_MAX);
        run_until_done(4);
        for (uint32_t member = 0; member < 4; member++)
            for (size_t split = 0; split < 2 && group_ring_is_living(&ring, member); split++)
                check_survivor(split, member, victim, count);
    }
    group_ring_close(&ring);
    return has_cut;
}

static void one_change_of_view_decides_the_operations_of_all_colors(void **state)
{
    (void)state;
    for (uint64_t count = 9; count < COUNT_MAX; count += 200)
        for (uint32_t victim = 0; victim < 4; victim++)
            for (unsigned k = 1; k < 2000; k++)
                if (!play_scene(victim, k, count, k % 2 == 0))
                    break;
    if (!group_ring_has_boards)
        assert_true(adopted_count > 10 && retried_count > 10);
}

/* By them the leader knows what is stable, and who takes part. */
static void the_vector_names_lanes_with_their_colors(void **state)
{
    struct muster_progress progress;

    (void)state;
    open_ring(4);
    assert_int_equal(muster_group_freeze(ring.members[1].group, &progress), MUSTER_OK);
    assert_int_equal(progress.lanes[0].lane, 0);
    assert_int_equal(progress.lanes[3].lane, 3);
    assert_int_equal(progress.lanes[DATA_LANE].lane, DATA_LANE + 2 * MUSTER_LANE_COLOR);
    assert_int_equal(progress.lanes[TENSOR_LANE].lane, TENSOR_LANE + MUSTER_LANE_COLOR);
    muster_progress_fini(&progress);
}

static void a_joiner_takes_the_color_of_its_task(void **state)
{
    (void)state;
    open_ring(4);
    group_ring_kill(&ring, 1);
    group_ring_change(&ring, group_ring_add(&ring)); /* task 4: column 0, row 2 */
    split_member(4);
    for (uint32_t member = 0; member < 5; member++)
        if (group_ring_is_living(&ring, member))
            muster_group_begin_step(ring.members[member].group, 1);
    assert_int_equal(muster_group_lane_size(ring.members[0].group, DATA_LANE), 3);
    assert_int_equal(muster_group_lane_size(ring.members[3].group, DATA_LANE), 1);
    assert_int_equal(muster_group_lane_size(ring.members[4].group, TENSOR_LANE), 1);
    for (uint32_t member = 0; member < 5; member++)
        for (size_t split = 0; split < 2 && group_ring_is_living(&ring, member); split++)
            start_sum(split, member, 300);
    run_until_done(5);
    for (uint32_t member = 0; member < 5; member++)
        for (size_t split = 0; split < 2 && group_ring_is_living(&ring, member); split++)
            check_sum(split, member, 5, 1u << 1, 300);
}

static void a_vote_names_each_lane_with_its_color(void **state)
{
    const struct muster_op_id plain = {.lane = 1};
    struct muster_progress progress;

    (void)state;
    open_ring(3);
    for (uint32_t member = 0; member < 3; member++) {
        struct muster_op_id column = {.lane = lanes[0] + (1 + member % 2) * MUSTER_LANE_COLOR};

        prepare_call(0, member, 1)->lane = 1;
        assert_int_equal(
            muster_barrier_start(&seats[0][member].op, ring.members[member].group, on_done),
            MUSTER_OK);
        assert_int_equal(muster_group_freeze(ring.members[member].group, &progress), MUSTER_OK);
        assert_true(muster_progress_lane_of(&progress, &plain)->has_issued);
        assert_non_null(muster_progress_lane_of(&progress, &column));
        column.lane += 2 * MUSTER_LANE_COLOR;
        assert_true(muster_progress_is_apart(&progress, &column));
        muster_progress_fini(&progress);
    }
}

/* --- Bad calls --- */

static uint32_t nobody_but_0(void *data, const struct muster_member *member)
{
    (void)data;
    return member->task_index == 0 ? 0 : MUSTER_COLOR_NO_GROUP;
}

static void who_has_no_color_takes_part_in_nothing(void **state)
{
    const struct muster_split split = {.lane = 1, .lane_count = 1, .color = nobody_but_0};

    (void)state;
    group_ring_open(&ring, 2);
    for (uint32_t member = 0; member < 2; member++) {
        assert_int_equal(muster_group_split(ring.members[member].group, &split), MUSTER_OK);
        prepare_call(0, member, 1)->lane = 1;
        assert_int_equal(
            muster_barrier_start(&seats[0][member].op, ring.members[member].group, on_done),
            member == 0 ? MUSTER_OK : MUSTER_INVALID_ARGUMENT);
    }
    group_ring_turn(&ring, 5);
    assert_int_equal(seats[0][0].done_count, 1);
    assert_int_equal(seats[0][0].rc, MUSTER_OK);
}

static void splits_that_make_no_sense_are_refused(void **state)
{
    const struct muster_split bad[] = {{.lane = 1, .lane_count = 1},
                                       {.lane = 1, .color = row_of},
                                       {.lane = 64, .lane_count = 1, .color = row_of},
                                       {.lane = 60, .lane_count = 5, .color = row_of}};
    const struct muster_split used = {.lane = 0, .lane_count = 2, .color = row_of};
    struct muster_group *group;

    (void)state;
    group_ring_open(&ring, 1);
    group = ring.members[0].group;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(muster_group_split(group, &bad[i]), MUSTER_INVALID_ARGUMENT);
    assert_int_equal(muster_group_split(group, &data_split), MUSTER_OK);
    assert_int_equal(muster_group_split(group, &data_split), MUSTER_ALREADY_EXISTS);
    prepare_call(0, 0, 1)->lane = 0;
    assert_int_equal(muster_barrier_start(&seats[0][0].op, group, on_done), MUSTER_OK);
    assert_int_equal(muster_group_split(group, &used), MUSTER_FAILED_PRECONDITION);
    for (uint32_t i = 1; i < MUSTER_SPLITS_MAX; i++)
        assert_int_equal(
            muster_group_split(
                group, &(struct muster_split){.lane = 20 + i, .lane_count = 1, .color = row_of}),
            MUSTER_OK);
    assert_int_equal(
        muster_group_split(group,
                           &(struct muster_split){.lane = 63, .lane_count = 1, .color = row_of}),
        MUSTER_RESOURCE_EXHAUSTED);
    group_ring_turn(&ring, 5);
    assert_int_equal(seats[0][0].done_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_one_color_reduce_among_themselves),
        GROUP_RING_CASE(a_color_waits_for_no_other),
        GROUP_RING_CASE(parts_are_counted_within_the_color),
        GROUP_RING_CASE(exchanges_stay_within_the_color),
        GROUP_RING_CASE(a_root_is_a_member_of_the_color),
        GROUP_RING_CASE(who_splits_late_has_missed_nothing),
        GROUP_RING_CASE(members_of_one_color_that_differ_are_told_and_the_others_go_on),
        cmocka_unit_test(one_change_of_view_decides_the_operations_of_all_colors),
        GROUP_RING_CASE(the_vector_names_lanes_with_their_colors),
        GROUP_RING_CASE(a_joiner_takes_the_color_of_its_task),
        GROUP_RING_CASE(a_vote_names_each_lane_with_its_color),
        GROUP_RING_CASE(who_has_no_color_takes_part_in_nothing),
        GROUP_RING_CASE(splits_that_make_no_sense_are_refused),
    };
    int failed = cmocka_run_group_tests_name("split", tests, NULL, NULL);

    group_ring_has_boards = true;
    return failed + cmocka_run_group_tests_name("split, through boards", tests, NULL, NULL);
}
