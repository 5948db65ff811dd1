/* The tree of micro-batches: the bits of a sum depend on the number of slots, and on no number of members. */
#include "assertion_count.h"
#include "test_env.h"

#include <stdlib.h>
#include <string.h>

#include "training/micro/tree.h"

#define SLOTS_MAX 70u

/* Values of many magnitudes: a sum in another order has other bits. */
static float value_of(uint32_t slot)
{
    return (float)(slot % 7 + 1) * (slot % 3 == 0   ? 1e-4f
                                    : slot % 3 == 1 ? 3.1f
                                                    : -271.3f) +
           1.0f / (float)(slot + 3);
}

/* The tree as its header has it in words. */
static float sum_plainly(uint32_t slot_count, uint32_t first, uint32_t level)
{
    uint32_t half = level > 0 ? 1u << (level - 1) : 0;

    if (level == 0)
        return value_of(first);
    if (first + half >= slot_count)
        return sum_plainly(slot_count, first, level - 1);
    return sum_plainly(slot_count, first, level - 1) +
           sum_plainly(slot_count, first + half, level - 1);
}

static uint32_t top_level(uint32_t slot_count)
{
    uint32_t level = 0;

    while ((1u << level) < slot_count)
        level++;
    return level;
}

static void sum_add(struct muster_micro_sum *sum, struct muster_micro_node node, float value,
                    float *values)
{
    values[sum->depth] = value;
    muster_micro_sum_push(sum, node);
    while (muster_micro_sum_fold(sum))
        values[sum->depth - 1] += values[sum->depth];
}

/* Each member sums its slots, then their nodes are summed by all. */
static float sum_of_members(uint32_t slot_count, uint32_t size)
{
    struct muster_micro_sum all = {.slot_count = slot_count};
    float values[MUSTER_MICRO_NODES_MAX];

    for (uint32_t rank = 0; rank < size; rank++) {
        struct muster_micro_range range = muster_micro_range_of(slot_count, rank, size);
        struct muster_micro_sum own = {.slot_count = slot_count};
        struct muster_micro_node nodes[MUSTER_MICRO_NODES_MAX];
        float own_values[MUSTER_MICRO_NODES_MAX];
        uint32_t depth = 0;

        for (uint32_t i = 0; i < range.count; i++) {
            depth = own.depth + 1 > depth ? own.depth + 1 : depth;
            sum_add(&own, (struct muster_micro_node){range.first + i, 0}, value_of(range.first + i),
                    own_values);
        }
        assert_int_equal(muster_micro_nodes(slot_count, range, nodes), own.depth);
        assert_int_equal(muster_micro_depth(slot_count, range), depth);
        for (uint32_t i = 0; i < own.depth; i++)
            sum_add(&all, nodes[i], own_values[i], values);
    }
    assert_int_equal(all.depth, 1);
    return values[0];
}

static void the_bits_of_a_sum_follow_from_the_number_of_slots(void **state)
{
    unsigned differ = 0;

    (void)state;
    for (uint32_t slots = 1; slots <= SLOTS_MAX; slots++) {
        float expected = sum_plainly(slots, 0, top_level(slots)), in_order = 0;

        for (uint32_t slot = 0; slot < slots; slot++)
            in_order += value_of(slot);
        differ += in_order != expected;
        for (uint32_t size = 1; size <= slots + 3; size++) {
            float sum = sum_of_members(slots, size);

            assert_memory_equal(&sum, &expected, sizeof(sum));
        }
    }
    assert_true(differ > SLOTS_MAX / 2); /* or the values would show nothing */
}

static void each_slot_is_one_members(void **state)
{
    static const uint32_t counts[] = {1, 2, 7, 64, 1000, MUSTER_MICRO_SLOTS_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (uint32_t size = 1; size < 70; size++) {
            uint32_t next = 0, least = UINT32_MAX, most = 0;

            for (uint32_t rank = 0; rank < size; rank++) {
                struct muster_micro_range range = muster_micro_range_of(counts[i], rank, size);

                assert_int_equal(range.first, next);
                next += range.count;
                least = range.count < least ? range.count : least;
                most = range.count > most ? range.count : most;
            }
            assert_int_equal(next, counts[i]);
            assert_true(most - least <= 1);
        }
}

/* Members of a power of two share a power of two of slots: each has one node to send. */
static void equal_members_have_one_node_each(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 64; size *= 2)
        for (uint32_t rank = 0; rank < size; rank++)
            assert_int_equal(muster_micro_nodes(64, muster_micro_range_of(64, rank, size), NULL),
                             1);
}

static void nodes_of_a_range(void **state)
{
    static const struct {
        uint32_t slots, first, count, node_count;
        struct muster_micro_node nodes[5];
    } rows[] = {
        {8, 2, 0, 0, {{0, 0}}},
        {8, 0, 8, 1, {{0, 3}}},
        {8, 1, 6, 4, {{1, 0}, {2, 1}, {4, 1}, {6, 0}}},
        {8, 2, 3, 2, {{2, 1}, {4, 0}}},
        {5, 3, 2, 2, {{3, 0}, {4, 2}}}, /* the second half of the tree is one slot */
        {1, 0, 1, 1, {{0, 0}}},
    };
    struct muster_micro_node nodes[MUSTER_MICRO_NODES_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct muster_micro_range range = {rows[i].first, rows[i].count};

        assert_int_equal(muster_micro_nodes(rows[i].slots, range, nodes), rows[i].node_count);
        assert_memory_equal(nodes, rows[i].nodes, rows[i].node_count * sizeof(nodes[0]));
    }
}

static void the_longest_row_of_nodes_has_its_place(void **state)
{
    struct muster_micro_range range = {1, MUSTER_MICRO_SLOTS_MAX - 2};

    (void)state;
    assert_int_equal(muster_micro_nodes(MUSTER_MICRO_SLOTS_MAX, range, NULL), 30);
    assert_in_range(muster_micro_depth(MUSTER_MICRO_SLOTS_MAX, range), 30, MUSTER_MICRO_NODES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_a_sum_follow_from_the_number_of_slots),
        cmocka_unit_test(each_slot_is_one_members),
        cmocka_unit_test(equal_members_have_one_node_each),
        cmocka_unit_test(nodes_of_a_range),
        cmocka_unit_test(the_longest_row_of_nodes_has_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
