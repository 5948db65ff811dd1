/* Lists of tensors: which travel together, and that they end as one operation. */
#include "assertion_count.h"
#include "group_ring.h"

#include <stdlib.h>
#include <string.h>

#include <muster/collective.h>

#include "collective/kernel/packing.h"

#define TENSORS   7
#define TURNS_MAX 3000

struct seat {
    struct muster_list_op op;
    struct muster_tensor tensors[TENSORS];
    int32_t memory[TENSORS][600];
    unsigned done_count;
    enum muster_rc rc;
};

static struct group_ring ring;
static struct seat seats[GROUP_RING_MAX];

/* --- Packs --- */

/* TensorFlow 2.21 was seen to do this; counts of tensors by pack, from the last tensor on. */
static void packs_are_those_of_tensorflow(void **state)
{
    static const struct {
        const char *name;
        uint64_t bytes_per_pack;
        uint64_t counts[4]; /* f32; the first 0 after `tensors` is not looked at */
        size_t tensors;
        size_t firsts[4]; /* of the packs */
    } rows[] = {
        {"zero means one pack", 0, {10, 20, 30}, 3, {0}},
        {"exceeds before the next", 40, {10, 10, 10, 10}, 4, {2, 0}},
        {"just below", 41, {10, 10, 10, 10}, 4, {2, 0}},
        {"one byte", 1, {1, 1, 1}, 3, {2, 1, 0}},
        {"large first", 100, {2, 3, 100, 4}, 4, {2, 0}},
        {"all fit", 10000, {10, 20}, 2, {0}},
        {"scalar", 4, {1, 1, 1}, 3, {1, 0}},
        {"two dimensions", 64, {16, 4, 9, 1}, 4, {0}},
        {"empty tensors", 4, {0, 1, 0, 1}, 4, {1, 0}},
    };

    (void)state;
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        struct muster_tensor tensors[4];
        size_t end = rows[row].tensors;

        for (size_t i = 0; i < 4; i++)
            tensors[i] = (struct muster_tensor){.count = rows[row].counts[i], .dtype = MUSTER_F32};
        for (size_t pack = 0; end > 0; pack++) {
            struct muster_pack got = muster_pack_before(tensors, end, rows[row].bytes_per_pack);

            fail_if(got.first != rows[row].firsts[pack] || got.end != end,
                    "%s: pack %zu is %zu … %zu", rows[row].name, pack, got.first, got.end);
            end = got.first;
        }
    }
}

static void a_pack_of_several_types_has_a_part_for_each(void **state)
{
    const struct muster_tensor tensors[] = {{.count = 2, .dtype = MUSTER_F32},
                                            {.count = 2, .dtype = MUSTER_F64},
                                            {.count = 8, .dtype = MUSTER_F16},
                                            {.count = 1, .dtype = MUSTER_F16}};
    struct muster_pack pack = muster_pack_before(tensors, 4, 100);
    struct muster_pack part = muster_pack_part_before(tensors, pack, 4);

    (void)state;
    assert_int_equal(pack.first, 0);
    assert_int_equal(part.first, 2);
    assert_int_equal(muster_pack_elements(tensors, part), 9);
    assert_int_equal(muster_pack_part_before(tensors, pack, 2).first, 1);
    assert_int_equal(muster_pack_part_before(tensors, pack, 1).first, 0);
}

static void neighbours_in_memory_need_no_copy(void **state)
{
    float flat[12];
    const struct muster_tensor tensors[] = {
        {flat, 4, MUSTER_F32}, {flat + 4, 3, MUSTER_F32}, {flat + 8, 4, MUSTER_F32}};

    (void)state;
    assert_true(muster_pack_is_contiguous(tensors, (struct muster_pack){0, 2}));
    assert_true(muster_pack_is_contiguous(tensors, (struct muster_pack){2, 3}));
    assert_false(muster_pack_is_contiguous(tensors, (struct muster_pack){1, 3}));
}

/* --- Lists --- */

static const uint64_t counts[TENSORS] = {3, 0, 500, 17, 1, 599, 64};

static void on_done(struct muster_list_op *op, enum muster_rc rc)
{
    struct seat *seat = op->data;

    seat->done_count++;
    seat->rc = rc;
}

static int32_t value_at(uint32_t member, size_t tensor, uint64_t i)
{
    return (int32_t)(member * 1000 + tensor * 100 + i % 83);
}

