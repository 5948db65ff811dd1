/* Small operations through boards: a member that has its result closes its group while another one
 * has not yet read its input. The slot must stay as it is, and is free again later. */
#include "group_ring.h"

#include <string.h>

#include "collective/group/shm/shm_internal.h"

#define N         3u
#define LEAVER    0u
#define SLOW      1u /* reads after the leaver has closed */
#define COUNT_MAX 16u

struct seat {
    struct muster_op op;
    int32_t input[N * COUNT_MAX], output[N * COUNT_MAX];
    unsigned done_count;
    enum muster_rc rc;
};

struct row {
    enum muster_op_kind kind;
    uint32_t count; /* int32 elements of one tensor or part */
};

static struct group_ring ring;
static struct seat seats[N];
static bool has_left;

static void on_done(struct muster_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

static int32_t value_at(uint32_t member, uint64_t i)
{
    return (int32_t)(member * 1000 + i + 1);
}

static int32_t sum_at(uint64_t i)
{
    int32_t sum = 0;

    for (uint32_t member = 0; member < N; member++)
        sum += value_at(member, i);
    return sum;
}

/* As a process does that fails: its operations have ended, so there is nothing to hold. */
static void leave_group(void)
{
    const struct muster_error why = {.rc = MUSTER_RESOURCE_EXHAUSTED, .text = "no memory"};
    struct group_ring_member *leaver = &ring.members[LEAVER];
    struct muster_lane *lane = &leaver->group->lanes[0];

    for (struct muster_list *node = lane->runs.next; node != &lane->runs; node = node->next)
        (void)muster_shm_step(MUSTER_CONTAINER_OF(node, struct muster_run, node));
    muster_lane_settle(leaver->group, lane);
    assert_null(seats[LEAVER].op.impl); /* delivered */
    muster_group_abort_all(leaver->group, &why);
    muster_group_close(leaver->group);
    leaver->group = NULL;
    has_left = true;
}

static void on_point(void *data, const char *point)
{
    (void)data;
    if (!has_left && strcmp(point, "before flat") == 0)
        leave_group();
}

static bool is_shm_used(void *data)
{
    (void)data;
    for (uint32_t member = 0; member < N; member++)
        if (!muster_shm_is_used(ring.members[member].group))
            return false;
    return true;
}

static void scene_open(void)
{
    has_left = false;
    group_ring_open(&ring, N);
    test_env_run_until(&ring.test.env, is_shm_used, NULL);
    muster_group_set_shm_failpoint(ring.members[SLOW].group, on_point, NULL);
}

static void seat_start(uint32_t member, const struct row *row)
{
    bool is_scatter = row->kind == MUSTER_OP_REDUCE_SCATTER;
    bool is_gather = row->kind == MUSTER_OP_ALL_GATHER;
    struct muster_group *group = ring.members[member].group;
    struct seat *seat = &seats[member];
    struct muster_tensor input = {.data = seat->input,
                                  .count = is_scatter ? N * row->count : row->count,
                                  .dtype = MUSTER_I32};
    struct muster_tensor output = {.data = seat->output,
                                   .count = is_gather ? N * row->count : row->count,
                                   .dtype = MUSTER_I32};
    enum muster_rc rc = MUSTER_INTERNAL;

    memset(seat, 0, sizeof(*seat));
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 60 * MUSTER_NS_PER_S);
    for (uint64_t i = 0; i < input.count; i++)
        seat->input[i] = value_at(member, i);
    if (is_scatter)
        rc = muster_reduce_scatter_start(&seat->op, group, &input, &output, MUSTER_SUM, on_done);
    else if (is_gather)
        rc = muster_all_gather_start(&seat->op, group, &input, &output, on_done);
    else if (row->kind == MUSTER_OP_BROADCAST)
        rc = muster_broadcast_start(&seat->op, group, &input, LEAVER, on_done);
    else
        rc = muster_all_reduce_start(&seat->op, group, &input, MUSTER_SUM, on_done);
    assert_int_equal(rc, MUSTER_OK);
}

static void seat_check(uint32_t member, const struct row *row)
{
    const struct seat *seat = &seats[member];

    assert_int_equal(seat->rc, MUSTER_OK);
    for (uint64_t i = 0; i < row->count; i++) {
        if (row->kind == MUSTER_OP_ALL_REDUCE)
            assert_int_equal(seat->input[i], sum_at(i));
        else if (row->kind == MUSTER_OP_BROADCAST)
            assert_int_equal(seat->input[i], value_at(LEAVER, i));
        else if (row->kind == MUSTER_OP_REDUCE_SCATTER)
            assert_int_equal(seat->output[i], sum_at(member * row->count + i));
        else
            for (uint32_t from = 0; from < N; from++)
                assert_int_equal(seat->output[from * row->count + i], value_at(from, i));
    }
}

static bool are_others_done(void *data)
{
    (void)data;
    return seats[SLOW].done_count == 1 && seats[N - 1].done_count == 1;
}

static bool are_all_done(void *data)
{
    return are_others_done(data) && seats[LEAVER].done_count == 1;
}

static void play_scene(const struct row *row)
{
    for (uint32_t member = 0; member < N; member++)
        seat_start(member, row);
    test_env_run_until(&ring.test.env, are_others_done, NULL);
    assert_true(has_left);
    assert_null(ring.members[LEAVER].group);
    for (uint32_t member = 0; member < N; member++)
        seat_check(member, row);
}

static struct muster_shm_board *leaver_board(void)
{
    return muster_shm_board_of(ring.members[LEAVER].board);
}

static unsigned count_kept(void)
{
    unsigned count = 0;

    for (uint32_t lane = 0; lane < MUSTER_LANES_MAX; lane++)
        for (uint32_t entry = 0; entry < SHM_LANE_ENTRIES; entry++)
            count += leaver_board()->kept[lane][entry].line != 0;
    return count;
}

static void who_reads_after_a_member_has_left_reads_its_input(void **state)
{
    static const struct row rows[] = {
        {MUSTER_OP_ALL_REDUCE, 1}, {MUSTER_OP_ALL_REDUCE, COUNT_MAX}, {MUSTER_OP_BROADCAST, 2},
        {MUSTER_OP_ALL_GATHER, 3}, {MUSTER_OP_REDUCE_SCATTER, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scene_open();
        play_scene(&rows[i]);
        group_ring_close(&ring);
    }
}

/* After a change of view the same board goes on with other operations. */
static void a_kept_slot_is_given_back_with_its_place(void **state)
{
    const struct row row = {MUSTER_OP_ALL_REDUCE, 1};
    struct muster_board *board;

    (void)state;
    scene_open();
    has_left = true; /* nobody does */
    board = ring.members[LEAVER].board;
    for (uint32_t entry = 0; entry < SHM_LANE_ENTRIES; entry++) {
        uint32_t class;
        uint8_t *slot = muster_shm_heap_take(board, sizeof(int32_t), &class);

        assert_non_null(slot);
        muster_shm_kept_set(board, 0, entry, slot, class);
    }
    for (unsigned i = 1; i <= SHM_LANE_ENTRIES; i++) {
        for (uint32_t member = 0; member < N; member++)
            seat_start(member, &row);
        test_env_run_until(&ring.test.env, are_all_done, NULL);
        for (uint32_t member = 0; member < N; member++)
            seat_check(member, &row);
        assert_int_equal(count_kept(), SHM_LANE_ENTRIES - i);
    }
    group_ring_close(&ring);
}

/* Nobody may believe the announcement once the heap writes into the slot. */
static void a_kept_slot_is_given_when_the_heap_is_empty(void **state)
{
    const struct row row = {MUSTER_OP_ALL_REDUCE, 1};
    struct muster_board *board;
    _Atomic uint64_t *ready;
    uint32_t class, entry;

    (void)state;
    scene_open();
    play_scene(&row);
    board = ring.members[LEAVER].board;
    entry = muster_shm_entry_index(&seats[LEAVER].op.id);
    ready = &leaver_board()->entries[0][entry].ready;
    while (muster_shm_heap_take(board, 1, &class) != NULL)
        assert_int_not_equal(*ready, 0);

    assert_true(muster_shm_kept_give_all(board));
    assert_int_equal(*ready, 0);
    assert_non_null(muster_shm_heap_take(board, 1, &class));
    assert_false(muster_shm_kept_give_all(board));
    group_ring_close(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_reads_after_a_member_has_left_reads_its_input),
        cmocka_unit_test(a_kept_slot_is_given_back_with_its_place),
        cmocka_unit_test(a_kept_slot_is_given_when_the_heap_is_empty),
    };

    group_ring_has_boards = true;
    return cmocka_run_group_tests_name("run_shm_drop", tests, NULL, NULL);
}