static void prepare_call(uint32_t member, uint64_t bytes_per_pack)
{
    struct seat *seat = &seats[member];

    memset(seat, 0, sizeof(*seat)); /* fini has been called */
    seat->op.data = seat;
    seat->op.deadline_ns = muster_loop_after_ns(ring.test.env.loop, 30 * MUSTER_NS_PER_S);
    seat->op.bytes_per_pack = bytes_per_pack;
    for (size_t t = 0; t < TENSORS; t++) {
        seat->tensors[t] =
            (struct muster_tensor){seat->memory[t], counts[t], t == 3 ? MUSTER_U32 : MUSTER_I32};
        for (uint64_t i = 0; i < counts[t]; i++)
            seat->memory[t][i] = value_at(member, t, i);
    }
}

/* The lists keep memory of the ring's environment. */
static void close_ring(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++)
        if (ring.members[member].group == NULL) /* dead: its list has ended with its group */
            group_ring_turn(&ring, 2);
    for (uint32_t member = 0; member < n; member++)
        muster_list_op_fini(&seats[member].op);
    group_ring_close(&ring);
}

static bool are_done(uint32_t n)
{
    for (uint32_t member = 0; member < n; member++)
        if (!ring.members[member].is_dead && seats[member].done_count == 0)
            return false;
    return true;
}

static void run_until_done(uint32_t n)
{
    for (unsigned turns = 0; !are_done(n); turns++) {
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
        fail_if(turns > TURNS_MAX, "the members hang");
    }
}

static void start_sum(uint32_t member)
{
    assert_int_equal(muster_all_reduce_list_start(&seats[member].op, ring.members[member].group,
                                                  seats[member].tensors, TENSORS, MUSTER_SUM,
                                                  on_done),
                     MUSTER_OK);
}

static void check_sums(uint32_t member, uint32_t n)
{
    assert_int_equal(seats[member].done_count, 1);
    assert_int_equal(seats[member].rc, MUSTER_OK);
    assert_int_equal(seats[member].op.result.contributor_count, n);
    for (size_t t = 0; t < TENSORS; t++)
        for (uint64_t i = 0; i < counts[t]; i++) {
            int32_t sum = 0;

            for (uint32_t other = 0; other < n; other++)
                sum += value_at(other, t, i);
            assert_int_equal(seats[member].memory[t][i], sum);
        }
}

static const uint64_t packs[] = {0, 1, 100, 2000, 1 << 20};

static void every_tensor_of_a_list_is_reduced(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof(packs) / sizeof(packs[0]); p++)
        for (uint32_t n = 1; n <= 3; n++) {
            group_ring_open(&ring, n);
            for (uint32_t member = 0; member < n; member++) {
                prepare_call(member, packs[p]);
                start_sum(member);
            }
            run_until_done(n);
            for (uint32_t member = 0; member < n; member++)
                check_sums(member, n);
            close_ring(n);
        }
}

static void a_list_of_the_root_comes_to_all(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof(packs) / sizeof(packs[0]); p++) {
        group_ring_open(&ring, 3);
        for (uint32_t member = 0; member < 3; member++) {
            prepare_call(member, packs[p]);
            assert_int_equal(
                muster_broadcast_list_start(&seats[member].op, ring.members[member].group,
                                            seats[member].tensors, TENSORS, 1, on_done),
                MUSTER_OK);
        }
        run_until_done(3);
        for (uint32_t member = 0; member < 3; member++)
            for (size_t t = 0; t < TENSORS; t++)
                for (uint64_t i = 0; i < counts[t]; i++)
                    assert_int_equal(seats[member].memory[t][i], value_at(1, t, i));
        close_ring(3);
    }
}

/* One rank's tensors lie in one piece of memory. */
static void who_needs_no_copy_meets_who_does(void **state)
{
    static int32_t flat[2000];
    int32_t *at = flat;

    (void)state;
    group_ring_open(&ring, 2);
    for (uint32_t member = 0; member < 2; member++)
        prepare_call(member, 0);
    for (size_t t = 0; t < TENSORS; t++) {
        memcpy(at, seats[0].memory[t], counts[t] * sizeof(*at));
        seats[0].tensors[t].data = at;
        at += counts[t];
    }
    start_sum(0);
    start_sum(1);
    run_until_done(2);
    check_sums(1, 2);
    at = flat;
    for (size_t t = 0; t < TENSORS; at += counts[t], t++)
        assert_memory_equal(at, seats[1].memory[t], counts[t] * sizeof(*at));
    close_ring(2);
}

static void a_list_without_tensors_is_done_when_all_have_started_it(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    for (uint32_t member = 0; member < 2; member++) {
        prepare_call(member, 0);
        assert_int_equal(muster_all_reduce_list_start(&seats[member].op, ring.members[member].group,
                                                      NULL, 0, MUSTER_SUM, on_done),
                         MUSTER_OK);
        group_ring_turn(&ring, 20);
        assert_int_equal(seats[0].done_count, member);
    }
    run_until_done(2);
    assert_int_equal(seats[1].rc, MUSTER_OK);
    close_ring(2);
}

/* Returns whether the k-th point exists. */
static bool play_death(unsigned k, uint64_t bytes_per_pack)
{
    bool has_cut;

    group_ring_open(&ring, 3);
    ring.members[1].cut_at = k;
    ring.is_stopped_at_cut = k % 2 == 0;
    for (uint32_t member = 0; member < 3; member++) {
        prepare_call(member, bytes_per_pack);
        if (!ring.members[member].is_dead)
            start_sum(member);
    }
    for (unsigned turns = 0; !ring.has_cut && !are_done(3) && turns < TURNS_MAX; turns++)
        muster_loop_turn(ring.test.env.loop, MUSTER_NS_PER_MS);
    has_cut = ring.has_cut;
    if (has_cut) {
        group_ring_kill(&ring, 1);
        group_ring_change(&ring, UINT32_MAX);
        run_until_done(3);
        assert_int_equal(seats[0].rc, MUSTER_OK);
        assert_int_equal(seats[2].rc, MUSTER_OK);
        for (size_t t = 0; t < TENSORS; t++)
            assert_memory_equal(seats[0].memory[t], seats[2].memory[t],
                                counts[t] * sizeof(int32_t));
    }
    close_ring(3);
    return has_cut;
}

static void a_death_leaves_the_same_list_on_all(void **state)
{
    (void)state;
    for (size_t p = 0; p < 2; p++)
        for (unsigned k = 1; k < 2000; k++)
            if (!play_death(k, p == 0 ? 0 : 300))
                break;
}

static void a_list_that_fails_has_left_packed_tensors_as_they_were(void **state)
{
    (void)state;
    group_ring_open(&ring, 2);
    for (uint32_t member = 0; member < 2; member++)
        prepare_call(member, 0);
    seats[1].tensors[5].count--;
    for (uint32_t member = 0; member < 2; member++)
        start_sum(member);
    run_until_done(2);
    for (uint32_t member = 0; member < 2; member++) {
        assert_int_equal(seats[member].rc, MUSTER_INVALID_ARGUMENT);
        assert_non_null(strstr(seats[member].op.error.text, "i32 x 664"));
        assert_non_null(strstr(seats[member].op.error.text, "i32 x 663"));
        for (uint64_t i = 0; i < counts[5]; i++)
            assert_int_equal(seats[member].memory[5][i], value_at(member, 5, i));
    }
    close_ring(2);
}

static void overlapping_and_meaningless_lists_are_refused(void **state)
{
    struct muster_tensor *tensors = seats[0].tensors;

    (void)state;
    group_ring_open(&ring, 1);
    prepare_call(0, 0);
    tensors[3].data = &seats[0].memory[2][499];
    assert_int_equal(muster_all_reduce_list_start(&seats[0].op, ring.members[0].group, tensors,
                                                  TENSORS, MUSTER_SUM, on_done),
                     MUSTER_INVALID_ARGUMENT);
    muster_list_op_fini(&seats[0].op);
    prepare_call(0, 0);
    tensors[3].dtype = MUSTER_BOOL;
    assert_int_equal(muster_all_reduce_list_start(&seats[0].op, ring.members[0].group, tensors,
                                                  TENSORS, MUSTER_SUM, on_done),
                     MUSTER_INVALID_ARGUMENT);
    close_ring(1);
    assert_int_equal(seats[0].done_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_are_those_of_tensorflow),
        cmocka_unit_test(a_pack_of_several_types_has_a_part_for_each),
        cmocka_unit_test(neighbours_in_memory_need_no_copy),
        cmocka_unit_test(every_tensor_of_a_list_is_reduced),
        cmocka_unit_test(a_list_of_the_root_comes_to_all),
        cmocka_unit_test(who_needs_no_copy_meets_who_does),
        cmocka_unit_test(a_list_without_tensors_is_done_when_all_have_started_it),
        cmocka_unit_test(a_death_leaves_the_same_list_on_all),
        cmocka_unit_test(a_list_that_fails_has_left_packed_tensors_as_they_were),
        cmocka_unit_test(overlapping_and_meaningless_lists_are_refused),
    };
    int failed = cmocka_run_group_tests_name("list_op", tests, NULL, NULL);

    group_ring_has_boards = true;
    return failed + cmocka_run_group_tests_name("list_op, through boards", tests, NULL, NULL);
}
